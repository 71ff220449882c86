/* The table against a naive model of its logical rule; snapshots taken while the table goes on. */
#include "learners/tables/inline.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { KEYS = 3000, STEPS = 60000 };

static void init_row(void *argument, uint64_t key, void *payload)
{
    (void)argument;
    uint64_t *p = payload;
    p[0] = num_mix(key);
    p[1] = 0;
}

static bool is_inline; /* the table's layout in this round: rows in the slots, or apart */

static struct table_options options(void)
{
    return (struct table_options){
        .payload_bytes = 16, .align = 8, .is_inline = is_inline, .seed = 3, .init = init_row};
}

/* Skewed keys that follow from a counter. */
static uint64_t key_at(uint64_t i)
{
    uint64_t a = num_mix(i * 2) % KEYS, b = num_mix(i * 2 + 1) % KEYS;
    return 1 + (a * b) / KEYS;
}

struct naive_row {
    bool is_there;
    uint32_t count, seen, step;
    uint32_t occurrences;
};

static struct naive_row naive[KEYS + 1];

static bool naive_goes_before(uint64_t a, uint64_t b)
{
    if (naive[a].count != naive[b].count)
        return naive[a].count < naive[b].count;
    if (naive[a].seen != naive[b].seen)
        return naive[a].seen < naive[b].seen;
    return a < b;
}

/* The rule of table.h in its simplest form: searches all keys for a bucket's rows. */
static void naive_occurrence(const struct table *t, uint64_t key, uint32_t seen, uint32_t step,
                             uint32_t expired_before)
{
    struct naive_row *row = &naive[key];
    if (row->is_there && row->seen < expired_before)
        row->is_there = false;
    if (!row->is_there) {
        if (++row->occurrences < t->options.admit_after)
            return;
        uint64_t bucket = t->buckets ? (uint64_t)((__uint128_t)table_hash(t, key) * t->buckets >> 64) : 0;
        uint64_t victim = 0;
        uint32_t used = 0;
        for (uint64_t k = 1; k <= KEYS && t->buckets; k++) {
            if (!naive[k].is_there || (uint64_t)((__uint128_t)table_hash(t, k) * t->buckets >> 64) != bucket)
                continue;
            if (naive[k].seen < expired_before) {
                naive[k].is_there = false;
                continue;
            }
            used++;
            if (naive[k].step != step && (!victim || naive_goes_before(k, victim)))
                victim = k;
        }
        if (t->buckets && used >= table_bucket_rows(t, bucket))
            naive[victim].is_there = false;
        *row = (struct naive_row){.is_there = true, .occurrences = row->occurrences};
    }
    row->count++;
    row->seen = MAX(row->seen, seen);
    row->step = step;
}

static void compare(const struct table *t, uint32_t expired_before)
{
    for (uint64_t k = 1; k <= KEYS; k++) {
        const struct table_row *row = table_find(t, k);
        bool is_there = naive[k].is_there && naive[k].seen >= expired_before;
        assert_true((row != NULL) == is_there);
        if (row != NULL) {
            assert_int_equal(row->count, naive[k].count);
            assert_int_equal(row->seen, naive[k].seen);
            const uint64_t *payload = (const void *)((const unsigned char *)row + TABLE_ROW_HEADER);
            assert_true(row->key == k && payload[0] == num_mix(k));
            assert_true(payload[1] == row->count); /* drive adds 1 for each occurrence */
        }
    }
    size_t count;
    struct table_row **rows = table_sorted(t, &count);
    for (size_t i = 1; i < count; i++)
        assert_true(rows[i - 1]->key < rows[i]->key);
    free(rows);
}

static void drive(struct table *t, uint32_t steps, uint32_t call)
{
    memset(naive, 0, sizeof(naive));
    uint64_t keys[64];
    uint32_t seen[64], step[64], expired_before = 0;
    struct table_row *rows[64];
    for (uint32_t i = 0; i < steps; i += call) {
        for (uint32_t j = 0; j < call; j++) {
            keys[j] = key_at(i + j);
            seen[j] = 1000 + (i + j) / 10;
            step[j] = (i + j) / 3 + 1;
            naive_occurrence(t, keys[j], seen[j], step[j], expired_before);
        }
        /* With rows apart, the pointers of a whole call stay valid, also of rows evicted in it; inline, only
         * the last one's. */
        uint32_t piece = t->options.is_inline ? 1 : call;
        for (uint32_t j = 0; j < call; j++) {
            if (j % piece == 0)
                table_resolve(t, keys + j, seen + j, step + j, NULL, piece, rows + j);
            if (rows[j] != NULL)
                (*(uint64_t *)(void *)((unsigned char *)rows[j] + TABLE_ROW_HEADER + 8))++;
        }
        if (t->options.expire_after_us && i % 640 == 0) {
            int64_t watermark = (int64_t)(1000 + i / 10) * US_PER_SECOND;
            table_set_watermark(t, watermark, TABLE_STEP_NONE);
            expired_before = (uint32_t)((watermark - t->options.expire_after_us) / US_PER_SECOND) + 1;
        }
    }
    compare(t, expired_before);
}

