/*
 * Device memory that grows in place: an address range is reserved once and gets memory piece by piece, so
 * that no address in it ever changes (driver API: cuMemAddressReserve, cuMemCreate, cuMemMap). On a host's
 * model: pages that fault until they are needed, so that sanitizers see who reads beyond.
 *
 * Any thread, one at a time a range. New memory holds anything. Nothing here waits for a stream: memory is
 * there at return, and range_free must come after the last kernel that uses it.
 */
#ifndef KERNELS_CUDA_RANGE_CUH
#define KERNELS_CUDA_RANGE_CUH

#include "kernels/cuda/gpu.cuh"

struct gpu_range_piece {
    size_t bytes;
};

/* All zero: none, which range_free accepts. */
struct gpu_range {
    unsigned char *base;
    size_t reserved, usable;
    size_t granule; /* pieces are multiples of it */
    gpu_range_piece *pieces;
    size_t pieces_count;
};

/* Reserves `bytes` of addresses (more than 0), none of them usable yet. false: error; *range is zero. */
bool range_init(gpu *gpu, gpu_range *range, size_t bytes, gpu_error *error);
/* Makes the first `bytes` usable. false: it does not fit (how much was needed and is free), or is more than
 * was reserved; what was usable stays so. */
bool range_need(gpu *gpu, gpu_range *range, size_t bytes, gpu_error *error);
void range_free(gpu *gpu, gpu_range *range);

/* What `bytes` of a range take of the device's memory. */
static inline size_t range_rounded(const gpu_range *range, size_t bytes)
{
    return (bytes + range->granule - 1) / range->granule * range->granule;
}

#endif
