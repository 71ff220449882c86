/*
 * matmul of batch_train.h. The products are computed by cuBLASLt (cublas.cuh); this file has the rest.
 *
 *   naive          one thread per element of c, in the CPU's order: still used       not measured
 *                  for shapes that cuBLASLt has no algorithm for, and for k = 0
 *   cuBLASLt       fp32 in fp32 (never TF32), bias and relu in its epilogue,         not measured
 *                  `adds` as its beta
 *   sixteen bits   operands rounded once into scratch memory, with rows of a         not measured
 *                  multiple of 16 bytes; tensor cores with sums in fp32
 *   the bias's     sums of chunks by separate threads, then the chunks' sums;        not measured
 *   gradient       neighbouring threads read neighbouring floats
 *
 * The limit is arithmetic, two flops for each of m * n * k, or memory bandwidth where n or k is small.
 */
#include "kernels/cuda/cublas.cuh"
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/parts.cuh"
#include "kernels/rounding.h"

enum { MATMUL_WIDE = 32, MATMUL_HIGH = 8, MATMUL_EACH = 8, SUMS_BLOCK = 128 };

static __forceinline__ __device__ uint32_t matmul_round(float x, enum row_format precision, float scale)
{
    return precision == ROW_BF16 ? bf16_of(float_bits(x), 0, true) : fp16_ieee(float_bits(x * scale));
}

static __forceinline__ __device__ float matmul_operand(float x, enum row_format precision, float scale)
{
    if (precision == ROW_FP32)
        return x;
    const uint16_t rounded = (uint16_t)matmul_round(x, precision, scale);
    return precision == ROW_BF16 ? float_of_bf16(rounded) : float_of_fp16(rounded) * (1.0F / scale);
}

static __global__ void __launch_bounds__(MATMUL_WIDE *MATMUL_HIGH) matmul_kernel(batch_matmul a)
{
    const size_t j = (size_t)blockIdx.y * MATMUL_WIDE + threadIdx.x;
    const size_t i = (size_t)blockIdx.x * MATMUL_HIGH + threadIdx.y;
    if (i >= a.m || j >= a.n)
        return;
    float *c = a.c + i * a.c_stride + j;
    const bool is_masked = a.epilogue == MATMUL_MASK;
    float x = a.adds && !is_masked ? *c : 0.0F;
    for (size_t p = 0; p < a.k; p++) {
        float from_a = a.a[a.a_is_transposed ? p * a.a_stride + i : i * a.a_stride + p];
        float from_b = a.b[a.b_is_transposed ? j * a.b_stride + p : p * a.b_stride + j];
        x = fmaf(matmul_operand(from_a, a.precision, a.scale), matmul_operand(from_b, a.precision, 1.0F), x);
    }
    if (a.epilogue == MATMUL_BIAS || a.epilogue == MATMUL_BIAS_RELU)
        x += a.bias[j];
    if (a.epilogue == MATMUL_BIAS_RELU)
        x = 0.0F > x ? 0.0F : x;
    if (is_masked)
        x = a.mask[i * a.mask_stride + j] > 0.0F ? x : 0.0F;
    *c = a.adds && is_masked ? *c + x : x;
}

/* c = the product where mask > 0, else 0; with adds, this is added to c. `product` may be c. */
static __global__ void __launch_bounds__(MATMUL_WIDE *MATMUL_HIGH)
    mask_kernel(batch_matmul a, const float *product, size_t product_stride)
{
    const size_t j = (size_t)blockIdx.y * MATMUL_WIDE + threadIdx.x;
    const size_t i = (size_t)blockIdx.x * MATMUL_HIGH + threadIdx.y;
    if (i >= a.m || j >= a.n)
        return;
    float x = product[i * product_stride + j];
    x = a.mask[i * a.mask_stride + j] > 0.0F ? x : 0.0F;
    float *c = a.c + i * a.c_stride + j;
    *c = a.adds ? *c + x : x;
}

/* Rounds a matrix, row by row as given: MATMUL_EACH numbers per thread, 16 bytes of the result. */
static __global__ void __launch_bounds__(MATMUL_WIDE *MATMUL_HIGH)
    round_rows_kernel(const float *x, size_t stride, uint16_t *out, size_t out_stride, uint32_t rows,
                      uint32_t columns, enum row_format precision, float scale)
{
    const size_t j = ((size_t)blockIdx.y * MATMUL_WIDE + threadIdx.x) * MATMUL_EACH;
    const size_t i = (size_t)blockIdx.x * MATMUL_HIGH + threadIdx.y;
    if (i >= rows || j >= columns)
        return;
    const float *from = x + i * stride + j;
    float in[MATMUL_EACH] = {0};
    if (columns - j >= MATMUL_EACH && stride % 4 == 0 && (uintptr_t)x % sizeof(float4) == 0) {
        const float4 lo = *(const float4 *)(const void *)from, hi = *(const float4 *)(const void *)(from + 4);
        in[0] = lo.x, in[1] = lo.y, in[2] = lo.z, in[3] = lo.w;
        in[4] = hi.x, in[5] = hi.y, in[6] = hi.z, in[7] = hi.w;
    } else {
        for (unsigned k = 0; k < MATMUL_EACH; k++)
            in[k] = j + k < columns ? from[k] : 0.0F;
    }
    uint32_t halves[MATMUL_EACH];
#pragma unroll
    for (unsigned k = 0; k < MATMUL_EACH; k++)
        halves[k] = matmul_round(in[k], precision, scale);
    *(uint4 *)(void *)(out + i * out_stride + j) =
        make_uint4(halves[0] | halves[1] << 16, halves[2] | halves[3] << 16, halves[4] | halves[5] << 16,
                   halves[6] | halves[7] << 16);
}

