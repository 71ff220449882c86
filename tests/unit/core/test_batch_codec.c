/* The wire format of batches: rows of every type, origin and order come back, all columns or some; bytes that are no batch
 * are refused; and how many bytes rows take. */
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
    {.name = {"u", 1}, .type = {.tag = TYPE_TIME}},
};
static const struct schema schema = {.fields = fields, .count = ARRAY_COUNT(fields)};

static struct field text_fields[] = {{.name = {"t", 1}, .type = {.tag = TYPE_TEXT}}};
static const struct schema texts = {.fields = text_fields, .count = 1};

enum { COLUMNS = ARRAY_COUNT(fields), WORD_BYTES = 16, PARTITIONS = 9 };
static const bool all[COLUMNS] = {1, 1, 1, 1, 1, 1, 1, 1};

/* --- Making and printing --- */

/* Texts and lists lie one behind the other, or, for some columns, in any order and partly on each other. */
static void fill(struct batch *batch, struct column *column, const struct type *type, uint32_t rows,
                 struct test_random *random)
{
    batch_column_init(batch, column, *type, rows);
    uint32_t total = 0;
    bool is_mixed = random_chance(random, 30), has_nulls = random_chance(random, 70);
    char *heap = arena_alloc(&batch->arena, (size_t)rows * WORD_BYTES + 1);
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t value = random_below(random, 5);
        if (type->tag == TYPE_BOOL) {
            column->bools[i] = value % 2;
        } else if (type->tag == TYPE_LIST || type->tag == TYPE_TEXT || type->tag == TYPE_BYTES) {
            if (type->tag != TYPE_LIST)
                memset(heap + total, 'a' + (int)value, value);
            column->lists[i] = (struct list_ref){total, value};
            total += value;
        } else {
            column->ints[i] = (int64_t)random_next(random);
        }
        if (has_nulls && random_chance(random, 10)) {
            if (column->valid == NULL)
                column->valid = batch_valid_new(batch, rows);
            bit_clear(column->valid, i);
        }
    }
    for (uint32_t i = 0; i + 1 < rows && is_mixed && (type->tag == TYPE_LIST || type->tag == TYPE_TEXT);
         i += 2)
        column->lists[i] = column->lists[random_below(random, rows)];
    column->heap = heap;
    if (type->tag != TYPE_LIST)
        return;
    column->child_rows = total;
    const struct schema *below = type->element->tag == TYPE_RECORD ? type->element->fields : NULL;
    for (uint32_t i = 0; i < column->children_count; i++)
        fill(batch, &column->children[i], below == NULL ? type->element : &below->fields[i].type, total,
             random);
}

enum order_kind {
    ORDER_READ,
    ORDER_NUMBERED,
    ORDER_MERGED,
    ORDER_TIMERS,
    ORDER_ELEMENTS,
    ORDER_ANY,
    ORDER_KINDS
};

/* Gives rows the origins and orders that such rows have. */
static void set_order(struct batch *batch, enum order_kind kind, struct test_random *random)
{
    uint32_t rows = batch->rows;
    struct row_origin *origins = arena_alloc(&batch->arena, MAX(rows, 1) * sizeof(*origins));
    struct row_order *orders = arena_alloc(&batch->arena, MAX(rows, 1) * sizeof(*orders)), last = {0};
    int64_t *numbers = arena_alloc(&batch->arena, MAX(rows, 1) * sizeof(*numbers));
    batch->partition = random_below(random, PARTITIONS);
    batch->first_record = random_chance(random, 10) ? UINT64_MAX - 5 : random_below(random, 100000);
    for (uint32_t i = 0, number = 7; i < rows; i++) {
        int64_t time = batch->order_time[i];
        numbers[i] = (int64_t)(number += 1 + random_below(random, 3));
        origins[i] = (struct row_origin){random_below(random, PARTITIONS), (uint64_t)numbers[i]};
        orders[i] = (struct row_order){.partition = origins[i].partition, .time = time, .tie = number};
        if (kind == ORDER_TIMERS) {
            origins[i].partition = PARTITION_NONE;
            orders[i] = row_order_of_timer(&last, 5, time / 4000 * 4000,
                                           random_next(random) % 2 == 0 ? last.tie : random_next(random));
        } else if (kind == ORDER_ELEMENTS) {
            orders[i].depth = 1 + (i & 1);
            orders[i].sub = (uint64_t)(i % 7) << ROW_ORDER_ELEMENT_BITS | i % 5;
        } else if (kind == ORDER_ANY) {
            orders[i] = (struct row_order){(uint16_t)random_next(random),
                                           (uint16_t)random_next(random),
                                           random_below(random, PARTITIONS),
                                           (int64_t)random_next(random),
                                           random_next(random),
                                           random_next(random)};
            origins[i].record = random_next(random);
        }
    }
    if (kind == ORDER_NUMBERED && rows > 0)
        batch_number(batch, 0, numbers);
    if (kind <= ORDER_NUMBERED)
        return;
    batch->origins = origins;
    batch->orders = orders;
}

