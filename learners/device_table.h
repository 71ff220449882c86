/*
 * A learner's tables on a GPU, with tiers below: rows lie in the GPU's memory, in pinned host memory
 * (device_pool.h), or in a cold store (core/cold_store.h), and where they lie changes no result.
 *
 *   - A row lies in one tier, which has the truth: the highest that has it. Older copies may stay in the cold
 *     store; nobody asks for them.
 *   - Each batch is announced some steps before it is due (device_table_ahead): the GPU is asked which of its
 *     keys it has no row of, and marks those that it has, so that they stay. What the cold store has of the
 *     others comes up to pinned memory while earlier batches are at work. When the batch is due
 *     (device_table_step), all that lies below comes into the GPU's memory before its keys are resolved, so
 *     that they meet what they would have met had nothing ever left. What is neither there nor below is new.
 *   - Rows go down between batches only, when the GPU's memory is full: those used longest ago, by (step,
 *     key), with their headers. Rows that announced batches need are spared as long as there are others; else
 *     they come back when their batch is due.
 *   - As long as nothing lies below, no key is asked for: a step waits only where room has to be made, once,
 * and most steps find that there is room by what was counted before (gpu_table_api.has_room).
 *   - Only expiry removes rows of such a table. An expired row is never put back: a last sighting only rises,
 *     so every older copy has expired as well. Tables with rows_max are bounded by it and do not go down.
 *
 * Checkpoints are the CPU's (table.h): rows as they are stored, those of pinned memory among them; the cold
 * store's copy of its own has the rest, and keys that went there since the last one are listed with those
 * that were removed, which a restore applies before the rows.
 *
 * One thread, but where said. Functions that return bool: false is an error (error->text), after which
 * nothing is certain but what was emitted before.
 */
#ifndef LEARNERS_DEVICE_TABLE_H
#define LEARNERS_DEVICE_TABLE_H

#include "core/cold_store.h"
#include "kernels/gpu_table.h"
#include "learners/table.h"

struct device_table;

/*
 * Where the parts of a payload lie as it is stored, so that rows are those of the CPU's tables, byte for byte
 * (model_internal.h says where a model's are); what lies between them is zeros. A GPU's row always has four
 * extra floats or none: what of them is not stored comes back as zeros.
 */
struct device_stored {
    size_t payload_bytes;           /* 0: vector, state and extra floats, with nothing in between */
    size_t linear_at, linear_bytes; /* the first bytes of the extra floats: a linear weight and its state */
    size_t vector_at, state_at;     /* d floats; their optimizer's state */
};

struct device_table_options {
    const struct gpu_api *api;
    struct gpu *gpu;
    struct gpu_stream *stream; /* all work is queued on it */
    struct gpu_tables_options tables;
    struct device_stored stored;
    uint64_t pinned_bytes; /* of rows below the GPU's memory; 0: as few as can be */
    uint64_t
        snapshot_bytes; /* of the GPU's memory, beside the tables': for rows of a snapshot; 0: likewise */
    struct cold_store *const
        *stores;             /* [tables], each or all NULL; they are the device_table's from now on */
    uint32_t ahead;          /* batches announced at most: 1 or more */
    int64_t expire_after_us; /* what set_watermark goes by; 0: nothing expires */
};

struct device_table_stats {
    uint64_t fetched;     /* rows that came into the GPU's memory from below */
    uint64_t sent;        /* that left it for pinned memory */
    uint64_t spilled;     /* that left pinned memory for the cold store */
    uint64_t loaded;      /* that came from the cold store */
    uint64_t pinned_rows; /* now there */
    uint64_t unspared;    /* times that rows of announced batches had to go */
    uint64_t held;        /* snapshots that staging was too small for */
};

/* NULL: error; stores are freed then, too. */
struct device_table *device_table_new(const struct device_table_options *options, struct gpu_error *error);
void device_table_free(struct device_table *t); /* waits; NULL is fine */

struct gpu_tables *device_table_tables(struct device_table *t);
struct device_table_stats device_table_stats(const struct device_table *t);

/* Rows of a table below the GPU's memory: in pinned memory, and in its store alone, those that have expired
 * there included. */
struct device_table_below {
    uint64_t pinned, cold;
};
struct device_table_below device_table_below(const struct device_table *t, uint32_t table);
bool device_table_has_store(const struct device_table *t, uint32_t table);

/* A batch to come, in the order of steps; its arrays stay until its step is made. No waiting. */
bool device_table_ahead(struct device_table *t, const struct gpu_batch *batch, struct gpu_error *error);
/*
 * The batch is due (announced before, or not): brings its rows, makes room, and resolves it: rows[u] (device
 * memory) as gpu_table_api.resolve. They may be used by what is queued on the stream before the next call of
 * device_table_step, _find, _expire, _restore or _snapshot_begin.
 */
