/* dedup against a model that keeps plain lists of occurrences. */
#include "keyed_script.h"

#include "unit/support/scan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { WITHIN_S = 30, KEYS_MAX = 400 };

static void show(struct byte_buffer *out, const struct fake_row *row)
{
    buffer_printf(out, "%lld\n", (long long)row->id);
}

/* Writes the ids of the rows that pass, by the definition. */
static void model(const struct script *script, struct byte_buffer *out, struct counters *counters)
{
    static int64_t first[KEYS_MAX];
    int64_t within = WITHIN_S * US_PER_SECOND;
    for (int k = 0; k < KEYS_MAX; k++)
        first[k] = TIME_MIN;
    for (uint32_t i = 0; i < script->count; i++) {
        const struct fake_row *row = &script->rows[i];
        int64_t watermark = script_watermark_before(script, script->micro_batch_of[i]),
                *f = &first[row->k + 2];
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

static void test_against_model(void **state)
{
    (void)state;
    static struct script script;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct script_options options = {.seed = seed,
                                         .inputs = 1,
                                         .micro_batches = 80,
                                         .rows_per_number = 60,
                                         .keys = seed % 2 == 0 ? 30 : 380};
        script_make(&script, &options);
        struct script_result plain;
        struct byte_buffer expected = {0}, got = {0};
        struct counters counters = {0};
        model(&script, &expected, &counters);
        script_check_variants("dedup by k within 30s", &script, &options, &plain);
        script_ids(&plain.output, &got);
        script_compare("dedup", got.data, fake_text(&expected));
        assert_true(plain.counters.duplicate > 0);
        assert_memory_equal(&plain.counters, &counters, sizeof(counters));
        buffer_free(&expected);
        buffer_free(&got);
        script_free(&plain);
    }
}

/* The bounds of `within`, and rows out of order. */
static void test_edges(void **state)
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
        fake_micro_batch(&engine, &row, 1, 0);
        passed += rows[i].passes;
        if (engine.lanes[0].counters.passed != passed)
            fail_msg("row %zu at %llds", i, (long long)rows[i].s);
    }
    fake_close(&engine);
}

/* --- Keep last --- */

struct identity {
    int64_t first;
    uint32_t last; /* index of the row in the script */
};

/* Writes the changes that keep last emits, before settle(): one for each row that becomes
 * its identity's last. */
static void model_last(const struct script *script, int64_t within, struct byte_buffer *out,
                       struct counters *counters)
{
    enum { IDENTITIES_MAX = 200 };
    static struct identity known[KEYS_MAX][IDENTITIES_MAX];
    static uint32_t count[KEYS_MAX];
    memset(count, 0, sizeof(count));
    for (uint32_t i = 0; i < script->count; i++) {
        const struct fake_row *row = &script->rows[i];
        int64_t watermark = script_watermark_before(script, script->micro_batch_of[i]);
        counters->in++;
        if (!row->has_k) {
            counters->null_keys++;
            counters->passed++;
            buffer_printf(out, "%u %lld insert\n", script->micro_batch_of[i], (long long)row->id);
            continue;
        }
        struct identity *all = known[row->k + 2], *own = NULL;
        uint32_t *n = &count[row->k + 2];
        /* Of the identities that cover the row's event time, the one with the earliest first occurrence. */
        for (uint32_t k = 0; k < *n; k++)
            if (all[k].first + within > watermark && row->ts > all[k].first - within &&
                row->ts < all[k].first + within && (own == NULL || all[k].first < own->first))
                own = &all[k];
        if (own == NULL && row->ts + within <= watermark) {
            counters->late++;
            continue;
        }
        counters->absorbed++;
        bool is_new = own == NULL;
        if (is_new) {
            assert_true(*n < IDENTITIES_MAX);
            own = &all[(*n)++];
            *own = (struct identity){row->ts, i};
        }
        if (row->ts >= script->rows[own->last].ts)
            own->last = i;
        if (own->last == i)
            buffer_printf(out, "%u %lld %s%lld\n", script->micro_batch_of[i], (long long)row->id,
                          is_new ? "new " : "of ", (long long)own->first);
    }
}

