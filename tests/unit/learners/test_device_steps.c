/* Steps of a device_table: how often they wait while no rows lie in lower tiers, and look-ups of rows for
 * prediction between steps, in any tier. A plain program that prints TAP lines. */
#include "device_rig.h"
#include "learners/tables/cold.h"

/* --- Waits --- */

/* The host's model's counter of waits; NULL on a device. */
static uint64_t (*model_waits(void))(void)
{
    void *symbol = host_model_symbol("cuda_model_waits");
    uint64_t (*waits)(void) = NULL;
    if (symbol != NULL)
        memcpy(&waits, &symbol, sizeof(waits));
    return waits;
}

/* waits_most: the most waits of all steps together. */
static void test_waits(bool has_stores, uint32_t ahead, uint32_t start, uint64_t waits_most)
{
    uint64_t (*waits)(void) = model_waits();
    uint64_t all = 0, most = 0;
    struct rig w;
    struct gpu_error error;
    char what[160];
    (void)snprintf(what, sizeof(what), "%s, %u ahead, room for %u rows: no step waits twice%s",
                   has_stores ? "cold stores that are empty" : "no cold stores", ahead, start,
                   waits_most < STEPS ? ", and most do not wait" : "");
    if (waits == NULL) {
        printf("ok - %s # SKIP not on the host's model\n", what);
        reports++;
        return;
    }
    rows_start = start;
    rig_init(&w, MEMORY_ALL, has_stores, ahead);
    rows_start = 0;
    for (uint32_t step = 1; step <= STEPS; step++) {
        uint64_t of_step = 0;
        for (; w.announced <= MIN(step + w.ahead, (uint32_t)STEPS); w.announced++) {
            struct trial_batch *b = &w.ring[w.announced % RING];
            trial_fill(b, w.announced, 1);
            uint64_t before = waits();
            must(device_table_ahead(w.table, &b->batch, &error), &error, "device_table_ahead");
            of_step += waits() - before;
        }
        uint64_t before = waits();
        must(device_table_step(w.table, &w.ring[step % RING].batch, w.rows, &error), &error, "step");
        of_step += waits() - before;
        all += of_step;
        most = MAX(most, of_step);
    }
    printf("# %u steps waited %llu times, one at most %llu times\n", (unsigned)STEPS, (unsigned long long)all,
           (unsigned long long)most);
    report(most <= 1 && all <= waits_most, what);
    rig_free(&w);
}

/* --- Looking up --- */

struct lookup {
    uint64_t keys[PLACES];
    uint32_t tables[PLACES];
    struct trial_batch on_device;
    void **rows;
    float *row; /* pinned */
};

static void lookup_init(struct lookup *l)
{
    struct gpu_error error;
    *l = (struct lookup){0};
    trial_init(&l->on_device);
    l->rows = api->alloc_pinned(gpu, PLACES * sizeof(void *), &error);
    l->row = l->rows != NULL ? api->alloc_pinned(gpu, row_floats() * sizeof(float), &error) : NULL;
    must(l->row != NULL, &error, "pinned memory");
}

static void lookup_free(struct lookup *l)
{
    trial_free(&l->on_device);
    api->free_pinned(gpu, l->rows);
    api->free_pinned(gpu, l->row);
}

/* Looks up distinct keys, some of which no table has, and the absent key 0. */
static void look_up(struct lookup *l, struct rig *w, uint32_t step)
{
    struct gpu_error error;
    uint32_t count = 80;
    for (uint32_t i = 0; i < count; i++) {
        l->keys[i] = i == 7 ? 0 : 1 + (num_mix(step * 999U) + i * 13) % (KEYS + 60);
        l->tables[i] = (uint32_t)(num_mix(step * 77U + i) % TABLES);
    }
    put(l->on_device.keys, l->keys, sizeof(l->keys));
    put(l->on_device.tables, l->tables, sizeof(l->tables));
    put(l->on_device.count, &count, sizeof(count));
    struct gpu_batch batch = {.count = l->on_device.count,
                              .keys = l->on_device.keys,
                              .tables = l->on_device.tables,
                              .n = PLACES,
                              .step = step + 1,
                              .epoch = 99};
    must(device_table_find(w->table, &batch, w->rows, &error), &error, "device_table_find");
    api->copy(stream, l->rows, w->rows, count * sizeof(void *));
    must(api->wait(stream, &error), &error, "rows");
}

