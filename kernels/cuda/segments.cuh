/*
 * Sums of gradients by index (batch.h: struct batch_segments): the device functions by which a warp computes
 * them. segment_reduce writes the sums; the update kernels make the optimizer's step with them at once.
 *
 * A warp processes a tile of up to 32 indices. Each lane looks one index up (segment_look: a chain of four
 * loads, once for all 32). Then groups of lanes, each as wide as a row, go through the tile: the group gets
 * lane k's result by a shuffle (segment_of_lane), loads four floats per lane of the first gradient
 * (segment_first), for as many indices at a time as fit in registers, and adds the other gradients
 * (segment_rest).
 *
 * A segment of more than BATCH_CHUNK places is long: segments_chunks sums each of its chunks first, by a warp
 * of its own, into `partials`; segment_rest adds the chunks' sums in order. The position of a chunk's sum
 * follows from where the chunk begins in `order`, so no list is needed: in each window of BATCH_CHUNK places
 * begins at most one chunk that continues a long segment, whose sum is row 2w of partials for window w, and
 * at most one first chunk of a long segment, whose sum is row 2w + 1.
 *
 * With slices an index has parts, its places in one slice; a part is summed as an index without slices is, long
 * ones by chunks, and the parts' sums are added by the tree of slices.h.
 *
 * Gradients of one float (d = 1, linear weights) have no row for lanes to share: there each thread has an
 * index, and the whole warp sums those of its indices that have many places (segment_sum_one).
 */
#ifndef LEAT_KERNELS_CUDA_SEGMENTS_CUH
#define LEAT_KERNELS_CUDA_SEGMENTS_CUH

#include "kernels/batch.h"
#include "kernels/cuda/cuda.cuh"

/* Bytes of the partial sums for n places, a multiple of 256. */
static inline size_t segments_partials_bytes(uint32_t n, uint32_t d)
{
    size_t windows = ((size_t)n + BATCH_CHUNK - 1) / BATCH_CHUNK;
    return (2 * windows * d * sizeof(float) + 255) / 256 * 256;
}

/* scratch_bytes of a kernel that needs scratch memory for the partial sums only. */
static inline size_t segments_scratch_bytes(const batch_segments *in)
{
    const size_t bytes = segments_partials_bytes(in->n, in->d);
    return bytes > BATCH_SCRATCH_MIN ? bytes : (size_t)BATCH_SCRATCH_MIN;
}

/* `in` with unit set: the form that the device functions take. */
static inline batch_segments segments_of(const batch_segments &in)
{
    batch_segments of = in;
    of.unit = in.unit > 0 ? in.unit : in.d;
    return of;
}

/* Queues the kernel that sums the chunks of long segments. */
void segments_chunks(const batch_segments *in, float *partials, cudaStream_t stream);

/* The number of lanes that share a row of d floats, each with four floats at a time: a power of two. */
static inline unsigned segments_lanes(uint32_t d)
{
    unsigned lanes = 1;
    while (lanes < WARP_LANES && lanes * 4 < d)
        lanes *= 2;
    return lanes;
}

/* Indices of a tile: many, so that look-ups are shared, but few enough that all multiprocessors have work. */
static inline unsigned segments_tile(uint32_t n, unsigned lanes)
{
    const unsigned groups = WARP_LANES / lanes, tile = n >= 1U << 18 ? WARP_LANES : 8;
    return tile > groups ? tile : groups;
}

/* What a lane has looked up for an index: its places, order[from] .. order[to - 1], and the gradient row and
 * scale of the first place. */
