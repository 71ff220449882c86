/* top_n: the best n rows of each group, by an order.
 *
 * kept.h says how rows are kept, ordering.h which of two rows is the better. When rows come out:
 *
 * emit final: when the input has ended, the rows of all groups in the order (hash of the key, rank).
 *
 * emit on_close, with `over`: when the watermark reaches a window's end, the window's rows in the same order;
 * they have the event time end - 1us. A row of which no window is open is late.
 *
 * emit on_change: after each micro-batch the changes that it made, with `_op`: rows that fell out of a
 * group's best, as they were last given, then rows that came in or, if ranks are a column, have another rank.
 *
 * A group's windows are lists in one keyed entry, which expires with the last of them. */
#include "operators/rows/kept.h"
#include "operators/sides.h"
#include "operators/tally.h"
#include "operators/window/windows.h"

#include "operators/expr/compute.h"

enum { OPEN_HEAD = 8 };
/* Indices of the tally's values. */
enum { TOP_WITHOUT_ROOM };
enum top_ties { TIES_FIRST, TIES_ALL };
enum top_emit { EMIT_AUTO, EMIT_FINAL, EMIT_ON_CLOSE, EMIT_ON_CHANGE };

struct top_n {
    int64_t n;
    struct columns by;
    struct expressions order;
    struct expression over;
    int64_t offset_us;
    struct str zone;
    int ties, emit;
    struct name_ref rank;
    /* Made by bind. */
    int *keys;
    struct ordering ordering;
    struct windows windows;
    struct kept_options options;
    /* Owned by the lane. */
    struct kept kept;
    struct open_windows open;
    struct tally tally;
};

static const struct option top_n_options[] = {
    OPTION_INT(struct top_n, n, "n", OPTION_REQUIRED | OPTION_POSITIONAL, NULL, "1", "10000",
               "how many rows of a group are kept"),
    OPTION_COLUMNS(struct top_n, by, "by", OPTION_REQUIRED,
                   "the key columns; rows with equal values make a group"),
    OPTION_EXPRESSIONS(struct top_n, order, "order", OPTION_REQUIRED,
                       "the order of the rows: the smaller value is better, in desc() the larger; if equal, "
                       "the next expression decides, then the earlier record. Null comes last"),
    OPTION_EXPRESSION(struct top_n, over, "over", 0,
                      "the windows in which rows of a group compete: tumbling(1h); without `over` all rows "
                      "of a group compete"),
    OPTION_DURATION(struct top_n, offset_us, "offset", 0, "0s", NULL, NULL,
                    "windows begin later by this time: tumbling(1d) offset 6h"),
    OPTION_TEXT(struct top_n, zone, "zone", 0, "\"\"",
                "the time zone, as \"Europe/Berlin\": windows of whole days begin at its midnight; UTC "
                "by default"),
    OPTION_ENUM(struct top_n, ties, "ties", 0, "first", "first|all",
                "which rows to keep of those that are equal by `order` at place n: first: the earlier "
                "records; all: all of them"),
    OPTION_ENUM(struct top_n, emit, "emit", 0, "auto", "auto|final|on_close|on_change",
                "when rows are emitted: final: when the input has ended; on_close: when a window ends; "
                "on_change: as changes with `_op`; auto: on_close with `over`, else final"),
    OPTION_NAME(struct top_n, rank, "rank", 0,
                "the new column: 1 for a group's best row, 2 for the next; with `ties all` equal rows have "
                "the same number"),
    OPTIONS_END,
};

/* --- Binding --- */

static bool bind_emit(struct operator_bind *bind, struct top_n *top)
{
    bool is_forever = top->windows.tag == WINDOWS_FOREVER;
    if (top->emit == EMIT_AUTO)
        top->emit = is_forever ? EMIT_FINAL : EMIT_ON_CLOSE;
    bind->needs_end = top->emit == EMIT_FINAL;
    bind->hold_us = top->emit == EMIT_FINAL ? INT64_MAX : 0;
    if (top->emit == EMIT_ON_CLOSE && is_forever) {
        diag_hint(bind->diags,
                  diag_error(bind->diags, DIAG_OPTIONS_CLASH, bind->span,
                             "`emit on_close` emits rows when a window ends, but there is no window "
                             "that ends"),
                  "add `over tumbling(1h)`; or use `emit final` for rows when the input has ended, `emit "
                  "on_change` for changes as they happen");
        return false;
    }
    if (top->emit != EMIT_FINAL || is_forever)
        return true;
    diag_hint(bind->diags,
              diag_error(bind->diags, DIAG_OPTIONS_CLASH, top->over.ast->span,
                         "`emit final` emits rows when the input has ended, but windows end before that"),
              "leave `emit` or `over` out: with `over`, rows are emitted when their window ends");
    return false;
}

