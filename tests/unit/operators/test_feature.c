/* feature against a quadratic model: each row looks at all updates before it. */
#include "keyed_script.h"

#include "core/describe.h"
#include "operators/window/panes.h"
#include "unit/support/random.h"
#include "unit/support/scan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* A window's aggregates over some updates; floats are quarters, so that their sums are exact in any order. */
struct seen {
    int64_t rows, values, sum, min, max, last_time;
    double total;
    int64_t times[SCRIPT_ROWS_MAX], distinct;
    const char *last;
    int64_t last_text_time;
};

struct model {
    const struct script *script;
    int64_t every, over[2]; /* over: lengths of the windows; INT64_MAX: forever */
    uint32_t windows;
    uint32_t update_input;
    bool includes_self;
    bool is_short;                  /* the body is { n: count(), sum: sum(x) } */
    bool is_taken[SCRIPT_ROWS_MAX]; /* whether an update was not late */
    uint64_t late_updates, null_keys;
};

static bool same_group(const struct fake_row *a, const struct fake_row *b)
{
    return a->has_k == b->has_k && (!a->has_k || a->k == b->k);
}

static int64_t first_alive(const struct model *m, int64_t watermark)
{
    int64_t longest = 0, pane = INT64_MIN;
    for (uint32_t w = 0; w < m->windows; w++)
        longest = MAX(longest, m->over[w] == INT64_MAX ? 0 : m->over[w]);
    if (watermark == TIME_MIN || longest == 0)
        return pane;
    /* The lowest pane whose end + longest is not below the watermark. */
    pane = pane_of(watermark - longest, m->every) - 2;
    while ((pane + 1) * m->every + longest < watermark)
        pane++;
    return pane;
}

/* The last pane whose end is not above the watermark. */
static int64_t last_closed(const struct model *m, int64_t watermark)
{
    int64_t pane = INT64_MIN;
    if (watermark == TIME_MIN)
        return pane;
    pane = pane_of(watermark, m->every) + 1;
    while ((pane + 1) * m->every > watermark)
        pane--;
    return pane;
}

static void look(const struct model *m, uint32_t reader, uint32_t window, struct seen *seen)
{
    const struct fake_row *row = &m->script->rows[reader];
    int64_t watermark = script_watermark_before(m->script, m->script->micro_batch_of[reader]);
    int64_t pane = pane_of(row->ts, m->every), first = pane - m->over[window] / m->every;
    int64_t distinct[2000], alive = first_alive(m, watermark);
    bool is_forever = m->over[window] == INT64_MAX;
    first = is_forever ? INT64_MIN : MAX(first, alive);
    if (is_forever)
        pane = MAX(pane, last_closed(m, watermark));
    *seen = (struct seen){
        .min = INT64_MAX, .max = INT64_MIN, .last_time = INT64_MIN, .last_text_time = INT64_MIN};
    for (uint32_t i = 0; i < reader + m->includes_self; i++) {
        const struct fake_row *update = &m->script->rows[i];
        int64_t p = pane_of(update->ts, m->every);
        if (update->input != m->update_input || (!is_forever && !m->is_taken[i]) ||
            !same_group(row, update) || p < first || p > pane)
            continue;
        seen->rows++;
        seen->last_time = MAX(seen->last_time, update->ts);
        if (update->s != NULL && update->ts >= seen->last_text_time) {
            seen->last = update->s;
            seen->last_text_time = update->ts;
        }
        if (update->has_v)
            seen->total += update->v;
        if (!update->has_x)
            continue;
        seen->values++;
        seen->sum += update->x;
        seen->min = MIN(seen->min, update->x);
        seen->max = MAX(seen->max, update->x);
        bool is_new = true;
        for (int64_t d = 0; d < seen->distinct; d++)
            is_new &= distinct[d] != update->x;
        if (is_new)
            distinct[seen->distinct++] = update->x;
    }
}

