/* Texts of JSON: scanned 16 bytes at a time (every x86-64 has SSE2) and copied in the same pass. */
#include "formats/json_escape.h"
#include "formats/json_read.h"
#include "formats/text.h"

#include "core/utf8.h"

#include <emmintrin.h>

/* Bit i of the result: byte i is a quote, a backslash or below 0x20. Bit i of *high: byte i is above 0x7f. */
static inline unsigned special_bytes(__m128i bytes, unsigned *high)
{
    __m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
    __m128i escape = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
    __m128i control = _mm_cmpeq_epi8(_mm_max_epu8(bytes, _mm_set1_epi8(0x20)), bytes);
    *high = (unsigned)_mm_movemask_epi8(bytes);
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(quote, escape)) |
           (~(unsigned)_mm_movemask_epi8(control) & 0xffff);
}

/* Reads an escape; at: the byte behind the backslash. */
static const char *escape(struct json_reader *reader, const char *at, char **out)
{
    const char *why, *behind = json_unescape(at, reader->end, out, &why);
    if (behind == NULL)
        return json_fail(reader, at + (json_peek(reader, at) == 'u'), "%s", why);
    return behind;
}

/* Fails at the first byte that is not UTF-8. begin .. end: the text as it stands in the record. */
static const char *bad_utf8(struct json_reader *reader, const char *begin, const char *end)
{
    return json_fail(reader, begin + utf8_error(begin, (size_t)(end - begin)), "not valid UTF-8");
}

const char *json_text(struct json_reader *reader, const char *at, size_t *length)
{
    const char *begin = at;
    char *start = reader->rows->heap, *out = start;
    bool has_high = false;
    while (at < reader->end) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        unsigned high, special = special_bytes(bytes, &high);
        _mm_storeu_si128((__m128i *)out, bytes);
        if (special == 0) {
            has_high |= high != 0;
            at += 16;
            out += 16;
            continue;
        }
        unsigned count = (unsigned)__builtin_ctz(special);
        has_high |= (high & ((1u << count) - 1)) != 0;
        at += count;
        out += count;
        if (at >= reader->end)
            break;
        if (*at == '"') {
            *length = (size_t)(out - start);
            if (has_high && !text_is_utf8(start, *length))
                return bad_utf8(reader, begin, at);
            return at + 1;
        }
        if (*at != '\\')
            return json_fail(reader, at, "a control character in a text");
        at = escape(reader, at + 1, &out);
        if (at == NULL)
            return NULL;
    }
    return json_fail(reader, reader->end, "a text that does not end");
}
