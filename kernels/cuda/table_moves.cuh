/*
 * Rows that leave and come: what select, export, import, take_oldest and make_room share. Buckets of all
 * tables, each table's stash before its own, are counted on through the set: that number is a bucket's
 * place.
 */
#ifndef KERNELS_CUDA_TABLE_MOVES_CUH
#define KERNELS_CUDA_TABLE_MOVES_CUH

#include "kernels/cuda/table_room.cuh"
#include "kernels/cuda/tables.cuh"

enum {
    MOVES_OFFERS = ROOM_OFFERS,
    MOVES_DIGITS = 1 << 11, /* of take_oldest's histograms */
    MOVES_FULL = GPU_BUCKET_SLOTS + 1,
};

/* Which rows are meant. */
struct table_filter {
    uint32_t expired_before; /* of select: rows seen before are gone; 0: none is */
    uint32_t since, closing; /* select: epoch in (since, closing]; since 0: all */
    bool is_oldest; /* take_oldest: not used by step_spared or later, and (age order, key) <= limit */
    uint32_t step_spared;
    uint32_t order_most;
    uint64_t key_most;
};

/* The arrays, made when somebody needs them; kept in gpu_tables. */
struct table_moves {
    uint32_t *counts, *offsets; /* [places_room + 1] */
    uint32_t *offsets_host;     /* [places_room + 1] */
    size_t places_room;
    void *scan;
    size_t scan_room;
    uint32_t *digits; /* [MOVES_DIGITS] */
    uint32_t *digits_host;
    uint32_t *offers[4]; /* [MOVES_OFFERS] table_even.cu's */
    uint32_t *full,
        *full_host; /* [tables][MOVES_FULL]: buckets of a table, without its stash, by their rows */
    void *sort;
    size_t sort_room;
    gpu_row_head *heads;                                /* [scratch.room] import's */
    uint32_t *missing_by_table, *missing_by_table_host; /* [tables] import's */
    void **rows;                                        /* [scratch.room] import's */
    table_filter selected;
    uint64_t selected_rows, exported_rows;
};

/* What a row looks like, as an argument. */
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

/* Of a payload. */
static inline __host__ __device__ size_t table_floats(const table_shape &s)
{
    return s.d + s.state_floats + s.extra_floats;
}

/* Buckets of a table with its stash. */
static inline uint64_t table_places(const gpu_table_view *view)
{
    return view->stash_buckets + view->bucket_count;
}

/* Of all tables; first[t] of table t if asked for. */
uint64_t tables_places(const gpu_tables *tables, uint32_t t);

/* The arrays for the buckets that there are now; allocates, waits for nothing. false: error. */
bool moves_need(gpu_tables *tables, gpu_error *error);
/* What they take for a set of so many tables, whose scratch has `room`; without 8 bytes a bucket. */
uint64_t moves_bytes(uint32_t tables, uint32_t room);
void moves_free(gpu_tables *tables);

/* Counts the rows of table t that are meant: counts[place] of its buckets. */
void moves_count(gpu_tables *tables, gpu_stream *stream, uint32_t t, const table_filter *filter);
/* offsets[] of counts[0..n), offsets[n] the sum. */
void moves_scan(gpu_tables *tables, gpu_stream *stream, size_t n);

/* Rows of table t that are meant, numbers [begin, end) of all as offsets[] count them, into heads and
 * payloads from 0; they leave the table if `takes`. Places of table t from `first` to `last`, not with it. */
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
 * table_even.cu: rows of table t, in stream order, to where there is room. stash: its rows (`rows` of them at
 * most) to their buckets. even: where a bucket has more than `most` rows, some go to their other one, if that
 * has less; `rows`: how many there are above `most`, at most. They wait if `rows` is above MOVES_OFFERS.
 */
bool moves_empty_stash(gpu_tables *tables, gpu_stream *stream, uint32_t t, uint64_t rows, gpu_error *error);
bool moves_even_out(gpu_tables *tables, gpu_stream *stream, uint32_t t, uint32_t most, uint64_t rows,
                    gpu_error *error);
/* Queues a count of how full the buckets of table t are; once it was waited for: rows that lie above `most`
 * in their buckets. Splits only lower that number. */
void moves_count_full(gpu_tables *tables, gpu_stream *stream, uint32_t t);
uint64_t moves_rows_above(const gpu_tables *tables, uint32_t t, uint32_t most);

/* When a row goes, by the step that used it last: lower is older; from 2^31 on it is spared. Rows that came
 * from below (step 0) are the oldest. */
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
