/* Functions that both x86 variants of lanes.h use; only lanes_avx2.h and lanes_avx512.h include this file. */
#ifndef LEAT_KERNELS_LANES_X86_H
#define LEAT_KERNELS_LANES_X86_H

#include <immintrin.h>
#include <string.h>

/* a pair of floats is moved as one double, of any alignment */
LANES_INLINE double pair_load(const float *p)
{
    double pair;
    memcpy(&pair, p, sizeof(pair));
    return pair;
}
LANES_INLINE void pair_store(float *p, double pair)
{
    memcpy(p, &pair, sizeof(pair));
}
/* four pairs; pairs from n on repeat the first */
LANES_INLINE __m256d pairs4(float *const *p, size_t n)
{
    const float *b = p[n > 1 ? 1 : 0], *c = p[n > 2 ? 2 : 0], *d = p[n > 3 ? 3 : 0];
    return _mm256_set_pd(pair_load(d), pair_load(c), pair_load(b), pair_load(p[0]));
}
LANES_INLINE void pairs4_store(float *const *p, size_t n, __m256d pairs)
{
    __m128d lo = _mm256_castpd256_pd128(pairs), hi = _mm256_extractf128_pd(pairs, 1);
    pair_store(p[0], _mm_cvtsd_f64(lo));
    if (n > 1)
        pair_store(p[1], _mm_cvtsd_f64(_mm_unpackhi_pd(lo, lo)));
    if (n > 2)
        pair_store(p[2], _mm_cvtsd_f64(hi));
    if (n > 3)
        pair_store(p[3], _mm_cvtsd_f64(_mm_unpackhi_pd(hi, hi)));
}

#endif
