/*
 * products of batch_train.h: element-wise products of all pairs of an event's vectors, and the backward pass.
 * Memory traffic is the columns of pairs, once in each direction; each vector is read by all its partners, from
 * the L1 cache.
 *
 *   naive          one thread per number of the output, which finds its pair by a root      not measured
 *   by field       a group of lanes per field of an event, 16 bytes per lane: the field's   not measured
 *                  dims stay in registers while its partners pass by, so that no pair is
 *                  looked for; backward, the same loop makes the field's sum
 */
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/matrix.cuh"
#include "kernels/cuda/parts.cuh"

enum { BLOCK = 256 };

static inline __host__ __device__ uint32_t products_row(uint32_t i)
{
    return i * (i - 1) / 2;
}

/* Four dims, `column`, of the products of field i with the fields before it. */
static __device__ void products_forward(const batch_products &a, size_t event, uint32_t i, uint32_t column)
{
    const float *vectors = a.vectors + event * a.stride + column;
    const v16 own = v16_load(vectors + i * a.d);
    float *out = a.out + event * a.out_stride + (size_t)products_row(i) * a.d + column;
#pragma unroll 4
    for (uint32_t j = 0; j < i; j++)
        v16_store(out + j * a.d, v16_mul(own, v16_load(vectors + j * a.d)));
}

/* Four dims, `column`, of the gradients of field i. */
static __device__ void products_backward(const batch_products &a, size_t event, uint32_t i, uint32_t column)
{
    const float *vectors = a.vectors + event * a.stride + column;
    const float *out_gradients = a.out_gradients + event * a.out_gradients_stride + column;
    float *to = a.grads + event * a.grads_stride + i * a.d + column;
    v16 sum = v16_set1(0.0F);
#pragma unroll 4
    for (uint32_t j = 0; j < a.fields; j++) {
        if (j == i)
            continue;
        const uint32_t pair = i > j ? products_row(i) + j : products_row(j) + i;
        sum = v16_fma(v16_load(out_gradients + (size_t)pair * a.d), v16_load(vectors + j * a.d), sum);
    }
    v16_store(to, a.adds ? v16_add(v16_load(to), sum) : sum);
}

/* The strides of `a` are not 0. */
static __global__ void __launch_bounds__(BLOCK) products_kernel(batch_products a, unsigned lanes)
{
    const size_t number = cuda_thread() / lanes, event = number / a.fields;
    const uint32_t i = (uint32_t)(number - event * a.fields);
    if (event >= a.n)
        return;
    for (uint32_t column = threadIdx.x % lanes * 4; column < a.d; column += lanes * 4) {
        if (a.out != nullptr)
            products_forward(a, event, i, column);
        if (a.grads != nullptr)
            products_backward(a, event, i, column);
    }
}

void cuda_products(batch_products *a, void *stream)
{
    if (a->n == 0 || (a->out == nullptr && a->grads == nullptr))
        return;
    const unsigned lanes = matrix_lanes(a->d, 1);
    const uint32_t row = a->fields * a->d, width = products_row(a->fields) * a->d;
    batch_products of = *a;
    of.stride = matrix_stride(a->stride, row);
    of.out_stride = matrix_stride(a->out_stride, width);
    of.out_gradients_stride = matrix_stride(a->out_gradients_stride, width);
    of.grads_stride = matrix_stride(a->grads_stride, row);
    LAUNCH(products_kernel, cuda_blocks((size_t)a->n * a->fields * lanes, BLOCK), BLOCK, 0,
           gpu_cuda_stream(stream), of, lanes);
    (void)gpu_launched(stream, "products");
}