static void show_or_null(struct byte_buffer *out, bool has, int64_t value)
{
    buffer_printf(out, "|");
    script_show_value(out, has, value);
}

/* Writes the columns that the steps below add, by id. */
static void model_run(struct model *m, struct byte_buffer *out)
{
    static struct seen seen[2];
    for (uint32_t i = 0; i < m->script->count; i++) {
        const struct fake_row *row = &m->script->rows[i];
        int64_t watermark = script_watermark_before(m->script, m->script->micro_batch_of[i]);
        m->null_keys += !row->has_k;
        if (row->input == m->update_input) {
            m->is_taken[i] = pane_of(row->ts, m->every) >= first_alive(m, watermark);
            m->late_updates += !m->is_taken[i];
        }
        if (row->input != 0)
            continue;
        buffer_printf(out, "%lld", (long long)row->id);
        for (uint32_t w = 0; w < m->windows; w++)
            look(m, i, w, &seen[w]);
        for (uint32_t w = 0; w < m->windows; w++)
            buffer_printf(out, "|%lld", (long long)seen[w].rows);
        for (uint32_t w = 0; w < m->windows; w++)
            buffer_printf(out, "|%lld", (long long)seen[w].sum);
        if (m->is_short) {
            buffer_printf(out, "\n");
            continue;
        }
        for (uint32_t w = 0; w < m->windows; w++)
            buffer_printf(out, "|%.17g", seen[w].total);
        for (uint32_t w = 0; w < m->windows; w++)
            show_or_null(out, seen[w].values > 0, seen[w].min);
        for (uint32_t w = 0; w < m->windows; w++)
            show_or_null(out, seen[w].values > 0, seen[w].max);
        for (uint32_t w = 0; w < m->windows; w++)
            if (seen[w].values > 0)
                buffer_printf(out, "|%.17g", (double)seen[w].sum / (double)seen[w].values);
            else
                buffer_printf(out, "|null");
        for (uint32_t w = 0; w < m->windows; w++)
            buffer_printf(out, "|%lld", (long long)seen[w].distinct);
        for (uint32_t w = 0; w < m->windows; w++)
            buffer_printf(out, "|%s", seen[w].last == NULL ? "null" : seen[w].last);
        for (uint32_t w = 0; w < m->windows; w++)
            show_or_null(out, seen[w].rows > 0, seen[w].rows > 0 ? MAX(row->ts - seen[w].last_time, 0) : 0);
        buffer_printf(out, "\n");
    }
}

#define BODY                                                                                                 \
    "{ n: count(), sum: sum(x), total: sum(v), low: min(x), high: max(x), mid: mean(x), kinds: "             \
    "distinct(x), "                                                                                          \
    "word: last(s), pause: since_last() }"

/* Writes each row's id and the columns behind the input's eight. */
static void cut_columns(struct byte_buffer *rows, struct byte_buffer *out)
{
    fake_text(rows);
    for (size_t i = 0; i < rows->length;) {
        size_t end = i + scan_until(rows->data + i, "\n"), id = scan_until(rows->data + i, "|"), at = i;
        for (int column = 0; column < 8; column++)
            at += scan_until(rows->data + at, "|\n") + 1;
        buffer_printf(out, "%.*s|%.*s\n", (int)id, rows->data + i, (int)(end - at), rows->data + at);
        i = end + 1;
    }
    fake_text(out);
}

static void run_case(uint64_t seed, const char *step, uint32_t inputs, struct model *m, uint32_t keys)
{
    static struct script script;
    struct script_options options = {.seed = seed,
                                     .inputs = inputs,
                                     .micro_batches = 60,
                                     .rows_per_number = 40,
                                     .keys = keys,
                                     .step_us = 400000,
                                     .jitter_us = 5 * US_PER_SECOND,
                                     .delay_us = 8 * US_PER_SECOND};
    script_make(&script, &options);
    m->script = &script;
    struct script_result plain;
    struct byte_buffer expected = {0}, got = {0};
    model_run(m, &expected);
    script_check_variants(step, &script, &options, &plain);
    cut_columns(&plain.output, &got);
    script_compare(step, got.data, fake_text(&expected));
    assert_int_equal(plain.counters.late_updates, m->late_updates);
    assert_int_equal(plain.counters.null_keys, m->null_keys);
    assert_int_equal(plain.counters.in, plain.counters.passed);
    buffer_free(&expected);
    buffer_free(&got);
    script_free(&plain);
}

