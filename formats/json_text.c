/* Texts of JSON: scanned 16 bytes at a time (every x86-64 has SSE2) and copied in the same pass. */
#include "formats/json_read.h"
#include "formats/text.h"

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

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The value of four hex digits at `at`, or -1 where there are fewer before `end`. */
static int32_t hex4(const char *at, const char *end)
{
    int32_t sum = 0;
    if (end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(at[i]);
        if (digit < 0)
            return -1;
        sum = sum << 4 | digit;
    }
    return sum;
}

static size_t put_utf8(char *out, uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    static const unsigned char leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(leads[length] | code);
    return length;
}

/* Reads \uXXXX, or a surrogate pair of them; at: the first X. */
static const char *unicode_escape(struct json_reader *reader, const char *at, char **out)
{
    int32_t code = hex4(at, reader->end);
    if (code < 0)
        return json_fail(reader, at, "`\\u` takes four hex digits");
    at += 4;
    if (code >= 0xdc00 && code <= 0xdfff)
        return json_fail(reader, at - 4, "a low surrogate without a high one");
    if (code >= 0xd800 && code <= 0xdbff) {
        int32_t low = json_peek(reader, at) == '\\' && json_peek(reader, at + 1) == 'u'
                          ? hex4(at + 2, reader->end)
                          : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return json_fail(reader, at - 4, "a high surrogate without a low one");
        code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
        at += 6;
    }
    *out += put_utf8(*out, (uint32_t)code);
    return at;
}

/* Reads an escape; at: the byte behind the backslash. */
static const char *escape(struct json_reader *reader, const char *at, char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = json_peek(reader, at);
    if (c == 'u')
        return unicode_escape(reader, at + 1, out);
    const char *found = c == '\0' ? NULL : strchr(from, c);
    if (found == NULL)
        return json_fail(reader, at, "an escape that JSON does not have");
    *(*out)++ = to[found - from];
    return at + 1;
}

/* Fails at the first byte that is not UTF-8. begin .. end: the text as it stands in the record. */
static const char *bad_utf8(struct json_reader *reader, const char *begin, const char *end)
{
    return json_fail(reader, begin + text_utf8_error(begin, (size_t)(end - begin)), "not valid UTF-8");
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
