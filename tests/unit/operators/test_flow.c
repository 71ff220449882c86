/* split, route, rate_limit, pattern: against plain models, and at their edges. */
#include "keyed_script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { KEYS = 12, LIMIT = 3, PER_S = 20, WITHIN_S = 15 };

static struct script script;

static void make(uint64_t seed, int64_t jitter_us)
{
    struct script_options options = {.seed = seed,
                                     .inputs = 1,
                                     .micro_batches = 60,
                                     .rows_per_number = 50,
                                     .keys = KEYS,
                                     .step_us = 400000,
                                     .jitter_us = jitter_us,
                                     .delay_us = 6 * US_PER_SECOND};
    script_make(&script, &options);
    for (uint32_t i = 0; i < script.count; i++)
        script.rows[i].ts -=
            /* Makes equal times frequent, and times exactly at the bounds. */
            script.rows[i].ts % (US_PER_SECOND / 2);
    for (uint32_t n = 0; n + 1 < script.micro_batches; n++)
        script.watermarks[n] -= script.watermarks[n] % (US_PER_SECOND / 2);
}

static void check(const char *step, bool has_state, uint64_t seed, struct byte_buffer *expected,
                  struct byte_buffer *sides, const struct counters *counters)
{
    struct script_options options = {.seed = seed, .inputs = 1};
    struct script_result plain;
    struct byte_buffer got = {0}, got_sides = {0};
    if (has_state)
        script_check_variants(step, &script, &options, &plain);
    else
        script_run(step, &script, &options, SCRIPT_PLAIN, &plain);
    script_ids(&plain.output, &got);
    script_compare(step, got.data, fake_text(expected));
    script_ids(&plain.late, &got_sides);
    script_compare_sorted(step, &got_sides, sides);
    assert_memory_equal(&plain.counters, counters, sizeof(*counters));
    buffer_free(expected);
    buffer_free(sides);
    buffer_free(&got);
    buffer_free(&got_sides);
    script_free(&plain);
}

/* --- Split, route --- */

static void test_splitting(void **state)
{
    (void)state;
    struct byte_buffer out = {0}, rest = {0};
    struct counters counters = {0};
    make(1, US_PER_SECOND);
    for (uint32_t i = 0; i < script.count; i++) {
        const struct fake_row *row = &script.rows[i];
        bool is_dead = row->has_x && row->x == 0, is_in = row->has_x && !is_dead && 100 / row->x > 1;
        counters.in++;
        counters.dead += is_dead;
        counters.passed += is_in;
        counters.filtered += !is_in && !is_dead;
        if (!is_dead)
            buffer_printf(is_in ? &out : &rest, "%lld\n", (long long)row->id);
    }
    assert_true(counters.filtered > 0 && counters.passed > 0);
    check("split where 100 / x > 1", false, 1, &out, &rest, &counters);
}

static void test_routing(void **state)
{
    (void)state;
    for (int all = 0; all < 2; all++) {
        struct byte_buffer out = {0}, sides = {0};
        struct counters counters = {0};
        make(2, US_PER_SECOND);
        for (uint32_t i = 0; i < script.count; i++) {
            struct fake_row *row = &script.rows[i];
            row->x = row->x % 40; /* makes 0 frequent */
            bool fits[3] = {row->has_v && row->v > 400, row->b, row->has_x && row->x != 0 && 9 / row->x == 1};
            bool is_dead = row->has_x && row->x == 0 && (all || (!fits[0] && !fits[1]));
            counters.in++;
            counters.dead += is_dead;
            bool is_routed = false;
            for (int k = 0; k < 3 && !is_dead; k++)
                if (fits[k] && (all || !is_routed)) {
                    if (k > 0)
                        buffer_printf(&sides, "%d> ", k + 1);
                    buffer_printf(&sides, "%lld\n", (long long)row->id);
                    is_routed = true;
                }
            counters.passed += !is_routed && !is_dead;
            counters.filtered += is_routed;
            if (!is_routed && !is_dead)
                buffer_printf(&out, "%lld\n", (long long)row->id);
        }
        assert_true(counters.dead > 0 && out.length > 0);
        check(all ? "route match all { dear: v > 400, b: b, x: 9 / x = 1 }"
                  : "route { dear: v > 400, b: b, x: 9 / x = 1 }",
              false, 2, &out, &sides, &counters);
    }
}