/* The lineage of the rows and of their rank holds the keys and the order, on which both depend. */
static bool bind_output(struct operator_bind *bind, struct top_n *top)
{
    struct schema *output = operator_extend(bind, 2);
    bool is_good = true;
    keys_lineage(bind, 0, &output->rows_lineage);
    ordering_lineage(&top->ordering, &output->rows_lineage);
    top->options.rank_column = top->options.change_column = -1;
    if (top->rank.name.length > 0) {
        struct field *rank =
            operator_add_chosen(bind, output, top->rank.name, type_of(TYPE_INT), top->rank.span);
        is_good &= rank != NULL;
        top->options.rank_column = (int)output->count - 1;
        if (rank != NULL)
            ordering_lineage(&top->ordering, &rank->lineage);
    }
    if (top->emit == EMIT_ON_CHANGE) {
        is_good &=
            operator_add_chosen(bind, output, STR(CHANGE_COLUMN), type_of(TYPE_TEXT), bind->span) != NULL;
        top->options.change_column = (int)output->count - 1;
    }
    bind->outputs[0] = output;
    bind->outputs[1] = top->windows.tag == WINDOWS_FOREVER ? NULL : bind->inputs[0].schema;
    return is_good;
}

static bool top_n_bind(struct operator_bind *bind)
{
    struct top_n *top = bind->config;
    top->windows = (struct windows){.tag = WINDOWS_FOREVER};
    bool is_good = keys_bind(bind, 0, &top->by, &top->keys);
    is_good &= ordering_bind(bind, 0, &top->order, "order", &top->ordering);
    if (top->over.ast != NULL)
        is_good &=
            windows_bind(bind, top->over.ast, WINDOWS_OF_TIME, top->offset_us, top->zone, &top->windows);
    if (!is_good || !bind_emit(bind, top))
        return false;
    top->options = (struct kept_options){.input = bind->inputs[0].schema,
                                         .ordering = &top->ordering,
                                         .limit = (uint32_t)top->n,
                                         .takes_ties = top->ties == TIES_ALL,
                                         .ends_windows = top->emit == EMIT_ON_CLOSE};
    bind->is_timer_kind = true;
    bind->needs_memory = true;
    return bind_output(bind, top);
}

static void top_n_shape(const struct operator_bind *bind, struct byte_buffer *out)
{
    static const char *const emits[] = {"", "final", "on_close", "on_change"};
    const struct top_n *top = bind->config;
    buffer_append(out, "=order: ", 8);
    ordering_text(&top->order, out);
    buffer_printf(out, "\n=emit: %s\n", emits[top->emit]);
    if (top->over.ast != NULL)
        buffer_printf(out, "=over: %s offset %lld us zone %.*s\n", ast_text(bind->arena, top->over.ast),
                      (long long)top->offset_us, STR_ARGS(top->zone));
    kept_shape(bind, &top->options, out);
}

/* --- State --- */

/* The record: OPEN_HEAD bytes (the tag, then zeros), then the numbers of the open windows. */
static bool write_open(struct operator_context *context, struct byte_buffer *out)
{
    const struct top_n *top = context->config;
    static const char zeros[OPEN_HEAD];
    buffer_append(out, zeros, OPEN_HEAD - out->length);
    buffer_append(out, top->open.items, top->open.count * sizeof(*top->open.items));
    return true;
}

