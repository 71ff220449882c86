/*
 * Evaluation by ranks beside plain sums over a list of all events: random ranks, ties, misses, values of metrics_by,
 * lists of items that come and go; windows; saved and loaded at random places; rows; report; options.
 */
#include "ranks_model.h"

/* --- Rows --- */

static void assert_text(uint32_t row, uint32_t column, const char *expected)
{
    assert_true(str_is(column_text(&emitted->columns[column], row), expected));
}

static void assert_row(uint32_t row, int scope)
{
    struct ranks_figures parts[2] = {model_figures(scope, false), model_figures(scope, true)};
    assert_int_equal(emitted->columns[0].ints[row], 1000 * (int64_t)(model.n - 1));
    assert_int_equal(emitted->event_time[row], emitted->columns[0].ints[row]);
    assert_int_equal(emitted->columns[1].ints[row], parts[0].examples);
    assert_int_equal(emitted->columns[2].ints[row], parts[0].misses);
    uint32_t column = 5;
    for (int is_window = 0; is_window < 2; is_window++)
        for (uint32_t k = 0; k < model.at_count; k++) {
            const struct ranks_figures *f = &parts[is_window];
            double values[FIGURES] = {f->hr[k], f->ndcg[k], f->mrr[k], f->coverage[k]};
            for (uint32_t i = 0; i < FIGURES; i++, column++) {
                bool is_valid = column_is_valid(&emitted->columns[column], row);
                assert_near(is_valid ? emitted->columns[column].floats[row] : (double)NAN, values[i]);
            }
        }
    assert_int_equal(column, emitted->schema->count);
}

static void assert_rows(void)
{
    bool has_others = false;
    for (uint32_t i = 0; i < model.n; i++)
        has_others = has_others || model.scopes[i] == SCOPES - 1;
    uint32_t rows = 1 + (uint32_t)model.values + has_others;
    assert_int_equal(emitted->rows, rows);
    int64_t examples = 0;
    for (uint32_t row = 0; row < rows; row++) {
        bool is_value = row > 0 && row <= (uint32_t)model.values;
        assert_text(row, 3, row == 0 ? "all" : is_value ? "value" : "others");
        int value = is_value ? model.value_of[row] : 0;
        assert_true(column_is_valid(&emitted->columns[4], row) == (value != 0));
        if (value == 2)
            assert_int_equal(column_text(&emitted->columns[4], row).length, RANKS_TEXT_MAX - 1);
        else if (value != 0)
            assert_text(row, 4, text_of(value));
        assert_row(row, row > (uint32_t)model.values ? SCOPES - 1 : (int)row);
        examples += row > 0 ? emitted->columns[1].ints[row] : 0;
        struct row_order order = batch_order(emitted, row), before = batch_order(emitted, row - (row > 0));
        assert_true(order.place == 8 && order.time == emitted->event_time[row] && order.tie == model.n);
        assert_int_equal(row_order_compare(&before, &order), row == 0 ? 0 : -1);
    }
    assert_int_equal(examples, model.n);
}

/* --- Tests --- */

static void test_figures(void **state)
{
    (void)state;
    struct rig g;
    struct test_random random = {77};
    assert_true(rig_open(&g, all_options));
    struct ranks *r = ranks_create(&g.config), *whole = ranks_create(&g.config);
    model_start(&g.config);
    emissions = 0;
    assert_all(r);
    for (uint32_t n = 1; n <= EVENTS; n++) {
        struct event e = random_event(&random);
        if (n == 2000)
            model_start(&g.config), ranks_free(r), ranks_free(whole),
                r = ranks_create(&g.config), whole = ranks_create(&g.config), emissions = 0;
        bool is_due = add(r, &e, true);
        assert_true(add(whole, &e, true) == is_due);
        model_add(&e);
        assert_true(is_due == (model.n % EVERY == 0));
        if (is_due) {
            ranks_emit(r, &g.context, 1, ITEMS);
            assert_rows();
            ranks_emit(whole, &g.context, 1, ITEMS);
        }
        if (random_chance(&random, 10)) {
            struct test_random same = random;
            remove_one(&random, r);
            remove_one(&same, whole);
        }
        if (random_chance(&random, 2))
            r = restored(&g, r);
        if (n < 120 || n % 61 == 0)
            assert_all(r);
    }
    struct byte_buffer a = {0}, b = {0};
    ranks_save(r, &a), ranks_save(whole, &b);
    assert_true(a.length == b.length && memcmp(a.data, b.data, a.length) == 0);
    buffer_free(&a), buffer_free(&b);
    uint32_t before = emissions;
    ranks_end(r, &g.context, 1, ITEMS);
    assert_rows();
    r = restored(&g, r);
    ranks_end(r, &g.context, 1, ITEMS); /* nothing came since */
    assert_int_equal(emissions, before + 1);
    ranks_free(r), ranks_free(whole);
    rig_close(&g);
}

