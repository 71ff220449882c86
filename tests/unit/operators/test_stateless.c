/* where, with, select, drop, rename, cast, clean, sample, bucketize, hash, cross, union: rows, counters,
 * lineage, diagnostics. */
#include "harness.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* One step over the eight sample rows; a `select` in the step picks the columns to compare. */
struct step_case {
    const char *step, *rows;
    uint64_t passed, filtered, dead;
};

static const struct step_case cases[] = {
    {"where user_id > 0 and position <= 100",
     "1|10|mobile|5|1|true|0|[2]|[3]\n2|20| Desktop |-3.5|0|false|1000000|[0]|[0]\n"
     "7|70|12.5|12.5|3|false|6000000|[0]|[1]\n8|9223372036854775807|mobile|0.10000000000000001|9|true|"
     "7000000|[1]|[1]\n",
     4, 4, 0},
    {"where position != 0 and 100 / position > 20 and item_id = 10", "1|10|mobile|5|1|true|0|[2]|[3]\n", 1, 7,
     0},
    {"where item_id + 1 > 70", "7|70|12.5|12.5|3|false|6000000|[0]|[1]\n", 1, 6, 1},
    {"where 100 / position > 50", "1|10|mobile|5|1|true|0|[2]|[3]\n", 1, 6, 1},
    {"where false", "", 0, 8, 0},
    {"where device is null", "0|30|null|null|50|false|2000000|[1]|[2]\n", 1, 7, 0},
    {"select item_id", "10\n20\n30\n40\n50\n60\n70\n9223372036854775807\n", 8, 0, 0},
    {"select c = clicked, x = position * 2",
     "true|2\nfalse|0\nfalse|100\ntrue|202\nfalse|14\ntrue|200\nfalse|6\ntrue|18\n", 8, 0, 0},
    {"select next = item_id + 1", "11\n21\n31\n41\n51\n61\n71\n", 7, 0, 1},
    {"select d = coalesce(trim(device), \"?\")", "mobile\nDesktop\n?\nTV\ntablet\n\n12.5\nmobile\n", 8, 0, 0},
    {"drop item_id, device, price, clicked, ts, tags, events",
     "1|1\n2|0\n0|50\n4|101\nnull|7\n-6|100\n7|3\n8|9\n", 8, 0, 0},
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct harness h;
        harness_init(&h);
        if (!harness_bind(&h, cases[i].step)) {
            diag_print(stderr, &h.diags, NULL, false);
            fail_msg("%s does not bind", cases[i].step);
        }
        harness_push(&h, 0, harness_batch(&h, 8));
        if (strcmp(harness_text(&h), cases[i].rows) != 0)
            fail_msg("%s:\n%sexpected\n%s", cases[i].step, harness_text(&h), cases[i].rows);
        assert_int_equal(h.context.counters.passed, cases[i].passed);
        assert_int_equal(h.context.counters.filtered, cases[i].filtered);
        assert_int_equal(h.context.counters.dead, cases[i].dead);
        assert_int_equal(h.rejects, cases[i].dead);
        harness_free(&h);
    }
}

/* A harness with the bound step, for tests that push batches themselves. */
static struct harness run(const char *step)
{
    struct harness h;
    harness_init(&h);
    if (!harness_bind(&h, step)) {
        diag_print(stderr, &h.diags, NULL, false);
        fail_msg("%s does not bind", step);
    }
    h.context.engine = NULL; /* push() sets it, because the harness is returned by value */
    return h;
}

static void push(struct harness *h, uint32_t rows)
{
    h->context.engine = h;
    h->context.scratch = &h->scratch;
    h->context.diags = &h->diags;
    h->diags.arena = &h->arena; /* the harness's address has changed */
    harness_push(h, 0, harness_batch(h, rows));
}

