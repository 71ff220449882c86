/* CUDA's functions for a single thread: bits, four bytes in a word, conversions, roundings,
 * loads and stores. */
#ifndef LEAT_TESTS_CUDA_ON_HOST_ARITHMETIC_H
#define LEAT_TESTS_CUDA_ON_HOST_ARITHMETIC_H

#include <math.h>
#include <stdint.h>

#include "tests/cuda_on_host/types.h"

/* --- Min and max, as CUDA overloads them --- */
#define MODEL_MIN_MAX(a_type, b_type, type)                                                                  \
    static inline type min(a_type a, b_type b)                                                               \
    {                                                                                                        \
        return (type)a < (type)b ? (type)a : (type)b;                                                        \
    }                                                                                                        \
    static inline type max(a_type a, b_type b)                                                               \
    {                                                                                                        \
        return (type)a > (type)b ? (type)a : (type)b;                                                        \
    }
MODEL_MIN_MAX(int, int, int)
MODEL_MIN_MAX(unsigned, unsigned, unsigned)
MODEL_MIN_MAX(int, unsigned, unsigned)
MODEL_MIN_MAX(unsigned, int, unsigned)
MODEL_MIN_MAX(long, long, long)
MODEL_MIN_MAX(unsigned long, unsigned long, unsigned long)
MODEL_MIN_MAX(long, unsigned long, unsigned long)
MODEL_MIN_MAX(unsigned long, long, unsigned long)
MODEL_MIN_MAX(long long, long long, long long)
MODEL_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
MODEL_MIN_MAX(long long, unsigned long long, unsigned long long)
MODEL_MIN_MAX(unsigned long long, long long, unsigned long long)
#undef MODEL_MIN_MAX

static inline float min(float a, float b)
{
    return fminf(a, b);
}

static inline float max(float a, float b)
{
    return fmaxf(a, b);
}

static inline double min(double a, double b)
{
    return fmin(a, b);
}

static inline double max(double a, double b)
{
    return fmax(a, b);
}

/* --- Bits --- */
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}

/* The position of the lowest set bit, from 1; 0: no bit is set. */
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}

static inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}

static inline int __clzll(long long x)
{
    return x == 0 ? 64 : __builtin_clzll((unsigned long long)x);
}

static inline unsigned long long __brevll(unsigned long long x)
{
    unsigned long long reversed = 0;
    for (int i = 0; i < 64; i++, x >>= 1) {
        reversed = reversed << 1 | (x & 1);
    }
    return reversed;
}

static inline unsigned __brev(unsigned x)
{
    return (unsigned)(__brevll(x) >> 32);
}

/* Each nibble of `selector` names one of the 8 bytes of y:x; its top bit spreads that byte's sign. */
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    const uint64_t bytes = (uint64_t)y << 32 | x;
    unsigned result = 0;
    for (unsigned i = 0; i < 4; i++) {
        const unsigned which = selector >> 4 * i & 15;
        unsigned byte = (unsigned)(bytes >> 8 * (which & 7)) & 255;
        if (which & 8) {
            byte = byte & 128 ? 255 : 0;
        }
        result |= byte << 8 * i;
    }
    return result;
}

static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) << (shift & 31) >> 32);
}

static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}

static inline int __mulhi(int a, int b)
{
    return (int)((int64_t)a * b >> 32);
}

static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

/* --- Four bytes in a word --- */
template <typename byte_function> static inline unsigned model_bytes(unsigned a, unsigned b, byte_function f)
{
    unsigned result = 0;
    for (unsigned i = 0; i < 32; i += 8) {
        result |= ((unsigned)f(a >> i & 255, b >> i & 255) & 255) << i;
    }
    return result;
}

#define MODEL_BYTES(name, a_type, expression)                                                                \
    static inline unsigned name(unsigned x, unsigned y)                                                      \
    {                                                                                                        \
        return model_bytes(x, y, [](unsigned x_byte, unsigned y_byte) {                                      \
            const int a = (a_type)x_byte, b = (a_type)y_byte;                                                \
            return expression;                                                                               \
        });                                                                                                  \
    }
