/* Checkpoints and cuts of tables and parts: base and deltas, some abandoned, written by another thread while the owner
 * goes on, restore what was there at the barrier; a follower has what the trainer has at each cut. */
#include "stored_rig.h"

#include <pthread.h>

enum { EPOCHS = 30, DENSE = 3000 };

static void *write_deferred(void *argument)
{
    struct snapshot_writer *w = argument;
    return w->write(w->argument, w) ? argument : NULL;
}

/* A chain as it is on disk, with the store's rows of its last checkpoint, and what the world had then. */
struct disk {
    struct snapshot_writer chain[CHAIN_MAX];
    uint32_t count;
    struct fake_rows colds[TABLES];
    struct times times;
    struct byte_buffer expected;
};

static void disk_clear(struct disk *disk)
{
    for (uint32_t i = 0; i < disk->count; i++)
        writer_free(&disk->chain[i]);
    disk->count = 0;
}

static void disk_free(struct disk *disk)
{
    disk_clear(disk);
    for (int t = 0; t < TABLES; t++)
        fake_clear(&disk->colds[t]);
    buffer_free(&disk->expected);
}

/* A checkpoint, while which the world goes on; an abandoned one is written or not. */
static void checkpoint(struct world *w, struct disk *disk, bool is_base, bool is_published)
{
    struct snapshot_writer writer = {.is_base = is_base};
    struct byte_buffer expected = dump(w, false);
    struct times times = times_of(w);
    assert_true(stored_snapshot(&w->stored, &writer));
    if (is_published || draw(w, 2) == 0) {
        pthread_t thread;
        void *result;
        assert_int_equal(pthread_create(&thread, NULL, write_deferred, &writer), 0);
        for (int i = 0; i < 5; i++)
            live(w);
        stored_settle(&w->stored, false); /* the outcome is not known */
        assert_non_null(w->stored.snapshot);
        pthread_join(thread, &result);
        assert_non_null(result);
    }
    writer.done(writer.argument, is_published);
    if (!is_published) {
        buffer_free(&expected);
        writer_free(&writer);
        return;
    }
    if (is_base)
        disk_clear(disk);
    assert_true(disk->count + 1 < CHAIN_MAX);
    disk->chain[disk->count++] = writer;
    for (int t = 0; t < TABLES; t++)
        if (w->colds[t] != NULL)
            fake_copy(&disk->colds[t], &w->colds[t]->copy, w->colds[t]->row_bytes);
    disk->times = times;
    buffer_free(&disk->expected);
    disk->expected = expected;
}

static struct world *restored_from(const struct disk *disk, bool is_cold, size_t dense_bytes)
{
    struct world *w = world_new(is_cold, dense_bytes);
    for (int t = 0; t < TABLES; t++)
        if (is_cold && w->colds[t] != NULL)
            fake_copy(&w->colds[t]->now, &disk->colds[t], w->colds[t]->row_bytes);
    assert_true(restore(w, disk->chain, disk->count));
    set_times(w, &disk->times);
    assert_true(has_good_histories(w));
    return w;
}

static size_t bytes_of(const struct snapshot_writer *w)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < w->count; i++)
        bytes += w->records[i].length;
    return bytes;
}

static void run_checkpoints(bool is_cold, uint64_t seed)
{
    static struct disk disk;
    struct world *w = world_new(is_cold, DENSE);
    uint64_t cold_rows = 0;
    size_t base_bytes = 0, delta_bytes = SIZE_MAX;
    bool wants_base = true;
    disk = (struct disk){0};
    w->random += seed * 1000003;
    for (uint32_t epoch = 1; epoch <= EPOCHS; epoch++) {
        for (uint64_t i = draw(w, 6); i > 0; i--)
            live(w);
        bool is_base = wants_base || draw(w, 9) == 0, is_published = draw(w, 4) > 0;
        checkpoint(w, &disk, is_base, is_published);
        wants_base = wants_base && !is_published;
        if (!is_published)
            continue;
        size_t bytes = bytes_of(&disk.chain[disk.count - 1]);
        if (is_base)
            base_bytes = MAX(base_bytes, bytes);
        else
            delta_bytes = MIN(delta_bytes, bytes);
        struct world *again = restored_from(&disk, is_cold, DENSE);
        struct byte_buffer copy = {0};
        buffer_append(&copy, disk.expected.data, disk.expected.length);
        assert_dumps_equal(dump(again, false), copy);
        for (int t = 0; t < TABLES; t++)
            cold_rows += again->tables[t].cold != NULL ? again->tables[t].cold->rows : 0;
        if (draw(w, 4) > 0) {
            world_free(again);
            continue;
        }
        again->random = w->random, again->now = w->now, again->step = w->step;
        world_free(w); /* the old process ends here */
        w = again;
    }
    assert_true(base_bytes > 0 && delta_bytes < base_bytes);
    assert_int_equal(cold_rows > 0, is_cold);
    world_free(w);
    disk_free(&disk);
}

