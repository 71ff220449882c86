/* feature: emits every row with aggregates over the earlier rows of its group.
 *
 * Event time is cut into panes of width `every`. Rows are processed in the order of records. A row with
 * event time t in pane p reads the panes p - over / every .. p of its group, and then is added to pane p
 * (with `including self`: is added first). With `from STREAM`, only the rows of STREAM are added, and only
 * the rows of the stream before the `|` read. A pane is kept until the watermark passes the pane's end +
 * the longest `over`. A row whose pane is gone is not added; the counter late_updates counts it. All
 * windows of a group read the same panes. A row's result depends only on the rows before it, not on
 * evictions, checkpoints or the number of lanes. The window `forever` has no panes in this table:
 * all_time.h keeps it in a table of its own. */
#include "operators/window/feature.h"

#include "core/describe.h"
#include "operators/expr/compute.h"

enum { PREFETCH_AHEAD = 6 };

static const struct option feature_options[] = {
    OPTION_STREAM(struct feature, from, "from", 0,
                  "the stream whose rows are aggregated; without `from`, the operator's own input"),
    OPTION_COLUMNS(struct feature, by, "by", OPTION_REQUIRED,
                   "the key columns; rows with equal values make a group"),
    OPTION_DURATIONS(struct feature, over, "over", OPTION_REQUIRED | OPTION_FOREVER, "1ms", "3650d",
                     "how far back each window reaches. Several windows make a column each, with a suffix: "
                     "imps_1h, imps_24h, imps_forever. `forever`: all earlier rows of the group, whose "
                     "state is then never dropped"),
    OPTION_DURATION(
        struct feature, every_us, "every", 0, "1m", "1ms", "365d",
        "width of a slice of event time. A window's far end moves by whole slices, and a row also "
        "sees earlier records of its own slice that have a later event time"),
    OPTION_ENUM(struct feature, including, "including", 0, "none", "none|self",
                "`self`: a row's aggregates include the row itself"),
    OPTION_ASSIGNMENTS(struct feature, values, "values", OPTION_REQUIRED | OPTION_BODY,
                       "the new columns and their aggregates"),
    OPTIONS_END,
};

/* Plans one of the two tables. If `over` has both `forever` and other windows, each table gets half of the
 * operator's memory. */
static struct state_plan plan_of(const struct operator_context *context, bool is_there)
{
    const struct feature *feature = context->config;
    bool has_both = feature->ending > 0 && has_all_time(feature);
    return (struct state_plan){.is_absent = !is_there,
                               .memory_bytes = (size_t)context->memory_bytes / (has_both ? 2 : 1)};
}

static struct state_plan plan_ending(const struct operator_context *context)
{
    return plan_of(context, ((const struct feature *)context->config)->ending > 0);
}

static struct state_plan plan_all_time(const struct operator_context *context)
{
    return plan_of(context, has_all_time(context->config));
}

static const struct state_member feature_state[] = {
    STATE_TABLE(struct feature, table, 'k', plan_ending),
    STATE_TABLE(struct feature, all_time.table, 'f', plan_all_time),
    STATES_END,
};

static bool feature_open(struct operator_context *context)
{
    struct feature *feature = context->config;
    if (has_all_time(feature))
        all_time_open(&feature->all_time, &feature->aggregates, feature->every_us, context->groups);
    if (feature->ending == 0)
        return true;
    panes_init(&feature->panes, &feature->aggregates, feature->table,
               (uint64_t)(feature->longest_us / feature->every_us));
    panes_sum_init(&feature->panes, &feature->sum);
    return true;
}

/* --- Rows --- */

/* The index of the oldest pane that is kept at the context's watermark. */
static int64_t first_alive(const struct operator_context *context, const struct feature *feature)
{
    int64_t passed = time_add(context->watermark, -feature->longest_us);
    return passed == TIME_MIN ? INT64_MIN : pane_of(passed - 1, feature->every_us);
}

/* The slots of a batch's rows in both tables, between begin_places and end_places. */
struct places {
    struct keyed_slot *ending[BATCH_ROWS], *all_time[BATCH_ROWS];
};

