/* Tables on a device (or the host's model) with tiers below: the same stream of batches with memory for all
 * rows, for some, and for the least gives the same rows, bit for bit; checkpoints over all tiers, into a
 * CPU's tables and back. A plain program that prints TAP lines. */
#include "device_rig.h"
#include "learners/device/pool.h"

/* --- Tests --- */

static struct image *run(enum memory memory, bool has_stores, uint32_t ahead, uint32_t expires_after,
                         struct device_table_stats *stats)
{
    struct rig w;
    rig_init(&w, memory, has_stores, ahead);
    w.expires_after = expires_after;
    learn_all(&w, 1, STEPS);
    struct image *image = take_image(&w);
    *stats = device_table_stats(w.table);
    rig_free(&w);
    return image;
}

static void test_tiers(uint32_t expires_after)
{
    static const struct {
        enum memory memory;
        bool has_stores;
        uint32_t ahead;
        uint64_t loaded; /* at least so many */
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
        (void)snprintf(what, sizeof(what), "where rows lie changes nothing%s: %s",
                       expires_after > 0 ? ", with expiry" : "", cases[i].name);
        report(is_same(all, some) && stats.sent > 0 && stats.fetched > 0 && stats.loaded >= cases[i].loaded,
               what);
        free(some);
    }
    free(all);
}

/* Batches of the same few keys, most of which other announced batches use as well. */
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

/* A checkpoint: a base, the change since, and the removed keys. */
struct saved {
    struct image base, change;
    struct table_keys removed[TABLES];
    struct fake_rows cold[TABLES];
};

static void save(struct rig *w, uint32_t since, uint32_t closing, struct image *into,
                 struct table_keys *removed)
{
    take_snapshot(w, since, closing, into);
    for (uint32_t t = 0; t < TABLES && removed != NULL; t++) {
        const struct table_keys *keys = device_table_removed(w->table, t);
        removed[t].count = keys->count;
        removed[t].items = malloc((keys->count + 1) * sizeof(*keys->items));
        if (keys->count > 0)
            memcpy(removed[t].items, keys->items, keys->count * sizeof(*keys->items));
    }
    device_table_snapshot_end(w->table, true);
}

static void restore_image(struct rig *w, const struct image *image)
{
    enum { PIECE = 96 };
    static unsigned char rows[PIECE * STORED_MAX];
    struct gpu_error error;
    for (uint32_t t = 0; t < TABLES; t++) {
        size_t count = 0;
        for (int key = 1; key <= KEYS; key++) {
            if (image->has[t][key])
                memcpy(rows + count++ * stored_bytes(), image->rows[t][key], stored_bytes());
            if (count == PIECE || key == KEYS) {
                must(device_table_restore(w->table, t, rows, count, &error), &error, "restore");
                count = 0;
            }
        }
    }
}

/* back_memory: of the world that is restored from the checkpoint. cut, last: the last steps of the base and
 * of the change. */