/* Times: event times that rise by a step, that rise by and large, or any; order times that are these, or a running maximum
 * of theirs, or of arrival times, or none. */
static void set_times(struct batch *batch, struct test_random *random)
{
    uint32_t rows = batch->rows, how = random_below(random, 4), by = random_below(random, 4);
    int64_t *arrival = arena_alloc(&batch->arena, rows * sizeof(int64_t) + 1), running = INT64_MIN;
    for (uint32_t i = 0; i < rows; i++) {
        int64_t rising = INT64_C(1700000000000000) + (int64_t)i * 1000;
        batch->event_time[i] = how == 0   ? rising
                               : how == 1 ? rising + random_below(random, 1u << random_below(random, 30))
                               : how == 2 ? (int64_t)random_next(random)
                                          : INT64_MIN + (int64_t)random_below(random, 2) * INT64_MAX;
        arrival[i] = random_below(random, 3) + (i == 0 ? rising : arrival[i - 1]);
    }
    if (random_chance(random, 50))
        batch->arrival_time = arrival;
    batch->order_time = batch->event_time;
    if (by > 0 && rows > 0)
        batch->order_time = arena_alloc(&batch->arena, rows * sizeof(int64_t));
    for (uint32_t i = 0; i < rows && by > 0; i++) {
        running = MAX(running, by == 1 ? batch->event_time[i] : arrival[i]);
        batch->order_time[i] = by == 3 ? arrival[i] + 5 : running;
    }
}

static void choose(struct batch *batch, struct test_random *random)
{
    uint16_t *sel = arena_alloc(&batch->arena, batch->rows * sizeof(*sel) + 1);
    batch->selected = 0;
    for (uint32_t i = random_below(random, 3); i < batch->rows; i += 1 + random_below(random, 3))
        sel[batch->selected++] = (uint16_t)i;
    batch->sel = sel;
}

/* A batch; every second one is a view, which has some of another's columns, and chosen rows. */
static struct batch *make(struct batch_pool *pool, uint32_t rows, struct test_random *random)
{
    struct batch *batch = batch_new(pool, &schema, rows);
    for (uint32_t i = 0; i < COLUMNS; i++)
        fill(batch, &batch->columns[i], &fields[i].type, rows, random);
    set_times(batch, random);
    enum order_kind kind = random_below(random, ORDER_KINDS);
    set_order(batch, kind, random);
    if (kind == ORDER_READ && random_chance(random, 20))
        batch->order_time = NULL;
    if (random_chance(random, 50))
        return batch;
    struct batch *view = batch_derive(batch, &schema);
    fill(view, &view->columns[1], &fields[1].type, rows, random);
    if (random_chance(random, 70))
        choose(view, random);
    batch_release(batch);
    return view;
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

static void print_order(struct byte_buffer *out, const struct batch *batch, uint32_t row)
{
    struct row_origin origin = batch_origin(batch, row);
    struct row_order order = batch_order(batch, row);
    buffer_printf(out, "%u %llu ", origin.partition, (unsigned long long)origin.record);
    buffer_printf(out, "%u.%u.%u.%lld.%llu.%llu ", order.place, order.depth, order.partition,
                  (long long)order.time, (unsigned long long)order.tie, (unsigned long long)order.sub);
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
            print_order(out, batch, row);
        for (uint32_t k = 0; k < COLUMNS; k++)
            if (columns[k])
                print_value(out, &batch->columns[k], row);
            else
                buffer_printf(out, "-,");
        buffer_printf(out, "\n");
    }
    buffer_append(out, "", 1);
}

/* --- Rows come back --- */

static struct batch *read_of(struct batch_pool *pool, const bool *columns, bool is_whole, struct str bytes)
{
    return is_whole ? batch_read(pool, &schema, bytes, PARTITIONS)
                    : batch_read_columns(pool, &schema, columns, bytes);
}

