/* Rows that are kept for long, in few bytes: rows of some numbers and texts take about half of the bytes that
 * held.h needs. Each byte saved is one less to clear, to copy and to write to disk.
 *
 *     flags | layout | event time | arrival time | partition | record | nulls | columns
 *
 * Ints, and times as their distance from the row's event time, are zigzag varints (7 bits a byte, the lowest
 * first); floats take 8 bytes, bools 1; texts and lists are a varint of their length, then their bytes, lists
 * encoded as rows/codec.h says. The arrival time is present only if the row has one, the bitmap of nulls
 * only if a column is null; a null takes no bytes. Rows are checked when they are read: they may come from a
 * checkpoint. */
#ifndef LEAT_OPERATORS_ROWS_PACKED_H
#define LEAT_OPERATORS_ROWS_PACKED_H

#include "operators/rows/held.h"

/* Appends the row to `out`. row: physical. layout: the number that the batch's schema has in the operator's
 * held_layouts. */
void packed_put(struct byte_buffer *out, const struct batch *batch, uint32_t row, uint16_t layout);

/* A batch being made of packed rows; its first columns are those of the current layout. */
struct packed_rows {
    const struct held_layouts *layouts;
    const struct schema *schema; /* of the current layout */
    struct batch *batch;
    struct column_builder *lists; /* one for each column, used for lists only */
    struct row_origin *origins;
    int64_t *arrivals; /* arrival times, microseconds; NULL: no row so far has one */
    uint32_t count;
    struct byte_buffer heap; /* bytes of all texts */
    /* map[c]: the current column for column c of the layout mapped_layout; -1: there is none. */
    uint16_t mapped_layout;
    bool has_map;
    int map[SCHEMA_FIELDS_MAX];
};

/* schema: the schema of the layout layouts->now. Both must outlive `rows`, which must be zeroed. */
void packed_init(struct packed_rows *rows, const struct held_layouts *layouts, const struct schema *schema);
void packed_free(struct packed_rows *rows); /* allowed on a zeroed struct */
/* Starts to fill `batch`, which the caller has made with BATCH_ROWS rows and owns. */
void packed_begin(struct packed_rows *rows, struct batch *batch);
/* Adds the next row, unpacked; copies its texts. Values whose bytes are not valid become null, 0 or empty. */
void packed_add(struct packed_rows *rows, struct str row);
/* Whether to call packed_end before the next packed_add: the batch has BATCH_ROWS rows, or several MiB of
 * texts. */
bool packed_is_full(const struct packed_rows *rows);
/* Ends the batch with rows->count rows. The caller fills columns behind the schema's. */
void packed_end(struct packed_rows *rows);

#endif
