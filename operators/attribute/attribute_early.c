/* `attribute ... emit at_once` and `emit fake_negative`: rows are emitted before their deadline.
 *
 * at_once: a row is emitted with 1 as soon as it has an answer: at its own place in the order of records if
 * the answer came before it, else at the answer's place. A row without an answer is emitted at its deadline,
 * with 0.
 *
 * fake_negative: every row is emitted at once, at its own place, with 0, and a second time with 1 when an
 * answer comes. How to learn from such rows: Ktena et al. 2019, "Addressing Delayed Feedback for Continuous
 * Training with Neural Networks in CTR prediction", arXiv:1907.06558, whose terms are used here.
 * Let p = p(1|x) be the share of the rows x that are answered. The output has b(x|0) = p(x) and
 * b(x|1) = p(x|1), so
 *     b(1|x) = p / (1 + p),  b(0|x) = 1 / (1 + p):
 * a learner that takes the output as it is predicts too little. Two equally good ways back to p:
 *     "fake negative weighted": weights p(y|x) / b(y|x), with the model's own prediction for p
 *         (`fake_negatives: true` of learners, learners/loss.h);
 *     "fake negative calibration": p = b / (1 - b) of the prediction, an expression after the learner
 *         (jobs/ctr_fresh.leat has both).
 *
 * Waiting rows are versions of their key, all columns as bytes, by event time: an answer of time c takes
 * those in [c - within, c]. With at_once a time queue holds the deadlines. A record of the queue is the event
 * time of a waiting row; or, where the row cannot wait at its key (its key has a null, or there is no room),
 * the row itself, which gets its label at its deadline as in attribute_wait.c. The output of a micro-batch
 * depends on the order of both inputs' rows, so both inputs are processed row by row. */
#include "operators/attribute/attribute.h"

#include "operators/expr/compute.h"
#include "operators/merged.h"
#include "operators/sides.h"

enum { NO_ANSWER = UINT32_MAX };
/* row_order.sub of an emitted row: the sub of the input row that caused it, a bit for the input of that input
 * row, and the index of the emitted row among the rows that the input row caused. */
enum { EARLY_SUB_SHIFT = 20, EARLY_SUB_ANSWER = 1 << 19 };
static const char ORDERS_FULL[] = "too many earlier steps have each made several rows out of one";
/* at_once: limit for the rows that wait at one key. A row that leaves moves the bytes of all later ones. */
enum { WAITING_BYTES_MAX = 256 << 10 };

/* Rows to be emitted, in order. */
struct early {
    struct row_order orders[BATCH_ROWS];
    uint8_t labels[BATCH_ROWS];
    uint32_t answers[BATCH_ROWS]; /* offsets of versions in `bytes`, or NO_ANSWER */
    struct byte_buffer bytes;     /* freed by attribute_early and attribute_early_release */
    struct ready_batches ready;
    struct prepared *prepared, **end; /* all of the micro-batch, in order */
};

/* One batch of either input, with what is computed before its rows are processed. */
struct prepared {
    struct batch *batch;
    size_t *offsets;            /* input 0: where each row begins in `packed` */
    struct byte_buffer *packed; /* lives until the end of the micro-batch */
    struct column *values;      /* input 1 */
    struct expr_errors *errors;
    uint16_t *late;
    uint32_t late_count;
    struct prepared *next;
};

/* --- Rows out --- */

static void make_batch(struct operator_context *context, struct attribute *attribute, struct early *early)
{
    uint32_t count = attribute->released.count, first = attribute->input->count + 1;
    if (count == 0)
        return;
    struct batch *batch = batch_new(context->pool, context->output, BATCH_ROWS);
    held_unpack(attribute->layouts, &attribute->released, batch);
    struct column_builder *builders = version_builders(&attribute->columns, batch, first, context->scratch);
    for (uint32_t i = 0; i < count; i++) {
        const void *answer = early->bytes.data + early->answers[i];
        batch->columns[attribute->input->count].ints[i] = early->labels[i];
        version_read(&attribute->columns, builders, i, early->answers[i] == NO_ANSWER ? NULL : answer);
    }
    for (uint32_t i = 0; i < attribute->columns.count; i++)
        builder_finish(&builders[i]);
    batch->rows = batch->selected = count;
    batch->orders = arena_copy(&batch->arena, early->orders, count * sizeof(*early->orders));
    ready_add(&early->ready, batch);
    buffer_clear(&early->bytes);
}

