/* join against a quadratic model. */
#include "keyed_script.h"

#include "unit/support/scan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum kind { INNER, LEFT, ANTI, SEMI };
enum take { ALL, FIRST, LAST, BEST };

/* A join as the job's step, and its options as the model needs them. */
struct join_case {
    const char *step;
    enum kind kind;
    enum take take;
    int64_t low_s, high_s;
    bool is_forever, is_by_x; /* is_by_x: the upper bound is the left row's x * 100 ms */
    int64_t window_s, slide_s;
    bool has_two_keys;
};

static const struct join_case cases[] = {
    {"join other on k within [-5s, 10s] prefix \"r_\"", INNER, ALL, .low_s = -5, .high_s = 10},
    {"join other on k, s within [0s, 25s] prefix \"r_\" kind left", LEFT, ALL, .high_s = 25,
     .has_two_keys = true},
    {"join other on k within [-20s, -2s] prefix \"r_\" kind left take last", LEFT, LAST, .low_s = -20,
     .high_s = -2},
    {"join other on k within [0s, 8s] kind anti", ANTI, ALL, .high_s = 8},
    {"join other on k within [-3s, 3s] kind semi", SEMI, ALL, .low_s = -3, .high_s = 3},
    {"join other on k within [-4s, x * 100ms] prefix \"r_\" take best order desc(v), id", INNER, BEST,
     .low_s = -4, .is_by_x = true},
    {"join other on k within [-9s, 9s] prefix \"r_\" kind left take first", LEFT, FIRST, .low_s = -9,
     .high_s = 9},
    {"join other on k, s within forever prefix \"r_\"", INNER, ALL, .is_forever = true, .has_two_keys = true},
    {"join other on k within forever kind anti", ANTI, ALL, .is_forever = true},
    {"join other on k within forever kind semi", SEMI, ALL, .is_forever = true},
    {"join other on k over tumbling(10s) prefix \"r_\"", INNER, ALL, .window_s = 10, .slide_s = 10},
    {"join other on k over tumbling(10s) kind semi", SEMI, ALL, .window_s = 10, .slide_s = 10},
    {"join other on k over sliding(10s, 4s) prefix \"r_\" kind left", LEFT, ALL, .window_s = 10,
     .slide_s = 4},
    {"join other on k over sliding(6s, 3s) kind anti", ANTI, ALL, .window_s = 6, .slide_s = 3},
    {"join other on k over tumbling(7s) prefix \"r_\" take best order v, desc(id)", INNER, BEST,
     .window_s = 7, .slide_s = 7},
};

/* --- The model --- */

struct reach {
    int64_t from, to, until;
};

static int64_t floor_to(int64_t time, int64_t step)
{
    int64_t index = time / step - (time % step < 0);
    return index * step;
}

static bool has_key(const struct join_case *c, const struct fake_row *row)
{
    return row->has_k && (!c->has_two_keys || row->s != NULL);
}

static bool has_equal_keys(const struct join_case *c, const struct fake_row *a, const struct fake_row *b)
{
    return has_key(c, a) && has_key(c, b) && a->k == b->k && (!c->has_two_keys || strcmp(a->s, b->s) == 0);
}

/* The w-th window of those that the row is in. Returns false if there are fewer. */
static bool left_reach(const struct join_case *c, const struct fake_row *row, uint32_t w, struct reach *reach)
{
    if (c->window_s > 0) {
        int64_t size = c->window_s * US_PER_SECOND, slide = c->slide_s * US_PER_SECOND;
        int64_t start = floor_to(row->ts - size, slide) + slide + w * slide;
        *reach = (struct reach){start, start + size - 1, start + size - 1};
        return start <= row->ts;
    }
    int64_t high = c->is_by_x ? row->x * 100000 : c->high_s * US_PER_SECOND;
    *reach = (struct reach){row->ts + c->low_s * US_PER_SECOND, row->ts + high, row->ts + MAX(high, 0)};
    if (c->is_forever)
        *reach = (struct reach){TIME_MIN, TIME_MAX, TIME_MAX - 1};
    return w == 0;
}

