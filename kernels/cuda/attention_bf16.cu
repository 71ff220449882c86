/*
 * attention_softmax of batch_sequence.h with `precision` ROW_BF16: FlashAttention-2 (Dao 2023, arXiv:2307.08691) over
 * jagged windows on tensor cores, forward and backward: the sums of attention_softmax.inc.h with rounded operands. On the
 * host's model the bits are a CPU's; a device's tensor cores add in another order. As in attention.cu a thread block owns
 * what it writes, so the backward pass makes the weights twice, and there are no atomics.
 *
 * Ladder:
 *   fp32            attention.cu: fma on tiles in shared memory                                 not measured
 *   tensor cores    a warp has sixteen owners; weights go from the sums of one product to the   not measured
 *                   operand of the next in registers (mma.cuh), never through shared memory
 *   a quarter of a  softmax's maximum and sum of a query need two shuffles each, the sum once,  not measured
 *   quad            at the end: each of four lanes adds its own keys' weights
 *   sixteen rows    the backward passes multiply sixteen rows of the flow at a time: their       not measured
 *                   scores and slopes take sixteen registers, whatever the tile
 *
 * Not done: asynchronous copies (rows are fp32 and are rounded on their way into shared memory), wgmma and TMA of sm_90.
 */
#include "kernels/cuda/attention_bf16.cuh"

/* --- Forward --- */

/* Of the lane's two queries: the largest score so far, and the sum of the weights of this lane's keys. */
struct tensor_state {
    v16 most;
    float sums[2];
};

/* Scores of the tile's keys from `first` up to `end` in base 2; keys that a query does not see are far below. */
template <int steps>
static __forceinline__ __device__ void tensor_tile_scores(v16 (&s)[TENSOR_FLOW / STEP][2], const attention &a,
                                                          const flash_block &b, const tensor_lane &lane,
                                                          const mma_a (&q)[steps], const uint32_t *rows,
                                                          uint32_t first, uint32_t end)
{
#pragma unroll
    for (uint32_t k = 0; k < TENSOR_FLOW / STEP; k++) {
        s[k][0] = s[k][1] = v16_set1(ATT_HIDDEN);
        if (first + k * STEP >= end)
            continue;
        tensor_scores(s[k], q, b.d, lane, rows, k * STEP);
#pragma unroll
        for (uint32_t n = 0; n < 2; n++) {
            s[k][n] = v16_mul(s[k][n], v16_set1(a.scale * ATT_LOG2E));
#pragma unroll
            for (uint32_t o = 0; o < 4; o++) {
                const uint32_t j = first + k * STEP + n * 8 + lane.place * 2;
                s[k][n].f[o] += tensor_sees(a, b, lane, j, o, false) ? 0.0F : ATT_HIDDEN;
            }
        }
    }
}

/* The largest score of each query, of this tile and those before it. */
static __forceinline__ __device__ v16 tensor_most(const v16 (&s)[TENSOR_FLOW / STEP][2], v16 before)
{
    float most[2] = {before.f[0], before.f[2]};
#pragma unroll
    for (uint32_t k = 0; k < TENSOR_FLOW / STEP * 2; k++) {
#pragma unroll
        for (uint32_t o = 0; o < 4; o++)
            most[o / 2] = fmaxf(most[o / 2], s[k / 2][k % 2].f[o]);
    }
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
#pragma unroll
        for (uint32_t o = 0; o < 2; o++)
            most[o] = fmaxf(most[o], __shfl_xor_sync(WARP_ALL, most[o], step));
    }
    return tensor_owners(most[0], most[1]);
}

