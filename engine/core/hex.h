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

#endif
