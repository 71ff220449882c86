/* The head of an HTTP/1 request, checked strictly: what two programs could read differently is refused, so that
 * nobody can smuggle a request past a proxy. http_parser, which is laxer, reads it afterwards. Any thread. */
#ifndef LEAT_NET_HEAD_H
#define LEAT_NET_HEAD_H

#include "net/rules.h"

/* Looks for the end of a head, as bytes come. */
struct head_scan {
    size_t scanned, line; /* offsets: bytes looked at, where the line begins */
};

enum head_end { HEAD_OPEN, HEAD_WHOLE, HEAD_BROKEN /* a line ends without CR, or the first is empty */ };
/* bytes: from the first of the head. HEAD_WHOLE: scan->scanned is the length of the head. */
enum head_end head_find_end(struct head_scan *scan, const char *bytes, size_t count);

struct head {
    struct str method;
    int minor_version;      /* HTTP/1.0 or 1.1 */
    int64_t content_length; /* -1: not told */
    bool is_chunked;
    bool must_continue; /* the client waits for `100 Continue` */
};

/* Checks a whole head. status 0: it keeps all rules, and *head is filled in. */
struct broken_rule head_check(const char *bytes, size_t count, struct head *head);

#endif
