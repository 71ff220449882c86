/* Most bytes of most records are texts, and most texts are plain ASCII: texts are scanned 16, 32 or 64 bytes
 * at a time. SCAN is the loop for all three widths; special_*() returns a bit for each byte, set if the byte
 * is not plain. */
#include "formats/json_scan.h"

#include <immintrin.h>

#define SCAN(suffix, width, target_name)                                                                     \
    __attribute__((target(target_name))) static size_t skip_##suffix(const char *from, const char *end)      \
    {                                                                                                        \
        const char *at = from;                                                                               \
        for (; at < end; at += (width)) {                                                                    \
            uint64_t special = special_##suffix(load_##suffix(at));                                          \
            if (special != 0)                                                                                \
                return (size_t)(at - from) + (size_t)__builtin_ctzll(special);                               \
        }                                                                                                    \
        return (size_t)(at - from);                                                                          \
    }                                                                                                        \
    __attribute__((target(target_name))) static size_t copy_##suffix(const char *from, const char *end,      \
                                                                     char *to)                               \
    {                                                                                                        \
        const char *at = from;                                                                               \
        for (; at < end; at += (width), to += (width)) {                                                     \
            load_type_##suffix bytes = load_##suffix(at);                                                    \
            store_##suffix(to, bytes);                                                                       \
            uint64_t special = special_##suffix(bytes);                                                      \
            if (special != 0)                                                                                \
                return (size_t)(at - from) + (size_t)__builtin_ctzll(special);                               \
        }                                                                                                    \
        return (size_t)(at - from);                                                                          \
    }

/* The signed comparison with 0x20 finds control characters and bytes from 0x80 on in one step. */

typedef __m128i load_type_sse2;
#define load_sse2(at)         _mm_loadu_si128((const __m128i *)(at))
#define store_sse2(to, bytes) _mm_storeu_si128((__m128i *)(to), bytes)
static inline uint64_t special_sse2(__m128i bytes)
{
    __m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
    __m128i escape = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
    __m128i other = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20));
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, escape), other));
}
SCAN(sse2, 16, "sse2")

typedef __m256i load_type_avx2;
#define load_avx2(at)         _mm256_loadu_si256((const __m256i *)(at))
#define store_avx2(to, bytes) _mm256_storeu_si256((__m256i *)(to), bytes)
__attribute__((target("avx2"))) static inline uint64_t special_avx2(__m256i bytes)
{
    __m256i quote = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8('"'));
    __m256i escape = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8('\\'));
    __m256i other = _mm256_cmpgt_epi8(_mm256_set1_epi8(0x20), bytes);
    return (unsigned)_mm256_movemask_epi8(_mm256_or_si256(_mm256_or_si256(quote, escape), other));
}
SCAN(avx2, 32, "avx2")

typedef __m512i load_type_avx512;
#define load_avx512(at)         _mm512_loadu_si512((const void *)(at))
#define store_avx512(to, bytes) _mm512_storeu_si512((void *)(to), bytes)
__attribute__((target("avx512bw"))) static inline uint64_t special_avx512(__m512i bytes)
{
    return _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8('"')) |
           _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8('\\')) |
           _mm512_cmplt_epi8_mask(bytes, _mm512_set1_epi8(0x20));
}
SCAN(avx512, 64, "avx512bw")

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512bw");
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}

static bool has_sse2(void)
{
    return true;
}

const struct json_scan json_scans[JSON_SCANS] = {
    {"avx512", has_avx512, skip_avx512, copy_avx512},
    {"avx2", has_avx2, skip_avx2, copy_avx2},
    {"sse2", has_sse2, skip_sse2, copy_sse2},
};

const struct json_scan *json_scan_best(void)
{
    const struct json_scan *scan = json_scans;
    while (!scan->is_supported())
        scan++;
    return scan;
}
