/*
 * attention_softmax of batch_sequence.h: FlashAttention (Dao 2022) over jagged windows, forward and backward, with the
 * sums of attention_softmax.inc.h, number by number in its order: so the bits are a CPU's. The limit is arithmetic.
 *
 * A thread block has OWNERS rows of a window and head, which own what it writes: the queries of out and of dq, the
 * keys of dk and dv. The other side's rows flow by in tiles. So the backward pass makes the weights again twice, once
 * by queries and once by keys, and needs no atomics.
 *
 *   scores: w[flow][owner]     = sum over d of rows[flow][i] turned[i][owner]
 *   gather: sums[i][owner]    += sum over the tile of rows[flow][i] w[flow][owner]
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
#include "kernels/cuda/async.cuh"
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/matrix.cuh"
#include "kernels/cuda/parts.cuh"

#include "kernels/attention_math.inc.h"
#include "kernels/dropout.h"

/* FLOW: keys of a tile of attention.h. QUERIES: of a tile of the pass by keys; the blocks of a CPU. */
enum { BLOCK = 128, GROUP = 16, OWNERS = 32, FLOW = ATTENTION_KEYS, QUERIES = ATTENTION_QUERIES };
enum { PAD = 4, WEIGHTS_STRIDE = OWNERS + PAD, SHARED_MOST = 96 << 10 };
static_assert(QUERIES == OWNERS, "blocks of queries and of keys begin at the same positions");

/* --- The block's place --- */

/* A thread block's rows of a window, and what is the same for all of them. */
struct flash_block {
    uint32_t event, head;
    uint32_t keys, key_row; /* rows of the window; its first row in k and v */
    uint32_t at,
        row;        /* position of the first owner; its row in q and out (owners that are keys: in k and v) */
    uint32_t count; /* owners; 0: the thread block has nothing to do */
    uint32_t d, column; /* of a head, and the head's first column */
};

/*
 * Window e has the slots from starts[e] / OWNERS + e on, which is at least one for each OWNERS rows begun. So a slot's
 * window is found in `starts`, and the host needs to know how many rows there are, but not how long windows are.
 */
static __device__ flash_block flash_place(const attention &a, const uint32_t *starts)
{
    flash_block b = {};
    const uint32_t slot = blockIdx.x / a.heads;
    uint32_t low = 0, high = a.events;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (__ldg(starts + middle) / OWNERS + middle <= slot)
            low = middle;
        else
            high = middle;
    }
    const uint32_t begin = starts[low], all = starts[low + 1] - begin;
    const uint32_t first = (slot - (begin / OWNERS + low)) * OWNERS;
    b.event = low, b.head = blockIdx.x % a.heads;
    b.key_row = a.offsets[low], b.keys = a.offsets[low + 1] - b.key_row;
    b.at = b.keys - all + first, b.row = begin + first;
    b.count = first < all ? min(all - first, (uint32_t)OWNERS) : 0;
    b.d = a.d, b.column = b.head * a.d;
    return b;
}

/* Four owners of this thread: the first one's number in the block. */
static __device__ __forceinline__ uint32_t flash_owner(void)
{
    return threadIdx.x / GROUP * 4;
}

static __device__ __forceinline__ uint32_t flash_lane(void)
{
    return threadIdx.x % GROUP;
}

/* --- Tiles --- */

/* Copies `count` rows of a head's columns into a tile of `room` rows; the others become zeros. Wait with
 * flash_loaded. */
static __device__ void flash_load(const flash_block &b, float *tile, const attention_in &from, size_t row,
                                  uint32_t count, uint32_t room)
{
    const uint32_t fours = b.d / 4, stride = b.d + PAD;
    for (uint32_t i = threadIdx.x; i < room * fours; i += BLOCK) {
        const uint32_t r = i / fours, c = (i - r * fours) * 4;
        if (r < count)
            async_copy_16(tile + r * stride + c, from.at + (row + r) * from.stride + b.column + c);
        else
            v16_store(tile + r * stride + c, v16_set1(0.0F));
    }
    async_copy_commit();
}

