/* Avro payloads, by tables: every type in every column that can hold it; schemas that are refused when they
 * are read; payloads that are cut, have wrong lengths, or hold too many values or levels. */
#include "unit/formats/harness.h"
#include "unit/formats/payloads.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define RECORD(fields)    "{\"type\":\"record\",\"name\":\"R\",\"fields\":[" fields "]}"
#define INNER(fields)     "{\"type\":\"record\",\"name\":\"N\",\"fields\":[" fields "]}"
#define FIELD(name, type) "{\"name\":\"" name "\",\"type\":" type "}"

static const struct {
    const char *schema, *columns, *hex, *expected;
} cases[] = {
    {RECORD(FIELD("a", "\"int\"") "," FIELD("b", "\"string\"")), "a int, b text", "02 0278 | 01 00",
     "{\"a\":1,\"b\":\"x\"}\n{\"a\":-1,\"b\":\"\"}\n"},
    {RECORD(FIELD("a", "\"long\"")), "a int",
     "feffffffffffffffff01 | ffffffffffffffffff01 | 8001 | 80808080808080808002 | 8080808080808080808001 | "
     "80",
     "{\"a\":9223372036854775807}\n{\"a\":-9223372036854775808}\n{\"a\":64}\n!0 a number of more than 64 "
     "bits\n!0 a number of more than 64 bits\n!0 the payload ends inside a value\n"},
    {RECORD(FIELD("a", "\"int\"")), "a int", "feffffff0f | ffffffff0f | 8080808010",
     "{\"a\":2147483647}\n{\"a\":-2147483648}\n!0 `a`: an int of more than 32 bits\n"},
    {RECORD(FIELD("a", "\"int\"")), "a float", "05 | 8080808010",
     "{\"a\":-3}\n!0 `a`: an int of more than 32 bits\n"},
    {RECORD(FIELD("a", "\"float\"") "," FIELD("b", "\"double\"")), "a float, b float",
     "0000c03f 000000000000f83f | 0000c03f 00",
     "{\"a\":1.5,\"b\":1.5}\n!4 the payload ends inside a value\n"},
    {RECORD(FIELD("a", "\"boolean\"")), "a bool", "01 | 00 | 02 | ",
     "{\"a\":true}\n{\"a\":false}\n!0 `a`: neither true nor false\n!0 the payload ends inside a value\n"},
    {RECORD(FIELD("a", "\"bytes\"")), "a bytes", "04ff00 | 06ff00 | 01",
     "{\"a\":\"/wA=\"}\n!0 the payload ends inside a value\n!0 a negative length\n"},
    {RECORD(FIELD("a", "\"bytes\"")), "a text", "0461ff | 04c3a9",
     "!2 `a`: not valid UTF-8\n{\"a\":\"é\"}\n"},
    {RECORD(FIELD("a", "\"string\"")), "a bytes", "02ff", "{\"a\":\"/w==\"}\n"},
    {RECORD(FIELD("a", "{\"type\":\"fixed\",\"name\":\"F\",\"size\":3}")), "a bytes", "010203 | 0102",
     "{\"a\":\"AQID\"}\n!0 the payload ends inside a value\n"},
    {RECORD(FIELD("a", "{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[\"RED\",\"GREEN\"]}") "," FIELD(
         "b", "\"E\"")),
     "a text, b text", "0200 | 0402 | 0001 | 0000 | 00808080802000",
     "{\"a\":\"GREEN\",\"b\":\"RED\"}\n!0 `a`: a symbol that the enum does not have\n!1 `b`: a symbol that "
     "the enum does not have\n{\"a\":\"RED\",\"b\":\"RED\"}\n!1 `b`: a symbol number of more than 32 bits\n"},
    /* Unions. */
    {RECORD(FIELD("a", "[\"null\",\"long\"]")), "a int", "0208 | 00 | 04 | 01",
     "{\"a\":4}\n{\"a\":null}\n!0 a branch that the union does not have\n!0 a branch that the union does not "
     "have\n"},
    {RECORD(FIELD("a", "[\"null\",\"long\"]")), "a int!", "0208 | 00",
     "{\"a\":4}\n!1 `a`: null, but the schema requires a value\n"},
    {RECORD(FIELD("a", "[\"double\",\"int\",\"null\"]")), "a float", "00000000000000f83f | 0203 | 04",
     "{\"a\":1.5}\n{\"a\":-2}\n{\"a\":null}\n"},
    {RECORD(FIELD("a", "\"null\"")), "a text", "", "{\"a\":null}\n"},
    /* Times. */
    {RECORD(FIELD("t", "{\"type\":\"long\",\"logicalType\":\"timestamp-millis\"}")), "t s",
     "faa6abfef962 | feffffffffffffffff01",
     "{\"t\":\"2023-11-14T22:13:20.445Z\"}\n!0 `t`: a time out of range\n"},
    {RECORD(FIELD("t", "{\"type\":\"long\",\"logicalType\":\"timestamp-micros\"}")), "t ms", "02",
     "{\"t\":\"1970-01-01T00:00:00.000001Z\"}\n"},
    {RECORD(FIELD("t", "{\"type\":\"long\",\"logicalType\":\"timestamp-nanos\"}")), "t ms", "9e1f | 01",
     "{\"t\":\"1970-01-01T00:00:00.000001Z\"}\n{\"t\":\"1969-12-31T23:59:59.999999Z\"}\n"},
    {RECORD(FIELD("t", "\"long\"")), "t ns", "9e1f | 01",
     "{\"t\":\"1970-01-01T00:00:00.000001Z\"}\n{\"t\":\"1969-12-31T23:59:59.999999Z\"}\n"},
    {RECORD(FIELD("t", "{\"type\":\"int\",\"logicalType\":\"date\"}")), "t us", "b8b302 | 01",
     "{\"t\":\"2023-11-15T00:00:00Z\"}\n{\"t\":\"1969-12-31T00:00:00Z\"}\n"},
    {RECORD(FIELD("t", "\"long\"")), "t s", "04", "{\"t\":\"1970-01-01T00:00:02Z\"}\n"},
    {RECORD(FIELD("t", "\"string\"")), "t rfc3339", "28 323031352d30392d31325430303a34363a35385a | 0278",
     "{\"t\":\"2015-09-12T00:46:58Z\"}\n!0 `t`: not a time like 2015-09-12T00:46:58Z\n"},
    {RECORD(FIELD("t", "{\"type\":\"long\",\"logicalType\":\"timestamp-millis\"}")), "t int", "02",
     "{\"t\":1}\n"},
    /* Lists, in one block and in several, with and without a block's size in bytes. */
    {RECORD(FIELD("l", "{\"type\":\"array\",\"items\":\"int\"}")), "l [int]",
     "04 02 04 00 | 00 | 02 02 01 02 06 00 | 01 04 06 00 | 01 | 04 02",
     "{\"l\":[1,2]}\n{\"l\":[]}\n{\"l\":[1,3]}\n!0 `l`: a block with a wrong length\n!1 the payload ends "
     "inside a value\n!2 the payload ends inside a value\n"},
    {RECORD(FIELD("l", "{\"type\":\"array\",\"items\":\"int\"}")), "l [int]",
     "02 02 01 02 06 00 | 03 04 02 04 00 | 03 06 02 04 00 | ffffffffffffffffff01 00 00",
     "{\"l\":[1,3]}\n{\"l\":[1,2]}\n!0 `l`: a block with a wrong length\n!0 an impossible number of items\n"},
    {RECORD(FIELD("l", "{\"type\":\"array\",\"items\":[\"null\",\"int\"]}")), "l [int]", "04 00 0206 00",
     "{\"l\":[null,3]}\n"},
    {RECORD(FIELD("l", "[\"null\",{\"type\":\"array\",\"items\":\"string\"}]")), "l [text]",
     "00 | 02 02 0278 00", "{\"l\":null}\n{\"l\":[\"x\"]}\n"},
    {RECORD(FIELD("l", "{\"type\":\"array\",\"items\":" INNER(
                           FIELD("x", "\"int\"") "," FIELD("s", "\"string\"")) "}")),
     "l [{s text, x int}]", "04 02 0261 04 0262 00",
     "{\"l\":[{\"s\":\"a\",\"x\":1},{\"s\":\"b\",\"x\":2}]}\n"},
    {RECORD(FIELD("l", "{\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":\"long\"}}")),
     "l [[int]]", "04 04 02 04 00 00 00 | 00", "{\"l\":[[1,2],[]]}\n{\"l\":[]}\n"},
    {RECORD(FIELD("l", "{\"type\":\"array\",\"items\":[\"null\"," INNER(FIELD("x", "\"int\"")) "]}")),
     "l [{x int}]", "04 00 0206 00", "{\"l\":[{\"x\":null},{\"x\":3}]}\n"},
    {RECORD(FIELD("m", "{\"type\":\"map\",\"values\":\"int\"}")), "m [{key text, value int}]",
     "04 0261 02 0262 04 00", "{\"m\":[{\"key\":\"a\",\"value\":1},{\"key\":\"b\",\"value\":2}]}\n"},
    {RECORD(FIELD("m", "{\"type\":\"map\",\"values\":\"int\"}")), "m [{key text}]", "04 0261 02 0262 04 00",
     "{\"m\":[{\"key\":\"a\"},{\"key\":\"b\"}]}\n"},
    /* Of fields that no column takes, only the lengths are checked. */
    {RECORD(FIELD("x", "\"string\"") "," FIELD("y", "\"double\"") "," FIELD("z", "\"boolean\"") "," FIELD(
         "a", "\"int\"") "," FIELD("w", "{\"type\":\"map\",\"values\":[\"null\",\"long\"]}")),
     "a int",
     "0278 0000000000000000 01 0a 02 0261 0206 00 | 0278 00000000 | 00 0000000000000000 01 0a 01 06 0261 00 "
     "00",
     "{\"a\":5}\n!2 the payload ends inside a value\n{\"a\":5}\n"},
    {RECORD(FIELD("a", "\"int\"") "," FIELD("r",
                                            INNER(FIELD("b", "\"int\"") "," FIELD("n", "[\"null\",\"R\"]")))),
     "a int", "0a 02 00 | 0a 02 02", "{\"a\":5}\n!3 the payload ends inside a value\n"},
    {RECORD(FIELD("a", "\"int\"")), "a int", "0a 00", "!1 something follows the record\n"},
    /* Lists of 2^62 values of no bytes. */
    {RECORD(FIELD("x", "{\"type\":\"array\",\"items\":\"null\"}") "," FIELD("a", "\"int\"")), "a int",
     "feffffffffffffffff01 00 02", "!10 too many values for the length of the payload\n"},
    {RECORD(FIELD("l", "{\"type\":\"array\",\"items\":\"null\"}")), "l [int]",
     "feffffffffffffffff01 00 | 04 00", "!10 `l`: too many values in lists\n{\"l\":[null,null]}\n"},
};

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        payloads_check(&format_avro, "s.avsc", cases[i].schema, NULL, cases[i].columns, cases[i].hex,
                       cases[i].expected);
}

