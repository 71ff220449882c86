/* Random records that Avro C wrote, and such records with bytes changed: the decoder and Avro C's own reader
 * say the same of them, but for what Avro C lets pass. */
#include "formats/payload.h"
#include "unit/formats/avro_cases.h"
#include "unit/formats/avro_reference.h"
#include "unit/formats/harness.h"
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

/* A batch of records of a case; *good counts those that both read. */
static void check_batch(const struct avro_case *test, struct test_random *random, bool is_mutated,
                        unsigned *good)
{
    struct arena arena = {0};
    struct diag_list diags;
    struct byte_buffer bytes = {0}, text = {0};
    struct raw_record records[RECORDS];
    static char expected[TEXT_BYTES];
    char data[BYTES_MAX];
    diag_list_init(&diags, &arena);
    const struct schema *schema = harness_schema(&arena, test->columns);
    struct payload *payload =
        payload_of_text(&format_avro, "s.avsc", str_from(test->schema), STR(""), schema, &diags);
    struct format_config config = {.payload = payload};
    struct batch_pool *pool = batch_pool_new();
    assert_non_null(payload);
    for (uint32_t i = 0; i < RECORDS; i++) {
        size_t length = avro_reference_write(test->schema, draw, random, data, sizeof(data));
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
    void *decoder = format_avro.decoder_new(schema, &config);
    format_avro.decode(decoder, &raw, &output);
    for (uint32_t row = 0; row < RECORDS; row++) {
        bool is_good =
            avro_reference_read(test->schema, bytes.data + records[row].offset, records[row].length,
                                test->names, test->is_float, expected, sizeof(expected));
        buffer_clear(&text);
        harness_exact(&output, row, &text);
        bool is_bad = text.data[0] == '!';
        *good += is_good && !is_bad;
        assert_true(is_mutated || is_good);
        if (is_good && is_bad && !avro_case_is_stricter(text.data))
            assert_string_equal(text.data, expected);
        if (!is_good && !is_bad)
            assert_string_equal(text.data, "!");
        if (is_good && !is_bad)
            assert_string_equal(text.data, expected);
    }
    format_avro.decoder_free(decoder);
    batch_release(output.batch);
    batch_pool_free(pool);
    payload_close(payload);
    buffer_free(&bytes);
    buffer_free(&text);
    arena_free(&arena);
}

static void test_written_by_avro_c(void **state)
{
    (void)state;
    struct test_random random = {17};
    for (size_t i = 0; i < AVRO_CASES; i++) {
        unsigned good = 0;
        for (int round = 0; round < ROUNDS; round++)
            check_batch(&avro_cases[i], &random, false, &good);
        assert_int_equal(good, ROUNDS * RECORDS);
    }
}

static void test_changed_bytes(void **state)
{
    (void)state;
    struct test_random random = {18};
    for (size_t i = 0; i < AVRO_CASES; i++) {
        unsigned good = 0;
        for (int round = 0; round < ROUNDS; round++)
            check_batch(&avro_cases[i], &random, true, &good);
        assert_in_range(good, ROUNDS * RECORDS / 5, ROUNDS * RECORDS * 19 / 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_by_avro_c),
        cmocka_unit_test(test_changed_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
