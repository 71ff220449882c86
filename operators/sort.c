/* sort: rows in the order of their event times.
 *
 * A row waits, with all columns packed as bytes, until the watermark is more than `within` beyond its event
 * time. Rows then leave in the order (event time, record order), or with `by` in that order for each key, and
 * for all keys together in the order (event time, hash of the key, record order). A row that arrives after
 * rows of its time have left is late. So the rows held at a time span the sources' delay plus `within`; those
 * beyond the job's memory lie on disk. The output's watermark is the input's less `within`. */
#include "operators/keys.h"
#include "operators/rows/held.h"
#include "operators/sides.h"

enum { BUCKETS = 64 };

struct sort {
    int64_t within_us;
    struct columns by;
    /* Made by bind. */
    int *keys;
    const struct schema *input;
    /* Owned by the lane. */
    struct time_queue *queue;
    struct held_layouts *layouts;
    struct byte_buffer packed;
    struct held_rows released;
};

static const struct option sort_options[] = {
    OPTION_DURATION(struct sort, within_us, "within", OPTION_REQUIRED, NULL, "0s", "365d",
                    "how far rows may be behind the watermark, which is also how long they wait, in "
                    "event time"),
    OPTION_COLUMNS(struct sort, by, "by", 0,
                   "rows with equal values in these columns are put in order; without `by` all rows are, on "
                   "one lane"),
    OPTIONS_END,
};

static struct state_plan plan_queue(const struct operator_context *context)
{
    const struct sort *sort = context->config;
    return (struct state_plan){.memory_bytes = (size_t)context->memory_bytes,
                               .bucket_us = MAX(sort->within_us, US_PER_SECOND) / BUCKETS,
                               .hold_us = sort->within_us};
}

static const struct state_member sort_state[] = {
    STATE_LAYOUTS(struct sort, layouts, 'L', input),
    STATE_QUEUE(struct sort, queue, 'q', plan_queue, "state_held_bytes"),
    STATES_END,
};

static bool sort_bind(struct operator_bind *bind)
{
    struct sort *sort = bind->config;
    if (sort->by.count > 0 && !keys_bind(bind, 0, &sort->by, &sort->keys))
        return false;
    sort->input = bind->inputs[0].schema;
    bind->outputs[0] = operator_extend(bind, 0);
    bind->outputs[1] = sort->input;
    bind->hold_us = sort->within_us;
    bind->is_timer_kind = true;
    bind->needs_memory = true;
    return true;
}

static void sort_shape(const struct operator_bind *bind, struct byte_buffer *out)
{
    const struct sort *sort = bind->config;
    buffer_printf(out, "=within: %lld us\n", (long long)sort->within_us);
    for (uint32_t i = 0; i < sort->by.count; i++)
        buffer_printf(out, "=by %.*s: %s\n", STR_ARGS(sort->by.items[i].name),
                      type_name(bind->arena, &sort->input->fields[sort->keys[i]].type));
    held_shape(sort->input, bind->arena, out);
}

/* --- Rows in --- */

/* Rows with an event time below the result have left. */
static int64_t left_before(const struct sort *sort, int64_t watermark)
{
    return time_add(watermark, -sort->within_us);
}

/* held: the physical rows to hold; at[i]: the selected index of held[i]. */
static void hold_rows(struct operator_context *context, struct sort *sort, const struct batch *batch,
                      const uint16_t *held, const uint16_t *at, uint32_t count)
{
    struct row_keys keys = {0};
    size_t offsets[BATCH_ROWS + 1];
    if (sort->by.count > 0)
        keys = keys_of(batch, sort->keys, sort->by.count, context->scratch);
    held_pack(sort->layouts, batch, held, count, context->scratch, &sort->packed, offsets);
    for (uint32_t i = 0; i < count; i++) {
        struct key key = keys.keys == NULL ? (struct key){0} : keys.keys[at[i]];
        time_queue_push(sort->queue, batch->event_time[held[i]], key,
                        keys.keys == NULL ? 0 : keys.hashes[at[i]],
                        (struct str){sort->packed.data + offsets[i], offsets[i + 1] - offsets[i]});
    }
}

