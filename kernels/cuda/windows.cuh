/* Where the rows of a jagged batch belong (batch_sequence.h): offsets of windows, some of which may be empty. */
#ifndef LEAT_KERNELS_CUDA_WINDOWS_CUH
#define LEAT_KERNELS_CUDA_WINDOWS_CUH

#include "kernels/cuda/cuda.cuh"

/* The window of a row, row < offsets[windows]. */
static inline __device__ uint32_t window_of(const uint32_t *offsets, uint32_t windows, uint32_t row)
{
    uint32_t low = 0, high = windows; /* offsets[low] <= row < offsets[high] */
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (__ldg(offsets + middle) <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

#endif
