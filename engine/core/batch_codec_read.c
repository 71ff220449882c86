/* Reading a batch: a take that does not fit fails, and nothing it gives is used unchecked. A column gets memory only for
 * rows that the bytes can hold: a value takes at least a bit of them, a text or list a byte. */
#include "core/batch_codec_format.h"

struct wire_reader {
    const char *at, *end;
    struct batch *batch;
    uint32_t partitions; /* of rows: less than this, or none */
};

static size_t bytes_left(const struct wire_reader *reader)
{
    return (size_t)(reader->end - reader->at);
}

static const void *take(struct wire_reader *reader, size_t bytes)
{
    const char *data = reader->at;
    if (bytes > bytes_left(reader))
        return NULL;
    reader->at += bytes;
    return data;
}

/* --- Columns --- */

static size_t bits_bytes(uint32_t bits)
{
    return (bits + (size_t)7) / 8;
}

/* NULL: they are not there, or a bit behind the last is set. */
static const uint8_t *take_bits(struct wire_reader *reader, uint32_t bits)
{
    const uint8_t *data = take(reader, bits_bytes(bits));
    bool has_more = data != NULL && bits % 8 != 0 && data[bits / 8] >> bits % 8 != 0;
    return has_more ? NULL : data;
}

static bool take_nulls(struct wire_reader *reader, struct column *column, uint32_t rows)
{
    const uint8_t *bits = take_bits(reader, rows);
    if (bits == NULL)
        return false;
    column->valid = batch_valid_new(reader->batch, rows);
    uint8_t *valid = (uint8_t *)column->valid;
    memcpy(valid, bits, rows / 8);
    if (rows % 8 != 0)
        valid[rows / 8] = (uint8_t)(bits[rows / 8] | 0xff << rows % 8);
    return true;
}

static bool take_bools(struct wire_reader *reader, struct column *column, uint32_t rows)
{
    const uint8_t *bits = take_bits(reader, rows);
    for (uint32_t i = 0; bits != NULL && i < rows; i++)
        column->bools[i] = bits[i / 8] >> i % 8 & 1;
    return bits != NULL;
}

static bool take_words(struct wire_reader *reader, struct column *column, uint32_t rows)
{
    const void *words = take(reader, rows * sizeof(int64_t));
    if (words == NULL)
        return false;
    memcpy(column->data, words, rows * sizeof(int64_t));
    return true;
}

/* Takes the lengths of texts or lists, which lie one behind the other. most: none is longer. *sum: of all. */
static bool take_lengths(struct wire_reader *reader, struct text_ref *refs, uint32_t rows, uint32_t most,
                         uint32_t *sum)
{
    const uint8_t *width = take(reader, 1);
    if (width == NULL || (*width != 1 && *width != 2 && *width != 4))
        return false;
    const char *data = take(reader, (size_t)rows * *width);
    if (data == NULL)
        return false;
    uint64_t end = 0;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t length = 0;
        if (*width == 1)
            length = (uint8_t)data[i];
        else
            memcpy(&length, data + (size_t)i * *width, *width);
        refs[i] = (struct text_ref){(uint32_t)end, length};
        longest = MAX(longest, length);
        end += length;
    }
    *sum = (uint32_t)end;
    return longest <= most && end <= UINT32_MAX;
}

static bool take_texts(struct wire_reader *reader, struct column *column, uint32_t rows)
{
    uint32_t bytes;
    if (!take_lengths(reader, column->texts, rows, UINT32_MAX, &bytes))
        return false;
    const char *data = take(reader, bytes);
    column->heap = bytes == 0 || data == NULL ? "" : arena_copy(&reader->batch->arena, data, bytes);
    return data != NULL;
}

static bool take_column(struct wire_reader *reader, struct column *column, const struct type *type,
                        uint32_t rows);

/* Makes a column of no rows, with what lies below. */
static void make_empty(struct batch *batch, struct column *column, const struct type *type)
{
    batch_column_init(batch, column, *type, 0);
    column->heap = "";
    for (uint32_t i = 0; i < column->children_count; i++)
        make_empty(batch, &column->children[i], wire_child_type(type, i));
}

