/*
 * Embedding tables in a GPU's memory. A set holds several tables (fields of a model) that share dim, format
 * and optimizer, so that one launch serves all of them; each table has its own options of admission, expiry
 * and size.
 *
 * The logical rule is that of the CPU's table (learners/tables/table.h), batch by batch: after each batch the
 * map key -> row (weights, state and header) is the same as that of a CPU table which was given the same
 * batches (table_resolve_batch). Where a row lies is not part of the rule: slots differ, and rows may lie in
 * the cold tier.
 *
 * Layout. A table is buckets of 128 slots (struct gpu_bucket of cuda/table.cuh): a line of one-byte digests,
 * the keys, the headers. The rows lie in a separate array, row s of bucket b at ((b * 128) + s) * stride.
 * There are two kinds of table:
 *
 * - bounded (rows_max > 0): as many buckets as the logical rule has, bucket = hash * buckets >> 64. So a
 *   bucket is a logical bucket: a full one evicts rows by the rule, and nothing can overflow.
 * - free (rows_max = 0): two buckets per key, chosen by the low bits of its hash and by another hash of the
 *   key; linear hashing (Litwin 1980), so that the table grows one bucket at a time, in place. A row that
 *   finds both buckets full goes to the table's stash, and at the next make_room from there to a bucket or to
 *   the cold tier: no row is ever lost.
 *
 * Buckets and rows lie in address ranges that are reserved once (cuMemAddressReserve) and get memory as they
 * grow. A row's address changes only in make_room (and so in import_rows): when its bucket splits, or when a
 * full bucket is evened out.
 *
 * All functions queue work on the given stream and return, except those whose comment says that they wait.
 * One thread at a time uses a set.
 */
#ifndef LEAT_KERNELS_GPU_TABLE_H
#define LEAT_KERNELS_GPU_TABLE_H

#include "kernels/gpu.h"
#include "kernels/shards.h"