/* Adds a row to be emitted. row: packed. answer: NULL for the label 0. */
static void give_row(struct operator_context *context, struct attribute *attribute, struct early *early,
                     struct str row, const struct row_order *order, const struct version *answer)
{
    uint32_t i = attribute->released.count;
    early->orders[i] = *order;
    early->labels[i] = answer != NULL;
    early->answers[i] = NO_ANSWER;
    if (answer != NULL && attribute->columns.count > 0) {
        size_t bytes = (sizeof(*answer) + answer->bytes + 7) & ~(size_t)7;
        early->answers[i] = (uint32_t)early->bytes.length;
        memcpy(buffer_reserve(&early->bytes, bytes), answer, sizeof(*answer) + answer->bytes);
        early->bytes.length += bytes;
    }
    (void)held_add(attribute->layouts, &attribute->released, row);
    if (held_is_full(&attribute->released) || early->bytes.length > VERSIONS_BYTES_MAX)
        make_batch(context, attribute, early);
}

/* Emits all rows added so far. Not inside a bracket. */
static void give_on(struct operator_context *context, struct attribute *attribute, struct early *early)
{
    make_batch(context, attribute, early);
    ready_emit(&early->ready, context);
}

/* --- Rows in --- */

static struct prepared *prepare(struct operator_context *context, struct batch *batch, uint32_t input,
                                struct row_keys *keys)
{
    struct attribute *attribute = context->config;
    struct prepared *prepared = arena_new(context->scratch, struct prepared);
    const int *columns = input == 0 ? attribute->keys : attribute->answer_keys;
    prepared->batch = batch;
    *attribute->early->end = prepared;
    attribute->early->end = &prepared->next;
    *keys = keys_of(batch, columns, attribute->on.count, context->scratch);
    prepared->errors = arena_new(context->scratch, struct expr_errors);
    hot_keys_note(attribute->hot, batch, columns, attribute->on.count, keys);
    if (input == 1) {
        prepared->values =
            version_columns_evaluate(&attribute->columns, batch, context->scratch, prepared->errors);
        context->counters.in += prepared->errors->count; /* the engine counts the rows of input 0 */
        compute_reject(context, batch, prepared->errors);
        return prepared;
    }
    uint16_t *rows = arena_alloc(context->scratch, (batch->selected + 1) * sizeof(*rows));
    for (uint32_t i = 0; i < batch->selected; i++)
        rows[i] = (uint16_t)batch_row(batch, i);
    prepared->late = arena_alloc(context->scratch, (batch->selected + 1) * sizeof(*prepared->late));
    prepared->offsets = arena_alloc(context->scratch, (batch->selected + 1) * sizeof(*prepared->offsets));
    prepared->packed = arena_new(context->scratch, struct byte_buffer);
    held_pack(attribute->layouts, batch, rows, batch->selected, context->scratch, prepared->packed,
              prepared->offsets);
    for (uint32_t i = 0; i < batch->selected; i++) {
        struct held_head *head = (struct held_head *)(void *)(prepared->packed->data + prepared->offsets[i]);
        head->has_null = keys->has_null[i];
    }
    return prepared;
}

/* Stores the row with its key, to wait for an answer. */
static void wait_for_answer(struct operator_context *context, struct attribute *attribute,
                            struct keyed_slot *slot, int64_t time, struct str row)
{
    struct version_new new = {.time = time,
                              .data = row,
                              .expire_us = time_add(time, attribute->within_us),
                              .floor_us = time_add(time_add(context->watermark, -attribute->within_us), -1)};
    attribute->tally.values[ATTRIBUTE_ROWS_DROPPED] += versions_add(attribute->waiting, slot, &new);
}

/* Whether row_order.sub has bits left for the rows that this row makes. */
static bool has_order(const struct merge_row *at)
{
    return batch_order(at->batch, at->row).sub >> (64 - EARLY_SUB_SHIFT) == 0;
}

/* The order of the index-th row that the row `at` makes. */
static struct row_order order_of(const struct merge_row *at, uint64_t index)
{
    struct row_order order = batch_order(at->batch, at->row);
    uint64_t side = at->input == 1 ? EARLY_SUB_ANSWER : 0;
    order.sub = order.sub << EARLY_SUB_SHIFT | side | MIN(index, (uint64_t)EARLY_SUB_ANSWER - 1);
    return order;
}

