/* Inside net/: the state of a connection, between connection.c and receive.c. */
#ifndef LEAT_NET_CONNECTION_STATE_H
#define LEAT_NET_CONNECTION_STATE_H

#include "net/loop.h"

enum { PREFACE_BYTES = 24 /* of HTTP/2 */ };

struct net_connection {
    uv_tcp_t tcp;     /* first */
    uv_write_t write; /* of `sending` */
    struct net_loop *loop;
    struct net_listener *listener;
    struct net_connection *next, *before; /* of the loop's connections */
    struct net_connection *next_dirty;
    struct net_connection *newer, *older; /* of those that are parked */
    int64_t parked_us;                    /* monotonic: since when bytes are known to wait; 0: none are */
    const struct net_protocol *protocol;  /* NULL: not known yet, or closed */
    void *self;
    struct tls *tls;            /* NULL: plaintext */
    struct byte_buffer out;     /* what the protocol wrote */
    struct byte_buffer sending; /* what the socket has not taken yet, while is_writing */
    size_t counted;             /* bytes of both in the loop's figures */
    struct deadline wait, stall;
    /* Since `stall` was set: what was untaken then, and the bytes of `given` that were taken then. */
    size_t stalled_at;
    uint64_t taken_at;
    uint64_t given; /* bytes that were given to the socket */
    uint32_t streams;
    uint32_t depth;
    uint8_t first_count;
    char first[PREFACE_BYTES]; /* bytes that may become HTTP/2's preface */
    bool is_parked, is_paused, is_writing, was_writing, is_dirty, is_known;
    bool is_finishing, is_ended /* TLS is */, is_lingering, is_eof, is_aborted, is_closed;
};

static inline uv_stream_t *connection_stream(struct net_connection *connection)
{
    return (uv_stream_t *)&connection->tcp;
}

/* connection.c */

/* Sends what is in `out`; nothing may be under way. */
void connection_send(struct net_connection *connection);
void connection_close_protocol(struct net_connection *connection);
/* Has the connection settled in this turn. */
void connection_mark(struct net_connection *connection);
/* Behind what raised `depth`, where no protocol is at work any more: sends what was written. */
void connection_leave(struct net_connection *connection);

/* receive.c */

/* Begins or goes on to read from the socket. */
void connection_read(struct net_connection *connection);
/* Goes on with bytes of TLS that were held back. */
void connection_go_on(struct net_connection *connection);

#endif
