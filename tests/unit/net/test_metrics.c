#include "net/metrics.h"
#include "unit/core/cmocka_all.h"

#include <math.h>

static bool wants(const char *accept)
{
    struct net_field field = {STR("accept"), str_from(accept)};
    struct net_exchange exchange = {.fields = &field, .fields_count = 1};
    return metrics_wants_open(&exchange);
}

static void test_which_format(void **state)
{
    (void)state;
    struct net_exchange none = {0};
    assert_false(metrics_wants_open(&none));
    /* what Prometheus 2.42 and 3 send */
    assert_true(
        wants("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
              "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"));
    assert_true(wants("application/openmetrics-text;version=1.0.0;escaping=underscores;q=0.5,"
                      "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"));
    assert_true(wants("application/openmetrics-text"));
    assert_true(wants(" text/plain ; q=0.25 ,\tapplication/openmetrics-text ; q=0.250"));
    static const char *const plain[] = {"",
                                        "*/*",
                                        "text/plain",
                                        "text/html, */*;q=0.1",
                                        "application/openmetrics-text;version=0.0.1",
                                        "application/openmetrics-text;q=0",
                                        "application/openmetrics-text;q=0.000, text/plain",
                                        "application/openmetrics-text;q=0.4, text/*;q=0.5",
                                        "application/openmetrics-text;q=2",
                                        "application/openmetrics-text;q=0.1234",
                                        "application/openmetrics-text;q=0,5",
                                        "application/openmetrics-text;q=.5",
                                        "application/openmetrics-text;q=1x",
                                        "application/openmetrics-text;q=",
                                        "application/openmetrics-textual",
                                        ";;,,;=,",
                                        ","};
    for (size_t i = 0; i < ARRAY_COUNT(plain); i++)
        assert_false(wants(plain[i]));
}

static const struct metric_meaning rows = {"leat_x_rows_total", "counter", "node", "Rows."};
static const struct metric_meaning took = {"leat_x_seconds", "gauge", "", "Time."};
static const struct metric_meaning build = {"leat_x_info", "info", "version", "1."};

static void write_all(struct metrics_text *text)
{
    metrics_head(text, &rows);
    metrics_begin(text, rows.name);
    metrics_label(text, "node", STR("a\"b\\c\nd"));
    metrics_label(text, "kind", STR(""));
    metrics_count(text, UINT64_MAX);
    struct byte_buffer labels = {0};
    metrics_label_text(&labels, "node", STR("a\"b\\c\nd"));
    metrics_label_text(&labels, "kind", STR(""));
    metrics_begin(text, rows.name);
    metrics_labels(text, (struct str){labels.data, labels.length});
    metrics_label(text, "lane", STR("1"));
    metrics_count(text, 0);
    buffer_free(&labels);
    metrics_single(text, &took, 7);
    static const double values[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 0.125, 1e9 + 0.5, -3};
    for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
        metrics_begin(text, took.name);
        metrics_value(text, values[i]);
    }
    static const uint64_t times[] = {0, 1, 1500000000, UINT64_C(7000000000), UINT64_MAX};
    for (size_t i = 0; i < ARRAY_COUNT(times); i++) {
        metrics_begin(text, took.name);
        metrics_time(text, times[i]);
    }
    metrics_head(text, &build);
    metrics_end(text);
}

#define SAMPLES                                                                                              \
    "leat_x_rows_total{node=\"a\\\"b\\\\c\\nd\",kind=\"\"} 18446744073709551615\n"                           \
    "leat_x_rows_total{node=\"a\\\"b\\\\c\\nd\",kind=\"\",lane=\"1\"} 0\n"
#define VALUES                                                                                               \
    "leat_x_seconds 7\nleat_x_seconds NaN\nleat_x_seconds +Inf\nleat_x_seconds -Inf\n"                       \
    "leat_x_seconds 0.125\nleat_x_seconds 1000000000.500\nleat_x_seconds -3\n"                               \
    "leat_x_seconds 0\nleat_x_seconds 0.000000001\nleat_x_seconds 1.5\nleat_x_seconds 7\n"                   \
    "leat_x_seconds 18446744073.709551615\n"

static void test_text(void **state)
{
    (void)state;
    static const char *const expected[] = {
        "# HELP leat_x_rows_total Rows.\n# TYPE leat_x_rows_total counter\n" SAMPLES
        "# HELP leat_x_seconds Time.\n# TYPE leat_x_seconds gauge\n" VALUES
        "# HELP leat_x_info 1.\n# TYPE leat_x_info gauge\n",
        "# TYPE leat_x_rows counter\n# HELP leat_x_rows Rows.\n" SAMPLES
        "# TYPE leat_x_seconds gauge\n# UNIT leat_x_seconds seconds\n# HELP leat_x_seconds Time.\n" VALUES
        "# TYPE leat_x info\n# HELP leat_x 1.\n# EOF\n"};
    for (int is_open = 0; is_open < 2; is_open++) {
        struct byte_buffer out = {0};
        struct metrics_text text = {.out = &out, .is_openmetrics = is_open != 0};
        write_all(&text);
        buffer_append(&out, "", 1);
        assert_string_equal(out.data, expected[is_open]);
        buffer_free(&out);
    }
}

/* All that a server of leat has in common is there, each once. */
static void test_common(void **state)
{
    (void)state;
    struct net_loop *loop = net_loop_new(1 << 20, NULL, NULL);
    struct byte_buffer out = {0};
    struct metrics_text text = {.out = &out};
    metrics_common(&text, loop);
    buffer_append(&out, "", 1);
    uint32_t count = 0;
    const struct metric_meaning *meaning;
    for (const char *at = out.data; (meaning = metrics_common_meaning(count)) != NULL; count++) {
        char head[200];
        snprintf(head, sizeof(head), "# HELP %s %s\n", meaning->name, meaning->help);
        at = strstr(at, head);
        assert_non_null(at);
    }
    assert_true(count > 5);
    assert_non_null(strstr(out.data, "leat_build_info{version=\"" LEAT_VERSION "\"} 1\n"));
    assert_non_null(strstr(out.data, "\nleat_net_connections_open 0\n"));
    buffer_free(&out);
    net_loop_free(loop);
}

/* Samples beyond the limit are counted, and nothing of them is written. */
static void test_series_max(void **state)
{
    (void)state;
    struct byte_buffer out = {0};
    struct metrics_text text = {.out = &out, .series_max = 4};
    write_all(&text);
    buffer_append(&out, "", 1);
    assert_int_equal(text.series, 4);
    assert_int_equal(text.left_out, 10);
    assert_non_null(strstr(out.data, SAMPLES));
    assert_non_null(strstr(out.data, "leat_x_seconds 7\nleat_x_seconds NaN\n# HELP leat_x_info"));
    buffer_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which_format),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_common),
        cmocka_unit_test(test_series_max),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
