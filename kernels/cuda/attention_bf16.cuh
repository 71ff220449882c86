/*
 * What the kernels of attention on tensor cores share (attention_bf16.cu, attention_silu_bf16.cu): as attention.cuh, but
 * a thread block has TENSOR_OWNERS rows, and each of its warps sixteen of them, whose rows in bf16 are in registers. The
 * other side's rows flow by in tiles of TENSOR_FLOW, of which sixteen at a time are multiplied.
 *
 *   scores: s[owner][flow]    = sum over d of owners[owner][i] rows[flow][i]
 *   gather: sums[owner][i]   += sum over the tile of w[owner][flow] rows[flow][i]
 *
 * A tile lies in shared memory in words of two bf16, in one or both of two ways: `rows`, a row's neighbouring columns in a
 * word, for scores; `pairs`, a column of two neighbouring rows in a word, for gather. So a lane's part of an operand is one
 * word (mma.cuh), and with the strides below the lanes of a warp read 32 different banks.
 *
 * In a v16 of scores, weights or sums, floats 0 and 1 are of the lane's first owner, 2 and 3 of its second.
 */
#ifndef LEAT_KERNELS_CUDA_ATTENTION_BF16_CUH
#define LEAT_KERNELS_CUDA_ATTENTION_BF16_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/mma.cuh"

/* STEP: rows or columns of one operand of mma_bf16. */
enum { STEP = 16, TENSOR_OWNERS = 64, TENSOR_FLOW = ATTENTION_KEYS };
static_assert(TENSOR_OWNERS == BLOCK / WARP_LANES * STEP, "each warp has sixteen owners");

/* --- The lane's place --- */

struct tensor_lane {
    uint32_t group, place; /* lane / 4, lane % 4 */
    uint32_t first;        /* the warp's first owner; the lane's two are first + group and 8 further on */
};

static __forceinline__ __device__ tensor_lane tensor_here(void)
{
    const uint32_t lane = threadIdx.x % WARP_LANES;
    return {lane / 4, lane % 4, threadIdx.x / WARP_LANES * STEP};
}

/* `x` of the lane's first owner, `y` of its second. */
static __forceinline__ __device__ v16 tensor_owners(float x, float y)
{
    return {{x, x, y, y}};
}

/* `x` of the first of two neighbours in the flow, `y` of the second. */
static __forceinline__ __device__ v16 tensor_flow(float x, float y)
{
    return {{x, y, x, y}};
}

/* --- Tiles --- */

static __forceinline__ __device__ uint32_t tensor_rows_stride(uint32_t d)
{
    return d / 2 + 4;
}

static __forceinline__ __device__ uint32_t tensor_pairs_stride(uint32_t d)
{
    return d + 8;
}

/* Words of a tile. */
static inline __host__ __device__ uint32_t tensor_rows_words(uint32_t d)
{
    return TENSOR_FLOW * (d / 2 + 4);
}

static inline __host__ __device__ uint32_t tensor_pairs_words(uint32_t d)
{
    return TENSOR_FLOW / 2 * (d + 8);
}

static __forceinline__ __device__ uint32_t tensor_round(float low, float high)
{
    return bf16_of(float_bits(low), 0, true) | (uint32_t)bf16_of(float_bits(high), 0, true) << 16;
}

/* Rounds `count` rows of a head's columns into a tile, in the ways that are not NULL; the rows behind them become zeros. */
static inline __device__ void tensor_load(const flash_block &b, uint32_t *rows, uint32_t *pairs,
                                          const attention_in &from, size_t row, uint32_t count)
{
    const uint32_t fours = b.d / 4;
    for (uint32_t i = threadIdx.x; i < TENSOR_FLOW / 2 * fours; i += BLOCK) {
        const uint32_t pair = i / fours, c = (i - pair * fours) * 4, r = pair * 2;
        const float *at = from.at + (row + r) * from.stride + b.column + c;
        const v16 x = r < count ? v16_load(at) : v16_set1(0.0F);
        const v16 y = r + 1 < count ? v16_load(at + from.stride) : v16_set1(0.0F);
        if (rows != nullptr) {
            uint32_t *to = rows + r * tensor_rows_stride(b.d) + c / 2;
            *reinterpret_cast<uint2 *>(to) =
                make_uint2(tensor_round(x.f[0], x.f[1]), tensor_round(x.f[2], x.f[3]));
            *reinterpret_cast<uint2 *>(to + tensor_rows_stride(b.d)) =
                make_uint2(tensor_round(y.f[0], y.f[1]), tensor_round(y.f[2], y.f[3]));
        }
        if (pairs != nullptr)
            *reinterpret_cast<uint4 *>(pairs + pair * tensor_pairs_stride(b.d) + c) =
                make_uint4(tensor_round(x.f[0], y.f[0]), tensor_round(x.f[1], y.f[1]),
                           tensor_round(x.f[2], y.f[2]), tensor_round(x.f[3], y.f[3]));
    }
}

/* The warp's owners of a matrix, operands of scores; owners that are not there are zeros. */
template <int steps>
static inline __device__ void tensor_own(mma_a (&own)[steps], const flash_block &b, const tensor_lane &lane,
                                         const attention_in &from)
{
    const uint32_t owner = lane.first + lane.group;
    const float *at = from.at + (size_t)(b.row + owner) * from.stride + b.column + lane.place * 2;
#pragma unroll
    for (uint32_t s = 0; s < steps; s++) {
#pragma unroll
        for (uint32_t w = 0; w < 4; w++) {
            const bool is_there = s * STEP < b.d && owner + w % 2 * 8 < b.count;
            const float *two = at + w % 2 * 8 * from.stride + s * STEP + w / 2 * 8;
            own[s].words[w] = is_there ? tensor_round(two[0], two[1]) : 0;
        }
    }
}