static void begin_places(struct feature *feature, const struct key *keys, const uint64_t *hashes,
                         uint32_t count, struct places *places)
{
    if (feature->table != NULL)
        keyed_begin(feature->table, keys, hashes, count, places->ending);
    if (has_all_time(feature))
        keyed_begin(feature->all_time.table, keys, hashes, count, places->all_time);
}

static void prefetch_places(const struct feature *feature, const struct places *places, uint32_t i)
{
    if (feature->table != NULL)
        panes_prefetch(places->ending[i]);
    if (has_all_time(feature))
        panes_prefetch(places->all_time[i]);
}

static void end_places(struct feature *feature)
{
    if (feature->table != NULL)
        keyed_end(feature->table);
    if (has_all_time(feature))
        keyed_end(feature->all_time.table);
}

static bool update_ending(const struct operator_context *context, struct feature *feature,
                          struct keyed_slot *slot, const struct column *arguments, const struct batch *batch,
                          uint32_t row)
{
    int64_t time = batch->event_time[row];
    struct panes_row update = {.pane = pane_of(time, feature->every_us),
                               .first_alive = first_alive(context, feature),
                               .arguments = arguments,
                               .row = row,
                               .time = time};
    update.expire_us = pane_end(update.pane, feature->every_us, feature->longest_us);
    return update.pane >= update.first_alive && panes_update(&feature->panes, slot, &update);
}

/* Adds the row to its group's entry in each table. Counts the row in late_updates if it could not be added to
 * one of them: its pane is gone, or the entry is full. i: the row's index in `places`. */
static void update_row(struct operator_context *context, struct feature *feature, const struct places *places,
                       uint32_t i, const struct column *arguments, const struct batch *batch, uint32_t row)
{
    bool is_taken = true;
    if (feature->table != NULL)
        is_taken = update_ending(context, feature, places->ending[i], arguments, batch, row);
    if (has_all_time(feature))
        is_taken &= all_time_update(&feature->all_time, places->all_time[i], context->watermark, arguments,
                                    batch, row);
    context->counters.late_updates += !is_taken;
}

/* An output batch whose aggregate columns are being filled. */
struct reading {
    struct batch *out;
    struct column_builder *builders; /* [k * windows + w]: the column of aggregate k and window w */
};

static void begin_reading(struct operator_context *context, const struct feature *feature,
                          struct batch *batch, struct reading *reading)
{
    uint32_t base = batch->schema->count, count = feature->aggregates.count * feature->over.count;
    reading->out = batch_derive(batch, context->output);
    reading->builders = arena_array(context->scratch, struct column_builder, count);
    for (uint32_t i = 0; i < count; i++) {
        struct column *column = &reading->out->columns[base + i];
        struct type type = context->output->fields[base + i].type;
        batch_column_init(reading->out, column, type, batch->rows);
        builder_init(&reading->builders[i], reading->out, column, type);
    }
}

/* Sets builders[k] to the builder of aggregate k for this window. */
static void builders_of(const struct feature *feature, const struct reading *reading, uint32_t window,
                        struct column_builder *builders[AGGREGATES_MAX])
{
    for (uint32_t k = 0; k < feature->aggregates.count; k++)
        builders[k] = &reading->builders[k * feature->over.count + window];
}

/* Requests often have many rows of one group and time, whose values are equal: nothing is added between them. They are
 * linked, so that their panes are merged once. Physical rows. */
enum { SAME_ROWS_END = BATCH_ROWS, SAME_ROWS_PLACES = 2 * BATCH_ROWS };
struct same_rows {
    uint16_t next[BATCH_ROWS]; /* an earlier row with the same values, or SAME_ROWS_END */
    bool is_last[BATCH_ROWS];  /* no later row has the same values */
};