static void test_one_stream(void **state)
{
    (void)state;
    static struct model m;
    for (uint64_t seed = 1; seed <= 4; seed++) { /* few keys and many, with the row itself and without */
        m = (struct model){.every = US_PER_SECOND, .over = {60 * US_PER_SECOND}, .windows = 1};
        m.includes_self = seed % 2 == 0;
        run_case(seed,
                 m.includes_self ? "feature by k over 60s every 1s including self " BODY
                                 : "feature by k over 60s every 1s " BODY,
                 1, &m, seed < 3 ? 3 : 50);
    }
}

static void test_two_windows(void **state)
{
    (void)state;
    static struct model m;
    for (uint64_t seed = 11; seed <= 12; seed++) {
        m = (struct model){.every = 500000, .over = {10 * US_PER_SECOND, 200 * US_PER_SECOND}, .windows = 2};
        run_case(seed, "feature by k over [10s, 200s] every 500ms " BODY, 1, &m, 4);
    }
}

/* Windows over all time, alone and beside a window that ends; updates from the stream itself and
 * from another one. */
static void test_forever(void **state)
{
    (void)state;
    static struct model m;
    for (uint64_t seed = 41; seed <= 46; seed++) {
        m = (struct model){.every = seed % 2 == 0 ? 500000 : 20 * US_PER_SECOND,
                           .over = {INT64_MAX},
                           .windows = 1,
                           .includes_self = seed == 45};
        run_case(seed,
                 seed == 45      ? "feature by k over forever every 20s including self " BODY
                 : seed % 2 == 0 ? "feature by k over forever every 500ms " BODY
                                 : "feature by k over forever every 20s " BODY,
                 1, &m, seed < 43 ? 3 : 50);
    }
    m = (struct model){.every = 500000, .over = {10 * US_PER_SECOND, INT64_MAX}, .windows = 2};
    run_case(47, "feature by k over [10s, forever] every 500ms " BODY, 1, &m, 4);
    m = (struct model){
        .every = 500000, .over = {INT64_MAX, 200 * US_PER_SECOND}, .windows = 2, .is_short = true};
    run_case(48, "feature by k over [forever, 200s] every 500ms { n: count(), sum: sum(x) }", 1, &m, 4);
    m = (struct model){.every = 5 * US_PER_SECOND, .over = {INT64_MAX}, .windows = 1, .update_input = 1};
    run_case(49, "feature from other by k over forever every 5s " BODY, 2, &m, 8);
}

/* A long stream of one key: its state stays as small as the open slices, and each row costs the same, also if
 * one micro-batch has a thousand slices. The median is as exact as without slices (test_aggregates has the
 * bound of its sketch). */