struct segment_seen {
    uint32_t from, to; /* equal: no such index */
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

/* Four floats of a gradient row; `in` as segments_of returns it. */
static __device__ __forceinline__ float4 segment_grad(const batch_segments &in, uint32_t row, uint32_t column)
{
    return *reinterpret_cast<const float4 *>(in.grads + (size_t)row * in.unit + column);
}

/* Looks index u up; u >= m, where m = *in.count, gives an empty result. */
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

/* The segment_seen of lane k; all lanes of the warp call this, each with its own k. */
static __device__ __forceinline__ segment_seen segment_of_lane(const segment_seen &mine, unsigned k)
{
    segment_seen seen;
    seen.from = __shfl_sync(WARP_ALL, mine.from, (int)k);
    seen.to = __shfl_sync(WARP_ALL, mine.to, (int)k);
    seen.row = __shfl_sync(WARP_ALL, mine.row, (int)k);
    seen.scale = __shfl_sync(WARP_ALL, mine.scale, (int)k);
    return seen;
}

/* Floats column .. column + 3 of the first place's term; zeros if there is no such index. No other branch, so
 * that several loads can be in flight. */
static __device__ __forceinline__ float4 segment_first(const batch_segments &in, const segment_seen &seen,
                                                       uint32_t column)
{
    const float4 zero = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    return seen.from < seen.to ? segment_fma(seen.scale, segment_grad(in, seen.row, column), zero) : zero;
}

/* The event of a place, by which slices are made. */
static __device__ __forceinline__ uint32_t segment_event(const batch_segments &in, uint32_t place)
{
    return in.event != nullptr ? in.event[place] : place;
}

/* The first position from `from` up to `to` whose place belongs to event `border` or a later one; events rise
 * from position to position. `to`: none. */
static __device__ __forceinline__ uint32_t segment_border(const batch_segments &in, uint32_t from,
                                                          uint32_t to, uint32_t border)
{
    while (from < to) {
        const uint32_t middle = from + (to - from) / 2;
        if (segment_event(in, in.order[middle]) < border)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* The end of the part that begins at order[from], of an index whose places end at `to`; *slice: its slice. */
static __device__ __forceinline__ uint32_t segment_part_end(const batch_segments &in, uint32_t from,
                                                            uint32_t to, uint32_t *slice)
{
    *slice = batch_slice_of(&in.slices, segment_event(in, in.order[from]));
    return segment_border(in, from + 1, to, in.slices.borders[*slice + 1]);
}

/* Floats column .. column + 3 of the sum of a part; `first` is the term of the part's first place. */
static __device__ __forceinline__ float4 segment_part(const batch_segments &in, const float *partials,
                                                      uint32_t from, uint32_t to, uint32_t column,
                                                      float4 first)
{
    enum { AT_ONCE = 4 };
    const uint32_t length = to - from;
    float4 sum = first;
    if (length >
        BATCH_CHUNK) { /* for window w, row 2w + 1 is the sum of a first chunk, row 2w of another chunk */
        const float *chunk = partials + (size_t)(from / BATCH_CHUNK) * 2 * in.d + column;
        sum = *reinterpret_cast<const float4 *>(chunk + in.d);
#pragma unroll 8 /* independent loads: several in flight */
        for (uint32_t left = (length - 1) / BATCH_CHUNK; left > 0; left--) {
            chunk += 2 * (size_t)in.d;
            sum = segment_add(sum, *reinterpret_cast<const float4 *>(chunk));
        }
        return sum;
    }
    uint32_t at = from + 1;
    for (; at + AT_ONCE <= to; at += AT_ONCE) {
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
    for (; at < to; at++) {
        const uint32_t place = in.order[at];
        sum = segment_fma(segment_scale(in, place), segment_grad(in, segment_row(in, place), column), sum);
    }
    return sum;
}

/* Floats column .. column + 3 of the whole sum; `first` is the term of the first place. */
static __device__ __forceinline__ float4 segment_rest(const batch_segments &in, const float *partials,
                                                      const segment_seen &seen, uint32_t column, float4 first)
{
    if (in.slices.count <= 1 || seen.to - seen.from == 1)
        return segment_part(in, partials, seen.from, seen.to, column, first);
    float4 waiting[BATCH_SLICE_LEVELS];
    uint32_t slices[BATCH_SLICE_LEVELS], slice = 0, count = 0, end;
    for (uint32_t from = seen.from; from < seen.to; from = end) {
        end = segment_part_end(in, from, seen.to, &slice);
        for (; count > 1 && batch_slices_join(slices[count - 2], slices[count - 1], slice); count--)
            waiting[count - 2] = segment_add(waiting[count - 2], waiting[count - 1]);
        if (from > seen.from) {
            const uint32_t place = in.order[from];
            first = segment_fma(segment_scale(in, place), segment_grad(in, segment_row(in, place), column),
                                make_float4(0.0F, 0.0F, 0.0F, 0.0F));
        }
        slices[count] = slice;
        waiting[count++] = segment_part(in, partials, from, end, column, first);
    }
    for (; count > 1; count--)
        waiting[count - 2] = segment_add(waiting[count - 2], waiting[count - 1]);
    return waiting[0];
}

/* --- Gradients of one float --- */

/* The gradient of a place, for in.d == 1. */
static __device__ __forceinline__ float segment_grad_one(const batch_segments &in, uint32_t place)
{
    return in.grads[(size_t)segment_row(in, place) * (in.unit > 0 ? in.unit : 1)];
}

/* The sum over order[from] .. order[to - 1], at most BATCH_CHUNK places, for in.d == 1. Called by the whole
 * warp; each lane gets the sum. The loads are made together, only the additions go place by place. */
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

/* The sum over a few places, up to BATCH_CHUNK, for in.d == 1, by one thread with SHORT_AT_ONCE loads in
 * flight. */
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

/* The sum of a long segment from the partial sums of segments_chunks, for in.d == 1. */
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

/* The sum over a part of each lane: the places order[from] .. order[to - 1] for in.d == 1; none: 0. By the whole
 * warp. */
static __device__ __forceinline__ float segment_part_one(const batch_segments &in, const float *partials,
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

/* The sum over each lane's places order[from] .. order[to - 1] for in.d == 1; none: 0. By the whole warp. */
static __device__ __forceinline__ float segment_sum_one(const batch_segments &in, const float *partials,
                                                        uint32_t from, uint32_t to)
{
    if (in.slices.count <= 1)
        return segment_part_one(in, partials, from, to);
    float waiting[BATCH_SLICE_LEVELS] = {0.0F};
    uint32_t slices[BATCH_SLICE_LEVELS], slice = 0, count = 0;
    while (__any_sync(WARP_ALL, from < to)) {
        const bool has_part = from < to;
        const uint32_t end = has_part ? segment_part_end(in, from, to, &slice) : to;
        const float sum = segment_part_one(in, partials, from, end);
        from = end;
        if (!has_part)
            continue;
        for (; count > 1 && batch_slices_join(slices[count - 2], slices[count - 1], slice); count--)
            waiting[count - 2] += waiting[count - 1];
        slices[count] = slice;
        waiting[count++] = sum;
    }
    for (; count > 1; count--)
        waiting[count - 2] += waiting[count - 1];
    return waiting[0];
}

#endif
