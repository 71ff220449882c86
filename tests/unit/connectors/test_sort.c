/* `order_by`: a stable sort of any format, within little memory; a bad record stays behind the
 * one before it. */
#include "connectors/file/sort.h"
#include "core/temporary.h"
#include "formats/formats.h"
#include "unit/connectors/rig.h"
#include "unit/formats/harness.h"
#include "unit/support/random.h"
#include "unit/support/temporary.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

extern const struct source_kind source_file;

struct line {
    int64_t key;
    uint32_t number;
    char text[64];
};

static int compare_lines(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

static char *read_sorted(const char *options, const char *schema)
{
    struct rig_source rig;
    if (!rig_source_open(&rig, &source_file, options, schema))
        fail_msg("%s", rig_message(&rig));
    struct rig_reading reading = rig_read(&rig, 0);
    assert_int_equal(reading.status, READ_END);
    /* After a seek to the middle the rest reads the same. */
    size_t middle = reading.count / 2;
    assert_true(rig.kind->seek(&rig.source, 0, &reading.batches[middle].position));
    struct rig_reading rest = rig_read(&rig, 0);
    assert_int_equal(rest.count, reading.count - middle);
    for (size_t i = 0; i < rest.count; i++)
        assert_string_equal(rest.batches[i].text, reading.batches[middle + i].text);
    char *text = rig_text(&reading);
    rig_reading_free(&reading);
    rig_reading_free(&rest);
    rig_source_close(&rig);
    return text;
}

/* Two csv files with about one bad record in a hundred; the test sorts the expected lines itself. */
static void test_csv(void **state)
{
    (void)state;
    enum { LINES = 60000 };
    char directory[TEMPORARY_PATH_BYTES], path[512], options[1024];
    struct test_random random = {8};
    struct line *expected = calloc(LINES, sizeof(*expected));
    int64_t last = INT64_MIN;
    temporary_make(directory);
    for (uint32_t part = 0; part < 2; part++) {
        struct byte_buffer file = {0};
        buffer_printf(&file, "t,n\n");
        for (uint32_t i = part * LINES / 2; i < (part + 1) * LINES / 2; i++) {
            int64_t key = (int64_t)random_below(&random, 5000) - 2500;
            bool is_bad = random_chance(&random, 1);
            if (is_bad)
                buffer_printf(&file, "x%u,1\n", i);
            else
                buffer_printf(&file, "%lld,%u\n", (long long)key, i);
            last = is_bad ? last : key;
            expected[i] = (struct line){.key = last, .number = i};
            if (is_bad)
                snprintf(expected[i].text, sizeof(expected[i].text), "!0 `t`: not a number\n");
            else
                snprintf(expected[i].text, sizeof(expected[i].text), "{\"t\":%lld,\"n\":%u}\n",
                         (long long)key, i);
        }
        snprintf(path, sizeof(path), "%s/p%u.csv", directory, part);
        rig_write_file(path, file.data, file.length);
        buffer_free(&file);
    }
    qsort(expected, LINES, sizeof(*expected), compare_lines);
    struct byte_buffer text = {0};
    for (uint32_t i = 0; i < LINES; i++)
        buffer_append(&text, expected[i].text, strlen(expected[i].text));
    buffer_append(&text, "", 1);
    snprintf(options, sizeof(options), "{ path: \"%s/*.csv\", order_by: t, sort_dir: \"%s\" }", directory,
             directory);
    char *got = read_sorted(options, "t int, n int");
    assert_string_equal(got, text.data);
    free(got);
    /* No temporary file is left. */
    char *names = rig_list(directory);
    assert_string_equal(names, "p0.csv p1.csv");
    free(names);
    free(expected);
    buffer_free(&text);
    temporary_remove(directory);
}

/* Sorts a file of `records` records with `memory` bytes: so few that there are many runs and several rounds
 * of merging. The sorted copy must be in order, and stable. */
static void sort_with(int64_t memory, uint32_t records)
{
    char directory[TEMPORARY_PATH_BYTES], path[512];
    struct arena arena = {0};
    struct diag_list diags;
    struct test_random random = {21};
    struct byte_buffer file = {0};
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    diag_list_init(&diags, &arena);
    temporary_make(directory);
    for (uint32_t i = 0; i < records; i++)
        buffer_printf(&file, "{\"t\":%d.5,\"n\":%u}\n", (int)random_below(&random, 1000) - 500, i);
    snprintf(path, sizeof(path), "%s/a.jsonl", directory);
    rig_write_file(path, file.data, file.length);
    const char *paths[] = {path};
    struct path_list list = {"a", paths, 1};
    struct file_reader reader = {.list = &list,
                                 .format = &format_json,
                                 .schema = harness_schema(&arena, "t float, n int"),
                                 .diags = &diags,
                                 .mutex = &mutex};
    assert_true(reader_open(&reader));
    struct sorted_copy copy = {0};
    struct sort_request request = {&reader, 0, directory, memory};
    assert_true(sort_records(&request, &copy, &arena));
    struct raw_batch raw = {0};
    uint32_t count = 0;
    double last = -1e9;
    uint32_t last_number = 0;
    while (sorted_read(&copy, &raw) == READ_BATCH)
        for (uint32_t i = 0; i < raw.count; i++, count++) {
            double key;
            uint32_t number;
            char text[128];
            snprintf(text, sizeof(text), "%.*s", STR_ARGS(raw_record_text(&raw, i)));
            assert_int_equal(sscanf(text, "{\"t\":%lf,\"n\":%u}", &key, &number), 2);
            assert_true(key > last || (key == last && number > last_number));
            last = key;
            last_number = number;
        }
    assert_int_equal(count, records);
    char *names = rig_list(directory);
    assert_string_equal(names, "a.jsonl");
    free(names);
    arena_free(&raw.arena);
    reader_close(&reader);
    sorted_close(&copy);
    buffer_free(&file);
    temporary_remove(directory);
    arena_free(&arena);
}

static void test_many_runs(void **state)
{
    (void)state;
    sort_with(8 << 10, 30000); /* 150 runs */
    sort_with(1 << 10, 30000); /* more than 32 * 32 runs */
    for (uint32_t records = 0; records < 40; records++)
        sort_with(1, records); /* a run for each record: up to more runs than are merged at once */
    sort_with(1, 32 * 32 + 1);
}

/* Rows of a recording have no text of their own: the sort carries them as msgpack, with lists and nulls. */
static void test_batches(void **state)
{
    (void)state;
    char directory[TEMPORARY_PATH_BYTES], path[512], options[1024];
    static const char schema_text[] = "t ms, s text, l [int], e [{x int, y text}], f float";
    struct arena arena = {0};
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = harness_batch(pool, harness_schema(&arena, schema_text), 900, 77), *dense;
    /* `batch` is in order; the file has its rows backwards, and the sort must give `batch` again. */
    for (uint32_t i = 0; i < 900; i++) {
        batch->columns[0].valid = NULL;
        batch->columns[0].ints[i] = i * 7;
    }
    uint16_t backwards[BATCH_ROWS];
    struct batch *sources[BATCH_ROWS];
    for (uint32_t i = 0; i < 900; i++) {
        backwards[i] = (uint16_t)(899 - i);
        sources[i] = batch;
    }
    dense = batch_gather(pool, batch->schema, sources, backwards, 900);
    struct byte_buffer file = {0}, expected = {0};
    void *encoder = format_batches.encoder_new(batch->schema, NULL);
    format_batches.encode_header(encoder, &file);
    format_batches.encode(encoder, dense, 0, 900, &file);
    format_batches.encode_end(encoder, &file);
    format_batches.encoder_free(encoder);
    temporary_make(directory);
    snprintf(path, sizeof(path), "%s/a.batches", directory);
    rig_write_file(path, file.data, file.length);
    harness_json(batch, &expected);
    buffer_append(&expected, "", 1);
    snprintf(options, sizeof(options), "{ path: \"%s\", order_by: t }", path);
    char *got = read_sorted(options, schema_text);
    assert_string_equal(got, expected.data);
    free(got);
    buffer_free(&file);
    buffer_free(&expected);
    batch_release(dense);
    batch_release(batch);
    batch_pool_free(pool);
    arena_free(&arena);
    temporary_remove(directory);
}

/* Rows wider than a line may be, and special floats, come out of the sort unchanged. */
static void test_wide_rows(void **state)
{
    (void)state;
    static const char schema_text[] = "t int, f float, s text";
    enum { ROWS = 5, WIDE = 3 << 20 };
    char directory[TEMPORARY_PATH_BYTES], path[512], options[1024];
    struct arena arena = {0};
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = batch_new(pool, harness_schema(&arena, schema_text), ROWS);
    const double floats[ROWS] = {(double)NAN, (double)INFINITY, -0.0, 4.9e-324, (double)-INFINITY};
    char *heap = arena_alloc(&batch->arena, WIDE);
    memset(heap, 'w', WIDE);
    batch->columns[2].heap = heap;
    for (uint32_t i = 0; i < ROWS; i++) {
        batch->columns[0].ints[i] = ROWS - i;
        batch->columns[1].floats[i] = floats[i];
        batch->columns[2].texts[i] = (struct text_ref){0, i % 2 == 0 ? WIDE : i};
        batch->event_time[i] = 0;
    }
    struct byte_buffer file = {0};
    void *encoder = format_batches.encoder_new(batch->schema, NULL);
    format_batches.encode_header(encoder, &file);
    format_batches.encode(encoder, batch, 0, ROWS, &file);
    format_batches.encode_end(encoder, &file);
    format_batches.encoder_free(encoder);
    temporary_make(directory);
    snprintf(path, sizeof(path), "%s/a.batches", directory);
    rig_write_file(path, file.data, file.length);
    snprintf(options, sizeof(options), "{ path: \"%s\", order_by: t, sort_dir: \"%s\" }", path, directory);
    struct rig_source rig;
    struct raw_batch raw = {0};
    if (!rig_source_open(&rig, &source_file, options, schema_text))
        fail_msg("%s", rig_message(&rig));
    uint32_t row = ROWS;
    while (rig.kind->read(&rig.source, 0, &raw) == READ_BATCH) {
        struct batch *got = batch_new(pool, rig.source.schema, raw.count);
        struct decode_output output = {.batch = got};
        output.bad = arena_array(&got->arena, struct bad_record, raw.count);
        rig.kind->decode(&rig.source, rig.decoder, &raw, &output);
        assert_int_equal(output.bad_count, 0);
        for (uint32_t i = 0; i < raw.count; i++) {
            row--;
            assert_int_equal(got->columns[0].ints[i], ROWS - row);
            assert_memory_equal(&got->columns[1].floats[i], &floats[row], sizeof(double));
            assert_true(str_equal(column_text(&got->columns[2], i), column_text(&batch->columns[2], row)));
        }
        batch_release(got);
    }
    assert_string_equal(rig_error(&rig.diags), "");
    assert_int_equal(row, 0);
    arena_free(&raw.arena);
    rig_source_close(&rig);
    buffer_free(&file);
    batch_release(batch);
    batch_pool_free(pool);
    arena_free(&arena);
    temporary_remove(directory);
}

/* Files with the same columns whose header lines end in different ways, or have a byte-order
 * mark before them. */
static void test_headers(void **state)
{
    (void)state;
    static const char *const files[] = {"t,n\n3,1\n", "t,n\r\n1,2\r\n", "\xef\xbb\xbft,n\n2,3", "t,n"};
    char directory[TEMPORARY_PATH_BYTES], path[512], options[1024];
    temporary_make(directory);
    for (size_t i = 0; i < ARRAY_COUNT(files); i++) {
        snprintf(path, sizeof(path), "%s/%zu.csv", directory, i);
        rig_write_file(path, files[i], strlen(files[i]));
    }
    snprintf(options, sizeof(options), "{ path: \"%s/*.csv\", order_by: t }", directory);
    char *got = read_sorted(options, "t int, n int");
    assert_string_equal(got, "{\"t\":1,\"n\":2}\n{\"t\":2,\"n\":3}\n{\"t\":3,\"n\":1}\n");
    free(got);
    temporary_remove(directory);
}

/* Reads `bytes` as a sorted copy of `records` records from position `from`: `expected` records must come,
 * then an error with `code`, or the end where `code` is "". */
static void read_copy(const void *bytes, size_t length, uint64_t records, struct source_position from,
                      uint32_t expected, const char *code)
{
    struct arena arena = {0};
    struct diag_list diags;
    struct raw_batch raw = {0};
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    diag_list_init(&diags, &arena);
    struct sorted_copy copy = {.fd = temporary_file("/tmp"),
                               .bytes = (int64_t)length,
                               .records = records,
                               .name = "a",
                               .diags = &diags,
                               .mutex = &mutex};
    assert_int_equal(os_write_all(copy.fd, bytes, length, NULL), 0);
    uint32_t count = 0;
    enum read_status status = READ_ERROR;
    if (sorted_seek(&copy, &from))
        while ((status = sorted_read(&copy, &raw)) == READ_BATCH)
            count += raw.count;
    assert_int_equal(count, expected);
    assert_string_equal(rig_error(&diags), code);
    assert_int_equal(status, *code == '\0' ? READ_END : READ_ERROR);
    assert_int_equal(sorted_read(&copy, &raw), *code == '\0' ? READ_END : READ_ERROR);
    arena_free(&raw.arena);
    sorted_close(&copy);
    arena_free(&arena);
}

/* A damaged copy, or a position that does not fit the copy, is an error; records never go
 * missing silently. */
static void test_damaged_copy(void **state)
{
    (void)state;
    static const char good[] = "\3\0\0\0abc\0\0\0\0\1\0\0\0d"; /* records of 7, 4 and 5 bytes */
    static const char beyond[] = "\3\0\0\0abc\2\0\0\0d", torn[] = "\3\0\0\0abc\0\0";
    static const char large[] = "\3\0\0\0abc\0\0\0\377";
    const struct source_position first = {0};
    read_copy(good, 16, 3, first, 3, "");
    read_copy(good, 16, 3, (struct source_position){.b = 7, .record = 1}, 2, "");
    read_copy(good, 16, 3, (struct source_position){.b = 16, .record = 3}, 0, "");
    read_copy(good, 16, 4, first, 3, "E0603");
    read_copy(good, 16, 2, first, 3, "E0603");
    read_copy(good, 0, 1, first, 0, "E0603");
    read_copy(beyond, 12, 2, first, 0, "E0603");
    read_copy(torn, 9, 2, first, 0, "E0603");
    read_copy(large, 11, 2, first, 0, "E0603");
    read_copy(good, 16, 3, (struct source_position){.b = 8, .record = 1}, 0, "E0604");
    read_copy(good, 16, 3, (struct source_position){.b = 7, .record = 2}, 0, "E0604");
    read_copy(good, 16, 3, (struct source_position){.b = 17, .record = 3}, 0, "E0604");
    read_copy(good, 16, 3, (struct source_position){.a = 1}, 0, "E0604");
}

static void test_what_fails(void **state)
{
    (void)state;
    char directory[TEMPORARY_PATH_BYTES], path[512], options[1024];
    struct rig_source rig;
    temporary_make(directory);
    snprintf(path, sizeof(path), "%s/a.csv", directory);
    rig_write_file(path, "t,n\n1,2\n", 8);
    snprintf(path, sizeof(path), "%s/b.csv", directory);
    rig_write_file(path, "n,t\n1,2\n", 8);
    snprintf(options, sizeof(options), "{ path: \"%s/*.csv\", order_by: t }", directory);
    assert_false(rig_source_open(&rig, &source_file, options, "t int, n int"));
    assert_string_equal(rig_error(&rig.diags), "E0607");
    rig_source_close(&rig);
    snprintf(options, sizeof(options), "{ path: \"%s/a.csv\", order_by: t, sort_dir: \"%s/none\" }",
             directory, directory);
    assert_false(rig_source_open(&rig, &source_file, options, "t int, n int"));
    assert_string_equal(rig_error(&rig.diags), "E0605");
    rig_source_close(&rig);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_csv),        cmocka_unit_test(test_many_runs),
        cmocka_unit_test(test_batches),    cmocka_unit_test(test_wide_rows),
        cmocka_unit_test(test_headers),    cmocka_unit_test(test_damaged_copy),
        cmocka_unit_test(test_what_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
