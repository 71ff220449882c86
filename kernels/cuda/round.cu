/*
 * round and widen of batch.h; the arithmetic of one number is in rounding.h.
 *
 *   naive          one thread per number: accesses of four and two bytes, two         not measured
 *                  mixes (num_mix) of 64 bits each
 *   eight numbers  per thread: one access of 16 bytes on the narrow side, two on      not measured
 *                  the wide side; one mix gives the random bits of four numbers
 *
 * The limit is memory bandwidth: six bytes per number.
 */
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/parts.cuh"
#include "kernels/rounding.h"

enum { ROUND_EACH = 8, ROUND_BLOCK = 256 };

static __forceinline__ __device__ uint32_t round_one(const batch_round &a, float x, uint32_t random)
{
    uint32_t bits = float_bits(x);
    return a.format == ROW_BF16 ? bf16_of(bits, random, a.seed == 0) : fp16_of(bits, random, a.seed == 0);
}

static __global__ void __launch_bounds__(ROUND_BLOCK) round_kernel(batch_round a)
{
    uint64_t from = (uint64_t)cuda_thread() * ROUND_EACH, begin = rounding_begin(a.seed, a.number);
    if (from >= a.n)
        return;
    uint64_t word = a.seed != 0 ? rounding_word(begin, from / 4) : 0;
    uint64_t next = a.seed != 0 ? rounding_word(begin, from / 4 + 1) : 0;
    if (a.n - from < ROUND_EACH) {
        for (unsigned k = 0; k < a.n - from; k++)
            a.out[from + k] =
                (uint16_t)round_one(a, a.x[from + k], rounding_random(k < 4 ? word : next, k % 4));
        return;
    }
    const float4 *x = (const float4 *)(const void *)(a.x + from);
    float4 lo = x[0], hi = x[1];
    float in[ROUND_EACH] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
    uint32_t out[ROUND_EACH];
#pragma unroll
    for (unsigned k = 0; k < ROUND_EACH; k++)
        out[k] = round_one(a, in[k], rounding_random(k < 4 ? word : next, k % 4));
    *(uint4 *)(void *)(a.out + from) = make_uint4(out[0] | out[1] << 16, out[2] | out[3] << 16,
                                                  out[4] | out[5] << 16, out[6] | out[7] << 16);
}

static __forceinline__ __device__ float widen_one(uint32_t x, enum row_format format)
{
    return format == ROW_BF16 ? float_of_bf16((uint16_t)x) : float_of_fp16((uint16_t)x);
}

static __global__ void __launch_bounds__(ROUND_BLOCK) widen_kernel(batch_widen a)
{
    uint64_t from = (uint64_t)cuda_thread() * ROUND_EACH;
    if (from >= a.n)
        return;
    if (a.n - from < ROUND_EACH) {
        for (uint64_t i = from; i < a.n; i++)
            a.out[i] = widen_one(a.x[i], a.format);
        return;
    }
    uint4 four = *(const uint4 *)(const void *)(a.x + from);
    uint32_t in[4] = {four.x, four.y, four.z, four.w};
    float4 *out = (float4 *)(void *)(a.out + from);
#pragma unroll
    for (unsigned k = 0; k < 2; k++)
        out[k] = make_float4(widen_one(in[2 * k] & 0xffffU, a.format), widen_one(in[2 * k] >> 16, a.format),
                             widen_one(in[2 * k + 1] & 0xffffU, a.format),
                             widen_one(in[2 * k + 1] >> 16, a.format));
}

void cuda_round(batch_round *a, void *stream)
{
    if (a->n == 0)
        return;
    LAUNCH(round_kernel, cuda_blocks(a->n, ROUND_EACH * ROUND_BLOCK), ROUND_BLOCK, 0, gpu_cuda_stream(stream),
           *a);
    (void)gpu_launched(stream, "round");
}

void cuda_widen(batch_widen *a, void *stream)
{
    if (a->n == 0)
        return;
    LAUNCH(widen_kernel, cuda_blocks(a->n, ROUND_EACH * ROUND_BLOCK), ROUND_BLOCK, 0, gpu_cuda_stream(stream),
           *a);
    (void)gpu_launched(stream, "widen");
}