static void test_with(void **state)
{
    (void)state;
    struct harness h = run("with total = price * 2.0, more = total + 1.0, n = int(device)");
    push(&h, 8);
    assert_string_equal(harness_text(&h), "0|30|null|null|50|false|2000000|[1]|[2]|null|null|null\n");
    assert_int_equal(h.context.counters.dead, 7);
    assert_string_equal(h.reasons[0], "a text that is no int in `int(device)`");
    assert_int_equal(h.rejected_rows[1], 1);
    const struct schema *output = h.context.output;
    assert_int_equal(output->count, 12);
    /* The lineage of `more`, through `total`, is price. */
    assert_int_equal(output->fields[10].lineage.words[0], 1 << 3);
    assert_int_equal(output->fields[11].lineage.words[0], 1 << 2);
    assert_int_equal(output->fields[0].lineage.words[0], 1);
    harness_free(&h);
}

static void test_rename(void **state)
{
    (void)state;
    struct harness h = run("rename user_id = item_id, item_id = user_id, where_at = position");
    push(&h, 1);
    assert_string_equal(harness_text(&h), "1|10|mobile|5|1|true|0|[2]|[3]\n");
    const struct schema *output = h.context.output;
    assert_true(str_is(output->fields[0].name, "item_id") && str_is(output->fields[1].name, "user_id"));
    assert_true(str_is(output->fields[4].name, "where_at"));
    assert_int_equal(output->fields[1].lineage.words[0], 1 << 1); /* lineage stays with the value */
    harness_free(&h);
}

static void test_cast(void **state)
{
    (void)state;
    struct harness h =
        run("cast user_id = text, device = try_float, ts = int, position = time(ms), clicked = int");
    push(&h, 8);
    assert_string_equal(harness_text(&h),
                        "1|10|null|5|1000|1|0|[2]|[3]\n2|20|null|-3.5|0|0|1000000|[0]|[0]\n"
                        "0|30|null|null|50000|0|2000000|[1]|[2]\n4|40|null|2000|101000|1|3000000|[0]|[1]\n"
                        "null|50|null|1.25|7000|0|4000000|[3]|[0]\n-6|60|null|1.0000000000000001e+300|100000|"
                        "1|5000000|[1]|[4]\n"
                        "7|70|12.5|12.5|3000|0|6000000|[0]|[1]\n8|9223372036854775807|null|0."
                        "10000000000000001|9000|1|7000000|[1]|[1]\n");
    assert_int_equal(h.context.output->fields[4].type.tag, TYPE_TIME);
    assert_int_equal(h.context.output->fields[2].lineage.words[0], 1 << 2);
    harness_free(&h);
    h = run("cast price = int");
    push(&h, 8);
    assert_int_equal(h.context.counters.dead, 1); /* 1e300 does not fit an int */
    assert_string_equal(h.reasons[0], "a float that does not fit an int in `int(price)`");
    harness_free(&h);
}

static void test_clean(void **state)
{
    (void)state;
    struct harness h = run("clean { device: [trim, lower, null_if(\"\"), fill(\"unknown\"), "
                           "allow([\"mobile\", \"tv\", \"unknown\"], "
                           "\"other\")], price: [clamp(0, 1000), fill(1.5)], user_id: allow([1, 2, 7]) }");
    push(&h, 8);
    assert_string_equal(
        harness_text(&h),
        "1|10|mobile|5|1|true|0|[2]|[3]\n2|20|other|0|0|false|1000000|[0]|[0]\n"
        "null|30|unknown|1.5|50|false|2000000|[1]|[2]\nnull|40|tv|1000|101|true|3000000|[0]|[1]\n"
        "null|50|other|1.25|7|false|4000000|[3]|[0]\nnull|60|unknown|1000|100|true|5000000|[1]|[4]\n"
        "7|70|other|12.5|3|false|6000000|[0]|[1]\nnull|9223372036854775807|mobile|0.10000000000000001|9|true|"
        "7000000|[1]|[1]\n");
    struct report report = {0};
    operator_report(h.kind, &h.context, &report);
    assert_int_equal(report.count, 3);
    assert_string_equal(report.items[0].name, "user_id changed");
    assert_int_equal((int)report.items[0].value, 4); /* 0, 4, -6 and 8 change; a null stays null */
    assert_string_equal(report.items[1].name, "device changed");
    assert_int_equal((int)report.items[1].value, 6);
    assert_int_equal((int)report.items[2].value, 4);
    harness_free(&h);
}

