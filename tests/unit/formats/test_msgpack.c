/* MessagePack: every kind of head, bad records, and damage. The bytes are as other writers make them. */
#include "unit/formats/harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct {
    const char *schema, *hex, *expected;
} cases[] = {
    {"a int, b text", "82 a161 01 a162 a178", "{\"a\":1,\"b\":\"x\"}\n"},
    {"a int, b text", "82 a162 a178 a161 01", "{\"a\":1,\"b\":\"x\"}\n"},
    {"a int, b text", "80 81 a162 d903 616263", "{\"a\":null,\"b\":null}\n{\"a\":null,\"b\":\"abc\"}\n"},
    {"a int, b text", "df00000002 d90161 ccff db0000000162 da0002 c3a9", "{\"a\":255,\"b\":\"é\"}\n"},
    {"a int", "81 a161 7f 81 a161 e0 81 a161 cdffff 81 a161 ceffffffff 81 a161 cf7fffffffffffffff",
     "{\"a\":127}\n{\"a\":-32}\n{\"a\":65535}\n{\"a\":4294967295}\n{\"a\":9223372036854775807}\n"},
    {"a int", "81 a161 d080 81 a161 d18000 81 a161 d280000000 81 a161 d38000000000000000",
     "{\"a\":-128}\n{\"a\":-32768}\n{\"a\":-2147483648}\n{\"a\":-9223372036854775808}\n"},
    {"a int", "81 a161 cfffffffffffffffff", "!3 `a`: a number out of range\n"},
    {"a int", "81 a161 cb4031000000000000 81 a161 ca41880000 81 a161 cb3ff8000000000000",
     "{\"a\":17}\n{\"a\":17}\n!3 `a`: not a whole number\n"},
    {"a int", "81 a161 cb7ff8000000000000 81 a161 cb43e0000000000000",
     "!3 `a`: not a whole number\n!3 `a`: not a whole number\n"},
    {"a float", "81 a161 cb3ff8000000000000 81 a161 ca3fc00000 81 a161 03 81 a161 a131",
     "{\"a\":1.5}\n{\"a\":1.5}\n{\"a\":3}\n!3 `a`: a float was expected\n"},
    {"a bool", "81 a161 c3 81 a161 c2 81 a161 01",
     "{\"a\":true}\n{\"a\":false}\n!3 `a`: a bool was expected\n"},
    {"a text", "81 a161 c40178 81 a161 a1ff", "!3 `a`: a text was expected\n!4 `a`: not valid UTF-8\n"},
    {"a bytes", "81 a161 c402ff00 81 a161 c50001ff 81 a161 c600000001ff 81 a161 a141",
     "{\"a\":\"/wA=\"}\n{\"a\":\"/w==\"}\n{\"a\":\"/w==\"}\n{\"a\":\"QQ==\"}\n"},
    {"t ms", "81 a174 cf0000018bcfe569bd", "{\"t\":\"2023-11-14T22:13:20.445Z\"}\n"},
    {"t ns", "81 a174 cf17979cfe50b0310f 81 a174 ff",
     "{\"t\":\"2023-11-14T22:13:20.445001Z\"}\n"
     "{\"t\":\"1969-12-31T23:59:59.999999Z\"}\n"},
    {"t ms", "81 a174 d6ff00000001", "{\"t\":\"1970-01-01T00:00:01Z\"}\n"},
    {"t ms", "81 a174 d7ff77359400000000ff", "{\"t\":\"1970-01-01T00:04:15.500Z\"}\n"},
    {"t ms", "81 a174 c70cff1dcd6500ffffffffffffffff", "{\"t\":\"1969-12-31T23:59:59.500Z\"}\n"},
    {"t ms", "81 a174 d6ff00000001 81 a174 c702ff0000 81 a174 a131",
     "{\"t\":\"1970-01-01T00:00:01Z\"}\n!3 `t`: not a timestamp\n!3 `t`: an int was expected\n"},
    {"t rfc3339", "81 a174 b4323031352d30392d31325430303a34363a35385a", "{\"t\":\"2015-09-12T00:46:58Z\"}\n"},
    {"l [int]", "81 a16c 9301c002 81 a16c 90 81 a16c 05",
     "{\"l\":[1,null,2]}\n{\"l\":[]}\n!3 `l`: a list was expected\n"},
    {"e [{x int, y text}]", "81 a165 9282a17805a179a171c0",
     "{\"e\":[{\"x\":5,\"y\":\"q\"},{\"x\":null,\"y\":null}]}\n"},
    {"e [{x int}]", "81 a165 9105", "!4 `e`: a map was expected in the list\n"},
    {"a int!", "80 81 a161 c0 81 a161 05",
     "!1 `a`: missing, but the schema requires it\n!3 `a`: null, but the schema requires a "
     "value\n{\"a\":5}\n"},
    {"a int", "82 a161 01 a161 02", "!4 `a`: given twice\n"},
    {"a int", "82 01 02 a161 05 81 a161 07", "!1 a name was expected in the map\n{\"a\":7}\n"},
    {"a int", "82 a17a 9381a16b92c0c3c7030500000001 a161 05", "{\"a\":5}\n"},
    {"a int", "93010203 81 a161 05", "!0 a map was expected as the record\n{\"a\":5}\n"},
    {"a int", "81 a161 05 c1", "{\"a\":5}\n?is damaged: a byte that MessagePack does not use\n"},
    {"a int", "81 a161 05 82 a161", "{\"a\":5}\n?ends inside a record\n"},
    {"a int", "81 a161 05 dd ffffffff", "{\"a\":5}\n?ends inside a record\n"},
};

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct arena arena = {0};
        struct byte_buffer out = {0};
        char bytes[512];
        size_t length = harness_from_hex(cases[i].hex, bytes);
        harness_decode(&format_msgpack, harness_schema(&arena, cases[i].schema), NULL, bytes, length, 2,
                       &out);
        buffer_append(&out, "", 1);
        if (strcmp(out.data, cases[i].expected) != 0)
            fail_msg("case %zu: %s\n  expected %s\n  got      %s", i, cases[i].hex, cases[i].expected,
                     out.data);
        buffer_free(&out);
        arena_free(&arena);
    }
}

static void test_too_long(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct byte_buffer data = {0}, out = {0};
    buffer_append(&data, "\x81\xa1\x61\x05\x81\xa1\x62\xdb\x00\x20\x00\x00", 12);
    memset(buffer_reserve(&data, 1 << 21), 'x', 1 << 21);
    data.length += 1 << 21;
    harness_decode(&format_msgpack, harness_schema(&arena, "a int"), NULL, data.data, data.length, 8, &out);
    buffer_append(&out, "", 1);
    assert_string_equal(out.data, "{\"a\":5}\n?is damaged, or has a record longer than 1 MiB\n");
    buffer_free(&data);
    buffer_free(&out);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_too_long)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
