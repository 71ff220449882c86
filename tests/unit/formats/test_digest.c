/* The digest of batches is the same however rows are cut, selected, laid out or checkpointed; any change of a
 * value changes it. */
#include "unit/formats/harness.h"
#include "unit/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const char schema_text[] =
    "i int, f float, s text, b bool, y bytes, t us, l [int], m [[text]], e [{x int, y text}]";

static void hex_of(const struct batch *batch, char hex[33])
{
    struct batch_digest *digest = batch_digest_new();
    batch_digest_add(digest, batch);
    batch_digest_hex(digest, hex);
    batch_digest_free(digest);
}

/* A dense copy of the rows, in order. */
static struct batch *copy(struct batch_pool *pool, struct batch *batch, uint32_t rows)
{
    struct batch *sources[BATCH_ROWS];
    uint16_t indices[BATCH_ROWS];
    for (uint32_t i = 0; i < rows; i++) {
        sources[i] = batch;
        indices[i] = (uint16_t)batch_row(batch, i);
    }
    return batch_gather(pool, batch->schema, sources, indices, rows);
}

static void test_cuts(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct batch_pool *pool = batch_pool_new();
    struct test_random random = {11};
    for (uint64_t seed = 1; seed < 20; seed++) {
        char whole[33], cut[33], dense[33];
        struct batch *batch = harness_batch(pool, harness_schema(&arena, schema_text), 300, seed);
        struct batch *odd = batch_derive(batch, batch->schema);
        uint16_t *sel = arena_alloc(&odd->arena, 150 * sizeof(*sel));
        for (uint32_t i = 0; i < 150; i++)
            sel[i] = (uint16_t)(2 * i + 1);
        odd->sel = sel;
        odd->selected = 150;
        hex_of(odd, whole);
        struct batch *copied = copy(pool, odd, 150);
        hex_of(copied, dense);
        assert_string_equal(dense, whole);
        struct batch_digest *digest = batch_digest_new();
        for (uint32_t at = 0; at < 150;) {
            struct batch *view = batch_derive(batch, batch->schema);
            view->selected = 1 + random_below(&random, 40);
            view->selected = MIN(view->selected, 150 - at);
            view->sel = sel + at;
            batch_digest_add(digest, view);
            at += view->selected;
            batch_release(view);
            if (!random_chance(&random, 30))
                continue;
            struct byte_buffer saved = {0};
            batch_digest_save(digest, &saved);
            batch_digest_free(digest);
            digest = batch_digest_new();
            assert_true(batch_digest_load(digest, saved.data, saved.length));
            assert_false(batch_digest_load(digest, saved.data, saved.length - 1));
            assert_true(batch_digest_load(digest, saved.data, saved.length));
            buffer_free(&saved);
        }
        batch_digest_hex(digest, cut);
        assert_string_equal(cut, whole);
        batch_digest_free(digest);
        batch_release(copied);
        batch_release(odd);
        batch_release(batch);
    }
    batch_pool_free(pool);
    arena_free(&arena);
}

static void test_changes(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = harness_batch(pool, harness_schema(&arena, schema_text), 50, 3);
    char before[33], after[33];
    hex_of(batch, before);
    for (uint32_t c = 0; c < batch->schema->count; c++) {
        struct column *column = &batch->columns[c];
        uint32_t row = 0;
        while (!column_is_valid(column, row))
            row++;
        uint64_t *valid = column->valid;
        column->valid = batch_valid_new(batch, 50);
        if (valid != NULL)
            memcpy(column->valid, valid, BIT_WORDS(50) * sizeof(uint64_t));
        hex_of(batch, after);
        assert_string_equal(after, before);
        bit_clear(column->valid, row);
        hex_of(batch, after);
        assert_string_not_equal(after, before);
        column->valid = valid;
    }
    batch->columns[0].ints[7] ^= column_is_valid(&batch->columns[0], 7);
    batch->event_time[49]++;
    hex_of(batch, after);
    assert_string_not_equal(after, before);
    batch_release(batch);
    batch_pool_free(pool);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts), cmocka_unit_test(test_changes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