static __device__ void flash_loaded(void)
{
    async_copy_wait<0>();
    __syncthreads();
}

/* turned[i][owner] = scale * the owner's row; owners that are not there are zeros. */
static __device__ void flash_turn(const flash_block &b, float *turned, const attention_in &from, float scale)
{
    const uint32_t owner = threadIdx.x % OWNERS;
    const float *row = from.at + (size_t)(b.row + owner) * from.stride + b.column;
    for (uint32_t i = threadIdx.x / OWNERS * 4; i < b.d; i += BLOCK / OWNERS * 4) {
        const v16 x = owner < b.count ? v16_mul(v16_load(row + i), v16_set1(scale)) : v16_set1(0.0F);
#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            turned[(i + k) * OWNERS + owner] = x.f[k];
    }
}

/* Rows lane, lane + 16 ... of the tile, each times `scale`, by this thread's four owners. */
template <int rows>
static __device__ __forceinline__ void flash_scores(v16 (&s)[rows], const flash_block &b, const float *turned,
                                                    const float *tile, float scale)
{
    const float *mine = tile + flash_lane() * (b.d + PAD), *owners = turned + flash_owner();
#pragma unroll
    for (int r = 0; r < rows; r++)
        s[r] = v16_set1(0.0F);
    for (uint32_t i = 0; i < b.d; i += 4) {
        v16 by[4];
#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            by[k] = v16_load(owners + (i + k) * OWNERS);
#pragma unroll
        for (int r = 0; r < rows; r++) {
            const v16 x = v16_mul(v16_load(mine + (uint32_t)r * GROUP * (b.d + PAD) + i), v16_set1(scale));
#pragma unroll
            for (int k = 0; k < 4; k++)
                s[r] = v16_fma(v16_set1(x.f[k]), by[k], s[r]);
        }
    }
}

/* sums: columns 4 * lane .. + 3, and with two vectors those 64 further on, by this thread's four owners. Rows `from`
 * up to `end` of the tile. */
template <int vectors>
static __device__ __forceinline__ void flash_gather(v16 (&sums)[vectors * 4], const flash_block &b,
                                                    const float *weights, const float *tile, uint32_t from,
                                                    uint32_t end)
{
    const uint32_t column = flash_lane() * 4, stride = b.d + PAD;
    const float *owners = weights + flash_owner();
#pragma unroll 4
    for (uint32_t r = from; r < end; r++) {
        const v16 w = v16_load(owners + r * WEIGHTS_STRIDE);
#pragma unroll
        for (uint32_t v = 0; v < vectors; v++) {
            if (column + v * 64 >= b.d)
                continue;
            const v16 x = v16_load(tile + r * stride + column + v * 64);
#pragma unroll
            for (int c = 0; c < 4; c++)
                sums[v * 4 + c] = v16_fma(v16_set1(x.f[c]), w, sums[v * 4 + c]);
        }
    }
}

/* Writes the sums to the owners' rows. */
template <int vectors>
static __device__ void flash_write(const flash_block &b, const attention_out &to,
                                   const v16 (&sums)[vectors * 4])
{
    const uint32_t column = flash_lane() * 4;
#pragma unroll
    for (uint32_t v = 0; v < vectors; v++) {
        if (column + v * 64 >= b.d)
            continue;
#pragma unroll
        for (uint32_t o = 0; o < 4; o++) {
            if (flash_owner() + o >= b.count)
                continue;
            float *row = to.at + (size_t)(b.row + flash_owner() + o) * to.stride + b.column;
            *reinterpret_cast<float4 *>(row + column + v * 64) = make_float4(
                sums[v * 4].f[o], sums[v * 4 + 1].f[o], sums[v * 4 + 2].f[o], sums[v * 4 + 3].f[o]);
        }
    }
}

/* --- Weights --- */

/* Of this thread's four owners: dropout's half of the hash, and the factor of what is kept. */
struct flash_drops {
    uint64_t key;
    uint32_t owners[4];
    uint32_t limit; /* 0: no dropout */
    float kept;
};

