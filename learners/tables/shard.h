/* The shards of an embedding table on a CPU (kernels/shards.h). */
#ifndef LEAT_LEARNERS_TABLES_SHARD_H
#define LEAT_LEARNERS_TABLES_SHARD_H

#include "learners/tables/table.h"

/* The number of shards of a table, from the job alone: the largest power of two up to TABLE_SHARDS_MAX that
 * leaves each shard 4 KiB of sketch and 8 logical buckets, else 1. sketch_bytes 0: no sketch; rows_max 0: no
 * buckets. */
uint32_t table_shards_of(uint64_t sketch_bytes, uint64_t rows_max);

#endif
