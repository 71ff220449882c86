/* Rows by key, in the order in which they came: what a join remembers of both its sides.
 *
 * A key's rows are one list. The newest lie in the key's entry of a table, behind one another; when they are
 * more than a few KiB they are sealed into a chunk, an entry of a second table, and a directory entry of the
 * key says for each chunk which rows it may have: so a row that comes costs the same under a key with three
 * rows and under one with a million, and a search by time reads the chunks that it needs. Chunks and
 * directory have keys of their own whose hash is in the key group of the key they belong to; that two get the
 * same one is noticed, and another is taken.
 *
 * A row lives while the watermark is not beyond its `until`, to the microsecond: what lies in the table
 * longer is not seen. The entries expire with the last of their rows. */
#ifndef LEAT_OPERATORS_KEY_ROWS_H
#define LEAT_OPERATORS_KEY_ROWS_H

#include "core/buffer.h"
#include "core/operator.h"
#include "state/state.h"

enum kept_side { KEPT_LEFT, KEPT_RIGHT, KEPT_BEST, KEPT_SIDES };

/* Its data follows: the order key, to a multiple of 8 bytes, and the row as held.h packs it. */
struct kept_row {
    uint32_t bytes; /* with this head and the data; a multiple of 8 */
    uint8_t side, is_marked;
    uint16_t
        run;     /* of the first of neighbours of one side: eighths of their bytes; of the others their own */
    uint64_t id; /* rises with each row of the key */
    int64_t from, to; /* what it can meet; of a right row: its time, twice */
    int64_t until;    /* the last watermark that it outlives */
    uint32_t order_bytes, row_bytes;
};

enum { KEPT_ROW_BYTES_MAX = 4 << 20 };

static inline struct str kept_order(const struct kept_row *row)
{
    return (struct str){(const char *)(row + 1), row->order_bytes};
}

static inline struct str kept_packed(const struct kept_row *row)
{
    return (struct str){(const char *)(row + 1) + ((row->order_bytes + 7) & ~7U), row->row_bytes};
}

struct key_rows {
    struct keyed_table *heads, *chunks;
    int64_t watermark;
    uint64_t rows_max; /* that one key had at a time */
    struct key rows_max_key;
    uint64_t restored_epoch; /* of the checkpoint that these two are from */
    struct byte_buffer changes, wanted, sealed;
};

/* kinds: of the two tables, for their snapshots. */
void key_rows_open(struct key_rows *rows, const struct operator_context *context, const char kinds[2],
                   size_t memory_bytes);
void key_rows_close(struct key_rows *rows);
void key_rows_set_watermark(struct key_rows *rows, int64_t watermark);

/* rows_max through checkpoints: writes a record whose first byte is `kind`, takes in such a record. */
bool key_rows_put_max(const struct key_rows *rows, char kind, struct snapshot_writer *writer);
bool key_rows_take_max(struct key_rows *rows, const struct operator_context *context,
                       struct snapshot_reader *reader, struct str record);

/* What a visit does with the row that it was shown: a sum of these. */
enum kept_action { KEPT_STAY = 0, KEPT_DROP = 1, KEPT_MARK = 2, KEPT_STOP = 4 };
typedef unsigned kept_visit(void *argument, const struct kept_row *row);

struct kept_query {
    unsigned sides;    /* bits */
    int64_t from, to;  /* rows whose [from, to] shares a moment with this one */
    uint64_t first_id; /* rows from here on; moves on with each row that was shown */
    uint64_t last_id;  /* to here */
};

static inline struct kept_query kept_query_of(enum kept_side side, int64_t from, int64_t to)
{
    return (struct kept_query){.sides = 1U << side, .from = from, .to = to, .last_id = UINT64_MAX};
}

/* Between keyed_begin and keyed_end of `heads`. slot: the key's. Shows the living rows that the query is
 * about, in their order, until one is answered with KEPT_STOP: then false. The rows must not be changed
 * meanwhile. */
bool key_rows_visit(struct key_rows *rows, struct keyed_slot *slot, struct kept_query *query,
                    kept_visit *visit, void *argument);
/* Adds a row, whose head says everything but bytes and id, and returns its id; UINT64_MAX: it has more than
 * KEPT_ROW_BYTES_MAX. */
uint64_t key_rows_add(struct key_rows *rows, struct keyed_slot *slot, const struct kept_row *head,
                      const char *order, const char *packed);

#endif
