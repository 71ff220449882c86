/* CSV: quoting, headers, nulls, and records with wrong quotes, which must not swallow their neighbours. */
#include "unit/formats/harness.h"
#include "unit/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct {
    const char *schema;
    struct format_config config;
    const char *text, *expected;
} cases[] = {
    {"a int, b text", {0}, "a,b\n1,x\n2,y\n", "{\"a\":1,\"b\":\"x\"}\n{\"a\":2,\"b\":\"y\"}\n"},
    {"a int, b text", {0}, "a,b\r\n1,x\r\n\r\n2,y", "{\"a\":1,\"b\":\"x\"}\n{\"a\":2,\"b\":\"y\"}\n"},
    {"b text, a int", {0}, "z,a,b\nq,1,x\n", "{\"b\":\"x\",\"a\":1}\n"},
    {"a int, b text", {0}, "\xef\xbb\xbf\"a\",\"b\"\n1,x\n", "{\"a\":1,\"b\":\"x\"}\n"},
    {"a int, b text", {.has_no_header = true}, "1,x\n", "{\"a\":1,\"b\":\"x\"}\n"},
    {"a int, b text", {.delimiter = ';'}, "a;b\n1;x,y\n", "{\"a\":1,\"b\":\"x,y\"}\n"},
    {"a int, b text", {.delimiter = '\t'}, "a\tb\n1\tx\n", "{\"a\":1,\"b\":\"x\"}\n"},
    {"a int, b text", {0}, "a,b\n", ""},
    {"a int, b text", {0}, "", ""},
    /* Null, empty, quoted. */
    {"a int, b text", {0}, "a,b\n,\n", "{\"a\":null,\"b\":null}\n"},
    {"a int, b text", {0}, "a,b\n\"\",\"\"\n", "{\"a\":null,\"b\":\"\"}\n"},
    {"a int, b text", {0}, "a,b\n\"1\",\"x \"\"y\"\", z\"\n", "{\"a\":1,\"b\":\"x \\\"y\\\", z\"}\n"},
    {"a int, b text",
     {0},
     "a,b\n1,\"two\nlines\"\n2,\"\r\n\"\r\n",
     "{\"a\":1,\"b\":\"two\\nlines\"}\n{\"a\":2,\"b\":\"\\r\\n\"}\n"},
    {"a text",
     {0},
     "a\nsixteen bytes or\nmore than sixteen bytes\n日本\n",
     "{\"a\":\"sixteen bytes or\"}\n{\"a\":\"more than sixteen bytes\"}\n{\"a\":\"日本\"}\n"},
    /* Types. */
    {"a bool, b bool",
     {0},
     "a,b\ntrue,False\n1,0\nyes,1\n",
     "{\"a\":true,\"b\":false}\n{\"a\":true,\"b\":false}\n!0 `a`: neither true nor false\n"},
    {"a float",
     {0},
     "a\n1.5\n-2e3\nNaN\ninf\n1.5x\n 1\n1e999\n",
     "{\"a\":1.5}\n{\"a\":-2000}\n!0 `a`: not a number\n!0 `a`: not a number\n!0 `a`: not a number\n"
     "!0 `a`: not a number\n!0 `a`: a number out of range\n"},
    {"a int",
     {0},
     "a\n1.0\n1.5\n9223372036854775808\n0x10\n",
     "{\"a\":1}\n!0 `a`: not a whole number\n!0 `a`: a number out of range\n!0 `a`: not a number\n"},
    {"t datetime, u s",
     {0},
     "t,u\n2010-12-01 08:26:00,1291191960\n2010-12-01 8:26,1\n",
     "{\"t\":\"2010-12-01T08:26:00Z\",\"u\":\"2010-12-01T08:26:00Z\"}\n!0 `t`: not a time like 2015-09-12 "
     "00:46:58\n"},
    {"t datetime, u ns",
     {0},
     "t,u\n2016-12-31 23:59:60,-1001\n2016-12-30 23:59:60,1\n",
     "{\"t\":\"2017-01-01T00:00:00Z\",\"u\":\"1969-12-31T23:59:59.999998Z\"}\n!0 `t`: not a time like "
     "2015-09-12 00:46:58\n"},
    {"a bytes", {0}, "a\nAAEC\n?\n", "{\"a\":\"AAEC\"}\n!0 `a`: not base64\n"},
    {"a int!, b text", {0}, "a,b\n,x\n", "!0 `a`: empty, but the schema requires a value\n"},
    {"a int, b text", {0}, "a,b\n1,\xff\n", "!2 `b`: not valid UTF-8\n"},
    /* Wrong number of fields. */
    {"a int, b text",
     {0},
     "a,b\n1\n1,2,3\n2,y\n",
     "!1 1 fields, but the header line has 2\n!5 3 fields, but the header line has "
     "2\n{\"a\":2,\"b\":\"y\"}\n"},
    {"a int, b text", {.has_no_header = true}, "1\n", "!1 1 fields, but the schema has 2\n"},
    /* Trimmed: blanks around names, numbers, texts and quotes; a number's plus. */
    {"a int, b text",
     {.trims = true},
     " a ,\tb \n +1 , x  y \n-2,\t\n\t3\t,\"\"\n",
     "{\"a\":1,\"b\":\"x  y\"}\n{\"a\":-2,\"b\":null}\n{\"a\":3,\"b\":\"\"}\n"},
    {"a int, b text",
     {.trims = true},
     "\"a\" , \"b\"\t\r\n 1 , \" x, \"\"y\"\" \" \r\n2, \"two\nlines\" \n 3 , \"z\"",
     "{\"a\":1,\"b\":\" x, \\\"y\\\" \"}\n{\"a\":2,\"b\":\"two\\nlines\"}\n{\"a\":3,\"b\":\"z\"}\n"},
    {"a int, f float, t s, u datetime, o bool",
     {.trims = true, .has_no_header = true},
     " +7, +1.5e3 ,+2 , 2010-12-01 08:26:00 , TRUE \n",
     "{\"a\":7,\"f\":1500,\"t\":\"1970-01-01T00:00:02Z\",\"u\":\"2010-12-01T08:26:00Z\",\"o\":true}\n"},
    {"a float",
     {.trims = true},
     "a\n+\n++1\n+-1\n-+1\n+ 1\n+x\n1 1\n+1\n",
     "!0 `a`: not a number\n!0 `a`: not a number\n!0 `a`: not a number\n!0 `a`: not a number\n"
     "!0 `a`: not a number\n!0 `a`: not a number\n!0 `a`: not a number\n{\"a\":1}\n"},
    {"a int!",
     {.trims = true},
     "a\n  \n \"\" \n",
     "!2 `a`: empty, but the schema requires a value\n"
     "!2 `a`: empty, but the schema requires a value\n"},
    {"a int, b text",
     {.trims = true, .delimiter = '\t'},
     "a \t b\n 1 \t x \n\t\n",
     "{\"a\":1,\"b\":\"x\"}\n{\"a\":null,\"b\":null}\n"},
    {"a int, b text", {.trims = true, .delimiter = ' '}, "a b\n1 \tx\t\n", "{\"a\":1,\"b\":\"x\"}\n"},
    {"a int, b text",
     {.trims = true},
     "a,b\n1, \"x\"  y\n2, x \"y\"\n3, \"z\n4,\"w\" \n",
     "!8 something follows a closing quote\n!5 a quote inside a field that does not begin with a quote\n!3 a "
     "quote that is never closed\n{\"a\":4,\"b\":\"w\"}\n"},
    /* Without `trims`, blanks and pluses belong to the field. */
    {"a int, b text",
     {0},
     "a,b\n1, x \n+1,x\n 1,x\n1 ,x\n1, \"x\"\n1,\"x\" \n",
     "{\"a\":1,\"b\":\" x \"}\n!0 `a`: not a number\n!0 `a`: not a number\n!0 `a`: not a number\n!3 a quote "
     "inside a field that does not begin with a quote\n!5 something follows a closing quote\n"},
    /* Wrong quotes: one record is bad, its neighbours are good. */
    {"a int, b text",
     {0},
     "a,b\n1,\"torn\n2,y\n3,z\n",
     "!2 a quote that is never closed\n{\"a\":2,\"b\":\"y\"}\n{\"a\":3,\"b\":\"z\"}\n"},
    {"a int, b text",
     {0},
     "a,b\n1,\"torn\n2,\"y\"\n3,z\n",
     "!2 a quote that is never closed\n{\"a\":2,\"b\":\"y\"}\n{\"a\":3,\"b\":\"z\"}\n"},
    {"a int, b text",
     {0},
     "a,b\n1,\"x\"y\n2,y\n",
     "!5 something follows a closing quote\n{\"a\":2,\"b\":\"y\"}\n"},
    {"a int, b text",
     {0},
     "a,b\n1,x\"y\"\n2,y\n",
     "!3 a quote inside a field that does not begin with a quote\n{\"a\":2,\"b\":\"y\"}\n"},
    {"a int, b text",
     {0},
     "a,b\n1,x\n2,\"to the end",
     "{\"a\":1,\"b\":\"x\"}\n!2 a quote that is never closed\n"},
    {"a int, b text", {0}, "a,b\n1,x\n2,\"", "{\"a\":1,\"b\":\"x\"}\n!2 a quote that is never closed\n"},
    {"a int", {0}, "\"a\n1\n", "?has a header line whose quotes are wrong\n"},
};

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct arena arena = {0};
        const struct schema *schema = harness_schema(&arena, cases[i].schema);
        for (uint32_t at_once = 1; at_once < 4; at_once++) {
            struct byte_buffer out = {0};
            harness_decode(&format_csv, schema, &cases[i].config, cases[i].text, strlen(cases[i].text),
                           at_once, &out);
            buffer_append(&out, "", 1);
            if (strcmp(out.data, cases[i].expected) != 0)
                fail_msg("case %zu: %s\n  expected %s\n  got      %s", i, cases[i].text, cases[i].expected,
                         out.data);
            buffer_free(&out);
        }
        arena_free(&arena);
    }
}

