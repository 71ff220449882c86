#include "core/batch_codec_format.h"
#include "core/mem.h"

#include <stdlib.h>

const struct type *wire_child_type(const struct type *list, uint32_t index)
{
    bool is_record = list->element->tag == TYPE_RECORD;
    return is_record ? &list->element->fields->fields[index].type : list->element;
}

uint32_t wire_children_of(const struct type *list)
{
    return list->element->tag == TYPE_RECORD ? list->element->fields->count : 1;
}

/* The rows of a column that are written. */
struct wire_rows {
    const uint32_t *index; /* NULL: first, first + 1, ... */
    uint32_t first, count;
};

static uint32_t row_at(const struct wire_rows *rows, uint32_t i)
{
    return rows->index == NULL ? rows->first + i : rows->index[i];
}

/* --- Values --- */

static void put_words(struct byte_buffer *out, const int64_t *values, const struct wire_rows *rows)
{
    char *to = buffer_reserve(out, rows->count * sizeof(*values));
    if (rows->index == NULL && rows->count > 0)
        memcpy(to, values + rows->first, rows->count * sizeof(*values));
    for (uint32_t i = 0; rows->index != NULL && i < rows->count; i++)
        memcpy(to + i * sizeof(*values), values + rows->index[i], sizeof(*values));
    out->length += rows->count * sizeof(*values);
}

static void put_bools(struct byte_buffer *out, const uint8_t *bools, const struct wire_rows *rows)
{
    size_t bytes = (rows->count + (size_t)7) / 8;
    uint8_t *to = (uint8_t *)buffer_reserve(out, bytes);
    memset(to, 0, bytes);
    for (uint32_t i = 0; i < rows->count; i++)
        to[i / 8] |= (uint8_t)((bools[row_at(rows, i)] & 1) << i % 8);
    out->length += bytes;
}

/* Returns whether there are nulls; where not, nothing is appended. */
static bool put_nulls(struct byte_buffer *out, const uint64_t *valid, const struct wire_rows *rows)
{
    size_t bytes = (rows->count + (size_t)7) / 8;
    if (valid == NULL)
        return false;
    uint8_t *to = (uint8_t *)buffer_reserve(out, bytes);
    memset(to, 0, bytes);
    bool has_nulls = false;
    for (uint32_t i = 0; i < rows->count; i++) {
        bool is_valid = bit_get(valid, row_at(rows, i));
        to[i / 8] |= (uint8_t)(is_valid << i % 8);
        has_nulls |= !is_valid;
    }
    out->length += has_nulls ? bytes : 0;
    return has_nulls;
}

_Static_assert(sizeof(struct text_ref) == sizeof(struct list_ref) &&
                   offsetof(struct text_ref, length) == offsetof(struct list_ref, length),
               "lengths of texts and of lists are written by the same code");

/* Appends the lengths of texts or lists. Returns their sum. */
static uint64_t put_lengths(struct byte_buffer *out, const struct text_ref *texts,
                            const struct wire_rows *rows)
{
    uint64_t sum = 0;
    uint32_t all = 0;
    for (uint32_t i = 0; i < rows->count; i++) {
        uint32_t length = texts[row_at(rows, i)].length;
        all |= length;
        sum += length;
    }
    uint32_t width = all <= UINT8_MAX ? 1 : all <= UINT16_MAX ? 2 : 4;
    char *to = buffer_reserve(out, 1 + (size_t)rows->count * width + sizeof(uint32_t));
    *to++ = (char)width;
    for (uint32_t i = 0; i < rows->count; i++, to += width) /* the next one is written over the zeros */
        memcpy(to, &texts[row_at(rows, i)].length, sizeof(uint32_t));
    out->length += 1 + (size_t)rows->count * width;
    leat_assert(sum <= UINT32_MAX);
    return sum;
}

