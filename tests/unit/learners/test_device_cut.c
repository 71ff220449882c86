/* Cuts of a device's tables, with memory for all rows, for some, and for the least: the CPU's tables that take them have the
 * device's rows and counts, bit for bit, also while a checkpoint is on its way. A plain program that prints TAP lines. */
#include "device_rig.h"
#include "learners/tables/cut.h"

enum { FIRST = 9, EVERY = 10 }; /* cuts close the epochs of device_rig.h: after the steps 9, 19, 29 and 39 */

/* --- A device's counts --- */

struct counts {
    uint8_t of[TABLES][8192];
};

static bool no_rows(void *argument, uint32_t table, const void *stored, size_t count)
{
    (void)argument, (void)table, (void)stored, (void)count;
    return true;
}

static bool add_blocks(void *argument, uint32_t table, const void *items, size_t count)
{
    struct counts *counts = argument;
    const struct sketch_block *blocks = items;
    for (size_t i = 0; i < count; i++) {
        leat_assert((blocks[i].number + 1) * SKETCH_BLOCK <= sizeof(counts->of[table]));
        memcpy(counts->of[table] + blocks[i].number * SKETCH_BLOCK, blocks[i].counts, SKETCH_BLOCK);
    }
    return true;
}

static void take_counts(struct rig *w, struct counts *counts)
{
    struct gpu_error error;
    memset(counts, 0, sizeof(*counts));
    must(device_table_snapshot_begin(w->table, 0, UINT32_MAX, &error), &error, "begin");
    must(device_table_snapshot_write(w->table, no_rows, add_blocks, counts, &error), &error, "write");
    device_table_snapshot_end(w->table, false);
}

/* --- A follower --- */

static void no_row(void *argument, uint64_t key, void *payload)
{
    (void)argument, (void)key, (void)payload;
}

static void follower_init(struct table *tables, struct rig *w)
{
    struct image *image = take_image(w);
    struct counts counts;
    take_counts(w, &counts);
    for (uint32_t t = 0; t < TABLES; t++) {
        struct table_options o = {.payload_bytes = row_floats() * sizeof(float),
                                  .align = 64,
                                  .init = no_row,
                                  .admit_after = 1 + t,
                                  .sketch_bytes = 4096,
                                  .expire_after_us = 1};
        table_init(&tables[t], &o);
        for (int key = 1; key <= KEYS; key++)
            if (image->has[t][key])
                table_restore_row(&tables[t], image->rows[t][key]);
        for (uint64_t i = 0; tables[t].sketch.counts != NULL && i < sketch_blocks(&tables[t].sketch); i++) {
            struct sketch_block block = {.number = i};
            memcpy(block.counts, counts.of[t] + i * SKETCH_BLOCK, SKETCH_BLOCK);
            leat_assert(sketch_restore(&tables[t].sketch, &block));
        }
        table_restored(&tables[t], 1);
    }
    free(image);
}

static void follow(struct table *tables, struct rig *w, uint32_t closing)
{
    struct gpu_error error;
    must(device_table_cut(w->table, closing, &error), &error, "cut");
    for (uint32_t t = 0; t < TABLES; t++) {
        struct byte_buffer bytes = {0};
        device_table_cut_write(w->table, t, &tables[t], &bytes);
        leat_assert(table_take_cut(&tables[t], bytes.data, bytes.length, TABLE_STEP_NONE));
        tables[t].expired_before = w->expired_before;
        buffer_free(&bytes);
    }
}

/* Whether a stored row of the follower is the device's; a cut does not have the epoch. */
static bool is_row(const unsigned char *a, const unsigned char *b)
{
    size_t epoch = offsetof(struct table_row, epoch), payload = offsetof(struct table_row, step);
    return memcmp(a, b, epoch) == 0 && memcmp(a + payload, b + payload, stored_bytes() - payload) == 0;
}