/* The sum of one chunk of one row of a, in order. The chunks are the grid's first dimension: they can be more than the
 * 65,535 blocks of its second. */
static __global__ void __launch_bounds__(SUMS_BLOCK) sums_chunks_kernel(batch_matmul a, float *partials)
{
    const size_t i = (size_t)blockIdx.y * SUMS_BLOCK + threadIdx.x, from = (size_t)blockIdx.x * BATCH_CHUNK;
    const size_t end = a.k - from < BATCH_CHUNK ? a.k : from + BATCH_CHUNK;
    if (i >= a.m)
        return;
    const size_t across = a.a_is_transposed ? 1 : a.a_stride, deep = a.a_is_transposed ? a.a_stride : 1;
    float chunk = 0.0F;
#pragma unroll 8
    for (size_t p = from; p < end; p++)
        chunk += a.a[i * across + p * deep];
    partials[(size_t)blockIdx.x * a.m + i] = chunk;
}

static __global__ void __launch_bounds__(SUMS_BLOCK)
    sums_kernel(batch_matmul a, const float *partials, unsigned chunks)
{
    const size_t i = cuda_thread();
    if (i >= a.m)
        return;
    float total = a.adds ? a.sums[i] : 0.0F;
#pragma unroll 8
    for (unsigned chunk = 0; chunk < chunks; chunk++)
        total += partials[(size_t)chunk * a.m + i];
    a.sums[i] = total;
}

static void sums_launch(const batch_matmul &a, float *partials, cudaStream_t to)
{
    const unsigned chunks = cuda_blocks(a.k, BATCH_CHUNK), blocks = cuda_blocks(a.m, SUMS_BLOCK);
    if (chunks > 0)
        LAUNCH(sums_chunks_kernel, dim3(chunks, blocks), SUMS_BLOCK, 0, to, a, partials);
    LAUNCH(sums_kernel, blocks, SUMS_BLOCK, 0, to, a, partials, chunks);
}

/* --- Scratch memory --- */

static size_t rounded_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Offsets in bytes, multiples of 256: the rounded rows of a and b, the product before masking and adding, and
 * the sums of chunks; strides in numbers. The workspace is as large as cuBLASLt may want: with less, narrow
 * products with a deep k would run on a few blocks only. */
struct matmul_scratch {
    size_t workspace_bytes, a, b, product, partials, bytes;
    size_t a_stride, b_stride, product_stride;
};

static matmul_scratch scratch_of(const batch_matmul &a)
{
    matmul_scratch s = {};
    const size_t a_rows = a.a_is_transposed ? a.k : a.m, b_rows = a.b_is_transposed ? a.n : a.k;
    s.a_stride = rounded_up(a.a_is_transposed ? a.m : a.k, MATMUL_EACH);
    s.b_stride = rounded_up(a.b_is_transposed ? a.k : a.n, MATMUL_EACH);
    s.product_stride = rounded_up(a.n, 4);
    s.workspace_bytes = CUBLAS_WORKSPACE_MAX;
    const bool is_rounded = a.precision != ROW_FP32, is_added = a.epilogue == MATMUL_MASK && a.adds;
    s.a = s.workspace_bytes;
    s.b = s.a + (is_rounded ? rounded_up(a_rows * s.a_stride * sizeof(uint16_t), 256) : 0);
    s.product = s.b + (is_rounded ? rounded_up(b_rows * s.b_stride * sizeof(uint16_t), 256) : 0);
    s.partials = s.product + (is_added ? rounded_up(a.m * s.product_stride * sizeof(float), 256) : 0);
    const size_t chunks = a.epilogue == MATMUL_SUMS ? cuda_blocks(a.k, BATCH_CHUNK) : 0;
    s.bytes = s.partials + rounded_up(chunks * a.m * sizeof(float), 256);
    return s;
}

/* --- The kernel --- */

static dim3 matmul_grid(size_t rows, size_t columns)
{
    return dim3(cuda_blocks(rows, MATMUL_HIGH), cuda_blocks(columns, MATMUL_WIDE));
}

