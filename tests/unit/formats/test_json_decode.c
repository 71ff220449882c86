/* Records of JSON and the values that they give; bad records, with the position and the reason. Neighbours of
 * a bad record are not affected. */
#include "unit/formats/harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct {
    const char *schema, *line, *expected;
} cases[] = {
    /* Plain values. */
    {"a int, b text", "{\"a\":1,\"b\":\"x\"}", "{\"a\":1,\"b\":\"x\"}"},
    {"a int, b text", "{\"b\":\"x\",\"a\":1}", "{\"a\":1,\"b\":\"x\"}"},
    {"a int, b text", " { \"a\" : 1 , \"b\" : \"x\" } ", "{\"a\":1,\"b\":\"x\"}"},
    {"a int, b text", "{}", "{\"a\":null,\"b\":null}"},
    {"a int, b text", "{\"a\":null,\"b\":null}", "{\"a\":null,\"b\":null}"},
    {"a int", "{\"z\":[1,{\"y\":[]},\"t\",null,true,-1.5e3],\"a\":2,\"w\":{}}", "{\"a\":2}"},
    {"a int", "{\"a\":-9223372036854775808}", "{\"a\":-9223372036854775808}"},
    {"a int", "{\"a\":9223372036854775807}", "{\"a\":9223372036854775807}"},
    {"a int", "{\"a\":-0}", "{\"a\":0}"},
    {"a int", "{\"a\":17.000}", "{\"a\":17}"},
    {"a int", "{\"a\":1234567890123456}", "{\"a\":1234567890123456}"},
    {"a float", "{\"a\":-0.165}", "{\"a\":-0.165}"},
    {"a float", "{\"a\":3}", "{\"a\":3}"},
    {"a float", "{\"a\":1e-400}", "{\"a\":0}"},
    {"a float", "{\"a\":-2.2250738585072014e-308}", "{\"a\":-2.2250738585072014e-308}"},
    {"a float", "{\"a\":0.1234567890123456789}", "{\"a\":0.12345678901234568}"},
    {"a float", "{\"a\":9007199254740993}", "{\"a\":9.007199254740992e+15}"},
    {"a bool, b bool", "{\"a\":true,\"b\":false}", "{\"a\":true,\"b\":false}"},
    {"a text", "{\"a\":\"\"}", "{\"a\":\"\"}"},
    {"a text", "{\"a\":\"sixteen bytes ok\"}", "{\"a\":\"sixteen bytes ok\"}"},
    {"a text", "{\"a\":\"a\\\"b\\\\c\\/d\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\"}",
     "{\"a\":\"a\\\"b\\\\c/d\\u0008\\u000c\\n\\r\\té😀\"}"},
    {"a text", "{\"a\":\"Zürich 日本語 😀\"}", "{\"a\":\"Zürich 日本語 😀\"}"},
    {"a text", "{\"\\u0061\":\"escaped name\"}", "{\"a\":\"escaped name\"}"},
    {"a text", "{\"a\":\"x\\u0000y\"}", "{\"a\":\"x\\u0000y\"}"},
    {"a bytes", "{\"a\":\"AAEC/w==\"}", "{\"a\":\"AAEC/w==\"}"},
    {"a bytes", "{\"a\":\"\"}", "{\"a\":\"\"}"},
    /* Times. */
    {"t ms", "{\"t\":1700000000445}", "{\"t\":\"2023-11-14T22:13:20.445Z\"}"},
    {"t s", "{\"t\":1700000000}", "{\"t\":\"2023-11-14T22:13:20Z\"}"},
    {"t s", "{\"t\":1700000000.445123999}", "{\"t\":\"2023-11-14T22:13:20.445123Z\"}"},
    {"t s", "{\"t\":-0.5}", "{\"t\":\"1969-12-31T23:59:59.500Z\"}"},
    {"t us", "{\"t\":1700000000445001}", "{\"t\":\"2023-11-14T22:13:20.445001Z\"}"},
    {"t ns", "{\"t\":1700000000445001999}", "{\"t\":\"2023-11-14T22:13:20.445001Z\"}"},
    {"t ns", "{\"t\":-1}", "{\"t\":\"1969-12-31T23:59:59.999999Z\"}"},
    {"t ns", "{\"t\":-9223372036854775808}", "{\"t\":\"1677-09-21T00:12:43.145224Z\"}"},
    {"t ns", "{\"t\":1999.9}", "{\"t\":\"1970-01-01T00:00:00.000001Z\"}"},
    {"t rfc3339", "{\"t\":\"2015-09-12T00:46:58.771123456Z\"}", "{\"t\":\"2015-09-12T00:46:58.771123Z\"}"},
    {"t rfc3339", "{\"t\":\"2016-12-31T23:59:60.5Z\"}", "{\"t\":\"2017-01-01T00:00:00.500Z\"}"},
    {"t rfc3339", "{\"t\":\"2015-09-12T00:46:58.771Z\"}", "{\"t\":\"2015-09-12T00:46:58.771Z\"}"},
    {"t datetime", "{\"t\":\"2010-12-01 08:26:00\"}", "{\"t\":\"2010-12-01T08:26:00Z\"}"},
    /* Lists. */
    {"l [int]", "{\"l\":[1, 2,3 ]}", "{\"l\":[1,2,3]}"},
    {"l [int]", "{\"l\":[]}", "{\"l\":[]}"},
    {"l [int]", "{\"l\":[1,null]}", "{\"l\":[1,null]}"},
    {"l [text]", "{\"l\":[\"a\",\"\"]}", "{\"l\":[\"a\",\"\"]}"},
    {"l [[int]]", "{\"l\":[[1],[],[2,3]]}", "{\"l\":[[1],[],[2,3]]}"},
    {"s int, e [{aid int, ts ms, k text}]",
     "{\"s\":1,\"e\":[{\"aid\":5,\"ts\":1000,\"k\":\"x\"},{\"k\":\"y\",\"more\":[1]},null]}",
     "{\"s\":1,\"e\":[{\"aid\":5,\"ts\":\"1970-01-01T00:00:01Z\",\"k\":\"x\"},"
     "{\"aid\":null,\"ts\":null,\"k\":\"y\"},{\"aid\":null,\"ts\":null,\"k\":null}]}"},
    /* Bad records. */
    {"a int", "", NULL},
    {"a int", "   ", "!3 a record begins with `{` (the record ends here)"},
    {"a int", "[1]", "!0 a record begins with `{`"},
    {"a int", "{\"a\":1", "!6 `,` or `}` was expected (the record ends here)"},
    {"a int", "{\"a\":1,", "!7 a name in quotes was expected (the record ends here)"},
    {"a int", "{\"a\":1,}", "!7 a name in quotes was expected"},
    {"a int", "{\"a\":1}x", "!7 something follows the record"},
    {"a int", "{\"a\":1}{\"a\":2}", "!7 something follows the record"},
    {"a int", "{\"a\" 1}", "!5 `:` was expected"},
    {"a int", "{a:1}", "!1 a name in quotes was expected"},
    {"a int", "{\"a\":1 \"b\":2}", "!7 `,` or `}` was expected"},
    {"a int", "{\"a\":1.5}", "!5 `a`: not a whole number"},
    {"a int", "{\"a\":1e3}", "!5 `a`: not a whole number"},
    {"a int", "{\"a\":9223372036854775808}", "!5 `a`: a number out of range"},
    {"a int", "{\"a\":123456789012345678901234567890}", "!5 `a`: a number out of range"},
    {"a int", "{\"a\":01}", "!5 `a`: an int was expected, not a number"},
    {"a int", "{\"a\":+1}", "!5 `a`: an int was expected, not something that is not a JSON value"},
    {"a int", "{\"a\":\"1\"}", "!5 `a`: an int was expected, not a text"},
    {"a int", "{\"a\":true}", "!5 `a`: an int was expected, not a bool"},
    {"a int", "{\"a\":[1]}", "!5 `a`: an int was expected, not a list"},
    {"a int", "{\"a\":{}}", "!5 `a`: an int was expected, not a record"},
    {"a int", "{\"a\":1,\"a\":2}", "!7 `a`: given twice"},
    {"a int", "{\"a\":1,\"\\u0061\":2}", "!7 `a`: given twice"},
    {"a int!", "{}", "!1 `a`: missing, but the schema requires it"},
    {"a int!", "{\"a\":null}", "!5 `a`: null, but the schema requires a value"},
    {"a float", "{\"a\":NaN}", "!5 `a`: a float was expected, not something that is not a JSON value"},
    {"a float", "{\"a\":\"NaN\"}", "!5 `a`: a float was expected, not a text"},
    {"a float", "{\"a\":nan}", "!5 `a`: a float was expected, not null"},
    {"a float", "{\"a\":Infinity}", "!5 `a`: a float was expected, not something that is not a JSON value"},
    {"a float", "{\"a\":1e999}", "!5 `a`: a number out of range"},
    {"a float", "{\"a\":1.}", "!5 `a`: a float was expected, not a number"},
    {"a float", "{\"a\":.5}", "!5 `a`: a float was expected, not something that is not a JSON value"},
    {"a bool", "{\"a\":1}", "!5 `a`: a bool was expected, not a number"},
    {"a bool", "{\"a\":tru}", "!5 `a`: a bool was expected, not a bool"},
    {"a text", "{\"a\":\"\xff\"}", "!6 not valid UTF-8"},
    {"a text", "{\"a\":\"ab\xc3\"}", "!8 not valid UTF-8"},
    {"a text", "{\"a\":\"\xed\xa0\x80\"}", "!6 not valid UTF-8"},
    {"a text", "{\"a\":\"\xc0\x80\"}", "!6 not valid UTF-8"},
    {"a text", "{\"a\":\"\\ud800\"}", "!8 a high surrogate without a low one"},
    {"a text", "{\"a\":\"\\udc00\"}", "!8 a low surrogate without a high one"},
    {"a text", "{\"a\":\"\\u12g4\"}", "!8 `\\u` takes four hex digits"},
    {"a text", "{\"a\":\"\\x\"}", "!7 an unknown escape"},
    {"a text", "{\"a\":\"a\tb\"}", "!7 a control character in a text"},
    {"a text", "{\"a\":\"abc", "!9 a text that does not end (the record ends here)"},
    {"a text", "{\"a\":\"abc\\", "!10 an unknown escape (the record ends here)"},
    {"a text", "{\"a\":'x'}", "!5 `a`: a text was expected, not something that is not a JSON value"},
    {"a bytes", "{\"a\":\"AAE\"}", "!5 `a`: not base64"},
    {"a bytes", "{\"a\":\"AA*=\"}", "!5 `a`: not base64"},
    {"a bytes", "{\"a\":\"AAF=\"}", "!5 `a`: not base64"},
    {"t ms", "{\"t\":\"1700000000445\"}", "!5 `t`: a time was expected, not a text"},
    {"t ms", "{\"t\":9223372036854775807}", "!5 `t`: a number out of range"},
    {"t s", "{\"t\":1e9}", "!5 `t`: not a whole number"},
    {"t rfc3339", "{\"t\":\"2015-13-12T00:46:58Z\"}", "!5 `t`: not a time like 2015-09-12T00:46:58Z"},
    {"t rfc3339", "{\"t\":\"2015-09-12T12:59:60Z\"}", "!5 `t`: not a time like 2015-09-12T00:46:58Z"},
    {"t ns", "{\"t\":9223372036854775808}", "!5 `t`: a number out of range"},
    {"t rfc3339", "{\"t\":1700000000}", "!5 `t`: a time was expected, not a number"},
    {"l [int]", "{\"l\":[1,2}", "!9 `,` or `]` was expected"},
    {"l [int]", "{\"l\":[1,]}", "!8 ``: an int was expected, not something that is not a JSON value"},
    {"l [int]", "{\"l\":1}", "!5 `l`: a list was expected, not a number"},
    {"e [{x int!}]", "{\"e\":[{\"x\":1},{}]}", "!15 `x`: missing, but the schema requires it"},
    {"e [{x int}]", "{\"e\":[{\"x\":1,\"x\":1}]}", "!13 `x`: given twice"},
    {"e [{x int}]", "{\"e\":[5]}", "!6 a record was expected in the list"},
    /* Fields that are no columns are checked, too. */
    {"a int", "{\"a\":1,\"z\":nul}", "!11 something that is not a JSON value"},
    {"a int", "{\"a\":1,\"z\":NaN}", "!11 something that is not a JSON value"},
    {"a int", "{\"a\":1,\"z\":01}", "!11 something that is not a JSON value"},
    {"a int", "{\"a\":1,\"z\":\"\xff\"}", "!12 not valid UTF-8"},
    {"a int", "{\"a\":1,\"z\":[1 2]}", "!14 `,` or `]` was expected"},
    {"a int", "{\"a\":1,\"z\":[1}", "!13 `,` or `]` was expected"},
    {"a int", "{\"a\":1,\"z\":{\"k\"}}", "!15 `:` was expected"},
    {"a int", "{\"a\":1,\"z\":{\"k\":1]}", "!17 `,` or `}` was expected"},
    {"a int", "{\"a\":1,\"z\":\"\\q\"}", "!13 an unknown escape"},
    {"a int", "{\"\xff\":1}", "!2 not valid UTF-8"},
};