static void test_checkpoints(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        run_checkpoints(false, seed);
        run_checkpoints(true, seed);
    }
}

/* Rows that came back from the store and have not changed are in the store's copy alone, also where all rows are in memory
 * again, and more came. */
static void test_all_rows_came_back(void **state)
{
    (void)state;
    static struct disk disk;
    disk = (struct disk){0};
    struct world *w = world_new(true, DENSE);
    struct table *t = &w->tables[1];
    struct table_row *row;
    uint64_t key = 7, other = 8;
    uint32_t seen = w->now, step = 1;
    table_resolve(t, &key, &seen, &step, NULL, 1, &row);
    assert_true(table_evict(t, 1, 2, false));
    assert_int_equal(t->cold->rows, 1);
    checkpoint(w, &disk, true, true);
    world_free(w);
    w = restored_from(&disk, true, DENSE);
    t = &w->tables[1];
    assert_true(t->cold->rows >= 1);
    static uint64_t all[FAKE_KEYS - 1];
    for (uint64_t k = 1; k < FAKE_KEYS; k++)
        all[k - 1] = k;
    table_warm(t, all, FAKE_KEYS - 1, 3);
    assert_int_equal(t->cold->rows, 0);
    step = 4;
    table_resolve(t, &other, &seen, &step, NULL, 1, &row);
    struct snapshot_writer writer = {0};
    assert_true(stored_snapshot(&w->stored, &writer));
    assert_true(writer.write(writer.argument, &writer));
    writer.done(writer.argument, true);
    stored_settle(&w->stored, false);
    disk.chain[disk.count++] = writer;
    for (int i = 0; i < TABLES; i++)
        if (w->colds[i] != NULL)
            fake_copy(&disk.colds[i], &w->colds[i]->copy, w->colds[i]->row_bytes);
    struct byte_buffer expected = dump(w, false);
    world_free(w);
    w = restored_from(&disk, true, DENSE);
    table_warm(&w->tables[1], all, FAKE_KEYS - 1, 5);
    assert_non_null(table_find(&w->tables[1], key));
    assert_dumps_equal(dump(w, false), expected);
    world_free(w);
    disk_free(&disk);
}

/* A part of more than 8 MiB comes in pieces; of parts saved whole a delta's counts, not the base's. */
static void test_pieces(void **state)
{
    (void)state;
    static struct disk disk;
    static const size_t sizes[] = {8 << 20, (8 << 20) + 1, 20 << 20};
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        disk = (struct disk){0};
        struct world *w = world_new(false, sizes[i]);
        for (int round = 0; round < 2; round++) {
            w->dense.data[0]++;
            w->dense.data[sizes[i] - 1] ^= 0x55;
            checkpoint(w, &disk, round == 0, true);
            uint32_t pieces = 0;
            for (uint32_t r = 0; r < disk.chain[round].count; r++) {
                const struct byte_buffer *record = &disk.chain[round].records[r];
                assert_in_range(record->length, 8, (8 << 20) + 64);
                pieces += record->data[0] == 'Q';
            }
            assert_int_equal(pieces, 4 + (sizes[i] + (8 << 20) - 1) / (8 << 20));
        }
        struct world *again = restored_from(&disk, false, sizes[i]);
        struct byte_buffer copy = {0};
        buffer_append(&copy, disk.expected.data, disk.expected.length);
        assert_dumps_equal(dump(again, false), copy);
        world_free(again);
        world_free(w);
        disk_free(&disk);
    }
}

/* Where the disk fails at the barrier nothing has begun: the next checkpoint has it all. */
static void test_failed_disk(void **state)
{
    (void)state;
    static struct disk disk;
    disk = (struct disk){0};
    struct world *w = world_new(true, DENSE);
    uint32_t failed = 0, records = 1 + TABLES / 2 + 5; /* a head, totals of tables with stores, parts */
    live(w);
    checkpoint(w, &disk, true, true);
    for (uint32_t at = 1; at <= records; at++) {
        struct snapshot_writer writer = {.fails_at = at};
        live(w);
        uint32_t epoch = w->stored.epoch;
        if (!stored_snapshot(&w->stored, &writer)) {
            assert_int_equal(w->stored.epoch, epoch);
            assert_null(w->stored.snapshot);
            failed++;
        }
        writer_free(&writer);
    }
    assert_int_equal(failed, records);
    struct snapshot_writer writer = {.fails_at = records + 1};
    assert_true(stored_snapshot(&w->stored, &writer)); /* now its first rows fail, in the deferred job */
    assert_false(writer.write(writer.argument, &writer));
    writer.done(writer.argument, false);
    writer_free(&writer);
    checkpoint(w, &disk, false, true);
    struct world *again = restored_from(&disk, true, DENSE);
    struct byte_buffer copy = {0};
    buffer_append(&copy, disk.expected.data, disk.expected.length);
    assert_dumps_equal(dump(again, false), copy);
    world_free(again);
    world_free(w);
    disk_free(&disk);
}

