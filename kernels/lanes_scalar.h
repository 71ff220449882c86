/* lanes.h in plain C. fmaf comes from libm and is correctly rounded whether or not the CPU has it. */
#ifndef LEAT_KERNELS_LANES_SCALAR_H
#define LEAT_KERNELS_LANES_SCALAR_H

typedef struct {
    float f[16];
} v16;
typedef struct {
    double f[8];
} d8;
enum { LANES_REGISTERS = 8 }; /* vector registers that v16 values can use */

#define LANES_EACH(type, n, expr)                                                                            \
    type r;                                                                                                  \
    for (int i = 0; i < (n); i++)                                                                            \
        r.f[i] = (expr);                                                                                     \
    return r

LANES_VALUES v16 v16_set1(float x)
{
    LANES_EACH(v16, 16, x);
}
LANES_INLINE v16 v16_load(const float *p)
{
    LANES_EACH(v16, 16, p[i]);
}
LANES_INLINE void v16_store(float *p, v16 a)
{
    memcpy(p, a.f, sizeof(a.f));
}
LANES_INLINE v16 v16_load_n(const float *p, size_t n)
{
    LANES_EACH(v16, 16, (size_t)i < n ? p[i] : 0.0F);
}
LANES_INLINE void v16_store_n(float *p, v16 a, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = a.f[i];
}
LANES_INLINE v16 v16_load4x4(const float *a, const float *b, const float *c, const float *d)
{
    v16 r;
    memcpy(r.f, a, 16);
    memcpy(r.f + 4, b, 16);
    memcpy(r.f + 8, c, 16);
    memcpy(r.f + 12, d, 16);
    return r;
}
LANES_INLINE void v16_store4x4(float *a, float *b, float *c, float *d, v16 v)
{
    memcpy(a, v.f, 16);
    memcpy(b, v.f + 4, 16);
    memcpy(c, v.f + 8, 16);
    memcpy(d, v.f + 12, 16);
}
/* group g of vector k: lane k of group g of each of the four vectors (a 4x4 transpose of each group) */
LANES_INLINE void v16_transpose_groups(v16 v[4])
{
    v16 old[4];
    memcpy(old, v, sizeof(old));
    for (int k = 0; k < 4; k++)
        for (int l = 0; l < 16; l++)
            v[k].f[l] = old[l % 4].f[l / 4 * 4 + k];
}
/* vector k: group k of each of the four vectors */
LANES_INLINE void v16_transpose_vectors(v16 v[4])
{
    v16 old[4];
    memcpy(old, v, sizeof(old));
    for (int k = 0; k < 4; k++)
        for (int l = 0; l < 16; l++)
            v[k].f[l] = old[l / 4].f[4 * k + l % 4];
}
/* v16_transpose_vectors of four vectors in memory */
LANES_INLINE void v16_load_transposed(v16 v[4], const float *a, const float *b, const float *c,
                                      const float *d)
{
    for (int k = 0; k < 4; k++)
        v[k] = v16_load4x4(a + 4 * k, b + 4 * k, c + 4 * k, d + 4 * k);
}
/* lane 4 k + l becomes lane 4 l + k: transpose of a 4x4 matrix */
LANES_VALUES v16 v16_transpose(v16 a)
{
    LANES_EACH(v16, 16, a.f[i % 4 * 4 + i / 4]);
}
/* group k becomes zero */
LANES_VALUES v16 v16_clear_group(v16 v, int k)
{
    memset(v.f + 4 * k, 0, 16);
    return v;
}
/* float p[g] in all four lanes of group g */
LANES_INLINE v16 v16_spread4(const float *p)
{
    LANES_EACH(v16, 16, p[i / 4]);
}
/* base[index[i]] for n in 0..16 indices below 2^31; lanes whose index is UINT32_MAX, and lanes from n on, get
 * -0, which changes no sum */
