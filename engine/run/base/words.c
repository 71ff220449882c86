#include "run/base/words.h"

void words_put(struct byte_buffer *out, uint64_t value)
{
    buffer_append(out, &value, sizeof(value));
}

void words_put_text(struct byte_buffer *out, struct str text)
{
    words_put(out, text.length);
    if (text.length > 0)
        buffer_append(out, text.data, text.length);
}

uint64_t words_take(struct words *words)
{
    uint64_t value = 0;
    words->is_short |= words->left.length < sizeof(value);
    if (words->is_short)
        return 0;
    memcpy(&value, words->left.data, sizeof(value));
    words->left.data += sizeof(value);
    words->left.length -= sizeof(value);
    return value;
}

struct str words_take_text(struct words *words)
{
    uint64_t length = words_take(words);
    words->is_short |= length > WORDS_TEXT_MAX || length > words->left.length;
    if (words->is_short)
        return (struct str){"", 0};
    struct str text = {words->left.data, length};
    words->left.data += length;
    words->left.length -= length;
    return text;
}
