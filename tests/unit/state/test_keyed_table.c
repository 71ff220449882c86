/* The keyed table against a plain array of entries, with small budgets: evictions, expiry, checkpoints that
 * are published or abandoned while entries change, restores at other numbers of lanes. */
#include "state/stores.h"
#include "state/table.h"

#include "unit/support/random.h"
#include "unit/support/temporary.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "unit/state/moves.h"

enum {
    KEYS = 3000,
    VALUE_MAX = 300,
    LANES_MAX = 4,
    BATCH_MAX = 200,
    BUDGET = 40000,
    STATE_ID = 3,
    KIND = 'k'
};

struct model_entry {
    int64_t expire_us;
    uint32_t bytes;
    uint32_t seed; /* of the value's bytes */
};

struct model {
    struct model_entry entries[KEYS];
    int64_t watermark;
};

struct fixture {
    char path[TEMPORARY_PATH_BYTES];
    struct arena arena;
    struct diag_list diags;
    struct checkpoint_dir *dir;
    struct state_stores stores; /* one for each lane, or one for all */
    struct keyed_table *tables[LANES_MAX];
    uint32_t lanes;
    struct placement placement, placement_pending, placement_published;
    struct group_set groups[LANES_MAX];
    struct moves moves;
    uint64_t epoch;
    struct test_random random;
    struct model model, published, pending;
    struct checkpoint_writer *writer;
    uint64_t published_epoch;
    uint64_t evicted, loaded, copies;
};

static struct key key_of(uint32_t i)
{
    return (struct key){(uint64_t)i * 77 + 1, (uint64_t)1 << 56};
}

static void make_value(char *out, uint32_t bytes, uint32_t seed)
{
    for (uint32_t i = 0; i < bytes; i++)
        out[i] = (char)(seed * 31 + i * 7);
}

static bool is_alive(const struct model *model, uint32_t i)
{
    return model->entries[i].expire_us != TIME_MIN && model->entries[i].expire_us >= model->watermark;
}

/* Some lanes, with ranges of key groups or with groups here and there. */
static void choose_lanes(struct fixture *f)
{
    f->lanes = 1 + random_below(&f->random, LANES_MAX);
    if (random_chance(&f->random, 50))
        placement_ranges(&f->placement, f->lanes);
    else
        placement_scatter(&f->placement, f->lanes, random_below(&f->random, UINT32_MAX));
    for (uint32_t lane = 0; lane < f->lanes; lane++)
        placement_groups(&f->placement, lane, &f->groups[lane]);
}

/* A key group at a time, as in state/members.c. */
static bool give_base(void *table, const struct group_set *leaving, uint32_t round LEAT_UNUSED, int64_t *next,
                      struct byte_buffer *out)
{
    uint32_t group = group_set_next(leaving, *next == INT64_MIN ? 0 : (uint32_t)*next);
    *next = group == KEY_GROUPS ? INT64_MAX : (int64_t)group + 1;
    return group == KEY_GROUPS || keyed_table_give_base(table, group, out);
}

static bool take_base(void *table, const struct group_set *coming, struct str record)
{
    return keyed_table_take_base(table, coming, record);
}

static bool give(void *table, const struct group_set *leaving, struct byte_buffer *out)
{
    return keyed_table_give(table, leaving, out);
}

static void regroup(void *table)
{
    keyed_table_regroup(table);
}

static bool take(void *table, struct str record)
{
    return keyed_table_take(table, record);
}

static void between(void *test);
static const struct move_calls move_calls = {give_base, take_base, give, regroup, take, between};

/* At a start: nothing is announced. */
static void begin_moves(struct fixture *f)
{
    f->moves = (struct moves){.calls = &move_calls,
                              .test = f,
                              .lanes = f->lanes,
                              .placement = &f->placement,
                              .groups = f->groups,
                              .bases = f->moves.bases,
                              .changes = f->moves.changes};
    for (uint32_t lane = 0; lane < f->lanes; lane++)
        f->moves.objects[lane] = f->tables[lane];
}

static void start(struct fixture *f, struct checkpoint *parent)
{
    assert_true(checkpoint_start_generation(f->dir, parent, &f->diags));
    struct state_stores_options options = {.path = checkpoint_database_path(f->dir, 0, &f->arena),
                                           .count = random_chance(&f->random, 30) ? 1 : f->lanes,
                                           .memory_bytes = 12 << 20,
                                           .from = parent};
    options.are_shared = options.count == 1;
    assert_true(state_stores_open(&f->stores, &options, &f->diags));
    for (uint32_t lane = 0; lane < f->lanes; lane++) {
        struct state_store *own = state_stores_of(&f->stores, lane);
        f->tables[lane] =
            keyed_table_new(&(struct keyed_options){own, STATE_ID, KIND, BUDGET, &f->groups[lane]});
        for (uint32_t i = 0; i < f->stores.foreign_count; i++)
            assert_true(keyed_table_import(f->tables[lane], f->stores.foreign[i]));
    }
    state_stores_imported(&f->stores);
    begin_moves(f);
}

