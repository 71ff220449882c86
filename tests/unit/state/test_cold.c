/* Cold rows on disk: when the database compacts, rows that had expired at a barrier are removed, and so are
 * rows of tables that nobody uses any more; no other rows are. */
#include "state/state.h"
#include "unit/support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ROWS = 40000, EXPIRED = 30000, PIECE = 4000, ROW_BYTES = 64, OTHERS = 20, ROUNDS_MAX = 100 };

struct seen {
    uint64_t expired, alive, last;
};

static void count_row(void *argument, uint64_t key, const void *row)
{
    struct seen *seen = argument;
    uint64_t first;
    memcpy(&first, row, sizeof(first));
    assert_true(first == key && (key > seen->last || key == 0));
    seen->last = key;
    seen->expired += key % 2 == 0 && key / 2 < EXPIRED;
    seen->alive += key % 2 == 0 && key / 2 >= EXPIRED;
}

static void count_other(void *argument, uint64_t key, const void *row)
{
    (void)key, (void)row;
    ((struct seen *)argument)->alive++;
}

/* Puts PIECE rows. is_timed: with consecutive even keys from 2 * first on and the time key / 2; else with odd
 * keys that are spread widely, and without a time, so that they never expire. */
static void put_piece(struct cold_store *cold, uint64_t first, bool is_timed)
{
    static unsigned char rows[PIECE][ROW_BYTES];
    static uint64_t keys[PIECE];
    static int64_t times[PIECE];
    for (uint64_t i = 0; i < PIECE; i++) {
        keys[i] = is_timed ? 2 * (first + i) : 2 * (i * OTHERS + first) + 1;
        times[i] = (int64_t)keys[i] / 2;
        memcpy(rows[i], &keys[i], sizeof(keys[i]));
    }
    assert_true(cold->put(cold->self, keys, is_timed ? times : NULL, rows, ROW_BYTES, PIECE));
}

/* A store in a folder of its own. */
struct opened {
    struct arena arena;
    struct diag_list diags;
    char path[TEMPORARY_PATH_BYTES];
    struct state_store *store;
};

static struct state_store *open_store(struct opened *o)
{
    char database[TEMPORARY_PATH_BYTES + 16];
    *o = (struct opened){0};
    diag_list_init(&o->diags, &o->arena);
    temporary_make(o->path);
    snprintf(database, sizeof(database), "%s/db", o->path);
    return o->store = state_store_open(database, 4 << 20, false, &o->diags);
}

/* As a checkpoint does. */
static void copy_database(struct opened *o)
{
    char copy[TEMPORARY_PATH_BYTES + 16];
    bool has_database;
    snprintf(copy, sizeof(copy), "%s/copy", o->path);
    assert_true(state_store_checkpoint(o->store, copy, &has_database, &o->diags) && has_database);
}

static void close_store(struct opened *o)
{
    state_store_close(o->store);
    temporary_remove(o->path);
    arena_free(&o->arena);
}

static void test_expiry(void **state)
{
    (void)state;
    struct opened o;
    struct state_store *store = open_store(&o);
    struct cold_store *cold = cold_store_new(store, 7, 3, ROW_BYTES);
    struct cold_store *gone = cold_store_new(store, 7, 4, ROW_BYTES);
    struct cold_store *other = cold_store_new(store, 7, 5, ROW_BYTES);
    for (uint64_t at = 0; at < ROWS; at += PIECE) {
        put_piece(cold, at, true);
        put_piece(gone, at, true);
    }
    gone->free(gone->self); /* as if the job had changed and this table were no longer in it */
    assert_true(cold->takes_rows(cold->self));
    cold->barrier(cold->self, EXPIRED);
    other->barrier(other->self, TIME_MIN);
    assert_false(cold->takes_rows(cold->self));
    copy_database(&o);
    assert_true(cold->takes_rows(cold->self));
    struct seen seen = {.expired = EXPIRED}, of_gone = {.alive = ROWS}, of_other = {0};
    gone = cold_store_new(store, 7, 4, ROW_BYTES); /* only to scan it: at the barrier nobody used it */
    /* Puts other rows among them, until compactions have gone through all. */
    for (uint64_t round = 0;
         round < ROUNDS_MAX && MAX(seen.expired, of_gone.expired + of_gone.alive) > EXPIRED / 10; round++) {
        put_piece(cold, round % OTHERS, false);
        put_piece(other, round % OTHERS, false);
        seen = of_gone = of_other = (struct seen){0};
        assert_true(cold->scan(cold->self, COLD_ALL_SHARDS, count_row, &seen));
        assert_true(gone->scan(gone->self, COLD_ALL_SHARDS, count_row, &of_gone));
        assert_true(other->scan(other->self, COLD_ALL_SHARDS, count_other, &of_other));
        assert_int_equal(seen.alive, ROWS - EXPIRED);
        assert_in_range(of_other.alive, PIECE, ROWS * OTHERS);
    }
    assert_in_range(seen.expired, 0, EXPIRED / 10);
    assert_in_range(of_gone.expired + of_gone.alive, 0, EXPIRED / 10);
    gone->free(gone->self);
    other->free(other->self);
    cold->free(cold->self);
    close_store(&o);
}

