/* Descriptions of stored state, as text and as JSON; and the values that people write, parsed. */
#include "core/describe.h"

#include "cmocka_all.h"

static void fill(struct describe *d)
{
    describe_int(d, "count", -3);
    describe_float(d, "share", 0.1);
    describe_text(d, "name", STR("a \"b\"\n"));
    describe_time(d, "seen", INT64_C(1700000000000000));
    describe_time(d, "never", TIME_MIN);
    describe_list(d, "none");
    describe_close(d);
    describe_list(d, "numbers");
    describe_int(d, NULL, 1);
    describe_float(d, NULL, 2.5);
    describe_float32(d, NULL, 0.1F);
    describe_close(d);
    describe_list(d, "panes");
    for (int i = 0; i < 2; i++) {
        describe_record(d, NULL);
        describe_int(d, "n", i);
        describe_text(d, "word", STR("x"));
        describe_close(d);
    }
    describe_close(d);
}

static void test_both_forms(void **state)
{
    (void)state;
    static const char *const expected[2] = {
        "count: -3\nshare: 0.1\nname: \"a \\\"b\\\"\\u000a\"\nseen: 2023-11-14T22:13:20Z\nnever: null\n"
        "none: none\nnumbers: 1, 2.5, 0.1\npanes:\n  - n: 0, word: x\n  - n: 1, word: x\n",
        "{\"count\": -3, \"share\": 0.1, \"name\": \"a \\\"b\\\"\\u000a\", \"seen\": "
        "\"2023-11-14T22:13:20Z\", "
        "\"never\": null, \"none\": [], \"numbers\": [1, 2.5, 0.1], \"panes\": [{\"n\": 0, \"word\": \"x\"}, "
        "{\"n\": 1, \"word\": \"x\"}]}\n"};
    for (int is_json = 0; is_json < 2; is_json++) {
        struct byte_buffer out = {0};
        struct describe d;
        describe_begin(&d, &out, is_json != 0);
        fill(&d);
        describe_end(&d);
        assert_string_equal(out.data, expected[is_json]);
        buffer_free(&out);
    }
}

static void test_values(void **state)
{
    (void)state;
    static const struct {
        enum type_tag tag;
        const char *text, *shown; /* shown: NULL: the text is no value of the type */
    } cases[] = {{TYPE_INT, "-42", "-42"},
                 {TYPE_INT, "x", NULL},
                 {TYPE_INT, "1.5", NULL},
                 {TYPE_INT, "null", "null"},
                 {TYPE_FLOAT, "0.25", "0.25"},
                 {TYPE_FLOAT, "null", "null"},
                 {TYPE_BOOL, "true", "true"},
                 {TYPE_BOOL, "yes", NULL},
                 {TYPE_TEXT, "null", "null"},
                 {TYPE_TEXT, "a b", "\"a b\""},
                 {TYPE_TEXT, "", "\"\""},
                 {TYPE_BYTES, "\x01z", "017a"},
                 {TYPE_TIME, "2024-05-01T00:00:00Z", "2024-05-01T00:00:00Z"},
                 {TYPE_TIME, "noon", NULL}};
    struct batch_pool *pool = batch_pool_new();
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct field field = {.name = STR("v"), .type = type_of(cases[i].tag)};
        struct schema schema = {.fields = &field, .count = 1};
        struct batch *batch = batch_new(pool, &schema, 1);
        bool is_value = describe_parse(batch, &batch->columns[0], &field.type, 0, str_from(cases[i].text));
        assert_int_equal(is_value, cases[i].shown != NULL);
        if (is_value) {
            struct byte_buffer out = {0};
            struct describe d;
            describe_begin(&d, &out, false);
            describe_value(&d, "v", &batch->columns[0], &field.type, 0);
            describe_end(&d);
            assert_memory_equal(out.data, "v: ", 3);
            assert_int_equal(out.length, strlen(cases[i].shown) + 4);
            assert_memory_equal(out.data + 3, cases[i].shown, strlen(cases[i].shown));
            buffer_free(&out);
        }
        batch_release(batch);
    }
    batch_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_both_forms), cmocka_unit_test(test_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