#define LIST(type) "{\"type\":\"array\",\"items\":" type "}"

static const struct {
    const char *schema, *columns, *expected;
} refused[] = {
    {"{", "a int", "s.avsc is not an Avro schema: line 1: string or '}' expected near end of file\n"},
    {"{\"type\":\"record\",\"type\":\"record\"}", "a int",
     "s.avsc is not an Avro schema: line 1: duplicate object key near '\"type\"'\n"},
    {"\"long\"", "a int",
     "s.avsc is long, but columns take the fields of a record [`format: raw` gives the payload as it is]\n"},
    {"\"lonk\"", "a int",
     "s.avsc is not an Avro schema: `lonk` is not a type, and no type of this name was "
     "defined before\n"},
    {RECORD(FIELD("a", "\"B\"")), "a int",
     "s.avsc is not an Avro schema: `B` is not a type, and no type of this name was defined before (in the "
     "field `a`)\n"},
    {RECORD(FIELD("a", "\"int\"") "," FIELD("a", "\"int\"")), "a int",
     "s.avsc is not an Avro schema: a record has two fields of this name (in the field `a`)\n"},
    {RECORD(FIELD("a-b", "\"int\"")), "a int",
     "s.avsc is not an Avro schema: a field of a record without a valid `name`\n"},
    {RECORD(FIELD("a", "[\"int\",[\"null\"]]")), "a int",
     "s.avsc is not an Avro schema: a union directly contains a union (in the field `a`)\n"},
    {RECORD(FIELD("a", "[]")), "a int",
     "s.avsc is not an Avro schema: a union of no types, or of more than 4096 (in the field `a`)\n"},
    {RECORD(FIELD("a", "{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[]}")), "a text",
     "s.avsc is not an Avro schema: an enum needs `symbols`, 1 to 4096 of them (in the field `a`)\n"},
    {RECORD(FIELD("a", "{\"type\":\"fixed\",\"name\":\"E\",\"size\":-1}")), "a bytes",
     "s.avsc is not an Avro schema: a fixed needs a `size` of 0 to 1 MiB (in the field `a`)\n"},
    {RECORD(FIELD("a", "{\"type\":\"enum\",\"name\":\"R\",\"symbols\":[\"X\"]}")), "a text",
     "s.avsc is not an Avro schema: `R` is defined twice (in the field `a`)\n"},
    {RECORD(FIELD("r", "\"R\"")), "a int",
     "s.avsc is not an Avro schema: a record that always contains itself has no end\n"},
    {RECORD(FIELD("a", "5")), "a int",
     "s.avsc is not an Avro schema: a type is missing, or is not a name, an object or a list (in the field "
     "`a`)\n"},
    /* Columns that do not fit the schema. */
    {RECORD(FIELD("user", "\"int\"")), "usr int, b int",
     "s.avsc has no field `usr` [did you mean `user`?]\ns.avsc has no field `b`\n"},
    {RECORD(FIELD("a", "\"string\"") "," FIELD("b", "\"double\"")), "a int, b int",
     "the field `a` of s.avsc is string, which a column of type int does not take [`leat help avro` shows "
     "which column takes which types]\nthe field `b` of s.avsc is double, which a column of type int does "
     "not take [`leat help avro` shows which column takes which types]\n"},
    {RECORD(FIELD("a", "[\"null\",\"string\"]")), "a int",
     "the field `a` of s.avsc is string, which a column of type int does not take [`leat help avro` shows "
     "which column takes which types]\n"},
    {RECORD(FIELD("t", "\"long\"")), "t rfc3339",
     "the field `t` of s.avsc is long, which a column of type time does not take [give the unit of the "
     "number: `time(ms)`, s, us or ns]\n"},
    {RECORD(FIELD("t", "\"string\"")), "t ms",
     "the field `t` of s.avsc is string, which a column of type time does not take [for a time written as "
     "text declare the column as `time(rfc3339)`]\n"},
    {RECORD(FIELD("r", "{\"type\":\"record\",\"name\":\"a.B\",\"fields\":[]}")), "r text",
     "the field `r` of s.avsc is record a.B, which a column of type text does not take [a column takes a "
     "single value or a list; records are taken only in a list]\n"},
    {RECORD(FIELD("l", LIST("\"int\""))), "l [{x int}]",
     "the field `l` of s.avsc is int, which a column of type { x: int } does not take [`leat help avro` "
     "shows which column takes which types]\n"},
    {RECORD(FIELD("m", "{\"type\":\"map\",\"values\":\"int\"}")), "m [{key text, v int}]",
     "the field `m` of s.avsc is map, which a column of type list({ key: text, v: int }) does not take "
     "[`leat help avro` shows which column takes which types]\n"},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(refused); i++)
        payloads_check_refused(&format_avro, "s.avsc", refused[i].schema, NULL, refused[i].columns,
                               refused[i].expected);
}

