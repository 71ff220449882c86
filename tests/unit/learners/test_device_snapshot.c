/* Snapshots of a device's tables while steps go on: pieces of the least size, with a step between each two of
 * them, written by the same thread or by a thread of its own. The snapshot must equal the tables at the
 * barrier, bit for bit, and neither the device's memory nor the host's may grow with the tables. A plain
 * program that prints TAP lines. */
#include "device_rig.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

enum { BEFORE = 24, CLOSING = 1 + BEFORE / 10 };

/* --- What is allocated --- */

static const struct gpu_api *real_api;
static struct gpu_api counting_api;
static atomic_ullong allocated; /* bytes in all */

static void *count_alloc(struct gpu *of, size_t bytes, struct gpu_error *error)
{
    atomic_fetch_add(&allocated, bytes);
    return real_api->alloc(of, bytes, error);
}

static void *count_alloc_pinned(struct gpu *of, size_t bytes, struct gpu_error *error)
{
    atomic_fetch_add(&allocated, bytes);
    return real_api->alloc_pinned(of, bytes, error);
}

static void count_allocations(void)
{
    real_api = api;
    counting_api = *api;
    counting_api.alloc = count_alloc;
    counting_api.alloc_pinned = count_alloc_pinned;
    api = &counting_api;
}

/* --- Steps between pieces --- */

struct writing {
    struct rig *w;
    struct image *image;
    uint32_t step, steps; /* the next step; how many steps may still be made between pieces */
    uint32_t held;        /* pieces that came while no step was allowed */
    struct gpu_error error;
    bool is_good;
};

static bool add_and_learn(void *argument, uint32_t table, const void *stored, size_t count)
{
    struct writing *writing = argument;
    add_rows(writing->image, table, stored, count);
    if (device_table_is_held(writing->w->table)) {
        writing->held++;
    } else if (writing->steps > 0) {
        writing->steps--;
        learn(writing->w, writing->step, writing->step);
        writing->step++;
    }
    return true;
}

static void *write_all(void *argument)
{
    struct writing *writing = argument;
    writing->is_good =
        device_table_snapshot_write(writing->w->table, add_and_learn, no_blocks, writing, &writing->error);
    return NULL;
}

struct trial {
    const char *name;
    enum memory memory;
    uint64_t staging; /* for rows of 64 floats */
    bool has_thread, is_held;
};

static void begin(struct rig *w, uint32_t since, struct writing *writing)
{
    *writing = (struct writing){.w = w, .image = calloc(1, sizeof(*writing->image))};
    must(device_table_snapshot_begin(w->table, since, CLOSING, &writing->error), &writing->error, "begin");
}

/* Learns, takes an image of all rows, and writes a snapshot while learning goes on; then the same
 * for changed rows. */
static void test_steps_between(const struct trial *trial)
{
    char what[160];
    struct rig w;
    struct writing writing;
    staging = trial->staging * dim / 64;
    rig_init(&w, trial->memory, trial->memory != MEMORY_ALL, 1);
    learn_all(&w, 1, BEFORE);
    struct image *expected = take_image(&w);
    unsigned long long before = atomic_load(&allocated);
    begin(&w, 0, &writing);
    bool was_held = device_table_is_held(w.table);
    writing.step = w.announced = BEFORE + 1;
    if (trial->has_thread) {
        pthread_t thread;
        pthread_create(&thread, NULL, write_all, &writing);
        while (device_table_is_held(w.table))
            sched_yield();
        learn_all(&w, BEFORE + 1, STEPS);
        pthread_join(thread, NULL);
    } else {
        writing.steps = STEPS - BEFORE;
        write_all(&writing);
    }
    must(writing.is_good, &writing.error, "write");
    unsigned long long taken = atomic_load(&allocated) - before;
    device_table_snapshot_end(w.table, true);
    for (uint32_t t = 0; t < TABLES; t++)
        if (w.cold[t] != NULL)
            add_cold(writing.image, &w.cold[t]->copy, t, w.expired_before);
    printf("# %s: %llu rows, %u times held, %u steps between\n", trial->name,
           (unsigned long long)expected->count, writing.held, writing.step - BEFORE - 1);
    (void)snprintf(what, sizeof(what), "a snapshot is of its barrier: %s", trial->name);
    report(is_same(expected, writing.image) && was_held == trial->is_held && taken == 0 &&
               (trial->has_thread || writing.step > BEFORE + 1),
           what);
    rig_free(&w);
    free(expected);
    free(writing.image);
    staging = 0;
}

