#include "cmocka_all.h"
#include "core/civil.h"
#include "unit/support/random.h"

#include <stdio.h>
#include <time.h>

static void test_known(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"1969-12-31T23:59:59.999999Z", -1},
        {"2015-09-12T00:46:58.771Z", 1442018818771000},
        {"2015-09-12 00:46:58.771", 1442018818771000},
        {"2015-09-12t02:46:58.771+02:00", 1442018818771000},
        {"2015-09-11T20:16:58.771-0430", 1442018818771000},
        {"2000-02-29", 951782400000000},
        /* A leap second is read as the second after it. */
        {"2016-12-31T23:59:60Z", 1483228800000000},
        {"2016-12-31T23:59:60.250Z", 1483228800250000},
        {"2016-12-31T15:59:60.999999-08:00", 1483228800999999},
        {"1972-07-01 01:59:60+02:00", 78796800000000},
        {"2017-01-01T00:00:00Z", 1483228800000000},
        {"2024-02-29T12:00", 1709208000000000},
        {"2024-02-29T12:00+00:00", 1709208000000000},
        {"2024-02-29T12:00:00.1Z", 1709208000100000},
        {"2024-02-29T12:00:00.123456789Z", 1709208000123456},
        {"0001-01-01T00:00:00Z", -62135596800000000},
        {"9999-12-31T23:59:59.999999Z", 253402300799999999},
    };
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        int64_t value = 99;
        if (!civil_parse(str_from(good[i].text), &value))
            fail_msg("`%s` was refused", good[i].text);
        assert_int_equal(value, good[i].value);
    }
}

static void test_bad(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "2015",
        "2015-09",
        "2015-9-12",
        "2015-13-01",
        "2015-00-01",
        "2015-01-00",
        "2015-04-31",
        "2015-02-29",
        "1900-02-29",
        "0000-01-01",
        "-2015-01-01",
        "2015-09-12T",
        "2015-09-12Z",
        "2015-09-12T24:00:00Z",
        "2015-09-12T23:60:00Z",
        "2015-09-12T23:59:60Z",
        "2016-12-31T23:59:61Z",
        "2016-12-31T23:58:60Z",
        "2016-12-31T22:59:60Z",
        "2016-12-31T23:59:60+01:00",
        "9999-12-31T23:59:60Z",
        "2015-09-12T23:59:59.",
        "2015-09-12T23:59:59.Z",
        "2015-09-12T23:59:59.1234567890123456789Z",
        "2015-09-12T23:59:59,5Z",
        "2015-09-12T23:59:59+2:00",
        "2015-09-12T23:59:59+24:00",
        "2015-09-12T23:59:59+02:60",
        "2015-09-12T23:59:59 Z",
        "2015-09-12T23:59:59ZZ",
        "2015-09-12  23:59:59",
        " 2015-09-12",
        "2015/09/12",
        "2015-09-12T23",
        "2015-09-12T23:5",
    };
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        int64_t value;
        if (civil_parse(str_from(bad[i]), &value))
            fail_msg("`%s` was taken for a time", bad[i]);
    }
    /* civil_parse reads no byte beyond the end. */
    const char whole[] = "2015-09-12T23:59:59.5+02:00";
    for (size_t length = 0; length < sizeof(whole) - 1; length++) {
        char exact[sizeof(whole)];
        memcpy(exact, whole, length);
        int64_t value;
        bool is_good = civil_parse((struct str){exact, length}, &value);
        bool may_end = length == 10 || length == 16 || length == 19 || length == 21;
        assert_int_equal(is_good, may_end);
    }
}

static void check_round_trip(int64_t value)
{
    char text[32];
    size_t length = civil_format(value, text);
    assert_true(length <= 27);
    int64_t again = value + 1;
    if (!civil_parse((struct str){text, length}, &again) || again != value)
        fail_msg("%lld became %.*s", (long long)value, (int)length, text);
    /* The C library agrees. */
    time_t seconds = (time_t)(value / US_PER_SECOND - (value % US_PER_SECOND < 0));
    struct tm tm;
    assert_non_null(gmtime_r(&seconds, &tm));
    struct civil civil = civil_from(value);
    assert_int_equal(civil.year, tm.tm_year + 1900);
    assert_int_equal(civil.month, tm.tm_mon + 1);
    assert_int_equal(civil.day, tm.tm_mday);
    assert_int_equal(civil.hour, tm.tm_hour);
    assert_int_equal(civil.minute, tm.tm_min);
    assert_int_equal(civil.second, tm.tm_sec);
    assert_int_equal(civil.weekday, tm.tm_wday == 0 ? 7 : tm.tm_wday);
}

static void test_round_trips(void **state)
{
    (void)state;
    struct test_random random = {7};
    const int64_t low = INT64_C(-62135596800000000), high = INT64_C(253402300799999999);
    check_round_trip(low);
    check_round_trip(high);
    for (int i = 0; i < 100000; i++) {
        int64_t value = low + (int64_t)(random_next(&random) % (uint64_t)(high - low));
        check_round_trip(i % 3 == 0 ? value : i % 3 == 1 ? value / 1000 * 1000 : value / 1000000 * 1000000);
    }
    for (int64_t day = -800000; day < 3000000; day += 7)
        if (day * US_PER_DAY >= low && day * US_PER_DAY <= high)
            check_round_trip(day * US_PER_DAY);
}

static void test_far_times(void **state)
{
    (void)state;
    static const int64_t far[] = {INT64_MIN, INT64_MAX, INT64_C(-62135596800000001),
                                  INT64_C(253402300800000000)};
    for (size_t i = 0; i < ARRAY_COUNT(far); i++) {
        char text[32], number[32];
        size_t length = civil_format(far[i], text);
        snprintf(number, sizeof(number), "%lld", (long long)far[i]);
        assert_int_equal(length, strlen(number));
        assert_memory_equal(text, number, length);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_far_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
