/* Sort keys of rows: extremes, nulls, texts, and keys encoded as bytes. */
#include "operators/rows/ordering.h"

#include "lang/lang.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ROWS = 12 };

struct bench {
    struct arena arena;
    struct diag_list diags;
    struct batch_pool *pool;
    struct schema *schema;
    struct operator_bind bind;
    struct batch *batch;
};

static void begin(struct bench *b)
{
    struct schema empty = {0};
    *b = (struct bench){.pool = batch_pool_new()};
    diag_list_init(&b->diags, &b->arena);
    b->schema = schema_copy(&b->arena, &empty, 4);
    schema_add(b->schema, STR("i"), type_of(TYPE_INT));
    schema_add(b->schema, STR("f"), type_of(TYPE_FLOAT));
    schema_add(b->schema, STR("s"), type_of(TYPE_TEXT));
    schema_add(b->schema, STR("b"), type_of(TYPE_BOOL));
    b->bind = (struct operator_bind){.arena = &b->arena, .diags = &b->diags, .inputs_count = 1};
    b->bind.inputs[0].schema = b->schema;
}

static void end(struct bench *b)
{
    batch_release(b->batch);
    batch_pool_free(b->pool);
    arena_free(&b->arena);
}

static void bind(struct bench *b, const char *const *texts, uint32_t count, struct ordering *ordering)
{
    const struct ast *items[4];
    for (uint32_t i = 0; i < count; i++)
        items[i] = lang_parse_value(&b->arena, &b->diags, str_from(texts[i]));
    struct expressions expressions = {items, count};
    assert_true(ordering_bind(&b->bind, 0, &expressions, "order", ordering));
}

static int sign(int order)
{
    return (order > 0) - (order < 0);
}

/* Compares every pair of rows, directly and through encoded keys, and checks the results
 * against expect(a, b). */
static void check(struct bench *b, const char *const *texts, uint32_t count,
                  int (*expect)(const struct batch *batch, uint32_t x, uint32_t y))
{
    struct ordering ordering;
    struct expr_errors errors = {0};
    bind(b, texts, count, &ordering);
    struct ordered_rows rows = ordering_evaluate(&ordering, b->batch, &b->arena, &errors);
    for (uint32_t x = 0; x < b->batch->selected; x++)
        for (uint32_t y = 0; y < b->batch->selected; y++) {
            struct order_key keys[2] = {ordering_key(&rows, x), ordering_key(&rows, y)}, read[2];
            int wanted = expect(b->batch, x, y);
            if (sign(ordering_compare(&ordering, &keys[0], &keys[1])) != wanted)
                fail_msg("%s: rows %u and %u, wanted %d", texts[0], x, y, wanted);
            for (int i = 0; i < 2; i++) {
                size_t bytes = ordering_key_bytes(&ordering, &keys[i]);
                char *out = arena_alloc(&b->arena, bytes);
                ordering_put(&ordering, &keys[i], out);
                assert_true(ordering_get(&ordering, (struct str){out, bytes}, &read[i]));
                assert_false(ordering_get(&ordering, (struct str){out, bytes - 1}, &(struct order_key){0}));
            }
            assert_int_equal(sign(ordering_compare(&ordering, &read[0], &read[1])), wanted);
        }
}

static int null_last(const struct column *column, uint32_t x, uint32_t y, int order)
{
    bool has_x = column_is_valid(column, x), has_y = column_is_valid(column, y);
    return has_x && has_y ? order : (has_y > has_x) - (has_x > has_y);
}

static int ints_down(const struct batch *batch, uint32_t x, uint32_t y)
{
    const struct column *c = &batch->columns[0];
    return null_last(c, x, y, (c->ints[x] < c->ints[y]) - (c->ints[x] > c->ints[y]));
}

static int ints_up(const struct batch *batch, uint32_t x, uint32_t y)
{
    const struct column *c = &batch->columns[0];
    return null_last(c, x, y, (c->ints[x] > c->ints[y]) - (c->ints[x] < c->ints[y]));
}

/* NaN orders like null. */
static int floats_up(const struct batch *batch, uint32_t x, uint32_t y)
{
    const double *f = batch->columns[1].floats;
    bool is_x = f[x] == f[x], is_y = f[y] == f[y];
    return is_x && is_y ? (f[x] > f[y]) - (f[x] < f[y]) : (is_y > is_x) - (is_x > is_y);
}

static int floats_down(const struct batch *batch, uint32_t x, uint32_t y)
{
    const double *f = batch->columns[1].floats;
    bool is_x = f[x] == f[x], is_y = f[y] == f[y];
    return is_x && is_y ? (f[x] < f[y]) - (f[x] > f[y]) : (is_y > is_x) - (is_x > is_y);
}

