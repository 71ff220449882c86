/* attribute against a quadratic model. */
#include "keyed_script.h"

#include "unit/support/scan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

enum { WITHIN_S = 25 };

static void show(struct byte_buffer *out, const struct fake_row *row, bool label)
{
    script_show_row(out, row);
    buffer_printf(out, "|%d\n", label);
}

/* Whether the answer is of the row's key, in [t, t + within] of the row's time t, both ends included. */
static bool answers(const struct fake_row *answer, const struct fake_row *row)
{
    return answer->input == 1 && answer->has_k && row->has_k && answer->k == row->k && answer->s != NULL &&
           row->s != NULL && strcmp(answer->s, row->s) == 0 && answer->ts >= row->ts &&
           answer->ts <= row->ts + WITHIN_S * US_PER_SECOND;
}

/* Whether an answer had arrived when the row was emitted. */
static bool is_answered(const struct script *script, const struct fake_row *row, uint32_t emitted_in)
{
    for (uint32_t j = 0; j < script->count && script->micro_batch_of[j] <= emitted_in; j++)
        if (answers(&script->rows[j], row))
            return true;
    return false;
}

static void model(const struct script *script, struct byte_buffer *out, struct counters *counters)
{
    for (uint32_t i = 0; i < script->count; i++) {
        const struct fake_row *row = &script->rows[i];
        int64_t deadline = row->ts + WITHIN_S * US_PER_SECOND;
        int64_t watermark = script_watermark_before(script, script->micro_batch_of[i]);
        bool has_null = !row->has_k || row->s == NULL;
        counters->null_keys += has_null;
        if (row->input == 1) {
            counters->late_updates += !has_null && deadline < watermark;
            continue;
        }
        counters->in++;
        if (deadline < watermark) {
            counters->late++;
            continue;
        }
        uint32_t number = script->micro_batch_of[i];
        while (script->watermarks[number] <= deadline)
            number++;
        counters->passed++;
        show(out, row, is_answered(script, row, number));
    }
    fake_text(out);
}

static void test_against_model(void **state)
{
    (void)state;
    static struct script script;
    uint64_t answered = 0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct script_options options = {.seed = seed,
                                         .inputs = 2,
                                         .micro_batches = 70,
                                         .rows_per_number = 60,
                                         .keys = seed % 2 == 0 ? 4 : 30};
        script_make(&script, &options);
        struct script_result plain;
        struct byte_buffer expected = {0};
        struct counters counters = {0};
        model(&script, &expected, &counters);
        script_check_variants("attribute other on k, s within 25s as label", &script, &options, &plain);
        script_compare_sorted("attribute", &plain.output, &expected);
        assert_memory_equal(&plain.counters, &counters, sizeof(counters));
        for (const char *at = plain.output.data; (at = strstr(at, "|1\n")) != NULL; at++)
            answered++;
        buffer_free(&expected);
        script_free(&plain);
    }
    assert_true(answered > 100);
}

/* Both ends of the interval count; an answer that arrives before the row counts while it is kept; two answers
 * count as one. */