static int64_t right_until(const struct join_case *c, const struct fake_row *row)
{
    if (c->is_forever)
        return TIME_MAX - 1;
    if (c->window_s == 0)
        return row->ts + MAX(-c->low_s, 0) * US_PER_SECOND;
    int64_t slide = c->slide_s * US_PER_SECOND;
    return floor_to(row->ts, slide) + c->window_s * US_PER_SECOND - 1;
}

/* Writes a row's cells; row NULL: nulls. has_k, has_s: with the column of that key. */
static void show(struct byte_buffer *out, const struct fake_row *row, bool has_k, bool has_s)
{
    static const struct fake_row nothing = {.list = UINT32_MAX};
    const struct fake_row *r = row == NULL ? &nothing : row;
    script_show_value(out, row != NULL, r->id);
    if (has_k) {
        buffer_printf(out, "|");
        script_show_value(out, r->has_k, r->k);
    }
    buffer_printf(out, "|");
    script_show_value(out, r->has_x, r->x);
    if (r->has_v)
        buffer_printf(out, "|%.17g", r->v);
    else
        buffer_printf(out, "|null");
    if (has_s)
        buffer_printf(out, "|%s", r->s == NULL ? "null" : r->s);
    buffer_printf(out, "|");
    script_show_value(out, row != NULL, r->b);
    buffer_printf(out, "|");
    script_show_value(out, row != NULL, r->ts);
    buffer_printf(out, "|");
    script_show_list(out, r);
}

static void show_pair(const struct join_case *c, struct byte_buffer *out, const struct fake_row *left,
                      const struct fake_row *right, const struct reach *reach)
{
    show(out, left, true, true);
    if (c->kind == INNER || c->kind == LEFT) {
        buffer_printf(out, "|");
        show(out, right, false, !c->has_two_keys);
    }
    if (c->window_s > 0)
        buffer_printf(out, "|%lld|%lld", (long long)reach->from, (long long)reach->to + 1);
    buffer_printf(out, "\n");
}

static bool is_better(const struct join_case *c, const struct fake_row *a, const struct fake_row *b)
{
    if (c->take == FIRST || c->take == LAST)
        return c->take == FIRST ? a->ts < b->ts : a->ts >= b->ts;
    /* Nulls last; of equal values, a comes after b. */
    bool is_desc = c->window_s == 0;
    if (a->has_v != b->has_v)
        return a->has_v;
    if (a->has_v && a->v != b->v)
        return is_desc ? a->v > b->v : a->v < b->v;
    return is_desc ? a->id < b->id : a->id > b->id;
}

/* Writes the pairs of a left row in one window. Returns their number. A pair is made when its second row
 * arrives, if the watermark is not beyond the end of either row. */
static uint64_t meet(const struct join_case *c, const struct script *script, uint32_t i,
                     const struct reach *reach, struct byte_buffer *out)
{
    const struct fake_row *left = &script->rows[i], *best = NULL;
    uint64_t met = 0;
    for (uint32_t j = 0; j < script->count; j++) {
        const struct fake_row *right = &script->rows[j];
        if (right->input == 0 || !has_equal_keys(c, left, right) || right->ts < reach->from ||
            right->ts > reach->to)
            continue;
        int64_t watermark =
            script_watermark_before(script, MAX(script->micro_batch_of[i], script->micro_batch_of[j]));
        if (watermark > reach->until || watermark > right_until(c, right))
            continue;
        met++;
        if (c->take == ALL && (c->kind == INNER || c->kind == LEFT))
            show_pair(c, out, left, right, reach);
        if (best == NULL || is_better(c, right, best))
            best = right;
    }
    if (c->kind == SEMI && met > 0)
        show_pair(c, out, left, NULL, reach);
    if (c->kind == ANTI && met == 0)
        show_pair(c, out, left, NULL, reach);
    if (c->kind == LEFT && met == 0)
        show_pair(c, out, left, NULL, reach);
    if (c->take != ALL && met > 0)
        show_pair(c, out, left, best, reach);
    return met;
}

