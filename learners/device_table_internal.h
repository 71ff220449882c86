/* What a device_table is inside, shared by its files. */
#ifndef LEARNERS_DEVICE_TABLE_INTERNAL_H
#define LEARNERS_DEVICE_TABLE_INTERNAL_H

#include "learners/device_pool.h"
#include "learners/device_snapshot.h"
#include "learners/device_table.h"

#include "core/base.h"

enum {
    DEVICE_STORE_BATCH = 4096, /* rows a call of a cold store */
    DEVICE_SKETCH_PIECE = 256, /* blocks of a sketch that move at a time */
};

/* A batch that was announced. */
struct device_batch {
    struct gpu_batch batch; /* batch.step TABLE_STEP_NONE: free */
    struct gpu_event *asked;
    uint64_t *keys;             /* pinned: the batch's, on their way with the answer */
    uint32_t *tables, *missing; /* pinned */
    uint32_t *counts;           /* pinned: [0] keys, [1] missing */
    uint32_t *device_missing, *device_count;
    uint32_t *raised; /* of each key: a slot of the pool, not in its index; BATCH_NONE: none */
    bool is_asked;    /* the answer comes, or is there */
    bool is_raised;   /* what the cold store has of it was asked for, and lies in `raised` */
    uint64_t spilled; /* stats.spilled at that time */
};

struct device_table {
    const struct gpu_api *api;
    struct gpu *gpu;
    struct gpu_stream *stream;
    struct gpu_tables *tables;
    struct gpu_tables_options options; /* .table: a copy */
    struct device_stored stored;       /* .payload_bytes is set */
    size_t floats, stored_bytes;       /* of a payload; of a row as it is stored */
    struct cold_store **stores;        /* [tables] NULL: none */
    bool *has_stored;                  /* [tables] whether a store was ever given rows */
    uint64_t *rows_stored;             /* [tables] device_table_below.cold */
    uint32_t *expired_before;          /* [tables] */
    int64_t *halved_at_us;             /* [tables] */
    int64_t expire_after_us, watermark_us;
    uint32_t *rows_new;               /* [tables] scratch */
    uint64_t *rows_cold;              /* [tables] scratch */
    struct table_keys *removed;       /* [tables] since the last snapshot; while one lasts, of that one */
    struct table_keys *removed_since; /* [tables] while a snapshot lasts */
    bool is_in_snapshot, is_in_restore;
    struct gpu_sketch_block *blocks; /* pinned, [DEVICE_SKETCH_PIECE]; NULL: no table has a sketch */
    uint32_t *blocks_count;          /* pinned */
    struct device_pool pool;
    struct device_snapshot snapshot;
    uint32_t stage;            /* rows that move at a time */
    uint32_t *at;              /* pinned, [stage]: slots of the pool */
    uint32_t *at_waiting;      /* [stage] */
    uint64_t *store_keys;      /* [DEVICE_STORE_BATCH] of a call of a store */
    int64_t *store_times;      /* likewise */
    bool *store_found;         /* likewise */
    uint32_t *store_slots;     /* likewise */
    unsigned char *store_rows; /* likewise: as they are stored */
    struct device_batch *ahead;
    uint32_t ahead_count;
    struct device_batch found;      /* of device_table_find */
    const struct device_batch *due; /* the batch that rows are brought for; NULL: none */
    bool is_tight; /* the GPU's memory had no room for all that a batch might bring: its keys are asked for */
    uint32_t unspared_for,
        unspared_mark; /* the last step that needed it, and what its rows are marked with */
    struct device_table_stats stats;
};

static inline bool device_table_is_expired(const struct device_table *t, const struct gpu_row_head *head)
{
    return head->seen < t->expired_before[head->table];
}

void device_list_removed(struct device_table *t, uint32_t table, uint64_t key);
/* What the GPU has listed joins the lists, which are in order then. A list that a snapshot begins with is
 * device_table_removed's; so, before is_in_snapshot is set. */
bool device_take_removed(struct device_table *t, struct gpu_error *error);

/* device_counts.c: memory for sketches on their way. */
bool device_counts_init(struct device_table *t, struct gpu_error *error);

/* A row between its stored form and a slot of the pool. */
void device_pack(const struct device_table *t, const struct gpu_row_head *head, const float *payload,
                 unsigned char *stored);
void device_unpack(const struct device_table *t, uint32_t table, const unsigned char *stored, uint32_t slot);

/* --- device_tiers.c ---------------------------------------------------------------------------------------
 */

/* At least `count` slots of the pool are free (count <= stage): rows go to the cold store. false: error. */
bool device_pool_room(struct device_table *t, uint32_t count, struct gpu_error *error);
/* Makes room in the GPU's memory for t->rows_new[] new rows; `step` is due. */
bool device_room(struct device_table *t, uint32_t step, struct gpu_error *error);
/* Rows of slots t->at[0 .. count) into the GPU's memory, for `step`; those of the pool leave it. */
bool device_import(struct device_table *t, uint32_t count, uint32_t step, bool keeps,
                   struct gpu_error *error);
/*
 * What the cold stores have of a batch's missing keys comes up to slots of the pool, as far as there is room.
 * They are copies for this batch alone, not in the index: until it is due, another batch may bring the same
 * row and change it. device_unraise gives them up.
 */
bool device_raise(struct device_table *t, struct device_batch *batch, struct gpu_error *error);
void device_unraise(struct device_table *t, struct device_batch *batch);
/* All that lies below of a batch's missing keys comes into the GPU's memory; t->rows_new: the others. */
bool device_fetch(struct device_table *t, struct device_batch *batch, struct gpu_error *error);

#endif
