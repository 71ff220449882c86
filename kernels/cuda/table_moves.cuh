/*
 * Rows that enter and leave tables: the common part of select, export, import, take_oldest and make_room. A
 * bucket's place is its position among the buckets of all tables, where a table's stash comes before its
 * other buckets.
 */
#ifndef LEAT_KERNELS_CUDA_TABLE_MOVES_CUH
#define LEAT_KERNELS_CUDA_TABLE_MOVES_CUH

#include "kernels/cuda/table_room.cuh"
#include "kernels/cuda/tables.cuh"

enum {
    MOVES_OFFERS = ROOM_OFFERS,
    MOVES_DIGITS = 1 << 11,            /* bins of take_oldest's histograms */
    MOVES_FULL = GPU_BUCKET_SLOTS + 1, /* numbers of rows that a bucket can have */
};

/* Which rows of a table a select or take_oldest takes. */
struct table_filter {
    uint32_t expired_before; /* select: rows with a lower `seen` are absent; 0: no row is */
    uint32_t since, closing; /* select: epoch in (since, closing]; since 0: all */
    bool is_oldest;          /* take_oldest: last used before step_spared; see filter_takes */
    uint32_t step_spared;
    uint32_t order_most; /* take_oldest: (age order, key) is at most (order_most, key_most) */
    uint64_t key_most;
};

/* Arrays, allocated at their first use; owned by gpu_tables. */
struct table_moves {
    uint32_t *counts, *offsets; /* [places_room + 1], by place */
    uint32_t *offsets_host;     /* [places_room + 1] */
    size_t places_room;
    void *scan;
    size_t scan_room;
    uint32_t *digits; /* [MOVES_DIGITS] */
    uint32_t *digits_host;
    uint32_t *offers[4]; /* [MOVES_OFFERS], for table_even.cu */
    uint32_t *full,
        *full_host; /* [tables][MOVES_FULL]: buckets of a table, without its stash, by their number of rows */
    void *sort;
    size_t sort_room;
    gpu_row_head *heads;                                /* [scratch.room], for import */
    uint32_t *missing_by_table, *missing_by_table_host; /* [tables], for import */
    void **rows;                                        /* [scratch.room], for import */
    table_filter selected;
    uint64_t selected_rows, exported_rows;
};

/* The layout of a row, as a kernel argument. */
struct table_shape {
    uint32_t d, stride, weight_bytes, state_floats, extra_at, extra_floats;
    enum row_format format;
};

static inline table_shape tables_shape(const gpu_tables *tables)
{
    const gpu_tables_options *o = &tables->options;
    return {o->d,
            tables->stride,
            tables->weight_bytes,
            tables->state_floats,
            tables->extra_at,
            o->extra_floats,
            o->format};
}

/* Floats of a payload. */
static inline __host__ __device__ size_t table_floats(const table_shape &s)
{
    return s.d + s.state_floats + s.extra_floats;
}

/* The number of buckets of a table with its stash. */
static inline uint64_t table_places(const gpu_table_view *view)
{
    return view->stash_buckets + view->bucket_count;
}

/* The number of places before table t's first; t = options.tables: of all places. */
uint64_t tables_places(const gpu_tables *tables, uint32_t t);

/* Allocates the arrays, for the present number of buckets; does not wait. Returns false with `error` set. */
bool moves_need(gpu_tables *tables, gpu_error *error);
/* Bytes of the arrays for `tables` tables and a scratch.room of `room`, without the arrays by place, which
 * take 8 bytes per bucket. */
uint64_t moves_bytes(uint32_t tables, uint32_t room);
void moves_free(gpu_tables *tables);

/* Counts the selected rows of table t in each of its buckets, into counts[place]. */
void moves_count(gpu_tables *tables, gpu_stream *stream, uint32_t t, const table_filter *filter);
/* offsets = the exclusive prefix sums of counts[0..n); offsets[n] is the total. */
void moves_scan(gpu_tables *tables, gpu_stream *stream, size_t n);

/* Exports rows of table t that the filter selects. moves_count and moves_scan number the selected rows;
 * the rows begin .. end - 1 by that numbering are written to the elements 0, 1, 2 ... of heads and
 * payloads, or to the elements at[i]. takes: also remove the rows from the table. Reads only the buckets
 * first <= place < last, which must have been counted for table t. */
struct moves_export {
    const table_filter *filter;
    uint64_t begin, end;
    uint64_t first, last;
    bool takes;
    gpu_row_head *heads;
    float *payloads;
    const uint32_t *at; /* or NULL */
};
void moves_export_table(gpu_tables *tables, gpu_stream *stream, uint32_t t, const moves_export *out);

/*
 * table_even.cu: move rows of table t, in stream order, to buckets with free slots. moves_empty_stash: the
 * stash's rows, at most `rows`, to their buckets. moves_even_out: from buckets with more than `most` rows
 * some go to their other bucket, if that has fewer; `rows`: an upper bound of the rows above `most`. Both
 * wait if `rows` is above MOVES_OFFERS.
 */
bool moves_empty_stash(gpu_tables *tables, gpu_stream *stream, uint32_t t, uint64_t rows, gpu_error *error);
bool moves_even_out(gpu_tables *tables, gpu_stream *stream, uint32_t t, uint32_t most, uint64_t rows,
                    gpu_error *error);
/* moves_count_full queues a count of the rows in each bucket of table t. After a wait, moves_rows_above
 * returns the number of rows above `most` in their buckets. Splits can only lower that number. */
void moves_count_full(gpu_tables *tables, gpu_stream *stream, uint32_t t);
uint64_t moves_rows_above(const gpu_tables *tables, uint32_t t, uint32_t most);

/* The order in which rows leave, from the step that used a row last: lower is older; spared from 2^31 on.
 * Rows from the cold tier (step 0) are the oldest. */
static inline __host__ __device__ uint32_t table_age_order(uint32_t step, uint32_t step_spared)
{
    return step == 0 ? 0 : 0x80000000U + (step - step_spared);
}

static inline __device__ bool filter_takes(const table_filter &f, uint64_t key, const gpu_head &head)
{
    if (f.is_oldest) {
        uint32_t order = table_age_order(head.step, f.step_spared);
        return order < 0x80000000U && (order < f.order_most || (order == f.order_most && key <= f.key_most));
    }
    return head.seen >= f.expired_before &&
           (f.since == 0 || (head.epoch > f.since && head.epoch <= f.closing));
}

#endif
