/* window: one row for each group and window.
 *
 * The windows of time of a group share panes (windows.h), which lie in one keyed entry, whose prefix holds
 * the values of the key columns; an entry expires with its last window. A window closes when the watermark
 * reaches its end + lateness: its rows of all groups are then emitted in the order (window end, hash of the
 * key), in batches of at most 1,024. The keys of a window are listed as rows come (window_keys.h); where
 * there is no list, as after a restore, the lane scans its key groups, which rise with the hash, and sorts
 * the keys of each. A row is late when the watermark of the micro-batch before had closed all its windows: it
 * goes to the second output.
 *
 * Sessions grow and merge (window_sessions.c); windows of rows close with the row that fills them
 * (add_to_count).
 *
 * Results that change. With `emit on_change` a micro-batch ends with a row for each group and window that its
 * rows changed; with `on_end` a window gives its rows at its end, and from then on works as on_change; with
 * `every` it also gives the changes each time the watermark has gone on by that duration. Whether a change is
 * an insert or an update follows from the panes: each stores the first and the last micro-batch in which a
 * row of it came. */
#include "operators/window/window.h"

#include "core/mem.h"
#include "operators/sides.h"

#include <stdlib.h>

enum { PREFETCH_AHEAD = 6, LISTS_SHARE = 8, SHOWN_SHARE = 3, TIMER_BUCKETS = 16, OPEN_HEAD = 8 };

static const struct option window_options[] = {
    OPTION_COLUMNS(struct window, by, "by", OPTION_REQUIRED,
                   "the key columns; rows with equal values make a group"),
    OPTION_EXPRESSION(struct window, over, "over", OPTION_REQUIRED,
                      "the windows: tumbling(1h), sliding(10s, 2s), cumulating(1d, 1h), session(30m), "
                      "count(100), count(100, 10), forever"),
    OPTION_DURATION(struct window, offset_us, "offset", 0, "0s", "0s", "3650d",
                    "windows begin later by this time: tumbling(1d) offset 6h"),
    OPTION_TEXT(
        struct window, zone, "zone", 0, NULL,
        "the time zone, as \"Europe/Berlin\": windows of whole days begin at its midnight; UTC by default"),
    OPTION_ENUM(
        struct window, time, "time", 0, "event", "event|arrival",
        "`arrival`: windows go by the time at which records arrived (processing time), which the source "
        "must provide"),
    OPTION_DURATION(struct window, lateness_us, "lateness", 0, "0s", "0s", "365d",
                    "how long after its end, in event time, a window still takes rows"),
    OPTION_DURATION(
        struct window, expire_after_us, "expire_after", OPTION_FOREVER, NULL, "1ms", "3650d",
        "required with count(...): a group without rows for this event time is dropped, and its next row "
        "counts as the first; `forever`: groups are never dropped; state beyond `memory:` is on disk"),
    OPTION_EXPRESSION(
        struct window, emit, "emit", 0,
        "when rows are emitted: on_close (the default), final (when the input has ended), or, with a "
        "column `_op`, on_end, every(10s), on_change"),
    OPTION_ASSIGNMENTS(struct window, values, "values", OPTION_REQUIRED | OPTION_BODY,
                       "the new columns and their aggregates"),
    OPTIONS_END,
};

/* --- Binding --- */

static bool refuse_emit(struct operator_bind *bind, const struct window *window, const char *what,
                        const char *hint)
{
    struct span span = window->emit.ast != NULL ? window->emit.ast->span : window->over.ast->span;
    diag_hint(bind->diags, diag_error(bind->diags, DIAG_OPTIONS_CLASH, span, "%s", what), "%s", hint);
    return false;
}

