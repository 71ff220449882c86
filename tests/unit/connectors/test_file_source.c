/* The file source on good files: every format and compression, many files, seeking, and where batches end. */
#include "formats/formats.h"
#include "unit/connectors/rig.h"
#include "unit/formats/harness.h"
#include "unit/support/random.h"
#include "unit/support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

extern const struct source_kind source_file;

static const char schema_text[] = "id int, word text, value float, t rfc3339";

/* Appends `count` rows of very different lengths to `file`, with blank lines between some of them where the
 * format has lines; and the rows as JSON lines to `expected`. */
static void make_rows(const struct format_kind *format, uint32_t count, uint64_t seed,
                      struct byte_buffer *file, struct byte_buffer *expected)
{
    struct arena arena = {0};
    struct test_random random = {seed};
    const struct schema *schema = harness_schema(&arena, schema_text);
    struct batch_pool *pool = batch_pool_new();
    void *encoder = format->encoder_new(schema, NULL);
    if (format->encode_header != NULL)
        format->encode_header(encoder, file);
    for (uint32_t done = 0; done < count;) {
        uint32_t rows = 1 + random_below(&random, 300);
        rows = MIN(rows, count - done);
        struct batch *batch = batch_new(pool, schema, rows);
        char *heap = arena_alloc(&batch->arena, 40000);
        memset(heap, 'w', 40000);
        batch->columns[1].heap = heap;
        for (uint32_t i = 0; i < rows; i++) {
            batch->columns[0].ints[i] = done + i;
            batch->columns[1].texts[i] =
                (struct text_ref){0, random_below(&random, random_chance(&random, 2) ? 40000 : 60)};
            batch->columns[2].floats[i] = (double)random_below(&random, 1000) / 8;
            batch->columns[3].ints[i] = batch->event_time[i] = INT64_C(1700000000000000) + (done + i) * 1000;
        }
        format->encode(encoder, batch, 0, rows, file);
        if (format->has_lines && random_chance(&random, 10))
            buffer_printf(file, "\n\r\n");
        harness_json(batch, expected);
        batch_release(batch);
        done += rows;
    }
    if (format->encode_end != NULL)
        format->encode_end(encoder, file);
    format->encoder_free(encoder);
    batch_pool_free(pool);
    arena_free(&arena);
}

/* From a position that was given out the rest reads the same: batches, record numbers, lines, paths. */
static void check_seeks(struct rig_source *rig, const struct rig_reading *whole)
{
    for (size_t i = 0; i <= whole->count; i += i < 4 ? 1 : 5) {
        const struct source_position *from =
            i < whole->count ? &whole->batches[i].position : &whole->batches[i - 1].next;
        assert_true(rig->kind->seek(&rig->source, 0, from));
        struct rig_reading rest = rig_read(rig, 0);
        assert_int_equal(rest.status, READ_END);
        assert_int_equal(rest.count, whole->count - i);
        for (size_t j = 0; j < rest.count; j++) {
            const struct rig_batch *a = &rest.batches[j], *b = &whole->batches[i + j];
            assert_string_equal(a->text, b->text);
            assert_int_equal(a->position.record, b->position.record);
            assert_int_equal(a->first_line, b->first_line);
            assert_string_equal(a->path, b->path);
        }
        rig_reading_free(&rest);
    }
}

static void test_formats_and_compressions(void **state)
{
    (void)state;
    static const char *const suffixes[] = {"", ".gz", ".zst", ".lz4"};
    char directory[TEMPORARY_PATH_BYTES];
    temporary_make(directory);
    for (size_t f = 0; formats_all[f] != NULL; f++) {
        const struct format_kind *format = formats_all[f];
        if (format->is_payload)
            continue;
        struct byte_buffer files[2] = {0}, expected = {0};
        make_rows(format, 9000, f + 1, &files[0], &expected);
        make_rows(format, 3000, f + 11, &files[1], &expected);
        buffer_append(&expected, "", 1);
        struct rig_reading plain = {0};
        for (size_t s = 0; s < ARRAY_COUNT(suffixes); s++) {
            struct rig_source rig;
            char path[512], options[1024];
            for (int i = 0; i < 2; i++) {
                size_t packed = files[i].length;
                char *data = s == 0 ? files[i].data
                                    : rig_compress(suffixes[s], files[i].data, files[i].length, &packed);
                snprintf(path, sizeof(path), "%s/part-%d%s%s", directory, i, format->suffix, suffixes[s]);
                rig_write_file(path, data, packed);
                if (s > 0)
                    free(data);
            }
            snprintf(options, sizeof(options), "{ path: \"%s/part-*%s%s\" }", directory, format->suffix,
                     suffixes[s]);
            assert_true(rig_source_open(&rig, &source_file, options, schema_text));
            assert_int_equal(rig.source.partitions_count, 1);
            struct rig_reading reading = rig_read(&rig, 0);
            assert_string_equal(rig_error(&rig.diags), "");
            assert_int_equal(reading.status, READ_END);
            char *text = rig_text(&reading);
            assert_string_equal(text, expected.data);
            free(text);
            struct source_progress progress;
            rig.kind->progress(&rig.source, &progress);
            assert_int_equal(progress.bytes_done, progress.bytes_total);
            /* Decompression gives the bytes in other pieces; the batches are the same. */
            assert_true(plain.count == 0 || plain.count == reading.count);
            for (size_t i = 0; i < plain.count; i++)
                assert_int_equal(plain.batches[i].count, reading.batches[i].count);
            check_seeks(&rig, &reading);
            if (s == 0)
                plain = reading;
            else
                rig_reading_free(&reading);
            rig_source_close(&rig);
        }
        rig_reading_free(&plain);
        buffer_free(&files[0]);
        buffer_free(&files[1]);
        buffer_free(&expected);
    }
    temporary_remove(directory);
}