struct expected {
    struct byte_buffer output;
    uint64_t late, pairs, null_keys, left, right;
};

static void model(const struct join_case *c, const struct script *script, struct expected *expected)
{
    for (uint32_t i = 0; i < script->count; i++) {
        const struct fake_row *row = &script->rows[i];
        int64_t watermark = script_watermark_before(script, script->micro_batch_of[i]);
        expected->null_keys += !has_key(c, row);
        if (row->input == 1) {
            expected->right++;
            expected->late += right_until(c, row) < watermark;
            continue;
        }
        expected->left++;
        struct reach reach;
        int64_t until = TIME_MIN;
        for (uint32_t w = 0; left_reach(c, row, w, &reach); w++)
            until = reach.until;
        bool has_bound = !c->is_by_x || row->has_x;
        if ((has_bound ? until : row->ts) < watermark) {
            expected->late++;
            continue;
        }
        for (uint32_t w = 0; has_bound && left_reach(c, row, w, &reach); w++)
            if (reach.until >= watermark)
                expected->pairs += meet(c, script, i, &reach, &expected->output);
    }
    fake_text(&expected->output);
}

static uint64_t count_lines(const char *text)
{
    uint64_t lines = 0;
    for (; *text != '\0'; text++)
        lines += *text == '\n';
    return lines;
}

static void test_against_model(void **state)
{
    (void)state;
    static struct script script;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        const struct join_case *c = &cases[i];
        struct script_options options = {.seed = 10 + i,
                                         .inputs = 2,
                                         .micro_batches = 40,
                                         .rows_per_number = 40,
                                         .keys = i % 2 == 0 ? 3 : 30};
        script_make(&script, &options);
        struct script_result plain;
        struct expected expected = {0};
        model(c, &script, &expected);
        script_check_variants(c->step, &script, &options, &plain);
        script_compare_sorted(c->step, &plain.output, &expected.output);
        assert_int_equal(plain.counters.in, expected.left + expected.right);
        assert_int_equal(plain.counters.late, expected.late);
        assert_int_equal(plain.counters.null_keys, expected.null_keys);
        assert_int_equal(count_lines(plain.late.data), expected.late);
        assert_int_equal(plain.counters.passed + plain.counters.emitted, count_lines(plain.output.data));
        assert_int_equal(plain.counters.dead, 0);
        if (expected.pairs < 50 || (expected.late == 0 && !c->is_forever))
            fail_msg("%s: %llu pairs, %llu late", c->step, (unsigned long long)expected.pairs,
                     (unsigned long long)expected.late);
        buffer_free(&expected.output);
        script_free(&plain);
    }
}

/* --- One side unique --- */

/* If a side has each key once, `unique` does not change the output. */
static void test_unique_is_no_other_join(void **state)
{
    (void)state;
    static struct script script;
    static const struct {
        const char *plain, *unique;
        uint32_t side;
    } pairs[] = {{"join other on k within [-30s, 60s] prefix \"r_\"",
                  "join other on k within [-30s, 60s] prefix \"r_\" unique right", 1},
                 {"join other on k within forever prefix \"r_\" kind left",
                  "join other on k within forever prefix \"r_\" kind left unique right", 1},
                 {"join other on k within [-30s, 60s] prefix \"r_\"",
                  "join other on k within [-30s, 60s] prefix \"r_\" unique left", 0},
                 {"join other on k within [-30s, 60s] prefix \"r_\" kind left take best order v",
                  "join other on k within [-30s, 60s] prefix \"r_\" kind left take best order v unique left",
                  0}};
    for (size_t i = 0; i < ARRAY_COUNT(pairs); i++) {
        struct script_options options = {
            .seed = 50 + i, .inputs = 2, .micro_batches = 40, .rows_per_number = 40, .keys = 200};
        script_make(&script, &options);
        bool is_taken[256] = {false};
        for (uint32_t r = 0; r < script.count; r++) {
            struct fake_row *row = &script.rows[r];
            if (row->input != pairs[i].side || !row->has_k)
                continue;
            row->has_k = !is_taken[row->k + 2];
            is_taken[row->k + 2] = true;
        }
        struct script_result plain, unique;
        script_run(pairs[i].plain, &script, &options, SCRIPT_PLAIN, &plain);
        script_check_variants(pairs[i].unique, &script, &options, &unique);
        script_compare_sorted(pairs[i].unique, &unique.output, &plain.output);
        assert_int_equal(unique.counters.dead, 0);
        assert_true(count_lines(plain.output.data) > 100);
        script_free(&plain);
        script_free(&unique);
    }
}

