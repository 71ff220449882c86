/*
 * mixture of batch_train.h: an event's gates, a weighted sum of its experts' outputs, and the backward pass.
 * Memory traffic is the experts' outputs, once in each direction.
 *
 *   naive          three kernels: softmax, sum, and backward, which reads the         not measured
 *                  experts' outputs twice
 *   one kernel     one group of lanes per event, 16 bytes per lane; gates stay in     not measured
 *                  shared memory, and the data read for the products of the
 *                  backward pass is in the caches for the sum
 *   quads          products of gradients and outputs have the order of `dot`: four       not measured
 *                  threads per expert, several experts of an event at once
 *   many experts   more than shared memory has room for (ROOM): a warp per event, with   not measured
 *                  gates and products in the event's own rows of the results
 *
 * Up to ROOM experts every four threads of a group compute the softmax for themselves, so that no thread waits
 * for another.
 */
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/matrix.cuh"
#include "kernels/cuda/parts.cuh"

/* ROOM: experts whose gates and products fit into shared memory. */
enum { BLOCK = 256, GROUPS = BLOCK / 4, ROOM = 64, GATE_VECTORS = ROOM / 16 };

/* One row of floats for each group; with an odd stride, so that groups have no bank conflicts. */
typedef float mixture_room[GROUPS][ROOM + 1];

/* gates = softmax of the logits: every four threads of a group compute it, the first four write it. */
static __device__ void mixture_gates(const float *logits, uint32_t experts, bool is_aligned,
                                     uint32_t in_group, float *gates)
{
    v16 x[GATE_VECTORS], sum = v16_set1(0.0F);
    float largest = -INFINITY; /* NaN is skipped here; v16_exp_below0 makes all gates NaN then */
#pragma unroll
    for (uint32_t v = 0; v < GATE_VECTORS; v++) {
        const uint32_t k = v * 16 + in_group % 4 * 4;
        x[v] = matrix_load(logits, k, experts, is_aligned);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            if (k + i < experts && x[v].f[i] > largest)
                largest = x[v].f[i];
        }
    }
#pragma unroll
    for (int lanes = 2; lanes > 0; lanes /= 2) {
        const float other = __shfl_xor_sync(WARP_ALL, largest, lanes);
        largest = other > largest ? other : largest;
    }
#pragma unroll
    for (uint32_t v = 0; v < GATE_VECTORS; v++) {
        const uint32_t k = v * 16 + in_group % 4 * 4;
        x[v] = v16_exp_below0(v16_sub(x[v], v16_set1(largest)));
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            x[v].f[i] = k + i < experts ? x[v].f[i] : 0.0F;
        sum = v16_add(sum, x[v]);
    }
    const v16 total = v16_set1(quad_sum(sum));
#pragma unroll
    for (uint32_t v = 0; v < GATE_VECTORS; v++) {
        if (in_group < 4)
            matrix_store(gates, v * 16 + in_group * 4, experts, false, v16_div(x[v], total));
    }
}

/* Likewise by a whole warp, for any number of experts: gates first get the powers, whose sum every four threads
 * make for themselves. */
static __device__ void mixture_gates_wide(const float *logits, uint32_t experts, uint32_t in_group,
                                          float *gates)
{
    v16 sum = v16_set1(0.0F);
    float largest = -INFINITY; /* NaN is skipped, as in mixture_gates */
    for (uint32_t k = in_group; k < experts; k += WARP_LANES)
        largest = logits[k] > largest ? logits[k] : largest;
#pragma unroll
    for (int lanes = WARP_LANES / 2; lanes > 0; lanes /= 2) {
        const float other = __shfl_xor_sync(WARP_ALL, largest, lanes);
        largest = other > largest ? other : largest;
    }
    for (uint32_t k = in_group * 4; k < experts; k += WARP_LANES * 4)
        matrix_store(gates, k, experts, false,
                     v16_exp_below0(v16_sub(matrix_load(logits, k, experts, false), v16_set1(largest))));
    __syncwarp();
    for (uint32_t k = in_group % 4 * 4; k < experts; k += 16)
        sum = v16_add(sum, matrix_load(gates, k, experts, false));
    const v16 total = v16_set1(quad_sum(sum));
    __syncwarp(); /* all have read the powers before the gates overwrite them */
    for (uint32_t k = in_group * 4; k < experts; k += WARP_LANES * 4)
        matrix_store(gates, k, experts, false, v16_div(matrix_load(gates, k, experts, false), total));
}

/* products[k] = <out_gradients, inputs of expert k>, four threads for each expert. */
static __device__ void mixture_products(const batch_mixture &a, const float *inputs,
                                        const float *out_gradients, unsigned lanes, uint32_t in_group,
                                        bool is_aligned, float *products)
{
    for (uint32_t base = 0; base < a.experts; base += lanes / 4) {
        const uint32_t k = base + in_group / 4;
        v16 sum = v16_set1(0.0F);
#pragma unroll 4
        for (uint32_t column = in_group % 4 * 4; k < a.experts && column < (a.columns + 15) / 16 * 16;
             column += 16)
            sum = v16_fma(matrix_load(out_gradients, column, a.columns, true),
                          matrix_load(inputs + (size_t)k * a.columns, column, a.columns, is_aligned), sum);
        const float product = quad_sum(sum);
        if (k < a.experts && in_group % 4 == 0)
            products[k] = product;
    }
}

