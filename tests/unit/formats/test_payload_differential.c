/* Random payloads that the library of their format wrote, and such payloads with bytes changed: leat's
 * decoder and the library's reader agree, except for payloads that only leat refuses (is_stricter) and for
 * fields that only the library checks (has_unread). */
#include "formats/payload.h"
#include "unit/formats/harness.h"
#include "unit/formats/payload_cases.h"
#include "unit/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { RECORDS = 64, ROUNDS = 60, BYTES_MAX = 4096, TEXT_BYTES = 1 << 16 };

static uint64_t draw(void *argument)
{
    return random_next(argument);
}

static void mutate(struct test_random *random, char *data, size_t *bytes)
{
    uint32_t changes = random_below(random, 4);
    for (uint32_t i = 0; i<changes && * bytes> 0; i++) {
        uint32_t at = random_below(random, (uint32_t)*bytes);
        switch (random_below(random, 4)) {
        case 0: data[at] = (char)random_next(random); break;
        case 1: data[at] = (char)(data[at] ^ 1 << random_below(random, 8)); break;
        case 2: *bytes = at; break;
        default:
            memmove(data + at, data + at + 1, *bytes - at - 1);
            --*bytes;
            break;
        }
    }
}

/* Checks a batch of random payloads of a case; adds the number of payloads that both read to *good. */
static void check_batch(const struct payload_cases *cases, const struct payload_case *test,
                        struct test_random *random, bool is_mutated, unsigned *good)
{
    struct arena arena = {0};
    struct diag_list diags;
    struct byte_buffer bytes = {0}, text = {0};
    struct raw_record records[RECORDS];
    static char expected[TEXT_BYTES];
    char data[BYTES_MAX];
    diag_list_init(&diags, &arena);
    const struct schema *schema = harness_schema(&arena, test->columns);
    struct payload *payload = payload_of_text(cases->format, cases->schema_name, str_from(test->schema),
                                              str_from(cases->message), schema, &diags);
    struct format_config config = {.payload = payload};
    struct batch_pool *pool = batch_pool_new();
    assert_non_null(payload);
    for (uint32_t i = 0; i < RECORDS; i++) {
        size_t length = cases->write(test->schema, draw, random, data, sizeof(data));
        if (is_mutated)
            mutate(random, data, &length);
        records[i] = (struct raw_record){(uint32_t)bytes.length, (uint32_t)length};
        buffer_append(&bytes, data, length);
    }
    memset(buffer_reserve(&bytes, RAW_PADDING), 0x81, RAW_PADDING);
    struct raw_batch raw = {
        .data = bytes.data, .data_bytes = bytes.length, .records = records, .count = RECORDS};
    struct decode_output output = {.batch = batch_new(pool, schema, RECORDS)};
    output.bad = arena_array(&output.batch->arena, struct bad_record, RECORDS);
    void *decoder = cases->format->decoder_new(schema, &config);
    cases->format->decode(decoder, &raw, &output);
    for (uint32_t row = 0; row < RECORDS; row++) {
        bool is_good = cases->read(test->schema, bytes.data + records[row].offset, records[row].length,
                                   test->names, expected, sizeof(expected));
        buffer_clear(&text);
        harness_exact(&output, row, &text);
        bool is_bad = text.data[0] == '!';
        *good += is_good && !is_bad;
        assert_true(is_mutated || is_good);
        if (is_good && is_bad && !cases->is_stricter(text.data))
            assert_string_equal(text.data, expected);
        if (!is_good && !is_bad && !test->has_unread)
            assert_string_equal(text.data, "!");
        if (is_good && !is_bad)
            assert_string_equal(text.data, expected);
    }
    cases->format->decoder_free(decoder);
    batch_release(output.batch);
    batch_pool_free(pool);
    payload_close(payload);
    buffer_free(&bytes);
    buffer_free(&text);
    arena_free(&arena);
}

static void test_written(void **state)
{
    struct test_random random = {17};
    const struct payload_cases *cases = *state;
    for (size_t i = 0; i < PAYLOAD_CASES; i++) {
        unsigned good = 0;
        for (int round = 0; round < ROUNDS; round++)
            check_batch(cases, &cases->cases[i], &random, false, &good);
        assert_int_equal(good, ROUNDS * RECORDS);
    }
}

static void test_changed_bytes(void **state)
{
    struct test_random random = {18};
    const struct payload_cases *cases = *state;
    for (size_t i = 0; i < PAYLOAD_CASES; i++) {
        unsigned good = 0;
        for (int round = 0; round < ROUNDS; round++)
            check_batch(cases, &cases->cases[i], &random, true, &good);
        assert_in_range(good, ROUNDS * RECORDS / 5, ROUNDS * RECORDS * 19 / 20);
    }
}

#define TEST(name, cases)                                                                                    \
    {                                                                                                        \
#name ": " #cases, test_##name, NULL, NULL, (void *)(uintptr_t) & (cases)                            \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(written, avro_cases),
        TEST(changed_bytes, avro_cases),
        TEST(written, protobuf_cases),
        TEST(changed_bytes, protobuf_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
