/*
 * dot_interaction of batch_train.h: products of all pairs of an event's vectors, and the backward pass.
 * Memory traffic is each vector once in each direction; 27 fields of 128 dims give four operations a byte, so
 * arithmetic and shared memory are limits, too.
 *
 *   naive          one thread per pair: each vector is read by all its partners        not measured
 *   shared memory  the vectors of some whole events are copied into shared memory      not measured
 *                  (interaction.cuh), rows an odd stride apart: read once
 *   quads          four threads per tile of four by four pairs, each with four of      not measured
 *                  the sixteen partial sums: eight loads of 16 bytes for 64 operations
 *                  of four; the order is that of `dot`. Then the threads exchange sums so
 *                  that each gets four products: 48 shuffles instead of 128
 *   results        go through shared memory and are written in runs                    not measured
 *   gradients      one thread per four dims of four fields: for each other field it    not measured
 *                  loads four dims and four gradients, from a symmetric matrix of gradients
 *
 * Events that do not fit into shared memory are read from global memory, through the L1 cache.
 */
#include "kernels/cuda/interaction.cuh"
#include "kernels/cuda/parts.cuh"

enum { QUADS = INTERACTION_THREADS / 4, DOT_SHARED = INTERACTION_SHARED_MOST };

/* The argument of the kernel. of: the argument that fm and ffm have, too; here all tiles are whole events. */
struct dot_call {
    interaction of;
    float *out; /* or NULL */
    const float *out_gradients;
    uint32_t out_stride, out_gradients_stride;
    uint32_t copied, pairs; /* floats of a row of out: copied, and products */
    uint32_t round, matrix; /* floats of a row of a bag's matrix in shared memory, and of the whole matrix */
};

static inline __host__ __device__ uint32_t dot_row(uint32_t i)
{
    return i * (i - 1) / 2;
}

static __device__ float4 dot_fma(float4 a, float4 b, float4 c)
{
    return make_float4(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z), fmaf(a.w, b.w, c.w));
}

/* The vector of a field: in shared memory if is_shared, else in global memory. */
template <bool is_shared>
static __device__ const float4 *dot_vector(const dot_call &a, const interaction_tile &t, const float4 *tile,
                                           uint32_t bag, uint32_t field)
{
    if (is_shared)
        return tile + bag * a.of.bag_stride + field * a.of.row_stride;
    return a.of.vectors + (size_t)(t.bag + bag) * a.of.vectors_stride + field * a.of.slices;
}

/* Exchanges sums with the thread `lanes` apart: returns `mine` plus that thread's `other`. */
static __device__ float4 dot_trade(float4 mine, float4 other, int lanes)
{
    return make_float4(mine.x + __shfl_xor_sync(WARP_ALL, other.x, lanes),
                       mine.y + __shfl_xor_sync(WARP_ALL, other.y, lanes),
                       mine.z + __shfl_xor_sync(WARP_ALL, other.z, lanes),
                       mine.w + __shfl_xor_sync(WARP_ALL, other.w, lanes));
}

/* v16_sum's tree (lanes 8 apart, 4 apart, 2, 1) for sixteen sums over four threads: thread q gets the
 * products of row q. */
static __device__ void dot_tree(const float4 (&sums)[4][4], uint32_t q, float (&products)[4])
{
    const bool is_upper = (q & 2) != 0, is_odd = (q & 1) != 0;
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) {
        const float4 even =
            dot_trade(is_upper ? sums[2][k] : sums[0][k], is_upper ? sums[0][k] : sums[2][k], 2);
        const float4 odd =
            dot_trade(is_upper ? sums[3][k] : sums[1][k], is_upper ? sums[1][k] : sums[3][k], 2);
        const float4 four = dot_trade(is_odd ? odd : even, is_odd ? even : odd, 1);
        products[k] = (four.x + four.z) + (four.y + four.w);
    }
}

/* The products of fields i .. i + 3 with j .. j + 3 of a bag, by four threads, into the bag's matrix. */
template <bool is_shared>
static __device__ void dot_tile(const dot_call &a, const interaction_tile &t, const float4 *tile,
                                float *matrix, uint32_t bag, uint32_t i, uint32_t j, bool is_there)
{
    const uint32_t q = threadIdx.x % 4, last = a.of.fields - 1;
    const float4 zero = make_float4(0.0F, 0.0F, 0.0F, 0.0F), *x[4], *y[4];
    float4 sums[4][4];
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) {
        x[k] = dot_vector<is_shared>(a, t, tile, bag, min(i + k, last));
        y[k] = dot_vector<is_shared>(a, t, tile, bag, min(j + k, last));
#pragma unroll
        for (uint32_t r = 0; r < 4; r++)
            sums[r][k] = zero;
    }
    for (uint32_t slice = q; slice < (a.of.slices + 3) / 4 * 4; slice += 4) {
        float4 of_x[4], of_y[4];
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) {
            of_x[k] = slice < a.of.slices ? x[k][slice] : zero;
            of_y[k] = slice < a.of.slices ? y[k][slice] : zero;
        }
