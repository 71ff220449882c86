/*
 * Tables on a device (or the host's model) with tiers below: the same stream of batches with memory for
 * everything, for some and for the least gives the same rows, bit for bit; checkpoints over all tiers, into
 * a CPU's tables and back. A plain program that prints TAP lines.
 */
#include "learners/device_table.h"

#include "core/base.h"
#include "fake_cold.h"
#include "kernels/num.h"
#include "learners/device_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TABLES = 2,
    D = 64,
    FLOATS = 3 * D, /* Adam */
    PLACES = 96,
    KEYS = 900, /* a table */
    RING = 16,  /* above the batches announced */
    STEPS = 40,
};

static const struct gpu_api *api;
static struct gpu *gpu;
static struct gpu_stream *stream;
static int failures, reports;

static void report(bool is_good, const char *what)
{
    printf("%s - %s\n", is_good ? "ok" : "not ok", what);
    fflush(stdout);
    failures += !is_good;
    reports++;
}

static void must(bool is_good, const struct gpu_error *error, const char *what)
{
    if (is_good)
        return;
    printf("Bail out! %s: %s\n", what, error->text);
    exit(1);
}

/* --- batches ----------------------------------------------------------------------------------------------
 */

/* One batch on the device, as dedupe leaves it, and gradients of its places. */
struct trial_batch {
    struct gpu_batch batch;
    uint64_t *keys;
    uint32_t *tables, *starts, *order, *seen, *count;
    float *grads;
};

static void *device_memory(size_t bytes)
{
    struct gpu_error error;
    void *memory = api->alloc(gpu, bytes, &error);
    must(memory != NULL, &error, "device memory");
    return memory;
}

static void trial_init(struct trial_batch *b)
{
    b->keys = device_memory(PLACES * sizeof *b->keys);
    b->tables = device_memory(PLACES * sizeof *b->tables);
    b->starts = device_memory((PLACES + 1) * sizeof *b->starts);
    b->order = device_memory(PLACES * sizeof *b->order);
    b->seen = device_memory(PLACES * sizeof *b->seen);
    b->count = device_memory(sizeof *b->count);
    b->grads = device_memory(PLACES * D * sizeof *b->grads);
}

static void trial_free(struct trial_batch *b)
{
    void *const memory[] = {b->keys, b->tables, b->starts, b->order, b->seen, b->count, b->grads};
    for (size_t i = 0; i < ARRAY_COUNT(memory); i++)
        api->free(gpu, memory[i]);
}

static void put(void *to, const void *from, size_t bytes)
{
    api->copy(stream, to, from, bytes);
}

static uint32_t window = 45; /* how far the keys move on in a step */

/* The keys of a step: some often, most seldom, a window that moves on; a function of the step alone. */
static void trial_fill(struct trial_batch *b, uint32_t step, uint32_t epoch)
{
    uint64_t keys[PLACES] = {0};
    uint32_t tables[PLACES] = {0}, starts[PLACES + 1], order[PLACES], seen[PLACES], of[PLACES], m = 0, at = 0;
    static float grads[PLACES * D];
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
    for (size_t i = 0; i < ARRAY_COUNT(grads); i++)
        grads[i] = (float)(int64_t)(num_mix(step * 77 + i) % 2001) * 0.001F - 1.0F;
    put(b->keys, keys, sizeof keys);
    put(b->tables, tables, sizeof tables);
    put(b->starts, starts, (m + 1) * sizeof *starts);
    put(b->order, order, sizeof order);
    put(b->seen, seen, sizeof seen);
    put(b->count, &m, sizeof m);
    put(b->grads, grads, sizeof grads);
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

/* --- a learner --------------------------------------------------------------------------------------------
 */

enum memory { MEMORY_ALL, MEMORY_SOME, MEMORY_LEAST };

struct world {
    struct device_table *table;
    struct fake_cold *cold[TABLES];
    struct trial_batch ring[RING];
    void **rows;
    void *scratch;
    size_t scratch_bytes;
    uint32_t ahead, announced, expires_after;
    uint32_t expired_before;
};

static void world_init(struct world *w, enum memory memory, bool has_stores, uint32_t ahead)
{
    struct gpu_table_options tables[TABLES] = {
        {.seed = 5, .init_seed = 7, .init_bound = 0.1F},
        {.seed = 6, .init_seed = 8, .init_bound = 0.2F, .admit_after = 2, .sketch_bytes = 4096}};
    struct device_table_options o = {.api = api, .gpu = gpu, .stream = stream, .ahead = ahead};
    struct cold_store *stores[TABLES] = {NULL};
    struct gpu_tables_plan plan;
    struct gpu_error error;
    *w = (struct world){.ahead = ahead, .announced = 1};
    o.tables = (struct gpu_tables_options){.tables = TABLES,
                                           .table = tables,
                                           .d = D,
                                           .optimizer = OPT_ADAM,
                                           .batch_max = PLACES,
                                           .memory_bytes = (uint64_t)1 << 30};
    must(api->tables->plan(&o.tables, (uint64_t)1 << 30, &plan, &error), &error, "plan");
    o.pinned_bytes = 0; /* as few rows as can be: the others go on to the store */
    if (memory != MEMORY_ALL)
        o.tables.memory_bytes = plan.bytes_least + (memory == MEMORY_SOME ? 400 << 10 : 0);
    for (int t = 0; t < TABLES && has_stores; t++) {
        w->cold[t] = fake_new(offsetof(struct table_row, step) + FLOATS * sizeof(float));
        stores[t] = &w->cold[t]->store;
    }
    o.stores = has_stores ? stores : NULL;
    w->table = device_table_new(&o, &error);
    must(w->table != NULL, &error, "device_table_new");
    for (int i = 0; i < RING; i++)
        trial_init(&w->ring[i]);
    w->rows = device_memory(PLACES * sizeof(void *));
    struct batch_update update = {.in = {.n = PLACES, .d = D}, .kind = OPT_ADAM};
    api->kernels->update(&update, stream);
    w->scratch_bytes = update.scratch_bytes;
    w->scratch = device_memory(update.scratch_bytes + 1);
}

static void world_free(struct world *w)
{
    device_table_free(w->table);
    for (int i = 0; i < RING; i++)
        trial_free(&w->ring[i]);
    api->free(gpu, w->rows);
    api->free(gpu, w->scratch);
}

static uint32_t epoch_of(uint32_t step)
{
    return 1 + step / 10;
}

static void learn(struct world *w, uint32_t step, uint32_t last)
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
                                         .d = D},
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