static void check_others_are_null(const struct batch *batch, const bool *columns)
{
    for (uint32_t i = 0; i < COLUMNS; i++)
        for (uint32_t row = 0; row < batch->rows && !columns[i]; row++) {
            const struct column *column = &batch->columns[i];
            assert_false(column_is_valid(column, row));
            assert_true(fields[i].type.tag == TYPE_BOOL ? column->bools[row] == 0 : column->ints[row] == 0);
        }
}

/* Bits behind the last row are set, as batch_valid_new sets them. */
static void check_bits_behind(const struct batch *batch, const bool *columns)
{
    for (uint32_t i = 0; i < COLUMNS; i++)
        for (uint32_t row = batch->rows; row < BATCH_ROWS && columns[i]; row++)
            assert_true(column_is_valid(&batch->columns[i], row));
}

static void test_round_trip(void **state)
{
    (void)state;
    struct test_random random = {7};
    struct batch_pool *pool = batch_pool_new();
    struct byte_buffer bytes = {0}, said = {0}, expected = {0};
    for (int run = 0; run < 600; run++) {
        bool columns[COLUMNS];
        for (uint32_t i = 0; i < COLUMNS; i++)
            columns[i] = random_chance(&random, 50);
        uint32_t rows = run < 3 ? (uint32_t)run : 1 + random_below(&random, run % 40 == 0 ? BATCH_ROWS : 40);
        struct batch *batch = make(pool, rows, &random);
        buffer_clear(&bytes);
        buffer_append(&bytes, "before", 6); /* what is in the buffer stays */
        bool is_whole = random_chance(&random, 50);
        if (is_whole)
            batch_write(batch, &bytes);
        else
            batch_write_columns(batch, columns, &bytes);
        assert_memory_equal(bytes.data, "before", 6);
        struct str text = {bytes.data + 6, bytes.length - 6};
        struct batch *read = read_of(pool, columns, is_whole, text);
        if (read == NULL)
            fail_msg("run %d is refused", run);
        assert_int_equal(read->rows, batch->selected);
        assert_int_equal(read->arrival_time != NULL, batch->arrival_time != NULL && batch->selected > 0);
        print(&expected, batch, is_whole ? all : columns, is_whole);
        print(&said, read, all, is_whole);
        assert_string_equal(said.data, expected.data);
        if (!is_whole)
            check_others_are_null(read, columns);
        check_bits_behind(read, is_whole ? all : columns);
        columns[run % COLUMNS] ^= true; /* other columns than were written */
        assert_null(batch_read_columns(pool, &schema, columns, text));
        if (!is_whole)
            assert_null(batch_read(pool, &schema, text, PARTITIONS));
        batch_release(read);
        batch_release(batch);
    }
    assert_int_equal(batch_pool_alive(pool), 0);
    batch_pool_free(pool);
    buffer_free(&bytes);
    buffer_free(&said);
    buffer_free(&expected);
}

/* --- Bytes that are damaged --- */

/* Reads from memory of exact size. false: refused. What is taken can be printed. */
static bool is_taken(struct batch_pool *pool, const bool *columns, bool is_whole, const char *data,
                     size_t length)
{
    char *copy = malloc(MAX(length, 1));
    assert_non_null(copy);
    memcpy(copy, data, length);
    struct batch *batch = read_of(pool, columns, is_whole, (struct str){copy, length});
    free(copy);
    if (batch == NULL)
        return false;
    struct byte_buffer out = {0};
    print(&out, batch, all, true);
    for (uint32_t i = 0; i < batch->rows && is_whole; i++)
        assert_true(batch_origin(batch, i).partition < PARTITIONS ||
                    batch_origin(batch, i).partition == PARTITION_NONE);
    buffer_free(&out);
    batch_release(batch);
    return true;
}

/* Truncates, lengthens, and changes each byte. Returns how many changes were refused. */
static uint32_t damage(struct batch_pool *pool, const bool *columns, bool is_whole, struct byte_buffer *bytes)
{
    for (size_t length = 0; length < bytes->length; length++)
        assert_false(is_taken(pool, columns, is_whole, bytes->data, length));
    buffer_append(bytes, "12345678", 8);
    for (size_t more = 0; more < 8; more++)
        assert_false(is_taken(pool, columns, is_whole, bytes->data, bytes->length - more));
    bytes->length -= 8;
    assert_true(is_taken(pool, columns, is_whole, bytes->data, bytes->length));
    uint32_t refused = 0;
    for (size_t i = 0; i < bytes->length; i++) {
        char kept = bytes->data[i];
        for (uint32_t flip = 1; flip < 256; flip += flip < 4 || flip > 252 ? 1 : 17) {
            bytes->data[i] = (char)(kept ^ (char)flip);
            refused += !is_taken(pool, columns, is_whole, bytes->data, bytes->length);
        }
        bytes->data[i] = kept;
    }
    return refused;
}

