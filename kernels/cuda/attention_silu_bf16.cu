/*
 * attention_silu of batch_sequence.h with `precision` ROW_BF16: the sums of attention_silu.inc.h with rounded operands, on
 * tensor cores, as attention_bf16.cu has them for softmax. The gradients by the biases are in attention_silu.cu.
 *
 * Ladder, besides that of attention_bf16.cu:
 *   sixteen rows    without a maximum the forward pass, too, has the scores of sixteen keys      not measured
 *                   at a time, not of a tile
 */
#include "kernels/cuda/attention_bf16.cuh"
#include "kernels/cuda/attention_silu.cuh"

/* The biases of the lane's owners and two neighbours in the flow, the first at `position`, and which pairs see each
 * other. are_keys: the owners are keys. */
static __device__ __forceinline__ v16 silu_pairs(const attention &a, const flash_block &b,
                                                 const tensor_lane &lane, const silu_tables &tables,
                                                 uint32_t position, bool are_keys, bool (&visible)[4])
{
    v16 bias;
#pragma unroll
    for (uint32_t o = 0; o < 4; o++) {
        const uint32_t number = lane.first + lane.group + o / 2 * 8, owner = b.at + number;
        const uint32_t other = position + o % 2;
        visible[o] = number < b.count && tensor_sees(a, b, lane, position, o, are_keys);
        bias.f[o] = are_keys ? silu_bias(tables, other, other, owner, visible[o])
                             : silu_bias(tables, owner, number, other, visible[o]);
    }
    return bias;
}

/* --- Forward --- */

template <int steps>
static __global__ void __launch_bounds__(BLOCK) silu_tensor_forward(attention a, attention_bias bias)
{
    SHARED_DYNAMIC(uint32_t, k_rows);
    const flash_block b =
        flash_place<TENSOR_OWNERS>(a, a.query_offsets != nullptr ? a.query_offsets : a.offsets);
    if (b.count == 0)
        return;
    uint32_t *v_pairs = k_rows + tensor_rows_words(b.d);
    const tensor_lane lane = tensor_here();
    const flash_drops drops = tensor_draw(a, b, lane, false);
    const silu_tables tables = silu_of(a, bias, b, b.row);
    const uint32_t end = a.is_causal ? b.at + b.count : b.keys, own_end = tensor_end(a, b, lane);
    mma_a q[steps];
    v16 sums[2 * steps];
    tensor_clear<steps>(sums);
    tensor_own(q, b, lane, a.q);
    for (uint32_t first = 0; first < end; first += TENSOR_FLOW) {
        const uint32_t count = min(end - first, (uint32_t)TENSOR_FLOW);
        tensor_load(b, k_rows, nullptr, a.k, b.key_row + first, count);
        tensor_load(b, nullptr, v_pairs, a.v, b.key_row + first, count);
        __syncthreads();
        for (uint32_t at = 0; at < TENSOR_FLOW && first + at < own_end; at += STEP) {
            v16 s[2];
            tensor_scores(s, q, b.d, lane, k_rows, at);
#pragma unroll
            for (uint32_t n = 0; n < 2; n++) {
                const uint32_t j = first + at + n * 8 + lane.place * 2;
                bool visible[4];
                const v16 biases = silu_pairs(a, b, lane, tables, j, false, visible);
                v16 score, gate, x = silu_weight(a, s[n], biases, &score, &gate);
                if (drops.limit > 0)
                    x = v16_mul(x, tensor_factors(drops, j, false));
#pragma unroll
                for (int o = 0; o < 4; o++)
                    s[n].f[o] = visible[o] ? x.f[o] : 0.0F;
            }
            tensor_gather<steps>(sums, s, b.d, lane, v_pairs, at);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2 * steps; i++)
        sums[i] = v16_fma(sums[i], v16_set1(1.0F), v16_set1(0.0F)); /* -0 becomes 0 */
    tensor_write<steps>(b, lane, a.out, sums);
}

/* --- Backward --- */

/* Products q k and dout v of sixteen rows of the flow, from `position` on, and the lane's owners become the weights and
 * slopes that the products take. */
static __device__ __forceinline__ void silu_tensor_slopes(const attention &a, const flash_block &b,
                                                          const tensor_lane &lane, const flash_drops &drops,
                                                          const silu_tables &tables, uint32_t position,
                                                          bool are_keys, v16 (&s)[2], v16 (&dx)[2])
{
    const v16 one = v16_set1(1.0F);
#pragma unroll
    for (uint32_t n = 0; n < 2; n++) {
        const uint32_t at = position + n * 8 + lane.place * 2;
        bool visible[4];
        const v16 biases = silu_pairs(a, b, lane, tables, at, are_keys, visible);
        const v16 factors = drops.limit > 0 ? tensor_factors(drops, at, are_keys) : one;
        silu_slopes(a, drops.limit > 0, factors, biases, visible, &s[n], &dx[n]);
        dx[n] = v16_mul(dx[n], v16_set1(a.scale));
    }
}

/* dq, by queries. */
template <int steps>
static __global__ void __launch_bounds__(BLOCK) silu_tensor_by_queries(attention a, attention_bias bias)
{
    SHARED_DYNAMIC(uint32_t, k_rows);
    const flash_block b = flash_place<TENSOR_OWNERS>(a, a.offsets);
    if (b.count == 0)
        return;
    uint32_t *v_rows = k_rows + tensor_rows_words(b.d), *k_pairs = v_rows + tensor_rows_words(b.d);
    const tensor_lane lane = tensor_here();
    const flash_drops drops = tensor_draw(a, b, lane, false);
    const silu_tables tables = silu_of(a, bias, b, b.row);
    const uint32_t end = a.is_causal ? b.at + b.count : b.keys, own_end = tensor_end(a, b, lane);
    mma_a q[steps], dout[steps];
    v16 sums[2 * steps];
    tensor_clear<steps>(sums);
    tensor_own(q, b, lane, a.q);
    tensor_own(dout, b, lane, a.dout);
    for (uint32_t first = 0; first < end; first += TENSOR_FLOW) {
        const uint32_t count = min(end - first, (uint32_t)TENSOR_FLOW);
        tensor_load(b, k_rows, k_pairs, a.k, b.key_row + first, count);
        tensor_load(b, v_rows, nullptr, a.v, b.key_row + first, count);
        __syncthreads();
        for (uint32_t at = 0; at < TENSOR_FLOW && first + at < own_end; at += STEP) {
            v16 s[2], slopes[2];
            tensor_scores(s, q, b.d, lane, k_rows, at);
            tensor_scores(slopes, dout, b.d, lane, v_rows, at);
            silu_tensor_slopes(a, b, lane, drops, tables, first + at, false, s, slopes);
            tensor_gather<steps>(sums, slopes, b.d, lane, k_pairs, at);
        }
        __syncthreads();
    }
    tensor_write<steps>(b, lane, a.dq, sums);
}

/* dk and dv, by keys. A causal key is seen from its own position on. */
template <int steps>
static __global__ void __launch_bounds__(BLOCK) silu_tensor_by_keys(attention a, attention_bias bias)
{
    SHARED_DYNAMIC(uint32_t, q_rows);
    const flash_block b = flash_place<TENSOR_OWNERS>(a, a.offsets);
    if (b.count == 0)
        return;
    uint32_t *dout_rows = q_rows + tensor_rows_words(b.d), *q_pairs = dout_rows + tensor_rows_words(b.d);
    uint32_t *dout_pairs = q_pairs + tensor_pairs_words(b.d);
    const tensor_lane lane = tensor_here();
    const flash_drops drops = tensor_draw(a, b, lane, true);
    const silu_tables tables = silu_of(a, bias, b, b.key_row);
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
        __syncthreads();
        for (uint32_t first = 0; first < count && lane.first < b.count; first += STEP) {
            if (a.is_causal && at + first + STEP <= b.at + lane.first)
                continue; /* none of these queries sees a key of the warp */
            v16 s[2], slopes[2];
            tensor_scores(s, k, b.d, lane, q_rows, first);
            tensor_scores(slopes, v, b.d, lane, dout_rows, first);
            silu_tensor_slopes(a, b, lane, drops, tables, at + first, true, s, slopes);
            tensor_gather<steps>(dv, s, b.d, lane, dout_pairs, first);
            tensor_gather<steps>(dk, slopes, b.d, lane, q_pairs, first);
        }
        __syncthreads();
    }
    tensor_write<steps>(b, lane, a.dk, dk);
    tensor_write<steps>(b, lane, a.dv, dv);
}

