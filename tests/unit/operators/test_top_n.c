/* top_n against a model that sorts all rows of a group, for every kind of output. */
#include "keyed_script.h"

#include "unit/support/scan.h"
#include "unit/support/temporary.h"

#include "core/describe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ITEMS_MAX = 3, WINDOW_S = 20 };

/* A step, and its `order` and options as the model needs them. fields: x, v, s or b, for each item
 * of the order. */
struct spec {
    const char *step;
    char fields[ITEMS_MAX + 1];
    bool is_descending[ITEMS_MAX];
    uint32_t n;
    bool by_b, takes_ties;
};

static const struct spec specs[] = {
    {"top_n 3 by k order desc(x), s rank r", "xs", {true, false}, 3, false, false},
    {"top_n 4 by k, b order s, desc(v) ties all rank r", "sv", {false, true}, 4, true, true},
    {"top_n 1 by k order b rank r", "b", {false}, 1, false, false},
    {"top_n 7 by k order desc(s), desc(b) ties first rank r", "sb", {true, true}, 7, false, false},
    {"top_n 2 by k order b ties all rank r", "b", {false}, 2, false, true},
};

/* --- The model --- */

static void show(struct byte_buffer *out, const struct fake_row *row, uint32_t rank)
{
    script_show_row(out, row);
    buffer_printf(out, "|%u\n", rank);
}

static int compare_values(double a, double b)
{
    return a < b ? -1 : a > b;
}

static int compare_field(char field, const struct fake_row *a, const struct fake_row *b, bool *has_a,
                         bool *has_b)
{
    *has_a = *has_b = true;
    switch (field) {
    case 'x':
        *has_a = a->has_x;
        *has_b = b->has_x;
        return a->x < b->x ? -1 : a->x > b->x;
    case 'v':
        *has_a = a->has_v;
        *has_b = b->has_v;
        return compare_values(a->v, b->v);
    case 's':
        *has_a = a->s != NULL;
        *has_b = b->s != NULL;
        return *has_a && *has_b ? strcmp(a->s, b->s) : 0;
    default: return a->b < b->b ? -1 : a->b > b->b;
    }
}

static int compare(const struct spec *spec, const struct fake_row *a, const struct fake_row *b)
{
    for (uint32_t i = 0; spec->fields[i] != '\0'; i++) {
        bool has_a, has_b;
        int order = compare_field(spec->fields[i], a, b, &has_a, &has_b);
        if (has_a != has_b)
            return has_a ? -1 : 1;
        if (has_a && order != 0)
            return (order < 0) != spec->is_descending[i] ? -1 : 1;
    }
    return 0;
}

static bool is_one_group(const struct spec *spec, const struct fake_row *a, const struct fake_row *b)
{
    return a->has_k == b->has_k && (!a->has_k || a->k == b->k) && (!spec->by_b || a->b == b->b);
}

/* Whether the row is in the window that ends at `end`; TIME_MAX: always. */
static bool is_in(const struct fake_row *row, int64_t end)
{
    return end == TIME_MAX || (row->ts < end && row->ts >= end - WINDOW_S * US_PER_SECOND);
}

/* Writes the row if it is among the best of its group in a window. taken: rows that were not late. */
static void model_row(const struct spec *spec, const struct script *script, const bool *taken, uint32_t i,
                      int64_t end, struct byte_buffer *out)
{
    uint32_t better = 0, before = 0;
    for (uint32_t j = 0; j < script->count; j++) {
        const struct fake_row *other = &script->rows[j];
        if (!taken[j] || j == i || !is_in(other, end) || !is_one_group(spec, &script->rows[i], other))
            continue;
        int order = compare(spec, other, &script->rows[i]);
        better += order < 0;
        before += order < 0 || (order == 0 && j < i);
    }
    uint32_t rank = spec->takes_ties ? better : before;
    if (rank < spec->n)
        show(out, &script->rows[i], rank + 1);
}

