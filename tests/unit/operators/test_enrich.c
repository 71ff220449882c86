/* enrich against a quadratic model. */
#include "keyed_script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* Writes `{ oid: id, ox: x + 1, os: s, tags: l, at: ts, ob: b }` of the version, or nulls. */
static void show_version(struct byte_buffer *out, const struct fake_row *version)
{
    if (version == NULL) {
        buffer_printf(out, "|null|null|null|null|null|null\n");
        return;
    }
    buffer_printf(out, "|%lld|", (long long)version->id);
    script_show_value(out, version->has_x, version->x + 1);
    buffer_printf(out, "|%s|", version->s == NULL ? "null" : version->s);
    script_show_list(out, version);
    buffer_printf(out, "|%lld|%d\n", (long long)version->ts, version->b);
}

static bool is_same_key(const struct fake_row *a, const struct fake_row *b)
{
    return a->has_k && b->has_k && a->k == b->k;
}

/* The newest version at row i's event time among the rows before i; NULL: none. */
static const struct fake_row *version_for(const struct script *script, const bool *is_kept, uint32_t i,
                                          int64_t within, int64_t watermark)
{
    const struct fake_row *row = &script->rows[i], *found = NULL, *floor = NULL;
    for (uint32_t j = 0; j < i; j++) {
        const struct fake_row *version = &script->rows[j];
        if (!is_kept[j] || !is_same_key(row, version))
            continue;
        if (version->ts <= watermark && (floor == NULL || version->ts >= floor->ts))
            floor = version;
        if (version->ts <= row->ts && (found == NULL || version->ts >= found->ts))
            found = version;
    }
    if (found == NULL || (floor != NULL && found->ts < floor->ts))
        return NULL;
    bool is_over = within != INT64_MAX && found->ts + within < MAX(row->ts, watermark);
    return is_over ? NULL : found;
}

static bool is_late(const struct script *script, const bool *is_kept, uint32_t i, int64_t within,
                    int64_t watermark)
{
    const struct fake_row *row = &script->rows[i];
    if (within != INT64_MAX && row->ts + within < watermark)
        return true;
    for (uint32_t j = 0; j < i; j++)
        if (is_kept[j] && is_same_key(row, &script->rows[j]) && script->rows[j].ts <= watermark &&
            script->rows[j].ts > row->ts)
            return true;
    return false;
}

static uint32_t model(const struct script *script, int64_t within, struct byte_buffer *out,
                      struct counters *counters)
{
    static bool is_kept[SCRIPT_ROWS_MAX];
    uint32_t matched = 0;
    memset(is_kept, 0, sizeof(is_kept));
    for (uint32_t i = 0; i < script->count; i++) {
        const struct fake_row *row = &script->rows[i];
        int64_t watermark = script_watermark_before(script, script->micro_batch_of[i]);
        counters->null_keys += !row->has_k;
        if (row->input == 1) {
            bool is_late_update = row->has_k && is_late(script, is_kept, i, within, watermark);
            counters->late_updates += is_late_update;
            is_kept[i] = row->has_k && !is_late_update;
            for (uint32_t j = 0; j < i && is_kept[i]; j++)
                is_kept[j] &= !is_same_key(row, &script->rows[j]) || script->rows[j].ts != row->ts;
            continue;
        }
        counters->in++;
        counters->passed++;
        const struct fake_row *version = version_for(script, is_kept, i, within, watermark);
        matched += version != NULL;
        script_show_row(out, row);
        show_version(out, version);
    }
    fake_text(out);
    return matched;
}