static bool check_emit(struct operator_bind *bind, const struct window *window)
{
    if (window->shape.tag == WINDOWS_FOREVER && window->mode != EMIT_FINAL && window->mode != EMIT_EVERY &&
        window->mode != EMIT_ON_CHANGE)
        return refuse_emit(bind, window,
                           "the window `forever` neither ends nor closes, so its rows need another `emit`",
                           "use `emit on_change`, `emit every(10s)`, or, for an input that ends, "
                           "`emit final`");
    if (window->shape.tag == WINDOWS_COUNT && window->mode != EMIT_ON_CLOSE)
        return refuse_emit(bind, window,
                           "a window of rows is emitted when its last row arrives, and never changes: `emit` "
                           "has no meaning",
                           "leave `emit` out, or use a window of time");
    bool has_end = window->shape.tag != WINDOWS_COUNT && window->shape.tag != WINDOWS_FOREVER;
    if (window->lateness_us > 0 && (!has_end || window->mode == EMIT_FINAL))
        return refuse_emit(bind, window, "no row is late for these windows: `lateness` has no meaning",
                           "leave `lateness` out");
    return true;
}

/* Only windows of rows need an expiry: they do not end if no rows come. */
static bool check_expiry(struct operator_bind *bind, const struct window *window)
{
    bool is_count = window->shape.tag == WINDOWS_COUNT;
    if (is_count == (window->expire_after_us > 0))
        return true;
    struct diag *diag =
        is_count ? diag_error(bind->diags, DIAG_OPTION_MISSING, window->over.ast->span,
                              "`count` needs `expire_after`: a group whose window never fills would be kept "
                              "for ever")
                 : diag_error(bind->diags, DIAG_OPTIONS_CLASH, window->over.ast->span,
                              "these windows end by time: `expire_after` has no meaning");
    diag_hint(bind->diags, diag,
              is_count ? "`expire_after 30d` drops a group after 30 days without a row; `expire_after "
                         "forever` keeps all groups"
                       : "leave `expire_after` out");
    return false;
}

static bool bind_emit(struct operator_bind *bind, struct window *window)
{
    static const char *const names[] = {"on_close", "final", "on_end", "every", "on_change"};
    const struct ast *emit = window->emit.ast;
    if (emit == NULL) {
        window->mode = window->shape.tag == WINDOWS_FOREVER ? EMIT_FINAL : EMIT_ON_CLOSE;
        return check_emit(bind, window);
    }
    bool is_call = emit->tag == AST_CALL;
    size_t i = 0;
    while (i < ARRAY_COUNT(names) && ((emit->tag != AST_NAME && !is_call) || !str_is(emit->text, names[i])))
        i++;
    if (i == ARRAY_COUNT(names)) {
        struct diag *diag =
            diag_error(bind->diags, DIAG_NOT_A_CHOICE, emit->span, "`emit` has no such choice");
        const char *near = emit->tag == AST_NAME || is_call ? diag_nearest(emit->text, names, i) : NULL;
        if (near != NULL)
            diag_hint(bind->diags, diag, "did you mean `%s`?", near);
        else
            diag_hint(bind->diags, diag, "the choices are on_close, final, on_end, every(10s), on_change");
        return false;
    }
    window->mode = (enum window_emit)i;
    if (is_call != (window->mode == EMIT_EVERY) ||
        (is_call && (emit->count != 1 || emit->children[0]->tag != AST_DURATION ||
                     emit->children[0]->integer < 1000 || emit->children[0]->integer > 365 * US_PER_DAY))) {
        struct diag *diag =
            diag_error(bind->diags, DIAG_OUT_OF_RANGE, emit->span,
                       is_call && window->mode != EMIT_EVERY ? "`%s` takes no argument"
                                                             : "`%s` takes one duration: every(10s)",
                       names[i]);
        if (window->mode == EMIT_EVERY)
            diag_hint(bind->diags, diag, "the duration must be from 1ms to 365d");
        return false;
    }
    window->every_us = is_call ? emit->children[0]->integer : 0;
    return check_emit(bind, window);
}