static void open_directory(struct fixture *f)
{
    f->dir = checkpoint_dir_open(
        &(struct checkpoint_dir_options){
            .path = f->path, .fingerprint = STR("job"), .profile = STR("cpu"), .keep = {.last = 2}},
        &f->diags);
    assert_non_null(f->dir);
}

static void stop(struct fixture *f)
{
    for (uint32_t lane = 0; lane < f->lanes; lane++) {
        struct keyed_stats stats;
        keyed_table_stats(f->tables[lane], &stats);
        f->evicted += stats.evicted;
        f->loaded += stats.loaded;
        f->copies += stats.saved_copies;
        keyed_table_free(f->tables[lane]);
    }
    assert_null(state_stores_error(&f->stores));
    state_stores_close(&f->stores);
    checkpoint_dir_close(f->dir);
}

static void setup(struct fixture *f, uint64_t seed)
{
    memset(f, 0, sizeof(*f));
    temporary_make(f->path);
    arena_init(&f->arena, 4096);
    diag_list_init(&f->diags, &f->arena);
    f->random.state = seed;
    choose_lanes(f);
    for (uint32_t i = 0; i < KEYS; i++)
        f->model.entries[i].expire_us = TIME_MIN;
    f->model.watermark = 0;
    f->published = f->model;
    open_directory(f);
    start(f, NULL);
}

static void teardown(struct fixture *f)
{
    stop(f);
    arena_free(&f->arena);
    temporary_remove(f->path);
}

/* One key between keyed_begin and keyed_end: its entry must be the model's; in some cases both
 * are then changed. */
static void touch(struct fixture *f, struct keyed_table *table, struct keyed_slot *slot, uint32_t i)
{
    struct model_entry *entry = &f->model.entries[i];
    uint32_t bytes;
    const char *value = keyed_read(slot, &bytes);
    char expected[VALUE_MAX];
    if (!is_alive(&f->model, i)) {
        assert_int_equal(bytes, 0);
        assert_true(slot->expire_us == TIME_MIN);
    } else {
        assert_true(slot->expire_us == entry->expire_us);
        assert_int_equal(bytes, entry->bytes);
        make_value(expected, bytes, entry->seed);
        assert_memory_equal(value == NULL ? "" : value, expected, bytes);
    }
    if (random_chance(&f->random, 40))
        return;
    if (!is_alive(&f->model, i))
        entry->expire_us = TIME_MIN;
    int64_t expire_us = f->model.watermark + (int64_t)random_below(&f->random, 20000);
    entry->expire_us = MAX(entry->expire_us, expire_us);
    entry->bytes = random_chance(&f->random, 10) ? 0 : random_below(&f->random, VALUE_MAX);
    entry->seed = (uint32_t)random_next(&f->random);
    char *out = keyed_write(table, slot, entry->bytes, entry->expire_us);
    if (entry->bytes > 0)
        make_value(out, entry->bytes, entry->seed);
    else
        assert_null(out);
}

static void run_batch(struct fixture *f)
{
    uint32_t count = 1 + random_below(&f->random, BATCH_MAX),
             span = random_chance(&f->random, 50) ? KEYS : 200;
    uint32_t ids[LANES_MAX][BATCH_MAX], counts[LANES_MAX] = {0};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = random_below(&f->random, span);
        uint32_t lane = placement_instance(&f->placement, key_hash(key_of(id)));
        ids[lane][counts[lane]++] = id;
    }
    for (uint32_t lane = 0; lane < f->lanes; lane++) {
        struct key keys[BATCH_MAX];
        uint64_t hashes[BATCH_MAX];
        struct keyed_slot *slots[BATCH_MAX];
        for (uint32_t i = 0; i < counts[lane]; i++) {
            keys[i] = key_of(ids[lane][i]);
            hashes[i] = key_hash(keys[i]);
        }
        keyed_begin(f->tables[lane], keys, hashes, counts[lane], slots);
        for (uint32_t i = 0; i < counts[lane]; i++)
            touch(f, f->tables[lane], slots[i], ids[lane][i]);
        keyed_end(f->tables[lane]);
    }
    f->model.watermark += random_below(&f->random, 60);
    for (uint32_t lane = 0; lane < f->lanes; lane++)
        keyed_set_watermark(f->tables[lane], f->model.watermark);
}