static void take_row(struct operator_context *context, struct attribute *attribute,
                     struct keyed_slot *const *slots, const struct merged_rows *merged, uint32_t i,
                     struct early *early)
{
    const struct merge_row *at = &merged->rows[i];
    struct prepared *prepared = merged->prepared[i];
    int64_t time = at->batch->event_time[at->row], deadline = time_add(time, attribute->within_us);
    if (deadline < context->watermark) {
        prepared->late[prepared->late_count++] = (uint16_t)at->row;
        return;
    }
    if (!has_order(at)) {
        operator_reject(context, at->batch, at->row, ORDERS_FULL);
        return;
    }
    bool has_null = merged->has_null[i], is_fake = attribute->emit == ATTRIBUTE_FAKE_NEGATIVE;
    const struct version *answer = has_null ? NULL : attribute_first(attribute, NULL, slots[0], time);
    size_t offset = prepared->offsets[at->index];
    struct str row = {prepared->packed->data + offset, prepared->offsets[at->index + 1] - offset};
    struct row_order first = order_of(at, 0), second = order_of(at, 1);
    if (is_fake)
        give_row(context, attribute, early, row, &first, NULL);
    if (answer != NULL)
        give_row(context, attribute, early, row, &second, answer);
    context->counters.passed += is_fake || answer != NULL;
    context->counters.emitted += is_fake && answer != NULL;
    if (answer != NULL || (is_fake && has_null))
        return;
    bool has_room = !has_null && versions_have_room(slots[1], row.length, WAITING_BYTES_MAX);
    if (has_room || (is_fake && row.length <= VERSION_BYTES_MAX))
        wait_for_answer(context, attribute, slots[1], time, row);
    else if (is_fake)
        attribute->tally.values[ATTRIBUTE_ROWS_DROPPED]++;
    if (is_fake)
        return;
    context->counters.held++;
    attribute->tally.values[ATTRIBUTE_ROWS_LEFT_OUT] += !has_null && !has_room;
    time_queue_push(attribute->queue, MIN(deadline, TIME_MAX - 1), merged->keys[i], merged->hashes[i],
                    has_room ? (struct str){(const char *)&time, sizeof(time)} : row);
}

static void take_answer(struct operator_context *context, struct attribute *attribute,
                        struct keyed_slot *const *slots, const struct merged_rows *merged, uint32_t i,
                        struct early *early)
{
    const struct merge_row *at = &merged->rows[i];
    const struct prepared *prepared = merged->prepared[i];
    int64_t time = at->batch->event_time[at->row], from = time_add(time, -attribute->within_us);
    if (merged->has_null[i] || (prepared->errors->count > 0 && bit_get(prepared->errors->rows, at->row)))
        return;
    struct byte_buffer *encoded = &attribute->encoded;
    struct version head = {.time = time};
    buffer_clear(encoded);
    buffer_append(encoded, &head, sizeof(head));
    version_encode(&attribute->columns, prepared->values, at->row, encoded);
    head.bytes = (uint32_t)(encoded->length - sizeof(head));
    memcpy(encoded->data, &head, sizeof(head));
    if (head.bytes > VERSION_BYTES_MAX || !has_order(at)) {
        context->counters.in++;
        operator_reject(context, at->batch, at->row,
                        has_order(at) ? "the values that the step keeps of this row are longer than 2 MiB"
                                      : ORDERS_FULL);
        return;
    }
    const struct version *answer = (const struct version *)(const void *)encoded->data;
    if (!attribute_take_answer(context, attribute, slots[0], time, (struct str){answer->data, head.bytes}))
        return;
    const struct version *last = attribute_last(attribute, NULL, slots[1], from), *first = last;
    /* With fake_negative, rows past their deadline may still be stored. */
    from = MAX(from, time_add(context->watermark, -attribute->within_us));
    for (const struct version *row = last; row != NULL && row->time >= from; row = version_before(row))
        first = row;
    if (last == NULL || last->time < from)
        return;
    uint64_t count = 1;
    for (const struct version *row = first;; row = version_after(row), count++) {
        struct row_order order = order_of(at, count - 1);
        give_row(context, attribute, early, (struct str){row->data, row->bytes}, &order, answer);
        if (row == last)
            break;
    }
    versions_remove(attribute->waiting, slots[1], first, last);
    if (attribute->emit == ATTRIBUTE_FAKE_NEGATIVE) {
        context->counters.emitted += count;
        return;
    }
    context->counters.held -= count;
    context->counters.passed += count;
}

