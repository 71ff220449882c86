/* CUDA's vector types and 16-bit floats. Conversions to 16 bits give the bits that a GPU gives. */
#ifndef LEAT_TESTS_CUDA_ON_HOST_TYPES_H
#define LEAT_TESTS_CUDA_ON_HOST_TYPES_H

#include <stdint.h>
#include <string.h>

#define MODEL_VECTORS(name, element, align2, align4)                                                         \
    struct alignas(align2) name##2                                                                           \
    {                                                                                                        \
        element x, y;                                                                                        \
    };                                                                                                       \
    struct name##3                                                                                           \
    {                                                                                                        \
        element x, y, z;                                                                                     \
    };                                                                                                       \
    struct alignas(align4) name##4                                                                           \
    {                                                                                                        \
        element x, y, z, w;                                                                                  \
    };                                                                                                       \
    static inline name##2 make_##name##2(element x, element y)                                               \
    {                                                                                                        \
        return {x, y};                                                                                       \
    }                                                                                                        \
    static inline name##3 make_##name##3(element x, element y, element z)                                    \
    {                                                                                                        \
        return {x, y, z};                                                                                    \
    }                                                                                                        \
    static inline name##4 make_##name##4(element x, element y, element z, element w)                         \
    {                                                                                                        \
        return {x, y, z, w};                                                                                 \
    }

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef long long longlong;
typedef unsigned long long ulonglong;

MODEL_VECTORS(char, signed char, 2, 4)
MODEL_VECTORS(uchar, unsigned char, 2, 4)
MODEL_VECTORS(short, short, 4, 8)
MODEL_VECTORS(ushort, unsigned short, 4, 8)
MODEL_VECTORS(int, int, 8, 16)
MODEL_VECTORS(uint, unsigned int, 8, 16)
MODEL_VECTORS(longlong, long long, 16, 16)
MODEL_VECTORS(ulonglong, unsigned long long, 16, 16)
MODEL_VECTORS(float, float, 8, 16)
MODEL_VECTORS(double, double, 16, 16)
#undef MODEL_VECTORS

struct dim3 {
    unsigned x, y, z;

    constexpr dim3(unsigned nx = 1, unsigned ny = 1, unsigned nz = 1) : x(nx), y(ny), z(nz)
    {
    }
    constexpr dim3(uint3 n) : x(n.x), y(n.y), z(n.z)
    {
    }
};

template <typename to, typename from> static inline to model_bits(from value)
{
    static_assert(sizeof(to) == sizeof(from), "the same bits");
    to bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* --- bf16: the upper half of a float --- */
struct __nv_bfloat16_raw {
    unsigned short x;
};

struct alignas(2) __nv_bfloat16 {
    unsigned short bits;

    __nv_bfloat16() = default;
    __nv_bfloat16(__nv_bfloat16_raw raw) : bits(raw.x)
    {
    }
    operator __nv_bfloat16_raw() const
    {
        return {bits};
    }
};

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return __nv_bfloat16_raw{bits};
}

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value)
{
    return value.bits;
}

/* Rounds to nearest, ties to even; a NaN becomes 0x7fff. */
static inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    const uint32_t bits = model_bits<uint32_t>(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) {
        return __ushort_as_bfloat16(0x7fff);
    }
    return __ushort_as_bfloat16((unsigned short)((bits + 0x7fffU + (bits >> 16 & 1)) >> 16));
}

static inline __nv_bfloat16 __float2bfloat16_rz(float value)
{
    const uint32_t bits = model_bits<uint32_t>(value);
    return __ushort_as_bfloat16((bits & 0x7fffffffU) > 0x7f800000U ? 0x7fff : (unsigned short)(bits >> 16));
}

static inline __nv_bfloat16 __float2bfloat16(float value)
{
    return __float2bfloat16_rn(value);
}

static inline float __bfloat162float(__nv_bfloat16 value)
{
    return model_bits<float>((uint32_t)value.bits << 16);
}

static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y)
{
    __nv_bfloat162 pair;
    pair.x = x;
    pair.y = y;
    return pair;
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return __halves2bfloat162(__float2bfloat16_rn(x), __float2bfloat16_rn(y));
}

static inline __nv_bfloat162 __float22bfloat162_rn(float2 pair)
{
    return __floats2bfloat162_rn(pair.x, pair.y);
}

