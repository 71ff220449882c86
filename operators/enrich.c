/* enrich: the temporal join. Each row gets columns of the other stream's newest row with an equal key, as of
 * the row's own event time.
 *
 * The rows of the other stream are versions of their key, by event time; of two versions with equal times the
 * later record counts. When a row of event time t has its turn in the order of records, it reads the newest
 * version with a time in [t - within, t] among those that came before it. It does not wait: versions that
 * come later, or have a later event time, are never read, so that a replay gives a row the same as the live
 * run. A record that is in both streams reads before it becomes a version.
 *
 * Versions after the watermark are all kept; of those at or before it only the newest is, for `within`. A row
 * behind the watermark is held to the same limit whether older versions are still stored or not: the newest
 * version at or before the watermark is the oldest that it may read, and only until the watermark is more
 * than `within` after that version. A version that is already older than this limit when it comes is a late
 * update. So no result shows when pruning, eviction or a checkpoint happened. */
#include "operators/expr/compute.h"
#include "operators/hot_keys.h"
#include "operators/merged.h"
#include "operators/pairs.h"
#include "operators/rows/versions.h"
#include "operators/tally.h"

enum { PREFETCH_AHEAD = 6 };
/* Indices into tally.values. */
enum { ENRICH_UNMATCHED, ENRICH_DROPPED };

struct enrich {
    struct name_ref from;
    struct assignments on;
    int64_t within_us;
    struct assignments values;
    /* Made by bind. */
    int *keys, *update_keys;
    struct version_columns columns;
    /* Of the lane. */
    struct keyed_table *table; /* key -> versions */
    struct byte_buffer encoded;
    struct tally tally;
    struct hot_keys *hot;
};

static const struct option enrich_options[] = {
    OPTION_STREAM(struct enrich, from, "from", OPTION_REQUIRED, "the stream whose newest rows are looked up"),
    OPTION_ASSIGNMENTS(struct enrich, on, "on", OPTION_REQUIRED,
                       "the key columns: `on item_id`, or `on item_id = id` if the other stream's column is "
                       "called `id`"),
    OPTION_DURATION(struct enrich, within_us, "within", OPTION_REQUIRED | OPTION_FOREVER, NULL, "1ms",
                    "3650d",
                    "how much older than the row the other stream's row may be, in event time; `forever`: "
                    "any age, and the newest row of each key is kept for good"),
    OPTION_ASSIGNMENTS(struct enrich, values, "values", OPTION_REQUIRED | OPTION_BODY,
                       "the new columns, computed from the other stream's: `{ price, shop: shop_id }`"),
    OPTIONS_END,
};

static const struct tally_figure enrich_figures[TALLY_VALUES] = {
    [ENRICH_UNMATCHED] = {.name = "unmatched"},
    [ENRICH_DROPPED] = {.name = "versions_dropped", .is_rare = true},
};

static const struct state_member enrich_state[] = {
    STATE_TALLY(struct enrich, tally, 't', enrich_figures),
    STATE_HOT_KEYS(struct enrich, hot, 'H'),
    STATE_TABLE(struct enrich, table, 'k', NULL),
    STATES_END,
};

/* --- Binding --- */

static bool enrich_bind(struct operator_bind *bind)
{
    struct enrich *enrich = bind->config;
    const struct schema *other = bind->inputs[1].schema;
    bool is_good = pairs_bind(bind, &enrich->on, &enrich->keys, &enrich->update_keys);
    if (enrich->values.count == 0) {
        diag_error(bind->diags, DIAG_OPTION_MISSING, bind->span,
                   "`enrich` needs at least one column of `%.*s`", STR_ARGS(bind->inputs[1].stream));
        is_good = false;
    }
    is_good &= version_columns_bind(bind, &enrich->values, other, &enrich->columns);
    if (!operator_has_room(bind, enrich->values.count) || !is_good)
        return false;
    /* The keys of both streams decide which version a row reads: all new columns get their lineage. */
    struct lineage keys = {0};
    keys_lineage(bind, 0, &keys);
    keys_lineage(bind, 1, &keys);
    struct schema *output = operator_extend(bind, enrich->values.count);
    bind->outputs[0] = output;
    bind->needs_memory = true;
    return version_columns_add(bind, &enrich->columns, &keys, other, output);
}

static void enrich_shape(const struct operator_bind *bind, struct byte_buffer *out)
{
    const struct enrich *enrich = bind->config;
    buffer_printf(out, "=versions: %.*s within %lld us\n", STR_ARGS(enrich->from.name),
                  (long long)enrich->within_us);
    pairs_shape(bind, &enrich->on, enrich->keys, out);
    version_columns_shape(bind, &enrich->columns, &enrich->values, out);
}

/* --- Rows --- */

/* The last event time at which a version of time `time` may be read. */
static int64_t valid_until(const struct enrich *enrich, int64_t time)
{
    return enrich->within_us == INT64_MAX ? TIME_MAX : time_add(time, enrich->within_us);
}

