/* Reports of several lanes are merged: figures are added; of figures named ..._max, and of texts by their
 * values, the largest is kept. */
#include "core/operator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_merged(void **state)
{
    (void)state;
    struct report all = {0}, lanes[3] = {{0}};
    static const char *const texts[] = {"of lane 0", "of lane 1", "of lane 2"};
    static const double rows[] = {7, 30, 11};
    for (int lane = 0; lane < 3; lane++) {
        report_add(&lanes[lane], "rows", rows[lane], false);
        report_add(&lanes[lane], "rows", 1, true);
        report_add(&lanes[lane], "key_rows_max", rows[lane], false);
        report_add_text(&lanes[lane], "hot_key", texts[lane]);
        lanes[lane].items[lanes[lane].count - 1].value = rows[lane];
        for (uint32_t i = 0; i < lanes[lane].count; i++)
            report_merge(&all, &lanes[lane].items[i]);
    }
    assert_int_equal(all.count, 4);
    assert_true(report_find(&all, "rows")->value == 48);
    assert_true(all.items[1].is_window && all.items[1].value == 3);
    assert_true(report_find(&all, "key_rows_max")->value == 30);
    assert_string_equal(report_find(&all, "hot_key")->text, "of lane 1");
    assert_null(report_find(&all, "max"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_merged)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
