/* JSON decoded in three ways: many records by one decoder, which learns their form; each record by
 * a new decoder, which has learned nothing; and by simdjson. All must agree, on good records and
 * on damaged ones. */
#include "unit/formats/harness.h"
#include "unit/formats/json_reference.h"
#include "unit/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ROUNDS = 60, RECORDS = 600, RECORD_BYTES = 1024, TEXT_BYTES = 8192 };

/* Where the schema has no lists, leat decodes two records at once. */
static const struct {
    const char *text;
    size_t fields;
} schemas[] = {
    {"i int, f float, s text, b bool, t ms, l [int], e [{x int, y text}]", 7},
    {"i int, f float, s text, b bool, t ms", 5},
    {"i int", 1},
};

static const char *const seeds[] = {
    "{\"i\":1,\"f\":0.5,\"s\":\"abc\",\"b\":true,\"t\":1700000000445,\"l\":[1,2,3],\"e\":[{\"x\":1,\"y\":"
    "\"q\"}]}",
    "{\"i\":1234567,\"f\":-12.125,\"s\":\"sixteen bytes and "
    "more\",\"b\":false,\"t\":1700000000446,\"l\":[],\"e\":[]}",
    "{\"i\": 12345678, \"f\": 1e-7, \"s\": \"\\u00e9\\n\", \"b\": true, \"t\": 0, \"l\": [null], \"e\": "
    "[null]}",
    "{\"e\":[{\"y\":\"z\",\"x\":-5},{}],\"l\":[-9223372036854775808],\"t\":-1,\"b\":false,\"s\":\"\",\"f\":3,"
    "\"i\":-0}",
    "{\"i\":null,\"f\":null,\"s\":null,\"b\":null,\"t\":null,\"l\":null,\"e\":null}",
    "{\"i\":9223372036854775807,\"u\":{\"v\":[1,{\"w\":\"x\"}],\"z\":null},\"f\":123456.789012345678,\"s\":"
    "\"日本\"}",
    "{\"i\":17.00,\"f\":100,\"t\":12.3456789,\"x\":\"\\ud83d\\ude00\",\"k\":[[[]],{},true,false,-1.5e+10]}",
    "{}",
    "{\"f\":1.7976931348623157e308,\"i\":99999999999999999999}",
    "{\"s\":\"a\\\"b\\\\c\\/\\b\\f\\r\\t\",\"i\":0}",
};

struct fixture {
    struct arena arena;
    const struct schema *schema;
    struct batch_pool *pool;
    struct byte_buffer together[RECORDS], alone;
    struct byte_buffer data;
    struct raw_record records[RECORDS];
    size_t fields;
    uint32_t good, bad, unsure;
};

static void decode(struct fixture *fixture, void *decoder, char *data, size_t bytes,
                   struct raw_record *records, uint32_t count, struct byte_buffer *texts)
{
    struct raw_batch raw = {.data = data, .data_bytes = bytes, .records = records, .count = count};
    struct batch *batch = batch_new(fixture->pool, fixture->schema, count);
    struct decode_output output = {.batch = batch};
    output.bad = arena_array(&batch->arena, struct bad_record, count);
    format_json.decode(decoder, &raw, &output);
    for (uint32_t row = 0; row < count; row++) {
        buffer_clear(&texts[row]);
        harness_exact(&output, row, &texts[row]);
    }
    batch_release(batch);
}

static size_t mutate(struct test_random *random, char *record, size_t length)
{
    static const char spice[] = "{}[]\",:\\tfn0129.-+eE \t\x80\xff\xc3\xa9";
    uint32_t times = random_below(random, 4);
    for (uint32_t i = 0; i < times && length > 0; i++) {
        size_t at = random_below(random, (uint32_t)length);
        size_t span = 1 + random_below(random, 8);
        span = MIN(span, length - at);
        switch (random_below(random, 4)) {
        case 0: record[at] = spice[random_below(random, sizeof(spice) - 1)]; break;
        case 1:
            memmove(record + at, record + at + span, length - at - span);
            length -= span;
            break;
        case 2:
            if (length + span <= RECORD_BYTES) {
                memmove(record + at + span, record + at, length - at);
                length += span;
            }
            break;
        default: length = at; break;
        }
    }
    for (size_t i = 0; i < length; i++)
        record[i] = record[i] == '\n' ? ' ' : record[i];
    return length;
}

