/* lanes.h in AVX-512 (F, DQ, VL, BW): one register a v16, one a d8. */
#ifndef LEAT_KERNELS_LANES_AVX512_H
#define LEAT_KERNELS_LANES_AVX512_H

#include "lanes_x86.h"

typedef __m512 v16;
typedef __m512d d8;
enum { LANES_REGISTERS = 32 }; /* vector registers that v16 values can use */

LANES_INLINE v16 v16_set1(float x)
{
    return _mm512_set1_ps(x);
}
LANES_INLINE v16 v16_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
LANES_INLINE void v16_store(float *p, v16 a)
{
    _mm512_storeu_ps(p, a);
}
LANES_INLINE __mmask16 v16_mask(size_t n)
{
    return (__mmask16)((1U << n) - 1U);
}
LANES_INLINE v16 v16_load_n(const float *p, size_t n)
{
    if (__builtin_constant_p(n) && n == 16)
        return v16_load(p);
    return _mm512_maskz_loadu_ps(v16_mask(n), p);
}
LANES_INLINE void v16_store_n(float *p, v16 a, size_t n)
{
    if (__builtin_constant_p(n) && n == 16) {
        v16_store(p, a);
        return;
    }
    _mm512_mask_storeu_ps(p, v16_mask(n), a);
}
LANES_INLINE v16 v16_load4x4(const float *a, const float *b, const float *c, const float *d)
{
    __m256 lo = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(a)), _mm_loadu_ps(b), 1);
    __m256 hi = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(c)), _mm_loadu_ps(d), 1);
    return _mm512_insertf32x8(_mm512_castps256_ps512(lo), hi, 1);
}
LANES_INLINE void v16_store4x4(float *a, float *b, float *c, float *d, v16 v)
{
    _mm_storeu_ps(a, _mm512_castps512_ps128(v));
    _mm_storeu_ps(b, _mm512_extractf32x4_ps(v, 1));
    _mm_storeu_ps(c, _mm512_extractf32x4_ps(v, 2));
    _mm_storeu_ps(d, _mm512_extractf32x4_ps(v, 3));
}
LANES_INLINE void v16_transpose_groups(v16 v[4])
{
    __m512 ab = _mm512_unpacklo_ps(v[0], v[1]), ab2 = _mm512_unpackhi_ps(v[0], v[1]);
    __m512 cd = _mm512_unpacklo_ps(v[2], v[3]), cd2 = _mm512_unpackhi_ps(v[2], v[3]);
    v[0] = _mm512_shuffle_ps(ab, cd, 0x44), v[1] = _mm512_shuffle_ps(ab, cd, 0xee);
    v[2] = _mm512_shuffle_ps(ab2, cd2, 0x44), v[3] = _mm512_shuffle_ps(ab2, cd2, 0xee);
}
LANES_INLINE void v16_transpose_vectors(v16 v[4])
{
    __m512 ab = _mm512_shuffle_f32x4(v[0], v[1], 0x44), ab2 = _mm512_shuffle_f32x4(v[0], v[1], 0xee);
    __m512 cd = _mm512_shuffle_f32x4(v[2], v[3], 0x44), cd2 = _mm512_shuffle_f32x4(v[2], v[3], 0xee);
    v[0] = _mm512_shuffle_f32x4(ab, cd, 0x88), v[1] = _mm512_shuffle_f32x4(ab, cd, 0xdd);
    v[2] = _mm512_shuffle_f32x4(ab2, cd2, 0x88), v[3] = _mm512_shuffle_f32x4(ab2, cd2, 0xdd);
}
/* Joins halves while loading, so that only one shuffle per vector is left. */
LANES_INLINE void v16_load_transposed(v16 v[4], const float *a, const float *b, const float *c,
                                      const float *d)
{
    for (int k = 0; k < 4; k += 2) {
        __m512 ab = _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(a + 4 * k)),
                                       _mm256_loadu_ps(b + 4 * k), 1);
        __m512 cd = _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(c + 4 * k)),
                                       _mm256_loadu_ps(d + 4 * k), 1);
        v[k] = _mm512_shuffle_f32x4(ab, cd, 0x88);
        v[k + 1] = _mm512_shuffle_f32x4(ab, cd, 0xdd);
    }
}
LANES_INLINE v16 v16_transpose(v16 a)
{
    __m512i turned = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    return _mm512_permutexvar_ps(turned, a);
}
LANES_INLINE v16 v16_clear_group(v16 v, int k)
{
    return _mm512_maskz_mov_ps((__mmask16) ~(0xfU << 4 * k), v);
}
LANES_INLINE v16 v16_spread4(const float *p)
{
    __m512i group = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    return _mm512_permutexvar_ps(group, _mm512_castps128_ps512(_mm_loadu_ps(p)));
}
/* Without -O the intrinsic is a macro with an implicit conversion of the mask, which gcc warns about. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
LANES_INLINE v16 v16_gather(const float *base, const uint32_t *index, size_t n)
{
    __m512i of = _mm512_maskz_loadu_epi32(v16_mask(n), index);
    __mmask16 is_there = _mm512_mask_cmpge_epi32_mask(v16_mask(n), of, _mm512_setzero_si512());
    return _mm512_mask_i32gather_ps(_mm512_set1_ps(-0.0F), is_there, of, base, 4);
}
#pragma GCC diagnostic pop
LANES_INLINE __m512 pairs8(float *const *p, size_t n)
{
    __m256d a = pairs4(p, n), b = n > 4 ? pairs4(p + 4, n - 4) : a;
    return _mm512_castpd_ps(_mm512_insertf64x4(_mm512_castpd256_pd512(a), b, 1));
}
LANES_INLINE v16 v16_load_pairs(float *const *p, size_t n, v16 *seconds)
{
    __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    __m512i odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    __m512 a = pairs8(p, n), b = n > 8 ? pairs8(p + 8, n - 8) : a;
    *seconds = _mm512_permutex2var_ps(a, odd, b);
    return _mm512_permutex2var_ps(a, even, b);
}
LANES_INLINE void pairs8_store(float *const *p, size_t n, __m512 pairs)
{
    pairs4_store(p, n, _mm512_castpd512_pd256(_mm512_castps_pd(pairs)));
    if (n > 4)
        pairs4_store(p + 4, n - 4, _mm512_extractf64x4_pd(_mm512_castps_pd(pairs), 1));
}
LANES_INLINE void v16_store_pairs(float *const *p, size_t n, v16 a, v16 seconds)
{
    __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    pairs8_store(p, n, _mm512_permutex2var_ps(a, low, seconds));
    if (n > 8)
        pairs8_store(p + 8, n - 8, _mm512_permutex2var_ps(a, high, seconds));
}
LANES_INLINE v16 v16_head(v16 a, v16 b, size_t n)
{
    return _mm512_mask_blend_ps(v16_mask(n), b, a);
}
LANES_INLINE v16 v16_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}
LANES_INLINE v16 v16_sub(v16 a, v16 b)
{
    return _mm512_sub_ps(a, b);
}
LANES_INLINE v16 v16_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}
LANES_INLINE v16 v16_div(v16 a, v16 b)
{
    return _mm512_div_ps(a, b);
}
LANES_INLINE v16 v16_sqrt(v16 a)
{
    return _mm512_sqrt_ps(a);
}
LANES_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}
/* Each lane of a and b is two bf16 numbers: c plus the product of the upper halves, then plus the product of
 * the lower halves, each by fma; denormal inputs and results count as 0. This needs AVX-512 BF16, which the
 * variant does not require: check for "avx512bf16" first. */
