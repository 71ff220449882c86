#include "formats/rows.h"

#include "core/mem.h"

#include <stdlib.h>

enum { LIST_CAPACITY_FIRST = 256, HEAP_SLACK = 64, PLAN_BLOCK_BYTES = 4096 };

static size_t value_bytes(enum type_tag tag)
{
    return tag == TYPE_BOOL ? sizeof(uint8_t) : sizeof(int64_t);
}

static uint32_t hash_name(const char *name, size_t length)
{
    uint64_t first = 0, last = 0;
    size_t part = MIN(length, 8);
    if (part > 0) {
        memcpy(&first, name, part);
        memcpy(&last, name + length - part, part);
    }
    uint64_t mixed = (first ^ (last << 7 | last >> 57) ^ length) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(mixed >> 32);
}

struct row_column *rows_find(const struct row_fields *fields, const char *name, size_t length)
{
    for (uint32_t at = hash_name(name, length) & fields->table_mask; fields->table[at] != 0;
         at = (at + 1) & fields->table_mask) {
        struct row_column *column = &fields->columns[fields->table[at] - 1];
        if (column->name.length == length && memcmp(column->name.data, name, length) == 0)
            return column;
    }
    return NULL;
}

static void add_names(struct rows *rows, struct row_fields *fields)
{
    uint32_t size = 4;
    while (size < 2 * fields->count)
        size *= 2;
    fields->table_mask = size - 1;
    fields->table = arena_array(&rows->arena, uint16_t, size);
    for (uint32_t i = 0; i < fields->count; i++) {
        uint32_t at = hash_name(fields->columns[i].name.data, fields->columns[i].name.length) & (size - 1);
        while (fields->table[at] != 0)
            at = (at + 1) & (size - 1);
        fields->table[at] = (uint16_t)(i + 1);
    }
}

static void add_column(struct rows *rows, struct row_column *column, const struct type *type);

static void add_fields(struct rows *rows, struct row_fields *fields, const struct schema *schema)
{
    fields->count = schema->count;
    fields->columns = arena_array(&rows->arena, struct row_column, schema->count);
    for (uint32_t i = 0; i < schema->count; i++) {
        const struct field *field = &schema->fields[i];
        fields->columns[i].name = arena_str(&rows->arena, field->name);
        fields->columns[i].is_required = field->is_required;
        add_column(rows, &fields->columns[i], &field->type);
    }
    add_names(rows, fields);
}

static void add_column(struct rows *rows, struct row_column *column, const struct type *type)
{
    column->tag = type->tag;
    column->unit = type->unit;
    if (type->tag != TYPE_LIST)
        return;
    struct row_list *list = column->list = arena_new(&rows->arena, struct row_list);
    struct row_list **lists = arena_array(&rows->arena, struct row_list *, rows->lists_count + 1);
    if (rows->lists_count > 0)
        memcpy(lists, rows->lists, rows->lists_count * sizeof(*lists));
    lists[rows->lists_count++] = list;
    rows->lists = lists;
    list->is_record = type->element->tag == TYPE_RECORD;
    if (list->is_record) {
        add_fields(rows, &list->fields, type->element->fields);
        return;
    }
    list->fields.count = 1;
    list->fields.columns = arena_array(&rows->arena, struct row_column, 1);
    add_column(rows, &list->fields.columns[0], type->element);
}

struct rows *rows_new(const struct schema *schema)
{
    struct rows *rows = mem_calloc(1, sizeof(*rows));
    arena_init(&rows->arena, PLAN_BLOCK_BYTES);
    add_fields(rows, &rows->fields, schema);
    return rows;
}

void rows_free(struct rows *rows)
{
    if (rows == NULL)
        return;
    for (uint32_t i = 0; i < rows->lists_count; i++)
        for (uint32_t j = 0; j < rows->lists[i]->fields.count; j++) {
            free(rows->lists[i]->fields.columns[j].data);
            free(rows->lists[i]->fields.columns[j].valid);
        }
    arena_free(&rows->arena);
    free(rows);
}

void rows_begin(struct rows *rows, struct raw_batch *raw, struct decode_output *output, size_t heap_bytes)
{
    struct batch *batch = output->batch;
    leat_assert(batch->rows == raw->count && batch->schema->count == rows->fields.count);
    rows->raw = raw;
    rows->output = output;
    output->bad_count = 0;
    rows->list_values = 0;
    rows->heap_begin = rows->heap = rows->heap_mark = arena_alloc(&batch->arena, heap_bytes + HEAP_SLACK);
    rows->heap_end = rows->heap + heap_bytes;
    for (uint32_t i = 0; i < rows->fields.count; i++) {
        struct row_column *column = &rows->fields.columns[i];
        column->data = batch->columns[i].data;
        column->valid = NULL;
    }
    for (uint32_t i = 0; i < rows->lists_count; i++) {
        struct row_list *list = rows->lists[i];
        for (uint32_t j = 0; j < list->fields.count; j++) {
            struct row_column *column = &list->fields.columns[j];
            if (column->has_null)
                memset(column->valid, 0xff, BIT_WORDS((size_t)list->rows) * sizeof(uint64_t));
            column->has_null = false;
        }
        list->rows = list->mark = 0;
    }
}

