/* Time zones give the wall clocks of the C library, around changes of the clock and far in the future. */
#include "core/civil.h"
#include "core/zone.h"
#include "unit/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

static int64_t at(const char *text)
{
    int64_t time;
    assert_true(civil_parse(str_from(text), &time));
    return time;
}

static const struct zone *load(struct arena *arena, const char *name)
{
    const struct zone *zone;
    assert_int_equal(zone_load(arena, str_from(name), &zone), ZONE_GOOD);
    return zone;
}

static const char *const names[] = {"UTC",
                                    "Europe/Berlin",
                                    "America/New_York",
                                    "America/Sao_Paulo",
                                    "America/Havana",
                                    "Asia/Kolkata",
                                    "Asia/Beirut",
                                    "Australia/Lord_Howe",
                                    "Pacific/Apia",
                                    "Africa/Casablanca",
                                    "America/Santiago",
                                    "Europe/Dublin",
                                    "Asia/Tehran"};

static void test_as_the_c_library(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct test_random random = {5};
    for (size_t n = 0; n < ARRAY_COUNT(names); n++) {
        const struct zone *zone = load(&arena, names[n]);
        assert_int_equal(setenv("TZ", names[n], 1), 0);
        tzset();
        for (int i = 0; i < 4000; i++) {
            int64_t last = i % 2 == 0 ? at("2400-01-01") : at("2030-01-01");
            int64_t time = (int64_t)(random_next(&random) % (uint64_t)(last / US_PER_HOUR)) * US_PER_HOUR;
            time_t seconds = time / US_PER_SECOND;
            struct tm tm;
            assert_non_null(localtime_r(&seconds, &tm));
            if (zone_wall(zone, time) != time + tm.tm_gmtoff * US_PER_SECOND)
                fail_msg("%s at %lld: %lld instead of %lld s ahead", names[n], (long long)seconds,
                         (long long)((zone_wall(zone, time) - time) / US_PER_SECOND),
                         (long long)tm.tm_gmtoff);
        }
    }
    arena_free(&arena);
}

/* zone_instant gives the first instant at which the wall clock shows the given time or a later one; the test
 * finds it minute by minute. */
static void test_instants(void **state)
{
    (void)state;
    struct arena arena = {0};
    static const char *const around[] = {"2024-03-31", "2024-10-27", "2018-11-04", "2018-02-18", "2011-12-30",
                                         "2023-10-29", "2024-04-07", "2024-10-06", "2021-03-28"};
    for (size_t n = 0; n < ARRAY_COUNT(names); n++) {
        const struct zone *zone = load(&arena, names[n]);
        for (size_t k = 0; k < ARRAY_COUNT(around); k++) {
            int64_t time = at(around[k]) - 3 * US_PER_DAY, step = 30 * US_PER_MINUTE;
            for (int64_t wall = at(around[k]) - US_PER_DAY; wall < at(around[k]) + US_PER_DAY; wall += step) {
                while (zone_wall(zone, time) < wall)
                    time += US_PER_MINUTE;
                assert_int_equal(zone_instant(zone, wall), time);
            }
        }
    }
    const struct zone *berlin = load(&arena, "Europe/Berlin");
    assert_int_equal(zone_instant(berlin, at("2024-03-31T02:30:00")), at("2024-03-31T01:00:00"));
    assert_int_equal(zone_instant(berlin, at("2024-10-27T02:30:00")), at("2024-10-27T00:30:00"));
    assert_int_equal(zone_instant(berlin, TIME_MIN), TIME_MIN);
    assert_int_equal(zone_wall(berlin, TIME_MAX), TIME_MAX);
    arena_free(&arena);
}

static void test_unknown(void **state)
{
    (void)state;
    struct arena arena = {0};
    const struct zone *zone;
    static const char *const none[] = {"",        "Europe/Berlim", "../../../etc/passwd", "/etc/localtime",
                                       "Europe/", "Europe",        "Europe//Berlin",      "zone.tab",
                                       "a b"};
    for (size_t i = 0; i < ARRAY_COUNT(none); i++)
        assert_int_equal(zone_load(&arena, str_from(none[i]), &zone), ZONE_UNKNOWN);
    assert_string_equal(zone_nearest(&arena, STR("Europe/Berlim")), "Europe/Berlin");
    assert_null(zone_nearest(&arena, STR("nowhere at all")));
    arena_free(&arena);
}

/* A file that is cut is refused; one with a wrong byte is refused or read, but does no harm. */
static void test_damaged(void **state)
{
    (void)state;
    struct arena arena = {0};
    char file[4096], copy[4096];
    FILE *in = fopen(ZONE_DIRECTORY "/Europe/Berlin", "rb");
    assert_non_null(in);
    size_t bytes = fread(file, 1, sizeof(file), in);
    fclose(in);
    assert_true(bytes > 100 && bytes < sizeof(file));
    assert_non_null(zone_parse(&arena, (struct str){file, bytes}));
    for (size_t i = 0; i < bytes; i++) {
        arena_reset(&arena);
        assert_null(zone_parse(&arena, (struct str){file, i}));
        memcpy(copy, file, bytes);
        copy[i] = (char)(copy[i] ^ (i % 2 == 0 ? 0xff : 0x10));
        const struct zone *zone = zone_parse(&arena, (struct str){copy, bytes});
        if (zone != NULL)
            (void)zone_instant(zone, zone_wall(zone, at("2024-03-31")));
    }
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_the_c_library),
                                       cmocka_unit_test(test_instants), cmocka_unit_test(test_unknown),
                                       cmocka_unit_test(test_damaged)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