static void test_clean_numbers(void **state)
{
    (void)state;
    struct harness h = run("clean { device: number }");
    push(&h, 8);
    assert_int_equal(h.context.output->fields[2].type.tag, TYPE_FLOAT);
    struct report report = {0};
    operator_report(h.kind, &h.context, &report);
    assert_int_equal((int)report.items[0].value, 6); /* one value is null, one already a number */
    assert_int_equal(h.context.counters.dead, 0);
    harness_free(&h);
}

/* After a restart, one lane gets the sum of all lanes' figures. */
static void test_clean_snapshot(void **state)
{
    (void)state;
    struct harness h = run("clean { price: clamp(0, 10), device: trim }");
    push(&h, 16);
    struct snapshot_writer writers[2] = {0};
    assert_true(operator_snapshot(h.kind, &h.context, &writers[0]) &&
                operator_snapshot(h.kind, &h.context, &writers[1]));
    struct byte_buffer parts[] = {writers[0].records, writers[1].records};
    for (uint32_t lane = 0; lane < 2; lane++) {
        memcpy(h.context.config, h.master, h.kind->size);
        h.context.lane = lane;
        struct snapshot_reader reader = {.parts = parts, .count = 2};
        assert_true(operator_restore(h.kind, &h.context, &reader));
        struct report report = {0};
        operator_report(h.kind, &h.context, &report);
        assert_int_equal((int)report.items[0].value, lane == 0 ? 4 : 0);         /* device */
        assert_int_equal((int)report.items[1].value, lane == 0 ? 2 * 2 * 4 : 0); /* price */
    }
    struct byte_buffer torn = parts[0];
    uint32_t length = 3;
    memcpy(torn.data + 4, &length, sizeof(length));
    torn.length = 8 + length;
    struct snapshot_reader reader = {.parts = &torn, .count = 1};
    assert_false(operator_restore(h.kind, &h.context, &reader));
    assert_true(reader.is_corrupt);
    buffer_free(&parts[0]);
    buffer_free(&parts[1]);
    harness_free(&h);
}

static void test_buckets(void **state)
{
    (void)state;
    struct harness h = run("bucketize position at [1, 50, 100] as bucket");
    push(&h, 8);
    const struct diag *none = harness_diag(&h, DIAG_BAD_ARGUMENTS);
    assert_null(none);
    assert_int_equal(h.context.counters.passed, 8);
    assert_true(strstr(harness_text(&h), "|50|false|2000000|[1]|[2]|2\n") != NULL);
    assert_true(strstr(harness_text(&h), "|101|true|3000000|[0]|[1]|3\n") != NULL);
    harness_free(&h);
    h = run("hash user_id, device into 10 as bucket");
    push(&h, 8);
    assert_int_equal(h.context.output->fields[9].lineage.words[0], 1 | 1 << 2);
    harness_free(&h);
    h = run("cross user_id, device as pair");
    push(&h, 8);
    assert_int_equal(h.context.output->fields[9].type.tag, TYPE_INT);
    assert_int_equal(h.context.counters.passed, 8);
    assert_null(strstr(harness_text(&h), "|null\n")); /* a null is a value in a feature cross */
    harness_free(&h);
}

static void test_sample(void **state)
{
    (void)state;
    uint64_t kept[3];
    static const char *const steps[] = {"sample 0.3", "sample 0.3 seed 5", "sample 0.5 by device"};
    for (int i = 0; i < 3; i++) {
        struct harness h = run(steps[i]);
        for (int k = 0; k < 2; k++)
            push(&h, 1000);
        kept[i] = h.context.counters.passed;
        assert_int_equal(h.rows, kept[i]);
        harness_free(&h);
    }
    assert_true(kept[0] > 500 && kept[0] < 700 &&
                kept[0] % 2 == 0); /* the same batch twice: the same rows are kept */
    assert_true(kept[1] > 500 && kept[1] < 700 && kept[1] != kept[0]);
    assert_int_equal(kept[2] % 250, 0); /* all rows of a device are kept, or none */
    struct harness all = run("sample 1.0");
    push(&all, 1000);
    assert_int_equal(all.context.counters.passed, 1000);
    harness_free(&all);
    struct harness none = run("sample 0");
    push(&none, 1000);
    assert_int_equal(none.context.counters.filtered, 1000);
    harness_free(&none);
}