static void test_forever_is_bounded(void **state)
{
    (void)state;
    enum { ROWS = 100000, PER_NUMBER = 1000 };
    static struct fake_row rows[PER_NUMBER];
    struct fake_engine engine;
    fake_open(&engine, NULL, 1);
    assert_true(fake_bind(&engine,
                          "feature by k over forever every 1s { n: count(), spread: variance(x), kinds: "
                          "distinct(x), median: quantile(v, 0.5), often: top(x, 1), latest: collect(id, 3), "
                          "word: last(s) }",
                          1));
    fake_start(&engine, 1, 64 << 20);
    double bytes_before = 0;
    for (int64_t at = 0; at < ROWS; at += PER_NUMBER) {
        for (int64_t i = 0; i < PER_NUMBER; i++)
            rows[i] = (struct fake_row){.id = at + i,
                                        .k = 1,
                                        .has_k = true,
                                        .x = (at + i) % 10 == 0 ? 7 : (at + i) % 1000,
                                        .has_x = true,
                                        .v = (double)((at + i) * 7919 % ROWS),
                                        .has_v = true,
                                        .s = "word",
                                        .ts = (at + i) * US_PER_SECOND};
        buffer_clear(&engine.output);
        fake_micro_batch(&engine, rows, PER_NUMBER, (at + PER_NUMBER) * US_PER_SECOND);
        struct report report = {0};
        operator_report(engine.kind, &engine.lanes[0], &report);
        double bytes = report_find(&report, "state_bytes")->value;
        if (at == ROWS / 2)
            bytes_before = bytes;
        if (at > ROWS / 2 && bytes > bytes_before * 1.5)
            fail_msg("%g bytes at row %lld, %g before", bytes, (long long)at, bytes_before);
    }
    const char *cell = fake_text(&engine.output);
    for (const char *next = scan_after(cell, '\n'); *next != '\0'; next = scan_after(cell, '\n'))
        cell = next;
    for (int column = 0; column < 8; column++)
        cell = scan_after(cell, '|');
    long long n, kinds;
    double spread, median;
    if (sscanf(cell, "%lld|%lf|%lld|%lf|[7]|[%*d %*d 99998]|word", &n, &spread, &kinds, &median) != 4)
        fail_msg("the last row has %s", cell);
    assert_int_equal(n, ROWS - 1);
    if (fabs(median / ROWS - 0.5) > 0.016 || llabs(kinds - 901) > 50)
        fail_msg("a median of %g, %lld kinds", median, kinds);
    fake_close(&engine);
}

/* `leat state get` shows all closed slices as one, then the open ones. */
static void test_forever_described(void **state)
{
    (void)state;
    struct fake_engine engine;
    fake_open(&engine, NULL, 1);
    assert_true(fake_bind(&engine, "feature by k over [10s, forever] every 1s { n: count() }", 1));
    fake_start(&engine, 1, 1 << 20);
    struct fake_row rows[30];
    for (int64_t i = 0; i < 30; i++)
        rows[i] = (struct fake_row){.id = i, .k = 1, .has_k = true, .ts = i * US_PER_SECOND};
    fake_micro_batch(&engine, rows, 28, 27 * US_PER_SECOND);
    fake_micro_batch(&engine, rows + 28, 2, 27 * US_PER_SECOND);
    struct batch *row = batch_new(engine.pool, engine.schema[0], 1);
    row->columns[1].ints[0] = 1;
    struct byte_buffer text = {0};
    struct describe describe;
    struct state_query query = {.row = row};
    describe_begin(&describe, &text, true);
    assert_true(engine.kind->describe(&engine.lanes[0], &query, &describe));
    describe_end(&describe);
    const char *all = strstr(fake_text(&text), "\"forever\"");
    assert_non_null(all);
    int panes = 0;
    for (const char *at = all; (at = strstr(at, "\"n\"")) != NULL; at++)
        panes++;
    if (panes != 4 || strstr(all, "\"n\": 27") == NULL)
        fail_msg("%s", fake_text(&text));
    buffer_free(&text);
    batch_release(row);
    fake_close(&engine);
}

/* Aggregates that add: a longer window continues from the shorter window's sums, in any order
 * of the windows. */
static void test_additive_windows(void **state)
{
    (void)state;
    static struct model m;
    for (uint64_t seed = 15; seed <= 16; seed++) {
        m = (struct model){.every = 500000,
                           .over = {200 * US_PER_SECOND, 10 * US_PER_SECOND},
                           .windows = 2,
                           .is_short = true};
        run_case(seed, "feature by k over [200s, 10s] every 500ms { n: count(), sum: sum(x) }", 1, &m, 4);
    }
}

/* Of rows with the same time, last takes the one that arrived later and first the one
 * that arrived earlier. */
