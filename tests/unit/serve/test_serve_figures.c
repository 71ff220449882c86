/* The file of `leat serve --figures`: what is written is read again, and nothing else is; the line of a model at every
 * width. */
#include "../core/cmocka_all.h"
#include "../support/random.h"
#include "cli/serve_figures.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/leat-figures-XXXXXX";

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static void put(const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
}

static struct serve_moment some_moment(void)
{
    return (struct serve_moment){.name = "ctr",
                                 .doing = "catching up",
                                 .seconds = 1.0,
                                 .requests = 20100,
                                 .rows = 20000,
                                 .outcomes = {20000, 0, 0, 7, 93, 0},
                                 .totals = {900000, 1, 2, 3, 4, UINT64_C(1) << 60},
                                 .p50_ms = 0.18,
                                 .p99_ms = {0.03, 0.3, 0.21, 0.01, 0.5},
                                 .waiting_rows = 12,
                                 .staleness_ms = 20};
}

static void test_there_and_back(void **state)
{
    (void)state;
    struct serve_moment models[2] = {some_moment(), {.name = "cvr", .seconds = 0.25, .staleness_ms = -1}};
    struct byte_buffer text = {0};
    struct serve_report *report = calloc(1, sizeof(*report));
    serve_report_write(41, models, 2, &text);
    put(text.data, text.length);
    assert_int_equal(serve_report_read(path, report), 0);
    assert_int_equal(report->sequence, 41);
    assert_int_equal(report->count, 2);
    assert_memory_equal(report->models, models, sizeof(models));
    buffer_free(&text);
    free(report);
}

/* Every beginning of a file, and every file with another byte in one place, is refused or gives texts that are printable and
 * numbers that are in range; what was read before stays where the file is refused. */
static void test_damaged(void **state)
{
    (void)state;
    struct serve_moment model = some_moment();
    struct byte_buffer text = {0};
    struct serve_report *report = calloc(1, sizeof(*report));
    struct test_random random = {11};
    unsigned refused = 0;
    report->sequence = 5;
    serve_report_write(1, &model, 1, &text);
    for (size_t length = 0; length < text.length; length++) {
        put(text.data, length);
        assert_int_equal(serve_report_read(path, report), EBADMSG);
        assert_int_equal(report->sequence, 5);
    }
    for (size_t i = 0; i < text.length; i++) {
        char before = text.data[i];
        text.data[i] = (char)random_below(&random, 256);
        put(text.data, text.length);
        refused += serve_report_read(path, report) == EBADMSG;
        text.data[i] = before;
        for (uint32_t k = 0; k < report->count; k++) {
            assert_true(report->models[k].seconds > 0.0 && report->models[k].staleness_ms >= -1);
            for (const char *c = report->models[k].name; *c != '\0'; c++)
                assert_true(*c > ' ' && *c <= '~');
            for (const char *c = report->models[k].doing; *c != '\0'; c++)
                assert_true(*c >= ' ' && *c <= '~');
        }
    }
    assert_true(refused > text.length / 2);
    static const char many[] = "leat serve figures 1 9 257\n";
    put(many, sizeof(many) - 1);
    assert_int_equal(serve_report_read(path, report), EBADMSG);
    buffer_free(&text);
    free(report);
}

static void test_too_large(void **state)
{
    (void)state;
    struct serve_report *report = calloc(1, sizeof(*report));
    char *text = malloc(SERVE_FIGURES_BYTES_MAX + 1);
    memset(text, '1', SERVE_FIGURES_BYTES_MAX + 1);
    put(text, SERVE_FIGURES_BYTES_MAX + 1);
    assert_int_equal(serve_report_read(path, report), EFBIG);
    free(text);
    free(report);
}

/* The largest file that can be written can be read. */
static void test_largest(void **state)
{
    (void)state;
    struct serve_moment *models = calloc(SERVE_FIGURES_MODELS_MAX + 1, sizeof(*models));
    struct serve_report *report = calloc(1, sizeof(*report));
    struct byte_buffer text = {0};
    for (unsigned i = 0; i <= SERVE_FIGURES_MODELS_MAX; i++) {
        models[i] = some_moment();
        memset(models[i].name, 'n', sizeof(models[i].name) - 1);
        memset(models[i].doing, 'd', sizeof(models[i].doing) - 1);
        for (unsigned k = 0; k < OUTCOMES; k++)
            models[i].totals[k] = models[i].outcomes[k] = INT64_MAX;
    }
    serve_report_write(1, models, SERVE_FIGURES_MODELS_MAX + 1, &text);
    put(text.data, text.length);
    assert_int_equal(serve_report_read(path, report), 0);
    assert_int_equal(report->count, SERVE_FIGURES_MODELS_MAX);
    buffer_free(&text);
    free(models);
    free(report);
}

static void test_line(void **state)
{
    (void)state;
    struct serve_moment model = some_moment();
    struct byte_buffer out = {0};
    serve_moment_line(&model, 10, 300, &out);
    assert_string_equal(out.data,
                        "ctr         catching up  requests 20.1 k/s  rows 20.0 k/s  p50 0.18 ms  p99 0.50 "
                        "(read 0.03, queue 0.30, compute 0.21, write 0.01)  refused 7  shed 93  waiting rows "
                        "12  0.02 s old");
    buffer_clear(&out);
    serve_moment_line(&model, 10, 120, &out);
    assert_string_equal(out.data,
                        "ctr  catching up  20.1 k/s  p50 0.18 ms  p99 0.50 (queue 0.30)  refused 7  shed 93  "
                        "waiting rows 12  0.02 s old");
    for (unsigned width = 0; width < 200; width++) {
        buffer_clear(&out);
        serve_moment_line(&model, 10, width, &out);
        assert_true(out.length <= width && (width > 170 || out.length + 60 > width));
    }
    buffer_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_there_and_back), cmocka_unit_test(test_damaged),
                                       cmocka_unit_test(test_too_large), cmocka_unit_test(test_largest),
                                       cmocka_unit_test(test_line)};
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
