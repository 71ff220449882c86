#include "core/batch_codec.h"

struct codec_header {
    uint32_t rows;
    uint32_t has_arrival;
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
    uint64_t head[2] = {column->valid != NULL, 0};
    if (is_text(column->tag))
        for (uint32_t i = 0; i < rows; i++)
            head[1] = MAX(head[1], (uint64_t)column->texts[i].offset + column->texts[i].length);
    if (column->tag == TYPE_LIST)
        head[1] = column->child_rows;
    put(out, begin, head, sizeof(head));
    if (column->valid != NULL)
        put(out, begin, column->valid, valid_bytes(rows));
    put(out, begin, column->data, column_rows_bytes(column->tag, rows));
    if (is_text(column->tag))
        put(out, begin, column->heap, head[1]);
    if (column->tag != TYPE_LIST)
        return;
    uint64_t children = column->children_count;
    put(out, begin, &children, sizeof(children));
    for (uint32_t i = 0; i < column->children_count; i++) {
        uint64_t tag = column->children[i].tag;
        put(out, begin, &tag, sizeof(tag));
        put_column(out, begin, &column->children[i], column->child_rows);
    }
}

void batch_write(const struct batch *batch, struct byte_buffer *out)
{
    struct batch *sources[BATCH_ROWS];
    uint16_t rows[BATCH_ROWS];
    for (uint32_t i = 0; i < batch->selected; i++) {
        sources[i] = (struct batch *)(uintptr_t)batch;
        rows[i] = (uint16_t)batch_row(batch, i);
    }
    struct batch *dense = batch_gather(batch->pool, batch->schema, sources, rows, batch->selected);
    size_t begin = out->length;
    struct codec_header header = {dense->rows, dense->arrival_time != NULL};
    put(out, begin, &header, sizeof(header));
    put(out, begin, dense->event_time, dense->rows * sizeof(int64_t));
    if (header.has_arrival)
        put(out, begin, dense->arrival_time, dense->rows * sizeof(int64_t));
    put(out, begin, dense->origins, dense->rows * sizeof(struct row_origin));
    put(out, begin, dense->orders, dense->rows * sizeof(struct row_order));
    for (uint32_t i = 0; i < dense->schema->count; i++)
        put_column(out, begin, &dense->columns[i], dense->rows);
    batch_release(dense);
}

struct codec_reader {
    char *data;
    size_t length, at;
};

static void *take(struct codec_reader *reader, size_t bytes)
{
    void *data = reader->data + reader->at;
    reader->at += (bytes + 7) / 8 * 8;
    leat_assert(reader->at <= reader->length);
    return data;
}

static void take_column(struct codec_reader *reader, struct batch *batch, struct column *column,
                        uint32_t rows)
{
    uint64_t head[2];
    memcpy(head, take(reader, sizeof(head)), sizeof(head));
    column->valid = head[0] != 0 ? take(reader, valid_bytes(rows)) : NULL;
    column->data = take(reader, column_rows_bytes(column->tag, rows));
    if (is_text(column->tag))
        column->heap = take(reader, head[1]);
    if (column->tag != TYPE_LIST)
        return;
    column->child_rows = (uint32_t)head[1];
    uint64_t *children = take(reader, sizeof(uint64_t));
    column->children_count = (uint32_t)*children;
    column->children = arena_array(&batch->arena, struct column, column->children_count);
    for (uint32_t i = 0; i < column->children_count; i++) {
        column->children[i].tag = (enum type_tag) * (uint64_t *)take(reader, sizeof(uint64_t));
        take_column(reader, batch, &column->children[i], column->child_rows);
    }
}

struct batch *batch_read(struct batch_pool *pool, const struct schema *schema, struct str bytes)
{
    struct codec_header header;
    leat_assert(bytes.length >= sizeof(header));
    memcpy(&header, bytes.data, sizeof(header));
    struct batch *batch = batch_new(pool, schema, header.rows);
    struct codec_reader reader = {arena_alloc(&batch->arena, bytes.length), bytes.length, sizeof(header)};
    memcpy(reader.data, bytes.data, bytes.length);
    batch->event_time = take(&reader, header.rows * sizeof(int64_t));
    if (header.has_arrival != 0)
        batch->arrival_time = take(&reader, header.rows * sizeof(int64_t));
    batch->origins = take(&reader, header.rows * sizeof(struct row_origin));
    batch->orders = take(&reader, header.rows * sizeof(struct row_order));
    for (uint32_t i = 0; i < schema->count; i++)
        take_column(&reader, batch, &batch->columns[i], header.rows);
    return batch;
}
