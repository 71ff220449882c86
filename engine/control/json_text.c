#include "control/json_text.h"

#include "core/buffer.h"
#include "core/utf8.h"

json_t *json_any_text(const char *text)
{
    json_t *json = json_string(text);
    struct byte_buffer out = {0};
    size_t left = strlen(text);
    while (json == NULL && left > 0) {
        size_t good = utf8_error(text, left);
        buffer_append(&out, text, good);
        if (good < left)
            buffer_printf(&out, "\xef\xbf\xbd");
        good = MIN(good + 1, left);
        text += good;
        left -= good;
    }
    if (json == NULL)
        json = json_stringn(out.data, out.length);
    buffer_free(&out);
    return json;
}
