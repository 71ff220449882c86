/* Blocks of random sizes keep their bytes; memory is counted exactly. */
#include "state/slab.h"

#include "unit/support/random.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { BLOCKS = 300, STEPS = 60000, BYTES_MAX = 20000 };

static void fill(char *block, uint32_t from, uint32_t bytes, unsigned char value)
{
    memset(block + KEYED_VALUE_HEADER + from, value, bytes - from);
}

static void check(const char *block, uint32_t bytes, unsigned char value)
{
    assert_int_equal(slab_bytes(block), bytes);
    for (uint32_t i = 0; i < bytes; i++)
        assert_int_equal((unsigned char)block[KEYED_VALUE_HEADER + i], value);
}

static void test_blocks_keep_their_bytes(void **state)
{
    (void)state;
    struct test_random random = {7};
    struct pages pages = {0};
    struct slab slab = {.pages = &pages};
    char *blocks[BLOCKS] = {NULL};
    uint32_t bytes[BLOCKS] = {0};
    for (int step = 0; step < STEPS; step++) {
        uint32_t i = random_below(&random, BLOCKS);
        uint32_t limit = random_chance(&random, 5) ? BYTES_MAX : 400;
        uint32_t wanted = 1 + random_below(&random, limit);
        unsigned char value = (unsigned char)i;
        if (blocks[i] == NULL) {
            blocks[i] = slab_take(&slab, wanted);
            fill(blocks[i], 0, wanted, value);
            bytes[i] = wanted;
        } else if (random_chance(&random, 50)) {
            check(blocks[i], bytes[i], value);
            slab_give(&slab, blocks[i]);
            blocks[i] = NULL;
        } else {
            uint32_t kept = MIN(bytes[i], wanted);
            blocks[i] = slab_resize(&slab, blocks[i], wanted);
            assert_int_equal(slab_bytes(blocks[i]), wanted);
            for (uint32_t at = 0; at < kept; at++)
                assert_int_equal((unsigned char)blocks[i][KEYED_VALUE_HEADER + at], value);
            fill(blocks[i], kept, wanted, value);
            bytes[i] = wanted;
        }
    }
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i] != NULL) {
            check(blocks[i], bytes[i], (unsigned char)i);
            slab_give(&slab, blocks[i]);
        }
    assert_int_equal(slab.used_bytes, 0);
    slab_free(&slab);
    assert_true(pages.count <= 1 && pages.empty == pages.count);
    pages_free(&pages);
}

/* A block that grows by little moves seldom, however large it is. */
static void test_growing_moves_seldom(void **state)
{
    (void)state;
    enum { STEP = 24, LIMIT = 6 << 20, MOVES_MAX = 120 };
    struct pages pages = {0};
    struct slab slab = {.pages = &pages};
    uint32_t moves = 0;
    char *block = slab_take(&slab, STEP);
    fill(block, 0, STEP, 1);
    for (uint32_t bytes = STEP; bytes + STEP <= LIMIT; bytes += STEP) {
        char *before = block;
        block = slab_resize(&slab, block, bytes + STEP);
        moves += block != before;
        fill(block, bytes, bytes + STEP, 1);
        assert_true(slab.used_bytes >= bytes + STEP && slab.used_bytes <= (bytes + STEP) * 5 / 4 + 64);
    }
    assert_true(moves < MOVES_MAX);
    check(block, slab_bytes(block), 1);
    slab_give(&slab, block);
    assert_int_equal(slab.used_bytes, 0);
    slab_free(&slab);
    pages_free(&pages);
}

/* Spans of random sizes do not overlap, are zero where that is wanted, and empty regions are given back. */
static void test_spans_keep_apart(void **state)
{
    (void)state;
    enum { SPANS = 200, TURNS = 20000, SPAN_BYTES_MAX = PAGES_REGION_BYTES * 5 / 8 };
    struct test_random random = {11};
    struct pages pages = {0};
    unsigned char *spans[SPANS] = {NULL};
    size_t sizes[SPANS] = {0};
    for (int turn = 0; turn < TURNS + SPANS; turn++) {
        uint32_t i = turn < TURNS ? random_below(&random, SPANS) : (uint32_t)(turn - TURNS);
        if (spans[i] != NULL) {
            for (size_t at = 0; at < sizes[i]; at += 512)
                assert_int_equal(spans[i][at], (unsigned char)(i + 1));
            assert_int_equal(spans[i][sizes[i] - 1], (unsigned char)(i + 1));
            pages_give(&pages, spans[i], sizes[i]);
            spans[i] = NULL;
        } else if (turn < TURNS) {
            bool is_zeroed = random_chance(&random, 50);
            sizes[i] = 1 + random_below(&random, random_chance(&random, 5) ? SPAN_BYTES_MAX : 100000);
            spans[i] = pages_take(&pages, sizes[i], is_zeroed);
            assert_int_equal((uintptr_t)spans[i] % PAGES_BYTES, 0);
            for (size_t at = 0; is_zeroed && at < sizes[i]; at++)
                if (spans[i][at] != 0)
                    fail_msg("byte %zu of %zu is not zero", at, sizes[i]);
            memset(spans[i], (int)(i + 1), sizes[i]);
        }
    }
    assert_int_equal(pages.count, 1);
    assert_int_equal(pages.empty, 1);
    pages_free(&pages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blocks_keep_their_bytes),
                                       cmocka_unit_test(test_growing_moves_seldom),
                                       cmocka_unit_test(test_spans_keep_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
