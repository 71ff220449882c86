/*
 * exp, log, the sigmoid and the logistic loss in double, made of exactly defined operations only: libm's bits
 * depend on its version, these do not. Compiled once, without contraction to fma; every kernel variant uses
 * the same code. Any thread.
 */
#ifndef LEAT_KERNELS_NUM_H
#define LEAT_KERNELS_NUM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* KERNELS_BOTH: functions that device code calls as well. */
#ifdef __CUDACC__
#define KERNELS_BOTH __host__ __device__
#else
#define KERNELS_BOTH
#endif

/* e^x, relative error < 4e-16; 0 below -708, infinity above 709; NaN stays NaN. */
double num_exp(double x);

/* log(x) for normal x > 0, relative error < 1e-15 (absolute near 1). */
double num_log(double x);

/* log(1 + t) for t in [0, 1], relative error < 1e-15. */
double num_log1p_unit(double t);

/* 1 / (1 + e^-x); NaN stays NaN. */
double num_sigmoid(double x);

/* log(1 + e^x) - label * x: the logistic loss of logit x, finite for every finite x. */
double num_logloss(double logit, double label);

/* The finalizer of splitmix64: a bijection of 64 bits. */
static inline KERNELS_BOTH uint64_t num_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

/* The hash of which all chance of a learner is made: from its seed, from the step or the record's identity,
 * and from the place where it is needed (which layer, which draw). */
static inline KERNELS_BOTH uint64_t num_chance(uint64_t seed, uint64_t identity, uint64_t place)
{
    return num_mix(num_mix(num_mix(seed + 0x9e3779b97f4a7c15U) ^ identity) + place * 0x9e3779b97f4a7c15U);
}

#ifdef __cplusplus
}
#endif
#endif