struct identity_line {
    uint32_t number;
    long long id, first;
    bool is_new;
};

/* Keeps the last of an identity's changes in a micro-batch; it is an insert if the identity is new. */
static void settle(const struct byte_buffer *changes, struct byte_buffer *out, struct counters *counters,
                   const struct script *script)
{
    static struct identity_line lines[SCRIPT_ROWS_MAX];
    uint32_t count = 0;
    for (size_t i = 0; i < changes->length; i += scan_until(changes->data + i, "\n") + 1) {
        const char *line = changes->data + i;
        struct identity_line *l = &lines[count++];
        const char *at;
        l->number = (uint32_t)scan_number(line, &at);
        l->id = scan_number(at, &at);
        l->is_new = at[1] == 'n' || at[1] == 'i';
        l->first = at[1] == 'i' ? -1 : scan_number(scan_after(at + 1, ' '), NULL);
    }
    for (uint32_t i = 0; i < count; i++) {
        bool is_last = true, is_new = lines[i].is_new;
        for (uint32_t k = 0; k < count; k++) {
            if (lines[k].first < 0 || lines[k].first != lines[i].first ||
                lines[k].number != lines[i].number ||
                script->rows[lines[k].id].k != script->rows[lines[i].id].k)
                continue;
            is_last &= k <= i;
            is_new |= lines[k].is_new;
        }
        if (is_last) {
            buffer_printf(out, "%lld|%s\n", lines[i].id, is_new ? "insert" : "update");
            counters->emitted += lines[i].first >= 0;
        }
    }
    fake_text(out);
}

/* Writes "ID|OP" of each row. */
static void ids_and_changes(const struct byte_buffer *rows, struct byte_buffer *out)
{
    for (size_t i = 0; i < rows->length; i += scan_until(rows->data + i, "\n") + 1) {
        const char *line = rows->data + i, *end = line + scan_until(line, "\n"), *op = end;
        while (op[-1] != '|')
            op--;
        buffer_printf(out, "%.*s|%.*s\n", (int)scan_until(line, "|"), line, (int)(end - op), op);
    }
    fake_text(out);
}

static void test_last_against_model(void **state)
{
    (void)state;
    static struct script script;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct script_options options = {.seed = seed + 50,
                                         .inputs = 1,
                                         .micro_batches = 60,
                                         .rows_per_number = 60,
                                         .keys = seed % 2 == 0 ? 30 : 380};
        script_make(&script, &options);
        bool is_forever = seed > 2;
        struct script_result plain;
        struct byte_buffer changes = {0}, expected = {0}, got = {0};
        struct counters counters = {0};
        model_last(&script, is_forever ? INT64_C(1) << 60 : WITHIN_S * US_PER_SECOND, &changes, &counters);
        settle(&changes, &expected, &counters, &script);
        script_check_variants(is_forever ? "dedup by k within forever keep last emit on_change"
                                         : "dedup by k within 30s keep last emit on_change",
                              &script, &options, &plain);
        ids_and_changes(&plain.output, &got);
        script_compare_sorted("dedup keep last", &got, &expected);
        assert_memory_equal(&plain.counters, &counters, sizeof(counters));
        assert_true(is_forever || plain.counters.late > 0);
        buffer_free(&changes);
        buffer_free(&expected);
        buffer_free(&got);
        script_free(&plain);
    }
}

/* Emits at the end: the row with the latest event time, of equal times the last record; rows of all
 * sizes and types. */
