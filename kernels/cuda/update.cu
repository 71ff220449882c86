/*
 * update of batch.h.
 *
 *   naive         segment_reduce writes the sums, one thread per weight reads them  not measured
 *   fused         a row's sum stays in registers of the lanes that make its         not measured
 *                 step: the sum is neither written nor read again
 *   sixteen bytes one group of lanes per row, four floats per lane, rows of up to   not measured
 *                 128 floats in one access; small rows share a warp
 *   in flight     weights and state are loaded before the first gradient is         not measured
 *                 waited for, other gradients four at a time; a tile of indices is
 *                 looked up at once (segments.cuh): places, rows and random bits
 *   long segments have their chunks summed first, by warps of their own             not measured
 *
 * The limit is memory bandwidth: weights and state of each row once in each direction, and for each place its
 * gradient and twelve bytes.
 */
#include "kernels/cuda/formats.cuh"
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/parts.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/segments.cuh"

#include "kernels/optimizer_step.inc.h"

/* Stores four weights from weight i on, rounded by batch_round's rule; begin: from rounding_begin. */
static __forceinline__ __device__ void weights_store(unsigned char *row, uint32_t i, enum row_format format,
                                                     v16 w, bool is_nearest, uint64_t begin)
{
    if (format == ROW_FP32) {
        v16_store((float *)(void *)row + i, w);
        return;
    }
    uint64_t word = is_nearest ? 0 : rounding_word(begin, i / 4);
    uint32_t halves[4];
    for (unsigned k = 0; k < 4; k++) {
        uint32_t bits = float_bits(w.f[k]), random = rounding_random(word, k);
        halves[k] =
            format == ROW_BF16 ? bf16_of(bits, random, is_nearest) : fp16_of(bits, random, is_nearest);
    }
    *(uint2 *)(void *)(row + 2 * (size_t)i) =
        make_uint2(halves[0] | halves[1] << 16, halves[2] | halves[3] << 16);
}

/* A lane's part of a row during its step; s0 and s1 are used as far as the optimizer has them. */
template <typename shape> struct update_row {
    v16 w[shape::vectors], s0[shape::vectors], s1[shape::vectors];
};

template <typename shape, enum opt_kind kind>
static __forceinline__ __device__ void update_load(const row_group<shape> &group, update_row<shape> *r,
                                                   const unsigned char *row, const float *state,
                                                   enum row_format format)
{
#pragma unroll
    for (unsigned v = 0; v < shape::vectors; v++) {
        uint32_t i = group.dim(v);
        r->w[v] = group.has(v) ? v16_of(row_load_as(format, row, i)) : v16_set1(0.0F);
        r->s0[v] = r->s1[v] = v16_set1(1.0F);
        if (opt_states(kind) > 0 && group.has(v))
            r->s0[v] = v16_load(state + i);
        if (opt_states(kind) > 1 && group.has(v))
            r->s1[v] = v16_load(state + group.d + i);
        if (kind == OPT_ADAGRAD_BLOCK && group.has(v))
            r->s0[v] = v16_set1(state[i / 4]);
        if (kind == OPT_ADAGRAD_ROW)
            r->s0[v] = v16_set1(state[0]);
    }
}

/* Makes the step: new weights and state in r. */
template <typename shape, enum opt_kind kind>
static __forceinline__ __device__ void update_step(const row_group<shape> &group, update_row<shape> *r,
                                                   const v16 (&g)[shape::vectors], const opt_params &p)
{
    opt_vectors o = opt_spread(&p);
    v16 one = v16_set1(1.0F), rate = one;
    if (kind == OPT_ADAGRAD_ROW) {
        v16 grads[shape::vectors];
#pragma unroll
        for (unsigned v = 0; v < shape::vectors; v++)
            grads[v] = opt_gradient(r->w[v], g[v], one, &o);
        float squares = row_squares(group, grads);
        r->s0[0] = v16_set1(adagrad_row_sum(r->s0[0].f[0], squares, (float)group.d, p.decay));
        rate = adagrad_rate(r->s0[0], &o);
    }
#pragma unroll
    for (unsigned v = 0; v < shape::vectors; v++) {
        v16 w = r->w[v];
        if (kind == OPT_ADAGRAD_ROW) {
            w = opt_move(w, v16_mul(rate, opt_gradient(w, g[v], one, &o)), rate, &o);
        } else if (kind == OPT_ADAGRAD_BLOCK && block_is_free(1.0F, &p)) {
            rate = block_free_rates(&r->s0[v], v16_group_squares1(g[v]), block_mean(1.0F),
                                    block_rate(1.0F, &p), &o);
            w = block_free_move(w, g[v], rate);
        } else if (kind == OPT_ADAGRAD_BLOCK) {
            w = block_step(w, opt_gradient(w, g[v], one, &o), &r->s0[v], &o);
        } else {
            w = opt_step(kind, w, g[v], one, one, &r->s0[v], &r->s1[v], &o);
        }
        r->w[v] = w;
    }
}

