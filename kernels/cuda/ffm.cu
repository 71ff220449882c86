/*
 * ffm of a batch: each bag's logit and its gradient (batch.h). The gradient of a bag is its vectors with
 * fields and partners exchanged (for each slice of four dims, the transpose of a matrix whose elements are
 * blocks of four floats), times the bag's gradient; the logit is the sum of products of the matrix and its
 * transpose. The limit is memory bandwidth: each byte is read once and written once.
 *
 * Ladder (not measured):
 * 1. One thread per pair of fields: accesses of 16 bytes, half a sector, and partners are read twice.
 * 2. Slices are copied to shared memory: global memory is read and written in rows (640 bytes for 39 fields),
 *    each byte once. A slice of 64 fields is 65 KiB, so three fit on a multiprocessor. The slices of large
 *    bags are processed one after another; of small bags a block takes several, so that it has enough work.
 * 3. Rows an odd stride apart: eight threads that read a column have no bank conflict.
 * 4. The sum must have the scalar order: a chain through all pairs of fields for each of a slice's sixteen
 *    lanes. Four threads compute a slice, four lanes each: their four chains fill the pipeline, and loads are
 *    16 bytes wide. Other warps write gradients meanwhile, and other blocks load.
 */
#include "kernels/cuda/interaction.cuh"
#include "kernels/cuda/parts.cuh"

enum { QUADS = INTERACTION_THREADS / 4 };

static __device__ float4 ffm_fma(float4 a, float4 b, float4 c)
{
    return make_float4(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z), fmaf(a.w, b.w, c.w));
}

/* The block of field f for partner g; zeros if not is_there. unit: one bag's slice. */
static __device__ float4 ffm_block(const float4 *unit, uint32_t stride, uint32_t f, uint32_t g, bool is_there)
{
    return is_there ? unit[f * stride + g] : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
}

/*
 * The sum over all pairs of one bag's slice, by four threads; thread j has the sixteen lanes' 4 j .. 4 j + 3,
 * which belong to partner g + j. The order is that of ffm_slice of fm.inc.h: tiles of four by four fields, in
 * a tile row by row. Thread j = 0 gets the sum.
 */
static __device__ float ffm_unit(const float4 *unit, uint32_t stride, uint32_t n, uint32_t j)
{
    float4 pairs = make_float4(0.0F, 0.0F, 0.0F, 0.0F), twice = pairs;
    for (uint32_t f = 0; f < n; f += 4) {
        for (uint32_t k = f; k < f + 4 && k < n; k++) {
            float4 partner = ffm_block(unit, stride, f + j, k, f + j < n && f + j != k);
            twice = ffm_fma(unit[k * stride + f + j], partner, twice);
        }
#pragma unroll 2
        for (uint32_t g = f + 4; g < n; g += 4) {
#pragma unroll
            for (uint32_t k = 0; k < 4; k++) {
                float4 partner = ffm_block(unit, stride, g + j, f + k, g + j < n);
                pairs = ffm_fma(unit[(f + k) * stride + g + j], partner, pairs);
            }
        }
    }
    float4 v = ffm_fma(twice, make_float4(0.5F, 0.5F, 0.5F, 0.5F), pairs);
    for (int lanes = 2; lanes > 0; lanes /= 2) { /* v16_sum's tree: lanes 8 apart, 4 apart; then 2, then 1 */
        v.x += __shfl_xor_sync(WARP_ALL, v.x, lanes);
        v.y += __shfl_xor_sync(WARP_ALL, v.y, lanes);
        v.z += __shfl_xor_sync(WARP_ALL, v.z, lanes);
        v.w += __shfl_xor_sync(WARP_ALL, v.w, lanes);
    }
    return (v.x + v.z) + (v.y + v.w);
}

/* Writes sums[bag][slice] of the tile; a warp computes eight sums at a time. Threads without a slice of their
 * own compute the last one again, as the whole warp must take part in shuffles. */
static __device__ void ffm_sums(const interaction &a, const interaction_tile &t, const float4 *tile,
                                float *sums)
{
    uint32_t units = t.bags * t.slices, quad = threadIdx.x / 4, in_warp = threadIdx.x % WARP_LANES / 4;
    for (uint32_t u = quad; u - in_warp < units; u += QUADS) {
        uint32_t one = min(u, units - 1), bag = one / t.slices, slice = one - bag * t.slices;
        const float4 *unit = tile + bag * a.bag_stride + slice * a.width;
        float sum = ffm_unit(unit, a.row_stride, a.fields, threadIdx.x % 4);
        if (u < units && threadIdx.x % 4 == 0)
            sums[u] = sum;
    }
}

/* Writes the tile's gradients, by the threads from `first` on. */
static __device__ void ffm_grads(const interaction &a, const interaction_tile &t, const float4 *tile,
                                 uint32_t first)
{
    interaction_divider by_slice = interaction_divide_by(a.width);
    for (uint32_t i = threadIdx.x - first; i < t.count; i += INTERACTION_THREADS - first) {
        interaction_place p = interaction_place_of(a, t, i);
        uint32_t slice = interaction_divide(p.column, by_slice), partner = p.column - slice * a.width;
        const float4 *unit = tile + p.bag * a.bag_stride + slice * a.width;
        float4 block =
            ffm_block(unit, a.row_stride, partner, p.field, partner < a.fields && partner != p.field);
        interaction_put(a, t, p, interaction_scale(__ldg(a.logit_gradients + t.bag + p.bag), block));
    }
}

static __global__ void __launch_bounds__(INTERACTION_THREADS) ffm_kernel(interaction a)
{
    SHARED_DYNAMIC(float4, tile);
    float *sums = reinterpret_cast<float *>(tile + a.tile_bags * a.bag_stride);
    float total = 0.0F; /* the logit of bag threadIdx.x */
    for (uint32_t slice = 0; slice < a.slices; slice += a.tile_slices) {
        interaction_tile t = interaction_tile_at(a, slice);
        interaction_load(a, t, tile);
        /* Warps without sums start with the gradients at once, and do them alone if they are at least half of
         * the block. */
        uint32_t summing = a.logits != NULL ? (t.bags * t.slices + 7) / 8 * WARP_LANES : 0;
        uint32_t first = summing <= INTERACTION_THREADS / 2 ? summing : 0;
        if (a.logits != NULL)
            ffm_sums(a, t, tile, sums);
        if (a.grads != NULL && threadIdx.x >= first)
            ffm_grads(a, t, tile, first);
        __syncthreads(); /* the next slices overwrite the tile */
        if (a.logits != NULL && threadIdx.x < t.bags) {
            for (uint32_t s = 0; s < t.slices; s++)
                total += sums[threadIdx.x * t.slices + s];
        }
    }
    interaction_put_logit(a, total);
}

void cuda_ffm(batch_interaction *a, void *stream)
{
    interaction_launch launch =
        interaction_prepare(ffm_kernel, a, FFM_ROUND(a->fields), 1, sizeof(float), stream, "ffm");
    if (launch.blocks == 0)
        return;
    LAUNCH(ffm_kernel, launch.blocks, INTERACTION_THREADS, launch.shared_bytes, gpu_cuda_stream(stream),
           launch.a);
    gpu_launched(stream, "ffm");
}
