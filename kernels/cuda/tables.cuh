/* What a set of embedding tables is on the host, and what its files offer each other. */
#ifndef KERNELS_CUDA_TABLES_CUH
#define KERNELS_CUDA_TABLES_CUH

#include "kernels/cuda/parts.cuh"
#include "kernels/cuda/range.cuh"
#include "kernels/cuda/table.cuh"

struct gpu_table {
    gpu_table_options options;
    gpu_table_view view; /* what the device was last told, or will be (tables_set_view) */
    gpu_range buckets, rows;
    uint64_t buckets_most; /* that the ranges have addresses for, without the stash */
    uint64_t sweep_at;     /* the next bucket that expire looks through, the stash's among them */
    uint64_t rows_most;    /* that may be there: as counted, and what may have come since */
    uint64_t rows_left;    /* that may come before make_room has to be asked again; bounded: never */
};

/* Memory of one batch's resolve, or of an import: arrays of `room`, batch_max at least. */
struct table_scratch {
    uint32_t room;
    uint32_t *seen;    /* the latest sighting of a key */
    uint32_t *waiting; /* the estimate with this batch's sightings, of keys that admission is asked about */
    uint64_t *gone;    /* the slot of an expired row, or SLOT_NONE */
    uint32_t *numbers, *numbers_sorted; /* buckets where new keys want to go; BATCH_NONE: they do not */
    uint32_t *seconds; /* likewise: the second buckets of those that the first had no room for */
    uint32_t *order_sorted;
    uint32_t *iota;     /* 0, 1, 2 ... */
    uint32_t *lists[2]; /* keys with many sightings, and very many; then: keys for the stash */
    uint32_t *counters; /* [TABLE_COUNTERS], zeroed by each batch and import */
    void *sort;
    size_t sort_bytes;
};
enum { COUNT_MANY, COUNT_VERY_MANY, COUNT_STASH, TABLE_COUNTERS };

struct gpu_tables {
    struct gpu *gpu;
    gpu_tables_options options; /* options.table: NULL, see tables[].options */
    uint32_t stride, weight_bytes, state_floats, extra_at;
    float state_init;
    gpu_table *tables;                   /* [options.tables] */
    gpu_table_view *views;               /* on the device, [options.tables] */
    gpu_table_counts *counts;            /* on the device, [options.tables] */
    gpu_table_flags *flags;              /* on the device */
    gpu_removed *removed;                /* on the device: removals since the last tables_drain_removed */
    uint32_t removed_room, removed_most; /* items that there is room for; that there may be */
    bool lists_removed;                  /* take_removed was called once: somebody wants to know */
    gpu_removed *gone;                   /* on the host: those drained, in any order */
    gpu_removed *removed_host; /* pinned, [removed_room]: on their way there; NULL: not listed yet */
    size_t gone_count, gone_room;
    unsigned char *pinned; /* PINNED_BYTES for what the host reads back */
    table_scratch scratch;
    struct table_moves *moves; /* table_moves.cuh; NULL: none yet */
    uint64_t fixed_bytes;      /* of memory_bytes: all but the ranges */
};
enum { PINNED_BYTES = 1 << 14, PINNED_COUNTS_AT = 256 };

/* Memory of a bucket and its rows. */
static inline uint64_t tables_bucket_bytes(const gpu_tables *tables)
{
    return sizeof(gpu_bucket) + (uint64_t)GPU_BUCKET_SLOTS * tables->stride;
}

/* After tables[t].view was changed on the host: tells the device, in stream order, and numbers the buckets of
 * all tables anew. */
void tables_set_view(gpu_tables *tables, gpu_stream *stream, uint32_t t);
/* Gives table t memory for `buckets` (without its stash); those that it gets are empty after the stream's
 * work so far. Kernels know of them when view.bucket_count says so. false: they do not fit. */
bool tables_need_buckets(gpu_tables *tables, gpu_stream *stream, uint32_t t, uint64_t buckets,
                         gpu_error *error);
/* Buckets of all tables: numbers are below. */
uint64_t tables_numbers(const gpu_tables *tables);

/* Wait: for the stream's work, and for what it found wrong. false: the device has failed. */
bool tables_wait(gpu_tables *tables, gpu_stream *stream, gpu_error *error);
bool tables_read_counts(gpu_tables *tables, gpu_stream *stream, uint32_t t, gpu_table_counts *counts,
                        gpu_error *error);
/* The counts of all tables, [tables] until the next wait; drains removals if there may be many. One wait for
 * all of it. NULL: the device has failed. */
const gpu_table_counts *tables_read_all(gpu_tables *tables, gpu_stream *stream, gpu_error *error);
/* Moves the removals listed on the device to tables->gone; waits. */
bool tables_drain_removed(gpu_tables *tables, gpu_stream *stream, gpu_error *error);
/* Removals that a resolve of so many places may list, at most. */
uint64_t tables_removed_by(const gpu_tables *tables, uint32_t places);
/* Before work that may list up to n removals: makes room for them, and only waits if there may be none;
 * make_room, which waits anyhow, sees to it that no other call does. */
bool tables_reserve_removed(gpu_tables *tables, gpu_stream *stream, uint64_t n, gpu_error *error);

static inline gpu_removed_list tables_removed_list(const gpu_tables *tables)
{
    return {tables->lists_removed ? tables->removed : NULL, tables->flags, tables->removed_room};
}

/* Up to n rows come to table t. */
static inline void tables_note_new(gpu_tables *tables, uint32_t t, uint64_t n)
{
    gpu_table *table = &tables->tables[t];
    table->rows_most += n;
    if (!table->view.is_bounded)
        table->rows_left -= n < table->rows_left ? n : table->rows_left;
}

/* --- rows that are made (table_insert.cu) ----------------------------------------------------------------
 */

/*
 * Makes rows for keys of which none has one. numbers[u]: view.number + first bucket (BATCH_NONE: not this
 * key); [n], the memory of scratch.numbers. Rows are made in the order of u; rows[u] stays what it is where
 * there is no room, which the counts say. heads NULL: sightings and seen make the header.
 */
struct table_insertion {
    const uint32_t *count; /* on the device; NULL: n */
    uint32_t n;
    const uint64_t *keys;
    const uint32_t *tables;    /* NULL: 0 */
    const gpu_row_head *heads; /* imported: key and table are in them, too; not counted as inserted */
    const uint32_t *starts;    /* else sightings = starts[u + 1] - starts[u] */
    const uint32_t *seen;      /* and the latest of them; NULL: 0 */
    uint32_t step, epoch;
    void **rows;
};
void tables_insert(gpu_tables *tables, gpu_stream *stream, const table_insertion *insertion);

#endif
