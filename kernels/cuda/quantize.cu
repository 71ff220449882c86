/*
 * quantize of batch.h; the arithmetic of one weight is in rounding.h.
 *
 *   naive         one thread per row, two passes over the row                      not measured
 *   groups        one group of lanes per row, 16 bytes per lane; the row stays     not measured
 *                 in registers between the search for its largest weight and
 *                 the division
 *
 * The limit is memory bandwidth: five bytes per weight.
 */
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/parts.cuh"
#include "kernels/cuda/rows.cuh"

/* The bits of the largest |x| of a row: such bits are ordered as the magnitudes, NaN above all. All lanes of
 * the group get them. */
template <typename shape>
static __forceinline__ __device__ uint32_t row_largest(const row_group<shape> &group,
                                                       const v16 (&x)[shape::vectors])
{
    uint32_t largest = 0;
#pragma unroll
    for (unsigned v = 0; v < shape::vectors; v++) {
        for (int i = 0; i < 4; i++) {
            uint32_t size = float_bits(x[v].f[i]) & 0x7fffffffU;
            largest = size > largest ? size : largest;
        }
    }
#pragma unroll
    for (unsigned by = shape::lanes / 2; by > 0; by /= 2) {
        uint32_t other = __shfl_xor_sync(group.mask, largest, (int)by);
        largest = other > largest ? other : largest;
    }
    return largest;
}

template <typename shape>
static __global__ void __launch_bounds__(shape::block) quantize_kernel(batch_quantize a)
{
    row_group<shape> group(a.d);
    uint32_t stride = (uint32_t)row_bytes(ROW_INT8, a.d, 0), bytes = (uint32_t)sizeof(float) + a.d;
    for (uint32_t r = group.index; r < a.rows; r += group.stride) {
        unsigned char *row = (unsigned char *)a.out + (size_t)r * stride;
        v16 x[shape::vectors];
#pragma unroll
        for (unsigned v = 0; v < shape::vectors; v++)
            x[v] = row_vector(group, a.x + (size_t)r * a.d, v);
        float scale = int8_scale(row_largest(group, x));
#pragma unroll
        for (unsigned v = 0; v < shape::vectors; v++) {
            uint32_t four = 0;
            for (int i = 0; i < 4; i++)
                four |= (uint32_t)(uint8_t)int8_of(x[v].f[i], scale) << (8 * i);
            if (group.has(v))
                *(uint32_t *)(void *)(row + sizeof(float) + group.dim(v)) = four;
        }
        if (group.lane == 0)
            *(float *)(void *)row = scale;
        for (uint32_t at = bytes + 4 * group.lane; at < stride; at += 4 * shape::lanes)
            *(uint32_t *)(void *)(row + at) = 0;
    }
}

void cuda_quantize(batch_quantize *a, void *stream)
{
    if (a->rows == 0)
        return;
    rows_by_dims(a->d, [&](auto shape) {
        using is = decltype(shape);
        LAUNCH(quantize_kernel<is>, rows_blocks<is>(a->rows, gpu_multiprocessors(stream)), is::block, 0,
               gpu_cuda_stream(stream), *a);
    });
    (void)gpu_launched(stream, "quantize");
}
