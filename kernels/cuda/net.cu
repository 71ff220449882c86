/*
 * relu_mask and clip (batch_train.h): the parts of a network besides matrix products.
 *
 * relu_mask: one thread per four columns of a row, 16 bytes per access; the limit is memory bandwidth, twelve
 * bytes per number. clip: one thread, as there are only a few numbers, one per layer.
 */
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/parts.cuh"

#include "kernels/clip.h"

enum { BLOCK = 256 };

static __global__ void __launch_bounds__(BLOCK)
    relu_mask_kernel(batch_relu_mask a, uint32_t stride, uint32_t y_stride, uint32_t fours)
{
    const size_t i = cuda_thread();
    if (i >= (size_t)a.n * fours)
        return;
    const size_t row = i / fours;
    const uint32_t column = (uint32_t)(i - row * fours) * 4;
    float *x = a.x + row * stride + column;
    const float *y = a.y + row * y_stride + column;
    if (column + 4 <= a.columns && stride % 4 == 0 && y_stride % 4 == 0 &&
        ((uintptr_t)x | (uintptr_t)y) % 16 == 0) {
        float4 v = *reinterpret_cast<float4 *>(x), w = *reinterpret_cast<const float4 *>(y);
        v.x = w.x > 0.0F ? v.x : 0.0F;
        v.y = w.y > 0.0F ? v.y : 0.0F;
        v.z = w.z > 0.0F ? v.z : 0.0F;
        v.w = w.w > 0.0F ? v.w : 0.0F;
        *reinterpret_cast<float4 *>(x) = v;
        return;
    }
    for (uint32_t c = 0; c < 4 && column + c < a.columns; c++)
        x[c] = y[c] > 0.0F ? x[c] : 0.0F;
}

void cuda_relu_mask(batch_relu_mask *a, void *stream)
{
    const uint32_t fours = (a->columns + 3) / 4;
    if (a->n == 0 || fours == 0)
        return;
    LAUNCH(relu_mask_kernel, cuda_blocks((size_t)a->n * fours, BLOCK), BLOCK, 0, gpu_cuda_stream(stream), *a,
           a->stride > 0 ? a->stride : a->columns, a->y_stride > 0 ? a->y_stride : a->columns, fours);
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
