/* dedup: of the rows with one identity, passes one.
 *
 * keep first: an identity is remembered by the event time f of its first occurrence. A row with the same
 * identity is a duplicate if its event time is in (f - within, f + within). Rows are judged in record order,
 * so "first" means the one that arrived first. A row at or after f + within passes and becomes the new first
 * occurrence; a row at or before f - within passes, and f stays. An identity is forgotten when the watermark
 * reaches f + within: a row that is later than the watermark allows may then pass again. The state is the
 * entry's expiry time, f + within - 1; there is no value.
 *
 * keep last: of each identity the row with the latest event time is kept (kept.h), of equal times the last
 * record. There is one list for each first occurrence f that is less than `within` behind the watermark. A
 * row in (f - within, f + within) belongs to the list of f; any other row is a first occurrence itself. The
 * kept rows are emitted at the end of the input, or as changes: an insert at the first occurrence, an update
 * for each micro-batch that brought a later row. */
#include "operators/rows/kept.h"
#include "operators/sides.h"

struct dedup {
    struct columns by;
    int64_t within_us;
    int keep, emit;
    int *columns;
    struct ordering latest;
    struct kept_options options; /* keep last */
    struct kept kept;            /* keep first: its table alone, which holds expiry times */
};

enum dedup_keep { KEEP_FIRST, KEEP_LAST };
enum dedup_emit { EMIT_AT_ONCE, EMIT_FINAL, EMIT_ON_CHANGE };

static const struct option dedup_options[] = {
    OPTION_COLUMNS(struct dedup, by, "by", OPTION_REQUIRED, "the columns that identify an event"),
    OPTION_DURATION(struct dedup, within_us, "within", OPTION_REQUIRED | OPTION_FOREVER, NULL, "1ms", "3650d",
                    "how long an identity is remembered after its first occurrence, in event time"),
    OPTION_ENUM(struct dedup, keep, "keep", 0, "first", "first|last",
                "which of the duplicates is kept: the first record, or the one with the latest event time"),
    OPTION_ENUM(struct dedup, emit, "emit", 0, "at_once", "at_once|final|on_change",
                "when the kept row is emitted: at_once, with `keep first`; final: when the input has ended; "
                "on_change: whenever there is a later one, as a change with `_op`"),
    OPTIONS_END,
};

static const struct state_member dedup_state[] = {
    STATE_KEPT(struct dedup, kept, options),
    STATES_END,
};

static bool wrong_emit(struct operator_bind *bind, const char *what, const char *hint)
{
    diag_hint(bind->diags, diag_error(bind->diags, DIAG_OPTIONS_CLASH, bind->span, "%s", what), "%s", hint);
    return false;
}

/* Checks that `emit` fits `keep` and `within`, and sets when the rows are emitted. */
static bool bind_emit(struct operator_bind *bind, const struct dedup *dedup)
{
    if (dedup->keep == KEEP_FIRST && dedup->emit != EMIT_AT_ONCE)
        return wrong_emit(bind, "`keep first` emits its rows at once, and later rows change nothing",
                          "leave `emit` out");
    if (dedup->keep == KEEP_LAST && dedup->emit == EMIT_AT_ONCE)
        return wrong_emit(bind, "`keep last` needs an `emit` that says when the last row is emitted",
                          "`emit final`: when the input has ended; `emit on_change`: whenever there is a "
                          "later row, as a change");
    if (dedup->emit == EMIT_FINAL && dedup->within_us != INT64_MAX)
        return wrong_emit(bind,
                          "`emit final` emits one row for each identity when the input has ended, but "
                          "`within` forgets identities before that",
                          "use `within forever`, or `emit on_change`");
    bind->needs_end = dedup->emit == EMIT_FINAL;
    bind->hold_us = dedup->emit == EMIT_FINAL ? INT64_MAX : 0;
    return true;
}

