/* Key, headers, partition, offset and time of Kafka records as columns beside those of the
 * payload; tombstones. */
#include "connectors/kafka/intake.h"
#include "lang/lang.h"
#include "unit/connectors/rig.h"
#include "unit/formats/harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* A Kafka record; value, key and header: NULL means null. */
struct record {
    const char *value, *key, *header;
    int64_t time_ms;
};

static struct kafka_meta *bind_meta(const char *text, const struct schema *schema, struct arena *arena)
{
    struct diag_list diags;
    diag_list_init(&diags, arena);
    struct option_env env = {arena, &diags, lang_parse_value};
    struct ast *block = lang_parse_value(arena, &diags, str_from(text));
    struct kafka_meta *meta = arena_new(arena, struct kafka_meta);
    assert_true(option_bind(kafka_meta_options, "meta", (struct span){0, 0}, block->entries,
                            block->entries_count, meta, &env));
    assert_true(kafka_meta_bind(meta, schema, (struct span){0, 0}, arena, &diags));
    return meta;
}

/* The headers of record `i`: one that `meta` has a column for, or, for a list of all, as many as its index says
 * (1,025 if the key is `many`), each with the key as name. */
static void put_headers(const struct kafka_meta *meta, const struct record *record, uint32_t i,
                        struct byte_buffer *out)
{
    struct str value = {record->header, record->header == NULL ? 0 : strlen(record->header)};
    bool has_list = meta->all_headers.name.length > 0;
    uint32_t count = !has_list                          ? record->header != NULL && meta->headers_count > 0
                     : strcmp(record->key, "many") == 0 ? KAFKA_LIST_MAX + 1
                                                        : i;
    for (uint32_t k = 0; k < count; k++)
        record_put_header(out, str_from(has_list ? record->key : meta->header_names[0]), value);
}

static void make_raw(struct raw_batch *raw, const struct kafka_meta *meta, const struct record *records,
                     uint32_t count)
{
    static char too_long[SOURCE_RECORD_BYTES_MAX + 100];
    struct kafka_intake intake = {0};
    const struct kafka_begin begin = {"clicks/3", "clicks", 3, 100, 0};
    for (uint32_t i = 0; i < count; i++) {
        const char *value = records[i].value, *key = records[i].key;
        bool is_long = value != NULL && strcmp(value, "LONG") == 0;
        struct byte_buffer headers = {0};
        put_headers(meta, &records[i], i, &headers);
        struct recorded record = {
            .offset = 100 + 2 * i,
            .time_ms = records[i].time_ms,
            .record = {.key = {key, key == NULL ? 0 : strlen(key)},
                       .value = {is_long ? too_long : value, value == NULL ? 0 : strlen(value)},
                       .headers = {headers.data, headers.length}}};
        if (is_long)
            record.record.value.length = sizeof(too_long);
        kafka_intake_add_recorded(&intake, meta, &record);
        buffer_free(&headers);
    }
    kafka_intake_give(&intake, &begin, true, raw);
    kafka_intake_free(&intake);
}

/* Decodes the records and compares them with `expected`: lines as harness_render writes them. */
static void check(const char *format, const char *schema_text, const char *meta_text,
                  const struct record *records, uint32_t count, const char *expected)
{
    struct arena arena = {0};
    struct raw_batch raw = {0};
    struct byte_buffer out = {0};
    const struct schema *schema = harness_schema(&arena, schema_text);
    struct kafka_meta *meta = bind_meta(meta_text, schema, &arena);
    const struct format_config config = {.delimiter = ',', .has_no_header = true};
    void *decoder = format_decoder_new(format_find(str_from(format)), meta->payload, &config);
    struct batch_pool *pool = batch_pool_new();
    kafka_meta_open(meta, false);
    make_raw(&raw, meta, records, count);
    struct batch *batch = batch_new(pool, schema, count);
    struct decode_output output = {.batch = batch,
                                   .bad = arena_array(&batch->arena, struct bad_record, count)};
    kafka_meta_decode(meta, decoder, &raw, &output);
    assert_ptr_equal(batch->schema, schema);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(batch->arrival_time[i], records[i].time_ms * 1000);
    for (uint32_t i = 1; i < output.bad_count; i++)
        assert_true(output.bad[i - 1].row < output.bad[i].row);
    harness_render(schema, &output, &out);
    buffer_append(&out, "", 1);
    assert_string_equal(out.data, expected);
    batch_release(batch);
    batch_pool_free(pool);
    format_decoder_free(decoder);
    buffer_free(&out);
    arena_free(&raw.arena);
    arena_free(&arena);
}

static void test_all_columns(void **state)
{
    (void)state;
    static const struct record records[] = {
        {"{\"a\":1,\"b\":\"x\"}", "k1", "h1", 1000},
        {"{\"a\":2}", NULL, NULL, 2000},
        {"{\"a\":3", "k3", "", 3000},
        {"{\"b\":\"\"}", "", "h4", 0},
    };
    check("json", "k bytes, a int, o int, h text, b text, p int, at ms, t text",
          "{ key: k, offset: o, headers: { h: \"x-h\" }, partition: p, timestamp: at, topic: t }", records,
          ARRAY_COUNT(records),
          "{\"k\":\"azE=\",\"a\":1,\"o\":100,\"h\":\"h1\",\"b\":\"x\",\"p\":3,\"at\":\"1970-01-01T00:00:"
          "01Z\",\"t\":"
          "\"clicks\"}\n"
          "{\"k\":null,\"a\":2,\"o\":102,\"h\":null,\"b\":null,\"p\":3,\"at\":\"1970-01-01T00:00:02Z\",\"t\":"
          "\"clicks\"}\n"
          "!6 `,` or `}` was expected (the record ends here)\n"
          "{\"k\":\"\",\"a\":null,\"o\":106,\"h\":\"h4\",\"b\":\"\",\"p\":3,\"at\":null,\"t\":\"clicks\"}\n");
}

