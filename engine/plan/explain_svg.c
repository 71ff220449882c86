/* The plan as an SVG picture, drawn without a library: a box for each stage, with a line for each step.
 * Boxes stand in rows by their longest path from the sources. Each exchange is an arrow with a label in a
 * row of its own between the boxes, so that nothing lies over anything else; long arrows bend through the
 * rows between. Widths of texts are estimated on the wide side; texts that follow each other on a line are
 * in one <text>. */
#include "plan/explain.h"
#include "plan/explain_layout.h"

enum {
    SETTINGS_COLUMNS = 58,
    DETAIL_COLUMNS = 72,
    NAME_COLUMNS = 18,
    MARGIN = 28,
    HEAD_HEIGHT = 58,
    TITLE_HEIGHT = 34,
    LINE_HEIGHT = 19,
    NODE_GAP = 7,
    BOX_PADDING = 14,
    LABEL_HEIGHT = 22,
    BOX_WIDTH_MIN = 240,
};

/* Estimated width of a character, in pixels. */
#define CODE_WIDTH   7.3 /* 12 px, fixed width */
#define DETAIL_WIDTH 6.7 /* 11 px, fixed width */
#define TITLE_WIDTH  8.2 /* 13 px, bold */

/* A step in a box. */
struct line {
    const char *name, *kind, *settings, *detail; /* name: "" if it is the name of the line above */
};

struct box {
    struct line *lines;
    uint32_t count;
    const char *title, *instances;
    double name_width;
};

struct arrow {
    uint32_t from, to; /* indices of stages, which are also their items */
    /* Items between the stages, from index `chain` on; the last one is the label. */
    uint32_t chain, chain_count;
    const char *stream, *mode;
};

struct picture {
    const struct plan *plan;
    struct arena *arena;
    struct byte_buffer *out;
    struct layout layout; /* the first items are the stages */
    struct box *boxes;
    struct arrow *arrows;
    uint32_t arrows_count;
    uint32_t *layer;
    bool *is_fed; /* per stage: it is stage 0, or an arrow leads to it */
};

/* --- Texts --- */

static uint32_t columns_of(const char *text)
{
    return text_columns(str_from(text));
}

static void add_detail(struct arena *arena, const char **detail, const char *before, const char *text)
{
    if (text == NULL)
        return;
    bool is_first = (*detail)[0] == '\0';
    *detail = arena_printf(arena, "%s%s%s%s", *detail, is_first ? "" : "; ", before, text);
}

static const char *detail_of(const struct picture *p, const struct plan_node *node)
{
    const char *detail = "";
    add_detail(p->arena, &detail, "from ", explain_inputs(p->plan, node, p->arena));
    if (node->needs_memory)
        add_detail(p->arena, &detail, "", "keeps state");
    if (node->hold_us == INT64_MAX)
        add_detail(p->arena, &detail, "", "holds rows until the input ends");
    else if (node->hold_us > 0)
        add_detail(p->arena, &detail, "holds rows for ", explain_duration(node->hold_us, p->arena));
    add_detail(p->arena, &detail, node->tag == PLAN_SOURCE ? "" : "+ ", explain_added(node, p->arena, false));
    add_detail(p->arena, &detail, "without ", explain_dropped(node, p->arena));
    if (node->tag == PLAN_SINK && node->inputs[0].output == PLAN_OUTPUT_DEAD)
        detail = "dead letters of every stage";
    return explain_shortened(detail, DETAIL_COLUMNS, p->arena);
}

/* --- Layout --- */