/* --- rate_limit --- */

static int64_t key_of(const struct fake_row *row)
{
    return row->has_k ? row->k : INT64_MIN;
}

static void test_limiting(void **state)
{
    (void)state;
    static bool went_on[SCRIPT_ROWS_MAX];
    int64_t per = PER_S * US_PER_SECOND;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct byte_buffer out = {0}, sides = {0};
        struct counters counters = {0};
        make(seed, seed % 2 == 0 ? 4 * US_PER_SECOND : US_PER_SECOND / 2);
        memset(went_on, 0, sizeof(went_on));
        for (uint32_t i = 0; i < script.count; i++) {
            const struct fake_row *row = &script.rows[i];
            int64_t watermark = script_watermark_before(&script, script.micro_batch_of[i]);
            counters.in++;
            counters.null_keys += !row->has_k;
            if (watermark != TIME_MIN && row->ts + per <= watermark) {
                counters.late++;
                buffer_printf(&sides, "%lld\n", (long long)row->id);
                continue;
            }
            went_on[i] = true;
            bool is_beyond = false;
            for (uint32_t begin = 0; begin <= i && !is_beyond; begin++) {
                int64_t from = script.rows[begin].ts, count = 0;
                if (!went_on[begin] || key_of(&script.rows[begin]) != key_of(row) || from > row->ts ||
                    from <= row->ts - per)
                    continue;
                for (uint32_t j = 0; j <= i; j++)
                    count += went_on[j] && key_of(&script.rows[j]) == key_of(row) &&
                             script.rows[j].ts >= from && script.rows[j].ts < from + per;
                is_beyond = count > LIMIT;
            }
            went_on[i] = !is_beyond;
            counters.passed += !is_beyond;
            counters.filtered += is_beyond;
            buffer_printf(is_beyond ? &sides : &out, is_beyond ? "2> %lld\n" : "%lld\n", (long long)row->id);
        }
        assert_true(counters.late > 0 && counters.filtered > 0);
        check("rate_limit 3 per 20s by k", true, seed, &out, &sides, &counters);
    }
}

/* --- Pattern --- */

struct waiting {
    uint32_t row;
    int64_t first, last;
    bool is_undone, is_out;
};

/* The rules of operators/pattern/pattern.c, on lists of rows. Steps: x < 200, b, v > 0; unless: x > 500. */
struct model {
    struct byte_buffer out, sides;
    struct counters counters;
    int64_t begun[KEYS + 1][3][3]; /* [key][steps done]: the times of the steps; -1: none */
    struct waiting waiting[SCRIPT_ROWS_MAX];
    uint32_t waiting_count;
};

static bool fits(const struct fake_row *row, int step)
{
    switch (step) {
    case 0: return row->has_x && row->x < 200;
    case 1: return row->b;
    case 2: return row->has_v && row->v > 0;
    default: return row->has_x && row->x > 500;
    }
}

/* Whether the row falls within a waiting match: it then undoes the match or is filtered, and has
 * no other effect. */
static bool meet(struct model *model, const struct fake_row *row, int64_t within, int64_t watermark)
{
    for (uint32_t i = 0; i < model->waiting_count; i++) {
        struct waiting *w = &model->waiting[i];
        if (w->is_undone || key_of(&script.rows[w->row]) != key_of(row) || w->first + within < watermark ||
            row->ts < w->first || row->ts > w->first + within)
            continue;
        w->is_undone = fits(row, 3) && row->ts >= w->last;
        model->counters.absorbed += w->is_undone;
        model->counters.filtered++; /* the match, or the row */
        return true;
    }
    return false;
}