/* --- Cuts --- */

/* Takes a cut once or twice; the follower then has what the trainer has. */
static void take(struct world *follower, struct world *w, struct byte_buffer *cut, bool is_exact)
{
    for (uint64_t times = 1 + draw(w, 2); times > 0; times--)
        assert_true(
            stored_take_cut(&follower->stored, (struct str){cut->data, cut->length}, TABLE_STEP_NONE));
    if (!is_exact)
        return;
    struct times times = times_of(w);
    set_times(follower, &times);
    assert_dumps_equal(dump(follower, true), dump(w, true));
}

/* Cuts from the first on are kept; a follower begins at the checkpoint that comes after `behind` cuts, and takes them all. */
static void run_cuts(bool is_cold, uint32_t behind, uint64_t seed)
{
    enum { CUTS = 14 };
    static struct disk disk;
    struct byte_buffer cuts[CUTS] = {{0}};
    struct world *w = world_new(is_cold, DENSE), *follower = NULL;
    disk = (struct disk){0};
    w->random += seed * 1000003;
    live(w);
    assert_true(stored_cut_note(&w->stored, true));
    for (uint32_t i = 0; i < CUTS; i++) {
        live(w);
        if (i == behind) {
            checkpoint(w, &disk, true, true);
            follower = restored_from(&disk, is_cold, DENSE);
        } else if (draw(w, 3) == 0) {
            struct snapshot_writer writer = {.is_base = true};
            assert_true(stored_snapshot(&w->stored, &writer));
            live(w);
            writer.done(writer.argument, draw(w, 2) == 0);
            writer_free(&writer);
        }
        size_t expected = stored_cut_bytes(&w->stored);
        assert_true(stored_cut(&w->stored, &cuts[i]));
        size_t heads = 16 * (w->count + 1), rows = cuts[i].length - w->stored.cut_parts_bytes - heads;
        assert_in_range(rows, 1, expected);
        if (follower == NULL)
            continue;
        for (uint32_t c = i == behind ? (uint32_t)draw(w, behind + 1) : i; c <= i; c++)
            take(follower, w, &cuts[c], c == i);
    }
    assert_true(cuts[CUTS - 1].length < disk.expected.length); /* what changed, not the whole state */
    assert_true(stored_cut_note(&w->stored, false));
    for (uint32_t i = 0; i < CUTS; i++)
        buffer_free(&cuts[i]);
    world_free(w);
    world_free(follower);
    disk_free(&disk);
}

static void test_cuts(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++)
        run_cuts(seed % 2 == 1, (uint32_t)(seed % 5), seed);
}

/* Where nothing changed, a delta and a cut have the parts that are saved whole, and heads. */
static void test_nothing_changed(void **state)
{
    (void)state;
    struct world *w = world_new(false, DENSE);
    struct byte_buffer cut = {0};
    for (int i = 0; i < 10; i++)
        live(w);
    assert_true(stored_cut_note(&w->stored, true));
    assert_true(stored_cut(&w->stored, &cut));
    assert_in_range(cut.length, DENSE / 2, DENSE / 2 + 100 * (w->count + 4));
    for (int i = 0; i < 2; i++) {
        struct snapshot_writer writer = {.is_base = i == 0};
        assert_true(stored_snapshot(&w->stored, &writer));
        assert_true(writer.write(writer.argument, &writer));
        writer.done(writer.argument, true);
        size_t bytes = bytes_of(&writer), whole = DENSE + w->evaluation.bytes;
        if (i == 0)
            assert_true(bytes > 2 * whole);
        else
            assert_in_range(bytes, whole, whole + 300);
        writer_free(&writer);
    }
    buffer_free(&cut);
    world_free(w);
}

/* Cuts end before epochs do, and leave the last ones to checkpoints. */
static void test_last_epoch(void **state)
{
    (void)state;
    struct world *w = world_new(false, DENSE);
    struct byte_buffer out = {0};
    assert_true(stored_cut_note(&w->stored, true));
    w->stored.epoch = UINT32_MAX - (1U << 24) - 1;
    assert_true(stored_cut(&w->stored, &out));
    size_t length = out.length;
    assert_false(stored_cut(&w->stored, &out));
    assert_int_equal(out.length, length);
    assert_false(stored_cut_note(&w->stored, true));
    struct snapshot_writer writer = {.is_base = true};
    assert_true(stored_snapshot(&w->stored, &writer));
    writer.done(writer.argument, true);
    writer_free(&writer);
    buffer_free(&out);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoints),
        cmocka_unit_test(test_all_rows_came_back),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_failed_disk),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_last_epoch),
        cmocka_unit_test(test_nothing_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