static void model(const struct spec *spec, const struct script *script, int64_t slide,
                  struct byte_buffer *out)
{
    static bool taken[SCRIPT_ROWS_MAX];
    for (uint32_t i = 0; i < script->count; i++)
        taken[i] = true;
    if (slide == 0) {
        for (uint32_t i = 0; i < script->count; i++)
            model_row(spec, script, taken, i, TIME_MAX, out);
        fake_text(out);
        return;
    }
    /* Each window separately: a row may be late for one window and not for the next. */
    int64_t first = INT64_MAX, last = 0;
    for (uint32_t i = 0; i < script->count; i++) {
        first = MIN(first, script->rows[i].ts / slide * slide);
        last = MAX(last, script->rows[i].ts / slide * slide + WINDOW_S * US_PER_SECOND);
    }
    for (int64_t end = first + slide; end <= last; end += slide) {
        for (uint32_t i = 0; i < script->count; i++)
            taken[i] = end > script_watermark_before(script, script->micro_batch_of[i]) &&
                       is_in(&script->rows[i], end);
        for (uint32_t i = 0; i < script->count; i++)
            if (taken[i])
                model_row(spec, script, taken, i, end, out);
    }
    fake_text(out);
}

static void make(struct script *script, struct script_options *options, uint64_t seed)
{
    *options = (struct script_options){.seed = seed,
                                       .inputs = 1,
                                       .micro_batches = 50,
                                       .rows_per_number = 40,
                                       .keys = seed % 2 == 0 ? 3 : 40};
    script_make(script, options);
}

/* Within a group the best row comes first: ranks rise until another group begins. */
static void check_ranks(const struct byte_buffer *rows)
{
    int64_t last = 0, k = INT64_MIN;
    for (size_t i = 0; i < rows->length; i += scan_until(rows->data + i, "\n") + 1) {
        const char *line = rows->data + i, *end = line + scan_until(line, "\n"), *key = scan_after(line, '|');
        while (end[-1] != '|')
            end--;
        int64_t rank = scan_number(end, NULL), own = *key == 'n' ? INT64_MIN + 1 : scan_number(key, NULL);
        assert_true(rank == 1 || (own == k && rank >= last));
        last = rank;
        k = own;
    }
}

static void test_final_against_model(void **state)
{
    (void)state;
    static struct script script;
    for (uint64_t seed = 1; seed <= ARRAY_COUNT(specs); seed++) {
        const struct spec *spec = &specs[seed - 1];
        struct script_options options;
        struct script_result plain;
        struct byte_buffer expected = {0};
        make(&script, &options, seed);
        model(spec, &script, 0, &expected);
        script_check_variants(spec->step, &script, &options, &plain);
        script_compare_sorted(spec->step, &plain.output, &expected);
        check_ranks(&plain.output);
        assert_int_equal(plain.counters.absorbed, script.count);
        buffer_free(&expected);
        script_free(&plain);
    }
}

static void test_windows_against_model(void **state)
{
    (void)state;
    static struct script script;
    for (uint64_t seed = 1; seed <= ARRAY_COUNT(specs); seed++) {
        const struct spec *spec = &specs[seed - 1];
        struct script_options options;
        struct script_result plain;
        struct byte_buffer expected = {0};
        char step[200];
        bool is_sliding = seed % 2 == 0;
        make(&script, &options, seed + 100);
        snprintf(step, sizeof(step), "%s over %s", spec->step,
                 is_sliding ? "sliding(20s, 5s)" : "tumbling(20s)");
        model(spec, &script, (is_sliding ? 5 : WINDOW_S) * US_PER_SECOND, &expected);
        script_check_variants(step, &script, &options, &plain);
        script_compare_sorted(step, &plain.output, &expected);
        check_ranks(&plain.output);
        assert_true(plain.counters.late > 0);
        buffer_free(&expected);
        script_free(&plain);
    }
}

/* --- Changes --- */

static void test_changes_add_up(void **state)
{
    (void)state;
    static struct script script;
    for (uint64_t seed = 1; seed <= ARRAY_COUNT(specs); seed++) {
        const struct spec *spec = &specs[seed - 1];
        struct script_options options;
        struct script_result plain;
        struct byte_buffer expected = {0}, got = {0};
        char step[200];
        make(&script, &options, seed + 200);
        snprintf(step, sizeof(step), "%s emit on_change", spec->step);
        model(spec, &script, 0, &expected);
        script_check_variants(step, &script, &options, &plain);
        script_apply_changes(&plain.output, 8, &got); /* all columns but the rank identify the row */
        script_compare_sorted(step, &got, &expected);
        assert_non_null(strstr(plain.output.data, "|delete\n"));
        buffer_free(&expected);
        buffer_free(&got);
        script_free(&plain);
    }
}

