#include "cmocka_all.h"
#include "core/option.h"

static void test_ints(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"0", 0},
        {"-0", 0},
        {"42", 42},
        {"-7", -7},
        {"1_000_000", 1000000},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
        {"007", 7},
    };
    static const char *const bad[] = {"",
                                      "-",
                                      "--1",
                                      "+1",
                                      "1.0",
                                      "1e3",
                                      "_1",
                                      "1_",
                                      "-_1",
                                      " 1",
                                      "1 ",
                                      "0x10",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "99999999999999999999999",
                                      "1s",
                                      "\xC2\xB2"};
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        int64_t value = 99;
        assert_true(literal_int(str_from(good[i].text), &value));
        assert_int_equal(value, good[i].value);
    }
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        int64_t value;
        if (literal_int(str_from(bad[i]), &value))
            fail_msg("`%s` was taken for an int", bad[i]);
    }
}

static void test_floats(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } good[] = {{"1", 1}, {"-1.5", -1.5}, {"1e-3", 0.001}, {".5", 0.5}, {"1e308", 1e308}, {"1e-400", 0}};
    static const char *const bad[] = {"",       "nan", "inf", "-",    "1e", "0x1p3", "-0x1", "1e309",
                                      "-1e999", "1,5", " 1",  "1.5.", "e5", "1.0f",  "--1"};
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        double value = 99;
        assert_true(literal_float(str_from(good[i].text), &value));
        assert_true(value == good[i].value);
    }
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        double value;
        if (literal_float(str_from(bad[i]), &value))
            fail_msg("`%s` was taken for a float", bad[i]);
    }
    double value;
    char longest[80];
    memset(longest, '1', sizeof(longest));
    assert_true(literal_float((struct str){longest, 63}, &value));
    assert_false(literal_float((struct str){longest, 64}, &value));
}

static void test_durations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"1us", 1},
                {"5ms", 5000},
                {"10s", 10 * US_PER_SECOND},
                {"30m", 30 * US_PER_MINUTE},
                {"1.5h", 90 * US_PER_MINUTE},
                {"365d", 365 * US_PER_DAY},
                {"2w", 14 * US_PER_DAY},
                {"0.5ms", 500},
                {"1_000s", 1000 * US_PER_SECOND},
                {"0s", 0}};
    static const char *const bad[] = {"",
                                      "s",
                                      "10",
                                      "10 s",
                                      "10S",
                                      "1h30m",
                                      "1.0000001s",
                                      "0.3us",
                                      "1mo",
                                      "1e3s",
                                      "9e18s",
                                      "99999999999999999999s",
                                      "9223372036854775807d",
                                      "10min",
                                      "1.2.3s"};
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        int64_t value = 99;
        assert_true(literal_duration(str_from(good[i].text), &value));
        assert_int_equal(value, good[i].value);
    }
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        int64_t value;
        if (literal_duration(str_from(bad[i]), &value))
            fail_msg("`%s` was taken for a duration", bad[i]);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0B", 0},           {"7B", 7},
                {"64KiB", 64 << 10}, {"64MiB", 64 << 20},
                {"1.5GiB", 3 << 29}, {"2TB", 2000000000000},
                {"1KB", 1000},       {"16TiB", INT64_C(16) << 40}};
    static const char *const bad[] = {"",           "64",  "64M",    "64mib", "1.5B",
                                      "8388608TiB", "MiB", "64 MiB", "1KiBB"};
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        int64_t value = 99;
        assert_true(literal_bytes(str_from(good[i].text), &value));
        assert_int_equal(value, good[i].value);
    }
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        int64_t value;
        if (literal_bytes(str_from(bad[i]), &value))
            fail_msg("`%s` was taken for a size", bad[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ints),
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
