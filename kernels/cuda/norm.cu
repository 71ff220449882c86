/*
 * layer_norm and layer_norm_gradient of batch_sequence.h. The limit is memory bandwidth: each number is read once
 * and written once, as a row stays in the first-level cache from its mean to its last use.
 *
 *   naive          one thread per row, one number at a time: a warp reads 32 rows at once,   not measured
 *                  a sector for each number
 *   quads          four threads per row, 16 bytes each: four of the sixteen interleaved      not measured
 *                  partial sums each, so that the order of a CPU costs two shuffles, and a
 *                  warp reads whole sectors of eight rows
 *   gradient       one thread per column and part: rows in order, as a sum has to go, with   not measured
 *                  neighbouring threads on neighbouring columns; another launch adds the
 *                  parts' sums in order
 */
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/matrix.cuh"
#include "kernels/cuda/parts.cuh"

enum { BLOCK = 128, ROWS = BLOCK / 4 };

/* Four columns of the normalized row. */
static __forceinline__ __device__ v16 norm_values(v16 x, float mean, float scale)
{
    return v16_mul(v16_sub(x, v16_set1(mean)), v16_set1(scale));
}

/* The last of a row's sixteens is whole: what lies beyond the row is 0. Rows that are not there have no columns. */
static __global__ void __launch_bounds__(BLOCK) norm_forward_kernel(batch_layer_norm a)
{
    const size_t row = cuda_thread() / 4;
    const uint32_t first = threadIdx.x % 4 * 4, d = row < a.n ? a.d : 0, end = (d + 15) / 16 * 16;
    const float *x = a.x + row * a.d;
    v16 sum = v16_set1(0.0F);
    for (uint32_t c = first; c < end; c += 16)
        sum = v16_add(sum, matrix_load(x, c, d, true));
    const float mean = quad_sum(sum) / (float)a.d;
    sum = v16_set1(0.0F);
    for (uint32_t c = first; c < d; c += 16) {
        const v16 distance = v16_sub(matrix_load(x, c, d, true), v16_set1(mean));
        sum = v16_fma(distance, distance, sum);
    }
    const float variance = quad_sum(sum) / (float)a.d, scale = 1.0F / sqrtf(variance + a.epsilon);
    if (d > 0 && first == 0)
        a.stats[2 * row] = mean, a.stats[2 * row + 1] = scale;
    for (uint32_t c = first; c < d; c += 16)
        v16_store(a.out + row * a.d + c, v16_fma(norm_values(v16_load(x + c), mean, scale),
                                                 v16_load(a.gain + c), v16_load(a.bias + c)));
}

static __global__ void __launch_bounds__(BLOCK) norm_backward_kernel(batch_layer_norm a)
{
    const size_t row = cuda_thread() / 4;
    const uint32_t first = threadIdx.x % 4 * 4, d = row < a.n ? a.d : 0, end = (d + 15) / 16 * 16;
    const float *x = a.x + row * a.d, *dout = a.out_gradients + row * a.d;
    const float mean = d > 0 ? a.stats[2 * row] : 0.0F, scale = d > 0 ? a.stats[2 * row + 1] : 0.0F;
    v16 plain = v16_set1(0.0F), products = plain;
    for (uint32_t c = first; c < end; c += 16) {
        const v16 g = v16_mul(matrix_load(dout, c, d, true), matrix_load(a.gain, c, d, true));
        plain = v16_add(plain, g);
        products = v16_fma(g, norm_values(matrix_load(x, c, d, true), mean, scale), products);
    }
    const v16 plain_mean = v16_set1(quad_sum(plain) / (float)a.d);
    const v16 product_mean = v16_set1(quad_sum(products) / (float)a.d);
    for (uint32_t c = first; c < d; c += 16) {
        v16 rest = v16_sub(v16_mul(v16_load(dout + c), v16_load(a.gain + c)), plain_mean);
        rest = v16_fnma(norm_values(v16_load(x + c), mean, scale), product_mean, rest);
        v16_store(a.grads + row * a.d + c, v16_mul(rest, v16_set1(scale)));
    }
}

void cuda_layer_norm(batch_layer_norm *a, void *stream)
{
    if (a->n == 0 || a->d == 0)
        return;
    const cudaStream_t to = gpu_cuda_stream(stream);
    if (a->out != nullptr)
        LAUNCH(norm_forward_kernel, cuda_blocks(a->n, ROWS), BLOCK, 0, to, *a);
    if (a->out_gradients != nullptr)
        LAUNCH(norm_backward_kernel, cuda_blocks(a->n, ROWS), BLOCK, 0, to, *a);
    (void)gpu_launched(stream, "layer_norm");
}

/* Thread block i: part i / slabs, and BLOCK of the columns. */
static __global__ void __launch_bounds__(BLOCK)
    norm_gradient_kernel(batch_layer_norm_gradient a, uint32_t slabs)
{
    const uint32_t part = blockIdx.x / slabs, column = blockIdx.x % slabs * BLOCK + threadIdx.x;
    if (column >= a.d)
        return;
    const uint32_t from = a.parts != nullptr ? a.parts[part] : part * BATCH_CHUNK;
    const uint32_t end = a.parts != nullptr ? a.parts[part + 1] : min(from + BATCH_CHUNK, a.n);
    float gain = 0.0F, bias = 0.0F;
#pragma unroll 4
    for (size_t row = from; row < end; row++) {
        const float g = a.out_gradients[row * a.d + column], x = a.x[row * a.d + column];
        gain = fmaf(g, (x - a.stats[2 * row]) * a.stats[2 * row + 1], gain);
        bias += g;
    }
    a.sums[(size_t)part * 2 * a.d + column] = gain;
    a.sums[((size_t)part * 2 + 1) * a.d + column] = bias;
}

static __global__ void __launch_bounds__(BLOCK) norm_total_kernel(batch_layer_norm_gradient a)
{
    const size_t i = cuda_thread(), width = (size_t)2 * a.d;
    if (i >= width)
        return;
    float sum = a.parts_count > 0 ? a.sums[i] : 0.0F;
#pragma unroll 8
    for (uint32_t p = 1; p < a.parts_count; p++)
        sum += a.sums[p * width + i];
    a.total[i] = sum;
}

void cuda_layer_norm_gradient(batch_layer_norm_gradient *a, void *stream)
{
    batch_layer_norm_gradient of = *a;
    const unsigned slabs = cuda_blocks(a->d, BLOCK);
    const cudaStream_t to = gpu_cuda_stream(stream);
    of.parts_count = a->parts != nullptr ? a->parts_count : cuda_blocks(a->n, BATCH_CHUNK);
    if (a->d == 0)
        return;
    if (of.parts_count > 0)
        LAUNCH(norm_gradient_kernel, of.parts_count * slabs, BLOCK, 0, to, of, slabs);
    LAUNCH(norm_total_kernel, cuda_blocks((size_t)2 * a->d, BLOCK), BLOCK, 0, to, of);
    (void)gpu_launched(stream, "layer_norm_gradient");
}