/* Checks what `leat state get` shows of the group whose key is null. */
static void check_description(struct fake_engine *engine)
{
    struct batch *row = batch_new(engine->pool, engine->schema[0], 1);
    struct byte_buffer text = {0};
    struct describe describe;
    struct state_query query = {.row = row};
    batch_set_null(row, &row->columns[1], 0);
    describe_begin(&describe, &text, true);
    assert_true(engine->kind->describe(&engine->lanes[0], &query, &describe));
    describe_end(&describe);
    const char *best = strstr(fake_text(&text), "\"rank\""),
               *next = best == NULL ? NULL : strstr(best + 1, "\"rank\"");
    assert_non_null(next);
    assert_null(strstr(next + 1, "\"rank\""));
    const char *x = strstr(best, "\"x\"");
    assert_true(x != NULL && x < next && strstr(x, "3") < next && strstr(next, "\"x\"") != NULL);
    buffer_free(&text);
    batch_release(row);
}

/* Without ranks there are no updates. */
static void test_changes_without_ranks(void **state)
{
    (void)state;
    struct fake_engine engine;
    fake_open(&engine, NULL, 1);
    assert_true(fake_bind(&engine, "top_n 2 by k order x emit on_change", 1));
    fake_start(&engine, 1, 1 << 20);
    struct fake_row rows[5];
    static const int64_t xs[] = {5, 9, 7, 3, 8};
    for (int i = 0; i < 5; i++)
        rows[i] = (struct fake_row){.id = i, .has_x = true, .x = xs[i], .s = "", .list = UINT32_MAX};
    fake_micro_batch(&engine, rows, 2, 0);
    fake_micro_batch(&engine, rows + 2, 2, 0);
    fake_micro_batch(&engine, rows + 4, 1, 0);
    assert_string_equal(fake_text(&engine.output), "0|null|5|null||0|0|null|insert\n"
                                                   "1|null|9|null||0|0|null|insert\n"
                                                   "1|null|9|null||0|0|null|delete\n"
                                                   "3|null|3|null||0|0|null|insert\n");
    check_description(&engine);
    fake_close(&engine);
}

/* A row that would make a group larger than an entry may be goes to dead letters; smaller rows are still
 * taken, and each of them is one change. */
static void test_a_group_is_full(void **state)
{
    (void)state;
    enum { TEXT_BYTES = 200000, ROWS = 60 };
    static char text[TEXT_BYTES + 1];
    static const char *const steps[] = {
        "top_n 1000 by k order id emit on_change",
        "top_n 1000 by k order id over tumbling(1h) emit on_change",
    };
    memset(text, 'x', TEXT_BYTES);
    for (size_t s = 0; s < ARRAY_COUNT(steps); s++) {
        struct fake_engine engine;
        fake_open(&engine, NULL, 1);
        assert_true(fake_bind(&engine, steps[s], 1));
        fake_start(&engine, 1, 64 << 20);
        uint64_t dead = 0;
        for (int i = 0; i < ROWS; i++) {
            struct fake_row rows[2] = {{.id = 2 * i, .s = text, .list = UINT32_MAX},
                                       {.id = 2 * i + 1, .s = "small", .list = UINT32_MAX}};
            fake_micro_batch(&engine, rows, 2, 0);
            struct counters counters = fake_counters(&engine);
            assert_true(counters.dead - dead <= 1 && counters_balance(&counters));
            assert_int_equal(counters.emitted, counters.absorbed);
            dead = counters.dead;
        }
        assert_true(dead > 10 && dead < ROWS - 10);
        fake_close(&engine);
    }
}

/* How many different rows were emitted; a row may be emitted in several windows. */
static uint64_t rows_given(struct fake_engine *engine, uint32_t count)
{
    bool *is_given = calloc(count, sizeof(*is_given));
    uint64_t rows = 0;
    assert_non_null(is_given);
    const char *line = fake_text(&engine->output);
    for (; *line != '\0'; line = scan_after(line, '\n')) {
        long long id = scan_number(line, NULL);
        assert_true(id >= 0 && id < (long long)count);
        rows += !is_given[id];
        is_given[id] = true;
    }
    free(is_given);
    return rows;
}

/* A row belongs to several windows. It is dead if no window has room for it, late if none is open, and
 * neither if one window takes it: each row is emitted, dead or late. The report counts the windows that had
 * no room, also through checkpoints. */