/* The output's columns: the keys, window_start, window_end, the aggregates, _op. */
static bool bind_output(struct operator_bind *bind, struct window *window)
{
    const struct schema *input = bind->inputs[0].schema;
    struct schema empty = {.rows_lineage = input->rows_lineage};
    struct schema *output = schema_copy(bind->arena, &empty, window->by.count + window->aggregates.count + 3);
    keys_lineage(bind, 0, &output->rows_lineage); /* the keys decide which rows there are */
    bool is_good = true;
    for (uint32_t i = 0; i < window->by.count; i++) {
        const struct field *field = &input->fields[window->keys[i]];
        struct field *key =
            operator_add_chosen(bind, output, field->name, field->type, window->by.items[i].span);
        is_good &= key != NULL;
        if (key != NULL)
            field_merge(key, field);
    }
    if (window->has_bounds) {
        is_good &=
            operator_add_chosen(bind, output, STR("window_start"), type_of(TYPE_TIME), bind->span) != NULL;
        is_good &=
            operator_add_chosen(bind, output, STR("window_end"), type_of(TYPE_TIME), bind->span) != NULL;
    }
    for (uint32_t i = 0; i < window->aggregates.count; i++) {
        const struct aggregate *aggregate = &window->aggregates.items[i];
        struct field *field =
            operator_add_chosen(bind, output, aggregate->name, aggregate->result, aggregate->span);
        is_good &= field != NULL;
        if (field != NULL)
            field_merge(field, &(struct field){.lineage = aggregate->lineage});
    }
    if (window->has_changes)
        is_good &=
            operator_add_chosen(bind, output, STR(CHANGE_COLUMN), type_of(TYPE_TEXT), bind->span) != NULL;
    bind->outputs[0] = output;
    bind->outputs[1] = input;
    return is_good;
}

/* How far the output's watermark is behind the input's, so that no output row is late for later operators. */
static int64_t hold_of(const struct window *window)
{
    if (window->mode == EMIT_FINAL)
        return TIME_MAX;
    return window->lateness_us +
           (window->shape.tag == WINDOWS_SESSION); /* a session closes at a watermark above its end */
}

static bool window_bind(struct operator_bind *bind)
{
    struct window *window = bind->config;
    bool is_good =
        windows_bind(bind, window->over.ast, WINDOWS_ALL, window->offset_us, window->zone, &window->shape);
    is_good = is_good && check_expiry(bind, window) && bind_emit(bind, window);
    is_good &= keys_bind(bind, 0, &window->by, &window->keys);
    is_good &= aggregates_bind(bind, &window->values, bind->inputs[0].schema, false, &window->aggregates);
    if (!is_good)
        return false;
    window->has_changes = window_gives_at_end(window) || window->mode == EMIT_ON_CHANGE;
    window->has_bounds = window->shape.tag != WINDOWS_FOREVER;
    window->has_facts = window->has_changes || !window_is_of_time(window) || !window->has_bounds;
    bind->is_timer_kind = true;
    bind->sets_time = true;
    bind->is_by_arrival = window->time == WINDOW_BY_ARRIVAL;
    bind->needs_memory = true;
    bind->needs_end = window->mode == EMIT_FINAL;
    bind->hold_us = hold_of(window);
    is_good = bind_output(bind, window);
    if (window->has_facts)
        window_add_facts(bind, window);
    return is_good;
}

/* --- State --- */

static size_t lists_bytes(const struct operator_context *context)
{
    return (size_t)context->memory_bytes / LISTS_SHARE;
}

static struct state_plan plan_shown(const struct operator_context *context)
{
    const struct window *window = context->config;
    bool is_there = window->has_changes && window->shape.tag == WINDOWS_SESSION;
    return (struct state_plan){.is_absent = !is_there,
                               .memory_bytes = is_there ? (size_t)context->memory_bytes / SHOWN_SHARE : 0};
}

