/* The other end of a fake connection: frames of HTTP/2 by hand, and what comes back, stream by stream. */
#ifndef LEAT_TESTS_UNIT_NET_HTTP2_PEER_H
#define LEAT_TESTS_UNIT_NET_HTTP2_PEER_H

#include "fake_connection.h"

#include <nghttp2/nghttp2.h>

enum { PEER_STREAMS_MAX = 8192, END_STREAM = 1, ACK = 1, END_HEADERS = 4, PADDED = 8 };

struct peer_answer {
    struct byte_buffer head; /* "name: value\n"; heads behind the first have "--\n" in front */
    struct byte_buffer body;
    uint32_t heads, frames;
    bool is_ended;
    int64_t reset; /* error code; -1: not reset */
};

struct peer {
    struct net_connection connection;
    struct byte_buffer in; /* frames to be sent */
    nghttp2_hd_inflater *inflater;
    struct peer_answer *answers; /* by (stream + 1) / 2; 0: the connection's frames */
    uint32_t frames[256];        /* by type */
    int64_t goaway;              /* error code; -1: none */
    int32_t goaway_stream;
    bool is_deaf; /* takes nothing */
};

/* greeted: the client's preface and SETTINGS have been sent, those of the server are acknowledged. */
void peer_open(struct peer *peer, bool is_greeted);
void peer_close(struct peer *peer);
/* Has a last request of that stream served before. */
void peer_close_alive(struct peer *peer, uint32_t stream);

void peer_put(struct peer *peer, int type, int flags, uint32_t stream, const void *payload, size_t bytes);
void peer_put_u32(struct peer *peer, int type, uint32_t stream, uint32_t value);
/* HPACK: a literal field that is not indexed. */
void peer_field(struct byte_buffer *block, const char *name, const char *value);
void peer_lines(struct byte_buffer *block, const char *lines); /* "name: value\n" ... */
/* HEADERS of a request; more: "name: value\n" lines, NULL: none. */
void peer_head(struct peer *peer, uint32_t stream, int flags, const char *method, const char *more);
void peer_data(struct peer *peer, uint32_t stream, int flags, size_t bytes);
/* The connection gets what was put, in one piece, and the peer takes what it sends. */
void peer_send(struct peer *peer);
/* Takes what waits, as long as something comes. */
void peer_take(struct peer *peer);

struct peer_answer *peer_answer(struct peer *peer, uint32_t stream);
bool peer_got(struct peer *peer, uint32_t stream, const char *line); /* of a head */

#endif
