/* Keys are equal exactly where the values are; null, NaN and -0.0; keys stored in full and hashed keys. */
#include "cmocka_all.h"
#include "core/key.h"
#include "unit/support/random.h"

#include <math.h>
#include <stdlib.h>

enum { COLUMNS = 6 };

static struct field fields[COLUMNS] = {
    {.name = {"b", 1}, .type = {.tag = TYPE_BOOL}},  {.name = {"i", 1}, .type = {.tag = TYPE_INT}},
    {.name = {"f", 1}, .type = {.tag = TYPE_FLOAT}}, {.name = {"t", 1}, .type = {.tag = TYPE_TEXT}},
    {.name = {"y", 1}, .type = {.tag = TYPE_BYTES}}, {.name = {"m", 1}, .type = {.tag = TYPE_TIME}},
};
static const struct schema schema = {.fields = fields, .count = COLUMNS};

static int64_t random_int(struct test_random *random)
{
    static const int64_t edges[] = {0, 1, -1, 127, 128, 255, 256, 65535, INT64_MAX, INT64_MIN, 1 << 30};
    uint32_t pick = random_below(random, 3);
    return pick == 0   ? edges[random_below(random, ARRAY_COUNT(edges))]
           : pick == 1 ? (int64_t)random_below(random, 4)
                       : (int64_t)random_next(random);
}

static double random_float(struct test_random *random)
{
    static const double edges[] = {0.0, -0.0, 1.0, -1.0, 1e300, INFINITY, -INFINITY, 5e-324, NAN};
    return random_chance(random, 70) ? edges[random_below(random, ARRAY_COUNT(edges))]
                                     : (double)random_below(random, 5);
}

/* Short texts are often equal; lengths around 15 and above 4,096 take other paths in key_encode. */
static struct str random_text(struct test_random *random, struct arena *arena)
{
    static const uint32_t lengths[] = {0, 1, 2, 3, 9, 14, 15, 16, 17, 40, 5000};
    uint32_t length = lengths[random_below(random, ARRAY_COUNT(lengths))];
    char *data = arena_alloc(arena, length + 1);
    for (uint32_t i = 0; i < length; i++)
        data[i] = (char)(i + 1 < length ? 0 : random_below(random, 3));
    return (struct str){data, length};
}

static void set_texts(struct column *column, struct arena *arena, struct test_random *random, uint32_t rows)
{
    char *heap = arena_alloc(arena, (size_t)rows * 5000);
    uint32_t used = 0;
    for (uint32_t row = 0; row < rows; row++) {
        struct str text = random_text(random, arena);
        if (text.length > 0)
            memcpy(heap + used, text.data, text.length);
        column->texts[row] = (struct text_ref){used, (uint32_t)text.length};
        used += (uint32_t)text.length;
    }
    column->heap = heap;
}

static struct batch *random_batch(struct batch_pool *pool, struct test_random *random, uint32_t rows)
{
    struct batch *batch = batch_new(pool, &schema, rows);
    for (uint32_t c = 0; c < COLUMNS; c++) {
        struct column *column = &batch->columns[c];
        if (column->tag == TYPE_TEXT || column->tag == TYPE_BYTES)
            set_texts(column, &batch->arena, random, rows);
        for (uint32_t row = 0; row < rows; row++) {
            if (column->tag == TYPE_BOOL)
                column->bools[row] = random_chance(random, 50);
            else if (column->tag == TYPE_FLOAT)
                column->floats[row] = random_float(random);
            else if (column->tag == TYPE_INT || column->tag == TYPE_TIME)
                column->ints[row] = random_int(random);
            if (random_chance(random, 10))
                batch_set_null(batch, column, row);
        }
    }
    return batch;
}

static bool is_null(const struct column *column, uint32_t row)
{
    return !column_is_valid(column, row) || (column->tag == TYPE_FLOAT && isnan(column->floats[row]));
}

/* The definition of equal values, for comparison. */
static bool equal_values(const struct column *a, uint32_t row_a, const struct column *b, uint32_t row_b)
{
    if (is_null(a, row_a) || is_null(b, row_b))
        return is_null(a, row_a) && is_null(b, row_b);
    switch (a->tag) {
    case TYPE_BOOL: return a->bools[row_a] == b->bools[row_b];
    case TYPE_FLOAT: return a->floats[row_a] == b->floats[row_b];
    case TYPE_TEXT:
    case TYPE_BYTES: return str_equal(column_text(a, row_a), column_text(b, row_b));
    default: return a->ints[row_a] == b->ints[row_b];
    }
}