static __device__ flash_drops flash_draw(const attention &a, const flash_block &b, bool are_keys)
{
    flash_drops drops = {};
    drops.limit = dropout_limit(a.dropout);
    drops.kept = 1.0F / (1.0F - a.dropout);
    if (drops.limit == 0)
        return drops;
    const uint64_t identity = a.identities != nullptr ? a.identities[b.event] : b.event;
    drops.key = num_chance(a.seed, identity, a.part + b.head);
#pragma unroll
    for (uint32_t o = 0; o < 4; o++) {
        const uint32_t position = b.at + flash_owner() + o;
        drops.owners[o] = are_keys ? dropout_column(drops.key, position) : dropout_row(drops.key, position);
    }
    return drops;
}

/* Factors of the weights of one row of the flow and four owners. other: the row's half of the hash. */
static __device__ __forceinline__ v16 flash_factors(const flash_drops &drops, uint32_t other)
{
    v16 factors;
#pragma unroll
    for (int o = 0; o < 4; o++)
        factors.f[o] = dropout_bits(drops.owners[o], other) >= drops.limit ? drops.kept : 0.0F;
    return factors;
}

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

/* Whether the query at position i sees the key at position j. */
static __device__ __forceinline__ bool flash_sees(const attention &a, uint32_t i, uint32_t j)
{
    return !a.is_causal || j <= i;
}

/* Keys of the tile at `first` that a vector of sixteen queries takes part in, as in att_tile of a CPU: keys that no
 * query of it sees are left out, the others masked. */
static __device__ uint32_t flash_seen(const attention &a, const flash_block &b, uint32_t first)
{
    const uint32_t vector_end = flash_owner() < 16 ? min(b.count, 16U) : b.count;
    const uint32_t end = a.is_causal ? b.at + vector_end : b.keys;
    return end <= first ? 0 : min(end - first, (uint32_t)FLOW);
}

/* The scores of the key at position j; keys that a query does not see are far below. */
static __device__ __forceinline__ v16 flash_hide(const attention &a, const flash_block &b, v16 s, uint32_t j)
{
#pragma unroll
    for (uint32_t o = 0; o < 4; o++)
        s.f[o] = flash_sees(a, b.at + flash_owner() + o, j) ? s.f[o] : s.f[o] + ATT_HIDDEN;
    return s;
}

/* Weights of the key at position j, 0 where a query does not see it. */
static __device__ __forceinline__ v16 flash_mask(const attention &a, const flash_block &b, v16 p, uint32_t j)
{
#pragma unroll
    for (uint32_t o = 0; o < 4; o++)
        p.f[o] = flash_sees(a, b.at + flash_owner() + o, j) ? p.f[o] : 0.0F;
    return p;
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
        /* Keys that none of the first sixteen queries sees begin with the others, as on a CPU. */
        const bool begins_later = a.is_causal && count > 16 && b.at + flash_owner() >= at + 16;
        const uint32_t from = begins_later ? 16 : 0;
        flash_gather<vectors>(dv, b, weights, dout, from, count);
        flash_gather<vectors>(dk, b, slopes, q, from, count);
        __syncthreads();
    }
    flash_write<vectors>(b, a.dk, dk);
    flash_write<vectors>(b, a.dv, dv);
}

/* --- Launches --- */

/* Lets a kernel have `bytes` of shared memory; false: the device has failed. */
template <typename function> static bool flash_has_room(function *kernel, size_t bytes, void *stream)
{
    gpu *of = static_cast<gpu_stream *>(stream)->gpu;
    gpu_use(of);
    return bytes <= (48 << 10) ||
           gpu_note(of,
                    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_MOST),
                    "attention_softmax");
}

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
        if (flash_has_room(flash_forward<vectors>, forward, stream))
            LAUNCH(flash_forward<vectors>, blocks, BLOCK, forward, to, a->of);
        return;
    }
    if (!flash_has_room(flash_by_queries<vectors>, backward, stream) ||
        !flash_has_room(flash_by_keys<vectors>, backward, stream))
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
    if (a->of.d <= 64)
        flash_launch<1>(a, stream);
    else
        flash_launch<2>(a, stream);
    (void)gpu_launched(stream, "attention_softmax");
}
