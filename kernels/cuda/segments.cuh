/*
 * Sums of gradients by number, for kernels of a step (batch.h: struct batch_segments): how a warp comes by
 * them. One formula for segment_reduce and for update, which takes the step at once.
 *
 * A warp takes a tile of up to 32 numbers. Each lane looks one of them up (segment_look: a chain of four
 * loads, once for all 32); then groups of lanes, each with a row's width, go through the tile: the group asks
 * lane k for what it has seen (segment_of_lane), loads four floats a lane of the first gradient
 * (segment_first) for as many numbers at a time as it has registers for, and adds the others (segment_rest).
 *
 * Segments of more than BATCH_CHUNK places are long: segments_chunks sums their chunks before, each by a warp
 * of its own, into `partials`; segment_rest adds those in order. Where a chunk's sum lies follows from where
 * the chunk begins in `order`, so nothing needs to be listed: in each window of BATCH_CHUNK places at most
 * one long segment goes on to a further chunk, and at most one begins: window w has places 2w and 2w + 1 for
 * the two.
 *
 * Gradients of one float (d = 1, linear weights) have no row to share out: a thread has a number there, and
 * the warp together sums those of its numbers that have many places (segment_sum_one).
 */
#ifndef KERNELS_CUDA_SEGMENTS_CUH
#define KERNELS_CUDA_SEGMENTS_CUH

#include "kernels/batch.h"
#include "kernels/cuda/cuda.cuh"

/* Bytes of the partial sums for n places, a multiple of 256. */
static inline size_t segments_partials_bytes(uint32_t n, uint32_t d)
{
    size_t windows = ((size_t)n + BATCH_CHUNK - 1) / BATCH_CHUNK;
    return (2 * windows * d * sizeof(float) + 255) / 256 * 256;
}

/* The scratch of a kernel that needs room for these partial sums alone. */
static inline size_t segments_scratch_bytes(const batch_segments *in)
{
    const size_t bytes = segments_partials_bytes(in->n, in->d);
    return bytes > BATCH_SCRATCH_MIN ? bytes : (size_t)BATCH_SCRATCH_MIN;
}

/* What kernels get of a call's segments: with a unit. */
static inline batch_segments segments_of(const batch_segments &in)
{
    batch_segments of = in;
    of.unit = in.unit > 0 ? in.unit : in.d;
    return of;
}

/* Queues the sums of the chunks of long segments. */
void segments_chunks(const batch_segments *in, float *partials, cudaStream_t stream);

/* Lanes that share a row of d floats, four floats each at a time: a power of two. */
static inline unsigned segments_lanes(uint32_t d)
{
    unsigned lanes = 1;
    while (lanes < WARP_LANES && lanes * 4 < d)
        lanes *= 2;
    return lanes;
}

/* Numbers of a tile: many, so that looking up is shared, but not so many that multiprocessors stand idle. */
static inline unsigned segments_tile(uint32_t n, unsigned lanes)
{
    const unsigned groups = WARP_LANES / lanes, tile = n >= 1U << 18 ? WARP_LANES : 8;
    return tile > groups ? tile : groups;
}

/* What a lane knows of a number: its places in `order`, and the row of gradients and scale of the first. */
struct segment_seen {
    uint32_t from, to; /* equal: there is no such number */
    uint32_t row;
    float scale;
};

static __device__ __forceinline__ uint32_t segment_row(const batch_segments &in, uint32_t place)
{
    return in.bag != nullptr ? in.bag[place] : place;
}

static __device__ __forceinline__ float segment_scale(const batch_segments &in, uint32_t place)
{
    return in.scales != nullptr ? in.scales[place] : 1.0F;
}

static __device__ __forceinline__ float4 segment_fma(float scale, float4 grad, float4 sum)
{
    return make_float4(fmaf(scale, grad.x, sum.x), fmaf(scale, grad.y, sum.y), fmaf(scale, grad.z, sum.z),
                       fmaf(scale, grad.w, sum.w));
}

static __device__ __forceinline__ float4 segment_add(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* Four floats of a row of gradients; `in` as segments_of leaves it. */
static __device__ __forceinline__ float4 segment_grad(const batch_segments &in, uint32_t row, uint32_t column)
{
    return *reinterpret_cast<const float4 *>(in.grads + (size_t)row * in.unit + column);
}

/* u < m = *in.count, or there is none. */
static __device__ __forceinline__ segment_seen segment_look(const batch_segments &in, size_t u, uint32_t m)
{
    segment_seen seen = {0, 0, 0, 0.0F};
    if (u < m) {
        seen.from = in.starts[u];
        seen.to = in.starts[u + 1];
        const uint32_t place = in.order[seen.from];
        seen.row = segment_row(in, place);
        seen.scale = segment_scale(in, place);
    }
    return seen;
}

/* What lane k of the warp has seen; all lanes ask, each for a k of its own. */
static __device__ __forceinline__ segment_seen segment_of_lane(const segment_seen &mine, unsigned k)
{
    segment_seen seen;
    seen.from = __shfl_sync(WARP_ALL, mine.from, (int)k);
    seen.to = __shfl_sync(WARP_ALL, mine.to, (int)k);
    seen.row = __shfl_sync(WARP_ALL, mine.row, (int)k);
    seen.scale = __shfl_sync(WARP_ALL, mine.scale, (int)k);
    return seen;
}

/* Floats column .. column + 3 of the first place's part; zeros if there is no such number. No branch but
 * that: several in flight. */
static __device__ __forceinline__ float4 segment_first(const batch_segments &in, const segment_seen &seen,
                                                       uint32_t column)
{
    const float4 zero = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    return seen.from < seen.to ? segment_fma(seen.scale, segment_grad(in, seen.row, column), zero) : zero;
}

/* The same floats of the whole sum, from those of the first place. */
static __device__ __forceinline__ float4 segment_rest(const batch_segments &in, const float *partials,
                                                      const segment_seen &seen, uint32_t column, float4 first)
{
    enum { AT_ONCE = 4 };
    const uint32_t length = seen.to - seen.from;
    float4 sum = first;
    if (length >
        BATCH_CHUNK) { /* the first chunk is in its window's second place, the others in first ones */
        const float *chunk = partials + (size_t)(seen.from / BATCH_CHUNK) * 2 * in.d + column;
        sum = *reinterpret_cast<const float4 *>(chunk + in.d);
#pragma unroll 8 /* the loads wait for nothing but their turn */
        for (uint32_t left = (length - 1) / BATCH_CHUNK; left > 0; left--) {
            chunk += 2 * (size_t)in.d;
            sum = segment_add(sum, *reinterpret_cast<const float4 *>(chunk));
        }
        return sum;
    }
    uint32_t at = seen.from + 1;
    for (; at + AT_ONCE <= seen.to; at += AT_ONCE) {
        float4 grad[AT_ONCE];
        float scale[AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            const uint32_t place = in.order[at + i];
            grad[i] = segment_grad(in, segment_row(in, place), column);
            scale[i] = segment_scale(in, place);
        }
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++)
            sum = segment_fma(scale[i], grad[i], sum);
    }
    for (; at < seen.to; at++) {
        const uint32_t place = in.order[at];
        sum = segment_fma(segment_scale(in, place), segment_grad(in, segment_row(in, place), column), sum);
    }
    return sum;
}