template <typename shape, enum opt_kind kind>
static __forceinline__ __device__ void update_store(const row_group<shape> &group, const update_row<shape> &r,
                                                    unsigned char *row, float *state, const batch_update &a,
                                                    uint64_t begin)
{
#pragma unroll
    for (unsigned v = 0; v < shape::vectors; v++) {
        uint32_t i = group.dim(v);
        if (!group.has(v))
            continue;
        weights_store(row, i, a.format, r.w[v], a.seed == 0, begin);
        if (opt_states(kind) > 0)
            v16_store(state + i, r.s0[v]);
        if (opt_states(kind) > 1)
            v16_store(state + group.d + i, r.s1[v]);
        if (kind == OPT_ADAGRAD_BLOCK)
            state[i / 4] = r.s0[v].f[0];
    }
    if (kind == OPT_ADAGRAD_ROW) {
        __syncwarp(group.mask); /* after all lanes have read state[0] */
        if (group.lane == 0)
            state[0] = r.s0[0].f[0];
    }
}

/* What a lane has looked up for one index of the tile: the index's row, and the start of the row's random
 * bits. */
struct update_seen {
    unsigned long long row, begin;
};

static __forceinline__ __device__ update_seen update_look(const batch_update &a, size_t u, bool is_there)
{
    update_seen seen = {0, 0};
    if (is_there) {
        seen.row = (unsigned long long)(uintptr_t)a.rows[u];
        seen.begin = a.format == ROW_FP32 ? 0 : rounding_begin(a.seed, a.keys[u]);
    }
    return seen;
}

/* Updates one row by its group of lanes; `seen` is the look-up of its index. */
template <typename shape, enum opt_kind kind>
static __forceinline__ __device__ void update_one(const row_group<shape> &group, const batch_update &a,
                                                  const float *partials, const segment_seen &seen,
                                                  unsigned char *row, uint64_t begin)
{
    float *state = (float *)(void *)(row + row_weight_bytes(a.format, a.in.d));
    update_row<shape> r;
    float4 first[shape::vectors];
    v16 sum[shape::vectors];
    update_load<shape, kind>(group, &r, row, state, a.format);
#pragma unroll
    for (unsigned v = 0; v < shape::vectors; v++)
        first[v] =
            group.has(v) ? segment_first(a.in, seen, group.dim(v)) : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
#pragma unroll
    for (unsigned v = 0; v < shape::vectors; v++)
        sum[v] = v16_of(group.has(v) ? segment_rest(a.in, partials, seen, group.dim(v), first[v]) : first[v]);
    if (!row_is_finite(group, sum)) {
        if (a.rejected && group.lane == 0)
            atomicAdd(a.rejected, 1U);
        return;
    }
    update_step<shape, kind>(group, &r, sum, a.params);
    update_store<shape, kind>(group, r, row, state, a, begin);
}

template <typename shape, enum opt_kind kind>
static __global__ void __launch_bounds__(shape::block)
    update_kernel(batch_update a, const float *partials, unsigned tile)
{
    row_group<shape> group(a.in.d);
    constexpr unsigned groups = WARP_LANES / shape::lanes;
    const unsigned lane = threadIdx.x % WARP_LANES;
    const uint32_t count = *a.in.count;
    const size_t first = cuda_thread() / WARP_LANES * tile;
    if (first >= count)
        return;
    const bool is_there = lane < tile && first + lane < count;
    const segment_seen mine = segment_look(a.in, is_there ? first + lane : count, count);
    const update_seen my = update_look(a, first + lane, is_there);
    for (unsigned base = 0; base < tile; base += groups) {
        const unsigned k = base + lane / shape::lanes;
        const segment_seen seen = segment_of_lane(mine, k);
        const unsigned long long row = __shfl_sync(WARP_ALL, my.row, (int)k);
        const unsigned long long begin = __shfl_sync(WARP_ALL, my.begin, (int)k);
        if (row != 0)
            update_one<shape, kind>(group, a, partials, seen, (unsigned char *)(uintptr_t)row, begin);
    }
}

template <typename shape> static void update_launch(const batch_update &a, float *partials, cudaStream_t to)
{
    const unsigned tile = segments_tile(a.in.n, shape::lanes), warps = shape::block / WARP_LANES;
    const unsigned blocks = cuda_blocks(cuda_blocks(a.in.n, tile), warps);
    switch (a.kind) {
#define UPDATE(kind)                                                                                         \
    case kind: LAUNCH((update_kernel<shape, kind>), blocks, shape::block, 0, to, a, partials, tile); break;
        UPDATE(OPT_SGD)
        UPDATE(OPT_MOMENTUM)
        UPDATE(OPT_ADAGRAD)
        UPDATE(OPT_ADAGRAD_ROW)
        UPDATE(OPT_ADAGRAD_BLOCK)
        UPDATE(OPT_ADAM)
        UPDATE(OPT_FTRL)
#undef UPDATE
    case OPT_NEWTON:
    case OPT_KINDS: assert(false); break;
    }
}

void cuda_update(batch_update *a, void *stream)
{
    if (!a->scratch) {
        a->scratch_bytes = segments_scratch_bytes(&a->in);
        return;
    }
    if (a->in.n == 0)
        return;
    cudaStream_t to = gpu_cuda_stream(stream);
    float *partials = (float *)a->scratch;
    segments_chunks(&a->in, partials, to);
    batch_update of = *a;
    of.in = segments_of(a->in);
    rows_by_dims(a->in.d, [&](auto shape) { update_launch<decltype(shape)>(of, partials, to); });
    (void)gpu_launched(stream, "update");
}
