/* nest: undoes what unnest did, in the order of an expression, with a bound, over batches that cut a record's rows; and the
 * order of rows of one record between two inputs, which unnest and nest decide. */
#include "harness.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Rows of `unnest events` go to `nest` in batches of `size` rows. */
struct pair {
    struct harness unnest, nest;
    uint32_t size;
    struct byte_buffer text;
};

static struct pair *current;

/* ITEM_ID: aid kind, aid kind ... of each row, and its place. */
static void read_lists(struct harness *h, const struct batch *batch)
{
    const struct schema *schema = batch->schema;
    const struct column *lists = &batch->columns[schema->count - 1];
    (void)h;
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        struct row_order order = batch_order(batch, row);
        struct list_ref list = lists->lists[row];
        assert_true(order.sub == 0 && order.depth == 0 && batch_origin(batch, row).record == order.tie);
        buffer_printf(&current->text, "%lld:", (long long)batch->columns[1].ints[row]);
        for (uint32_t k = list.offset; k < list.offset + list.length; k++)
            buffer_printf(&current->text, " %lld %.*s", (long long)lists->children[0].ints[k],
                          STR_ARGS(column_text(&lists->children[1], k)));
        buffer_append(&current->text, "\n", 1);
    }
}

/* Hands the rows on, cut into batches of current->size rows. */
static void hand_on(struct harness *h, const struct batch *batch)
{
    (void)h;
    for (uint32_t at = 0; at < batch->selected; at += current->size) {
        struct batch *view = batch_derive((struct batch *)(uintptr_t)batch, batch->schema);
        uint32_t count = MIN(current->size, batch->selected - at);
        uint16_t *sel = arena_array(&view->arena, uint16_t, count);
        for (uint32_t i = 0; i < count; i++)
            sel[i] = (uint16_t)batch_row(batch, at + i);
        view->sel = sel, view->selected = count;
        harness_push(&current->nest, 0, view);
    }
}

static const char *nested(struct pair *pair, const char *step, uint32_t size, uint32_t rows)
{
    *pair = (struct pair){.size = size};
    current = pair;
    harness_init(&pair->unnest);
    harness_init(&pair->nest);
    assert_true(harness_bind(&pair->unnest, "unnest events"));
    pair->nest.inputs[0] = schema_copy(&pair->nest.arena, pair->unnest.context.output, 0);
    assert_true(harness_bind(&pair->nest, step));
    pair->unnest.check = hand_on, pair->nest.check = read_lists;
    harness_push(&pair->unnest, 0, harness_batch(&pair->unnest, rows));
    pair->nest.kind->on_watermark(&pair->nest.context, 0);
    buffer_append(&pair->text, "", 1);
    return pair->text.data;
}

static void pair_free(struct pair *pair)
{
    harness_free(&pair->nest);
    harness_free(&pair->unnest);
    buffer_free(&pair->text);
}

static void test_undoes(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 7; size++) {
        struct pair p;
        assert_string_equal(nested(&p, "nest aid, kind as again", size, 7),
                            "10: 10 view 11 cart 12 view\n30: 30 view 31 cart\n40: 40 view\n"
                            "60: 60 view 61 cart 62 view 63 cart\n70: 70 view\n");
        const struct counters *c = &p.nest.context.counters;
        assert_true(c->in == 11 && c->absorbed == 11 && c->filtered == 0 && c->emitted == 5);
        const struct schema *output = p.nest.context.output;
        assert_int_equal(output->count, 9);
        assert_true(str_is(output->fields[8].name, "again") && str_is(output->fields[7].name, "tags"));
        assert_int_equal(output->fields[8].lineage.words[0], 1 << 8);
        pair_free(&p);
    }
}

static void test_order_and_first(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 7; size++) {
        struct pair p;
        assert_string_equal(
            nested(&p, "nest aid, kind as best order kind, desc(aid) first 2", size, 7),
            "10: 11 cart 12 view\n30: 31 cart 30 view\n40: 40 view\n60: 63 cart 61 cart\n70: 70 view\n");
        const struct counters *c = &p.nest.context.counters;
        assert_true(c->in == 11 && c->absorbed == 8 && c->filtered == 3 && c->emitted == 5);
        pair_free(&p);
    }
}

