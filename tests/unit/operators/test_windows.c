/* The arithmetic of windows against their definition, and the diagnostics of wrong windows. */
#include "operators/window/windows.h"

#include "core/civil.h"
#include "lang/lang.h"
#include "unit/support/random.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct test {
    struct arena arena;
    struct diag_list diags;
    struct windows windows;
};

static bool make(struct test *test, const char *over, int64_t offset_us, const char *zone, unsigned allowed)
{
    *test = (struct test){0};
    diag_list_init(&test->diags, &test->arena);
    struct operator_bind bind = {.arena = &test->arena, .diags = &test->diags};
    const struct ast *ast = lang_parse_value(&test->arena, &test->diags, str_from(over));
    assert_non_null(ast);
    bool is_good = windows_bind(&bind, ast, allowed, offset_us, str_from(zone), &test->windows);
    assert_int_equal(is_good, test->diags.errors == 0);
    return is_good;
}

static int64_t at(const char *text)
{
    int64_t time;
    assert_true(civil_parse(str_from(text), &time));
    return time;
}

/* first..last must be exactly the windows that hold the time; likewise for panes. */
static void check_time(const struct windows *w, int64_t time)
{
    int64_t first = windows_first(w, time), last = windows_last(w, time), pane = windows_pane(w, time);
    assert_true(first <= last);
    for (int64_t k = first - 3; k <= last + 3; k++) {
        bool is_window = windows_of_pane(w, k).last >= k || w->tag != WINDOWS_CUMULATING;
        bool holds = is_window && windows_start(w, k) <= time && time < windows_end(w, k);
        if (holds != (k >= first && k <= last))
            fail_msg("window %lld and time %lld, of %lld..%lld", (long long)k, (long long)time,
                     (long long)first, (long long)last);
    }
    for (int64_t k = first; k < last; k++)
        assert_int_equal(windows_next(w, k), k + 1);
    int64_t next = windows_next(w, last);
    assert_true(windows_start(w, next) > time);
    if (w->tag == WINDOWS_CUMULATING)
        assert_int_equal(windows_start(w, next), windows_end(w, last));
    assert_true(windows_pane_start(w, pane) <= time && time < windows_pane_end(w, pane));
    struct windows_range windows = windows_of_pane(w, pane);
    assert_true(windows.first == first && windows.last == last);
    for (int64_t k = first; k <= last; k++) {
        struct windows_range panes = windows_panes(w, k);
        assert_true(panes.first <= pane && pane <= panes.last);
        assert_int_equal(windows_pane_start(w, panes.first), windows_start(w, k));
        assert_int_equal(windows_pane_end(w, panes.last), windows_end(w, k));
        assert_true((uint64_t)(panes.last - panes.first) < windows_panes_count(w));
    }
}

static void test_against_definition(void **state)
{
    (void)state;
    static const struct {
        const char *over, *zone;
        int64_t offset;
    } cases[] = {{"tumbling(1h)", "", 0},
                 {"tumbling(7ms)", "", 3000},
                 {"tumbling(1d)", "", 6 * US_PER_HOUR},
                 {"sliding(10s, 2s)", "", 0},
                 {"sliding(10s, 3s)", "", US_PER_SECOND},
                 {"sliding(10s, 10s)", "", 0},
                 {"sliding(1d, 7h)", "", 0},
                 {"cumulating(1d, 1h)", "", 0},
                 {"cumulating(10s, 10s)", "", US_PER_SECOND},
                 {"tumbling(1d)", "Europe/Berlin", 0},
                 {"tumbling(1w)", "Europe/Berlin", 4 * US_PER_DAY},
                 {"tumbling(1d)", "America/Havana", 30 * US_PER_MINUTE},
                 {"tumbling(1d)", "Pacific/Apia", 0},
                 {"sliding(7d, 1d)", "Europe/Berlin", 0},
                 {"sliding(3d, 2d)", "America/Sao_Paulo", US_PER_HOUR},
                 {"cumulating(1d, 1h)", "Europe/Berlin", 0},
                 {"cumulating(2d, 5h)", "Australia/Lord_Howe", 0}};
    struct test_random random = {3};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct test test;
        /* 5 h does not divide 2 d. */
        bool is_good = make(&test, cases[i].over, cases[i].offset, cases[i].zone, WINDOWS_ALL);
        if (strcmp(cases[i].over, "cumulating(2d, 5h)") == 0) {
            assert_false(is_good);
            arena_free(&test.arena);
            continue;
        }
        assert_true(is_good);
        for (int n = 0; n < 3000; n++) {
            int64_t time = at("2010-01-01") + (int64_t)(random_next(&random) % (uint64_t)(6000 * US_PER_DAY));
            if (n % 3 == 0)
                time = (n % 2 == 0 ? at("2024-03-30") : at("2011-12-28")) +
                       (int64_t)random_below(&random, 96 * 60) * US_PER_MINUTE;
            if (n % 7 == 0)
                time = windows_start(&test.windows, windows_last(&test.windows, time)) - (n & 1);
            check_time(&test.windows, n % 11 == 0 ? -time : time);
        }
        (void)windows_first(&test.windows, TIME_MIN);
        (void)windows_last(&test.windows, TIME_MAX);
        arena_free(&test.arena);
    }
}