/* Whether the texts' bytes or the lists' elements lie one behind the other. */
static bool are_adjacent(const struct text_ref *texts, const struct wire_rows *rows)
{
    uint64_t end = rows->count == 0 ? 0 : texts[row_at(rows, 0)].offset;
    for (uint32_t i = 0; i < rows->count; i++) {
        struct text_ref text = texts[row_at(rows, i)];
        if (text.offset != end)
            return false;
        end += text.length;
    }
    return true;
}

static void put_texts(struct byte_buffer *out, const struct column *column, const struct wire_rows *rows)
{
    uint64_t sum = put_lengths(out, column->texts, rows);
    if (sum == 0)
        return;
    if (are_adjacent(column->texts, rows)) {
        buffer_append(out, column->heap + column->texts[row_at(rows, 0)].offset, sum);
        return;
    }
    char *to = buffer_reserve(out, sum);
    for (uint32_t i = 0; i < rows->count; i++) {
        struct text_ref text = column->texts[row_at(rows, i)];
        if (text.length > 0)
            memcpy(to, column->heap + text.offset, text.length);
        to += text.length;
    }
    out->length += sum;
}

static void put_column(struct byte_buffer *out, const struct column *column, const struct type *type,
                       const struct wire_rows *rows);

static void put_lists(struct byte_buffer *out, const struct column *column, const struct type *type,
                      const struct wire_rows *rows)
{
    uint32_t total = (uint32_t)put_lengths(out, column->texts, rows), at = 0;
    if (total == 0) /* then a column may lack its children: batch_gather knows no types */
        return;
    leat_assert(column->children_count == wire_children_of(type));
    struct wire_rows elements = {.first = column->lists[row_at(rows, 0)].offset, .count = total};
    uint32_t *index = NULL;
    if (!are_adjacent(column->texts, rows)) {
        elements.index = index = mem_alloc(total * sizeof(*index));
        for (uint32_t i = 0; i < rows->count; i++) {
            struct list_ref list = column->lists[row_at(rows, i)];
            for (uint32_t k = 0; k < list.length; k++)
                index[at++] = list.offset + k;
        }
    }
    for (uint32_t i = 0; i < column->children_count; i++)
        put_column(out, &column->children[i], wire_child_type(type, i), &elements);
    free(index);
}

static void put_column(struct byte_buffer *out, const struct column *column, const struct type *type,
                       const struct wire_rows *rows)
{
    leat_assert(column->tag == type->tag);
    size_t begin = out->length;
    buffer_append(out, &(char){(char)type->tag}, 1);
    if (put_nulls(out, column->valid, rows))
        out->data[begin] = (char)(type->tag | WIRE_NULLS);
    switch (type->tag) {
    case TYPE_BOOL: put_bools(out, column->bools, rows); break;
    case TYPE_TEXT:
    case TYPE_BYTES: put_texts(out, column, rows); break;
    case TYPE_LIST: put_lists(out, column, type, rows); break;
    default: put_words(out, column->ints, rows); break;
    }
}

/* --- Times, origins and orders --- */

/* The rows that are written, in arrays of `count`. */
struct wire_times {
    const int64_t *event, *arrival; /* arrival: NULL: none */
    uint32_t count;
};

/* Writes those of the rows to `room`, unless they lie together. */
static const int64_t *times_of(const int64_t *times, const struct wire_rows *rows, int64_t *room)
{
    if (rows->index == NULL || times == NULL)
        return times;
    for (uint32_t i = 0; i < rows->count; i++)
        room[i] = times[rows->index[i]];
    return room;
}

static bool is_constant_from(const int64_t *times, const int64_t *from, uint32_t count)
{
    uint64_t first = (uint64_t)times[0] - (uint64_t)from[0];
    for (uint32_t i = 1; i < count; i++)
        if ((uint64_t)times[i] - (uint64_t)from[i] != first)
            return false;
    return true;
}

/* Appends the times of orders, NULL: all are 0: only their distance where all are as far from the rows' event times, or arrival times.
 * Returns the flag that says so. */