static void test_plain(void **state)
{
    (void)state;
    struct table t;
    struct table_options o = options();
    table_init(&t, &o);
    drive(&t, STEPS, 64);
    assert_true(t.pages_count > 8);
    table_free(&t);
}

static void test_admission(void **state)
{
    (void)state;
    struct table t;
    struct table_options o = options();
    o.admit_after = 4;
    o.sketch_bytes = 1 << 20; /* wide enough to make no errors here */
    table_init(&t, &o);
    drive(&t, STEPS, 64);
    assert_true(t.stats.waiting > 0 && t.stats.rows < KEYS);
    assert_true(sketch_false_rate(&t.sketch) < 1e-6);
    table_free(&t);
}

static void test_rows_max(void **state)
{
    (void)state;
    for (uint32_t call = 1; call <= 64; call *= 8) {
        struct table t;
        struct table_options o = options();
        o.rows_max = 700;
        table_init(&t, &o);
        drive(&t, STEPS, call);
        assert_true(t.stats.evicted > 100 && t.stats.rows <= 700);
        table_free(&t);
    }
}

static void test_expiry(void **state)
{
    (void)state;
    for (int limited = 0; limited < 2; limited++) {
        struct table t;
        struct table_options o = options();
        o.expire_after_us = 300 * US_PER_SECOND;
        o.rows_max = limited ? 900 : 0;
        table_init(&t, &o);
        drive(&t, STEPS, 64);
        assert_true(t.stats.expired > 100);
        table_free(&t);
    }
}

static void test_sketch(void **state)
{
    (void)state;
    struct sketch s;
    sketch_init(&s, 4096, 1, 0);
    for (uint64_t i = 0; i < 400; i++)
        (void)sketch_add(&s, num_mix(i));
    for (uint64_t i = 0; i < 400; i++)
        assert_true(sketch_count(&s, num_mix(i)) >= 1);
    double rate = sketch_false_rate(&s);
    uint32_t wrong = 0;
    for (uint64_t i = 1000; i < 101000; i++)
        wrong += sketch_count(&s, num_mix(i)) > 0;
    assert_true(rate > 0.0 && rate < 0.1 && wrong < 100000 * rate * 1.5 + 50);
    sketch_halve(&s);
    assert_int_equal(sketch_count(&s, num_mix(7)), 0);
    sketch_free(&s);
}

/* Rows change after the barrier while another thread writes the snapshot: the copy must equal the table at
 * the barrier. */
struct copy {
    struct table *table;
    struct table_snapshot *snapshot;
};

static bool emit_rows(void *argument, const void *rows, size_t count)
{
    struct table *t = argument;
    for (size_t i = 0; i < count; i++)
        table_restore_row(t, (const unsigned char *)rows + i * table_stored_bytes(t));
    return true;
}

static void *write_copy(void *argument)
{
    const struct copy *c = argument;
    bool is_ok = table_snapshot_write(c->snapshot, emit_rows, c->table);
    return is_ok ? argument : NULL;
}

static uint64_t digest(const struct table *t)
{
    size_t count;
    uint64_t sum = 0;
    struct table_row **rows = table_sorted(t, &count);
    for (size_t i = 0; i < count; i++) {
        const uint64_t *p = (const void *)((const unsigned char *)rows[i] + TABLE_ROW_HEADER);
        sum = num_mix(sum ^ rows[i]->key) + num_mix(p[0] + p[1] * 3 + rows[i]->count * 5 + rows[i]->seen * 7);
    }
    free(rows);
    return sum;
}

static void step(struct table *t, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        uint64_t key = key_at(i);
        struct table_row *row;
        table_resolve(t, &key, &(uint32_t){i}, &(uint32_t){i + 1}, NULL, 1, &row);
        (*(uint64_t *)(void *)((unsigned char *)row + TABLE_ROW_HEADER + 8)) += i;
    }
}