static struct state_plan plan_table(const struct operator_context *context)
{
    size_t others = lists_bytes(context) + plan_shown(context).memory_bytes;
    return (struct state_plan){.memory_bytes = (size_t)context->memory_bytes - others};
}

static struct state_plan plan_timers(const struct operator_context *context)
{
    const struct window *window = context->config;
    return (struct state_plan){.is_absent = window->shape.tag != WINDOWS_SESSION,
                               .memory_bytes = lists_bytes(context),
                               .bucket_us = MAX(window->shape.size_us / TIMER_BUCKETS, 1)};
}

/* The record: OPEN_HEAD bytes (the tag, then zeros), tick, fired_tick, then the indices of the open panes. */
static bool write_open(struct operator_context *context, struct byte_buffer *out)
{
    const struct window *window = context->config;
    static const char zeros[OPEN_HEAD];
    buffer_append(out, zeros, OPEN_HEAD - out->length);
    buffer_append(out, &window->tick, sizeof(window->tick));
    buffer_append(out, &window->fired_tick, sizeof(window->fired_tick));
    buffer_append(out, window->open.items, window->open.count * sizeof(*window->open.items));
    return true;
}

/* Restores the panes that any lane had open; a window that has no rows on this lane closes without output. */
static bool read_open(struct operator_context *context, struct snapshot_reader *reader, struct str record)
{
    struct window *window = context->config;
    int64_t value;
    if (record.length < OPEN_HEAD + 2 * sizeof(value) || (record.length - OPEN_HEAD) % sizeof(value) != 0) {
        snapshot_corrupt(reader, context->diags, "a list of open windows has an impossible length");
        return false;
    }
    for (size_t at = OPEN_HEAD; at < record.length; at += sizeof(value)) {
        memcpy(&value, record.data + at, sizeof(value));
        if (at == OPEN_HEAD)
            window->tick = MAX(window->tick, value);
        else if (at == OPEN_HEAD + sizeof(value))
            window->fired_tick = MAX(window->fired_tick, value);
        else if (window_closed_at(window, windows_of_pane(&window->shape, value).last) > context->watermark)
            open_windows_add(&window->open, value);
    }
    window_forget_lists(window);
    return true;
}

static const struct state_record open_record = {.write = write_open, .read = read_open, .moves = true};

static const struct state_member window_state[] = {
    STATE_RECORD('e', &open_record),
    STATE_TABLE(struct window, table, 'k', plan_table),
    STATE_QUEUE(struct window, timers, 't', plan_timers, "state_timer_bytes"),
    STATE_TABLE(struct window, shown, 's', plan_shown),
    STATES_END,
};

static bool window_open(struct operator_context *context)
{
    struct window *window = context->config;
    panes_init(&window->panes, &window->aggregates, window->table, windows_panes_count(&window->shape));
    panes_sum_init(&window->panes, &window->sum);
    window->timers_bytes = lists_bytes(context);
    window_keys_init(&window->listed, lists_bytes(context));
    window->look = mem_calloc(1, sizeof(*window->look));
    if (window->shape.tag == WINDOWS_FOREVER)
        window_keys_forget(&window->listed, INT64_MAX); /* the list would hold the whole table */
    window->tick = 1;
    return true;
}

/* --- Rows in --- */

/* Sets window->last_pane to the pane of the time. */
static void locate(struct window *window, int64_t time)
{
    struct window_pane *last = &window->last_pane;
    if (last->is_known && time >= last->start && time < last->end)
        return;
    const struct windows *shape = &window->shape;
    int64_t pane = windows_pane(shape, time);
    *last = (struct window_pane){.is_known = true,
                                 .start = windows_pane_start(shape, pane),
                                 .end = windows_pane_end(shape, pane),
                                 .pane = pane,
                                 .windows = windows_of_pane(shape, pane)};
    last->closed_at = window_closed_at(window, last->windows.last);
}