static void plain_launch(const batch_matmul &a, cudaStream_t to)
{
    LAUNCH(matmul_kernel, matmul_grid(a.m, a.n), dim3(MATMUL_WIDE, MATMUL_HIGH), 0, to, a);
}

/* Queues the rounding of an operand's rows; returns their new address, `out`. */
static const void *round_launch(const float *x, size_t stride, unsigned char *out, size_t out_stride,
                                size_t rows, size_t columns, enum row_format precision, float scale,
                                cudaStream_t to)
{
    LAUNCH(round_rows_kernel, matmul_grid(rows, rounded_up(columns, MATMUL_EACH) / MATMUL_EACH),
           dim3(MATMUL_WIDE, MATMUL_HIGH), 0, to, x, stride, (uint16_t *)(void *)out, out_stride,
           (uint32_t)rows, (uint32_t)columns, precision, scale);
    return out;
}

/* The alignment of an address in bytes, at most 16: a column of a matrix, as one of several labels has, is
 * only aligned to its floats. */
static uint8_t aligned_to(const void *at)
{
    const uintptr_t bits = (uintptr_t)at | 16;
    return (uint8_t)(bits & (~bits + 1));
}

static void multiply(const batch_matmul &a, const matmul_scratch &s, gpu *gpu, cudaStream_t to)
{
    unsigned char *scratch = (unsigned char *)a.scratch;
    const bool is_masked = a.epilogue == MATMUL_MASK, is_apart = is_masked && a.adds;
    cublas_shape shape = {};
    shape.m = a.m, shape.n = a.n, shape.k = a.k;
    shape.a_stride = a.a_stride, shape.b_stride = a.b_stride;
    shape.d_stride = (int64_t)(is_apart ? s.product_stride : a.c_stride);
    shape.workspace_bytes = s.workspace_bytes;
    shape.a_is_transposed = a.a_is_transposed, shape.b_is_transposed = a.b_is_transposed;
    shape.adds = a.adds && !is_masked;
    if (a.epilogue == MATMUL_BIAS || a.epilogue == MATMUL_BIAS_RELU)
        shape.epilogue = a.epilogue;
    shape.format = a.precision;
    cublas_operands operands = {a.a,     a.b, a.bias, is_apart ? (float *)(void *)(scratch + s.product) : a.c,
                                scratch, 1.0F};
    if (a.precision != ROW_FP32) {
        operands.a = round_launch(a.a, a.a_stride, scratch + s.a, s.a_stride, a.a_is_transposed ? a.k : a.m,
                                  a.a_is_transposed ? a.m : a.k, a.precision, a.scale, to);
        operands.b = round_launch(a.b, a.b_stride, scratch + s.b, s.b_stride, a.b_is_transposed ? a.n : a.k,
                                  a.b_is_transposed ? a.k : a.n, a.precision, 1.0F, to);
        shape.a_stride = (int64_t)s.a_stride, shape.b_stride = (int64_t)s.b_stride;
        operands.factor = 1.0F / a.scale;
    }
    shape.a_aligned = aligned_to(operands.a), shape.b_aligned = aligned_to(operands.b);
    shape.d_aligned = aligned_to(operands.d);
    switch (cublas_multiply(gpu, shape, operands, to)) {
    case CUBLAS_DONE: break;
    case CUBLAS_HAS_NONE: plain_launch(a, to); return;
    case CUBLAS_FAILED: return;
    }
    if (is_masked)
        LAUNCH(mask_kernel, matmul_grid(a.m, a.n), dim3(MATMUL_WIDE, MATMUL_HIGH), 0, to, a,
               (const float *)operands.d, (size_t)shape.d_stride);
}

void cuda_matmul(batch_matmul *given, void *stream)
{
    batch_matmul a = *given;
    const matmul_scratch s = scratch_of(a);
    if (!a.scratch) {
        given->scratch_bytes = s.bytes;
        return;
    }
    if (a.m == 0)
        return;
    a.a_stride = a.a_stride ? a.a_stride : a.a_is_transposed ? a.m : a.k;
    a.b_stride = a.b_stride ? a.b_stride : a.b_is_transposed ? a.k : a.n;
    a.c_stride = a.c_stride ? a.c_stride : a.n;
    a.mask_stride = a.mask_stride ? a.mask_stride : a.n;
    a.scale = a.precision == ROW_FP16 && a.scale > 0.0F ? a.scale : 1.0F;
    cudaStream_t to = gpu_cuda_stream(stream);
    if (a.n > 0 && a.k > 0)
        multiply(a, s, static_cast<gpu_stream *>(stream)->gpu, to);
    else if (a.n > 0)
        plain_launch(a, to);
    if (a.epilogue == MATMUL_SUMS)
        sums_launch(a, (float *)(void *)((unsigned char *)a.scratch + s.partials), to);
    (void)gpu_launched(stream, "matmul");
}
