/*
 * Words of lanes.h on sixteen 32-bit integers (n16), for products of bytes. All are exact: no sum of a caller
 * may leave int32. A lane also stands for four bytes, or for two 16-bit numbers (a pair).
 */
#ifndef LEAT_KERNELS_LANES_INT8_H
#define LEAT_KERNELS_LANES_INT8_H

#if defined(KERNELS_LANES_AVX512)

typedef __m512i n16;

LANES_INLINE n16 n16_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}
LANES_INLINE n16 n16_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
LANES_INLINE void n16_store(int32_t *p, n16 a)
{
    _mm512_storeu_si512(p, a);
}
LANES_INLINE n16 n16_add(n16 a, n16 b)
{
    return _mm512_add_epi32(a, b);
}
LANES_INLINE n16 n16_even(n16 a)
{
    return _mm512_and_si512(a, _mm512_set1_epi32(0x00ff00ff));
}
LANES_INLINE n16 n16_odd(n16 a)
{
    return _mm512_srli_epi16(a, 8);
}
LANES_INLINE n16 n16_pairs(n16 a, n16 b)
{
    return _mm512_madd_epi16(a, b);
}
/* sum + the four products of unsigned bytes with signed ones. This needs AVX-512 VNNI, which the variant does
 * not require: check for "avx512vnni" first. */
LANES_INLINE n16 n16_bytes(n16 sum, n16 is_unsigned, n16 is_signed)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(is_unsigned), "v"(is_signed));
    return sum;
}
LANES_INLINE v16 n16_floats(n16 a)
{
    return _mm512_cvtepi32_ps(a);
}
LANES_INLINE uint32_t v16_greater(v16 a, v16 b)
{
    return (uint32_t)_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}

#elif defined(KERNELS_LANES_AVX2)

typedef struct {
    __m256i lo, hi;
} n16;

LANES_INLINE n16 n16_set1(int32_t x)
{
    return (n16){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
LANES_INLINE n16 n16_load(const void *p)
{
    const __m256i *halves = p;
    return (n16){_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
}
LANES_INLINE void n16_store(int32_t *p, n16 a)
{
    __m256i *halves = (__m256i *)(void *)p;
    _mm256_storeu_si256(halves, a.lo);
    _mm256_storeu_si256(halves + 1, a.hi);
}
LANES_INLINE n16 n16_add(n16 a, n16 b)
{
    return (n16){_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
LANES_INLINE n16 n16_even(n16 a)
{
    __m256i kept = _mm256_set1_epi32(0x00ff00ff);
    return (n16){_mm256_and_si256(a.lo, kept), _mm256_and_si256(a.hi, kept)};
}
LANES_INLINE n16 n16_odd(n16 a)
{
    return (n16){_mm256_srli_epi16(a.lo, 8), _mm256_srli_epi16(a.hi, 8)};
}
LANES_INLINE n16 n16_pairs(n16 a, n16 b)
{
    return (n16){_mm256_madd_epi16(a.lo, b.lo), _mm256_madd_epi16(a.hi, b.hi)};
}
LANES_INLINE v16 n16_floats(n16 a)
{
    return (v16){_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}
LANES_INLINE uint32_t v16_greater(v16 a, v16 b)
{
    int lo = _mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ));
    int hi = _mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ));
    return (uint32_t)(lo | hi << 8);
}

#else

typedef struct {
    int32_t i[16];
} n16;

LANES_INLINE n16 n16_set1(int32_t x)
{
    n16 r;
    for (int l = 0; l < 16; l++)
        r.i[l] = x;
    return r;
}
LANES_INLINE n16 n16_load(const void *p)
{
    n16 r;
    memcpy(r.i, p, sizeof(r.i));
    return r;
}
LANES_INLINE void n16_store(int32_t *p, n16 a)
{
    memcpy(p, a.i, sizeof(a.i));
}
LANES_INLINE n16 n16_add(n16 a, n16 b)
{
    for (int l = 0; l < 16; l++)
        a.i[l] += b.i[l];
    return a;
}
/* a pair of bytes 0 and 2 of each lane, unsigned; n16_odd: of bytes 1 and 3 */
LANES_INLINE n16 n16_even(n16 a)
{
    for (int l = 0; l < 16; l++)
        a.i[l] &= 0x00ff00ff;
    return a;
}
LANES_INLINE n16 n16_odd(n16 a)
{
    for (int l = 0; l < 16; l++)
        a.i[l] = (int32_t)((uint32_t)a.i[l] >> 8 & 0x00ff00ffU);
    return a;
}
/* the sum of the two products of a pair with a pair, all signed */
LANES_INLINE n16 n16_pairs(n16 a, n16 b)
{
    n16 r;
    for (int l = 0; l < 16; l++)
        r.i[l] = (int16_t)(a.i[l] & 0xffff) * (int16_t)(b.i[l] & 0xffff) + (a.i[l] >> 16) * (b.i[l] >> 16);
    return r;
}
/* correctly rounded */
LANES_INLINE v16 n16_floats(n16 a)
{
    v16 r;
    for (int l = 0; l < 16; l++)
        r.f[l] = (float)a.i[l];
    return r;
}
/* bit l: lane l of a is greater than that of b; neither is a NaN */
LANES_INLINE uint32_t v16_greater(v16 a, v16 b)
{
    uint32_t bits = 0;
    for (int l = 0; l < 16; l++)
        bits |= (uint32_t)(a.f[l] > b.f[l]) << l;
    return bits;
}
#endif

#endif
