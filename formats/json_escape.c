#include "formats/json_escape.h"

#include "core/hex.h"
#include "core/utf8.h"

#include <emmintrin.h>

void json_quote(struct byte_buffer *out, struct str text)
{
    /* At most six bytes for each byte, two quotes, and whole blocks of 16. */
    char *to = buffer_reserve(out, text.length * 6 + 34);
    *to++ = '"';
    size_t i = 0;
    while (i + 16 <= text.length) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(text.data + i));
        __m128i other = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')),
                                     _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\')));
        __m128i plain = _mm_cmpeq_epi8(_mm_max_epu8(bytes, _mm_set1_epi8(0x20)), bytes);
        if (_mm_movemask_epi8(_mm_andnot_si128(other, plain)) != 0xffff)
            break;
        _mm_storeu_si128((__m128i *)to, bytes);
        to += 16;
        i += 16;
    }
    for (; i < text.length; i++) {
        unsigned char c = (unsigned char)text.data[i];
        const char *letter = c == '\n' ? "n" : c == '\t' ? "t" : c == '\r' ? "r" : NULL;
        if (c == '"' || c == '\\' || letter != NULL) {
            *to++ = '\\';
            *to++ = letter != NULL ? *letter : (char)c;
        } else if (c < 0x20) {
            memcpy(to, "\\u00", 4);
            hex_text(&c, 1, to + 4);
            to += 6;
        } else {
            *to++ = (char)c;
        }
    }
    *to++ = '"';
    out->length = (size_t)(to - out->data);
}

/* The value of four hexadecimal digits at `at`, or -1 where there are fewer before `end`. */
static int32_t unit_at(const char *at, const char *end)
{
    int32_t unit = 0;
    if (end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_value(at[i]);
        if (digit < 0)
            return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

/* Decodes \uXXXX, or a pair of them; at: the first X. */
static const char *unescape_unit(const char *at, const char *end, char **out, const char **why)
{
    int32_t code = unit_at(at, end), low = -1;
    *why = code < 0                           ? "`\\u` takes four hex digits"
           : code >= 0xdc00 && code <= 0xdfff ? "a low surrogate without a high one"
                                              : NULL;
    if (*why != NULL)
        return NULL;
    at += 4;
    if (code >= 0xd800 && code <= 0xdbff) {
        if (end - at >= 2 && at[0] == '\\' && at[1] == 'u')
            low = unit_at(at + 2, end);
        if (low < 0xdc00 || low > 0xdfff) {
            *why = "a high surrogate without a low one";
            return NULL;
        }
        code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
        at += 6;
    }
    *out += utf8_encode((uint32_t)code, *out);
    return at;
}

const char *json_unescape(const char *at, const char *end, char **out, const char **why)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = at < end ? *at : '\0';
    if (c == 'u')
        return unescape_unit(at + 1, end, out, why);
    const char *found = c == '\0' ? NULL : strchr(from, c);
    if (found == NULL) {
        *why = "an unknown escape";
        return NULL;
    }
    *(*out)++ = to[found - from];
    return at + 1;
}