/* The choice depends on a row's order in the job, not on how rows are cut into batches. */
static void test_sample_is_the_same_for_any_cut(void **state)
{
    (void)state;
    struct harness h = run("sample 0.3");
    push(&h, 1000);
    uint64_t whole = h.context.counters.passed;
    harness_forget(&h);
    push(&h, 500);
    struct batch *rest = harness_batch(&h, 500);
    rest->first_record += 500;
    for (uint32_t i = 0; i < 500; i++)
        rest->order_time[i] += 500 * US_PER_SECOND;
    harness_push(&h, 0, rest);
    assert_int_equal(h.context.counters.passed, whole);
    harness_free(&h);
}

static void test_union(void **state)
{
    (void)state;
    struct harness h;
    harness_init(&h);
    struct schema *second = schema_copy(&h.arena, h.inputs[0], 0);
    struct field first = second->fields[0];
    second->fields[0] = second->fields[1]; /* item_id before user_id: another order of columns */
    second->fields[1] = first;
    for (uint32_t i = 0; i < second->count; i++)
        second->fields[i].lineage = (struct lineage){{UINT64_C(1) << (20 + i)}};
    bit_set(second->rows_lineage.words, 60);
    h.inputs[1] = second;
    h.inputs_count = 2;
    assert_true(harness_bind(&h, "union others"));
    harness_push(&h, 0, harness_batch(&h, 1));
    struct batch *batch = harness_batch(&h, 1);
    batch->schema = second;
    harness_push(&h, 1, batch);
    assert_string_equal(harness_text(&h), "1|10|mobile|5|1|true|0|[2]|[3]\n10|1|mobile|5|1|true|0|[2]|[3]\n");
    const struct schema *output = h.context.output;
    assert_int_equal(output->fields[0].lineage.words[0], 1 | UINT64_C(1) << 21 | UINT64_C(1) << 60);
    assert_int_equal(output->rows_lineage.words[0], UINT64_C(1) << 60);
    harness_free(&h);
}

static void test_rows_lineage(void **state)
{
    (void)state;
    struct harness h = run("where clicked or price > 1.0");
    assert_int_equal(h.context.output->rows_lineage.words[0], 1 << 5 | 1 << 3);
    assert_int_equal(h.context.output->fields[0].lineage.words[0], 1);
    harness_free(&h);
    h = run("sample 0.5 by user_id");
    assert_int_equal(h.context.output->rows_lineage.words[0], 1);
    harness_free(&h);
    h = run("unnest tags");
    assert_int_equal(h.context.output->rows_lineage.words[0], 1 << 7);
    harness_free(&h);
}

