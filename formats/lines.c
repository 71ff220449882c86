#include "formats/lines.h"

#include <immintrin.h>

/* A line of this many bytes without a newline is too long: this is the size of the longest record with its
 * `\r` and newline. */
enum { TOO_LONG = SOURCE_RECORD_BYTES_MAX + 2 };

/* Takes the line begin .. end (the newline). False where the split must stop. */
static inline bool take_line(struct format_split *split, size_t begin, size_t end)
{
    size_t length = end - begin;
    if (length > 0 && split->data[end - 1] == '\r')
        length--;
    split->used = end + 1;
    split->lines++;
    if (length == 0)
        return true;
    split->records[split->count++] = (struct raw_record){(uint32_t)begin, (uint32_t)length};
    if (unlikely(length > SOURCE_RECORD_BYTES_MAX)) {
        split->records[split->count - 1].length = SOURCE_RECORD_BYTES_MAX + 1;
        split->used = begin + SOURCE_RECORD_BYTES_MAX + 1;
        split->lines--;
        split->is_cut = true;
        return false;
    }
    return split->count < split->max;
}

/* Takes the lines that end in the 64 bytes from `base`; mask: bit i is set where byte i is a newline. */
static inline bool take_mask(struct format_split *split, size_t base, uint64_t mask, size_t *begin)
{
    for (; mask != 0; mask &= mask - 1) {
        size_t end = base + (size_t)__builtin_ctzll(mask);
        if (!take_line(split, *begin, end))
            return false;
        *begin = end + 1;
    }
    return true;
}

/* blocks_avx2 and blocks_sse2 take the lines of `blocks` blocks of 64 bytes; false: the split is complete. */
__attribute__((target("avx2"))) static bool blocks_avx2(struct format_split *split, size_t blocks,
                                                        size_t *begin)
{
    const __m256i newline = _mm256_set1_epi8('\n');
    for (size_t base = 0; base < blocks * 64; base += 64) {
        const __m256i *at = (const __m256i *)(split->data + base);
        uint64_t low = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_loadu_si256(at), newline));
        uint64_t high =
            (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_loadu_si256(at + 1), newline));
        if (!take_mask(split, base, low | high << 32, begin))
            return false;
    }
    return true;
}

static bool blocks_sse2(struct format_split *split, size_t blocks, size_t *begin)
{
    const __m128i newline = _mm_set1_epi8('\n');
    for (size_t base = 0; base < blocks * 64; base += 64) {
        uint64_t mask = 0;
        for (size_t i = 0; i < 4; i++) {
            __m128i bytes = _mm_loadu_si128((const __m128i *)(split->data + base) + i);
            mask |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, newline)) << (16 * i);
        }
        if (!take_mask(split, base, mask, begin))
            return false;
    }
    return true;
}

void lines_split(struct format_split *split)
{
    split->count = 0;
    split->need = 0;
    split->used = 0;
    split->lines = 0;
    split->is_cut = false;
    split->is_end = false;
    split->damage = NULL;
    size_t begin = 0, blocks = split->bytes / 64;
    if (split->max == 0 ||
        !(__builtin_cpu_supports("avx2") ? blocks_avx2 : blocks_sse2)(split, blocks, &begin))
        return;
    for (size_t end = blocks * 64; end < split->bytes; end++)
        if (split->data[end] == '\n') {
            if (!take_line(split, begin, end))
                return;
            begin = end + 1;
        }
    if (split->bytes - begin >= TOO_LONG || (split->is_last && begin < split->bytes)) {
        uint32_t lines = split->lines;
        take_line(split, begin, split->bytes);
        split->used = MIN(split->used, split->bytes);
        split->lines = lines; /* the newline is not there, or not yet */
    }
}

enum format_header_status lines_header(const void *config LEAT_UNUSED, const char *data, size_t bytes,
                                       bool is_last, size_t *used, const char **damage LEAT_UNUSED)
{
    static const char mark[] = "\xef\xbb\xbf";
    *used = 0;
    if (memcmp(data, mark, MIN(bytes, 3)) != 0)
        return HEADER_READ;
    if (bytes < 3)
        return is_last ? HEADER_READ : HEADER_MORE;
    *used = 3;
    return HEADER_READ;
}
