/* Inside net/: a connection, and the protocols that read and write its bytes. */
#ifndef LEAT_NET_CONNECTION_H
#define LEAT_NET_CONNECTION_H

#include "net/net.h"

struct net_connection;
struct net_listener;
struct exchange;

/* A protocol over the plain bytes of a connection (TLS is below). `self` is what open made. */
struct net_protocol {
    void *(*open)(struct net_connection *connection);
    /* Bytes came. What is not used yet, the protocol keeps. It appends answers to connection_out. */
    void (*receive)(void *self, const char *bytes, size_t count);
    /* The answer to an exchange of this connection. Frees the exchange (net_exchange_free). */
    void (*respond)(void *self, struct exchange *exchange, const struct net_response *response);
    /* The exchange's answer becomes a stream. False: a HEAD request, or no requests are taken any more: the exchange was
     * answered by the response alone, and is freed. */
    bool (*begin_stream)(void *self, struct exchange *exchange, const struct net_response *response);
    /* False: the client has too much to take, and the part is left out. */
    bool (*send_stream)(void *self, struct exchange *exchange, struct str part);
    /* Ends the stream. Frees the exchange. */
    void (*end_stream)(void *self, struct exchange *exchange);
    /* All that was to be sent has been sent: the protocol may go on with what it held back. */
    void (*drained)(void *self);
    /* The server stops: no new requests. HTTP/2 sends GOAWAY. */
    void (*stop)(void *self);
    /* The deadline that connection_expect set has passed. */
    void (*expired)(void *self);
    /* The connection is closed. Exchanges that are not answered yet are orphaned (net_exchange_orphan). */
    void (*close)(void *self);
};
extern const struct net_protocol http1_protocol, http2_protocol;

/* What the protocol writes; it is sent when the call of the protocol returns, in order. */
struct byte_buffer *connection_out(struct net_connection *connection);
/* Bytes written and not sent yet. A protocol reads no further requests above CONNECTION_OUT_MAX. */
enum { CONNECTION_OUT_MAX = 256 << 10 };
size_t connection_pending(const struct net_connection *connection);
/* Sends what is in connection_out: for answers outside a call of the protocol. */
void connection_flush(struct net_connection *connection);
/* Closes the connection once all is sent. */
void connection_finish(struct net_connection *connection);
/* Closes at once; the service's `refused` is told `status` unless it is negative. */
void connection_abort(struct net_connection *connection, int status);
/* Stops and goes on reading from the socket: backpressure. */
void connection_pause(struct net_connection *connection, bool is_paused);
const struct net_listen *connection_listen(const struct net_connection *connection);
/* The time as the field `date` has it: 29 bytes. */
struct str connection_date(const struct net_connection *connection);
/* Bytes that the protocol holds of what came, more or (negative) less than before: for memory_now. */
void connection_count(struct net_connection *connection, int64_t bytes);
/* A rule was broken that no exchange is refused for; the protocol ends the connection itself. */
void connection_refused(struct net_connection *connection);
/* Memory for a buffer that has none, and back: connections without bytes under way shall hold none. */
void connection_take_buffer(struct net_connection *connection, struct byte_buffer *buffer);
void connection_give_buffer(struct net_connection *connection, struct byte_buffer *buffer);

/* A stream of the connection begins (1) or ends (-1). While there are streams, the client must also take what the kernel
 * holds for it, within write_ms. */
void connection_streams(struct net_connection *connection, int more);

/* What the connection waits for: sets its only deadline. */
enum net_wait {
    WAIT_HEAD,
    WAIT_BODY,
    WAIT_IDLE,
    WAIT_WINDOW,  /* HTTP/2: as long as for a socket that takes no byte */
    WAIT_SERVICE, /* no deadline: the service has its own */
};
void connection_expect(struct net_connection *connection, enum net_wait wait);

/* --- Exchanges --- */

/* net_exchange and what only net/ knows. */
struct exchange {
    struct net_exchange public;        /* first */
    struct net_connection *connection; /* NULL: orphaned */
    void *stream;                      /* the protocol's */
    struct byte_buffer head, body;     /* the texts of `public` point into them once they are whole */
    struct str authority;              /* the field `host`, unless it is set before net_exchange_begin */
    bool is_head_request;
    bool is_begun, is_served, is_answered;
    void (*gone)(struct net_exchange *exchange); /* of a stream (stream.c); NULL: it is none */
    /* Of exchange.c. */
    struct net_loop *loop;
    const struct net_listener *listener;
    struct exchange *next, *before;
    struct str target; /* as it came */
    uint32_t fields_capacity;
    size_t counted; /* bytes of head and body in the loop's memory_now */
    bool is_freed;
};

/* A new exchange of the connection. Its memory is counted in the loop's. */
struct exchange *net_exchange_new(struct net_connection *connection);
void net_exchange_free(
    struct exchange *exchange); /* its members may be looked at until the next turn of the loop */
/* The client is gone: is_gone rises; the service's later answer frees the exchange. One that was not served yet, and a
 * stream, whose service is told, is freed now. */
void net_exchange_orphan(struct exchange *exchange);
/* Appends to the head's texts and returns the offset; fields are made of offsets by net_exchange_begin. False: above
 * NET_HEAD_BYTES_MAX, NET_FIELDS_MAX (the caller answers 431). */
LEAT_CHECKED bool net_exchange_add_field(struct exchange *exchange, struct str name, struct str value);
LEAT_CHECKED bool net_exchange_set_target(struct exchange *exchange, struct str method, struct str target);
/* The head is whole: checks it by the rules that both protocols share (rules.c: path, Host, Origin, token, length
 * of the body), answers itself if one is broken, else calls the service's `begin`. content_length: -1: not told.
 * Afterwards is_answered may be true: no body is to be read for it. */
void net_exchange_begin(struct exchange *exchange, int64_t content_length);
/* Bytes of the body. False: above the listener's limit or the loop's memory; the exchange has been answered. */
LEAT_CHECKED bool net_exchange_body(struct exchange *exchange, const char *bytes, size_t count);
/* The request is whole: calls the service's `serve`. */
void net_exchange_serve(struct exchange *exchange);
/* The server stops, or the protocol ends the stream for another reason: tells the service (`gone`), and ends it. */
void net_exchange_end_stream(struct exchange *exchange);
/* Asserts that fields of an answer break no rule of HTTP. */
void net_fields_check(const struct net_field *fields, uint32_t fields_count);
/* Answers for net/ itself: an error in plain text; counted as refused. */
void net_exchange_refuse(struct exchange *exchange, int status, const char *text);

#endif
