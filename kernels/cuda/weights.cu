/*
 * weights_read, weights_forward and weights_update of batch_train.h: one weight a row.
 *
 *   naive          a place's weight is read through its row for each event, and a      not measured
 *                  thread sums the places of an event or an index one by one
 *   read once      each row is read once per index; events gather from the             not measured
 *                  contiguous array of weights, which is small enough for the L2 cache
 *   in flight      a thread for each event or index, with eight places in flight;      not measured
 *                  the data of neighbouring threads is contiguous
 *   together       indices with more than 32 places are summed by the whole warp,      not measured
 *                  long segments by chunks first (segments.cuh)
 *   state first    weight and state of a row are loaded before the sum is computed     not measured
 *
 * The limit is memory bandwidth, and memory latency for small batches: rows lie at random addresses, a sector
 * of 32 bytes each, read and written once.
 */
#define KERNELS_LANES_CUDA
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/parts.cuh"
#include "kernels/cuda/segments.cuh"
#include "kernels/lanes.h"

#include "kernels/optimizer_step.inc.h"

enum { BLOCK = 128, PLACES_AT_ONCE = 8 };

/* Where the weight of index u lies; NULL: u has no row. */
static __device__ __forceinline__ void *weight_place(const batch_weights &of, size_t u)
{
    unsigned char *row = (unsigned char *)of.rows[u];
    return row != nullptr ? row + of.at : nullptr;
}

static __global__ void __launch_bounds__(BLOCK) read_kernel(batch_weights_read a)
{
    const size_t u = cuda_thread();
    if (u >= *a.count)
        return;
    const void *place = weight_place(a.of, u);
    float w = 0.0F;
    if (place != nullptr && a.of.is_double) {
        const double *pair = (const double *)place;
        w = (float)ftrl64_weight(d8_set1(pair[0]), d8_set1(pair[1]), &a.of.ftrl).f;
    } else if (place != nullptr) {
        w = *(const float *)place;
    }
    a.out[u] = w;
}

void cuda_weights_read(batch_weights_read *a, void *stream)
{
    if (a->n == 0)
        return;
    LAUNCH(read_kernel, cuda_blocks(a->n, BLOCK), BLOCK, 0, gpu_cuda_stream(stream), *a);
    (void)gpu_launched(stream, "weights_read");
}

/* --- Forward --- */

/* Returns sum + scale * the weights of `count` places: place `first` and on, `step` apart. */
static __device__ __forceinline__ float forward_places(const batch_weights_forward &a, size_t first,
                                                       uint32_t count, size_t step, float scale, float sum)
{
    for (uint32_t from = 0; from < count; from += PLACES_AT_ONCE) {
        float weights[PLACES_AT_ONCE];
        uint32_t indices[PLACES_AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < PLACES_AT_ONCE; i++)
            indices[i] = from + i < count ? a.indices[first + (from + i) * step] : BATCH_NONE;
#pragma unroll
        for (uint32_t i = 0; i < PLACES_AT_ONCE; i++)
            weights[i] = indices[i] != BATCH_NONE ? a.weights[indices[i]] : 0.0F;
#pragma unroll
        for (uint32_t i = 0; i < PLACES_AT_ONCE; i++) {
            if (indices[i] != BATCH_NONE)
                sum = fmaf(scale, weights[i], sum);
        }
    }
    return sum;
}

static __device__ __forceinline__ float forward_dense(const batch_weights_forward &a, size_t e)
{
    const size_t stride = a.dense_stride > 0 ? a.dense_stride : a.n;
    const bool is_rejected = a.is_rejected != nullptr && a.is_rejected[e] != 0;
    float sum = a.start != nullptr ? a.start[e] : a.base;
    if (a.bias != nullptr)
        sum += *a.bias;
#pragma unroll 8
    for (uint32_t c = 0; c < a.dense_count; c++) {
        const float x = a.dense[c * stride + e];
        sum = fmaf(is_rejected ? 0.0F : x, a.dense_weights[c], sum);
    }
    return sum;
}

static __global__ void __launch_bounds__(BLOCK) forward_kernel(batch_weights_forward a)
{
    const size_t e = cuda_thread();
    if (e >= a.n)
        return;
    float sum = forward_dense(a, e);
    if (a.offsets == nullptr) {
        sum = forward_places(a, e, a.fields, a.n, 1.0F, sum);
    } else {
        for (uint32_t f = 0; f < a.fields; f++) {
            const size_t bag = (size_t)f * a.n + e;
            const uint32_t from = a.offsets[bag], count = a.offsets[bag + 1] - from;
            sum = forward_places(a, from, count, 1, 1.0F / (float)count, sum);
        }
    }
    a.logits[e] = sum;
}