static void between(void *test)
{
    struct fixture *f = test;
    if (random_chance(&f->random, 5))
        run_batch(f);
}

static void barrier(struct fixture *f)
{
    bool is_base = checkpoint_wants_base(f->dir) || random_chance(&f->random, 10);
    f->writer = checkpoint_begin(f->dir, ++f->epoch, is_base, &f->diags);
    assert_non_null(f->writer);
    for (uint32_t lane = 0; lane < f->lanes; lane++) {
        char name[32];
        snprintf(name, sizeof(name), "op/%d/lane/%u", STATE_ID, lane);
        assert_true(keyed_table_snapshot(f->tables[lane], checkpoint_part(f->writer, name)));
    }
    f->pending = f->model;
    f->placement_pending = f->placement;
}

static void finish_checkpoint(struct fixture *f)
{
    if (random_chance(&f->random, 15)) {
        state_stores_release(&f->stores);
        checkpoint_abandon(f->writer);
    } else {
        assert_true(state_stores_checkpoint(&f->stores, f->writer, &f->diags));
        for (uint32_t i = random_below(&f->random, 4); i > 0; i--)
            run_batch(f);
        assert_true(checkpoint_write(f->writer, f->stores.count, &f->diags));
        if (random_chance(&f->random, 15)) {
            checkpoint_abandon(f->writer);
        } else {
            struct checkpoint_info info = {.sources = STR("s"), .notes = STR("n")};
            assert_true(checkpoint_publish(f->writer, &info, &f->diags));
            f->published = f->pending;
            f->placement_published = f->placement_pending;
            f->published_epoch = f->epoch;
        }
    }
    f->writer = NULL;
    uint32_t removed;
    if (random_chance(&f->random, 30))
        assert_true(checkpoint_prune(f->dir, NULL, &removed, &f->diags));
}

static void restore(struct fixture *f)
{
    stop(f);
    f->placement = f->placement_published;
    choose_lanes(f);
    open_directory(f);
    struct checkpoint *found;
    enum checkpoint_found outcome = checkpoint_find(f->dir, &found, &f->diags);
    assert_int_equal(f->diags.count, 0);
    assert_int_equal(outcome, f->published_epoch == 0 ? CHECKPOINT_NONE : CHECKPOINT_FOUND);
    if (found != NULL)
        assert_int_equal(checkpoint_info(found)->id.epoch, f->published_epoch);
    start(f, found);
    f->model = f->published;
    for (uint32_t lane = 0; found != NULL && lane < f->lanes; lane++) {
        char prefix[32];
        snprintf(prefix, sizeof(prefix), "op/%d/", STATE_ID);
        keyed_set_watermark(f->tables[lane], f->model.watermark);
        struct snapshot_reader *reader = checkpoint_reader(found, prefix, &f->groups[lane], &f->diags);
        uint32_t group;
        struct str record;
        while (snapshot_get(reader, &group, &record))
            assert_true(keyed_table_restore(f->tables[lane], reader, record, &f->diags));
        assert_true(checkpoint_reader_close(reader));
    }
    checkpoint_close(found);
}

static uint64_t scanned;
static void count_slot(void *argument, const struct keyed_slot *slot)
{
    struct fixture *f = argument;
    uint32_t i = (uint32_t)((slot->key.low - 1) / 77);
    uint32_t bytes;
    assert_true(i < KEYS && is_alive(&f->model, i));
    keyed_read(slot, &bytes);
    assert_int_equal(bytes, f->model.entries[i].bytes);
    scanned++;
}

static void check_scan(struct fixture *f)
{
    uint64_t alive = 0;
    scanned = 0;
    for (uint32_t i = 0; i < KEYS; i++)
        alive += is_alive(&f->model, i);
    for (uint32_t lane = 0; lane < f->lanes; lane++) {
        const struct group_set *groups = &f->groups[lane];
        for (uint32_t group = group_set_next(groups, 0); group < KEY_GROUPS;
             group = group_set_next(groups, group + 1))
            keyed_scan_group(f->tables[lane], group, count_slot, f);
    }
    assert_int_equal(scanned, alive);
}

