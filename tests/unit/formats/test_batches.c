/* Recordings (format `batches`): times, subsets of columns, damage anywhere, and wrong blocks with
 * a good digest. */
#include "formats/batches.h"
#include "unit/formats/harness.h"
#include "unit/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <xxhash.h>

#include <cmocka.h>

static const char schema_text[] = "i int, f float, s text, b bool, t ms, l [int], e [{x int, y text}]";

static void encode(const struct batch *batch, struct byte_buffer *out)
{
    void *encoder = format_batches.encoder_new(batch->schema, NULL);
    format_batches.encode_header(encoder, out);
    format_batches.encode(encoder, batch, 0, batch->selected, out);
    format_batches.encode_end(encoder, out);
    format_batches.encoder_free(encoder);
}

static size_t header_bytes(const struct byte_buffer *file)
{
    size_t used = 0;
    const char *damage = NULL;
    assert_int_equal(format_batches.header(NULL, file->data, file->length, true, &used, &damage),
                     HEADER_READ);
    return used;
}

/* Decodes the first block. */
static struct batch *decode_first(struct batch_pool *pool, const struct schema *schema,
                                  struct byte_buffer *file, struct decode_output *output)
{
    size_t header = header_bytes(file);
    struct format_split split = {
        .data = file->data + header, .bytes = file->length - header, .is_last = true, .max = 1};
    format_batches.split(&split);
    assert_null(split.damage);
    struct raw_batch raw = {.data = file->data + header,
                            .data_bytes = split.used,
                            .count = split.count,
                            .header = {file->data, header}};
    *output = (struct decode_output){.batch = batch_new(pool, schema, split.count)};
    output->bad = arena_array(&output->batch->arena, struct bad_record, split.count);
    void *decoder = format_batches.decoder_new(schema, NULL);
    format_batches.decode(decoder, &raw, output);
    format_batches.decoder_free(decoder);
    return output->batch;
}

static void test_times(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct batch_pool *pool = batch_pool_new();
    const struct schema *schema = harness_schema(&arena, "t us, i int");
    for (int variant = 0; variant < 8; variant++) {
        struct batch *batch = batch_new(pool, schema, 100);
        batch->arrival_time = variant & 1 ? arena_array(&batch->arena, int64_t, 100) : NULL;
        batch->order_time = variant & 2 ? arena_array(&batch->arena, int64_t, 100) : NULL;
        for (uint32_t i = 0; i < 100; i++) {
            batch->event_time[i] = INT64_C(1700000000000000) + i * 977 % 1000;
            batch->columns[0].ints[i] = variant & 4 ? batch->event_time[i] : -7;
            batch->columns[1].ints[i] = i;
            if (batch->arrival_time != NULL)
                batch->arrival_time[i] = batch->event_time[i] + 5000000 + i;
            if (batch->order_time != NULL)
                batch->order_time[i] = variant & 4 ? batch->event_time[i] : batch->event_time[0] + i;
        }
        struct byte_buffer file = {0};
        encode(batch, &file);
        struct decode_output output;
        /* Read with all columns, and without the one that may equal the event time. */
        for (int subset = 0; subset < 2; subset++) {
            const struct schema *wanted = subset ? harness_schema(&arena, "i int, none text") : schema;
            struct batch *got = decode_first(pool, wanted, &file, &output);
            assert_int_equal(output.bad_count, 0);
            assert_memory_equal(got->event_time, batch->event_time, 100 * sizeof(int64_t));
            assert_int_equal(got->arrival_time != NULL, variant & 1);
            if (variant & 1)
                assert_memory_equal(got->arrival_time, batch->arrival_time, 100 * sizeof(int64_t));
            assert_int_equal(got->order_time != NULL, (variant & 2) != 0);
            if (variant & 2)
                assert_memory_equal(got->order_time, batch->order_time, 100 * sizeof(int64_t));
            assert_int_equal(got->columns[subset ? 0 : 1].ints[99], 99);
            if (subset)
                assert_false(column_is_valid(&got->columns[1], 5));
            batch_release(got);
        }
        buffer_free(&file);
        batch_release(batch);
    }
    batch_pool_free(pool);
    arena_free(&arena);
}

/* A flipped bit in any byte is noticed, and so is a file that is cut anywhere. */
static void test_damage(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct batch_pool *pool = batch_pool_new();
    const struct schema *schema = harness_schema(&arena, schema_text);
    struct batch *batch = harness_batch(pool, schema, 40, 7);
    struct byte_buffer file = {0}, whole = {0};
    encode(batch, &file);
    harness_decode(&format_batches, schema, NULL, file.data, file.length, 1, &whole);
    for (size_t at = 0; at < file.length; at++) {
        struct byte_buffer got = {0};
        file.data[at] = (char)(file.data[at] ^ 1 << at % 8);
        harness_decode(&format_batches, schema, NULL, file.data, file.length, 1, &got);
        file.data[at] = (char)(file.data[at] ^ 1 << at % 8);
        buffer_append(&got, "", 1);
        if (strchr(got.data, '?') == NULL || strncmp(strrchr(got.data, '?'), "?is ", 4) != 0)
            if (strstr(got.data, "?ends inside a record") == NULL &&
                strstr(got.data, "?was written by a newer") == NULL)
                fail_msg("a flipped bit in byte %zu of %zu went unnoticed", at, file.length);
        buffer_free(&got);
    }
    size_t header = header_bytes(&file);
    for (size_t length = 1; length < file.length; length++) {
        struct byte_buffer got = {0};
        harness_decode(&format_batches, schema, NULL, file.data, length, 1, &got);
        bool is_whole_block = got.length == whole.length;
        /* A file that lacks only its end mark is truncated, too, but the file source reports that. */
        buffer_append(&got, "", 1);
        got.length--;
        if (got.length > 0 && !is_whole_block)
            assert_true(got.data[0] == '?' || strstr(got.data, "\n?") != NULL);
        assert_true(got.length > 0 || length == header);
        buffer_free(&got);
    }
    buffer_free(&file);
    buffer_free(&whole);
    batch_release(batch);
    batch_pool_free(pool);
    arena_free(&arena);
}

