/* `leat explain --time` as text. */
#include "plan/explain_time.h"

enum { NAME_COLUMNS_MAX = 20, LINE_COLUMNS = 100 };

/* --- Rows of the table --- */

/* The value of a step's option of type duration with that name, or 0. */
static int64_t duration_of(const struct plan_node *node, const char *name)
{
    struct option_row option = option_find(node->operator_kind->options, str_from(name));
    if (option.name == NULL || option.type != OPTION_DURATION_T)
        return 0;
    return *(const int64_t *)(const void *)((const char *)node->config + option.offset);
}

static const char *join(struct arena *arena, const char *text, const char *more)
{
    return text[0] == '\0' ? more : arena_printf(arena, "%s; %s", text, more);
}

static const char *key_names(const struct columns *by, struct arena *arena)
{
    const char *text = "";
    for (uint32_t i = 0; i < by->count; i++)
        text = arena_printf(arena, "%s%s%.*s", text, i > 0 ? ", " : "", STR_ARGS(by->items[i].name));
    return text;
}

static void set_source(struct time_row *row, struct arena *arena)
{
    const struct source_common *common = row->node->common;
    const char *delay = explain_duration(common->max_delay_us, arena);
    row->tag = BEHIND_EXACTLY;
    row->behind_us = common->max_delay_us;
    row->why = arena_printf(arena, "max_delay %s", delay);
    if (common->watermark.choice == WATERMARK_PER_KEY) {
        const struct watermark_per_key *per_key = common->watermark.config;
        row->tag = BEHIND_AT_MOST;
        row->behind_us = time_add(row->behind_us, per_key->within_us);
        row->why = arena_printf(arena, "%s behind the slowest %s of the last %s", delay,
                                key_names(&per_key->by, arena), explain_duration(per_key->within_us, arena));
    } else if (common->watermark.choice == WATERMARK_PUNCTUATION) {
        const struct watermark_punctuation *punctuation = common->watermark.config;
        row->tag = BEHIND_AS_SAID;
        row->why = arena_printf(arena, "%s behind the newest row with %s", delay,
                                ast_text(arena, punctuation->when.ast));
    }
    if (common->idle_after_us > 0)
        row->why = join(arena, row->why,
                        arena_printf(arena, "idle after %s", explain_duration(common->idle_after_us, arena)));
    if (common->align_us > 0)
        row->why =
            join(arena, row->why,
                 arena_printf(arena, "waits when %s ahead", explain_duration(common->align_us, arena)));
    if (common->max_jump_us > 0)
        row->why =
            join(arena, row->why,
                 arena_printf(arena, "jumps of at most %s", explain_duration(common->max_jump_us, arena)));
}

/* Of two inputs' tags the one by which less is known. */
static enum behind_tag less_known(enum behind_tag a, enum behind_tag b)
{
    return MAX(a, b);
}

static void set_step(struct time_row *row, const struct time_row *rows, struct arena *arena)
{
    const struct plan_node *node = row->node;
    for (uint32_t i = 0; i < node->inputs_count; i++) {
        if (node->inputs[i].output == PLAN_OUTPUT_DEAD)
            continue;
        const struct time_row *from = &rows[node->inputs[i].node];
        bool is_first = row->slowest == UINT32_MAX;
        row->has_slower |= !is_first && from->behind_us != row->input_us;
        row->tag = is_first ? from->tag : less_known(row->tag, from->tag);
        if (is_first || from->behind_us > row->input_us) {
            row->slowest = node->inputs[i].node;
            row->input_us = from->behind_us;
        }
    }
    bool is_at_end = node->hold_us == INT64_MAX;
    row->behind_us = time_add(row->input_us, is_at_end ? 0 : node->hold_us);
    if (is_at_end) {
        row->tag = BEHIND_END;
        row->why = "emits its rows when the input ends";
        return;
    }
    if (node->is_by_arrival) {
        row->tag = BEHIND_ARRIVAL;
        row->input_us = row->behind_us = 0;
        row->has_slower = false;
        row->why = "uses arrival times, not event time";
    }
    if (node->operator_kind == NULL || !node->has_time)
        return;
    row->lateness_us = duration_of(node, "lateness");
    if (row->has_slower && row->tag != BEHIND_AS_SAID)
        row->why = join(arena, row->why,
                        arena_printf(arena, "waits for %.*s", STR_ARGS(rows[row->slowest].node->name)));
    if (node->hold_us > 0 && node->hold_us != row->lateness_us)
        row->why = join(arena, row->why,
                        arena_printf(arena, "holds rows for %s", explain_duration(node->hold_us, arena)));
    if (row->lateness_us > 0)
        row->why = join(arena, row->why,
                        arena_printf(arena, "lateness %s: windows stay open that long",
                                     explain_duration(row->lateness_us, arena)));
}