static void test_checkpoint(enum memory memory, enum memory back_memory, uint32_t cut, uint32_t last,
                            uint32_t expires_after, const char *what)
{
    struct saved *s = calloc(1, sizeof(*s));
    struct rig w, back;
    struct gpu_error error;
    rig_init(&w, memory, true, 2);
    w.expires_after = expires_after;
    learn_all(&w, 1, cut);
    save(&w, 0, epoch_of(cut), &s->base, NULL);
    w.announced = cut + 1;
    learn_all(&w, cut + 1, last);
    save(&w, epoch_of(cut), epoch_of(last), &s->change, s->removed);
    struct image *now = take_image(&w);
    rig_init(&back, back_memory, true, 2);
    back.expired_before = w.expired_before;
    for (uint32_t t = 0; t < TABLES; t++) {
        fake_copy(&back.cold[t]->now, &w.cold[t]->now, stored_bytes());
        device_table_expire(back.table, t, w.expired_before);
    }
    restore_image(&back, &s->base);
    uint64_t spilled = device_table_stats(back.table).spilled, gone = 0;
    for (uint32_t t = 0; t < TABLES; t++)
        for (size_t i = 0; i < s->removed[t].count; i++)
            gone += s->base.has[t][s->removed[t].items[i]] && now->has[t][s->removed[t].items[i]];
    printf("# base of %llu rows, of which the restore spilled %llu; %llu of them went to the store later\n",
           (unsigned long long)s->base.count, (unsigned long long)spilled, (unsigned long long)gone);
    for (uint32_t t = 0; t < TABLES; t++)
        must(device_table_restore_remove(back.table, t, s->removed[t].items, s->removed[t].count, &error),
             &error, "restore_remove");
    restore_image(&back, &s->change);
    must(device_table_restored(back.table, &error), &error, "restored");
    for (uint32_t t = 0; t < TABLES; t++)
        must(device_table_restored_cold(back.table, t, KEYS, &error), &error, "restored_cold");
    struct image *then = take_image(&back);
    report(is_same(now, then) && s->change.count < s->base.count + 200, what);
    rig_free(&w);
    rig_free(&back);
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

/* Restores a device's rows into the CPU's tables, and a snapshot of these into another device's. */
static void test_cpu(void)
{
    struct rig w, back;
    struct gpu_error error;
    rig_init(&w, MEMORY_ALL, false, 1);
    learn_all(&w, 1, 12);
    struct image *now = take_image(&w), *cpu = calloc(1, sizeof(*cpu));
    for (uint32_t t = 0; t < TABLES; t++) {
        struct table table;
        const struct table_keys *removed;
        struct table_options o = {.payload_bytes = row_floats() * sizeof(float), .align = 64, .init = no_row};
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
    rig_init(&back, MEMORY_LEAST, true, 1);
    restore_image(&back, cpu);
    must(device_table_restored(back.table, &error), &error, "restored");
    struct image *again = take_image(&back);
    report(is_same(now, again),
           "rows of the CPU's tables are rows of a device, with the least memory as well");
    rig_free(&w);
    rig_free(&back);
    free(now);
    free(cpu);
    free(again);
}

/* Counts keys that have a row again while the store still has an expired row of theirs. */
static uint32_t back_from_below(const struct rig *w, const struct image *image)
{
    uint32_t count = 0;
    for (uint32_t t = 0; t < TABLES; t++)
        for (int key = 1; key <= KEYS; key++) {
            const unsigned char *row = w->cold[t]->now.rows[key];
            uint32_t seen = UINT32_MAX;
            if (row != NULL)
                memcpy(&seen, row + 12, sizeof(seen));
            count += seen < w->expired_before && image->has[t][key];
        }
    return count;
}

/* Keys return twenty steps later, when all their rows have expired. *loaded: rows that were loaded
 * all the same. */
static struct image *run_expired(enum memory memory, uint32_t ahead, uint32_t *back, uint64_t *loaded)
{
    struct rig w;
    rig_init(&w, memory, memory != MEMORY_ALL, ahead);
    learn_all(&w, 1, 39);
    w.expired_before = 1000 + 40 * 10;
    uint64_t loaded_before = device_table_stats(w.table).loaded;
    for (uint32_t t = 0; t < TABLES; t++)
        device_table_expire(w.table, t, w.expired_before);
    learn_all(&w, 40, 52);
    *loaded = device_table_stats(w.table).loaded - loaded_before;
    struct fake_rows before[TABLES] = {{{NULL}}};
    for (uint32_t t = 0; t < TABLES && memory != MEMORY_ALL; t++)
        fake_copy(&before[t], &w.cold[t]->now, stored_bytes());
    struct image *image = calloc(1, sizeof(*image));
    *back = 0;
    take_snapshot(&w, 0, 0, image);
    device_table_snapshot_end(w.table, false);
    for (uint32_t t = 0; t < TABLES && memory != MEMORY_ALL; t++) {
        /* Undoes the barrier's removal of expired rows. */
        fake_copy(&w.cold[t]->now, &before[t], stored_bytes());
        fake_clear(&before[t]);
    }
    *back = memory == MEMORY_ALL ? 0 : back_from_below(&w, image);
    for (uint32_t t = 0; t < TABLES && memory != MEMORY_ALL; t++)
        add_cold(image, &w.cold[t]->now, t, w.expired_before);
    rig_free(&w);
    return image;
}

static void test_expired_below(void)
{
    uint32_t back[3];
    uint64_t loaded[3];
    struct image *all = run_expired(MEMORY_ALL, 1, &back[0], &loaded[0]);
    struct image *at_once = run_expired(MEMORY_LEAST, 1, &back[1], &loaded[1]);
    struct image *raised = run_expired(MEMORY_LEAST, 7, &back[2], &loaded[2]);
    printf("# %u and %u keys are back whose rows had expired in the store\n", back[1], back[2]);
    report(is_same(all, at_once) && is_same(all, raised) && back[1] > 10 && back[2] > 10 && loaded[1] == 0 &&
               loaded[2] == 0,
           "a row that has expired in the store never comes back");
    free(all);
    free(at_once);
    free(raised);
}

/* Makes a step. Returns how many rows went to the stores in it. */
static uint64_t puts_of(struct rig *w, uint32_t step)
{
    uint64_t before = w->cold[0]->puts + w->cold[1]->puts;
    learn(w, step, step);
    return w->cold[0]->puts + w->cold[1]->puts - before;
}

static void test_store_is_held(void)
{
    struct rig all, w;
    uint64_t held = 0, others = 0;
    rig_init(&all, MEMORY_ALL, false, 1);
    rig_init(&w, MEMORY_LEAST, true, 1);
    learn_all(&w, 1, 20);
    bool was_pressed = device_table_is_pressed(w.table);
    w.cold[0]->lets_wait = w.cold[1]->lets_wait = true;
    for (uint32_t step = 21; step <= STEPS; step++) {
        bool is_held = step % 2 == 0;
        w.cold[0]->is_held = w.cold[1]->is_held = is_held;
        uint64_t puts = puts_of(&w, step);
        *(is_held ? &held : &others) += puts;
    }
    learn_all(&all, 1, STEPS);
    w.cold[0]->is_held = true;
    bool is_pressed = device_table_is_pressed(w.table);
    w.cold[0]->is_held = w.cold[1]->is_held = false;
    struct image *expected = take_image(&all), *found = take_image(&w);
    printf("# %llu rows went to stores that were held, %llu to others\n", (unsigned long long)held,
           (unsigned long long)others);
    report(is_same(expected, found) && held > 0 && held < others && is_pressed && !was_pressed &&
               !device_table_is_pressed(w.table),
           "while a store is held, as few rows as can be go there, and its table says so");
    free(expected);
    free(found);
    rig_free(&all);
    rig_free(&w);
}

static void test_full(void)
{
    struct rig w;
    struct gpu_error error = {.failure = GPU_OK};
    rig_init(&w, MEMORY_LEAST, false, 1);
    bool is_good = true;
    for (uint32_t step = 1; step <= STEPS && is_good; step++) {
        trial_fill(&w.ring[0], step, 1);
        is_good = device_table_step(w.table, &w.ring[0].batch, w.rows, &error);
    }
    report(!is_good && error.failure == GPU_NO_MEMORY && strstr(error.text, "no cold store") != NULL,
           "no memory and no cold store: says so");
    rig_free(&w);
}

static void test_pool(void)
{
    struct device_pool pool;
    struct gpu_error error;
    static uint32_t slot_of[4096];
    uint32_t rows = 0;
    bool is_good = device_pool_init(&pool, api, gpu, 1, 0, 64, &error);
    memset(slot_of, 0xff, sizeof(slot_of));
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

#ifdef __SANITIZE_THREAD__ /* the other tests show the same races */
static const bool takes_all = false;
#else
static const bool takes_all = true;
#endif

int main(void)
{
    if (!rig_open())
        return 77;
    test_pool();
    test_tiers(16);
    if (takes_all) {
        test_tiers(0);
        test_many_ahead();
        test_checkpoint(MEMORY_ALL, MEMORY_ALL, 19, 29, 16, "base, change and removals give the rows again");
        test_expired_below();
        test_store_is_held();
    }
    test_checkpoint(MEMORY_SOME, MEMORY_SOME, 19, 29, 16,
                    "base, change and removals give the rows again, over all tiers");
    test_checkpoint(MEMORY_SOME, MEMORY_LEAST, 49, 59, 0,
                    "likewise where less fits than before: no older row stays in pinned memory");
    if (takes_all)
        test_checkpoint(MEMORY_SOME, MEMORY_LEAST, 49, 89, 0,
                        "likewise: what the store has is newer than the base's rows that go there");
    test_cpu();
    test_full();
    return device_close();
}