/* Whether the follower has the device's rows, and beside them expired ones alone, and its counts. */
static bool is_followed(const struct table *tables, struct rig *w)
{
    static unsigned char stored[STORED_MAX];
    struct image *image = take_image(w);
    struct counts counts;
    bool is_same = image->count > 100;
    take_counts(w, &counts);
    for (uint32_t t = 0; t < TABLES; t++) {
        const struct sketch *sketch = &tables[t].sketch;
        is_same = is_same && (sketch->counts == NULL || memcmp(sketch->counts, counts.of[t],
                                                               sketch_blocks(sketch) * SKETCH_BLOCK) == 0);
        if (!is_same)
            printf("# counts of table %u differ\n", t);
        for (uint64_t key = 1; key <= KEYS && is_same; key++) {
            struct table_row *row = table_find(&tables[t], key);
            if (row != NULL)
                table_store_row(&tables[t], row, stored);
            is_same = image->has[t][key] ? row != NULL && is_row(stored, image->rows[t][key])
                                         : row == NULL || row->seen < w->expired_before;
            if (!is_same)
                printf("# key %llu of table %u: %s\n", (unsigned long long)key, t,
                       !image->has[t][key] ? "only the follower has it"
                       : row == NULL       ? "lost"
                                           : "another row");
        }
    }
    free(image);
    return is_same;
}

/* --- Tests --- */

struct trial {
    const char *name;
    enum memory memory;
    uint32_t expires_after;
    uint64_t rows_max;
};

static void test_cuts(const struct trial *trial)
{
    struct rig w;
    struct table follower[TABLES];
    struct gpu_error error;
    char what[160];
    bool is_good = true;
    rows_max = trial->rows_max;
    rig_init(&w, trial->memory, trial->memory != MEMORY_ALL, 2);
    rows_max = 0;
    w.expires_after = trial->expires_after;
    learn_all(&w, 1, FIRST);
    must(device_table_cut_note(w.table, true, epoch_of(FIRST), &error), &error, "note");
    follower_init(follower, &w);
    for (uint32_t last = FIRST + EVERY; last < STEPS; last += EVERY) {
        w.announced = last - EVERY + 1;
        learn_all(&w, last - EVERY + 1, last);
        follow(follower, &w, epoch_of(last));
        is_good = is_good && is_followed(follower, &w);
    }
    struct device_table_stats stats = device_table_stats(w.table);
    printf("# %s: sent %llu, spilled %llu, fetched %llu\n", trial->name, (unsigned long long)stats.sent,
           (unsigned long long)stats.spilled, (unsigned long long)stats.fetched);
    (void)snprintf(what, sizeof(what), "what takes the cuts has the rows: %s", trial->name);
    report(is_good && (trial->memory == MEMORY_ALL || stats.sent > 0) &&
               (trial->memory != MEMORY_LEAST || stats.spilled > 0),
           what);
    must(device_table_cut_note(w.table, false, 5, &error), &error, "note");
    for (uint32_t t = 0; t < TABLES; t++)
        table_free(&follower[t]);
    rig_free(&w);
}

/* A checkpoint begins between two cuts, and is written behind the second. */
static void test_with_checkpoint(void)
{
    struct rig w;
    struct table follower[TABLES];
    struct gpu_error error;
    struct image *written = calloc(1, sizeof(*written));
    staging = (uint64_t)800 << 10;
    rig_init(&w, MEMORY_ALL, false, 1);
    learn_all(&w, 1, FIRST);
    must(device_table_cut_note(w.table, true, epoch_of(FIRST), &error), &error, "note");
    follower_init(follower, &w);
    w.announced = FIRST + 1;
    learn_all(&w, FIRST + 1, 14);
    struct image *expected = take_image(&w);
    must(device_table_snapshot_begin(w.table, 0, epoch_of(14), &error), &error, "begin");
    leat_assert(!device_table_is_held(w.table));
    w.announced = 15;
    learn_all(&w, 15, FIRST + EVERY);
    follow(follower, &w, epoch_of(FIRST + EVERY));
    must(device_table_snapshot_write(w.table, add_rows, no_blocks, written, &error), &error, "write");
    device_table_snapshot_end(w.table, true);
    report(is_followed(follower, &w) && is_same(expected, written),
           "a cut and a checkpoint do not disturb each other");
    for (uint32_t t = 0; t < TABLES; t++)
        table_free(&follower[t]);
    rig_free(&w);
    free(expected);
    free(written);
    staging = 0;
}

int main(void)
{
    static const struct trial trials[] = {
        {"memory for all", MEMORY_ALL, 0, 0},
        {"memory for some", MEMORY_SOME, 0, 0},
        {"the least memory", MEMORY_LEAST, 0, 0},
        {"memory for all, with expiry", MEMORY_ALL, 8, 0},
        {"the least memory, with expiry", MEMORY_LEAST, 8, 0},
        {"bounded tables", MEMORY_ALL, 0, 128},
    };
    if (!rig_open())
        return 77;
    for (size_t i = 0; i < ARRAY_COUNT(trials); i++)
        test_cuts(&trials[i]);
    test_with_checkpoint();
    return device_close();
}