static bool take_lists(struct wire_reader *reader, struct column *column, const struct type *type,
                       uint32_t rows)
{
    uint32_t most = type->length_max == 0 ? UINT32_MAX : type->length_max;
    if (!take_lengths(reader, column->texts, rows, most, &column->child_rows))
        return false;
    for (uint32_t i = 0; i < column->children_count; i++) {
        const struct type *below = wire_child_type(type, i);
        if (column->child_rows == 0)
            make_empty(reader->batch, &column->children[i], below);
        else if (!take_column(reader, &column->children[i], below, column->child_rows))
            return false;
    }
    return true;
}

/* Bytes that so many values take at least. */
static size_t least_bytes(enum type_tag tag, uint32_t rows)
{
    switch (tag) {
    case TYPE_BOOL: return bits_bytes(rows);
    case TYPE_TEXT:
    case TYPE_BYTES:
    case TYPE_LIST: return rows;
    default: return rows * sizeof(int64_t);
    }
}

static bool take_column(struct wire_reader *reader, struct column *column, const struct type *type,
                        uint32_t rows)
{
    const uint8_t *tag = take(reader, 1);
    if (tag == NULL || (*tag & ~WIRE_NULLS) != (int)type->tag ||
        least_bytes(type->tag, rows) > bytes_left(reader))
        return false;
    if (column->data == NULL) /* a child's; batch_new has made the others */
        batch_column_init(reader->batch, column, *type, rows);
    if ((*tag & WIRE_NULLS) != 0 && !take_nulls(reader, column, rows))
        return false;
    switch (type->tag) {
    case TYPE_BOOL: return take_bools(reader, column, rows);
    case TYPE_TEXT:
    case TYPE_BYTES: return take_texts(reader, column, rows);
    case TYPE_LIST: return take_lists(reader, column, type, rows);
    default: return take_words(reader, column, rows);
    }
}

/* Makes a column that batch_new has made null in every row, with zeros under the nulls. */
static void make_null(struct batch *batch, struct column *column)
{
    column->valid = batch_valid_new(batch, batch->rows);
    memset(column->valid, 0,
           MAX(BIT_WORDS((size_t)batch->rows), (size_t)BATCH_VALID_WORDS) * sizeof(uint64_t));
    memset(column->data, 0, batch->rows * (column->tag == TYPE_BOOL ? sizeof(uint8_t) : sizeof(int64_t)));
    column->heap = "";
    column->child_rows = 0;
}

/* --- Times, origins and orders --- */

static bool take_sequence(struct wire_reader *reader, struct wire_sequence *sequence)
{
    const char *after = wire_take_sequence(reader->at, reader->end, reader->batch->rows, sequence);
    if (after != NULL)
        reader->at = after;
    return after != NULL;
}

static bool take_times(struct wire_reader *reader, int64_t *times)
{
    struct wire_sequence sequence;
    if (!take_sequence(reader, &sequence))
        return false;
    wire_decode(&sequence, reader->end, reader->batch->rows, times);
    return true;
}

static bool is_line(const struct wire_sequence *sequence, uint64_t step)
{
    return sequence->form <= WIRE_LINE && sequence->step == step;
}

/* Whether the rows follow each other in one partition, as batch_write has written them. */
static bool are_read_rows(const struct wire_sequence *fields, uint32_t rows)
{
    for (int field = 0; field < WIRE_FIELDS; field++) {
        bool is_good = field == WIRE_TIME        ? true
                       : field == WIRE_RECORD    ? is_line(&fields[field], rows > 1)
                       : field == WIRE_PARTITION ? is_line(&fields[field], 0)
                                                 : fields[field].form == WIRE_ZEROS;
        if (!is_good)
            return false;
    }
    return true;
}

static const int64_t *order_times_from(const struct batch *batch, uint8_t flags)
{
    return (flags & WIRE_TIME_PLAIN) != 0     ? NULL
           : (flags & WIRE_TIME_ARRIVAL) != 0 ? batch->arrival_time
                                              : batch->event_time;
}

static void decode_order_times(const struct wire_reader *reader, const struct wire_sequence *sequence,
                               const int64_t *from, int64_t *times)
{
    wire_decode(sequence, reader->end, reader->batch->rows, times);
    for (uint32_t i = 0; from != NULL && i < reader->batch->rows; i++)
        times[i] = (int64_t)((uint64_t)times[i] + (uint64_t)from[i]);
}