/* Blocks with wrong content and a right digest: the rows are bad or have other values, and no byte outside
 * the block is read. */
static void test_lies(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct batch_pool *pool = batch_pool_new();
    const struct schema *schema = harness_schema(&arena, schema_text);
    struct test_random random = {3};
    uint32_t refused = 0, accepted = 0;
    for (int round = 0; round < 3000; round++) {
        struct batch *batch = harness_batch(pool, schema, 30, (uint64_t)round % 10 + 1);
        struct byte_buffer file = {0}, got = {0};
        encode(batch, &file);
        batch_release(batch);
        size_t header = header_bytes(&file);
        struct batches_head head;
        memcpy(&head, file.data + header, sizeof(head));
        /* The head's magic, row count and length stay; the digest is computed again. */
        for (uint32_t i = 0; i < 1 + random_below(&random, 3); i++) {
            size_t at = header + 12 + random_below(&random, head.bytes - 12 - BATCHES_DIGEST_BYTES);
            file.data[at] = (char)(random_chance(&random, 50)   ? random_next(&random)
                                   : random_chance(&random, 50) ? 0xff
                                                                : 0);
        }
        XXH128_canonical_t digest;
        XXH128_canonicalFromHash(&digest, XXH3_128bits(file.data + header, head.bytes - sizeof(digest)));
        memcpy(file.data + header + head.bytes - sizeof(digest), &digest, sizeof(digest));
        harness_decode(&format_batches, schema, NULL, file.data, file.length, 1, &got);
        buffer_append(&got, "", 1);
        refused += strncmp(got.data, "!-1 the record's block is not valid", 35) == 0;
        accepted += got.data[0] == '{';
        buffer_free(&file);
        buffer_free(&got);
    }
    assert_int_equal(refused + accepted, 3000);
    assert_true(refused > 300 && accepted > 300);
    batch_pool_free(pool);
    arena_free(&arena);
}

static void test_header_check(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = harness_batch(pool, harness_schema(&arena, schema_text), 3, 1);
    struct byte_buffer file = {0};
    encode(batch, &file);
    struct str header = {file.data, header_bytes(&file)};
    assert_true(format_batches.header_check(harness_schema(&arena, "t s, e [{x int, y text}], new int"), NULL,
                                            header, &diags));
    assert_false(format_batches.header_check(harness_schema(&arena, "i text"), NULL, header, &diags));
    assert_false(format_batches.header_check(harness_schema(&arena, "new int!"), NULL, header, &diags));
    assert_false(format_batches.header_check(harness_schema(&arena, "e [{x int}]"), NULL, header, &diags));
    assert_int_equal(diags.count, 3);
    assert_string_equal(diags.items[0].message, "the recording's column `i` has another type");
    assert_string_equal(diags.items[0].hint, "the recording has type int, the schema type text");
    assert_string_equal(diags.items[1].message, "the recording has no column `new`");
    buffer_free(&file);
    batch_release(batch);
    batch_pool_free(pool);
    arena_free(&arena);
}

/* A block ends after so many rows or so many bytes: wide rows make small blocks, and no row is lost. */
static void test_wide_rows(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct batch_pool *pool = batch_pool_new();
    const struct schema *schema = harness_schema(&arena, "s text");
    struct batch *batch = batch_new(pool, schema, 50);
    char *heap = arena_alloc(&batch->arena, 100000);
    memset(heap, 'w', 100000);
    batch->columns[0].heap = heap;
    for (uint32_t i = 0; i < 50; i++) {
        batch->columns[0].texts[i] = (struct text_ref){i, 99000 + i};
        batch->event_time[i] = i;
    }
    struct byte_buffer file = {0}, expected = {0}, got = {0}, resumed = {0}, saved = {0};
    encode(batch, &file);
    harness_json(batch, &expected);
    /* The same file, from an encoder that is saved and loaded in the middle of a block. */
    void *encoder = format_batches.encoder_new(schema, NULL);
    format_batches.encode_header(encoder, &resumed);
    format_batches.encode(encoder, batch, 0, 17, &resumed);
    format_batches.encoder_save(encoder, &saved);
    format_batches.encoder_free(encoder);
    encoder = format_batches.encoder_new(schema, NULL);
    assert_true(format_batches.encoder_load(encoder, saved.data, saved.length));
    format_batches.encode(encoder, batch, 17, 33, &resumed);
    format_batches.encode_end(encoder, &resumed);
    format_batches.encoder_free(encoder);
    assert_int_equal(resumed.length, file.length);
    assert_memory_equal(resumed.data, file.data, file.length);
    buffer_free(&resumed);
    buffer_free(&saved);
    harness_decode(&format_batches, schema, NULL, file.data, file.length, 1, &got);
    assert_int_equal(got.length, expected.length);
    assert_memory_equal(got.data, expected.data, got.length);
    size_t header = header_bytes(&file);
    struct format_split split = {.data = file.data + header, .bytes = file.length - header, .max = 1};
    format_batches.split(&split);
    assert_int_equal(split.count, 11);
    buffer_free(&file);
    buffer_free(&expected);
    buffer_free(&got);
    batch_release(batch);
    batch_pool_free(pool);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times),        cmocka_unit_test(test_damage),    cmocka_unit_test(test_lies),
        cmocka_unit_test(test_header_check), cmocka_unit_test(test_wide_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