/* A quote that stays open for longer than a record may be, and a line that is too long: one
 * bad record each. */
static void test_long(void **state)
{
    (void)state;
    struct arena arena = {0};
    const struct schema *schema = harness_schema(&arena, "a int, b text");
    struct byte_buffer text = {0}, out = {0};
    buffer_printf(&text, "a,b\n1,\"torn\n");
    size_t lines = 2 * SOURCE_RECORD_BYTES_MAX / 4;
    for (size_t i = 0; i < lines; i++)
        buffer_append(&text, "2,y\n", 4);
    buffer_printf(&text, "3,");
    memset(buffer_reserve(&text, 2 * SOURCE_RECORD_BYTES_MAX), 'x', 2 * SOURCE_RECORD_BYTES_MAX);
    text.length += 2 * SOURCE_RECORD_BYTES_MAX;
    buffer_printf(&text, "\n4,z\n");
    harness_decode(&format_csv, schema, NULL, text.data, text.length, BATCH_ROWS, &out);
    buffer_append(&out, "", 1);
    static const char first[] = "!2 a quote that is never closed\n", row[] = "{\"a\":2,\"b\":\"y\"}\n";
    assert_memory_equal(out.data, first, strlen(first));
    const char *at = out.data + strlen(first);
    for (size_t i = 0; i < lines; i++, at += strlen(row))
        assert_memory_equal(at, row, strlen(row));
    assert_string_equal(at, "!1048576 a record longer than 1 MiB\n{\"a\":4,\"b\":\"z\"}\n");
    buffer_free(&text);
    buffer_free(&out);
    arena_free(&arena);
}