#pragma unroll
        for (uint32_t r = 0; r < 4; r++) {
#pragma unroll
            for (uint32_t k = 0; k < 4; k++)
                sums[r][k] = dot_fma(of_x[r], of_y[k], sums[r][k]);
        }
    }
    float products[4];
    dot_tree(sums, q, products);
    const uint32_t row = i + q;
    for (uint32_t k = 0; k < 4 && is_there && row <= last && j + k < row; k++)
        matrix[bag * a.matrix + dot_row(row) + j + k] = products[k];
}

/* All products of the tile's bags, four by four pairs for each quad of threads; quads without pairs compute
 * the last ones again, without writing them. */
template <bool is_shared>
static __device__ void dot_products(const dot_call &a, const interaction_tile &t, const float4 *tile,
                                    float *matrix)
{
    const uint32_t blocks = (a.of.fields + 3) / 4, tiles = blocks * (blocks + 1) / 2, units = t.bags * tiles;
    const uint32_t quad = threadIdx.x / 4, in_warp = threadIdx.x % WARP_LANES / 4;
    for (uint32_t u = quad; u - in_warp < units; u += QUADS) {
        const uint32_t one = min(u, units - 1), bag = one / tiles;
        uint32_t column = one - bag * tiles, row = 0;
        while (column > row)
            column -= ++row;
        dot_tile<is_shared>(a, t, tile, matrix, bag, row * 4, column * 4, u < units);
    }
}

template <bool is_shared>
static __device__ void dot_write(const dot_call &a, const interaction_tile &t, const float4 *tile,
                                 const float *matrix)
{
    const uint32_t width = a.copied + a.pairs;
    for (uint32_t i = threadIdx.x; i < t.bags * width; i += INTERACTION_THREADS) {
        const uint32_t bag = i / width, c = i - bag * width;
        const float *first = reinterpret_cast<const float *>(dot_vector<is_shared>(a, t, tile, bag, 0));
        a.out[(size_t)(t.bag + bag) * a.out_stride + c] =
            c < a.copied ? first[c] : matrix[bag * a.matrix + c - a.copied];
    }
}

/* Expands the gradients of a tile's products to symmetric matrices, one warp per row. The diagonals are not
 * set. */
static __device__ void dot_gradients(const dot_call &a, const interaction_tile &t, float *matrix)
{
    for (uint32_t r = threadIdx.x / WARP_LANES; r < t.bags * a.of.fields;
         r += INTERACTION_THREADS / WARP_LANES) {
        const uint32_t bag = r / a.of.fields, i = r - bag * a.of.fields;
        const float *out_gradients =
            a.out_gradients + (size_t)(t.bag + bag) * a.out_gradients_stride + a.copied + dot_row(i);
        float *to = matrix + bag * a.matrix;
        for (uint32_t j = threadIdx.x % WARP_LANES; j < i; j += WARP_LANES)
            to[i * a.round + j] = to[j * a.round + i] = out_gradients[j];
    }
}