static void measure_box(struct picture *p, uint32_t stage)
{
    const struct plan_stage *s = &p->plan->stages[stage];
    struct box *box = &p->boxes[stage];
    struct layout_item *item = &p->layout.items[stage];
    box->lines = arena_array(p->arena, struct line, s->nodes_count);
    box->count = s->nodes_count;
    box->title = explain_shortened(explain_stage(p->plan, stage, p->arena), SETTINGS_COLUMNS, p->arena);
    box->instances = explain_instances(p->plan, stage);
    double height = TITLE_HEIGHT + BOX_PADDING - NODE_GAP, width = 0;
    struct str above = {"", 0};
    for (uint32_t i = 0; i < s->nodes_count; i++) {
        const struct plan_node *node = &p->plan->nodes[s->nodes[i]];
        struct line *line = &box->lines[i];
        const char *name = arena_strndup(p->arena, node->name.data, node->name.length);
        line->name = str_equal(node->name, above) ? "" : explain_shortened(name, NAME_COLUMNS, p->arena);
        above = node->name;
        line->kind = explain_kind(node, p->arena);
        line->settings = explain_shortened(explain_settings(node, p->arena), SETTINGS_COLUMNS, p->arena);
        line->detail = detail_of(p, node);
        box->name_width = MAX(box->name_width, columns_of(line->name) * CODE_WIDTH + 16);
        width =
            MAX(width, columns_of(line->kind) * TITLE_WIDTH + 10 + columns_of(line->settings) * CODE_WIDTH);
        width = MAX(width, columns_of(line->detail) * DETAIL_WIDTH);
        height += LINE_HEIGHT + (line->detail[0] != '\0' ? LINE_HEIGHT - 3 : 0) + NODE_GAP;
    }
    double head =
        (10 + columns_of(box->title)) * TITLE_WIDTH + 24 + columns_of(box->instances) * DETAIL_WIDTH;
    width = MAX(width + box->name_width, head) + 2 * BOX_PADDING + 4;
    *item = (struct layout_item){.row = 2 * p->layer[stage],
                                 .width = MAX(width, BOX_WIDTH_MIN),
                                 .height = height,
                                 .weight = p->is_fed[stage] ? 1 : 0};
}

/* Sets layers by the longest path; stages that take only dead letters stand in the last one. */
static void set_layers(struct picture *p)
{
    const struct plan *plan = p->plan;
    uint32_t last = 0;
    p->is_fed = arena_array(p->arena, bool, plan->stages_count);
    p->is_fed[0] = true;
    for (uint32_t stage = 0; stage < plan->stages_count; stage++)
        for (uint32_t i = 0; i < plan->exchanges_count; i++) {
            const struct plan_exchange *x = &plan->exchanges[i];
            if (x->to_stage != stage || explain_is_dead(x))
                continue;
            leat_assert(x->from_stage < stage);
            p->is_fed[stage] = true;
            p->layer[stage] = MAX(p->layer[stage], p->layer[x->from_stage] + 1);
            last = MAX(last, p->layer[stage]);
        }
    for (uint32_t stage = 1; stage < plan->stages_count; stage++)
        if (!p->is_fed[stage])
            p->layer[stage] = last;
    p->layout.rows_count = 2 * last + 1;
}

static void add_arrow(struct picture *p, const struct plan_exchange *x)
{
    struct arrow arrow = {
        .from = x->from_stage,
        .to = x->to_stage,
        .stream = explain_shortened(explain_edge(p->plan, x->from, p->arena), NAME_COLUMNS, p->arena),
        .mode = explain_shortened(explain_exchange(p->plan, x, p->arena), SETTINGS_COLUMNS, p->arena),
    };
    for (uint32_t i = 0; i < p->arrows_count; i++) {
        const struct arrow *other = &p->arrows[i];
        if (other->from == arrow.from && other->to == arrow.to && strcmp(other->stream, arrow.stream) == 0 &&
            strcmp(other->mode, arrow.mode) == 0)
            return;
    }
    p->arrows[p->arrows_count++] = arrow;
}

/* Adds the items and links of an arrow: a bend in each row between the stages, but in the last of these rows
 * the label. */
