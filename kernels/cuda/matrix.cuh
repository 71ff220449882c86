/* Loads and stores of four columns of a matrix row by one thread, and sums of rows by four threads. Columns beyond
 * the row are read as zeros, and not written. */
#ifndef LEAT_KERNELS_CUDA_MATRIX_CUH
#define LEAT_KERNELS_CUDA_MATRIX_CUH

#include "kernels/cuda/rows.cuh"

/* is_aligned: the row's address is a multiple of 16 bytes. */
static __forceinline__ __device__ v16 matrix_load(const float *row, uint32_t column, uint32_t columns,
                                                  bool is_aligned)
{
    if (is_aligned && column + 4 <= columns)
        return v16_load(row + column);
    v16 some = v16_set1(0.0F);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        if (column + i < columns)
            some.f[i] = row[column + i];
    }
    return some;
}

static __forceinline__ __device__ void matrix_store(float *row, uint32_t column, uint32_t columns,
                                                    bool is_aligned, v16 x)
{
    if (is_aligned && column + 4 <= columns) {
        v16_store(row + column, x);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        if (column + i < columns)
            row[column + i] = x.f[i];
    }
}

/* v16_sum's tree over the sixteen lanes of four threads; all four get the sum. */
static __forceinline__ __device__ float quad_sum(v16 x)
{
#pragma unroll
    for (int lanes = 2; lanes > 0; lanes /= 2) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x.f[i] += __shfl_xor_sync(WARP_ALL, x.f[i], lanes);
    }
    return (x.f[0] + x.f[2]) + (x.f[1] + x.f[3]);
}

/* The lanes that share a row, each with four columns at a time: a power of two, at least `least`. */
static inline unsigned matrix_lanes(uint32_t columns, unsigned least)
{
    unsigned lanes = least;
    while (lanes < WARP_LANES && lanes * 4 < columns)
        lanes *= 2;
    return lanes;
}

static inline uint32_t matrix_stride(uint32_t stride, uint32_t columns)
{
    return stride > 0 ? stride : columns;
}

#endif