/* One tile: sums are scaled to the new maximum, and the tile's values added to them. */
template <int steps>
static __forceinline__ __device__ void tensor_forward_tile(v16 (&sums)[2 * steps], tensor_state *state,
                                                           const attention &a, const flash_block &b,
                                                           const tensor_lane &lane, const flash_drops &drops,
                                                           const mma_a (&q)[steps], const uint32_t *k_rows,
                                                           const uint32_t *v_pairs, uint32_t first,
                                                           uint32_t end)
{
    v16 s[TENSOR_FLOW / STEP][2];
    tensor_tile_scores(s, a, b, lane, q, k_rows, first, end);
    const v16 most = tensor_most(s, state->most), by = att_exp2(v16_sub(state->most, most));
    state->most = most;
    if (first > 0) {
        state->sums[0] *= by.f[0], state->sums[1] *= by.f[2];
#pragma unroll
        for (int i = 0; i < 2 * steps; i++)
            sums[i] = v16_fma(sums[i], by, v16_set1(0.0F));
    }
#pragma unroll
    for (uint32_t k = 0; k < TENSOR_FLOW / STEP; k++) {
        if (first + k * STEP >= end)
            continue;
#pragma unroll
        for (uint32_t n = 0; n < 2; n++) {
            const uint32_t j = first + k * STEP + n * 8 + lane.place * 2;
            v16 p = att_exp2(v16_sub(s[k][n], most));
#pragma unroll
            for (uint32_t o = 0; o < 4; o++) {
                p.f[o] = tensor_sees(a, b, lane, j, o, false) ? p.f[o] : 0.0F;
                state->sums[o / 2] += p.f[o];
            }
            s[k][n] = drops.limit > 0 ? v16_mul(p, tensor_factors(drops, j, false)) : p;
        }
        tensor_gather<steps>(sums, s[k], b.d, lane, v_pairs, k * STEP);
    }
}

template <int steps> static __global__ void __launch_bounds__(BLOCK) tensor_forward(attention a)
{
    SHARED_DYNAMIC(uint32_t, k_rows);
    const uint32_t *starts = a.query_offsets != nullptr ? a.query_offsets : a.offsets;
    const flash_block b = flash_place<TENSOR_OWNERS>(a, starts);
    if (b.count == 0)
        return;
    uint32_t *v_pairs = k_rows + tensor_rows_words(b.d);
    const tensor_lane lane = tensor_here();
    const flash_drops drops = tensor_draw(a, b, lane, false);
    const uint32_t end = a.is_causal ? b.at + b.count : b.keys, own_end = tensor_end(a, b, lane);
    tensor_state state = {v16_set1(ATT_HIDDEN), {0.0F, 0.0F}};
    mma_a q[steps];
    v16 sums[2 * steps];
    tensor_clear<steps>(sums);
    tensor_own(q, b, lane, a.q);
    for (uint32_t first = 0; first < end; first += TENSOR_FLOW) {
        const uint32_t count = min(end - first, (uint32_t)TENSOR_FLOW);
        tensor_load(b, k_rows, nullptr, a.k, b.key_row + first, count);
        tensor_load(b, nullptr, v_pairs, a.v, b.key_row + first, count);
        __syncthreads();
        if (first < own_end)
            tensor_forward_tile(sums, &state, a, b, lane, drops, q, k_rows, v_pairs, first, own_end);
        __syncthreads();
    }
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
        state.sums[0] += __shfl_xor_sync(WARP_ALL, state.sums[0], step);
        state.sums[1] += __shfl_xor_sync(WARP_ALL, state.sums[1], step);
    }
    const v16 total = tensor_owners(state.sums[0], state.sums[1]), by = v16_div(v16_set1(1.0F), total);
#pragma unroll
    for (int i = 0; i < 2 * steps; i++)
        sums[i] = v16_fma(sums[i], by, v16_set1(0.0F));
    tensor_write<steps>(b, lane, a.out, sums);
    const v16 lse = v16_add(state.most, softmax_log2(total));
#pragma unroll
    for (uint32_t o = 0; o < 2; o++) {
        const uint32_t owner = lane.first + lane.group + o * 8;
        if (a.lse != nullptr && lane.place == 0 && owner < b.count)
            a.lse[(size_t)b.head * starts[a.events] + b.row + owner] = lse.f[o * 2];
    }
}

/* --- Backward --- */

/* Products q k and dout v of two neighbours in the flow and the lane's owners become the weights and the slopes that the
 * products take: p * mask, and p (dp - delta) scale. position: of the first neighbour. */
static __forceinline__ __device__ void tensor_slopes(const attention &a, const flash_block &b,
                                                     const tensor_lane &lane, const flash_drops &drops,
                                                     uint32_t position, bool are_keys, v16 lse, v16 delta,
                                                     v16 *s, v16 *dp)
{
    v16 p = att_exp2(v16_sub(v16_mul(*s, v16_set1(a.scale * ATT_LOG2E)), lse));
#pragma unroll
    for (uint32_t o = 0; o < 4; o++)
        p.f[o] = tensor_sees(a, b, lane, position, o, are_keys) ? p.f[o] : 0.0F;
    *s = p;
    if (drops.limit > 0) {
        const v16 factors = tensor_factors(drops, position, are_keys);
        *s = v16_mul(p, factors);
        *dp = v16_mul(*dp, factors);
    }
    *dp = v16_mul(v16_mul(p, v16_set1(a.scale)), v16_sub(*dp, delta));
}

