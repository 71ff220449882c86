/* Rows that were held before a job changed come out with the job's new columns. */
#include "operators/rows/packed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ROWS = 200 };

static struct type int_type = {.tag = TYPE_INT};
static struct field old_fields[] = {{.name = STR("id"), .type = {.tag = TYPE_INT}},
                                    {.name = STR("site"), .type = {.tag = TYPE_TEXT}},
                                    {.name = STR("price"), .type = {.tag = TYPE_FLOAT}},
                                    {.name = STR("gone"), .type = {.tag = TYPE_TEXT}},
                                    {.name = STR("turned"), .type = {.tag = TYPE_INT}},
                                    {.name = STR("list"), .type = {.tag = TYPE_LIST, .element = &int_type}}};
static struct field new_fields[] = {{.name = STR("came"), .type = {.tag = TYPE_TEXT}},
                                    {.name = STR("list"), .type = {.tag = TYPE_LIST, .element = &int_type}},
                                    {.name = STR("site"), .type = {.tag = TYPE_TEXT}},
                                    {.name = STR("turned"), .type = {.tag = TYPE_TEXT}},
                                    {.name = STR("id"), .type = {.tag = TYPE_INT}},
                                    {.name = STR("price"), .type = {.tag = TYPE_FLOAT}}};
static const struct schema old_schema = {.fields = old_fields, .count = ARRAY_COUNT(old_fields)};
static const struct schema new_schema = {.fields = new_fields, .count = ARRAY_COUNT(new_fields)};

/* Rows in the old layout; every seventh site and every fifth list is null. */
static struct batch *old_rows(struct batch_pool *pool)
{
    struct batch *batch = batch_new(pool, &old_schema, ROWS);
    struct column_builder builders[ARRAY_COUNT(old_fields)];
    for (uint32_t c = 0; c < old_schema.count; c++)
        builder_init(&builders[c], batch, &batch->columns[c], old_fields[c].type);
    for (uint32_t i = 0; i < ROWS; i++) {
        char text[32];
        struct str site = {text, (size_t)snprintf(text, sizeof(text), "site-%0*u", (int)(i % 17), i)};
        batch->event_time[i] = i;
        batch->columns[0].ints[i] = 1000 + i;
        if (i % 7 == 0)
            builder_null(&builders[1], i);
        else
            builder_text(&builders[1], i, site);
        batch->columns[2].floats[i] = i / 4.0;
        builder_text(&builders[3], i, STR("long gone"));
        batch->columns[4].ints[i] = -5;
        if (i % 5 == 0) {
            builder_null(&builders[5], i);
            continue;
        }
        builder_list(&builders[5], i, i % 4);
        for (uint32_t k = 0; k < i % 4; k++) {
            uint32_t at = builder_append(&builders[5].children[0]);
            builders[5].children[0].column->ints[at] = i + k;
        }
    }
    for (uint32_t c = 0; c < old_schema.count; c++)
        builder_finish(&builders[c]);
    batch->first_record = 77;
    batch->partition = 3;
    return batch;
}

static void assert_row(const struct batch *out, uint32_t i)
{
    char text[32];
    int length = snprintf(text, sizeof(text), "site-%0*u", (int)(i % 17), i);
    assert_false(column_is_valid(&out->columns[0], i));
    assert_int_equal(column_is_valid(&out->columns[1], i), i % 5 != 0);
    if (i % 5 != 0) {
        struct list_ref list = out->columns[1].lists[i];
        assert_int_equal(list.length, i % 4);
        for (uint32_t k = 0; k < list.length; k++)
            assert_int_equal(out->columns[1].children[0].ints[list.offset + k], i + k);
    }
    assert_int_equal(column_is_valid(&out->columns[2], i), i % 7 != 0);
    if (i % 7 != 0) {
        assert_int_equal(column_text(&out->columns[2], i).length, length);
        assert_memory_equal(column_text(&out->columns[2], i).data, text, (size_t)length);
    }
    assert_false(column_is_valid(&out->columns[3], i));
    assert_int_equal(out->columns[4].ints[i], 1000 + i);
    assert_true(out->columns[5].floats[i] == i / 4.0);
    assert_int_equal(out->event_time[i], i);
    assert_int_equal(out->origins[i].record, 77 + i);
    assert_int_equal(out->origins[i].partition, 3);
}

static void test_columns_come_and_go(void **state)
{
    (void)state;
    struct arena scratch = {0};
    struct batch_pool *pool = batch_pool_new();
    static struct held_layouts before, now;
    held_layouts_init(&before, &old_schema);
    struct byte_buffer saved = {0}, packed = {0};
    held_layouts_save(&before, &saved);
    held_layouts_init(&now, &new_schema);
    assert_true(held_layouts_load(&now, (struct str){saved.data, saved.length}, &new_schema));
    assert_int_equal(now.count, 2);
    assert_int_equal(now.current, 1);
    struct batch *rows = old_rows(pool), *out = batch_new(pool, &new_schema, BATCH_ROWS);
    uint16_t sel[ROWS];
    size_t offsets[ROWS + 1];
    for (uint16_t i = 0; i < ROWS; i++)
        sel[i] = i;
    held_pack(&before, rows, sel, ROWS, &scratch, &packed, offsets);
    static struct held_rows held;
    for (uint32_t i = 0; i < ROWS; i++) {
        struct str row = {packed.data + offsets[i], offsets[i + 1] - offsets[i]};
        struct str converted = held_layouts_convert(&now, row);
        assert_int_equal(held_add(&now, &held, converted)->layout, 1);
        /* A row in the current layout is not copied. */
        assert_ptr_equal(held_layouts_convert(&now, converted).data, converted.data);
    }
    held_unpack(&now, &held, out);
    for (uint32_t i = 0; i < ROWS; i++)
        assert_row(out, i);
    batch_release(rows);
    batch_release(out);
    held_rows_free(&held);
    held_layouts_free(&before);
    held_layouts_free(&now);
    buffer_free(&saved);
    buffer_free(&packed);
    batch_pool_free(pool);
    arena_free(&scratch);
}

