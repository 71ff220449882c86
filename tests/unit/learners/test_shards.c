/*
 * Tables that give each other shards at random, against one table that keeps all: after each occurrence the
 * same row, always the same exports and counts of waiting keys, and the same state restored from checkpoints
 * that are written, published and abandoned meanwhile.
 */
#include "fake_cold.h"

#include "core/buffer.h"
#include "learners/tables/cold.h"
#include "learners/tables/inline.h"
#include "learners/tables/shard.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum {
    KEYS = 24000,
    COLD_KEYS = FAKE_KEYS - 1,
    PARTS = 3,
    TABLES = 1 + PARTS, /* the first has all shards */
    EXCHANGES = 1000,
    CALL_MAX = 64,
    LOOKS = 100000,
    PAYLOAD = 16,
    STORED = 20 + PAYLOAD,
};

struct variant {
    uint32_t admit_after;
    size_t sketch_bytes;
    int64_t expire_after_s;
    uint64_t rows_max;
    bool has_cold;
    uint32_t shards; /* that the rule gives */
};

static const struct variant variants[] = {
    {.admit_after = 3, .sketch_bytes = 256 << 10, .shards = 64},
    {.admit_after = 4, .sketch_bytes = 16 << 10, .expire_after_s = 900, .shards = 4},
    {.expire_after_s = 400, .shards = 64},
    {.rows_max = 8200, .shards = 8},
    {.rows_max = 4100, .admit_after = 2, .sketch_bytes = 32 << 10, .expire_after_s = 1500, .shards = 4},
    {.rows_max = 700, .admit_after = 2, .sketch_bytes = 8 << 10, .shards = 1},
    {.has_cold = true, .shards = 64},
    {.has_cold = true, .admit_after = 2, .sketch_bytes = 64 << 10, .expire_after_s = 900, .shards = 16},
};

/* All live rows: stored form by key, key 0 where there is none; `step` of rows in memory. */
struct all_rows {
    uint64_t count;
    unsigned char rows[KEYS + 1][STORED];
    uint32_t steps[KEYS + 1];
};

/* A table's part of a checkpoint, as its writer emits it. */
struct writing {
    struct table_snapshot *snapshot;
    const struct table_keys *removed;
    struct byte_buffer rows, counts, keys;
    pthread_t thread;
    bool is_open;
};

enum writer {
    WRITES_NEVER,
    WRITES_LATE,
    WRITES_ASIDE
}; /* aside: another thread writes from the barrier on */

struct world {
    const struct variant *variant;
    struct table tables[TABLES];
    uint32_t owners[TABLE_SHARDS_MAX];
    uint64_t at, random;
    uint64_t keys;
    /* the checkpoint in work, begun at barrier `epoch` */
    struct writing writing[TABLES];
    enum writer writer;
    bool is_open, is_decided, is_published, is_base;
    uint32_t epoch, published, expired_before;
    struct all_rows barrier;
    uint32_t owners_then[TABLE_SHARDS_MAX]; /* owners at the barrier */
    uint8_t *counts;
    /* restored from the table that has all, and from the others */
    struct table restored[2];
    struct fake_rows cold;
    uint32_t exchanges_open, exchanges_skewed, checkpoints, abandoned;
    uint64_t cold_given;
};

static struct all_rows found, other;

static uint64_t load_key(const void *stored)
{
    uint64_t key;
    memcpy(&key, stored, sizeof(key));
    return key;
}

static void init_row(void *argument, uint64_t key, void *payload)
{
    (void)argument;
    uint64_t *p = payload;
    p[0] = num_mix(key);
    p[1] = 0;
}

static uint64_t draw(struct world *w, uint64_t below)
{
    return num_mix(w->random++) % below;
}

static uint64_t draw_key(struct world *w)
{
    return 1 + draw(w, w->keys) * draw(w, w->keys) / w->keys;
}

static uint32_t shard_at(const struct world *w, uint64_t key)
{
    return table_shard(&w->tables[0], key);
}

static struct table *part_of(struct world *w, uint64_t key)
{
    return &w->tables[w->owners[shard_at(w, key)]];
}

static struct table_options options(const struct variant *v, bool is_inline)
{
    return (struct table_options){.payload_bytes = PAYLOAD,
                                  .align = 8,
                                  .is_inline = is_inline,
                                  .seed = 3,
                                  .admit_after = v->admit_after,
                                  .sketch_bytes = v->sketch_bytes,
                                  .expire_after_us = v->expire_after_s * US_PER_SECOND,
                                  .rows_max = v->rows_max,
                                  .shards = v->shards,
                                  .init = init_row};
}

