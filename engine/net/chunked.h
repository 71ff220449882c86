/* A chunked body (RFC 9112, 7.1), decoded strictly and bounded: lines end with CR LF, extensions and trailers are
 * dropped. Any thread. */
#ifndef LEAT_NET_CHUNKED_H
#define LEAT_NET_CHUNKED_H

#include "core/base.h"

enum {
    CHUNK_DIGITS_MAX = 8,
    CHUNK_EXTRAS_MAX = 4 << 10, /* bytes of all extensions and trailers of a body */
};

struct chunked {
    int state; /* 0 at first */
    uint32_t digits, extras;
    uint64_t left; /* bytes of the chunk */
    bool has_line; /* a trailer's line has bytes */
};

enum chunked_found { CHUNKED_MORE, CHUNKED_DATA, CHUNKED_END, CHUNKED_BROKEN };
/* Decodes until data is found: bytes[*from] to bytes[*until - 1] with CHUNKED_DATA. *until: how many bytes are
 * used up. */
enum chunked_found chunked_next(struct chunked *chunked, const char *bytes, size_t count, size_t *from,
                                size_t *until);

#endif
