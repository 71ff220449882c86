#include "cmocka_all.h"
#include "core/buffer.h"

static void test_append(void **state)
{
    (void)state;
    struct byte_buffer buffer = {0};
    buffer_append(&buffer, NULL, 0);
    assert_int_equal(buffer.length, 0);
    for (int i = 0; i < 10000; i++)
        buffer_printf(&buffer, "%d,", i % 10);
    assert_int_equal(buffer.length, 20000);
    assert_memory_equal(buffer.data + 19998, "9,", 2);
    memcpy(buffer_reserve(&buffer, 3), "xyz", 3);
    assert_int_equal(buffer.length, 20000);
    const char *data = buffer.data;
    buffer_clear(&buffer);
    buffer_append(&buffer, "ab", 2);
    assert_ptr_equal(buffer.data, data);
    assert_memory_equal(buffer.data, "ab", 2);
    buffer_free(&buffer);
    assert_null(buffer.data);
}

static void test_wrap(void **state)
{
    (void)state;
    static const struct {
        const char *text, *wrapped;
    } cases[] = {
        {"", ""},
        {"one", "one"},
        {"one two", "one two"},
        {"one two three", "one two\n  three"},
        {"muchlongerthantheline", "muchlongerthantheline"},
        {"a muchlongerthantheline b", "a\n  muchlongerthantheline\n  b"},
        {"\xC3\xA4\xC3\xB6\xC3\xBC \xC3\xA4\xC3\xB6\xC3\xBC x",
         "\xC3\xA4\xC3\xB6\xC3\xBC \xC3\xA4\xC3\xB6\xC3\xBC\n  x"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct byte_buffer buffer = {0};
        buffer_wrap(&buffer, 2, 2, 10, str_from(cases[i].text));
        buffer_append(&buffer, "", 1);
        assert_string_equal(buffer.data, cases[i].wrapped);
        buffer_free(&buffer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append),
        cmocka_unit_test(test_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