static void follow(struct model *model, uint32_t i, int64_t within, int64_t watermark, bool waits)
{
    const struct fake_row *row = &script.rows[i];
    int64_t(*begun)[3] = model->begun[row->has_k ? row->k + 2 : KEYS];
    bool is_used = false;
    for (int step = 2; step >= 0; step--) {
        bool can = step == 0 || (begun[step][0] >= 0 && begun[step][0] + within >= watermark &&
                                 row->ts >= begun[step][step - 1] && row->ts <= begun[step][0] + within);
        if (!fits(row, step) || !can)
            continue;
        int64_t first = step == 0 ? row->ts : begun[step][0];
        if (step == 2) {
            if (waits)
                model->waiting[model->waiting_count++] = (struct waiting){i, first, row->ts, false, false};
            else
                buffer_printf(&model->out, "%lld %lld %lld %lld\n", (long long)row->id, (long long)first,
                              (long long)begun[2][1], (long long)row->ts);
            model->counters.passed += !waits;
            for (int n = 1; n < 3; n++)
                begun[n][0] = -1;
            return;
        }
        if (begun[step + 1][0] > first)
            continue;
        is_used = true;
        if (step > 0)
            memcpy(begun[step + 1], begun[step], sizeof(begun[step]));
        begun[step + 1][step] = row->ts;
    }
    model->counters.absorbed += is_used;
    model->counters.filtered += !is_used;
}

static int by_deadline(const void *a, const void *b)
{
    const struct waiting *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

static void patterns(uint64_t seed, bool waits)
{
    static struct model model;
    int64_t within = WITHIN_S * US_PER_SECOND;
    make(seed, seed % 2 == 0 ? 3 * US_PER_SECOND : US_PER_SECOND / 4);
    memset(&model, 0, sizeof(model));
    memset(model.begun, 0xff, sizeof(model.begun));
    for (uint32_t i = 0; i < script.count; i++) {
        const struct fake_row *row = &script.rows[i];
        int64_t watermark = script_watermark_before(&script, script.micro_batch_of[i]);
        model.counters.in++;
        model.counters.null_keys += !row->has_k;
        if (watermark != TIME_MIN && row->ts + within < watermark) {
            model.counters.late++;
            buffer_printf(&model.sides, "%lld\n", (long long)row->id);
        } else if (!meet(&model, row, within, watermark)) {
            follow(&model, i, within, watermark, waits);
        }
    }
    qsort(model.waiting, model.waiting_count, sizeof(*model.waiting), by_deadline);
    for (uint32_t i = 0; i < model.waiting_count; i++)
        if (!model.waiting[i].is_undone) {
            buffer_printf(&model.out, "%lld\n", (long long)script.rows[model.waiting[i].row].id);
            model.counters.passed++;
        }
    uint32_t undone = model.waiting_count - (uint32_t)model.counters.passed;
    assert_true(model.counters.late > 0 && model.counters.passed > 20 && (!waits || undone > 5));
    const char *step = waits ? "pattern by k within 15s unless x > 500 { a: x < 200, b: b, c: v > 0 }"
                             : "pattern by k within 15s keep s, id { a: x < 200, b: b, c: v > 0 }";
    struct script_options options = {.seed = seed, .inputs = 1};
    struct script_result plain;
    script_check_variants(step, &script, &options, &plain);
    struct byte_buffer got = {0}, sides = {0};
    script_ids(&plain.output, &got);
    script_ids(&plain.late, &sides);
    script_compare_sorted(step, &sides, &model.sides);
    struct byte_buffer expected = {0};
    for (size_t i = 0; i < model.out.length; i += strcspn(model.out.data + i, "\n") + 1)
        buffer_printf(&expected, "%.*s\n", (int)strcspn(model.out.data + i, " \n"), model.out.data + i);
    script_compare_sorted(step, &got, &expected);
    assert_memory_equal(&plain.counters, &model.counters, sizeof(model.counters));
    buffer_free(&got);
    buffer_free(&sides);
    buffer_free(&expected);
    buffer_free(&model.out);
    buffer_free(&model.sides);
    script_free(&plain);
}

static void test_pattern_against_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        patterns(seed, false);
        patterns(seed, true);
    }
}