static void add_chain(struct picture *p, struct arrow *arrow)
{
    struct layout *l = &p->layout;
    uint32_t label_row = 2 * p->layer[arrow->to] - 1, before = arrow->from;
    arrow->chain = l->items_count;
    for (uint32_t row = 2 * p->layer[arrow->from] + 1; row <= label_row; row++) {
        bool is_label = row == label_row;
        double width = (columns_of(arrow->stream) + columns_of(arrow->mode)) * DETAIL_WIDTH + 32;
        l->items[l->items_count] = (struct layout_item){.row = row,
                                                        .width = is_label ? width : 2,
                                                        .height = row % 2 == 1 ? LABEL_HEIGHT : 0,
                                                        .weight = is_label ? 1 : 4};
        l->links[l->links_count++] = (struct layout_link){before, l->items_count};
        before = l->items_count++;
    }
    l->links[l->links_count++] = (struct layout_link){before, arrow->to};
    arrow->chain_count = l->items_count - arrow->chain;
}

static void collect(struct picture *p)
{
    const struct plan *plan = p->plan;
    p->layer = arena_array(p->arena, uint32_t, plan->stages_count);
    set_layers(p);
    p->arrows = arena_array(p->arena, struct arrow, plan->exchanges_count);
    for (uint32_t i = 0; i < plan->exchanges_count; i++)
        if (!explain_is_dead(&plan->exchanges[i]))
            add_arrow(p, &plan->exchanges[i]);
    size_t room = plan->stages_count;
    for (uint32_t i = 0; i < p->arrows_count; i++)
        room += 2 * (size_t)(p->layer[p->arrows[i].to] - p->layer[p->arrows[i].from]);
    struct layout *l = &p->layout;
    l->items = arena_array(p->arena, struct layout_item, room);
    l->links = arena_array(p->arena, struct layout_link, room + p->arrows_count);
    l->gap = 26;
    l->row_gap = 26;
    p->boxes = arena_array(p->arena, struct box, plan->stages_count);
    l->items_count = plan->stages_count;
    for (uint32_t i = 0; i < plan->stages_count; i++)
        measure_box(p, i);
    for (uint32_t i = 0; i < p->arrows_count; i++)
        add_chain(p, &p->arrows[i]);
    layout_place(l, p->arena);
}

/* --- Drawing --- */

static const char style[] =
    "<style>\n"
    "text{font-family:system-ui,-apple-system,'Segoe "
    "UI',Helvetica,Arial,sans-serif;font-size:13px;fill:#1f2328}\n"
    ".code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans "
    "Mono',monospace;font-size:12px}\n"
    ".more{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans "
    "Mono',monospace;font-size:11px}\n"
    ".more,.name{fill:#6e7781}.bold{font-weight:600}.strong{fill:#1f2328;font-weight:600}.job{font-size:19px;"
    "font-weight:600}\n"
    ".paper{fill:#f6f7f9}.box{fill:#ffffff;stroke:#d0d5db}.rule{stroke:#e4e7eb}\n"
    ".wire{fill:none;stroke:#8b949e;stroke-width:1.5}.tip{fill:#8b949e}\n"
    ".label{fill:#ffffff;stroke:#d0d5db}\n"
    ".sources .bar{fill:#1f8a70}.keyed .bar{fill:#3a6fd8}.single .bar{fill:#b8692e}\n"
    "@media(prefers-color-scheme:dark){text{fill:#e6e9ed}.more,.name{fill:#98a2ad}.strong{fill:#e6e9ed}."
    "paper{fill:#14171b}"
    ".box,.label{fill:#1d2127;stroke:#3a4149}.rule{stroke:#2c3239}.wire{stroke:#7d8792}.tip{fill:#7d8792}"
    ".sources .bar{fill:#35b897}.keyed .bar{fill:#6c9cf5}.single .bar{fill:#e0935a}}\n"
    "</style>\n";