LANES_INLINE v16 v16_gather(const float *base, const uint32_t *index, size_t n)
{
    LANES_EACH(v16, 16, (size_t)i < n && index[i] != UINT32_MAX ? base[index[i]] : -0.0F);
}
/* lane i: p[i][0], and p[i][1] in *seconds, for n in 1..16 pointers; lanes from n on repeat a pair */
LANES_INLINE v16 v16_load_pairs(float *const *p, size_t n, v16 *seconds)
{
    v16 r;
    for (size_t i = 0; i < 16; i++) {
        const float *pair = p[i < n ? i : 0];
        r.f[i] = pair[0];
        seconds->f[i] = pair[1];
    }
    return r;
}
LANES_INLINE void v16_store_pairs(float *const *p, size_t n, v16 a, v16 seconds)
{
    for (size_t i = 0; i < n; i++)
        p[i][0] = a.f[i], p[i][1] = seconds.f[i];
}
/* lanes below n from a, the others from b */
LANES_VALUES v16 v16_head(v16 a, v16 b, size_t n)
{
    LANES_EACH(v16, 16, (size_t)i < n ? a.f[i] : b.f[i]);
}
LANES_VALUES v16 v16_add(v16 a, v16 b)
{
    LANES_EACH(v16, 16, a.f[i] + b.f[i]);
}
LANES_VALUES v16 v16_sub(v16 a, v16 b)
{
    LANES_EACH(v16, 16, a.f[i] - b.f[i]);
}
LANES_VALUES v16 v16_mul(v16 a, v16 b)
{
    LANES_EACH(v16, 16, a.f[i] * b.f[i]);
}
LANES_VALUES v16 v16_div(v16 a, v16 b)
{
    LANES_EACH(v16, 16, a.f[i] / b.f[i]);
}
LANES_VALUES v16 v16_sqrt(v16 a)
{
    LANES_EACH(v16, 16, sqrtf(a.f[i]));
}
LANES_VALUES v16 v16_fma(v16 a, v16 b, v16 c)
{
    LANES_EACH(v16, 16, fmaf(a.f[i], b.f[i], c.f[i]));
}
LANES_VALUES v16 v16_fnma(v16 a, v16 b, v16 c)
{
    LANES_EACH(v16, 16, fmaf(-a.f[i], b.f[i], c.f[i]));
}
LANES_VALUES v16 v16_max(v16 a, v16 b)
{
    LANES_EACH(v16, 16, a.f[i] > b.f[i] ? a.f[i] : b.f[i]);
}
LANES_VALUES v16 v16_min(v16 a, v16 b)
{
    LANES_EACH(v16, 16, a.f[i] < b.f[i] ? a.f[i] : b.f[i]);
}
/* x where a > b, else 0 */
LANES_VALUES v16 v16_keep_gt(v16 x, v16 a, v16 b)
{
    LANES_EACH(v16, 16, a.f[i] > b.f[i] ? x.f[i] : 0.0F);
}
/* |a| with the sign of b */
LANES_VALUES v16 v16_copysign(v16 a, v16 b)
{
    LANES_EACH(v16, 16, copysignf(a.f[i], b.f[i]));
}
LANES_VALUES v16 v16_abs(v16 a)
{
    LANES_EACH(v16, 16, fabsf(a.f[i]));
}
LANES_VALUES v16 v16_rsqrt_guess(v16 a)
{
    v16 r;
    for (int i = 0; i < 16; i++) {
        uint32_t bits;
        memcpy(&bits, &a.f[i], 4);
        bits = 0x5f1ffff9U - (bits >> 1);
        memcpy(&r.f[i], &bits, 4);
    }
    return r;
}
/* 2^k * a where k is an integer and 2^k is a normal number */
LANES_VALUES v16 v16_ldexp(v16 a, v16 k)
{
    v16 r;
    for (int i = 0; i < 16; i++) {
        uint32_t bits = (uint32_t)((int32_t)k.f[i] + 127) << 23;
        float scale;
        memcpy(&scale, &bits, 4);
        r.f[i] = a.f[i] * scale;
    }
    return r;
}
/* the tree of all sums: lanes i and i + 8 are added, then i + 4, i + 2, i + 1 */
LANES_VALUES float v16_sum(v16 a)
{
    for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; i++)
            a.f[i] += a.f[i + half];
    }
    return a.f[0];
}
/* v16_sum of each of the four vectors */
LANES_INLINE void v16_sums(float out[4], v16 a, v16 b, v16 c, v16 d)
{
    out[0] = v16_sum(a), out[1] = v16_sum(b), out[2] = v16_sum(c), out[3] = v16_sum(d);
}
/* out[g] = sum of group g of four lanes: (l0 + l2) + (l1 + l3) */
LANES_INLINE void v16_sum4(float out[4], v16 a)
{
    for (int g = 0; g < 4; g++) {
        const float *l = a.f + (size_t)g * 4;
        out[g] = (l[0] + l[2]) + (l[1] + l[3]);
    }
}

