/* Sorts records by (time, hash, key, order of adding) in bounded memory. What does not fit is written in
 * sorted runs to a file without a name beside the database, and merged as it is read. For one call of an
 * operator: nothing of it is in a checkpoint. A sorter belongs to its lane.
 *
 *     struct sorter *sorter = sorter_new(store, 2 << 20);
 *     sorter_add(sorter, &record); ...
 *     while (sorter_next(sorter, &record)) ...
 *     sorter_free(sorter); */
#ifndef LEAT_STATE_SORTER_H
#define LEAT_STATE_SORTER_H

#include "state/state.h"

struct sorter;

struct sorted_record {
    int64_t time_us;
    uint64_t hash;
    struct key key;
    struct str data; /* aligned to 8 bytes in sorter_next */
};

/* budget_bytes: of memory; at least 64 KiB are used. If the store has no directory, all stays in memory. */
struct sorter *sorter_new(struct state_store *store, size_t budget_bytes);
void sorter_free(struct sorter *sorter); /* NULL is allowed */
/* Adds a record; not after the first sorter_next. */
void sorter_add(struct sorter *sorter, const struct sorted_record *record);
/* Returns the next record, valid until the next call. False: there are no more, or the file failed
 * (state_store_error says why). */
bool sorter_next(struct sorter *sorter, struct sorted_record *record);
/* Bytes of memory, and of the file. */
size_t sorter_memory(const struct sorter *sorter);
uint64_t sorter_file_bytes(const struct sorter *sorter);

#endif