static void put_line(struct picture *p, const struct line *line, const struct box *box, double x, double *y)
{
    struct byte_buffer *out = p->out;
    *y += LINE_HEIGHT;
    if (line->name[0] != '\0') {
        buffer_printf(out, "<text x=\"%.1f\" y=\"%.1f\"><tspan class=\"code name\">", x, *y - 5);
        explain_put_xml(out, line->name);
        buffer_printf(out, "</tspan></text>\n");
    }
    x += box->name_width;
    buffer_printf(out, "<text x=\"%.1f\" y=\"%.1f\"><tspan class=\"bold\">", x, *y - 5);
    explain_put_xml(out, line->kind);
    buffer_printf(out, "</tspan><tspan class=\"code\" dx=\"9\">");
    explain_put_xml(out, line->settings);
    buffer_printf(out, "</tspan></text>\n");
    if (line->detail[0] != '\0') {
        *y += LINE_HEIGHT - 3;
        buffer_printf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"more\">", x, *y - 5);
        explain_put_xml(out, line->detail);
        buffer_printf(out, "</text>\n");
    }
    *y += NODE_GAP;
}

static void put_box(struct picture *p, uint32_t stage)
{
    static const char *const classes[] = {
        [STAGE_SOURCES] = "sources", [STAGE_KEYED] = "keyed", [STAGE_SINGLE] = "single"};
    const struct layout_item *item = &p->layout.items[stage];
    const struct box *box = &p->boxes[stage];
    struct byte_buffer *out = p->out;
    double x = item->x, y = item->y;
    buffer_printf(out, "<g class=\"%s\">\n", classes[p->plan->stages[stage].tag]);
    buffer_printf(out,
                  "<rect class=\"box\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"7\"/>\n", x,
                  y, item->width, item->height);
    buffer_printf(out, "<path class=\"bar\" d=\"M%.1f %.1fa7 7 0 0 0 -7 7v%.1fa7 7 0 0 0 7 7z\"/>\n", x + 7,
                  y, item->height - 14);
    x += BOX_PADDING + 4;
    buffer_printf(out,
                  "<text x=\"%.1f\" y=\"%.1f\"><tspan class=\"name\">stage %u</tspan>"
                  "<tspan class=\"bold\" dx=\"9\">",
                  x, y + 21, stage);
    explain_put_xml(out, box->title);
    buffer_printf(out, "</tspan></text>\n");
    buffer_printf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"more\" text-anchor=\"end\">%s</text>\n",
                  item->x + item->width - BOX_PADDING, y + 21, box->instances);
    buffer_printf(out, "<path class=\"rule\" d=\"M%.1f %.1fH%.1f\"/>\n", item->x + 8, y + TITLE_HEIGHT - 3.5,
                  item->x + item->width - 1);
    y += TITLE_HEIGHT;
    for (uint32_t i = 0; i < box->count; i++)
        put_line(p, &box->lines[i], box, x, &y);
    buffer_printf(out, "</g>\n");
}

/* x where the arrow leaves (is_start) or enters its box: the arrows of a box stand side by side, in the order
 * of the items that they lead to or come from. */
static double port(const struct picture *p, const struct arrow *arrow, bool is_start)
{
    const struct layout_item *items = p->layout.items;
    const struct layout_item *box = &items[is_start ? arrow->from : arrow->to];
    uint32_t next = is_start ? arrow->chain : arrow->chain + arrow->chain_count - 1;
    double own = items[next].x + items[next].width / 2;
    uint32_t rank = 0, count = 0;
    for (uint32_t i = 0; i < p->arrows_count; i++) {
        const struct arrow *other = &p->arrows[i];
        if (is_start ? other->from != arrow->from : other->to != arrow->to)
            continue;
        uint32_t at = is_start ? other->chain : other->chain + other->chain_count - 1;
        double there = items[at].x + items[at].width / 2;
        count++;
        rank += there < own || (there == own && other < arrow);
    }
    double step = MIN(34.0, (box->width - 24) / count);
    return box->x + box->width / 2 + (rank - (count - 1) / 2.0) * step;
}

static void put_curve(struct byte_buffer *out, double *x, double *y, double to_x, double to_y)
{
    double middle = (*y + to_y) / 2;
    buffer_printf(out, "C%.1f %.1f %.1f %.1f %.1f %.1f", *x, middle, to_x, middle, to_x, to_y);
    *x = to_x;
    *y = to_y;
}