static void test_edges(void **state)
{
    (void)state;
    struct fake_engine engine;
    fake_open(&engine, NULL, 2);
    assert_true(fake_bind(&engine, "attribute other on k within 10s as label", 2));
    assert_true(engine.bind.hold_us == 10 * US_PER_SECOND);
    const struct lineage *lineage = &engine.bind.outputs[0]->fields[8].lineage;
    assert_true(bit_get(lineage->words, FAKE_LABEL_ROOT));
    for (size_t i = 0; i < LINEAGE_ROOTS_MAX; i++)
        assert_true(i == FAKE_LABEL_ROOT || !bit_get(lineage->words, i));
    fake_start(&engine, 1, 1 << 20);
    struct fake_row rows[] = {{.input = 1, .k = 1, .has_k = true, .ts = 110},
                              {.input = 0, .id = 1, .k = 1, .has_k = true, .ts = 100},
                              {.input = 0, .id = 2, .k = 1, .has_k = true, .ts = 99},
                              {.input = 0, .id = 3, .k = 1, .has_k = true, .ts = 110},
                              {.input = 0, .id = 4, .k = 1, .has_k = true, .ts = 111},
                              {.input = 0, .id = 5, .has_k = false, .ts = 105},
                              {.input = 1, .has_k = false, .ts = 106},
                              {.input = 1, .k = 2, .has_k = true, .ts = 120},
                              {.input = 1, .k = 2, .has_k = true, .ts = 120},
                              {.input = 0, .id = 6, .k = 2, .has_k = true, .ts = 119},
                              {.input = 0, .id = 7, .k = 3, .has_k = true, .ts = 119}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        rows[i].ts *= US_PER_SECOND;
    fake_micro_batch(&engine, rows, ARRAY_COUNT(rows), 110 * US_PER_SECOND);
    assert_int_equal(engine.lanes[0].counters.held, 6);
    assert_int_equal(engine.lanes[0].counters.passed, 1); /* 99 + 10 < 110 */
    fake_micro_batch(&engine, rows, 0, 110 * US_PER_SECOND + 1);
    assert_int_equal(engine.lanes[0].counters.passed, 2);
    fake_micro_batch(&engine, rows, 0, TIME_MAX);
    static const char *const labels[] = {"2|1", "0",   "1|1", "1",   "5|null", "0",   "3|1",
                                         "1",   "4|1", "0",   "6|2", "1",      "7|3", "0"};
    assert_int_equal(engine.lanes[0].counters.passed, 7);
    uint64_t found = 0;
    const char *text = fake_text(&engine.output);
    for (size_t i = 0; i < ARRAY_COUNT(labels); i += 2)
        for (const char *line = text; *line != '\0'; line += scan_until(line, "\n") + 1)
            if (strncmp(line, labels[i], strlen(labels[i])) == 0) {
                if (line[strcspn(line, "\n") - 1] != labels[i + 1][0])
                    fail_msg("%s: %.*s", labels[i], (int)strcspn(line, "\n"), line);
                found++;
            }
    assert_int_equal(found, 7);
    fake_close(&engine);
}

/* Thinning: the kept answers give the same labels as all answers, for any row. */
static void test_many_answers(void **state)
{
    (void)state;
    struct fake_engine engine;
    struct test_random random = {5};
    fake_open(&engine, NULL, 2);
    assert_true(fake_bind(&engine, "attribute other on k within 100us as label", 2) == false);
    fake_close(&engine);
    fake_open(&engine, NULL, 2);
    assert_true(fake_bind(&engine, "attribute other on k within 1ms as label", 2));
    fake_start(&engine, 1, 1 << 20);
    static struct fake_row rows[4000];
    for (uint32_t i = 0; i < 4000; i++)
        rows[i] = (struct fake_row){
            .input = i < 2000, .id = i, .k = 1, .has_k = true, .ts = random_below(&random, 400000)};
    fake_micro_batch(&engine, rows, 4000, TIME_MAX);
    const char *text = fake_text(&engine.output);
    for (const char *line = text; *line != '\0'; line += scan_until(line, "\n") + 1) {
        int64_t ts = rows[scan_number(line, NULL)].ts;
        bool label = false;
        for (uint32_t i = 0; i < 2000; i++)
            label |= rows[i].ts >= ts && rows[i].ts <= ts + 1000;
        assert_int_equal(line[scan_until(line, "\n") - 1], label ? '1' : '0');
    }
    fake_close(&engine);
}

static void test_diagnostics(void **state)
{
    (void)state;
    static const struct script_refusal cases[] = {
        {"attribute other on kk within 1h as label", DIAG_NO_COLUMN},
        {"attribute other on k within 1h as x", DIAG_COLUMN_TAKEN},
        {"attribute other on k within 1h", DIAG_OPTION_MISSING},
        {"attribute other on l within 1h as label", DIAG_TYPE_CLASH},
        {"attribute other on k within 1h as label take last emit at_once { at: ts }", DIAG_OPTIONS_CLASH},
        {"attribute other on k within 1h as label take all emit fake_negative", DIAG_OPTIONS_CLASH},
        {"attribute other on k within 1h as label take last", DIAG_OPTIONS_CLASH},
        {"attribute other on k within 1h as label { x }", DIAG_COLUMN_TAKEN},
        {"attribute other on k within 1h as label { label: x }", DIAG_COLUMN_TAKEN},
        {"attribute other on k within 1h as label { a: xx }", DIAG_NO_COLUMN}};
    script_check_refusals(cases, ARRAY_COUNT(cases), 2);
}

/* --- Columns of answers, and rows before their deadline --- */

enum mode { TAKE_FIRST, TAKE_LAST, TAKE_ALL, AT_ONCE, FAKE_NEGATIVE };

static const char *const mode_steps[] = {
    "attribute other on k, s within 25s as label take first { aid: id, av: v, al: l }",
    "attribute other on k, s within 25s as label take last { aid: id, av: v, al: l }",
    "attribute other on k, s within 25s as label take all { aid: id, av: v, al: l }",
    "attribute other on k, s within 25s as label emit at_once { aid: id, av: v, al: l }",
    "attribute other on k, s within 25s as label emit fake_negative { aid: id, av: v, al: l }",
};

/* Writes a row with the columns of its answer; NULL: label 0. */
static void show_answered(struct byte_buffer *out, const struct fake_row *row, const struct fake_row *answer)
{
    show(out, row, answer != NULL);
    out->length--; /* removes the newline */
    if (answer == NULL) {
        buffer_printf(out, "|null|null|null\n");
        return;
    }
    buffer_printf(out, "|%lld|", (long long)answer->id);
    if (answer->has_v)
        buffer_printf(out, "%.17g|", answer->v);
    else
        buffer_printf(out, "null|");
    script_show_list(out, answer);
    buffer_printf(out, "\n");
}

/* The first answer by time among rows[0..count), of equal times the one that came first; is_last: the last
 * one likewise. */
static const struct fake_row *first_answer(const struct script *script, const struct fake_row *row,
                                           uint32_t count, bool is_last)
{
    const struct fake_row *found = NULL;
    for (uint32_t j = 0; j < count; j++) {
        const struct fake_row *answer = &script->rows[j];
        if (answers(answer, row) &&
            (found == NULL || (is_last ? answer->ts >= found->ts : answer->ts < found->ts)))
            found = answer;
    }
    return found;
}

/* At the end of a micro-batch: emits the rows whose deadline has passed. Returns how many were answered. */
static uint32_t give_due(const struct script *script, enum mode mode, uint32_t number, bool *is_waiting,
                         struct byte_buffer *out, struct counters *counters)
{
    uint32_t end = script->first[number + 1], answered = 0;
    for (uint32_t i = 0; i < end; i++) {
        const struct fake_row *row = &script->rows[i];
        if (!is_waiting[i] || row->ts + WITHIN_S * US_PER_SECOND >= script->watermarks[number])
            continue;
        is_waiting[i] = false;
        if (mode == FAKE_NEGATIVE)
            continue;
        counters->passed++;
        const struct fake_row *answer =
            mode == AT_ONCE ? NULL : first_answer(script, row, end, mode == TAKE_LAST);
        answered += answer != NULL;
        if (mode != TAKE_ALL || answer == NULL) {
            show_answered(out, row, answer);
            continue;
        }
        counters->emitted--;
        for (uint32_t j = 0; j < end; j++)
            if (answers(&script->rows[j], row)) {
                show_answered(out, row, &script->rows[j]);
                counters->emitted++;
            }
    }
    return answered;
}

static uint32_t model_of_mode(const struct script *script, enum mode mode, struct byte_buffer *out,
                              struct counters *counters)
{
    static bool is_waiting[SCRIPT_ROWS_MAX];
    memset(is_waiting, 0, sizeof(is_waiting));
    uint32_t answered = 0;
    bool is_early = mode >= AT_ONCE;
    for (uint32_t i = 0; i < script->count; i++) {
        const struct fake_row *row = &script->rows[i];
        uint32_t number = script->micro_batch_of[i];
        int64_t watermark = script_watermark_before(script, number);
        bool is_over = row->ts + WITHIN_S * US_PER_SECOND < watermark,
             has_null = !row->has_k || row->s == NULL;
        counters->null_keys += has_null;
        if (row->input == 1) {
            counters->late_updates += !has_null && is_over;
            for (uint32_t j = 0; j < i && is_early; j++)
                if (is_waiting[j] && answers(row, &script->rows[j])) {
                    show_answered(out, &script->rows[j], row);
                    is_waiting[j] = false;
                    answered++;
                    *(mode == AT_ONCE ? &counters->passed : &counters->emitted) += 1;
                }
        } else {
            const struct fake_row *answer = is_early && !is_over ? first_answer(script, row, i, false) : NULL;
            counters->in++;
            counters->late += is_over;
            counters->passed += !is_over && (mode == FAKE_NEGATIVE || answer != NULL);
            counters->emitted += mode == FAKE_NEGATIVE && answer != NULL;
            if (mode == FAKE_NEGATIVE && !is_over)
                show_answered(out, row, NULL);
            if (answer != NULL)
                show_answered(out, row, answer);
            answered += answer != NULL;
            is_waiting[i] = !is_over && answer == NULL;
        }
        for (uint32_t n = number; i + 1 == script->first[n + 1] && n < script->micro_batches; n++)
            answered += give_due(script, mode, n, is_waiting, out, counters);
    }
    fake_text(out);
    return answered;
}

static void test_modes_against_model(void **state)
{
    (void)state;
    static struct script script;
    for (uint64_t seed = 1; seed <= 3; seed++) /* of many keys, of few, and of many again */
        for (enum mode mode = TAKE_FIRST; mode <= FAKE_NEGATIVE; mode++) {
            struct script_options options = {.seed = seed + 40,
                                             .inputs = 2,
                                             .micro_batches = 50,
                                             .rows_per_number = 50,
                                             .keys = seed % 2 == 0 ? 2 : 30};
            script_make(&script, &options);
            struct script_result plain;
            struct byte_buffer expected = {0};
            struct counters counters = {0};
            uint32_t answered = model_of_mode(&script, mode, &expected, &counters);
            script_check_variants(mode_steps[mode], &script, &options, &plain);
            script_compare_sorted(mode_steps[mode], &plain.output, &expected);
            assert_memory_equal(&plain.counters, &counters, sizeof(counters));
            assert_true(answered > 20);
            buffer_free(&expected);
            script_free(&plain);
        }
}

/* A row is emitted in its own place if its answer was there before, in the answer's place if that comes
 * later, else at its deadline. */
static void test_order_at_once(void **state)
{
    (void)state;
    struct fake_engine engine;
    fake_open(&engine, NULL, 2);
    assert_true(fake_bind(&engine, "attribute other on k within 10s as label emit at_once { by: id }", 2));
    const struct schema *output = engine.bind.outputs[0];
    assert_true(bit_get(output->rows_lineage.words, FAKE_LABEL_ROOT));
    assert_true(bit_get(output->fields[9].lineage.words, FAKE_LABEL_ROOT));
    assert_true(bit_get(output->fields[9].lineage.words, 16));
    fake_start(&engine, 1, 1 << 20);
    struct fake_row rows[] = {{.input = 0, .id = 1, .k = 1, .has_k = true, .ts = 100},
                              {.input = 0, .id = 2, .k = 1, .has_k = true, .ts = 101},
                              {.input = 1, .id = 90, .k = 2, .has_k = true, .ts = 105},
                              {.input = 0, .id = 3, .k = 2, .has_k = true, .ts = 100},
                              {.input = 0, .id = 4, .k = 2, .has_k = true, .ts = 106},
                              {.input = 1, .id = 91, .k = 1, .has_k = true, .ts = 100},
                              {.input = 0, .id = 5, .has_k = false, .ts = 100},
                              {.input = 1, .id = 92, .k = 1, .has_k = true, .ts = 111},
                              {.input = 1, .id = 93, .k = 1, .has_k = true, .ts = 111}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        rows[i].ts *= US_PER_SECOND;
    fake_micro_batch(&engine, rows, ARRAY_COUNT(rows), 110 * US_PER_SECOND);
    assert_int_equal(engine.lanes[0].counters.held, 2);
    fake_micro_batch(&engine, rows, 0, TIME_MAX);
    static const char *const expected[] = {"3 90", "1 91", "2 92", "5 null", "4 null"};
    const char *line = fake_text(&engine.output);
    for (size_t i = 0; i < ARRAY_COUNT(expected); i++) {
        size_t length = strcspn(line, "\n"), last = length;
        char got[32];
        while (line[last - 1] != '|')
            last--;
        snprintf(got, sizeof(got), "%c %.*s", line[0], (int)(length - last), line + last);
        assert_string_equal(got, expected[i]);
        line += length + 1;
    }
    assert_int_equal(*line, '\0');
    fake_close(&engine);
}

/* A key has room for some waiting rows; rows beyond that wait for their deadline and get the
 * right label then. */
static void test_crowded_key(void **state)
{
    (void)state;
    struct fake_engine engine;
    static char text[10000];
    static struct fake_row rows[61];
    fake_open(&engine, NULL, 2);
    assert_true(fake_bind(&engine, "attribute other on k within 100s as label emit at_once { by: id }", 2));
    fake_start(&engine, 1, 16 << 20);
    memset(text, 'x', sizeof(text) - 1);
    for (int64_t i = 0; i < 61; i++)
        rows[i] =
            (struct fake_row){.input = i == 60, .id = i, .k = 1, .has_k = true, .ts = i * US_PER_SECOND};
    for (int64_t i = 0; i < 60; i++)
        rows[i].s = text;
    rows[60].ts = 110 * US_PER_SECOND; /* answers all rows but the first ten */
    fake_micro_batch(&engine, rows, 61, 50 * US_PER_SECOND);
    uint64_t early = engine.lanes[0].counters.passed, left_out = 60 - 10 - early;
    assert_true(early > 10 && early < 20);
    fake_micro_batch(&engine, rows, 0, TIME_MAX);
    assert_int_equal(engine.lanes[0].counters.passed, 60);
    struct report report = {0};
    operator_report(engine.kind, &engine.lanes[0], &report);
    assert_true(report_find(&report, "not_at_once")->value == (double)left_out);
    uint32_t answered = 0;
    for (const char *at = fake_text(&engine.output); (at = strstr(at, "|1|60\n")) != NULL; at++)
        answered++;
    assert_int_equal(answered, 50);
    fake_close(&engine);
}

/* CPU time for `count` rows of one key, each with an answer, all of which are kept; the least
 * of three runs. */
static double one_key(const char *take, int64_t count)
{
    enum { ROWS = 500 };
    double least = 0;
    for (int turn = 0; turn < 3; turn++) {
        struct fake_engine engine;
        static struct fake_row rows[ROWS];
        char step[128];
        fake_open(&engine, NULL, 2);
        snprintf(step, sizeof(step), "attribute other on k within 1s as label take %s { by: id }", take);
        assert_true(fake_bind(&engine, step, 2));
        fake_start(&engine, 1, 256 << 20);
        clock_t begin = clock();
        for (int64_t i = 0; i < 2 * count; i += ROWS) {
            for (int64_t k = i; k < i + ROWS; k++)
                rows[k - i] = (struct fake_row){
                    .input = (uint32_t)(k % 2), .id = k, .k = 1, .has_k = true, .ts = k / 2 * US_PER_SECOND};
            fake_micro_batch(&engine, rows, ROWS, 0);
        }
        fake_micro_batch(&engine, rows, 0, TIME_MAX);
        double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
        least = turn == 0 ? seconds : MIN(least, seconds);
        assert_int_equal(engine.lanes[0].counters.passed, count);
        fake_close(&engine);
    }
    return least;
}

/* A row's cost does not grow with the number of rows of its key. */
static void test_hot_key(void **state)
{
    (void)state;
    static const char *const takes[] = {"first", "last", "all"};
    for (size_t i = 0; i < ARRAY_COUNT(takes); i++) {
        double few = one_key(takes[i], 2500), many = one_key(takes[i], 20000);
        if (many > 24 * few)
            fail_msg("take %s: 2,500 rows of a key in %.3f s, 20,000 in %.3f s", takes[i], few, many);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edges),         cmocka_unit_test(test_diagnostics),
        cmocka_unit_test(test_many_answers),  cmocka_unit_test(test_order_at_once),
        cmocka_unit_test(test_crowded_key),   cmocka_unit_test(test_modes_against_model),
        cmocka_unit_test(test_against_model), cmocka_unit_test(test_hot_key)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