/* The last watermark, microseconds, at which a row of that time keeps its group. */
static int64_t kept_until(const struct window *window, int64_t time)
{
    return window->expire_after_us == INT64_MAX ? TIME_MAX : time_add(time, window->expire_after_us);
}

/* Windows of rows: a group's rows are numbered in the order of records; pane n holds the rows n * pane_rows
 * to (n + 1) * pane_rows - 1. Window k is full with row k * slide + size - 1, and is emitted in that row's
 * place. Panes that no later window needs are dropped.
 *
 * A group's window may never become full: the group is forgotten, and its numbers begin anew, when the
 * watermark is more than `expire_after` beyond the group's newest row. A row that is itself so far behind the
 * watermark is late. */
static enum window_taken add_to_count(struct operator_context *context, struct window *window,
                                      struct window_out *out, struct keyed_slot *slot,
                                      const struct batch *batch, struct panes_row *update)
{
    const struct windows *shape = &window->shape;
    update->expire_us = kept_until(window, update->time);
    if (update->expire_us < context->watermark)
        return WINDOW_LATE;
    uint32_t count = panes_count(slot);
    int64_t number = 0; /* position of this row among the group's rows */
    if (count > 0) {
        const struct window_facts *facts =
            window_facts_of(window, panes_partials(&window->panes, slot, count - 1));
        number = panes_index(&window->panes, slot, count - 1) * shape->pane_rows + facts->rows;
    }
    /* The first window that is not full yet. */
    int64_t open = number < shape->size_rows ? 0 : (number - shape->size_rows) / shape->slide_rows + 1;
    update->pane = number / shape->pane_rows;
    update->first_alive = open * (shape->slide_rows / shape->pane_rows);
    if (!panes_update(&window->panes, slot, update))
        return WINDOW_FULL;
    if (open * shape->slide_rows + shape->size_rows != number + 1)
        return WINDOW_TAKEN;
    panes_sum_clear(&window->panes, &window->sum);
    panes_read(&window->panes, slot, update->first_alive, update->pane, &window->sum);
    const struct window_facts *facts = window_facts_of(window, window->sum.fixed);
    struct window_row row = {.prefix = panes_prefix(slot),
                             .start = facts->first_time,
                             .end = time_add(facts->last_time, 1),
                             .time = facts->last_time,
                             .order = batch_order(batch, update->row)};
    window_out_add(context, window, out, &row);
    return WINDOW_TAKEN;
}

static enum window_taken add_row(struct operator_context *context, struct window *window,
                                 struct keyed_slot *slot, uint64_t hash, struct panes_row *update)
{
    if (window->shape.tag == WINDOWS_SESSION)
        return window_sessions_add(context, window, slot, hash, update);
    locate(window, update->time);
    struct window_pane *pane = &window->last_pane;
    if (pane->closed_at <= context->watermark)
        return WINDOW_LATE;
    update->pane = pane->pane;
    update->expire_us = pane->closed_at - 1;
    if (!panes_update(&window->panes, slot, update))
        return WINDOW_FULL;
    if (!pane->is_noted)
        open_windows_add(&window->open, pane->pane);
    pane->is_noted = true;
    if (update->is_new && window->mode != EMIT_ON_CHANGE)
        window_list_key(context, window, slot, hash);
    if (window->has_changes)
        window_touch(window, &(struct window_key){hash, slot->key}, pane->pane);
    return WINDOW_TAKEN;
}

static struct str prefix_of(struct window *window, const struct batch *batch, uint32_t row)
{
    buffer_clear(&window->prefix);
    for (uint32_t i = 0; i < window->by.count; i++)
        row_encode_value(&window->prefix, &batch->columns[window->keys[i]],
                         &batch->schema->fields[window->keys[i]].type, row);
    return (struct str){window->prefix.data, window->prefix.length};
}