/* --- gradients of one float ------------------------------------------------------------------------------
 */

/* in.d is 1: the gradient of a place. */
static __device__ __forceinline__ float segment_grad_one(const batch_segments &in, uint32_t place)
{
    return in.grads[(size_t)segment_row(in, place) * (in.unit > 0 ? in.unit : 1)];
}

/* in.d is 1: the sum of places order[from] .. order[to - 1], at most BATCH_CHUNK of them. By the whole warp,
 * each lane gets it: the loads go out together, the sum alone goes from place to place. */
static __device__ __forceinline__ float segment_chunk_one(const batch_segments &in, uint32_t from,
                                                          uint32_t to)
{
    constexpr uint32_t EACH = BATCH_CHUNK / WARP_LANES;
    const uint32_t lane = threadIdx.x % WARP_LANES;
    float grads[EACH], scales[EACH], sum = 0.0F;
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        const uint32_t at = from + i * WARP_LANES + lane;
        grads[i] = scales[i] = 0.0F;
        if (at < to) {
            const uint32_t place = in.order[at];
            grads[i] = segment_grad_one(in, place);
            scales[i] = segment_scale(in, place);
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        const uint32_t base = from + i * WARP_LANES;
        for (uint32_t k = 0; k < WARP_LANES && base + k < to; k++)
            sum =
                fmaf(__shfl_sync(WARP_ALL, scales[i], (int)k), __shfl_sync(WARP_ALL, grads[i], (int)k), sum);
    }
    return sum;
}

/* in.d is 1: the sum of few places, up to BATCH_CHUNK, by one thread, SHORT_AT_ONCE of them in flight. */
static __device__ __forceinline__ float segment_short_one(const batch_segments &in, uint32_t from,
                                                          uint32_t to)
{
    enum { SHORT_AT_ONCE = 8 };
    float sum = 0.0F;
    for (; from < to; from += SHORT_AT_ONCE) {
        float grads[SHORT_AT_ONCE], scales[SHORT_AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < SHORT_AT_ONCE; i++) {
            if (from + i >= to)
                continue;
            const uint32_t place = in.order[from + i];
            grads[i] = segment_grad_one(in, place);
            scales[i] = segment_scale(in, place);
        }
#pragma unroll
        for (uint32_t i = 0; i < SHORT_AT_ONCE; i++) {
            if (from + i < to)
                sum = fmaf(scales[i], grads[i], sum);
        }
    }
    return sum;
}

/* in.d is 1: the sum of a long segment from what segments_chunks left. */
static __device__ __forceinline__ float segment_long_one(const float *partials, uint32_t from, uint32_t to)
{
    const float *chunk = partials + (size_t)(from / BATCH_CHUNK) * 2;
    float sum = chunk[1];
#pragma unroll 8
    for (uint32_t left = (to - from - 1) / BATCH_CHUNK; left > 0; left--) {
        chunk += 2;
        sum += *chunk;
    }
    return sum;
}

/* in.d is 1: the sum of each lane's places, order[from] .. order[to - 1]; none: 0. By the whole warp. */
static __device__ __forceinline__ float segment_sum_one(const batch_segments &in, const float *partials,
                                                        uint32_t from, uint32_t to)
{
    enum { SHORT = 32 };
    const uint32_t length = to - from;
    float sum = 0.0F;
    if (length > BATCH_CHUNK)
        sum = segment_long_one(partials, from, to);
    else if (length <= SHORT)
        sum = segment_short_one(in, from, to);
    unsigned left = __ballot_sync(WARP_ALL, length > SHORT && length <= BATCH_CHUNK);
    for (; left != 0; left &= left - 1) {
        const int k = __ffs((int)left) - 1;
        const float of_k =
            segment_chunk_one(in, __shfl_sync(WARP_ALL, from, k), __shfl_sync(WARP_ALL, to, k));
        if (threadIdx.x % WARP_LANES == (unsigned)k)
            sum = of_k;
    }
    return sum;
}

#endif