/* Small schemas with an enormous number of values or levels. */
static void test_huge_schemas(void **state)
{
    (void)state;
    struct byte_buffer text = {0};
    struct payloads payloads;
    /* Each record type holds the one before twice: 2^60 values of no bytes. */
    buffer_printf(&text,
                  "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"x0\",\"type\":{\"type\":"
                  "\"record\",\"name\":\"N0\",\"fields\":[]}}");
    for (int i = 1; i <= 60; i++)
        buffer_printf(
            &text,
            ",{\"name\":\"x%d\",\"type\":{\"type\":\"record\",\"name\":\"N%d\",\"fields\":[{\"name\":"
            "\"a\",\"type\":\"N%d\"},{\"name\":\"b\",\"type\":\"N%d\"}]}}",
            i, i, i - 1, i - 1);
    buffer_printf(&text, ",{\"name\":\"a\",\"type\":\"int\"}]}");
    payloads_open(&payloads, &format_avro, "s.avsc", text.data, text.length, NULL, NULL, "a int");
    assert_non_null(payloads.payload);
    char *decoded = payloads_decode(&payloads, &format_avro, "02");
    assert_string_equal(decoded, "!0 too many values for the length of the payload\n");
    free(decoded);
    payloads_close(&payloads);
    /* Types nested 100 deep. */
    buffer_clear(&text);
    for (int i = 0; i < 100; i++)
        buffer_printf(&text, "{\"type\":\"array\",\"items\":");
    buffer_printf(&text, "\"int\"");
    for (int i = 0; i < 100; i++)
        buffer_printf(&text, "}");
    payloads_open(&payloads, &format_avro, "s.avsc", text.data, text.length, NULL, NULL, "a int");
    char *errors = payloads_errors(&payloads);
    assert_string_equal(errors, "s.avsc is not an Avro schema: types are nested more than 64 deep\n");
    free(errors);
    payloads_close(&payloads);
    buffer_free(&text);
}

/* A record type that holds itself, in a field that no column takes: records nested too deep are bad. */
static void test_deep(void **state)
{
    (void)state;
    static const char schema[] = RECORD(FIELD("n", "[\"null\",\"R\"]") "," FIELD("a", "\"int\""));
    struct payloads payloads;
    char hex[2048] = "";
    for (int i = 0; i < 400; i++)
        strcat(hex, "02");
    payloads_open(&payloads, &format_avro, "s.avsc", schema, strlen(schema), NULL, NULL, "a int");
    char *text = payloads_decode(&payloads, &format_avro, hex);
    assert_string_equal(text, "!101 values are nested more than 200 deep\n");
    free(text);
    text = payloads_decode(&payloads, &format_avro, "02 02 00 02 04 06");
    assert_string_equal(text, "{\"a\":3}\n");
    free(text);
    payloads_close(&payloads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_huge_schemas),
        cmocka_unit_test(test_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