static const struct {
    const char *step;
    enum diag_code code;
    const char *words;
} bad[] = {
    {"where position", DIAG_TYPE_CLASH, "`where` needs a condition"},
    {"where positon > 1", DIAG_NO_COLUMN, "positon"},
    {"where count() > 1", DIAG_BAD_AGGREGATE, "aggregate"},
    {"with price = 1", DIAG_COLUMN_TAKEN, "`price` already"},
    {"with a = 1, b = nope", DIAG_NO_COLUMN, "nope"},
    {"with a = b, b = 1", DIAG_NO_COLUMN, "`b`"},
    {"select user_id, user = usr", DIAG_NO_COLUMN, "usr"},
    {"drop nope", DIAG_NO_COLUMN, "nope"},
    {"drop user_id, item_id, device, price, position, clicked, ts, tags, events", DIAG_OPTIONS_CLASH,
     "no column is left"},
    {"rename a = nope", DIAG_NO_COLUMN, "nope"},
    {"rename price = user_id", DIAG_COLUMN_TAKEN, "`price`"},
    {"rename a = user_id, b = user_id", DIAG_OPTION_TWICE, "twice"},
    {"rename a = user_id + 1", DIAG_OPTION_TYPE, "name of a column"},
    {"cast price = number", DIAG_OPTION_TYPE, "no such type"},
    {"cast nope = int", DIAG_NO_COLUMN, "nope"},
    {"cast tags = int", DIAG_BAD_ARGUMENTS, "int"},
    {"cast position = time(h)", DIAG_BAD_ARGUMENTS, "unit"},
    {"clean { device: trimm }", DIAG_NOT_A_CHOICE, "no such rule"},
    {"clean { nope: trim }", DIAG_NO_COLUMN, "nope"},
    {"clean { price: trim }", DIAG_BAD_ARGUMENTS, "trim"},
    {"clean { price: clamp(1) }", DIAG_BAD_ARGUMENTS, "2 arguments"},
    {"unnest price", DIAG_TYPE_CLASH, "not a list"},
    {"unnest nope", DIAG_NO_COLUMN, "nope"},
    {"sample 1.5", DIAG_OUT_OF_RANGE, "range"},
    {"sample 0.5 by tags", DIAG_TYPE_CLASH, "list"},
    {"bucketize position at [3, 2] as b", DIAG_BAD_ARGUMENTS, "rise"},
    {"cross user_id as b", DIAG_OUT_OF_RANGE, "2 to"},
    {"hash nope as b", DIAG_NO_COLUMN, "nope"},
    {"hash tags as b", DIAG_BAD_ARGUMENTS, "hash"},
};

static void test_diagnostics(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct harness h;
        harness_init(&h);
        assert_false(harness_bind(&h, bad[i].step));
        const struct diag *d = harness_diag(&h, bad[i].code);
        bool is_good = d != NULL && (strstr(d->message, bad[i].words) != NULL ||
                                     (d->hint != NULL && strstr(d->hint, bad[i].words) != NULL));
        if (!is_good) {
            diag_print(stderr, &h.diags, NULL, false);
            fail_msg("%s: %s with `%s` was expected", bad[i].step, diag_code_name(bad[i].code), bad[i].words);
        }
        harness_free(&h);
    }
}

static void test_union_diagnostics(void **state)
{
    (void)state;
    struct harness h;
    harness_init(&h);
    struct schema *second = schema_copy(&h.arena, h.inputs[0], 1);
    second->fields[3].type = type_of(TYPE_INT);
    second->fields[4].name = STR("place");
    h.inputs[1] = second;
    h.inputs_count = 2;
    assert_false(harness_bind(&h, "union others"));
    /* Price has another type, position is missing, place is unknown. */
    assert_int_equal(h.diags.errors, 3);
    assert_non_null(harness_diag(&h, DIAG_SCHEMAS_DIFFER));
    harness_free(&h);
}

/* The help's example of each stateless operator binds and runs. */
static void test_examples(void **state)
{
    (void)state;
    static const char *const stateless[] = {"where", "with",   "select", "drop",      "rename", "cast",
                                            "clean", "unnest", "sample", "bucketize", "hash",   "cross"};
    size_t count = 0;
    for (const struct operator_kind *const *kind = fake_operators; *kind != NULL; kind++)
        for (size_t i = 0; i < ARRAY_COUNT(stateless); i++) {
            if (strcmp((*kind)->name, stateless[i]) != 0)
                continue;
            const char *step = strchr((*kind)->example, '|');
            assert_non_null(step);
            struct harness h = run(step + 2);
            push(&h, 8);
            assert_true(h.rows > 0 || strcmp((*kind)->name, "sample") == 0);
            harness_free(&h);
            count++;
        }
    assert_int_equal(count, ARRAY_COUNT(stateless));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_with),
        cmocka_unit_test(test_rename),
        cmocka_unit_test(test_cast),
        cmocka_unit_test(test_clean),
        cmocka_unit_test(test_clean_numbers),
        cmocka_unit_test(test_clean_snapshot),
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_sample),
        cmocka_unit_test(test_sample_is_the_same_for_any_cut),
        cmocka_unit_test(test_union),
        cmocka_unit_test(test_rows_lineage),
        cmocka_unit_test(test_diagnostics),
        cmocka_unit_test(test_union_diagnostics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