static bool bind_last(struct operator_bind *bind, struct dedup *dedup, struct schema *output)
{
    ordering_of_latest(&dedup->latest);
    dedup->options = (struct kept_options){.input = bind->inputs[0].schema,
                                           .ordering = &dedup->latest,
                                           .limit = 1,
                                           .last_wins = true,
                                           .is_one = true,
                                           .rank_column = -1,
                                           .change_column = -1};
    bind->is_timer_kind = true;
    if (dedup->within_us != INT64_MAX)
        bind->outputs[1] = bind->inputs[0].schema;
    if (dedup->emit != EMIT_ON_CHANGE)
        return true;
    dedup->options.change_column = (int)output->count;
    return operator_add_chosen(bind, output, STR(CHANGE_COLUMN), type_of(TYPE_TEXT), bind->span) != NULL;
}

static bool dedup_bind(struct operator_bind *bind)
{
    struct dedup *dedup = bind->config;
    if (!keys_bind(bind, 0, &dedup->by, &dedup->columns) || !bind_emit(bind, dedup))
        return false;
    struct schema *output = operator_extend(bind, 1);
    /* Which rows pass depends on their identities. */
    keys_lineage(bind, 0, &output->rows_lineage);
    bind->outputs[0] = output;
    bind->needs_memory = true;
    return dedup->keep == KEEP_FIRST || bind_last(bind, dedup, output);
}

/* keep first writes nothing, so its options and key types must be the same (operator_kind.shape). */
static void dedup_shape(const struct operator_bind *bind, struct byte_buffer *out)
{
    const struct dedup *dedup = bind->config;
    if (dedup->keep == KEEP_FIRST)
        return;
    buffer_printf(out, "=within: %lld us\n=emit: %s\n", (long long)dedup->within_us,
                  dedup->emit == EMIT_FINAL ? "final" : "on_change");
    kept_shape(bind, &dedup->options, out);
}

static bool dedup_open(struct operator_context *context)
{
    struct dedup *dedup = context->config;
    if (dedup->keep == KEEP_LAST)
        kept_open(&dedup->kept, &dedup->options);
    return true;
}

/* --- keep first --- */

/* Whether the row is a duplicate; a first occurrence is remembered. */
static bool is_duplicate(const struct operator_context *context, const struct dedup *dedup,
                         struct keyed_slot *slot, int64_t time)
{
    bool is_forever = dedup->within_us == INT64_MAX;
    int64_t expire = is_forever ? TIME_MAX : time_add(time, dedup->within_us - 1);
    if (slot->expire_us != TIME_MIN) {
        if (is_forever)
            return true;
        int64_t first = slot->expire_us - dedup->within_us + 1;
        if (time < first)
            return time > time_add(first, -dedup->within_us);
        if (time <= slot->expire_us)
            return true;
    }
    /* A dead entry is not written: whether a later row sees it would depend on where a batch ends. */
    if (expire >= context->watermark)
        (void)keyed_write(dedup->kept.table, slot, 0, expire);
    return false;
}

static void process_first(struct operator_context *context, struct dedup *dedup, struct batch *batch)
{
    struct row_keys keys = keys_of(batch, dedup->columns, dedup->by.count, context->scratch);
    struct keyed_slot *slots[BATCH_ROWS];
    uint16_t sel[BATCH_ROWS];
    uint32_t count = 0;
    keyed_begin(dedup->kept.table, keys.keys, keys.hashes, batch->selected, slots);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        context->counters.null_keys += keys.has_null[i];
        if (keys.has_null[i] || !is_duplicate(context, dedup, slots[i], batch->event_time[row]))
            sel[count++] = (uint16_t)row;
    }
    keyed_end(dedup->kept.table);
    context->counters.passed += count;
    context->counters.duplicate += batch->selected - count;
    sides_emit(context, 0, batch, context->output, sel, count);
}

/* --- keep last --- */

