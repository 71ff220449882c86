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

#endif
