/* Results that depend on the order of threads, or on memory that was never written. */
#include "tests/cuda_on_host/planted/planted.h"

/* With the bug, each thread takes the next free place, so the sum depends on the order of threads. */
static __global__ void sum_as_they_come(uint32_t *out, uint32_t *taken, float *values, bool has_bug)
{
    const unsigned t = threadIdx.x, place = has_bug ? atomicAdd(taken, 1U) : t;
    values[place] = 1.0F / (float)(t + 1);
    __syncthreads();
    if (t == 0) {
        float sum = 0.0F;
        for (unsigned i = 0; i < blockDim.x; i++)
            sum += values[i];
        out[0] = __float_as_uint(sum);
        taken[0] = 0;
        for (unsigned i = 0; i < blockDim.x; i++)
            values[i] = 0.0F;
    }
}

static void order_dependent_sum(planted_run *run)
{
    cudaMemsetAsync(run->device, 0, 4, run->stream);
    LAUNCH(sum_as_they_come, 1, 256, 0, run->stream, run->device + 8, run->device,
           (float *)(void *)(run->device + 512), run->has_bug);
}

static __global__ void count(uint32_t *total, bool has_bug)
{
    if (has_bug)
        *total += 1;
    else
        atomicAdd(total, 1U);
}

static void lost_update(planted_run *run)
{
    cudaMemsetAsync(run->device, 0, 4, run->stream);
    LAUNCH(count, 4, 64, 0, run->stream, run->device, run->has_bug);
}

static __global__ void sum_shared(uint32_t *out, bool has_bug)
{
    SHARED(uint32_t[64], tile);
    const unsigned t = threadIdx.x;
    if (!has_bug || t != 40)
        tile[t] = t;
    __syncthreads();
    if (t == 0) {
        uint32_t sum = 0;
        for (unsigned i = 0; i < 64; i++)
            sum += tile[i];
        out[blockIdx.x] = sum;
    }
}

static void shared_not_written(planted_run *run)
{
    LAUNCH(sum_shared, 2, 64, 0, run->stream, run->device, run->has_bug);
}

static __global__ void all_but_one(uint32_t *out, bool has_bug)
{
    if (!has_bug || threadIdx.x != 17)
        out[threadIdx.x] = 7;
}

static void output_not_written(planted_run *run)
{
    uint32_t *out;
    cudaMalloc(&out, 256);
    LAUNCH(all_but_one, 1, 64, 0, run->stream, out, run->has_bug);
    cudaMemcpyAsync(run->device, out, 256, cudaMemcpyDeviceToDevice, run->stream);
    cudaStreamSynchronize(run->stream);
    cudaFree(out);
}

static __global__ void copy_tile(uint4 *out, const uint4 *from, bool has_bug)
{
    SHARED(uint4[32], tile);
    const unsigned t = threadIdx.x;
    async_copy_16(&tile[t], &from[t]);
    async_copy_commit();
    if (!has_bug)
        async_copy_wait<0>();
    out[t] = tile[t];
    async_copy_wait<0>();
}

static void copy_before_its_wait(planted_run *run)
{
    cudaMemsetAsync(run->device, 3, PLANTED_BYTES, run->stream);
    LAUNCH(copy_tile, 1, 32, 0, run->stream, (uint4 *)(void *)run->device,
           (const uint4 *)(void *)(run->device + 512), run->has_bug);
}

static __global__ void copy_of_others(uint4 *out, const uint4 *from, bool has_bug)
{
    SHARED(uint4[32], tile);
    const unsigned t = threadIdx.x;
    async_copy_16(&tile[t], &from[t]);
    async_copy_commit();
    async_copy_wait<0>();
    if (!has_bug)
        __syncthreads();
    out[t] = tile[31 - t];
}

static void copy_of_others_without_barrier(planted_run *run)
{
    cudaMemsetAsync(run->device, 3, PLANTED_BYTES, run->stream);
    LAUNCH(copy_of_others, 1, 32, 0, run->stream, (uint4 *)(void *)run->device,
           (const uint4 *)(void *)(run->device + 512), run->has_bug);
}

const planted planted_order[] = {
    {"order-dependent sum", order_dependent_sum, PLANTED_DIFFERS, PLANTED_DIFFERS},
    {"lost update", lost_update, NULL, PLANTED_RACE},
    {"shared memory that nobody wrote", shared_not_written, PLANTED_DIFFERS, PLANTED_DIFFERS},
    {"output that nobody wrote", output_not_written, PLANTED_DIFFERS, PLANTED_DIFFERS},
    {"asynchronous copy, used before its wait", copy_before_its_wait, PLANTED_DIFFERS, PLANTED_DIFFERS},
    {"asynchronous copy of another thread, no barrier", copy_of_others_without_barrier, PLANTED_DIFFERS,
     PLANTED_RACE},
    {NULL, NULL, NULL, NULL},
};
