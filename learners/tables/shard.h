/*
 * Giving a shard of a table (kernels/shards.h) to another table of the same job, which has the same options:
 * the shard's rows, counts of keys that wait for admission, removed keys and cold rows. Together the two
 * tables then predict, learn, forget and checkpoint as one table with both tables' shards would.
 *
 * Both functions are called by the tables' owners between calls of table_resolve, with no step in progress:
 * pointers to the giver's rows, and to the taker's if rows are inline, become invalid. Both tables must have
 * seen the same watermarks and the same barriers.
 *
 * Checkpoints. All that a checkpoint, base or delta, has of a shard comes from the table that had the shard
 * at the barrier. A barrier comes to both tables between the same two exchanges, but each table ends its
 * snapshot on its own: one may still be open when the other has ended.
 *   - A row keeps the epoch of its last change, so the taker's next snapshot has it if the giver's would have
 *     had it. Snapshots that are open stay as at their barriers: the giver's has the row, the taker's does
 *     not (chunks.h). While the writer has not yet come by, the giver copies aside what it changes: up to all
 *     rows of the snapshot, as a shard's rows are spread over all chunks. So an exchange costs least while no
 *     snapshot is written.
 *   - Keys removed since the last barrier belong to the next snapshot: the taker's. Keys listed by the
 *     giver's open snapshot stay in it, and a copy goes along: if that checkpoint is abandoned, the taker's
 *     next snapshot lists them (table_snapshot_take_removed), and the giver's does not.
 *   - A row that was loaded from the cold store and has not changed since may be in no snapshot of rows: the
 *     checkpoint has it in the store's copy alone. So such a row is given as a cold row, and lies in the
 *     taker's store.
 */
#ifndef LEAT_LEARNERS_TABLES_SHARD_H
#define LEAT_LEARNERS_TABLES_SHARD_H

#include "core/buffer.h"
#include "learners/tables/table.h"

/* The number of shards of a table, from the job alone: the largest power of two up to TABLE_SHARDS_MAX that
 * leaves each shard 4 KiB of sketch and 8 logical buckets, else 1. sketch_bytes 0: no sketch; rows_max 0: no
 * buckets. */
uint32_t table_shards_of(uint64_t sketch_bytes, uint64_t rows_max);

/* Moves a shard out of the table: appends its content to `out`, for table_take_shard. The table then has
 * nothing of the shard, apart from its open snapshot. Returns false if the cold store failed, which stops the
 * job. */
LEAT_CHECKED bool table_give_shard(struct table *table, uint32_t shard, struct byte_buffer *out);

/* Adds a shard that another table gave to a table that has nothing of it. Returns false, with the table
 * unchanged, if the bytes are not a shard of such a table at its present watermark and epoch, or if the table
 * has rows of the shard already; or if the cold store failed. */
LEAT_CHECKED bool table_take_shard(struct table *table, const void *bytes, size_t length);

#endif
