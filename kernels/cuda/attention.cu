/*
 * attention_softmax of batch_sequence.h: FlashAttention (Dao 2022) over jagged windows, forward and backward, with the
 * sums of attention_softmax.inc.h, number by number in its order: so the bits are a CPU's. The limit is arithmetic.
 *
 * A thread block owns what it writes (attention.cuh). So the backward pass makes the weights again twice, once by
 * queries and once by keys, and needs no atomics.
 *
 * Ladder:
 *   naive         a thread per query: its row and sums in local memory, k and v read by all     not measured
 *   tiles         k and v go through shared memory once for 32 queries, and a thread has four   not measured
 *                 owners by four rows of the tile (scores), or by four columns (gather): a
 *                 load of 16 bytes gives sixteen products in one matrix, and four in the other
 *   strides       rows of the tile d + 4 floats apart, weights OWNERS + 4: sixteen threads      not measured
 *                 that read sixteen rows have no bank conflicts
 *   half a warp   has all weights of its four owners: the maximum is four shuffles, and no      not measured
 *                 weight is waited for by another warp; four of its lanes add the weights in
 *                 order, which is a chain
 *   v behind k    v's tile is copied into k's place while the weights are made                  not measured
 *
 * Up to 32 columns half of the threads rest while the sums are gathered.
 */
#include "kernels/cuda/attention_bf16.cuh"
#include "kernels/cuda/parts.cuh"

static const char NAME[] = "attention_softmax";

/* --- Of a thread's four owners --- */

/* The number of lane `lane` of sixteen, for four lanes: lane o gives float o. */
static __device__ __forceinline__ v16 flash_share(float x)
{
    v16 all;
#pragma unroll
    for (int o = 0; o < 4; o++)
        all.f[o] = __shfl_sync(WARP_ALL, x, o, GROUP);
    return all;
}

/* Float number lane % 4. */
static __device__ __forceinline__ float flash_own(v16 x)
{
    const float low = threadIdx.x % 2 ? x.f[1] : x.f[0], high = threadIdx.x % 2 ? x.f[3] : x.f[2];
    return threadIdx.x % 4 < 2 ? low : high;
}

/* The scores of the key at position j; keys that a query does not see are far below. */
static __device__ __forceinline__ v16 flash_hide(const attention &a, const flash_block &b, v16 s, uint32_t j)
{
#pragma unroll
    for (uint32_t o = 0; o < 4; o++)
        s.f[o] = flash_sees(a, b.at + flash_owner() + o, j) ? s.f[o] : s.f[o] + ATT_HIDDEN;
    return s;
}

/* --- Forward --- */

/* Of four queries: the largest score so far; lane o < 4 of the half warp has the sum of query o's weights. */
struct flash_state {
    v16 most;
    float sum;
};

/* The tile's scores become weights in shared memory. Returns the factor of all sums before this tile. */
static __device__ v16 flash_weigh(const attention &a, const flash_block &b, const flash_drops &drops,
                                  v16 (&s)[FLOW / GROUP], uint32_t first, flash_state *state, float *weights)
{
    const uint32_t seen = flash_seen(a, b, first), lane = flash_lane();
    float *mine = weights + lane * WEIGHTS_STRIDE + flash_owner();
    v16 most = state->most;
#pragma unroll
    for (uint32_t r = 0; r < FLOW / GROUP; r++) {
        s[r] = flash_hide(a, b, s[r], first + lane + r * GROUP);
        if (lane + r * GROUP < seen)
            most = v16_max(s[r], most);
    }
#pragma unroll
    for (int step = GROUP / 2; step > 0; step /= 2) {
        v16 other;
#pragma unroll
        for (int o = 0; o < 4; o++)
            other.f[o] = __shfl_xor_sync(WARP_ALL, most.f[o], step);
        most = v16_max(other, most);
    }
#pragma unroll
    for (uint32_t r = 0; r < FLOW / GROUP; r++) {
        s[r] = flash_mask(a, b, att_exp2(v16_sub(s[r], most)), first + lane + r * GROUP);
        v16_store(mine + r * GROUP * WEIGHTS_STRIDE, s[r]);
    }
    __syncwarp();
    const v16 by = first > 0 ? att_exp2(v16_sub(state->most, most)) : v16_set1(1.0F);
    state->most = most;
    state->sum *= flash_own(by);
    if (lane < 4) {
#pragma unroll 8
        for (uint32_t j = 0; j < seen; j++)
            state->sum += weights[j * WEIGHTS_STRIDE + flash_owner() + lane];
    }
    if (drops.limit == 0)
        return by;
    __syncwarp(); /* the sums are of the weights before dropout */
#pragma unroll
    for (uint32_t r = 0; r < FLOW / GROUP; r++) {
        const uint32_t column = dropout_column(drops.key, first + lane + r * GROUP);
        v16_store(mine + r * GROUP * WEIGHTS_STRIDE, v16_mul(s[r], flash_factors(drops, column)));
    }
    __syncwarp();
    return by;
}

