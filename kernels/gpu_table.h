/*
 * Embedding tables in a GPU's memory. A set holds several tables (fields of a model) that share dim, format
 * and optimizer, so that one launch serves all of them; each has its own options of admission, expiry and
 * size.
 *
 * The logical rule is the CPU's (learners/table.h), batch by batch: the map key -> row after each batch, its
 * weights, state and header, is the same as that of a CPU table which was given the same batches
 * (table_resolve_batch). Where a row lies is not part of the rule: slots differ, and rows may lie in the cold
 * tier below.
 *
 * Places. A table is buckets of 128 slots (struct gpu_bucket of cuda/table.cuh): a line of one-byte digests,
 * the keys, the headers; the rows lie apart, row s of bucket b at ((b * 128) + s) * stride. bounded (rows_max
 * > 0): as many buckets as the logical rule has, bucket = hash * buckets >> 64: the logical bucket itself, so
 * a full one makes room by the rule, and nothing can overflow. free (rows_max = 0): two buckets a key, of its
 * hash's low bits and of another hash of it; linear hashing (Litwin 1980), so that the table grows a bucket
 * at a time, in place. What finds both full goes to the table's stash, and from there, when room is made
 * next, to new buckets or to the cold tier: it is never lost. All of it lies in address ranges that were
 * reserved once (cuMemAddressReserve) and get memory as they grow: addresses of rows change in make_room (and
 * so in import_rows) alone: where a bucket splits, or a full one is evened out.
 *
 * All functions queue work on the stream given and return, but those that say they wait. One thread a set.
 */
#ifndef KERNELS_GPU_TABLE_H
#define KERNELS_GPU_TABLE_H

#include "kernels/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GPU_BUCKET_SLOTS = 128, GPU_STASH_BUCKETS = 8, GPU_SKETCH_DEPTH = 4, GPU_SKETCH_BLOCK = 4096 };

struct gpu_table_options {
    uint32_t admit_after;  /* 0 and 1: at the first sighting */
    uint64_t sketch_bytes; /* used if admit_after > 1 */
    uint64_t rows_max;     /* 0: free */
    uint64_t rows_start;   /* free: rows that there is room for from the start */
    uint64_t seed;         /* of the hash: num_mix(key ^ seed) */
    uint64_t init_seed;    /* weights start as init_uniform(num_mix(key ^ init_seed), init_bound) */
    float init_bound;
    const float
        *extra; /* [4]: what new rows' extra floats begin with here; NULL: as the set says. For create */
};

/* Cells of a row of its sketch of sightings (learners/sketch.h); 0: it has none. */
static inline uint64_t gpu_sketch_width(const struct gpu_table_options *options)
{
    uint64_t width = options->admit_after > 1 ? GPU_SKETCH_BLOCK / GPU_SKETCH_DEPTH : 0;
    while (width > 0 && width * 2 * GPU_SKETCH_DEPTH <= options->sketch_bytes)
        width *= 2;
    return width;
}

static inline uint64_t gpu_sketch_blocks(const struct gpu_table_options *options)
{
    return gpu_sketch_width(options) * GPU_SKETCH_DEPTH / GPU_SKETCH_BLOCK;
}

/* A sketch's cells, row by row, go in blocks, in the form that checkpoints have: struct sketch_block. */
struct gpu_sketch_block {
    uint64_t number;
    uint8_t counts[GPU_SKETCH_BLOCK];
};

struct gpu_tables_options {
    uint32_t tables; /* 1 .. BATCH_TABLES_MAX */
    const struct gpu_table_options *table;
    uint32_t d; /* 0: rows have no vector, if extra_floats > 0 */
    enum row_format format;
    enum opt_kind optimizer; /* its state lies behind the weights; d 0: there is none */
    float accumulator;       /* what AdaGrad's sums start at (opt_state_init) */
    uint32_t batch_max;      /* places of a batch, at most; 0 (ROW_INT8: always): nothing is resolved */
    uint64_t memory_bytes;   /* that the set may take; free tables take what is left by the bounded ones */
    uint32_t extra_floats;   /* 0 or 4: of each row, at gpu_extra_at: a model's linear weight and its state */
    float extra[4];          /* what they begin with: bits, as two doubles may lie there; never rounded */
};

static inline size_t gpu_state_floats(const struct gpu_tables_options *options)
{
    return options->d > 0 ? opt_state_floats(options->optimizer, options->d) : 0;
}

/* Where a row's extra floats lie: behind its state, aligned to 16 bytes. */
static inline size_t gpu_extra_at(const struct gpu_tables_options *options)
{
    return row_bytes(options->format, options->d, gpu_state_floats(options));
}

/* Floats of a payload: the weights, the state, the extra ones. */
static inline size_t gpu_payload_floats(const struct gpu_tables_options *options)
{
    return options->d + gpu_state_floats(options) + options->extra_floats;
}