static void test_none(void **state)
{
    (void)state;
    static const struct record records[] = {
        {"{\"a\":1}", NULL, NULL, 5}, {NULL, "k", NULL, 6}, {"{", "k", NULL, 7}};
    check("json", "a int", "{ }", records, 2,
          "{\"a\":1}\n!-1 no payload (a tombstone), and the source has no column for the key\n");
}

static void test_tombstones(void **state)
{
    (void)state;
    static const struct record records[] = {{NULL, "k0", NULL, 1},
                                            {"7,x", "k1", NULL, 2},
                                            {NULL, "k2", NULL, 3},
                                            {"bad,y", "k3", NULL, 4},
                                            {NULL, NULL, NULL, 5}};
    check("csv", "a int, b text, k text", "{ key: k }", records, 5,
          "{\"a\":null,\"b\":null,\"k\":\"k0\"}\n{\"a\":7,\"b\":\"x\",\"k\":\"k1\"}\n"
          "{\"a\":null,\"b\":null,\"k\":\"k2\"}\n!0 `a`: not a number\n{\"a\":null,\"b\":null,\"k\":null}\n");
    check("json", "a int!, k text", "{ key: k }", records, 1,
          "!-1 no payload (a tombstone): `a` is missing\n");
    check("json", "a int, k text!", "{ key: k }", records + 4, 1, "!-1 `k` is missing\n");
    check("raw", "value text, k text", "{ key: k }", records, 2,
          "{\"value\":null,\"k\":\"k0\"}\n{\"value\":\"7,x\",\"k\":\"k1\"}\n");
}

static void test_bad_texts(void **state)
{
    (void)state;
    static const struct record records[] = {{"{\"a\":1}", "\xff", "h", 1},
                                            {"{\"a\":2}", "k", "\xc3\xa9", 2},
                                            {"LONG", "k", "\xc3", 3},
                                            {"{\"a\":4}", "k", NULL, 4}};
    check("json", "a int, k text, h text!", "{ key: k, headers: { h: \"x\" } }", records, 4,
          "!-1 `k`: not valid UTF-8\n{\"a\":2,\"k\":\"k\",\"h\":\"\xc3\xa9\"}\n"
          "!-1 a record longer than 1 MiB\n!-1 `h` is missing\n");
}

static void test_all_headers(void **state)
{
    (void)state;
    static const struct record records[] = {
        {"1", "a", "x", 1},    {"2", "b", "y", 2},   {"3", "c", NULL, 3}, {"4", "d", "\xff", 4},
        {"5", "\xff", "x", 5}, {"6", "many", "", 6}, {NULL, "e", "", 7}};
    check("csv", "a int, l [{key text, value bytes}]", "{ all_headers: l }", records, 6,
          "{\"a\":1,\"l\":[]}\n"
          "{\"a\":2,\"l\":[{\"key\":\"b\",\"value\":\"eQ==\"}]}\n"
          "{\"a\":3,\"l\":[{\"key\":\"c\",\"value\":null},{\"key\":\"c\",\"value\":null}]}\n"
          "{\"a\":4,\"l\":[{\"key\":\"d\",\"value\":\"/w==\"},{\"key\":\"d\",\"value\":\"/w==\"},"
          "{\"key\":\"d\",\"value\":\"/w==\"}]}\n"
          "!-1 a header: not valid UTF-8\n!-1 more than 1,024 headers\n");
    check("csv", "l [{value text, key text}], a int, k text", "{ all_headers: l, key: k }", records + 1, 2,
          "{\"l\":[],\"a\":2,\"k\":\"b\"}\n{\"l\":[{\"value\":null,\"key\":\"c\"}],\"a\":3,\"k\":\"c\"}\n");
    check("csv", "l [{value text, key text}], a int, k text", "{ all_headers: l, key: k }", records + 3, 1,
          "{\"l\":[],\"a\":4,\"k\":\"d\"}\n");
    check("csv", "l [{value text, key text}], a int, k text", "{ all_headers: l, key: k }", records + 2, 2,
          "{\"l\":[],\"a\":3,\"k\":\"c\"}\n!-1 a header: not valid UTF-8\n");
    check("csv", "l [{value text, key text}], a int, k text", "{ all_headers: l, key: k }", records + 5, 2,
          "!-1 more than 1,024 headers\n{\"l\":[{\"value\":\"\",\"key\":\"e\"}],\"a\":null,\"k\":\"e\"}\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_columns), cmocka_unit_test(test_none),
                                       cmocka_unit_test(test_tombstones), cmocka_unit_test(test_bad_texts),
                                       cmocka_unit_test(test_all_headers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