/* Links the rows without those in `errors`. slots: of the rows' groups. */
static void link_same_rows(const struct batch *batch, const struct row_keys *keys,
                           struct keyed_slot *const *slots, const struct expr_errors *errors,
                           struct same_rows *same)
{
    uint16_t last[SAME_ROWS_PLACES]; /* by hash of group and time: 1 + index of the last such row; 0: free */
    uint32_t mask = (batch->selected > 1 ? UINT32_C(4) << (31 - __builtin_clz(batch->selected - 1)) : 2) - 1;
    leat_assert(mask < SAME_ROWS_PLACES);
    memset(last, 0, (mask + 1) * sizeof(*last));
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        int64_t time = batch->event_time[row];
        uint64_t mixed = (keys->hashes[i] ^ (uint64_t)time) * UINT64_C(0x9e3779b97f4a7c15);
        same->is_last[row] = errors->count == 0 || !bit_get(errors->rows, row);
        if (!same->is_last[row])
            continue;
        uint32_t place = (uint32_t)(mixed >> 32) & mask, before = 0;
        for (; (before = last[place]) != 0; place = (place + 1) & mask)
            if (slots[before - 1] == slots[i] && batch->event_time[batch_row(batch, before - 1)] == time)
                break;
        same->next[row] = SAME_ROWS_END;
        if (before != 0) {
            same->next[row] = (uint16_t)batch_row(batch, before - 1);
            same->is_last[same->next[row]] = false;
        }
        last[place] = (uint16_t)(i + 1);
    }
}

/* same: the rows linked to `row` get its values, too; NULL: the row alone. */
static void read_ending(const struct operator_context *context, struct feature *feature,
                        const struct keyed_slot *slot, const struct reading *reading, uint32_t row,
                        const struct same_rows *same)
{
    int64_t time = reading->out->event_time[row], pane = pane_of(time, feature->every_us), last = pane;
    int64_t alive = first_alive(context, feature);
    bool is_additive = feature->aggregates.is_additive;
    struct column_builder *builders[AGGREGATES_MAX];
    panes_sum_clear(&feature->panes, &feature->sum);
    for (uint32_t i = 0; i < feature->ending; i++) {
        uint32_t w = feature->by_length[i];
        int64_t first;
        if (__builtin_sub_overflow(pane, feature->window_panes[w], &first))
            first = INT64_MIN;
        first = MAX(first, alive);
        if (i > 0 && !is_additive)
            panes_sum_clear(&feature->panes, &feature->sum);
        panes_read(&feature->panes, slot, first, last, &feature->sum);
        if (is_additive && first <= last)
            last = first - 1; /* the next, longer window adds only older panes */
        builders_of(feature, reading, w, builders);
        panes_finish(&feature->panes, &feature->sum, time, builders, row);
        for (uint32_t at = row; same != NULL && (at = same->next[at]) != SAME_ROWS_END;)
            panes_finish(&feature->panes, &feature->sum, time, builders, at);
    }
}

static void read_forever(const struct operator_context *context, struct feature *feature,
                         const struct keyed_slot *slot, const struct reading *reading, uint32_t row)
{
    struct column_builder *builders[AGGREGATES_MAX];
    builders_of(feature, reading, feature->by_length[feature->ending], builders);
    all_time_read(&feature->all_time, slot, context->watermark, reading->out->event_time[row], builders, row);
}

static void read_row(const struct operator_context *context, struct feature *feature,
                     const struct places *places, uint32_t i, const struct reading *reading, uint32_t row)
{
    if (feature->table != NULL)
        read_ending(context, feature, places->ending[i], reading, row, NULL);
    if (has_all_time(feature))
        read_forever(context, feature, places->all_time[i], reading, row);
}

/* The output batch, whole. */
static struct batch *end_reading(const struct feature *feature, struct reading *reading)
{
    for (uint32_t i = 0; i < feature->aggregates.count * feature->over.count; i++)
        builder_finish(&reading->builders[i]);
    return reading->out;
}

