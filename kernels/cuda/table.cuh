/*
 * The layout of embedding tables in device memory (gpu_table.h), and how a key is found there.
 *
 * Digest: 0 = free, and the bucket was never full; 1 = free, but the bucket was full once; 2 .. 255 of the
 * key's hash. So a probe knows from the line of digests alone whether a key that it did not find may lie in
 * its second bucket: only where no digest is 0. A removed slot becomes 0 if its bucket has a 0, else 1.
 */
#ifndef KERNELS_CUDA_TABLE_CUH
#define KERNELS_CUDA_TABLE_CUH

#include "kernels/cuda/cuda.cuh"
#include "kernels/gpu_table.h"
#include "kernels/num.h"

struct gpu_head {
    uint32_t count, seen, epoch, step;
};

struct alignas(128) gpu_bucket {
    uint8_t digests[GPU_BUCKET_SLOTS];
    uint64_t keys[GPU_BUCKET_SLOTS]; /* 0: free */
    gpu_head heads[GPU_BUCKET_SLOTS];
};

/* One table as kernels see it; an array of them lies in device memory. */
struct gpu_table_view {
    gpu_bucket *buckets;   /* the stash's first, then the table's */
    unsigned char *rows;   /* [(GPU_STASH_BUCKETS + buckets) * 128][stride] */
    uint64_t bucket_count; /* without the stash */
    uint64_t seed, init_seed;
    float init_bound;
    uint32_t bucket_rows, bucket_rows_more; /* bounded: of bucket b: bucket_rows + (b < bucket_rows_more) */
    uint32_t is_bounded;
    uint32_t expired_before;
    uint32_t admit_after;
    uint64_t sketch_width;
    uint8_t *sketch;
    uint32_t stashed; /* rows in the stash: it is looked at if there are any */
};

/* All bits of it are used somewhere: a free table's first bucket takes the low half, its second the high one;
 * a bounded table's bucket the top; the digest bits 24 to 31. */
static inline __host__ __device__ uint64_t table_hash_of(const gpu_table_view *t, uint64_t key)
{
    return num_mix(key ^ t->seed);
}

static inline __host__ __device__ uint8_t table_digest(uint64_t hash)
{
    return (uint8_t)(2 + ((uint32_t)(hash >> 24 & 255) * 254 >> 8));
}

/*
 * Linear hashing (Litwin 1980): of `buckets` (at least 1), level = the highest power of two not above them,
 * those below buckets - level are split: they and their partners take a bit more of the word. Bucket
 * `buckets`, appended, takes its rows from bucket table_split_from(buckets) alone.
 */
static inline __host__ __device__ uint64_t table_level(uint64_t buckets)
{
#ifdef __CUDA_ARCH__
    return (uint64_t)1 << (63 - __clzll((long long)buckets));
#else
    return (uint64_t)1 << (63 - __builtin_clzll(buckets));
#endif
}

static inline __host__ __device__ uint64_t table_linear(uint32_t word, uint64_t buckets)
{
    uint64_t level = table_level(buckets);
    uint64_t bucket = word & (2 * level - 1);
    return bucket < buckets ? bucket : bucket - level;
}

static inline __host__ __device__ uint64_t table_split_from(uint64_t buckets)
{
    return buckets - table_level(buckets);
}

/* Buckets of a key, without the stash; a bounded table has the first alone. They may be the same. */
static inline __host__ __device__ uint64_t table_first(const gpu_table_view *t, uint64_t hash)
{
    if (!t->is_bounded)
        return table_linear((uint32_t)hash, t->bucket_count);
#ifdef __CUDA_ARCH__
    return __umul64hi(hash, t->bucket_count);
#else
    return (uint64_t)((unsigned __int128)hash * t->bucket_count >> 64);
#endif
}

static inline __host__ __device__ uint64_t table_second(const gpu_table_view *t, uint64_t hash)
{
    return table_linear((uint32_t)(hash >> 32), t->bucket_count);
}

#endif
