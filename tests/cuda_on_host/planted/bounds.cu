/* Indices out of bounds, and misaligned addresses. */
#include "tests/cuda_on_host/planted/planted.h"

static __global__ void count_up(uint32_t *out, uint32_t n, bool has_bug)
{
    const size_t i = cuda_thread();
    if (has_bug ? i <= n : i < n)
        out[i] = (uint32_t)i;
}

static void beyond_global(planted_run *run)
{
    LAUNCH(count_up, cuda_blocks(PLANTED_WORDS + 1, 128), 128, 0, run->stream, run->device,
           (uint32_t)PLANTED_WORDS, run->has_bug);
}

static __global__ void read_shared(uint32_t *out, bool has_bug)
{
    SHARED(uint32_t[64], tile);
    tile[threadIdx.x] = threadIdx.x;
    __syncthreads();
    const uint32_t *next = tile;
    out[threadIdx.x] = next[threadIdx.x + (has_bug ? 1 : 0)];
}

static void beyond_shared(planted_run *run)
{
    LAUNCH(read_shared, 1, 64, 0, run->stream, run->device, run->has_bug);
}

static __global__ void write_dynamic(uint32_t *out)
{
    SHARED_DYNAMIC(uint32_t, tile);
    tile[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x];
}

static void beyond_dynamic(planted_run *run)
{
    LAUNCH(write_dynamic, 1, 64, run->has_bug ? 252 : 256, run->stream, run->device);
}

static __global__ void free_too_early(uint32_t *out, const uint32_t *from)
{
    out[threadIdx.x] = from[threadIdx.x];
}

static void freed_memory(planted_run *run)
{
    uint32_t *memory;
    cudaMalloc(&memory, 256);
    cudaMemsetAsync(memory, 0, 256, run->stream);
    if (run->has_bug)
        cudaFree(memory);
    LAUNCH(free_too_early, 1, 64, 0, run->stream, run->device, memory);
    if (!run->has_bug)
        cudaFree(memory);
}

static __global__ void copy_rows(uint32_t *to, const uint32_t *from)
{
    const float4 *row = (const float4 *)(const void *)(from + 4 * threadIdx.x);
    float4 *out = (float4 *)(void *)(to + 4 * threadIdx.x);
    *out = *row;
}

static void misaligned_row(planted_run *run)
{
    cudaMemsetAsync(run->device, 0, PLANTED_BYTES, run->stream);
    LAUNCH(copy_rows, 1, 32, 0, run->stream, run->device, run->device + 256 + (run->has_bug ? 1 : 0));
}

const planted planted_bounds[] = {
    {"index beyond device memory", beyond_global, "heap-buffer-overflow", NULL},
    {"index beyond shared memory", beyond_shared, "heap-buffer-overflow", NULL},
    {"index beyond dynamic shared memory", beyond_dynamic, "heap-buffer-overflow", NULL},
    {"memory that was freed", freed_memory, "neither device nor pinned memory",
     "neither device nor pinned memory"},
    {"misaligned row", misaligned_row, "misaligned address", NULL},
    {NULL, NULL, NULL, NULL},
};
