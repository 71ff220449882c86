/* Small routines on bytes that several formats need: UTF-8, numbers. Any thread. */
#ifndef LEAT_FORMATS_TEXT_H
#define LEAT_FORMATS_TEXT_H

#include "core/schema.h"
#include "formats/text_simd.h"

/* A decimal number as JSON writes it: -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)? */
struct text_number {
    const char *begin, *end;  /* the number, its sign included */
    const char *digits;       /* first digit of the whole part */
    uint32_t whole, fraction; /* digits before and behind the point */
    bool is_negative, has_exponent;
};

enum text_result { TEXT_GOOD, TEXT_NOT_WHOLE, TEXT_OUT_OF_RANGE };

/* Reads a number as far as the grammar goes. Returns the byte behind it, or NULL where no number begins at
 * `at`. Never reads at or behind `end`. */
const char *text_number(const char *at, const char *end, struct text_number *number);
/* The value of a whole number: no exponent, and a fraction of zeros at most (some write `17.0` for 17). */
enum text_result text_number_int(const struct text_number *number, int64_t *value);
enum text_result text_number_double(const struct text_number *number, double *value);
/* The value of a time in s, ms, us or ns: whole, or with a fraction (`1700000000.445`); digits beyond
 * microseconds are cut. */
enum text_result text_number_time(const struct text_number *number, enum time_unit unit,
                                  int64_t *microseconds);

/* Whether all bytes are below 128. Loads up to 7 bytes behind the text. */
static inline bool text_is_ascii(const char *text, size_t length)
{
    uint64_t all = 0, word;
    size_t i = 0;
    for (; i + 8 <= length; i += 8) {
        memcpy(&word, text + i, 8);
        all |= word;
    }
    if (i < length) {
        memcpy(&word, text + i, 8); /* bytes behind the text are loaded, too */
        all |= word << (8 * (8 - (length - i)));
    }
    return (all & UINT64_C(0x8080808080808080)) == 0;
}

/* The scale (core/base.h) of a time that is written as a number; 0 where times are written as text. */
static inline int64_t text_unit_us(enum time_unit unit)
{
    switch (unit) {
    case TIME_UNIT_NS: return TIME_NS;
    case TIME_UNIT_US: return 1;
    case TIME_UNIT_MS: return 1000;
    case TIME_UNIT_S: return US_PER_SECOND;
    default: return 0;
    }
}

#endif
