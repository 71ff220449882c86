/* The plan as an SVG picture, drawn without a library: what explain_picture.c has placed. Texts that follow each other on
 * a line are in one <text>. */
#include "plan/explain.h"
#include "plan/explain_picture.h"

enum {
    SETTINGS_COLUMNS = 58,
    MARGIN = 28,
    HEAD_HEIGHT = 58,
    PADDING = 14, /* right of a box's title */
    RULE_Y = 34,  /* where the rule below the title is, nearly */
    LINE_Y = 14,  /* from a line's upper edge to its baseline */
    DETAIL_Y = 30,
};

struct drawing {
    const struct plan *plan;
    struct arena *arena;
    struct byte_buffer *out;
};

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

static void put_line(struct byte_buffer *out, const struct picture_node *line, double name_width)
{
    double x = line->place.x, y = line->place.y + LINE_Y;
    if (line->name[0] != '\0') {
        buffer_printf(out, "<text x=\"%.1f\" y=\"%.1f\"><tspan class=\"code name\">", x, y);
        explain_put_xml(out, line->name);
        buffer_printf(out, "</tspan></text>\n");
    }
    x += name_width;
    buffer_printf(out, "<text x=\"%.1f\" y=\"%.1f\"><tspan class=\"bold\">", x, y);
    explain_put_xml(out, line->kind);
    buffer_printf(out, "</tspan><tspan class=\"code\" dx=\"9\">");
    explain_put_xml(out, line->settings);
    buffer_printf(out, "</tspan></text>\n");
    if (line->detail[0] == '\0')
        return;
    buffer_printf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"more\">", x, line->place.y + DETAIL_Y);
    explain_put_xml(out, line->detail);
    buffer_printf(out, "</text>\n");
}

static void put_box(struct byte_buffer *out, const struct picture_stage *box, uint32_t stage,
                    enum plan_stage_tag tag)
{
    static const char *const classes[] = {
        [STAGE_SOURCES] = "sources", [STAGE_KEYED] = "keyed", [STAGE_SINGLE] = "single"};
    double x = box->place.x, y = box->place.y, right = x + box->place.width;
    buffer_printf(out, "<g class=\"%s\">\n", classes[tag]);
    buffer_printf(out,
                  "<rect class=\"box\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"7\"/>\n", x,
                  y, box->place.width, box->place.height);
    buffer_printf(out, "<path class=\"bar\" d=\"M%.1f %.1fa7 7 0 0 0 -7 7v%.1fa7 7 0 0 0 7 7z\"/>\n", x + 7,
                  y, box->place.height - 14);
    buffer_printf(out,
                  "<text x=\"%.1f\" y=\"%.1f\"><tspan class=\"name\">stage %u</tspan>"
                  "<tspan class=\"bold\" dx=\"9\">",
                  x + (PADDING + 4), y + 21, stage);
    explain_put_xml(out, box->title);
    buffer_printf(out, "</tspan></text>\n");
    buffer_printf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"more\" text-anchor=\"end\">%s</text>\n",
                  right - PADDING, y + 21, box->instances);
    buffer_printf(out, "<path class=\"rule\" d=\"M%.1f %.1fH%.1f\"/>\n", x + 8, y + RULE_Y - 3.5, right - 1);
    for (uint32_t i = 0; i < box->nodes_count; i++)
        put_line(out, &box->nodes[i], box->name_width);
    buffer_printf(out, "</g>\n");
}

static void put_arrow(struct byte_buffer *out, const struct picture_arrow *arrow)
{
    buffer_printf(out, "<path class=\"wire\" d=\"%s\"/>\n<path class=\"tip\" d=\"M%.1f %.1fl-4.5 -8h9z\"/>\n",
                  arrow->path, arrow->tip_x, arrow->tip_y);
}

static void put_label(struct byte_buffer *out, const struct picture_arrow *arrow)
{
    const struct picture_place *label = &arrow->label;
    buffer_printf(out,
                  "<rect class=\"label\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.0f\" rx=\"11\"/>\n"
                  "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\"><tspan class=\"more\">",
                  label->x, label->y, label->width, label->height, label->x + label->width / 2,
                  label->y + 15);
    explain_put_xml(out, arrow->stream);
    buffer_printf(out, "</tspan><tspan class=\"more strong\" dx=\"6\">");
    explain_put_xml(out, arrow->mode);
    buffer_printf(out, "</tspan></text>\n");
}

static void put_head(const struct drawing *p)
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
    struct drawing p = {.plan = plan, .arena = &arena, .out = out};
    const struct picture *picture = explain_picture(plan, &arena);
    double width = MAX(picture->width, 420) + 2 * MARGIN, height = picture->height + HEAD_HEIGHT + 2 * MARGIN;
    explain_put_svg(out, width, height, arena_printf(&arena, "The plan of job %.*s", STR_ARGS(plan->name)),
                    style);
    put_head(&p);
    buffer_printf(out, "<g transform=\"translate(%d %d)\">\n", MARGIN, MARGIN + HEAD_HEIGHT);
    for (uint32_t i = 0; i < picture->arrows_count; i++)
        put_arrow(out, &picture->arrows[i]);
    for (uint32_t i = 0; i < picture->arrows_count; i++)
        put_label(out, &picture->arrows[i]);
    for (uint32_t i = 0; i < plan->stages_count; i++)
        put_box(out, &picture->stages[i], i, plan->stages[i].tag);
    buffer_printf(out, "</g>\n</svg>\n");
    arena_free(&arena);
}
