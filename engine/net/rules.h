/* The rules of requests that both protocols share. One thread. */
#ifndef LEAT_NET_RULES_H
#define LEAT_NET_RULES_H

#include "net/loop.h"

/* The rule that a request breaks: the status to answer with, and why, for people. status 0: none. */
struct broken_rule {
    int status;
    const char *text;
};

/* Decodes the path of a target in place, once. absolute: the target may be a URL of this authority (HTTP/1.1). */
struct broken_rule rules_target(char *target, size_t length, struct str authority, bool is_http2,
                                struct str *path, struct str *query);
struct broken_rule rules_method(struct str method);

/* "localhost:8000", "[::1]", "127.0.0.1:80". */
struct authority {
    struct str host; /* without brackets */
    int port;        /* -1: not told */
};
LEAT_CHECKED bool authority_parse(struct str text, struct authority *authority);
/* "localhost", or a loopback address. */
bool host_is_loopback(struct str host);
bool host_equals(struct str a, struct str b); /* letters in either case */
/* Whether the value of a field `origin` is of that authority. */
bool origin_is_of(struct str origin, const struct authority *authority);
/* Whether the value of a field `authorization` has the token of that digest; takes as long for each wrong one. */
bool authorization_is_good(struct str value, const uint8_t digest[32]);
void token_digest(struct str token, uint8_t digest[32]);

/* All rules, on an exchange whose fields are there. content_length: -1: not told. */
struct broken_rule rules_check(struct exchange *exchange, int64_t content_length);

#endif