/* --- Abandoned --- */

static bool refuse(void *argument, uint32_t table, const void *items, size_t count)
{
    (void)argument, (void)table, (void)items, (void)count;
    return false;
}

static void test_abandoned(void)
{
    struct rig w;
    struct writing writing;
    struct image *all = calloc(1, sizeof(*all));
    rig_init(&w, MEMORY_ALL, false, 1);
    learn_all(&w, 1, BEFORE);
    struct image *expected = take_image(&w);
    begin(&w, 0, &writing);
    bool was_held = device_table_is_held(w.table);
    bool is_good = !device_table_snapshot_write(w.table, refuse, no_blocks, NULL, &writing.error) &&
                   writing.error.failure == GPU_OK && !device_table_is_held(w.table);
    device_table_snapshot_end(w.table, false);
    free(writing.image);
    begin(&w, 0, &writing);
    device_table_snapshot_end(w.table, false);
    report(was_held && is_good && !device_table_is_held(w.table),
           "a snapshot that a disk refuses, or that nobody writes, holds nothing");
    take_snapshot(&w, 0, CLOSING, all);
    device_table_snapshot_end(w.table, true);
    report(is_same(expected, all), "the next one has it all");
    free(writing.image);
    free(expected);
    free(all);
    rig_free(&w);
}

/* --- Memory --- */

static size_t heap(void)
{
    struct mallinfo2 info = mallinfo2(); /* all zeros under sanitizers */
    return info.uordblks + info.hblkhd;
}

struct counting {
    size_t most;
    uint64_t rows, calls;
};

static bool count_rows(void *argument, uint32_t table, const void *stored, size_t count)
{
    struct counting *c = argument;
    (void)table, (void)stored;
    c->most = MAX(c->most, heap());
    c->rows += count;
    c->calls++;
    return true;
}

static void test_memory(void)
{
    enum { ROWS = 12000, AT_ONCE = 1000 };
    static unsigned char rows[AT_ONCE * STORED_MAX];
    struct rig w;
    struct gpu_error error;
    struct counting c = {0};
    rig_init(&w, MEMORY_ALL, false, 1);
    for (uint64_t key = 1; key <= ROWS; key += AT_ONCE) {
        for (uint64_t i = 0; i < AT_ONCE; i++) {
            struct table_row row = {.key = key + i, .count = 1, .seen = 1, .epoch = 1};
            memcpy(rows + i * stored_bytes(), &row, offsetof(struct table_row, step));
        }
        must(device_table_restore(w.table, 0, rows, AT_ONCE, &error), &error, "restore");
    }
    must(device_table_restored(w.table, &error), &error, "restored");
    unsigned long long before = atomic_load(&allocated);
    must(device_table_snapshot_begin(w.table, 0, 1, &error), &error, "begin");
    size_t heap_before = heap();
    must(device_table_snapshot_write(w.table, count_rows, no_blocks, &c, &error), &error, "write");
    device_table_snapshot_end(w.table, false);
    size_t grown = c.most - MIN(c.most, heap_before);
    printf(
        "# %llu rows of %zu bytes in %llu calls: the heap grew by %zu bytes, the device's memory by %llu\n",
        (unsigned long long)c.rows, stored_bytes(), (unsigned long long)c.calls, grown,
        (unsigned long long)atomic_load(&allocated) - before);
    report(c.rows == ROWS && grown < (size_t)ROWS * stored_bytes() / 4 && atomic_load(&allocated) == before,
           "what a snapshot takes of memory does not grow with its rows");
    rig_free(&w);
}

int main(void)
{
    static const struct trial trials[] = {
        {"all of it in staging, steps between pieces", MEMORY_ALL, 800 << 10, false, false},
        {"two pieces of staging, steps as soon as they may", MEMORY_ALL, 0, false, true},
        {"half of it in staging", MEMORY_ALL, 400 << 10, false, true},
        {"all tiers, two pieces of staging", MEMORY_SOME, 0, false, true},
        {"the least memory, two pieces of staging", MEMORY_LEAST, 0, false, true},
        {"all of it in staging, a writer beside", MEMORY_ALL, 800 << 10, true, false},
        {"two pieces of staging, a writer beside", MEMORY_SOME, 0, true, true},
    };
    if (!rig_open())
        return 77;
    count_allocations();
    for (size_t i = 0; i < ARRAY_COUNT(trials); i++)
        test_steps_between(&trials[i]);
    test_abandoned();
    test_memory();
    return device_close();
}
