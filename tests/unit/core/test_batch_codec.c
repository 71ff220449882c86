/* Batches as bytes and back: all columns or some, and bytes that no batch was ever written as. */
#include "cmocka_all.h"
#include "core/batch_codec.h"
#include "unit/support/random.h"

#include <stdlib.h>

static struct field record_fields[] = {{.name = {"a", 1}, .type = {.tag = TYPE_INT}},
                                       {.name = {"b", 1}, .type = {.tag = TYPE_TEXT}}};
static const struct schema record = {.fields = record_fields, .count = 2};
static const struct type type_bool = {.tag = TYPE_BOOL};
static const struct type type_record = {.tag = TYPE_RECORD, .fields = &record};
static const struct type type_bools = {.tag = TYPE_LIST, .element = &type_bool};
static struct field fields[] = {
    {.name = {"i", 1}, .type = {.tag = TYPE_INT}},
    {.name = {"t", 1}, .type = {.tag = TYPE_TEXT}},
    {.name = {"o", 1}, .type = {.tag = TYPE_BOOL}},
    {.name = {"f", 1}, .type = {.tag = TYPE_FLOAT}},
    {.name = {"r", 1}, .type = {.tag = TYPE_LIST, .element = &type_record}},
    {.name = {"n", 1}, .type = {.tag = TYPE_LIST, .element = &type_bools}},
    {.name = {"y", 1}, .type = {.tag = TYPE_BYTES}},
};
static const struct schema schema = {.fields = fields, .count = ARRAY_COUNT(fields)};

enum { COLUMNS = ARRAY_COUNT(fields), WORD_BYTES = 16, HEAD_BYTES = 16 };

/* --- Making and printing --- */

static void fill(struct batch *batch, struct column *column, const struct type *type, uint32_t rows,
                 struct test_random *random)
{
    batch_column_init(batch, column, *type, rows);
    uint32_t total = 0;
    char *heap = arena_alloc(&batch->arena, (size_t)rows * WORD_BYTES + 1);
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t value = random_below(random, 5);
        if (type->tag == TYPE_BOOL) {
            column->bools[i] = value % 2;
        } else if (type->tag == TYPE_LIST) {
            column->lists[i] = (struct list_ref){total, value};
            total += value;
        } else if (type->tag == TYPE_TEXT || type->tag == TYPE_BYTES) {
            memset(heap + total, 'a' + (int)value, value);
            column->texts[i] = (struct text_ref){total, value};
            total += value;
        } else {
            column->ints[i] = (int64_t)random_next(random);
        }
        if (type->tag != TYPE_LIST && random_chance(random, 10)) {
            if (column->valid == NULL)
                column->valid = batch_valid_new(batch, rows);
            bit_clear(column->valid, i);
        }
    }
    column->heap = heap;
    if (type->tag != TYPE_LIST)
        return;
    column->child_rows = total;
    const struct schema *below = type->element->tag == TYPE_RECORD ? type->element->fields : NULL;
    for (uint32_t i = 0; i < column->children_count; i++)
        fill(batch, &column->children[i], below == NULL ? type->element : &below->fields[i].type, total,
             random);
}

static struct batch *make(struct batch_pool *pool, uint32_t rows, struct test_random *random)
{
    struct batch *batch = batch_new(pool, &schema, rows);
    batch->partition = 2;
    batch->first_record = 50;
    batch->order_time = batch->event_time;
    for (uint32_t i = 0; i < rows; i++)
        batch->event_time[i] = (int64_t)i * 1000;
    for (uint32_t i = 0; i < COLUMNS; i++)
        fill(batch, &batch->columns[i], &fields[i].type, rows, random);
    if (random_chance(random, 50)) {
        uint16_t *sel = arena_alloc(&batch->arena, rows * sizeof(*sel) + 1);
        batch->selected = 0;
        for (uint32_t i = 0; i < rows; i += 1 + random_below(random, 3))
            sel[batch->selected++] = (uint16_t)i;
        batch->sel = sel;
    }
    if (random_chance(random, 50)) {
        batch->arrival_time = arena_alloc(&batch->arena, rows * sizeof(int64_t) + 1);
        for (uint32_t i = 0; i < rows; i++)
            batch->arrival_time[i] = (int64_t)i * 7;
    }
    return batch;
}

