#include "operators/rows/codec.h"

#include <stdlib.h>

enum { CHILD_ROWS_FIRST = 64, CHILD_ROWS_MAX = 1 << 24 };

static const struct schema *record_of(const struct type *type)
{
    return type->element->tag == TYPE_RECORD ? type->element->fields : NULL;
}

/* --- Encoding --- */

static void encode_list(struct byte_buffer *out, const struct column *column, const struct type *type,
                        uint32_t row)
{
    struct list_ref list = column->lists[row];
    const struct schema *record = record_of(type);
    buffer_append(out, &list.length, sizeof(list.length));
    for (uint32_t i = 0; i < list.length; i++)
        for (uint32_t c = 0; c < column->children_count; c++)
            row_encode_value(out, &column->children[c],
                             record == NULL ? type->element : &record->fields[c].type, list.offset + i);
}

void row_encode_value(struct byte_buffer *out, const struct column *column, const struct type *type,
                      uint32_t row)
{
    uint8_t is_valid = column_is_valid(column, row);
    buffer_append(out, &is_valid, 1);
    if (!is_valid)
        return;
    switch (type->tag) {
    case TYPE_BOOL: buffer_append(out, &column->bools[row], 1); break;
    case TYPE_INT:
    case TYPE_TIME:
    case TYPE_FLOAT: buffer_append(out, &column->ints[row], 8); break;
    case TYPE_TEXT:
    case TYPE_BYTES: {
        struct str text = column_text(column, row);
        uint32_t length = (uint32_t)text.length;
        buffer_append(out, &length, sizeof(length));
        buffer_append(out, text.data, length);
        break;
    }
    case TYPE_LIST: encode_list(out, column, type, row); break;
    case TYPE_RECORD: leat_assert(type->tag != TYPE_RECORD); break; /* only as the element of a list */
    }
}

/* --- Building --- */

void builder_init(struct column_builder *builder, struct batch *batch, struct column *column,
                  struct type type)
{
    *builder = (struct column_builder){.batch = batch, .column = column, .type = type};
    if (type.tag != TYPE_LIST)
        return;
    builder->children_count = column->children_count;
    builder->children = arena_array(&batch->arena, struct column_builder, MAX(column->children_count, 1));
    for (uint32_t i = 0; i < column->children_count; i++) {
        const struct schema *record = record_of(&type);
        struct type element = record == NULL ? *type.element : record->fields[i].type;
        batch_column_init(batch, &column->children[i], element, 0);
        builder_init(&builder->children[i], batch, &column->children[i], element);
        builder->children[i].is_child = true;
    }
}

/* The validity bitmap of a child has room for the child's capacity; that of any other column for the batch's
 * rows. */
void builder_null(struct column_builder *builder, uint32_t row)
{
    struct column *column = builder->column;
    if (column->valid == NULL)
        column->valid =
            batch_valid_new(builder->batch, builder->is_child ? builder->capacity : builder->batch->rows);
    bit_clear(column->valid, row);
    if (builder->type.tag == TYPE_BOOL)
        column->bools[row] = 0;
    else
        column->ints[row] = 0; /* all other types have 8 bytes */
}

void builder_text(struct column_builder *builder, uint32_t row, struct str text)
{
    leat_assert(builder->heap.length + text.length <= UINT32_MAX);
    builder->column->texts[row] = (struct text_ref){(uint32_t)builder->heap.length, (uint32_t)text.length};
    buffer_append(&builder->heap, text.data, text.length);
}

void builder_list(struct column_builder *builder, uint32_t row, uint32_t count)
{
    uint32_t offset = builder->children_count == 0 ? 0 : builder->children[0].rows;
    builder->column->lists[row] = (struct list_ref){offset, count};
}