/* --- Products --- */

/* Sixteen rows of the tile, from `first` on: s[0] is of the first eight of them. */
template <int steps>
static __forceinline__ __device__ void tensor_scores(v16 (&s)[2], const mma_a (&own)[steps], uint32_t d,
                                                     const tensor_lane &lane, const uint32_t *rows,
                                                     uint32_t first)
{
    const uint32_t stride = tensor_rows_stride(d);
    const uint32_t *mine = rows + (first + lane.group) * stride + lane.place;
    s[0] = s[1] = v16_set1(0.0F);
#pragma unroll
    for (uint32_t step = 0; step < steps; step++) {
        if (step * STEP >= d)
            continue;
#pragma unroll
        for (uint32_t n = 0; n < 2; n++) {
            const uint32_t *at = mine + n * 8 * stride + step * 8;
            mma_bf16(s[n], own[step], {{at[0], at[4]}});
        }
    }
}

/* w: the weights of sixteen rows of the tile, from `first` on. sums[i]: columns 8 i + 2 place and the next one. */
template <int steps>
static __forceinline__ __device__ void tensor_gather(v16 (&sums)[2 * steps], const v16 (&w)[2], uint32_t d,
                                                     const tensor_lane &lane, const uint32_t *pairs,
                                                     uint32_t first)
{
    const uint32_t stride = tensor_pairs_stride(d);
    const uint32_t *mine = pairs + (first / 2 + lane.place) * stride + lane.group;
    const mma_a weights = mma_of(w[0], w[1]);
#pragma unroll
    for (uint32_t i = 0; i < 2 * steps; i++) {
        if (i * 8 < d)
            mma_bf16(sums[i], weights, {{mine[i * 8], mine[4 * stride + i * 8]}});
    }
}

template <int steps> static __forceinline__ __device__ void tensor_clear(v16 (&sums)[2 * steps])
{
#pragma unroll
    for (uint32_t i = 0; i < 2 * steps; i++)
        sums[i] = v16_set1(0.0F);
}

/* Writes the sums to the owners' rows. */
template <int steps>
static inline __device__ void tensor_write(const flash_block &b, const tensor_lane &lane,
                                           const attention_out &to, const v16 (&sums)[2 * steps])
{
    const uint32_t owner = lane.first + lane.group;
    float *at = to.at + (size_t)(b.row + owner) * to.stride + b.column + lane.place * 2;
#pragma unroll
    for (uint32_t i = 0; i < 2 * steps; i++) {
        if (i * 8 >= b.d)
            continue;
        if (owner < b.count)
            *reinterpret_cast<float2 *>(at + i * 8) = make_float2(sums[i].f[0], sums[i].f[1]);
        if (owner + 8 < b.count)
            *reinterpret_cast<float2 *>(at + 8 * to.stride + i * 8) = make_float2(sums[i].f[2], sums[i].f[3]);
    }
}

/* --- Weights --- */

/* Dropout's half of the hash of the lane's owners, in the places of a v16. */
static inline __device__ flash_drops tensor_draw(const attention &a, const flash_block &b,
                                                 const tensor_lane &lane, bool are_keys)
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
        const uint32_t position = b.at + lane.first + lane.group + o / 2 * 8;
        drops.owners[o] = are_keys ? dropout_column(drops.key, position) : dropout_row(drops.key, position);
    }
    return drops;
}

/* Factors of the weights of two neighbours in the flow, the first at `position`. are_keys: as of tensor_draw. */
static __forceinline__ __device__ v16 tensor_factors(const flash_drops &drops, uint32_t position,
                                                     bool are_keys)
{
    uint32_t others[2];
    v16 factors;
#pragma unroll
    for (uint32_t o = 0; o < 2; o++)
        others[o] = are_keys ? dropout_row(drops.key, position + o) : dropout_column(drops.key, position + o);
#pragma unroll
    for (uint32_t o = 0; o < 4; o++)
        factors.f[o] = dropout_bits(drops.owners[o], others[o % 2]) >= drops.limit ? drops.kept : 0.0F;
    return factors;
}

/* Whether the pair of float o of a v16 is one of query and key that the query sees; the flow's pair begins at `position`.
 * are_keys: the owners are keys. */
static __forceinline__ __device__ bool tensor_sees(const attention &a, const flash_block &b,
                                                   const tensor_lane &lane, uint32_t position, uint32_t o,
                                                   bool are_keys)
{
    const uint32_t owner = b.at + lane.first + lane.group + o / 2 * 8, other = position + o % 2;
    return other < b.keys && flash_sees(a, are_keys ? other : owner, are_keys ? owner : other);
}

/* Positions of the flow from 0 up to the end that a warp's queries see; 0: the warp has no queries. */
static inline __device__ uint32_t tensor_end(const attention &a, const flash_block &b,
                                             const tensor_lane &lane)
{
    if (lane.first >= b.count)
        return 0;
    return a.is_causal ? min(b.at + lane.first + STEP, b.at + b.count) : b.keys;
}

/* Thread blocks of a launch for so many owners. */
static inline unsigned tensor_blocks(const batch_attention *a)
{
    return (a->queries / TENSOR_OWNERS + a->of.events) * a->of.heads;
}

/* attention_softmax in bf16, once scratch memory and sizes have been looked at. */
void attention_softmax_bf16(const batch_attention *a, void *stream, const char *name);

#endif
