#include "core/batch_codec.h"

#include "core/mem.h"

#include <stdlib.h>

/* The bytes: a head, arrays of the rows' times, origins and orders, the columns. A column: its head, its
 * bitmap if it has nulls, its data, then the heap of a text or the children of a list. Each array begins at a
 * multiple of 8 bytes. */
struct codec_head {
    uint32_t rows;
    uint16_t has_arrival, has_order; /* has_order: origins and orders */
    uint64_t columns;                /* that are written */
};

struct column_head {
    uint16_t tag, has_nulls;
    uint32_t children_count;
    uint64_t extent; /* bytes of the heap, or rows of the children */
};

/* Appends data and pads it with zeros, so that every array begins at a multiple of 8 bytes from `begin`, the
 * offset in `out` of the batch's first byte. */
static void put(struct byte_buffer *out, size_t begin, const void *data, size_t bytes)
{
    buffer_append(out, data, bytes);
    static const char zeros[8];
    buffer_append(out, zeros, (8 - (out->length - begin) % 8) % 8);
}

static size_t column_rows_bytes(enum type_tag tag, uint32_t rows)
{
    return (size_t)rows * (tag == TYPE_BOOL ? 1 : 8);
}

/* Bytes of a bitmap for `rows` rows: never below BATCH_VALID_WORDS, because expressions
 * read whole bitmaps. */
static size_t valid_bytes(uint32_t rows)
{
    return MAX(BIT_WORDS((size_t)rows), (size_t)BATCH_VALID_WORDS) * sizeof(uint64_t);
}

static bool is_text(enum type_tag tag)
{
    return tag == TYPE_TEXT || tag == TYPE_BYTES;
}

static void put_column(struct byte_buffer *out, size_t begin, const struct column *column, uint32_t rows)
{
    struct column_head head = {.tag = (uint16_t)column->tag, .has_nulls = column->valid != NULL};
    if (is_text(column->tag))
        for (uint32_t i = 0; i < rows; i++)
            head.extent = MAX(head.extent, (uint64_t)column->texts[i].offset + column->texts[i].length);
    if (column->tag == TYPE_LIST) {
        head.extent = column->child_rows;
        head.children_count = column->children_count;
    }
    put(out, begin, &head, sizeof(head));
    if (column->valid != NULL)
        put(out, begin, column->valid, valid_bytes(rows));
    put(out, begin, column->data, column_rows_bytes(column->tag, rows));
    if (is_text(column->tag))
        put(out, begin, column->heap, head.extent);
    for (uint32_t i = 0; i < head.children_count; i++)
        put_column(out, begin, &column->children[i], column->child_rows);
}

static void write_batch(const struct batch *batch, bool has_order, struct byte_buffer *out)
{
    struct batch *sources[BATCH_ROWS];
    uint16_t rows[BATCH_ROWS];
    for (uint32_t i = 0; i < batch->selected; i++) {
        sources[i] = (struct batch *)(uintptr_t)batch;
        rows[i] = (uint16_t)batch_row(batch, i);
    }
    struct batch *dense = batch_gather(batch->pool, batch->schema, sources, rows, batch->selected);
    size_t begin = out->length;
    struct codec_head head = {dense->rows, dense->arrival_time != NULL, has_order, dense->schema->count};
    put(out, begin, &head, sizeof(head));
    put(out, begin, dense->event_time, dense->rows * sizeof(int64_t));
    if (head.has_arrival)
        put(out, begin, dense->arrival_time, dense->rows * sizeof(int64_t));
    if (has_order) {
        put(out, begin, dense->origins, dense->rows * sizeof(struct row_origin));
        put(out, begin, dense->orders, dense->rows * sizeof(struct row_order));
    }
    for (uint32_t i = 0; i < dense->schema->count; i++)
        put_column(out, begin, &dense->columns[i], dense->rows);
    batch_release(dense);
}

void batch_write(const struct batch *batch, struct byte_buffer *out)
{
    write_batch(batch, true, out);
}

/* --- Chosen columns of fixed width without nulls: each value is copied once, and nothing is allocated --- */

static bool are_plain(const struct batch *batch, const bool *columns)
{
    for (uint32_t i = 0; i < batch->schema->count; i++) {
        const struct column *column = &batch->columns[i];
        if (columns[i] && (column->valid != NULL || is_text(column->tag) || column->tag == TYPE_LIST))
            return false;
    }
    return true;
}

