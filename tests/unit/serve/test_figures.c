/* Histograms against sorted times; the text for Prometheus. */
#include "../core/cmocka_all.h"
#include "../support/random.h"
#include "serve/figures.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* A quantile is at least the true one, and at most a bucket (19 %) above. */
static void test_quantiles(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    static int64_t times[COUNT];
    struct test_random random = {7};
    struct histogram histogram = {0};
    double sum_s = 0.0;
    for (uint32_t i = 0; i < COUNT; i++) {
        times[i] = (int64_t)(random_next(&random) >> (34 + random_below(&random, 20)));
        histogram_add(&histogram, times[i]);
        sum_s += (double)times[i] * 1e-9;
    }
    qsort(times, COUNT, sizeof(*times), compare);
    assert_int_equal(histogram.count, COUNT);
    assert_true(histogram.sum_s > sum_s * 0.999999 && histogram.sum_s < sum_s * 1.000001);
    static const double quantiles[] = {0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0};
    for (size_t i = 0; i < ARRAY_COUNT(quantiles); i++) {
        uint32_t rank = (uint32_t)(quantiles[i] * COUNT);
        double exact = (double)times[rank == 0 ? 0 : rank - 1],
               told = histogram_quantile(&histogram, quantiles[i]);
        assert_true(told >= exact && told <= exact * 1.19 + 2.0);
    }
}

static void test_ends(void **state)
{
    (void)state;
    struct histogram histogram = {0};
    assert_true(histogram_quantile(&histogram, 0.5) == 0.0);
    histogram_add(&histogram, -5);
    histogram_add(&histogram, 0);
    histogram_add(&histogram, 1);
    assert_int_equal(histogram.counts[0], 3);
    histogram_add(&histogram, INT64_MAX);
    assert_int_equal(histogram.counts[HISTOGRAM_BUCKETS - 1], 1);
    for (int64_t ns = 2; ns < INT64_C(1) << 38; ns += ns / 7 + 1) {
        struct histogram one = {0};
        histogram_add(&one, ns);
        double end = histogram_quantile(&one, 0.5);
        assert_true(end > (double)ns && end <= (double)ns * 1.1893);
    }
}

static uint64_t value_of(const struct byte_buffer *text, const char *name)
{
    const char *at = strstr(text->data, name);
    assert_non_null(at);
    return strtoull(at + strlen(name), NULL, 10);
}

/* Each metric has its help and type once; buckets are cumulative and end at the count. */
static void test_prometheus(void **state)
{
    (void)state;
    static struct figures a, b;
    a.outcomes[OUTCOME_ANSWERED] = 5;
    a.outcomes[OUTCOME_SHED] = 2;
    a.rows_answered = 70;
    a.rows_late = 3;
    b.rows_failed = 4;
    for (int64_t i = 1; i <= 100; i++)
        histogram_add(&a.phases[PHASE_ALL], i * 1000000);
    struct str names[] = {STR("ctr"), STR("cvr")};
    const struct figures *figures[] = {&a, &b};
    struct byte_buffer out = {0};
    struct metrics_text text = {.out = &out};
    figures_write(names, figures, 2, &text);
    buffer_append(&out, "", 1);
    assert_int_equal(value_of(&out, "leat_serve_requests_total{model=\"ctr\",outcome=\"answered\"} "), 5);
    assert_int_equal(value_of(&out, "leat_serve_requests_total{model=\"ctr\",outcome=\"shed\"} "), 2);
    assert_int_equal(value_of(&out, "leat_serve_rows_total{model=\"ctr\",outcome=\"answered\"} "), 70);
    assert_int_equal(value_of(&out, "leat_serve_rows_late_total{model=\"ctr\"} "), 3);
    assert_int_equal(value_of(&out, "leat_serve_rows_total{model=\"cvr\",outcome=\"failed\"} "), 4);
    assert_int_equal(value_of(&out, "leat_serve_seconds_count{model=\"ctr\",phase=\"all\"} "), 100);
    uint64_t last = 0;
    uint32_t buckets = 0;
    for (const char *at = out.data; (at = strstr(at, "model=\"ctr\",phase=\"all\",le=\"")) != NULL;
         buckets++) {
        double end = strtod(at + strlen("model=\"ctr\",phase=\"all\",le=\""), NULL);
        at = strchr(at, '}') + 2;
        uint64_t seen = strtoull(at, NULL, 10), exact = 0;
        for (int64_t i = 1; i <= 100; i++)
            exact += (double)i * 1e-3 < end;
        assert_int_equal(seen, exact);
        assert_true(seen >= last);
        last = seen;
    }
    assert_int_equal(last, 100);
    assert_true(buckets > 20);
    uint32_t types = 0;
    for (const char *at = out.data; (at = strstr(at, "# TYPE leat_serve_seconds ")) != NULL; at++)
        types++;
    assert_int_equal(types, 1);
    buffer_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantiles),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_prometheus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