/* Copies the elements of a list, and of the lists inside them, into the batch. */
static void finish_list(struct rows *rows, const struct row_list *list, struct column *column)
{
    struct batch *batch = rows->output->batch;
    column->child_rows = list->rows;
    for (uint32_t i = 0; i < list->fields.count; i++) {
        const struct row_column *from = &list->fields.columns[i];
        struct column *to = &column->children[i];
        size_t bytes = list->rows * value_bytes(from->tag);
        struct column *children = NULL;
        *to = (struct column){.tag = from->tag, .heap = rows->heap_begin};
        to->data = arena_alloc(&batch->arena, bytes);
        if (bytes > 0)
            memcpy(to->data, from->data, bytes);
        if (from->has_null) {
            to->valid = batch_valid_new(batch, list->rows);
            memcpy(to->valid, from->valid, BIT_WORDS((size_t)list->rows) * sizeof(uint64_t));
        }
        if (from->list == NULL)
            continue;
        children = arena_array(&batch->arena, struct column, from->list->fields.count);
        to->children = children;
        to->children_count = from->list->fields.count;
        finish_list(rows, from->list, to);
    }
}

void rows_end(struct rows *rows)
{
    leat_assert(rows->heap <= rows->heap_end);
    for (uint32_t i = 0; i < rows->fields.count; i++) {
        struct column *column = &rows->output->batch->columns[i];
        column->heap = rows->heap_begin;
        column->valid = rows->fields.columns[i].valid;
        if (column->tag == TYPE_LIST)
            finish_list(rows, rows->fields.columns[i].list, column);
    }
}

void rows_null(struct rows *rows, struct row_column *column, uint32_t row, const struct row_list *list)
{
    if (list != NULL)
        column->has_null = true;
    else if (column->valid == NULL)
        column->valid = batch_valid_new(rows->output->batch, rows->output->batch->rows);
    bit_clear(column->valid, row);
    if (column->tag == TYPE_BOOL)
        column->bools[row] = 0;
    else
        column->ints[row] = 0;
}

void rows_bad(struct rows *rows, uint32_t row, uint32_t at, const char *reason)
{
    struct decode_output *output = rows->output;
    leat_assert(output->bad_count < rows->raw->count);
    output->bad[output->bad_count++] = (struct bad_record){.row = row, .column = at, .reason = reason};
    rows->heap = rows->heap_mark;
    for (uint32_t i = 0; i < rows->fields.count; i++)
        rows_null(rows, &rows->fields.columns[i], row, NULL);
    for (uint32_t i = 0; i < rows->lists_count; i++) {
        struct row_list *list = rows->lists[i];
        for (uint32_t j = 0; j < list->fields.count; j++)
            if (list->fields.columns[j].has_null)
                for (uint32_t k = list->mark; k < list->rows; k++)
                    bit_set(list->fields.columns[j].valid, k);
        list->rows = list->mark;
    }
}

static void grow(struct row_list *list)
{
    uint32_t capacity = list->capacity == 0 ? LIST_CAPACITY_FIRST : list->capacity * 2;
    for (uint32_t i = 0; i < list->fields.count; i++) {
        struct row_column *column = &list->fields.columns[i];
        column->data = mem_realloc(column->data, capacity * value_bytes(column->tag));
        column->valid = mem_realloc(column->valid, capacity / 8);
        memset((char *)column->valid + list->capacity / 8, 0xff, (capacity - list->capacity) / 8);
    }
    list->capacity = capacity;
}

uint32_t rows_element(struct rows *rows, struct row_list *list)
{
    rows->list_values += MAX(list->fields.count, 1);
    if (rows->list_values > ROWS_LIST_VALUES_MAX)
        return UINT32_MAX;
    if (list->rows == list->capacity)
        grow(list);
    return list->rows++;
}

const struct row_column *rows_missing(struct rows *rows, struct row_fields *fields, uint64_t object,
                                      uint32_t row, const struct row_list *list)
{
    for (uint32_t i = 0; i < fields->count; i++) {
        struct row_column *column = &fields->columns[i];
        if (column->seen == object)
            continue;
        if (column->is_required)
            return column;
        rows_null(rows, column, row, list);
    }
    return NULL;
}
