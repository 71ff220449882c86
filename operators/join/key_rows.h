/* Rows by key, in the order in which they came: what a join keeps of both its sides.
 *
 * The rows of a key are one list. The newest lie one after the other in the key's entry of the table `heads`.
 * When they are more than a few KiB they are sealed into a chunk, an entry of the table `chunks`, and the
 * key's directory, an entry of `chunks` too, says for each chunk which rows it may have. So adding a row
 * costs the same whether its key has three rows or a million, and a search by time reads only the chunks that
 * it needs. Chunks and directories have table keys of their own, whose hash is in the key group of the key
 * that they belong to (the owner). If another piece has the same table key already, the new piece gets
 * another table key.
 *
 * A row lives until the watermark is past its `until`, to the microsecond: a row that lies in the table
 * longer is not shown. The entries expire with the last of their rows. */
#ifndef LEAT_OPERATORS_JOIN_KEY_ROWS_H
#define LEAT_OPERATORS_JOIN_KEY_ROWS_H

#include "core/buffer.h"
#include "state/members.h"

enum key_row_side { KEY_ROW_LEFT, KEY_ROW_RIGHT, KEY_ROW_BEST, KEY_ROW_SIDES };

/* The head of a stored row. Behind it lie the order key, padded to a multiple of 8 bytes, and the row as
 * held.h packs it. Rows of one side that follow one another may form a run, which a search skips as a
 * whole. */
struct key_row {
    uint32_t bytes; /* of this head and the data; a multiple of 8 */
    uint8_t side, is_marked;
    uint16_t run;     /* first row of a run: bytes / 8 of the run; else of the row; 0: more than UINT16_MAX */
    uint64_t id;      /* rises with each row of the key */
    int64_t from, to; /* left: reach; right: event time, twice; best: id of its left row, twice */
    int64_t until;    /* the last watermark at which the row lives, microseconds */
    uint32_t order_bytes, row_bytes;
};

enum { KEY_ROW_BYTES_MAX = 4 << 20 };

static inline struct str key_row_order(const struct key_row *row)
{
    return (struct str){(const char *)(row + 1), row->order_bytes};
}

static inline struct str key_row_packed(const struct key_row *row)
{
    return (struct str){(const char *)(row + 1) + ((row->order_bytes + 7) & ~7U), row->row_bytes};
}

struct key_rows {
    struct keyed_table *heads, *chunks;
    uint64_t rows_max; /* most rows that one key had at a time */
    struct key rows_max_key;
    uint64_t restored_epoch; /* of the checkpoint that rows_max and its key come from */
    struct byte_buffer changes, wanted, sealed;
};

/* A struct key_rows as members of an operator's state: its rows_max and both tables. rows_max is reported as
 * `state_key_rows_max`. plan_heads, plan_chunks: plan functions (state_member.plan) that share the memory
 * between the tables, about three to one. */
extern const struct state_kind state_key_rows;
#define STATE_KEY_ROWS(structure, member, plan_heads, plan_chunks)                                           \
    {.kind = &state_key_rows, .offset = OFFSET_OF(structure, member, struct key_rows), .tag = 'm'},          \
        STATE_TABLE(structure, member.heads, 'h', plan_heads),                                               \
        STATE_TABLE(structure, member.chunks, 'c', plan_chunks)

/* What a visitor returns for a row: a sum of these. KEY_ROW_MARK sets is_marked; KEY_ROW_STOP ends the visit. */
enum key_row_action { KEY_ROW_STAY = 0, KEY_ROW_DROP = 1, KEY_ROW_MARK = 2, KEY_ROW_STOP = 4 };
typedef unsigned key_row_visitor(void *argument, const struct key_row *row);

struct key_rows_query {
    unsigned sides;    /* bit 1 << side for each key_row_side that is asked for */
    int64_t from, to;  /* only rows whose [from, to] overlaps this interval */
    uint64_t first_id; /* only rows with this id or a later one; set to 1 + the id of each row shown */
    uint64_t last_id;  /* only rows up to this id */
};

static inline struct key_rows_query key_rows_query_of(enum key_row_side side, int64_t from, int64_t to)
{
    return (struct key_rows_query){.sides = 1U << side, .from = from, .to = to, .last_id = UINT64_MAX};
}

/* Shows a key's living rows that match the query to `visit`, in their order. slot: the key's entry in
 * `heads`, inside a bracket. Returns false if the visitor returned KEY_ROW_STOP: a call with the same query
 * goes on behind that row. The visitor must not change rows. */
bool key_rows_visit(struct key_rows *rows, struct keyed_slot *slot, struct key_rows_query *query,
                    key_row_visitor *visit, void *argument);
/* Shows the same rows, and changes nothing (keyed_peek). slot: the key's entry, of a peek at `heads`. The visitor returns
 * KEY_ROW_STAY, or KEY_ROW_STOP, which ends the visit. */
void key_rows_peek(struct key_rows *rows, const struct keyed_slot *slot, struct key_rows_query *query,
                   key_row_visitor *visit, void *argument);
/* Adds a row. slot: as in key_rows_visit. head: all fields but bytes, run and id are set. order, packed:
 * copied, of head->order_bytes and head->row_bytes bytes. Returns the row's id; UINT64_MAX if the row has
 * more than KEY_ROW_BYTES_MAX bytes, and was not added. */
uint64_t key_rows_add(struct key_rows *rows, struct keyed_slot *slot, const struct key_row *head,
                      const char *order, const char *packed);

#endif