static void run_snapshots(uint64_t rows_max)
{
    struct table t, copy;
    struct table_options o = options();
    o.rows_max = rows_max; /* not 0: rows are evicted and their memory is reused */
    table_init(&t, &o);
    o.rows_max = 0;
    table_init(&copy, &o);
    uint32_t at = 0, published = 0;
    for (uint32_t epoch = 1; epoch <= 12; epoch++) {
        step(&t, at, 3000);
        at += 3000;
        const struct table_keys *removed;
        uint64_t expected = digest(&t);
        struct copy c = {.table = &copy, .snapshot = table_snapshot_begin(&t, published, epoch, &removed)};
        bool is_published = epoch % 3 != 2; /* an abandoned snapshot leaves its changes to the next one */
        if (is_published) {
            for (size_t i = 0; i < removed->count; i++)
                table_restore_remove(&copy, removed->items[i]);
            pthread_t thread;
            void *result;
            assert_int_equal(pthread_create(&thread, NULL, write_copy, &c), 0);
            step(&t, at, 500);
            at += 500;
            pthread_join(thread, &result);
            assert_non_null(result);
            assert_true(digest(&copy) == expected);
            published = epoch;
        } else {
            step(&t, at, 100);
            at += 100;
        }
        table_snapshot_end(&t, is_published);
    }
    table_free(&t);
    table_free(&copy);
}

static void test_snapshots(void **state)
{
    (void)state;
    run_snapshots(1500);
    run_snapshots(0);
}

/* The same for the sketch's counts: written by another thread while occurrences are counted and the
 * sketch is halved. */
struct counts_copy {
    const struct sketch *sketch;
    struct sketch *copy;
    size_t blocks;
};

static bool emit_blocks(void *argument, const void *items, size_t count)
{
    struct counts_copy *c = argument;
    const struct sketch_block *blocks = items;
    for (size_t i = 0; i < count; i++)
        if (!sketch_restore(c->copy, &blocks[i]))
            return false;
    c->blocks += count;
    return true;
}

static void *write_counts(void *argument)
{
    struct counts_copy *c = argument;
    return sketch_snapshot_write(c->sketch, emit_blocks, c) ? argument : NULL;
}

/* The sketch of a table with shards is one sketch for each shard, without a trace of the other shards' keys. */
static void test_sketch_shards(void **state)
{
    (void)state;
    enum { SHARDS = 8, COUNTED = 20000 }; /* occurrences, two of each key */
    static const uint64_t buckets[] = {0, 64, 100, 12345};
    for (size_t b = 0; b < ARRAY_COUNT(buckets); b++) {
        struct sketch all, one[SHARDS];
        uint32_t shards[COUNTED], keys_of[SHARDS] = {0}, last = 0;
        sketch_init(&all, 4096 * SHARDS, SHARDS, buckets[b]);
        for (uint32_t s = 0; s < SHARDS; s++)
            sketch_init(&one[s], 4096, 1, 0);
        for (uint32_t i = 0; i < COUNTED; i++) {
            uint64_t hash = num_mix(i % (COUNTED / 2));
            shards[i] = shard_of(hash, SHARDS, buckets[b]);
            keys_of[shards[i]]++;
            assert_int_equal(sketch_add(&all, hash), sketch_add(&one[shards[i]], hash));
        }
        for (uint32_t s = 0; s < SHARDS; s++) {
            assert_in_range(keys_of[s], COUNTED / SHARDS * 3 / 4, COUNTED / SHARDS * 5 / 4);
            assert_memory_equal(all.counts + (size_t)s * 4096, one[s].counts, 4096);
            sketch_free(&one[s]);
        }
        for (uint64_t step = 0; step < 1000; step++) { /* a shard is a range of hashes */
            uint32_t shard = shard_of(step * (UINT64_MAX / 999), SHARDS, buckets[b]);
            assert_true(shard >= last && shard < SHARDS);
            last = shard;
        }
        assert_int_equal(last, SHARDS - 1);
        sketch_free(&all);
    }
}

