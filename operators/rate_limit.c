/* rate_limit: of the rows of a key at most so many go on in any stretch of event time.
 *
 * A row goes on if, with it, no half-open interval of length `per` holds more than `most` rows of its key
 * that went on. Rows are judged in the order of records, whatever their times: a row that comes out of order
 * counts among those before and after it. Rows beyond the rate go to the output `rest`. To judge a row of
 * time t the times in (t - per, t + per) must be known; the times of rows that went on are kept until the
 * watermark has passed them by 2 * per, and a row whose time is `per` or more behind the watermark is late.
 * A key's state is these times, rising: at most about `most` for each `per` from watermark - 2 * per to the
 * newest row. */
#include "operators/keys.h"
#include "operators/sides.h"

enum { RATE_LATE = 1, RATE_REST = 2 };

struct rate_limit {
    int64_t most;
    int64_t per_us;
    struct columns by;
    int *keys;
    const struct schema *output; /* of outputs 0 and rest */
    struct keyed_table *table;
};

static const struct option rate_limit_options[] = {
    OPTION_INT(struct rate_limit, most, "most", OPTION_REQUIRED | OPTION_POSITIONAL, NULL, "1", "10000",
               "how many rows of a key pass, at most"),
    OPTION_DURATION(struct rate_limit, per_us, "per", OPTION_REQUIRED, NULL, "1ms", "365d",
                    "the length of the interval in which they are counted, in event time"),
    OPTION_COLUMNS(struct rate_limit, by, "by", OPTION_REQUIRED, "the columns that make a key"),
    OPTIONS_END,
};

static const struct state_member rate_limit_state[] = {
    STATE_TABLE(struct rate_limit, table, 'k', NULL),
    STATES_END,
};

static bool rate_limit_bind(struct operator_bind *bind)
{
    struct rate_limit *limit = bind->config;
    if (!keys_bind(bind, 0, &limit->by, &limit->keys))
        return false;
    struct schema *output = operator_extend(bind, 0);
    keys_lineage(bind, 0, &output->rows_lineage); /* the keys decide which rows there are */
    limit->output = bind->outputs[0] = bind->outputs[RATE_REST] = output;
    bind->outputs[RATE_LATE] = bind->inputs[0].schema;
    bind->output_names[RATE_LATE] = "late";
    bind->output_names[RATE_REST] = "rest";
    bind->needs_memory = true;
    return true;
}

