/* distinct_exact, argmax, argmin, top_n, collect, count_if, quantile: against plain models, in a window and
 * over panes that merge; and with large groups. */
#include "keyed_script.h"

#include "operators/aggregate/aggregate.h"
#include "unit/support/scan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static struct script script;

/* --- A plain model: all rows of a group, in the order of records --- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void show_text(struct byte_buffer *out, const char *text)
{
    buffer_printf(out, "%s|", text == NULL ? "null" : text);
}

static void show_distinct(struct byte_buffer *out, const uint32_t *rows, uint32_t count)
{
    uint32_t ints = 0, texts = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct fake_row *row = &script.rows[rows[i]];
        bool is_new_int = row->has_x, is_new_text = row->s != NULL;
        for (uint32_t j = 0; j < i; j++) {
            const struct fake_row *other = &script.rows[rows[j]];
            is_new_int &= !other->has_x || other->x != row->x;
            is_new_text &= other->s == NULL || row->s == NULL || strcmp(other->s, row->s) != 0;
        }
        ints += is_new_int;
        texts += is_new_text;
    }
    buffer_printf(out, "%u|%u|", ints, texts);
}

/* The rows that have v and the other column, best first: larger v (sign 1) or smaller v (sign
 * -1), then earlier. */
static uint32_t ranked(const uint32_t *rows, uint32_t count, int sign, bool has_text, uint32_t *out)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct fake_row *row = &script.rows[rows[i]];
        if (!row->has_v || (has_text ? row->s == NULL : !row->has_x))
            continue;
        uint32_t at = kept++;
        for (; at > 0; at--) {
            const struct fake_row *other = &script.rows[out[at - 1]];
            if (other->v * sign > row->v * sign || (other->v == row->v && other->ts <= row->ts))
                break;
            out[at] = out[at - 1];
        }
        out[at] = rows[i];
    }
    return kept;
}

static void show_ranked(struct byte_buffer *out, const uint32_t *rows, uint32_t count)
{
    static uint32_t best[SCRIPT_ROWS_MAX];
    uint32_t found = ranked(rows, count, 1, true, best);
    show_text(out, found == 0 ? NULL : script.rows[best[0]].s);
    found = ranked(rows, count, -1, false, best);
    if (found == 0)
        buffer_printf(out, "null|");
    else
        buffer_printf(out, "%lld|", (long long)script.rows[best[0]].x);
    found = ranked(rows, count, 1, false, best);
    buffer_printf(out, "[");
    for (uint32_t i = 0; i < MIN(found, 3); i++)
        buffer_printf(out, "%s%lld", i == 0 ? "" : " ", (long long)script.rows[best[i]].x);
    buffer_printf(out, "]|");
}

static void show_latest(struct byte_buffer *out, const uint32_t *rows, uint32_t count)
{
    static uint32_t order[SCRIPT_ROWS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;
        for (; at > 0 && script.rows[order[at - 1]].ts > script.rows[rows[i]].ts; at--)
            order[at] = order[at - 1];
        order[at] = rows[i];
    }
    buffer_printf(out, "[");
    for (uint32_t i = count > 4 ? count - 4 : 0, first = i; i < count; i++)
        buffer_printf(out, "%s%lld", i == first ? "" : " ", (long long)script.rows[order[i]].id);
    buffer_printf(out, "]|");
}

