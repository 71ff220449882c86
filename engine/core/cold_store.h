/* Where a learner's table puts rows that do not fit into its memory; `state` implements it over RocksDB, and
 * the engine hands it over (operator_context.cold_store). Keys are 64-bit, rows have one fixed size per
 * store. All calls come from the one thread that owns the table at that time. */
#ifndef LEAT_CORE_COLD_STORE_H
#define LEAT_CORE_COLD_STORE_H

#include "core/base.h"

struct cold_store {
    void *self;
    /* Whether rows that are put go to the disk now. Not so between a barrier and the database's copy, when
     * they would wait in memory, nor after a failure. */
    bool (*takes_rows)(void *self);
    /* Writes rows in one batch, in place of what is there. times_us: see barrier; NULL: kept for ever. false:
     * the store failed; the job stops. */
    bool (*put)(void *self, const uint64_t *keys, const int64_t *times_us, const void *rows, size_t row_bytes,
                size_t count);
    /* Reads in one batch; found[i] says whether rows + i * row_bytes was filled. */
    bool (*get)(void *self, const uint64_t *keys, void *rows, size_t row_bytes, size_t count, bool *found);
    bool (*remove)(void *self, const uint64_t *keys, size_t count);
    /* Visits every row in rising key order. */
    bool (*scan)(void *self, void (*visit)(void *argument, uint64_t key, const void *row), void *argument);
    /* At the owner's barrier. Rows with a time below expired_us are dead for good: they leave the disk when
     * the database comes by. TIME_MIN: none. */
    void (*barrier)(void *self, int64_t expired_us);
    void (*free)(void *self);
};

#endif