/* Restores the windows that any lane had open; a window without rows on this lane closes without output. */
static bool read_open(struct operator_context *context, struct snapshot_reader *reader, struct str record)
{
    struct top_n *top = context->config;
    if (record.length < OPEN_HEAD || (record.length - OPEN_HEAD) % sizeof(int64_t) != 0) {
        snapshot_corrupt(reader, context->diags, "a list of open windows has an impossible length");
        return false;
    }
    for (size_t at = OPEN_HEAD; at < record.length; at += sizeof(int64_t)) {
        int64_t window;
        memcpy(&window, record.data + at, sizeof(window));
        if (windows_end(&top->windows, window) > context->watermark)
            open_windows_add(&top->open, window);
    }
    return true;
}

static const struct state_record open_record = {.write = write_open, .read = read_open, .moves = true};

static const struct tally_figure top_n_figures[TALLY_VALUES] = {
    [TOP_WITHOUT_ROOM] = {"windows_without_room", .is_rare = true},
};

static const struct state_member top_n_state[] = {
    STATE_RECORD('e', &open_record),
    STATE_TALLY(struct top_n, tally, 't', top_n_figures),
    STATE_KEPT(struct top_n, kept, options),
    STATES_END,
};

static bool top_n_open(struct operator_context *context)
{
    struct top_n *top = context->config;
    kept_open(&top->kept, &top->options);
    return true;
}

/* --- Rows in --- */

/* PLACED_LATE: no window of the row is open. PLACED_FULL: no window took the row, and at least one had no
 * room for it. */
enum placed { PLACED, PLACED_LATE, PLACED_FULL };

static enum placed place_row(struct operator_context *context, struct top_n *top, struct keyed_slot *slot,
                             struct kept_candidate *row)
{
    bool is_open = false, is_in = false;
    uint64_t full = 0;
    int64_t time = row->batch->event_time[row->row];
    int64_t last = windows_last(&top->windows, time);
    row->first_alive = windows_first(&top->windows, context->watermark);
    for (row->window = windows_first(&top->windows, time); row->window <= last;
         row->window = windows_next(&top->windows, row->window)) {
        int64_t end = windows_end(&top->windows, row->window);
        if (end <= context->watermark)
            continue;
        row->expire_us = end - (end != TIME_MAX);
        enum kept_answer answer = kept_offer(&top->kept, slot, row);
        is_open = true;
        full += answer == KEPT_FULL;
        if (answer != KEPT_IN)
            continue;
        is_in = true;
        open_windows_add(&top->open, row->window);
    }
    top->tally.values[TOP_WITHOUT_ROOM] += full;
    if (!is_open)
        return PLACED_LATE;
    return full > 0 && !is_in ? PLACED_FULL : PLACED;
}

/* Without windows of time: one list for each group, which never ends. */
static enum placed place_forever(struct top_n *top, struct keyed_slot *slot, struct kept_candidate *row)
{
    row->window = row->first_alive = 0;
    row->expire_us = TIME_MAX;
    bool is_full = kept_offer(&top->kept, slot, row) == KEPT_FULL;
    top->tally.values[TOP_WITHOUT_ROOM] += is_full;
    return is_full ? PLACED_FULL : PLACED;
}

static void top_n_process(struct operator_context *context, uint32_t input LEAT_UNUSED, struct batch *batch)
{
    struct top_n *top = context->config;
    struct row_keys keys = keys_of(batch, top->keys, top->by.count, context->scratch);
    struct expr_errors errors = {0};
    struct ordered_rows ordered = ordering_evaluate(&top->ordering, batch, context->scratch, &errors);
    struct keyed_slot *slots[BATCH_ROWS];
    uint16_t late[BATCH_ROWS], full[BATCH_ROWS];
    uint32_t late_count = 0, full_count = 0;
    keyed_begin(top->kept.table, keys.keys, keys.hashes, batch->selected, slots);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        context->counters.null_keys += keys.has_null[i];
        if (errors.count > 0 && bit_get(errors.rows, row))
            continue;
        struct kept_candidate kept = {.batch = batch,
                                      .row = row,
                                      .hash = keys.hashes[i],
                                      .micro_batch = context->micro_batch,
                                      .key = ordering_key(&ordered, i)};
        enum placed placed = top->windows.tag == WINDOWS_FOREVER ? place_forever(top, slots[i], &kept)
                                                                 : place_row(context, top, slots[i], &kept);
        switch (placed) {
        case PLACED: context->counters.absorbed++; break;
        case PLACED_LATE: late[late_count++] = (uint16_t)row; break;
        case PLACED_FULL: full[full_count++] = (uint16_t)row; break;
        }
    }
    keyed_end(top->kept.table);
    compute_reject(context, batch, &errors);
    for (uint32_t i = 0; i < full_count; i++)
        operator_reject(context, batch, full[i],
                        "the rows kept for this group are larger than what a step may keep for one key");
    sides_emit_late(context, batch, late, late_count);
}