static void test_random_life(void **state)
{
    (void)state;
    static struct fixture f;
    const char *seeds = getenv("LEAT_TEST_SEEDS");
    uint64_t last = seeds == NULL ? 6 : strtoull(seeds, NULL, 10), copies = 0, bases = 0, changes = 0;
    for (uint64_t seed = 1; seed <= last; seed++) {
        setup(&f, seed);
        for (int step = 0; step < 400; step++) {
            run_batch(&f);
            if (f.moves.is_announced && random_chance(&f.random, 20))
                moves_bases(&f.moves);
            uint32_t what = random_below(&f.random, 100);
            if (f.writer == NULL && what < 10) {
                barrier(&f);
                moves_at_barrier(&f.moves, &f.random);
            } else if (f.writer != NULL && what < 40) {
                finish_checkpoint(&f);
            } else if (f.writer == NULL && what < 14) {
                restore(&f);
            } else if (what == 50) {
                check_scan(&f);
            }
        }
        if (f.writer != NULL)
            finish_checkpoint(&f);
        check_scan(&f);
        teardown(&f);
        assert_true(f.evicted > 0 && f.loaded > 0);
        copies += f.copies;
        bases += f.moves.bases;
        changes += f.moves.changes;
    }
    assert_true(copies > 0 && bases > 0 && changes > 0);
}

/* The writer thread writes a checkpoint while the lane goes on; for ThreadSanitizer. */
static void *write_and_publish(void *argument)
{
    struct fixture *f = argument;
    struct checkpoint_info info = {0};
    if (!state_stores_checkpoint(&f->stores, f->writer, &f->diags) ||
        !checkpoint_write(f->writer, f->stores.count, &f->diags) ||
        !checkpoint_publish(f->writer, &info, &f->diags))
        return f;
    return NULL;
}

static void test_writer_thread(void **state)
{
    (void)state;
    static struct fixture f;
    setup(&f, 99);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 5; i++)
            run_batch(&f);
        barrier(&f);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, write_and_publish, &f), 0);
        for (int i = 0; i < 60; i++)
            run_batch(&f);
        void *failed;
        pthread_join(thread, &failed);
        assert_null(failed);
        f.writer = NULL;
        f.published = f.pending;
        f.placement_published = f.placement_pending;
        f.published_epoch = f.epoch;
        if (round % 5 == 4)
            restore(&f);
    }
    check_scan(&f);
    teardown(&f);
}

/* Far below its budget a table removes expired entries before it grows; the slots that keyed_begin gives are
 * those of the keys, though removing moves slots. */
static void test_expired_make_room(void **state)
{
    (void)state;
    enum { BATCHES = 400, ROWS = 500, ALIVE = 20 };
    static struct fixture f;
    setup(&f, 5);
    struct keyed_table *table =
        keyed_table_new(&(struct keyed_options){f.stores.items[0], STATE_ID, KIND + 1, 64 << 20, NULL});
    for (uint32_t batch = 0; batch < BATCHES; batch++) {
        struct key keys[ROWS];
        uint64_t hashes[ROWS];
        struct keyed_slot *slots[ROWS];
        for (uint32_t i = 0; i < ROWS; i++) {
            /* Every fourth key was in the batch before. */
            uint32_t id = batch > 0 && i % 4 == 0 ? (batch - 1) * ROWS + i + 1 : batch * ROWS + i;
            keys[i] = (struct key){id, 7};
            hashes[i] = key_hash(keys[i]);
        }
        keyed_begin(table, keys, hashes, ROWS, slots);
        for (uint32_t i = 0; i < ROWS; i++) {
            uint32_t bytes;
            assert_true(key_equal(slots[i]->key, keys[i]));
            const void *value = keyed_read(slots[i], &bytes);
            assert_int_equal(bytes, batch > 0 && i % 4 == 0 ? sizeof(keys[i]) : 0);
            if (bytes > 0)
                assert_memory_equal(value, &keys[i], bytes);
            memcpy(keyed_write(table, slots[i], sizeof(keys[i]), batch + ALIVE), &keys[i], sizeof(keys[i]));
        }
        keyed_end(table);
        keyed_set_watermark(table, batch);
    }
    struct keyed_stats stats;
    keyed_table_stats(table, &stats);
    assert_int_equal(stats.evicted, 0);
    assert_true(stats.resident < 2 * ALIVE * ROWS);
    keyed_table_free(table);
    teardown(&f);
}

/* Adds `count` entries, all in the key group `group`, to the table. */
static void fill_group(struct keyed_table *table, uint32_t group, uint32_t count)
{
    for (uint32_t id = 0; count > 0; id++) {
        struct key key = {id, 7};
        uint64_t hash = key_hash(key);
        struct keyed_slot *slot;
        if (key_group(hash) != group)
            continue;
        keyed_begin(table, &key, &hash, 1, &slot);
        memcpy(keyed_write(table, slot, sizeof(key), TIME_MAX), &key, sizeof(key));
        keyed_end(table);
        count--;
    }
}

