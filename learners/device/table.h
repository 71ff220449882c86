/*
 * A learner's tables on a GPU, with tiers below: rows lie in the GPU's memory, in pinned host memory
 * (pool.h), or in a cold store (core/cold_store.h), and where they lie changes no result.
 *
 *   - The truth of a row is in the highest tier that has it. Older copies may stay in the cold store; nobody
 *     reads them.
 *   - Each batch is announced some steps before it is due (device_table_ahead): the GPU reports which of its
 *     keys have no row there, and marks the rows that exist, so that they stay. Rows of the missing keys that
 *     the cold store has are loaded into pinned memory while earlier batches are at work. When the batch is
 *     due (device_table_step), all its rows in lower tiers are moved into the GPU's memory before its keys
 *     are resolved, so that the result is the same as if no row had ever left. A key with no row in any tier
 *     is new.
 *   - Rows are sent down between batches only, when the GPU's memory is full: those used longest ago, by
 *     (step, key), with their headers. Rows that announced batches need are spared while there are others; if
 *     not, they are fetched again when their batch is due.
 *   - While no row lies in a lower tier, missing keys are not asked for: a step waits only once, when room
 *     has to be made, and most steps find by earlier counts that there is room (gpu_table_api.has_room).
 *   - Tables with rows_max are bounded by it and send no rows down. Only expiry removes rows of other tables.
 *     An expired row is never put back: the time of a row's last occurrence only rises, so all older copies
 *     have expired as well.
 *
 * Checkpoints are those of the CPU (table.h): stored rows, including those in pinned memory; the cold store's
 * own copy has the rest. Keys of rows that went to the store since the last checkpoint are listed with the
 * removed keys, which a restore applies before the rows.
 *
 * One thread, except where said. Functions that return bool return false on an error (error->text); after
 * that only what was emitted before can be trusted.
 */
#ifndef LEAT_LEARNERS_DEVICE_TABLE_H
#define LEAT_LEARNERS_DEVICE_TABLE_H

#include "core/buffer.h"
#include "core/cold_store.h"
#include "kernels/gpu_table.h"
#include "learners/tables/table.h"

struct device_table;

/*
 * Where the parts of a stored payload lie, so that stored rows equal those of the CPU's tables byte for byte
 * (model/internal.h describes a model's rows); gaps are zeros. A GPU's row has four extra floats or none;
 * those that are not stored are restored as zeros.
 */
struct device_stored {
    size_t payload_bytes;           /* 0: vector, state and extra floats follow each other without gaps */
    size_t linear_at, linear_bytes; /* the stored part of the extra floats: a linear weight and its state */
    size_t vector_at, state_at;     /* of d floats, and of their optimizer's state */
};

struct device_table_options {
    const struct gpu_api *api;
    struct gpu *gpu;
    struct gpu_stream *stream; /* the stream on which all work is queued */
    struct gpu_tables_options tables;
    struct device_stored stored;
    uint64_t pinned_bytes; /* for rows below the GPU's memory; 0: the least possible */
    /* GPU memory, beside the tables', for rows of a snapshot; 0: the least possible */
    uint64_t snapshot_bytes;
    /* [tables], NULL for a table without a store; stores NULL: no table has one. The device_table owns the
     * stores, not the array. */
    struct cold_store *const *stores;
    uint32_t ahead;          /* most batches announced at a time: 1 or more */
    int64_t expire_after_us; /* for device_table_set_watermark; 0: nothing expires */
};

struct device_table_stats {
    uint64_t fetched;     /* rows moved into the GPU's memory from lower tiers */
    uint64_t sent;        /* rows sent from the GPU's memory to pinned memory */
    uint64_t spilled;     /* rows moved from pinned memory to the cold store */
    uint64_t loaded;      /* rows loaded from the cold store */
    uint64_t pinned_rows; /* rows in pinned memory now */
    uint64_t unspared;    /* times that rows of announced batches had to be sent down */
    uint64_t held;        /* snapshots that held the tables because staging was too small */
};

/* NULL: error; the stores are freed then, too. */
struct device_table *device_table_new(const struct device_table_options *options, struct gpu_error *error);
void device_table_free(struct device_table *t); /* waits for the device; t may be NULL */

struct gpu_tables *device_table_tables(struct device_table *t);
struct device_table_stats device_table_stats(const struct device_table *t);

/* A table's rows below the GPU's memory: those in pinned memory, and those in its store alone, expired rows
 * in the store included. */
struct device_table_below {
    uint64_t pinned, cold;
};
struct device_table_below device_table_below(const struct device_table *t, uint32_t table);
/* Where a table's rows go that do not fit in pinned memory; NULL: nowhere. */
struct cold_store *device_table_store(const struct device_table *t, uint32_t table);

/* Announces a batch, in the order of steps; its arrays must stay until its step is made. May wait for the
 * answers of batches announced earlier, not for its own. */
bool device_table_ahead(struct device_table *t, const struct gpu_batch *batch, struct gpu_error *error);
/*
 * The batch is due (announced before, or not): fetches its rows, makes room, and resolves its keys. rows[u]
 * (device memory): see gpu_table_api.resolve. Work queued on the stream may use the rows until the next call
 * of device_table_step, _find, _expire, _restore or _snapshot_begin.
 */
bool device_table_step(struct device_table *t, const struct gpu_batch *batch, void **rows,
                       struct gpu_error *error);