MODEL_BYTES(__vcmpeq4, uint8_t, a == b ? 255 : 0)
MODEL_BYTES(__vcmpne4, uint8_t, a != b ? 255 : 0)
MODEL_BYTES(__vcmpltu4, uint8_t, a < b ? 255 : 0)
MODEL_BYTES(__vcmpleu4, uint8_t, a <= b ? 255 : 0)
MODEL_BYTES(__vcmpgtu4, uint8_t, a > b ? 255 : 0)
MODEL_BYTES(__vcmpgeu4, uint8_t, a >= b ? 255 : 0)
MODEL_BYTES(__vseteq4, uint8_t, a == b)
MODEL_BYTES(__vsetne4, uint8_t, a != b)
MODEL_BYTES(__vadd4, uint8_t, a + b)
MODEL_BYTES(__vsub4, uint8_t, a - b)
MODEL_BYTES(__vminu4, uint8_t, a < b ? a : b)
MODEL_BYTES(__vmaxu4, uint8_t, a > b ? a : b)
MODEL_BYTES(__vmins4, int8_t, a < b ? a : b)
MODEL_BYTES(__vmaxs4, int8_t, a > b ? a : b)
#undef MODEL_BYTES

/* --- The same bits as another type --- */
#define MODEL_BIT_CAST(name, from, to)                                                                       \
    static inline to name(from value)                                                                        \
    {                                                                                                        \
        return model_bits<to>(value);                                                                        \
    }
MODEL_BIT_CAST(__float_as_uint, float, unsigned)
MODEL_BIT_CAST(__float_as_int, float, int)
MODEL_BIT_CAST(__uint_as_float, unsigned, float)
MODEL_BIT_CAST(__int_as_float, int, float)
MODEL_BIT_CAST(__double_as_longlong, double, long long)
MODEL_BIT_CAST(__longlong_as_double, long long, double)
#undef MODEL_BIT_CAST

/* --- Arithmetic with one named rounding --- */
#define MODEL_ROUNDED(name, type, expression)                                                                \
    static inline type name(type a, type b)                                                                  \
    {                                                                                                        \
        return expression;                                                                                   \
    }
MODEL_ROUNDED(__fadd_rn, float, a + b)
MODEL_ROUNDED(__fsub_rn, float, a - b)
MODEL_ROUNDED(__fmul_rn, float, a *b)
MODEL_ROUNDED(__fdiv_rn, float, a / b)
MODEL_ROUNDED(__dadd_rn, double, a + b)
MODEL_ROUNDED(__dsub_rn, double, a - b)
MODEL_ROUNDED(__dmul_rn, double, a *b)
MODEL_ROUNDED(__ddiv_rn, double, a / b)
#undef MODEL_ROUNDED

static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}

static inline double __fma_rn(double a, double b, double c)
{
    return fma(a, b, c);
}

static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}

static inline double __dsqrt_rn(double a)
{
    return sqrt(a);
}

static inline float __frcp_rn(float a)
{
    return 1.0F / a;
}

/* --- Conversions: out of range gives the nearest end; NaN gives 0 (32 bits) --- */
static inline int model_to_int(float value)
{
    return value >= 0x1p31F ? INT32_MAX : value < -0x1p31F ? INT32_MIN : isnan(value) ? 0 : (int)value;
}

static inline unsigned model_to_uint(float value)
{
    return value >= 0x1p32F ? UINT32_MAX : !(value > -1.0F) ? 0 : (unsigned)value;
}

static inline int __float2int_rn(float value)
{
    return model_to_int(rintf(value));
}

static inline int __float2int_rz(float value)
{
    return model_to_int(truncf(value));
}

static inline int __float2int_rd(float value)
{
    return model_to_int(floorf(value));
}

static inline unsigned __float2uint_rn(float value)
{
    return model_to_uint(rintf(value));
}

static inline unsigned __float2uint_rz(float value)
{
    return model_to_uint(truncf(value));
}

static inline float __int2float_rn(int value)
{
    return (float)value;
}

static inline float __uint2float_rn(unsigned value)
{
    return (float)value;
}

static inline float __ull2float_rn(unsigned long long value)
{
    return (float)value;
}

static inline float __double2float_rn(double value)
{
    return (float)value;
}

static inline double __uint2double_rn(unsigned value)
{
    return (double)value;
}

/* --- Loads and stores with a hint to the caches --- */
#define MODEL_LOAD(name)                                                                                     \
    template <typename type> static inline type name(const type *address)                                    \
    {                                                                                                        \
        return *address;                                                                                     \
    }
MODEL_LOAD(__ldg)
MODEL_LOAD(__ldca)
MODEL_LOAD(__ldcg)
MODEL_LOAD(__ldcs)
MODEL_LOAD(__ldlu)
#undef MODEL_LOAD

#define MODEL_STORE(name)                                                                                    \
    template <typename type> static inline void name(type *address, type value)                              \
    {                                                                                                        \
        *address = value;                                                                                    \
    }
MODEL_STORE(__stwb)
MODEL_STORE(__stcg)
MODEL_STORE(__stcs)
MODEL_STORE(__stwt)
#undef MODEL_STORE

#endif