/* partition: the number + 1. */
static bool is_good_partition(const struct wire_reader *reader, uint64_t partition)
{
    return partition <= UINT32_MAX && (partition == 0 || partition - 1 < reader->partitions);
}

static bool set_read_rows(struct wire_reader *reader, const struct wire_sequence *fields, const int64_t *from)
{
    struct batch *batch = reader->batch;
    batch->partition = (uint32_t)fields[WIRE_PARTITION].base - 1;
    batch->first_record = fields[WIRE_RECORD].base;
    if (from != NULL && fields[WIRE_TIME].form == WIRE_ZEROS) {
        batch->order_time = (int64_t *)(uintptr_t)from;
    } else {
        batch->order_time = arena_alloc(&batch->arena, batch->rows * sizeof(int64_t));
        decode_order_times(reader, &fields[WIRE_TIME], from, batch->order_time);
    }
    return is_good_partition(reader, fields[WIRE_PARTITION].base);
}

/* Whether each row's order follows from its origin, but for its time: put_merged_rows has written them. */
static bool are_merged_rows(const struct wire_sequence *fields)
{
    for (int field = 0; field < WIRE_FIELDS; field++)
        if (field != WIRE_PARTITION && field != WIRE_RECORD && field != WIRE_TIME &&
            fields[field].form != WIRE_ZEROS)
            return false;
    return true;
}

static bool set_merged_rows(struct wire_reader *reader, const struct wire_sequence *fields,
                            const int64_t *from)
{
    int64_t partitions[BATCH_ROWS], records[BATCH_ROWS], times[BATCH_ROWS];
    struct batch *batch = reader->batch;
    wire_decode(&fields[WIRE_PARTITION], reader->end, batch->rows, partitions);
    wire_decode(&fields[WIRE_RECORD], reader->end, batch->rows, records);
    decode_order_times(reader, &fields[WIRE_TIME], from, times);
    struct row_origin *origins = arena_alloc(&batch->arena, batch->rows * sizeof(*origins));
    struct row_order *orders = arena_alloc(&batch->arena, batch->rows * sizeof(*orders));
    bool is_good = true;
    for (uint32_t i = 0; i < batch->rows; i++) {
        uint32_t partition = (uint32_t)((uint64_t)partitions[i] - 1);
        uint64_t record = (uint64_t)records[i];
        origins[i] = (struct row_origin){partition, record};
        orders[i] = (struct row_order){.partition = partition, .time = times[i], .tie = record};
        is_good &= is_good_partition(reader, (uint64_t)partitions[i]);
    }
    batch->origins = origins;
    batch->orders = orders;
    return is_good;
}

static bool set_any_rows(struct wire_reader *reader, const struct wire_sequence *fields, const int64_t *from)
{
    int64_t values[WIRE_FIELDS][BATCH_ROWS];
    struct batch *batch = reader->batch;
    for (int field = 0; field < WIRE_FIELDS; field++)
        if (field == WIRE_TIME)
            decode_order_times(reader, &fields[field], from, values[field]);
        else
            wire_decode(&fields[field], reader->end, batch->rows, values[field]);
    struct row_origin *origins = arena_alloc(&batch->arena, batch->rows * sizeof(*origins));
    struct row_order *orders = arena_alloc(&batch->arena, batch->rows * sizeof(*orders));
    bool is_good = true;
    for (uint32_t i = 0; i < batch->rows; i++) {
        uint64_t partition = (uint64_t)values[WIRE_PARTITION][i], record = (uint64_t)values[WIRE_RECORD][i];
        uint64_t place = (uint64_t)values[WIRE_PLACE][i], depth = (uint64_t)values[WIRE_DEPTH][i];
        int64_t distance = values[WIRE_ORDER_PARTITION][i];
        uint32_t of_order = (uint32_t)(partition - 1 + (uint64_t)distance);
        origins[i] = (struct row_origin){(uint32_t)(partition - 1), record};
        orders[i] = (struct row_order){.place = (uint16_t)place,
                                       .depth = (uint16_t)depth,
                                       .partition = of_order,
                                       .time = values[WIRE_TIME][i],
                                       .tie = (uint64_t)values[WIRE_TIE][i] + record,
                                       .sub = (uint64_t)values[WIRE_SUB][i]};
        is_good &= is_good_partition(reader, partition) &&
                   is_good_partition(reader, (uint32_t)(of_order + 1)) && distance == (int32_t)distance &&
                   place <= UINT16_MAX && depth <= UINT16_MAX;
    }
    batch->origins = origins;
    batch->orders = orders;
    return is_good;
}