/* Each case alone, and between neighbours from which the decoder learns another template or
 * the case's own. */
static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct arena arena = {0};
        const struct schema *schema = harness_schema(&arena, cases[i].schema);
        const char *expected =
            cases[i].expected == NULL ? "" : arena_printf(&arena, "%s\n", cases[i].expected);
        char *got = harness_text(&format_json, schema, NULL, cases[i].line);
        if (strcmp(got, expected) != 0)
            fail_msg("case %zu: %s\n  expected %s\n  got      %s", i, cases[i].line, expected, got);
        char *between = harness_text(
            &format_json, schema, NULL,
            arena_printf(&arena, "{}\n%s\n{ }\n%s\r\n%s\n{}", cases[i].line, cases[i].line, cases[i].line));
        char *empty = harness_text(&format_json, schema, NULL, "{}");
        char *spaced = harness_text(&format_json, schema, NULL, "{ }");
        assert_string_equal(between, arena_printf(&arena, "%s%s%s%s%s%s", empty, expected, spaced, expected,
                                                  expected, empty));
        free(spaced);
        free(got);
        free(between);
        free(empty);
        arena_free(&arena);
    }
}

static void test_long_and_deep(void **state)
{
    (void)state;
    struct arena arena = {0};
    const struct schema *schema = harness_schema(&arena, "a int, b text");
    struct byte_buffer text = {0};
    /* A field of almost 1 MiB is good; a record above 1 MiB and one that is nested 100,000 deep are bad. */
    buffer_printf(&text, "{\"a\":1,\"b\":\"");
    size_t field = SOURCE_RECORD_BYTES_MAX - 100;
    memset(buffer_reserve(&text, field), 'x', field);
    text.length += field;
    buffer_printf(&text, "\"}\n{\"a\":2}\n{\"a\":3,\"b\":\"");
    field = 3 * SOURCE_RECORD_BYTES_MAX;
    memset(buffer_reserve(&text, field), 'y', field);
    text.length += field;
    buffer_printf(&text, "\"}\n{\"a\":4}\n{\"z\":");
    memset(buffer_reserve(&text, 100000), '[', 100000);
    text.length += 100000;
    memset(buffer_reserve(&text, 100000), ']', 100000);
    text.length += 100000;
    buffer_printf(&text, "}\n{\"a\":5}\n");
    struct byte_buffer out = {0};
    harness_decode(&format_json, schema, NULL, text.data, text.length, BATCH_ROWS, &out);
    buffer_append(&out, "", 1);
    const char *rest = strchr(out.data, '\n') + 1;
    assert_int_equal(rest - out.data, SOURCE_RECORD_BYTES_MAX - 100 + strlen("{\"a\":1,\"b\":\"\"}\n"));
    assert_string_equal(rest,
                        "{\"a\":2,\"b\":null}\n!1048576 a record longer than 1 MiB\n{\"a\":4,\"b\":null}\n"
                        "!1005 nested more than 1000 deep\n{\"a\":5,\"b\":null}\n");
    buffer_free(&out);
    buffer_free(&text);
    arena_free(&arena);
}

