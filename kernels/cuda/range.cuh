/*
 * Device memory that grows in place: an address range is reserved once and gets memory piece by piece, so
 * that no address in it ever changes (driver API: cuMemAddressReserve, cuMemCreate, cuMemMap). In the host's
 * model: pages that fault until they are needed, so that reads beyond the end are found.
 *
 * Any thread, one at a time for each range. New memory is not initialized. No function waits for a stream:
 * memory is usable at return, and range_free must be called after the last kernel that uses the range is
 * done.
 */
#ifndef LEAT_KERNELS_CUDA_RANGE_CUH
#define LEAT_KERNELS_CUDA_RANGE_CUH

#include "kernels/cuda/gpu.cuh"

struct gpu_range_piece {
    size_t bytes;
};

/* All zero: no range, which range_free accepts. */
struct gpu_range {
    unsigned char *base;
    size_t reserved, usable;
    size_t granule; /* all pieces are multiples of it, in bytes */
    gpu_range_piece *pieces;
    size_t pieces_count;
};

/* Reserves `bytes` > 0 of addresses, none usable yet. false: error is set, and *range is zero. */
bool range_init(gpu *gpu, gpu_range *range, size_t bytes, gpu_error *error);
/* Makes the first `bytes` usable. Returns false with `error` set if they do not fit (the text says how much
 * is needed and free) or are more than was reserved; the usable part stays usable. */
bool range_need(gpu *gpu, gpu_range *range, size_t bytes, gpu_error *error);
void range_free(gpu *gpu, gpu_range *range);

/* The device memory that `bytes` of a range take, rounded up to whole granules. */
static inline size_t range_rounded(const gpu_range *range, size_t bytes)
{
    return (bytes + range->granule - 1) / range->granule * range->granule;
}

#endif
