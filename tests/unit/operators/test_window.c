/* window against a model that keeps every row. */
#include "keyed_script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SIZE_S = 20 };

/* Lines as the step below emits them, unsorted, and the late ids. */
static void model(const struct script *script, int64_t lateness, struct byte_buffer *out,
                  struct counters *counters)
{
    int64_t size = SIZE_S * US_PER_SECOND;
    static bool is_done[SCRIPT_ROWS_MAX];
    memset(is_done, 0, sizeof is_done);
    for (uint32_t i = 0; i < script->count; i++) {
        const struct fake_row *row = &script->rows[i];
        int64_t end = (row->ts / size + 1) * size,
                watermark = script_watermark_before(script, script->number_of[i]);
        counters->in++;
        counters->null_keys += !row->has_k;
        is_done[i] = watermark != TIME_MIN && end + lateness <= watermark;
        counters->late += is_done[i];
        counters->absorbed += !is_done[i];
    }
    for (uint32_t i = 0; i < script->count; i++) {
        const struct fake_row *row = &script->rows[i];
        if (is_done[i])
            continue;
        int64_t n = 0, start = row->ts / size * size, last = INT64_MIN;
        double total = 0;
        const char *word = NULL;
        for (uint32_t j = i; j < script->count; j++) {
            const struct fake_row *other = &script->rows[j];
            if (is_done[j] || other->has_k != row->has_k || (row->has_k && other->k != row->k) ||
                other->b != row->b || other->ts / size * size != start)
                continue;
            is_done[j] = true;
            n++;
            total += other->has_v ? other->v : 0;
            if (other->s != NULL && other->ts >= last) {
                last = other->ts;
                word = other->s;
            }
        }
        counters->emitted++;
        if (row->has_k)
            buffer_printf(out, "%lld|", (long long)row->k);
        else
            buffer_printf(out, "null|");
        buffer_printf(out, "%d|%lld|%lld|%lld|%.17g|%s\n", row->b, (long long)start,
                      (long long)(start + size), (long long)n, total, word == NULL ? "null" : word);
    }
    fake_text(out);
}

static void against_model(void **state)
{
    (void)state;
    static struct script script;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct script_options options = {.seed = seed,
                                         .inputs = 1,
                                         .numbers = 70,
                                         .rows_per_number = 70,
                                         .keys = seed % 2 == 0 ? 5 : 200,
                                         .step_us = 300000,
                                         .jitter_us = 4 * US_PER_SECOND,
                                         .delay_us = 6 * US_PER_SECOND};
        int64_t lateness = seed % 3 == 0 ? 7 * US_PER_SECOND : 0;
        script_make(&script, &options);
        struct script_result plain;
        struct byte_buffer expected = {0};
        struct counters counters = {0};
        model(&script, lateness, &expected, &counters);
        script_check_variants(
            lateness > 0
                ? "window by k, b over tumbling(20s) lateness 7s { n: count(), total: sum(v), word: last(s) }"
                : "window by k, b over tumbling(20s) { n: count(), total: sum(v), word: last(s) }",
            &script, &options, &plain);
        char *got = script_sorted(&plain.output), *wanted = script_sorted(&expected);
        script_compare("window", got, wanted);
        assert_memory_equal(&plain.counters, &counters, sizeof counters);
        assert_true(counters.late > 0);
        free(got);
        free(wanted);
        buffer_free(&expected);
        script_free(&plain);
    }
}

/* Rows come in order of window end, also when several windows close at once; event time is the end - 1us. */
static void order_of_closing(void **state)
{
    (void)state;
    struct fake_engine engine;
    fake_open(&engine, NULL, 1);
    assert_true(fake_bind(&engine, "window by s over tumbling(10s) { n: count() }", 1));
    assert_true(engine.bind.is_timer_kind && engine.bind.outputs[1] == engine.schema[0]);
    fake_start(&engine, 1, 1 << 20);
    struct fake_row rows[4] = {{.ts = 25 * US_PER_SECOND, .s = "a text of more than fifteen bytes"},
                               {.ts = 9999999, .s = "a text of more than fifteen bytes"},
                               {.ts = 10 * US_PER_SECOND, .s = NULL},
                               {.ts = -1, .s = ""}};
    fake_number(&engine, rows, 4, 9999999);
    assert_string_equal(fake_text(&engine.output), "|-10000000|0|1\n");
    fake_number(&engine, rows, 0, 20 * US_PER_SECOND);
    assert_string_equal(
        fake_text(&engine.output),
        "|-10000000|0|1\na text of more than fifteen bytes|0|10000000|1\nnull|10000000|20000000|1\n");
    struct fake_row late = {.ts = 19999999, .s = "z"};
    fake_number(&engine, &late, 1, TIME_MAX);
    assert_int_equal(engine.lanes[0].counters.late, 1);
    assert_string_equal(fake_text(&engine.late), "0|null|null|null|z|0|19999999|[]\n");
    assert_int_equal(engine.lanes[0].counters.emitted, 4);
    fake_close(&engine);
}

/* A hundred thousand groups close at once: batches of at most 1,024 rows. */
static void many_at_once(void **state)
{
    (void)state;
    enum { GROUPS = 100000, STEP = 5000 };
    static struct fake_row rows[STEP];
    struct fake_engine engine;
    fake_open(&engine, NULL, 1);
    assert_true(fake_bind(&engine, "window by k over tumbling(1h) { n: count() }", 1));
    fake_start(&engine, 1, 64 << 20);
    for (int64_t at = 0; at < GROUPS; at += STEP) {
        for (int64_t i = 0; i < STEP; i++)
            rows[i] = (struct fake_row){.id = at + i, .k = at + i, .has_k = true};
        fake_number(&engine, rows, STEP, TIME_MIN + 1);
    }
    fake_number(&engine, rows, 0, TIME_MAX);
    assert_int_equal(engine.lanes[0].counters.emitted, GROUPS);
    assert_int_equal(engine.batch_rows_max, BATCH_ROWS);
    assert_false(engine.is_out_of_order);
    fake_close(&engine);
}

static void diagnostics(void **state)
{
    (void)state;
    static const struct {
        const char *step;
        enum diag_code code;
    } cases[] = {{"window by k over tumbling(0s) { n: count() }", DIAG_E0404},
                 {"window by k over tumbling() { n: count() }", DIAG_E0404},
                 {"window by k over 1h { n: count() }", DIAG_E0405},
                 {"window by k over thumbling(1h) { n: count() }", DIAG_E0405},
                 {"window by k over tumbling(1h) { n: since_last() }", DIAG_E0308},
                 {"window by k over tumbling(1h) { k: count() }", DIAG_E0306},
                 {"window by k over tumbling(1h) { window_end: count() }", DIAG_E0306},
                 {"window by k over tumbling(1h)", DIAG_E0402},
                 {"window over tumbling(1h) { n: count() }", DIAG_E0402}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct fake_engine engine;
        fake_open(&engine, NULL, 1);
        assert_false(fake_bind(&engine, cases[i].step, 1));
        if (fake_diag(&engine, cases[i].code) == NULL) {
            diag_print(stderr, &engine.diags, NULL, false);
            fail_msg("%s", cases[i].step);
        }
        fake_close(&engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(order_of_closing), cmocka_unit_test(diagnostics),
                                       cmocka_unit_test(many_at_once), cmocka_unit_test(against_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