#ifdef __cplusplus
extern "C" {
#endif

/* STASH_BUCKETS: of each free table. SKETCH_DEPTH: cells of a key in the admission sketch. SKETCH_BLOCK:
 * cells of a block. */
enum { GPU_BUCKET_SLOTS = 128, GPU_STASH_BUCKETS = 8, GPU_SKETCH_DEPTH = 4, GPU_SKETCH_BLOCK = 4096 };

struct gpu_table_options {
    uint32_t admit_after;  /* 0 and 1: a row is made at the key's first occurrence */
    uint64_t sketch_bytes; /* size of the admission sketch; used if admit_after > 1 */
    uint64_t rows_max;     /* 0: a free table */
    uint32_t shards;       /* kernels/shards.h; 0: as 1 */
    uint64_t rows_start;   /* free tables: rows that have memory from the start */
    uint64_t seed;         /* of the hash: num_mix(key ^ seed) */
    uint64_t init_seed;    /* weights start as init_uniform(num_mix(key ^ init_seed), init_bound) */
    float init_bound;
};

/* A sketch's shards, whose counts follow each other. */
static inline uint32_t gpu_shards(const struct gpu_table_options *options)
{
    return options->shards > 1 ? options->shards : 1;
}

/* Cells in a row of a shard of the table's admission sketch (learners/tables/sketch.h); 0: the table has no
 * sketch. */
static inline uint64_t gpu_sketch_width(const struct gpu_table_options *options)
{
    uint64_t width = options->admit_after > 1 ? GPU_SKETCH_BLOCK / GPU_SKETCH_DEPTH : 0;
    while (width > 0 && width * 2 * GPU_SKETCH_DEPTH * gpu_shards(options) <= options->sketch_bytes)
        width *= 2;
    return width;
}

static inline uint64_t gpu_sketch_blocks(const struct gpu_table_options *options)
{
    return gpu_shards(options) * gpu_sketch_width(options) * GPU_SKETCH_DEPTH / GPU_SKETCH_BLOCK;
}

/* A block of a sketch's cells, row by row, in the format of checkpoints: struct sketch_block. */
struct gpu_sketch_block {
    uint64_t number;
    uint8_t counts[GPU_SKETCH_BLOCK];
};

struct gpu_tables_options {
    uint32_t tables;                       /* 1 .. BATCH_TABLES_MAX */
    const struct gpu_table_options *table; /* [tables], read by create and plan */
    uint32_t d;                            /* may be 0 if extra_floats > 0: rows have no vector */
    enum row_format format;
    enum opt_kind optimizer; /* its state lies behind the weights; d 0: no state */
    float accumulator;       /* initial value of AdaGrad's sums (opt_state_init) */
    uint32_t batch_max;      /* most places of a batch; 0 (required with ROW_INT8): resolve is never called */
    uint64_t memory_bytes;   /* for the set; free tables share what bounded ones leave */
    uint32_t extra_floats;   /* 0 or 4, in each row at gpu_extra_at: a model's linear weight and its state */
    float extra[4];          /* initial values in new rows, copied bit by bit: they may be two doubles */
};

static inline size_t gpu_state_floats(const struct gpu_tables_options *options)
{
    return options->d > 0 ? opt_state_floats(options->optimizer, options->d) : 0;
}

/* Byte offset of a row's extra floats: behind its state, aligned to 16. */
static inline size_t gpu_extra_at(const struct gpu_tables_options *options)
{
    return row_bytes(options->format, options->d, gpu_state_floats(options));
}

/* Floats of a payload: weights, state, extra floats. */
static inline size_t gpu_payload_floats(const struct gpu_tables_options *options)
{
    return options->d + gpu_state_floats(options) + options->extra_floats;
}

/*
 * The rule for a batch, the same as table_resolve_batch's. k: the key's occurrences in the batch, s: the
 * latest of their event times.
 *   1. A key that has a row: count += k (saturating), seen = max(seen, s), step and epoch become the batch's.
 *      A row with seen < expired_before counts as absent, and is removed.
 *   2. Other keys, if admit_after > 1: all of them read the sketch as it was before the batch: estimate = the
 *      least of the key's four cells + k (255 at most); then each of the four cells becomes max(cell,
 *      estimate). A key is admitted if the least of its cells is then at least min(admit_after, 255); else
 *      its k occurrences are counted as waiting.
 *   3. Admitted keys get rows {count = k, seen = s} in the order of their indices. Bounded: there are
 *      ceil(rows_max / 128) buckets, bucket = hash * buckets >> 64, of rows_max / buckets rows, one more in
 *      the first rows_max % buckets. In a full bucket the row is evicted that is first by (has expired,
 *      lowest count, lowest seen, lowest key), but no row of this batch; if there is no such row the key is
 *      refused (k occurrences are counted). Free: there is room, as make_room provided it.
 *
 * Expired rows are invisible everywhere, so the moment of their removal affects only stats and take_removed;
 * the CPU's table may count them earlier or later. A step makes one resolve.
 */

/* The least and the most device memory of a set, which gpu_table_api.plan computes before anything is
 * allocated; its free_bytes is the device's free memory. plan returns false with `error` set:
 * GPU_UNSUPPORTED, or GPU_NO_MEMORY with the bytes needed. */
struct gpu_tables_plan {
    uint64_t bytes_least, bytes_most;
    uint64_t rows_most; /* rows that fit into memory_bytes */
};

/* The header of a row as it is exported and imported: learners/tables/table.h's header without the step. */
struct gpu_row_head {
    uint64_t key;
    uint32_t table;
    uint32_t count, seen, epoch;
};

/* A batch of distinct keys as dedupe writes them, all in device memory. */
struct gpu_batch {
    const uint32_t *count;  /* [1] */
    const uint64_t *keys;   /* [n] by index: ordered by first occurrence */
    const uint32_t *tables; /* [n] */
    const uint32_t *starts; /* [n + 1]: occurrences of u = starts[u + 1] - starts[u] */
    const uint32_t *order;  /* [n]: places sorted by index */
    const uint32_t *seen;   /* [n] by place: event time in seconds, a key takes the latest; NULL: 0 */
    uint32_t n;
    uint32_t step;          /* the batch's step; not TABLE_STEP_NONE */
    uint32_t epoch;         /* of the checkpoint that is being filled; from 1 on */
    const uint32_t *places; /* host memory, [tables]: places of each table in the batch; NULL: up to n each */
    void **known;           /* output, [n] by index: the row that the key had before; may be NULL */
};

struct gpu_table_stats {
    uint64_t rows, inserted, evicted, expired, refused, waiting; /* as struct table_stats */
    uint64_t stashed;                                            /* rows that are in the stash now */
    uint64_t buckets, bytes;
};

struct gpu_table_api {
    bool (*plan)(const struct gpu_tables_options *options, uint64_t free_bytes, struct gpu_tables_plan *plan,
                 struct gpu_error *error);
    /* Copies the options; waits. NULL: failed, error is set. */
    struct gpu_tables *(*create)(struct gpu *gpu, const struct gpu_tables_options *options,
                                 struct gpu_error *error);
    void (*destroy)(struct gpu_tables *tables); /* waits; NULL is fine */

    /* rows[i] = the row of keys[i] in table table[i] (`table` NULL: 0), NULL if absent. Changes nothing, and
     * counts no occurrence. Looks up min(n, *count) keys (count NULL: n). */
    void (*find)(struct gpu_tables *tables, struct gpu_stream *stream, const uint64_t *keys,
                 const uint32_t *table, const uint32_t *count, uint32_t n, void **rows);
    /* find, and gather_pool of one row per key, in one pass: out[i][d] as floats, zeros for absent keys;
     * found[i]: whether the key has a row. */
    void (*find_values)(struct gpu_tables *tables, struct gpu_stream *stream, const uint64_t *keys,
                        const uint32_t *table, const uint32_t *count, uint32_t n, float *out, uint8_t *found);
    /* The occurrences of one batch: finds or makes rows, by the rule above. rows[u] = the row; NULL: the key
     * waits for admission, or is refused. */
    void (*resolve)(struct gpu_tables *tables, struct gpu_stream *stream, const struct gpu_batch *batch,
                    void **rows);

    /* For keys that have rows: seen = max(seen, the batch's); a row whose seen rises gets the batch's epoch.
     * Counts no occurrence; nothing else changes. */
    void (*refresh)(struct gpu_tables *tables, struct gpu_stream *stream, const struct gpu_batch *batch);

    /* Expires the rows of table `table` with seen below `expired_before`: from now on they are not found.
     * Their slots are freed step by step, some in each call. */
    void (*expire)(struct gpu_tables *tables, struct gpu_stream *stream, uint32_t table,
                   uint32_t expired_before);
    /* Halves all cells of the sketch; blocks that ever changed count as changed in epoch `epoch`. */
    void (*halve_sketch)(struct gpu_tables *tables, struct gpu_stream *stream, uint32_t table,
                         uint32_t epoch);
    /*
     * Sketches are exported and imported in blocks, in device or pinned memory. export_sketch: the blocks
     * with numbers in [first, first + room) that changed in epochs (since, closing] (since 0: that ever
     * changed), ordered by number; *count = how many. import_sketch: writes blocks into the sketch, as
     * changed in epoch 1; call it before any later change. Blocks whose number is not below gpu_sketch_blocks
     * are skipped.
     */
    void (*export_sketch)(struct gpu_tables *tables, struct gpu_stream *stream, uint32_t table,
                          uint32_t since, uint32_t closing, uint64_t first, uint32_t room,
                          struct gpu_sketch_block *blocks, uint32_t *count);
    void (*import_sketch)(struct gpu_tables *tables, struct gpu_stream *stream, uint32_t table,
                          const struct gpu_sketch_block *blocks, uint32_t count);

    /*
     * make_room, between batches: waits for the stream, empties stashes, evens out full buckets, and grows
     * free tables so that rows_new[t] new rows of each table t (host memory) fit at a load of at most 0.95.
     * To spread the work it splits at most a few buckets per call beyond the necessary ones. rows_cold (host
     * memory): where memory_bytes is reached, the number of rows of each table that have to go to the cold
     * tier first (take_oldest); then call make_room again. Returns false with `error` set. It waits once, and
     * again only if more than 2^14 rows have to move; where that costs nothing it makes room for more than
     * rows_new.
     *
     * has_room: whether make_room need not be called: rows_new[t] rows fit in each table, and a resolve of
     * `places` places will not wait. Computed from the last counts and the rows added since; queues no work
     * and does not wait.
     */
    bool (*has_room)(const struct gpu_tables *tables, const uint32_t *rows_new, uint32_t places);
    bool (*make_room)(struct gpu_tables *tables, struct gpu_stream *stream, const uint32_t *rows_new,
                      uint64_t *rows_cold, struct gpu_error *error);

    /*
     * Rows are exported and imported as heads[] and payloads[] (weights as float [d], then the state, then
     * the extra floats: gpu_payload_floats), in device or pinned memory. Row i is element at[i] of both
     * arrays, element i if `at` is NULL; `at` lies in device or pinned memory, too.
     *
     * select: selects the rows with epoch in (since, closing] (since 0: all), in the order of table and slot;
     * waits; *rows = how many. Selected rows must not change until export_rows has copied them: copy all of
     * them before the next batch (learners/device/snapshot.h).
     *
     * export_rows: copies the next at most `room` selected rows; *count (pinned or device memory) = how many.
     *
     * take_removed: the keys removed for good (evicted or expired, not refused) since the last call, sorted
     * by (table, key), each once; waits. Keys that came back later are listed, too, so apply removals before
     * rows. *count <= room; if equal, there may be more. Removals are recorded from the first call on, which
     * returns none.
     *
     * import_rows: makes rows, or overwrites existing ones (keeps: an existing row stays and is only marked
     * as used); makes room first; waits. `step` marks the rows as used (0: by no step). The keys of one call
     * are distinct. Returns false if the rows do not fit, with the number in `error`; a call of at most
     * batch_max rows has then imported none.
     *
     * remove: removes keys without recording them in take_removed; a key may be given twice.
     *
     * take_oldest: moves at most `room` rows of `table` with the lowest (step, key), none used by
     * `step_spared` or later, out of the table, for the cold tier, in the order of slots; *count (host
     * memory); waits. Expired rows are taken, too; the caller drops them.
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

    /* The keys of a coming batch that have no row here: missing[] by index, *count; so that they can be read
     * from the cold tier ahead. Existing rows are marked as used by batch->step, so that take_oldest spares
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