struct time_row *explain_times(const struct plan *plan, struct arena *arena)
{
    struct time_row *rows = arena_array(arena, struct time_row, plan->nodes_count);
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        const struct plan_node *node = &plan->nodes[i];
        rows[i] = (struct time_row){.node = node, .slowest = UINT32_MAX, .why = ""};
        if (node->tag != PLAN_SOURCE)
            set_step(&rows[i], rows, arena);
        else if (node->has_time)
            set_source(&rows[i], arena);
        else
            rows[i].why = "no event time";
    }
    return rows;
}

const char *explain_behind(const struct time_row *row, struct arena *arena)
{
    switch (row->tag) {
    case BEHIND_NONE: return "-";
    case BEHIND_EXACTLY: return explain_duration(row->behind_us, arena);
    case BEHIND_AT_MOST: return arena_printf(arena, "up to %s", explain_duration(row->behind_us, arena));
    case BEHIND_AS_SAID:
        return row->behind_us == 0
                   ? "by punctuation"
                   : arena_printf(arena, "by punctuation + %s", explain_duration(row->behind_us, arena));
    case BEHIND_ARRIVAL: return "by arrival";
    case BEHIND_END: break;
    }
    return "at the end";
}

/* The row whose watermark is the furthest behind; NULL: none is behind. */
static const struct time_row *furthest_of(const struct time_row *rows, uint32_t count)
{
    const struct time_row *furthest = NULL;
    for (uint32_t i = 0; i < count; i++)
        if (rows[i].behind_us > (furthest == NULL ? 0 : furthest->behind_us))
            furthest = &rows[i];
    return furthest;
}

/* --- Text --- */

static const char *name_of(const struct plan_node *node, struct arena *arena)
{
    return arena_strndup(arena, node->name.data, node->name.length);
}

/* The nodes that make the row's watermark stay behind, from the slowest source on, each with its share: "30s
 * by clicks (its source), 1h by examples attribute". */
static const char *chain_of(const struct time_row *rows, const struct time_row *row, struct arena *arena)
{
    const char *text = "";
    for (;;) {
        const struct plan_node *node = row->node;
        int64_t own = row->behind_us - row->input_us;
        if (own > 0)
            text = arena_printf(arena, "%s by %s %s%s%s", explain_duration(own, arena), name_of(node, arena),
                                node->tag == PLAN_SOURCE ? "(its source)" : explain_kind(node, arena),
                                text[0] == '\0' ? "" : ", ", text);
        if (row->slowest == UINT32_MAX || row->tag == BEHIND_ARRIVAL)
            return text;
        row = &rows[row->slowest];
    }
}

static void put_row(struct byte_buffer *out, const struct time_row *row, const uint32_t widths[3],
                    struct arena *arena)
{
    const char *columns[3] = {name_of(row->node, arena), explain_kind(row->node, arena),
                              explain_behind(row, arena)};
    uint32_t at = 0;
    for (int i = 0; i < 3; i++) {
        uint32_t used = text_columns(str_from(columns[i]));
        uint32_t pad = used < widths[i] && (i < 2 || row->why[0] != '\0') ? widths[i] - used : 0;
        buffer_printf(out, "  %s%*s", columns[i], (int)pad, "");
        at += 2 + used + pad;
    }
    if (row->why[0] != '\0') {
        buffer_append(out, "  ", 2);
        buffer_wrap(out, at + 2, at + 2, LINE_COLUMNS, str_from(row->why));
    }
    buffer_append(out, "\n", 1);
}

void plan_explain_time(const struct plan *plan, struct byte_buffer *out)
{
    struct arena arena = {0};
    const struct time_row *rows = explain_times(plan, &arena);
    uint32_t widths[3] = {0};
    buffer_printf(out, "job %.*s: how far each watermark stays behind the newest event, and why\n\n",
                  STR_ARGS(plan->name));
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        widths[0] = MAX(widths[0], MIN(text_columns(plan->nodes[i].name), NAME_COLUMNS_MAX));
        widths[1] = MAX(widths[1], text_columns(str_from(explain_kind(&plan->nodes[i], &arena))));
        widths[2] = MAX(widths[2], text_columns(str_from(explain_behind(&rows[i], &arena))));
    }
    for (uint32_t i = 0; i < plan->nodes_count; i++)
        if (plan->nodes[i].tag != PLAN_SINK)
            put_row(out, &rows[i], widths, &arena);
    const struct time_row *furthest = furthest_of(rows, plan->nodes_count);
    if (furthest != NULL) {
        buffer_printf(out, "\n");
        const char *text =
            arena_printf(&arena, "The furthest behind is %s, %s: %s.", name_of(furthest->node, &arena),
                         explain_behind(furthest, &arena), chain_of(rows, furthest, &arena));
        buffer_wrap(out, 0, 0, LINE_COLUMNS, str_from(text));
        buffer_printf(out, "\n");
    }
    bool has_live = false;
    for (uint32_t i = 0; i < plan->sources_count; i++)
        has_live |= plan->nodes[plan->sources[i]].is_live;
    if (has_live)
        buffer_printf(
            out, "\nIn a live source the slowest partition sets the watermark: the view of `leat run` names "
                 "the partition.\n");
    arena_free(&arena);
}
