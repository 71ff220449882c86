/*
 * What the kernels of attention share (attention.cu, attention_silu.cu). A thread block has OWNERS rows of a window and
 * head, which own what it writes: the queries of out and of dq, the keys of dk and dv. The other side's rows flow by in
 * tiles. Each thread has four owners; half a warp has all weights of its four owners.
 *
 *   scores: w[flow][owner]     = sum over d of rows[flow][i] turned[i][owner]
 *   gather: sums[i][owner]    += sum over the tile of rows[flow][i] w[flow][owner]
 */
#ifndef LEAT_KERNELS_CUDA_ATTENTION_CUH
#define LEAT_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/matrix.cuh"

#include "kernels/attention_math.inc.h"
#include "kernels/batch.h"
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
 * Window e has the slots from starts[e] / owners + e on, which is at least one for each `owners` rows begun. So a slot's
 * window is found in `starts`, and the host needs to know how many rows there are, but not how long windows are.
 */
template <uint32_t owners = OWNERS>
static inline __device__ flash_block flash_place(const attention &a, const uint32_t *starts)
{
    flash_block b = {};
    const uint32_t slot = blockIdx.x / a.heads;
    uint32_t low = 0, high = a.events;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (__ldg(starts + middle) / owners + middle <= slot)
            low = middle;
        else
            high = middle;
    }
    const uint32_t begin = starts[low], all = starts[low + 1] - begin;
    const uint32_t first = (slot - (begin / owners + low)) * owners;
    b.event = low, b.head = blockIdx.x % a.heads;
    b.key_row = a.offsets[low], b.keys = a.offsets[low + 1] - b.key_row;
    b.at = b.keys - all + first, b.row = begin + first;
    b.count = first < all ? min(all - first, owners) : 0;
    b.d = a.d, b.column = b.head * a.d;
    return b;
}

/* Four owners of this thread: the first one's number in the block. */
static __forceinline__ __device__ uint32_t flash_owner(void)
{
    return threadIdx.x / GROUP * 4;
}

static __forceinline__ __device__ uint32_t flash_lane(void)
{
    return threadIdx.x % GROUP;
}

/* --- Tiles --- */

/* Copies `count` rows of a head's columns into a tile of `room` rows; the others become zeros. Wait with
 * flash_loaded. */
static inline __device__ void flash_load(const flash_block &b, float *tile, const attention_in &from,
                                         size_t row, uint32_t count, uint32_t room)
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

static inline __device__ void flash_loaded(void)
{
    async_copy_wait<0>();
    __syncthreads();
}

/* turned[i][owner] = scale * the owner's row; owners that are not there are zeros. */
static inline __device__ void flash_turn(const flash_block &b, float *turned, const attention_in &from,
                                         float scale)
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
static __forceinline__ __device__ void flash_scores(v16 (&s)[rows], const flash_block &b, const float *turned,
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
static __forceinline__ __device__ void flash_gather(v16 (&sums)[vectors * 4], const flash_block &b,
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
static inline __device__ void flash_write(const flash_block &b, const attention_out &to,
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

static inline __device__ flash_drops flash_draw(const attention &a, const flash_block &b, bool are_keys)
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
static __forceinline__ __device__ v16 flash_factors(const flash_drops &drops, uint32_t other)
{
    v16 factors;
#pragma unroll
    for (int o = 0; o < 4; o++)
        factors.f[o] = dropout_bits(drops.owners[o], other) >= drops.limit ? drops.kept : 0.0F;
    return factors;
}

/* Whether the query at position i sees the key at position j. */
static __forceinline__ __device__ bool flash_sees(const attention &a, uint32_t i, uint32_t j)
{
    return !a.is_causal || j <= i;
}

/* Keys of the tile at `first` that a vector of sixteen queries, 0 or 1, takes part in, as in att_tile of a CPU: keys
 * that no query of it sees are left out, the others masked. */
static inline __device__ uint32_t flash_vector_seen(const attention &a, const flash_block &b, uint32_t first,
                                                    uint32_t vector)
{
    const uint32_t vector_end = vector == 0 ? min(b.count, 16U) : b.count;
    const uint32_t end = a.is_causal ? b.at + vector_end : b.keys;
    return end <= first ? 0 : min(end - first, (uint32_t)FLOW);
}

/* Likewise of this thread's queries. */
static inline __device__ uint32_t flash_seen(const attention &a, const flash_block &b, uint32_t first)
{
    return flash_vector_seen(a, b, first, flash_owner() / 16);
}

/* Weights of the key at position j, 0 where a query does not see it. */
static __forceinline__ __device__ v16 flash_mask(const attention &a, const flash_block &b, v16 p, uint32_t j)
{
#pragma unroll
    for (uint32_t o = 0; o < 4; o++)
        p.f[o] = flash_sees(a, b.at + flash_owner() + o, j) ? p.f[o] : 0.0F;
    return p;
}

/* The pass by keys: the first query of a tile at position `at` that takes part in the sums of this thread's keys. Keys that
 * none of the first sixteen queries sees begin with the others, as on a CPU. */
static inline __device__ uint32_t flash_first_query(const attention &a, const flash_block &b, uint32_t at,
                                                    uint32_t count)
{
    return a.is_causal && count > 16 && b.at + flash_owner() >= at + 16 ? 16 : 0;
}

/* --- Launches --- */

/* Lets a kernel have `bytes` of shared memory; false: the device has failed. */
template <typename function>
static bool flash_has_room(function *kernel, size_t bytes, void *stream, const char *name)
{
    gpu *of = static_cast<gpu_stream *>(stream)->gpu;
    gpu_use(of);
    return bytes <= (48 << 10) ||
           gpu_note(of,
                    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_MOST),
                    name);
}

#endif