static void test_sketch_snapshots(void **state)
{
    (void)state;
    enum { BYTES = 1 << 18 };
    struct sketch s, copy;
    sketch_init(&s, BYTES, 2, 0);
    sketch_init(&copy, BYTES, 2, 0);
    uint64_t at = 0;
    uint32_t published = 0;
    for (uint32_t epoch = 1; epoch <= 9; epoch++) {
        for (uint64_t end = at + 3; at < end; at++) /* few occurrences: most blocks stay unchanged */
            (void)sketch_add(&s, num_mix(at));
        unsigned char *expected = malloc(BYTES);
        memcpy(expected, s.counts, BYTES);
        sketch_snapshot_begin(&s, published, epoch);
        struct counts_copy c = {.sketch = &s, .copy = &copy};
        bool is_published = epoch % 3 != 2; /* an abandoned snapshot leaves its changes to the next one */
        if (is_published) {
            pthread_t thread;
            void *result;
            assert_int_equal(pthread_create(&thread, NULL, write_counts, &c), 0);
            if (epoch == 4)
                sketch_halve(&s);
            for (uint64_t end = at + 5; at < end; at++)
                (void)sketch_add(&s, num_mix(at));
            pthread_join(thread, &result);
            assert_non_null(result);
            assert_memory_equal(copy.counts, expected, BYTES);
            assert_in_range(c.blocks, 1, sketch_blocks(&s) - 1);
            published = epoch;
        }
        sketch_snapshot_end(&s);
        free(expected);
    }
    struct sketch_block beyond = {.number = sketch_blocks(&s)};
    assert_false(sketch_restore(&copy, &beyond));
    sketch_free(&s);
    sketch_free(&copy);
}

/* Pages split and rows move into gaps while a snapshot is slowly written: it has each row once, as
 * at the barrier. */
enum { GROWN = 1 << 20 };

struct slow_copy {
    struct table copy;
    struct table_snapshot *snapshot;
    atomic_uint chunks;
};

static bool emit_slowly(void *argument, const void *rows, size_t count)
{
    struct slow_copy *c = argument;
    for (size_t i = 0; i < count; i++) {
        uint64_t key;
        memcpy(&key, (const unsigned char *)rows + i * table_stored_bytes(&c->copy), sizeof(key));
        assert_null(table_find(&c->copy, key));
    }
    unsigned before = atomic_load(&c->chunks);
    while (before < GROWN && atomic_load(&c->chunks) == before)
        sched_yield(); /* the table's thread goes on */
    return emit_rows(&c->copy, rows, count);
}

static void *write_slowly(void *argument)
{
    struct slow_copy *c = argument;
    return table_snapshot_write(c->snapshot, emit_slowly, c) ? argument : NULL;
}

static void grow(struct table *t, uint32_t i)
{
    uint64_t key = num_mix(i) | 1;
    struct table_row *row;
    table_resolve(t, &key, &(uint32_t){i}, &(uint32_t){i + 1}, NULL, 1, &row);
    if (i % 3 == 0)
        table_remove(t, num_mix(i / 2) | 1, table_hash(t, num_mix(i / 2) | 1));
}

static void test_growth_in_snapshot(void **state)
{
    (void)state;
    struct table t;
    struct table_options o = options();
    table_init(&t, &o);
    struct slow_copy c = {.chunks = 0};
    table_init(&c.copy, &o);
    for (uint32_t i = 1; i <= 2000; i++) {
        uint64_t key = num_mix(i) | 1;
        struct table_row *row;
        table_resolve(&t, &key, &(uint32_t){i}, &(uint32_t){i}, NULL, 1, &row);
    }
    const struct table_keys *removed;
    uint64_t expected = digest(&t);
    uint32_t pages = t.pages_count;
    c.snapshot = table_snapshot_begin(&t, 0, 1, &removed);
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, write_slowly, &c), 0);
    for (uint32_t i = 2001; i <= 20000; i++) {
        if (i % 50 == 0)
            (void)atomic_fetch_add(&c.chunks, 1);
        grow(&t, i);
    }
    atomic_store(&c.chunks, GROWN);
    pthread_join(thread, &result);
    assert_non_null(result);
    assert_true(t.pages_count > 4 * pages);
    assert_true(digest(&c.copy) == expected);
    table_snapshot_end(&t, true);
    table_free(&t);
    table_free(&c.copy);
}

#define IN_BOTH_LAYOUTS(test_test)                                                                           \
    cmocka_unit_test_setup(test_test, apart), cmocka_unit_test_setup(test_test, in_slots)

static int apart(void **state)
{
    (void)state;
    is_inline = false;
    return 0;
}

static int in_slots(void **state)
{
    (void)state;
    is_inline = true;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sketch),
        IN_BOTH_LAYOUTS(test_plain),
        IN_BOTH_LAYOUTS(test_admission),
        IN_BOTH_LAYOUTS(test_rows_max),
        IN_BOTH_LAYOUTS(test_expiry),
        cmocka_unit_test(test_sketch_snapshots),
        cmocka_unit_test(test_sketch_shards),
        IN_BOTH_LAYOUTS(test_snapshots),
        IN_BOTH_LAYOUTS(test_growth_in_snapshot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
