/* Who is left out of a round, for all ways in which five workers may fail to reach each other: those that remain reach each other, nobody
 * is left out without need, and the leader only where most miss it. */
#include "cluster/reach.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { WORKERS = 5, PAIRS = WORKERS * (WORKERS - 1) / 2 };

/* Bit p of `pairs`: the workers of the p-th pair do not reach each other; of each pair one worker says so. */
static void spread(uint32_t pairs, uint64_t *unreached)
{
    uint32_t pair = 0;
    for (uint32_t i = 0; i < WORKERS; i++)
        unreached[i] = 0;
    for (uint32_t i = 0; i < WORKERS; i++)
        for (uint32_t k = 0; k < i; k++, pair++)
            if ((pairs >> pair & 1) != 0)
                unreached[pair % 2 == 0 ? i : k] |= UINT64_C(1) << (pair % 2 == 0 ? k : i);
}

static bool reach(const uint64_t *unreached, uint32_t i, uint32_t k)
{
    return ((unreached[i] >> k | unreached[k] >> i) & 1) == 0;
}

static void check(uint32_t pairs, uint32_t leader)
{
    uint64_t unreached[WORKERS];
    spread(pairs, unreached);
    uint64_t out = reach_left_out(unreached, WORKERS, leader, 1);
    assert_true(out < UINT64_C(1) << WORKERS && out != (UINT64_C(1) << WORKERS) - 1);
    for (uint32_t i = 0; i < WORKERS; i++) {
        bool misses_one = false;
        for (uint32_t k = 0; k < WORKERS; k++) {
            if (k == i)
                continue;
            misses_one |= !reach(unreached, i, k);
            assert_true((out >> i & 1) != 0 || (out >> k & 1) != 0 || reach(unreached, i, k));
        }
        assert_true(misses_one || (out >> i & 1) == 0);
    }
    if (pairs != 0 && (pairs & (pairs - 1)) == 0) { /* one pair */
        assert_true((out & (out - 1)) == 0 && out != 0);
        assert_true((out >> leader & 1) == 0);
    }
}

static void test_all_ways(void **state)
{
    (void)state;
    for (uint32_t leader = 0; leader < WORKERS; leader++)
        for (uint32_t pairs = 0; pairs < 1U << PAIRS; pairs++)
            check(pairs, leader);
}

static void test_one_misses_all(void **state)
{
    (void)state;
    for (uint32_t leader = 0; leader < WORKERS; leader++)
        for (uint32_t i = 0; i < WORKERS; i++) {
            uint64_t unreached[WORKERS] = {0};
            unreached[i] = ((UINT64_C(1) << WORKERS) - 1) ^ UINT64_C(1) << i;
            assert_int_equal(reach_left_out(unreached, WORKERS, leader, 1), UINT64_C(1) << i);
        }
}

static void test_least(void **state)
{
    (void)state;
    const uint64_t unreached[WORKERS] = {2, 0, 8, 0, 0}; /* 0 and 1, 2 and 3 */
    assert_int_equal(reach_left_out(unreached, WORKERS, 0, 3), 1 << 1 | 1 << 3);
    assert_int_equal(reach_left_out(unreached, WORKERS, 0, 4), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_ways), cmocka_unit_test(test_one_misses_all),
                                       cmocka_unit_test(test_least)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
