/* A set of embedding tables on the host, and the functions that its files share. */
#ifndef LEAT_KERNELS_CUDA_TABLES_CUH
#define LEAT_KERNELS_CUDA_TABLES_CUH

#include "kernels/cuda/parts.cuh"
#include "kernels/cuda/range.cuh"
#include "kernels/cuda/table.cuh"

struct gpu_table {
    gpu_table_options options;
    gpu_table_view view; /* as the device has it, or will have after tables_set_view */
    gpu_range buckets, rows;
    uint64_t buckets_most; /* most buckets that the ranges have addresses for, stash excluded */
    uint64_t sweep_at;     /* the next bucket, the stash's included, that expire's sweep looks at */
    uint64_t rows_most;    /* upper bound of the table's rows: the last count, and all possibly added since */
    uint64_t rows_left;    /* rows that may come before make_room must be called; bounded: UINT64_MAX */
};

/* Memory for the resolve of one batch, or for an import: arrays of `room` elements, at least batch_max. */
struct table_scratch {
    uint32_t room;
    uint32_t *seen; /* by index: the latest event time of the key in the batch */
    /* by index: the estimated occurrences of a key that needs admission, this batch included; else 0 */
    uint32_t *waiting;
    uint64_t *gone; /* by index: the slot of the key's expired row, or SLOT_NONE */
    uint32_t *buckets,
        *buckets_sorted; /* by index: first buckets of new keys, counted over all tables; BATCH_NONE: none */
    uint32_t *seconds;   /* by index: second buckets of new keys whose first bucket is full, as `buckets` */
    uint32_t *order_sorted;
    uint32_t *iota; /* 0, 1, 2 ... */
    /* Indices of keys with many occurrences, and with very many; later lists[0]: of keys for the stash. */
    uint32_t *lists[2];
    uint32_t *counters; /* [TABLE_COUNTERS], zeroed by each batch and import */
    void *sort;
    size_t sort_bytes;
};
enum { COUNT_MANY, COUNT_VERY_MANY, COUNT_STASH, TABLE_COUNTERS };

struct gpu_tables {
    struct gpu *gpu;
    gpu_tables_options options; /* options.table: NULL; see tables[].options */
    uint32_t stride, weight_bytes, state_floats, extra_at;
    float state_init;
    gpu_table *tables;                   /* [options.tables] */
    gpu_table_view *views;               /* on the device, [options.tables] */
    gpu_table_counts *counts;            /* on the device, [options.tables] */
    gpu_table_flags *flags;              /* on the device */
    gpu_removed *removed;                /* on the device: removals since the last tables_drain_removed */
    uint32_t removed_room, removed_most; /* capacity of `removed`; upper bound of its entries */
    bool lists_removed;                  /* removals are recorded: take_removed was called */
    gpu_removed *gone;                   /* on the host: drained removals, in any order */
    gpu_removed *removed_host; /* pinned, [removed_room]: buffer for draining; NULL: not recorded yet */
    size_t gone_count, gone_room;
    unsigned char *pinned; /* PINNED_BYTES for counters that the host reads back */
    table_scratch scratch;
    struct table_moves *moves; /* table_moves.cuh; NULL: none yet */
    uint64_t fixed_bytes;      /* device memory of everything but the ranges: part of options.memory_bytes */
};
enum { PINNED_BYTES = 1 << 14, PINNED_COUNTS_AT = 256 };

/* Bytes of device memory of a bucket and its rows. */
static inline uint64_t tables_bucket_bytes(const gpu_tables *tables)
{
    return sizeof(gpu_bucket) + (uint64_t)GPU_BUCKET_SLOTS * tables->stride;
}

/* Call it after tables[t].view was changed on the host: updates the device's copy, in stream order, and
 * buckets_before of all tables. */
void tables_set_view(gpu_tables *tables, gpu_stream *stream, uint32_t t);
/* Gives table t memory for `buckets` buckets (without its stash). New buckets are empty once the stream has
 * done the queued work. Kernels use them when view.bucket_count is raised. Returns false, with `error` set,
 * if they do not fit. */
bool tables_need_buckets(gpu_tables *tables, gpu_stream *stream, uint32_t t, uint64_t buckets,
                         gpu_error *error);
/* The number of buckets of all tables, stashes excluded; the index of a bucket is below this number. */
uint64_t tables_buckets(const gpu_tables *tables);

/* tables_wait and tables_read_counts wait for the stream's work, and check the set's error flags. false: the
 * device has failed, and error is set. */
bool tables_wait(gpu_tables *tables, gpu_stream *stream, gpu_error *error);
bool tables_read_counts(gpu_tables *tables, gpu_stream *stream, uint32_t t, gpu_table_counts *counts,
                        gpu_error *error);
/* Waits once and returns the counters of all tables, [tables], valid until the next wait. Also drains
 * removals if the list may be nearly full. Returns NULL with `error` set if the device has failed. */
const gpu_table_counts *tables_read_all(gpu_tables *tables, gpu_stream *stream, gpu_error *error);
/* Moves the removals recorded on the device to tables->gone; waits. */
bool tables_drain_removed(gpu_tables *tables, gpu_stream *stream, gpu_error *error);
/* Upper bound of the removals that a resolve of `places` places records. */
uint64_t tables_removed_by(const gpu_tables *tables, uint32_t places);
/* Makes room for n more removals in the list on the device. Call before work that may record up to n
 * removals. Waits only if the list may be full; make_room waits anyway and empties the list, so other calls
 * seldom wait. */
bool tables_reserve_removed(gpu_tables *tables, gpu_stream *stream, uint64_t n, gpu_error *error);

static inline gpu_removed_list tables_removed_list(const gpu_tables *tables)
{
    return {tables->lists_removed ? tables->removed : NULL, tables->flags, tables->removed_room};
}

/* Counts up to n new rows for table t. */
static inline void tables_note_new(gpu_tables *tables, uint32_t t, uint64_t n)
{
    gpu_table *table = &tables->tables[t];
    table->rows_most += n;
    if (!table->view.is_bounded)
        table->rows_left -= n < table->rows_left ? n : table->rows_left;
}

/* --- New rows (table_insert.cu) --- */

/*
 * Makes rows for keys that have none. scratch.buckets[u], [n], must be set: view.buckets_before + first
 * bucket, or BATCH_NONE: no row for this key. Rows are made in the order of u; rows[u] does not change if
 * there is no room for the row, which the counters record. heads NULL: occurrences and seen make the header.
 */
struct table_insertion {
    const uint32_t *count; /* on the device; NULL: n */
    uint32_t n;
    const uint64_t *keys;
    const uint32_t *tables;    /* NULL: 0 */
    const gpu_row_head *heads; /* imported rows: also gives key and table; not counted as inserted */
    const uint32_t *starts;    /* if heads is NULL: occurrences = starts[u + 1] - starts[u] */
    const uint32_t *seen;      /* and their latest event time; NULL: 0 */
    uint32_t step, epoch;
    void **rows;
};
void tables_insert(gpu_tables *tables, gpu_stream *stream, const table_insertion *insertion);

#endif