/* The list of a row of event time `time`, named by the event time of its first occurrence: `time` if the row
 * is a first occurrence itself. first_alive: lists of first occurrences before this time count as dropped. */
static int64_t occurrence_of(const struct dedup *dedup, const struct keyed_slot *slot, int64_t time,
                             int64_t first_alive)
{
    int64_t from = time_add(time, -dedup->within_us), until = time_add(time, dedup->within_us);
    const struct kept_head *list = NULL;
    while ((list = kept_next(slot, list)) != NULL)
        if (list->window >= first_alive && list->window > from && list->window < until)
            return list->window;
    return time;
}

/* Emits rows without an identity (a null in the key) at once. sel: physical rows. */
static void pass_rows(struct operator_context *context, const struct dedup *dedup, struct batch *batch,
                      const uint16_t *sel, uint32_t count)
{
    context->counters.passed += count;
    if (count == 0)
        return;
    struct batch *out = batch_derive(batch, context->output);
    out->sel = arena_copy(&out->arena, sel, count * sizeof(*sel));
    out->selected = count;
    if (dedup->options.change_column >= 0) {
        struct column *change = &out->columns[dedup->options.change_column];
        batch_column_init(out, change, type_of(TYPE_TEXT), out->rows);
        change->heap = change_text(CHANGE_INSERT).data;
        for (uint32_t i = 0; i < out->rows; i++)
            change->texts[i] = (struct text_ref){0, (uint32_t)change_text(CHANGE_INSERT).length};
    }
    operator_emit(context, 0, out);
}

enum taken { TAKEN, TAKEN_LATE, TAKEN_FULL };

/* Offers the row to the list of its identity. TAKEN_LATE: the list would have been dropped already.
 * TAKEN_FULL: the entry has no room. */
static enum taken take_row(struct operator_context *context, struct dedup *dedup, struct keyed_slot *slot,
                           struct kept_candidate *row)
{
    if (dedup->within_us == INT64_MAX) {
        row->window = row->first_alive = 0;
        row->expire_us = TIME_MAX;
    } else {
        row->first_alive = time_add(context->watermark, 1 - dedup->within_us);
        row->window = occurrence_of(dedup, slot, row->batch->event_time[row->row], row->first_alive);
        row->expire_us = time_add(row->window, dedup->within_us - 1);
        if (row->expire_us < context->watermark)
            return TAKEN_LATE;
    }
    return kept_offer(&dedup->kept, slot, row) == KEPT_FULL ? TAKEN_FULL : TAKEN;
}

/* With `within forever`: sets the bit of each row that another row of the batch with the same identity
 * replaces. Such rows are not written at all, which saves work as hot keys come several times in a batch. */
static void find_replaced(const struct dedup *dedup, struct keyed_slot *const *slots,
                          const struct ordered_rows *ordered, uint32_t count, uint64_t *is_replaced)
{
    enum { PLACES = 2 * BATCH_ROWS };
    uint16_t latest[PLACES] = {0}; /* hash table by slot: 1 + index of its latest row */
    memset(is_replaced, 0, BATCH_VALID_WORDS * sizeof(*is_replaced));
    for (uint32_t i = 0; i < count && dedup->within_us == INT64_MAX; i++) {
        size_t place = (uintptr_t)slots[i] / sizeof(**slots) % PLACES;
        while (latest[place] != 0 && slots[latest[place] - 1] != slots[i])
            place = (place + 1) % PLACES;
        if (latest[place] == 0) {
            latest[place] = (uint16_t)(i + 1);
            continue;
        }
        uint32_t other = latest[place] - 1U;
        struct order_key own = ordering_key(ordered, i), key = ordering_key(ordered, other);
        bool is_later = ordering_compare(&dedup->latest, &own, &key) <= 0;
        bit_set(is_replaced, is_later ? other : i);
        latest[place] = (uint16_t)(1 + (is_later ? i : other));
    }
}