static void world_init(struct world *w, const struct variant *v, bool is_inline)
{
    *w = (struct world){.variant = v, .random = UINT64_C(977) * v->shards + is_inline};
    w->keys = v->has_cold ? COLD_KEYS : KEYS;
    struct table_options o = options(v, is_inline);
    for (uint32_t i = 0; i < TABLES; i++) {
        table_init(&w->tables[i], &o);
        if (i > 0 && v->has_cold)
            table_cold_init(&w->tables[i], &fake_new(STORED)->store);
    }
    for (int i = 0; i < 2; i++)
        table_init(&w->restored[i], &o);
    for (uint32_t s = 0; s < v->shards; s++)
        w->owners[s] = 1 + s % PARTS;
    w->counts = calloc(1, MAX(v->sketch_bytes, 1));
    assert_non_null(w->counts);
}

static void world_free(struct world *w)
{
    for (uint32_t i = 0; i < TABLES; i++)
        table_free(&w->tables[i]);
    for (int i = 0; i < 2; i++)
        table_free(&w->restored[i]);
    fake_clear(&w->cold);
    free(w->counts);
}

/* --- Occurrences --- */

static void same_row(const struct world *w, struct table_row *a, struct table_row *b)
{
    unsigned char stored[2][STORED];
    assert_true((a == NULL) == (b == NULL));
    if (a == NULL)
        return;
    table_store_row(&w->tables[0], a, stored[0]);
    table_store_row(&w->tables[0], b, stored[1]);
    assert_memory_equal(stored[0], stored[1], STORED);
}

/* An update that depends on the row and on the occurrence. */
static void update(struct table_row *row, uint64_t at)
{
    uint64_t *payload = row == NULL ? NULL : (uint64_t *)(void *)table_payload(row);
    if (payload != NULL)
        payload[1] = payload[1] * 31 + payload[0] % 7 + at;
}

static uint32_t now(const struct world *w)
{
    return 1000 + (uint32_t)(w->at / 10);
}

/* One occurrence after the other; the eighth part of them are look-ups. */
static void learn_singly(struct world *w)
{
    for (uint64_t n = 1 + draw(w, CALL_MAX); n > 0; n--, w->at++) {
        uint64_t key = draw_key(w);
        uint32_t seen = now(w), step = (uint32_t)w->at + 1;
        uint8_t learns = draw(w, 8) != 0;
        struct table_row *a, *b;
        table_resolve(&w->tables[0], &key, &seen, &step, &learns, 1, &a);
        table_resolve(part_of(w, key), &key, &seen, &step, &learns, 1, &b);
        same_row(w, a, b);
        if (learns) {
            update(a, w->at);
            update(b, w->at);
        }
    }
}

/* One step over all keys, each table with those of its shards. */
static void learn_batch(struct world *w)
{
    uint64_t keys[TABLES][CALL_MAX];
    uint32_t counts[TABLES][CALL_MAX], seen[CALL_MAX], sizes[TABLES] = {0}, places[CALL_MAX];
    struct table_row *rows[TABLES][CALL_MAX];
    uint8_t is_known[TABLES][CALL_MAX];
    uint32_t n = 1 + (uint32_t)draw(w, CALL_MAX), step = (uint32_t)w->at + 1;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t key = draw_key(w);
        bool is_new = true;
        for (uint32_t j = 0; j < sizes[0]; j++)
            is_new &= keys[0][j] != key;
        if (!is_new)
            continue;
        uint32_t owner = w->owners[shard_at(w, key)], count = 1 + (uint32_t)draw(w, 3);
        seen[sizes[0]] = now(w);
        places[sizes[0]] = sizes[owner];
        keys[0][sizes[0]] = keys[owner][sizes[owner]] = key;
        counts[0][sizes[0]++] = counts[owner][sizes[owner]++] = count;
    }
    for (uint32_t t = 0; t < TABLES; t++) {
        struct table_occurrences in = {.keys = keys[t], .seen = seen, .counts = counts[t], .n = sizes[t]};
        table_resolve_batch(&w->tables[t], &in, step, rows[t], is_known[t]);
    }
    for (uint32_t i = 0; i < sizes[0]; i++) {
        uint32_t owner = w->owners[shard_at(w, keys[0][i])];
        assert_int_equal(is_known[0][i], is_known[owner][places[i]]);
        same_row(w, rows[0][i], rows[owner][places[i]]);
        update(rows[0][i], w->at);
        update(rows[owner][places[i]], w->at);
    }
    w->at += n;
}