static void test_ties(void **state)
{
    (void)state;
    struct fake_engine engine;
    fake_open(&engine, NULL, 1);
    assert_true(
        fake_bind(&engine, "feature by k over 1h { a: last(s), c: first(s), d: last(x), e: first(x) }", 1));
    fake_start(&engine, 1, 1 << 20);
    struct fake_row rows[3] = {{.id = 1, .k = 1, .has_k = true, .x = 5, .has_x = true, .s = "a"},
                               {.id = 2, .k = 1, .has_k = true, .x = 6, .has_x = true, .s = "b"},
                               {.id = 3, .k = 1, .has_k = true, .x = 7, .has_x = true, .s = "c"}};
    fake_micro_batch(&engine, rows, 3, 0);
    struct byte_buffer got = {0};
    cut_columns(&engine.output, &got);
    assert_string_equal(got.data, "1|null|null|null|null\n2|a|a|5|5\n3|b|a|6|5\n");
    buffer_free(&got);
    fake_close(&engine);
}

/* Sketches: exact while sparse, within 5 % (three standard errors) beyond; top is ordered by counts. */
static void test_sketches(void **state)
{
    (void)state;
    enum { ROWS = 20000, STEP = 2000 };
    static struct fake_row rows[STEP];
    struct fake_engine engine;
    fake_open(&engine, NULL, 1);
    assert_true(
        fake_bind(&engine, "feature by k over 1h { u: distinct(id), t: top(x, 3), w: variance(x) }", 1));
    fake_start(&engine, 1, 4 << 20);
    for (int64_t at = 0; at < ROWS; at += STEP) {
        for (int64_t i = 0; i < STEP; i++)
            rows[i] = (struct fake_row){.id = at + i, .k = 1, .has_k = true, .x = (i * i) % 7, .has_x = true};
        fake_micro_batch(&engine, rows, STEP, 0);
    }
    const char *cell = fake_text(&engine.output);
    for (int64_t i = 0; i < ROWS; i++) {
        for (int column = 0; column < 8; column++)
            while (*cell++ != '|')
                ;
        int64_t distinct = 0;
        for (; *cell != '|'; cell++)
            distinct = distinct * 10 + (*cell - '0');
        while (*cell++ != '\n')
            ;
        int64_t error = distinct > i ? distinct - i : i - distinct;
        if (i <= 512 ? error != 0 : error * 20 > i)
            fail_msg("distinct gives %lld for %lld", (long long)distinct, (long long)i);
    }
    /* i * i mod 7 is 1, 2 and 4 twice as often as 0; values with equal counts are in the order
     * of their bytes. */
    assert_non_null(strstr(fake_text(&engine.output), "|[1 2 4]|"));
    fake_close(&engine);
}

/* Windows of many panes are read by runs of panes, whose sketches change when a row is late; both sketches
 * are exact for few values. */
static void test_sketches_of_long_windows(void **state)
{
    (void)state;
    enum { ROWS = 4000, STEP = 100, PANES = 200, VALUES = 40 };
    static struct fake_row rows[ROWS];
    struct fake_engine engine;
    struct test_random random = {5};
    fake_open(&engine, NULL, 1);
    assert_true(fake_bind(&engine, "feature by k over 200m every 1m { u: distinct(x), t: top(x, 1) }", 1));
    fake_start(&engine, 1, 4 << 20);
    for (int64_t i = 0; i < ROWS; i++) {
        int64_t minute = 1000 + i / 5 - (random_chance(&random, 20) ? random_below(&random, 150) : 0);
        rows[i] =
            (struct fake_row){.id = i, .k = 1, .has_k = true, .ts = minute * US_PER_MINUTE, .has_x = true};
        rows[i].x = random_below(&random, 10 + (uint32_t)(i % 300) / 10);
    }
    for (int64_t at = 0; at < ROWS; at += STEP)
        fake_micro_batch(&engine, rows + at, STEP, 0);
    const char *line = fake_text(&engine.output);
    for (int64_t i = 0; i < ROWS; i++, line = scan_after(line, '\n')) {
        int64_t counts[VALUES] = {0}, distinct = 0, most = 0, pane = pane_of(rows[i].ts, US_PER_MINUTE);
        for (int64_t k = 0; k < i; k++) {
            int64_t p = pane_of(rows[k].ts, US_PER_MINUTE);
            if (p >= pane - PANES && p <= pane)
                counts[rows[k].x]++;
        }
        for (int v = 0; v < VALUES; v++)
            distinct += counts[v] > 0, most = MAX(most, counts[v]);
        const char *cell = line;
        for (int column = 0; column < 8; column++)
            cell = scan_after(cell, '|');
        const char *next;
        assert_int_equal(scan_number(cell, &next), distinct);
        assert_true(next[0] == '|' && next[1] == '[');
        if (distinct > 0)
            assert_int_equal(counts[scan_number(next + 2, NULL)], most);
    }
    fake_close(&engine);
}