template <int vectors> static __global__ void __launch_bounds__(BLOCK) flash_forward(attention a)
{
    SHARED_DYNAMIC(float, shared);
    const uint32_t *starts = a.query_offsets != nullptr ? a.query_offsets : a.offsets;
    const flash_block b = flash_place(a, starts);
    if (b.count == 0)
        return;
    float *turned = shared, *weights = turned + b.d * OWNERS, *tile = weights + FLOW * WEIGHTS_STRIDE;
    const flash_drops drops = flash_draw(a, b, false);
    const uint32_t end = a.is_causal ? b.at + b.count : b.keys;
    flash_state state = {v16_set1(ATT_HIDDEN), 0.0F};
    v16 sums[vectors * 4];
#pragma unroll
    for (int i = 0; i < vectors * 4; i++)
        sums[i] = v16_set1(0.0F);
    flash_turn(b, turned, a.q, a.scale * ATT_LOG2E);
    for (uint32_t first = 0; first < end; first += FLOW) {
        const uint32_t count = min(end - first, (uint32_t)FLOW);
        v16 s[FLOW / GROUP];
        flash_load(b, tile, a.k, b.key_row + first, count, FLOW);
        flash_loaded();
        flash_scores(s, b, turned, tile, 1.0F);
        __syncthreads(); /* v takes the place of k */
        flash_load(b, tile, a.v, b.key_row + first, count, FLOW);
        const v16 by = flash_weigh(a, b, drops, s, first, &state, weights);
#pragma unroll
        for (int i = 0; i < vectors * 4; i++)
            sums[i] = first > 0 ? v16_fma(sums[i], by, v16_set1(0.0F)) : sums[i];
        flash_loaded();
        flash_gather<vectors>(sums, b, weights, tile, 0, flash_seen(a, b, first));
        __syncthreads();
    }
    const v16 by = v16_div(v16_set1(1.0F), flash_share(state.sum));
#pragma unroll
    for (int i = 0; i < vectors * 4; i++)
        sums[i] = v16_fma(sums[i], by, v16_set1(0.0F));
    flash_write<vectors>(b, a.out, sums);
    const uint32_t owner = flash_owner() + flash_lane();
    if (a.lse != nullptr && flash_lane() < 4 && owner < b.count)
        a.lse[(size_t)b.head * starts[a.events] + b.row + owner] =
            flash_own(v16_add(state.most, softmax_log2(v16_set1(state.sum))));
}

/* --- Backward --- */

/* Weights, and slopes, the gradients by the weights, of one row of the flow become those that the products take:
 * p * mask, and p (dp - delta) scale. */
static __device__ __forceinline__ void flash_slopes(const attention &a, const flash_drops &drops,
                                                    uint32_t other, v16 delta, v16 *p, v16 *dp)
{
    const v16 plain = *p;
    if (drops.limit > 0) {
        const v16 factors = flash_factors(drops, other);
        *p = v16_mul(plain, factors);
        *dp = v16_mul(*dp, factors);
    }
    *dp = v16_mul(v16_mul(plain, v16_set1(a.scale)), v16_sub(*dp, delta));
}