/* The version that a row of event time `time` reads, or NULL. */
static const struct version *version_for(const struct operator_context *context, const struct enrich *enrich,
                                         const struct keyed_slot *slot, int64_t time)
{
    const struct version *version = versions_last(slot);
    while (version != NULL && version->time > time) {
        if (version->time <= context->watermark)
            return NULL; /* this version is after `time`, and older versions may not be read */
        version = version_before(version);
    }
    int64_t least = MAX(time, context->watermark);
    return version == NULL || valid_until(enrich, version->time) < least ? NULL : version;
}

/* Whether a new version of time `time` is expired, or older than the newest one at or before the
 * watermark. */
static bool is_late(const struct operator_context *context, const struct enrich *enrich,
                    const struct keyed_slot *slot, int64_t time)
{
    if (valid_until(enrich, time) < context->watermark)
        return true;
    if (time > context->watermark)
        return false;
    const struct version *version = versions_last(slot);
    while (version != NULL && version->time > context->watermark)
        version = version_before(version);
    return version != NULL && version->time > time;
}

/* One batch of either input, with what is computed before its rows are processed. */
struct prepared {
    struct batch *out; /* input 0 */
    struct column_builder *builders;
    struct column *values; /* input 1 */
    struct expr_errors errors;
};

/* Makes the output batch, without the values of the new columns. */
static void begin_out(struct operator_context *context, struct batch *batch, struct prepared *prepared)
{
    const struct enrich *enrich = context->config;
    uint32_t base = batch->schema->count;
    prepared->out = batch_derive(batch, context->output);
    for (uint32_t i = 0; i < enrich->columns.count; i++)
        batch_column_init(prepared->out, &prepared->out->columns[base + i], enrich->columns.types[i],
                          batch->rows);
    prepared->builders = version_builders(&enrich->columns, prepared->out, base, context->scratch);
}

static struct prepared *prepare(struct operator_context *context, struct batch *batch, uint32_t input,
                                struct row_keys *keys)
{
    struct enrich *enrich = context->config;
    struct prepared *prepared = arena_new(context->scratch, struct prepared);
    const int *columns = input == 0 ? enrich->keys : enrich->update_keys;
    *keys = keys_of(batch, columns, enrich->on.count, context->scratch);
    hot_keys_note(enrich->hot, batch, columns, enrich->on.count, keys);
    if (input == 1) {
        prepared->values =
            version_columns_evaluate(&enrich->columns, batch, context->scratch, &prepared->errors);
        context->counters.in += prepared->errors.count; /* the engine counts the rows of input 0 */
        compute_reject(context, batch, &prepared->errors);
        return prepared;
    }
    begin_out(context, batch, prepared);
    return prepared;
}

static void read_row(struct operator_context *context, struct enrich *enrich, const struct keyed_slot *slot,
                     const struct merged_rows *merged, uint32_t i)
{
    const struct merge_row *row = &merged->rows[i];
    const struct version *version = NULL;
    if (!merged->has_null[i])
        version = version_for(context, enrich, slot, row->batch->event_time[row->row]);
    enrich->tally.values[ENRICH_UNMATCHED] += version == NULL;
    version_read(&enrich->columns, merged->prepared[i]->builders, row->row, version);
}

static void update_row(struct operator_context *context, struct enrich *enrich, struct keyed_slot *slot,
                       const struct merged_rows *merged, uint32_t i)
{
    const struct merge_row *row = &merged->rows[i];
    const struct prepared *prepared = merged->prepared[i];
    int64_t time = row->batch->event_time[row->row];
    if (merged->has_null[i] || (prepared->errors.count > 0 && bit_get(prepared->errors.rows, row->row)))
        return;
    if (is_late(context, enrich, slot, time)) {
        context->counters.late_updates++;
        return;
    }
    buffer_clear(&enrich->encoded);
    version_encode(&enrich->columns, prepared->values, row->row, &enrich->encoded);
    if (enrich->encoded.length > VERSION_BYTES_MAX) {
        context->counters.in++;
        operator_reject(context, row->batch, row->row,
                        "the values that the step keeps of this row are longer than 2 MiB");
        return;
    }
    struct version_new new = {.time = time,
                              .data = {enrich->encoded.data, enrich->encoded.length},
                              .expire_us = valid_until(enrich, time),
                              .replaces_equal = true,
                              .floor_us = context->watermark};
    enrich->tally.values[ENRICH_DROPPED] += versions_add(enrich->table, slot, &new);
}

static void give_on(struct operator_context *context, const struct enrich *enrich,
                    const struct prepared *prepared)
{
    for (uint32_t i = 0; i < enrich->columns.count; i++)
        builder_finish(&prepared->builders[i]);
    compute_pass(context, prepared->out);
}

