/*
 * Floats in sixteen bits and in int8: the arithmetic of batch_round and batch_quantize (batch.h) for every
 * variant, CPU and GPU, one number at a time and without branches, so that compilers can vectorize it. All
 * functions work on the bits of a float.
 *
 * Both ways of rounding do the same: `below`, a number of sixteen bits, is added at the bits that will be
 * dropped, and the sum is truncated. Stochastic rounding takes random bits for `below`, so a number goes up
 * with a probability of its distance from the lower neighbour; rounding to nearest even takes half a step
 * less one, or half a step if the last kept bit is set.
 */
#ifndef LEAT_KERNELS_ROUNDING_H
#define LEAT_KERNELS_ROUNDING_H

#include "kernels/num.h"

#include <stdbool.h>
#include <string.h>

static inline KERNELS_BOTH uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline KERNELS_BOTH float bits_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Neither NaN nor infinite. */
static inline KERNELS_BOTH bool float_is_finite(float x)
{
    return (float_bits(x) & 0x7f800000U) != 0x7f800000U;
}

/*
 * Random bits: splitmix64 (Steele, Lea, Flood 2014), started at rounding_begin(seed, number); element i takes
 * sixteen bits of word i / 4, from bit 16 * (i % 4) on.
 */
static inline KERNELS_BOTH uint64_t rounding_begin(uint64_t seed, uint64_t number)
{
    return num_mix(seed ^ num_mix(number));
}

static inline KERNELS_BOTH uint64_t rounding_word(uint64_t begin, uint64_t index)
{
    return num_mix(begin + (index + 1) * 0x9e3779b97f4a7c15U);
}

static inline KERNELS_BOTH uint32_t rounding_random(uint64_t word, unsigned i)
{
    return (uint32_t)(word >> 16 * i) & 0xffffU;
}

/* bf16: the upper half of a float's bits. */
static inline KERNELS_BOTH uint16_t bf16_of(uint32_t bits, uint32_t random, bool is_nearest)
{
    uint32_t size = bits & 0x7fffffffU;
    uint32_t below = is_nearest ? 0x7fffU + (size >> 16 & 1U) : random;
    uint32_t cut = size + below;
    cut = cut > 0x7f7fffffU ? 0x7f7fffffU : cut;
    cut = cut > size ? cut : size; /* infinity stays: no other number is above the limit */
    cut |= bits & 0x80000000U;
    return (uint16_t)(size > 0x7f800000U ? 0x7fc0U : cut >> 16);
}

/*
 * fp16. Normal numbers drop thirteen bits, so the upper thirteen random bits are added to them. Below 2^-14
 * the grid is 2^-24: numbers are truncated to 2^-40, sixteen bits below the grid, before the random bits are
 * added; with rounding to nearest, the last of these sixteen bits stands for all truncated ones. Integers
 * alone: a compiler may not move float arithmetic out of a branch. most: the bits of the result for numbers
 * beyond the range.
 */
static inline KERNELS_BOTH uint16_t fp16_up_to(uint32_t most, uint32_t bits, uint32_t random, bool is_nearest)
{
    uint32_t size = bits & 0x7fffffffU;
    uint32_t share = (size << 2 & 0x1ffffffU) | 0x2000000U, down = 112U - (size >> 23);
    down = down > 31U ? 31U : down;
    uint32_t tiny = share >> down;
    if (is_nearest)
        tiny += (uint32_t)(tiny << down != share && (tiny & 1U) == 0U) + 0x7fffU + (tiny >> 16 & 1U);
    else
        tiny += random;
    uint32_t below = is_nearest ? 0xfffU + (size >> 13 & 1U) : random >> 3;
    uint32_t cut = (size - 0x38000000U + below) >> 13;
    cut = cut > most ? most : cut;
    cut = size < 0x38800000U ? tiny >> 16 : cut;
    cut = size == 0x7f800000U ? 0x7c00U : cut;
    cut |= bits >> 16 & 0x8000U;
    return (uint16_t)(size > 0x7f800000U ? 0x7e00U : cut);
}

static inline KERNELS_BOTH uint16_t fp16_of(uint32_t bits, uint32_t random, bool is_nearest)
{
    return fp16_up_to(0x7bffU, bits, random, is_nearest);
}

/* fp16 to nearest even as in IEEE 754: numbers beyond the range become infinity. */
static inline KERNELS_BOTH uint16_t fp16_ieee(uint32_t bits)
{
    return fp16_up_to(0x7c00U, bits, 0, true);
}

static inline KERNELS_BOTH float float_of_bf16(uint16_t x)
{
    return bits_float((uint32_t)x << 16);
}

/* fp16 to float. A denormal x becomes 2^-14 + x, by its bits, and 2^-14 is subtracted. */
static inline KERNELS_BOTH float float_of_fp16(uint16_t x)
{
    uint32_t sign = (x & 0x8000U) << 16, size = (x & 0x7fffU) << 13;
    uint32_t normal = size + (size >= 0x0f800000U ? 0x70000000U : 0x38000000U);
    uint32_t denormal = float_bits(bits_float(size + 0x38800000U) - 0x1p-14F);
    return bits_float(sign | (size < 0x00800000U ? denormal : normal));
}

/* int8: the divisor of a row's weights. largest: the bits of the row's largest |w|. */
static inline KERNELS_BOTH float int8_scale(uint32_t largest)
{
    float scale = bits_float(largest) / 127.0F;
    scale = scale < 0x1p-126F ? 0.0F : scale;
    return largest >= 0x7f800000U ? bits_float(0x7fc00000U) : scale;
}

/* w / scale to nearest even: the last byte of the float 1.5 * 2^23 + w / scale. */
static inline KERNELS_BOTH int8_t int8_of(float w, float scale)
{
    bool is_usable = scale > 0.0F; /* neither 0 nor NaN */
    float share = is_usable ? w / scale : 0.0F;
    return (int8_t)(uint8_t)float_bits(share + 12582912.0F);
}

#endif