/* Four columns of an event: of the output, and of the gradients of its experts' outputs. */
static __device__ void mixture_four(const batch_mixture &a, size_t event, uint32_t column, bool is_aligned,
                                    const float *gates)
{
    if (a.out != nullptr) {
        const float *inputs = a.inputs + event * a.inputs_stride;
        v16 sum = v16_set1(0.0F);
#pragma unroll 4
        for (uint32_t k = 0; k < a.experts; k++)
            sum = v16_fma(v16_set1(gates[k]),
                          matrix_load(inputs + (size_t)k * a.columns, column, a.columns, is_aligned), sum);
        matrix_store(a.out + event * a.out_stride, column, a.columns, true, sum);
    }
    if (a.out_gradients == nullptr)
        return;
    const v16 out_gradients =
        matrix_load(a.out_gradients + event * a.out_gradients_stride, column, a.columns, true);
    float *to = a.input_gradients + event * a.input_gradients_stride;
#pragma unroll 4
    for (uint32_t k = 0; k < a.experts; k++, to += a.columns) {
        v16 pulled = v16_mul(v16_set1(gates[k]), out_gradients);
        if (a.adds)
            pulled = v16_add(matrix_load(to, column, a.columns, is_aligned), pulled);
        matrix_store(to, column, a.columns, is_aligned, pulled);
    }
}

/* The strides of `a` are not 0. Groups without an event compute the last event again, and write nothing. */
static __global__ void __launch_bounds__(BLOCK) mixture_kernel(batch_mixture a, unsigned lanes)
{
    SHARED(mixture_room, all_gates);
    SHARED(mixture_room, all_products);
    float *gates = all_gates[threadIdx.x / lanes], *products = all_products[threadIdx.x / lanes];
    const uint32_t in_group = threadIdx.x % lanes;
    const size_t number = cuda_thread() / lanes, event = number < a.n ? number : a.n - 1;
    const bool is_there = number < a.n, is_aligned = a.columns % 4 == 0;
    if (a.out != nullptr)
        mixture_gates(a.gate_logits + event * a.gates_stride, a.experts, a.gates_stride % 4 == 0, in_group,
                      gates);
    for (uint32_t k = in_group; k < a.experts && a.out == nullptr; k += lanes)
        gates[k] = a.gates[event * a.gates_stride + k];
    if (a.out_gradients != nullptr)
        mixture_products(a, a.inputs + event * a.inputs_stride,
                         a.out_gradients + event * a.out_gradients_stride, lanes, in_group, is_aligned,
                         products);
    __syncwarp();
    if (!is_there)
        return;
    float mean = 0.0F;
    for (uint32_t k = 0; k < a.experts && a.out_gradients != nullptr; k++)
        mean = fmaf(gates[k], products[k], mean);
    for (uint32_t k = in_group; k < a.experts; k += lanes) {
        if (a.out != nullptr)
            a.gates[event * a.gates_stride + k] = gates[k];
        if (a.out_gradients != nullptr)
            a.gate_gradients[event * a.gates_stride + k] = gates[k] * (products[k] - mean);
    }
    for (uint32_t column = in_group * 4; column < a.columns; column += lanes * 4)
        mixture_four(a, event, column, is_aligned, gates);
}

/* More than ROOM experts; a group is a warp. The products lie where the gates' gradients will. */
static __global__ void __launch_bounds__(BLOCK) mixture_wide_kernel(batch_mixture a)
{
    const uint32_t in_group = threadIdx.x % WARP_LANES;
    const size_t event = cuda_thread() / WARP_LANES;
    const bool is_aligned = a.columns % 4 == 0;
    if (event >= a.n) /* the whole warp */
        return;
    float *gates = a.gates + event * a.gates_stride;
    if (a.out != nullptr)
        mixture_gates_wide(a.gate_logits + event * a.gates_stride, a.experts, in_group, gates);
    float *products = a.out_gradients != nullptr ? a.gate_gradients + event * a.gates_stride : nullptr;
    if (products != nullptr)
        mixture_products(a, a.inputs + event * a.inputs_stride,
                         a.out_gradients + event * a.out_gradients_stride, WARP_LANES, in_group, is_aligned,
                         products);
    __syncwarp();
    float mean = 0.0F;
    for (uint32_t k = 0; k < a.experts && products != nullptr; k++)
        mean = fmaf(gates[k], products[k], mean);
    __syncwarp(); /* all have read the products before the gates' gradients overwrite them */
    for (uint32_t k = in_group; k < a.experts && products != nullptr; k += WARP_LANES)
        products[k] = gates[k] * (products[k] - mean);
    for (uint32_t column = in_group * 4; column < a.columns; column += WARP_LANES * 4)
        mixture_four(a, event, column, is_aligned, gates);
}

void cuda_mixture(batch_mixture *a, void *stream)
{
    if (a->n == 0 || (a->out == nullptr && a->out_gradients == nullptr))
        return;
    const unsigned lanes = matrix_lanes(a->columns, 4);
    batch_mixture of = *a;
    of.inputs_stride = matrix_stride(a->inputs_stride, a->experts * a->columns);
    of.input_gradients_stride = matrix_stride(a->input_gradients_stride, a->experts * a->columns);
    of.gates_stride = matrix_stride(a->gates_stride, a->experts);
    of.out_stride = matrix_stride(a->out_stride, a->columns);
    of.out_gradients_stride = matrix_stride(a->out_gradients_stride, a->columns);
    const cudaStream_t to = gpu_cuda_stream(stream);
    if (a->experts <= ROOM)
        LAUNCH(mixture_kernel, cuda_blocks((size_t)a->n * lanes, BLOCK), BLOCK, 0, to, of, lanes);
    else
        LAUNCH(mixture_wide_kernel, cuda_blocks((size_t)a->n * WARP_LANES, BLOCK), BLOCK, 0, to, of);
    (void)gpu_launched(stream, "mixture");
}
