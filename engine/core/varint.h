/* Varints: whole numbers in groups of 7 bits, the lowest group first; the top bit of a byte says that another
 * follows. Any thread. */
#ifndef LEAT_CORE_VARINT_H
#define LEAT_CORE_VARINT_H

#include "core/base.h"

enum { VARINT_BYTES_MAX = 10 };

/* Writes a number; `to` has room for VARINT_BYTES_MAX. Returns the position behind the number. */
static inline char *varint_put(char *to, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *to++ = (char)(value | 0x80);
    *to++ = (char)value;
    return to;
}

/* Reads a number that ends before `end`. Returns the position behind the number; NULL: it does not end there,
 * or has more than 64 bits. VARINT_BYTES_MAX bytes from `at` on must be readable, also behind `end`. */
static inline const char *varint_take_padded(const char *at, const char *end, uint64_t *value)
{
    const uint8_t *byte = (const uint8_t *)at;
    uint64_t bits = byte[0] & 0x7f;
    unsigned i = 0;
    while (byte[i] >= 0x80) {
        if (++i == VARINT_BYTES_MAX)
            return NULL;
        bits |= (uint64_t)(byte[i] & 0x7f) << (7 * i);
    }
    if (unlikely((i == VARINT_BYTES_MAX - 1 && byte[i] > 1) || at + i + 1 > end))
        return NULL;
    *value = bits;
    return at + i + 1;
}

/* As varint_take_padded, but loads nothing behind `end`. */
static inline const char *varint_take(const char *at, const char *end, uint64_t *value)
{
    char padded[VARINT_BYTES_MAX] = {0};
    if (likely(end - at >= VARINT_BYTES_MAX))
        return varint_take_padded(at, end, value);
    size_t left = (size_t)(end - at);
    memcpy(padded, at, left);
    const char *behind = varint_take_padded(padded, padded + left, value);
    return behind == NULL ? NULL : at + (behind - padded);
}

/* Maps numbers near 0, negative or not, to small ones, and back. Differences wrap modulo 2^64. */
static inline uint64_t zigzag(uint64_t difference)
{
    return difference << 1 ^ (0 - (difference >> 63));
}

static inline uint64_t unzigzag(uint64_t value)
{
    return value >> 1 ^ (0 - (value & 1));
}

#endif
