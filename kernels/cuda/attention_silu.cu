/*
 * attention_silu of batch_sequence.h: HSTU's attention over jagged windows, forward and backward, with the sums of
 * attention_silu.inc.h, number by number in its order: so the bits are a CPU's. The limit is arithmetic. A thread block
 * owns what it writes (attention.cuh), so there are no atomics.
 *
 * Ladder, besides that of attention.cu:
 *   biases        each thread adds its own, from tables in the first-level cache                not measured
 *   their         a thread block for each part of windows makes the slopes once more; in a      not measured
 *   gradients     tile a thread has the pairs of one distance, and sixteen threads, one for
 *                 each place of a query in a CPU's vector, have the sums by bucket of time,
 *                 which wait for each other's memory alone
 */
#include "kernels/cuda/attention_silu.cuh"
#include "kernels/cuda/parts.cuh"

static const char NAME[] = "attention_silu";

/* --- Keys --- */

/* The biases of the key at position j, and which of this thread's queries see it. */
static __device__ __forceinline__ v16 silu_key(const attention &a, const flash_block &b, const silu_tables &t,
                                               uint32_t j, bool (&visible)[4])
{
    v16 bias;
#pragma unroll
    for (uint32_t o = 0; o < 4; o++) {
        const uint32_t query = flash_owner() + o;
        visible[o] = query < b.count && j < b.keys && flash_sees(a, b.at + query, j);
        bias.f[o] = silu_bias(t, b.at + query, query, j, visible[o]);
    }
    return bias;
}

/* Factors of dropout; other: the half of the hash of the row of the flow. */
static __device__ __forceinline__ v16 silu_factors(const flash_drops &drops, uint32_t other)
{
    return drops.limit > 0 ? flash_factors(drops, other) : v16_set1(1.0F);
}

/* --- Forward --- */

template <int vectors>
static __global__ void __launch_bounds__(BLOCK) silu_forward(attention a, attention_bias bias)
{
    SHARED_DYNAMIC(float, shared);
    const flash_block b = flash_place(a, a.query_offsets != nullptr ? a.query_offsets : a.offsets);
    if (b.count == 0)
        return;
    float *turned = shared, *weights = turned + b.d * OWNERS, *tile = weights + FLOW * WEIGHTS_STRIDE;
    const flash_drops drops = flash_draw(a, b, false);
    const silu_tables tables = silu_of(a, bias, b, b.row);
    const uint32_t end = a.is_causal ? b.at + b.count : b.keys;
    v16 sums[vectors * 4];
#pragma unroll
    for (int i = 0; i < vectors * 4; i++)
        sums[i] = v16_set1(0.0F);
    flash_turn(b, turned, a.q, 1.0F);
    for (uint32_t first = 0; first < end; first += FLOW) {
        const uint32_t count = min(end - first, (uint32_t)FLOW);
        v16 s[FLOW / GROUP];
        flash_load(b, tile, a.k, b.key_row + first, count, FLOW);
        flash_loaded();
        flash_scores(s, b, turned, tile, 1.0F);
        __syncthreads(); /* v takes the place of k */
        flash_load(b, tile, a.v, b.key_row + first, count, FLOW);
#pragma unroll
        for (uint32_t r = 0; r < FLOW / GROUP; r++) {
            const uint32_t row = flash_lane() + r * GROUP, j = first + row;
            bool visible[4];
            const v16 biases = silu_key(a, b, tables, j, visible);
            v16 score, gate, x = silu_weight(a, s[r], biases, &score, &gate);
            if (drops.limit > 0)
                x = v16_mul(x, flash_factors(drops, dropout_column(drops.key, j)));
#pragma unroll
            for (int o = 0; o < 4; o++)
                x.f[o] = visible[o] ? x.f[o] : 0.0F;
            v16_store(weights + row * WEIGHTS_STRIDE + flash_owner(), x);
        }
        flash_loaded();
        flash_gather<vectors>(sums, b, weights, tile, 0, flash_seen(a, b, first));
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < vectors * 4; i++)
        sums[i] = v16_fma(sums[i], v16_set1(1.0F), v16_set1(0.0F)); /* -0 becomes 0 */
    flash_write<vectors>(b, a.out, sums);
}

