/* When a line of progress is due. */
#include "control/progress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* The number of progress lines due from second from_s until to_s, asked four times a second. state: gives the
 * text of the run's state in a second; "": all is well. */
static uint32_t lines(struct progress *progress, int64_t from_s, int64_t to_s,
                      const char *(*state)(int64_t second))
{
    uint32_t count = 0;
    for (int64_t us = from_s * US_PER_SECOND; us < to_s * US_PER_SECOND; us += US_PER_SECOND / 4)
        count += progress_is_due(progress, us + 1, state(us / US_PER_SECOND));
    return count;
}

static const char *good(int64_t second LEAT_UNUSED)
{
    return "";
}

static const char *broken_for_a_while(int64_t second)
{
    return second >= 100 && second < 110 ? "s: no broker answers" : "";
}

static const char *counting(int64_t second)
{
    static char text[64];
    snprintf(text, sizeof(text), "s: tried %d times", (int)second);
    return text;
}

static const char *flickering(int64_t second)
{
    return second % 2 == 0 ? "s: no broker answers" : "";
}

static void test_a_line_a_minute(void **state)
{
    (void)state;
    struct progress progress = {0};
    assert_int_equal(lines(&progress, 0, 2, good), 0); /* a quick run prints no line */
    assert_int_equal(lines(&progress, 2, 3, good), 1);
    assert_int_equal(lines(&progress, 3, 62, good), 0);
    assert_int_equal(lines(&progress, 62, 3602, good), 59);
}

static void test_a_change_is_said_at_once(void **state)
{
    (void)state;
    struct progress progress = {0};
    assert_int_equal(lines(&progress, 0, 100, broken_for_a_while), 2);
    assert_true(progress_is_due(&progress, 100 * US_PER_SECOND, broken_for_a_while(100)));
    assert_int_equal(lines(&progress, 101, 110, broken_for_a_while), 0);
    assert_true(progress_is_due(&progress, 110 * US_PER_SECOND, broken_for_a_while(110)));
    /* A state that is bad from the start is told at once, too. */
    progress = (struct progress){0};
    assert_true(progress_is_due(&progress, 1, "s: no broker answers"));
    assert_int_equal(lines(&progress, 0, 59, counting) + lines(&progress, 59, 60, good), 2);
}

static void test_what_flickers_fills_no_log(void **state)
{
    (void)state;
    struct progress progress = {0};
    uint32_t hour = lines(&progress, 0, 3600, flickering);
    assert_true(hour <= 61 + 61 * PROGRESS_CHANGES_MAX);
    assert_true(hour >= 60);
    progress = (struct progress){0};
    assert_int_equal(lines(&progress, 0, 3600, counting), 60); /* texts that differ in digits are one state */
}

static void test_parse(void **state)
{
    (void)state;
    struct progress progress = {0};
    assert_true(progress_parse(&progress, "90s"));
    assert_int_equal(progress.every_us, 90 * US_PER_SECOND);
    assert_false(progress_parse(&progress, "0s") || progress_parse(&progress, "often") ||
                 progress_parse(&progress, "-1m") || progress_parse(&progress, "999ms"));
    assert_true(progress_parse(&progress, "1s"));
    assert_int_equal(lines(&progress, 0, 60, good), 59);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_a_minute),
        cmocka_unit_test(test_a_change_is_said_at_once),
        cmocka_unit_test(test_what_flickers_fills_no_log),
        cmocka_unit_test(test_parse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
