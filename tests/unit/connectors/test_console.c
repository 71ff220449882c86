/* Source `console` reads standard input that comes in pieces; sink `console` writes for people
 * and for programs. */
#include "core/os.h"
#include "unit/connectors/rig.h"
#include "unit/formats/harness.h"
#include "unit/support/temporary.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

extern const struct source_kind source_console;
extern const struct sink_kind sink_console;

static void feed(int fd, const char *text)
{
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void expect(struct rig_source *rig, enum read_status status, const char *expected)
{
    struct rig_reading reading = rig_read(rig, 0);
    char *text = rig_text(&reading);
    assert_int_equal(reading.status, status);
    assert_string_equal(text, expected);
    free(text);
    rig_reading_free(&reading);
}

/* Makes standard input a pipe; returns the writing end. */
static int pipe_in(void)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    close(ends[0]);
    return ends[1];
}

static void test_in_pieces(void **state)
{
    (void)state;
    struct rig_source rig;
    int fd = pipe_in();
    assert_true(rig_source_open(&rig, &source_console, "{ }", "a int"));
    expect(&rig, READ_LATER, "");
    feed(fd, "{\"a\":1}\n{\"a\":");
    expect(&rig, READ_LATER, "{\"a\":1}\n");
    feed(fd, "2}\nbad\n");
    expect(&rig, READ_LATER, "{\"a\":2}\n!0 a record begins with `{`\n");
    feed(fd, "{\"a\":3}");
    close(fd);
    struct rig_reading last = rig_read(&rig, 0);
    assert_int_equal(last.count, 1);
    assert_string_equal(last.batches[0].text, "{\"a\":3}\n");
    assert_int_equal(last.batches[0].position.record, 3);
    assert_int_equal(last.batches[0].first_line, 4);
    assert_int_equal(last.batches[0].next.record, 4);
    rig_reading_free(&last);
    rig_source_close(&rig);

    fd = pipe_in();
    assert_true(rig_source_open(&rig, &source_console, "{ format: csv }", "a int"));
    feed(fd, "b,");
    expect(&rig, READ_LATER, "");
    feed(fd, "a\n1,2\n3,");
    expect(&rig, READ_LATER, "{\"a\":2}\n");
    close(fd);
    expect(&rig, READ_END, "{\"a\":null}\n");
    rig_source_close(&rig);

    fd = pipe_in();
    assert_true(rig_source_open(&rig, &source_console, "{ format: msgpack }", "a int"));
    feed(fd, "\x81\xa1\x61\x05\x81\xa1");
    expect(&rig, READ_LATER, "{\"a\":5}\n");
    close(fd);
    expect(&rig, READ_ERROR, "");
    assert_string_equal(rig_error(&rig.diags), "E0603");
    rig_source_close(&rig);

    fd = pipe_in();
    assert_true(rig_source_open(&rig, &source_console, "{ format: csv }", "a int"));
    feed(fd, "b\n1\n");
    expect(&rig, READ_ERROR, "");
    assert_string_equal(rig_error(&rig.diags), "E0607");
    close(fd);
    rig_source_close(&rig);
}

static void test_sink(void **state)
{
    (void)state;
    static const struct {
        const char *options, *expected;
    } cases[] = {
        {"{ }", "a=1  b=\"x\"  t=\"1970-01-01T00:00:01Z\"\na=null  b=\"y\"  t=\"1970-01-01T00:00:02Z\"\n"},
        {"{ format: json, limit: 1 }", "{\"a\":1,\"b\":\"x\",\"t\":\"1970-01-01T00:00:01Z\"}\n"},
    };
    char directory[TEMPORARY_PATH_BYTES], path[512];
    struct arena arena = {0};
    struct batch_pool *pool = batch_pool_new();
    temporary_make(directory);
    snprintf(path, sizeof(path), "%s/out", directory);
    struct batch *batch = batch_new(pool, harness_schema(&arena, "a int, b text, t us"), 2);
    batch->columns[0].ints[0] = 1;
    batch->columns[1].heap = "xy";
    for (uint32_t i = 0; i < 2; i++) {
        batch->columns[1].texts[i] = (struct text_ref){i, 1};
        batch->columns[2].ints[i] = batch->event_time[i] = (i + 1) * US_PER_SECOND;
    }
    batch_set_null(batch, &batch->columns[0], 1);
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct rig_sink rig;
        fflush(stdout);
        int saved = dup(STDOUT_FILENO), fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        dup2(fd, STDOUT_FILENO);
        bool is_good = rig_sink_open(&rig, &sink_console, cases[i].options, batch->schema, false, NULL) &&
                       rig.kind->write(&rig.context, batch) && rig.kind->write(&rig.context, batch);
        dup2(saved, STDOUT_FILENO);
        close(saved);
        close(fd);
        assert_true(is_good);
        size_t bytes;
        char *got = rig_read_file(path, &bytes);
        assert_string_equal(got, i == 0 ? arena_printf(&arena, "%s%s", cases[i].expected, cases[i].expected)
                                        : cases[i].expected);
        free(got);
        rig_sink_close(&rig);
    }
    batch_release(batch);
    batch_pool_free(pool);
    arena_free(&arena);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_in_pieces), cmocka_unit_test(test_sink)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