/* An input batch with `keep last`. */
struct intake {
    struct batch *batch;
    struct row_keys keys;
    struct ordered_rows ordered;
    struct keyed_slot *slots[BATCH_ROWS];
    uint64_t is_replaced[BATCH_VALID_WORDS];
    uint16_t late[BATCH_ROWS];
    uint16_t without[BATCH_ROWS]; /* physical rows whose key has a null */
    uint16_t full[BATCH_ROWS];    /* selected indices of rows that found no room */
    uint32_t late_count, without_count, full_count;
};

static void take_in(struct operator_context *context, struct dedup *dedup, struct intake *in, uint32_t i)
{
    struct kept_candidate row = {.batch = in->batch,
                                 .row = batch_row(in->batch, i),
                                 .hash = in->keys.hashes[i],
                                 .micro_batch = context->micro_batch,
                                 .key = ordering_key(&in->ordered, i)};
    switch (take_row(context, dedup, in->slots[i], &row)) {
    case TAKEN: context->counters.absorbed++; break;
    case TAKEN_LATE: in->late[in->late_count++] = (uint16_t)row.row; break;
    case TAKEN_FULL: in->full[in->full_count++] = (uint16_t)i; break;
    }
}

/* For each row that found no room and goes to dead letters: takes in the rows that it would have replaced. */
static void take_in_replaced(struct operator_context *context, struct dedup *dedup, struct intake *in)
{
    for (uint32_t f = 0; f < in->full_count; f++)
        for (uint32_t i = 0; i < in->batch->selected; i++)
            if (bit_get(in->is_replaced, i) && in->slots[i] == in->slots[in->full[f]]) {
                bit_clear(in->is_replaced, i);
                take_in(context, dedup, in, i);
            }
    for (uint32_t i = 0; i < in->batch->selected; i++)
        context->counters.absorbed += bit_get(in->is_replaced, i) && !in->keys.has_null[i];
}

static void process_last(struct operator_context *context, struct dedup *dedup, struct batch *batch)
{
    struct intake *in = arena_alloc(context->scratch, sizeof(*in));
    struct expr_errors errors = {0};
    in->batch = batch;
    in->keys = keys_of(batch, dedup->columns, dedup->by.count, context->scratch);
    in->ordered = ordering_evaluate(&dedup->latest, batch, context->scratch, &errors);
    in->late_count = in->without_count = in->full_count = 0;
    keyed_begin(dedup->kept.table, in->keys.keys, in->keys.hashes, batch->selected, in->slots);
    find_replaced(dedup, in->slots, &in->ordered, batch->selected, in->is_replaced);
    for (uint32_t i = 0; i < batch->selected; i++) {
        context->counters.null_keys += in->keys.has_null[i];
        if (in->keys.has_null[i])
            in->without[in->without_count++] = (uint16_t)batch_row(batch, i);
        else if (!bit_get(in->is_replaced, i))
            take_in(context, dedup, in, i);
    }
    take_in_replaced(context, dedup, in);
    keyed_end(dedup->kept.table);
    uint64_t is_full[BATCH_VALID_WORDS] = {0};
    for (uint32_t f = 0; f < in->full_count; f++)
        bit_set(is_full, in->full[f]);
    for (uint32_t i = 0; i < batch->selected && in->full_count > 0; i++)
        if (bit_get(is_full, i))
            operator_reject(context, batch, batch_row(batch, i),
                            "the rows kept for this identity are larger than what a step may keep for "
                            "one key");
    pass_rows(context, dedup, batch, in->without, in->without_count);
    sides_emit_late(context, batch, in->late, in->late_count);
}

static void dedup_process(struct operator_context *context, uint32_t input LEAT_UNUSED, struct batch *batch)
{
    struct dedup *dedup = context->config;
    if (dedup->keep == KEEP_FIRST)
        process_first(context, dedup, batch);
    else
        process_last(context, dedup, batch);
}