/* --- Launches --- */

template <int steps>
static void silu_tensor_launch(const batch_attention *a, const attention_bias &bias, void *stream,
                               const char *name)
{
    const uint32_t rows = tensor_rows_words(a->of.d), pairs = tensor_pairs_words(a->of.d);
    const size_t forward = (size_t)(rows + pairs) * sizeof(uint32_t);
    const size_t by_queries = (size_t)(2 * rows + pairs) * sizeof(uint32_t);
    const size_t by_keys = (size_t)(2 * rows + 2 * pairs) * sizeof(uint32_t);
    const cudaStream_t to = gpu_cuda_stream(stream);
    if (a->of.dout.at == nullptr) {
        if (flash_has_room(silu_tensor_forward<steps>, forward, stream, name))
            LAUNCH(silu_tensor_forward<steps>, tensor_blocks(a), BLOCK, forward, to, a->of, bias);
        return;
    }
    if (!flash_has_room(silu_tensor_by_queries<steps>, by_queries, stream, name) ||
        !flash_has_room(silu_tensor_by_keys<steps>, by_keys, stream, name))
        return;
    LAUNCH(silu_tensor_by_queries<steps>, tensor_blocks(a), BLOCK, by_queries, to, a->of, bias);
    LAUNCH(silu_tensor_by_keys<steps>, tensor_blocks(a), BLOCK, by_keys, to, a->of, bias);
}

void attention_silu_bf16(const batch_attention *a, const attention_bias &bias, void *stream, const char *name)
{
    if (a->of.d <= 2 * STEP)
        silu_tensor_launch<2>(a, bias, stream, name);
    else if (a->of.d <= 4 * STEP)
        silu_tensor_launch<4>(a, bias, stream, name);
    else
        silu_tensor_launch<8>(a, bias, stream, name);
}
