/* unnest: rows, their orders, a fan-out of thousands, and memory shared with the input batch. */
#include "harness.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void test_records(void **state)
{
    (void)state;
    struct harness h;
    harness_init(&h);
    assert_true(harness_bind(&h, "unnest events"));
    harness_push(&h, 0, harness_batch(&h, 4));
    assert_string_equal(
        harness_text(&h),
        "1|10|mobile|5|1|true|0|[2]|10|view\n1|10|mobile|5|1|true|0|[2]|11|cart\n"
        "1|10|mobile|5|1|true|0|[2]|12|view\n0|30|null|null|50|false|2000000|[1]|30|view\n"
        "0|30|null|null|50|false|2000000|[1]|31|cart\n4|40|TV|2000|101|true|3000000|[0]|40|view\n");
    const struct counters *c = &h.context.counters;
    assert_int_equal(c->in, 4);
    assert_int_equal(c->absorbed, 3);
    assert_int_equal(c->filtered, 1);
    assert_int_equal(c->emitted, 6);
    const struct schema *output = h.context.output;
    assert_true(str_is(output->fields[8].name, "aid") && str_is(output->fields[9].name, "kind"));
    assert_int_equal(output->fields[8].lineage.words[0], 1 << 8);
    harness_free(&h);
}

static void test_values_and_prefix(void **state)
{
    (void)state;
    struct harness h;
    harness_init(&h);
    assert_true(harness_bind(&h, "unnest tags"));
    assert_int_equal(h.context.output->fields[7].type.tag, TYPE_TEXT);
    harness_push(&h, 0, harness_batch(&h, 1));
    assert_string_equal(harness_text(&h), "1|10|mobile|5|1|true|0|new|[3]\n1|10|mobile|5|1|true|0|hot|[3]\n");
    harness_free(&h);
    harness_init(&h);
    assert_true(harness_bind(&h, "unnest events prefix \"event_\""));
    assert_true(str_is(h.context.output->fields[8].name, "event_aid"));
    harness_free(&h);
    harness_init(&h);
    h.inputs[0]->fields[1].name = STR("aid");
    assert_false(harness_bind(&h, "unnest events"));
    assert_non_null(harness_diag(&h, DIAG_COLUMN_TAKEN));
    harness_free(&h);
}

static struct row_order last_order;

/* Rows have the origin of their parent row; orders rise, and sub counts within a parent. */
static void check_order(struct harness *h, const struct batch *batch)
{
    (void)h;
    for (uint32_t i = 0; i < batch->selected; i++) {
        struct row_order order = batch_order(batch, i);
        struct row_origin origin = batch_origin(batch, i);
        assert_true(row_order_compare(&last_order, &order) < 0);
        assert_int_equal(origin.partition, 3);
        assert_int_equal(origin.record, order.tie);
        assert_int_equal(batch->event_time[i], batch->columns[6].ints[i]);
        assert_int_equal(batch->order_time[i], order.time);
        last_order = order;
    }
}

static void test_orders(void **state)
{
    (void)state;
    struct harness h;
    harness_init(&h);
    h.check = check_order;
    last_order = (struct row_order){.time = -1};
    assert_true(harness_bind(&h, "unnest events"));
    harness_push(&h, 0, harness_batch(&h, 1000));
    assert_int_equal(last_order.tie, 1999);
    assert_int_equal(h.batch_rows_max, BATCH_ROWS);
    harness_free(&h);
}

/* A fan-out of 2,000: 1,024 rows become 2 million, in batches of at most BATCH_ROWS, with one output batch in
 * memory at a time. */
static void test_fan_out(void **state)
{
    (void)state;
    struct harness h;
    harness_init(&h);
    h.keeps_text = false;
    assert_true(harness_bind(&h, "unnest events"));
    struct batch *batch = harness_batch(&h, BATCH_ROWS);
    uint32_t per_row = 2000;
    for (uint32_t k = 0; k < 2; k++) {
        struct column *child = &batch->columns[8].children[k];
        child->data = arena_calloc(&batch->arena, per_row, 8);
        child->child_rows = per_row;
    }
    for (uint32_t i = 0; i < per_row; i++)
        batch->columns[8].children[0].ints[i] = i;
    for (uint32_t row = 0; row < BATCH_ROWS; row++)
        batch->columns[8].lists[row] = (struct list_ref){0, per_row};
    harness_push(&h, 0, batch);
    assert_int_equal(h.rows, (uint64_t)BATCH_ROWS * per_row);
    assert_int_equal(h.batches, per_row);
    assert_int_equal(h.context.counters.emitted, h.rows);
    harness_free(&h);
}

static struct batch *kept;

static void keep_first(struct harness *h, const struct batch *batch)
{
    (void)h;
    if (kept == NULL) {
        kept = (struct batch *)batch;
        batch_hold(kept);
    }
}

/* Emitted rows stay readable after the input batch was released. */
static void test_shared_memory(void **state)
{
    (void)state;
    struct harness h;
    harness_init(&h);
    h.check = keep_first;
    kept = NULL;
    assert_true(harness_bind(&h, "unnest events"));
    harness_push(&h, 0, harness_batch(&h, 100));
    for (int i = 0; i < 20; i++)
        batch_release(harness_batch(&h, BATCH_ROWS)); /* would reuse the input batch's memory */
    assert_true(str_equal(column_text(&kept->columns[2], 0), STR("mobile")));
    assert_true(str_equal(column_text(&kept->columns[9], 1), STR("cart")));
    batch_release(kept);
    harness_free(&h);
}

static uint64_t last_sub;

static void keep_sub(struct harness *h, const struct batch *batch)
{
    (void)h;
    last_sub = batch_order(batch, batch->rows - 1).sub;
}

/* Rows of an earlier unnest keep different orders: sub is the parent's sub, then the index. */
static void test_nested(void **state)
{
    (void)state;
    struct harness h;
    harness_init(&h);
    h.check = keep_sub;
    assert_true(harness_bind(&h, "unnest events"));
    struct batch *batch = harness_batch(&h, 1);
    struct row_order *orders = arena_array(&batch->arena, struct row_order, 1);
    orders[0].sub = 5;
    batch->orders = orders;
    harness_push(&h, 0, batch);
    assert_int_equal(last_sub, (5 << 20) + 2);
    harness_free(&h);
}

static void test_too_deep(void **state)
{
    (void)state;
    struct harness h;
    harness_init(&h);
    assert_true(harness_bind(&h, "unnest events"));
    struct batch *batch = harness_batch(&h, 2);
    struct row_order *orders = arena_array(&batch->arena, struct row_order, 2);
    orders[0].sub = UINT64_C(1) << 44;
    orders[1].sub = (UINT64_C(1) << 44) - 1;
    batch->orders = orders;
    harness_push(&h, 0, batch);
    assert_int_equal(h.context.counters.dead, 1);
    harness_free(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records),       cmocka_unit_test(test_values_and_prefix),
        cmocka_unit_test(test_orders),        cmocka_unit_test(test_fan_out),
        cmocka_unit_test(test_shared_memory), cmocka_unit_test(test_too_deep),
        cmocka_unit_test(test_nested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