static void give(struct fake_engine *engine, const char *text, int64_t watermark_s)
{
    struct fake_row rows[64];
    uint32_t count = 0;
    /* "L 1 100" is a left row of key 1 at 100 s. */
    for (; *text != '\0'; count++) {
        rows[count] = (struct fake_row){
            .input = *text == 'R', .id = (int64_t)(engine->rows_given + count), .has_k = true, .b = true};
        char *at;
        rows[count].k = strtoll(text + 1, &at, 10);
        rows[count].ts = strtoll(at, &at, 10) * US_PER_SECOND;
        rows[count].has_k = rows[count].k >= 0;
        text = at + (*at == ',') + (at[*at == ','] == ' ');
    }
    fake_micro_batch(engine, rows, count, watermark_s == INT64_MAX ? TIME_MAX : watermark_s * US_PER_SECOND);
}

static void start(struct fake_engine *engine, const char *step)
{
    fake_open(engine, NULL, 2);
    if (!fake_bind(engine, step, 2)) {
        diag_print(stderr, &engine->diags, NULL, false);
        fail_msg("%s", step);
    }
    fake_start(engine, 1, 1 << 20);
}

static void test_second_one_is_dead(void **state)
{
    (void)state;
    struct fake_engine engine;
    start(&engine, "join other on k within forever prefix \"r_\" unique right");
    give(&engine, "R 1 10, R 1 11, L 1 12, L 2 13, L 2 14", 0);
    const struct counters *c = &engine.lanes[0].counters;
    assert_int_equal(c->dead, 1);
    assert_int_equal(c->passed, 1); /* the row that found its partner */
    assert_int_equal(c->absorbed, 3);
    give(&engine, "R 2 20", 0);
    assert_int_equal(c->emitted, 2);
    give(&engine, "L 1 30, L 2 31", TIME_MAX);
    assert_int_equal(c->passed, 3);
    fake_close(&engine);
    start(&engine, "join other on k within [0s, 10s] prefix \"r_\" unique both");
    give(&engine, "L 1 10, L 1 11, R 1 12, L 1 13", 12);
    c = &engine.lanes[0].counters;
    assert_int_equal(c->dead, 1);
    assert_int_equal(c->emitted, 1);
    fake_close(&engine);
}

/* --- Edges --- */

static void test_bounds_are_inclusive(void **state)
{
    (void)state;
    struct fake_engine engine;
    start(&engine, "join other on k within [-5s, 10s] prefix \"r_\"");
    assert_int_equal(engine.bind.hold_us, 0);
    give(&engine, "L 1 100, R 1 94, R 1 95, R 1 110, R 1 111", 100);
    const struct counters *c = &engine.lanes[0].counters;
    assert_int_equal(c->emitted, 2);
    give(&engine, "L 1 90, R 1 95", 100); /* both are kept at watermark 100 exactly */
    assert_int_equal(c->late, 0);
    /* With the right rows at 94 and 95; the new right row with the left row at 100. */
    assert_int_equal(c->emitted, 2 + 2 + 1);
    give(&engine, "L 1 89, R 1 94", 100);
    assert_int_equal(c->late, 2);
    fake_close(&engine);
    start(&engine, "join other on k within [-5s, 10s] prefix \"r_\" kind left");
    assert_int_equal(engine.bind.hold_us, 10 * US_PER_SECOND);
    give(&engine, "L 1 100", 110);
    assert_int_equal(engine.lanes[0].counters.held, 1);
    give(&engine, "", 111); /* the deadline is at 110 s */
    assert_int_equal(engine.lanes[0].counters.passed, 1);
    fake_close(&engine);
    start(&engine, "join other on k within [0s, x * 1s] prefix \"r_\" kind left");
    assert_int_equal(engine.bind.hold_us, 0); /* the row is then emitted with its deadline as event time */
    fake_close(&engine);
}

