/* The picture of a run whose sources have ended, from the figures that another process reads: how much is done is then
 * said of the work that operators have left, not of the input. And that of a worker that does not lead. */
#include "control/figures_read.h"
#include "control/picture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* The line must have `has`, and must not have `lacks`, unless that is NULL. */
static void assert_line(const char *json, const char *has, const char *lacks)
{
    struct figures_read *figures = calloc(1, sizeof(*figures));
    struct byte_buffer out = {0};
    struct pace pace = {0};
    assert_non_null(figures);
    assert_null(figures_read(figures, str_from(json)));
    struct picture picture = {
        .job = figures->job, .stats = &figures->stats, .watch = &figures->watch, .pace = &pace};
    picture_line(&picture, &out);
    buffer_append(&out, "", 1);
    if (strstr(out.data, has) == NULL || (lacks != NULL && strstr(out.data, lacks) != NULL))
        fail_msg("`%s`: `%s` is wanted, `%s` is not", out.data, has, lacks == NULL ? "" : lacks);
    buffer_free(&out);
    figures_read_free(figures);
}

#define JOB "\"job\": \"j\", \"records\": 5, \"seconds\": 2.0, \"nodes\": []"

static void test_end(void **state)
{
    (void)state;
    assert_line("{" JOB ", \"share_done\": 0.25, \"input_ended\": false, \"end_share_done\": null}", " 25 %",
                "go on");
    assert_line("{" JOB ", \"share_done\": 1.0, \"input_ended\": true, \"end_share_done\": 0.4}",
                "the input has ended, operators go on    40 %", " left");
    assert_line("{" JOB ", \"share_done\": 1.0, \"input_ended\": true, \"end_share_done\": null}",
                "the input has ended, operators go on", " %");
    assert_line("{" JOB
                ", \"share_done\": 1.0, \"input_ended\": true, \"finished\": true, \"end_share_done\": 1.0}",
                "100 %", "go on");
}

/* It says that its figures are its own, and not how much of the job is done. */
static void test_part(void **state)
{
    struct run_stats *stats = calloc(1, sizeof(*stats));
    struct byte_buffer out = {0};
    struct pace pace = {0};
    const struct picture picture = {.job = STR("j"), .stats = stats, .pace = &pace};
    (void)state;
    assert_non_null(stats);
    *stats = (struct run_stats){.records = 5, .is_part = true, .worker = 2, .workers = 3};
    stats->progress = (struct source_progress){.bytes_total = 100, .bytes_done = 25};
    for (int is_part = 1; is_part >= 0; is_part--) {
        stats->is_part = is_part != 0;
        picture_line(&picture, &out);
        buffer_append(&out, "", 1);
        assert_int_equal(strstr(out.data, "figures of worker 2 of 3 alone") != NULL, is_part);
        assert_int_equal(strstr(out.data, " 25 %") != NULL, !is_part);
        buffer_clear(&out);
    }
    buffer_free(&out);
    free(stats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_end), cmocka_unit_test(test_part)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
