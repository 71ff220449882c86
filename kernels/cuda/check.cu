/*
 * check of batch.h.
 *
 *   naive          one thread per row, and one thread for the total of all rows          not measured
 *   groups         one group of lanes per row, 16 bytes per lane: a warp's access is     not measured
 *                  one contiguous piece
 *   chunks         one block per chunk of BATCH_CHUNK rows sums the chunk itself: the    not measured
 *                  squares are not read again, and one thread adds only
 *                  rows / BATCH_CHUNK sums
 *
 * The limit is memory bandwidth: four bytes per number. Sums have the order that batch.h gives, so no
 * atomics.
 */
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/parts.cuh"
#include "kernels/cuda/rows.cuh"

enum { CHECK_BLOCK = 512, CHECK_AHEAD = 16 };

template <typename shape> static __global__ void __launch_bounds__(CHECK_BLOCK) check_kernel(batch_check a)
{
    SHARED(float[BATCH_CHUNK], finite_squares);
    row_group<shape> group(a.d);
    uint32_t first = blockIdx.x * BATCH_CHUNK;
    uint32_t count = a.rows - first < BATCH_CHUNK ? a.rows - first : (uint32_t)BATCH_CHUNK;
    for (uint32_t r = threadIdx.x / shape::lanes; r < count; r += CHECK_BLOCK / shape::lanes) {
        v16 x[shape::vectors];
#pragma unroll
        for (unsigned v = 0; v < shape::vectors; v++)
            x[v] = row_vector(group, a.x + (size_t)(first + r) * a.d, v);
        bool is_finite = row_is_finite(group, x);
        float squares = row_squares(group, x);
        if (group.lane != 0)
            continue;
        finite_squares[r] = is_finite ? squares : 0.0F;
        if (a.is_finite)
            a.is_finite[first + r] = is_finite;
        if (a.squares)
            a.squares[first + r] = squares;
    }
    if (!a.total)
        return;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    double sum = 0.0;
    for (uint32_t r = 0; r < count; r++)
        sum += (double)finite_squares[r];
    ((double *)a.scratch)[blockIdx.x] = sum;
}

/* One thread adds the chunks' sums in order, with several loads in flight. */
static __global__ void check_total_kernel(const double *sums, uint32_t chunks, double *total)
{
    double sum = 0.0;
    for (uint32_t from = 0; from < chunks; from += CHECK_AHEAD) {
        double next[CHECK_AHEAD];
#pragma unroll
        for (uint32_t k = 0; k < CHECK_AHEAD; k++)
            next[k] = from + k < chunks ? sums[from + k] : 0.0;
#pragma unroll
        for (uint32_t k = 0; k < CHECK_AHEAD; k++)
            sum += next[k];
    }
    *total = sum;
}

void cuda_check(batch_check *a, void *stream)
{
    uint32_t chunks = cuda_blocks(a->rows, BATCH_CHUNK);
    if (!a->scratch) {
        size_t bytes = a->total ? chunks * sizeof(double) : 0;
        a->scratch_bytes = bytes > BATCH_SCRATCH_MIN ? bytes : (size_t)BATCH_SCRATCH_MIN;
        return;
    }
    if (chunks > 0)
        rows_by_dims(a->d, [&](auto shape) {
            LAUNCH(check_kernel<decltype(shape)>, chunks, CHECK_BLOCK, 0, gpu_cuda_stream(stream), *a);
        });
    if (a->total)
        LAUNCH(check_total_kernel, 1, 1, 0, gpu_cuda_stream(stream), (const double *)a->scratch, chunks,
               a->total);
    (void)gpu_launched(stream, "check");
}
