/* `order_by`: sorted, stable, bad records in their place, with as little memory as may be, from any format.
 */
#include "connectors/file/sort.h"
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
    /* From the middle on it reads the same again. */
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

/* Two csv files, every hundredth record bad; the expected text is sorted here. */
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
    /* Nothing stays behind, not even while it runs. */
    char *names = rig_list(directory);
    assert_string_equal(names, "p0.csv p1.csv");
    free(names);
    free(expected);
    buffer_free(&text);
    temporary_remove(directory);
}

/* The sort itself, with so little memory that it takes many runs and two rounds of merging. */
static void test_many_runs(void **state)
{
    (void)state;
    char directory[TEMPORARY_PATH_BYTES], path[512];
    struct arena arena = {0};
    struct diag_list diags;
    struct test_random random = {21};
    struct byte_buffer file = {0};
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    diag_list_init(&diags, &arena);
    temporary_make(directory);
    enum { RECORDS = 30000 };
    for (uint32_t i = 0; i < RECORDS; i++)
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
    struct sorted_file sorted = {0};
    struct sort_request request = {&reader, 0, directory, 8 << 10};
    assert_true(sort_records(&request, &sorted, &arena, &diags));
    struct raw_batch raw = {0};
    uint32_t count = 0;
    double last = -1e9;
    uint32_t last_number = 0;
    while (reader_read(&reader, &raw) == READ_BATCH)
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
    assert_int_equal(count, RECORDS);
    arena_free(&raw.arena);
    reader_close(&reader);
    sorted_close(&sorted);
    buffer_free(&file);
    temporary_remove(directory);
    arena_free(&arena);
}

/* Rows of a recording have no bytes of their own: they travel as msgpack, lists, nulls and all. */
static void test_batches(void **state)
{
    (void)state;
    char directory[TEMPORARY_PATH_BYTES], path[512], options[1024];
    static const char schema_text[] = "t ms, s text, l [int], e [{x int, y text}], f float";
    struct arena arena = {0};
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = harness_batch(pool, harness_schema(&arena, schema_text), 900, 77), *dense;
    /* In order already, so that the stable sort must give back what it got; then written backwards. */
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
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_many_runs),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_what_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
