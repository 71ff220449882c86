/* Where everything in the picture of a plan stands. Boxes stand in rows by their longest path from the sources. Each
 * exchange is an arrow with a label in a row of its own between the boxes, so that nothing lies over anything else; long
 * arrows bend through the rows between. Widths of texts are estimated on the wide side. */
#include "plan/explain_picture.h"

#include "plan/explain.h"
#include "plan/explain_layout.h"

enum {
    SETTINGS_COLUMNS = 58,
    DETAIL_COLUMNS = 72,
    NAME_COLUMNS = 18,
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

struct arrow {
    uint32_t from, to; /* indices of stages, which are also their items */
    /* Items between the stages, from index `chain` on; the last one is the label. */
    uint32_t chain, chain_count;
    const char *stream, *mode;
};

/* The picture while it is made. */
struct sketch {
    const struct plan *plan;
    struct arena *arena;
    struct layout layout; /* the first items are the stages */
    struct picture_stage *stages;
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

static const char *detail_of(const struct sketch *p, const struct plan_node *node)
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

static void measure_box(struct sketch *p, uint32_t stage)
{
    const struct plan_stage *s = &p->plan->stages[stage];
    struct picture_stage *box = &p->stages[stage];
    struct layout_item *item = &p->layout.items[stage];
    box->nodes = arena_array(p->arena, struct picture_node, s->nodes_count);
    box->nodes_count = s->nodes_count;
    box->title = explain_shortened(explain_stage(p->plan, stage, p->arena), SETTINGS_COLUMNS, p->arena);
    box->instances = explain_instances(p->plan, stage);
    double height = TITLE_HEIGHT + BOX_PADDING - NODE_GAP, width = 0;
    struct str above = {"", 0};
    for (uint32_t i = 0; i < s->nodes_count; i++) {
        const struct plan_node *node = &p->plan->nodes[s->nodes[i]];
        struct picture_node *line = &box->nodes[i];
        line->node = node;
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
        line->place.height = LINE_HEIGHT + (line->detail[0] != '\0' ? LINE_HEIGHT - 3 : 0);
        height += line->place.height + NODE_GAP;
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
static void set_layers(struct sketch *p)
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

static void add_arrow(struct sketch *p, const struct plan_exchange *x)
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
static void add_chain(struct sketch *p, struct arrow *arrow)
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

static void collect(struct sketch *p)
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
    p->stages = arena_array(p->arena, struct picture_stage, plan->stages_count);
    l->items_count = plan->stages_count;
    for (uint32_t i = 0; i < plan->stages_count; i++)
        measure_box(p, i);
    for (uint32_t i = 0; i < p->arrows_count; i++)
        add_chain(p, &p->arrows[i]);
    layout_place(l, p->arena);
}

/* --- Places --- */

static struct picture_place place_of(const struct layout_item *item)
{
    return (struct picture_place){item->x, item->y, item->width, item->height};
}

static void place_nodes(const struct sketch *p, uint32_t stage)
{
    struct picture_stage *box = &p->stages[stage];
    box->place = place_of(&p->layout.items[stage]);
    double y = box->place.y + TITLE_HEIGHT;
    for (uint32_t i = 0; i < box->nodes_count; i++) {
        struct picture_place *place = &box->nodes[i].place;
        place->x = box->place.x + (BOX_PADDING + 4);
        place->y = y;
        place->width = box->place.width - 2 * BOX_PADDING - 4;
        y += place->height + NODE_GAP;
    }
}

/* x where the arrow leaves (is_start) or enters its box: the arrows of a box stand side by side, in the order
 * of the items that they lead to or come from. */
static double port(const struct sketch *p, const struct arrow *arrow, bool is_start)
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

static struct picture_arrow draw_arrow(const struct sketch *p, const struct arrow *arrow)
{
    const struct layout *l = &p->layout;
    const struct layout_item *from = &l->items[arrow->from], *to = &l->items[arrow->to];
    struct byte_buffer path = {0};
    double x = port(p, arrow, true), y = from->y + from->height;
    buffer_printf(&path, "M%.1f %.1f", x, y);
    y = l->row_y[from->row] + l->row_high[from->row];
    buffer_printf(&path, "V%.1f", y);
    for (uint32_t i = 0; i < arrow->chain_count; i++) {
        const struct layout_item *item = &l->items[arrow->chain + i];
        put_curve(&path, &x, &y, item->x + item->width / 2, item->y);
        y = l->row_y[item->row] + l->row_high[item->row];
        buffer_printf(&path, "V%.1f", y);
    }
    put_curve(&path, &x, &y, port(p, arrow, false), to->y - 7);
    const char *copy = arena_strndup(p->arena, path.data, path.length);
    buffer_free(&path);
    return (struct picture_arrow){.from = arrow->from,
                                  .to = arrow->to,
                                  .stream = arrow->stream,
                                  .mode = arrow->mode,
                                  .path = copy,
                                  .tip_x = x,
                                  .tip_y = to->y - 1,
                                  .label = place_of(&l->items[arrow->chain + arrow->chain_count - 1])};
}

struct picture *explain_picture(const struct plan *plan, struct arena *arena)
{
    struct sketch p = {.plan = plan, .arena = arena};
    collect(&p);
    struct picture *picture = arena_array(arena, struct picture, 1);
    *picture = (struct picture){.width = p.layout.width,
                                .height = p.layout.height,
                                .stages = p.stages,
                                .arrows = arena_array(arena, struct picture_arrow, p.arrows_count),
                                .arrows_count = p.arrows_count};
    for (uint32_t i = 0; i < plan->stages_count; i++)
        place_nodes(&p, i);
    for (uint32_t i = 0; i < p.arrows_count; i++)
        picture->arrows[i] = draw_arrow(&p, &p.arrows[i]);
    return picture;
}