static void test_against_model(void **state)
{
    (void)state;
    static struct script script;
    uint32_t matched = 0, late = 0;
    for (uint64_t seed = 1; seed <= 9; seed++) {
        struct script_options options = {.seed = seed,
                                         .inputs = 2,
                                         .micro_batches = 70,
                                         .rows_per_number = 60,
                                         .keys = seed % 3 == 0   ? 1
                                                 : seed % 2 == 0 ? 4
                                                                 : 30};
        script_make(&script, &options);
        bool is_forever = seed % 2 == 0;
        struct script_result plain;
        struct byte_buffer expected = {0};
        struct counters counters = {0};
        matched += model(&script, is_forever ? INT64_MAX : 25 * US_PER_SECOND, &expected, &counters);
        late += (uint32_t)counters.late_updates;
        script_check_variants(is_forever
                                  ? "enrich from other on k within forever { oid: id, ox: x + 1, os: s, "
                                    "tags: l, at: ts, ob: b }"
                                  : "enrich from other on k within 25s { oid: id, ox: x + 1, os: s, "
                                    "tags: l, at: ts, ob: b }",
                              &script, &options, &plain);
        script_compare("enrich", plain.output.data, expected.data);
        assert_memory_equal(&plain.counters, &counters, sizeof(counters));
        buffer_free(&expected);
        script_free(&plain);
    }
    assert_true(matched > 5000);
    assert_true(late > 50);
}

static struct fake_row at(uint32_t input, int64_t id, int64_t seconds)
{
    return (struct fake_row){
        .input = input, .id = id, .k = 1, .has_k = true, .ts = seconds * US_PER_SECOND, .list = UINT32_MAX};
}

/* Matches by event time, both ends of `within` included; of two versions with equal times the later; no
 * version after the row. The newest version before the watermark is kept; older ones no longer count. */
static void test_edges(void **state)
{
    (void)state;
    struct fake_engine engine;
    fake_open(&engine, NULL, 2);
    assert_true(fake_bind(&engine, "enrich from other on k within 10s { v: id }", 2) == false);
    fake_close(&engine);
    fake_open(&engine, NULL, 2);
    assert_true(fake_bind(&engine, "enrich from other on k within 10s { of: id }", 2));
    const struct lineage *lineage = &engine.bind.outputs[0]->fields[8].lineage;
    assert_true(bit_get(lineage->words, 16) && bit_get(lineage->words, 1) && bit_get(lineage->words, 17));
    fake_start(&engine, 1, 1 << 20);
    struct fake_row first[] = {at(1, 50, 100), at(0, 1, 99),   at(0, 2, 100), at(0, 3, 110),
                               at(0, 4, 111),  at(1, 51, 100), at(0, 5, 100), at(1, 52, 105),
                               at(0, 6, 104),  at(0, 7, 105),  at(1, 53, 108)};
    fake_micro_batch(&engine, first, ARRAY_COUNT(first), 106 * US_PER_SECOND);
    struct fake_row second[] = {at(1, 54, 104), at(0, 8, 104),  at(0, 9, 106),
                                at(1, 55, 105), at(0, 10, 105), at(0, 11, 108)};
    fake_micro_batch(&engine, second, ARRAY_COUNT(second), TIME_MAX);
    static const char *const expected[] = {"1 null", "2 50",   "3 50", "4 null", "5 51", "6 51",
                                           "7 52",   "8 null", "9 52", "10 55",  "11 53"};
    const char *line = fake_text(&engine.output);
    for (size_t i = 0; i < ARRAY_COUNT(expected); i++) {
        char got[64];
        size_t length = strcspn(line, "\n"), own = strcspn(line, "|"), last = length;
        while (line[last - 1] != '|')
            last--;
        snprintf(got, sizeof(got), "%.*s %.*s", (int)own, line, (int)(length - last), line + last);
        assert_string_equal(got, expected[i]);
        line += length + 1;
    }
    assert_int_equal(*line, '\0');
    assert_int_equal(engine.lanes[0].counters.late_updates, 1); /* the version with id 54 */
    struct report report = {0};
    operator_report(engine.kind, &engine.lanes[0], &report);
    assert_true(report_find(&report, "unmatched")->value == 3.0);
    fake_close(&engine);
}