static void put_arrow(struct picture *p, const struct arrow *arrow)
{
    const struct layout *l = &p->layout;
    const struct layout_item *from = &l->items[arrow->from], *to = &l->items[arrow->to];
    struct byte_buffer *out = p->out;
    double x = port(p, arrow, true), y = from->y + from->height;
    buffer_printf(out, "<path class=\"wire\" d=\"M%.1f %.1f", x, y);
    y = l->row_y[from->row] + l->row_high[from->row];
    buffer_printf(out, "V%.1f", y);
    for (uint32_t i = 0; i < arrow->chain_count; i++) {
        const struct layout_item *item = &l->items[arrow->chain + i];
        put_curve(out, &x, &y, item->x + item->width / 2, item->y);
        y = l->row_y[item->row] + l->row_high[item->row];
        buffer_printf(out, "V%.1f", y);
    }
    put_curve(out, &x, &y, port(p, arrow, false), to->y - 7);
    buffer_printf(out, "\"/>\n<path class=\"tip\" d=\"M%.1f %.1fl-4.5 -8h9z\"/>\n", x, to->y - 1);
}

static void put_label(struct picture *p, const struct arrow *arrow)
{
    const struct layout_item *item = &p->layout.items[arrow->chain + arrow->chain_count - 1];
    buffer_printf(p->out,
                  "<rect class=\"label\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"11\"/>\n"
                  "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\"><tspan class=\"more\">",
                  item->x, item->y, item->width, LABEL_HEIGHT, item->x + item->width / 2, item->y + 15);
    explain_put_xml(p->out, arrow->stream);
    buffer_printf(p->out, "</tspan><tspan class=\"more strong\" dx=\"6\">");
    explain_put_xml(p->out, arrow->mode);
    buffer_printf(p->out, "</tspan></text>\n");
}

static void put_head(struct picture *p)
{
    const struct job_config *config = &p->plan->config;
    const char *name = arena_strndup(p->arena, p->plan->name.data, p->plan->name.length);
    buffer_printf(p->out, "<text class=\"job\" x=\"%d\" y=\"%d\">", MARGIN, MARGIN + 16);
    explain_put_xml(p->out, explain_shortened(name, SETTINGS_COLUMNS, p->arena));
    buffer_printf(p->out, "</text>\n<text class=\"name\" x=\"%d\" y=\"%d\">", MARGIN, MARGIN + 37);
    buffer_printf(p->out, "%s, %s, memory %s",
                  config->workers == 0 ? "a worker per core"
                                       : explain_count((uint32_t)config->workers, "worker", p->arena),
                  explain_count(p->plan->stages_count, "stage", p->arena),
                  explain_bytes(config->memory_bytes, p->arena));
    if (config->checkpoint.directory.length > 0)
        buffer_printf(p->out, ", a checkpoint every %s",
                      explain_duration(config->checkpoint.every_us, p->arena));
    buffer_printf(p->out, "</text>\n");
}

void plan_svg(const struct plan *plan, struct byte_buffer *out)
{
    struct arena arena = {0};
    struct picture p = {.plan = plan, .arena = &arena, .out = out};
    collect(&p);
    double width = MAX(p.layout.width, 420) + 2 * MARGIN, height = p.layout.height + HEAD_HEIGHT + 2 * MARGIN;
    explain_put_svg(out, width, height, arena_printf(&arena, "The plan of job %.*s", STR_ARGS(plan->name)),
                    style);
    put_head(&p);
    buffer_printf(out, "<g transform=\"translate(%d %d)\">\n", MARGIN, MARGIN + HEAD_HEIGHT);
    for (uint32_t i = 0; i < p.arrows_count; i++)
        put_arrow(&p, &p.arrows[i]);
    for (uint32_t i = 0; i < p.arrows_count; i++)
        put_label(&p, &p.arrows[i]);
    for (uint32_t i = 0; i < plan->stages_count; i++)
        put_box(&p, i);
    buffer_printf(out, "</g>\n</svg>\n");
    arena_free(&arena);
}