static void check_all_pairs(struct batch *batch, const int *columns, uint32_t count, uint64_t *equal_pairs)
{
    struct key keys[BATCH_ROWS];
    bool has_null[BATCH_ROWS];
    key_encode(batch, columns, count, keys, has_null);
    for (uint32_t a = 0; a < batch->selected; a++) {
        uint32_t row_a = batch_row(batch, a);
        bool any = false;
        for (uint32_t c = 0; c < count; c++)
            any |= is_null(&batch->columns[columns[c]], row_a);
        assert_int_equal(has_null[a], any);
        for (uint32_t b = 0; b < a; b++) {
            bool is_equal = true;
            for (uint32_t c = 0; c < count && is_equal; c++)
                is_equal = equal_values(&batch->columns[columns[c]], row_a, &batch->columns[columns[c]],
                                        batch_row(batch, b));
            *equal_pairs += is_equal;
            if (key_equal(keys[a], keys[b]) != is_equal)
                fail_msg("rows %u and %u: equal %d, keys say %d", a, b, is_equal, !is_equal);
            if (is_equal)
                assert_int_equal(key_hash(keys[a]), key_hash(keys[b]));
        }
    }
}

static void test_injective(void **state)
{
    (void)state;
    struct batch_pool *pool = batch_pool_new();
    struct test_random random = {42};
    uint64_t equal_pairs = 0;
    for (int round = 0; round < 40; round++) {
        struct batch *batch = random_batch(pool, &random, 250);
        uint16_t sel[250];
        uint32_t selected = 0;
        for (uint16_t row = 0; row < 250; row++)
            if (round % 2 == 0 || random_chance(&random, 60))
                sel[selected++] = row;
        batch->sel = sel;
        batch->selected = selected;
        int columns[COLUMNS];
        uint32_t count = round < COLUMNS ? 1 : 1 + random_below(&random, 4);
        for (uint32_t c = 0; c < count; c++)
            columns[c] = round < COLUMNS ? round : (int)random_below(&random, COLUMNS);
        check_all_pairs(batch, columns, count, &equal_pairs);
        batch_release(batch);
    }
    assert_true(equal_pairs > 1000);
    batch_pool_free(pool);
}

static struct key key_of(struct batch *batch, int column, uint32_t row)
{
    struct key keys[BATCH_ROWS];
    key_encode(batch, &column, 1, keys, NULL);
    return keys[row];
}

/* Int 1, time 1 and float 1.0 are different keys; -0.0 is 0.0; null is NaN. */
static void test_special_values(void **state)
{
    (void)state;
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = batch_new(pool, &schema, 4);
    for (uint32_t c = 0; c < COLUMNS; c++)
        for (uint32_t row = 0; row < 4; row++)
            if (batch->columns[c].tag == TYPE_BOOL)
                batch->columns[c].bools[row] = 1;
            else
                batch->columns[c].ints[row] = 0;
    batch->columns[3].heap = batch->columns[4].heap = "";
    batch->columns[1].ints[0] = batch->columns[5].ints[0] = 1;
    batch->columns[2].floats[0] = 1.0;
    batch->columns[2].floats[1] = -0.0;
    batch->columns[2].floats[2] = NAN;
    batch_set_null(batch, &batch->columns[2], 3);
    batch->columns[2].floats[3] = 0.0;
    assert_false(key_equal(key_of(batch, 1, 0), key_of(batch, 5, 0)));
    assert_false(key_equal(key_of(batch, 1, 0), key_of(batch, 2, 0)));
    assert_false(key_equal(key_of(batch, 1, 0), key_of(batch, 0, 0)));
    assert_true(key_equal(key_of(batch, 2, 2), key_of(batch, 2, 3)));
    batch->columns[2].floats[0] = 0.0;
    assert_true(key_equal(key_of(batch, 2, 0), key_of(batch, 2, 1)));
    assert_false(key_equal(key_of(batch, 2, 1), key_of(batch, 2, 2)));
    batch_release(batch);
    batch_pool_free(pool);
}

