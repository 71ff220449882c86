/* A device_table with a stream of batches that follows from the step alone, and functions that collect all
 * its rows: shared by test_device_table.c, test_device_steps.c and test_device_snapshot.c. */
#ifndef LEAT_TESTS_UNIT_LEARNERS_DEVICE_RIG_H
#define LEAT_TESTS_UNIT_LEARNERS_DEVICE_RIG_H

#include "learners/device/table.h"

#include "core/base.h"
#include "fake_cold.h"
#include "kernels/num.h"
#include "open_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TABLES = 2,
    D_MAX = 512,
    PLACES = 96,
    KEYS = 900, /* of each table */
    RING = 16,  /* more than the batches announced at a time */
    STEPS = 40,
};

static uint32_t dim = 64;                /* D_MAX where pieces of memory are wide (rig_open) */
static uint64_t memory_some = 400 << 10; /* bytes that MEMORY_SOME adds to the least */

static inline size_t row_floats(void)
{
    return 3 * (size_t)dim; /* a weight and Adam's two states for each dim */
}

static inline size_t stored_bytes(void)
{
    return 20 + row_floats() * sizeof(float);
}

/* --- Batches --- */

/* One batch on the device, as dedupe leaves it, and the gradients of its occurrences. */
struct trial_batch {
    struct gpu_batch batch;
    uint64_t *keys;
    uint32_t *tables, *starts, *order, *seen, *count;
    float *grads;
};

static inline void *device_memory(size_t bytes)
{
    struct gpu_error error;
    void *memory = api->alloc(gpu, bytes, &error);
    must(memory != NULL, &error, "device memory");
    return memory;
}

static inline void trial_init(struct trial_batch *b)
{
    b->keys = device_memory(PLACES * sizeof(*b->keys));
    b->tables = device_memory(PLACES * sizeof(*b->tables));
    b->starts = device_memory((PLACES + 1) * sizeof(*b->starts));
    b->order = device_memory(PLACES * sizeof(*b->order));
    b->seen = device_memory(PLACES * sizeof(*b->seen));
    b->count = device_memory(sizeof(*b->count));
    b->grads = device_memory(PLACES * dim * sizeof(*b->grads));
}

static inline void trial_free(struct trial_batch *b)
{
    void *const memory[] = {b->keys, b->tables, b->starts, b->order, b->seen, b->count, b->grads};
    for (size_t i = 0; i < ARRAY_COUNT(memory); i++)
        api->free(gpu, memory[i]);
}

static inline void put(void *to, const void *from, size_t bytes)
{
    api->copy(stream, to, from, bytes);
}

static uint32_t window = 45;    /* how far the keys move on in a step */
static uint32_t rows_start = 0; /* rows that a table has room for from the start */
static uint64_t rows_max = 0;   /* of each table; 0: no limit */
static uint64_t staging = 0;    /* snapshot_bytes; 0: as little as possible */

/* Fills the batch of a step: some keys often, most seldom, drawn from a window that moves on. Follows from
 * the step alone. */
static inline void trial_fill(struct trial_batch *b, uint32_t step, uint32_t epoch)
{
    uint64_t keys[PLACES] = {0};
    uint32_t tables[PLACES] = {0}, starts[PLACES + 1], order[PLACES], seen[PLACES], of[PLACES], m = 0, at = 0;
    static float grads[PLACES * D_MAX];
    struct gpu_error error;
    must(api->wait(stream, &error), &error, "the batch before in the same memory");
    for (uint32_t p = 0; p < PLACES; p++) {
        uint64_t r = num_mix(step * 1000003U + p);
        uint64_t key = r % 3 == 0 ? 1 + r / 3 % 20 : 1 + (r / 3 % 300 + step * window) % KEYS;
        uint32_t table = (uint32_t)(r >> 60) % TABLES, u = 0;
        while (u < m && (keys[u] != key || tables[u] != table))
            u++;
        m += u == m;
        keys[u] = key;
        tables[u] = table;
        of[p] = u;
        seen[p] = 1000 + step * 10 + p % 7;
    }
    for (uint32_t u = 0; u < m; u++) {
        starts[u] = at;
        for (uint32_t p = 0; p < PLACES; p++)
            if (of[p] == u)
                order[at++] = p;
    }
    starts[m] = at;
    for (size_t i = 0; i < PLACES * (size_t)dim; i++)
        grads[i] = (float)(int64_t)(num_mix(step * 77 + i) % 2001) * 0.001F - 1.0F;
    put(b->keys, keys, sizeof(keys));
    put(b->tables, tables, sizeof(tables));
    put(b->starts, starts, (m + 1) * sizeof(*starts));
    put(b->order, order, sizeof(order));
    put(b->seen, seen, sizeof(seen));
    put(b->count, &m, sizeof(m));
    put(b->grads, grads, PLACES * dim * sizeof(*grads));
    must(api->wait(stream, &error), &error, "a batch");
    b->batch = (struct gpu_batch){.count = b->count,
                                  .keys = b->keys,
                                  .tables = b->tables,
                                  .starts = b->starts,
                                  .order = b->order,
                                  .seen = b->seen,
                                  .n = PLACES,
                                  .step = step,
                                  .epoch = epoch};
}