static void show_quantile(struct byte_buffer *out, const uint32_t *rows, uint32_t count, double share)
{
    static double values[SCRIPT_ROWS_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        if (script.rows[rows[i]].has_v)
            values[n++] = script.rows[rows[i]].v;
    assert_true(n <= 128);
    if (n == 0) {
        buffer_printf(out, "null");
        return;
    }
    qsort(values, n, sizeof(*values), compare_doubles);
    double rank = share * (n - 1), below = floor(rank);
    uint32_t at = (uint32_t)below;
    double next = values[MIN(at + 1, n - 1)], part = rank - below;
    buffer_printf(out, "%.17g",
                  part == 0 || next == values[at] ? values[at] : values[at] * (1 - part) + next * part);
}

#define BODY                                                                                                 \
    "{ ints: distinct_exact(x), texts: distinct_exact(s), word: argmax(s, v), low: argmin(x, v), "           \
    "high: top_n(x, 3, v), recent: collect(id, 4), n: count_if(b), middle: quantile(v, 0.3) }"

static void show_group(struct byte_buffer *out, const uint32_t *rows, uint32_t count)
{
    show_distinct(out, rows, count);
    show_ranked(out, rows, count);
    show_latest(out, rows, count);
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        n += script.rows[rows[i]].b;
    buffer_printf(out, "%u|", n);
    show_quantile(out, rows, count, 0.3);
    buffer_printf(out, "\n");
}

static bool is_same_key(const struct fake_row *a, const struct fake_row *b)
{
    return a->has_k == b->has_k && (!a->has_k || a->k == b->k);
}

static void make(uint64_t seed, uint32_t keys)
{
    struct script_options options = {.seed = seed,
                                     .inputs = 1,
                                     .micro_batches = 50,
                                     .rows_per_number = 50,
                                     .keys = keys,
                                     .step_us = 400000,
                                     .jitter_us = 3 * US_PER_SECOND,
                                     .delay_us = 5 * US_PER_SECOND};
    script_make(&script, &options);
    for (uint32_t i = 0; i < script.count; i++) { /* makes equal values and times frequent */
        script.rows[i].v = floor(script.rows[i].v / 32);
        script.rows[i].ts -= script.rows[i].ts % US_PER_SECOND;
    }
}

static void test_in_windows(void **state)
{
    (void)state;
    int64_t size = 20 * US_PER_SECOND;
    static uint32_t rows[SCRIPT_ROWS_MAX];
    static bool is_done[SCRIPT_ROWS_MAX];
    for (uint64_t seed = 1; seed <= 3; seed++) {
        make(seed, seed == 1 ? 3 : 25);
        struct byte_buffer expected = {0};
        for (uint32_t i = 0; i < script.count; i++) {
            int64_t watermark = script_watermark_before(&script, script.micro_batch_of[i]);
            is_done[i] = watermark != TIME_MIN && (script.rows[i].ts / size + 1) * size <= watermark;
        }
        for (uint32_t i = 0; i < script.count; i++) {
            const struct fake_row *row = &script.rows[i];
            uint32_t count = 0;
            for (uint32_t j = i; j < script.count && !is_done[i]; j++)
                if (!is_done[j] && is_same_key(&script.rows[j], row) &&
                    script.rows[j].ts / size == row->ts / size)
                    rows[count++] = j;
            if (count == 0)
                continue;
            for (uint32_t k = 0; k < count; k++)
                is_done[rows[k]] = true;
            if (row->has_k)
                buffer_printf(&expected, "%lld|", (long long)row->k);
            else
                buffer_printf(&expected, "null|");
            buffer_printf(&expected, "%lld|%lld|", (long long)(row->ts / size * size),
                          (long long)((row->ts / size + 1) * size));
            show_group(&expected, rows, count);
        }
        struct script_options options = {.seed = seed, .inputs = 1};
        struct script_result plain;
        script_check_variants("window by k over tumbling(20s) " BODY, &script, &options, &plain);
        script_compare_sorted("window", &plain.output, &expected);
        buffer_free(&expected);
        script_free(&plain);
    }
}

/* Six panes of 5 s and the row's own pane: a row's value is merged from several panes. */
static void test_over_panes(void **state)
{
    (void)state;
    int64_t width = 5 * US_PER_SECOND, over = 30 * US_PER_SECOND;
    static uint32_t rows[SCRIPT_ROWS_MAX];
    for (uint64_t seed = 4; seed <= 5; seed++) {
        make(seed, seed == 4 ? 3 : 20);
        struct byte_buffer expected = {0}, got = {0};
        for (uint32_t i = 0; i < script.count; i++) {
            const struct fake_row *row = &script.rows[i];
            int64_t pane = row->ts / width,
                    passed = script_watermark_before(&script, script.micro_batch_of[i]);
            int64_t alive = passed == TIME_MIN ? INT64_MIN : (passed - over - 1) / width;
            uint32_t count = 0;
            for (uint32_t j = 0; j < i; j++) {
                int64_t other = script.rows[j].ts / width;
                int64_t then = script_watermark_before(&script, script.micro_batch_of[j]);
                if (is_same_key(row, &script.rows[j]) && other <= pane && other >= pane - over / width &&
                    other >= alive && (then == TIME_MIN || other >= (then - over - 1) / width))
                    rows[count++] = j;
            }
            show_group(&expected, rows, count);
        }
        struct script_options options = {.seed = seed, .inputs = 1};
        struct script_result plain;
        script_check_variants("feature by k over 30s every 5s " BODY, &script, &options, &plain);
        for (size_t i = 0; i < plain.output.length; i += scan_until(plain.output.data + i, "\n") + 1) {
            const char *at = plain.output.data + i;
            for (int c = 0; c < 8; c++)
                at = scan_after(at, '|');
            buffer_printf(&got, "%.*s\n", (int)scan_until(at, "\n"), at);
        }
        script_compare("feature", fake_text(&got), fake_text(&expected));
        buffer_free(&expected);
        buffer_free(&got);
        script_free(&plain);
    }
}

/* --- Large groups --- */

enum { LARGE_STEP = 5000 };

/* The distinct values of one group as the window counts them. values: 0: scattered ints, 1: consecutive ints,
 * 2: texts. */
static uint64_t large_group(int values, int64_t count, uint64_t *dead)
{
    static struct fake_row rows[LARGE_STEP];
    static char texts[LARGE_STEP][48];
    struct fake_engine engine;
    fake_open(&engine, NULL, 1);
    assert_true(fake_bind(&engine,
                          values == 2 ? "window by b over tumbling(1h) { n: distinct_exact(s), m: count() }"
                                      : "window by b over tumbling(1h) { n: distinct_exact(x), m: count() }",
                          1));
    fake_start(&engine, 1, 64 << 20);
    for (int64_t at = 0; at < 2 * count; at += LARGE_STEP) { /* each value twice */
        for (int64_t i = 0; i < LARGE_STEP; i++) {
            int64_t value = (at + i) % count;
            snprintf(texts[i], sizeof(texts[i]), "%lld of many such texts", (long long)value);
            rows[i] = (struct fake_row){
                .id = at + i,
                .x = values == 0 ? (int64_t)((uint64_t)value * UINT64_C(0x9e3779b97f4a7c1)) : value,
                .has_x = true,
                .s = texts[i],
                .list = UINT32_MAX};
        }
        fake_micro_batch(&engine, rows, LARGE_STEP, TIME_MIN + 1);
    }
    fake_micro_batch(&engine, rows, 0, TIME_MAX);
    unsigned long long n = 0, m = 0;
    assert_int_equal(sscanf(fake_text(&engine.output), "0|0|3600000000|%llu|%llu", &n, &m), 2);
    struct counters counters = fake_counters(&engine);
    assert_true(counters_balance(&counters) && counters.absorbed == m);
    *dead = counters.dead;
    fake_close(&engine);
    return n;
}

static void test_large_groups(void **state)
{
    (void)state;
    uint64_t dead;
    assert_int_equal(large_group(0, 200000, &dead), 200000);
    assert_int_equal(dead, 0);
    assert_int_equal(large_group(1, 2000000, &dead), 2000000);
    assert_int_equal(dead, 0);
    assert_int_equal(large_group(2, 100000, &dead), 100000);
    assert_int_equal(dead, 0);
    /* Values that do not fit are refused, and known values still count. */
    uint64_t n = large_group(0, 240000, &dead);
    assert_int_equal(n, 229376);
    assert_int_equal(dead, 2 * (240000 - 229376));
}

/* The values 1 .. n, near 0 or far from it, in one pane or merged from many: their sample variance (divided
 * by n - 1) is n (n + 1) / 12; the population's would be (n * n - 1) / 12. A single value has none. */
static void test_variance_of_a_sample(void **state)
{
    (void)state;
    enum { ROWS = 300 };
    static struct fake_row rows[ROWS];
    for (int which = 0; which < 4; which++) {
        int64_t step_us = which % 2 == 0 ? 0 : US_PER_SECOND, far = which < 2 ? 0 : 1000000;
        struct fake_engine engine;
        fake_open(&engine, NULL, 1);
        assert_true(fake_bind(&engine,
                              "feature by k over 1000s every 1s including self { p: variance(x), q: "
                              "variance(v) }",
                              1));
        fake_start(&engine, 1, 1 << 20);
        for (int64_t i = 0; i < ROWS; i++)
            rows[i] = (struct fake_row){.k = 1,
                                        .has_k = true,
                                        .x = far + i + 1,
                                        .has_x = true,
                                        .v = (double)(far + i + 1),
                                        .has_v = true,
                                        .ts = i * step_us};
        fake_micro_batch(&engine, rows, ROWS, 0);
        const char *cell = fake_text(&engine.output);
        for (int n = 1; n <= ROWS; n++, cell = scan_after(cell, '\n')) {
            for (int column = 0; column < 8; column++)
                cell = scan_after(cell, '|');
            if (n == 1) {
                assert_memory_equal(cell, "null|null\n", 10);
                continue;
            }
            char *second;
            double ints = strtod(cell, &second), floats = strtod(second + 1, NULL);
            double expected = (double)n * (n + 1) / 12;
            if (fabs(ints / expected - 1) > 1e-9 || fabs(floats / expected - 1) > 1e-9)
                fail_msg("variance of %d values: %.17g and %.17g, not %.17g", n, ints, floats, expected);
        }
        fake_close(&engine);
    }
}

static void test_diagnostics(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "quantile(v)",    "quantile(v, 1.5)",  "quantile(v, x)",   "quantile(s, 0.5)",
        "argmax(x)",      "argmax(x, s)",      "argmax(x, v, v)",  "top_n(x, v)",
        "top_n(x, 0, v)", "top_n(x, 1001, v)", "top_n(x, 3)",      "collect(x)",
        "collect(l, 3)",  "count_if(x)",       "distinct_exact()", "distinct_exact(l)"};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        char step[128];
        snprintf(step, sizeof(step), "window by k over tumbling(1h) { n: %s }", cases[i]);
        script_check_refusals(&(struct script_refusal){step, DIAG_BAD_ARGUMENTS}, 1, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_diagnostics),  cmocka_unit_test(test_variance_of_a_sample),
        cmocka_unit_test(test_large_groups), cmocka_unit_test(test_in_windows),
        cmocka_unit_test(test_over_panes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