static void top_n_facts(struct operator_context *context, uint32_t input LEAT_UNUSED,
                        const struct batch *batch, struct row_facts *facts)
{
    const struct top_n *top = context->config;
    if (top->windows.tag == WINDOWS_FOREVER)
        return;
    int64_t time = batch->event_time[batch_row(batch, 0)];
    row_facts_add_time(facts, "first window's start",
                       windows_start(&top->windows, windows_first(&top->windows, time)));
    row_facts_add_time(facts, "last window's end",
                       windows_end(&top->windows, windows_last(&top->windows, time)));
}

/* --- Rows out --- */

static void top_n_on_watermark(struct operator_context *context, int64_t watermark)
{
    struct top_n *top = context->config;
    if (top->emit == EMIT_ON_CHANGE)
        kept_emit_changes(&top->kept, context);
    if (top->emit == EMIT_FINAL && watermark == TIME_MAX && context->watermark != TIME_MAX)
        kept_emit_window(&top->kept, context, 0, TIME_MAX);
    uint32_t closed = 0;
    for (; closed < top->open.count; closed++) {
        int64_t window = top->open.items[closed], end = windows_end(&top->windows, window);
        if (end > watermark)
            break;
        if (top->emit == EMIT_ON_CLOSE)
            kept_emit_window(&top->kept, context, window, end);
    }
    open_windows_drop(&top->open, closed);
}

/* --- Description, close --- */

static int64_t start_of(const void *windows, int64_t window)
{
    return windows_start(windows, window);
}

static int64_t end_of(const void *windows, int64_t window)
{
    return windows_end(windows, window);
}

static bool top_n_describe(struct operator_context *context, struct state_query *query, struct describe *out)
{
    struct top_n *top = context->config;
    const struct keyed_slot *slot = keys_peek(context, query, top->kept.table, top->keys, top->by.count);
    const struct kept_windows windows = {&top->windows, start_of, end_of};
    bool is_there =
        kept_describe(&top->kept, context, slot, top->windows.tag == WINDOWS_FOREVER ? NULL : &windows, out);
    keyed_peek_end(top->kept.table);
    return is_there;
}

static void top_n_close(struct operator_context *context)
{
    struct top_n *top = context->config;
    kept_close(&top->kept);
    open_windows_free(&top->open);
}

const struct operator_kind operator_top_n = {
    .name = "top_n",
    .summary = "keeps the best n rows of each group",
    .example = "events | top_n 3 by user_id order desc(price), ts over tumbling(1h) rank place",
    .details =
        "`order` ranks the rows of a group. Null is the worst value; of equal rows the earlier record is "
        "better, at any number of workers. With `over`, rows compete in windows of time: a window's rows are "
        "emitted, best first, when the watermark reaches the window's end, with the event time end - 1us. A "
        "row of which no window is open goes to `NAME.late`. The windows of a group may together take 8 MiB. "
        "A row that no window takes, because there was no room, goes to dead letters; `windows_without_room` "
        "in the summary counts, over all rows, the windows that had no room for a row. Without `over`, all "
        "rows of a group compete. `emit final` emits the best rows when the input has ended. `emit "
        "on_change` emits after each micro-batch what has changed, with a column `_op`: insert, delete (of "
        "rows that are no longer among the best) and, if `rank` adds a column, update (of rows that have "
        "another rank). State is in the job's `memory:`, and beyond that on disk.",
    .options = top_n_options,
    .state = top_n_state,
    .size = sizeof(struct top_n),
    .determinism = DETERMINISM_BY_RECORD_ORDER,
    .keeps_columns = true,
    .uses_time = true,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = top_n_bind,
    .shape = top_n_shape,
    .open = top_n_open,
    .process = top_n_process,
    .facts = top_n_facts,
    .on_watermark = top_n_on_watermark,
    .describe = top_n_describe,
    .close = top_n_close,
};