static void learn_all(struct world *w, uint32_t from, uint32_t last)
{
    for (uint32_t step = from; step <= last; step++)
        learn(w, step, last);
}

/* --- all rows ---------------------------------------------------------------------------------------------
 */

enum { STORED = 20 + FLOATS * 4 };
struct image {
    bool has[TABLES][KEYS + 1];
    unsigned char rows[TABLES][KEYS + 1][STORED];
    uint64_t count;
};

static bool add_rows(void *argument, uint32_t table, const void *stored, size_t count)
{
    struct image *image = argument;
    for (size_t i = 0; i < count; i++) {
        uint64_t key;
        const unsigned char *row = (const unsigned char *)stored + i * STORED;
        memcpy(&key, row, sizeof key);
        leat_assert(key > 0 && key <= KEYS && table < TABLES);
        image->count += !image->has[table][key];
        image->has[table][key] = true;
        memcpy(image->rows[table][key], row, STORED);
    }
    return true;
}

static void add_cold(struct image *image, const struct fake_rows *rows, uint32_t table,
                     uint32_t expired_before)
{
    for (uint64_t key = 1; key <= KEYS; key++) {
        uint32_t seen;
        if (rows->rows[key] == NULL || image->has[table][key])
            continue;
        memcpy(&seen, rows->rows[key] + 12, sizeof seen);
        if (seen >= expired_before)
            add_rows(image, table, rows->rows[key], 1);
    }
}

/* Memory first: what the store has of the same keys is older. */
static struct image *take_image(struct world *w)
{
    struct image *image = calloc(1, sizeof *image);
    struct gpu_error error;
    must(device_table_snapshot(w->table, 0, 0, add_rows, image, &error), &error, "device_table_snapshot");
    device_table_snapshot_end(w->table, false);
    for (uint32_t t = 0; t < TABLES; t++)
        if (w->cold[t] != NULL)
            add_cold(image, &w->cold[t]->now, t, w->expired_before);
    return image;
}

