/*
 * pack and mask_rows of batch_train.h. The limit is memory bandwidth, four bytes read and four written
 * per number.
 *
 *   naive          one thread per number of the output: neighbouring threads read different  not measured
 *                  columns, each a sector of 32 bytes for four bytes
 *   tiles          of 64 events and up to 32 columns go through shared memory: columns are   not measured
 *                  read in runs of events, rows written in runs of columns, for any number
 *                  of columns (an odd stride, so threads have no bank conflicts)
 *   mask: a vote   a warp reads the marks of 32 rows at once, and all its lanes clear the    not measured
 *                  marked rows, 16 bytes per lane: other rows cost one byte
 */
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/parts.cuh"

enum { BLOCK = 256, WARPS = BLOCK / WARP_LANES, TILE_EVENTS = 64, TILE_COLUMNS = 32 };

static __global__ void __launch_bounds__(BLOCK) pack_kernel(batch_pack a, uint32_t stride)
{
    SHARED(float[TILE_COLUMNS][TILE_EVENTS + 1], tile);
    const uint32_t tiles = cuda_blocks(a.n, TILE_EVENTS);
    const uint32_t event = blockIdx.x % tiles * TILE_EVENTS, column = blockIdx.x / tiles * TILE_COLUMNS;
    const uint32_t events = min(a.n - event, (uint32_t)TILE_EVENTS);
    const uint32_t columns = min(a.count - column, (uint32_t)TILE_COLUMNS);
    const uint32_t mine = threadIdx.x % TILE_EVENTS;
    const bool is_kept = mine < events && !(a.is_rejected != nullptr && a.is_rejected[event + mine]);
#pragma unroll 4
    for (uint32_t c = threadIdx.x / TILE_EVENTS; c < columns; c += BLOCK / TILE_EVENTS)
        tile[c][mine] = is_kept ? a.columns[(size_t)(column + c) * a.columns_stride + event + mine] : 0.0F;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < events * columns; i += BLOCK) {
        const uint32_t e = i / columns, c = i - e * columns;
        a.out[(size_t)(event + e) * stride + column + c] = tile[c][e];
    }
}

/* Clears a row, by the whole warp. */
static __device__ __forceinline__ void clear_row(float *row, uint32_t columns, uint32_t lane)
{
    if ((uintptr_t)row % sizeof(float4) != 0) { /* rows without gaps, of columns that are no multiple of 4 */
        for (uint32_t c = lane; c < columns; c += WARP_LANES)
            row[c] = 0.0F;
        return;
    }
    for (uint32_t c = lane * 4; c + 4 <= columns; c += WARP_LANES * 4)
        *reinterpret_cast<float4 *>(row + c) = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    if (lane < columns % 4)
        row[columns / 4 * 4 + lane] = 0.0F;
}

static __global__ void __launch_bounds__(BLOCK) mask_rows_kernel(batch_mask_rows a, uint32_t stride)
{
    const size_t first = cuda_thread() / WARP_LANES * WARP_LANES;
    const uint32_t lane = threadIdx.x % WARP_LANES;
    const bool is_mine = first + lane < a.n && a.is_rejected[first + lane];
    for (unsigned marked = __ballot_sync(WARP_ALL, is_mine); marked != 0; marked &= marked - 1)
        clear_row(a.x + (first + (uint32_t)__ffs((int)marked) - 1) * stride, a.columns, lane);
}

void cuda_pack(batch_pack *a, void *stream)
{
    if (a->n == 0 || a->count == 0)
        return;
    const unsigned blocks = cuda_blocks(a->n, TILE_EVENTS) * cuda_blocks(a->count, TILE_COLUMNS);
    LAUNCH(pack_kernel, blocks, BLOCK, 0, gpu_cuda_stream(stream), *a, a->stride > 0 ? a->stride : a->count);
    (void)gpu_launched(stream, "pack");
}

void cuda_mask_rows(batch_mask_rows *a, void *stream)
{
    if (a->n == 0)
        return;
    LAUNCH(mask_rows_kernel, cuda_blocks(a->n, BLOCK), BLOCK, 0, gpu_cuda_stream(stream), *a,
           a->stride > 0 ? a->stride : a->columns);
    (void)gpu_launched(stream, "mask_rows");
}