static void print_value(struct byte_buffer *out, const struct column *column, uint32_t row)
{
    if (!column_is_valid(column, row))
        buffer_printf(out, "-");
    else if (column->tag == TYPE_BOOL)
        buffer_printf(out, "%d", column->bools[row]);
    else if (column->tag == TYPE_TEXT || column->tag == TYPE_BYTES)
        buffer_append(out, column_text(column, row).data, column_text(column, row).length);
    else if (column->tag != TYPE_LIST)
        buffer_printf(out, "%llx", (unsigned long long)column->ints[row]);
    buffer_printf(out, ",");
    if (column->tag != TYPE_LIST || !column_is_valid(column, row))
        return;
    for (uint32_t k = 0; k < column->lists[row].length; k++)
        for (uint32_t i = 0; i < column->children_count; i++)
            print_value(out, &column->children[i], column->lists[row].offset + k);
    buffer_printf(out, ";");
}

/* columns: those to print; others as null. */
static void print(struct byte_buffer *out, const struct batch *batch, const bool *columns, bool has_order)
{
    buffer_clear(out);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        buffer_printf(out, "%lld ", (long long)batch->event_time[row]);
        if (batch->arrival_time != NULL)
            buffer_printf(out, "%lld ", (long long)batch->arrival_time[row]);
        if (has_order)
            buffer_printf(out, "%u %llu ", batch_origin(batch, row).partition,
                          (unsigned long long)batch_origin(batch, row).record);
        for (uint32_t k = 0; k < COLUMNS; k++)
            if (columns[k])
                print_value(out, &batch->columns[k], row);
            else
                buffer_printf(out, "-,");
        buffer_printf(out, "\n");
    }
    buffer_append(out, "", 1);
}

/* --- Tests --- */

static void test_round_trip(void **state)
{
    (void)state;
    static const bool all[COLUMNS] = {1, 1, 1, 1, 1, 1, 1};
    struct test_random random = {7};
    struct batch_pool *pool = batch_pool_new();
    struct byte_buffer bytes = {0}, said = {0}, expected = {0};
    for (int run = 0; run < 200; run++) {
        bool columns[COLUMNS];
        for (uint32_t i = 0; i < COLUMNS; i++)
            columns[i] = random_chance(&random, 50);
        uint32_t rows = run < 3 ? (uint32_t)run : 1 + random_below(&random, run < 20 ? BATCH_ROWS : 40);
        struct batch *batch = make(pool, rows, &random);
        for (uint32_t i = 0; i < COLUMNS && run % 4 == 0; i++) { /* these are written another way */
            enum type_tag tag = fields[i].type.tag;
            if (tag == TYPE_TEXT || tag == TYPE_BYTES || tag == TYPE_LIST)
                columns[i] = false;
            else
                batch->columns[i].valid = NULL;
        }
        buffer_clear(&bytes);
        buffer_append(&bytes, "before", 6); /* what is in the buffer stays */
        bool is_whole = run % 2;
        if (is_whole)
            batch_write(batch, &bytes);
        else
            batch_write_columns(batch, columns, &bytes);
        assert_memory_equal(bytes.data, "before", 6);
        struct str text = {bytes.data + 6, bytes.length - 6};
        struct batch *read =
            is_whole ? batch_read(pool, &schema, text) : batch_read_columns(pool, &schema, columns, text);
        assert_non_null(read);
        assert_int_equal(read->rows, batch->selected);
        assert_int_equal(read->arrival_time != NULL, batch->arrival_time != NULL && batch->selected > 0);
        print(&expected, batch, is_whole ? all : columns, is_whole);
        print(&said, read, all, is_whole);
        assert_string_equal(said.data, expected.data);
        for (uint32_t i = 0; i < COLUMNS && !is_whole; i++)
            for (uint32_t row = 0; row < read->rows && !columns[i]; row++) {
                assert_false(column_is_valid(&read->columns[i], row));
                assert_true(fields[i].type.tag == TYPE_BOOL ? read->columns[i].bools[row] == 0
                                                            : read->columns[i].ints[row] == 0);
            }
        columns[run % COLUMNS] ^= true; /* other columns than were written */
        if (!is_whole)
            assert_null(batch_read_columns(pool, &schema, columns, text));
        batch_release(read);
        batch_release(batch);
    }
    assert_int_equal(batch_pool_alive(pool), 0);
    batch_pool_free(pool);
    buffer_free(&bytes);
    buffer_free(&said);
    buffer_free(&expected);
}

/* Reads from memory of exact size. false: refused. What is taken can be printed. */
static bool is_taken(struct batch_pool *pool, const bool *columns, const char *data, size_t length)
{
    char *copy = malloc(MAX(length, 1));
    assert_non_null(copy);
    memcpy(copy, data, length);
    struct batch *batch = batch_read_columns(pool, &schema, columns, (struct str){copy, length});
    free(copy);
    if (batch == NULL)
        return false;
    static const bool all[COLUMNS] = {1, 1, 1, 1, 1, 1, 1};
    struct byte_buffer out = {0};
    print(&out, batch, all, true);
    buffer_free(&out);
    batch_release(batch);
    return true;
}

