#include "core/quote.h"

#include "core/mem.h"
#include "core/utf8.h"

#include <stdlib.h>

static size_t escaped(uint32_t code, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const char text[] = {'\\',
                         'u',
                         digits[code >> 12 & 15],
                         digits[code >> 8 & 15],
                         digits[code >> 4 & 15],
                         digits[code & 15]};
    memcpy(out, text, sizeof(text));
    return sizeof(text);
}

size_t quote_json_character(const char *at, size_t left, char *out, size_t *took)
{
    uint32_t code;
    size_t bytes = utf8_decode(at, left, &code);
    *took = MAX(bytes, (size_t)1);
    if (bytes == 0)
        return escaped(0xfffd, out);
    if (code == '"' || code == '\\' || code == '\n') {
        out[0] = '\\';
        out[1] = code == '\n' ? 'n' : (char)code;
        return 2;
    }
    if (utf8_is_control(code))
        return escaped(code, out);
    memcpy(out, at, bytes);
    return bytes;
}

void quote_json(struct byte_buffer *out, struct str text)
{
    if (text.data == NULL) {
        buffer_append(out, "null", 4);
        return;
    }
    buffer_append(out, "\"", 1);
    for (size_t at = 0, took; at < text.length; at += took) {
        char *to = buffer_reserve(out, QUOTE_CHARACTER_BYTES_MAX);
        out->length += quote_json_character(text.data + at, text.length - at, to, &took);
    }
    buffer_append(out, "\"", 1);
}

char *text_without(char *text, const char *secret)
{
    char *at;
    size_t length = secret == NULL ? 0 : strlen(secret);
    while (length > 0 && (at = strstr(text, secret)) != NULL) {
        char *shorter = mem_printf("%.*s***%s", (int)(at - text), text, at + length);
        free(text);
        text = shorter;
        if (strstr("***", secret) != NULL)
            break;
    }
    return text;
}