static void test_header_check(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    const struct schema *schema = harness_schema(&arena, "a int, b text");
    assert_true(format_csv.header_check(schema, NULL, STR("b,a,c\r\n"), &diags));
    assert_false(format_csv.header_check(schema, NULL, STR("a,c\n"), &diags));
    assert_false(format_csv.header_check(schema, NULL, STR("a,b,a\n"), &diags));
    assert_int_equal(diags.count, 2);
    assert_int_equal(diags.items[0].code, DIAG_FILE_COLUMNS);
    assert_string_equal(diags.items[0].message, "the header line has no column `b`");
    assert_string_equal(diags.items[0].hint, "the header line names a, c; for files without a header line "
                                             "set `header: false`");
    assert_string_equal(diags.items[1].message, "the header line has several columns `a`");
    assert_false(format_csv.header_check(schema, NULL, STR("a, b\n"), &diags));
    assert_non_null(strstr(diags.items[2].hint, "`trim: true`"));
    assert_true(
        format_csv.header_check(schema, &(struct format_config){.trims = true}, STR("\ta , b\r\n"), &diags));
    arena_free(&arena);
}

/* The same table is written twice: plain, and with blanks and pluses. The second, decoded with `trims` in
 * batches of any size, gives the first. */
static void test_trimmed_at_random(void **state)
{
    (void)state;
    static const char *const blanks[] = {"", "", " ", "\t", "  \t ", "                      "};
    static const char *const values[] = {"",         "17",       "-3",         "0",
                                         "2.5",      "x",        "a b",        "\"\"",
                                         "\"q, r\"", "\" s \"",  "\"t\"\"u\"", "\"two\nlines\"",
                                         "1e3",      "\xc3\xa9", "\"torn",     "v\"w"};
    struct arena arena = {0};
    struct test_random random = {9};
    const struct schema *schema = harness_schema(&arena, "a int, b text, c float");
    const struct format_config strict = {.has_no_header = true},
                               trims = {.has_no_header = true, .trims = true};
    for (int round = 0; round < 400; round++) {
        struct byte_buffer plain = {0}, blank = {0}, expected = {0}, got = {0};
        for (uint32_t row = 0; row < 40; row++) {
            for (uint32_t field = 0; field < 3; field++) {
                const char *value = values[random_below(&random, ARRAY_COUNT(values))];
                bool has_plus = field != 1 && *value >= '0' && *value <= '9' && random_chance(&random, 50);
                buffer_printf(&plain, "%s%s", value, field < 2 ? "," : "\n");
                buffer_printf(&blank, "%s%s%s%s%s", blanks[random_below(&random, ARRAY_COUNT(blanks))],
                              has_plus ? "+" : "", value, blanks[random_below(&random, ARRAY_COUNT(blanks))],
                              field < 2                    ? ","
                              : random_chance(&random, 20) ? "\r\n"
                                                           : "\n");
            }
        }
        harness_decode(&format_csv, schema, &strict, plain.data, plain.length, 7, &expected);
        harness_decode(&format_csv, schema, &trims, blank.data, blank.length, 1 + random_below(&random, 9),
                       &got);
        buffer_append(&expected, "", 1);
        buffer_append(&got, "", 1);
        /* A bad record is bad in both, but at another byte. */
        const char *x = expected.data, *y = got.data;
        while (*x != '\0') {
            x += *x == '!' ? strcspn(x, " ") : 0;
            y += *y == '!' ? strcspn(y, " ") : 0;
            size_t length = strcspn(x, "\n") + 1;
            if (strncmp(x, y, length) != 0)
                fail_msg("%.*s\nis trimmed\n%.*s\nof\n%.*s", (int)length, x, (int)strcspn(y, "\n"), y,
                         (int)blank.length, blank.data);
            x += length;
            y += length;
        }
        assert_int_equal(*y, '\0');
        buffer_free(&plain);
        buffer_free(&blank);
        buffer_free(&expected);
        buffer_free(&got);
    }
    arena_free(&arena);
}