/* --- Backward --- */

/* Rounds floats of shared memory to bf16, the operands of products. The block's threads wait for each other before. */
static __device__ void silu_round(float *x, uint32_t count)
{
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < count; i += BLOCK)
        x[i] = float_of_bf16(bf16_of(float_bits(x[i]), 0, true));
}

/* A tile of keys or values; in bf16 rounded: only the gradients by the biases come here with it. */
static __device__ void silu_tile(const attention &a, const flash_block &b, float *tile,
                                 const attention_in &from, uint32_t first, uint32_t count)
{
    flash_load(b, tile, from, b.key_row + first, count, FLOW);
    if (a.precision == ROW_BF16) {
        async_copy_wait<0>();
        silu_round(tile, FLOW * (b.d + PAD));
    }
    flash_loaded();
}

/* The slopes of a tile of keys, in shared memory by key and query, and the tile of k. scale: of the slopes. */
static __device__ void silu_key_slopes(const attention &a, const flash_block &b, const flash_drops &drops,
                                       const silu_tables &tables, uint32_t first, uint32_t count, float scale,
                                       const float *turned_q, const float *turned_dout, float *tile,
                                       float *slopes)
{
    v16 s[FLOW / GROUP], dx[FLOW / GROUP];
    silu_tile(a, b, tile, a.v, first, count);
    flash_scores(dx, b, turned_dout, tile, 1.0F);
    __syncthreads();
    silu_tile(a, b, tile, a.k, first, count);
    flash_scores(s, b, turned_q, tile, 1.0F);
#pragma unroll
    for (uint32_t r = 0; r < FLOW / GROUP; r++) {
        const uint32_t row = flash_lane() + r * GROUP, j = first + row;
        bool visible[4];
        const v16 biases = silu_key(a, b, tables, j, visible);
        silu_slopes(a, drops.limit > 0, silu_factors(drops, dropout_column(drops.key, j)), biases, visible,
                    &s[r], &dx[r]);
        v16_store(slopes + row * WEIGHTS_STRIDE + flash_owner(), v16_mul(dx[r], v16_set1(scale)));
    }
}

/* dq, by queries. */
template <int vectors>
static __global__ void __launch_bounds__(BLOCK) silu_by_queries(attention a, attention_bias bias)
{
    SHARED_DYNAMIC(float, shared);
    const flash_block b = flash_place(a, a.offsets);
    if (b.count == 0)
        return;
    float *turned_q = shared, *turned_dout = turned_q + b.d * OWNERS, *slopes = turned_dout + b.d * OWNERS;
    float *tile = slopes + FLOW * WEIGHTS_STRIDE;
    const flash_drops drops = flash_draw(a, b, false);
    const silu_tables tables = silu_of(a, bias, b, b.row);
    const uint32_t end = a.is_causal ? b.at + b.count : b.keys;
    v16 sums[vectors * 4];
#pragma unroll
    for (int i = 0; i < vectors * 4; i++)
        sums[i] = v16_set1(0.0F);
    flash_turn(b, turned_q, a.q, 1.0F);
    flash_turn(b, turned_dout, a.dout, 1.0F);
    for (uint32_t first = 0; first < end; first += FLOW) {
        silu_key_slopes(a, b, drops, tables, first, min(end - first, (uint32_t)FLOW), a.scale, turned_q,
                        turned_dout, tile, slopes);
        __syncwarp();
        flash_gather<vectors>(sums, b, slopes, tile, 0, flash_seen(a, b, first));
        __syncthreads();
    }
    flash_write<vectors>(b, a.dq, sums);
}

