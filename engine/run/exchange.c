/* Exchanges: packets of batches from the instances of one stage to those of another, one packet per number,
 * producer and consumer. See internal.h for who may touch them when. */
#include "run/internal.h"

#include <stdlib.h>

void batch_list_add(struct batch_list *list, struct batch *batch)
{
    batch->next = NULL;
    if (list->first == NULL)
        list->first = batch;
    else
        list->last->next = batch;
    list->last = batch;
    list->count++;
}

void batch_list_release(struct batch_list *list)
{
    for (struct batch *batch = list->first, *next; batch != NULL; batch = next) {
        next = batch->next;
        batch_release(batch);
    }
    *list = (struct batch_list){0};
}

void exchange_init(struct run *run)
{
    const struct plan *plan = run->plan;
    run->exchanges = arena_array(&run->arena, struct exchange, MAX(plan->exchanges_count, 1));
    for (uint32_t i = 0; i < plan->exchanges_count; i++) {
        struct exchange *x = &run->exchanges[i];
        x->plan = &plan->exchanges[i];
        x->producers = stage_pieces(run, x->plan->from_stage);
        x->consumers = run->stage_instances[x->plan->to_stage];
        x->packets = calloc((size_t)SLOTS * x->producers * x->consumers, sizeof(*x->packets));
        leat_assert(x->packets != NULL);
    }
}

void exchange_free(struct run *run)
{
    for (uint32_t i = 0; run->exchanges != NULL && i < run->plan->exchanges_count; i++) {
        struct exchange *x = &run->exchanges[i];
        for (size_t k = 0; x->packets != NULL && k < (size_t)SLOTS * x->producers * x->consumers; k++)
            batch_list_release(&x->packets[k]);
        free(x->packets);
    }
}

static struct batch_list *packet(struct exchange *x, const struct slot *slot, uint32_t producer,
                                 uint32_t consumer)
{
    return &x->packets[((slot->number & (SLOTS - 1)) * x->producers + producer) * x->consumers + consumer];
}

/* A view of the batch that belongs to one list alone: batches are linked through themselves. */
static struct batch *own_view(struct batch *batch)
{
    return batch_derive(batch, batch->schema);
}

static void push_by_key(struct exchange *x, struct stage_instance *from, uint32_t producer,
                        struct batch *batch)
{
    struct key keys[BATCH_ROWS];
    uint32_t lanes[BATCH_ROWS];
    uint32_t counts[256] = {0};
    leat_assert(x->consumers <= ARRAY_COUNT(counts));
    key_encode(batch, x->plan->key_columns, x->plan->key_count, keys, NULL);
    for (uint32_t i = 0; i < batch->selected; i++) {
        lanes[i] = key_lane(key_group(key_hash(keys[i])), x->consumers);
        counts[lanes[i]]++;
    }
    struct batch *views[256];
    uint16_t *sels[256];
    for (uint32_t lane = 0; lane < x->consumers; lane++) {
        if (counts[lane] == 0)
            continue;
        views[lane] = own_view(batch);
        sels[lane] = arena_alloc(&views[lane]->arena, counts[lane] * sizeof(uint16_t));
        views[lane]->sel = sels[lane];
        views[lane]->selected = counts[lane];
    }
    for (uint32_t i = 0; i < batch->selected; i++)
        *sels[lanes[i]]++ = (uint16_t)batch_row(batch, i);
    for (uint32_t lane = 0; lane < x->consumers; lane++)
        if (counts[lane] > 0)
            batch_list_add(packet(x, from->slot, producer, lane), views[lane]);
}

void exchange_push(struct exchange *x, struct stage_instance *from, struct batch *batch)
{
    uint32_t producer = from->index == 0 ? 0 : from->instance;
    leat_assert(producer < x->producers && batch->selected > 0);
    if (x->consumers == 1) {
        batch_list_add(packet(x, from->slot, producer, 0), own_view(batch));
        return;
    }
    if (x->plan->mode == EXCHANGE_HASH) {
        push_by_key(x, from, producer, batch);
        return;
    }
    uint64_t spread = from->index == 0 ? from->slot->number : from->instance;
    batch_list_add(packet(x, from->slot, producer, (uint32_t)(spread % x->consumers)), own_view(batch));
}

void exchange_take(struct node_instance *node, uint32_t input, struct batch_list *out)
{
    struct stage_instance *stage = node->stage;
    struct batch_list lists[512];
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->exchanges_count[input]; i++) {
        struct exchange *x = node->exchanges[input][i];
        for (uint32_t producer = 0; producer < x->producers; producer++) {
            struct batch_list *from = packet(x, stage->slot, producer, stage->instance);
            if (from->count == 0)
                continue;
            leat_assert(count < ARRAY_COUNT(lists));
            lists[count++] = *from;
            *from = (struct batch_list){0};
        }
    }
    merge_lists(stage->run->pool, lists, count, out);
}
