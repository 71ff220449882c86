/*
 * The shards of an embedding table: parts that can be given to another table. A key's shard follows from its hash
 * alone: a shard is a range of the logical buckets where rows are bounded (learners/tables/table.h), else a range
 * of hashes. A table has a power of two of them, at most TABLE_SHARDS_MAX. Both devices include this header.
 */
#ifndef LEAT_KERNELS_SHARDS_H
#define LEAT_KERNELS_SHARDS_H

#include "kernels/num.h"

enum { TABLE_SHARDS_MAX = 64 };

/* The high 64 bits of the product. */
static inline KERNELS_BOTH uint64_t shard_scaled(uint64_t hash, uint64_t count)
{
#ifdef __CUDA_ARCH__
    return __umul64hi(hash, count);
#else
    return (uint64_t)((unsigned __int128)hash * count >> 64);
#endif
}

/* The shard of a hash, below `shards` (0 counts as 1). buckets: logical buckets of a table with bounded rows; 0:
 * rows are not bounded. */
static inline KERNELS_BOTH uint32_t shard_of(uint64_t hash, uint32_t shards, uint64_t buckets)
{
    if (shards <= 1)
        return 0;
    return (uint32_t)(buckets > 0 ? shard_scaled(hash, buckets) * shards / buckets
                                  : shard_scaled(hash, shards));
}

#endif