bool device_table_step(struct device_table *t, const struct gpu_batch *batch, void **rows,
                       struct gpu_error *error);

/*
 * Rows for prediction, of batch->count keys, keys and tables: rows[u] (device memory), NULL where there is
 * none; no sighting, nothing is made or counted. What lies below comes up, as for a step; batch->step: of the
 * batch that is due next, or later, with whose rows these are kept. rows: as of device_table_step.
 */
bool device_table_find(struct device_table *t, const struct gpu_batch *batch, void **rows,
                       struct gpu_error *error);

/* What device_table_find of the same batch has found was seen (gpu_table_api.refresh). */
void device_table_refresh(struct device_table *t, const struct gpu_batch *batch);

/* Rows of a table with seen below `expired_before` are gone, wherever they lie. Never goes back. */
void device_table_expire(struct device_table *t, uint32_t table, uint32_t expired_before);
/* Advances event time, as table_set_watermark does on the CPU: expiry and the sketches' halving follow it.
 * epoch: of the checkpoint being written to. */
void device_table_set_watermark(struct device_table *t, int64_t watermark_us, uint32_t epoch);
/* What a model's state keeps of a table's times (struct table has them under the same names); set: at a
 * restore. */
struct device_table_times {
    int64_t halved_at_us, watermark_us; /* INT64_MIN: none yet */
    uint32_t expired_before;
};
struct device_table_times device_table_times(const struct device_table *t, uint32_t table);
void device_table_set_times(struct device_table *t, uint32_t table, const struct device_table_times *times);

/* --- checkpoints: rows as table_stored_bytes says, their payload as device_stored says --------------------
 */

size_t device_table_stored_bytes(const struct device_table *t);

/* `count` stored rows, or blocks of a sketch (struct sketch_block), of one table; false: the disk refused. */
typedef bool device_table_emit(void *argument, uint32_t table, const void *items, size_t count);
/*
 * A snapshot of what changed in epochs (since, closing] (since 0: of everything), while steps go on:
 *   - device_table_snapshot_begin: at the barrier: rows in GPU and pinned memory, and sketches' blocks, are
 * gathered into staging (snapshot_bytes of the GPU's memory).
 *   - device_table_snapshot_write: any thread, once: hands them out, rows by table for those of the GPU.
 *   - device_table_snapshot_end: when the checkpoint was published or abandoned.
 *   - device_table_is_held: any thread: staging was too small, and the writer gathers the rest: until it is
 * false, or the snapshot has ended, nothing else is called but what is `const` here.
 * device_table_removed(table), from begin to end: keys that have gone, or went to the cold store, since the
 * last snapshot or restore, rising, each once; apply them before the rows. If it was not published, they
 * belong to the next one.
 */
bool device_table_snapshot_begin(struct device_table *t, uint32_t since, uint32_t closing,
                                 struct gpu_error *error);
bool device_table_is_held(const struct device_table *t);
/* While the snapshot is written: pinned memory is full, and a store takes no rows yet (cold_store.h): those
 * of a batch would wait in its memory, and with each batch more. */
bool device_table_is_pressed(const struct device_table *t);
bool device_table_snapshot_write(struct device_table *t, device_table_emit *rows, device_table_emit *counts,
                                 void *argument, struct gpu_error *error);
const struct table_keys *device_table_removed(const struct device_table *t, uint32_t table);
void device_table_snapshot_end(struct device_table *t, bool is_published);

/* Puts rows back, in place of what is there; takes keys away (from GPU and pinned memory). After the last of
 * them device_table_restored: nothing is removed since, and stores have no rows but
 * those that did not fit above. */
bool device_table_restore(struct device_table *t, uint32_t table, const void *stored, size_t count,
                          struct gpu_error *error);
bool device_table_restore_remove(struct device_table *t, uint32_t table, const uint64_t *keys, size_t count,
                                 struct gpu_error *error);
/* Stored blocks of its sketch. false: there are no such blocks (GPU_UNSUPPORTED), or as always. */
bool device_table_restore_counts(struct device_table *t, uint32_t table, const struct sketch_block *blocks,
                                 size_t count, struct gpu_error *error);
bool device_table_restored(struct device_table *t, struct gpu_error *error);
/* Then, of a table whose store has rows: how many it has in all. Waits. */
bool device_table_restored_cold(struct device_table *t, uint32_t table, uint64_t rows,
                                struct gpu_error *error);

#endif
