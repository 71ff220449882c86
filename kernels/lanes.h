/*
 * The vocabulary of all vector kernels: operations ("words") on sixteen float lanes (v16) and eight double
 * lanes (d8).
 *
 * A kernel is written once, in these words, and compiled three times (variant_scalar.c, variant_avx2.c,
 * variant_avx512.c). Every word is defined lane by lane through IEEE 754 operations that are exact or
 * correctly rounded (add, mul, fma, div, sqrt, integer shifts), so the variants agree bit for bit by
 * construction: only the payload and sign of a NaN may differ. Reductions are words too, each with one fixed
 * tree. There is no word for rsqrtps and similar instructions, whose bits differ by vendor.
 *
 * Loads and stores need no alignment. The _n forms take n in 0..16 (d8: 0..8): lanes n and up are loaded as
 * zero, and not stored.
 */
#ifndef LEAT_KERNELS_LANES_H
#define LEAT_KERNELS_LANES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Not always_inline in instrumented scalar code, which the compiler would need minutes for. */
#if defined(KERNELS_LANES_CUDA)
#define LANES_INLINE static __forceinline__ __device__ __attribute__((unused))
#elif defined(KERNELS_LANES_SCALAR) && (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__))
#define LANES_INLINE static __attribute__((unused))
/* Words of values alone have no memory that a sanitizer could watch; test_attention takes a third of the time so. */
#define LANES_VALUES                                                                                         \
    static __attribute__((unused, noinline, optimize("O3"), no_sanitize("address", "undefined", "thread")))
#else
#define LANES_INLINE static inline __attribute__((always_inline, unused))
#endif
#ifndef LANES_VALUES
#define LANES_VALUES LANES_INLINE
#endif

#if defined(KERNELS_LANES_CUDA)
#include "cuda/lanes.cuh" /* defines a part of the words */
#elif defined(KERNELS_LANES_AVX512)
#include "lanes_avx512.h"
#elif defined(KERNELS_LANES_AVX2)
#include "lanes_avx2.h"
#else
#include "lanes_scalar.h"
#endif
#ifndef KERNELS_LANES_CUDA
#include "lanes_formats.h"
#endif

/*
 * 1/sqrt(x) by an integer guess, one Newton step with constants fitted to the guess (Walczyk, Moroz,
 * Cieslinski 2021) and a plain Newton step: relative error < 8e-7 for normal x. x = 0 gives a huge finite
 * number; NaN and negative x give meaningless numbers: callers keep x at a positive epsilon or above.
 */
LANES_INLINE v16 v16_rsqrt(v16 x)
{
    v16 y = v16_rsqrt_guess(x);
    v16 t = v16_fnma(v16_mul(x, y), y, v16_set1(2.38924456F));
    y = v16_mul(v16_mul(y, v16_set1(0.703952253F)), t);
    v16 part = v16_mul(x, v16_set1(0.5F));
    t = v16_fnma(v16_mul(part, y), y, v16_set1(0.5F)); /* (1 - x y^2) / 2 */
    return v16_fma(y, t, y);
}

/* Limits x to [-bound, bound]; a NaN becomes -bound. */
LANES_INLINE v16 v16_clamp(v16 x, v16 bound)
{
    return v16_min(v16_max(x, v16_sub(v16_set1(0.0F), bound)), bound);
}

/* exp(x) for |x| <= 87 in fma: Cody-Waite reduction, degree 6 (Cephes expf); relative error < 2e-7. */
LANES_INLINE v16 v16_exp(v16 x)
{
    v16 round = v16_set1(12582912.0F); /* 1.5 * 2^23: adding and subtracting it rounds to an integer */
    v16 k = v16_sub(v16_fma(x, v16_set1(1.44269504F), round), round);
    v16 r = v16_fnma(k, v16_set1(0.693359375F), x);
    r = v16_fnma(k, v16_set1(-2.12194440e-4F), r);
    v16 p = v16_set1(1.9875691500e-4F);
    p = v16_fma(p, r, v16_set1(1.3981999507e-3F));
    p = v16_fma(p, r, v16_set1(8.3334519073e-3F));
    p = v16_fma(p, r, v16_set1(4.1665795894e-2F));
    p = v16_fma(p, r, v16_set1(1.6666665459e-1F));
    p = v16_fma(p, r, v16_set1(5.0000001201e-1F));
    p = v16_fma(v16_mul(r, r), p, v16_add(r, v16_set1(1.0F)));
    return v16_ldexp(p, k);
}

/* e^x for x <= 0, and 0 below -87; NaN stays NaN. The result for x > 0 is undefined. */
LANES_INLINE v16 v16_exp_below0(v16 x)
{
    v16 least = v16_set1(-87.0F);
    v16 power = v16_keep_gt(v16_exp(v16_clamp(x, v16_set1(87.0F))), x, least); /* NaN gives 0 */
    return v16_fma(v16_max(least, x), v16_set1(0.0F), power);                  /* for a NaN x, max gives x */
}

#endif