/* Fills the fixture's data with RECORDS records. separator: text between records, "": they lie
 * back to back. */
static void make_records(struct fixture *fixture, struct test_random *random, const char *separator,
                         uint32_t mutilated_percent)
{
    uint32_t favourite = random_below(random, ARRAY_COUNT(seeds));
    buffer_clear(&fixture->data);
    for (uint32_t i = 0; i < RECORDS; i++) {
        char record[RECORD_BYTES + 16];
        const char *seed = seeds[random_chance(random, mutilated_percent > 50 ? 70 : 98)
                                     ? favourite
                                     : random_below(random, ARRAY_COUNT(seeds))];
        size_t length = strlen(seed);
        memcpy(record, seed, length);
        if (random_chance(random, mutilated_percent))
            length = mutate(random, record, length);
        fixture->records[i] = (struct raw_record){(uint32_t)fixture->data.length, (uint32_t)length};
        buffer_append(&fixture->data, record, length);
        buffer_append(&fixture->data, separator, strlen(separator));
    }
    buffer_reserve(&fixture->data, RAW_PADDING);
}

static void check_record(struct fixture *fixture, uint32_t index)
{
    char text[TEXT_BYTES];
    const char *data = fixture->data.data + fixture->records[index].offset;
    uint32_t length = fixture->records[index].length;
    char *copy = malloc(length + RAW_PADDING);
    leat_assert(copy != NULL);
    memcpy(copy, data, length);
    void *decoder = format_json.decoder_new(fixture->schema, NULL);
    struct raw_record record = {0, length};
    decode(fixture, decoder, copy, length, &record, 1, &fixture->alone);
    format_json.decoder_free(decoder);
    free(copy);
    if (strcmp(fixture->alone.data, fixture->together[index].data) != 0)
        fail_msg("%.*s\n  alone    %s\n  together %s", (int)length, data, fixture->alone.data,
                 fixture->together[index].data);
    enum reference_verdict verdict = reference_read(data, length, fixture->fields, text, sizeof(text));
    bool is_bad = fixture->alone.data[0] == '!';
    fixture->good += !is_bad;
    fixture->bad += is_bad;
    fixture->unsure += verdict == REFERENCE_UNSURE;
    if (verdict == REFERENCE_UNSURE)
        return;
    if (is_bad != (verdict == REFERENCE_BAD) || (!is_bad && strcmp(fixture->alone.data, text) != 0))
        fail_msg("%.*s\n  leat     %s\n  simdjson %s", (int)length, data, fixture->alone.data,
                 verdict == REFERENCE_BAD ? "bad" : text);
}

static void test_all_agree(void **state)
{
    (void)state;
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    fixture->pool = batch_pool_new();
    struct test_random random = {4711};
    for (int round = 0; round < ROUNDS; round++) {
        size_t which = (size_t)round % ARRAY_COUNT(schemas);
        fixture->schema = harness_schema(&fixture->arena, schemas[which].text);
        fixture->fields = schemas[which].fields;
        void *decoder = format_json.decoder_new(fixture->schema, NULL);
        make_records(fixture, &random, round % 4 == 0 ? "" : "\n", round % 2 == 0 ? 60 : 4);
        decode(fixture, decoder, fixture->data.data, fixture->data.length, fixture->records, RECORDS,
               fixture->together);
        for (uint32_t i = 0; i < RECORDS; i++)
            check_record(fixture, i);
        format_json.decoder_free(decoder);
    }
    print_message("good %u, bad %u, of them unsure %u\n", fixture->good, fixture->bad, fixture->unsure);
    assert_true(fixture->good > ROUNDS * RECORDS / 3 && fixture->bad > ROUNDS * RECORDS / 20);
    assert_true(fixture->unsure < fixture->bad / 2);
    for (uint32_t i = 0; i < RECORDS; i++)
        buffer_free(&fixture->together[i]);
    buffer_free(&fixture->alone);
    buffer_free(&fixture->data);
    batch_pool_free(fixture->pool);
    arena_free(&fixture->arena);
    free(fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
