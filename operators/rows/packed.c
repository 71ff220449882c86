#include "operators/rows/packed.h"

#include "core/varint.h"

enum { HAS_ARRIVAL = 1, HAS_NULLS = 2, FIXED_MAX = 64, TEXTS_FULL = 4 << 20 };

/* --- Packing --- */

static char *put_bytes(char *to, const void *data, size_t bytes)
{
    if (bytes > 0)
        memcpy(to, data, bytes);
    return to + bytes;
}

/* Writes the row's bytes before the columns: flags, layout, times, origin and nulls. */
static char *put_head(char *to, const struct batch *batch, uint32_t row, uint16_t layout, bool has_nulls)
{
    const struct schema *schema = batch->schema;
    struct row_origin origin = batch_origin(batch, row);
    bool has_arrival = batch->arrival_time != NULL;
    *to++ = (char)((has_arrival ? HAS_ARRIVAL : 0) | (has_nulls ? HAS_NULLS : 0));
    to = varint_put(to, layout);
    to = put_bytes(to, &batch->event_time[row], sizeof(int64_t));
    if (has_arrival)
        to = put_bytes(to, &batch->arrival_time[row], sizeof(int64_t));
    to = varint_put(to, origin.partition);
    to = varint_put(to, origin.record);
    if (!has_nulls)
        return to;
    uint32_t bytes = (schema->count + 7) / 8;
    memset(to, 0, bytes);
    for (uint32_t c = 0; c < schema->count; c++)
        if (!column_is_valid(&batch->columns[c], row))
            to[c / 8] = (char)(to[c / 8] | 1 << c % 8);
    return to + bytes;
}

static void put_list(struct byte_buffer *out, const struct column *column, const struct type *type,
                     uint32_t row)
{
    struct byte_buffer list = {0};
    row_encode_value(&list, column, type, row);
    char *to = buffer_reserve(out, VARINT_BYTES_MAX + list.length);
    char *end = put_bytes(varint_put(to, list.length), list.data, list.length);
    out->length += (size_t)(end - to);
    buffer_free(&list);
}

static void put_text(struct byte_buffer *out, struct str text)
{
    char *to = buffer_reserve(out, VARINT_BYTES_MAX + text.length);
    char *end = put_bytes(varint_put(to, text.length), text.data, text.length);
    out->length += (size_t)(end - to);
}

void packed_put(struct byte_buffer *out, const struct batch *batch, uint32_t row, uint16_t layout)
{
    const struct schema *schema = batch->schema;
    bool has_nulls = false;
    for (uint32_t c = 0; c < schema->count; c++)
        has_nulls |= !column_is_valid(&batch->columns[c], row);
    char *to = buffer_reserve(out, FIXED_MAX + schema->count / 8);
    out->length += (size_t)(put_head(to, batch, row, layout, has_nulls) - to);
    for (uint32_t c = 0; c < schema->count; c++) {
        const struct column *column = &batch->columns[c];
        if (has_nulls && !column_is_valid(column, row))
            continue;
        switch (column->tag) {
        case TYPE_TEXT:
        case TYPE_BYTES: put_text(out, column_text(column, row)); continue;
        case TYPE_LIST: put_list(out, column, &schema->fields[c].type, row); continue;
        default: break;
        }
        to = buffer_reserve(out, VARINT_BYTES_MAX);
        char *end = to;
        if (column->tag == TYPE_BOOL)
            *end++ = (char)column->bools[row];
        else if (column->tag == TYPE_FLOAT)
            end = put_bytes(to, &column->floats[row], sizeof(double));
        else
            end = varint_put(to, zigzag((uint64_t)column->ints[row] -
                                        (column->tag == TYPE_TIME ? (uint64_t)batch->event_time[row] : 0)));
        out->length += (size_t)(end - to);
    }
}

/* --- Unpacking --- */

struct bytes {
    const char *at, *end;
    bool is_bad;
};

static uint64_t take_varint(struct bytes *bytes)
{
    uint64_t value = 0;
    const char *behind = varint_take(bytes->at, bytes->end, &value);
    bytes->is_bad |= behind == NULL;
    bytes->at = behind != NULL ? behind : bytes->end;
    return value;
}

