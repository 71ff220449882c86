/* The rows that a join makes, on their way into batches. An output row has a left and a right side; each
 * comes from a batch that the join was given, or from a kept row (key_rows.h), or is missing.
 *
 * joined_add notes rows one by one; they become columns when a batch is full. A kept row is copied when it is
 * noted, mostly once per output batch however often it is used (a small cache finds the copy). If all rows of
 * a side come from one given batch, their texts stay in that batch, and the new batch holds a reference to
 * it. Finished batches wait in `ready` until the join may emit. */
#ifndef LEAT_OPERATORS_JOIN_JOINED_H
#define LEAT_OPERATORS_JOIN_JOINED_H

#include "operators/join/key_rows.h"
#include "operators/ready.h"
#include "operators/rows/held.h"

enum { JOINED_CACHE = 1024, JOINED_READY_MAX = 8 };

/* One side of an output row: a row of a given batch, or a kept row; batch and kept NULL: missing. */
struct joined_from {
    struct batch *batch; /* with `row`, its physical index */
    uint32_t row;
    const struct key_row *kept; /* with the key it was kept for */
    struct key key;
};

struct joined_row {
    struct joined_from sides[2]; /* the left side is never missing */
    struct row_order order;
    int64_t time; /* event time of the output row, microseconds */
    int64_t window_start, window_end;
};

struct joined_cached {
    struct key key;
    uint64_t id;
    uint64_t output_serial; /* the output batch that the row was copied for (joined.output_serial) */
    int32_t at;             /* index of the copy */
};

/* One side of the output batch being filled. */
struct joined_side {
    struct held_layouts *layouts;
    const int *columns;              /* output column of each of the side's columns, or -1 */
    struct byte_buffer fixed, tails; /* copies of kept rows */
    uint32_t tail_at[BATCH_ROWS + 1];
    int32_t kept_count;
    int32_t kept_at[BATCH_ROWS]; /* for each output row: index of its copy, or JOINED_GIVEN, or JOINED_NONE */
    struct batch *batches[BATCH_ROWS];
    uint16_t rows[BATCH_ROWS];
    struct batch *only; /* batch of the last given row, unless has_several of all given rows; NULL: none */
    uint32_t given;     /* number of given rows */
    /* has_several: given rows come from several batches. has_none: the side of some output row is missing. */
    bool has_several, has_none;
    struct joined_cached cache[JOINED_CACHE];
};

enum { JOINED_GIVEN = -1, JOINED_NONE = -2 };

struct joined {
    struct batch_pool *pool;
    const struct schema *output;
    int window_column; /* window_start; window_end follows; -1: none */
    struct joined_side sides[2];
    uint32_t count;
    uint64_t output_serial; /* of the output batch in work: 1 for the first */
    struct row_order orders[BATCH_ROWS];
    struct row_origin origins[BATCH_ROWS];
    int64_t times[BATCH_ROWS], arrivals[BATCH_ROWS];
    int64_t window_starts[BATCH_ROWS], window_ends[BATCH_ROWS];
    bool has_arrivals;
    struct arena scratch;
    struct ready_batches ready;
};

/* layouts: of each side's rows. columns[side][i]: output column of the side's column i, or -1. These must outlive
 * the result. */
struct joined *joined_new(struct batch_pool *pool, const struct schema *output,
                          struct held_layouts *const layouts[2], int *const columns[2], int window_column);
void joined_free(struct joined *joined); /* NULL is allowed */
/* Notes a row. A kept row is copied, and may be dropped after the call. The batches of given rows must live
 * until the rows' batch is finished: the join calls joined_take with is_last before it returns from a
 * micro-batch. */
void joined_add(struct joined *joined, const struct joined_row *row);
/* Whether the join should emit before it goes on. */
static inline bool joined_is_full(const struct joined *joined)
{
    return joined->ready.count >= JOINED_READY_MAX;
}
/* Takes the next finished batch, which the caller then owns; NULL: there is none. is_last: the batch being
 * filled is finished, too. */
struct batch *joined_take(struct joined *joined, bool is_last);

#endif