static void feature_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    struct feature *feature = context->config;
    struct row_keys keys = keys_of(batch, feature->keys, feature->by.count, context->scratch);
    struct expr_errors errors = {0};
    struct column *arguments = aggregates_evaluate(&feature->aggregates, batch, context->scratch, &errors);
    struct places places;
    struct reading reading;
    bool reads = !context->only_absorbs;
    if (reads)
        begin_reading(context, feature, batch, &reading);
    begin_places(feature, keys.keys, keys.hashes, batch->selected, &places);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        if (i + PREFETCH_AHEAD < batch->selected)
            prefetch_places(feature, &places, i + PREFETCH_AHEAD);
        context->counters.null_keys += keys.has_null[i];
        if (errors.count > 0 && bit_get(errors.rows, row))
            continue;
        if (feature->including != 0)
            update_row(context, feature, &places, i, arguments, batch, row);
        if (reads)
            read_row(context, feature, &places, i, &reading, row);
        if (feature->including == 0)
            update_row(context, feature, &places, i, arguments, batch, row);
    }
    end_places(feature);
    if (reads)
        compute_emit(context, batch, end_reading(feature, &reading), &errors);
}

/* Without `from` each row is added to its group, else the rows of input 1. */
static bool feature_absorbs(const void *config, uint32_t input, bool *columns)
{
    const struct feature *feature = config;
    bool has_from = feature->from.name.length > 0;
    if (input != has_from)
        return false;
    for (uint32_t i = 0; i < feature->by.count; i++)
        columns[has_from ? feature->update_keys[i] : feature->keys[i]] = true;
    aggregates_mark_columns(&feature->aggregates, columns);
    return true;
}

/* --- Requests --- */

static void feature_close(struct operator_context *context);

/* Sets the slots of the rows' groups; a group without an entry gets an empty one. */
static void look_places(struct feature *feature, const struct row_keys *keys, uint32_t count,
                        struct places *places)
{
    static struct keyed_slot empty; /* is never written */
    if (feature->table != NULL)
        keyed_look(feature->table, keys->keys, keys->hashes, count, places->ending);
    if (has_all_time(feature))
        keyed_look(feature->all_time.table, keys->keys, keys->hashes, count, places->all_time);
    for (uint32_t i = 0; i < count; i++) {
        places->ending[i] = feature->table == NULL || places->ending[i] == NULL ? &empty : places->ending[i];
        places->all_time[i] =
            !has_all_time(feature) || places->all_time[i] == NULL ? &empty : places->all_time[i];
    }
}

static void copy_entry(struct keyed_table *table, struct keyed_slot *to, const struct keyed_slot *from)
{
    uint32_t bytes;
    const char *value = keyed_read(from, &bytes);
    char *copy = keyed_write(table, to, bytes, TIME_MIN);
    if (bytes > 0)
        memcpy(copy, value, bytes);
}

/* A table that lies in memory alone, for copies of entries. */
static struct keyed_table *private_table(struct state_store *store, bool is_wanted)
{
    struct keyed_options options = {.store = store, .budget_bytes = SIZE_MAX / 4};
    return is_wanted ? keyed_table_new(&options) : NULL;
}

/* `including self`: a row's aggregates include the row, which nobody else may see. So each row is added to
 * copies of its group's entries, in tables of this call. */
static void read_with_itself(struct operator_context *context, struct batch *batch,
                             const struct row_keys *keys, const struct places *places,
                             const struct column *arguments, const struct expr_errors *errors,
                             const struct reading *reading)
{
    struct feature own = *(const struct feature *)context->config;
    struct operator_context call = *context;
    struct state_store *store = state_store_open(NULL, 0, false, context->diags); /* without a database */
    leat_assert(store != NULL);
    struct places copies;
    call.config = &own;
    own.table = private_table(store, own.ending > 0);
    own.all_time = (struct all_time){.table = private_table(store, has_all_time(&own))};
    (void)feature_open(&call);
    begin_places(&own, keys->keys, keys->hashes, batch->selected, &copies);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        if (errors->count > 0 && bit_get(errors->rows, row))
            continue;
        if (own.table != NULL)
            copy_entry(own.table, copies.ending[i], places->ending[i]);
        if (own.all_time.table != NULL)
            copy_entry(own.all_time.table, copies.all_time[i], places->all_time[i]);
        all_time_forget(&own.all_time);
        update_row(&call, &own, &copies, i, arguments, batch, row);
        read_row(&call, &own, &copies, i, reading, row);
    }
    end_places(&own);
    feature_close(&call);
    keyed_table_free(own.table);
    keyed_table_free(own.all_time.table);
    state_store_close(store);
}