/* Of equal elements the order of unnest holds; an element whose order cannot be computed is dead, its neighbours stay. */
static void test_ties_and_errors(void **state)
{
    (void)state;
    struct pair p;
    assert_string_equal(
        nested(&p, "nest aid, kind as best order kind first 3", 2, 6),
        "10: 11 cart 10 view 12 view\n30: 31 cart 30 view\n40: 40 view\n60: 61 cart 63 cart 60 view\n");
    pair_free(&p);
    assert_string_equal(nested(&p, "nest aid, kind as best order 10 / (aid - 11)", 2, 1),
                        "10: 10 view 12 view\n");
    assert_int_equal(p.nest.context.counters.dead, 1);
    pair_free(&p);
}

static void test_many(void **state)
{
    (void)state;
    struct pair one, cut;
    const char *whole = nested(&one, "nest aid, kind as again order desc(aid)", BATCH_ROWS, 1000);
    const char *parts = nested(&cut, "nest aid, kind as again order desc(aid)", 3, 1000);
    assert_string_equal(whole, parts);
    assert_int_equal(one.nest.context.counters.emitted, 750);
    pair_free(&cut);
    pair_free(&one);
}

/* A record without a list is a list of one; lists are no elements; the list's name must be free. */
static void test_alone(void **state)
{
    (void)state;
    struct harness h;
    harness_init(&h);
    assert_true(harness_bind(&h, "nest item_id as goods"));
    assert_true(h.context.output->fields[8].type.element->tag == TYPE_INT);
    harness_push(&h, 0, harness_batch(&h, 3));
    h.kind->on_watermark(&h.context, 0);
    assert_int_equal(h.context.counters.emitted, 3);
    harness_free(&h);
    static const struct {
        const char *step;
        enum diag_code code;
    } bad[] = {{"nest tags as goods", DIAG_TYPE_CLASH},
               {"nest item_id as device", DIAG_COLUMN_TAKEN},
               {"nest nothing as goods", DIAG_NO_COLUMN}};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        harness_init(&h);
        assert_false(harness_bind(&h, bad[i].step));
        assert_non_null(harness_diag(&h, bad[i].code));
        harness_free(&h);
    }
}

/* Between two inputs, elements have the place of their record; among elements the list's order holds. */
static void test_orders_of_inputs(void **state)
{
    (void)state;
    struct row_order record = {.time = 5, .tie = 7}, next = {.time = 5, .tie = 8};
    struct row_order third = {.time = 5, .tie = 7, .sub = 2, .depth = 1}, fourth = third, inner = third;
    fourth.sub = 3;
    inner.sub = third.sub << ROW_ORDER_ELEMENT_BITS | 9, inner.depth = 2;
    assert_int_equal(row_order_compare_inputs(&third, &record), 0);
    assert_int_equal(row_order_compare_inputs(&record, &third), 0);
    assert_int_equal(row_order_compare_inputs(&record, &inner), 0);
    assert_int_equal(row_order_compare_inputs(&third, &inner), 0);
    assert_true(row_order_compare_inputs(&third, &fourth) < 0 &&
                row_order_compare_inputs(&inner, &fourth) < 0);
    assert_true(row_order_compare_inputs(&fourth, &inner) > 0 &&
                row_order_compare_inputs(&fourth, &next) < 0);
    struct row_order first = third;
    first.sub = 0; /* an exchange tells a record from its first element */
    assert_true(row_order_compare(&record, &first) < 0 && row_order_compare(&first, &record) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_undoes),          cmocka_unit_test(test_order_and_first),
        cmocka_unit_test(test_ties_and_errors), cmocka_unit_test(test_many),
        cmocka_unit_test(test_alone),           cmocka_unit_test(test_orders_of_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
