/* Records of many kinds in one stream, long texts, and the variants of the scan through them: what the
 * decoder learns makes it faster, but never changes a result. */
#include "formats/json_scan.h"
#include "unit/formats/harness.h"
#include "unit/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { RECORDS = 4000, KINDS = 40, MEMBERS = 5, TEXT_MAX = 200 };

static size_t plain_bytes(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (text[i] == '"' || text[i] == '\\' || (signed char)text[i] < 0x20)
            return i;
    return length;
}

static void test_every_way_finds_the_same_end(void **state)
{
    (void)state;
    static const char specials[] = "\"\\\x1f\x00\n\x80\xff";
    char text[TEXT_MAX + JSON_SCAN_STEP], copy[TEXT_MAX + 2 * JSON_SCAN_STEP];
    for (size_t i = 0; i < JSON_SCANS; i++) {
        if (!json_scans[i].is_supported())
            continue;
        for (size_t length = 0; length <= TEXT_MAX; length++)
            for (size_t special = 0; special < sizeof(specials); special++) {
                memset(text, special % 2 == 0 ? ' ' : 0x7f, sizeof(text));
                size_t at = special == sizeof(specials) - 1 ? length : length * 7 % (length + 1);
                text[at] = specials[special];
                size_t expected = plain_bytes(text, length);
                size_t skipped = json_scans[i].skip_plain(text, text + length);
                memset(copy, 0, sizeof(copy));
                size_t copied = json_scans[i].copy_plain(text, text + length, copy);
                assert_true(expected < length ? skipped == expected : skipped >= length);
                assert_int_equal(copied, skipped);
                assert_memory_equal(copy, text, expected);
            }
    }
    assert_true(json_scan_best()->is_supported());
}

/* A kind of record: its members, their order, and the space between them. */
struct kind {
    uint32_t order[MEMBERS], count;
    const char *space;
};

static void make_text(struct test_random *random, char *text)
{
    size_t length = random_below(random, random_below(random, 8) == 0 ? TEXT_MAX : 30);
    for (size_t i = 0; i < length; i++)
        text[i] = (char)('a' + random_below(random, 26));
    text[length] = '\0';
}

/* Appends a record of the kind to `in`, and the line that a decoder makes of it to `expected`. */
static void put_record(struct test_random *random, const struct kind *kind, struct byte_buffer *in,
                       struct byte_buffer *expected)
{
    char read[TEXT_MAX + 1] = "", unread[TEXT_MAX + 1] = "";
    uint64_t a = 0;
    bool has_a = false, has_b = false;
    buffer_printf(in, "{");
    for (uint32_t i = 0; i < kind->count; i++) {
        buffer_printf(in, "%s%s", i > 0 ? "," : "", kind->space);
        switch (kind->order[i]) {
        case 0:
            has_a = true;
            a = random_next(random) >> random_below(random, 63) >> 1;
            buffer_printf(in, "\"a\":%llu", (unsigned long long)a);
            break;
        case 1:
            has_b = true;
            make_text(random, read);
            buffer_printf(in, "\"b\":\"%s\"", read);
            break;
        case 2:
            make_text(random, unread);
            buffer_printf(in, "\"unread\":\"%s\"", unread);
            break;
        case 3: buffer_printf(in, "\"n\":%d", (int)random_below(random, 2000) - 1000); break;
        default: buffer_printf(in, "\"list\":[1,{\"x\":\"%d\"}]", (int)random_below(random, 9)); break;
        }
    }
    buffer_printf(in, "%s}\n", kind->space);
    if (has_a)
        buffer_printf(expected, "{\"a\":%llu,", (unsigned long long)a);
    else
        buffer_printf(expected, "{\"a\":null,");
    if (has_b)
        buffer_printf(expected, "\"b\":\"%s\"}\n", read);
    else
        buffer_printf(expected, "\"b\":null}\n");
}

static void test_many_kinds_of_records(void **state)
{
    (void)state;
    static const char *const spaces[] = {"", "", " ", "  "};
    struct test_random random = {3};
    struct kind kinds[KINDS] = {0};
    for (int k = 0; k < KINDS; k++) {
        kinds[k].space = spaces[random_below(&random, ARRAY_COUNT(spaces))];
        for (uint32_t member = 0; member < MEMBERS; member++) {
            if (random_below(&random, 3) == 0)
                continue;
            uint32_t at = random_below(&random, kinds[k].count + 1);
            memmove(&kinds[k].order[at + 1], &kinds[k].order[at],
                    (kinds[k].count - at) * sizeof(kinds[k].order[0]));
            kinds[k].order[at] = member;
            kinds[k].count++;
        }
    }
    struct arena arena = {0};
    struct byte_buffer in = {0}, expected = {0}, found = {0};
    const struct schema *schema = harness_schema(&arena, "a int, b text");
    for (int i = 0; i < RECORDS; i++) /* first runs of one kind, then a random kind for each record */
        put_record(&random, &kinds[i < RECORDS / 2 ? i / 50 % KINDS : (int)random_below(&random, KINDS)], &in,
                   &expected);
    harness_decode(&format_json, schema, NULL, in.data, in.length, BATCH_ROWS, &found);
    assert_int_equal(found.length, expected.length);
    assert_memory_equal(found.data, expected.data, found.length);
    buffer_free(&in);
    buffer_free(&expected);
    buffer_free(&found);
    arena_free(&arena);
}

/* Records that lie back to back: a text that has no end in its record must not end in the next one. */
static void test_long_texts_back_to_back(void **state)
{
    (void)state;
    static const char *const records[] = {
        "{\"a\":1,\"b\":\"a text that is longer than sixty-four bytes, because that is what one step "
        "reads\"}",
        "{\"a\":2,\"b\":\"another one that is as long, so that both are learned and then read side by "
        "side\"}",
        "{\"a\":3,\"b\":\"this one does not end, though it is longer than sixty-four bytes as well as they "
        "are",
        "{\"a\":4,\"b\":\"and this one does, which is told from the one before by the place where it "
        "begins\"}",
        "{\"a\":5,\"u\":\"nobody reads this one, which does not end in its own record, but in the next one",
        "{\"a\":6,\"u\":\"nobody reads this one, which ends in its own record, and is longer than 64 "
        "bytes\"}",
        "{\"a\":7,\"u\":\"nobody reads this one, which ends in its own record, and is longer than 64 "
        "bytes\"}",
    };
    struct arena arena = {0};
    struct byte_buffer out = {0};
    struct str payloads[ARRAY_COUNT(records)];
    for (size_t i = 0; i < ARRAY_COUNT(records); i++)
        payloads[i] = str_from(records[i]);
    harness_payloads(&format_json, harness_schema(&arena, "a int, b text"), NULL, payloads,
                     ARRAY_COUNT(records), &out);
    buffer_append(&out, "", 1);
    assert_string_equal(
        out.data, arena_printf(&arena,
                               "%s\n%s\n!%zu a text that does not end (the record ends here)\n%s\n"
                               "!%zu a text that does not end (the record ends here)\n"
                               "{\"a\":6,\"b\":null}\n{\"a\":7,\"b\":null}\n",
                               records[0], records[1], strlen(records[2]), records[3], strlen(records[4])));
    buffer_free(&out);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_way_finds_the_same_end),
        cmocka_unit_test(test_many_kinds_of_records),
        cmocka_unit_test(test_long_texts_back_to_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
