/*
 * fm of a batch: each bag's logit, and its gradient by each vector (batch.h). The limit is memory bandwidth:
 * every vector is read once, every gradient written once, with three operations per float.
 *
 * Ladder (not measured):
 * 1. One warp per bag, vectors read twice, for the sum and for the gradients: half more traffic than is
 *    necessary once the batch does not fit in L2.
 * 2. Vectors stay in shared memory between the two uses: read once.
 * 3. A tile of several bags per block, copied as one run by 16-byte asynchronous copies: full sectors for any
 *    d, the whole tile in flight at once, no registers held. Then each thread sums one slice of four dims of
 *    a bag over its fields in order, the scalar order; slices are added in order.
 * 4. Bags an odd stride apart in shared memory: otherwise, with d = 4 and 64 fields, all eight threads of a
 *    phase would read one bank. The chain of sums, n adds and n fmas, is hidden by the other blocks of the
 *    multiprocessor (at least four).
 */
#include "kernels/cuda/interaction.cuh"
#include "kernels/cuda/parts.cuh"

/* One slice of a bag, in the order of fm_forward: writes the sum of its fields' vectors to *sum; returns the
 * sum of the pairs' products. */
static __device__ float fm_slice(const float4 *tile, uint32_t fields, uint32_t stride, float4 *sum)
{
    float4 s = make_float4(0.0F, 0.0F, 0.0F, 0.0F), squares = s;
#pragma unroll 4
    for (uint32_t f = 0; f < fields; f++) {
        float4 v = tile[f * stride];
        s = make_float4(s.x + v.x, s.y + v.y, s.z + v.z, s.w + v.w);
        squares = make_float4(fmaf(v.x, v.x, squares.x), fmaf(v.y, v.y, squares.y), fmaf(v.z, v.z, squares.z),
                              fmaf(v.w, v.w, squares.w));
    }
    *sum = s;
    float x = (s.x * s.x - squares.x) * 0.5F, y = (s.y * s.y - squares.y) * 0.5F;
    float z = (s.z * s.z - squares.z) * 0.5F, w = (s.w * s.w - squares.w) * 0.5F;
    return (x + z) + (y + w);
}

static __device__ void fm_grads(const interaction &a, const interaction_tile &t, const float4 *tile,
                                const float4 *sums)
{
    for (uint32_t i = threadIdx.x; i < t.count; i += INTERACTION_THREADS) {
        interaction_place p = interaction_place_of(a, t, i);
        float4 v = tile[interaction_shared(a, p)], s = sums[p.bag * t.slices + p.column];
        float4 left = make_float4(s.x - v.x, s.y - v.y, s.z - v.z, s.w - v.w);
        interaction_put(a, t, p, interaction_scale(__ldg(a.logit_gradients + t.bag + p.bag), left));
    }
}

static __global__ void __launch_bounds__(INTERACTION_THREADS) fm_kernel(interaction a)
{
    SHARED_DYNAMIC(float4, tile);
    float4 *sums = tile + a.tile_bags * a.bag_stride; /* [bags][slices]; then products with the same shape */
    float *products = reinterpret_cast<float *>(sums + a.tile_bags * a.tile_slices);
    float total = 0.0F; /* the logit of bag threadIdx.x */
    for (uint32_t slice = 0; slice < a.slices; slice += a.tile_slices) {
        interaction_tile t = interaction_tile_at(a, slice);
        interaction_load(a, t, tile);
        for (uint32_t i = threadIdx.x; i < t.bags * t.slices; i += INTERACTION_THREADS) {
            uint32_t bag = i / t.slices, column = i - bag * t.slices;
            products[i] = fm_slice(tile + bag * a.bag_stride + column, a.fields, a.row_stride, &sums[i]);
        }
        __syncthreads();
        if (threadIdx.x < t.bags) {
            for (uint32_t s = 0; s < t.slices; s++)
                total += products[threadIdx.x * t.slices + s];
        }
        if (a.grads != NULL)
            fm_grads(a, t, tile, sums);
        __syncthreads(); /* the next slices overwrite the tile */
    }
    interaction_put_logit(a, total);
}

void cuda_fm(batch_interaction *a, void *stream)
{
    interaction_launch launch =
        interaction_prepare(fm_kernel, a, 1, 0, sizeof(float4) + sizeof(float), stream, "fm");
    if (launch.blocks == 0)
        return;
    LAUNCH(fm_kernel, launch.blocks, INTERACTION_THREADS, launch.shared_bytes, gpu_cuda_stream(stream),
           launch.a);
    gpu_launched(stream, "fm");
}