static int texts_down(const struct batch *batch, uint32_t x, uint32_t y)
{
    const struct column *c = &batch->columns[2];
    return null_last(c, x, y, sign(str_compare(column_text(c, y), column_text(c, x))));
}

static int bools_then_texts(const struct batch *batch, uint32_t x, uint32_t y)
{
    const uint8_t *b = batch->columns[3].bools;
    const struct column *c = &batch->columns[2];
    if (b[x] != b[y])
        return b[x] > b[y] ? 1 : -1;
    return null_last(c, x, y, sign(str_compare(column_text(c, x), column_text(c, y))));
}

static int times_down(const struct batch *batch, uint32_t x, uint32_t y)
{
    return (batch->event_time[x] < batch->event_time[y]) - (batch->event_time[x] > batch->event_time[y]);
}

static void fill(struct bench *b)
{
    static const int64_t ints[ROWS] = {0, 1, -1, INT64_MAX, INT64_MIN, INT64_MAX - 1, 7, 7, 0, 0, -5, 5};
    static const double floats[ROWS] = {
        0.0,     -0.0,  1.5, -1.5, __builtin_inf(), -__builtin_inf(), __builtin_nan(""), 5e-324,
        -5e-324, 1e308, 1.5, 0.1};
    static const char *const texts[ROWS] = {"",
                                            "a",
                                            "ab",
                                            "abcdefgh",
                                            "abcdefghi",
                                            "abcdefghj",
                                            "\xc3\xbc",
                                            "abcdefgh0",
                                            "\xff\xff\xff\xff\xff\xff\xff\xff\xff",
                                            "\xff\xff\xff\xff\xff\xff\xff\xff",
                                            "b",
                                            "abcdefgh"};
    struct batch *batch = b->batch = batch_new(b->pool, b->schema, ROWS);
    struct byte_buffer heap = {0};
    for (uint32_t i = 0; i < ROWS; i++) {
        batch->event_time[i] = i < 2 ? TIME_MIN + i : (int64_t)i / 2;
        batch->columns[0].ints[i] = ints[i];
        batch->columns[1].floats[i] = floats[i];
        batch->columns[2].texts[i] = (struct text_ref){(uint32_t)heap.length, (uint32_t)strlen(texts[i])};
        buffer_append(&heap, texts[i], strlen(texts[i]));
        batch->columns[3].bools[i] = i % 3 == 0;
    }
    batch->columns[2].heap = arena_copy(&b->arena, heap.data, heap.length);
    buffer_free(&heap);
    batch_set_null(batch, &batch->columns[0], 8);
    batch_set_null(batch, &batch->columns[0], 9);
    batch_set_null(batch, &batch->columns[2], 10);
    batch->columns[2].texts[10] = (struct text_ref){0, 0};
}

static void test_orders(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    fill(&b);
    check(&b, (const char *const[]){"desc(i)"}, 1, ints_down);
    check(&b, (const char *const[]){"asc(i)"}, 1, ints_up);
    check(&b, (const char *const[]){"i"}, 1, ints_up);
    check(&b, (const char *const[]){"f"}, 1, floats_up);
    check(&b, (const char *const[]){"desc(f)"}, 1, floats_down);
    check(&b, (const char *const[]){"desc(s)"}, 1, texts_down);
    check(&b, (const char *const[]){"b", "s"}, 2, bools_then_texts);
    struct ordering latest;
    struct expr_errors errors = {0};
    ordering_of_latest(&latest);
    struct ordered_rows rows = ordering_evaluate(&latest, b.batch, &b.arena, &errors);
    for (uint32_t x = 0; x < ROWS; x++)
        for (uint32_t y = 0; y < ROWS; y++) {
            struct order_key keys[2] = {ordering_key(&rows, x), ordering_key(&rows, y)};
            assert_int_equal(sign(ordering_compare(&latest, &keys[0], &keys[1])), times_down(b.batch, x, y));
        }
    end(&b);
}

/* Rows whose expression fails have no key; other rows have one. */
static void test_failures(void **state)
{
    (void)state;
    struct bench b;
    struct ordering ordering;
    struct expr_errors errors = {0};
    begin(&b);
    fill(&b);
    bind(&b, (const char *const[]){"i + 1", "lower(s)"}, 2, &ordering);
    struct ordered_rows rows = ordering_evaluate(&ordering, b.batch, &b.arena, &errors);
    assert_true(errors.count == 1 && bit_get(errors.rows, 3));
    struct order_key keys[2] = {ordering_key(&rows, 0), ordering_key(&rows, 1)};
    assert_true(ordering_compare(&ordering, &keys[0], &keys[1]) < 0);
    end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_orders), cmocka_unit_test(test_failures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