/* The first pane that belongs to an open window. */
static int64_t first_alive(const struct operator_context *context, const struct window *window)
{
    if (!window_is_of_time(window))
        return INT64_MIN;
    int64_t first = window_first_open(window, context->watermark);
    return first == INT64_MIN ? first : windows_panes(&window->shape, first).first;
}

static const int64_t *times_of(const struct window *window, const struct batch *batch)
{
    return window->time == WINDOW_BY_ARRIVAL ? batch->arrival_time : batch->event_time;
}

static void window_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    struct window *window = context->config;
    struct row_keys keys = keys_of(batch, window->keys, window->by.count, context->scratch);
    struct expr_errors errors = {0};
    struct column tick = {.tag = TYPE_INT, .ints = &window->tick};
    struct panes_row update = {.arguments =
                                   aggregates_evaluate(&window->aggregates, batch, context->scratch, &errors),
                               .own = &tick,
                               .first_alive = first_alive(context, window)};
    const int64_t *times = times_of(window, batch);
    struct keyed_slot *slots[BATCH_ROWS];
    uint16_t late[BATCH_ROWS], full[BATCH_ROWS];
    uint32_t late_count = 0, full_count = 0;
    struct window_out out = {0};
    keyed_begin(window->table, keys.keys, keys.hashes, batch->selected, slots);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t bytes;
        update.row = batch_row(batch, i);
        if (i + PREFETCH_AHEAD < batch->selected)
            panes_prefetch(slots[i + PREFETCH_AHEAD]);
        context->counters.null_keys += keys.has_null[i];
        if (errors.count > 0 && bit_get(errors.rows, update.row))
            continue;
        update.time = times[update.row];
        if (keyed_read(slots[i], &bytes) == NULL)
            update.prefix = prefix_of(window, batch, update.row);
        enum window_taken taken = window->shape.tag == WINDOWS_COUNT
                                      ? add_to_count(context, window, &out, slots[i], batch, &update)
                                      : add_row(context, window, slots[i], keys.hashes[i], &update);
        context->counters.absorbed += taken == WINDOW_TAKEN;
        if (taken == WINDOW_LATE)
            late[late_count++] = (uint16_t)update.row;
        else if (taken == WINDOW_FULL)
            full[full_count++] = (uint16_t)update.row;
    }
    keyed_end(window->table);
    window_out_end(context, &out);
    compute_reject(context, batch, &errors);
    for (uint32_t i = 0; i < full_count; i++)
        operator_reject(context, batch, full[i],
                        "the open windows of this group are larger than what a step may keep for one key");
    sides_emit_late(context, batch, late, late_count);
}

static void window_facts(struct operator_context *context, uint32_t input LEAT_UNUSED,
                         const struct batch *batch, struct row_facts *facts)
{
    struct window *window = context->config;
    int64_t time = times_of(window, batch)[batch_row(batch, 0)];
    if (window->shape.tag == WINDOWS_SESSION)
        row_facts_add_time(facts, "session would end", time_add(time, window->shape.size_us));
    if (window->shape.tag == WINDOWS_COUNT && window->expire_after_us != INT64_MAX)
        row_facts_add_time(facts, "keeps its group until watermark", kept_until(window, time));
    if (!window_is_of_time(window) || !window->has_bounds)
        return;
    int64_t first = windows_first(&window->shape, time), last = windows_last(&window->shape, time);
    row_facts_add_time(facts, first == last ? "window start" : "first window start",
                       windows_start(&window->shape, first));
    row_facts_add_time(facts, first == last ? "window end" : "last window end",
                       windows_end(&window->shape, last));
    if (window->mode != EMIT_FINAL)
        row_facts_add_time(facts, "closes at watermark", window_closed_at(window, last));
}

static void window_on_watermark(struct operator_context *context, int64_t watermark)
{
    struct window *window = context->config;
    if (window->shape.tag == WINDOWS_SESSION)
        window_sessions_advance(context, window, watermark);
    else if (window->shape.tag != WINDOWS_COUNT)
        window_advance(context, window, watermark);
    window->touches_count = 0;
    window->tick++;
}

