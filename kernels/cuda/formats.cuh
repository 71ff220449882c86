/* Weights of a row as floats, four at a time, for each storage format (batch.h: enum row_format). Exact. */
#ifndef LEAT_KERNELS_CUDA_FORMATS_CUH
#define LEAT_KERNELS_CUDA_FORMATS_CUH

#include "kernels/batch.h"
#include "kernels/cuda/cuda.cuh"

static __device__ __forceinline__ float bf16_float(uint32_t bits)
{
    return __uint_as_float(bits << 16);
}

static __device__ __forceinline__ float fp16_float(uint32_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}

/* Weights column .. column + 3 of a row, column a multiple of 4; zeros if row is NULL. One load of 16, 8, 8
 * or 4 bytes (int8: and a load of the scale, the same for all lanes). */
template <row_format format>
static __device__ __forceinline__ float4 row_load(const unsigned char *row, uint32_t column)
{
    if (row == nullptr)
        return make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    if (format == ROW_FP32)
        return *reinterpret_cast<const float4 *>(row + column * sizeof(float));
    if (format == ROW_INT8) {
        const float scale = *reinterpret_cast<const float *>(row);
        const uint32_t bytes = *reinterpret_cast<const uint32_t *>(row + sizeof(float) + column);
        return make_float4(scale * (float)(int8_t)bytes, scale * (float)(int8_t)(bytes >> 8),
                           scale * (float)(int8_t)(bytes >> 16), scale * (float)(int8_t)(bytes >> 24));
    }
    const uint2 halves = *reinterpret_cast<const uint2 *>(row + column * sizeof(uint16_t));
    if (format == ROW_BF16)
        return make_float4(bf16_float(halves.x & 0xffff), bf16_float(halves.x >> 16),
                           bf16_float(halves.y & 0xffff), bf16_float(halves.y >> 16));
    return make_float4(fp16_float(halves.x & 0xffff), fp16_float(halves.x >> 16),
                       fp16_float(halves.y & 0xffff), fp16_float(halves.y >> 16));
}

/* row_load with the format as an argument; row is not NULL. */
static __device__ __forceinline__ float4 row_load_as(row_format format, const unsigned char *row,
                                                     uint32_t column)
{
    switch (format) {
    case ROW_BF16: return row_load<ROW_BF16>(row, column);
    case ROW_FP16: return row_load<ROW_FP16>(row, column);
    case ROW_INT8: return row_load<ROW_INT8>(row, column);
    case ROW_FP32:
    case ROW_FORMATS: break;
    }
    return row_load<ROW_FP32>(row, column);
}

#endif