/*
 * The rule of a batch, the same as table_resolve_batch's. k: a key's sightings in the batch, s: the latest.
 *   1. A key that has a row: count += k (saturating), seen = max(seen, s), step and epoch are the batch's. A
 *      row with seen < expired_before counts as not there, and goes.
 *   2. Other keys, admit_after > 1: all read the sketch as it was before the batch: estimate = the least of
 *      the key's four cells + k (255 at most); then each of the four becomes max(cell, estimate). A key is
 *      admitted if the least of its cells is then min(admit_after, 255) or more; else its k sightings wait.
 *   3. Admitted keys get rows {count = k, seen = s} in the order of their numbers. Bounded: there are
 *      ceil(rows_max / 128) buckets, bucket = hash * buckets >> 64, of rows_max / buckets rows, one more in
 *      the first rows_max % buckets. Where a bucket is full, the row goes that is first by (has expired,
 *      lowest count, lowest seen, lowest key), but none of this batch; if there is no such row the key is
 *      refused (its k sightings are). Free: there is room, make_room saw to it.
 * Rows that have expired are nowhere seen, so when they go makes no difference but to stats and take_removed;
 * the CPU's table may count them earlier or later. A step makes one resolve.
 */

/* What a set needs at least and takes at most; error (GPU_UNSUPPORTED, GPU_NO_MEMORY with how much is needed)
 * before anything is allocated. free_bytes: of the device. */
struct gpu_tables_plan {
    uint64_t bytes_least, bytes_most;
    uint64_t rows_most; /* that fit into memory_bytes */
};

/* Of one row, as it is stored and moved: learners/table.h's header without the step. */
struct gpu_row_head {
    uint64_t key;
    uint32_t table;
    uint32_t count, seen, epoch;
};

/* A batch of distinct keys, as dedupe leaves them, all in device memory. */
struct gpu_batch {
    const uint32_t *count;  /* [1] */
    const uint64_t *keys;   /* [n] by their numbers, which is the order of their first records */
    const uint32_t *tables; /* [n] */
    const uint32_t *starts; /* [n + 1]: sightings = starts[u + 1] - starts[u] */
    const uint32_t *order;  /* [n]: places by number */
    const uint32_t *seen;   /* [n] by place: event time in seconds; the key's is the latest; NULL: 0 */
    uint32_t n;
    uint32_t step;          /* of this batch; not TABLE_STEP_NONE */
    uint32_t epoch;         /* of the checkpoint being written to; from 1 on */
    const uint32_t *places; /* host memory, [tables]: how many of its places each table has; NULL: up to n */
    void **known;           /* [n] by number: its row before this batch, NULL: it had none; NULL: not asked */
};

struct gpu_table_stats {
    uint64_t rows, inserted, evicted, expired, refused, waiting; /* as struct table_stats */
    uint64_t stashed;                                            /* now in the stash */
    uint64_t buckets, bytes;
};

struct gpu_table_api {
    bool (*plan)(const struct gpu_tables_options *options, uint64_t free_bytes, struct gpu_tables_plan *plan,
                 struct gpu_error *error);
    struct gpu_tables *(*create)(struct gpu *gpu, const struct gpu_tables_options *options,
                                 struct gpu_error *error);
    void (*destroy)(struct gpu_tables *tables); /* waits; NULL is fine */

    /* rows[i] = the row of keys[i] in table tables[i] (NULL tables: 0), or NULL; no sighting. count NULL: n
     * of them. */
    void (*find)(struct gpu_tables *tables, struct gpu_stream *stream, const uint64_t *keys,
                 const uint32_t *table, const uint32_t *count, uint32_t n, void **rows);
    /* find and gather_pool of one row a key in one pass: out[i][d] as floats, zeros where there is none;
     * found[i]. */
    void (*find_values)(struct gpu_tables *tables, struct gpu_stream *stream, const uint64_t *keys,
                        const uint32_t *table, const uint32_t *count, uint32_t n, float *out, uint8_t *found);
    /* One batch's sightings: finds or makes rows, by the rule of table_resolve_batch. rows[u] = the row,
     * NULL: waiting for admission, or refused. */
    void (*resolve)(struct gpu_tables *tables, struct gpu_stream *stream, const struct gpu_batch *batch,
                    void **rows);

    /* Of rows that are there: seen = max(seen, the batch's), in the batch's epoch; no sighting, nothing else
     * changes. */
    void (*refresh)(struct gpu_tables *tables, struct gpu_stream *stream, const struct gpu_batch *batch);