static void sort_process(struct operator_context *context, uint32_t input LEAT_UNUSED, struct batch *batch)
{
    struct sort *sort = context->config;
    int64_t before = left_before(sort, context->watermark);
    uint16_t late[BATCH_ROWS], held[BATCH_ROWS], at[BATCH_ROWS];
    uint32_t late_count = 0, held_count = 0;
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        if (batch->event_time[row] < before) {
            late[late_count++] = (uint16_t)row;
        } else {
            held[held_count] = (uint16_t)row;
            at[held_count++] = (uint16_t)i;
        }
    }
    if (held_count > 0)
        hold_rows(context, sort, batch, held, at, held_count);
    context->counters.held += held_count;
    sides_emit_late(context, batch, late, late_count);
}

static void sort_facts(struct operator_context *context, uint32_t input LEAT_UNUSED,
                       const struct batch *batch, struct row_facts *facts)
{
    const struct sort *sort = context->config;
    row_facts_add_time(facts, "leaves behind watermark",
                       time_add(batch->event_time[batch_row(batch, 0)], sort->within_us));
}

/* --- Rows out --- */

static void emit_rows(struct operator_context *context, struct sort *sort, struct batch *batch,
                      const struct row_order *orders)
{
    if (batch == NULL)
        return;
    uint32_t count = sort->released.count;
    held_unpack(sort->layouts, &sort->released, batch);
    batch->rows = batch->selected = count;
    batch->orders = orders;
    context->counters.held -= count;
    context->counters.passed += count;
    operator_emit(context, 0, batch);
}

static void sort_on_watermark(struct operator_context *context, int64_t watermark)
{
    struct sort *sort = context->config;
    struct batch *batch = NULL;
    struct row_order *orders = NULL, last = {0};
    struct time_record record;
    while (time_queue_pop(sort->queue, left_before(sort, watermark), &record)) {
        if (batch == NULL) {
            batch = batch_new(context->pool, context->output, BATCH_ROWS);
            orders = arena_alloc(&batch->arena, BATCH_ROWS * sizeof(*orders));
        }
        orders[sort->released.count] =
            row_order_of_timer(&last, 1 + context->place, record.time_us, record.hash);
        (void)held_add(sort->layouts, &sort->released, record.data);
        if (!held_is_full(&sort->released))
            continue;
        emit_rows(context, sort, batch, orders);
        batch = NULL;
    }
    emit_rows(context, sort, batch, orders);
}

/* --- Description, close --- */

/* Writes all rows that wait for the key, and takes them out of the queue. */
static bool sort_describe(struct operator_context *context, struct state_query *query, struct describe *out)
{
    struct sort *sort = context->config;
    struct row_keys keys = {0};
    if (query->is_live) {
        query->refused =
            "its rows wait in the order of their times, not by key: `leat state get` on a checkpoint shows "
            "those of a key";
        return false;
    }
    if (sort->by.count > 0)
        keys = keys_of(query->row, sort->keys, sort->by.count, context->scratch);
    struct time_record record;
    bool is_there = false;
    query->looked_for = "rows that wait";
    describe_list(out, "held");
    while (time_queue_pop(sort->queue, TIME_MAX, &record)) {
        if (keys.keys != NULL && !key_equal(record.key, keys.keys[0]))
            continue;
        describe_record(out, NULL);
        describe_time(out, "event_time", record.time_us);
        held_describe(sort->layouts, record.data, context, out);
        describe_close(out);
        is_there = true;
    }
    describe_close(out);
    return is_there;
}

static void sort_close(struct operator_context *context)
{
    struct sort *sort = context->config;
    buffer_free(&sort->packed);
    held_rows_free(&sort->released);
}

const struct operator_kind operator_sort = {
    .name = "sort",
    .summary = "puts rows into the order of their event times",
    .example = "events | sort within 5s",
    .details =
        "Rows wait until the watermark is more than `within` beyond their event time. They are then emitted "
        "by event time, rows with equal times in the order of records. `within 0s` sorts rows that are out "
        "of order by no more than the sources' `max_delay`; a longer `within` also takes rows that are later "
        "than that. Rows that are still later go to `NAME.late`. With `by`, only rows with equal values are "
        "in order, and all lanes share the work. The watermark of the steps that follow is earlier "
        "by `within`.",
    .options = sort_options,
    .state = sort_state,
    .size = sizeof(struct sort),
    .determinism = DETERMINISM_BY_ALL_ROWS,
    .keeps_columns = true,
    .uses_time = true,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = sort_bind,
    .shape = sort_shape,
    .process = sort_process,
    .facts = sort_facts,
    .on_watermark = sort_on_watermark,
    .describe = sort_describe,
    .close = sort_close,
};