/* A text of 15 bytes is stored in the key and can be read back; one of 16 bytes is hashed, and the top
 * bit says so. */
static void test_inline_and_hashed(void **state)
{
    (void)state;
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = batch_new(pool, &schema, 3);
    struct column *column = &batch->columns[3];
    column->heap = "0123456789abcdefgh";
    column->texts[0] = (struct text_ref){0, 15};
    column->texts[1] = (struct text_ref){0, 16};
    column->texts[2] = (struct text_ref){0, 0};
    struct key keys[3];
    key_encode(batch, (int[]){3}, 1, keys, NULL);
    assert_memory_equal(&keys[0], "0123456789abcde", 15);
    assert_int_equal(keys[0].high >> 63, 0);
    assert_int_equal(keys[1].high >> 63, 1);
    assert_int_equal(keys[2].high >> 56, 0x40);
    batch_release(batch);
    batch_pool_free(pool);
}

/* Where one text ends and the next begins is part of the key. */
static void test_framing(void **state)
{
    (void)state;
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = batch_new(pool, &schema, 2);
    static const char heap[] = "\3\0\0\0\0";
    batch->columns[3].heap = batch->columns[4].heap = heap;
    batch->columns[3].texts[0] = batch->columns[4].texts[1] = (struct text_ref){0, 0};
    batch->columns[3].texts[1] = batch->columns[4].texts[0] = (struct text_ref){0, 5};
    batch->columns[4].tag = TYPE_TEXT; /* so that both texts have the same type tag in the key */
    struct key keys[2];
    key_encode(batch, (int[]){3, 4}, 2, keys, NULL);
    assert_false(key_equal(keys[0], keys[1]));
    batch_release(batch);
    batch_pool_free(pool);
}

/* A key of SCHEMA_FIELDS_MAX columns, more than a real job has. */
static void test_many_columns(void **state)
{
    (void)state;
    struct batch_pool *pool = batch_pool_new();
    static struct field many[SCHEMA_FIELDS_MAX];
    static int columns[SCHEMA_FIELDS_MAX];
    for (int i = 0; i < SCHEMA_FIELDS_MAX; i++) {
        many[i] = (struct field){.name = {"x", 1}, .type = {.tag = TYPE_INT}};
        columns[i] = i;
    }
    struct schema wide = {.fields = many, .count = SCHEMA_FIELDS_MAX};
    struct batch *batch = batch_new(pool, &wide, 2);
    for (int i = 0; i < SCHEMA_FIELDS_MAX; i++)
        batch->columns[i].ints[0] = batch->columns[i].ints[1] = i;
    struct key keys[2];
    key_encode(batch, columns, SCHEMA_FIELDS_MAX, keys, NULL);
    assert_true(key_equal(keys[0], keys[1]));
    batch->columns[511].ints[1]++;
    key_encode(batch, columns, SCHEMA_FIELDS_MAX, keys, NULL);
    assert_false(key_equal(keys[0], keys[1]));
    batch_release(batch);
    batch_pool_free(pool);
}

/* Keys spread evenly over the key groups. */
static void test_groups(void **state)
{
    (void)state;
    static uint32_t counts[KEY_GROUPS];
    for (uint64_t i = 0; i < 720000; i++)
        counts[key_group(key_hash((struct key){i, UINT64_C(0x0101) << 48}))]++;
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        assert_true(counts[group] > 800 && counts[group] < 1200);
}

/* key_of_hash is the reverse of key_hash, for each rotation by another key. */
static void test_hash_reversed(void **state)
{
    (void)state;
    struct test_random random = {7};
    for (uint32_t i = 0; i < 20000; i++) {
        uint64_t hash = i == 0 ? 0 : i == 1 ? UINT64_MAX : random_next(&random);
        struct key key = key_of_hash(hash, i % 64), other = key_of_hash(hash, (i + 1) % 64);
        assert_true(key_hash(key) == hash && key_hash(other) == hash);
        assert_false(key_equal(key, other));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_injective),         cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_inline_and_hashed), cmocka_unit_test(test_framing),
        cmocka_unit_test(test_many_columns),      cmocka_unit_test(test_groups),
        cmocka_unit_test(test_hash_reversed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
