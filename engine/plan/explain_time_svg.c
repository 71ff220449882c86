/* `leat explain --time --svg`: a bar for each node with event time, from the newest event on the right to
 * the node's watermark on the left. The part that the node adds is darker than the part from its inputs;
 * behind it, paler, is the allowed lateness. The axis is logarithmic, so that 5 s and 30 d fit into one
 * picture. */
#include "plan/explain_time.h"

#include <math.h>

enum {
    MARGIN = 28,
    HEAD_HEIGHT = 64,
    ROW_HEIGHT = 30,
    BAR_HEIGHT = 16,
    NAME_WIDTH = 230,
    AXIS_WIDTH = 430,
    WHY_WIDTH = 400,
    WHY_COLUMNS = 58,
};

static const char style[] =
    "<style>\n"
    "text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;font-size:13px;"
    "fill:#1f2328}\n"
    ".more{font-size:11px;font-weight:400;fill:#6e7781}.bold{font-weight:600}.job{font-size:19px;font-weight:"
    "600}\n"
    ".paper{fill:#f6f7f9}.grid{stroke:#e4e7eb}.now{stroke:#1f2328;stroke-width:1.5}\n"
    ".given{fill:#a9d8cb}.own{fill:#1f8a70}.late{fill:#f0c9a8}.mark{fill:#ffffff;font-size:11px}\n"
    "@media(prefers-color-scheme:dark){text{fill:#e6e9ed}.more{fill:#98a2ad}.paper{fill:#14171b}"
    ".grid{stroke:#2c3239}.now{stroke:#e6e9ed}.given{fill:#2b5c50}.own{fill:#35b897}.late{fill:#7a5434}}\n"
    "</style>\n";

struct scale {
    double width;
    double span; /* depth() at the left edge */
};

static double depth(int64_t us)
{
    return log10(1 + (double)us / 1e6 * 2);
}

/* x, from the left edge, of the time that is `us` microseconds behind the newest event. */
static double place(const struct scale *scale, int64_t us)
{
    return scale->width * (1 - depth(us) / scale->span);
}

static void put_axis(struct byte_buffer *out, const struct scale *scale, double height, struct arena *arena)
{
    static const int64_t marks[] = {US_PER_SECOND,   10 * US_PER_SECOND, US_PER_MINUTE, 10 * US_PER_MINUTE,
                                    US_PER_HOUR,     6 * US_PER_HOUR,    US_PER_DAY,    7 * US_PER_DAY,
                                    30 * US_PER_DAY, 365 * US_PER_DAY};
    double last = scale->width;
    for (size_t i = 0; i < ARRAY_COUNT(marks); i++) {
        double x = place(scale, marks[i]);
        if (x < 0 || last - x < 34)
            continue;
        last = x;
        buffer_printf(
            out,
            "<path class=\"grid\" d=\"M%.1f 0V%.1f\"/>\n<text class=\"more\" text-anchor=\"middle\" "
            "x=\"%.1f\" y=\"-7\">-%s</text>\n",
            x, height, x, explain_duration(marks[i], arena));
    }
    buffer_printf(out,
                  "<path class=\"now\" d=\"M%.1f 0V%.1f\"/>\n<text class=\"more\" x=\"%.1f\" "
                  "y=\"-7\">newest event</text>\n",
                  scale->width, height, scale->width - 3);
}

static void put_bar(struct byte_buffer *out, const char *class, const struct scale *scale, int64_t from_us,
                    int64_t to_us, double y)
{
    double right = place(scale, from_us), left = place(scale, to_us);
    if (right > left)
        buffer_printf(out,
                      "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>\n",
                      class, left, y + (ROW_HEIGHT - BAR_HEIGHT) / 2.0, right - left, BAR_HEIGHT);
}

static void put_row(struct byte_buffer *out, const struct time_row *row, const struct scale *scale, double y,
                    struct arena *arena)
{
    const char *name = arena_strndup(arena, row->node->name.data, row->node->name.length);
    buffer_printf(out, "<text x=\"%d\" y=\"%.1f\"><tspan class=\"bold\">", -NAME_WIDTH, y + 20);
    explain_put_xml(out, explain_shortened(name, 14, arena));
    buffer_printf(out, "</tspan><tspan class=\"more\" dx=\"8\">");
    explain_put_xml(out, explain_shortened(explain_kind(row->node, arena), 18, arena));
    buffer_printf(out, "</tspan></text>\n");
    put_bar(out, "late", scale, row->behind_us, time_add(row->input_us, row->lateness_us), y);
    put_bar(out, "given", scale, 0, row->input_us, y);
    put_bar(out, "own", scale, row->input_us, row->behind_us, y);
    buffer_printf(out, "<text x=\"%.1f\" y=\"%.1f\"><tspan class=\"bold\">", scale->width + 16, y + 20);
    explain_put_xml(out, explain_behind(row, arena));
    buffer_printf(out, "</tspan><tspan class=\"more\" dx=\"8\">");
    explain_put_xml(out, explain_shortened(row->why, WHY_COLUMNS, arena));
    buffer_printf(out, "</tspan></text>\n");
}

static bool is_shown(const struct time_row *row)
{
    return row->node->tag != PLAN_SINK && row->tag != BEHIND_NONE;
}

void plan_time_svg(const struct plan *plan, struct byte_buffer *out)
{
    struct arena arena = {0};
    const struct time_row *rows = explain_times(plan, &arena);
    uint32_t count = 0;
    int64_t furthest = 10 * US_PER_SECOND;
    bool has_more = false;
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        count += is_shown(&rows[i]);
        int64_t late = time_add(rows[i].input_us, rows[i].lateness_us);
        furthest = MAX(furthest, MAX(rows[i].behind_us, late));
        has_more |= late > rows[i].behind_us;
    }
    struct scale scale = {.width = AXIS_WIDTH, .span = depth(furthest) * 1.08};
    double height = ROW_HEIGHT * (double)count;
    double width = 2 * MARGIN + NAME_WIDTH + AXIS_WIDTH + WHY_WIDTH + 16,
           all = height + HEAD_HEIGHT + 2 * MARGIN;
    explain_put_svg(out, width, all, arena_printf(&arena, "Watermarks of job %.*s", STR_ARGS(plan->name)),
                    style);
    buffer_printf(out, "<text class=\"job\" x=\"%d\" y=\"%d\">", MARGIN, MARGIN + 14);
    explain_put_xml(out, arena_strndup(&arena, plan->name.data, plan->name.length));
    buffer_printf(
        out,
        "<tspan class=\"more\" dx=\"12\">how far each watermark stays behind the newest event: delay of its "
        "input (pale), its own delay (dark)%s</tspan></text>\n"
        "<g transform=\"translate(%d %d)\">\n",
        has_more ? ", and rows that are not late yet (brown)" : "", MARGIN + NAME_WIDTH,
        MARGIN + HEAD_HEIGHT);
    put_axis(out, &scale, height, &arena);
    double y = 0;
    for (uint32_t i = 0; i < plan->nodes_count; i++)
        if (is_shown(&rows[i])) {
            put_row(out, &rows[i], &scale, y, &arena);
            y += ROW_HEIGHT;
        }
    buffer_printf(out, "</g>\n</svg>\n");
    arena_free(&arena);
}