/* --- Comparing --- */

struct adding {
    struct world *world;
    uint32_t table;
    struct all_rows *to;
};

static bool add_row(void *argument, struct table_row *row)
{
    struct adding *a = argument;
    struct all_rows *e = a->to;
    uint64_t key = row->key;
    assert_true(key <= KEYS && load_key(e->rows[key]) == 0);
    assert_true(a->table == 0 || a->world->owners[shard_at(a->world, key)] == a->table);
    table_store_row(&a->world->tables[0], row, e->rows[key]);
    e->steps[key] = a->world->variant->has_cold ? 0 : row->step;
    e->count++;
    return true;
}

static void export_tables(struct world *w, uint32_t first, uint32_t end, struct all_rows *e)
{
    memset(e, 0, sizeof(*e));
    for (uint32_t i = first; i < end; i++)
        assert_true(table_visit(&w->tables[i], add_row, &(struct adding){w, i, e}));
}

/* Each shard's counts and their epochs are its owner's, and other tables have none. */
static void compare_counts(const struct world *w)
{
    const struct sketch *all = &w->tables[0].sketch;
    size_t blocks = sketch_blocks(all), of_shard = blocks / w->variant->shards;
    static const uint8_t zero[SKETCH_BLOCK];
    for (size_t b = 0; b < blocks; b++)
        for (uint32_t i = 1; i < TABLES; i++) {
            const struct sketch *part = &w->tables[i].sketch;
            bool is_owner = w->owners[b / of_shard] == i;
            assert_int_equal(part->block_epochs[b], is_owner ? all->block_epochs[b] : 0);
            assert_memory_equal(part->counts + b * SKETCH_BLOCK,
                                is_owner ? all->counts + b * SKETCH_BLOCK : zero, SKETCH_BLOCK);
        }
}

static void compare(struct world *w)
{
    export_tables(w, 0, 1, &found);
    export_tables(w, 1, TABLES, &other);
    assert_true(found.count > 0 && found.count == other.count);
    assert_memory_equal(&found, &other, sizeof(found));
    compare_counts(w);
    uint64_t rows = 0;
    for (uint32_t i = 1; i < TABLES; i++) {
        const struct table *t = &w->tables[i];
        rows += table_rows(t);
        for (uint64_t b = 0; b < t->buckets && w->variant->expire_after_s == 0; b++) {
            bool is_owner = w->owners[b * w->variant->shards / t->buckets] == i;
            assert_int_equal(t->bucket_counts[b], is_owner ? w->tables[0].bucket_counts[b] : 0);
        }
    }
    assert_true(w->variant->expire_after_s > 0 || rows == w->tables[0].stats.rows);
}

/* --- Checkpoints --- */

static bool emit_rows(void *argument, const void *rows, size_t count)
{
    buffer_append(&((struct writing *)argument)->rows, rows, count * STORED);
    return true;
}

static bool emit_counts(void *argument, const void *blocks, size_t count)
{
    buffer_append(&((struct writing *)argument)->counts, blocks, count * sizeof(struct sketch_block));
    return true;
}

static void *write_all(void *argument)
{
    struct writing *p = argument;
    if (!table_snapshot_write(p->snapshot, emit_rows, p) ||
        !table_snapshot_write_counts(p->snapshot, emit_counts, p))
        return NULL;
    buffer_append(&p->keys, p->removed->items, p->removed->count * sizeof(uint64_t));
    return argument;
}

static void begin_checkpoint(struct world *w)
{
    w->is_open = true;
    w->is_decided = false;
    w->writer = (enum writer)draw(w, 3);
    w->epoch++;
    w->is_base = w->published == 0 || draw(w, 8) == 0;
    export_tables(w, 0, 1, &w->barrier);
    if (w->tables[0].sketch.counts != NULL)
        memcpy(w->counts, w->tables[0].sketch.counts, sketch_blocks(&w->tables[0].sketch) * SKETCH_BLOCK);
    w->expired_before = w->tables[0].expired_before;
    memcpy(w->owners_then, w->owners, sizeof(w->owners));
    for (uint32_t i = 0; i < TABLES; i++) {
        struct writing *p = &w->writing[i];
        *p = (struct writing){.is_open = true};
        p->snapshot =
            table_snapshot_begin(&w->tables[i], w->is_base ? 0 : w->published, w->epoch, &p->removed);
        if (w->tables[i].cold != NULL)
            table_cold_barrier(&w->tables[i]);
        if (w->writer == WRITES_ASIDE)
            assert_int_equal(pthread_create(&p->thread, NULL, write_all, p), 0);
    }
}