static void test_a_window_is_full(void **state)
{
    (void)state;
    enum { TEXT_BYTES = 200000, ROWS = 320, PER_NUMBER = 4 };
    static char text[TEXT_BYTES + 1];
    static const char *const steps[] = {
        "top_n 1000 by k order id over sliding(20s, 5s)", "top_n 1000 by k order id over cumulating(20s, 5s)",
        "top_n 1000 by k order desc(id) over sliding(20s, 5s) emit on_change"};
    memset(text, 'x', TEXT_BYTES);
    for (size_t s = 0; s < ARRAY_COUNT(steps) * 2; s++) {
        char path[TEMPORARY_PATH_BYTES];
        struct fake_engine engine;
        temporary_make(path);
        fake_open(&engine, path, 1);
        assert_true(fake_bind(&engine, steps[s / 2], 1));
        fake_start(&engine, 1, 64 << 20);
        for (int64_t i = 0; i < ROWS; i += PER_NUMBER) {
            struct fake_row rows[PER_NUMBER];
            for (int64_t k = 0; k < PER_NUMBER; k++)
                rows[k] =
                    (struct fake_row){.id = i + k,
                                      .s = k % 3 == 0 ? "small" : text,
                                      .list = UINT32_MAX,
                                      .ts = (i + k) * US_PER_SECOND / 16 - (k == 1 ? 30 * US_PER_SECOND : 0)};
            int64_t watermark =
                i + PER_NUMBER == ROWS ? TIME_MAX : i * US_PER_SECOND / 16 - 3 * US_PER_SECOND;
            fake_micro_batch(&engine, rows, PER_NUMBER, watermark);
            if (s % 2 == 1 && i == ROWS / 2) {
                fake_barrier(&engine);
                fake_publish(&engine, false);
                fake_stop(&engine);
                fake_start(&engine, 3, 64 << 20);
            }
        }
        struct counters c = fake_counters(&engine);
        assert_true(counters_balance(&c) && c.dead > 10 && c.late > 10);
        if (rows_given(&engine, ROWS) + c.dead + c.late != ROWS)
            fail_msg("%s: %llu rows came out, %llu are dead, %llu late, of %d", steps[s / 2],
                     (unsigned long long)rows_given(&engine, ROWS), (unsigned long long)c.dead,
                     (unsigned long long)c.late, ROWS);
        struct report report = {0};
        for (uint32_t lane = 0; lane < engine.lanes_count; lane++)
            operator_report(engine.kind, &engine.lanes[lane], &report);
        double without_room = 0;
        for (uint32_t i = 0; i < report.count; i++)
            if (strcmp(report.items[i].name, "windows_without_room") == 0)
                without_room += report.items[i].value;
        static double plain;
        if (s % 2 == 0)
            plain = without_room;
        assert_true(without_room > 3 && without_room == plain);
        fake_close(&engine);
        temporary_remove(path);
    }
}

static void test_diagnostics(void **state)
{
    (void)state;
    static const struct script_refusal cases[] = {
        {"top_n 3 by kk order x", DIAG_NO_COLUMN},
        {"top_n 3 by k order xx", DIAG_NO_COLUMN},
        {"top_n 3 by k order l", DIAG_TYPE_CLASH},
        {"top_n 3 by k order desc(x, v)", DIAG_BAD_ARGUMENTS},
        {"top_n 3 by k order 1", DIAG_BAD_ARGUMENTS},
        {"top_n 3 by k", DIAG_OPTION_MISSING},
        {"top_n by k order x", DIAG_OPTION_MISSING},
        {"top_n 0 by k order x", DIAG_OUT_OF_RANGE},
        {"top_n 3 by k order x over tumbling(0s)", DIAG_OUT_OF_RANGE},
        {"top_n 3 by k order x over session(5s)", DIAG_NOT_A_CHOICE},
        {"top_n 3 by k order x emit on_close", DIAG_OPTIONS_CLASH},
        {"top_n 3 by k order x over tumbling(5s) emit final", DIAG_OPTIONS_CLASH},
        {"top_n 3 by k order x rank v", DIAG_COLUMN_TAKEN}};
    script_check_refusals(cases, ARRAY_COUNT(cases), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_diagnostics),         cmocka_unit_test(test_changes_without_ranks),
        cmocka_unit_test(test_a_group_is_full),     cmocka_unit_test(test_a_window_is_full),
        cmocka_unit_test(test_final_against_model), cmocka_unit_test(test_windows_against_model),
        cmocka_unit_test(test_changes_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