LANES_INLINE v16 v16_fma_pairs(v16 a, v16 b, v16 c)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
}
LANES_INLINE v16 v16_fnma(v16 a, v16 b, v16 c)
{
    return _mm512_fnmadd_ps(a, b, c);
}
LANES_INLINE v16 v16_max(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}
LANES_INLINE v16 v16_min(v16 a, v16 b)
{
    return _mm512_min_ps(a, b);
}
LANES_INLINE v16 v16_keep_gt(v16 x, v16 a, v16 b)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), x);
}
LANES_INLINE v16 v16_copysign(v16 a, v16 b)
{
    __m512 sign = _mm512_set1_ps(-0.0F);
    return _mm512_or_ps(_mm512_andnot_ps(sign, a), _mm512_and_ps(sign, b));
}
LANES_INLINE v16 v16_abs(v16 a)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0F), a);
}
LANES_INLINE v16 v16_rsqrt_guess(v16 a)
{
    __m512i bits = _mm512_castps_si512(a);
    return _mm512_castsi512_ps(_mm512_sub_epi32(_mm512_set1_epi32(0x5f1ffff9), _mm512_srli_epi32(bits, 1)));
}
LANES_INLINE v16 v16_ldexp(v16 a, v16 k)
{
    __m512i e = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvttps_epi32(k), _mm512_set1_epi32(127)), 23);
    return _mm512_mul_ps(a, _mm512_castsi512_ps(e));
}
LANES_INLINE void v16_sums(float out[4], v16 a, v16 b, v16 c, v16 d)
{
    v16 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee)); /* i + 8 */
    v16 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    v16 all =
        _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd)); /* i + 4 */
    all = _mm512_add_ps(all, _mm512_permute_ps(all, 0x4e));                                    /* i + 2 */
    all = _mm512_add_ps(all, _mm512_permute_ps(all, 0xb1));                                    /* i + 1 */
    __m512i first = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0);
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(first, all)));
}
LANES_INLINE float v16_sum(v16 a)
{
    __m256 s = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 t = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_add_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
}
LANES_INLINE void v16_sum4(float out[4], v16 a)
{
    a = _mm512_add_ps(a, _mm512_permute_ps(a, 0x4e)); /* i + 2 */
    a = _mm512_add_ps(a, _mm512_permute_ps(a, 0xb1)); /* i + 1 */
    __m512i first = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0);
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(first, a)));
}

