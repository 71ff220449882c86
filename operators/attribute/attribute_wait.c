/* `attribute ... emit at_deadline`: rows wait in a time queue, all columns as bytes, and come out in the
 * order (deadline, hash of the key, arrival) when the watermark has passed the deadline. Whether an answer
 * came before or after the row does not matter: the row gets its label at its deadline. */
#include "operators/attribute/attribute.h"
#include "operators/sides.h"

/* With `take all`, a row may have any number of answers: after CHUNKS_AT_ONCE output batches the bracket is
 * closed and the batches are emitted. */
enum { CHUNKS_AT_ONCE = 64 };

/* --- Rows in --- */

/* Puts rows into the queue. held[i]: selected index of the i-th row; count: rows in `held`. */
static void hold_rows(struct operator_context *context, struct attribute *attribute,
                      const struct batch *batch, const struct row_keys *keys, const uint16_t *held,
                      uint32_t count)
{
    uint16_t rows[BATCH_ROWS];
    size_t offsets[BATCH_ROWS + 1];
    for (uint32_t i = 0; i < count; i++)
        rows[i] = (uint16_t)batch_row(batch, held[i]);
    held_pack(attribute->layouts, batch, rows, count, context->scratch, &attribute->packed, offsets);
    for (uint32_t i = 0; i < count; i++) {
        char *data = attribute->packed.data + offsets[i];
        ((struct held_head *)(void *)data)->has_null = keys->has_null[held[i]];
        /* Less than TIME_MAX, so that the last watermark (TIME_MAX) releases the row. */
        int64_t deadline = MIN(time_add(batch->event_time[rows[i]], attribute->within_us), TIME_MAX - 1);
        time_queue_push(attribute->queue, deadline, keys->keys[held[i]], keys->hashes[held[i]],
                        (struct str){data, offsets[i + 1] - offsets[i]});
    }
}

void attribute_hold(struct operator_context *context, struct attribute *attribute, struct batch *batch)
{
    struct row_keys keys = keys_of(batch, attribute->keys, attribute->on.count, context->scratch);
    uint16_t late[BATCH_ROWS], held[BATCH_ROWS];
    uint32_t late_count = 0, held_count = 0;
    hot_keys_note(attribute->hot, batch, attribute->keys, attribute->on.count, &keys);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        context->counters.null_keys += keys.has_null[i];
        if (time_add(batch->event_time[row], attribute->within_us) < context->watermark)
            late[late_count++] = (uint16_t)row;
        else
            held[held_count++] = (uint16_t)i;
    }
    hold_rows(context, attribute, batch, &keys, held, held_count);
    context->counters.held += held_count;
    sides_emit_late(context, batch, late, late_count);
}

/* --- Rows out --- */

struct emission {
    struct row_order *orders; /* in the batch's arena */
    struct batch *batch;      /* NULL: no row yet */
    struct key keys[BATCH_ROWS];
    uint64_t hashes[BATCH_ROWS];
    bool has_null[BATCH_ROWS];
};

static void begin_emission(struct operator_context *context, struct emission *emission)
{
    struct batch *batch = emission->batch = batch_new(context->pool, context->output, BATCH_ROWS);
    emission->orders = arena_alloc(&batch->arena, BATCH_ROWS * sizeof(*emission->orders));
}

/* Makes a held row the next row of the batch. Bytes that cannot be read mean a bug of ours or a broken
 * database: the row is then emitted with nulls. */
static void release_row(struct operator_context *context, struct attribute *attribute,
                        struct emission *emission, const struct time_record *record)
{
    uint32_t row = attribute->released.count;
    const struct held_head *head = held_add(attribute->layouts, &attribute->released, record->data);
    emission->orders[row] =
        row_order_of_timer(&attribute->last_due, 1 + context->place, record->time_us, record->hash);
    emission->keys[row] = record->key;
    emission->hashes[row] = record->hash;
    emission->has_null[row] = head->has_null != 0;
}

static void set_labels(struct operator_context *context, struct attribute *attribute,
                       const struct emission *emission, struct batch *batch, uint32_t count)
{
    struct attribute_fingers fingers = {0};
    struct keyed_slot *slots[BATCH_ROWS];
    int64_t *labels = batch->columns[attribute->input->count].ints;
    struct column_builder *builders =
        version_builders(&attribute->columns, batch, attribute->input->count + 1, context->scratch);
    keyed_look(attribute->table, emission->keys, emission->hashes, count, slots);
    for (uint32_t i = 0; i < count; i++) {
        int64_t time = batch->event_time[i];
        if (!attribute->keeps_rows) {
            labels[i] = !emission->has_null[i] && attribute_is_answered(attribute, slots[i], time);
            continue;
        }
        const struct version *answer = NULL;
        if (!emission->has_null[i])
            answer = attribute->take == ATTRIBUTE_LAST ? attribute_last(attribute, &fingers, slots[i], time)
                                                       : attribute_first(attribute, &fingers, slots[i], time);
        labels[i] = answer != NULL;
        version_read(&attribute->columns, builders, i, answer);
    }
    keyed_end(attribute->table);
    for (uint32_t i = 0; i < attribute->columns.count; i++)
        builder_finish(&builders[i]);
}

/* --- A row for each answer --- */