/* A restore inserts entries in the order of their home slots. If the group grew meanwhile, they would
 * crowd at its beginning, and each insertion would probe past all others: so the group must have its size
 * from the start. */
static void test_restored_groups_do_not_grow(void **state)
{
    (void)state;
    enum { ENTRIES = 20000, GROUP = 17, REBUILDS_MAX = 4 };
    static struct fixture f;
    struct keyed_stats stats;
    struct checkpoint *found;
    setup(&f, 5);
    const struct keyed_options options = {f.stores.items[0], STATE_ID, KIND + 1, 64 << 20, NULL};
    struct keyed_table *table = keyed_table_new(&options);
    fill_group(table, GROUP, ENTRIES);
    f.writer = checkpoint_begin(f.dir, 1, true, &f.diags);
    assert_true(keyed_table_snapshot(table, checkpoint_part(f.writer, "op/3/lane/0")));
    assert_true(state_stores_checkpoint(&f.stores, f.writer, &f.diags));
    assert_true(checkpoint_write(f.writer, f.stores.count, &f.diags));
    struct checkpoint_info info = {.sources = STR("s"), .notes = STR("n")};
    assert_true(checkpoint_publish(f.writer, &info, &f.diags));
    keyed_table_free(table);
    table = keyed_table_new(&options);
    assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_FOUND);
    struct snapshot_reader *reader = checkpoint_reader(found, "op/3/", NULL, &f.diags);
    uint32_t group;
    struct str record;
    while (snapshot_get(reader, &group, &record))
        assert_true(keyed_table_restore(table, reader, record, &f.diags));
    assert_true(checkpoint_reader_close(reader));
    checkpoint_close(found);
    keyed_table_stats(table, &stats);
    assert_int_equal(stats.resident, ENTRIES);
    assert_in_range(table->rebuilds, 1, REBUILDS_MAX);
    keyed_table_free(table);
    teardown(&f);
}

/* Restores a record of one entry, whose value tells the epoch. */
static void restore_entry_of(struct keyed_table *table, uint32_t i, uint32_t epoch)
{
    enum { BYTES = 200 };
    struct diag_list diags;
    struct arena arena = {0};
    struct byte_buffer record = {0};
    const struct record_head head = {.kind = KIND + 1, .epoch = epoch};
    const struct record_entry entry = {.key = key_of(i), .expire_us = TIME_MAX, .bytes = BYTES};
    char value[BYTES];
    make_value(value, BYTES, epoch);
    buffer_append(&record, &head, sizeof(head));
    buffer_append(&record, &entry, sizeof(entry));
    buffer_append(&record, value, BYTES);
    diag_list_init(&diags, &arena);
    assert_true(keyed_table_restore(table, NULL, (struct str){record.data, record.length}, &diags));
    buffer_free(&record);
}

/* Parts of several workers are restored one behind the other, each from its base on. What is evicted while the base of a part is read
 * is older than the part's later links, whatever was read of the part before. */
static void test_restored_parts(void **state)
{
    (void)state;
    enum { ENTRIES = 1000, EPOCHS = 3 };
    static struct fixture f;
    struct keyed_stats stats;
    setup(&f, 6);
    const struct keyed_options options = {f.stores.items[0], STATE_ID, KIND + 1, BUDGET, NULL};
    struct keyed_table *table = keyed_table_new(&options);
    restore_entry_of(table, ENTRIES, EPOCHS);
    for (uint32_t epoch = 1; epoch < EPOCHS; epoch++)
        for (uint32_t i = 0; i < ENTRIES; i++)
            restore_entry_of(table, i, epoch);
    keyed_table_stats(table, &stats);
    assert_true(stats.evicted > 0);
    for (uint32_t i = 0; i <= ENTRIES; i++) {
        char expected[VALUE_MAX];
        struct key key = key_of(i);
        uint64_t hash = key_hash(key);
        struct keyed_slot *slot;
        uint32_t bytes;
        keyed_begin(table, &key, &hash, 1, &slot);
        const void *value = keyed_read(slot, &bytes);
        make_value(expected, bytes, i == ENTRIES ? EPOCHS : EPOCHS - 1);
        assert_true(bytes > 0);
        assert_memory_equal(value, expected, bytes);
        keyed_end(table);
    }
    keyed_table_free(table);
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_life), cmocka_unit_test(test_writer_thread),
        cmocka_unit_test(test_expired_make_room), cmocka_unit_test(test_restored_groups_do_not_grow),
        cmocka_unit_test(test_restored_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
