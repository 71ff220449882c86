/* Arithmetic for the generator that gives the same bits on every machine: integers, and doubles with IEEE's
 * exact or correctly rounded operations only (+ - * / sqrt, no contraction, no libm). Random numbers are
 * functions of (seed, purpose, number), so any record can be made without the records before it. Any
 * thread. */
#ifndef LEAT_CONNECTORS_GENERATOR_CTR_MATH_H
#define LEAT_CONNECTORS_GENERATOR_CTR_MATH_H

#include "core/base.h"

/* A sequence of 64-bit numbers (SplitMix64; Steele, Lea and Flood 2014). */
struct ctr_random {
    uint64_t state;
};

static inline uint64_t ctr_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* The sequence of (seed, purpose, number). */
static inline struct ctr_random ctr_random_at(uint64_t seed, uint64_t purpose, uint64_t number)
{
    uint64_t key = ctr_mix(seed + UINT64_C(0x9e3779b97f4a7c15) * (purpose + 1));
    return (struct ctr_random){ctr_mix(key ^ ctr_mix(number + UINT64_C(0x632be59bd9b4e019)))};
}

static inline uint64_t ctr_next(struct ctr_random *random)
{
    return ctr_mix(random->state += UINT64_C(0x9e3779b97f4a7c15));
}

/* Uniform integer with 0 <= result < bound. */
static inline uint32_t ctr_below(struct ctr_random *random, uint32_t bound)
{
    return (uint32_t)((ctr_next(random) >> 32) * bound >> 32);
}

/* Uniform in (0, 1), never 0 or 1, so that its logarithm is finite. */
static inline double ctr_uniform(struct ctr_random *random)
{
    return ((double)(ctr_next(random) >> 12) + 0.5) * 0x1p-52;
}

/* Nearest integer, ties upwards; |x| < 2^62. */
static inline int64_t ctr_round(double x)
{
    int64_t whole = (int64_t)(x + 0.5);
    return (double)whole > x + 0.5 ? whole - 1 : whole;
}

/* Relative error below 1e-12; x in [-700, 700]. */
static inline double ctr_exp(double x)
{
    int64_t power = ctr_round(x * 1.44269504088896340736);
    double r = (x - (double)power * 0.693147180369123816490) - (double)power * 1.90821492927058770002e-10;
    double sum = 1.0;
    for (int k = 12; k >= 1; k--)
        sum = 1.0 + sum * r / k;
    uint64_t bits = (uint64_t)(power + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof(scale));
    return sum * scale;
}

/* Absolute error below 1e-12; x positive, normal and finite. */
static inline double ctr_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    int64_t power = (int64_t)(bits >> 52) - 1023;
    bits = (bits & UINT64_C(0xfffffffffffff)) | UINT64_C(1023) << 52;
    double m;
    memcpy(&m, &bits, sizeof(m));
    if (m > 1.41421356237309504880) {
        m *= 0.5;
        power++;
    }
    double s = (m - 1.0) / (m + 1.0), square = s * s, sum = 0.0;
    for (int k = 15; k >= 1; k -= 2)
        sum = 1.0 / k + sum * square;
    return (double)power * 0.69314718055994530942 + 2.0 * s * sum;
}

/* sin(2 pi turns); absolute error below 1e-9. */
static inline double ctr_sine(double turns)
{
    double t = turns - (double)ctr_round(turns);
    if (t > 0.25)
        t = 0.5 - t;
    else if (t < -0.25)
        t = -0.5 - t;
    double x = t * 6.28318530717958647693, square = x * x, sum = 1.0;
    for (int k = 13; k >= 3; k -= 2)
        sum = 1.0 - sum * square / (k * (k - 1));
    return x * sum;
}

/* x to the power s; x > 0. */
static inline double ctr_power(double x, double s)
{
    return ctr_exp(s * ctr_log(x));
}

/* Two independent standard normal numbers (Box and Muller 1958). */
static inline void ctr_normal(struct ctr_random *random, double *a, double *b)
{
    double radius = __builtin_sqrt(-2.0 * ctr_log(ctr_uniform(random)));
    double turns = ctr_uniform(random);
    *a = radius * ctr_sine(turns);
    *b = radius * ctr_sine(turns + 0.25);
}

#endif
