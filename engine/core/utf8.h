/* UTF-8, one code point at a time: no overlong forms, no surrogates, nothing above U+10FFFF (Unicode 15,
 * table 3-7). Whole texts of records are checked by simdjson (formats/text_simd.h). Any thread. */
#ifndef LEAT_CORE_UTF8_H
#define LEAT_CORE_UTF8_H

#include "core/base.h"

enum { UTF8_BYTES_MAX = 4 }; /* of one code point */

/* Decodes the first code point of `left` bytes, at least 1. Returns its bytes, 1 to 4; 0 if they do not begin
 * with a well-formed sequence, and *code is left as it was. */
size_t utf8_decode(const char *at, size_t left, uint32_t *code);
/* Writes a code point, which is no surrogate and at most U+10FFFF; `out` has room for UTF8_BYTES_MAX. Returns
 * its bytes. */
size_t utf8_encode(uint32_t code, char *out);
/* Index of the first byte that is not part of a well-formed sequence; `length` if there is none. */
size_t utf8_error(const char *data, size_t length);

struct byte_buffer;
/* Appends the text with U+FFFD in place of each byte that is not part of a well-formed sequence. */
void utf8_repair(struct str text, struct byte_buffer *out);

static inline bool utf8_is_valid(struct str text)
{
    return utf8_error(text.data, text.length) == text.length;
}

/* Control characters C0, DEL and C1, and marks that change the direction of text: what can control a terminal, or make a
 * text look like another one. */
static inline bool utf8_is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7F && code < 0xA0) || (code >= 0x202A && code <= 0x202E) ||
           (code >= 0x2066 && code <= 0x2069);
}

#endif
