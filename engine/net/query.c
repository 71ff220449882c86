#include "net/query.h"

#include "core/hex.h"
#include "core/utf8.h"

bool query_next(struct query_walk *walk, struct str *name, struct str *value)
{
    if (walk->is_over)
        return false;
    struct str one = walk->rest;
    const char *end = one.length == 0 ? NULL : memchr(one.data, '&', one.length);
    walk->is_over = end == NULL;
    if (end != NULL) {
        one.length = (size_t)(end - one.data);
        walk->rest = (struct str){end + 1, walk->rest.length - one.length - 1};
    }
    const char *equals = one.length == 0 ? NULL : memchr(one.data, '=', one.length);
    *name = (struct str){one.data, equals == NULL ? one.length : (size_t)(equals - one.data)};
    *value = equals == NULL ? (struct str){one.data + one.length, 0}
                            : (struct str){equals + 1, one.length - name->length - 1};
    return true;
}

bool query_unescape(char *text, size_t *length)
{
    size_t out = 0;
    for (size_t i = 0; i < *length; i++) {
        char c = text[i];
        if (c == '%') {
            if (*length - i < 3 || hex_value(text[i + 1]) < 0 || hex_value(text[i + 2]) < 0)
                return false;
            c = (char)(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]));
            i += 2;
        }
        text[out++] = c;
    }
    *length = out;
    return true;
}

bool query_decode(struct str text, char *out, struct str *decoded)
{
    size_t length = text.length;
    if (length > 0)
        memcpy(out, text.data, length);
    if (!query_unescape(out, &length) || (length > 0 && memchr(out, '\0', length) != NULL))
        return false;
    *decoded = (struct str){out, length};
    return utf8_is_valid(*decoded);
}