/* The index of the first of the rising times that is not below `time`, or count. */
static uint32_t lower_bound(const int64_t *times, uint32_t count, int64_t time)
{
    if (count == 0 || times[count - 1] < time)
        return count; /* the usual case */
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (times[middle] < time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Whether `time`, to be inserted at index `at`, lies with `most` of the times in an interval shorter than
 * `per`. */
static bool is_beyond(const struct rate_limit *limit, const int64_t *times, uint32_t count, uint32_t at,
                      int64_t time)
{
    uint32_t most = (uint32_t)limit->most;
    for (uint32_t first = at > most ? at - most : 0; first <= at && first + most <= count; first++) {
        int64_t begin = first == at ? time : times[first];
        int64_t end = first + most == at ? time : times[first + most - 1];
        if (time_add(begin, limit->per_us) > end)
            return true;
    }
    return false;
}

/* Adds the row's time to those that went on; false if the row is beyond the rate. */
static bool take(const struct operator_context *context, struct rate_limit *limit, struct keyed_slot *slot,
                 int64_t time)
{
    uint32_t bytes;
    int64_t *times = keyed_read(slot, &bytes); /* read only: keyed_write comes before changes */
    uint32_t count = bytes / (uint32_t)sizeof(*times);
    uint32_t at = lower_bound(times, count, time);
    if (is_beyond(limit, times, count, at, time))
        return false;
    /* Times that the watermark has passed by 2 * per are needed only by late rows. */
    int64_t passed = time_add(time_add(context->watermark, -limit->per_us), -limit->per_us);
    uint32_t gone = passed == TIME_MIN ? 0 : lower_bound(times, count, passed + 1);
    int64_t last = count > at ? times[count - 1] : time;
    int64_t expire = time_add(time_add(last, limit->per_us), limit->per_us - 1);
    leat_assert(gone <= at);
    times = keyed_write(limit->table, slot, (count + 1) * (uint32_t)sizeof(*times), expire);
    memmove(times + at + 1, times + at, (count - at) * sizeof(*times));
    times[at] = time;
    count += 1 - gone;
    memmove(times, times + gone, count * sizeof(*times));
    (void)keyed_write(limit->table, slot, count * (uint32_t)sizeof(*times), expire);
    return true;
}

static void rate_limit_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    struct rate_limit *limit = context->config;
    struct row_keys keys = keys_of(batch, limit->keys, limit->by.count, context->scratch);
    struct keyed_slot *slots[BATCH_ROWS];
    uint16_t taken[BATCH_ROWS], rest[BATCH_ROWS], late[BATCH_ROWS];
    uint32_t taken_count = 0, rest_count = 0, late_count = 0;
    keyed_begin(limit->table, keys.keys, keys.hashes, batch->selected, slots);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        context->counters.null_keys += keys.has_null[i];
        int64_t time = batch->event_time[row];
        if (time_add(time, limit->per_us) <= context->watermark)
            late[late_count++] = (uint16_t)row;
        else if (take(context, limit, slots[i], time))
            taken[taken_count++] = (uint16_t)row;
        else
            rest[rest_count++] = (uint16_t)row;
    }
    keyed_end(limit->table);
    context->counters.passed += taken_count;
    context->counters.filtered += rest_count;
    context->counters.late += late_count;
    sides_emit(context, 0, batch, limit->output, taken, taken_count);
    sides_emit(context, RATE_REST, batch, limit->output, rest, rest_count);
    sides_emit(context, RATE_LATE, batch, batch->schema, late, late_count);
}

static void rate_limit_facts(struct operator_context *context, uint32_t input LEAT_UNUSED,
                             const struct batch *batch, struct row_facts *facts)
{
    const struct rate_limit *limit = context->config;
    int64_t time = batch->event_time[batch_row(batch, 0)];
    row_facts_add_time(facts, "counts with rows after", time_add(time, -limit->per_us));
    row_facts_add_time(facts, "and before", time_add(time, limit->per_us));
    row_facts_add_time(facts, "late at watermark", time_add(time, limit->per_us));
}

static bool rate_limit_describe(struct operator_context *context, struct state_query *query,
                                struct describe *out)
{
    struct rate_limit *limit = context->config;
    const struct keyed_slot *slot = keys_peek(context, query, limit->table, limit->keys, limit->by.count);
    uint32_t bytes = 0;
    const int64_t *times = slot == NULL ? NULL : keyed_read(slot, &bytes);
    uint32_t count = bytes / (uint32_t)sizeof(*times);
    describe_list(out, "went_on");
    for (uint32_t i = 0; i < count && !describe_is_full(out); i++)
        describe_time(out, NULL, times[i]);
    describe_close(out);
    keyed_peek_end(limit->table);
    return count > 0;
}

const struct operator_kind operator_rate_limit = {
    .name = "rate_limit",
    .summary = "limits how many rows of a key pass in any interval of event time",
    .example = "events | rate_limit 100 per 1h by user_id",
    .details =
        "A row passes unless some interval [t, t + per) of event time would then contain more passed rows of "
        "its key than the limit. Rows are judged in the order of records; a row that comes out of order "
        "counts among those before and after it by event time. Rows beyond the limit go to `NAME.rest` and "
        "count as filtered; a row that is `per` or more behind the watermark goes to `NAME.late`. Null is a "
        "key of its own. With another limit or `per` the step cannot take over its state from a checkpoint, "
        "and begins anew: `leat run --from` says so.",
    .options = rate_limit_options,
    .state = rate_limit_state,
    .size = sizeof(struct rate_limit),
    .determinism = DETERMINISM_BY_RECORD_ORDER,
    .keeps_columns = true,
    .uses_time = true,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = rate_limit_bind,
    .process = rate_limit_process,
    .facts = rate_limit_facts,
    .describe = rate_limit_describe,
};