/* dq, by queries; and delta[head][row], the sum over d of dout * out, which the pass by keys reads. */
template <int vectors>
static __global__ void __launch_bounds__(BLOCK) flash_by_queries(attention a, float *deltas)
{
    SHARED_DYNAMIC(float, shared);
    const flash_block b = flash_place(a, a.offsets);
    if (b.count == 0)
        return;
    float *turned_q = shared, *turned_dout = turned_q + b.d * OWNERS, *weights = turned_dout + b.d * OWNERS;
    float *tile = weights + FLOW * WEIGHTS_STRIDE;
    const flash_drops drops = flash_draw(a, b, false);
    const uint32_t end = a.is_causal ? b.at + b.count : b.keys, owner = flash_owner() + flash_lane() % 4;
    const size_t place = (size_t)b.head * a.offsets[a.events] + b.row + min(owner, b.count - 1);
    const attention_in out = {a.out.at, a.out.stride};
    v16 sums[vectors * 4];
#pragma unroll
    for (int i = 0; i < vectors * 4; i++)
        sums[i] = v16_set1(0.0F);
    flash_turn(b, turned_q, a.q, a.scale * ATT_LOG2E);
    flash_turn(b, turned_dout, a.dout, 1.0F);
    flash_load(b, tile, out, b.row, b.count, OWNERS);
    flash_loaded();
    float own = 0.0F;
    for (uint32_t i = 0; i < b.d; i++)
        own = fmaf(turned_dout[i * OWNERS + owner], tile[owner * (b.d + PAD) + i], own);
    if (flash_lane() < 4 && owner < b.count)
        deltas[place] = own;
    const v16 delta = flash_share(own), lse = flash_share(a.lse[place]);
    __syncthreads();
    for (uint32_t first = 0; first < end; first += FLOW) {
        const uint32_t count = min(end - first, (uint32_t)FLOW), seen = flash_seen(a, b, first);
        v16 s[FLOW / GROUP], slopes[FLOW / GROUP];
        flash_load(b, tile, a.v, b.key_row + first, count, FLOW);
        flash_loaded();
        flash_scores(slopes, b, turned_dout, tile, 1.0F);
        __syncthreads();
        flash_load(b, tile, a.k, b.key_row + first, count, FLOW);
        flash_loaded();
        flash_scores(s, b, turned_q, tile, 1.0F);
#pragma unroll
        for (uint32_t r = 0; r < FLOW / GROUP; r++) {
            const uint32_t row = flash_lane() + r * GROUP, j = first + row;
            v16 p = flash_mask(a, b, att_exp2(v16_sub(flash_hide(a, b, s[r], j), lse)), j);
            flash_slopes(a, drops, drops.limit > 0 ? dropout_column(drops.key, j) : 0, delta, &p, &slopes[r]);
            v16_store(weights + row * WEIGHTS_STRIDE + flash_owner(), slopes[r]);
        }
        __syncwarp();
        flash_gather<vectors>(sums, b, weights, tile, 0, seen);
        __syncthreads();
    }
    flash_write<vectors>(b, a.dq, sums);
}

/* One tile of queries of the pass by keys: weights and slopes, by query and this thread's four keys, into shared
 * memory. at, count: of the queries. */
static __device__ void flash_key_weights(const attention &a, const flash_block &b, const flash_drops &drops,
                                         uint32_t at, uint32_t count, const float *deltas,
                                         v16 (&s)[QUERIES / GROUP], v16 (&dp)[QUERIES / GROUP],
                                         float *weights, float *slopes)
{
#pragma unroll
    for (uint32_t r = 0; r < QUERIES / GROUP; r++) {
        const uint32_t query = flash_lane() + r * GROUP, i = at + min(query, count - 1);
        const size_t place = (size_t)b.head * a.offsets[a.events] + b.key_row + i;
        v16 x = s[r];
#pragma unroll
        for (uint32_t o = 0; o < 4; o++)
            x.f[o] = flash_sees(a, i, b.at + flash_owner() + o) ? x.f[o] : x.f[o] + ATT_HIDDEN;
        v16 p = att_exp2(v16_sub(x, v16_set1(a.lse[place])));
#pragma unroll
        for (uint32_t o = 0; o < 4; o++)
            p.f[o] = flash_sees(a, i, b.at + flash_owner() + o) ? p.f[o] : 0.0F;
        flash_slopes(a, drops, drops.limit > 0 ? dropout_row(drops.key, i) : 0, v16_set1(deltas[place]), &p,
                     &dp[r]);
        v16_store(weights + query * WEIGHTS_STRIDE + flash_owner(), p);
        v16_store(slopes + query * WEIGHTS_STRIDE + flash_owner(), dp[r]);
    }
    __syncwarp();
}