static void check_window(const struct windows *w, const char *time, const char *start, const char *end)
{
    int64_t k = windows_first(w, at(time));
    assert_int_equal(windows_start(w, k), at(start));
    assert_int_equal(windows_end(w, k), at(end));
}

/* Days of 23 and 25 hours, months by days, weeks from Monday, times before 1970. */
static void test_examples(void **state)
{
    (void)state;
    struct test test;
    assert_true(make(&test, "tumbling(1d)", 0, "Europe/Berlin", WINDOWS_ALL));
    check_window(&test.windows, "2024-03-31T12:00:00", "2024-03-30T23:00:00", "2024-03-31T22:00:00");
    check_window(&test.windows, "2024-10-27T12:00:00", "2024-10-26T22:00:00", "2024-10-27T23:00:00");
    check_window(&test.windows, "2024-10-27T23:00:00", "2024-10-27T23:00:00", "2024-10-28T23:00:00");
    check_window(&test.windows, "2150-07-01T12:00:00", "2150-06-30T22:00:00", "2150-07-01T22:00:00");
    arena_free(&test.arena);
    assert_true(make(&test, "cumulating(1d, 1h)", 0, "Europe/Berlin", WINDOWS_ALL));
    check_window(&test.windows, "2024-03-31T21:30:00", "2024-03-30T23:00:00", "2024-03-31T22:00:00");
    check_window(&test.windows, "2024-10-27T22:30:00", "2024-10-26T22:00:00", "2024-10-27T23:00:00");
    struct windows_range day =
        windows_of_pane(&test.windows, windows_first(&test.windows, at("2024-10-26T22:00:00")));
    assert_int_equal(day.last - day.first + 1, 25);
    day = windows_of_pane(&test.windows, windows_first(&test.windows, at("2024-03-30T23:00:00")));
    assert_int_equal(day.last - day.first + 1, 23);
    arena_free(&test.arena);
    /* Samoa had no 30 December 2011. */
    assert_true(make(&test, "tumbling(1d)", 0, "Pacific/Apia", WINDOWS_ALL));
    check_window(&test.windows, "2011-12-30T09:59:59", "2011-12-29T10:00:00", "2011-12-30T10:00:00");
    check_window(&test.windows, "2011-12-30T10:00:00", "2011-12-30T10:00:00", "2011-12-31T10:00:00");
    arena_free(&test.arena);
    assert_true(make(&test, "tumbling(1w)", 4 * US_PER_DAY, "", WINDOWS_ALL));
    check_window(&test.windows, "2026-11-22T23:00:00", "2026-11-16", "2026-11-23");
    arena_free(&test.arena);
    assert_true(make(&test, "tumbling(10s)", 0, "", WINDOWS_ALL));
    check_window(&test.windows, "1969-12-31T23:59:59.999999", "1969-12-31T23:59:50", "1970-01-01");
    arena_free(&test.arena);
    assert_true(make(&test, "sliding(10s, 2s)", 0, "", WINDOWS_ALL));
    assert_int_equal(windows_first(&test.windows, 0), -4);
    assert_int_equal(windows_last(&test.windows, 0), 0);
    assert_int_equal(windows_last(&test.windows, 1999999), 0);
    assert_int_equal(windows_last(&test.windows, 2000000), 1);
    assert_int_equal(windows_panes_count(&test.windows), 5);
    arena_free(&test.arena);
    assert_true(make(&test, "forever", 0, "", WINDOWS_ALL));
    assert_true(windows_first(&test.windows, 5) == 0 && windows_last(&test.windows, -5) == 0);
    assert_true(windows_start(&test.windows, 0) == TIME_MIN && windows_end(&test.windows, 0) == TIME_MAX);
    arena_free(&test.arena);
    assert_true(make(&test, "count(100, 30)", 0, "", WINDOWS_ALL));
    assert_int_equal(test.windows.pane_rows, 10);
    assert_int_equal(windows_panes_count(&test.windows), 10);
    arena_free(&test.arena);
}

