#include "operators/expr/letters.h"

#include "core/utf8.h"

#include <utf8proc.h>

static utf8proc_int32_t upper(utf8proc_int32_t code)
{
    enum { SHARP_S = 0xdf };
    /* Unicode has no simple mapping for the sharp s; utf8proc would return the capital sharp s. */
    return code == SHARP_S ? code : utf8proc_toupper(code);
}

/* first: the first of the 26 letters of ASCII that change. other: maps a code point beyond ASCII. */
static inline size_t map(struct str text, char first, utf8proc_int32_t (*other)(utf8proc_int32_t code),
                         char *out)
{
    size_t length = 0;
    for (size_t i = 0; i < text.length;) {
        unsigned char c = (unsigned char)text.data[i];
        uint32_t code;
        if (likely(c < 0x80)) {
            bool is_other = (unsigned char)(c - (unsigned char)first) < 26;
            out[length++] = (char)(c ^ (is_other ? 'a' ^ 'A' : 0));
            i++;
            continue;
        }
        size_t bytes = utf8_decode(text.data + i, text.length - i, &code);
        if (bytes == 0)
            out[length++] = text.data[i++];
        else
            length += utf8_encode((uint32_t)other((utf8proc_int32_t)code), out + length);
        i += bytes;
    }
    return length;
}

size_t letters_lower(struct str text, char *out)
{
    return map(text, 'A', utf8proc_tolower, out);
}

size_t letters_upper(struct str text, char *out)
{
    return map(text, 'a', upper, out);
}

const char *letters_unicode(void)
{
    return utf8proc_unicode_version();
}
