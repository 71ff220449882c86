/*
 * Rows in pinned host memory, the tier below a GPU's: heads and payloads lie apart, slot by slot, so that a
 * GPU reads and writes them where they are. Bounded; an index finds them by (table, key). Behind the slots
 * that rows live in there are some for rows on their way. One thread.
 */
#ifndef LEARNERS_DEVICE_POOL_H
#define LEARNERS_DEVICE_POOL_H

#include "kernels/gpu_table.h"

struct device_pool {
    const struct gpu_api *api;
    struct gpu *gpu;
    size_t floats;              /* of a payload */
    uint32_t room, stage;       /* slots for rows; behind them, slots for rows on their way */
    struct gpu_row_head *heads; /* [room + stage] key 0: free */
    float *payloads;            /* [room + stage][floats] */
    uint32_t *index;            /* open addressing: slot + 1; 0: empty */
    uint32_t index_mask;
    uint32_t *free_slots, free_count;
    bool *is_busy; /* [room] on its way up, or a copy for a batch to come: nobody sends it down */
    uint32_t hand; /* where who looks for rows to send down goes on */
};

/* bytes: of pinned memory for rows; at least three times as many rows as may be on their way. false: error.
 */
bool device_pool_init(struct device_pool *pool, const struct gpu_api *api, struct gpu *gpu, size_t floats,
                      uint64_t bytes, uint32_t stage, struct gpu_error *error);
void device_pool_free(struct device_pool *pool);

/* The slot of a key's row, or BATCH_NONE. */
uint32_t device_pool_find(const struct device_pool *pool, uint32_t table, uint64_t key);
/* A free slot, not in the index yet; BATCH_NONE: there is none. */
uint32_t device_pool_take(struct device_pool *pool);
/* A taken slot that was not used. */
void device_pool_give(struct device_pool *pool, uint32_t slot);
/* The slot's head and payload are there: it is found from now on, in place of an older row of its key. */
void device_pool_add(struct device_pool *pool, uint32_t slot);
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