/* Four dims, `slice`, of the gradients of the fields i .. i + 3 of a bag. */
template <bool is_shared>
static __device__ void dot_pull(const dot_call &a, const interaction_tile &t, const float4 *tile,
                                const float *matrix, uint32_t bag, uint32_t i, uint32_t slice)
{
    const float *out_gradients = a.out_gradients + (size_t)(t.bag + bag) * a.out_gradients_stride;
    float4 sums[4];
#pragma unroll
    for (uint32_t r = 0; r < 4; r++)
        sums[r] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    if (i == 0 && a.copied > 0)
        sums[0] = reinterpret_cast<const float4 *>(out_gradients)[slice];
    for (uint32_t j = 0; j < a.of.fields; j++) {
        const float4 v = dot_vector<is_shared>(a, t, tile, bag, j)[slice];
        const float4 four = *reinterpret_cast<const float4 *>(matrix + bag * a.matrix + j * a.round + i);
        const float of[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (uint32_t r = 0; r < 4; r++) {
            if (i + r != j)
                sums[r] = dot_fma(make_float4(of[r], of[r], of[r], of[r]), v, sums[r]);
        }
    }
#pragma unroll
    for (uint32_t r = 0; r < 4; r++) {
        if (i + r < a.of.fields)
            interaction_put(a.of, t, {bag, i + r, slice}, sums[r]);
    }
}

template <bool is_shared> static __global__ void __launch_bounds__(INTERACTION_THREADS) dot_kernel(dot_call a)
{
    SHARED_DYNAMIC(float4, tile);
    float *matrix = reinterpret_cast<float *>(tile + (is_shared ? a.of.tile_bags * a.of.bag_stride : 0));
    const interaction_tile t = interaction_tile_at(a.of, 0);
    if (is_shared)
        interaction_load(a.of, t, tile);
    if (a.out != NULL) {
        dot_products<is_shared>(a, t, tile, matrix);
        __syncthreads();
        dot_write<is_shared>(a, t, tile, matrix);
        __syncthreads(); /* gradients overwrite the products */
    }
    if (a.of.grads == NULL)
        return;
    dot_gradients(a, t, matrix);
    __syncthreads();
    const uint32_t blocks = (a.of.fields + 3) / 4, each = blocks * a.of.slices;
    for (uint32_t u = threadIdx.x; u < t.bags * each; u += INTERACTION_THREADS) {
        const uint32_t bag = u / each, rest = u - bag * each, block = rest / a.of.slices;
        dot_pull<is_shared>(a, t, tile, matrix, bag, block * 4, rest - block * a.of.slices);
    }
}

/* Sets the tile sizes: whole bags. Returns the bytes of shared memory of a block; if more than DOT_SHARED,
 * the vectors do not fit. */
static size_t dot_plan(dot_call *call, uint32_t multiprocessors)
{
    interaction *a = &call->of;
    a->tile_slices = a->slices;
    a->row_stride = a->slices | 1;
    a->bag_stride = a->fields * a->row_stride;
    call->round = FFM_ROUND(a->fields);
    call->matrix = a->fields * call->round;
    const size_t each = 16 * (size_t)a->bag_stride + sizeof(float) * call->matrix;
    size_t bags = a->bags / (INTERACTION_WAVES * (size_t)multiprocessors);
    if (bags > INTERACTION_SHARED / each)
        bags = INTERACTION_SHARED / each;
    a->tile_bags = bags < 1 ? 1 : (uint32_t)bags;
    return a->tile_bags * each;
}

static dot_call dot_call_of(const batch_dot_interaction *batch)
{
    dot_call call = {};
    const uint32_t row = batch->fields * batch->d;
    call.of.vectors = reinterpret_cast<const float4 *>(batch->vectors);
    call.of.grads = reinterpret_cast<float4 *>(batch->grads);
    call.of.bags = batch->n;
    call.of.fields = batch->fields;
    call.of.slices = batch->d / 4;
    call.of.width = 1;
    call.of.vectors_stride = (batch->stride > 0 ? batch->stride : row) / 4;
    call.of.grads_stride = (batch->grads_stride > 0 ? batch->grads_stride : row) / 4;
    call.of.adds = batch->adds;
    call.out = batch->out;
    call.out_gradients = batch->out_gradients;
    call.copied = batch->copies_first ? batch->d : 0;
    call.pairs = dot_row(batch->fields);
    call.out_stride = batch->out_stride > 0 ? batch->out_stride : call.copied + call.pairs;
    call.out_gradients_stride =
        batch->out_gradients_stride > 0 ? batch->out_gradients_stride : call.copied + call.pairs;
    return call;
}

template <bool is_shared> static void dot_launch(const dot_call &call, size_t bytes, void *stream)
{
    gpu *gpu = static_cast<gpu_stream *>(stream)->gpu;
    const cudaStream_t to = gpu_cuda_stream(stream);
    if (bytes > INTERACTION_SHARED &&
        !gpu_note(gpu,
                  cudaFuncSetAttribute(dot_kernel<is_shared>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       INTERACTION_SHARED_MOST),
                  "dot_interaction"))
        return;
    LAUNCH(dot_kernel<is_shared>, cuda_blocks(call.of.bags, call.of.tile_bags), INTERACTION_THREADS, bytes,
           to, call);
    (void)gpu_launched(stream, "dot_interaction");
}

void cuda_dot_interaction(batch_dot_interaction *a, void *stream)
{
    if (a->n == 0 || (a->out == NULL && a->grads == NULL))
        return;
    dot_call call = dot_call_of(a);
    const size_t bytes = dot_plan(&call, (uint32_t)gpu_multiprocessors(stream));
    if (bytes <= DOT_SHARED)
        dot_launch<true>(call, bytes, stream);
    else
        dot_launch<false>(call, sizeof(float) * call.matrix, stream);
}