/* The same for packed rows; rows of the old and the new layout alternate. */
static void test_packed_columns(void **state)
{
    (void)state;
    struct batch_pool *pool = batch_pool_new();
    static struct held_layouts before, now;
    static struct packed_rows rows, again;
    struct byte_buffer saved = {0}, packed[ROWS] = {{0}}, more = {0};
    held_layouts_init(&before, &old_schema);
    held_layouts_save(&before, &saved);
    held_layouts_init(&now, &new_schema);
    assert_true(held_layouts_load(&now, (struct str){saved.data, saved.length}, &new_schema));
    struct batch *old = old_rows(pool), *out = batch_new(pool, &new_schema, BATCH_ROWS),
                 *twice = batch_new(pool, &new_schema, BATCH_ROWS);
    packed_init(&rows, &now, &new_schema);
    packed_begin(&rows, out);
    for (uint32_t i = 0; i < ROWS; i++) {
        packed_put(&packed[i], old, i, 0);
        packed_add(&rows, (struct str){packed[i].data, packed[i].length});
    }
    packed_end(&rows);
    packed_init(&again, &now, &new_schema);
    packed_begin(&again, twice);
    for (uint32_t i = 0; i < ROWS; i++) {
        assert_row(out, i);
        buffer_clear(&more);
        packed_put(&more, out, i, now.current);
        bool is_new = i % 3 != 0;
        packed_add(&again, is_new ? (struct str){more.data, more.length}
                                  : (struct str){packed[i].data, packed[i].length});
    }
    packed_end(&again);
    assert_int_equal(twice->rows, ROWS);
    for (uint32_t i = 0; i < ROWS; i++)
        assert_row(twice, i);
    batch_release(old);
    batch_release(out);
    batch_release(twice);
    for (uint32_t i = 0; i < ROWS; i++)
        buffer_free(&packed[i]);
    packed_free(&rows);
    packed_free(&again);
    held_layouts_free(&before);
    held_layouts_free(&now);
    buffer_free(&saved);
    buffer_free(&more);
    batch_pool_free(pool);
}

/* Damaged rows, with a flipped bit or cut short, are read within their bounds. */
static void test_packed_damage(void **state)
{
    (void)state;
    struct batch_pool *pool = batch_pool_new();
    static struct held_layouts layouts;
    static struct packed_rows rows;
    held_layouts_init(&layouts, &old_schema);
    packed_init(&rows, &layouts, &old_schema);
    struct batch *old = old_rows(pool);
    for (uint32_t i = 0; i < 40; i++) {
        struct byte_buffer packed = {0};
        packed_put(&packed, old, i, 0);
        for (size_t at = 0; at < packed.length; at++) {
            struct batch *out = batch_new(pool, &old_schema, BATCH_ROWS);
            char *copy = malloc(packed.length);
            memcpy(copy, packed.data, packed.length);
            copy[at] = (char)(copy[at] ^ (1 << (i % 8)));
            char *cut = malloc(at + 1);
            memcpy(cut, packed.data, at);
            packed_begin(&rows, out);
            packed_add(&rows, (struct str){copy, packed.length});
            packed_add(&rows, (struct str){cut, at});
            packed_end(&rows);
            for (uint32_t c = 0; c < old_schema.count; c++)
                if (old_fields[c].type.tag == TYPE_TEXT)
                    for (uint32_t row = 0; row < 2; row++) {
                        struct str text = column_text(&out->columns[c], row);
                        assert_true(text.length <= packed.length);
                    }
            free(copy);
            free(cut);
            batch_release(out);
        }
        buffer_free(&packed);
    }
    batch_release(old);
    packed_free(&rows);
    held_layouts_free(&layouts);
    batch_pool_free(pool);
}

/* A layout that is known keeps its number. After many changes the oldest layouts are dropped. */
static void test_numbers(void **state)
{
    (void)state;
    static struct held_layouts layouts;
    held_layouts_init(&layouts, &old_schema);
    struct byte_buffer saved = {0};
    for (uint32_t turn = 0; turn < 3 * HELD_LAYOUTS_MAX; turn++) {
        char name[16];
        struct field field = {.name = {name, (size_t)snprintf(name, sizeof(name), "c%u", turn)},
                              .type = {.tag = TYPE_INT}};
        struct schema schema = {.fields = &field, .count = 1};
        buffer_clear(&saved);
        held_layouts_save(&layouts, &saved);
        assert_true(held_layouts_load(&layouts, (struct str){saved.data, saved.length}, &schema));
        assert_int_equal(layouts.current, turn + 1);
        buffer_clear(&saved);
        held_layouts_save(&layouts, &saved);
        assert_true(held_layouts_load(&layouts, (struct str){saved.data, saved.length}, &schema));
        assert_int_equal(layouts.current, turn + 1);
        assert_true(layouts.count <= HELD_LAYOUTS_MAX);
    }
    for (size_t cut = 1; cut < saved.length; cut++)
        (void)held_layouts_load(&layouts, (struct str){saved.data, saved.length - cut}, &old_schema);
    held_layouts_free(&layouts);
    buffer_free(&saved);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_columns_come_and_go),
                                       cmocka_unit_test(test_packed_columns),
                                       cmocka_unit_test(test_packed_damage), cmocka_unit_test(test_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
