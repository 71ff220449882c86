/* Figures of learners that choose items, by the names in their reports. */
#include "control/ranked.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(ranked_k("hr_10", "hr"), "10");
    assert_string_equal(ranked_k("coverage_4096", "coverage"), "4096");
    static const char *const others[] = {"hr",     "hr_",         "hr_x",   "hr_1x", "hr_10_window",
                                         "mhr_10", "click.hr_10", "hrs_10", "",      "ndcg_10"};
    for (size_t i = 0; i < ARRAY_COUNT(others); i++)
        assert_null(ranked_k(others[i], "hr"));
}

static void add(struct report *report, const char *name, double value, bool is_window)
{
    report_add(report, name, value, is_window);
}

/* The longest list of each period, whatever the order of the items. */
static void test_largest(void **state)
{
    (void)state;
    struct report report = {0};
    add(&report, "hr_9", 0.9, true);
    add(&report, "hr_100", 0.3, true);
    add(&report, "hr_20", 0.2, true);
    add(&report, "hr_10", 0.1, false);
    add(&report, "ndcg_2000", 0.4, true);
    add(&report, "hr_words", 7, true);
    assert_true(ranked_largest(&report, "hr", true)->value == 0.3);
    assert_true(ranked_largest(&report, "hr", false)->value == 0.1);
    assert_true(ranked_largest(&report, "ndcg", true)->value == 0.4);
    assert_null(ranked_largest(&report, "ndcg", false));
    assert_null(ranked_largest(&report, "mrr", true));
    add(&report, "hr_101", 0.5, true);
    assert_true(ranked_largest(&report, "hr", true)->value == 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names), cmocka_unit_test(test_largest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