static inline float __low2float(__nv_bfloat162 pair)
{
    return __bfloat162float(pair.x);
}

static inline float __high2float(__nv_bfloat162 pair)
{
    return __bfloat162float(pair.y);
}

static inline float2 __bfloat1622float2(__nv_bfloat162 pair)
{
    return {__low2float(pair), __high2float(pair)};
}

/* --- fp16: 5 bits of exponent, 10 of mantissa --- */
struct __half_raw {
    unsigned short x;
};

struct alignas(2) __half {
    unsigned short bits;

    __half() = default;
    __half(__half_raw raw) : bits(raw.x)
    {
    }
    operator __half_raw() const
    {
        return {bits};
    }
};

struct alignas(4) __half2 {
    __half x, y;
};

typedef __half half;
typedef __half2 half2;

static inline __half __ushort_as_half(unsigned short bits)
{
    return __half_raw{bits};
}

static inline unsigned short __half_as_ushort(__half value)
{
    return value.bits;
}

/* Rounds to nearest, ties to even; from 65520 on the result is infinite; a NaN becomes 0x7fff. */
static inline __half __float2half_rn(float value)
{
    const uint32_t bits = model_bits<uint32_t>(value), sign = bits >> 16 & 0x8000U, size = bits & 0x7fffffffU;
    uint32_t half_bits;
    if (size > 0x7f800000U) {
        return __ushort_as_half(0x7fff);
    }
    if (size >= 0x47800000U) { /* 2^16 */
        half_bits = 0x7c00;
    } else if (size >= 0x38800000U) { /* 2^-14: normal */
        half_bits = (size + 0xfffU + (size >> 13 & 1) - 0x38000000U) >> 13;
    } else { /* in 0.5f + size, the last bit has the weight 2^-24, as in fp16's denormals */
        half_bits = model_bits<uint32_t>(model_bits<float>(size) + 0.5F) - 0x3f000000U;
    }
    return __ushort_as_half((unsigned short)(half_bits | sign));
}

/* Rounds towards zero; finite values stay finite. */
static inline __half __float2half_rz(float value)
{
    const uint32_t bits = model_bits<uint32_t>(value), sign = bits >> 16 & 0x8000U, size = bits & 0x7fffffffU;
    uint32_t half_bits;
    if (size > 0x7f800000U) {
        return __ushort_as_half(0x7fff);
    }
    if (size >= 0x47800000U) {
        half_bits = size == 0x7f800000U ? 0x7c00 : 0x7bff;
    } else if (size >= 0x38800000U) {
        half_bits = (size - 0x38000000U) >> 13;
    } else {
        const uint32_t exponent = size >> 23, shift = 126 - exponent;
        half_bits = exponent < 102 ? 0 : ((size & 0x7fffffU) | 0x800000U) >> shift;
    }
    return __ushort_as_half((unsigned short)(half_bits | sign));
}

static inline __half __float2half(float value)
{
    return __float2half_rn(value);
}

static inline float __half2float(__half value)
{
    const uint32_t sign = (uint32_t)(value.bits & 0x8000U) << 16, exponent = value.bits >> 10 & 31;
    const uint32_t mantissa = value.bits & 0x3ffU;
    if (exponent == 31) {
        return model_bits<float>(mantissa != 0 ? 0x7fffffffU : sign | 0x7f800000U);
    }
    if (exponent == 0) {
        return model_bits<float>(model_bits<uint32_t>((float)mantissa * 0x1p-24F) | sign);
    }
    return model_bits<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline __half2 __halves2half2(__half x, __half y)
{
    __half2 pair;
    pair.x = x;
    pair.y = y;
    return pair;
}

static inline __half2 __floats2half2_rn(float x, float y)
{
    return __halves2half2(__float2half_rn(x), __float2half_rn(y));
}

static inline __half2 __float22half2_rn(float2 pair)
{
    return __floats2half2_rn(pair.x, pair.y);
}

static inline float __low2float(__half2 pair)
{
    return __half2float(pair.x);
}

static inline float __high2float(__half2 pair)
{
    return __half2float(pair.y);
}

static inline float2 __half22float2(__half2 pair)
{
    return {__low2float(pair), __high2float(pair)};
}

#endif