/* Reads the batch's rows, each as if it came next. */
static void read_without_itself(const struct operator_context *context, const struct batch *batch,
                                const struct row_keys *keys, const struct places *places,
                                const struct expr_errors *errors, const struct reading *reading)
{
    struct feature *feature = context->config;
    struct same_rows same;
    if (feature->table != NULL)
        link_same_rows(batch, keys, places->ending, errors, &same);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        if (feature->table != NULL && same.is_last[row])
            read_ending(context, feature, places->ending[i], reading, row, &same);
        if (has_all_time(feature) && (errors->count == 0 || !bit_get(errors->rows, row)))
            read_forever(context, feature, places->all_time[i], reading, row);
    }
}

static void feature_read(struct operator_context *context, uint32_t input LEAT_UNUSED, struct batch *batch)
{
    struct feature *feature = context->config;
    struct row_keys keys = keys_of(batch, feature->keys, feature->by.count, context->scratch);
    struct expr_errors errors = {0};
    bool reads_itself = feature->from.name.length == 0;
    struct column *arguments =
        reads_itself ? aggregates_evaluate(&feature->aggregates, batch, context->scratch, &errors) : NULL;
    struct places places;
    struct reading reading;
    begin_reading(context, feature, batch, &reading);
    look_places(feature, &keys, batch->selected, &places);
    if (feature->including != 0)
        read_with_itself(context, batch, &keys, &places, arguments, &errors, &reading);
    else
        read_without_itself(context, batch, &keys, &places, &errors, &reading);
    end_places(feature);
    compute_emit(context, batch, end_reading(feature, &reading), &errors);
}

/* --- Two inputs --- */

/* The values computed once for a batch, before its rows are processed. Input 0 reads, input 1 (`from`) is
 * aggregated. */
struct prepared {
    struct column *arguments;  /* input 1: the aggregates' arguments */
    struct expr_errors errors; /* input 1: rows whose arguments cannot be computed */
    struct reading reading;    /* input 0: the output batch */
};

static struct prepared *prepare(struct operator_context *context, struct batch *batch, uint32_t input,
                                struct row_keys *keys)
{
    const struct feature *feature = context->config;
    struct prepared *prepared = arena_new(context->scratch, struct prepared);
    *keys = keys_of(batch, input == 0 ? feature->keys : feature->update_keys, feature->by.count,
                    context->scratch);
    if (input == 0) {
        begin_reading(context, feature, batch, &prepared->reading);
        return prepared;
    }
    prepared->arguments =
        aggregates_evaluate(&feature->aggregates, batch, context->scratch, &prepared->errors);
    context->counters.in += prepared->errors.count; /* the engine counts the rows of input 0 */
    compute_reject(context, batch, &prepared->errors);
    return prepared;
}

static void process_rows(struct operator_context *context, const struct merged_rows *merged)
{
    struct feature *feature = context->config;
    struct places places;
    begin_places(feature, merged->keys, merged->hashes, merged->count, &places);
    for (uint32_t i = 0; i < merged->count; i++) {
        const struct merge_row *row = &merged->rows[i];
        const struct prepared *prepared = merged->prepared[i];
        if (i + PREFETCH_AHEAD < merged->count)
            prefetch_places(feature, &places, i + PREFETCH_AHEAD);
        context->counters.null_keys += merged->has_null[i];
        if (row->input == 0)
            read_row(context, feature, &places, i, &prepared->reading, row->row);
        else if (prepared->errors.count == 0 || !bit_get(prepared->errors.rows, row->row))
            update_row(context, feature, &places, i, prepared->arguments, row->batch, row->row);
    }
    end_places(feature);
    for (uint32_t i = 0; i < merged->count; i++)
        if (merged->rows[i].input == 0 && merged->rows[i].is_last)
            compute_pass(context, end_reading(feature, &merged->prepared[i]->reading));
}