/* Batches end by the rule of core/connector.h, which this test applies record by record. */
static void test_where_batches_end(void **state)
{
    (void)state;
    char directory[TEMPORARY_PATH_BYTES], options[1024], path[512];
    struct byte_buffer file = {0};
    struct test_random random = {5};
    temporary_make(directory);
    snprintf(path, sizeof(path), "%s/a.jsonl", directory);
    static uint32_t begins[20000], ends[20000];
    uint32_t records = 0;
    while (file.length < (size_t)14 << 20) {
        uint32_t length =
            random_chance(&random, 3) ? random_below(&random, 900000) : random_below(&random, 900);
        if (random_chance(&random, 1))
            for (uint32_t i = 0; i < 3000; i++)
                buffer_append(&file, "\n", 1);
        begins[records] = (uint32_t)file.length;
        buffer_printf(&file, "{\"id\":%u,\"x\":\"", records);
        memset(buffer_reserve(&file, length), 'x', length);
        file.length += length;
        buffer_printf(&file, "\"}");
        ends[records++] = (uint32_t)file.length;
        buffer_append(&file, "\n", 1);
    }
    for (uint32_t i = 0; i < 5000; i++) {
        begins[records] = (uint32_t)file.length;
        buffer_printf(&file, "{}");
        ends[records++] = (uint32_t)file.length;
        buffer_append(&file, "\n", 1);
    }
    rig_write_file(path, file.data, file.length);
    struct rig_source rig;
    snprintf(options, sizeof(options), "{ path: \"%s\" }", path);
    assert_true(rig_source_open(&rig, &source_file, options, "id int"));
    struct rig_reading reading = rig_read(&rig, 0);
    uint32_t first = 0;
    for (size_t i = 0; i < reading.count; i++) {
        uint32_t count = 1;
        while (first + count < records && count < BATCH_ROWS &&
               ends[first + count] - begins[first] <= SOURCE_BATCH_BYTES &&
               begins[first + count] / SOURCE_GRID_BYTES == begins[first] / SOURCE_GRID_BYTES)
            count++;
        assert_int_equal(reading.batches[i].position.record, first);
        assert_int_equal(reading.batches[i].count, count);
        first += count;
    }
    assert_int_equal(first, records);
    check_seeks(&rig, &reading);
    rig_reading_free(&reading);
    rig_source_close(&rig);
    buffer_free(&file);
    temporary_remove(directory);
}

static void test_partitions_and_manifest(void **state)
{
    (void)state;
    char directory[TEMPORARY_PATH_BYTES], options[1024], path[512];
    temporary_make(directory);
    static const char *const names[] = {"b-2", "a-1", "a-2", "b-1", "x[1]"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        char line[64];
        snprintf(path, sizeof(path), "%s/%s.jsonl", directory, names[i]);
        snprintf(line, sizeof(line), "{\"n\":\"%s\"}", names[i]);
        rig_write_file(path, line, strlen(line));
    }
    snprintf(options, sizeof(options), "{ path: [\"%s/a-*.jsonl\", \"%s/b-*.jsonl\", \"%s/x[1].jsonl\"] }",
             directory, directory, directory);
    struct rig_source rig;
    assert_true(rig_source_open(&rig, &source_file, options, "n text"));
    static const char *const expected[] = {"{\"n\":\"a-1\"}\n{\"n\":\"a-2\"}\n",
                                           "{\"n\":\"b-1\"}\n{\"n\":\"b-2\"}\n", "{\"n\":\"x[1]\"}\n"};
    assert_int_equal(rig.source.partitions_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        struct rig_reading reading = rig_read(&rig, i);
        char *text = rig_text(&reading);
        assert_string_equal(text, expected[i]);
        free(text);
        rig_reading_free(&reading);
    }
    rig_source_close(&rig);

    static const char manifest[] =
        "{\"partitions\": [{\"name\": \"p\", \"files\": [\"b-2.jsonl\", \"a-1.jsonl\"]}]}";
    snprintf(path, sizeof(path), "%s/manifest.json", directory);
    rig_write_file(path, manifest, strlen(manifest));
    snprintf(options, sizeof(options), "{ path: \"%s\" }", directory);
    assert_true(rig_source_open(&rig, &source_file, options, "n text"));
    struct rig_reading reading = rig_read(&rig, 0);
    char *text = rig_text(&reading);
    assert_string_equal(text, "{\"n\":\"b-2\"}\n{\"n\":\"a-1\"}\n");
    assert_non_null(strstr(rig.kind->partition_name(&rig.source, 0), "/p"));
    free(text);
    rig_reading_free(&reading);
    rig_source_close(&rig);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats_and_compressions),
        cmocka_unit_test(test_where_batches_end),
        cmocka_unit_test(test_partitions_and_manifest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
