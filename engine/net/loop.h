/* Inside net/: the loop, its listeners, and what all connections of a loop share. */
#ifndef LEAT_NET_LOOP_H
#define LEAT_NET_LOOP_H

#include "net/connection.h"
#include "net/deadline.h"
#include "net/tls.h"

#include <stdatomic.h>
#include <uv.h>

enum {
    SPARE_EXCHANGES_MAX = 512,  /* that wait to be used again, with their buffers */
    SPARE_BUFFERS_MAX = 256,    /* likewise of connections */
    SPARE_BYTES_MAX = 32 << 10, /* a larger buffer is freed */
    READ_BYTES = 64 << 10,
    STOP_TURNS = 3,               /* accept, read, answer */
    WRITE_BYTES_LEAST = 64 << 10, /* that a client must take in each write_ms, or all that there is */
    LINGER_MS = 1000,             /* after the last byte sent, for the client to read it and close */
    PARKED_US_MAX = 1000 * 1000,  /* park.c */
    TURN_REQUESTS = 64,           /* after so many a turn comes, although more connections have bytes */
    DATE_BYTES = 29,              /* "Thu, 26 Nov 2026 16:51:13 GMT" */
};

struct net_every {
    uv_timer_t timer;
    void (*call)(void *user);
    void *user;
    struct net_every *next;
};

struct net_loop {
    uv_loop_t uv;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_async_t async;
    uv_timer_t grace; /* data: milliseconds, as a number */
    struct deadlines deadlines;
    struct net_every *everys;
    struct net_listener *listeners;
    struct net_connection *connections; /* a list, by next and before */
    struct net_connection *dirty;       /* have answers to send from outside their protocols' calls */
    struct exchange *live;              /* a list, by next and before */
    struct exchange *spare;             /* to be used again */
    struct exchange *freed;             /* likewise from the next turn on: their protocols may look at them */
    uint32_t spare_count, buffers_count;
    struct byte_buffer buffers[SPARE_BUFFERS_MAX];
    uint64_t unsent;           /* bytes that connections have not sent yet */
    uint64_t requests_settled; /* of the counters of requests: in turns before the one that comes next */
    struct net_connection *newest_parked, *oldest_parked; /* by newer and older */
    int64_t pass_us;     /* monotonic: when the first bytes of this pass were read; 0: none were */
    int64_t pass_us_max; /* what a pass may take before connections are parked; 0: any time */
    bool is_late;        /* this pass has taken pass_us_max */
    uint64_t lingering;  /* connections that have sent all and wait for the client's end */
    struct net_counters counters;
    uint64_t memory_max;
    void (*turn)(void *user);
    void *user;
    bool has_news, is_stopping;
    uint32_t stop_turns;              /* since net_loop_stop */
    atomic_bool must_stop, must_wake; /* set by signal handlers and other threads, before uv_async_send */
    int64_t date_second;
    char date[DATE_BYTES + 1];
    char bytes[READ_BYTES]; /* what was just read, of any connection */
    char plain[READ_BYTES]; /* likewise, decrypted */
};

struct net_listener {
    uv_tcp_t tcp;
    struct net_loop *loop;
    struct net_listener *next;
    struct net_listen listen; /* its texts are the listener's own */
    const struct net_service *service;
    void *user;
    struct tls_context *tls; /* NULL: plaintext */
    struct str host;         /* of the address, without brackets */
    bool is_loopback;
    uint8_t token_digest[32], second_digest[32]; /* of listen.token, and of second_token */
    uint32_t connections_now;
    struct deadline_queue head, body, idle, window, write, linger;
};

/* Memory that a connection or an exchange holds has grown or shrunk. */
static inline void loop_count(struct net_loop *loop, int64_t bytes)
{
    struct net_counters *counters = &loop->counters;
    counters->memory_now += (uint64_t)bytes;
    leat_assert((int64_t)counters->memory_now >= 0);
    counters->memory_peak = MAX(counters->memory_peak, counters->memory_now);
}

/* Behind the last use of a connection in a call of libuv: has `turn` called and answers sent, if TURN_REQUESTS requests
 * have come since. libuv reads from all connections that have bytes before it lets the loop go on: under overload that is
 * thousands of requests, and those that came first would be beyond their deadline before `turn` sees them. */
void loop_settle_early(struct net_loop *loop);
/* Gives the memory of an empty buffer to the next that needs one. */
void loop_give_buffer(struct net_loop *loop, struct byte_buffer *buffer);
/* A buffer without memory gets some that was given. */
static inline void loop_take_buffer(struct net_loop *loop, struct byte_buffer *buffer)
{
    if (buffer->capacity == 0 && loop->buffers_count > 0)
        *buffer = loop->buffers[--loop->buffers_count];
}

/* The time now as the field `date` has it; DATE_BYTES. */
const char *loop_date(struct net_loop *loop);
/* A request or connection broke a rule or limit. */
void loop_refused(struct net_loop *loop, const struct net_listener *listener, int status);

/* park.c. park_look: the pass may have become late; behind each TURN_REQUESTS. park_resume: between two passes. park_forget:
 * the connection is destroyed. */
void park_look(struct net_loop *loop);
void park_resume(struct net_loop *loop);
void park(struct net_connection *connection);
void park_forget(struct net_connection *connection);

/* connection.c */
void connections_deadlines(struct net_listener *listener);
/* Gives an answer to the exchange's protocol. */
void connection_respond(struct exchange *exchange, const struct net_response *response);
/* Likewise for streams: as in struct net_protocol. */
LEAT_CHECKED bool connection_begin_stream(struct exchange *exchange, const struct net_response *response);
LEAT_CHECKED bool connection_send_stream(struct exchange *exchange, struct str part);
void connection_end_stream(struct exchange *exchange);
void connection_accept(struct net_listener *listener);
/* Sends what is due, and goes on with what was held back. */
void connection_settle(struct net_connection *connection);
/* The server stops. */
void connection_stop(struct net_connection *connection);
struct net_connection *connection_next(const struct net_connection *connection);
/* Since when, monotonic, bytes of the connection are known to wait unread; 0: they do not. */
int64_t connection_waits_since(const struct net_connection *connection);
struct net_loop *connection_loop(const struct net_connection *connection);
const struct net_listener *connection_listener(const struct net_connection *connection);

/* exchange.c: what was freed in this turn may be used again. */
void net_exchanges_recycle(struct net_loop *loop);
void net_exchanges_free(struct net_loop *loop);

/* listener.c */
void listener_close(struct net_listener *listener);
void listener_free(struct net_listener *listener);

#endif
