/* Packed rows: rows that an operator holds back, as bytes. The form is the same in a time queue, in
 * checkpoints and on disk.
 *
 *     head | null bits, one per column | 8 bytes for each column | tail: bytes of texts and lists
 *
 * A column's 8 bytes are the value (a bool as 0 or 1), or for a text or list its offset and length within the
 * tail; 0 for a null. A list is encoded as in rows/codec.h. Rows are packed and unpacked in blocks, column by
 * column, so that a type is looked up once per column, not per value. Unpacking checks the bytes, because
 * they may come from a damaged checkpoint. */
#ifndef LEAT_OPERATORS_ROWS_HELD_H
#define LEAT_OPERATORS_ROWS_HELD_H

#include "core/operator_state.h"
#include "operators/rows/codec.h"

struct held_head {
    int64_t event_time, arrival_time; /* microseconds */
    uint64_t record;
    uint32_t partition;
    uint8_t has_arrival, has_null; /* has_null: of the row's key; held_pack sets 0, the operator may set 1 */
    uint16_t layout;               /* number of the layout that the row was packed with */
};

/* The head of a packed row, of any layout. If the row is shorter than a head, the missing bytes are 0. */
static inline struct held_head held_head_of(struct str row)
{
    struct held_head head = {0};
    memcpy(&head, row.data, MIN(row.length, sizeof(head)));
    return head;
}

struct held_layout {
    const struct schema *schema;
    uint32_t fixed_bytes; /* bytes before the tail: head, null bits and columns */
};

/* Offset of a column's 8 bytes in a packed row. */
size_t held_column_at(const struct held_layout *layout, uint32_t column);

/* All layouts that an operator's packed rows may have. A changed job may change the schema of the operator's
 * input; rows packed before the change keep their old layout, whose number is in their head. Beyond
 * HELD_LAYOUTS_MAX the oldest layout is dropped; a row that still has that layout would be unpacked as
 * nulls. */
enum { HELD_LAYOUTS_MAX = 64 };
struct held_layouts {
    struct held_layout now; /* the present layout: rows are packed and unpacked with it */
    struct held_layout items[HELD_LAYOUTS_MAX];
    uint16_t numbers[HELD_LAYOUTS_MAX]; /* numbers[i]: number of the layout items[i] */
    uint32_t count;
    uint16_t current;       /* number of `now` */
    struct byte_buffer row; /* result of held_layouts_convert */
    struct arena arena;     /* schemas read from a checkpoint */
};

/* For a new run: one layout, that of `schema`, with number 0. */
void held_layouts_init(struct held_layouts *layouts, const struct schema *schema);
void held_layouts_free(struct held_layouts *layouts);
/* held_layouts_save appends all layouts to `out`, for a checkpoint; held_layouts_load reads them back.
 * schema: the input's schema in the present job, which gives the layout `now`. Returns false if `data` is not
 * what held_layouts_save writes. */
void held_layouts_save(const struct held_layouts *layouts, struct byte_buffer *out);
bool held_layouts_load(struct held_layouts *layouts, struct str data, const struct schema *schema);
/* Converts a packed row to the layout `now`. A row that has this layout, or is shorter than a head, is
 * returned as it is. Else the result is a copy, valid until the next call, with null in each column that the
 * row's layout does not have with the same name and type; an empty text if the row's layout is not known or
 * the row is too short for it. */
struct str held_layouts_convert(struct held_layouts *layouts, struct str row);
/* For `operator_kind.shape`: writes one line for each column of the held rows' schema. */
void held_shape(const struct schema *schema, struct arena *arena, struct byte_buffer *out);
/* A struct held_layouts * as a member of an operator's state. schema_member: member of the operator's config,
 * a pointer to the schema of the rows; where it is NULL, the state member is NULL, too. */
extern const struct state_kind state_layouts;
#define STATE_LAYOUTS(structure, member, tag_, schema_member)                                                \
    {                                                                                                        \
        .kind = &state_layouts, .offset = OFFSET_OF(structure, member, struct held_layouts *), .tag = tag_,  \
        .schema = OFFSET_OF(structure, schema_member, const struct schema *)                                 \
    }

/* Packs `count` rows of the batch into `out` one after the other, with the layout `now`. rows: their physical
 * rows. The i-th packed row is out[offsets[i] .. offsets[i + 1]); offsets has room for count + 1. `out` is
 * cleared first. */
void held_pack(const struct held_layouts *layouts, const struct batch *batch, const uint16_t *rows,
               uint32_t count, struct arena *scratch, struct byte_buffer *out, size_t *offsets);

/* Up to BATCH_ROWS packed rows of the layout `now`, collected for held_unpack. Row i: fixed_bytes of `fixed`,
 * and tails[tail_at[i] .. tail_at[i + 1]). */
struct held_rows {
    struct byte_buffer fixed, tails;
    uint32_t tail_at[BATCH_ROWS + 1];
    uint32_t count;
};

/* Adds a copy of a packed row, converted to the layout `now`, and returns the copy's head, valid until the
 * next call. Data too short for the row's layout becomes a row of nulls. */
const struct held_head *held_add(struct held_layouts *layouts, struct held_rows *rows, struct str data);
/* Whether to call held_unpack before the next held_add: `rows` has BATCH_ROWS rows, or several MiB of texts
 * and lists. */
bool held_is_full(const struct held_rows *rows);
/* Writes the packed rows into the batch, and empties `rows`: sets the batch's event times, arrival times,
 * origins, and its first columns, which must be those of the layout `now`. batch: has BATCH_ROWS rows. */
void held_unpack(const struct held_layouts *layouts, struct held_rows *rows, struct batch *batch);
void held_rows_free(struct held_rows *rows);

/* For `leat state get`: prints the columns of row 0 of a batch (held_describe_columns), or of a packed row
 * (held_describe), with their names, as values of the record that is open in `out`. */
struct describe;
void held_describe_columns(const struct schema *schema, const struct batch *batch,
                           struct operator_context *context, struct describe *out);
void held_describe(struct held_layouts *layouts, struct str row, struct operator_context *context,
                   struct describe *out);

#endif
