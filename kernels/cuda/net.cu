/*
 * add_rows, relu_mask and clip (batch_train.h): the parts of a network besides matrix products.
 *
 * add_rows and relu_mask: one thread per four columns of a row, 16 bytes per access; the limit is memory
 * bandwidth, twelve bytes per number. clip: one thread, as there are only a few numbers, one per layer.
 */
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/parts.cuh"

#include "kernels/clip.h"

enum { BLOCK = 256 };

/* Four numbers of two matrices, x and y: where they lie. */
struct fours {
    float *x;
    const float *y;
    uint32_t columns; /* of the four; 0: none are left */
    bool is_aligned;  /* 16 bytes of both can be read at once */
};

static __device__ __forceinline__ fours find_fours(float *x, const float *y, uint32_t n, uint32_t columns,
                                                   uint32_t x_stride, uint32_t y_stride)
{
    const uint32_t each = (columns + 3) / 4;
    const size_t i = cuda_thread(), row = i / each;
    const uint32_t column = (uint32_t)(i - row * each) * 4;
    if (row >= n)
        return {x, y, 0, false};
    x += row * x_stride + column, y += row * y_stride + column;
    const bool is_aligned = column + 4 <= columns && ((uintptr_t)x | (uintptr_t)y) % 16 == 0;
    return {x, y, columns - column < 4 ? columns - column : 4U, is_aligned};
}

static __global__ void __launch_bounds__(BLOCK) add_rows_kernel(batch_add_rows a)
{
    const fours f = find_fours(a.x, a.y, a.n, a.columns, a.x_stride, a.y_stride);
    if (f.is_aligned) {
        float4 v = *reinterpret_cast<float4 *>(f.x), w = *reinterpret_cast<const float4 *>(f.y);
        *reinterpret_cast<float4 *>(f.x) = make_float4(v.x + w.x, v.y + w.y, v.z + w.z, v.w + w.w);
        return;
    }
    for (uint32_t c = 0; c < f.columns; c++)
        f.x[c] += f.y[c];
}

static __global__ void __launch_bounds__(BLOCK) relu_mask_kernel(batch_relu_mask a)
{
    const fours f = find_fours(a.x, a.y, a.n, a.columns, a.stride, a.y_stride);
    if (f.is_aligned) {
        float4 v = *reinterpret_cast<float4 *>(f.x), w = *reinterpret_cast<const float4 *>(f.y);
        v.x = w.x > 0.0F ? v.x : 0.0F;
        v.y = w.y > 0.0F ? v.y : 0.0F;
        v.z = w.z > 0.0F ? v.z : 0.0F;
        v.w = w.w > 0.0F ? v.w : 0.0F;
        *reinterpret_cast<float4 *>(f.x) = v;
        return;
    }
    for (uint32_t c = 0; c < f.columns; c++)
        f.x[c] = f.y[c] > 0.0F ? f.x[c] : 0.0F;
}

/* Blocks of a kernel with one thread per four columns. */
static unsigned fours_blocks(uint32_t n, uint32_t columns)
{
    return cuda_blocks((size_t)n * ((columns + 3) / 4), BLOCK);
}

void cuda_add_rows(batch_add_rows *a, void *stream)
{
    batch_add_rows of = *a;
    of.x_stride = a->x_stride > 0 ? a->x_stride : a->columns;
    of.y_stride = a->y_stride > 0 ? a->y_stride : a->columns;
    if (a->n == 0 || a->columns == 0)
        return;
    LAUNCH(add_rows_kernel, fours_blocks(a->n, a->columns), BLOCK, 0, gpu_cuda_stream(stream), of);
    (void)gpu_launched(stream, "add_rows");
}

void cuda_relu_mask(batch_relu_mask *a, void *stream)
{
    batch_relu_mask of = *a;
    of.stride = a->stride > 0 ? a->stride : a->columns;
    of.y_stride = a->y_stride > 0 ? a->y_stride : a->columns;
    if (a->n == 0 || a->columns == 0)
        return;
    LAUNCH(relu_mask_kernel, fours_blocks(a->n, a->columns), BLOCK, 0, gpu_cuda_stream(stream), of);
    (void)gpu_launched(stream, "relu_mask");
}

static __global__ void clip_kernel(batch_clip a)
{
    a.scale[0] = clip_scale(a.squares, a.count, a.norm_max);
}

void cuda_clip(batch_clip *a, void *stream)
{
    LAUNCH(clip_kernel, 1, 1, 0, gpu_cuda_stream(stream), *a);
    (void)gpu_launched(stream, "clip");
}