/* By hand: ties, misses and the borders of k. */
static void test_formulas(void **state)
{
    (void)state;
    struct rig g;
    assert_true(rig_open(&g, "metrics_at: [1, 3], window: 16"));
    struct ranks *r = ranks_create(&g.config);
    static const double ranks[] = {1.0, 1.5, 3.0, 3.5, (double)INFINITY};
    model_start(&g.config);
    for (size_t i = 0; i < 5; i++)
        assert_false(ranks_add(r, &(struct ranks_event){.rank = ranks[i]}));
    struct ranks_figures f = ranks_figures(r, false, 10);
    assert_true(f.examples == 5 && f.misses == 1);
    assert_near(f.hr[0], 1.0 / 5), assert_near(f.hr[1], 3.0 / 5);
    assert_near(f.ndcg[0], 1.0 / 5), assert_near(f.ndcg[1], (1.0 + 1.0 / log2(2.5) + 0.5) / 5);
    assert_near(f.mrr[0], 1.0 / 5), assert_near(f.mrr[1], (1.0 + 1.0 / 1.5 + 1.0 / 3) / 5);
    assert_true(isnan(f.coverage[0]) && isnan(f.coverage[1]));
    static const uint32_t top[] = {4, 9, 2, 7};
    assert_false(ranks_add(r, &(struct ranks_event){.rank = 1.0, .top = top, .top_count = 4}));
    f = ranks_figures(r, true, 10);
    assert_near(f.coverage[0], 0.1), assert_near(f.coverage[1], 0.3);
    assert_true(isnan(ranks_figures(r, false, 0).coverage[0]));
    for (int i = 0; i < 16; i++)
        assert_false(ranks_add(r, &(struct ranks_event){.rank = 1.0}));
    f = ranks_figures(r, true, 10);
    assert_true(f.examples == 16 && f.hr[0] == 1.0 && f.ndcg[1] == 1.0 && f.mrr[1] == 1.0);
    assert_true(isnan(f.coverage[0]));
    assert_near(ranks_figures(r, false, 10).coverage[1], 0.3);
    ranks_free(r);
    rig_close(&g);
}

static void test_share(void **state)
{
    (void)state;
    struct rig g, other;
    assert_true(rig_open(&g, ""));
    assert_true(rig_open(&other, "rank_share: 0.2"));
    struct ranks *r = ranks_create(&g.config), *fifth = ranks_create(&other.config);
    struct test_random random = {3};
    uint32_t few = 0, some = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        uint64_t identity = random_next(&random);
        assert_true(ranks_is_ranked(r, identity, 100000));
        bool is_few = ranks_is_ranked(r, identity, 100001), is_some = ranks_is_ranked(fifth, identity, 10);
        few += is_few, some += is_some;
        assert_true(!is_few || is_some);
        assert_true(ranks_is_ranked(fifth, identity, 1 << 30) == is_some);
    }
    assert_true(few > 800 && few < 1200 && some > 19000 && some < 21000);
    ranks_free(r), ranks_free(fifth);
    rig_close(&g), rig_close(&other);
}

static void test_report(void **state)
{
    (void)state;
    struct rig g;
    struct test_random random = {5};
    static struct report report;
    assert_true(rig_open(&g, all_options));
    struct ranks *r = ranks_create(&g.config);
    report.count = 0;
    ranks_report(r, &report, ITEMS);
    assert_int_equal(report.count, 4); /* examples and misses alone */
    model_start(&g.config);
    for (uint32_t n = 0; n < 3000; n++) {
        struct event e = random_event(&random);
        (void)!add(r, &e, true);
        model_add(&e);
    }
    report.count = 0;
    ranks_report(r, &report, ITEMS);
    assert_int_equal(report.count, 2 * (2 + 3 * FIGURES));
    for (uint32_t i = 0; i < report.count; i++) {
        const struct report_item *item = &report.items[i];
        struct ranks_figures f = model_figures(0, item->is_window);
        if (strcmp(item->name, "misses") == 0)
            assert_near(item->value, (double)f.misses);
        else if (strcmp(item->name, "ndcg_5") == 0)
            assert_near(item->value, f.ndcg[1]);
        else if (strcmp(item->name, "coverage_20") == 0)
            assert_near(item->value, f.coverage[2]);
    }
    assert_non_null(report_find(&report, "mrr_1"));
    ranks_free(r);
    rig_close(&g);
}