static void test_from_another_stream(void **state)
{
    (void)state;
    static struct model m;
    for (uint64_t seed = 21; seed <= 22; seed++) {
        m = (struct model){
            .every = 5 * US_PER_SECOND, .over = {30 * US_PER_SECOND}, .windows = 1, .update_input = 1};
        run_case(seed, "feature from other by k over 30s every 5s " BODY, 2, &m, 8);
    }
}

/* Floats whose sums depend on the order, sketches beyond their sparse form, lists: equal in all variants. */
static void test_all_aggregates(void **state)
{
    (void)state;
    static struct script script;
    for (uint64_t seed = 32; seed <= 33; seed++) {
        struct script_options options = {.seed = seed,
                                         .inputs = 1,
                                         .micro_batches = 60,
                                         .rows_per_number = 60,
                                         .keys = 4,
                                         .step_us = 400000,
                                         .jitter_us = 5 * US_PER_SECOND,
                                         .delay_us = 8 * US_PER_SECOND,
                                         .has_odd_floats = true};
        script_make(&script, &options);
        struct script_result plain;
        script_check_variants(
            seed == 33
                ? "feature by k, b over [20s, forever] every 1s { t: sum(v), m: mean(v), d: "
                  "variance(v), e: variance(x), l: last(v), f: first(s), u: distinct(id), w: "
                  "top(s, 3), q: quantile(v, 0.5), a: argmax(s, v), z: collect(id, 5), y: top_n(x, 3, v) }"
                : "feature by k, b over [20s, 10m] every 1s { t: sum(v), m: mean(v), d: variance(v), e: "
                  "variance(x), "
                  "l: last(v), f: first(s), g: first(b), h: last(ts), u: distinct(id), w: top(s, 3), "
                  "y: top(x, 2), lo: min(v), hi: max(ts), c: count(s) }",
            &script, &options, &plain);
        script_free(&plain);
    }
}

static void test_lineage_and_names(void **state)
{
    (void)state;
    struct fake_engine engine;
    fake_open(&engine, NULL, 1);
    assert_false(fake_bind(&engine, "feature by k over [24h, 24h] every 1m { imps: count() }", 1));
    assert_non_null(fake_diag(&engine, DIAG_COLUMN_TAKEN));
    fake_close(&engine);
    fake_open(&engine, NULL, 1);
    assert_true(
        fake_bind(&engine, "feature by k over [1h, 24h] every 1m { imps: count(), spend: sum(v) }", 1));
    const struct schema *output = engine.bind.outputs[0];
    assert_int_equal(schema_find(output, STR("imps_1h")), 8);
    assert_int_equal(schema_find(output, STR("imps_24h")), 9);
    assert_int_equal(schema_find(output, STR("spend_24h")), 11);
    assert_true(bit_get(output->fields[11].lineage.words, 1));  /* the group's column */
    assert_false(bit_get(output->fields[11].lineage.words, 3)); /* not the column that it sums */
    fake_close(&engine);
    fake_open(&engine, NULL, 1);
    assert_true(fake_bind(&engine, "feature by k over 1h including self { spend: sum(v) }", 1));
    assert_true(bit_get(engine.bind.outputs[0]->fields[8].lineage.words, 3));
    fake_close(&engine);
}