static void test_damaged(void **state)
{
    (void)state;
    static const bool columns[COLUMNS] = {0, 1, 1, 0, 1, 1, 0};
    struct test_random random = {11};
    struct batch_pool *pool = batch_pool_new();
    struct byte_buffer bytes = {0};
    struct batch *batch = make(pool, 20, &random);
    batch_write_columns(batch, columns, &bytes);
    batch_release(batch);
    for (size_t length = 0; length < bytes.length; length++)
        assert_false(is_taken(pool, columns, bytes.data, length));
    buffer_append(&bytes, "12345678", 8);
    assert_false(is_taken(pool, columns, bytes.data, bytes.length));
    bytes.length -= 8;
    assert_true(is_taken(pool, columns, bytes.data, bytes.length));
    uint32_t refused = 0;
    for (size_t i = 0; i < bytes.length; i++) {
        static const char values[] = {0, 1, 2, 64, -1, -128};
        char kept = bytes.data[i];
        for (size_t k = 0; k < ARRAY_COUNT(values); k++) {
            bytes.data[i] = values[k];
            refused += !is_taken(pool, columns, bytes.data, bytes.length);
        }
        bytes.data[i] = kept;
    }
    assert_true(refused > 1000);
    assert_int_equal(batch_pool_alive(pool), 0);
    batch_pool_free(pool);
    buffer_free(&bytes);
}

/* One value at a time, where a batch of two rows has it. */
static void check_refused(uint32_t column, size_t offset, const void *value, size_t bytes, const char *what)
{
    struct test_random random = {1};
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = batch_new(pool, &schema, 2);
    bool columns[COLUMNS] = {0};
    struct byte_buffer out = {0};
    columns[column] = true;
    batch->partition = 0;
    batch->order_time = batch->event_time;
    memset(batch->event_time, 0, 2 * sizeof(int64_t));
    fill(batch, &batch->columns[column], &fields[column].type, 2, &random);
    struct column *filled = &batch->columns[column];
    filled->valid = NULL;
    if (filled->tag == TYPE_LIST || filled->tag == TYPE_TEXT) {
        filled->texts[0] = (struct text_ref){0, MIN(filled->child_rows, 1)};
        filled->texts[1] = (struct text_ref){filled->texts[0].length, 0};
    }
    batch_write_columns(batch, columns, &out);
    assert_true(is_taken(pool, columns, out.data, out.length));
    memcpy(out.data + offset, value, bytes);
    if (is_taken(pool, columns, out.data, out.length))
        fail_msg("taken: %s", what);
    batch_release(batch);
    batch_pool_free(pool);
    buffer_free(&out);
}

static void test_refused(void **state)
{
    (void)state;
    enum { ROWS = 2, FIRST = HEAD_BYTES + ROWS * 8, DATA = FIRST + 16 };
    static const uint32_t many = BATCH_ROWS + 1, one = 1, two = 2, most = UINT32_MAX;
    static const uint16_t other = TYPE_TIME, three = 3;
    check_refused(0, 0, &many, 4, "more rows than a batch has");
    check_refused(0, 4, &three, 2, "arrival that is neither there nor not");
    check_refused(0, 6, &three, 2, "an order that is neither there nor not");
    check_refused(0, 8, &two, 4, "another number of columns");
    check_refused(0, FIRST, &other, 2, "a column of another type");
    check_refused(0, FIRST + 2, &three, 2, "nulls that are neither there nor not");
    check_refused(0, FIRST + 4, &two, 4, "children of a number");
    check_refused(0, FIRST + 8, &two, 4, "a heap of a number");
    check_refused(2, DATA, &two, 1, "a bool of 2");
    check_refused(1, DATA + 4, &most, 4, "a text beyond its heap");
    check_refused(1, DATA, &most, 4, "a text that begins beyond its heap");
    check_refused(1, FIRST + 12, &most, 4, "a heap beyond the bytes");
    check_refused(4, DATA + 4, &most, 4, "a list beyond its elements");
    check_refused(4, DATA + 8, &most, 4, "a list that begins beyond its elements");
    check_refused(4, FIRST + 4, &three, 2, "a list of records of three fields");
    check_refused(4, FIRST + 12, &two, 4, "more elements than a list can have");
    check_refused(2, FIRST + 8, &two, 4, "a heap of a bool");
    check_refused(1, DATA + 4, &one, 4, "a text a byte longer than its heap");
    check_refused(4, DATA + 12, &one, 4, "a list an element longer than its elements");
    uint32_t overlapping[] = {1, 0, 0, 1};
    check_refused(4, DATA, overlapping, 16, "lists that do not rise");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip), cmocka_unit_test(test_damaged),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
