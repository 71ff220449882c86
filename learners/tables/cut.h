/*
 * Cuts of a table: what changed since the last cut, as bytes, for copies of the table that answer requests and
 * never learn ("followers", restored from a checkpoint). A cut ends an epoch, as a snapshot does, so a row's first
 * change since then takes the slow branch that notes it (table_mark_changed): noting costs nothing elsewhere. A cut
 * and a snapshot do not disturb each other.
 *
 * A cut has the keys removed since, then the rows changed since, as they are now, then the cells of the sketch that
 * changed, or, if those are many, its blocks. Of a row it has key, count, seen and what predictions read of the payload
 * (struct table_options): about half of the bytes where each weight has an accumulator. Removed keys come first: a key
 * that was removed and came again is in both. A row that has changed and then moved to the cold store is in the cut as it moved, before the other rows: it
 * may have come back. So a cut taken twice, or by a table restored from a snapshot taken between it and the cut
 * before, gives the same.
 *
 * The owner's thread makes all calls, between calls of table_resolve.
 */
#ifndef LEAT_LEARNERS_TABLES_CUT_H
#define LEAT_LEARNERS_TABLES_CUT_H

#include "core/buffer.h"
#include "learners/tables/table.h"

/* A learner's cuts end at this epoch, and leave those that follow to checkpoints. */
#define CUT_EPOCH_LAST (UINT32_MAX - (UINT32_C(1) << 24))

/* What changed since the last cut. Two lists of changed rows, because a thread that looks rows up ahead adds rows while
 * the learning thread touches others (table_look): numbers of rows, or keys where rows are inline and move. A row may
 * be there twice, or have been removed since. */
struct table_cut {
    uint32_t since; /* the epoch that the last cut closed: rows of later epochs have been noted */
    bool is_moving; /* rows are moving to the cold store: their keys are not removed ones */
    struct table_keys changed, added;
    struct table_keys removed; /* keys */
    struct byte_buffer moved;  /* rows as they are in a cut */
};

/* From now on changes are noted (is_on), or no longer; what was noted is forgotten. is_on: closes the epoch
 * `closing`, at least the one in progress. Memory for the notes grows until the next cut. Shards cannot be given
 * away meanwhile. */
void table_cut_note(struct table *table, bool is_on, uint32_t closing);
/* About how many bytes a cut would have now, at least those of its rows. Notes are on. */
size_t table_cut_bytes(const struct table *table);
/* Appends the cut to `out`, and closes the epoch `closing`, at least the one in progress. */
void table_cut(struct table *table, uint32_t closing, struct byte_buffer *out);
/*
 * Appends a cut whose parts were gathered elsewhere (device/cut.c). shape: a table of the same options, for their layout
 * alone. removed: keys; rows: stored rows (table_stored_bytes), a row that has moved to the cold store before the row of
 * its key that came back; blocks: struct sketch_block []. rows_all: all rows of the table, in memory and in its cold
 * store; it counts only where there is such a store.
 */
void table_cut_put(const struct table *shape, const struct table_keys *removed,
                   const struct byte_buffer *rows, const struct byte_buffer *blocks, uint64_t rows_all,
                   struct byte_buffer *out);
/*
 * Applies a cut to a table of the same options, restored from a snapshot taken after table_cut_note and no later
 * than this cut, that has taken all cuts between the two. Times (expiry) are not part of the cut: set them
 * afterwards. step: rows used by that step are not removed by expiry (TABLE_STEP_NONE: no step is in progress).
 * False: the bytes, which may be damaged or hostile, are no such cut; then the table cannot be used. From the first
 * cut on the table can neither learn nor have snapshots: its rows' optimizer state is of no particular moment.
 */
LEAT_CHECKED bool table_take_cut(struct table *table, const void *bytes, size_t length, uint32_t step);

/* For cold.c: keeps a noted row, which moves to the store, for the next cut. */
void table_cut_keep(struct table *table, const struct table_row *row);
/* For cold.c: around removing rows that have moved to the store. */
static inline void table_cut_move(struct table *table, bool is_moving)
{
    if (table->cut != NULL)
        table->cut->is_moving = is_moving;
}

#endif