static void test_damaged(void **state)
{
    (void)state;
    struct test_random random = {11};
    struct batch_pool *pool = batch_pool_new();
    struct byte_buffer bytes = {0};
    for (int run = 0; run < 24; run++) {
        bool columns[COLUMNS], is_whole = run % 2;
        for (uint32_t i = 0; i < COLUMNS; i++)
            columns[i] = random_chance(&random, 50);
        struct batch *batch = make(pool, random_below(&random, 12), &random);
        buffer_clear(&bytes);
        if (is_whole)
            batch_write(batch, &bytes);
        else
            batch_write_columns(batch, columns, &bytes);
        batch_release(batch);
        assert_true(damage(pool, columns, is_whole, &bytes) > 100);
    }
    assert_int_equal(batch_pool_alive(pool), 0);
    batch_pool_free(pool);
    buffer_free(&bytes);
}

/* A batch of one column, two rows of equal times, and no order. */
static void check_refused(uint32_t column, size_t offset, const void *value, size_t bytes, const char *what)
{
    struct test_random random = {1};
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = batch_new(pool, &schema, 2);
    bool columns[COLUMNS] = {0};
    struct byte_buffer out = {0};
    columns[column] = true;
    memset(batch->event_time, 0, 2 * sizeof(int64_t));
    fill(batch, &batch->columns[column], &fields[column].type, 2, &random);
    struct column *filled = &batch->columns[column];
    filled->valid = NULL;
    if (filled->tag == TYPE_LIST || filled->tag == TYPE_TEXT) {
        filled->texts[0] = (struct text_ref){0, 1};
        filled->texts[1] = (struct text_ref){1, 0};
    }
    batch_write_columns(batch, columns, &out);
    assert_true(is_taken(pool, columns, false, out.data, out.length));
    assert_true(offset + bytes <= out.length);
    memcpy(out.data + offset, value, bytes);
    if (is_taken(pool, columns, false, out.data, out.length))
        fail_msg("taken: %s", what);
    batch_release(batch);
    batch_pool_free(pool);
    buffer_free(&out);
}

static void test_refused(void **state)
{
    (void)state;
    /* rows, flags, version, columns; the event times: a byte; then the column's tag and its data. */
    enum { FLAGS = 2, VERSION = 3, COUNT = 4, TIMES = 6, FIRST = 7, DATA = 8 };
    static const uint16_t many = BATCH_ROWS + 1, two = 2, none = 0;
    check_refused(0, 0, &many, 2, "more rows than a batch has");
    check_refused(0, 0, &none, 2, "no rows, but a column of two");
    check_refused(0, FLAGS, "\1", 1, "arrival times that are not there");
    check_refused(0, FLAGS, "\2", 1, "an order that is not there");
    check_refused(0, FLAGS, "\4", 1, "order times without an order");
    check_refused(0, FLAGS, "\x10", 1, "a flag that is none");
    check_refused(0, VERSION, "\1", 1, "another version");
    check_refused(0, COUNT, &two, 2, "another number of columns");
    check_refused(0, TIMES, "\x40", 1, "a sequence of no form");
    check_refused(0, TIMES, "\x21", 1, "a sequence that takes the column");
    check_refused(0, FIRST, "\5", 1, "a column of another type");
    check_refused(0, FIRST, "\x81", 1, "nulls that are not there");
    check_refused(2, DATA, "\4", 1, "a third bool");
    check_refused(1, DATA, "\2", 1, "lengths of two bytes");
    check_refused(1, DATA, "\0", 1, "lengths of no bytes");
    check_refused(1, DATA, "\3", 1, "lengths of three bytes");
    check_refused(1, DATA + 1, "\2", 1, "a text a byte longer than its heap");
    check_refused(1, DATA + 1, "\0", 1, "bytes that no text has");
    check_refused(4, DATA + 1, "\2", 1, "a list an element longer than its elements");
    check_refused(4, DATA + 1, "\0", 1, "elements that no list has");
    check_refused(4, DATA + 3, "\0", 1, "elements of another type");
}

