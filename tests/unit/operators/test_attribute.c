/* attribute against a quadratic model. */
#include "keyed_script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { WITHIN_S = 25 };

static void show_cell(struct byte_buffer *out, bool has, int64_t value)
{
    if (has)
        buffer_printf(out, "%lld|", (long long)value);
    else
        buffer_printf(out, "null|");
}

static void show(struct byte_buffer *out, const struct fake_row *row, bool label)
{
    buffer_printf(out, "%lld|", (long long)row->id);
    show_cell(out, row->has_k, row->k);
    show_cell(out, row->has_x, row->x);
    if (row->has_v)
        buffer_printf(out, "%.17g|", row->v);
    else
        buffer_printf(out, "null|");
    buffer_printf(out, "%s|%d|%lld|", row->s == NULL ? "null" : row->s, row->b, (long long)row->ts);
    if (row->list == UINT32_MAX) {
        buffer_printf(out, "null");
    } else {
        buffer_printf(out, "[");
        for (uint32_t i = 0; i < row->list; i++)
            buffer_printf(out, "%s%lld", i == 0 ? "" : " ", (long long)(row->id + i));
        buffer_printf(out, "]");
    }
    buffer_printf(out, "|%d\n", label);
}

/* Whether an answer in [t, t + within] had arrived when the row went on. */
static bool is_answered(const struct script *script, const struct fake_row *row, uint32_t emitted_in)
{
    for (uint32_t j = 0; j < script->count && script->number_of[j] <= emitted_in; j++) {
        const struct fake_row *answer = &script->rows[j];
        if (answer->input == 1 && answer->has_k && row->has_k && answer->k == row->k && answer->s != NULL &&
            row->s != NULL && strcmp(answer->s, row->s) == 0 && answer->ts >= row->ts &&
            answer->ts <= row->ts + WITHIN_S * US_PER_SECOND)
            return true;
    }
    return false;
}

static void model(const struct script *script, struct byte_buffer *out, struct counters *counters)
{
    for (uint32_t i = 0; i < script->count; i++) {
        const struct fake_row *row = &script->rows[i];
        int64_t deadline = row->ts + WITHIN_S * US_PER_SECOND;
        int64_t watermark = script_watermark_before(script, script->number_of[i]);
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
        uint32_t number = script->number_of[i];
        while (script->watermarks[number] <= deadline)
            number++;
        counters->passed++;
        show(out, row, is_answered(script, row, number));
    }
    fake_text(out);
}

static void against_model(void **state)
{
    (void)state;
    static struct script script;
    uint64_t answered = 0;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct script_options options = {.seed = seed,
                                         .inputs = 2,
                                         .numbers = 70,
                                         .rows_per_number = 60,
                                         .keys = seed % 2 == 0 ? 4 : 30,
                                         .step_us = 300000,
                                         .jitter_us = 4 * US_PER_SECOND,
                                         .delay_us = 6 * US_PER_SECOND};
        script_make(&script, &options);
        struct script_result plain;
        struct byte_buffer expected = {0};
        struct counters counters = {0};
        model(&script, &expected, &counters);
        script_check_variants("attribute other on k, s within 25s as label", &script, &options, &plain);
        char *got = script_sorted(&plain.output), *wanted = script_sorted(&expected);
        script_compare("attribute", got, wanted);
        assert_memory_equal(&plain.counters, &counters, sizeof counters);
        for (const char *at = got; (at = strstr(at, "|1\n")) != NULL; at++)
            answered++;
        free(got);
        free(wanted);
        buffer_free(&expected);
        script_free(&plain);
    }
    assert_true(answered > 100);
}

/* Both ends of the interval count; an answer before the row counts while it is remembered; twice is once. */
static void edges(void **state)
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
    fake_number(&engine, rows, ARRAY_COUNT(rows), 110 * US_PER_SECOND);
    assert_int_equal(engine.lanes[0].counters.held, 6);
    assert_int_equal(engine.lanes[0].counters.passed, 1); /* 99 + 10 < 110 */
    fake_number(&engine, rows, 0, 110 * US_PER_SECOND + 1);
    assert_int_equal(engine.lanes[0].counters.passed, 2);
    fake_number(&engine, rows, 0, TIME_MAX);
    static const char *const labels[] = {"2|1", "0",   "1|1", "1",   "5|null", "0",   "3|1",
                                         "1",   "4|1", "0",   "6|2", "1",      "7|3", "0"};
    assert_int_equal(engine.lanes[0].counters.passed, 7);
    uint64_t found = 0;
    const char *text = fake_text(&engine.output);
    for (size_t i = 0; i < ARRAY_COUNT(labels); i += 2)
        for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
            if (strncmp(line, labels[i], strlen(labels[i])) == 0) {
                if (line[strcspn(line, "\n") - 1] != labels[i + 1][0])
                    fail_msg("%s: %.*s", labels[i], (int)strcspn(line, "\n"), line);
                found++;
            }
    assert_int_equal(found, 7);
    fake_close(&engine);
}

/* Thinning: whatever is asked, what is kept answers like all there was. */
static void many_answers(void **state)
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
    fake_number(&engine, rows, 4000, TIME_MAX);
    const char *text = fake_text(&engine.output);
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        int64_t ts = rows[strtoll(line, NULL, 10)].ts;
        bool label = false;
        for (uint32_t i = 0; i < 2000; i++)
            label |= rows[i].ts >= ts && rows[i].ts <= ts + 1000;
        assert_int_equal(line[strcspn(line, "\n") - 1], label ? '1' : '0');
    }
    fake_close(&engine);
}

static void diagnostics(void **state)
{
    (void)state;
    static const struct {
        const char *step;
        enum diag_code code;
    } cases[] = {{"attribute other on kk within 1h as label", DIAG_E0302},
                 {"attribute other on k within 1h as x", DIAG_E0306},
                 {"attribute other on k within 1h", DIAG_E0402},
                 {"attribute other on l within 1h as label", DIAG_E0303}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct fake_engine engine;
        fake_open(&engine, NULL, 2);
        assert_false(fake_bind(&engine, cases[i].step, 2));
        if (fake_diag(&engine, cases[i].code) == NULL) {
            diag_print(stderr, &engine.diags, NULL, false);
            fail_msg("%s", cases[i].step);
        }
        fake_close(&engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(edges), cmocka_unit_test(diagnostics),
                                       cmocka_unit_test(many_answers), cmocka_unit_test(against_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
