#include "core/base64.h"

/* The value of a base64 digit, 0 to 63, or -1. */
static int digit_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

size_t base64_decode(const char *text, size_t length, char *out)
{
    if (length % 4 != 0)
        return SIZE_MAX;
    size_t written = 0;
    for (size_t i = 0; i < length; i += 4) {
        size_t padding = i + 4 < length || text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2;
        uint32_t bits = 0;
        for (size_t j = 0; j < 4; j++) {
            int digit = j >= 4 - padding ? 0 : digit_value(text[i + j]);
            if (digit < 0)
                return SIZE_MAX;
            bits = bits << 6 | (uint32_t)digit;
        }
        if ((padding == 1 && (bits & 0xff) != 0) || (padding == 2 && (bits & 0xffff) != 0))
            return SIZE_MAX;
        for (size_t j = 0; j < 3 - padding; j++)
            out[written++] = (char)(bits >> (16 - 8 * j));
    }
    return written;
}

void base64_encode(const char *data, size_t length, struct byte_buffer *out)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *to = buffer_reserve(out, (length + 2) / 3 * 4);
    for (size_t i = 0; i < length; i += 3) {
        size_t count = MIN(length - i, 3);
        uint32_t bits = 0;
        for (size_t j = 0; j < 3; j++)
            bits = bits << 8 | (j < count ? (unsigned char)data[i + j] : 0);
        for (size_t j = 0; j < 4; j++)
            *to++ = j <= count ? alphabet[bits >> (18 - 6 * j) & 63] : '=';
    }
    out->length = (size_t)(to - out->data);
}
