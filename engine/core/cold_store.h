/* Where a learner's table puts rows that do not fit into its memory; `state` implements it over RocksDB. Keys
 * are 64-bit, rows have one fixed size per store. All calls come from the one thread that owns the table. */
#ifndef LEAT_CORE_COLD_STORE_H
#define LEAT_CORE_COLD_STORE_H

#include "core/base.h"

struct cold_store {
    void *self;
    /* Writes rows in one batch. false: the store failed; the learner stops. */
    bool (*put)(void *self, const uint64_t *keys, const void *rows, size_t row_bytes, size_t count);
    /* Reads in one batch; found[i] says whether rows + i * row_bytes was filled. */
    bool (*get)(void *self, const uint64_t *keys, void *rows, size_t row_bytes, size_t count, bool *found);
    bool (*remove)(void *self, const uint64_t *keys, size_t count);
    /* Visits every row in rising key order. */
    bool (*scan)(void *self, void (*visit)(void *argument, uint64_t key, const void *row), void *argument);
};

#endif
