/* lanes.h in AVX2 and FMA: two registers a v16, two a d8. */
#ifndef LEAT_KERNELS_LANES_AVX2_H
#define LEAT_KERNELS_LANES_AVX2_H

#include "lanes_x86.h"

typedef struct {
    __m256 lo, hi;
} v16;
typedef struct {
    __m256d lo, hi;
} d8;
enum { LANES_REGISTERS = 8 }; /* vector registers that v16 values can use */

#define V16_2(op, a, b) ((v16){op((a).lo, (b).lo), op((a).hi, (b).hi)})
#define D8_2(op, a, b)  ((d8){op((a).lo, (b).lo), op((a).hi, (b).hi)})

LANES_INLINE v16 v16_set1(float x)
{
    return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
LANES_INLINE v16 v16_load(const float *p)
{
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
LANES_INLINE void v16_store(float *p, v16 a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
LANES_INLINE __m256i v16_mask(size_t n, int first)
{
    __m256i lane = _mm256_add_epi32(_mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0), _mm256_set1_epi32(first));
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}
LANES_INLINE v16 v16_load_n(const float *p, size_t n)
{
    if (__builtin_constant_p(n) && n == 16)
        return v16_load(p);
    return (v16){_mm256_maskload_ps(p, v16_mask(n, 0)), _mm256_maskload_ps(p + 8, v16_mask(n, 8))};
}
LANES_INLINE void v16_store_n(float *p, v16 a, size_t n)
{
    if (__builtin_constant_p(n) && n == 16) {
        v16_store(p, a);
        return;
    }
    _mm256_maskstore_ps(p, v16_mask(n, 0), a.lo);
    _mm256_maskstore_ps(p + 8, v16_mask(n, 8), a.hi);
}
LANES_INLINE v16 v16_load4x4(const float *a, const float *b, const float *c, const float *d)
{
    return (v16){_mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(a)), _mm_loadu_ps(b), 1),
                 _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(c)), _mm_loadu_ps(d), 1)};
}
LANES_INLINE void v16_store4x4(float *a, float *b, float *c, float *d, v16 v)
{
    _mm_storeu_ps(a, _mm256_castps256_ps128(v.lo));
    _mm_storeu_ps(b, _mm256_extractf128_ps(v.lo, 1));
    _mm_storeu_ps(c, _mm256_castps256_ps128(v.hi));
    _mm_storeu_ps(d, _mm256_extractf128_ps(v.hi, 1));
}
LANES_INLINE void v8_turn_groups(__m256 *a, __m256 *b, __m256 *c, __m256 *d)
{
    __m256 ab = _mm256_unpacklo_ps(*a, *b), ab2 = _mm256_unpackhi_ps(*a, *b);
    __m256 cd = _mm256_unpacklo_ps(*c, *d), cd2 = _mm256_unpackhi_ps(*c, *d);
    *a = _mm256_shuffle_ps(ab, cd, 0x44), *b = _mm256_shuffle_ps(ab, cd, 0xee);
    *c = _mm256_shuffle_ps(ab2, cd2, 0x44), *d = _mm256_shuffle_ps(ab2, cd2, 0xee);
}
LANES_INLINE void v16_transpose_groups(v16 v[4])
{
    v8_turn_groups(&v[0].lo, &v[1].lo, &v[2].lo, &v[3].lo);
    v8_turn_groups(&v[0].hi, &v[1].hi, &v[2].hi, &v[3].hi);
}
LANES_INLINE void v16_transpose_vectors(v16 v[4])
{
    v16 a = v[0], b = v[1], c = v[2], d = v[3];
    v[0] = (v16){_mm256_permute2f128_ps(a.lo, b.lo, 0x20), _mm256_permute2f128_ps(c.lo, d.lo, 0x20)};
    v[1] = (v16){_mm256_permute2f128_ps(a.lo, b.lo, 0x31), _mm256_permute2f128_ps(c.lo, d.lo, 0x31)};
    v[2] = (v16){_mm256_permute2f128_ps(a.hi, b.hi, 0x20), _mm256_permute2f128_ps(c.hi, d.hi, 0x20)};
    v[3] = (v16){_mm256_permute2f128_ps(a.hi, b.hi, 0x31), _mm256_permute2f128_ps(c.hi, d.hi, 0x31)};
}
LANES_INLINE void v16_load_transposed(v16 v[4], const float *a, const float *b, const float *c,
                                      const float *d)
{
    for (int k = 0; k < 4; k += 2) {
        __m256 x = _mm256_loadu_ps(a + 4 * k), y = _mm256_loadu_ps(b + 4 * k);
        __m256 z = _mm256_loadu_ps(c + 4 * k), w = _mm256_loadu_ps(d + 4 * k);
        v[k] = (v16){_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(z, w, 0x20)};
        v[k + 1] = (v16){_mm256_permute2f128_ps(x, y, 0x31), _mm256_permute2f128_ps(z, w, 0x31)};
    }
}
LANES_INLINE v16 v16_clear_group(v16 v, int k)
{
    static const int32_t kept[28] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0,  0,
                                     0,  0,  -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    const float *from = (const float *)(const void *)(kept + 12 - 4 * k);
    return (v16){_mm256_and_ps(v.lo, _mm256_loadu_ps(from)), _mm256_and_ps(v.hi, _mm256_loadu_ps(from + 8))};
}
LANES_INLINE v16 v16_spread4(const float *p)
{
    return (v16){_mm256_set_m128(_mm_set1_ps(p[1]), _mm_set1_ps(p[0])),
                 _mm256_set_m128(_mm_set1_ps(p[3]), _mm_set1_ps(p[2]))};
}
/* eight lanes of v16_gather; index -1 (UINT32_MAX) gives -0 */
LANES_INLINE __m256 v8_gather(const float *base, __m256i index)
{
    __m256i is_there = _mm256_xor_si256(index, _mm256_set1_epi32(-1)); /* sign bit: not UINT32_MAX */
    return _mm256_mask_i32gather_ps(_mm256_set1_ps(-0.0F), base, index, _mm256_castsi256_ps(is_there), 4);
}
LANES_INLINE v16 v16_gather(const float *base, const uint32_t *index, size_t n)
{
    uint32_t some[16];
    if (n < 16) { /* lanes from n on get index UINT32_MAX */
        memset(some, 0xff, sizeof(some));
        memcpy(some, index, n * sizeof(*some));
        index = some;
    }
    const __m256i *halves = (const __m256i *)(const void *)index;
    return (v16){v8_gather(base, _mm256_loadu_si256(halves)),
                 v8_gather(base, _mm256_loadu_si256(halves + 1))};
}
LANES_INLINE __m256 pairs8(float *const *p, size_t n, __m256 *seconds)
{
    __m256 a = _mm256_castpd_ps(pairs4(p, n));
    __m256 b = n > 4 ? _mm256_castpd_ps(pairs4(p + 4, n - 4)) : a;
    __m256d first = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88));
    __m256d second = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xdd));
    *seconds = _mm256_castpd_ps(_mm256_permute4x64_pd(second, 0xd8));
    return _mm256_castpd_ps(_mm256_permute4x64_pd(first, 0xd8));
}
LANES_INLINE v16 v16_load_pairs(float *const *p, size_t n, v16 *seconds)
{
    v16 r;
    r.lo = pairs8(p, n, &seconds->lo);
    if (n <= 8)
        r.hi = r.lo, seconds->hi = seconds->lo;
    else
        r.hi = pairs8(p + 8, n - 8, &seconds->hi);
    return r;
}
LANES_INLINE void pairs8_store(float *const *p, size_t n, __m256 a, __m256 seconds)
{
    __m256d lo = _mm256_castps_pd(_mm256_unpacklo_ps(a, seconds)); /* pairs 0 1, 4 5 */
    __m256d hi = _mm256_castps_pd(_mm256_unpackhi_ps(a, seconds)); /* pairs 2 3, 6 7 */
    pairs4_store(p, n, _mm256_permute2f128_pd(lo, hi, 0x20));
    if (n > 4)
        pairs4_store(p + 4, n - 4, _mm256_permute2f128_pd(lo, hi, 0x31));
}
LANES_INLINE void v16_store_pairs(float *const *p, size_t n, v16 a, v16 seconds)
{
    pairs8_store(p, n, a.lo, seconds.lo);
    if (n > 8)
        pairs8_store(p + 8, n - 8, a.hi, seconds.hi);
}
LANES_INLINE v16 v16_head(v16 a, v16 b, size_t n)
{
    return (v16){_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(v16_mask(n, 0))),
                 _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(v16_mask(n, 8)))};
}
LANES_INLINE v16 v16_add(v16 a, v16 b)
{
    return V16_2(_mm256_add_ps, a, b);
}
LANES_INLINE v16 v16_sub(v16 a, v16 b)
{
    return V16_2(_mm256_sub_ps, a, b);
}
LANES_INLINE v16 v16_mul(v16 a, v16 b)
{
    return V16_2(_mm256_mul_ps, a, b);
}
LANES_INLINE v16 v16_div(v16 a, v16 b)
{
    return V16_2(_mm256_div_ps, a, b);
}
LANES_INLINE v16 v16_sqrt(v16 a)
{
    return (v16){_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)};
}
LANES_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
LANES_INLINE v16 v16_fnma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
LANES_INLINE v16 v16_max(v16 a, v16 b)
{
    return V16_2(_mm256_max_ps, a, b);
}
LANES_INLINE v16 v16_min(v16 a, v16 b)
{
    return V16_2(_mm256_min_ps, a, b);
}
LANES_INLINE v16 v16_keep_gt(v16 x, v16 a, v16 b)
{
    return (v16){_mm256_and_ps(x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ)),
                 _mm256_and_ps(x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ))};
}
LANES_INLINE v16 v16_abs(v16 a)
{
    __m256 sign = _mm256_set1_ps(-0.0F);
    return (v16){_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
LANES_INLINE v16 v16_copysign(v16 a, v16 b)
{
    __m256 sign = _mm256_set1_ps(-0.0F);
    v16 r = v16_abs(a);
    return (v16){_mm256_or_ps(r.lo, _mm256_and_ps(sign, b.lo)),
                 _mm256_or_ps(r.hi, _mm256_and_ps(sign, b.hi))};
}
LANES_INLINE __m256 v8_rsqrt_guess(__m256 a)
{
    __m256i bits = _mm256_castps_si256(a);
    return _mm256_castsi256_ps(_mm256_sub_epi32(_mm256_set1_epi32(0x5f1ffff9), _mm256_srli_epi32(bits, 1)));
}
LANES_INLINE v16 v16_rsqrt_guess(v16 a)
{
    return (v16){v8_rsqrt_guess(a.lo), v8_rsqrt_guess(a.hi)};
}
LANES_INLINE __m256 v8_ldexp(__m256 a, __m256 k)
{
    __m256i e = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvttps_epi32(k), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(a, _mm256_castsi256_ps(e));
}
LANES_INLINE v16 v16_ldexp(v16 a, v16 k)
{
    return V16_2(v8_ldexp, a, k);
}
LANES_INLINE float v16_sum(v16 a)
{
    __m256 s = _mm256_add_ps(a.lo, a.hi);
    __m128 t = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_add_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
}
LANES_INLINE void v16_sums(float out[4], v16 a, v16 b, v16 c, v16 d)
{
    __m256 ac = _mm256_add_ps(a.lo, a.hi), bd = _mm256_add_ps(b.lo, b.hi); /* lanes i, i + 8 */
    __m256 of_c = _mm256_add_ps(c.lo, c.hi), of_d = _mm256_add_ps(d.lo, d.hi);
    __m256 first = _mm256_permute2f128_ps(ac, of_c, 0x20), second = _mm256_permute2f128_ps(ac, of_c, 0x31);
    ac = _mm256_add_ps(first, second); /* i + 4: four lanes of a, then four of c */
    first = _mm256_permute2f128_ps(bd, of_d, 0x20), second = _mm256_permute2f128_ps(bd, of_d, 0x31);
    bd = _mm256_add_ps(first, second);
    first = _mm256_shuffle_ps(ac, bd, 0x44), second = _mm256_shuffle_ps(ac, bd, 0xee);
    ac = _mm256_add_ps(first, second);              /* i + 2: two of a, two of b; then c and d */
    ac = _mm256_add_ps(ac, _mm256_movehdup_ps(ac)); /* i + 1, in places 0 and 2 */
    __m128 lo = _mm256_castps256_ps128(ac), hi = _mm256_extractf128_ps(ac, 1);
    _mm_storeu_ps(out, _mm_shuffle_ps(lo, hi, 0x88));
}
LANES_INLINE void v8_sum4(float out[2], __m256 a)
{
    a = _mm256_add_ps(a, _mm256_permute_ps(a, 0x4e)); /* i + 2 */
    a = _mm256_add_ps(a, _mm256_permute_ps(a, 0xb1)); /* i + 1 */
    out[0] = _mm256_cvtss_f32(a);
    out[1] = _mm_cvtss_f32(_mm256_extractf128_ps(a, 1));
}
LANES_INLINE void v16_sum4(float out[4], v16 a)
{
    v8_sum4(out, a.lo);
    v8_sum4(out + 2, a.hi);
}

LANES_INLINE __m256 v8_group_sum(__m256 a)
{
    a = _mm256_add_ps(a, _mm256_permute_ps(a, 0x4e));
    return _mm256_add_ps(a, _mm256_permute_ps(a, 0xb1));
}
LANES_INLINE v16 v16_group_sum(v16 a)
{
    return (v16){v8_group_sum(a.lo), v8_group_sum(a.hi)};
}
/* The sums of group k of a, b, c and d in the four lanes of group k, for the two groups of a half. */
LANES_INLINE __m256 v8_group_sums(__m256 a, __m256 b, __m256 c, __m256 d)
{
    __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    return _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
}
LANES_INLINE __m256 v8_group_squares(__m256 a, __m256 b, __m256 c, __m256 d)
{
    __m256 ab = _mm256_unpacklo_ps(a, b), ab2 = _mm256_unpackhi_ps(a, b);
    __m256 cd = _mm256_unpacklo_ps(c, d), cd2 = _mm256_unpackhi_ps(c, d);
    ab = _mm256_fmadd_ps(ab2, ab2, _mm256_mul_ps(ab, ab));
    cd = _mm256_fmadd_ps(cd2, cd2, _mm256_mul_ps(cd, cd));
    return _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
}
/* Transposes lo and hi, the group sums ordered by group, then vector, into v16_group_sums' order: by vector,
 * then group. */
LANES_INLINE v16 v16_groups_turn(__m256 lo, __m256 hi)
{
    __m128 r0 = _mm256_castps256_ps128(lo), r1 = _mm256_extractf128_ps(lo, 1);
    __m128 r2 = _mm256_castps256_ps128(hi), r3 = _mm256_extractf128_ps(hi, 1);
    _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
    return (v16){_mm256_set_m128(r1, r0), _mm256_set_m128(r3, r2)};
}
LANES_INLINE v16 v16_transpose(v16 a)
{
    return v16_groups_turn(a.lo, a.hi);
}
LANES_INLINE v16 v16_group_sums(v16 a, v16 b, v16 c, v16 d)
{
    return v16_groups_turn(v8_group_sums(a.lo, b.lo, c.lo, d.lo), v8_group_sums(a.hi, b.hi, c.hi, d.hi));
}
LANES_INLINE v16 v16_group_squares(v16 a, v16 b, v16 c, v16 d)
{
    return v16_groups_turn(v8_group_squares(a.lo, b.lo, c.lo, d.lo),
                           v8_group_squares(a.hi, b.hi, c.hi, d.hi));
}
LANES_INLINE v16 v16_load_halves(const float *lo, const float *hi)
{
    return (v16){_mm256_loadu_ps(lo), _mm256_loadu_ps(hi)};
}
LANES_INLINE void v16_store_halves(float *lo, float *hi, v16 a)
{
    _mm256_storeu_ps(lo, a.lo);
    _mm256_storeu_ps(hi, a.hi);
}
LANES_INLINE v16 v16_group_pick(v16 a, int v)
{
    __m256 half = v < 2 ? a.lo : a.hi;
    __m128 four = (v & 1) != 0 ? _mm256_extractf128_ps(half, 1) : _mm256_castps256_ps128(half);
    return (v16){
        _mm256_set_m128(_mm_permute_ps(four, 0x55), _mm_permute_ps(four, 0x00)),
        _mm256_set_m128(_mm_permute_ps(four, 0xff), _mm_permute_ps(four, 0xaa)),
    };
}
LANES_INLINE void v16_store_groups(float *p, v16 a)
{
    p[0] = _mm256_cvtss_f32(a.lo);
    p[1] = _mm_cvtss_f32(_mm256_extractf128_ps(a.lo, 1));
    p[2] = _mm256_cvtss_f32(a.hi);
    p[3] = _mm_cvtss_f32(_mm256_extractf128_ps(a.hi, 1));
}

LANES_INLINE d8 d8_set1(double x)
{
    return (d8){_mm256_set1_pd(x), _mm256_set1_pd(x)};
}
LANES_INLINE d8 d8_load(const double *p)
{
    return (d8){_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4)};
}
LANES_INLINE __m256i d8_mask(size_t n, int first)
{
    __m256i lane = _mm256_add_epi64(_mm256_set_epi64x(3, 2, 1, 0), _mm256_set1_epi64x(first));
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x((long long)n), lane);
}
LANES_INLINE d8 d8_load_n(const double *p, size_t n)
{
    return (d8){_mm256_maskload_pd(p, d8_mask(n, 0)), _mm256_maskload_pd(p + 4, d8_mask(n, 4))};
}
LANES_INLINE void d8_store(double *p, d8 a)
{
    _mm256_storeu_pd(p, a.lo);
    _mm256_storeu_pd(p + 4, a.hi);
}
LANES_INLINE void d8_store_n(double *p, d8 a, size_t n)
{
    _mm256_maskstore_pd(p, d8_mask(n, 0), a.lo);
    _mm256_maskstore_pd(p + 4, d8_mask(n, 4), a.hi);
}
LANES_INLINE d8 d8_add(d8 a, d8 b)
{
    return D8_2(_mm256_add_pd, a, b);
}
LANES_INLINE d8 d8_sub(d8 a, d8 b)
{
    return D8_2(_mm256_sub_pd, a, b);
}
LANES_INLINE d8 d8_mul(d8 a, d8 b)
{
    return D8_2(_mm256_mul_pd, a, b);
}
LANES_INLINE d8 d8_div(d8 a, d8 b)
{
    return D8_2(_mm256_div_pd, a, b);
}
LANES_INLINE d8 d8_sqrt(d8 a)
{
    return (d8){_mm256_sqrt_pd(a.lo), _mm256_sqrt_pd(a.hi)};
}
LANES_INLINE d8 d8_max(d8 a, d8 b)
{
    return D8_2(_mm256_max_pd, a, b);
}
LANES_INLINE d8 d8_min(d8 a, d8 b)
{
    return D8_2(_mm256_min_pd, a, b);
}
LANES_INLINE d8 d8_keep_gt(d8 x, d8 a, d8 b)
{
    return (d8){_mm256_and_pd(x.lo, _mm256_cmp_pd(a.lo, b.lo, _CMP_GT_OQ)),
                _mm256_and_pd(x.hi, _mm256_cmp_pd(a.hi, b.hi, _CMP_GT_OQ))};
}
LANES_INLINE d8 d8_abs(d8 a)
{
    __m256d sign = _mm256_set1_pd(-0.0);
    return (d8){_mm256_andnot_pd(sign, a.lo), _mm256_andnot_pd(sign, a.hi)};
}
LANES_INLINE d8 d8_copysign(d8 a, d8 b)
{
    __m256d sign = _mm256_set1_pd(-0.0);
    d8 r = d8_abs(a);
    return (d8){_mm256_or_pd(r.lo, _mm256_and_pd(sign, b.lo)), _mm256_or_pd(r.hi, _mm256_and_pd(sign, b.hi))};
}
LANES_INLINE double d8_sum(d8 a)
{
    __m256d s = _mm256_add_pd(a.lo, a.hi);
    __m128d t = _mm_add_pd(_mm256_castpd256_pd128(s), _mm256_extractf128_pd(s, 1));
    return _mm_cvtsd_f64(_mm_add_sd(t, _mm_unpackhi_pd(t, t)));
}

#undef V16_2
#undef D8_2
#endif
