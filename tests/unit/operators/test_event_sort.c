/* sort against a model that uses qsort. */
#include "keyed_script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct script *sorted_script;

static int by_time(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    int64_t s = sorted_script->rows[x].ts, t = sorted_script->rows[y].ts;
    return s != t ? (s < t ? -1 : 1) : x < y ? -1 : x > y;
}

/* Writes the ids of the rows that are not late, by event time, rows with equal times in the
 * order of arrival. */
static void model(const struct script *script, int64_t within, struct byte_buffer *out, uint64_t *late)
{
    static uint32_t order[SCRIPT_ROWS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < script->count; i++) {
        int64_t watermark = script_watermark_before(script, script->micro_batch_of[i]);
        if (watermark != TIME_MIN && script->rows[i].ts < watermark - within)
            ++*late;
        else
            order[count++] = i;
    }
    sorted_script = script;
    qsort(order, count, sizeof(*order), by_time);
    for (uint32_t i = 0; i < count; i++)
        buffer_printf(out, "%lld\n", (long long)script->rows[order[i]].id);
    fake_text(out);
}

static void test_against_model(void **state)
{
    (void)state;
    static struct script script;
    static const struct {
        const char *step;
        int64_t within_s;
    } cases[] = {{"sort within 0s", 0}, {"sort within 5s", 5}, {"sort within 40s", 40}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct script_options options = {
            .seed = i + 1, .inputs = 1, .micro_batches = 80, .rows_per_number = 60, .keys = 30};
        script_make(&script, &options);
        for (uint32_t k = 0; k < script.count; k++)
            script.rows[k].ts -= script.rows[k].ts % 500000; /* some equal event times */
        struct script_result plain, keyed;
        struct byte_buffer expected = {0}, got = {0};
        uint64_t late = 0;
        char by_key[64];
        model(&script, cases[i].within_s * US_PER_SECOND, &expected, &late);
        script_run(cases[i].step, &script, &options, SCRIPT_PLAIN, &plain);
        script_ids(&plain.output, &got);
        script_compare(cases[i].step, got.data, expected.data);
        assert_true(plain.counters.late == late && late > 0 && plain.counters.held == 0);
        assert_true(counters_balance(&plain.counters));
        /* `by k` gives the same rows, but another order of rows with equal times. */
        snprintf(by_key, sizeof(by_key), "%s by k", cases[i].step);
        script_check_variants(by_key, &script, &options, &keyed);
        script_compare_sorted(by_key, &keyed.output, &plain.output);
        buffer_free(&expected);
        buffer_free(&got);
        script_free(&plain);
        script_free(&keyed);
    }
}

static void test_edges(void **state)
{
    (void)state;
    struct fake_engine engine;
    fake_open(&engine, NULL, 1);
    assert_true(fake_bind(&engine, "sort within 5us", 1));
    assert_true(engine.bind.hold_us == 5 && engine.bind.inputs[0].key_count == 0);
    assert_int_equal(engine.kind->determinism, DETERMINISM_BY_ALL_ROWS);
    fake_start(&engine, 1, 1 << 20);
    struct fake_row rows[] = {{.id = 1, .ts = 100, .list = UINT32_MAX},
                              {.id = 2, .ts = 95, .list = UINT32_MAX},
                              {.id = 3, .ts = 94, .list = UINT32_MAX}};
    fake_micro_batch(&engine, rows, 1, 100);
    assert_int_equal(engine.output.length, 0);
    fake_micro_batch(&engine, rows + 1, 2, 105); /* rows up to 95 have been emitted; 94 is late */
    assert_string_equal(fake_text(&engine.output), "2|null|null|null|null|0|95|null\n");
    fake_micro_batch(&engine, NULL, 0, 106);
    assert_non_null(strstr(fake_text(&engine.output), "\n1|"));
    assert_int_equal(engine.lanes[0].counters.late, 1);
    fake_close(&engine);
    fake_open(&engine, NULL, 1);
    assert_false(fake_bind(&engine, "sort within forever", 1));
    assert_non_null(fake_diag(&engine, DIAG_OPTION_TYPE));
    fake_close(&engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_edges), cmocka_unit_test(test_against_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
