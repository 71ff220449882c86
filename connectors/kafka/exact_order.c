/* The order log in the progress topic of a sink (order_notes.h): what a start adds to it from the checkpoint directory, and what it
 * gives back to a directory that was restored from an object store. */
#include "connectors/kafka/exact.h"

#include <stdlib.h>

static void add_segment(void *argument, struct str segment)
{
    order_notes_add(argument, segment);
}

void exact_begin_order(struct exact *exact)
{
    const struct sink_context *context = exact->context;
    uint64_t since = 0;
    if (!context->notes_order)
        return;
    for (uint32_t i = 0; i < exact->count; i++)
        since = MAX(since, progress_orders_next(&exact->shards[i].sender.progress.orders));
    exact->order.restored_next = exact->restored_next;
    context->each_segment(context->engine, since, add_segment, &exact->order);
}

/* Segments of older lives first: where two have a micro-batch, the one that is given later counts. */
static int older_first(const void *a, const void *b)
{
    const struct progress_order *x = *(const struct progress_order *const *)a,
                                *y = *(const struct progress_order *const *)b;
    if (x->life != y->life)
        return x->life < y->life ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

bool exact_give_order(struct exact *exact)
{
    const struct sink_context *context = exact->context;
    uint32_t count = 0;
    bool is_good = true;
    for (uint32_t i = 0; i < exact->count; i++)
        count += exact->shards[i].sender.progress.orders.count;
    const struct progress_order **orders =
        arena_array(context->arena, const struct progress_order *, MAX(count, 1U));
    count = 0;
    for (uint32_t i = 0; i < exact->count; i++) {
        const struct progress_orders *noted = &exact->shards[i].sender.progress.orders;
        for (uint32_t k = 0; k < noted->count; k++)
            if (progress_order_is_whole(&noted->items[k]))
                orders[count++] = &noted->items[k];
    }
    qsort(orders, count, sizeof(*orders), older_first);
    for (uint32_t i = 0; i < count && is_good; i++)
        is_good =
            context->take_segment(context->engine, (struct str){orders[i]->data, (size_t)orders[i]->bytes});
    return is_good;
}