/* The next `count` bytes, or NULL if there are fewer. */
static const char *take(struct bytes *bytes, uint64_t count)
{
    bytes->is_bad |= count > (uint64_t)(bytes->end - bytes->at);
    if (bytes->is_bad)
        return NULL;
    bytes->at += count;
    return bytes->at - count;
}

static int64_t take_int(struct bytes *bytes)
{
    int64_t value = 0;
    const char *data = take(bytes, sizeof(value));
    if (data != NULL)
        memcpy(&value, data, sizeof(value));
    return value;
}

void packed_init(struct packed_rows *rows, const struct held_layouts *layouts, const struct schema *schema)
{
    rows->layouts = layouts;
    rows->schema = schema;
}

void packed_free(struct packed_rows *rows)
{
    buffer_free(&rows->heap);
}

void packed_begin(struct packed_rows *rows, struct batch *batch)
{
    leat_assert(batch->rows == BATCH_ROWS);
    rows->batch = batch;
    rows->count = 0;
    rows->origins = arena_alloc(&batch->arena, BATCH_ROWS * sizeof(*rows->origins));
    rows->arrivals = NULL;
    rows->lists = arena_array(&batch->arena, struct column_builder, MAX(rows->schema->count, 1));
    for (uint32_t c = 0; c < rows->schema->count; c++)
        if (rows->schema->fields[c].type.tag == TYPE_LIST)
            builder_init(&rows->lists[c], batch, &batch->columns[c], rows->schema->fields[c].type);
    buffer_clear(&rows->heap);
}

bool packed_is_full(const struct packed_rows *rows)
{
    return rows->count == BATCH_ROWS || rows->heap.length >= TEXTS_FULL;
}

static void set_null(struct packed_rows *rows, uint32_t c)
{
    struct column *column = &rows->batch->columns[c];
    if (column->tag == TYPE_LIST) {
        builder_null(&rows->lists[c], rows->count);
        return;
    }
    if (column->tag == TYPE_BOOL)
        column->bools[rows->count] = 0;
    else
        column->ints[rows->count] = 0; /* also clears a text's reference */
    batch_set_null(rows->batch, column, rows->count);
}

static void take_text(struct packed_rows *rows, struct column *column, struct bytes *bytes)
{
    uint64_t length = take_varint(bytes);
    const char *data = take(bytes, length);
    if (data == NULL)
        length = 0;
    column->texts[rows->count] = (struct text_ref){(uint32_t)rows->heap.length, (uint32_t)length};
    if (length > 0)
        buffer_append(&rows->heap, data, length);
}

static void take_list(struct packed_rows *rows, uint32_t c, struct bytes *bytes)
{
    uint64_t length = take_varint(bytes);
    const char *data = take(bytes, length), *at = data;
    if (data == NULL || !builder_decode(&rows->lists[c], rows->count, &at, data + length))
        builder_null(&rows->lists[c], rows->count);
}

static void take_value(struct packed_rows *rows, uint32_t c, struct bytes *bytes)
{
    struct column *column = &rows->batch->columns[c];
    uint32_t row = rows->count;
    switch (column->tag) {
    case TYPE_TEXT:
    case TYPE_BYTES: take_text(rows, column, bytes); return;
    case TYPE_LIST: take_list(rows, c, bytes); return;
    case TYPE_BOOL: {
        const char *byte = take(bytes, 1);
        column->bools[row] = byte != NULL && *byte != 0;
        return;
    }
    case TYPE_FLOAT: column->ints[row] = take_int(bytes); return;
    default: {
        uint64_t value = unzigzag(take_varint(bytes));
        column->ints[row] =
            (int64_t)(column->tag == TYPE_TIME ? value + (uint64_t)rows->batch->event_time[row] : value);
    }
    }
}

/* Skips the value of a column that the current schema does not have. */
static void skip_value(enum type_tag tag, struct bytes *bytes)
{
    if (tag == TYPE_TEXT || tag == TYPE_BYTES || tag == TYPE_LIST)
        (void)take(bytes, take_varint(bytes));
    else if (tag == TYPE_BOOL || tag == TYPE_FLOAT)
        (void)take(bytes, tag == TYPE_BOOL ? 1 : sizeof(double));
    else
        (void)take_varint(bytes);
}

/* The schema that a row with that layout was packed with; NULL if the layout is unknown. Sets rows->map if
 * the layout is not the current one. */
