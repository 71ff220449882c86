#include "core/utf8.h"

#include "core/buffer.h"

size_t utf8_decode(const char *at, size_t left, uint32_t *code)
{
    static const uint32_t least[] = {
        0, 0, 0x80, 0x800,
        0x10000}; /* the least code of a sequence, by its bytes; smaller codes are overlong */
    const unsigned char *s = (const unsigned char *)at;
    if (s[0] < 0x80) {
        *code = s[0];
        return 1;
    }
    size_t bytes = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || left < bytes)
        return 0;
    uint32_t value = s[0] & (0xffu >> (bytes + 1));
    for (size_t i = 1; i < bytes; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (s[i] & 0x3f);
    }
    if (value < least[bytes] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
        return 0;
    *code = value;
    return bytes;
}

size_t utf8_encode(uint32_t code, char *out)
{
    static const unsigned char leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t bytes = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = bytes - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    out[0] = (char)(leads[bytes] | code);
    return bytes;
}

size_t utf8_error(const char *data, size_t length)
{
    uint32_t code;
    for (size_t at = 0, bytes; at < length; at += bytes) {
        bytes = utf8_decode(data + at, length - at, &code);
        if (bytes == 0)
            return at;
    }
    return length;
}

void utf8_repair(struct str text, struct byte_buffer *out)
{
    while (text.length > 0) {
        size_t good = utf8_error(text.data, text.length);
        buffer_append(out, text.data, good);
        if (good < text.length)
            buffer_append(out, "\xef\xbf\xbd", 3);
        good += good < text.length;
        text = (struct str){text.data + good, text.length - good};
    }
}