static enum wire_flag put_order_times(struct byte_buffer *out, const struct wire_times *times,
                                      const int64_t *order)
{
    enum wire_flag flag = WIRE_TIME_PLAIN;
    const int64_t *from = NULL;
    if (order == NULL) {
        wire_put_line(out, 0, 0);
        return flag;
    }
    if (is_constant_from(order, times->event, times->count))
        flag = 0, from = times->event;
    else if (times->arrival != NULL && is_constant_from(order, times->arrival, times->count))
        flag = WIRE_TIME_ARRIVAL, from = times->arrival;
    if (from != NULL)
        wire_put_line(out, (uint64_t)order[0] - (uint64_t)from[0], 0);
    else
        wire_put_sequence(out, order, times->count);
    return flag;
}

static void put_records(struct byte_buffer *out, const struct batch *batch, const struct wire_rows *rows)
{
    int64_t records[BATCH_ROWS];
    if (rows->index == NULL) {
        wire_put_line(out, batch->first_record, rows->count > 1);
        return;
    }
    for (uint32_t i = 0; i < rows->count; i++)
        records[i] = (int64_t)(batch->first_record + rows->index[i]);
    wire_put_sequence(out, records, rows->count);
}

/* Rows of one partition, numbered as they lie in the batch: what put_any_rows writes, without a look at each row's
 * origin and order. Returns a flag of the head. */
static enum wire_flag put_read_rows(struct byte_buffer *out, const struct batch *batch,
                                    const struct wire_rows *rows, const struct wire_times *times)
{
    int64_t room[BATCH_ROWS];
    enum wire_flag flag = 0;
    for (int field = 0; field < WIRE_FIELDS; field++) {
        if (field == WIRE_PARTITION)
            wire_put_line(out, (uint32_t)(batch->partition + 1), 0);
        else if (field == WIRE_RECORD)
            put_records(out, batch, rows);
        else if (field == WIRE_TIME)
            flag = put_order_times(out, times, times_of(batch->order_time, rows, room));
        else
            wire_put_line(out, 0, 0);
    }
    return flag;
}

/* Reads the fields of rows that were merged, whose order follows from their origin but for the time; false: that is not so of all. */
static bool read_merged(const struct batch *batch, const struct wire_rows *rows, int64_t *partitions,
                        int64_t *records, int64_t *times)
{
    uint64_t differ = 0;
    if (batch->origins == NULL || batch->orders == NULL)
        return false;
    for (uint32_t i = 0; i < rows->count; i++) {
        const struct row_origin *origin = &batch->origins[row_at(rows, i)];
        const struct row_order *order = &batch->orders[row_at(rows, i)];
        partitions[i] = (uint32_t)(origin->partition + 1);
        records[i] = (int64_t)origin->record;
        times[i] = order->time;
        differ |= order->place | order->depth | (order->partition ^ origin->partition) |
                  (order->tie ^ origin->record) | order->sub;
    }
    return differ == 0;
}

/* What put_any_rows writes of such rows, without a look at the fields that are all zero. */
static enum wire_flag put_merged_rows(struct byte_buffer *out, const struct wire_times *times,
                                      const int64_t *partitions, const int64_t *records, const int64_t *order)
{
    enum wire_flag flag = 0;
    for (int field = 0; field < WIRE_FIELDS; field++) {
        if (field == WIRE_TIME)
            flag = put_order_times(out, times, order);
        else if (field == WIRE_PARTITION || field == WIRE_RECORD)
            wire_put_sequence(out, field == WIRE_PARTITION ? partitions : records, times->count);
        else
            wire_put_line(out, 0, 0);
    }
    return flag;
}