static bool is_same(const struct image *a, const struct image *b)
{
    bool is_same = true;
    for (int t = 0; t < TABLES; t++) {
        for (int key = 1; key <= KEYS && is_same; key++) {
            is_same = a->has[t][key] == b->has[t][key] &&
                      (!a->has[t][key] || memcmp(a->rows[t][key], b->rows[t][key], STORED) == 0);
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

/* --- tests ------------------------------------------------------------------------------------------------
 */

static struct image *run(enum memory memory, bool has_stores, uint32_t ahead, uint32_t expires_after,
                         struct device_table_stats *stats)
{
    struct world w;
    world_init(&w, memory, has_stores, ahead);
    w.expires_after = expires_after;
    learn_all(&w, 1, STEPS);
    struct image *image = take_image(&w);
    *stats = device_table_stats(w.table);
    world_free(&w);
    return image;
}

static void test_tiers(uint32_t expires_after)
{
    static const struct {
        enum memory memory;
        bool has_stores;
        uint32_t ahead;
        uint64_t loaded; /* at least */
        const char *name;
    } cases[] = {{MEMORY_SOME, true, 3, 0, "memory for some, three batches ahead"},
                 {MEMORY_LEAST, true, 1, 1, "the least memory, one batch ahead"},
                 {MEMORY_LEAST, true, 7, 1, "the least memory, seven batches ahead"}};
    struct device_table_stats stats;
    struct image *all = run(MEMORY_ALL, false, 1, expires_after, &stats);
    report(stats.sent == 0 && stats.fetched == 0 && all->count > 300, "with memory for all nothing moves");
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct image *some = run(cases[i].memory, cases[i].has_stores, cases[i].ahead, expires_after, &stats);
        printf("# %s: sent %llu, spilled %llu, fetched %llu, loaded %llu, unspared %llu, rows %llu\n",
               cases[i].name, (unsigned long long)stats.sent, (unsigned long long)stats.spilled,
               (unsigned long long)stats.fetched, (unsigned long long)stats.loaded,
               (unsigned long long)stats.unspared, (unsigned long long)some->count);
        char what[128];
        (void)snprintf(what, sizeof what, "where rows lie changes nothing%s: %s",
                       expires_after > 0 ? ", with expiry" : "", cases[i].name);
        report(is_same(all, some) && stats.sent > 0 && stats.fetched > 0 && stats.loaded >= cases[i].loaded,
               what);
        free(some);
    }
    free(all);
}

/* Batches of the same few keys, most of which other announced batches want as well. */
LEAT_UNUSED static void test_many_ahead(void)
{
    struct device_table_stats stats;
    window = 0;
    struct image *all = run(MEMORY_ALL, false, 1, 0, &stats), *some = run(MEMORY_LEAST, true, 15, 0, &stats);
    window = 45;
    report(is_same(all, some) && stats.fetched > 0, "where rows lie changes nothing: fifteen batches ahead");
    free(all);
    free(some);
}

/* What a checkpoint writes: a base and the change since, with who was removed. */
struct saved {
    struct image base, change;
    struct table_keys removed[TABLES];
    struct fake_rows cold[TABLES];
};

static void save(struct world *w, uint32_t since, uint32_t closing, struct image *into,
                 struct table_keys *removed)
{
    struct gpu_error error;
    must(device_table_snapshot(w->table, since, closing, add_rows, into, &error), &error, "snapshot");
    for (uint32_t t = 0; t < TABLES && removed != NULL; t++) {
        const struct table_keys *keys = device_table_removed(w->table, t);
        removed[t].count = keys->count;
        removed[t].items = malloc((keys->count + 1) * sizeof *keys->items);
        if (keys->count > 0)
            memcpy(removed[t].items, keys->items, keys->count * sizeof *keys->items);
    }
    device_table_snapshot_end(w->table, true);
}

static void restore_image(struct world *w, const struct image *image)
{
    struct gpu_error error;
    for (uint32_t t = 0; t < TABLES; t++)
        for (int key = 1; key <= KEYS; key++)
            if (image->has[t][key])
                must(device_table_restore(w->table, t, image->rows[t][key], 1, &error), &error, "restore");
}

static void test_checkpoint(enum memory memory, const char *what)
{
    struct saved *s = calloc(1, sizeof *s);
    struct world w, back;
    struct gpu_error error;
    world_init(&w, memory, true, 2);
    w.expires_after = 16;
    learn_all(&w, 1, 19);
    save(&w, 0, epoch_of(19), &s->base, NULL);
    w.announced = 20;
    learn_all(&w, 20, 29);
    save(&w, epoch_of(19), epoch_of(29), &s->change, s->removed);
    struct image *now = take_image(&w);
    world_init(&back, memory, true, 2);
    back.expired_before = w.expired_before;
    for (uint32_t t = 0; t < TABLES; t++) {
        fake_copy(&back.cold[t]->now, &w.cold[t]->now, STORED);
        device_table_expire(back.table, t, w.expired_before);
    }
    restore_image(&back, &s->base);
    for (uint32_t t = 0; t < TABLES; t++)
        must(device_table_restore_remove(back.table, t, s->removed[t].items, s->removed[t].count, &error),
             &error, "restore_remove");
    restore_image(&back, &s->change);
    must(device_table_restored(back.table, &error), &error, "restored");
    struct image *then = take_image(&back);
    report(is_same(now, then) && s->change.count < s->base.count + 200, what);
    world_free(&w);
    world_free(&back);
    for (uint32_t t = 0; t < TABLES; t++)
        free(s->removed[t].items);
    free(s);
    free(now);
    free(then);
}

static void no_row(void *argument, uint64_t key, void *payload)
{
    (void)argument, (void)key, (void)payload;
}

static struct image *cpu_image;
static uint32_t cpu_table;

static bool add_cpu_rows(void *argument, const void *stored, size_t count)
{
    (void)argument;
    return add_rows(cpu_image, cpu_table, stored, count);
}

/* A device's rows into the CPU's tables, and from their snapshot into another device's. */
static void test_cpu(void)
{
    struct world w, back;
    struct gpu_error error;
    world_init(&w, MEMORY_ALL, false, 1);
    learn_all(&w, 1, 12);
    struct image *now = take_image(&w), *cpu = calloc(1, sizeof *cpu);
    for (uint32_t t = 0; t < TABLES; t++) {
        struct table table;
        const struct table_keys *removed;
        struct table_options o = {.payload_bytes = FLOATS * sizeof(float), .align = 64, .init = no_row};
        table_init(&table, &o);
        leat_assert(table_stored_bytes(&table) == device_table_stored_bytes(w.table));
        for (int key = 1; key <= KEYS; key++)
            if (now->has[t][key])
                table_restore_row(&table, now->rows[t][key]);
        table_restored(&table, 7);
        cpu_image = cpu;
        cpu_table = t;
        struct table_snapshot *snapshot = table_snapshot_begin(&table, 0, 9, &removed);
        leat_assert(table_snapshot_write(snapshot, add_cpu_rows, NULL));
        table_snapshot_end(&table, true);
        table_free(&table);
    }
    report(is_same(now, cpu), "rows of a device are rows of the CPU's tables");
    world_init(&back, MEMORY_LEAST, true, 1);
    restore_image(&back, cpu);
    must(device_table_restored(back.table, &error), &error, "restored");
    struct image *again = take_image(&back);
    report(is_same(now, again),
           "rows of the CPU's tables are rows of a device, with the least memory as well");
    world_free(&w);
    world_free(&back);
    free(now);
    free(cpu);
    free(again);
}

static void test_full(void)
{
    struct world w;
    struct gpu_error error = {.failure = GPU_OK};
    world_init(&w, MEMORY_LEAST, false, 1);
    bool is_good = true;
    for (uint32_t step = 1; step <= STEPS && is_good; step++) {
        trial_fill(&w.ring[0], step, 1);
        is_good = device_table_step(w.table, &w.ring[0].batch, w.rows, &error);
    }
    report(!is_good && error.failure == GPU_NO_MEMORY && strstr(error.text, "no cold store") != NULL,
           "no memory and no cold store: says so");
    world_free(&w);
}

static void test_pool(void)
{
    struct device_pool pool;
    struct gpu_error error;
    static uint32_t slot_of[4096];
    uint32_t rows = 0;
    bool is_good = device_pool_init(&pool, api, gpu, 1, 0, 64, &error);
    memset(slot_of, 0xff, sizeof slot_of);
    for (uint32_t i = 0; i < 20000 && is_good; i++) {
        uint32_t key = 1 + (uint32_t)(num_mix(i) % 4095), slot;
        if (slot_of[key] != BATCH_NONE && i % 3 != 0) {
            device_pool_drop(&pool, slot_of[key]);
            slot_of[key] = BATCH_NONE;
            rows--;
        } else if ((slot = device_pool_take(&pool)) != BATCH_NONE) {
            pool.heads[slot] = (struct gpu_row_head){.key = key, .table = key % 3};
            device_pool_add(&pool, slot);
            rows += slot_of[key] == BATCH_NONE;
            slot_of[key] = slot;
        } else {
            is_good = rows == pool.room;
            for (uint32_t k = 1; k < 4096; k++) {
                is_good &= device_pool_find(&pool, k % 3, k) == slot_of[k];
                if (slot_of[k] != BATCH_NONE && k % 2 == 0) {
                    device_pool_drop(&pool, slot_of[k]);
                    slot_of[k] = BATCH_NONE;
                    rows--;
                }
            }
        }
        is_good &= device_pool_rows(&pool) == rows && device_pool_find(&pool, key % 3, key) == slot_of[key];
    }
    report(is_good, "the index of pinned rows finds each, and no other");
    device_pool_free(&pool);
}

int main(void)
{
    struct gpu_error error;
    api = gpu_open_library(NULL, &error);
    gpu = api != NULL ? api->open(0, &error) : NULL;
    stream = gpu != NULL ? api->stream(gpu, &error) : NULL;
    if (stream == NULL) {
        printf("# %s\n", error.text);
        return 77;
    }
    test_pool();
    test_tiers(16);
#ifndef __SANITIZE_THREAD__ /* what races there are show in the stream before */
    test_tiers(0);
    test_many_ahead();
#endif
    test_checkpoint(MEMORY_ALL, "base, change and removals give the rows again");
    test_checkpoint(MEMORY_SOME, "likewise over all tiers");
    test_cpu();
    test_full();
    api->stream_free(gpu, stream);
    api->close(gpu);
    printf("1..%d\n", reports);
    return failures > 0;
}