/* delta[head][row], the sum over d of dout * out, for the block's owners, to `deltas` and to shared memory, [TENSOR_OWNERS]
 * deltas and then lse; rows that are not there have zeros. */
static inline __device__ void tensor_deltas(const attention &a, const flash_block &b, float *deltas,
                                            float *shared)
{
    const uint32_t owner = threadIdx.x;
    if (owner >= TENSOR_OWNERS)
        return;
    const size_t place = (size_t)b.head * a.offsets[a.events] + b.row + owner;
    float own = 0.0F;
    if (owner < b.count) {
        const float *dout = a.dout.at + (size_t)(b.row + owner) * a.dout.stride + b.column;
        const float *out = a.out.at + (size_t)(b.row + owner) * a.out.stride + b.column;
        for (uint32_t i = 0; i < b.d; i++)
            own = fmaf(float_of_bf16(bf16_of(float_bits(dout[i]), 0, true)), out[i], own);
        deltas[place] = own;
    }
    shared[owner] = own;
    shared[TENSOR_OWNERS + owner] = owner < b.count ? a.lse[place] : 0.0F;
}

/* dq, by queries; and delta, which the pass by keys reads. */
template <int steps>
static __global__ void __launch_bounds__(BLOCK) tensor_by_queries(attention a, float *deltas)
{
    SHARED_DYNAMIC(uint32_t, k_rows);
    const flash_block b = flash_place<TENSOR_OWNERS>(a, a.offsets);
    if (b.count == 0)
        return;
    uint32_t *v_rows = k_rows + tensor_rows_words(b.d), *k_pairs = v_rows + tensor_rows_words(b.d);
    float *own = reinterpret_cast<float *>(k_pairs + tensor_pairs_words(b.d));
    const tensor_lane lane = tensor_here();
    const flash_drops drops = tensor_draw(a, b, lane, false);
    const uint32_t end = a.is_causal ? b.at + b.count : b.keys, own_end = tensor_end(a, b, lane);
    const uint32_t owner = lane.first + lane.group;
    mma_a q[steps], dout[steps];
    v16 sums[2 * steps];
    tensor_clear<steps>(sums);
    tensor_own(q, b, lane, a.q);
    tensor_own(dout, b, lane, a.dout);
    tensor_deltas(a, b, deltas, own);
    for (uint32_t first = 0; first < end; first += TENSOR_FLOW) {
        const uint32_t count = min(end - first, (uint32_t)TENSOR_FLOW);
        tensor_load(b, k_rows, k_pairs, a.k, b.key_row + first, count);
        tensor_load(b, v_rows, nullptr, a.v, b.key_row + first, count);
        __syncthreads();
        const v16 delta = tensor_owners(own[owner], own[owner + 8]);
        const v16 lse = tensor_owners(own[TENSOR_OWNERS + owner], own[TENSOR_OWNERS + owner + 8]);
        for (uint32_t at = 0; at < TENSOR_FLOW && first + at < own_end; at += STEP) {
            v16 s[2], slopes[2];
            tensor_scores(s, q, b.d, lane, k_rows, at);
            tensor_scores(slopes, dout, b.d, lane, v_rows, at);
#pragma unroll
            for (uint32_t n = 0; n < 2; n++)
                tensor_slopes(a, b, lane, drops, first + at + n * 8 + lane.place * 2, false, lse, delta,
                              &s[n], &slopes[n]);
            tensor_gather<steps>(sums, slopes, b.d, lane, k_pairs, at);
        }
        __syncthreads();
    }
    tensor_write<steps>(b, lane, a.dq, sums);
}

/* Of the tile of queries at position `at`: deltas and lse in shared memory, [TENSOR_FLOW] each. */
static inline __device__ void tensor_load_numbers(const attention &a, const flash_block &b,
                                                  const float *deltas, uint32_t at, uint32_t count,
                                                  float *shared)
{
    const size_t place = (size_t)b.head * a.offsets[a.events] + b.key_row + at + threadIdx.x;
    if (threadIdx.x >= TENSOR_FLOW)
        return;
    shared[threadIdx.x] = threadIdx.x < count ? deltas[place] : 0.0F;
    shared[TENSOR_FLOW + threadIdx.x] = threadIdx.x < count ? a.lse[place] : 0.0F;
}