static enum wire_flag put_any_rows(struct byte_buffer *out, const struct batch *batch,
                                   const struct wire_rows *rows, const struct wire_times *times)
{
    int64_t fields[WIRE_FIELDS][BATCH_ROWS];
    for (uint32_t i = 0; i < rows->count; i++) {
        struct row_origin origin = batch_origin(batch, row_at(rows, i));
        struct row_order order = batch_order(batch, row_at(rows, i));
        fields[WIRE_PARTITION][i] = (uint32_t)(origin.partition + 1);
        fields[WIRE_RECORD][i] = (int64_t)origin.record;
        fields[WIRE_PLACE][i] = order.place;
        fields[WIRE_DEPTH][i] = order.depth;
        fields[WIRE_ORDER_PARTITION][i] = (int32_t)(order.partition - origin.partition);
        fields[WIRE_TIME][i] = order.time;
        fields[WIRE_TIE][i] = (int64_t)(order.tie - origin.record);
        fields[WIRE_SUB][i] = (int64_t)order.sub;
    }
    enum wire_flag flag = 0;
    for (int field = 0; field < WIRE_FIELDS; field++) {
        if (field == WIRE_TIME)
            flag = put_order_times(out, times, fields[field]);
        else
            wire_put_sequence(out, fields[field], rows->count);
    }
    return flag;
}

/* Returns the head's flags. */
static uint8_t put_rows(struct byte_buffer *out, const struct batch *batch, const struct wire_rows *rows,
                        bool has_order)
{
    int64_t event[BATCH_ROWS], arrival[BATCH_ROWS];
    int64_t partitions[BATCH_ROWS], records[BATCH_ROWS], order[BATCH_ROWS];
    struct wire_times times = {times_of(batch->event_time, rows, event),
                               times_of(batch->arrival_time, rows, arrival), rows->count};
    enum wire_flag flag = 0;
    wire_put_sequence(out, times.event, rows->count);
    if (times.arrival != NULL)
        wire_put_sequence(out, times.arrival, rows->count);
    if (has_order && batch->origins == NULL && batch->orders == NULL)
        flag = put_read_rows(out, batch, rows, &times);
    else if (has_order && read_merged(batch, rows, partitions, records, order))
        flag = put_merged_rows(out, &times, partitions, records, order);
    else if (has_order)
        flag = put_any_rows(out, batch, rows, &times);
    return (uint8_t)(flag | (times.arrival != NULL ? WIRE_ARRIVAL : 0));
}

/* --- Batches --- */

/* columns: those that are written; NULL: all. */
static void write_batch(const struct batch *batch, const bool *columns, bool has_order,
                        struct byte_buffer *out)
{
    enum { MORE = 3 }; /* times, and what texts need: so mostly memory is reserved once */
    const struct schema *schema = batch->schema;
    uint32_t index[BATCH_ROWS];
    struct wire_rows rows = {.count = batch->selected};
    for (uint32_t i = 0; batch->sel != NULL && i < batch->selected; i++)
        index[i] = batch->sel[i];
    if (batch->sel != NULL)
        rows.index = index;
    struct wire_head head = {(uint16_t)rows.count, has_order ? WIRE_ORDER : 0, BATCH_WIRE_VERSION, 0};
    for (uint32_t i = 0; i < schema->count; i++)
        head.columns = (uint16_t)(head.columns + (columns == NULL || columns[i]));
    size_t begin = out->length;
    buffer_reserve(out, (rows.count + (size_t)8) * (head.columns + (size_t)MORE) * sizeof(int64_t));
    buffer_append(out, &head, sizeof(head));
    if (rows.count > 0)
        head.flags |= put_rows(out, batch, &rows, has_order);
    memcpy(out->data + begin, &head, sizeof(head));
    for (uint32_t i = 0; i < schema->count; i++)
        if (columns == NULL || columns[i])
            put_column(out, &batch->columns[i], &schema->fields[i].type, &rows);
}

void batch_write(const struct batch *batch, struct byte_buffer *out)
{
    write_batch(batch, NULL, true, out);
}

void batch_write_columns(const struct batch *batch, const bool *columns, struct byte_buffer *out)
{
    write_batch(batch, columns, false, out);
}