/* 30,000 rows of one key on one side, then a row on the other side that meets 1,001 of them; the report names
 * the key and counts its rows. */
static void test_hot_key(void **state)
{
    (void)state;
    enum { ROWS = 30000, PER_NUMBER = 3000 };
    struct fake_engine engine;
    static struct fake_row rows[PER_NUMBER];
    for (int side = 0; side < 2; side++) {
        start(&engine, "join other on k within [0s, 1s] prefix \"r_\"");
        for (uint32_t n = 0; n < ROWS; n += PER_NUMBER) {
            for (uint32_t i = 0; i < PER_NUMBER; i++)
                rows[i] = (struct fake_row){.input = (uint32_t)side,
                                            .id = n + i,
                                            .k = 7,
                                            .has_k = true,
                                            .s = "some text that takes room",
                                            .ts = (n + i) * 1000};
            fake_micro_batch(&engine, rows, PER_NUMBER, TIME_MIN);
        }
        struct fake_row probe = {.input = (uint32_t)!side, .k = 7, .has_k = true, .ts = 5 * US_PER_SECOND};
        fake_micro_batch(&engine, &probe, 1, TIME_MIN);
        assert_int_equal(engine.lanes[0].counters.emitted, 1001);
        fake_micro_batch(&engine, &probe, 0, TIME_MAX);
        struct report report = {0};
        operator_report(engine.kind, &engine.lanes[0], &report);
        assert_int_equal((int)report_find(&report, "state_key_rows_max")->value, ROWS + 1);
        const struct report_item *hot = report_find(&report, "hot_key");
        assert_non_null(hot);
        assert_memory_equal(hot->text, "7 has more than", 15);
        fake_close(&engine);
    }
}

/* Expired rows are not counted in state_key_rows_max, however many there were. */
static void test_rows_of_a_key(void **state)
{
    (void)state;
    enum { PER_NUMBER = 2000 };
    struct fake_engine engine;
    static struct fake_row rows[PER_NUMBER];
    start(&engine, "join other on k within [0s, 1s] prefix \"r_\"");
    for (int64_t n = 0; n < 10; n++) {
        /* The last few rows outlive the micro-batch: the key is kept, but its expired chunks are not. */
        for (uint32_t i = 0; i < PER_NUMBER; i++)
            rows[i] = (struct fake_row){.id = i,
                                        .k = 7,
                                        .has_k = true,
                                        .ts = n * 10 * US_PER_SECOND +
                                              (i < PER_NUMBER - 5 ? 0 : 9 * US_PER_SECOND + 500000)};
        fake_micro_batch(&engine, rows, PER_NUMBER, (n + 1) * 10 * US_PER_SECOND);
    }
    struct report report = {0};
    operator_report(engine.kind, &engine.lanes[0], &report);
    double most = report_find(&report, "state_key_rows_max")->value;
    assert_true(most >= PER_NUMBER && most < 2 * PER_NUMBER);
    fake_close(&engine);
}

/* All pairs of two sides of one key in one micro-batch: output batches end in the middle of a row's pairs. */
static void test_many_pairs(void **state)
{
    (void)state;
    enum { FIRST_RIGHT = 1100, THEN = 60, PAIRS = THEN / 2 * (FIRST_RIGHT + THEN / 2) };
    struct fake_engine engine;
    static struct fake_row rows[FIRST_RIGHT + THEN];
    start(&engine, "join other on k within forever prefix \"r_\"");
    for (uint32_t i = 0; i < FIRST_RIGHT + THEN; i++)
        rows[i] = (struct fake_row){
            .input = i < FIRST_RIGHT || i % 2 == 1, .id = i, .k = 1, .has_k = true, .ts = i};
    fake_micro_batch(&engine, rows, FIRST_RIGHT + THEN, TIME_MAX);
    assert_int_equal(engine.lanes[0].counters.emitted, PAIRS);
    assert_false(engine.is_out_of_order);
    assert_int_equal(count_lines(fake_text(&engine.output)), PAIRS);
    char *pairs = script_sorted(&engine.output);
    for (char *line = pairs, *next; *line != '\0'; line = next) {
        next = line + scan_until(line, "\n") + 1;
        assert_false(*next != '\0' && strncmp(line, next, (size_t)(next - line)) == 0);
    }
    free(pairs);
    fake_close(&engine);
}