static bool take_rows(struct wire_reader *reader, uint8_t flags)
{
    struct batch *batch = reader->batch;
    struct wire_sequence fields[WIRE_FIELDS];
    if (!take_times(reader, batch->event_time))
        return false;
    if ((flags & WIRE_ARRIVAL) != 0) {
        batch->arrival_time = arena_alloc(&batch->arena, batch->rows * sizeof(int64_t));
        if (!take_times(reader, batch->arrival_time))
            return false;
    }
    if ((flags & WIRE_ORDER) == 0)
        return true;
    for (int field = 0; field < WIRE_FIELDS; field++)
        if (!take_sequence(reader, &fields[field]))
            return false;
    const int64_t *from = order_times_from(batch, flags);
    if (are_read_rows(fields, batch->rows))
        return set_read_rows(reader, fields, from);
    return (are_merged_rows(fields) ? set_merged_rows : set_any_rows)(reader, fields, from);
}

/* --- Batches --- */

static bool is_good_head(const struct wire_head *head, uint64_t columns, bool has_order)
{
    uint32_t time = head->flags & (WIRE_TIME_PLAIN | WIRE_TIME_ARRIVAL);
    bool is_good_time =
        time == 0 || (has_order && (time == WIRE_TIME_PLAIN ||
                                    (time == WIRE_TIME_ARRIVAL && (head->flags & WIRE_ARRIVAL) != 0)));
    uint32_t all = WIRE_ARRIVAL | WIRE_ORDER | WIRE_TIME_PLAIN | WIRE_TIME_ARRIVAL;
    bool is_bare = head->rows == 0 && (head->flags & ~WIRE_ORDER) != 0; /* times of no rows */
    return head->rows <= BATCH_ROWS && head->version == BATCH_WIRE_VERSION && head->columns == columns &&
           (head->flags & ~all) == 0 && ((head->flags & WIRE_ORDER) != 0) == has_order && is_good_time &&
           !is_bare;
}

/* columns: those that are there; NULL: all. */
static struct batch *read_batch(struct batch_pool *pool, const struct schema *schema, const bool *columns,
                                bool has_order, uint32_t partitions, struct str bytes)
{
    struct wire_head head;
    uint64_t chosen = 0;
    for (uint32_t i = 0; i < schema->count; i++)
        chosen += columns == NULL || columns[i];
    if (bytes.length < sizeof(head))
        return NULL;
    memcpy(&head, bytes.data, sizeof(head));
    if (!is_good_head(&head, chosen, has_order))
        return NULL;
    struct batch *batch = batch_new(pool, schema, head.rows);
    batch->order_time = has_order ? NULL : batch->event_time;
    struct wire_reader reader = {bytes.data + sizeof(head), bytes.data + bytes.length, batch, partitions};
    bool is_good = head.rows == 0 || take_rows(&reader, head.flags);
    for (uint32_t i = 0; is_good && i < schema->count; i++) {
        if (columns == NULL || columns[i])
            is_good = take_column(&reader, &batch->columns[i], &schema->fields[i].type, head.rows);
        else
            make_null(batch, &batch->columns[i]);
    }
    if (is_good && reader.at == reader.end)
        return batch;
    batch_release(batch);
    return NULL;
}

struct batch *batch_read(struct batch_pool *pool, const struct schema *schema, struct str bytes,
                         uint32_t partitions)
{
    return read_batch(pool, schema, NULL, true, partitions, bytes);
}

struct batch *batch_read_columns(struct batch_pool *pool, const struct schema *schema, const bool *columns,
                                 struct str bytes)
{
    return read_batch(pool, schema, columns, false, UINT32_MAX, bytes);
}