    /* Rows with seen below `expired_before` are gone (from now on they are not found); of table `table`. */
    void (*expire)(struct gpu_tables *tables, struct gpu_stream *stream, uint32_t table,
                   uint32_t expired_before);
    /* Halves what was ever counted; its blocks have changed in checkpoint `epoch` then. */
    void (*halve_sketch)(struct gpu_tables *tables, struct gpu_stream *stream, uint32_t table,
                         uint32_t epoch);
    /*
     * Sketches leave and come in blocks, in device or pinned memory. export_sketch: those of numbers [first,
     * first + room) that changed in epochs (since, closing] (since 0: that ever did), by number, and *count
     * of them. import_sketch: puts blocks in place, as changed in epoch 1, before any that is still to come;
     * numbers are below gpu_sketch_blocks.
     */
    void (*export_sketch)(struct gpu_tables *tables, struct gpu_stream *stream, uint32_t table,
                          uint32_t since, uint32_t closing, uint64_t first, uint32_t room,
                          struct gpu_sketch_block *blocks, uint32_t *count);
    void (*import_sketch)(struct gpu_tables *tables, struct gpu_stream *stream, uint32_t table,
                          const struct gpu_sketch_block *blocks, uint32_t count);

    /*
     * make_room, between batches: waits for the stream, empties stashes, evens out full buckets, and grows
     * free tables so that rows_new[t] new rows of each table (host memory) find room at a load of 0.95 at
     * most. Splits at most a few buckets a call beyond what must be ("without stopping"). rows_cold (host
     * memory): where memory_bytes is reached, how many rows of each table have to go to the cold tier first
     * (take_oldest); then again. false: error. It waits once, and again only where more than 2^14 rows are in
     * the way of others; and it sees further than rows_new where that costs nothing. has_room: whether it
     * need not be asked, by what it has counted and what came since: rows_new[t] rows find room in each
     * table, and a resolve of `places` places will not wait. No work, no waiting.
     */
    bool (*has_room)(const struct gpu_tables *tables, const uint32_t *rows_new, uint32_t places);
    bool (*make_room)(struct gpu_tables *tables, struct gpu_stream *stream, const uint32_t *rows_new,
                      uint64_t *rows_cold, struct gpu_error *error);

    /*
     * Rows leave and come as heads[] and payloads[] (weights as float [d], then the state, then the extra
     * floats: gpu_payload_floats), in device or pinned memory; with `at` (likewise; or NULL), the i-th row is
     * number at[i] of both. select: marks the rows with epoch in (since, closing] (since 0: all) as they are
     * now, by table and slot; waits; *rows how many. They must not change until they were copied: copy them
     * before the next batch, or into `staging`. export_rows: the next up to `room` of them; *count (pinned or
     * device) how many. take_removed: keys gone for good (evicted, expired; refused never) since the last
     * call, by rising (table, key), each once; waits; those that came back later are listed, too: apply
     * removals before rows. *count <= room; equal: there may be more. Nothing is listed before the first call
     * of it, which gives none. import_rows: makes rows, or puts them in place of what is there (`keeps`: what
     * is there stays, only used); makes room for them first, waits. Used by `step` (0: by none). Keys of one
     * call are distinct. false: they do not fit (how many is said); of a call of at most batch_max rows, none
     * came. remove: takes keys away, listed nowhere; one may come twice. take_oldest: up to `room` rows of
     * `table` with the lowest (step, key), none of them of `step_spared` or later, leave the table, for the
     * cold tier, by slot; *count (host memory); waits. Expired ones are among them: who puts rows below
     * leaves them out.
     */
    bool (*select)(struct gpu_tables *tables, struct gpu_stream *stream, uint32_t since, uint32_t closing,
                   uint64_t *rows, struct gpu_error *error);
    void (*export_rows)(struct gpu_tables *tables, struct gpu_stream *stream, uint32_t room,
                        struct gpu_row_head *heads, float *payloads, uint32_t *count);
    bool (*take_removed)(struct gpu_tables *tables, struct gpu_stream *stream, struct gpu_row_head *removed,
                         uint64_t room, uint64_t *count, struct gpu_error *error);
    bool (*import_rows)(struct gpu_tables *tables, struct gpu_stream *stream,
                        const struct gpu_row_head *heads, const float *payloads, uint32_t count,
                        const uint32_t *at, uint32_t step, bool keeps, struct gpu_error *error);
    void (*remove)(struct gpu_tables *tables, struct gpu_stream *stream, const uint64_t *keys,
                   const uint32_t *table, uint32_t count);
    bool (*take_oldest)(struct gpu_tables *tables, struct gpu_stream *stream, uint32_t table,
                        uint32_t step_spared, uint32_t room, struct gpu_row_head *heads, float *payloads,
                        const uint32_t *at, uint32_t *count, struct gpu_error *error);

    /* Which keys of a batch to come have no row here: missing[] by number, *count; for fetching them from the
     * cold tier ahead. Rows that are there are marked as used by batch->step, so that take_oldest spares
     * them. */
    void (*missing)(struct gpu_tables *tables, struct gpu_stream *stream, const struct gpu_batch *batch,
                    uint32_t *missing, uint32_t *count);

    bool (*stats)(struct gpu_tables *tables, struct gpu_stream *stream, uint32_t table,
                  struct gpu_table_stats *stats, struct gpu_error *error); /* waits */
};

#ifdef __cplusplus
}
#endif
#endif