static void test_lineage_and_columns(void **state)
{
    (void)state;
    struct fake_engine engine;
    fake_open(&engine, NULL, 2);
    assert_true(fake_bind(&engine, "join other on k = x within [0s, 1s] prefix \"r_\"", 2));
    const struct schema *output = engine.bind.outputs[0];
    assert_int_equal(output->count, 16);
    assert_true(str_is(output->fields[9].name, "r_k"));
    assert_true(bit_get(output->fields[9].lineage.words, 17));  /* its own lineage */
    assert_true(bit_get(output->fields[9].lineage.words, 18));  /* the keys choose the row */
    assert_false(bit_get(output->fields[0].lineage.words, 17)); /* a left column's lineage does not change */
    assert_true(output->repeats);
    fake_close(&engine);
}

static void test_diagnostics(void **state)
{
    (void)state;
    static const struct script_refusal wrong[] = {
        {"join other on k prefix \"r_\"", DIAG_OPTION_MISSING},
        {"join other on k within [0s, 1s]", DIAG_COLUMN_TAKEN},
        {"join other on k within [1s, 0s] prefix \"r_\"", DIAG_OUT_OF_RANGE},
        {"join other on k within [0s, 4000d] prefix \"r_\"", DIAG_OUT_OF_RANGE},
        {"join other on k within 30m prefix \"r_\"", DIAG_OPTION_TYPE},
        {"join other on k within [x, 1s] prefix \"r_\"", DIAG_OPTION_TYPE},
        {"join other on k within [0s, s] prefix \"r_\"", DIAG_TYPE_CLASH},
        {"join other on k within [0s, y] prefix \"r_\"", DIAG_NO_COLUMN},
        {"join other on kk within forever prefix \"r_\"", DIAG_NO_COLUMN},
        {"join other on k = s within forever prefix \"r_\"", DIAG_TYPE_CLASH},
        {"join other on k + 1 within forever prefix \"r_\"", DIAG_OPTION_TYPE},
        {"join other on l within forever prefix \"r_\"", DIAG_TYPE_CLASH},
        {"join other on k within forever over tumbling(1s) prefix \"r_\"", DIAG_OPTIONS_CLASH},
        {"join other on k over session(1s) prefix \"r_\"", DIAG_NOT_A_CHOICE},
        {"join other on k within forever take best prefix \"r_\"", DIAG_OPTIONS_CLASH},
        {"join other on k within forever order v prefix \"r_\"", DIAG_OPTIONS_CLASH},
        {"join other on k within forever kind semi take first", DIAG_OPTIONS_CLASH},
        {"join other on k over tumbling(1s) unique right prefix \"r_\"", DIAG_OPTIONS_CLASH},
        {"join other on k within forever offset 1s prefix \"r_\"", DIAG_OPTIONS_CLASH}};
    script_check_refusals(wrong, ARRAY_COUNT(wrong), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bounds_are_inclusive),
                                       cmocka_unit_test(test_second_one_is_dead),
                                       cmocka_unit_test(test_lineage_and_columns),
                                       cmocka_unit_test(test_diagnostics),
                                       cmocka_unit_test(test_hot_key),
                                       cmocka_unit_test(test_rows_of_a_key),
                                       cmocka_unit_test(test_many_pairs),
                                       cmocka_unit_test(test_against_model),
                                       cmocka_unit_test(test_unique_is_no_other_join)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
