/*
 * The words of kernels/lanes.h that optimizer_step.inc.h, logistic.inc.h and other shared arithmetic use, for
 * a thread of a GPU: here a v16 holds four of a vector's sixteen lanes, so that four threads together hold
 * what a CPU has in one v16. Each operation is rounded as on a CPU (nvcc -fmad=false, no flushing of
 * denormals). lanes.h includes this file if KERNELS_LANES_CUDA is defined.
 */
#ifndef LEAT_KERNELS_CUDA_LANES_CUH
#define LEAT_KERNELS_CUDA_LANES_CUH

#include "kernels/cuda/cuda.cuh"
#include "kernels/rounding.h"

struct alignas(16) v16 {
    float f[4];
};
/* One of a vector's eight doubles. */
struct d8 {
    double f;
};

#define LANES_EACH(expr)                                                                                     \
    v16 r;                                                                                                   \
    for (int i = 0; i < 4; i++)                                                                              \
        r.f[i] = (expr);                                                                                     \
    return r

LANES_INLINE v16 v16_set1(float x)
{
    LANES_EACH(x);
}
LANES_INLINE v16 v16_of(float4 x)
{
    v16 r = {{x.x, x.y, x.z, x.w}};
    return r;
}
/* p: 16 bytes, aligned to 16. */
LANES_INLINE v16 v16_load(const float *p)
{
    return v16_of(*(const float4 *)(const void *)p);
}
LANES_INLINE void v16_store(float *p, v16 a)
{
    *(float4 *)(void *)p = make_float4(a.f[0], a.f[1], a.f[2], a.f[3]);
}
LANES_INLINE v16 v16_add(v16 a, v16 b)
{
    LANES_EACH(a.f[i] + b.f[i]);
}
LANES_INLINE v16 v16_sub(v16 a, v16 b)
{
    LANES_EACH(a.f[i] - b.f[i]);
}
LANES_INLINE v16 v16_mul(v16 a, v16 b)
{
    LANES_EACH(a.f[i] * b.f[i]);
}
LANES_INLINE v16 v16_div(v16 a, v16 b)
{
    LANES_EACH(a.f[i] / b.f[i]);
}
LANES_INLINE v16 v16_sqrt(v16 a)
{
    LANES_EACH(sqrtf(a.f[i]));
}
LANES_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    LANES_EACH(fmaf(a.f[i], b.f[i], c.f[i]));
}
LANES_INLINE v16 v16_fnma(v16 a, v16 b, v16 c)
{
    LANES_EACH(fmaf(-a.f[i], b.f[i], c.f[i]));
}
LANES_INLINE v16 v16_max(v16 a, v16 b)
{
    LANES_EACH(a.f[i] > b.f[i] ? a.f[i] : b.f[i]);
}
LANES_INLINE v16 v16_min(v16 a, v16 b)
{
    LANES_EACH(a.f[i] < b.f[i] ? a.f[i] : b.f[i]);
}
LANES_INLINE v16 v16_keep_gt(v16 x, v16 a, v16 b)
{
    LANES_EACH(a.f[i] > b.f[i] ? x.f[i] : 0.0F);
}
LANES_INLINE v16 v16_copysign(v16 a, v16 b)
{
    LANES_EACH(copysignf(a.f[i], b.f[i]));
}
LANES_INLINE v16 v16_abs(v16 a)
{
    LANES_EACH(fabsf(a.f[i]));
}
LANES_INLINE v16 v16_rsqrt_guess(v16 a)
{
    LANES_EACH(bits_float(0x5f1ffff9U - (float_bits(a.f[i]) >> 1)));
}
LANES_INLINE v16 v16_ldexp(v16 a, v16 k)
{
    LANES_EACH(a.f[i] * bits_float((uint32_t)((int32_t)k.f[i] + 127) << 23));
}
/* The thread's four lanes are one group. */
LANES_INLINE v16 v16_group_sum(v16 a)
{
    return v16_set1((a.f[0] + a.f[2]) + (a.f[1] + a.f[3]));
}
LANES_INLINE v16 v16_group_squares1(v16 a)
{
    return v16_set1(fmaf(a.f[2], a.f[2], a.f[0] * a.f[0]) + fmaf(a.f[3], a.f[3], a.f[1] * a.f[1]));
}

#undef LANES_EACH

LANES_INLINE d8 d8_set1(double x)
{
    d8 r = {x};
    return r;
}
LANES_INLINE d8 d8_add(d8 a, d8 b)
{
    return d8_set1(a.f + b.f);
}
LANES_INLINE d8 d8_sub(d8 a, d8 b)
{
    return d8_set1(a.f - b.f);
}
LANES_INLINE d8 d8_mul(d8 a, d8 b)
{
    return d8_set1(a.f * b.f);
}
LANES_INLINE d8 d8_div(d8 a, d8 b)
{
    return d8_set1(a.f / b.f);
}
LANES_INLINE d8 d8_sqrt(d8 a)
{
    return d8_set1(sqrt(a.f));
}
LANES_INLINE d8 d8_keep_gt(d8 x, d8 a, d8 b)
{
    return d8_set1(a.f > b.f ? x.f : 0.0);
}
LANES_INLINE d8 d8_copysign(d8 a, d8 b)
{
    return d8_set1(copysign(a.f, b.f));
}
LANES_INLINE d8 d8_abs(d8 a)
{
    return d8_set1(fabs(a.f));
}

#endif
