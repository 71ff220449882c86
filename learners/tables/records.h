/*
 * Records of a checkpoint that have items of tables: stored rows ('R'), keys removed since the last published
 * checkpoint ('D'), blocks of the admission sketch that changed ('C'). A record has items of one kind, of one shard of
 * one table. Its bytes: a head, then the items. All records of learners begin with such a head
 * (learner/checkpoint.c, stored/stored.h).
 *
 * Writing: on the checkpoint's thread, while the owner goes on (table_snapshot_write). Reading: by the owner; the bytes
 * may come from a damaged file.
 */
#ifndef LEAT_LEARNERS_TABLES_RECORDS_H
#define LEAT_LEARNERS_TABLES_RECORDS_H

#include "core/buffer.h"
#include "core/snapshot.h"
#include "learners/tables/table.h"

enum {
    STATE_VERSION = 6,
    STATE_VERSION_FROM = 5, /* taken through --from by kinds that say so: a table had one shard */
};

struct record_head {
    uint8_t kind;
    uint8_t version;
    uint8_t field;       /* number of the table; of a piece: 1 in the last piece, else 0 */
    uint8_t shard;       /* 'R', 'D', 'C': of the table (kernels/shards.h), to which all items belong */
    uint32_t item_bytes; /* bytes of an item: 'R': a stored row; 'D': a key; 'C': a block; 'T': a total */
};
_Static_assert(TABLE_SHARDS_MAX <= UINT8_MAX, "record_head");

/* Shards of a table. */
uint32_t record_shards(const struct table *table);

/* --- Writing --- */

/* Writes items of a table, in records by shard. `out` set, all else zero; then rows_writer_begin. The caller frees it with
 * rows_writer_free. */
struct rows_writer {
    struct snapshot_writer *out;
    const struct table *table;
    struct record_head head;
    struct byte_buffer shards[TABLE_SHARDS_MAX]; /* a record of each shard; empty: no item yet */
};

/* From now on items are of that kind, and of item_bytes bytes, of the table with the number `field`. What was put before has
 * been flushed. */
void rows_writer_begin(struct rows_writer *writer, const struct table *table, uint32_t field, uint8_t kind,
                       size_t item_bytes);
/* Puts items (a chunks_emit; `writer`: a struct rows_writer); writes records that are full. False: the disk failed. */
bool rows_writer_put(void *writer, const void *items, size_t count);
/* Writes the records that are not full. False: the disk failed. */
bool rows_writer_flush(struct rows_writer *writer);
void rows_writer_free(struct rows_writer *writer);
/* Puts removed keys and flushes them. */
bool rows_writer_put_removed(struct rows_writer *writer, const struct table *table, uint32_t field,
                             const struct table_keys *removed);
/* Writes all of a table's snapshot: removed keys, rows, counts. False: the disk failed. */
bool rows_write_table(struct snapshot_writer *out, const struct table *table, uint32_t field,
                      struct table_snapshot *snapshot, const struct table_keys *removed);

/* A record 'T': the number of all rows of a table, in memory and cold. record_total: false if the bytes are no such
 * record's. */
bool record_put_total(struct snapshot_writer *out, uint32_t field, uint64_t rows);
bool record_total(const struct record_head *head, const void *items, size_t bytes, uint64_t *rows);

/* --- Reading --- */

/* Whether the head is one of 'R', 'D', 'C' and its items fit the table: as many bytes each, and whole. */
bool record_fits(const struct table *table, const struct record_head *head, size_t bytes);
/* Whether all items of a record that fits are of the head's shard. */
bool record_is_of_shard(const struct table *table, const struct record_head *head, const void *items,
                        size_t bytes);
/* Restores the items of a record that fits; false: an item cannot be of the table (table_restore_items). */
bool record_restore(struct table *table, const struct record_head *head, const void *items, size_t bytes);

#endif