static const struct schema *schema_of(struct packed_rows *rows, uint64_t layout)
{
    const struct held_layouts *layouts = rows->layouts;
    if (likely(layout == layouts->current))
        return rows->schema;
    for (uint32_t i = 0; i < layouts->count; i++) {
        if (layouts->numbers[i] != layout)
            continue;
        const struct schema *schema = layouts->items[i].schema;
        for (uint32_t c = 0; c < schema->count && (!rows->has_map || rows->mapped_layout != layout); c++) {
            int now = schema_find(rows->schema, schema->fields[c].name);
            bool is_same = now >= 0 && type_equal(&rows->schema->fields[now].type, &schema->fields[c].type);
            rows->map[c] = is_same ? now : -1;
        }
        rows->has_map = true;
        rows->mapped_layout = (uint16_t)layout;
        return schema;
    }
    return NULL;
}

static void take_mapped(struct packed_rows *rows, const struct schema *schema, const uint8_t *nulls,
                        struct bytes *bytes)
{
    uint64_t is_set[BIT_WORDS(SCHEMA_FIELDS_MAX)] = {0};
    for (uint32_t c = 0; c < schema->count; c++) {
        bool is_null = nulls != NULL && (nulls[c / 8] >> c % 8 & 1) != 0;
        int now = rows->map[c];
        if (is_null)
            continue;
        if (now < 0) {
            skip_value(schema->fields[c].type.tag, bytes);
            continue;
        }
        take_value(rows, (uint32_t)now, bytes);
        bit_set(is_set, (size_t)now);
    }
    for (uint32_t c = 0; c < rows->schema->count; c++)
        if (!bit_get(is_set, c))
            set_null(rows, c);
}

static void take_columns(struct packed_rows *rows, const uint8_t *nulls, struct bytes *bytes)
{
    for (uint32_t c = 0; c < rows->schema->count; c++)
        if (nulls != NULL && (nulls[c / 8] >> c % 8 & 1) != 0)
            set_null(rows, c);
        else
            take_value(rows, c, bytes);
}

void packed_add(struct packed_rows *rows, struct str row)
{
    leat_assert(rows->count < BATCH_ROWS);
    struct bytes bytes = {row.data, row.data + row.length, row.length == 0};
    uint8_t flags = bytes.is_bad ? 0 : (uint8_t)*bytes.at++;
    const struct schema *schema = schema_of(rows, take_varint(&bytes));
    rows->batch->event_time[rows->count] = take_int(&bytes);
    if ((flags & HAS_ARRIVAL) != 0) {
        if (rows->arrivals == NULL)
            rows->arrivals = arena_calloc(&rows->batch->arena, BATCH_ROWS, sizeof(*rows->arrivals));
        rows->arrivals[rows->count] = take_int(&bytes);
    }
    uint32_t partition = (uint32_t)take_varint(&bytes);
    rows->origins[rows->count] = (struct row_origin){partition, take_varint(&bytes)};
    const char *nulls = NULL;
    if (schema != NULL && (flags & HAS_NULLS) != 0)
        nulls = take(&bytes, (schema->count + 7) / 8);
    if (schema == NULL || bytes.is_bad)
        for (uint32_t c = 0; c < rows->schema->count; c++)
            set_null(rows, c);
    else if (schema == rows->schema)
        take_columns(rows, (const uint8_t *)nulls, &bytes);
    else
        take_mapped(rows, schema, (const uint8_t *)nulls, &bytes);
    rows->count++;
}

void packed_end(struct packed_rows *rows)
{
    struct batch *batch = rows->batch;
    const char *heap =
        rows->heap.length == 0 ? "" : arena_copy(&batch->arena, rows->heap.data, rows->heap.length);
    for (uint32_t c = 0; c < rows->schema->count; c++) {
        enum type_tag tag = rows->schema->fields[c].type.tag;
        if (tag == TYPE_TEXT || tag == TYPE_BYTES)
            batch->columns[c].heap = heap;
        else if (tag == TYPE_LIST)
            builder_finish(&rows->lists[c]);
    }
    batch->origins = rows->origins;
    batch->arrival_time = rows->arrivals;
    batch->rows = batch->selected = rows->count;
    rows->batch = NULL;
}
