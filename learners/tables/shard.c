#include "learners/tables/shard.h"

enum { SHARD_BUCKETS_MIN = 8 };

uint32_t table_shards_of(uint64_t sketch_bytes, uint64_t rows_max)
{
    uint64_t buckets = rows_max / TABLE_BUCKET_ROWS + (rows_max % TABLE_BUCKET_ROWS > 0);
    uint32_t shards = TABLE_SHARDS_MAX;
    while (shards > 1 && ((sketch_bytes > 0 && sketch_bytes / SKETCH_BLOCK < shards) ||
                          (rows_max > 0 && buckets / SHARD_BUCKETS_MIN < shards)))
        shards /= 2;
    return shards;
}