/* --- A learner --- */

enum memory { MEMORY_ALL, MEMORY_SOME, MEMORY_LEAST };

struct rig {
    struct device_table *table;
    struct fake_cold *cold[TABLES];
    struct trial_batch ring[RING];
    void **rows;
    void *scratch;
    size_t scratch_bytes;
    uint32_t ahead, announced, expires_after;
    uint32_t expired_before;
};

static inline void rig_init(struct rig *w, enum memory memory, bool has_stores, uint32_t ahead)
{
    struct gpu_table_options tables[TABLES] = {
        {.seed = 5, .init_seed = 7, .init_bound = 0.1F},
        {.seed = 6, .init_seed = 8, .init_bound = 0.2F, .admit_after = 2, .sketch_bytes = 4096}};
    tables[0].rows_start = tables[1].rows_start = rows_start;
    tables[0].rows_max = tables[1].rows_max = rows_max;
    struct device_table_options o = {.api = api, .gpu = gpu, .stream = stream, .ahead = ahead};
    struct cold_store *stores[TABLES] = {NULL};
    struct gpu_tables_plan plan;
    struct gpu_error error;
    *w = (struct rig){.ahead = ahead, .announced = 1};
    o.tables = (struct gpu_tables_options){.tables = TABLES,
                                           .table = tables,
                                           .d = dim,
                                           .optimizer = OPT_ADAM,
                                           .batch_max = PLACES,
                                           .memory_bytes = (uint64_t)1 << 30};
    must(api->tables->plan(&o.tables, (uint64_t)1 << 30, &plan, &error), &error, "plan");
    o.snapshot_bytes = staging;
    o.pinned_bytes = 0; /* as few rows as possible in pinned memory: the others go on to the store */
    if (memory != MEMORY_ALL)
        o.tables.memory_bytes = plan.bytes_least + (memory == MEMORY_SOME ? memory_some : 0);
    for (int t = 0; t < TABLES && has_stores; t++) {
        w->cold[t] = fake_new(stored_bytes());
        stores[t] = &w->cold[t]->store;
    }
    o.stores = has_stores ? stores : NULL;
    w->table = device_table_new(&o, &error);
    must(w->table != NULL, &error, "device_table_new");
    for (int i = 0; i < RING; i++)
        trial_init(&w->ring[i]);
    w->rows = device_memory(PLACES * sizeof(void *));
    struct batch_update update = {.in = {.n = PLACES, .d = dim}, .kind = OPT_ADAM};
    api->kernels->update(&update, stream);
    w->scratch_bytes = update.scratch_bytes;
    w->scratch = device_memory(update.scratch_bytes + 1);
}

static inline void rig_free(struct rig *w)
{
    device_table_free(w->table);
    for (int i = 0; i < RING; i++)
        trial_free(&w->ring[i]);
    api->free(gpu, w->rows);
    api->free(gpu, w->scratch);
}

static inline uint32_t epoch_of(uint32_t step)
{
    return 1 + step / 10;
}

static inline void learn(struct rig *w, uint32_t step, uint32_t last)
{
    struct gpu_error error;
    for (; w->announced <= MIN(step + w->ahead, last); w->announced++) {
        struct trial_batch *b = &w->ring[w->announced % RING];
        trial_fill(b, w->announced, epoch_of(w->announced));
        must(device_table_ahead(w->table, &b->batch, &error), &error, "device_table_ahead");
    }
    struct trial_batch *b = &w->ring[step % RING];
    must(device_table_step(w->table, &b->batch, w->rows, &error), &error, "device_table_step");
    struct batch_update update = {.in = {.grads = b->grads,
                                         .order = b->order,
                                         .starts = b->starts,
                                         .count = b->count,
                                         .n = PLACES,
                                         .d = dim},
                                  .rows = w->rows,
                                  .kind = OPT_ADAM,
                                  .params = {.rate = 0.05F,
                                             .epsilon = 1e-8F,
                                             .decay = 1,
                                             .beta1 = 0.9F,
                                             .beta2 = 0.99F,
                                             .correction1 = 1.1F,
                                             .correction2 = 1.2F,
                                             .step_max = 1},
                                  .scratch = w->scratch,
                                  .scratch_bytes = w->scratch_bytes};
    api->kernels->update(&update, stream);
    if (w->expires_after > 0 && step > w->expires_after && step % 5 == 0) {
        w->expired_before = 1000 + (step - w->expires_after) * 10;
        for (uint32_t t = 0; t < TABLES; t++)
            device_table_expire(w->table, t, w->expired_before);
    }
}