static struct batch *values_batch(struct rig *g)
{
    struct batch *batch = batch_new(g->context.pool, input_schema(&g->arena), 3);
    batch->columns[0].heap = "dech";
    for (uint32_t i = 0; i < 3; i++) {
        batch->columns[0].texts[i] = (struct text_ref){2 * (i % 2), 2};
        batch->columns[1].ints[i] = 7 - 10 * (int64_t)i;
        batch->columns[2].bools[i] = i == 1;
    }
    for (uint32_t c = 0; c < 3; c++)
        batch_set_null(batch, &batch->columns[c], 2);
    return batch;
}

/* Values of each type, from a column to a row. */
static void test_types(void **state)
{
    (void)state;
    static const char *const options[] = {"metrics_by: country", "metrics_by: level", "metrics_by: paid"};
    for (uint32_t c = 0; c < 3; c++) {
        struct rig g;
        assert_true(rig_open(&g, options[c]));
        assert_int_equal(g.config.schema->fields[4].lineage.words[0], c == 0 ? 5 : 0);
        struct batch *batch = values_batch(&g);
        struct ranks *r = ranks_create(&g.config);
        for (uint32_t i = 0; i < 6; i++) {
            struct ranks_value value = ranks_value_of(&batch->columns[c], i % 3);
            assert_false(ranks_add(r, &(struct ranks_event){.rank = 1.0, .value = &value}));
        }
        r = restored(&g, r);
        ranks_end(r, &g.context, 1, ITEMS);
        assert_int_equal(emitted->rows, 4);
        const struct column *by = &emitted->columns[4];
        for (uint32_t row = 0; row < 4; row++) {
            assert_int_equal(emitted->columns[1].ints[row], row == 0 ? 6 : 2);
            assert_true(column_is_valid(by, row) == (row == 1 || row == 2));
        }
        if (c == 0)
            assert_text(1, 4, "de"), assert_text(2, 4, "ch");
        else if (c == 1)
            assert_true(by->ints[1] == 7 && by->ints[2] == -3);
        else
            assert_true(!by->bools[1] && by->bools[2]);
        batch_release(batch);
        ranks_free(r);
        rig_close(&g);
    }
}

static void test_options(void **state)
{
    (void)state;
    static const char *const refused[] = {"metrics_at: []",
                                          "metrics_at: [0]",
                                          "metrics_at: [4097]",
                                          "metrics_at: [5, 5]",
                                          "metrics_at: [10, 1]",
                                          "metrics_at: [1,2,3,4,5]",
                                          "rank_share: 1.5",
                                          "rank_share: -0.1",
                                          "window: 15",
                                          "metrics_every: 0",
                                          "seen: maybe",
                                          "top: 4097",
                                          "top: -1",
                                          "metrics_by: nothing_there",
                                          "metrics_by: price",
                                          "metrics_by: scope",
                                          "metrics_by: mrr_10_window"};
    struct rig g;
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
        if (rig_open(&g, refused[i]))
            fail_msg("`%s` was taken", refused[i]);
        assert_true(g.diags.errors > 0);
        rig_close(&g);
    }
    assert_true(rig_open(&g, "metrics_at: [1, 2, 3, 4096], seen: dropped, top: 4096, rank_share: 1.0"));
    assert_int_equal(g.config.schema->count, 3 + 2 * 4 * FIGURES);
    assert_int_equal(g.config.seen, RANKS_SEEN_DROPPED);
    rig_close(&g);
    assert_true(rig_open(&g, ""));
    assert_true(g.config.at.count == 1 && g.config.at.items[0] == 10 && g.config.seen == RANKS_SEEN_KEPT);
    assert_true(g.config.top == 0 && g.config.share == 0.0);
    static const char *const names[] = {"time",    "examples", "misses",      "hr_10",
                                        "ndcg_10", "mrr_10",   "coverage_10", "hr_10_window"};
    for (uint32_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        assert_true(str_is(g.config.schema->fields[i].name, names[i]));
    for (uint32_t i = 0; i < g.config.schema->count; i++) { /* names that expressions can have */
        struct ast *name = lang_parse_value(&g.arena, &g.diags, g.config.schema->fields[i].name);
        assert_true(name != NULL && name->tag == AST_NAME && g.diags.errors == 0);
    }
    assert_true(lang_parse_value(&g.arena, &g.diags, STR("hr@10")) == NULL);
    rig_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures), cmocka_unit_test(test_formulas), cmocka_unit_test(test_share),
        cmocka_unit_test(test_report),  cmocka_unit_test(test_types),    cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