static void feature_process_merged(struct operator_context *context, struct merge *merge)
{
    merged_run(context, merge, prepare, process_rows);
}

static void feature_facts(struct operator_context *context, uint32_t input LEAT_UNUSED,
                          const struct batch *batch, struct row_facts *facts)
{
    const struct feature *feature = context->config;
    int64_t slice = pane_of(batch->event_time[batch_row(batch, 0)], feature->every_us);
    row_facts_add_time(facts, "slice start", pane_end(slice - 1, feature->every_us, 0));
    if (feature->ending > 0)
        row_facts_add_time(facts, "slice gone at watermark",
                           pane_end(slice, feature->every_us, feature->longest_us));
    if (has_all_time(feature))
        row_facts_add_time(facts, "slice closed at watermark", pane_end(slice, feature->every_us, 0));
}

/* --- Description, close --- */

static void pane_edges(const void *argument, int64_t pane, char *partials, int64_t *start, int64_t *end)
{
    (void)partials;
    const struct feature *feature = argument;
    *end = pane_end(pane, feature->every_us, 0);
    *start = *end - feature->every_us;
}

static bool feature_describe(struct operator_context *context, struct state_query *query,
                             struct describe *out)
{
    struct feature *feature = context->config;
    const struct keyed_slot *slot;
    bool is_there = false;
    if (feature->table != NULL) {
        slot = keys_peek(context, query, feature->table, feature->keys, feature->by.count);
        is_there = slot != NULL && panes_count(slot) > 0;
        if (is_there)
            panes_describe(&feature->panes, &feature->sum, slot, 0, pane_edges, feature, context, out);
        keyed_peek_end(feature->table);
    }
    if (!has_all_time(feature))
        return is_there;
    slot = keys_peek(context, query, feature->all_time.table, feature->keys, feature->by.count);
    bool has_all = slot != NULL && panes_count(slot) > 0;
    if (has_all) {
        describe_record(out, "forever");
        all_time_describe(&feature->all_time, slot, context, out);
        describe_close(out);
    }
    keyed_peek_end(feature->all_time.table);
    return is_there || has_all;
}

static void feature_close(struct operator_context *context)
{
    struct feature *feature = context->config;
    all_time_close(&feature->all_time);
    if (feature->table == NULL)
        return;
    panes_sum_free(&feature->panes, &feature->sum);
    panes_free(&feature->panes);
}

const struct operator_kind operator_feature = {
    .name = "feature",
    .summary = "adds aggregates of the row's group as of that row",
    .example = "events | feature by item_id over [1h, 24h] every 1m { imps: count(), spend: sum(price) }",
    .details =
        "Adds columns to every row: aggregates over the rows of its group that came before it in the order "
        "of records, and whose event time is in the window. A window is the row's own slice of `every`, "
        "and the slices that `over` reaches back. `from STREAM` aggregates the rows of STREAM instead. A "
        "row's aggregates include the row itself only with `including self`. Without rows, sums and counts "
        "are 0; mean, min, max, variance, last and first are null. A late row, whose slice ended more than "
        "the longest `over` before the watermark, is emitted but not aggregated. `over forever` aggregates "
        "all earlier rows of the group in the row's own slice, in older slices, and in slices that the "
        "watermark has passed; no row is too late. A group's state is then never dropped: one aggregate of "
        "the slices that the watermark has passed, and one for each later slice. State beyond `memory:` "
        "lies on disk. An aggregate whose state has no bound (`distinct_exact`) is refused with `forever`.",
    .options = feature_options,
    .state = feature_state,
    .size = sizeof(struct feature),
    .determinism = DETERMINISM_BY_RECORD_ORDER,
    .keeps_columns = true,
    .uses_time = true,
    .inputs_min = 1,
    .inputs_max = 2,
    .bind = feature_bind,
    .open = feature_open,
    .process = feature_process,
    .process_merged = feature_process_merged,
    .read = feature_read,
    .reading = READING_STATE,
    .absorbs = feature_absorbs,
    .facts = feature_facts,
    .describe = feature_describe,
    .close = feature_close,
};
