/*
 * Words of lanes.h that load numbers stored in fewer bits: bf16, fp16 and signed bytes become floats,
 * exactly. n in 0..16 as in v16_load_n; n = 16 takes the fast path. A quiet NaN stays a quiet NaN, a
 * signalling NaN may become quiet.
 */
#ifndef LEAT_KERNELS_LANES_FORMATS_H
#define LEAT_KERNELS_LANES_FORMATS_H

#include "kernels/rounding.h"

#if defined(KERNELS_LANES_AVX512) || defined(KERNELS_LANES_AVX2)

/* Load n elements, the rest zero. With n < 16 through a copy, so that no byte behind the elements is read. */
LANES_INLINE __m256i v16_load_halfwords(const uint16_t *p, size_t n)
{
    if (n == 16)
        return _mm256_loadu_si256((const __m256i *)(const void *)p);
    uint16_t some[16] = {0};
    memcpy(some, p, n * sizeof(*p));
    return _mm256_loadu_si256((const __m256i *)(const void *)some);
}
LANES_INLINE __m128i v16_load_bytes(const int8_t *p, size_t n)
{
    if (n == 16)
        return _mm_loadu_si128((const __m128i *)(const void *)p);
    int8_t some[16] = {0};
    memcpy(some, p, n);
    return _mm_loadu_si128((const __m128i *)(const void *)some);
}
#endif

#if defined(KERNELS_LANES_AVX512)
LANES_INLINE v16 v16_load_bf16(const uint16_t *p, size_t n)
{
    __m512i wide = _mm512_cvtepu16_epi32(v16_load_halfwords(p, n));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
LANES_INLINE v16 v16_load_fp16(const uint16_t *p, size_t n)
{
    return _mm512_cvtph_ps(v16_load_halfwords(p, n));
}
LANES_INLINE v16 v16_load_int8(const int8_t *p, size_t n)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v16_load_bytes(p, n)));
}
#elif defined(KERNELS_LANES_AVX2)
LANES_INLINE v16 v16_load_bf16(const uint16_t *p, size_t n)
{
    __m256i half = v16_load_halfwords(p, n);
    __m256i lo = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(half));
    __m256i hi = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(half, 1));
    return (v16){_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)),
                 _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
}
LANES_INLINE v16 v16_load_fp16(const uint16_t *p, size_t n)
{
    __m256i half = v16_load_halfwords(p, n);
    return (v16){_mm256_cvtph_ps(_mm256_castsi256_si128(half)),
                 _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
}
LANES_INLINE v16 v16_load_int8(const int8_t *p, size_t n)
{
    __m128i bytes = v16_load_bytes(p, n);
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                 _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
#else
LANES_INLINE v16 v16_load_bf16(const uint16_t *p, size_t n)
{
    v16 r;
    for (size_t i = 0; i < 16; i++)
        r.f[i] = i < n ? float_of_bf16(p[i]) : 0.0F;
    return r;
}
LANES_INLINE v16 v16_load_fp16(const uint16_t *p, size_t n)
{
    v16 r;
    for (size_t i = 0; i < 16; i++)
        r.f[i] = i < n ? float_of_fp16(p[i]) : 0.0F;
    return r;
}
LANES_INLINE v16 v16_load_int8(const int8_t *p, size_t n)
{
    v16 r;
    for (size_t i = 0; i < 16; i++)
        r.f[i] = i < n ? (float)p[i] : 0.0F;
    return r;
}
#endif

#endif