/* dk and dv, by keys. A causal key is seen from its own position on. */
template <int vectors>
static __global__ void __launch_bounds__(BLOCK) silu_by_keys(attention a, attention_bias bias)
{
    SHARED_DYNAMIC(float, shared);
    const flash_block b = flash_place(a, a.offsets);
    if (b.count == 0)
        return;
    float *turned_k = shared, *turned_v = turned_k + b.d * OWNERS, *weights = turned_v + b.d * OWNERS;
    float *slopes = weights + QUERIES * WEIGHTS_STRIDE, *q = slopes + QUERIES * WEIGHTS_STRIDE;
    float *dout = q + QUERIES * (b.d + PAD);
    const flash_drops drops = flash_draw(a, b, true);
    const silu_tables tables = silu_of(a, bias, b, b.key_row);
    v16 dk[vectors * 4], dv[vectors * 4];
#pragma unroll
    for (int i = 0; i < vectors * 4; i++)
        dk[i] = dv[i] = v16_set1(0.0F);
    flash_turn(b, turned_k, a.k, 1.0F);
    flash_turn(b, turned_v, a.v, 1.0F);
    for (uint32_t at = a.is_causal ? b.at : 0; at < b.keys; at += QUERIES) {
        const uint32_t count = min(b.keys - at, (uint32_t)QUERIES);
        v16 s[QUERIES / GROUP], dx[QUERIES / GROUP];
        flash_load(b, q, a.q, b.key_row + at, count, QUERIES);
        flash_load(b, dout, a.dout, b.key_row + at, count, QUERIES);
        flash_loaded();
        flash_scores(s, b, turned_k, q, 1.0F);
        flash_scores(dx, b, turned_v, dout, 1.0F);
#pragma unroll
        for (uint32_t r = 0; r < QUERIES / GROUP; r++) {
            const uint32_t query = flash_lane() + r * GROUP, i = at + query;
            bool visible[4];
            v16 biases;
#pragma unroll
            for (uint32_t o = 0; o < 4; o++) {
                const uint32_t j = b.at + flash_owner() + o;
                visible[o] = query < count && j < b.keys && flash_sees(a, i, j);
                biases.f[o] = silu_bias(tables, i, i, j, visible[o]);
            }
            silu_slopes(a, drops.limit > 0, silu_factors(drops, dropout_row(drops.key, i)), biases, visible,
                        &s[r], &dx[r]);
            v16_store(weights + query * WEIGHTS_STRIDE + flash_owner(), s[r]);
            v16_store(slopes + query * WEIGHTS_STRIDE + flash_owner(), v16_mul(dx[r], v16_set1(a.scale)));
        }
        __syncwarp();
        const uint32_t from = flash_first_query(a, b, at, count);
        flash_gather<vectors>(dv, b, weights, dout, from, count);
        flash_gather<vectors>(dk, b, slopes, q, from, count);
        __syncthreads();
    }
    flash_write<vectors>(b, a.dk, dk);
    flash_write<vectors>(b, a.dv, dv);
}

/* --- The gradients by the biases --- */

/* Threads of a block: one for each distance of a tile, one for each of a CPU's lanes, and two for distances beyond the
 * table's ends. */
enum { DISTANCES = OWNERS + FLOW - 1, LANES_AT = 96, BEYOND_AT = 112 };
static_assert(DISTANCES <= LANES_AT && LANES_AT + 16 <= BEYOND_AT && BEYOND_AT + 2 <= BLOCK,
              "each has a thread");

/* Adds the tile's slopes of one entry of the table of positions, in a CPU's order: by vector of queries, key, query. */
static __device__ void silu_add_distance(const attention &a, const flash_block &b, const silu_tables &t,
                                         uint32_t first, const float *slopes, float *table)
{
    const uint32_t number = threadIdx.x;
    const int64_t nearest =
        (int64_t)b.at - (int64_t)first - (FLOW - 1); /* of the tile's distances the least */
    const bool is_above = nearest + DISTANCES - 1 > t.most, is_below = !a.is_causal && nearest < t.least;
    const bool is_one = t.least == t.most, is_beyond = number >= BEYOND_AT;
    const int64_t entry = !is_beyond ? nearest + (int64_t)number : number == BEYOND_AT ? t.most : t.least;
    if (is_beyond && !(number == BEYOND_AT ? is_above || (is_one && is_below)
                                           : number == BEYOND_AT + 1 && is_below && !is_one))
        return;
    if (!is_beyond &&
        (number >= DISTANCES || entry > t.most || entry < t.least ||
         (entry == t.most && (is_above || (is_one && is_below))) || (entry == t.least && is_below)))
        return; /* an end that has distances beyond it belongs to one of the last two threads */
    float sum = 0.0F;
    bool is_there = false;
    for (uint32_t vector = 0; vector < 2; vector++) {
        const uint32_t seen = flash_vector_seen(a, b, first, vector),
                       end = vector == 0 ? min(b.count, 16U) : b.count;
        for (uint32_t row = 0; row < seen; row++) {
            const int64_t match =
                entry + (int64_t)(first + row) - (int64_t)b.at; /* the query of this distance */
            const bool is_match = !is_beyond && match >= vector * 16 && match < end;
            const uint32_t from = is_beyond ? vector * 16 : is_match ? (uint32_t)match : 0;
            const uint32_t until = is_beyond ? end : is_match ? from + 1 : 0;
            for (uint32_t query = from; query < until; query++) {
                if (!flash_sees(a, b.at + query, first + row) ||
                    silu_distance(t, b.at + query, first + row) != entry)
                    continue;
                sum = (is_there ? sum : table[entry]) + slopes[row * WEIGHTS_STRIDE + query];
                is_there = true;
            }
        }
    }
    if (is_there)
        table[entry] = sum;
}