static void process_rows(struct operator_context *context, const struct merged_rows *merged)
{
    struct enrich *enrich = context->config;
    struct keyed_slot *slots[BATCH_ROWS];
    keyed_begin(enrich->table, merged->keys, merged->hashes, merged->count, slots);
    for (uint32_t i = 0; i < merged->count; i++) {
        if (i + PREFETCH_AHEAD < merged->count)
            prefetch_line(versions_last(slots[i + PREFETCH_AHEAD]));
        context->counters.null_keys += merged->has_null[i];
        if (merged->rows[i].input == 0)
            read_row(context, enrich, slots[i], merged, i);
        else
            update_row(context, enrich, slots[i], merged, i);
    }
    keyed_end(enrich->table);
    for (uint32_t i = 0; i < merged->count; i++)
        if (merged->rows[i].input == 0 && merged->rows[i].is_last)
            give_on(context, enrich, merged->prepared[i]);
}

static void enrich_process_merged(struct operator_context *context, struct merge *merge)
{
    merged_run(context, merge, prepare, process_rows);
}

static void enrich_read(struct operator_context *context, uint32_t input LEAT_UNUSED, struct batch *batch)
{
    struct enrich *enrich = context->config;
    struct row_keys keys = keys_of(batch, enrich->keys, enrich->on.count, context->scratch);
    struct keyed_slot *slots[BATCH_ROWS];
    struct prepared prepared;
    begin_out(context, batch, &prepared);
    keyed_look(enrich->table, keys.keys, keys.hashes, batch->selected, slots);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        const struct version *version = keys.has_null[i] || slots[i] == NULL
                                            ? NULL
                                            : version_for(context, enrich, slots[i], batch->event_time[row]);
        version_read(&enrich->columns, prepared.builders, row, version);
    }
    keyed_end(enrich->table);
    give_on(context, enrich, &prepared);
}

/* --- Facts, description, close --- */

static void enrich_facts(struct operator_context *context, uint32_t input, const struct batch *batch,
                         struct row_facts *facts)
{
    struct enrich *enrich = context->config;
    int64_t time = batch->event_time[batch_row(batch, 0)];
    const int *columns = input == 0 ? enrich->keys : enrich->update_keys;
    struct row_keys keys = keys_of(batch, columns, enrich->on.count, context->scratch);
    struct keyed_slot *slot;
    keyed_look(enrich->table, keys.keys, keys.hashes, 1, &slot);
    const struct version *version = keys.has_null[0] ? NULL : versions_last(slot);
    if (input == 0 && version != NULL)
        version = version_for(context, enrich, slot, time);
    if (version != NULL)
        row_facts_add_time(facts, input == 0 ? "version of" : "newest version before it", version->time);
    if (input == 0 && enrich->within_us != INT64_MAX)
        row_facts_add_time(facts, "versions count from", time_add(time, -enrich->within_us));
    keyed_end(enrich->table);
}

static bool enrich_describe(struct operator_context *context, struct state_query *query, struct describe *out)
{
    struct enrich *enrich = context->config;
    const struct keyed_slot *slot = keys_peek(context, query, enrich->table, enrich->keys, enrich->on.count);
    bool is_there = versions_last(slot) != NULL;
    if (is_there)
        versions_describe(&enrich->columns, slot, "versions", context, out);
    keyed_peek_end(enrich->table);
    return is_there;
}

static void enrich_close(struct operator_context *context)
{
    buffer_free(&((struct enrich *)context->config)->encoded);
}

/* The other stream's rows. */
static bool enrich_absorbs(const void *config, uint32_t input, bool *columns)
{
    const struct enrich *enrich = config;
    if (input == 0)
        return false;
    for (uint32_t i = 0; i < enrich->on.count; i++)
        columns[enrich->update_keys[i]] = true;
    for (uint32_t i = 0; i < enrich->columns.count; i++)
        expr_mark_columns(enrich->columns.exprs[i], columns);
    return true;
}

const struct operator_kind operator_enrich = {
    .name = "enrich",
    .summary = "adds columns of another stream's newest row as of the row's event time",
    .example = "events | enrich from ratings on item_id within 30d { rated: rating, rated_at: ts }",
    .details =
        "The temporal join. A row gets columns of the other stream's newest row by event time, among those "
        "with an equal key that came before it in the order of records and whose event time is not after its "
        "own. So it sees the other stream as it was at that time, in a live run and in a replay. A row does "
        "not wait for rows of the other stream that come later. A row without a match, or with a null in "
        "`on`, gets nulls and is counted as unmatched. Rows of the other stream are kept until the watermark "
        "has passed a newer one, or `within` is over. For a table in a file use `lookup`.",
    .options = enrich_options,
    .state = enrich_state,
    .size = sizeof(struct enrich),
    .determinism = DETERMINISM_BY_RECORD_ORDER,
    .keeps_columns = true,
    .uses_time = true,
    .inputs_min = 2,
    .inputs_max = 2,
    .bind = enrich_bind,
    .shape = enrich_shape,
    .process_merged = enrich_process_merged,
    .read = enrich_read,
    .reading = READING_STATE,
    .absorbs = enrich_absorbs,
    .facts = enrich_facts,
    .describe = enrich_describe,
    .close = enrich_close,
};