/* --- Description, close --- */

static void pane_edges(const void *argument, int64_t pane, char *partials, int64_t *start, int64_t *end)
{
    const struct window *window = argument;
    if (window_is_of_time(window) && window->has_bounds) {
        *start = windows_pane_start(&window->shape, pane);
        *end = windows_pane_end(&window->shape, pane);
        return;
    }
    const struct window_facts *facts = window_facts_of(window, partials);
    *start = facts->first_time;
    *end = window->shape.tag == WINDOWS_SESSION ? window_session_end(window, facts) : facts->last_time + 1;
}

static bool window_describe(struct operator_context *context, struct state_query *query, struct describe *out)
{
    struct window *window = context->config;
    const struct keyed_slot *slot = keys_peek(context, query, window->table, window->keys, window->by.count);
    uint32_t first = slot != NULL && window->shape.tag == WINDOWS_SESSION
                         ? window_sessions_closed(window, slot, context->watermark)
                         : 0;
    bool is_there = slot != NULL && panes_count(slot) > first;
    if (is_there)
        panes_describe(&window->panes, &window->sum, slot, first, pane_edges, window, context, out);
    keyed_peek_end(window->table);
    return is_there;
}

static void window_close(struct operator_context *context)
{
    struct window *window = context->config;
    if (window->table == NULL)
        return;
    panes_sum_free(&window->panes, &window->sum);
    panes_free(&window->panes);
    window_keys_free(&window->listed);
    buffer_free(&window->prefix);
    buffer_free(&window->copies);
    buffer_free(&window->given);
    free(window->look);
    open_windows_free(&window->open);
    free(window->touches);
    free(window->copy_list);
}

const struct operator_kind operator_window = {
    .name = "window",
    .summary = "makes one row for each group and window of time, or of rows",
    .example = "events | window by item_id over tumbling(1h) { n: count(), total: sum(price) }",
    .details =
        "The columns are the keys, window_start, window_end (not with `forever`), and the aggregates. A "
        "window is [start, end), and its row has the event time end - 1us. A session lasts as long as rows "
        "are no further apart than its duration, and ends that long after its last row. Windows begin at "
        "1970-01-01T00:00Z and at whole steps from there (a week on a Thursday: `offset 4d` makes it "
        "Monday); with `zone`, days are those of that zone, of 23 or 25 hours when its clock is changed. A "
        "window of rows, count(100), closes with the 100th row of the group in the order of records. A "
        "window of rows that is not full when the input ends gives no row. If a group has no row until the "
        "watermark is more than `expire_after` beyond its newest row, the group is dropped, and its next row "
        "counts as the first; a row that is itself so far behind the watermark is late. A window of time "
        "closes when the watermark reaches its end + `lateness` (a session: passes it); rows for closed "
        "windows go to `NAME.late`, which a sink can write. With `time arrival`, the time at which records "
        "arrived takes the place of event time; this clock also advances while no records arrive. `emit` "
        "says when rows are emitted. on_close: one row, when the window closes. final: one row, when the "
        "input has ended; nothing is late. on_end: one row when the watermark reaches the end, and "
        "corrections until the window closes. every(10s): like on_end, but also before the end, after each "
        "10 s of event time, if something changed. on_change: after each micro-batch, a row for each window "
        "that its rows changed. With the last three, the last column, `_op`, says insert, update or delete "
        "(of a session that was merged into another one). Null is a group of its own. A sum of ints that "
        "does not fit is null.",
    .options = window_options,
    .state = window_state,
    .size = sizeof(struct window),
    .determinism = DETERMINISM_BY_RECORD_ORDER,
    .uses_time = true,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = window_bind,
    .open = window_open,
    .process = window_process,
    .facts = window_facts,
    .on_watermark = window_on_watermark,
    .describe = window_describe,
    .close = window_close,
};