/* Adds the tile's slopes of queries number `lane` of their vector to the sums by bucket and lane. */
static __device__ void silu_add_times(const attention &a, const flash_block &b, const silu_tables &t,
                                      uint32_t first, const float *slopes, float *time_sums, uint32_t lane)
{
    for (uint32_t query = lane; query < b.count; query += 16) {
        const uint32_t seen = flash_vector_seen(a, b, first, query / 16),
                       seconds = __ldg(t.query_seconds + query);
        for (uint32_t row = 0; row < seen; row++) {
            const uint32_t bucket = attention_time_bucket(seconds, __ldg(t.key_seconds + first + row));
            time_sums[bucket * 16 + lane] += slopes[row * WEIGHTS_STRIDE + query];
        }
    }
}

/* All windows of a part and one head; shared memory as of silu_by_queries, and [ATTENTION_TIME_BUCKETS][16] behind. */
static __device__ void silu_head_tables(const attention &a, const attention_bias &bias, flash_block b,
                                        uint32_t begin, uint32_t end, float *shared, float *positions,
                                        float *time_sums)
{
    float *turned_q = shared, *turned_dout = turned_q + b.d * OWNERS, *slopes = turned_dout + b.d * OWNERS;
    float *tile = slopes + FLOW * WEIGHTS_STRIDE;
    for (b.event = begin; b.event < end; b.event++) {
        b.key_row = a.offsets[b.event], b.keys = a.offsets[b.event + 1] - b.key_row;
        for (b.at = 0; b.at < b.keys; b.at += OWNERS) {
            b.row = b.key_row + b.at, b.count = min(b.keys - b.at, (uint32_t)OWNERS);
            const flash_drops drops = flash_draw(a, b, false);
            const silu_tables tables = silu_of(a, bias, b, b.row);
            const uint32_t last = a.is_causal ? b.at + b.count : b.keys;
            flash_turn(b, turned_q, a.q, 1.0F);
            flash_turn(b, turned_dout, a.dout, 1.0F);
            if (a.precision == ROW_BF16)
                silu_round(turned_q, 2 * b.d * OWNERS);
            for (uint32_t first = 0; first < last; first += FLOW) {
                silu_key_slopes(a, b, drops, tables, first, min(last - first, (uint32_t)FLOW), 1.0F, turned_q,
                                turned_dout, tile, slopes);
                __syncthreads();
                if (threadIdx.x >= LANES_AT && threadIdx.x < LANES_AT + 16) {
                    if (tables.times != nullptr)
                        silu_add_times(a, b, tables, first, slopes, time_sums, threadIdx.x - LANES_AT);
                } else if (tables.positions != nullptr) {
                    silu_add_distance(a, b, tables, first, slopes, positions);
                }
                __syncthreads();
            }
        }
    }
}

