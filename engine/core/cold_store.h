/* A cold store takes the embedding rows of a learner's table that do not fit into memory. `state`
 * implements it over RocksDB; the engine hands it to the learner (operator_context.cold_store). Keys are
 * 64-bit; all rows of a store have one fixed size. All calls come from the one thread that owns the table
 * at that time. */
#ifndef LEAT_CORE_COLD_STORE_H
#define LEAT_CORE_COLD_STORE_H

#include "core/base.h"

/* For `scan`: all shards. */
#define COLD_ALL_SHARDS UINT32_MAX

struct cold_store {
    void *self;
    /* Set by the table before its first row, and never changed: its number of shards (kernels/shards.h; 0 as
     * 1), at most 255, and a key's shard. The rows of a shard lie together. */
    uint32_t shards;
    uint32_t (*shard_of)(const void *owner, uint64_t key);
    const void *owner;
    /* Whether `put` writes rows to disk now. false between a barrier and the database's checkpoint, when put
     * rows would wait in memory, and after a failure. */
    bool (*takes_rows)(void *self);
    /* Writes rows in one batch, replacing rows with the same keys. times_us: each row's time, compared at
     * `barrier`; NULL: rows never expire. false: the store failed; the job stops. */
    bool (*put)(void *self, const uint64_t *keys, const int64_t *times_us, const void *rows, size_t row_bytes,
                size_t count);
    /* Reads rows in one batch; sets found[i] to whether keys[i] is stored and its row was written to
     * rows + i * row_bytes. false: as for put. */
    bool (*get)(void *self, const uint64_t *keys, void *rows, size_t row_bytes, size_t count, bool *found);
    /* false: as for put. */
    bool (*remove)(void *self, const uint64_t *keys, size_t count);
    /* Visits every row of a shard, or of all, by rising key; `row` is valid during the call of `visit`.
     * false: as for put. */
    bool (*scan)(void *self, uint32_t shard, void (*visit)(void *argument, uint64_t key, const void *row),
                 void *argument);
    /* Moves rows that a checkpoint of format 8 has, where a table had one shard, to where those of their
     * shards lie. After a restore, before other calls. false: as for put. */
    bool (*reshard)(void *self);
    /* Called at the owner's barrier. Rows with a time below expired_us have expired for good; compaction
     * removes them from disk later. TIME_MIN: none. */
    void (*barrier)(void *self, int64_t expired_us);
    void (*free)(void *self);
};

#endif