static void grow_child(struct column_builder *child)
{
    uint32_t old = child->capacity;
    child->capacity = MAX(old * 2, CHILD_ROWS_FIRST);
    struct column *column = child->column;
    size_t width = child->type.tag == TYPE_BOOL ? 1 : 8;
    void *data = arena_calloc(&child->batch->arena, child->capacity, width);
    if (old > 0)
        memcpy(data, column->data, old * width);
    column->data = data;
    if (column->valid != NULL) {
        uint64_t *valid = batch_valid_new(child->batch, child->capacity);
        memcpy(valid, column->valid, BIT_WORDS((size_t)old) * sizeof(*valid));
        column->valid = valid;
    }
}

uint32_t builder_append(struct column_builder *child)
{
    leat_assert(child->is_child && child->rows < CHILD_ROWS_MAX);
    if (child->rows == child->capacity)
        grow_child(child);
    return child->rows++;
}

static bool take(const char **at, const char *end, void *out, size_t bytes)
{
    if ((size_t)(end - *at) < bytes)
        return false;
    memcpy(out, *at, bytes);
    *at += bytes;
    return true;
}

static bool decode_list(struct column_builder *builder, uint32_t row, const char **at, const char *end)
{
    uint32_t count;
    if (!take(at, end, &count, sizeof(count)) || count > (size_t)(end - *at))
        return false;
    for (uint32_t c = 0; c < builder->children_count; c++)
        if (builder->children[c].rows > CHILD_ROWS_MAX - MIN(count, CHILD_ROWS_MAX))
            return false;
    builder_list(builder, row, count);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t c = 0; c < builder->children_count; c++) {
            uint32_t child_row = builder_append(&builder->children[c]);
            if (!builder_decode(&builder->children[c], child_row, at, end))
                return false;
        }
    return true;
}

bool builder_decode(struct column_builder *builder, uint32_t row, const char **at, const char *end)
{
    uint8_t is_valid;
    if (!take(at, end, &is_valid, 1) || is_valid > 1)
        return false;
    if (!is_valid) {
        builder_null(builder, row);
        return true;
    }
    struct column *column = builder->column;
    uint32_t length;
    switch (builder->type.tag) {
    case TYPE_BOOL: return take(at, end, &column->bools[row], 1) && column->bools[row] <= 1;
    case TYPE_INT:
    case TYPE_TIME:
    case TYPE_FLOAT: return take(at, end, &column->ints[row], 8);
    case TYPE_TEXT:
    case TYPE_BYTES:
        if (!take(at, end, &length, sizeof(length)) || length > (size_t)(end - *at))
            return false;
        builder_text(builder, row, (struct str){*at, length});
        *at += length;
        return true;
    case TYPE_LIST: return decode_list(builder, row, at, end);
    case TYPE_RECORD: break;
    }
    return false;
}

/* Until builder_finish the texts lie in the builder: lets the columns point to them. */
static void show_heaps(struct column_builder *builder)
{
    if (builder->type.tag == TYPE_TEXT || builder->type.tag == TYPE_BYTES)
        builder->column->heap = builder->heap.data;
    for (uint32_t i = 0; i < builder->children_count; i++)
        show_heaps(&builder->children[i]);
}

void builder_encode(struct column_builder *builder, uint32_t row, struct byte_buffer *out)
{
    show_heaps(builder);
    row_encode_value(out, builder->column, &builder->type, row);
}

void builder_finish(struct column_builder *builder)
{
    if (builder->type.tag == TYPE_TEXT || builder->type.tag == TYPE_BYTES) {
        char *heap = arena_alloc(&builder->batch->arena, builder->heap.length);
        if (builder->heap.length > 0)
            memcpy(heap, builder->heap.data, builder->heap.length);
        builder->column->heap = heap;
        buffer_free(&builder->heap);
    }
    for (uint32_t i = 0; i < builder->children_count; i++) {
        builder->children[i].column->child_rows = 0;
        builder_finish(&builder->children[i]);
    }
    if (builder->type.tag == TYPE_LIST)
        builder->column->child_rows = builder->children_count == 0 ? 0 : builder->children[0].rows;
}
