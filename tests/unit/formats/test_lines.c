/* Splitting lines gives the same records however many bytes or records come at once, with and
 * without AVX2's blocks. */
#include "formats/formats.h"
#include "unit/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* Splits the bytes, of which `step` more come each time, into at most `max` records at once; appends each
 * record as `[text]`. Returns the number of newlines that were counted. */
static uint32_t cut(const char *data, size_t bytes, size_t step, uint32_t max, struct byte_buffer *out)
{
    struct raw_record records[BATCH_ROWS];
    size_t used = 0, given = 0;
    uint32_t lines = 0;
    while (used < bytes) {
        given = MIN(given + step, bytes);
        struct format_split split = {.data = data + used,
                                     .bytes = given - used,
                                     .is_last = given == bytes,
                                     .max = max,
                                     .records = records};
        format_json.split(&split);
        assert_true(split.count <= max);
        for (uint32_t i = 0; i < split.count; i++)
            buffer_printf(out, "[%.*s]", (int)records[i].length, data + used + records[i].offset);
        used += split.used;
        lines += split.lines;
        assert_true(split.used > 0 || given < bytes);
    }
    return lines;
}

static void test_any_step(void **state)
{
    (void)state;
    struct test_random random = {99};
    for (int round = 0; round < 200; round++) {
        struct byte_buffer text = {0}, expected = {0};
        uint32_t count = random_below(&random, 60), newlines = 0;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t length = random_chance(&random, 20) ? 0 : random_below(&random, 150);
            bool has_end = i + 1 < count || random_chance(&random, 50);
            buffer_printf(
                &text, "%.*s", (int)length,
                "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789abcdefghijklmnopqrs"
                "tuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789abcdefghijklmnopqr");
            if (length > 0)
                buffer_printf(&expected, "[%.*s]", (int)length, text.data + text.length - length);
            if (has_end)
                buffer_printf(&text, "%s\n", random_chance(&random, 20) ? "\r" : "");
            newlines += has_end;
        }
        buffer_reserve(&text, RAW_PADDING);
        buffer_append(&expected, "", 1);
        for (size_t step = 1; step < 400; step = step * 2 + 1) {
            struct byte_buffer got = {0};
            buffer_reserve(&got, 1);
            assert_int_equal(cut(text.data, text.length, step, 1 + random_below(&random, 40), &got),
                             newlines);
            buffer_append(&got, "", 1);
            assert_string_equal(got.data, expected.data);
            buffer_free(&got);
        }
        buffer_free(&text);
        buffer_free(&expected);
    }
}

/* Records of the greatest length, one byte longer, and with a carriage return. */
static void test_limit(void **state)
{
    (void)state;
    static const struct {
        size_t length;
        const char *end;
        bool is_cut;
    } cases[] = {
        {SOURCE_RECORD_BYTES_MAX, "\n", false},  {SOURCE_RECORD_BYTES_MAX, "\r\n", false},
        {SOURCE_RECORD_BYTES_MAX, "", false},    {SOURCE_RECORD_BYTES_MAX + 1, "\n", true},
        {SOURCE_RECORD_BYTES_MAX + 1, "", true}, {SOURCE_RECORD_BYTES_MAX + 500, "\n", true},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct byte_buffer text = {0};
        memset(buffer_reserve(&text, cases[i].length), 'x', cases[i].length);
        text.length += cases[i].length;
        buffer_append(&text, cases[i].end, strlen(cases[i].end));
        buffer_reserve(&text, RAW_PADDING);
        struct raw_record records[2];
        struct format_split split = {
            .data = text.data, .bytes = text.length, .is_last = true, .max = 2, .records = records};
        format_json.split(&split);
        assert_int_equal(split.count, 1);
        assert_int_equal(split.is_cut, cases[i].is_cut);
        assert_int_equal(records[0].length,
                         cases[i].is_cut ? SOURCE_RECORD_BYTES_MAX + 1 : (uint32_t)cases[i].length);
        /* While more bytes may come, a record is given out once its end or too many bytes are there. */
        split.is_last = false;
        split.bytes = MIN(text.length, (size_t)SOURCE_RECORD_BYTES_MAX + 2);
        format_json.split(&split);
        bool is_open = cases[i].end[0] == '\0' || split.bytes < text.length;
        assert_int_equal(split.count,
                         is_open && !(cases[i].is_cut && split.bytes > SOURCE_RECORD_BYTES_MAX + 1) ? 0 : 1);
        buffer_free(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_step), cmocka_unit_test(test_limit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
