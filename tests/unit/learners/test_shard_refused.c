/* The number of a table's shards, and what a table refuses to take as a shard. */
#include "fake_cold.h"

#include "core/buffer.h"
#include "learners/tables/cold.h"
#include "learners/tables/inline.h"
#include "learners/tables/shard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void test_number_of_shards(void **state)
{
    (void)state;
    static const struct {
        uint64_t sketch_bytes, rows_max;
        uint32_t shards;
    } cases[] = {
        {0, 0, 64},
        {1, 0, 1},
        {4096, 0, 1},
        {8191, 0, 1},
        {8192, 0, 2},
        {64 * 4096 - 1, 0, 32},
        {64 * 4096, 0, 64},
        {UINT64_MAX, UINT64_MAX, 64},
        {0, 1, 1},
        {0, 15 * 128, 1},
        {0, 15 * 128 + 1, 2},
        {0, 511 * 128, 32},
        {0, 511 * 128 + 1, 64},
        {8192, 511 * 128 + 1, 2},
        {UINT64_MAX, 31 * 128 + 1, 4},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        assert_int_equal(table_shards_of(cases[i].sketch_bytes, cases[i].rows_max), cases[i].shards);
}

/* The form of a given shard, as in shard.c: a head that ends with the number of items in each section. */
enum {
    COUNTS_AT = 80,
    SECTIONS = 5,
    HEAD = COUNTS_AT + SECTIONS * 8,
    SHARD = 0,
    LEARNED = 20000,
    KEYS = 8000
};
enum { COLD, ROWS, REMOVED, CLOSING, COUNTS };

static void init_row(void *argument, uint64_t key, void *payload)
{
    (void)argument;
    memset(payload, (int)key, 8);
}

static const struct table_options bounded = {.payload_bytes = 8,
                                             .align = 8,
                                             .admit_after = 2,
                                             .sketch_bytes = 16 << 10,
                                             .rows_max = 4096,
                                             .shards = 4,
                                             .init = init_row};

static void learn(struct table *t)
{
    for (uint32_t i = 0; i < LEARNED; i++) {
        uint64_t key = 1 + num_mix(i) % KEYS;
        struct table_row *row;
        table_resolve(t, &key, &(uint32_t){i}, &(uint32_t){i + 1}, NULL, 1, &row);
    }
}

/* A shard with rows, counts, removed keys and removed keys of an open snapshot. */
static void give(struct table *t, struct byte_buffer *out)
{
    const struct table_keys *removed;
    (void)table_snapshot_begin(t, 0, 1, &removed);
    table_snapshot_end(t, true);
    learn(t);
    (void)table_snapshot_begin(t, 1, 2, &removed);
    learn(t);
    assert_true(table_give_shard(t, SHARD, out));
}

static uint64_t number_at(const struct byte_buffer *b, size_t at)
{
    uint64_t number;
    memcpy(&number, b->data + at, sizeof(number));
    return number;
}

/* The place of a section's first item. */
static size_t section_at(const struct byte_buffer *b, int section)
{
    static const size_t bytes[SECTIONS] = {28, 32, 8, 8, 8 + sizeof(struct sketch_block)};
    size_t at = HEAD;
    for (int i = 0; i < section; i++)
        at += bytes[i] * number_at(b, COUNTS_AT + 8 * (size_t)i);
    return at;
}

static void is_refused(struct table *t, const struct byte_buffer *b)
{
    void *bytes = malloc(MAX(b->length, 1)); /* of this length, so that ASan notices who reads on */
    assert_non_null(bytes);
    memcpy(bytes, b->data, b->length);
    assert_false(table_take_shard(t, bytes, b->length));
    free(bytes);
    assert_true(t->stats.rows == 0 && t->removed.count == 0);
    for (size_t i = 0; i < sketch_blocks(&t->sketch); i++)
        assert_int_equal(t->sketch.block_epochs[i], 0);
    for (size_t i = 0; i < t->buckets; i++)
        assert_int_equal(t->bucket_counts[i], 0);
}

/* Refused with another number in place of 8 bytes. */
static void is_refused_with(struct table *t, struct byte_buffer *b, size_t at, uint64_t number)
{
    uint64_t before = number_at(b, at);
    memcpy(b->data + at, &number, sizeof(number));
    is_refused(t, b);
    memcpy(b->data + at, &before, sizeof(before));
}

static void test_refused(void **state)
{
    (void)state;
    struct table giver, t;
    struct byte_buffer b = {0};
    table_init(&giver, &bounded);
    table_init(&t, &bounded);
    give(&giver, &b);
    is_refused(&t, &b); /* a table with fewer barriers, and one with more */
    table_restored(&t, 3);
    is_refused(&t, &b);
    table_restored(&t, 2);
    for (int s = ROWS; s < SECTIONS; s++)
        assert_true(number_at(&b, COUNTS_AT + 8 * (size_t)s) > 0);
    assert_true(section_at(&b, SECTIONS) == b.length);
    size_t length = b.length;
    for (b.length = 0; b.length < length; b.length += 1 + b.length / 100)
        is_refused(&t, &b);
    buffer_append(&b, "", 1);
    is_refused(&t, &b);
    b.length = length;
    for (size_t at = 0; at < COUNTS_AT; at++) {
        b.data[at] ^= 1;
        is_refused(&t, &b);
        b.data[at] ^= 1;
    }
    for (size_t s = 0; s < SECTIONS; s++)
        for (uint64_t more = 1; more != 0; more *= 2)
            is_refused_with(&t, &b, COUNTS_AT + 8 * s, number_at(&b, COUNTS_AT + 8 * s) + more);
    assert_int_equal(table_shard(&t, 0), SHARD); /* so 0 is refused because it is no key */
    uint64_t strange = 1;
    while (table_shard(&t, strange) == SHARD)
        strange++;
    for (int s = ROWS; s <= CLOSING; s++) {
        is_refused_with(&t, &b, section_at(&b, s), 0);
        is_refused_with(&t, &b, section_at(&b, s), strange);
    }
    is_refused_with(&t, &b, section_at(&b, ROWS) + 16, 4); /* an epoch still to come */
    is_refused_with(&t, &b, section_at(&b, COUNTS), 4);
    is_refused_with(&t, &b, section_at(&b, COUNTS), 0);
    is_refused_with(&t, &b, section_at(&b, COUNTS) + 8, 2); /* a block of another shard */

    struct byte_buffer twice = {0}; /* more rows than buckets may have */
    size_t rows = section_at(&b, ROWS), end = section_at(&b, REMOVED);
    buffer_append(&twice, b.data, end);
    buffer_append(&twice, b.data + rows, length - rows);
    uint64_t count = 2 * number_at(&b, COUNTS_AT + 8 * ROWS);
    memcpy(twice.data + COUNTS_AT + 8 * ROWS, &count, sizeof(count));
    is_refused(&t, &twice);
    buffer_free(&twice);

    assert_true(table_take_shard(&t, b.data, b.length));
    assert_true(t.stats.rows == count / 2 && t.removed.count > 0);
    assert_false(table_take_shard(&t, b.data, b.length)); /* the table has the shard */
    assert_true(t.stats.rows == count / 2);
    buffer_free(&b);
    table_free(&giver);
    table_free(&t);
}

/* A row that comes twice is one row, as in a restore. A shard is refused that the table has, or that no table
 * has. */
static void test_what_comes_twice(void **state)
{
    (void)state;
    struct table giver, t;
    struct byte_buffer b = {0};
    struct table_options o = {.payload_bytes = 8, .align = 8, .shards = 4, .init = init_row};
    table_init(&giver, &o);
    table_init(&t, &o);
    learn(&giver);
    assert_true(table_give_shard(&giver, SHARD, &b));
    size_t rows = number_at(&b, COUNTS_AT + 8 * ROWS);
    memcpy(b.data + HEAD + 32, b.data + HEAD, 32);
    assert_true(rows > 2 && table_take_shard(&t, b.data, b.length));
    assert_int_equal(t.stats.rows, rows - 1);
    assert_false(table_take_shard(&t, b.data, b.length)); /* the table has the shard */
    buffer_clear(&b);
    assert_true(table_give_shard(&giver, SHARD, &b) && b.length == HEAD);
    uint32_t beyond = o.shards;
    memcpy(b.data + COUNTS_AT - 4, &beyond, sizeof(beyond));
    assert_false(table_take_shard(&t, b.data, b.length));
    buffer_free(&b);
    table_free(&giver);
    table_free(&t);
}

static void test_stores(void **state)
{
    (void)state;
    struct table_options o = {.payload_bytes = 8, .align = 8, .shards = 4, .init = init_row};
    struct table giver, t, without;
    struct byte_buffer b = {0}, failed = {0};
    table_init(&giver, &o);
    table_init(&t, &o);
    table_init(&without, &o);
    struct fake_cold *stores[2] = {fake_new(28), fake_new(28)};
    table_cold_init(&giver, &stores[0]->store);
    table_cold_init(&t, &stores[1]->store);
    learn(&giver);
    uint64_t rows = giver.stats.rows;
    assert_true(table_evict(&giver, rows / 2, LEARNED, false));
    assert_true(table_give_shard(&giver, SHARD, &b));
    uint64_t cold = number_at(&b, COUNTS_AT + 8 * COLD), warm = number_at(&b, COUNTS_AT + 8 * ROWS);
    assert_true(cold > 100 && warm > 100 && table_rows(&giver) == rows - cold - warm);
    is_refused(&without, &b);
    is_refused_with(&t, &b, HEAD, 0);
    assert_true(t.cold->rows == 0 && table_take_shard(&t, b.data, b.length));
    assert_true(t.cold->rows == cold && t.stats.rows == warm);
    stores[0]->has_failed = stores[1]->has_failed = true; /* the engine stops after such an error */
    assert_false(table_give_shard(&giver, SHARD + 1, &failed));
    struct table taker;
    table_init(&taker, &o);
    struct fake_cold *broken = fake_new(28);
    broken->has_failed = true;
    table_cold_init(&taker, &broken->store);
    assert_false(table_take_shard(&taker, b.data, b.length));
    buffer_free(&b);
    buffer_free(&failed);
    table_free(&giver);
    table_free(&t);
    table_free(&without);
    table_free(&taker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_number_of_shards),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_what_comes_twice),
        cmocka_unit_test(test_stores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