/* One thread block a part. */
static __global__ void __launch_bounds__(BLOCK) silu_tables_kernel(batch_attention a, attention_bias bias)
{
    SHARED_DYNAMIC(float, shared);
    const size_t part = blockIdx.x;
    const uint32_t begin = a.parts != nullptr ? a.parts[part] : 0;
    const uint32_t end = a.parts != nullptr ? a.parts[part + 1] : a.of.events;
    float *time_sums = shared + 2 * a.of.d * OWNERS + FLOW * WEIGHTS_STRIDE + FLOW * (a.of.d + PAD);
    flash_block b = {};
    b.d = a.of.d;
    for (b.head = 0; b.head < a.of.heads; b.head++) {
        float *positions = nullptr;
        if (bias.positions != nullptr)
            positions = bias.dpositions + part * a.part_stride + b.head * bias.positions_stride;
        b.column = b.head * b.d;
        for (uint32_t i = threadIdx.x; i < ATTENTION_TIME_BUCKETS * 16; i += BLOCK)
            time_sums[i] = 0.0F;
        __syncthreads();
        silu_head_tables(a.of, bias, b, begin, end, shared, positions, time_sums);
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < ATTENTION_TIME_BUCKETS && bias.times != nullptr; i += BLOCK) {
            float sums[16];
#pragma unroll
            for (uint32_t l = 0; l < 16; l++)
                sums[l] = time_sums[i * 16 + l];
#pragma unroll
            for (uint32_t step = 8; step > 0; step /= 2) /* the tree of v16_sum */
                for (uint32_t l = 0; l < step; l++)
                    sums[l] += sums[l + step];
            bias.dtimes[part * a.part_stride + b.head * bias.times_stride + i] += sums[0];
        }
        __syncthreads();
    }
}

/* --- Launches --- */

template <int vectors>
static void silu_launch(const batch_attention *a, const attention_bias &bias, void *stream)
{
    const size_t d = a->of.d, weights = (size_t)FLOW * WEIGHTS_STRIDE, tile = FLOW * (d + PAD);
    const size_t forward = (d * OWNERS + weights + tile) * sizeof(float);
    const size_t backward = (2 * d * OWNERS + weights + tile) * sizeof(float);
    const unsigned blocks = (a->queries / OWNERS + a->of.events) * a->of.heads;
    const cudaStream_t to = gpu_cuda_stream(stream);
    if (a->of.dout.at == nullptr) {
        if (flash_has_room(silu_forward<vectors>, forward, stream, NAME))
            LAUNCH(silu_forward<vectors>, blocks, BLOCK, forward, to, a->of, bias);
        return;
    }
    if (!flash_has_room(silu_by_queries<vectors>, backward, stream, NAME) ||
        !flash_has_room(silu_by_keys<vectors>, backward, stream, NAME))
        return;
    LAUNCH(silu_by_queries<vectors>, blocks, BLOCK, backward, to, a->of, bias);
    LAUNCH(silu_by_keys<vectors>, blocks, BLOCK, backward, to, a->of, bias);
}

/* The gradients by the biases. */
static void silu_launch_tables(const batch_attention *a, const attention_bias &bias, void *stream)
{
    const size_t d = a->of.d, times = (size_t)ATTENTION_TIME_BUCKETS * 16;
    const size_t floats = 2 * d * OWNERS + (size_t)FLOW * WEIGHTS_STRIDE + FLOW * (d + PAD) + times;
    const unsigned parts = a->parts != nullptr ? a->parts_count : 1;
    if (a->of.dout.at == nullptr || (bias.positions == nullptr && bias.times == nullptr) || parts == 0)
        return;
    if (flash_has_room(silu_tables_kernel, floats * sizeof(float), stream, NAME))
        LAUNCH(silu_tables_kernel, parts, BLOCK, floats * sizeof(float), gpu_cuda_stream(stream), *a, bias);
}

void cuda_attention_silu(batch_attention *a, void *stream)
{
    if (a->scratch == nullptr) {
        a->scratch_bytes = BATCH_SCRATCH_MIN;
        return;
    }
    if (a->queries == 0 || a->of.events == 0 || a->of.heads == 0)
        return;
    const attention_bias none = {}, &bias = a->of.bias != nullptr ? *a->of.bias : none;
    if (a->of.precision == ROW_BF16)
        attention_silu_bf16(a, bias, stream, NAME);
    else if (a->of.d <= 64)
        silu_launch<1>(a, bias, stream);
    else
        silu_launch<2>(a, bias, stream);
    silu_launch_tables(a, bias, stream);
    (void)gpu_launched(stream, NAME);
}