static void process_rows(struct operator_context *context, const struct merged_rows *merged)
{
    struct attribute *attribute = context->config;
    struct keyed_slot *answers[BATCH_ROWS], *waiting[BATCH_ROWS];
    keyed_begin(attribute->table, merged->keys, merged->hashes, merged->count, answers);
    keyed_begin(attribute->waiting, merged->keys, merged->hashes, merged->count, waiting);
    for (uint32_t i = 0; i < merged->count; i++) {
        struct keyed_slot *slots[] = {answers[i], waiting[i]};
        context->counters.null_keys += merged->has_null[i];
        if (merged->rows[i].input == 0)
            take_row(context, attribute, slots, merged, i, attribute->early);
        else
            take_answer(context, attribute, slots, merged, i, attribute->early);
    }
    keyed_end(attribute->waiting);
    keyed_end(attribute->table);
    give_on(context, attribute, attribute->early);
}

void attribute_early(struct operator_context *context, struct attribute *attribute, struct merge *merge)
{
    struct early *early = attribute->early = arena_new(context->scratch, struct early);
    early->end = &early->prepared;
    merged_run(context, merge, prepare, process_rows);
    for (struct prepared *prepared = early->prepared; prepared != NULL; prepared = prepared->next) {
        sides_emit_late(context, prepared->batch, prepared->late, prepared->late_count);
        if (prepared->packed != NULL)
            buffer_free(prepared->packed);
    }
    buffer_free(&early->bytes);
    attribute->early = NULL;
}

/* --- Deadlines --- */

/* Queue records whose deadline the watermark has passed. */
struct due {
    uint32_t count;
    struct key keys[BATCH_ROWS];
    uint64_t hashes[BATCH_ROWS];
    int64_t deadlines[BATCH_ROWS];
    size_t ends[BATCH_ROWS]; /* end of each record's bytes in `popped` */
};

/* The first waiting row of that event time; NULL: the row was emitted already. The search starts at the
 * oldest row, because deadlines come in the order of event times. */
static const struct version *waiting_at(const struct keyed_slot *slot, int64_t time)
{
    const struct version *row = versions_first(slot), *last = versions_last(slot);
    while (row != last && row->time < time)
        row = version_after(row);
    return row == NULL || row->time != time ? NULL : row;
}

static void give_due(struct operator_context *context, struct attribute *attribute, const struct due *due,
                     struct early *early)
{
    struct keyed_slot *answers[BATCH_ROWS], *waiting[BATCH_ROWS];
    keyed_look(attribute->table, due->keys, due->hashes, due->count, answers);
    keyed_begin(attribute->waiting, due->keys, due->hashes, due->count, waiting);
    for (uint32_t i = 0; i < due->count; i++) {
        size_t begin = i == 0 ? 0 : due->ends[i - 1];
        struct str data = {attribute->popped.data + begin, due->ends[i] - begin};
        struct row_order order =
            row_order_of_timer(&attribute->last_due, 1 + context->place, due->deadlines[i], due->hashes[i]);
        const struct version *row = NULL, *answer = NULL;
        int64_t time;
        memcpy(&time, data.data, sizeof(time));
        if (data.length == sizeof(time) && (row = waiting_at(waiting[i], time)) == NULL)
            continue;
        if (row == NULL) { /* the record is the row itself */
            struct held_head head = held_head_of(data);
            answer = head.has_null ? NULL : attribute_first(attribute, NULL, answers[i], head.event_time);
        }
        give_row(context, attribute, early, row == NULL ? data : (struct str){row->data, row->bytes}, &order,
                 answer);
        if (row != NULL)
            versions_remove(attribute->waiting, waiting[i], row, row);
        context->counters.held--;
        context->counters.passed++;
    }
    keyed_end(attribute->waiting);
    keyed_end(attribute->table);
    give_on(context, attribute, early);
}

void attribute_early_release(struct operator_context *context, struct attribute *attribute, int64_t watermark)
{
    struct due *due = arena_alloc(context->scratch, sizeof(*due));
    struct early *early = arena_new(context->scratch, struct early);
    struct time_record record;
    attribute->last_due = (struct row_order){0};
    for (bool has_more = true; has_more;) {
        due->count = 0;
        buffer_clear(&attribute->popped);
        while (due->count < BATCH_ROWS && attribute->popped.length < VERSIONS_BYTES_MAX &&
               (has_more = time_queue_pop(attribute->queue, watermark, &record))) {
            buffer_append(&attribute->popped, record.data.data, record.data.length);
            due->keys[due->count] = record.key;
            due->hashes[due->count] = record.hash;
            due->deadlines[due->count] = record.time_us;
            due->ends[due->count++] = attribute->popped.length;
        }
        if (due->count > 0)
            give_due(context, attribute, due, early);
    }
    buffer_free(&early->bytes);
}
