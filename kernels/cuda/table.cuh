/*
 * The layout of embedding tables in device memory (gpu_table.h), and the buckets of a key.
 *
 * Digest of a slot: 0 = free, and the bucket was never full; 1 = free, but the bucket was full once; 2 .. 255
 * from the key's hash. If a probe does not find its key in the first bucket, the line of digests tells
 * whether the key may lie in its second bucket: only if no digest is 0. A freed slot becomes 0 if its bucket
 * has a 0, else 1; 1 is always correct, 0 saves a look at the second bucket. When a bucket splits, both
 * halves get a 0 only if the bucket had one, because without a 0 the keys of either half may lie in their
 * second bucket or in the stash. The stash's buckets are filled in order, and follow the same rule: behind a
 * bucket with a 0 there is nothing.
 */
#ifndef LEAT_KERNELS_CUDA_TABLE_CUH
#define LEAT_KERNELS_CUDA_TABLE_CUH

#include "kernels/cuda/cuda.cuh"
#include "kernels/gpu_table.h"
#include "kernels/num.h"

enum { DIGEST_FREE = 0, DIGEST_WAS_FULL = 1, DIGEST_KEYS = 2 };

#define SLOT_NONE UINT64_MAX

/* The header of a row. seen: the key's latest event time, in seconds. epoch: of the checkpoint that the row's
 * last change belongs to. step: the last batch that used the row; 0: none. */
struct alignas(16) gpu_head {
    uint32_t count, seen, epoch, step;
};

struct alignas(128) gpu_bucket {
    uint8_t digests[GPU_BUCKET_SLOTS];
    uint64_t keys[GPU_BUCKET_SLOTS]; /* 0: free */
    gpu_head heads[GPU_BUCKET_SLOTS];
};

/* One table as kernels see it; an array of them lies in device memory. Only the host changes it
 * (tables_set_view); counters that kernels change are in gpu_table_counts. */
struct gpu_table_view {
    gpu_bucket *buckets;     /* first the stash's buckets, then the table's */
    unsigned char *rows;     /* [(stash_buckets + bucket_count) * 128][stride] */
    uint64_t bucket_count;   /* without the stash */
    uint32_t buckets_before; /* buckets of all earlier tables of the set, without their stashes */
    uint32_t stash_buckets;  /* 0 (bounded) or GPU_STASH_BUCKETS */
    uint64_t seed, init_seed;
    float init_bound;
    float extra[4];                         /* initial values in new rows */
    uint32_t bucket_rows, bucket_rows_more; /* bounded: bucket_rows + (b < bucket_rows_more) */
    uint32_t is_bounded;
    uint32_t expired_before;
    uint32_t admit_after;
    uint64_t sketch_width;
    uint8_t *sketch; /* [shards][GPU_SKETCH_DEPTH][sketch_width] */
    uint32_t shards;
    uint32_t *sketch_epochs; /* by block: checkpoint epoch of the last change; 0: never changed */
};

/* The counters of one table, changed by kernels. */
struct gpu_table_counts {
    unsigned long long rows, inserted, evicted, expired, refused, waiting;
    uint32_t stashed; /* rows in the stash; probes search the stash only if it is above 0 */
};

/* A key that was removed for good. */
struct gpu_removed {
    uint64_t key;
    uint32_t table, unused;
};

/* Shared by the tables of a set: the length of the list of removals, and errors that kernels found. */
struct gpu_table_flags {
    uint32_t removed;    /* entries; if above the list's room, some were lost */
    uint32_t overflowed; /* rows for which even the stash had no room */
};

/* The list of removals, as a kernel argument. */
struct gpu_removed_list {
    gpu_removed *items; /* NULL: removals are not recorded */
    gpu_table_flags *flags;
    uint32_t room;
};

/* The hash of a key. All its bits are used: a free table's first bucket takes the low half, its second bucket
 * the high half; a bounded table's bucket takes the top bits; the digest takes bits 24 to 31. */
static inline __host__ __device__ uint64_t table_hash_of(const gpu_table_view *t, uint64_t key)
{
    return num_mix(key ^ t->seed);
}

static inline __host__ __device__ uint8_t table_digest(uint64_t hash)
{
    return (uint8_t)(2 + ((uint32_t)(hash >> 24 & 255) * 254 >> 8));
}

/*
 * Linear hashing (Litwin 1980) of `buckets` >= 1 buckets: level = the highest power of two not above
 * `buckets`. The buckets below buckets - level are split: they and their partners, `level` buckets higher,
 * use one more bit of the word. Bucket number `buckets`, when appended, takes rows only from bucket
 * table_split_from(buckets).
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

/* A key's first and second bucket, without the stash; may be the same. Bounded tables have only the first. */
static inline __host__ __device__ uint64_t table_first(const gpu_table_view *t, uint64_t hash)
{
    return t->is_bounded ? shard_scaled(hash, t->bucket_count)
                         : table_linear((uint32_t)hash, t->bucket_count);
}

static inline __host__ __device__ uint64_t table_second(const gpu_table_view *t, uint64_t hash)
{
    return table_linear((uint32_t)(hash >> 32), t->bucket_count);
}

/* The later of two steps; 0: no step. Needed because a batch that is fetched ahead marks rows as used before
 * earlier batches use them. */
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

/* Records a key as removed. */
static inline __device__ void table_list_removed(const gpu_removed_list *list, uint32_t table, uint64_t key)
{
    if (list->items == NULL)
        return;
    uint32_t at = atomicAdd(&list->flags->removed, 1U);
    if (at < list->room)
        list->items[at] = {key, table, 0};
}

/* The sum, minimum or maximum over a warp, in all lanes; by __reduce_*_sync from sm_80 on. */
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

/* Adds each lane's n to a counter of its table: one atomic for each table. Called by the whole warp. */
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