LANES_INLINE v16 v16_group_sum(v16 a)
{
    a = _mm512_add_ps(a, _mm512_permute_ps(a, 0x4e));
    return _mm512_add_ps(a, _mm512_permute_ps(a, 0xb1));
}
/* ab, cd: half sums of a and b, of c and d, interleaved. Adds them; orders the sums by vector, then group. */
LANES_INLINE v16 v16_groups_turn(v16 ab, v16 cd)
{
    v16 sums = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    __m512i natural = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    return _mm512_permutexvar_ps(natural, sums);
}
LANES_INLINE v16 v16_group_sums(v16 a, v16 b, v16 c, v16 d)
{
    v16 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    v16 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    return v16_groups_turn(ab, cd);
}
LANES_INLINE v16 v16_group_squares(v16 a, v16 b, v16 c, v16 d)
{
    v16 ab = _mm512_unpacklo_ps(a, b), ab2 = _mm512_unpackhi_ps(a, b);
    v16 cd = _mm512_unpacklo_ps(c, d), cd2 = _mm512_unpackhi_ps(c, d);
    return v16_groups_turn(_mm512_fmadd_ps(ab2, ab2, _mm512_mul_ps(ab, ab)),
                           _mm512_fmadd_ps(cd2, cd2, _mm512_mul_ps(cd, cd)));
}
LANES_INLINE v16 v16_load_halves(const float *lo, const float *hi)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(lo)), _mm256_loadu_ps(hi), 1);
}
LANES_INLINE void v16_store_halves(float *lo, float *hi, v16 a)
{
    _mm256_storeu_ps(lo, _mm512_castps512_ps256(a));
    _mm256_storeu_ps(hi, _mm512_extractf32x8_ps(a, 1));
}
LANES_INLINE v16 v16_group_pick(v16 a, int v)
{
    __m512i group = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    return _mm512_permutexvar_ps(_mm512_add_epi32(group, _mm512_set1_epi32(4 * v)), a);
}
LANES_INLINE void v16_store_groups(float *p, v16 a)
{
    __m512i first = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0);
    _mm_storeu_ps(p, _mm512_castps512_ps128(_mm512_permutexvar_ps(first, a)));
}

LANES_INLINE d8 d8_set1(double x)
{
    return _mm512_set1_pd(x);
}
LANES_INLINE d8 d8_load(const double *p)
{
    return _mm512_loadu_pd(p);
}
LANES_INLINE d8 d8_load_n(const double *p, size_t n)
{
    return _mm512_maskz_loadu_pd((__mmask8)((1U << n) - 1U), p);
}
LANES_INLINE void d8_store(double *p, d8 a)
{
    _mm512_storeu_pd(p, a);
}
LANES_INLINE void d8_store_n(double *p, d8 a, size_t n)
{
    _mm512_mask_storeu_pd(p, (__mmask8)((1U << n) - 1U), a);
}
LANES_INLINE d8 d8_add(d8 a, d8 b)
{
    return _mm512_add_pd(a, b);
}
LANES_INLINE d8 d8_sub(d8 a, d8 b)
{
    return _mm512_sub_pd(a, b);
}
LANES_INLINE d8 d8_mul(d8 a, d8 b)
{
    return _mm512_mul_pd(a, b);
}
LANES_INLINE d8 d8_div(d8 a, d8 b)
{
    return _mm512_div_pd(a, b);
}
LANES_INLINE d8 d8_sqrt(d8 a)
{
    return _mm512_sqrt_pd(a);
}
LANES_INLINE d8 d8_max(d8 a, d8 b)
{
    return _mm512_max_pd(a, b);
}
LANES_INLINE d8 d8_min(d8 a, d8 b)
{
    return _mm512_min_pd(a, b);
}
LANES_INLINE d8 d8_keep_gt(d8 x, d8 a, d8 b)
{
    return _mm512_maskz_mov_pd(_mm512_cmp_pd_mask(a, b, _CMP_GT_OQ), x);
}
LANES_INLINE d8 d8_copysign(d8 a, d8 b)
{
    __m512d sign = _mm512_set1_pd(-0.0);
    return _mm512_or_pd(_mm512_andnot_pd(sign, a), _mm512_and_pd(sign, b));
}
LANES_INLINE d8 d8_abs(d8 a)
{
    return _mm512_andnot_pd(_mm512_set1_pd(-0.0), a);
}
LANES_INLINE double d8_sum(d8 a)
{
    __m256d s = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    __m128d t = _mm_add_pd(_mm256_castpd256_pd128(s), _mm256_extractf128_pd(s, 1));
    return _mm_cvtsd_f64(_mm_add_sd(t, _mm_unpackhi_pd(t, t)));
}

#endif
