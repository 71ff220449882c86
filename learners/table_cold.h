/*
 * Rows beyond a table's memory, in a cold store (core/cold_store.h). A row lies in memory or is cold; where
 * it lies changes no result:
 *   - A row in memory is the truth; the store may hold an older copy of it, which nobody asks for.
 *   - Before keys are looked up in their order, those that have no row in memory are asked of the store, all
 * in one call, and what it has is put back (table_warm). The look-up then meets what it would have met.
 *   - Rows go to the store between calls only (table_keep): those not used for long, by a hand that sweeps
 * the rows like a clock's. They take their header along.
 *   - Only expiry removes rows of such a table (one with rows_max is bounded by it and has no store). A row's
 * last sighting only rises, so once a row has expired, every older copy of it has as well: an expired copy is
 * never put back, and no removal has to reach the store.
 *
 * Checkpoints. The store's own copy holds its rows as of the barrier. A key that went to the store since the
 * last published checkpoint is listed with those that were removed, which a restore applies before the rows:
 * memory then holds what it held at the barrier, except rows that had come back and not changed since, and
 * those are found in the store as they are.
 *
 * Memory that a table has taken is not given back: evicted rows leave room for others of the same table. So
 * what each table holds when the learner's memory is nearly full, which is its need, becomes its share
 * (table_share).
 */
#ifndef LEARNERS_TABLE_COLD_H
#define LEARNERS_TABLE_COLD_H

#include "core/cold_store.h"
#include "learners/table.h"

struct table_cold {
    struct cold_store *store;
    uint64_t rows; /* in the store alone, those that expired there included */
    uint64_t loaded, evicted;
    size_t bytes_max; /* 0: not decided yet */
    size_t bytes_capped;
    uint64_t rows_cap, rows_before;
    uint32_t hand;
    uint64_t *keys;         /* COLD_BATCH: of a batch on its way */
    int64_t *times;         /* COLD_BATCH */
    bool *found;            /* COLD_BATCH */
    unsigned char *rows_of; /* COLD_BATCH stored rows */
};

/* Gives the table a store, which it frees at its end. Before its first row; not with rows_max. */
void table_cold_init(struct table *table, struct cold_store *store);
void table_cold_free(struct table *table);

/* Puts cold rows of the keys back into memory; those with key 0 or in memory already do not matter. step: of
 * the first of them. Pointers into an inline table do not survive it. */
void table_cold_load(struct table *table, const uint64_t *keys, size_t n, uint32_t step);
static inline void table_warm(struct table *table, const uint64_t *keys, size_t n, uint32_t step)
{
    if (unlikely(table->cold != NULL && table->cold->rows > 0))
        table_cold_load(table, keys, n, step);
}

/* Bytes of rows and of what finds them: what a share is compared with. */
size_t table_row_bytes(const struct table *table);
void table_share(struct table *table, size_t bytes);
/* Keeps the share; between calls. step: the newest one begun; is_spared: its rows are still pointed at. */
void table_keep(struct table *table, uint32_t step, bool is_spared);
/* Moves up to `count` rows into the store; false: it failed. */
bool table_evict(struct table *table, uint64_t count, uint32_t step, bool is_spared);

/* At the owner's barrier, after table_snapshot_begin. */
void table_cold_barrier(struct table *table);
/* After a restore: of how many rows memory holds a part. */
void table_cold_restored(struct table *table, uint64_t rows);

/* Rows of the table that are alive, in memory and cold, by rising key. false: the store failed. */
typedef bool table_visitor(void *argument, struct table_row *row);
bool table_visit(const struct table *table, table_visitor *visit, void *argument);
static inline uint64_t table_rows(const struct table *table)
{
    return table->stats.rows + (table->cold == NULL ? 0 : table->cold->rows);
}

#endif