void cuda_weights_forward(batch_weights_forward *a, void *stream)
{
    if (a->n == 0)
        return;
    LAUNCH(forward_kernel, cuda_blocks(a->n, BLOCK), BLOCK, 0, gpu_cuda_stream(stream), *a);
    (void)gpu_launched(stream, "weights_forward");
}

/* --- Update --- */

/* A weight and its state in registers. weight_floats: floats, the same number in each lane of a vector;
 * weight_doubles: FTRL's two doubles. */
template <enum opt_kind kind> struct weight_floats {
    float *place;
    v16 w, s0, s1;

    __device__ weight_floats(void *at, const batch_weights &)
    {
        place = (float *)at;
        w = s0 = s1 = v16_set1(1.0F);
        if (place == nullptr)
            return;
        w = v16_set1(place[0]);
        if (opt_states(kind) > 0)
            s0 = v16_set1(place[1]);
        if (opt_states(kind) > 1)
            s1 = v16_set1(place[2]);
    }
    __device__ void step(float sum, const batch_weights &of)
    {
        const opt_vectors o = opt_spread(&of.params);
        const v16 one = v16_set1(1.0F);
        place[0] = opt_step(kind, w, v16_set1(sum), one, one, &s0, &s1, &o).f[0];
        if (opt_states(kind) > 0)
            place[1] = s0.f[0];
        if (opt_states(kind) > 1)
            place[2] = s1.f[0];
    }
};
struct weight_doubles {
    double *place;
    d8 z, sums;

    __device__ weight_doubles(void *at, const batch_weights &)
    {
        place = (double *)at;
        z = d8_set1(place != nullptr ? place[0] : 0.0);
        sums = d8_set1(place != nullptr ? place[1] : 0.0);
    }
    __device__ void step(float sum, const batch_weights &of)
    {
        ftrl64_step(&z, &sums, ftrl64_weight(z, sums, &of.ftrl), d8_set1((double)sum), &of.ftrl);
        place[0] = z.f;
        place[1] = sums.f;
    }
};

template <typename weight>
static __global__ void __launch_bounds__(BLOCK) update_kernel(batch_weights_update a, const float *partials)
{
    const size_t u = cuda_thread();
    const uint32_t count = *a.in.count;
    if (u / WARP_LANES * WARP_LANES >= count)
        return; /* true for all lanes of the warp */
    const bool is_there = u < count;
    weight of_row(is_there ? weight_place(a.of, u) : nullptr, a.of);
    const uint32_t from = is_there ? a.in.starts[u] : 0, to = is_there ? a.in.starts[u + 1] : 0;
    const float sum = segment_sum_one(a.in, partials, from, to);
    const bool is_finite = float_is_finite(sum), has_row = of_row.place != nullptr;
    if (has_row && is_finite)
        of_row.step(sum, a.of);
    const unsigned rejected = __ballot_sync(WARP_ALL, has_row && !is_finite);
    if (rejected != 0 && a.rejected != nullptr && threadIdx.x % WARP_LANES == 0)
        atomicAdd(a.rejected, (unsigned)__popc(rejected));
}

template <typename weight>
static void update_launch(const batch_weights_update &a, const float *partials, cudaStream_t to)
{
    LAUNCH(update_kernel<weight>, cuda_blocks(a.in.n, BLOCK), BLOCK, 0, to, a, partials);
}

static void update_kind(const batch_weights_update &a, const float *partials, cudaStream_t to)
{
    switch (a.of.kind) {
    case OPT_SGD: update_launch<weight_floats<OPT_SGD>>(a, partials, to); break;
    case OPT_MOMENTUM: update_launch<weight_floats<OPT_MOMENTUM>>(a, partials, to); break;
    case OPT_ADAGRAD:
    case OPT_ADAGRAD_ROW:
    case OPT_ADAGRAD_BLOCK: update_launch<weight_floats<OPT_ADAGRAD>>(a, partials, to); break;
    case OPT_ADAM: update_launch<weight_floats<OPT_ADAM>>(a, partials, to); break;
    case OPT_FTRL: update_launch<weight_floats<OPT_FTRL>>(a, partials, to); break;
    case OPT_NEWTON:
    case OPT_KINDS: assert(false); break;
    }
}

void cuda_weights_update(batch_weights_update *a, void *stream)
{
    if (!a->scratch) {
        a->scratch_bytes = segments_scratch_bytes(&a->in);
        return;
    }
    if (a->in.n == 0)
        return;
    cudaStream_t to = gpu_cuda_stream(stream);
    float *partials = (float *)a->scratch;
    segments_chunks(&a->in, partials, to);
    if (a->of.is_double)
        update_launch<weight_doubles>(*a, partials, to);
    else
        update_kind(*a, partials, to);
    (void)gpu_launched(stream, "weights_update");
}