/* A bad record leaves no list elements in the batch, and no nulls among the elements of the next record. */
static void test_elements_taken_back(void **state)
{
    (void)state;
    static char text[] = "{\"l\":[1,null,3],\"e\":[{\"x\":null}],\"z\":}\n{\"l\":[4,5],\"e\":[{\"x\":6}]}\n";
    struct arena arena = {0};
    const struct schema *schema = harness_schema(&arena, "l [int], e [{x int}]");
    struct byte_buffer data = {0}, out = {0};
    buffer_append(&data, text, strlen(text));
    buffer_reserve(&data, RAW_PADDING);
    const char *newline = strchr(text, '\n');
    uint32_t first = (uint32_t)(newline - text), second = (uint32_t)strlen(newline + 1) - 1;
    struct raw_record records[] = {{0, first}, {first + 1, second}};
    struct raw_batch raw = {.data = data.data, .data_bytes = data.length, .records = records, .count = 2};
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = batch_new(pool, schema, 2);
    struct decode_output output = {.batch = batch};
    output.bad = arena_array(&batch->arena, struct bad_record, 2);
    void *decoder = format_json.decoder_new(schema, NULL);
    format_json.decode(decoder, &raw, &output);
    harness_render(schema, &output, &out);
    buffer_append(&out, "", 1);
    assert_string_equal(out.data, "!37 something that is not a JSON "
                                  "value\n{\"l\":[4,5],\"e\":[{\"x\":6}]}\n");
    assert_int_equal(batch->columns[0].child_rows, 2);
    assert_int_equal(batch->columns[1].child_rows, 1);
    format_json.decoder_free(decoder);
    batch_release(batch);
    batch_pool_free(pool);
    buffer_free(&data);
    buffer_free(&out);
    arena_free(&arena);
}