/* Texts of every length, with each special character at every place, are quoted exactly if they must be. */
static void test_quotes(void **state)
{
    (void)state;
    enum { LENGTH_MAX = 70 };
    static const char characters[] = {',', '"', '\n', '\r', ';'};
    struct arena arena = {0};
    const struct schema *schema = harness_schema(&arena, "a int, b text");
    struct batch_pool *pool = batch_pool_new();
    struct byte_buffer out = {0};
    struct batch *batch = batch_new(pool, schema, 1);
    void *encoder = format_csv.encoder_new(schema, NULL);
    batch->columns[0].ints[0] = 7;
    for (uint32_t length = 1; length <= LENGTH_MAX; length++) {
        char *text = malloc(length); /* so that a sanitizer sees a read beyond the text */
        batch->columns[1].heap = text;
        batch->columns[1].texts[0] = (struct text_ref){0, length};
        for (uint32_t at = 0; at < length; at++)
            for (size_t i = 0; i < ARRAY_COUNT(characters); i++) {
                char c = characters[i];
                memset(text, 'x', length);
                text[at] = c;
                const char *expected =
                    c == ';' ? arena_printf(&arena, "7,%.*s\n", (int)length, text)
                             : arena_printf(&arena, "7,\"%.*s%s%.*s\"\n", (int)at + 1, text,
                                            c == '"' ? "\"" : "", (int)(length - at - 1), text + at + 1);
                buffer_clear(&out);
                format_csv.encode(encoder, batch, 0, 1, &out);
                buffer_append(&out, "", 1);
                assert_string_equal(out.data, expected);
            }
        free(text);
    }
    /* An empty text, in quotes or bare. */
    static const char *const empties[] = {"7,\"\"\n", "7,\n"};
    batch->columns[1].texts[0] = (struct text_ref){0, 0};
    for (int is_bare = 0; is_bare < 2; is_bare++) {
        format_csv.encoder_free(encoder);
        encoder = format_csv.encoder_new(schema, &(struct format_config){.has_bare_empty = is_bare});
        buffer_clear(&out);
        format_csv.encode(encoder, batch, 0, 1, &out);
        buffer_append(&out, "", 1);
        assert_string_equal(out.data, empties[is_bare]);
    }
    format_csv.encoder_free(encoder);
    batch_release(batch);
    batch_pool_free(pool);
    buffer_free(&out);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),        cmocka_unit_test(test_long),
        cmocka_unit_test(test_header_check), cmocka_unit_test(test_trimmed_at_random),
        cmocka_unit_test(test_quotes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
