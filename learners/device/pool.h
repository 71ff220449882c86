/*
 * Rows in pinned host memory, the tier below a GPU's memory: heads and payloads lie apart, slot by slot, so
 * that a GPU reads and writes them in place. Bounded; an index finds rows by (table, key). Behind the slots
 * where rows live there are `stage` slots for rows on their way. One thread.
 */
#ifndef LEAT_LEARNERS_DEVICE_POOL_H
#define LEAT_LEARNERS_DEVICE_POOL_H

#include "kernels/gpu_table.h"

struct device_pool {
    const struct gpu_api *api;
    struct gpu *gpu;
    size_t floats;              /* floats of a payload */
    uint32_t room, stage;       /* slots for rows; behind them, slots for rows on their way */
    struct gpu_row_head *heads; /* [room + stage] key 0: free */
    float *payloads;            /* [room + stage][floats] */
    uint32_t *index;            /* open addressing: slot + 1; 0: empty */
    uint32_t index_mask;
    uint32_t *free_slots, free_count;
    /* [room] the row is on its way up, or a copy for an announced batch: it must not be sent down */
    bool *is_busy;
    uint32_t hand; /* slot where the search for rows to send down goes on */
};

/* bytes: pinned memory for rows; there is room for at least three times `stage` rows. False: error. */
bool device_pool_init(struct device_pool *pool, const struct gpu_api *api, struct gpu *gpu, size_t floats,
                      uint64_t bytes, uint32_t stage, struct gpu_error *error);
void device_pool_free(struct device_pool *pool);

/* The slot of a key's row, or BATCH_NONE. */
uint32_t device_pool_find(const struct device_pool *pool, uint32_t table, uint64_t key);
/* Takes a free slot, which is not in the index; BATCH_NONE: there is none. */
uint32_t device_pool_take(struct device_pool *pool);
/* Gives back a taken slot that is not in the index. */
void device_pool_give(struct device_pool *pool, uint32_t slot);
/* Adds a slot whose head and payload are set to the index; an older row of its key is dropped. */
void device_pool_add(struct device_pool *pool, uint32_t slot);
/* Removes a slot's row from the index and frees the slot. */
void device_pool_drop(struct device_pool *pool, uint32_t slot);

static inline uint32_t device_pool_rows(const struct device_pool *pool)
{
    return pool->room - pool->free_count;
}

static inline float *device_pool_payload(const struct device_pool *pool, uint32_t slot)
{
    return pool->payloads + (size_t)slot * pool->floats;
}

#endif