/* dk and dv, by keys. A causal key is seen from its own position on. */
template <int vectors>
static __global__ void __launch_bounds__(BLOCK) flash_by_keys(attention a, const float *deltas)
{
    SHARED_DYNAMIC(float, shared);
    const flash_block b = flash_place(a, a.offsets);
    if (b.count == 0)
        return;
    float *turned_k = shared, *turned_v = turned_k + b.d * OWNERS, *weights = turned_v + b.d * OWNERS;
    float *slopes = weights + QUERIES * WEIGHTS_STRIDE, *q = slopes + QUERIES * WEIGHTS_STRIDE;
    float *dout = q + QUERIES * (b.d + PAD);
    const flash_drops drops = flash_draw(a, b, true);
    v16 dk[vectors * 4], dv[vectors * 4];
#pragma unroll
    for (int i = 0; i < vectors * 4; i++)
        dk[i] = dv[i] = v16_set1(0.0F);
    flash_turn(b, turned_k, a.k, 1.0F);
    flash_turn(b, turned_v, a.v, 1.0F);
    for (uint32_t at = a.is_causal ? b.at : 0; at < b.keys; at += QUERIES) {
        const uint32_t count = min(b.keys - at, (uint32_t)QUERIES);
        v16 s[QUERIES / GROUP], dp[QUERIES / GROUP];
        flash_load(b, q, a.q, b.key_row + at, count, QUERIES);
        flash_load(b, dout, a.dout, b.key_row + at, count, QUERIES);
        flash_loaded();
        flash_scores(s, b, turned_k, q, a.scale * ATT_LOG2E);
        flash_scores(dp, b, turned_v, dout, 1.0F);
        flash_key_weights(a, b, drops, at, count, deltas, s, dp, weights, slopes);
        const uint32_t from = flash_first_query(a, b, at, count);
        flash_gather<vectors>(dv, b, weights, dout, from, count);
        flash_gather<vectors>(dk, b, slopes, q, from, count);
        __syncthreads();
    }
    flash_write<vectors>(b, a.dk, dk);
    flash_write<vectors>(b, a.dv, dv);
}

/* --- Launches --- */

template <int vectors> static void flash_launch(const batch_attention *a, void *stream)
{
    const size_t d = a->of.d, weights = (size_t)FLOW * WEIGHTS_STRIDE, tile = FLOW * (d + PAD);
    const size_t forward = (d * OWNERS + weights + tile) * sizeof(float);
    const size_t backward = (2 * d * OWNERS + weights + tile) * sizeof(float);
    const unsigned blocks = (a->queries / OWNERS + a->of.events) * a->of.heads;
    const cudaStream_t to = gpu_cuda_stream(stream);
    float *deltas = static_cast<float *>(a->scratch);
    static_assert(FLOW == 2 * QUERIES,
                  "two tiles of queries, and their weights, take the room of one of keys");
    if (a->of.dout.at == nullptr) {
        if (flash_has_room(flash_forward<vectors>, forward, stream, NAME))
            LAUNCH(flash_forward<vectors>, blocks, BLOCK, forward, to, a->of);
        return;
    }
    if (!flash_has_room(flash_by_queries<vectors>, backward, stream, NAME) ||
        !flash_has_room(flash_by_keys<vectors>, backward, stream, NAME))
        return;
    LAUNCH(flash_by_queries<vectors>, blocks, BLOCK, backward, to, a->of, deltas);
    LAUNCH(flash_by_keys<vectors>, blocks, BLOCK, backward, to, a->of, (const float *)deltas);
}

void cuda_attention_softmax(batch_attention *a, void *stream)
{
    if (a->scratch == nullptr) {
        const size_t bytes = (size_t)a->queries * a->of.heads * sizeof(float);
        a->scratch_bytes = bytes > BATCH_SCRATCH_MIN ? bytes : (size_t)BATCH_SCRATCH_MIN;
        return;
    }
    if (a->queries == 0 || a->of.events == 0 || a->of.heads == 0)
        return;
    if (a->of.precision == ROW_BF16)
        attention_softmax_bf16(a, stream, NAME);
    else if (a->of.d <= 64)
        flash_launch<1>(a, stream);
    else
        flash_launch<2>(a, stream);
    (void)gpu_launched(stream, NAME);
}
