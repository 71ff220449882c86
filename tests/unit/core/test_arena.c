#include "cmocka_all.h"
#include "core/arena.h"
#include "unit/support/random.h"

enum { PIECES = 3000 };

/* Pieces do not overlap, are aligned as promised and keep what was written. */
static void check_pieces(struct arena *arena, struct test_random *random)
{
    static struct {
        unsigned char *data;
        size_t bytes;
        unsigned char mark;
    } pieces[PIECES];
    size_t sum = 0;
    for (size_t i = 0; i < PIECES; i++) {
        pieces[i].bytes = random_below(random, i % 50 == 0 ? 300000 : 200);
        pieces[i].data = arena_alloc(arena, pieces[i].bytes);
        pieces[i].mark = (unsigned char)random_next(random);
        assert_int_equal((uintptr_t)pieces[i].data % (pieces[i].bytes >= 64 ? 64 : 16), 0);
        memset(pieces[i].data, pieces[i].mark, pieces[i].bytes);
        sum += pieces[i].bytes;
    }
    assert_int_equal(arena->used_bytes, sum);
    for (size_t i = 0; i < PIECES; i++)
        for (size_t k = 0; k < pieces[i].bytes; k++)
            if (pieces[i].data[k] != pieces[i].mark)
                fail_msg("piece %zu was overwritten", i);
}

static void test_pieces(void **state)
{
    (void)state;
    struct test_random random = {1};
    struct arena zeroed = {0}, small;
    arena_init(&small, 64);
    for (int round = 0; round < 3; round++) {
        check_pieces(&zeroed, &random);
        check_pieces(&small, &random);
        arena_reset(&zeroed);
        arena_reset(&small);
        assert_int_equal(zeroed.used_bytes, 0);
    }
    arena_free(&zeroed);
    arena_free(&small);
}

static size_t blocks_bytes(const struct arena *arena)
{
    /* The address of the first block stands for the blocks: a reset must keep it. */
    return (size_t)(uintptr_t)arena->first;
}

static void test_reset_keeps_blocks(void **state)
{
    (void)state;
    struct arena arena = {0};
    for (int i = 0; i < 100; i++)
        arena_alloc(&arena, 5000);
    size_t first = blocks_bytes(&arena);
    arena_reset(&arena);
    void *again = arena_alloc(&arena, 5000);
    assert_int_equal(blocks_bytes(&arena), first);
    assert_true((uintptr_t)again > first && (uintptr_t)again < first + 4096);
    arena_free(&arena);
    assert_null(arena.first);
}

/* A block is used up to its last byte, and no further. */
static void test_block_end(void **state)
{
    (void)state;
    for (size_t last = 1; last < 64; last++) {
        struct arena arena;
        arena_init(&arena, 128);
        memset(arena_alloc(&arena, 128 - 48), 1, 128 - 48);
        memset(arena_alloc(&arena, 32), 2, 32);
        struct arena_block *first = arena.current;
        memset(arena_alloc(&arena, last), 3, last);
        /* With gaps (ARENA_GAP) the second piece is in a new, larger block, which has room for the last. */
        assert_int_equal(arena.current == first, last <= 16 || ARENA_GAP > 0);
        arena_free(&arena);
    }
}

static void test_copies(void **state)
{
    (void)state;
    struct arena arena = {0};
    assert_non_null(arena_alloc(&arena, 0));
    assert_non_null(arena_copy(&arena, NULL, 0));
    const char *text = arena_strndup(&arena, "abcdef", 3);
    assert_string_equal(text, "abc");
    assert_string_equal(arena_strdup(&arena, ""), "");
    struct str copy = arena_str(&arena, STR("x\0y"));
    assert_int_equal(copy.length, 3);
    assert_memory_equal(copy.data, "x\0y", 4);
    assert_string_equal(arena_printf(&arena, "%d %s", 7, text), "7 abc");
    const uint64_t *zeros = arena_array(&arena, uint64_t, 100);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(zeros[i], 0);
    arena_free(&arena);
}

static int order[4], runs;

static void note(void *argument)
{
    order[runs++] = *(int *)argument;
}

static void test_defer(void **state)
{
    (void)state;
    static int one = 1, two = 2, three = 3;
    struct arena arena = {0};
    arena_defer(&arena, note, &one);
    arena_defer(&arena, note, &two);
    arena_reset(&arena);
    assert_int_equal(runs, 2);
    assert_int_equal(order[0], 2);
    assert_int_equal(order[1], 1);
    arena_defer(&arena, note, &three);
    arena_free(&arena);
    assert_int_equal(runs, 3);
    assert_int_equal(order[2], 3);
    arena_free(&arena);
    assert_int_equal(runs, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),    cmocka_unit_test(test_reset_keeps_blocks),
        cmocka_unit_test(test_block_end), cmocka_unit_test(test_copies),
        cmocka_unit_test(test_defer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