static inline void learn_all(struct rig *w, uint32_t from, uint32_t last)
{
    for (uint32_t step = from; step <= last; step++)
        learn(w, step, last);
}

/* --- All rows --- */

enum { STORED_MAX = 20 + 3 * D_MAX * 4 };
struct image {
    bool has[TABLES][KEYS + 1];
    unsigned char rows[TABLES][KEYS + 1][STORED_MAX];
    uint64_t count;
};

static inline bool add_rows(void *argument, uint32_t table, const void *stored, size_t count)
{
    struct image *image = argument;
    for (size_t i = 0; i < count; i++) {
        uint64_t key;
        const unsigned char *row = (const unsigned char *)stored + i * stored_bytes();
        memcpy(&key, row, sizeof(key));
        leat_assert(key > 0 && key <= KEYS && table < TABLES);
        image->count += !image->has[table][key];
        image->has[table][key] = true;
        memcpy(image->rows[table][key], row, stored_bytes());
    }
    return true;
}

static inline void add_cold(struct image *image, const struct fake_rows *rows, uint32_t table,
                            uint32_t expired_before)
{
    for (uint64_t key = 1; key <= KEYS; key++) {
        uint32_t seen;
        if (rows->rows[key] == NULL || image->has[table][key])
            continue;
        memcpy(&seen, rows->rows[key] + 12, sizeof(seen));
        if (seen >= expired_before)
            add_rows(image, table, rows->rows[key], 1);
    }
}

static inline bool no_blocks(void *argument, uint32_t table, const void *blocks, size_t count)
{
    (void)argument, (void)table, (void)blocks, (void)count;
    return true;
}

/* Takes a whole snapshot. With the least staging, most of it is gathered while it is written. */
static inline void take_snapshot(struct rig *w, uint32_t since, uint32_t closing, struct image *image)
{
    struct gpu_error error;
    must(device_table_snapshot_begin(w->table, since, closing, &error), &error, "snapshot_begin");
    must(device_table_snapshot_write(w->table, add_rows, no_blocks, image, &error), &error, "snapshot_write");
}

/* All rows. The device's rows come first, because the store's rows of the same keys are older. */
static inline struct image *take_image(struct rig *w)
{
    struct image *image = calloc(1, sizeof(*image));
    take_snapshot(w, 0, 0, image);
    device_table_snapshot_end(w->table, false);
    for (uint32_t t = 0; t < TABLES; t++)
        if (w->cold[t] != NULL)
            add_cold(image, &w->cold[t]->now, t, w->expired_before);
    return image;
}

static inline bool is_same(const struct image *a, const struct image *b)
{
    bool is_same = true;
    for (int t = 0; t < TABLES; t++) {
        for (int key = 1; key <= KEYS && is_same; key++) {
            is_same = a->has[t][key] == b->has[t][key] &&
                      (!a->has[t][key] || memcmp(a->rows[t][key], b->rows[t][key], stored_bytes()) == 0);
            if (!is_same)
                printf("# key %d of table %d: %s\n", key, t,
                       a->has[t][key] != b->has[t][key] ? "only one has it" : "another row");
        }
    }
    is_same = is_same && a->count == b->count;
    if (a->count != b->count)
        printf("# %llu rows, %llu expected\n", (unsigned long long)b->count, (unsigned long long)a->count);
    return is_same;
}

/* Opens the device. Returns false if there is none, after printing why. */
static inline bool rig_open(void)
{
    bool is_open = device_open();
    /* A table has at least ten buckets: 15 pieces of the host's model with 64 floats, 3.75 pieces of a device
     * with 512. In the rest of the pieces and memory_some together, fewer rows fit than there are keys. */
    if (is_open && has_wide_pieces())
        dim = D_MAX, memory_some = 7 << 20;
    return is_open;
}

#endif
