/*
 * Rows of d floats, shared by the lanes of a warp: a group of 1, 2, 4 ... 32 lanes has a row, each lane four
 * neighbouring floats of it (16 bytes). In rows of more than 128 floats each lane has two or four such
 * vectors, 128 floats apart. The shape is chosen once a launch, from d (rows_by_dims).
 */
#ifndef LEAT_KERNELS_CUDA_ROWS_CUH
#define LEAT_KERNELS_CUDA_ROWS_CUH

#define KERNELS_LANES_CUDA
#include "kernels/cuda/cuda.cuh"
#include "kernels/lanes.h"

/* Lanes a row and vectors a lane; a thread block has `block` threads. */
template <unsigned lanes_, unsigned vectors_> struct row_shape {
    static constexpr unsigned lanes = lanes_, vectors = vectors_, block = 256, groups = block / lanes_;
};

/* Calls work(shape) with the shape for rows of d floats. */
template <typename function> static void rows_by_dims(uint32_t d, function work)
{
    if (d <= 4)
        work(row_shape<1, 1>());
    else if (d <= 8)
        work(row_shape<2, 1>());
    else if (d <= 16)
        work(row_shape<4, 1>());
    else if (d <= 32)
        work(row_shape<8, 1>());
    else if (d <= 64)
        work(row_shape<16, 1>());
    else if (d <= 128)
        work(row_shape<32, 1>());
    else if (d <= 256)
        work(row_shape<32, 2>());
    else
        work(row_shape<32, 4>());
}

/* Thread blocks for at most n rows (the exact count may be in device memory). With more rows than groups,
 * each group takes every stride-th row. */
template <typename shape> static unsigned rows_blocks(size_t n, int multiprocessors)
{
    unsigned most = (unsigned)multiprocessors * 16, blocks = cuda_blocks(n, shape::groups);
    return blocks < most ? blocks : most;
}

/* This thread's group, and its lane in the group. */
template <typename shape> struct row_group {
    uint32_t index, stride; /* the group's index in the grid, and the number of groups */
    unsigned lane, mask;    /* mask: the group's lanes in its warp */
    uint32_t d;

    __device__ explicit row_group(uint32_t dims)
    {
        unsigned first = threadIdx.x % WARP_LANES / shape::lanes * shape::lanes;
        index = (uint32_t)(cuda_thread() / shape::lanes);
        stride = gridDim.x * shape::groups;
        lane = threadIdx.x % shape::lanes;
        mask = (WARP_ALL >> (WARP_LANES - shape::lanes)) << first;
        d = dims;
    }
    /* The first dim of this lane's v-th vector, and whether the row has that dim. */
    __device__ uint32_t dim(unsigned v) const
    {
        return 4 * (lane + shape::lanes * v);
    }
    __device__ bool has(unsigned v) const
    {
        return dim(v) < d;
    }
};

/* A lane's v-th vector of a row of floats, zeros beyond the row. */
template <typename shape>
static __forceinline__ __device__ v16 row_vector(const row_group<shape> &group, const float *row, unsigned v)
{
    return group.has(v) ? v16_load(row + group.dim(v)) : v16_set1(0.0F);
}

/*
 * The sum of a row's squares, in the order of sum_squares of kernels.h: sixteen partial sums over the row's
 * blocks of sixteen floats, by fma. Four neighbouring threads hold the sixteen partial sums, four each; so
 * each thread also takes the vectors of the lanes that are congruent to its own modulo four. Then the tree of
 * v16_sum. All lanes of the group get the sum.
 */
template <typename shape>
static __forceinline__ __device__ float row_squares(const row_group<shape> &group,
                                                    const v16 (&x)[shape::vectors])
{
    constexpr unsigned fours = shape::lanes < 4 ? shape::lanes : 4;
    v16 sum = v16_set1(0.0F);
#pragma unroll
    for (unsigned v = 0; v < shape::vectors; v++) {
#pragma unroll
        for (unsigned from = 0; from < shape::lanes; from += fours) {
            v16 other = x[v];
            for (int i = 0; i < 4 && shape::lanes > 4; i++)
                other.f[i] =
                    __shfl_sync(group.mask, x[v].f[i], (int)(from + group.lane % fours), (int)shape::lanes);
            sum = v16_fma(other, other, sum);
        }
    }
    for (int i = 0; i < 4; i++) {
        if (shape::lanes > 2) /* lanes i and i + 8 of the sixteen */
            sum.f[i] += __shfl_xor_sync(group.mask, sum.f[i], 2);
        if (shape::lanes > 1)
            sum.f[i] += __shfl_xor_sync(group.mask, sum.f[i], 1);
    }
    return (sum.f[0] + sum.f[2]) + (sum.f[1] + sum.f[3]);
}

/* Whether the whole row is finite; all lanes of the group get the result. */
template <typename shape>
static __forceinline__ __device__ bool row_is_finite(const row_group<shape> &group,
                                                     const v16 (&x)[shape::vectors])
{
    bool is_finite = true;
#pragma unroll
    for (unsigned v = 0; v < shape::vectors; v++) {
        for (int i = 0; i < 4; i++)
            is_finite = is_finite && float_is_finite(x[v].f[i]);
    }
    return __all_sync(group.mask, is_finite) != 0;
}

#endif