static void test_bounds_of_partitions(void **state)
{
    (void)state;
    struct test_random random = {5};
    struct batch_pool *pool = batch_pool_new();
    for (enum order_kind kind = 0; kind < ORDER_KINDS; kind++) {
        struct byte_buffer out = {0};
        struct batch *batch = batch_new(pool, &schema, 20);
        for (uint32_t i = 0; i < COLUMNS; i++)
            fill(batch, &batch->columns[i], &fields[i].type, 20, &random);
        set_times(batch, &random);
        set_order(batch, kind, &random);
        uint32_t most = 0;
        for (uint32_t i = 0; i < 20; i++) {
            uint32_t partition = batch_origin(batch, i).partition;
            most =
                MAX(most, MAX(partition == PARTITION_NONE ? 0 : partition, batch_order(batch, i).partition));
        }
        batch_write(batch, &out);
        struct batch *read = batch_read(pool, &schema, (struct str){out.data, out.length}, most + 1);
        assert_non_null(read);
        batch_release(read);
        assert_null(batch_read(pool, &schema, (struct str){out.data, out.length}, most));
        batch_release(batch);
        buffer_free(&out);
    }
    batch_pool_free(pool);
}

/* --- Bytes that rows take --- */

static struct field number_fields[] = {{.name = {"a", 1}, .type = {.tag = TYPE_INT}},
                                       {.name = {"b", 1}, .type = {.tag = TYPE_FLOAT}},
                                       {.name = {"c", 1}, .type = {.tag = TYPE_TIME}},
                                       {.name = {"d", 1}, .type = {.tag = TYPE_INT}}};
static const struct schema numbers = {.fields = number_fields, .count = 4};
/* Rows as a source reads them: 50 microseconds from each other, late by up to a second, with times of arrival. */
static struct batch *make_rows(struct batch_pool *pool, const struct schema *of, uint32_t rows,
                               struct test_random *random)
{
    struct batch *batch = batch_new(pool, of, rows);
    batch->partition = 3;
    batch->first_record = 123456789;
    batch->arrival_time = arena_alloc(&batch->arena, rows * sizeof(int64_t));
    batch->order_time = batch->arrival_time;
    for (uint32_t i = 0; i < rows; i++) {
        int64_t time = INT64_C(1700000000000000) + (int64_t)i * 50;
        batch->event_time[i] = time - random_below(random, 1000000);
        batch->arrival_time[i] = time + random_below(random, 40);
    }
    for (uint32_t i = 0; i < of->count; i++) {
        fill(batch, &batch->columns[i], &of->fields[i].type, rows, random);
        batch->columns[i].valid = NULL;
    }
    return batch;
}

/* The bytes of a batch beside its values: 8 a number, and of a text its bytes. */
static size_t bytes_beside(const struct batch *batch)
{
    struct byte_buffer out = {0};
    batch_write(batch, &out);
    size_t values = 0;
    for (uint32_t k = 0; k < batch->schema->count; k++)
        for (uint32_t i = 0; i < batch->selected; i++) {
            const struct column *column = &batch->columns[k];
            values += column->tag == TYPE_TEXT ? column->texts[batch_row(batch, i)].length : 8;
        }
    size_t length = out.length;
    buffer_free(&out);
    return length - values;
}

static void test_sizes(void **state)
{
    (void)state;
    struct test_random random = {3};
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = make_rows(pool, &numbers, BATCH_ROWS, &random);
    size_t beside = bytes_beside(batch);
    print_message("# %.2f bytes a row beside four columns\n", (double)beside / BATCH_ROWS);
    assert_true(beside <= BATCH_ROWS * (8 + 4 * 8 * 3 / 10));
    assert_true(beside <= BATCH_ROWS * 9 / 2); /* 3 bytes of event time, 1 of arrival time */
    batch_release(batch);
    batch = make_rows(pool, &texts, BATCH_ROWS, &random);
    assert_true(bytes_beside(batch) <= BATCH_ROWS * 13 / 2); /* a byte for the length */
    batch_release(batch);
    size_t most = 0; /* in 100ths of what is allowed */
    for (int run = 0; run < 500; run++) {
        const struct schema *of = run % 2 ? &texts : &numbers;
        batch = make_rows(pool, of, run % 3 == 0 ? BATCH_ROWS : 1 + random_below(&random, 50), &random);
        set_order(batch, random_below(&random, ORDER_ANY), &random);
        batch->first_record %= 100000;
        if (random_chance(&random, 50))
            choose(batch, &random);
        beside = bytes_beside(batch);
        size_t allowed = batch->selected * 24 + batch->schema->count * 32;
        if (batch->selected > 0)
            most = MAX(most, 100 * beside / allowed);
        batch_release(batch);
    }
    print_message("# other orders and small batches: %zu %% of what they may take\n", most);
    assert_in_range(most, 1, 100);
    batch_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_refused),

        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_bounds_of_partitions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
