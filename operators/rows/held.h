/* Rows that an operator holds back, as bytes: the same in a time queue, in checkpoints and on disk.
 *
 *     head | null bits, one per column | 8 bytes for each column | tail: bytes of texts and lists
 *
 * The 8 bytes are the value (a bool as 0 or 1), or offset and length within the tail; 0 under a null. A list
 * is encoded as in rows/codec.h. Rows are packed and unpacked in blocks, column by column, so that a type
 * is looked up once per column, not per value. Bytes to be unpacked are checked, as they may come from a
 * checkpoint. */
#ifndef LEAT_OPERATORS_ROWS_HELD_H
#define LEAT_OPERATORS_ROWS_HELD_H

#include "core/operator_state.h"
#include "operators/rows/codec.h"

struct held_head {
    int64_t event_time, arrival_time;
    uint64_t record;
    uint32_t partition;
    uint8_t has_arrival, has_null; /* has_null: of the row's key; 0, or set by the operator after held_pack */
    uint16_t layout;               /* number of the layout it was packed with */
};

/* The head of a packed row, of any layout; bytes that a broken row lacks are 0. */
static inline struct held_head held_head_of(struct str row)
{
    struct held_head head = {0};
    memcpy(&head, row.data, MIN(row.length, sizeof(head)));
    return head;
}

struct held_layout {
    const struct schema *schema;
    uint32_t fixed_bytes; /* of head, null bits and columns */
};

/* Offset of a column's 8 bytes in a packed row. */
size_t held_column_at(const struct held_layout *layout, uint32_t column);

/* The layouts that an operator's rows may be packed with: the schema of its input may change with the job,
 * and each row has the number of its layout. Beyond HELD_LAYOUTS_MAX the oldest layout is dropped; a row that
 * still has it would be unpacked as nulls. */
enum { HELD_LAYOUTS_MAX = 64 };
struct held_layouts {
    struct held_layout now; /* of new rows, and of all rows that come out */
    struct held_layout items[HELD_LAYOUTS_MAX];
    uint16_t numbers[HELD_LAYOUTS_MAX];
    uint32_t count;
    uint16_t current; /* number of `now` */
    struct byte_buffer row;
    struct arena arena;
};

/* For a new run: one layout, of this schema, with number 0. */
void held_layouts_init(struct held_layouts *layouts, const struct schema *schema);
void held_layouts_free(struct held_layouts *layouts);
/* Appends all layouts to `out`, for a checkpoint, and reads them back. schema: that of the job now, which
 * becomes the current layout. False: `data` cannot be what held_layouts_save wrote. */
void held_layouts_save(const struct held_layouts *layouts, struct byte_buffer *out);
bool held_layouts_load(struct held_layouts *layouts, struct str data, const struct schema *schema);
/* Converts a packed row to the layout `now`: unchanged if it has it already, else with null in columns that it
 * lacks. Valid until the next call. */
struct str held_layouts_convert(struct held_layouts *layouts, struct str row);
/* Writes the lines for `operator_kind.shape` about rows held in this schema. */
void held_shape(const struct schema *schema, struct arena *arena, struct byte_buffer *out);
/* A struct held_layouts * as a member of an operator's state: made for the schema that schema_member points to,
 * absent where that is NULL. */
extern const struct state_kind state_layouts;
#define STATE_LAYOUTS(structure, member, tag_, schema_member)                                                \
    {                                                                                                        \
        .kind = &state_layouts, .offset = OFFSET_OF(structure, member, struct held_layouts *), .tag = tag_,  \
        .schema = OFFSET_OF(structure, schema_member, const struct schema *)                                 \
    }

/* Packs `count` rows of the batch one after the other, with the layout `now`. rows: physical rows. Row i lies at
 * offsets[i], up to offsets[i + 1]: offsets has count + 1 elements. `out` is cleared first. */
void held_pack(const struct held_layouts *layouts, const struct batch *batch, const uint16_t *rows,
               uint32_t count, struct arena *scratch, struct byte_buffer *out, size_t *offsets);

/* Packed rows on their way into a batch of at most BATCH_ROWS rows; its first columns are those of `now`. */
struct held_rows {
    struct byte_buffer fixed, tails;
    uint32_t tail_at[BATCH_ROWS + 1];
    uint32_t count;
};

/* Adds a copy of a packed row, converted to `now`, and returns its head. Data too short for the row's layout
 * becomes a row of nulls. */
const struct held_head *held_add(struct held_layouts *layouts, struct held_rows *rows, struct str data);
/* Whether to unpack now: there are BATCH_ROWS rows, or their texts and lists are large. */
bool held_is_full(const struct held_rows *rows);
/* Sets event times, arrival times, origins and the first columns of the batch, and empties `rows`. batch:
 * made for BATCH_ROWS rows. */
void held_unpack(const struct held_layouts *layouts, struct held_rows *rows, struct batch *batch);
void held_rows_free(struct held_rows *rows);

/* For `leat state get`: writes the columns of a batch's row 0, or of a packed row, by name into the open
 * record. */
struct describe;
void held_describe_columns(const struct schema *schema, const struct batch *batch,
                           struct operator_context *context, struct describe *out);
void held_describe(struct held_layouts *layouts, struct str row, struct operator_context *context,
                   struct describe *out);

#endif