static void test_final_is_the_latest(void **state)
{
    (void)state;
    static struct script script;
    struct script_options options = {
        .seed = 9, .inputs = 1, .micro_batches = 60, .rows_per_number = 60, .keys = 100};
    script_make(&script, &options);
    struct script_result plain;
    struct byte_buffer expected = {0}, got = {0};
    for (uint32_t i = 0; i < script.count; i++)
        script.rows[i].ts -= script.rows[i].ts % US_PER_SECOND; /* many equal event times */
    for (uint32_t i = 0; i < script.count; i++) {
        bool is_last = true;
        for (uint32_t k = 0; k < script.count && script.rows[i].has_k; k++)
            if (script.rows[k].has_k && script.rows[k].k == script.rows[i].k)
                is_last &= script.rows[k].ts < script.rows[i].ts ||
                           (script.rows[k].ts == script.rows[i].ts && k <= i);
        if (is_last)
            show(&expected, &script.rows[i]);
    }
    fake_text(&expected);
    script_check_variants("dedup by k within forever keep last emit final", &script, &options, &plain);
    script_ids(&plain.output, &got);
    script_compare_sorted("dedup keep last emit final", &got, &expected);
    buffer_free(&expected);
    buffer_free(&got);
    script_free(&plain);
}

/* A row that is larger than an entry may be goes to dead letters, and the row before it is kept, in the same
 * batch or in another one. */
static void test_too_large(void **state)
{
    (void)state;
    enum { TEXT_BYTES = 9 << 20 };
    char *text = malloc(TEXT_BYTES + 1);
    memset(text, 'x', TEXT_BYTES);
    text[TEXT_BYTES] = '\0';
    const struct fake_row rows[] = {{.id = 1, .k = 1, .has_k = true, .ts = 5, .s = "a", .list = UINT32_MAX},
                                    {.id = 2, .k = 1, .has_k = true, .ts = 6, .s = "b", .list = UINT32_MAX},
                                    {.id = 3, .k = 1, .has_k = true, .ts = 6, .s = text, .list = UINT32_MAX},
                                    {.id = 4, .k = 2, .has_k = true, .ts = 7, .s = text, .list = UINT32_MAX}};
    for (int seed = 0; seed < 8; seed++) {
        struct fake_engine engine;
        fake_open(&engine, NULL, 1);
        engine.random.state = (uint64_t)seed;
        assert_true(fake_bind(&engine, "dedup by k within forever keep last emit final", 1));
        fake_start(&engine, 1, 64 << 20);
        for (uint32_t i = 0; i < ARRAY_COUNT(rows) && seed == 0; i++)
            fake_micro_batch(&engine, &rows[i], 1, 0);
        if (seed > 0)
            fake_micro_batch(&engine, rows, ARRAY_COUNT(rows), 0);
        fake_micro_batch(&engine, NULL, 0, TIME_MAX);
        assert_int_equal(engine.rejects, 2);
        assert_string_equal(fake_text(&engine.output), "2|1|null|null|b|0|6|null\n");
        struct counters counters = fake_counters(&engine);
        assert_true(counters.absorbed == 2 && counters_balance(&counters));
        fake_close(&engine);
    }
    free(text);
}

static void test_diagnostics(void **state)
{
    (void)state;
    static const struct script_refusal cases[] = {
        {"dedup by kk within 1h", DIAG_NO_COLUMN},
        {"dedup by l within 1h", DIAG_TYPE_CLASH},
        {"dedup by k", DIAG_OPTION_MISSING},
        {"dedup within 1h", DIAG_OPTION_MISSING},
        {"dedup by k within 0s", DIAG_OUT_OF_RANGE},
        {"dedup by k within 1h keep best", DIAG_NOT_A_CHOICE},
        {"dedup by k within 1h keep last", DIAG_OPTIONS_CLASH},
        {"dedup by k within 1h keep last emit final", DIAG_OPTIONS_CLASH},
        {"dedup by k within 1h emit on_change", DIAG_OPTIONS_CLASH}};
    script_check_refusals(cases, ARRAY_COUNT(cases), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_edges),
                                       cmocka_unit_test(test_diagnostics),
                                       cmocka_unit_test(test_against_model),
                                       cmocka_unit_test(test_last_against_model),
                                       cmocka_unit_test(test_final_is_the_latest),
                                       cmocka_unit_test(test_too_large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
