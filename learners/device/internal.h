/* The inside of a device_table, shared by its files. */
#ifndef LEAT_LEARNERS_DEVICE_INTERNAL_H
#define LEAT_LEARNERS_DEVICE_INTERNAL_H

#include "learners/device/pool.h"
#include "learners/device/snapshot.h"
#include "learners/device/table.h"

#include "core/base.h"
#include "core/buffer.h"

enum {
    DEVICE_STORE_BATCH = 4096, /* rows in one call of a cold store */
    DEVICE_SKETCH_PIECE = 256, /* blocks of a sketch moved at a time */
};

/* An announced batch, and the GPU's answer: which of its keys have no row in the GPU's memory. */
struct device_batch {
    struct gpu_batch batch;                  /* batch.step TABLE_STEP_NONE: the slot is free */
    struct gpu_event *asked;                 /* reached when the answer has been copied to pinned memory */
    uint64_t *keys;                          /* pinned: the batch's keys, copied with the answer */
    uint32_t *tables, *missing;              /* pinned; missing: indices of keys without a row on the GPU */
    uint32_t *counts;                        /* pinned: [0] distinct keys, [1] missing ones */
    uint32_t *device_missing, *device_count; /* device memory: the answer before it is copied */
    /* [keys] pool slot, not in the pool's index, of the key's row from the cold store; BATCH_NONE: none */
    uint32_t *raised;
    bool is_asked;    /* the question which keys are missing is queued, or already answered */
    bool is_raised;   /* its rows in the cold store were loaded, and lie in `raised` */
    uint64_t spilled; /* stats.spilled when the rows were raised */
};

/* What a cut has of one table. rows: stored rows that moved to the store since the last cut, then those that the cut
 * gathered; blocks: of the sketch. */
struct device_cut_part {
    struct table_keys removed;
    struct byte_buffer rows, blocks;
    uint64_t rows_all; /* as in table_cut_put */
};

/* Changes since the last cut (cut.c). */
struct device_cut {
    uint32_t since;                 /* the epoch that the last cut closed */
    struct device_cut_part *parts;  /* [tables] */
    struct device_snapshot changed; /* rows and blocks on their way */
};

struct device_table {
    const struct gpu_api *api;
    struct gpu *gpu;
    struct gpu_stream *stream;
    struct gpu_tables *tables;
    struct gpu_tables_options options; /* `table` points at a copy */
    struct device_stored stored;       /* with payload_bytes set */
    size_t floats, stored_bytes;       /* floats of a payload; bytes of a stored row */
    struct cold_store **stores;        /* [tables]; NULL: the table has none */
    bool *has_stored;                  /* [tables] whether the store may have rows of the table */
    uint64_t *rows_stored;             /* [tables] device_table_below.cold */
    uint32_t *expired_before;          /* [tables] event time in seconds */
    int64_t *halved_at_us;             /* [tables] */
    int64_t expire_after_us, watermark_us;
    uint32_t *rows_new;  /* [tables] scratch */
    uint64_t *rows_cold; /* [tables] scratch */
    /* [tables] keys removed since the last snapshot; during a snapshot the keys that it contains */
    struct table_keys *removed;
    struct table_keys *removed_since; /* [tables] removed during a snapshot */
    bool is_in_snapshot, is_in_restore;
    struct gpu_sketch_block *blocks; /* pinned, [DEVICE_SKETCH_PIECE]; NULL: no table has a sketch */
    uint32_t *blocks_count;          /* pinned */
    struct device_pool pool;
    struct device_snapshot snapshot;
    struct device_cut *cut;     /* NULL: changes are not noted for cuts */
    uint32_t stage;             /* most rows moved at a time */
    uint32_t *at;               /* pinned, [stage]: pool slots */
    uint32_t *at_waiting;       /* [stage] a copy of `at` while other rows are sent down */
    uint64_t *store_keys;       /* [DEVICE_STORE_BATCH] for one call of a store */
    int64_t *store_times;       /* likewise */
    bool *store_found;          /* likewise */
    uint32_t *store_slots;      /* likewise */
    unsigned char *store_rows;  /* likewise: stored rows */
    struct device_batch *ahead; /* [ahead_count] */
    uint32_t ahead_count;
    struct device_batch found;      /* the batch of device_table_find */
    const struct device_batch *due; /* the batch whose rows are being fetched; NULL: none */
    /* The GPU's memory once lacked room for all rows that a batch might bring: since then missing keys are
     * asked for. */
    bool is_tight;
    /* the last step for which unspare was called, and the step number with which its rows are marked */
    uint32_t unspared_for, unspared_mark;
    struct device_table_stats stats;
};

static inline bool device_table_is_expired(const struct device_table *t, const struct gpu_row_head *head)
{
    return head->seen < t->expired_before[head->table];
}

/* Adds a key to the table's list of keys that its next snapshot has to remove: `removed`, during a snapshot
 * `removed_since`. device_list_removed: its row is gone, for cuts, too; device_list_moved: it went to the store. */
void device_list_moved(struct device_table *t, uint32_t table, uint64_t key);
void device_list_removed(struct device_table *t, uint32_t table, uint64_t key);
/* Adds the removed keys that the GPU has listed to the lists (device_list_removed). */
bool device_collect_removed(struct device_table *t, struct gpu_error *error);
/* The same, and sorts `removed`. Call it before is_in_snapshot is set, since a snapshot's lists are those of
 * device_table_removed. */
bool device_take_removed(struct device_table *t, struct gpu_error *error);

/* --- cut.c --- */

void device_cut_free(struct device_table *t);
/* Of a row that goes to the store, in its stored form. */
void device_cut_moved(struct device_table *t, const struct gpu_row_head *head, const unsigned char *stored);

/* Convert a row between a pool slot (head and payload) and its stored form. */
void device_pack(const struct device_table *t, const struct gpu_row_head *head, const float *payload,
                 unsigned char *stored);
void device_unpack(const struct device_table *t, uint32_t table, const unsigned char *stored, uint32_t slot);

/* --- tiers.c --- */

/* Makes at least `count` (<= stage) pool slots free by moving rows to the cold store. False: error. */
bool device_pool_room(struct device_table *t, uint32_t count, struct gpu_error *error);
/* Makes room in the GPU's memory for t->rows_new[] new rows, by growing tables or sending rows down. `step`:
 * the step that is due, whose rows stay. False: error, GPU_NO_MEMORY if the rows do not fit. */
bool device_room(struct device_table *t, uint32_t step, struct gpu_error *error);
/* Moves the rows of slots t->at[0 .. count) into the GPU's memory, for `step`; their pool slots are freed.
 * keeps: a row that the GPU's memory has already stays as it is (gpu_table_api.import_rows). */
bool device_import(struct device_table *t, uint32_t count, uint32_t step, bool keeps,
                   struct gpu_error *error);
/*
 * Loads rows of a batch's missing keys from the cold stores into pool slots, as far as there is room. These
 * are copies for this batch alone, not in the pool's index: until the batch is due, another batch may fetch
 * the same row and change it. device_unraise discards the copies.
 */
bool device_raise(struct device_table *t, struct device_batch *batch, struct gpu_error *error);
void device_unraise(struct device_table *t, struct device_batch *batch);
/* Moves all rows of a batch's missing keys from lower tiers into the GPU's memory; t->rows_new[]: how many
 * keys have no row in any tier. */
bool device_fetch(struct device_table *t, struct device_batch *batch, struct gpu_error *error);

#endif
