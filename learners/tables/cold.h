/*
 * Rows beyond a table's memory lie in a cold store (core/cold_store.h). A row lies in memory or is cold;
 * where it lies changes no result:
 *   - A row in memory is the truth; the store may hold an older copy of it, which nobody reads.
 *   - Before keys are looked up in their order, all keys without a row in memory are asked of the store in
 *     one call, each once, and the rows it has are put back into memory (table_warm). The look-up then finds
 *     the same rows as without a store.
 *   - Rows are moved to the store between calls only (table_keep): rows not used for long, chosen by a clock
 *     hand that sweeps the rows. Their headers are stored with them.
 *   - Only expiry removes rows of a table with a store (one with rows_max is bounded and has no store). A
 *     row's last occurrence only rises, so when a row has expired, so have all older copies of it: an expired
 *     copy is never put back, and no removal has to reach the store. A shard that is given away leaves it
 *     (shard.h).
 *
 * Checkpoints. The store's own copy holds its rows as of the barrier. A key moved to the store since the last
 * published checkpoint is listed with the removed keys, which a restore applies before the rows: memory then
 * holds the same rows as at the barrier, except rows that were loaded from the store and have not changed
 * since, and the store still has those unchanged.
 *
 * Calls that only read. Between table_guests_begin and table_guests_end table_warm leaves memory, store and figures
 * as they are: the rows that the store has become guests (guests.c), copies that look-ups without an occurrence
 * find as if they were in memory. No key may occur meanwhile.
 *
 * A table does not give memory back: evicted rows leave room for other rows of the same table. So the
 * memory that each table holds when the learner's memory is nearly full, which shows its need, becomes
 * its share (table_share).
 */
#ifndef LEAT_LEARNERS_TABLES_COLD_H
#define LEAT_LEARNERS_TABLES_COLD_H

#include "core/cold_store.h"
#include "learners/tables/table.h"

enum { COLD_ASKED = 1024 };
/* A key that the store was asked for, and in which call. */
struct cold_asked {
    uint64_t key, call;
};

struct table_guests;
struct table_cold {
    struct cold_store *store;
    uint64_t rows;                  /* rows in the store alone, expired ones included */
    uint64_t loaded, evicted;       /* rows loaded from and moved to the store so far */
    size_t bytes_max;               /* the table's share of memory; 0: not decided yet */
    size_t bytes_capped;            /* table_row_bytes when rows_cap was last set */
    uint64_t rows_cap, rows_before; /* most rows in memory, and rows in memory after the last table_keep */
    uint32_t hand;                  /* row number where the clock hand stands */
    uint64_t *keys;                 /* [COLD_BATCH] keys of the batch being moved */
    int64_t *times;                 /* [COLD_BATCH] */
    bool *found;                    /* [COLD_BATCH] */
    unsigned char *rows_of;         /* [COLD_BATCH] stored rows */
    struct cold_asked *asked;       /* [COLD_ASKED] by hash of the key; a call asks for a key once */
    uint64_t call;                  /* number of the call that asks now */
    struct table_guests *guests;    /* guests.c; NULL: none yet */
    bool has_guests;                /* between table_guests_begin and table_guests_end */
};

/* Gives the table a store, which table_free frees. Before the table's first row; not with rows_max. */
void table_cold_init(struct table *table, struct cold_store *store);
void table_cold_free(struct table *table);

/* Tells a store the shards of the table whose rows it takes: this table's, or of a device table with the same
 * options. The table must outlive the store. table_cold_init does it for its own. */
void table_cold_bind(const struct table *table, struct cold_store *store);

/* Puts cold rows of n keys back into memory; keys that are 0 or have a row in memory are skipped. step: that
 * of the first key. Invalidates pointers into an inline table. */
void table_cold_load(struct table *table, const uint64_t *keys, size_t n, uint32_t step);
static inline void table_warm(struct table *table, const uint64_t *keys, size_t n, uint32_t step)
{
    if (unlikely(table->cold != NULL && table->cold->rows > 0))
        table_cold_load(table, keys, n, step);
}

/* guests.c; on a table without a store they do nothing. table_guest: the guest of a key (not 0), valid until
 * table_guests_end; NULL: it has none. table_guests_add: makes a guest, for table_cold_load. */
void table_guests_begin(struct table *table);
void table_guests_end(struct table *table);
struct table_row *table_guest(const struct table *table, uint64_t key);
void table_guests_add(struct table *table, const unsigned char *stored);
void table_guests_free(struct table *table);

/* Bytes of rows, pages and directory, without the sketch. */
size_t table_row_bytes(const struct table *table);
/* Sets the table's share of memory: the most that table_row_bytes should be. */
void table_share(struct table *table, size_t bytes);
/* Moves rows to the store until the table is within its share; call between calls of table_resolve. step: the
 * newest step begun; is_spared: rows used by that step stay, because events in progress point at them. */
void table_keep(struct table *table, uint32_t step, bool is_spared);
/* Moves up to `count` rows into the store; false if the store failed. */
bool table_evict(struct table *table, uint64_t count, uint32_t step, bool is_spared);

/* For shard.c; both return false if the store failed. table_cold_give moves the cold rows of a shard, and
 * those in memory that are still equal to their copy in the store, from memory and store to the end of `out`,
 * as stored rows by rising key; *count: how many. table_cold_take puts such rows into the store. */
bool table_cold_give(struct table *table, uint32_t shard, struct byte_buffer *out, uint64_t *count);
bool table_cold_take(struct table *table, const unsigned char *stored, uint64_t count);

/* By the owner at the barrier, after table_snapshot_begin. */
void table_cold_barrier(struct table *table);
/* After a restore: rows = all rows of the table, in memory and in the store. */
void table_cold_restored(struct table *table, uint64_t rows);

/* Visits the live rows of the table, in memory and cold, by rising key. A visitor stops the visit by
 * returning false. table_visit returns false if it was stopped or the store failed. */
typedef bool table_visitor(void *argument, struct table_row *row);
bool table_visit(const struct table *table, table_visitor *visit, void *argument);
static inline uint64_t table_rows(const struct table *table)
{
    return table->stats.rows + (table->cold == NULL ? 0 : table->cold->rows);
}

#endif
