/* The pool's index: linear probing, at most half full; gaps are closed (Knuth, algorithm R). */
#include "learners/device/pool.h"

#include "core/base.h"
#include "core/mem.h"
#include "kernels/num.h"

#include <stdlib.h>

static uint32_t home_of(const struct device_pool *p, uint32_t table, uint64_t key)
{
    return (uint32_t)num_mix(key + ((uint64_t)table << 56)) & p->index_mask;
}

bool device_pool_init(struct device_pool *p, const struct gpu_api *api, struct gpu *gpu, size_t floats,
                      uint64_t bytes, uint32_t stage, struct gpu_error *error)
{
    size_t row = sizeof(struct gpu_row_head) + floats * sizeof(float);
    uint64_t room = MAX(bytes / row, 3 * (uint64_t)stage);
    *p = (struct device_pool){.api = api,
                              .gpu = gpu,
                              .floats = floats,
                              .room = (uint32_t)MIN(room, (uint64_t)UINT32_MAX / 4),
                              .stage = stage};
    size_t slots = (size_t)p->room + stage;
    p->heads = api->alloc_pinned(gpu, slots * sizeof(*p->heads), error);
    p->payloads =
        p->heads != NULL ? api->alloc_pinned(gpu, slots * floats * sizeof(*p->payloads), error) : NULL;
    if (p->payloads == NULL)
        return false;
    uint64_t size = 64;
    while (size < 2 * (uint64_t)p->room)
        size *= 2;
    p->index_mask = (uint32_t)(size - 1);
    p->index = mem_calloc(size, sizeof(*p->index));
    p->free_slots = mem_alloc(p->room * sizeof(*p->free_slots));
    p->is_busy = mem_calloc(p->room, sizeof(*p->is_busy));
    memset(p->heads, 0, slots * sizeof(*p->heads));
    p->free_count = p->room;
    for (uint32_t i = 0; i < p->room; i++)
        p->free_slots[i] = p->room - 1 - i;
    return true;
}

void device_pool_free(struct device_pool *p)
{
    if (p->api != NULL) {
        p->api->free_pinned(p->gpu, p->heads);
        p->api->free_pinned(p->gpu, p->payloads);
    }
    free(p->index);
    free(p->free_slots);
    free(p->is_busy);
    *p = (struct device_pool){0};
}

/* The place of a key in the index, or the empty place where its search ends. */
static uint32_t place_of(const struct device_pool *p, uint32_t table, uint64_t key)
{
    uint32_t at = home_of(p, table, key);
    for (;; at = (at + 1) & p->index_mask) {
        uint32_t slot = p->index[at] - 1;
        if (p->index[at] == 0 || (p->heads[slot].key == key && p->heads[slot].table == table))
            return at;
    }
}

uint32_t device_pool_find(const struct device_pool *p, uint32_t table, uint64_t key)
{
    return p->index[place_of(p, table, key)] - 1; /* BATCH_NONE if empty */
}

uint32_t device_pool_take(struct device_pool *p)
{
    return p->free_count > 0 ? p->free_slots[--p->free_count] : BATCH_NONE;
}

void device_pool_give(struct device_pool *p, uint32_t slot)
{
    p->heads[slot].key = 0;
    p->is_busy[slot] = false;
    p->free_slots[p->free_count++] = slot;
}

void device_pool_add(struct device_pool *p, uint32_t slot)
{
    const struct gpu_row_head *head = &p->heads[slot];
    uint32_t at = place_of(p, head->table, head->key), old = p->index[at] - 1;
    leat_assert(head->key != 0 && old != slot);
    p->index[at] = slot + 1;
    if (old != BATCH_NONE)
        device_pool_give(p, old);
}

void device_pool_drop(struct device_pool *p, uint32_t slot)
{
    uint32_t gap = place_of(p, p->heads[slot].table, p->heads[slot].key);
    leat_assert(p->index[gap] == slot + 1);
    p->index[gap] = 0;
    for (uint32_t at = (gap + 1) & p->index_mask; p->index[at] != 0; at = (at + 1) & p->index_mask) {
        const struct gpu_row_head *head = &p->heads[p->index[at] - 1];
        uint32_t home = home_of(p, head->table, head->key);
        if (((at - home) & p->index_mask) < ((at - gap) & p->index_mask))
            continue;
        p->index[gap] = p->index[at];
        p->index[at] = 0;
        gap = at;
    }
    device_pool_give(p, slot);
}
