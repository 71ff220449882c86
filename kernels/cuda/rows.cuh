/*
 * Rows of d floats, each processed by a group of lanes of one warp. A group is 1, 2, 4 ... 32 lanes. Each
 * lane of the group has four neighbouring floats of the row (a vector of 16 bytes). In rows of more than 128
 * floats each lane has two or four vectors, 128 floats apart. rows_by_dims chooses the number of lanes and
 * vectors from d, once a launch.
 */
#ifndef LEAT_KERNELS_CUDA_ROWS_CUH
#define LEAT_KERNELS_CUDA_ROWS_CUH

#define KERNELS_LANES_CUDA
#include "kernels/cuda/cuda.cuh"
#include "kernels/lanes.h"

/* lanes: lanes of a group. vectors: vectors of a lane. block: threads of a thread block. groups: groups of a
 * thread block. */
template <unsigned lanes_, unsigned vectors_> struct row_shape {
    static constexpr unsigned lanes = lanes_, vectors = vectors_, block = 256, groups = block / lanes_;
};

/* Calls work(shape) with the row_shape for rows of d floats, d up to 512. */
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

/* The number of thread blocks to launch for at most n rows (the host need not know the exact number). If
 * there are more rows than groups, a group processes the rows index, index + stride, ... (row_group). */
template <typename shape> static unsigned rows_blocks(size_t n, int multiprocessors)
{
    unsigned most = (unsigned)multiprocessors * 16, blocks = cuda_blocks(n, shape::groups);
    return blocks < most ? blocks : most;
}

/* The group of this thread, and the thread's lane in the group. */
template <typename shape> struct row_group {
    uint32_t index, stride; /* the group's index in the grid, and the number of groups */
    unsigned lane, mask;    /* mask: bit l is set if lane l of the warp belongs to the group */
    uint32_t d;             /* floats of a row */

    __device__ explicit row_group(uint32_t dims)
    {
        unsigned first = threadIdx.x % WARP_LANES / shape::lanes * shape::lanes;
        index = (uint32_t)(cuda_thread() / shape::lanes);
        stride = gridDim.x * shape::groups;
        lane = threadIdx.x % shape::lanes;
        mask = (WARP_ALL >> (WARP_LANES - shape::lanes)) << first;
        d = dims;
    }
    /* dim: index in the row of the first float of this lane's v-th vector. has: whether the row is that
     * long. */
    __device__ uint32_t dim(unsigned v) const
    {
        return 4 * (lane + shape::lanes * v);
    }
    __device__ bool has(unsigned v) const
    {
        return dim(v) < d;
    }
};

/* Loads this lane's v-th vector of a row. row: aligned to 16 bytes. Vectors beyond the row are zeros. */
template <typename shape>
static __forceinline__ __device__ v16 row_vector(const row_group<shape> &group, const float *row, unsigned v)
{
    return group.has(v) ? v16_load(row + group.dim(v)) : v16_set1(0.0F);
}

/*
 * Returns the sum of a row's squares to all lanes of the group. x: the lane's vectors. Called by the whole
 * group. The order of additions is that of sum_squares (kernels.h): partial sum i, of sixteen, is over the
 * floats i, i + 16, i + 32 ... of the row, by fma. Each thread computes four of the sixteen partial sums:
 * besides its own vectors it fetches, by shuffles, those of the lanes whose number has the same remainder
 * modulo four. Then the sixteen are added in the order of v16_sum.
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
        if (shape::lanes > 2) /* adds partial sums i and i + 8 of the sixteen */
            sum.f[i] += __shfl_xor_sync(group.mask, sum.f[i], 2);
        if (shape::lanes > 1)
            sum.f[i] += __shfl_xor_sync(group.mask, sum.f[i], 1);
    }
    return (sum.f[0] + sum.f[2]) + (sum.f[1] + sum.f[3]);
}

/* Returns to all lanes of the group whether every float of the row is finite. Called by the whole group. */
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