/* dk and dv, by keys. A causal key is seen from its own position on. */
template <int steps>
static __global__ void __launch_bounds__(BLOCK) tensor_by_keys(attention a, const float *deltas)
{
    SHARED_DYNAMIC(uint32_t, q_rows);
    const flash_block b = flash_place<TENSOR_OWNERS>(a, a.offsets);
    if (b.count == 0)
        return;
    uint32_t *dout_rows = q_rows + tensor_rows_words(b.d), *q_pairs = dout_rows + tensor_rows_words(b.d);
    uint32_t *dout_pairs = q_pairs + tensor_pairs_words(b.d);
    float *numbers = reinterpret_cast<float *>(dout_pairs + tensor_pairs_words(b.d));
    const tensor_lane lane = tensor_here();
    const flash_drops drops = tensor_draw(a, b, lane, true);
    mma_a k[steps], v[steps];
    v16 dk[2 * steps], dv[2 * steps];
    tensor_clear<steps>(dk);
    tensor_clear<steps>(dv);
    tensor_own(k, b, lane, a.k);
    tensor_own(v, b, lane, a.v);
    for (uint32_t at = a.is_causal ? b.at : 0; at < b.keys; at += TENSOR_FLOW) {
        const uint32_t count = min(b.keys - at, (uint32_t)TENSOR_FLOW);
        tensor_load(b, q_rows, q_pairs, a.q, b.key_row + at, count);
        tensor_load(b, dout_rows, dout_pairs, a.dout, b.key_row + at, count);
        tensor_load_numbers(a, b, deltas, at, count, numbers);
        __syncthreads();
        for (uint32_t first = 0; first < count && lane.first < b.count; first += STEP) {
            if (a.is_causal && at + first + STEP <= b.at + lane.first)
                continue; /* none of these queries sees a key of the warp */
            v16 s[2], slopes[2];
            tensor_scores(s, k, b.d, lane, q_rows, first);
            tensor_scores(slopes, v, b.d, lane, dout_rows, first);
#pragma unroll
            for (uint32_t n = 0; n < 2; n++) {
                const uint32_t query = first + n * 8 + lane.place * 2;
                const v16 delta = tensor_flow(numbers[query], numbers[query + 1]);
                const v16 lse = tensor_flow(numbers[TENSOR_FLOW + query], numbers[TENSOR_FLOW + query + 1]);
                tensor_slopes(a, b, lane, drops, at + query, true, lse, delta, &s[n], &slopes[n]);
            }
            tensor_gather<steps>(dv, s, b.d, lane, dout_pairs, first);
            tensor_gather<steps>(dk, slopes, b.d, lane, q_pairs, first);
        }
        __syncthreads();
    }
    tensor_write<steps>(b, lane, a.dk, dk);
    tensor_write<steps>(b, lane, a.dv, dv);
}

/* --- Launches --- */

template <int steps> static void tensor_launch(const batch_attention *a, void *stream, const char *name)
{
    const uint32_t rows = tensor_rows_words(a->of.d), pairs = tensor_pairs_words(a->of.d);
    const size_t forward = (rows + pairs) * sizeof(uint32_t), numbers = (size_t)2 * TENSOR_FLOW;
    const size_t by_queries = (2 * rows + pairs + numbers) * sizeof(uint32_t);
    const size_t by_keys = (2 * rows + 2 * pairs + numbers) * sizeof(uint32_t);
    const cudaStream_t to = gpu_cuda_stream(stream);
    float *deltas = static_cast<float *>(a->scratch);
    static_assert(TENSOR_FLOW == TENSOR_OWNERS, "deltas and lse of owners take the room of those of a tile");
    if (a->of.dout.at == nullptr) {
        if (flash_has_room(tensor_forward<steps>, forward, stream, name))
            LAUNCH(tensor_forward<steps>, tensor_blocks(a), BLOCK, forward, to, a->of);
        return;
    }
    if (!flash_has_room(tensor_by_queries<steps>, by_queries, stream, name) ||
        !flash_has_room(tensor_by_keys<steps>, by_keys, stream, name))
        return;
    LAUNCH(tensor_by_queries<steps>, tensor_blocks(a), BLOCK, by_queries, to, a->of, deltas);
    LAUNCH(tensor_by_keys<steps>, tensor_blocks(a), BLOCK, by_keys, to, a->of, (const float *)deltas);
}

void attention_softmax_bf16(const batch_attention *a, void *stream, const char *name)
{
    if (a->of.d <= 2 * STEP)
        tensor_launch<2>(a, stream, name);
    else if (a->of.d <= 4 * STEP)
        tensor_launch<4>(a, stream, name);
    else
        tensor_launch<8>(a, stream, name);
}
