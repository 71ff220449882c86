/* dedup against a plain list of sightings. */
#include "keyed_script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { WITHIN_S = 30, KEYS_MAX = 400 };

static void show(struct byte_buffer *out, const struct fake_row *row)
{
    buffer_printf(out, "%lld\n", (long long)row->id);
}

/* The ids that pass, by the definition. */
static void model(const struct script *script, struct byte_buffer *out, struct counters *counters)
{
    static int64_t first[KEYS_MAX];
    int64_t within = WITHIN_S * US_PER_SECOND;
    for (int k = 0; k < KEYS_MAX; k++)
        first[k] = TIME_MIN;
    for (uint32_t i = 0; i < script->count; i++) {
        const struct fake_row *row = &script->rows[i];
        int64_t watermark = script_watermark_before(script, script->number_of[i]), *f = &first[row->k + 2];
        bool is_known = *f != TIME_MIN && *f + within - 1 >= watermark;
        counters->in++;
        if (!row->has_k) {
            counters->null_keys++;
        } else if (is_known && row->ts > *f - within && row->ts < *f + within) {
            counters->duplicate++;
            continue;
        } else if (row->ts + within - 1 >= watermark && (!is_known || row->ts > *f)) {
            *f = row->ts;
        }
        counters->passed++;
        show(out, row);
    }
}

static void ids_alone(const struct byte_buffer *rows, struct byte_buffer *ids)
{
    for (size_t i = 0; i < rows->length; i += strcspn(rows->data + i, "\n") + 1)
        buffer_printf(ids, "%.*s\n", (int)strcspn(rows->data + i, "|"), rows->data + i);
    fake_text(ids);
}

static void against_model(void **state)
{
    (void)state;
    static struct script script;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct script_options options = {.seed = seed,
                                         .inputs = 1,
                                         .numbers = 80,
                                         .rows_per_number = 60,
                                         .keys = seed % 2 == 0 ? 30 : 380,
                                         .step_us = 300000,
                                         .jitter_us = 4 * US_PER_SECOND,
                                         .delay_us = 6 * US_PER_SECOND};
        script_make(&script, &options);
        struct script_result plain;
        struct byte_buffer expected = {0}, got = {0};
        struct counters counters = {0};
        model(&script, &expected, &counters);
        script_check_variants("dedup by k within 30s", &script, &options, &plain);
        ids_alone(&plain.output, &got);
        script_compare("dedup", got.data, fake_text(&expected));
        assert_true(plain.counters.duplicate > 0);
        assert_memory_equal(&plain.counters, &counters, sizeof counters);
        buffer_free(&expected);
        buffer_free(&got);
        script_free(&plain);
    }
}

/* The edges of `within`, and rows out of order. */
static void edges(void **state)
{
    (void)state;
    static const struct {
        int64_t s;
        bool passes;
    } rows[] = {{100, true},  {100, false}, {129, false}, {71, false}, {130, true},
                {159, false}, {100, true},  {101, false}, {160, true}, {130, true}};
    struct fake_engine engine;
    fake_open(&engine, NULL, 1);
    assert_true(fake_bind(&engine, "dedup by k, s within 30s keep first", 1));
    fake_start(&engine, 1, 1 << 20);
    uint64_t passed = 0;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct fake_row row = {
            .id = (int64_t)i, .k = 1, .has_k = true, .s = "x", .ts = rows[i].s * US_PER_SECOND};
        fake_number(&engine, &row, 1, 0);
        passed += rows[i].passes;
        if (engine.lanes[0].counters.passed != passed)
            fail_msg("row %zu at %llds", i, (long long)rows[i].s);
    }
    fake_close(&engine);
}

static void diagnostics(void **state)
{
    (void)state;
    static const struct {
        const char *step;
        enum diag_code code;
    } cases[] = {{"dedup by kk within 1h", DIAG_E0302},
                 {"dedup by l within 1h", DIAG_E0303},
                 {"dedup by k", DIAG_E0402},
                 {"dedup within 1h", DIAG_E0402},
                 {"dedup by k within 0s", DIAG_E0404},
                 {"dedup by k within 1h keep last", DIAG_E0405}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct fake_engine engine;
        fake_open(&engine, NULL, 1);
        assert_false(fake_bind(&engine, cases[i].step, 1));
        if (fake_diag(&engine, cases[i].code) == NULL)
            fail_msg("%s", cases[i].step);
        fake_close(&engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(edges), cmocka_unit_test(diagnostics),
                                       cmocka_unit_test(against_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