static void dedup_facts(struct operator_context *context, uint32_t input LEAT_UNUSED,
                        const struct batch *batch, struct row_facts *facts)
{
    struct dedup *dedup = context->config;
    struct row_keys keys = keys_of(batch, dedup->columns, dedup->by.count, context->scratch);
    struct keyed_slot *slot;
    keyed_look(dedup->kept.table, keys.keys, keys.hashes, 1, &slot);
    if (slot != NULL && slot->expire_us != TIME_MIN && !keys.has_null[0]) {
        if (dedup->keep == KEEP_FIRST && dedup->within_us != INT64_MAX)
            row_facts_add_time(facts, "first seen", slot->expire_us - dedup->within_us + 1);
        row_facts_add_time(facts, "remembered until", slot->expire_us);
    }
    keyed_end(dedup->kept.table);
}

static void dedup_on_watermark(struct operator_context *context, int64_t watermark)
{
    struct dedup *dedup = context->config;
    if (dedup->emit == EMIT_ON_CHANGE)
        kept_emit_changes(&dedup->kept, context);
    if (dedup->emit == EMIT_FINAL && watermark == TIME_MAX && context->watermark != TIME_MAX)
        kept_emit_window(&dedup->kept, context, 0, TIME_MAX);
}

/* --- Description, close --- */

static int64_t start_of(const void *within_us LEAT_UNUSED, int64_t first)
{
    return first;
}

static int64_t end_of(const void *within_us, int64_t first)
{
    return time_add(first, *(const int64_t *)within_us);
}

static bool dedup_describe(struct operator_context *context, struct state_query *query, struct describe *out)
{
    struct dedup *dedup = context->config;
    const struct keyed_slot *slot =
        keys_peek(context, query, dedup->kept.table, dedup->columns, dedup->by.count);
    bool is_there = slot != NULL && slot->expire_us != TIME_MIN;
    const struct kept_windows windows = {&dedup->within_us, start_of, end_of};
    if (is_there && dedup->keep == KEEP_LAST) {
        is_there =
            kept_describe(&dedup->kept, context, slot, dedup->within_us == INT64_MAX ? NULL : &windows, out);
    } else if (is_there) {
        bool is_forever = dedup->within_us == INT64_MAX;
        describe_time(out, "seen", is_forever ? TIME_MIN : slot->expire_us - dedup->within_us + 1);
        describe_time(out, "until", slot->expire_us);
    }
    keyed_peek_end(dedup->kept.table);
    return is_there;
}

static void dedup_close(struct operator_context *context)
{
    struct dedup *dedup = context->config;
    kept_close(&dedup->kept);
}

const struct operator_kind operator_dedup = {
    .name = "dedup",
    .summary = "removes duplicates: keeps one of the rows with the same identity",
    .example = "events | dedup by user_id, item_id within 1h",
    .details =
        "`keep first`: of the rows with the same identity the first passes, in the order of records. Its "
        "identity is remembered for rows whose event time is less than `within` before or after its own. "
        "`keep last`: the row with the latest event time is kept, of rows with equal times the last record; "
        "`emit final` emits it when the input has ended, `emit on_change` whenever there is a later one, "
        "with a column `_op`: insert, then update. With `keep last`, a row whose identity has been forgotten "
        "by the time it arrives goes to `NAME.late`. A row with a null in a column of the identity passes "
        "and is counted.",
    .options = dedup_options,
    .state = dedup_state,
    .size = sizeof(struct dedup),
    .determinism = DETERMINISM_BY_RECORD_ORDER,
    .keeps_columns = true,
    .uses_time = true,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = dedup_bind,
    .shape = dedup_shape,
    .open = dedup_open,
    .process = dedup_process,
    .read = operator_pass,
    .reading = READING_PASS,
    .facts = dedup_facts,
    .on_watermark = dedup_on_watermark,
    .describe = dedup_describe,
    .close = dedup_close,
};
