/* Bytes as hexadecimal digits. Any thread. */
#ifndef LEAT_CORE_HEX_H
#define LEAT_CORE_HEX_H

#include "core/base.h"

/* The value of a digit, 0 to 15, in either case; -1: not a digit. */
static inline int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Writes two small digits for each byte and a NUL: `text` has room for 2 * count + 1. */
static inline void hex_text(const void *bytes, size_t count, char *text)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < count; i++) {
        unsigned char byte = ((const unsigned char *)bytes)[i];
        *text++ = digits[byte >> 4];
        *text++ = digits[byte & 15];
    }
    *text = '\0';
}

/* Reads 2 * count digits. False: they are not as many, or no digits. */
LEAT_CHECKED static inline bool hex_bytes(struct str digits, uint8_t *bytes, size_t count)
{
    bool is_good = digits.length == 2 * count;
    for (size_t i = 0; i < count && is_good; i++) {
        int high = hex_value(digits.data[2 * i]), low = hex_value(digits.data[2 * i + 1]);
        is_good = high >= 0 && low >= 0;
        bytes[i] = (uint8_t)(high * 16 + low);
    }
    return is_good;
}

#endif