/* A record of 300 kB that would give 20 million values: the list elements of a batch are limited. */
static void test_many_elements(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct byte_buffer schema_text = {0}, text = {0}, out = {0};
    buffer_printf(&schema_text, "e [{f0 int");
    for (int i = 1; i < 200; i++)
        buffer_printf(&schema_text, ",f%d int", i);
    buffer_append(&schema_text, "}]", 3);
    const struct schema *schema = harness_schema(&arena, schema_text.data);
    buffer_printf(&text, "{\"e\":[");
    for (int i = 0; i < 100000; i++)
        buffer_append(&text, "{},", 3);
    buffer_printf(&text, "{}]}\n{\"e\":[]}\n");
    harness_decode(&format_json, schema, NULL, text.data, text.length, BATCH_ROWS, &out);
    buffer_append(&out, "", 1);
    const char *reason = strstr(out.data, " more than 16777216 values in lists\n");
    assert_non_null(reason);
    assert_int_equal(out.data[0], '!');
    buffer_free(&schema_text);
    buffer_free(&text);
    buffer_free(&out);
    arena_free(&arena);
}

/* Records that lie back to back, as messages of a broker do: a record that ends too early is bad, and the
 * decoder must not read on in its neighbour. */
static void test_back_to_back(void **state)
{
    (void)state;
    static const char *const pieces[] = {"{\"a\":1,\"b\":\"x\"}", "{\"a\":1,\"b\":\"",
                                         "{\"a\":1,\"b\":\"y\"}", "{\"a\":1",
                                         "2,\"b\":\"z\"}",        "{\"a\":7,\"b\":\"w\"}"};
    struct arena arena = {0};
    const struct schema *schema = harness_schema(&arena, "a int, b text");
    struct byte_buffer data = {0}, out = {0};
    struct raw_record records[ARRAY_COUNT(pieces) * 2];
    uint32_t count = 0;
    for (uint32_t i = 0; i < ARRAY_COUNT(records); i++) {
        const char *piece = pieces[i % ARRAY_COUNT(pieces)];
        records[count++] = (struct raw_record){(uint32_t)data.length, (uint32_t)strlen(piece)};
        buffer_append(&data, piece, strlen(piece));
    }
    buffer_reserve(&data, RAW_PADDING);
    struct raw_batch raw = {.data = data.data, .data_bytes = data.length, .records = records, .count = count};
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = batch_new(pool, schema, count);
    struct decode_output output = {.batch = batch};
    output.bad = arena_array(&batch->arena, struct bad_record, count);
    void *decoder = format_json.decoder_new(schema, NULL);
    format_json.decode(decoder, &raw, &output);
    harness_render(schema, &output, &out);
    buffer_append(&out, "", 1);
    const char *half = "{\"a\":1,\"b\":\"x\"}\n!12 a text that does not end (the record ends here)\n"
                       "{\"a\":1,\"b\":\"y\"}\n!6 `,` or `}` was expected (the record ends here)\n"
                       "!0 a record begins with `{`\n{\"a\":7,\"b\":\"w\"}\n";
    assert_string_equal(out.data, arena_printf(&arena, "%s%s", half, half));
    format_json.decoder_free(decoder);
    batch_release(batch);
    batch_pool_free(pool);
    buffer_free(&data);
    buffer_free(&out);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_long_and_deep),
        cmocka_unit_test(test_elements_taken_back),
        cmocka_unit_test(test_many_elements),
        cmocka_unit_test(test_back_to_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
