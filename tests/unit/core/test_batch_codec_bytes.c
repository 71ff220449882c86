/* The wire format of batches, byte by byte: what no batch was ever written as is refused, and takes no memory. */
#include "cmocka_all.h"
#include "core/batch_codec.h"

static const struct type type_bool = {.tag = TYPE_BOOL};
static struct field text_fields[] = {{.name = {"t", 1}, .type = {.tag = TYPE_TEXT}}};
static const struct schema texts = {.fields = text_fields, .count = 1};

/* A row of one text, whose times, origin and order are 0, but for the sequence `at`, which is another. */
static bool is_row_taken(struct batch_pool *pool, uint32_t at, const char *sequence, size_t bytes,
                         struct str column)
{
    static const uint16_t head[] = {1, BATCH_WIRE_VERSION << 8 | 2, 1};
    struct byte_buffer out = {0};
    buffer_append(&out, head, sizeof(head));
    for (uint32_t i = 0; i < 9; i++) /* event time, then eight of origin and order */
        buffer_append(&out, i == at ? sequence : "", i == at ? bytes : 1);
    buffer_append(&out, column.data, column.length);
    struct batch *batch = batch_read(pool, &texts, (struct str){out.data, out.length}, UINT32_MAX);
    batch_release(batch);
    buffer_free(&out);
    return batch != NULL;
}

static void test_refused_rows(void **state)
{
    (void)state;
    enum { NONE = 99, PARTITION = 1, PLACE = 3, DEPTH = 4, ORDER_PARTITION = 5, TIE = 7 };
    struct batch_pool *pool = batch_pool_new();
    static const struct str text = {"\3\1\2ab", 5};
    static const char most[] = "\x10\3\376\377\1", more[] = "\x10\3\0\0\2"; /* 0xffff and 0x10000, zigzag */
    static const char partition[] = "\x10\5\0\0\0\0\2";                     /* 2^32 */
    assert_true(is_row_taken(pool, NONE, NULL, 0, text));
    for (uint32_t at = PLACE; at <= DEPTH; at++) {
        assert_true(is_row_taken(pool, at, most, 5, text));
        assert_false(is_row_taken(pool, at, more, 5, text));
    }
    assert_true(is_row_taken(pool, TIE, more, 5, text));
    assert_false(is_row_taken(pool, PARTITION, partition, 7, text));
    assert_false(
        is_row_taken(pool, ORDER_PARTITION, "\x10\5\0\0\0\0\1", 7, text)); /* 2^31: no 32 bits with sign */
    assert_true(is_row_taken(pool, ORDER_PARTITION, "\x10\4\376\377\377\377", 6, text));
    assert_false(is_row_taken(pool, TIE, "\x00", 0, text));   /* a sequence that is not there */
    assert_false(is_row_taken(pool, TIE, "\x11\0", 2, text)); /* a line with data */
    assert_false(is_row_taken(pool, TIE, "\x20\0", 2, text)); /* values without */
    assert_false(is_row_taken(pool, TIE,
                              "\x29\0"
                              "123456789",
                              11, text));                               /* of 9 bytes */
    assert_false(is_row_taken(pool, TIE, "\x10\t123456789", 11, text)); /* a base of 9 bytes */
    assert_false(is_row_taken(pool, TIE,
                              "\x21\x10"
                              "11",
                              4, text)); /* values with a step */
    assert_false(
        is_row_taken(pool, NONE, NULL, 0, (struct str){"\3\3\2\0\0ab", 7}));  /* lengths of three bytes */
    assert_false(is_row_taken(pool, NONE, NULL, 0, (struct str){"\3\0", 2})); /* and of none */
    assert_false(is_row_taken(pool, NONE, NULL, 0, (struct str){"\3\4\377\377\377\377", 6}));
    batch_pool_free(pool);
}

/* Lists longer than their type allows; texts whose lengths have a sum that wraps around 32 bits. */
static void test_refused_lengths(void **state)
{
    (void)state;
    struct batch_pool *pool = batch_pool_new();
    struct type list = {.tag = TYPE_LIST, .element = &type_bool, .length_max = 3};
    struct field list_field[] = {{.name = {"l", 1}, .type = list}};
    struct schema lists = {.fields = list_field, .count = 1};
    static const uint16_t one[] = {1, BATCH_WIRE_VERSION << 8, 1}, two[] = {2, BATCH_WIRE_VERSION << 8, 1};
    struct byte_buffer out = {0};
    buffer_append(&out, one, sizeof(one));
    buffer_append(&out, "\0\6\1\3\0\5", 6); /* a list of three bools */
    struct batch *batch = batch_read_columns(pool, &lists, NULL, (struct str){out.data, out.length});
    assert_non_null(batch);
    batch_release(batch);
    list_field[0].type.length_max = 2;
    assert_null(batch_read_columns(pool, &lists, NULL, (struct str){out.data, out.length}));
    buffer_clear(&out);
    buffer_append(&out, two, sizeof(two));
    buffer_append(&out, "\0\3\4\377\377\377\377\2\0\0\0a", 12);
    assert_null(batch_read_columns(pool, &texts, NULL, (struct str){out.data, out.length}));
    buffer_free(&out);
    batch_pool_free(pool);
}

/* Counts of elements that the bytes cannot have cost no memory. */
static void test_no_bomb(void **state)
{
    (void)state;
    struct batch_pool *pool = batch_pool_new();
    struct byte_buffer out = {0};
    struct type below = {.tag = TYPE_LIST, .element = &type_bool};
    struct field list_fields[] = {{.name = {"l", 1}, .type = {.tag = TYPE_LIST, .element = &below}},
                                  {.name = {"b", 1}, .type = below}};
    struct schema lists = {.fields = list_fields, .count = 2};
    uint16_t head[] = {1, BATCH_WIRE_VERSION << 8, 2};
    buffer_append(&out, head, sizeof(head));
    buffer_append(&out, "\0\6\4\377\377\377\377", 7); /* a list of 2^32 - 1 lists */
    buffer_append(&out, "\6\1", 2);
    for (size_t length = out.length; length < 4096; length++) {
        buffer_append(&out, "\6", 1);
        struct batch *batch = batch_new(pool, &lists, 0); /* the one that the next call uses */
        batch_release(batch);
        assert_null(batch_read_columns(pool, &lists, NULL, (struct str){out.data, out.length}));
        assert_true(batch_pool_kept_bytes(pool) < 1 << 20);
    }
    batch_pool_free(pool);
    buffer_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused_rows),
                                       cmocka_unit_test(test_refused_lengths),
                                       cmocka_unit_test(test_no_bomb)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