/*
 * Finds rows for prediction; of `batch` it reads count, keys and tables. rows[u] (device memory): NULL where
 * the key has no row. This is no occurrence of the keys, and makes no rows. Rows in lower tiers are fetched,
 * as for a step. batch->step: the step that is due next, or a later one; the rows found are spared as if that
 * step used them. Pointers are valid as after device_table_step.
 */
bool device_table_find(struct device_table *t, const struct gpu_batch *batch, void **rows,
                       struct gpu_error *error);

/* Raises `seen` of the rows that device_table_find of the same batch found (gpu_table_api.refresh). */
void device_table_refresh(struct device_table *t, const struct gpu_batch *batch);

/* Rows of a table with seen below `expired_before` expire, in all tiers. The limit never goes back. */
void device_table_expire(struct device_table *t, uint32_t table, uint32_t expired_before);
/* Advances event time, which expiry and the sketches' halving follow, as table_set_watermark does on the CPU.
 * epoch: the one that changes now belong to. */
void device_table_set_watermark(struct device_table *t, int64_t watermark_us, uint32_t epoch);
/* A table's times that a model's state keeps: members of struct table, with the same names.
 * device_table_set_times: during a restore. */
struct device_table_times {
    int64_t halved_at_us, watermark_us; /* INT64_MIN: none yet */
    uint32_t expired_before;
};
struct device_table_times device_table_times(const struct device_table *t, uint32_t table);
void device_table_set_times(struct device_table *t, uint32_t table, const struct device_table_times *times);

/* --- Checkpoints: stored rows have table_stored_bytes's form, their payload device_stored's --- */

size_t device_table_stored_bytes(const struct device_table *t);

/* Takes `count` stored rows of one table, or blocks of its sketch (struct sketch_block); false:
 * the disk refused. */
typedef bool device_table_emit(void *argument, uint32_t table, const void *items, size_t count);
/*
 * A snapshot of the rows that changed in the epochs since + 1 .. closing (since 0: of all rows), while steps
 * go on.
 *   - device_table_snapshot_begin: at the barrier: gathers rows in GPU and pinned memory, and sketches'
 *     blocks, into staging (snapshot_bytes of the GPU's memory).
 *   - device_table_snapshot_write: any thread, once: emits rows and blocks; the GPU's rows by table. False:
 *     an error, or `rows` or `counts` returned false (then error->failure is GPU_OK).
 *   - device_table_snapshot_end: when the checkpoint was published or abandoned.
 *   - device_table_is_held: any thread: whether staging was too small and the writer still gathers the rest.
 *     While this is so and the snapshot has not ended, call only functions that take a const table.
 *   - device_table_removed, from begin to end: keys of rows removed or moved to the cold store since the last
 *     snapshot or restore, rising, each once; a restore applies them before the rows. If the checkpoint was
 *     not published, they belong to the next one.
 */
bool device_table_snapshot_begin(struct device_table *t, uint32_t since, uint32_t closing,
                                 struct gpu_error *error);
bool device_table_is_held(const struct device_table *t);
/* While the snapshot is written: whether pinned memory is full and a store takes no rows yet (cold_store.h).
 * Rows of a further batch would wait in the store's memory, which would grow with each batch. */
bool device_table_is_pressed(const struct device_table *t);
bool device_table_snapshot_write(struct device_table *t, device_table_emit *rows, device_table_emit *counts,
                                 void *argument, struct gpu_error *error);
const struct table_keys *device_table_removed(const struct device_table *t, uint32_t table);
void device_table_snapshot_end(struct device_table *t, bool is_published);

/* --- Cuts (tables/cut.h), for followers. Between steps, not while a snapshot holds the tables --- */

/* From now on changes are noted (is_on), or no longer; what was noted is forgotten. closing: the epoch in progress,
 * which ends: later changes must belong to later ones. Takes a few MiB of the GPU's memory beside the tables'.
 * False: an error. */
bool device_table_cut_note(struct device_table *t, bool is_on, uint32_t closing, struct gpu_error *error);
/* Gathers what changed since the last cut, up to and with the epoch `closing`, which ends. Waits for the GPU's queued
 * work. False: an error. */
bool device_table_cut(struct device_table *t, uint32_t closing, struct gpu_error *error);
/* Appends what device_table_cut gathered of one table, once, as bytes for table_take_cut of tables like `shape`. */
void device_table_cut_write(struct device_table *t, uint32_t table, const struct table *shape,
                            struct byte_buffer *out);

/* device_table_restore puts rows back, replacing existing ones; device_table_restore_remove removes rows of
 * keys (from GPU and pinned memory). After the last of them call device_table_restored: from then on no key
 * counts as removed, and stores have only the rows that did not fit above. */
bool device_table_restore(struct device_table *t, uint32_t table, const void *stored, size_t count,
                          struct gpu_error *error);
bool device_table_restore_remove(struct device_table *t, uint32_t table, const uint64_t *keys, size_t count,
                                 struct gpu_error *error);
/* Restores blocks of the table's sketch. False: an error, or GPU_UNSUPPORTED if the sketch
 * has no such block. */
bool device_table_restore_counts(struct device_table *t, uint32_t table, const struct sketch_block *blocks,
                                 size_t count, struct gpu_error *error);
bool device_table_restored(struct device_table *t, struct gpu_error *error);
/* After device_table_restored, for a table whose store has rows: `rows` is the number of all
 * its rows. Waits. */
bool device_table_restored_cold(struct device_table *t, uint32_t table, uint64_t rows,
                                struct gpu_error *error);

#endif
