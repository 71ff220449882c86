/* The number of a table's shards. */
#include "core/base.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_number_of_shards)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