/* each lane gets the sum of its group of four: (l0 + l2) + (l1 + l3) */
LANES_VALUES v16 v16_group_sum(v16 a)
{
    float sums[4];
    v16_sum4(sums, a);
    return v16_spread4(sums);
}
/* lane 4 v + k: the sum of group k of vector v of the four: (l0 + l2) + (l1 + l3) */
LANES_VALUES v16 v16_group_sums(v16 a, v16 b, v16 c, v16 d)
{
    v16 r;
    v16_sum4(r.f, a);
    v16_sum4(r.f + 4, b);
    v16_sum4(r.f + 8, c);
    v16_sum4(r.f + 12, d);
    return r;
}
/* v16_group_sums of the squares: (l0^2 + l2^2) + (l1^2 + l3^2), the inner sums by fma */
LANES_VALUES v16 v16_group_squares(v16 a, v16 b, v16 c, v16 d)
{
    v16 r;
    const v16 *of[] = {&a, &b, &c, &d};
    for (size_t i = 0; i < 16; i++) {
        const float *l = of[i / 4]->f + i % 4 * 4;
        r.f[i] = fmaf(l[2], l[2], l[0] * l[0]) + fmaf(l[3], l[3], l[1] * l[1]);
    }
    return r;
}
/* lane 4 v + g in all four lanes of group g */
LANES_VALUES v16 v16_group_pick(v16 a, int v)
{
    return v16_spread4(a.f + (size_t)v * 4);
}
/* eight floats from each of two addresses */
LANES_INLINE v16 v16_load_halves(const float *lo, const float *hi)
{
    LANES_EACH(v16, 16, i < 8 ? lo[i] : hi[i - 8]);
}
LANES_INLINE void v16_store_halves(float *lo, float *hi, v16 a)
{
    memcpy(lo, a.f, 8 * sizeof(*lo));
    memcpy(hi, a.f + 8, 8 * sizeof(*hi));
}
/* stores the first lane of each group */
LANES_INLINE void v16_store_groups(float *p, v16 a)
{
    for (size_t g = 0; g < 4; g++)
        p[g] = a.f[g * 4];
}

LANES_VALUES d8 d8_set1(double x)
{
    LANES_EACH(d8, 8, x);
}
LANES_INLINE d8 d8_load(const double *p)
{
    LANES_EACH(d8, 8, p[i]);
}
LANES_INLINE d8 d8_load_n(const double *p, size_t n)
{
    LANES_EACH(d8, 8, (size_t)i < n ? p[i] : 0.0);
}
LANES_INLINE void d8_store(double *p, d8 a)
{
    memcpy(p, a.f, sizeof(a.f));
}
LANES_INLINE void d8_store_n(double *p, d8 a, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = a.f[i];
}
LANES_VALUES d8 d8_add(d8 a, d8 b)
{
    LANES_EACH(d8, 8, a.f[i] + b.f[i]);
}
LANES_VALUES d8 d8_sub(d8 a, d8 b)
{
    LANES_EACH(d8, 8, a.f[i] - b.f[i]);
}
LANES_VALUES d8 d8_mul(d8 a, d8 b)
{
    LANES_EACH(d8, 8, a.f[i] * b.f[i]);
}
LANES_VALUES d8 d8_div(d8 a, d8 b)
{
    LANES_EACH(d8, 8, a.f[i] / b.f[i]);
}
LANES_VALUES d8 d8_sqrt(d8 a)
{
    LANES_EACH(d8, 8, sqrt(a.f[i]));
}
LANES_VALUES d8 d8_max(d8 a, d8 b)
{
    LANES_EACH(d8, 8, a.f[i] > b.f[i] ? a.f[i] : b.f[i]);
}
LANES_VALUES d8 d8_min(d8 a, d8 b)
{
    LANES_EACH(d8, 8, a.f[i] < b.f[i] ? a.f[i] : b.f[i]);
}
LANES_VALUES d8 d8_keep_gt(d8 x, d8 a, d8 b)
{
    LANES_EACH(d8, 8, a.f[i] > b.f[i] ? x.f[i] : 0.0);
}
LANES_VALUES d8 d8_copysign(d8 a, d8 b)
{
    LANES_EACH(d8, 8, copysign(a.f[i], b.f[i]));
}
LANES_VALUES d8 d8_abs(d8 a)
{
    LANES_EACH(d8, 8, fabs(a.f[i]));
}
LANES_VALUES double d8_sum(d8 a)
{
    for (int half = 4; half > 0; half /= 2) {
        for (int i = 0; i < half; i++)
            a.f[i] += a.f[i + half];
    }
    return a.f[0];
}

#undef LANES_EACH
#endif