/* A key with more versions than an entry holds keeps the newest, and reports it. */
static void test_full_key(void **state)
{
    (void)state;
    struct fake_engine engine;
    fake_open(&engine, NULL, 2);
    assert_true(fake_bind(&engine, "enrich from other on k within forever { of: id, as: s }", 2));
    fake_start(&engine, 1, 64 << 20);
    static char text[100000];
    static struct fake_row rows[100];
    memset(text, 'x', sizeof(text) - 1);
    for (int64_t i = 0; i < 100; i++) {
        rows[i] = at(1, i, i);
        rows[i].s = text;
    }
    fake_micro_batch(&engine, rows, ARRAY_COUNT(rows), TIME_MIN);
    struct fake_row reads[] = {at(0, 1000, 0), at(0, 1001, 99)};
    fake_micro_batch(&engine, reads, ARRAY_COUNT(reads), TIME_MAX);
    const char *output = fake_text(&engine.output);
    assert_non_null(strstr(output, "|null|null|null\n"));
    assert_non_null(strstr(output, "|99|xxx"));
    struct report report = {0};
    operator_report(engine.kind, &engine.lanes[0], &report);
    double dropped = report_find(&report, "versions_dropped")->value;
    assert_true(dropped > 20 && dropped < 80);
    fake_close(&engine);
}

/* The report names a key with a large share of the rows, but not one key among many. */
static void test_hot_key(void **state)
{
    (void)state;
    for (int64_t keys = 1; keys <= 200; keys += 199) {
        struct fake_engine engine;
        static struct fake_row rows[1024];
        fake_open(&engine, NULL, 2);
        assert_true(fake_bind(&engine, "enrich from other on k within 1h { of: id }", 2));
        fake_start(&engine, 1, 1 << 20);
        for (int64_t n = 0; n < 12; n++) {
            for (int64_t i = 0; i < 1024; i++) {
                rows[i] = at((uint32_t)(i % 2), i, n);
                rows[i].k = i % 5 < 2 && keys == 1 ? 77 : i % keys + i;
            }
            fake_micro_batch(&engine, rows, ARRAY_COUNT(rows), TIME_MIN);
        }
        struct report report = {0};
        operator_report(engine.kind, &engine.lanes[0], &report);
        const struct report_item *hot = report_find(&report, "hot_key");
        assert_int_equal(hot != NULL, keys == 1);
        if (hot != NULL &&
            (strncmp(hot->text, "77 has more than 10 %", 21) != 0 || hot->value < 4000 || hot->value > 6000))
            fail_msg("%s: %f", hot->text, hot->value);
        fake_close(&engine);
    }
}

static void test_diagnostics(void **state)
{
    (void)state;
    static const struct script_refusal cases[] = {
        {"enrich from other on kk within 1h { a: x }", DIAG_NO_COLUMN},
        {"enrich from other on k = xx within 1h { a: x }", DIAG_NO_COLUMN},
        {"enrich from other on k = v within 1h { a: x }", DIAG_TYPE_CLASH},
        {"enrich from other on l within 1h { a: x }", DIAG_TYPE_CLASH},
        {"enrich from other on k = x + 1 within 1h { a: x }", DIAG_OPTION_TYPE},
        {"enrich from other on k { a: x }", DIAG_OPTION_MISSING},
        {"enrich from other on k within 1h", DIAG_OPTION_MISSING},
        {"enrich from other on k within 1h { }", DIAG_OPTION_MISSING},
        {"enrich from other on k within 0s { a: x }", DIAG_OUT_OF_RANGE},
        {"enrich from other on k within always { a: x }", DIAG_OPTION_TYPE},
        {"enrich from other on k within 1h { x }", DIAG_COLUMN_TAKEN},
        {"enrich from other on k within 1h { a: xx }", DIAG_NO_COLUMN}};
    script_check_refusals(cases, ARRAY_COUNT(cases), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_edges), cmocka_unit_test(test_full_key),
                                       cmocka_unit_test(test_hot_key), cmocka_unit_test(test_diagnostics),
                                       cmocka_unit_test(test_against_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