/* --- Shards --- */

enum { SHARDS = 5 };

static uint32_t shard_of(const void *owner, uint64_t key)
{
    (void)owner;
    return (uint32_t)(key * 7 / 3 % SHARDS);
}

static void bind(struct cold_store *cold)
{
    cold->shards = SHARDS;
    cold->shard_of = shard_of;
}

/* Rows by rising key: those of one shard, or COLD_ALL_SHARDS. */
struct met {
    uint32_t shard;
    uint64_t rows, last;
};

static void meet(void *argument, uint64_t key, const void *row)
{
    struct met *met = argument;
    uint64_t first;
    memcpy(&first, row, sizeof(first));
    assert_true(first == key && (met->rows == 0 || key > met->last));
    assert_true(met->shard == COLD_ALL_SHARDS || shard_of(NULL, key) == met->shard);
    met->last = key;
    met->rows++;
}

static uint64_t count_rows(struct cold_store *cold, uint32_t shard)
{
    struct met met = {.shard = shard};
    assert_true(cold->scan(cold->self, shard, meet, &met));
    return met.rows;
}

/* Removes two of each 64 of the first `count` keys, and checks which of them are found. */
static void remove_some(struct cold_store *cold, uint64_t count)
{
    uint64_t keys[64];
    unsigned char rows[64][ROW_BYTES];
    bool found[64];
    for (uint64_t at = 0; at < count; at += 64) {
        for (uint64_t i = 0; i < 64; i++)
            keys[i] = 2 * (at + i);
        assert_true(cold->remove(cold->self, (uint64_t[]){keys[0], keys[2]}, 2));
        assert_true(cold->get(cold->self, keys, rows, ROW_BYTES, 64, found));
        for (uint64_t i = 0; i < 64; i++)
            assert_true(found[i] == (i != 0 && i != 2) && (!found[i] || memcmp(rows[i], &keys[i], 8) == 0));
    }
}

static void test_shards(void **state)
{
    (void)state;
    struct opened o;
    struct state_store *store = open_store(&o);
    /* As an older version wrote them: one shard. Its neighbours must not be touched. */
    struct cold_store *below = cold_store_new(store, 7, 2, ROW_BYTES),
                      *above = cold_store_new(store, 7, 4, ROW_BYTES);
    struct cold_store *cold = cold_store_new(store, 7, 3, ROW_BYTES);
    for (uint64_t at = 0; at < ROWS; at += PIECE)
        put_piece(cold, at, true);
    put_piece(below, 0, true);
    put_piece(above, 0, true);
    assert_int_equal(count_rows(cold, COLD_ALL_SHARDS), ROWS);
    cold->free(cold->self);
    cold = cold_store_new(store, 7, 3, ROW_BYTES);
    bind(cold);
    for (int again = 0; again < 2; again++) {
        assert_true(cold->reshard(cold->self));
        assert_int_equal(count_rows(cold, COLD_ALL_SHARDS), ROWS);
    }
    uint64_t rows = 0;
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        rows += count_rows(cold, shard);
    assert_int_equal(rows, ROWS);
    remove_some(cold, PIECE);
    rows = ROWS - 2 * ((PIECE + 63) / 64);
    assert_int_equal(count_rows(cold, COLD_ALL_SHARDS), rows);
    /* Rows that wait while the store is held are seen among those on disk. */
    cold->barrier(cold->self, TIME_MIN);
    put_piece(cold, 3, false);
    for (uint32_t shard = 0, sum = 0; shard < SHARDS; shard++) {
        sum += (uint32_t)count_rows(cold, shard);
        assert_true(shard + 1 < SHARDS || sum == rows + PIECE);
    }
    assert_int_equal(count_rows(cold, COLD_ALL_SHARDS), rows + PIECE);
    copy_database(&o);
    put_piece(cold, 4, false);
    assert_int_equal(count_rows(cold, COLD_ALL_SHARDS), rows + 2 * PIECE);
    assert_int_equal(count_rows(below, COLD_ALL_SHARDS), PIECE);
    assert_int_equal(count_rows(above, COLD_ALL_SHARDS), PIECE);
    below->free(below->self);
    above->free(above->self);
    cold->free(cold->self);
    close_store(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_expiry), cmocka_unit_test(test_shards)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
