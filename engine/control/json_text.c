#include "control/json_text.h"

#include "core/buffer.h"
#include "core/utf8.h"

json_t *json_any_text(struct str text)
{
    struct byte_buffer good = {0};
    utf8_repair(text, &good);
    json_t *json = json_stringn(good.length == 0 ? "" : good.data, good.length);
    buffer_free(&good);
    return json;
}