/* Appends the values of the selected rows, padded. */
static void put_values(struct byte_buffer *out, const struct batch *batch, const void *values, size_t width)
{
    size_t bytes = batch->selected * width, padded = (bytes + 7) / 8 * 8;
    char *to = buffer_reserve(out, padded);
    memset(to + bytes, 0, padded - bytes);
    if (batch->sel == NULL) {
        memcpy(to, values, bytes);
    } else if (width == 1) {
        for (uint32_t i = 0; i < batch->selected; i++)
            to[i] = ((const char *)values)[batch->sel[i]];
    } else {
        for (uint32_t i = 0; i < batch->selected; i++)
            memcpy(to + i * sizeof(int64_t), (const int64_t *)values + batch->sel[i], sizeof(int64_t));
    }
    out->length += padded;
}

static void write_plain(const struct batch *batch, const bool *columns, struct byte_buffer *out)
{
    struct codec_head head = {.rows = batch->selected, .has_arrival = batch->arrival_time != NULL};
    for (uint32_t i = 0; i < batch->schema->count; i++)
        head.columns += columns[i];
    buffer_append(out, &head, sizeof(head));
    put_values(out, batch, batch->event_time, sizeof(int64_t));
    if (head.has_arrival)
        put_values(out, batch, batch->arrival_time, sizeof(int64_t));
    for (uint32_t i = 0; i < batch->schema->count; i++) {
        const struct column *column = &batch->columns[i];
        struct column_head column_head = {.tag = (uint16_t)column->tag};
        if (!columns[i])
            continue;
        buffer_append(out, &column_head, sizeof(column_head));
        put_values(out, batch, column->data, column_rows_bytes(column->tag, 1));
    }
}

void batch_write_columns(const struct batch *batch, const bool *columns, struct byte_buffer *out)
{
    const struct schema *schema = batch->schema;
    if (batch->selected > 0 && are_plain(batch, columns)) {
        write_plain(batch, columns, out);
        return;
    }
    struct schema chosen = {.fields = mem_alloc(schema->count * sizeof(struct field))};
    for (uint32_t i = 0; i < schema->count; i++)
        if (columns[i])
            chosen.fields[chosen.count++] = schema->fields[i];
    struct batch *view = batch_derive((struct batch *)(uintptr_t)batch, &chosen);
    for (uint32_t i = 0, at = 0; i < schema->count; i++)
        if (columns[i])
            view->columns[at++] = batch->columns[i];
    write_batch(view, false, out);
    batch_release(view);
    free(chosen.fields);
}

/* --- Reading: a take that does not fit gives NULL, and nothing it gives is used unchecked --- */

struct codec_reader {
    char *data;
    size_t length, at;
    struct batch *batch;
};

static void *take(struct codec_reader *reader, size_t bytes)
{
    size_t left = reader->length - reader->at;
    if (bytes > left || (bytes + 7) / 8 * 8 > left)
        return NULL;
    void *data = reader->data + reader->at;
    reader->at += (bytes + 7) / 8 * 8;
    return data;
}

static bool bools_are_good(const uint8_t *bools, uint32_t rows)
{
    uint8_t all = 0;
    for (uint32_t i = 0; i < rows; i++)
        all |= bools[i];
    return all <= 1;
}

static bool texts_are_good(const struct text_ref *texts, uint32_t rows, uint64_t heap)
{
    for (uint32_t i = 0; i < rows; i++)
        if ((uint64_t)texts[i].offset + texts[i].length > heap)
            return false;
    return true;
}

/* Lists lie one behind the other in the children's rows. */
static bool lists_are_good(const struct list_ref *lists, uint32_t rows, uint64_t child_rows)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < rows; i++) {
        if (lists[i].offset < end)
            return false;
        end = (uint64_t)lists[i].offset + lists[i].length;
    }
    return end <= child_rows;
}

/* The type of a list's child column. */
static const struct type *child_type(const struct type *list, uint32_t index)
{
    bool is_record = list->element->tag == TYPE_RECORD;
    return is_record ? &list->element->fields->fields[index].type : list->element;
}

static uint32_t children_of(const struct type *list)
{
    return list->element->tag == TYPE_RECORD ? list->element->fields->count : 1;
}

static bool take_column(struct codec_reader *reader, struct column *column, const struct type *type,
                        uint32_t rows);

