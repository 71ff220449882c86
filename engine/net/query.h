/* The query of a request, the bytes behind the `?`: NAME=VALUE, joined by `&`. Any thread. */
#ifndef LEAT_NET_QUERY_H
#define LEAT_NET_QUERY_H

#include "core/buffer.h"

struct query_walk {
    struct str rest;
    bool is_over;
};
static inline struct query_walk query_walk(struct str query)
{
    return (struct query_walk){query, query.length == 0};
}
/* Takes the next parameter. name, value: parts of the query, still encoded; without a `=` the value is empty. Two `&` in a
 * row, and one at an end, have a parameter without a name beside them. false: none is left. */
bool query_next(struct query_walk *walk, struct str *name, struct str *value);

/* Decodes `%` and two digits in place. false: a `%` without two digits. */
LEAT_CHECKED bool query_unescape(char *text, size_t *length);
/* Decodes a text into `out`, which has room for text.length bytes. false: it is malformed, no UTF-8, or has a NUL. */
LEAT_CHECKED bool query_decode(struct str text, char *out, struct str *decoded);

#endif
