/*
 * With `passes`: rows that do not teach wait until the passes are through, since they are to be predicted by what was
 * learned; then they are predicted in their order, and become part of their users' histories. They wait in memory, and are
 * part of checkpoints: a checkpoint writes those that came since the last one.
 */
#include "learners/sequential/internal_learner.h"

#include "core/batch_codec.h"
#include "core/buffer.h"
#include "core/mem.h"

#include <stdlib.h>

/* What comes before the batches of a checkpoint. */
struct held_head {
    uint64_t first; /* the number of the first batch that follows; batches count from 0 over the whole run */
    uint64_t count; /* batches that follow, each with its length in front */
    uint64_t taken; /* batches that have been predicted */
};

static void add_batch(struct sequential_held *h, struct batch *batch)
{
    if (h->count == h->room) {
        h->room = h->room == 0 ? 64 : 2 * h->room;
        h->batches = mem_realloc(h->batches, h->room * sizeof(*h->batches));
    }
    h->batches[h->count++] = (struct sequential_held_batch){batch, h->epoch};
}

/* Rows that a batch had in memory that it does not own any more: their order among the rows of the micro-batch in which
 * they come out is that in which they came. */
static void set_orders(struct operator_context *context, struct batch *batch, uint64_t first)
{
    struct row_order *orders = arena_alloc(&batch->arena, batch->rows * sizeof(*orders));
    for (uint32_t i = 0; i < batch->rows; i++)
        orders[i] = (struct row_order){.place = (uint16_t)(1 + context->place), .tie = first + i};
    batch->orders = orders;
    batch->origins = NULL;
    batch->partition = PARTITION_NONE;
    batch->order_time = NULL;
}

/* Copies rows to the end of the list: the last batch is filled up first, so that how many batches there are depends on the
 * rows alone, not on how they were cut into the batches that came. */
void sequential_hold(struct operator_context *context, struct sequential_config *c, struct batch *batch,
                     const uint16_t *rows, uint32_t count)
{
    struct sequential_held *h = &c->state->held;
    while (count > 0) {
        struct batch *sources[BATCH_ROWS], *last = h->count > 0 ? h->batches[h->count - 1].batch : NULL;
        uint16_t from[BATCH_ROWS];
        uint32_t n = 0;
        bool is_open = last != NULL && last->rows < BATCH_ROWS;
        for (; is_open && n < last->rows; n++)
            sources[n] = last, from[n] = (uint16_t)n;
        for (; n < BATCH_ROWS && count > 0; n++, count--)
            sources[n] = batch, from[n] = *rows++;
        if (is_open)
            h->count--;
        add_batch(h, batch_gather(context->pool, c->schema, sources, from, n));
        if (is_open)
            batch_release(last);
    }
}

bool sequential_has_held(const struct sequential_held *h)
{
    return h->taken < h->first + h->count;
}

/* The batch that comes next goes out of the list; the caller gets its reference. */
static struct batch *take(struct sequential_held *h)
{
    struct batch *batch = h->batches[h->taken++ - h->first].batch;
    h->batches[h->taken - 1 - h->first].batch = NULL;
    return batch;
}

struct batch *sequential_take_held(struct operator_context *context, struct sequential_held *h)
{
    uint64_t number = h->taken;
    struct batch *batch = take(h);
    set_orders(context, batch, number * BATCH_ROWS);
    return batch;
}

void sequential_held_free(struct sequential_held *h)
{
    while (sequential_has_held(h))
        batch_release(take(h));
    free(h->batches);
    *h = (struct sequential_held){0};
}

/* --- Checkpoints --- */

static void put_batch(const struct batch *batch, struct byte_buffer *out)
{
    bool all[SCHEMA_FIELDS_MAX];
    memset(all, 1, sizeof(all));
    uint64_t bytes = 0;
    size_t at = out->length;
    buffer_append(out, &bytes, sizeof(bytes));
    batch_write_columns(batch, all, out);
    bytes = out->length - at - sizeof(bytes);
    memcpy(out->data + at, &bytes, sizeof(bytes));
}

static void save(void *of, uint32_t since, struct byte_buffer *out)
{
    const struct sequential_state *s = of;
    const struct sequential_held *h = &s->held;
    struct held_head head = {.first = h->taken, .taken = h->taken};
    uint64_t end = h->first + h->count;
    while (head.first < end && since > 0 && h->batches[head.first - h->first].epoch <= since)
        head.first++;
    head.count = end - head.first;
    buffer_append(out, &head, sizeof(head));
    for (uint64_t i = head.first; i < end; i++)
        put_batch(h->batches[i - h->first].batch, out);
}

/* Takes what the head says of earlier batches: false: some are missing. The last one of an earlier checkpoint may come
 * again, with more rows. */
static bool begin_load(struct sequential_held *h, const struct held_head *head)
{
    uint64_t end = h->first + h->count;
    if (head->taken < h->taken || head->first < head->taken ||
        (head->first > end && head->first > head->taken) || head->first > UINT32_MAX)
        return false;
    while (sequential_has_held(h) && h->taken < head->taken)
        batch_release(take(h));
    h->taken = head->taken;
    for (; end > head->first && end > h->taken; end--)
        batch_release(h->batches[--h->count].batch);
    if (head->first > end) /* all that were there, and more, were predicted before this checkpoint */
        h->first = head->first, h->count = 0;
    return head->first == h->first + h->count;
}

static const char *load(void *of, const void *data, size_t left)
{
    struct sequential_state *s = of;
    struct sequential_held *h = &s->held;
    struct held_head head;
    const char *at = data;
    if (left < sizeof(head))
        return "the rows that wait for the passes are cut off";
    memcpy(&head, at, sizeof(head));
    at += sizeof(head), left -= sizeof(head);
    if (!begin_load(h, &head))
        return "rows that wait for the passes are missing";
    for (uint64_t i = 0; i < head.count; i++) {
        uint64_t bytes;
        if (left < sizeof(bytes))
            return "the rows that wait for the passes are cut off";
        memcpy(&bytes, at, sizeof(bytes));
        at += sizeof(bytes), left -= sizeof(bytes);
        if (bytes > left)
            return "the rows that wait for the passes are cut off";
        struct str text = {at, (size_t)bytes};
        struct batch *batch = sequential_held_is_older(text)
                                  ? sequential_read_held_older(h->pool, h->schema, text)
                                  : batch_read_columns(h->pool, h->schema, NULL, text);
        if (batch == NULL)
            return "the rows that wait for the passes cannot be read";
        add_batch(h, batch);
        at += bytes, left -= bytes;
    }
    return left > 0 ? "there is more behind the rows that wait for the passes" : NULL;
}

static void set_epoch(void *of, uint32_t epoch)
{
    struct sequential_state *s = of;
    s->held.epoch = epoch;
}

struct stored_part sequential_held_part(struct sequential_state *s)
{
    return (struct stored_part){
        .name = "held", .of = s, .save = save, .load = load, .is_journal = true, .set_epoch = set_epoch};
}