static void test_diagnostics(void **state)
{
    (void)state;
    static const struct script_refusal cases[] = {
        {"feature by k over 90s every 1m { n: count() }", DIAG_OPTIONS_CLASH},
        {"feature by k over 365d every 1ms { n: count() }", DIAG_OPTIONS_CLASH},
        {"feature by k over 1h { n: 1 + count() }", DIAG_BAD_AGGREGATE},
        {"feature by k over 1h { n: x }", DIAG_BAD_AGGREGATE},
        {"feature by k over 1h { n: sum(s) }", DIAG_BAD_ARGUMENTS},
        {"feature by k over 1h { n: sum() }", DIAG_BAD_ARGUMENTS},
        {"feature by k over 1h { n: top(x) }", DIAG_BAD_ARGUMENTS},
        {"feature by k over 1h { n: top(x, 1000) }", DIAG_BAD_ARGUMENTS},
        {"feature by k over 1h { n: sum(max(x)) }", DIAG_BAD_AGGREGATE},
        {"feature by k over 1h { x: count() }", DIAG_COLUMN_TAKEN},
        {"feature by k over [forever, forever] { n: count() }", DIAG_COLUMN_TAKEN},
        {"feature by k over ever { n: count() }", DIAG_OPTION_TYPE},
        {"feature by k over forever { n: count(), m: distinct_exact(x) }", DIAG_OPTIONS_CLASH},
        {"feature by k over [1h, forever] { n: distinct_exact(s) }", DIAG_OPTIONS_CLASH},
        {"feature by k over 1h { n: sum(xx) }", DIAG_NO_COLUMN},
        {"feature by l over 1h { n: count() }", DIAG_TYPE_CLASH}};
    script_check_refusals(cases, ARRAY_COUNT(cases), 1);
}

/* A row whose argument fails goes to dead letters and changes no state. */
static void test_failing_arguments(void **state)
{
    (void)state;
    struct fake_engine engine;
    fake_open(&engine, NULL, 1);
    assert_true(fake_bind(&engine, "feature by k over 1h { n: count(), t: sum(100 / x) }", 1));
    fake_start(&engine, 1, 1 << 20);
    struct fake_row rows[3] = {{.id = 1, .k = 1, .has_k = true, .x = 5, .has_x = true},
                               {.id = 2, .k = 1, .has_k = true, .x = 0, .has_x = true},
                               {.id = 3, .k = 1, .has_k = true, .x = 2, .has_x = true}};
    fake_micro_batch(&engine, rows, 3, 0);
    struct byte_buffer got = {0};
    cut_columns(&engine.output, &got);
    assert_string_equal(got.data, "1|0|0\n3|1|20\n");
    assert_int_equal(engine.rejects, 1);
    assert_int_equal(engine.lanes[0].counters.dead, 1);
    buffer_free(&got);
    fake_close(&engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_failing_arguments),
                                       cmocka_unit_test(test_diagnostics),
                                       cmocka_unit_test(test_lineage_and_names),
                                       cmocka_unit_test(test_one_stream),
                                       cmocka_unit_test(test_from_another_stream),
                                       cmocka_unit_test(test_two_windows),
                                       cmocka_unit_test(test_forever),
                                       cmocka_unit_test(test_forever_is_bounded),
                                       cmocka_unit_test(test_forever_described),
                                       cmocka_unit_test(test_all_aggregates),
                                       cmocka_unit_test(test_additive_windows),
                                       cmocka_unit_test(test_ties),
                                       cmocka_unit_test(test_sketches),
                                       cmocka_unit_test(test_sketches_of_long_windows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
