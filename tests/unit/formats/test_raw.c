/* Raw payloads: bytes as they are, texts that are not valid UTF-8, and the schemas that
 * raw payloads allow. */
#include "unit/formats/harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static char *decode(const char *schema_text, const struct str *payloads, uint32_t count)
{
    struct arena arena = {0};
    struct byte_buffer out = {0};
    harness_payloads(&format_raw, harness_schema(&arena, schema_text), NULL, payloads, count, &out);
    buffer_append(&out, "", 1);
    arena_free(&arena);
    return out.data;
}

static void test_texts(void **state)
{
    (void)state;
    /* The two bytes of U+00E9, in neighbouring payloads, are invalid, though together they are valid. */
    const struct str payloads[] = {STR("{\"a\":1}"), STR(""),       STR("a\xc3"),
                                   STR("\xa9z"),     STR("Zürich"), STR("\xff")};
    char *text = decode("payload text", payloads, ARRAY_COUNT(payloads));
    assert_string_equal(text, "{\"payload\":\"{\\\"a\\\":1}\"}\n{\"payload\":\"\"}\n!1 not valid UTF-8\n"
                              "!0 not valid UTF-8\n{\"payload\":\"Zürich\"}\n!0 not valid UTF-8\n");
    free(text);
    text = decode("payload text", payloads + 2, 2);
    assert_string_equal(text, "!1 not valid UTF-8\n!0 not valid UTF-8\n");
    free(text);
    text = decode("payload text", payloads + 4, 1);
    assert_string_equal(text, "{\"payload\":\"Zürich\"}\n");
    free(text);
}

static void test_bytes(void **state)
{
    (void)state;
    const struct str payloads[] = {STR("\xff\x00\x01"), STR(""), STR("a")};
    char *text = decode("b bytes", payloads, ARRAY_COUNT(payloads));
    assert_string_equal(text, "{\"b\":\"/wAB\"}\n{\"b\":\"\"}\n{\"b\":\"YQ==\"}\n");
    free(text);
}

static void test_encode(void **state)
{
    (void)state;
    struct arena arena = {0};
    const struct schema *schema = harness_schema(&arena, "b bytes");
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = harness_batch(pool, schema, 200, 7);
    struct byte_buffer out = {0};
    void *encoder = format_raw.encoder_new(schema, NULL);
    bool has_null = false;
    for (uint32_t row = 0; row < 200; row++) {
        struct str payload = column_text(&batch->columns[0], row);
        bool is_valid = column_is_valid(&batch->columns[0], row);
        has_null |= !is_valid;
        buffer_clear(&out);
        format_raw.encode(encoder, batch, row, 1, &out);
        assert_int_equal(out.length, is_valid ? payload.length : 0);
        assert_true(out.length == 0 || memcmp(out.data, payload.data, out.length) == 0);
    }
    assert_true(has_null);
    format_raw.encoder_free(encoder);
    buffer_free(&out);
    batch_release(batch);
    batch_pool_free(pool);
    arena_free(&arena);
}

static void test_schemas(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *message;
    } cases[] = {
        {"p text", NULL},
        {"p bytes", NULL},
        {"p text!", NULL},
        {"p int", "a raw payload is one column of type text or bytes, but `p` has another type"},
        {"p text, q text", "a raw payload is one column of type text or bytes, but the schema has 2 columns"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct arena arena = {0};
        struct diag_list diags;
        diag_list_init(&diags, &arena);
        assert_int_equal(format_schema_check(&format_raw, harness_schema(&arena, cases[i].schema), &diags,
                                             (struct span){0, 0}),
                         cases[i].message == NULL);
        if (cases[i].message != NULL)
            assert_string_equal(diags.items[0].message, cases[i].message);
        arena_free(&arena);
    }
    assert_ptr_equal(format_find(STR("raw")), &format_raw);
    assert_ptr_equal(format_by_suffix(STR("a.raw")), NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_encode),
        cmocka_unit_test(test_schemas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