static void test_diagnostics(void **state)
{
    (void)state;
    static const struct {
        const char *over, *zone;
        int64_t offset;
        enum diag_code code;
        const char *hint;
    } cases[] = {
        {"tumbling(0s)", "", 0, DIAG_OUT_OF_RANGE, "a duration must be from 1ms to 3650d"},
        {"tumbling(9999d)", "", 0, DIAG_OUT_OF_RANGE, "a duration must be from 1ms to 3650d"},
        {"tumbling()", "", 0, DIAG_OUT_OF_RANGE, NULL},
        {"tumbling", "", 0, DIAG_OUT_OF_RANGE, NULL},
        {"tumbling(5)", "", 0, DIAG_OUT_OF_RANGE, "a duration must be from 1ms to 3650d"},
        {"tumbling(1h, 1h)", "", 0, DIAG_OUT_OF_RANGE, NULL},
        {"thumbling(1h)", "", 0, DIAG_NOT_A_CHOICE, "did you mean `tumbling`?"},
        {"hopping(10s, 2s)", "", 0, DIAG_NOT_A_CHOICE,
         "the kinds of windows are tumbling(1h), sliding(10s, 2s), cumulating(1d, 1h), session(30m), count(100), "
         "forever"},
        {"1h", "", 0, DIAG_NOT_A_CHOICE, NULL},
        {"sliding(2s, 10s)", "", 0, DIAG_OUT_OF_RANGE,
         "the first duration is how long a window is, the second how often one begins: sliding(10s, 2s)"},
        {"sliding(3650d, 1ms)", "", 0, DIAG_OUT_OF_RANGE,
         "choose durations with a larger common divisor: sliding(1d, 1m)"},
        {"cumulating(1h, 1d)", "", 0, DIAG_OUT_OF_RANGE,
         "the longest window comes first, then the step: cumulating(1d, 1h)"},
        {"cumulating(1d, 7h)", "", 0, DIAG_OUT_OF_RANGE, NULL},
        {"cumulating(3650d, 1ms)", "", 0, DIAG_OUT_OF_RANGE, NULL},
        {"session(0s)", "", 0, DIAG_OUT_OF_RANGE, NULL},
        {"count(0)", "", 0, DIAG_OUT_OF_RANGE, "a number of rows must be from 1 to 1048576"},
        {"count(10, 20)", "", 0, DIAG_OUT_OF_RANGE, NULL},
        {"count(1m)", "", 0, DIAG_OUT_OF_RANGE, NULL},
        {"forever()", "", 0, DIAG_OUT_OF_RANGE, NULL},
        {"tumbling(1h)", "", US_PER_HOUR, DIAG_OPTIONS_CLASH,
         "windows that are moved by one whole step are the same windows"},
        {"sliding(10s, 2s)", "", 3 * US_PER_SECOND, DIAG_OPTIONS_CLASH, NULL},
        {"session(10s)", "", US_PER_SECOND, DIAG_OPTIONS_CLASH, NULL},
        {"forever", "Europe/Berlin", 0, DIAG_OPTIONS_CLASH, NULL},
        {"tumbling(1h)", "Europe/Berlin", 0, DIAG_OPTIONS_CLASH, NULL},
        {"sliding(1d, 1h)", "Europe/Berlin", 0, DIAG_OPTIONS_CLASH, NULL},
        {"tumbling(1d)", "Europe/Berlim", 0, DIAG_NOT_A_CHOICE, "did you mean \"Europe/Berlin\"?"},
        {"tumbling(1d)", "Mars/Olympus", 0, DIAG_NOT_A_CHOICE, NULL},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct test test;
        assert_false(make(&test, cases[i].over, cases[i].offset, cases[i].zone, WINDOWS_ALL));
        const struct diag *diag = &test.diags.items[0];
        if (test.diags.count != 1 || diag->code != cases[i].code ||
            (cases[i].hint != NULL && (diag->hint == NULL || strcmp(diag->hint, cases[i].hint) != 0))) {
            diag_print(stderr, &test.diags, NULL, false);
            fail_msg("%s offset %lld zone %s", cases[i].over, (long long)cases[i].offset, cases[i].zone);
        }
        arena_free(&test.arena);
    }
    struct test test;
    assert_false(make(&test, "session(10s)", 0, "", WINDOWS_OF_TIME));
    assert_string_equal(
        test.diags.items[0].hint,
        "the kinds of windows are tumbling(1h), sliding(10s, 2s), cumulating(1d, 1h), forever");
    arena_free(&test.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_definition),
                                       cmocka_unit_test(test_examples), cmocka_unit_test(test_diagnostics)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