static void no_row(void *argument, uint64_t key, void *payload)
{
    (void)argument, (void)key, (void)payload;
}

/* Makes the CPU's tables with half of the rows in cold stores. */
static void cpu_init(struct table *tables, const struct rig *all, struct image *image)
{
    for (uint32_t t = 0; t < TABLES; t++) {
        struct table_options o = {.payload_bytes = row_floats() * sizeof(float), .align = 64, .init = no_row};
        struct fake_cold *cold = fake_new(stored_bytes());
        table_init(&tables[t], &o);
        table_cold_init(&tables[t], &cold->store);
        tables[t].expired_before = all->expired_before;
        uint32_t step = 5;
        for (int key = 1; key <= KEYS; key++)
            if (image->has[t][key])
                table_restore_row(&tables[t], image->rows[t][key]);
        leat_assert(table_evict(&tables[t], tables[t].stats.rows / 2, step, false));
    }
}

static uint32_t wrong_answers(struct lookup *l, struct table *tables, uint32_t *found)
{
    struct gpu_error error;
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < 80; i++) {
        table_warm(&tables[l->tables[i]], &l->keys[i], 1, 9);
        struct table_row *row = l->keys[i] == 0 ? NULL : table_find(&tables[l->tables[i]], l->keys[i]);
        wrong += (row != NULL) != (l->rows[i] != NULL);
        if (row == NULL || l->rows[i] == NULL)
            continue;
        api->copy(stream, l->row, l->rows[i], row_floats() * sizeof(float));
        must(api->wait(stream, &error), &error, "a row");
        wrong += memcmp(l->row, table_payload(row), row_floats() * sizeof(float)) != 0;
        ++*found;
    }
    return wrong;
}

/* A stream with look-ups between its steps must leave the same rows as a stream without. */
static void test_find(enum memory memory, uint32_t ahead, const char *what)
{
    struct rig all, some;
    struct lookup l;
    uint32_t wrong = 0, found = 0;
    rig_init(&all, MEMORY_ALL, false, ahead);
    rig_init(&some, memory, memory != MEMORY_ALL, ahead);
    all.expires_after = some.expires_after = 16;
    lookup_init(&l);
    for (uint32_t step = 1; step <= STEPS; step++) {
        learn(&all, step, STEPS);
        learn(&some, step, STEPS);
        look_up(&l, &some, step);
        if (step % 8 != 0)
            continue;
        struct table tables[TABLES];
        struct image *image = take_image(&all);
        cpu_init(tables, &all, image);
        wrong += wrong_answers(&l, tables, &found);
        for (uint32_t t = 0; t < TABLES; t++)
            table_free(&tables[t]);
        free(image);
    }
    struct image *expected = take_image(&all), *got = take_image(&some);
    struct device_table_stats stats = device_table_stats(some.table);
    printf("# %u of %d found, %u wrong; fetched %llu, loaded %llu, unspared %llu\n", found, STEPS / 8 * 80,
           wrong, (unsigned long long)stats.fetched, (unsigned long long)stats.loaded,
           (unsigned long long)stats.unspared);
    report(wrong == 0 && found > 20 && found < STEPS / 8 * 80 && (memory == MEMORY_ALL || stats.loaded > 0),
           what);
    report(is_same(expected, got), "looking up leaves no trace");
    for (uint32_t t = 0; t < TABLES; t++) {
        struct gpu_table_stats a, b;
        struct gpu_error error;
        must(api->tables->stats(device_table_tables(all.table), stream, t, &a, &error), &error, "stats");
        must(api->tables->stats(device_table_tables(some.table), stream, t, &b, &error), &error, "stats");
        report(a.inserted == b.inserted && a.waiting == b.waiting && a.refused == b.refused,
               "nor does it count anything");
    }
    free(expected);
    free(got);
    lookup_free(&l);
    rig_free(&all);
    rig_free(&some);
}

int main(void)
{
    if (!rig_open())
        return 77;
    test_waits(false, 1, 0, STEPS);
    test_waits(true, 3, 0, STEPS);
    test_waits(true, 3, 2000, STEPS / 2);
    test_waits(false, 1, 8000, 2);
    test_find(MEMORY_ALL, 1, "rows are found, and what has none is not: all in the GPU's memory");
    test_find(MEMORY_LEAST, 3, "likewise over all tiers, as on the CPU");
    return device_close();
}
