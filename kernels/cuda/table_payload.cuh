/* Payloads of rows (weights as floats, the optimizer's state, the extra floats), read from and written to
 * rows in their storage formats. One warp per row; each lane takes neighbouring groups of four floats, lane 0
 * the extra floats. */
#ifndef LEAT_KERNELS_CUDA_TABLE_PAYLOAD_CUH
#define LEAT_KERNELS_CUDA_TABLE_PAYLOAD_CUH

#include "kernels/cuda/formats.cuh"
#include "kernels/cuda/table_moves.cuh"
#include "kernels/rounding.h"

static inline __device__ uint32_t payload_half(const table_shape &s, float x)
{
    return s.format == ROW_BF16 ? bf16_of(float_bits(x), 0, true) : fp16_of(float_bits(x), 0, true);
}

/* Writes four weights, rounded to nearest: numbers exact in the format do not change. scale: for int8. */
static inline __device__ void payload_set_weights(const table_shape &s, unsigned char *row, uint32_t i,
                                                  float4 w, float scale)
{
    if (s.format == ROW_FP32)
        *reinterpret_cast<float4 *>(row + (size_t)i * 4) = w;
    else if (s.format == ROW_INT8)
        *reinterpret_cast<uint32_t *>(row + 4 + i) =
            (uint32_t)(uint8_t)int8_of(w.x, scale) | (uint32_t)(uint8_t)int8_of(w.y, scale) << 8 |
            (uint32_t)(uint8_t)int8_of(w.z, scale) << 16 | (uint32_t)(uint8_t)int8_of(w.w, scale) << 24;
    else
        *reinterpret_cast<uint2 *>(row + (size_t)i * 2) =
            make_uint2(payload_half(s, w.x) | payload_half(s, w.y) << 16,
                       payload_half(s, w.z) | payload_half(s, w.w) << 16);
}

/* Whether a payload, an element of an array of payloads, is aligned to 16 bytes. */
static inline __device__ bool payload_is_aligned(const float *payload)
{
    return ((uintptr_t)payload & 15) == 0;
}

static inline __device__ float4 payload_load(const float *x, bool is_aligned)
{
    return is_aligned ? *reinterpret_cast<const float4 *>(x) : float4{x[0], x[1], x[2], x[3]};
}

static inline __device__ void payload_store(float *x, float4 v, bool is_aligned)
{
    if (is_aligned)
        *reinterpret_cast<float4 *>(x) = v;
    else
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}

static inline __device__ void payload_out(const table_shape &s, const unsigned char *row, float *out,
                                          uint32_t lane)
{
    const float *state = reinterpret_cast<const float *>(row + s.weight_bytes);
    bool is_aligned = payload_is_aligned(out);
    for (uint32_t i = lane * 4; i < s.d; i += WARP_LANES * 4)
        payload_store(out + i, row_load_as(s.format, row, i), is_aligned);
    if (s.state_floats % 4 == 0) {
        for (uint32_t i = lane * 4; i < s.state_floats; i += WARP_LANES * 4)
            payload_store(out + s.d + i, *reinterpret_cast<const float4 *>(state + i), is_aligned);
    } else {
        for (uint32_t i = lane; i < s.state_floats; i += WARP_LANES)
            out[s.d + i] = state[i];
    }
    float *extra = out + s.d + s.state_floats;
    if (s.extra_floats > 0 && lane == 0)
        payload_store(extra, *reinterpret_cast<const float4 *>(row + s.extra_at), payload_is_aligned(extra));
}

/* The int8 scale of the row. Called by the whole warp. */
static inline __device__ float payload_scale(const table_shape &s, const float *in, uint32_t lane)
{
    uint32_t largest = 0;
    for (uint32_t i = lane; i < s.d; i += WARP_LANES) {
        uint32_t size = float_bits(in[i]) & 0x7fffffffU;
        largest = size > largest ? size : largest;
    }
    return int8_scale(warp_most(largest));
}

static inline __device__ void payload_in(const table_shape &s, unsigned char *row, const float *in,
                                         uint32_t lane)
{
    float *state = reinterpret_cast<float *>(row + s.weight_bytes);
    bool is_aligned = payload_is_aligned(in);
    float scale = 0.0F;
    if (s.format == ROW_INT8) {
        scale = payload_scale(s, in, lane);
        if (lane == 0)
            *reinterpret_cast<float *>(row) = scale;
    }
    for (uint32_t i = lane * 4; i < s.d; i += WARP_LANES * 4)
        payload_set_weights(s, row, i, payload_load(in + i, is_aligned), scale);
    if (s.state_floats % 4 == 0) {
        for (uint32_t i = lane * 4; i < s.state_floats; i += WARP_LANES * 4)
            *reinterpret_cast<float4 *>(state + i) = payload_load(in + s.d + i, is_aligned);
    } else {
        for (uint32_t i = lane; i < s.state_floats; i += WARP_LANES)
            state[i] = in[s.d + i];
    }
    const float *extra = in + s.d + s.state_floats;
    if (s.extra_floats > 0 && lane == 0)
        *reinterpret_cast<float4 *>(row + s.extra_at) = payload_load(extra, payload_is_aligned(extra));
}

#endif