struct chunk {
    uint16_t rows[BATCH_ROWS];
    const struct version *answers[BATCH_ROWS];
    uint32_t count;
    struct ready_batches ready;
};

static void end_chunk(struct operator_context *context, struct attribute *attribute, struct batch *from,
                      struct chunk *chunk)
{
    if (chunk->count == 0)
        return;
    struct batch *sources[BATCH_ROWS];
    for (uint32_t i = 0; i < chunk->count; i++)
        sources[i] = from;
    struct batch *batch = batch_gather(context->pool, context->output, sources, chunk->rows, chunk->count);
    uint32_t first = attribute->input->count + 1;
    for (uint32_t i = 0; i < attribute->columns.count; i++)
        batch_column_init(batch, &batch->columns[first + i], attribute->columns.types[i], batch->rows);
    struct column_builder *builders = version_builders(&attribute->columns, batch, first, context->scratch);
    for (uint32_t i = 0; i < chunk->count; i++) {
        batch->columns[attribute->input->count].ints[i] = chunk->answers[i] != NULL;
        version_read(&attribute->columns, builders, i, chunk->answers[i]);
    }
    for (uint32_t i = 0; i < attribute->columns.count; i++)
        builder_finish(&builders[i]);
    struct row_order *orders = arena_alloc(&batch->arena, batch->rows * sizeof(*orders));
    for (uint32_t i = 0; i < batch->rows; i++)
        orders[i] = row_order_of_timer(&attribute->last_given, batch->orders[i].place, batch->orders[i].time,
                                       batch->orders[i].tie);
    batch->orders = orders;
    ready_add(&chunk->ready, batch);
    chunk->count = 0;
}

/* Adds row `row` of `from` once for each of its answers, or once with the label 0 where it has none. */
static void add_answers(struct operator_context *context, struct attribute *attribute, struct batch *from,
                        uint32_t row, const struct keyed_slot *slot, struct attribute_fingers *fingers,
                        struct chunk *chunk)
{
    int64_t time = from->event_time[row], to = time_add(time, attribute->within_us);
    const struct version *answer = attribute_first(attribute, fingers, slot, time);
    const struct version *newest = versions_last(slot);
    for (bool is_first = true;; is_first = false) {
        if (chunk->count == BATCH_ROWS)
            end_chunk(context, attribute, from, chunk);
        chunk->rows[chunk->count] = (uint16_t)row;
        chunk->answers[chunk->count++] = answer;
        context->counters.emitted += !is_first;
        if (answer == NULL || answer == newest || (answer = version_after(answer))->time > to)
            return;
    }
}

static void give_all(struct operator_context *context, struct attribute *attribute,
                     const struct emission *emission, struct batch *from, uint32_t count)
{
    struct chunk *chunk = arena_new(context->scratch, struct chunk);
    /* Gives `from` valid label and answer columns: label 0, answers null. */
    struct column_builder *builders =
        version_builders(&attribute->columns, from, attribute->input->count + 1, context->scratch);
    for (uint32_t i = 0; i < count; i++) {
        from->columns[attribute->input->count].ints[i] = 0;
        version_read(&attribute->columns, builders, i, NULL);
    }
    for (uint32_t i = 0; i < attribute->columns.count; i++)
        builder_finish(&builders[i]);
    for (uint32_t at = 0; at < count;) {
        struct attribute_fingers fingers = {0};
        struct keyed_slot *slots[BATCH_ROWS];
        uint32_t begin = at;
        keyed_look(attribute->table, emission->keys + at, emission->hashes + at, count - at, slots);
        for (; at < count && chunk->ready.count < CHUNKS_AT_ONCE; at++)
            add_answers(context, attribute, from, at, emission->has_null[at] ? NULL : slots[at - begin],
                        &fingers, chunk);
        end_chunk(context, attribute, from, chunk);
        keyed_end(attribute->table);
        ready_emit(&chunk->ready, context);
    }
    batch_release(from);
}

static void end_emission(struct operator_context *context, struct attribute *attribute,
                         struct emission *emission)
{
    struct batch *batch = emission->batch;
    emission->batch = NULL;
    if (batch == NULL)
        return;
    uint32_t count = attribute->released.count;
    held_unpack(attribute->layouts, &attribute->released, batch);
    batch->orders = emission->orders;
    context->counters.held -= count;
    context->counters.passed += count;
    if (attribute->take == ATTRIBUTE_ALL) {
        give_all(context, attribute, emission, batch, count);
        return;
    }
    set_labels(context, attribute, emission, batch, count);
    batch->rows = batch->selected = count;
    operator_emit(context, 0, batch);
}

void attribute_release(struct operator_context *context, struct attribute *attribute, int64_t watermark)
{
    struct emission *emission = arena_alloc(context->scratch, sizeof(*emission));
    emission->batch = NULL;
    attribute->last_due = attribute->last_given = (struct row_order){0};
    struct time_record record;
    while (time_queue_pop(attribute->queue, watermark, &record)) {
        if (emission->batch == NULL)
            begin_emission(context, emission);
        release_row(context, attribute, emission, &record);
        if (held_is_full(&attribute->released))
            end_emission(context, attribute, emission);
    }
    end_emission(context, attribute, emission);
}