/* Restores what one table wrote: all of it is of shards that the table had at the barrier. */
static void restore(struct world *w, struct table *to, uint32_t table)
{
    const struct writing *p = &w->writing[table];
    for (size_t at = 0; at < p->keys.length; at += sizeof(uint64_t)) {
        uint64_t key = load_key(p->keys.data + at);
        assert_true(table == 0 || w->owners_then[shard_at(w, key)] == table);
        table_restore_remove(to, key);
    }
    for (size_t at = 0; at < p->rows.length; at += STORED) {
        assert_true(table == 0 || w->owners_then[shard_at(w, load_key(p->rows.data + at))] == table);
        table_restore_row(to, p->rows.data + at);
    }
    for (size_t at = 0; at < p->counts.length; at += sizeof(struct sketch_block)) {
        const struct sketch_block *block = (const void *)(p->counts.data + at);
        uint64_t shard = block->number / (sketch_blocks(&to->sketch) / w->variant->shards);
        assert_true(table == 0 || w->owners_then[shard] == table);
        assert_true(sketch_restore(&to->sketch, block));
    }
}

/* A restored table, with the cold rows that it has not in memory, is the table with all shards at the
 * barrier. */
static void compare_restored(struct world *w, const struct table *t, const struct fake_rows *cold)
{
    memset(&found, 0, sizeof(found));
    assert_true(table_visit(t, add_row, &(struct adding){w, 0, &found}));
    memset(found.steps, 0, sizeof(found.steps));
    for (uint64_t k = 1; k <= COLD_KEYS && cold != NULL; k++) {
        uint32_t seen;
        if (cold->rows[k] == NULL || table_slot_of(t, k, table_hash(t, k)) != NULL)
            continue;
        memcpy(&seen, cold->rows[k] + offsetof(struct table_row, seen), sizeof(seen));
        if (seen < w->expired_before)
            continue;
        memcpy(found.rows[k], cold->rows[k], STORED);
        found.count++;
    }
    assert_true(found.count == w->barrier.count);
    assert_memory_equal(found.rows, w->barrier.rows, sizeof(found.rows));
    if (t->sketch.counts != NULL)
        assert_memory_equal(t->sketch.counts, w->counts, sketch_blocks(&t->sketch) * SKETCH_BLOCK);
}

static void publish(struct world *w)
{
    for (int i = 0; i < 2; i++) {
        struct table_options o = w->restored[i].options;
        if (w->is_base) {
            table_free(&w->restored[i]);
            table_init(&w->restored[i], &o);
        }
        w->restored[i].expired_before = w->expired_before;
    }
    for (uint32_t i = 0; i < TABLES; i++)
        restore(w, &w->restored[i > 0], i);
    fake_clear(&w->cold);
    for (uint32_t i = 1; i < TABLES && w->variant->has_cold; i++) {
        const struct fake_cold *fake = w->tables[i].cold->store->self;
        for (uint64_t k = 1; k <= COLD_KEYS; k++)
            if (fake->copy.rows[k] != NULL) {
                assert_null(w->cold.rows[k]);
                w->cold.rows[k] = malloc(STORED);
                memcpy(w->cold.rows[k], fake->copy.rows[k], STORED);
            }
    }
    compare_restored(w, &w->restored[0], NULL);
    compare_restored(w, &w->restored[1], w->variant->has_cold ? &w->cold : NULL);
    w->published = w->epoch;
    w->checkpoints++;
}

/* Decides whether the checkpoint is published; each table learns of it on its own. */
static void decide(struct world *w)
{
    for (uint32_t i = 0; i < TABLES; i++) {
        struct writing *p = &w->writing[i];
        void *result = p;
        if (w->writer == WRITES_ASIDE)
            pthread_join(p->thread, &result);
        else if (w->writer == WRITES_LATE)
            result = write_all(p);
        assert_non_null(result);
    }
    w->is_published = w->writer != WRITES_NEVER && draw(w, 4) > 0;
    w->is_decided = true;
    w->abandoned += !w->is_published;
}