static bool take_children(struct codec_reader *reader, struct column *column, const struct type *type,
                          const struct column_head *head, uint32_t rows)
{
    if (head->extent > UINT32_MAX || !lists_are_good(column->lists, rows, head->extent))
        return false;
    /* A column without rows may lack its children: batch_gather knows no types. */
    bool is_bare = rows == 0 && head->extent == 0 && head->children_count == 0;
    if (!is_bare && head->children_count != children_of(type))
        return false;
    column->child_rows = (uint32_t)head->extent;
    column->children_count = head->children_count;
    column->children = arena_array(&reader->batch->arena, struct column, head->children_count);
    for (uint32_t i = 0; i < head->children_count; i++)
        if (!take_column(reader, &column->children[i], child_type(type, i), column->child_rows))
            return false;
    return true;
}

static bool take_column(struct codec_reader *reader, struct column *column, const struct type *type,
                        uint32_t rows)
{
    const struct column_head *head = take(reader, sizeof(*head));
    if (head == NULL || head->tag != type->tag || head->has_nulls > 1)
        return false;
    *column = (struct column){.tag = type->tag};
    if (head->has_nulls) {
        column->valid = take(reader, valid_bytes(rows));
        if (column->valid == NULL)
            return false;
    }
    column->data = take(reader, column_rows_bytes(type->tag, rows));
    if (column->data == NULL)
        return false;
    if (type->tag == TYPE_LIST)
        return take_children(reader, column, type, head, rows);
    if (head->children_count != 0)
        return false;
    if (type->tag == TYPE_BOOL)
        return head->extent == 0 && bools_are_good(column->bools, rows);
    if (!is_text(type->tag))
        return head->extent == 0;
    column->heap = take(reader, head->extent);
    return column->heap != NULL && texts_are_good(column->texts, rows, head->extent);
}

/* Makes a column that batch_new has made null in every row, with zeros under the nulls. */
static void make_null(struct batch *batch, struct column *column)
{
    column->valid = arena_alloc(&batch->arena, valid_bytes(batch->rows));
    memset(column->valid, 0, valid_bytes(batch->rows));
    memset(column->data, 0, column_rows_bytes(column->tag, batch->rows));
    column->heap = "";
    column->child_rows = 0;
}

static bool take_rows(struct codec_reader *reader, const struct codec_head *head)
{
    struct batch *batch = reader->batch;
    batch->event_time = take(reader, batch->rows * sizeof(int64_t));
    if (head->has_arrival != 0)
        batch->arrival_time = take(reader, batch->rows * sizeof(int64_t));
    if (batch->event_time == NULL || (head->has_arrival != 0 && batch->arrival_time == NULL))
        return false;
    if (head->has_order == 0) {
        batch->partition = PARTITION_NONE;
        batch->order_time = batch->event_time;
        return true;
    }
    batch->origins = take(reader, batch->rows * sizeof(struct row_origin));
    batch->orders = take(reader, batch->rows * sizeof(struct row_order));
    return batch->origins != NULL && batch->orders != NULL;
}

struct batch *batch_read_columns(struct batch_pool *pool, const struct schema *schema, const bool *columns,
                                 struct str bytes)
{
    struct codec_head head;
    uint64_t chosen = 0;
    for (uint32_t i = 0; i < schema->count; i++)
        chosen += columns == NULL || columns[i];
    if (bytes.length < sizeof(head))
        return NULL;
    memcpy(&head, bytes.data, sizeof(head));
    if (head.rows > BATCH_ROWS || head.has_arrival > 1 || head.has_order > 1 || head.columns != chosen)
        return NULL;
    struct batch *batch = batch_new(pool, schema, head.rows);
    struct codec_reader reader = {arena_alloc(&batch->arena, bytes.length), bytes.length, sizeof(head),
                                  batch};
    memcpy(reader.data, bytes.data, bytes.length);
    bool is_good = take_rows(&reader, &head);
    for (uint32_t i = 0; is_good && i < schema->count; i++) {
        if (columns == NULL || columns[i])
            is_good = take_column(&reader, &batch->columns[i], &schema->fields[i].type, head.rows);
        else
            make_null(batch, &batch->columns[i]);
    }
    if (is_good && reader.at == reader.length)
        return batch;
    batch_release(batch);
    return NULL;
}

struct batch *batch_read(struct batch_pool *pool, const struct schema *schema, struct str bytes)
{
    struct batch *batch = batch_read_columns(pool, schema, NULL, bytes);
    leat_assert(batch != NULL);
    return batch;
}
