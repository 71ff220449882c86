#include "net/chunked.h"

#include "core/hex.h"

enum { SIZE, EXTENSION, SIZE_FEED, DATA, DATA_RETURN, DATA_FEED, TRAILER, TRAILER_FEED, END };

static bool is_control(char c)
{
    return ((unsigned char)c < 0x20 && c != '\t') || c == 0x7F;
}

/* A byte of the line with a chunk's size. */
static bool take_size(struct chunked *chunked, char c)
{
    int digit = hex_value(c);
    if (digit >= 0 && chunked->digits < CHUNK_DIGITS_MAX) {
        chunked->digits++;
        chunked->left = chunked->left * 16 + (unsigned)digit;
        return true;
    }
    if (chunked->digits == 0 || (c != '\r' && c != ';'))
        return false;
    chunked->state = c == '\r' ? SIZE_FEED : EXTENSION;
    return true;
}

/* A byte of a trailer's line; the empty line ends the body. */
static bool take_trailer(struct chunked *chunked, char c)
{
    if (c == '\r') {
        chunked->state = TRAILER_FEED;
        return true;
    }
    bool is_fold = !chunked->has_line && (c == ' ' || c == '\t');
    chunked->has_line = true;
    return !is_control(c) && !is_fold && ++chunked->extras <= CHUNK_EXTRAS_MAX;
}

/* Takes a byte that is no data. */
static bool take(struct chunked *chunked, char c)
{
    switch (chunked->state) {
    case SIZE: return take_size(chunked, c);
    case EXTENSION:
        if (c == '\r')
            chunked->state = SIZE_FEED;
        return c == '\r' || (!is_control(c) && ++chunked->extras <= CHUNK_EXTRAS_MAX);
    case SIZE_FEED: chunked->state = chunked->left > 0 ? DATA : TRAILER; return c == '\n';
    case DATA_RETURN: chunked->state = DATA_FEED; return c == '\r';
    case DATA_FEED:
        chunked->state = SIZE;
        chunked->digits = 0;
        return c == '\n';
    case TRAILER: return take_trailer(chunked, c);
    default: /* TRAILER_FEED */
        chunked->state = chunked->has_line ? TRAILER : END;
        chunked->has_line = false;
        return c == '\n';
    }
}

enum chunked_found chunked_next(struct chunked *chunked, const char *bytes, size_t count, size_t *from,
                                size_t *until)
{
    size_t at = 0;
    for (; at < count && chunked->state != DATA; at++) {
        if (!take(chunked, bytes[at]))
            return CHUNKED_BROKEN;
        if (chunked->state == END) {
            *until = at + 1;
            return CHUNKED_END;
        }
    }
    *from = *until = at;
    if (at == count)
        return CHUNKED_MORE;
    *until += MIN(chunked->left, count - at);
    chunked->left -= *until - at;
    if (chunked->left == 0)
        chunked->state = DATA_RETURN;
    return CHUNKED_DATA;
}
