/*
 * The layout of embedding tables in device memory (gpu_table.h), and how a key is found there.
 *
 * Digest: 0 = free, and the bucket was never full; 1 = free, but the bucket was full once; 2 .. 255 of the
 * key's hash. So a probe knows from the line of digests alone whether a key that it did not find may lie in
 * its second bucket: only where no digest is 0. A removed slot becomes 0 if its bucket has a 0, else 1; 1 is
 * always right, 0 saves a look. A bucket that splits hands this on: if it has no 0, neither of the two gets
 * one, unless their keys were fetched home from second buckets and stash. The stash is filled in order, and
 * goes by the same rule: behind a bucket with a 0 there is nothing.
 */
#ifndef KERNELS_CUDA_TABLE_CUH
#define KERNELS_CUDA_TABLE_CUH

#include "kernels/cuda/cuda.cuh"
#include "kernels/gpu_table.h"
#include "kernels/num.h"

enum { DIGEST_FREE = 0, DIGEST_WAS_FULL = 1, DIGEST_KEYS = 2 };

#define SLOT_NONE UINT64_MAX

struct alignas(16) gpu_head {
    uint32_t count, seen, epoch, step;
};

struct alignas(128) gpu_bucket {
    uint8_t digests[GPU_BUCKET_SLOTS];
    uint64_t keys[GPU_BUCKET_SLOTS]; /* 0: free */
    gpu_head heads[GPU_BUCKET_SLOTS];
};

/* One table as kernels see it; an array of them lies in device memory. Written by the host alone
 * (tables_set_view): what kernels count lies in gpu_table_counts. */
struct gpu_table_view {
    gpu_bucket *buckets;    /* the stash's first, then the table's */
    unsigned char *rows;    /* [(stash_buckets + bucket_count) * 128][stride] */
    uint64_t bucket_count;  /* without the stash */
    uint32_t number;        /* buckets of the tables before it: its own are numbered on from there */
    uint32_t stash_buckets; /* 0: bounded, or GPU_STASH_BUCKETS */
    uint64_t seed, init_seed;
    float init_bound;
    float extra[4];                         /* new rows' */
    uint32_t bucket_rows, bucket_rows_more; /* bounded: of bucket b: bucket_rows + (b < bucket_rows_more) */
    uint32_t is_bounded;
    uint32_t expired_before;
    uint32_t admit_after;
    uint64_t sketch_width;
    uint8_t *sketch;
    uint32_t *sketch_epochs; /* of each block: checkpoint epoch of the last change; 0: never changed */
};

/* What kernels count, a table each. */
struct gpu_table_counts {
    unsigned long long rows, inserted, evicted, expired, refused, waiting;
    uint32_t stashed; /* rows in the stash: it is looked at if there are any */
};

/* A key that is gone for good. */
struct gpu_removed {
    uint64_t key;
    uint32_t table, unused;
};

/* Of a set: what goes wrong there, and how many removals are listed. */
struct gpu_table_flags {
    uint32_t removed;    /* in the list; above its room: some were lost */
    uint32_t overflowed; /* rows for which not even the stash had room */
};

/* The list of removals, as an argument of kernels. */
struct gpu_removed_list {
    gpu_removed *items; /* NULL: none is kept */
    gpu_table_flags *flags;
    uint32_t room;
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

/* The later of two steps; 0: none. A batch that is fetched ahead marks rows before earlier ones use them. */
static inline __device__ uint32_t table_later_step(uint32_t a, uint32_t b)
{
    return a == 0 || (b != 0 && (int32_t)(b - a) > 0) ? b : a;
}

/* Rows that bucket b may hold. */
static inline __device__ uint32_t table_room(const gpu_table_view *view, uint64_t b)
{
    return view->is_bounded ? view->bucket_rows + (b < view->bucket_rows_more) : (uint32_t)GPU_BUCKET_SLOTS;
}

/* slot: counted from the first bucket of the stash. */
static inline __device__ gpu_head *table_head(const gpu_table_view *view, uint64_t slot)
{
    return &view->buckets[slot / GPU_BUCKET_SLOTS].heads[slot % GPU_BUCKET_SLOTS];
}

static inline __device__ unsigned char *table_row(const gpu_table_view *view, uint64_t slot, uint32_t stride)
{
    return view->rows + slot * stride;
}

/* Lists a key as gone. */
static inline __device__ void table_list_removed(const gpu_removed_list *list, uint32_t table, uint64_t key)
{
    if (list->items == NULL)
        return;
    uint32_t at = atomicAdd(&list->flags->removed, 1U);
    if (at < list->room)
        list->items[at] = {key, table, 0};
}

/* Of a warp, in all lanes; __reduce_*_sync where there is one (sm_80). */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define TABLE_REDUCE(name, expression)                                                                       \
    static inline __device__ uint32_t name(uint32_t a)                                                       \
    {                                                                                                        \
        for (int i = 16; i > 0; i /= 2) {                                                                    \
            uint32_t b = __shfl_xor_sync(WARP_ALL, a, i);                                                    \
            a = expression;                                                                                  \
        }                                                                                                    \
        return a;                                                                                            \
    }
TABLE_REDUCE(warp_sum, a + b)
TABLE_REDUCE(warp_least, a < b ? a : b)
TABLE_REDUCE(warp_most, a > b ? a : b)
#undef TABLE_REDUCE
#else
static inline __device__ uint32_t warp_sum(uint32_t a)
{
    return __reduce_add_sync(WARP_ALL, a);
}

static inline __device__ uint32_t warp_least(uint32_t a)
{
    return __reduce_min_sync(WARP_ALL, a);
}

static inline __device__ uint32_t warp_most(uint32_t a)
{
    return __reduce_max_sync(WARP_ALL, a);
}
#endif

/* Adds each lane's n to a count of its table: one atomic a table. The whole warp calls it. */
static inline __device__ void table_count(gpu_table_counts *counts,
                                          unsigned long long gpu_table_counts::*which, uint32_t table,
                                          uint32_t n)
{
    uint32_t left = __ballot_sync(WARP_ALL, n > 0);
    while (left != 0) {
        int leader = __ffs((int)left) - 1;
        uint32_t of = __shfl_sync(WARP_ALL, table, leader);
        bool is_its = n > 0 && table == of;
        uint32_t sum = warp_sum(is_its ? n : 0);
        if ((int)(threadIdx.x % WARP_LANES) == leader)
            atomicAdd(&(counts[of].*which), (unsigned long long)sum);
        left &= ~__ballot_sync(WARP_ALL, is_its);
    }
}

#endif