/* One key, a few rows: the columns of a match, and when it is emitted. */
static void test_pattern_by_hand(void **state)
{
    (void)state;
    struct fake_engine engine;
    int64_t s = US_PER_SECOND;
    fake_open(&engine, NULL, 1);
    assert_true(
        fake_bind(&engine, "pattern by b within 10s unless x = 3 keep s, x { view: x = 1, cart: x = 2 }", 1));
    assert_true(engine.bind.is_timer_kind && engine.bind.hold_us == 10 * s);
    assert_string_equal(engine.bind.output_names[1] == NULL ? "late" : "", "late");
    fake_start(&engine, 1, 1 << 20);
    struct fake_row rows[] = {
        {.id = 1, .x = 1, .has_x = true, .ts = 1 * s, .s = "old"},
        {.id = 2, .x = 1, .has_x = true, .ts = 2 * s, .s = "a text that is longer than fifteen bytes"},
        {.id = 3, .x = 2, .has_x = true, .ts = 5 * s, .s = "x", .list = UINT32_MAX},
        {.id = 4, .x = 3, .has_x = true, .ts = 4 * s, .s = "before the cart"},
        {.id = 5, .x = 1, .has_x = true, .ts = 13 * s, .s = NULL},
        {.id = 6, .x = 2, .has_x = true, .ts = 23 * s, .s = "y"},
        {.id = 7, .x = 3, .has_x = true, .ts = 23 * s, .s = "undone"},
    };
    fake_micro_batch(&engine, rows, ARRAY_COUNT(rows), 12 * s);
    assert_string_equal(fake_text(&engine.output), "");
    assert_int_equal(engine.lanes[0].counters.held, 1);
    fake_micro_batch(&engine, rows, 0, 12 * s + 1);
    assert_string_equal(fake_text(&engine.output), "3|null|2|null|x|0|5000000|null|2000000|5000000|"
                                                   "a text that is longer than fifteen bytes|1\n");
    fake_micro_batch(&engine, rows, 0, TIME_MAX);
    struct counters counters = fake_counters(&engine);
    assert_true(counters_balance(&counters));
    assert_int_equal(counters.passed, 1);
    assert_int_equal(counters.absorbed, 4); /* rows 1, 2, 5 and 7 */
    assert_int_equal(counters.filtered, 2); /* row 4, and the match of row 6, which row 7 undid */
    fake_close(&engine);
}

static void test_diagnostics(void **state)
{
    (void)state;
    static const struct script_refusal cases[] = {
        {"split", DIAG_OPTION_MISSING},
        {"split where x", DIAG_TYPE_CLASH},
        {"route { }", DIAG_OPTION_MISSING},
        {"route { a: b, c: b, d: b, e: b, f: b, g: b, h: b, i: b }", DIAG_TOO_MANY},
        {"route { a: x }", DIAG_TYPE_CLASH},
        {"rate_limit 0 per 1h by k", DIAG_OUT_OF_RANGE},
        {"rate_limit 5 by k", DIAG_OPTION_MISSING},
        {"rate_limit 5 per 1h by l", DIAG_TYPE_CLASH},
        {"pattern by k within 1h { a: b }", DIAG_OPTION_MISSING},
        {"pattern by k within 1h { a: b, a: b }", DIAG_OPTION_TWICE},
        {"pattern by k within 1h keep l, zz { a: b, c: b }", DIAG_NO_COLUMN},
        {"pattern by k within 1h { a: x, c: b }", DIAG_TYPE_CLASH},
        {"pattern by k { a: b, c: b }", DIAG_OPTION_MISSING},
        {"pattern by k within 1h { a: b, c: b, d: b, e: b, f: b, g: b, h: b, i: b, j: b }", DIAG_TOO_MANY}};
    script_check_refusals(cases, ARRAY_COUNT(cases), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splitting),   cmocka_unit_test(test_routing),
        cmocka_unit_test(test_limiting),    cmocka_unit_test(test_pattern_by_hand),
        cmocka_unit_test(test_diagnostics), cmocka_unit_test(test_pattern_against_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