static void go_on_with_checkpoint(struct world *w)
{
    if (!w->is_open) {
        if (draw(w, 6) == 0)
            begin_checkpoint(w);
        return;
    }
    if (!w->is_decided) {
        if (draw(w, 6) == 0)
            decide(w);
        return;
    }
    bool is_open = false;
    for (uint32_t i = 0; i < TABLES; i++) {
        struct writing *p = &w->writing[i];
        if (p->is_open && draw(w, 2) == 0) {
            table_snapshot_end(&w->tables[i], w->is_published);
            p->is_open = false;
        }
        is_open |= p->is_open;
    }
    if (is_open)
        return;
    if (w->is_published)
        publish(w);
    for (uint32_t i = 0; i < TABLES; i++) {
        buffer_free(&w->writing[i].rows);
        buffer_free(&w->writing[i].counts);
        buffer_free(&w->writing[i].keys);
    }
    w->is_open = false;
}

/* --- Exchanges --- */

static void exchange(struct world *w)
{
    uint32_t shard = (uint32_t)draw(w, w->variant->shards), from = w->owners[shard];
    uint32_t to = 1 + (from + (uint32_t)draw(w, PARTS - 1)) % PARTS;
    struct byte_buffer bytes = {0};
    uint64_t cold = w->variant->has_cold ? w->tables[to].cold->rows : 0;
    assert_true(from != to && table_give_shard(&w->tables[from], shard, &bytes));
    assert_true(table_take_shard(&w->tables[to], bytes.data, bytes.length));
    w->cold_given += w->variant->has_cold ? w->tables[to].cold->rows - cold : 0;
    w->owners[shard] = to;
    w->exchanges_open += w->is_open;
    w->exchanges_skewed += w->is_open && w->writing[from].is_open != w->writing[to].is_open;
    buffer_free(&bytes);
}

static void step(struct world *w)
{
    if (draw(w, 3) == 0)
        learn_batch(w);
    else
        learn_singly(w);
    for (uint32_t i = 1; i < TABLES && w->variant->has_cold; i++)
        if (draw(w, 4) == 0)
            assert_true(table_evict(&w->tables[i], draw(w, 300), (uint32_t)w->at, false));
    if (draw(w, 10) == 0)
        for (uint32_t i = 0; i < TABLES; i++)
            table_set_watermark(&w->tables[i], (int64_t)now(w) * US_PER_SECOND, TABLE_STEP_NONE);
    go_on_with_checkpoint(w);
}

static void look(struct world *w, uint32_t count)
{
    uint32_t hits = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t key = 1 + draw(w, w->keys);
        uint32_t seen = now(w), at = (uint32_t)w->at + 1;
        uint8_t learns = 0;
        struct table_row *a, *b;
        table_resolve(&w->tables[0], &key, &seen, &at, &learns, 1, &a);
        table_resolve(part_of(w, key), &key, &seen, &at, &learns, 1, &b);
        same_row(w, a, b);
        hits += a != NULL;
    }
    assert_in_range(hits, 1, count - 1);
}

static void run(const struct variant *v, bool is_inline)
{
    static struct world w;
    world_init(&w, v, is_inline);
    for (uint32_t i = 0; i < 100; i++)
        step(&w);
    for (uint32_t i = 0; i < EXCHANGES; i++) {
        for (uint64_t n = draw(&w, 4); n > 0; n--)
            step(&w);
        exchange(&w);
        if (i % 50 == 0)
            compare(&w);
    }
    compare(&w);
    look(&w, LOOKS);
    while (w.is_open)
        step(&w);
    compare(&w);
    assert_true(w.exchanges_open > 200 && w.exchanges_skewed > 20 && w.checkpoints > 20 && w.abandoned > 10);
    assert_true(v->rows_max == 0 || w.tables[0].stats.evicted > 100);
    assert_true(v->expire_after_s == 0 || w.tables[0].stats.expired > 100);
    assert_true(v->admit_after == 0 || w.tables[0].stats.waiting > 1000);
    assert_true(!v->has_cold || w.cold_given > 1000);
    world_free(&w);
}

static void test_exchanges(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(variants); i++) {
        const struct variant *v = &variants[i];
        assert_int_equal(table_shards_of(v->sketch_bytes, v->rows_max), v->shards);
        bool is_short = false;
#ifdef __SANITIZE_THREAD__ /* slow, and the other layout has the same races */
        is_short = true;
#endif
        if (!is_short || i % 2 == 0)
            run(v, false);
        if (!is_short || i % 2 == 1)
            run(v, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchanges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
