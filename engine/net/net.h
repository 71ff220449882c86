/* HTTP servers: connections that speak HTTP/1.1 or HTTP/2 on one port, told apart by their first bytes, with or
 * without TLS. All limits are here; a service sees whole requests and answers them.
 *
 * One thread has a loop: it makes it, runs it, and gets all calls of its services. A call from another thread
 * is allowed where its comment says so. */
#ifndef LEAT_NET_NET_H
#define LEAT_NET_NET_H

#include "core/buffer.h"
#include "core/diag.h"

enum {
    NET_HEAD_BYTES_MAX = 16 << 10, /* request line and header fields; of HTTP/2: the decoded list */
    NET_FIELDS_MAX = 100,
    NET_PATH_BYTES_MAX = 2 << 10,
    NET_ANSWER_BYTES_MAX = 1 << 30, /* of an answer's body */
};

/* --- A request and its answer --- */

struct net_field {
    struct str name, value; /* name in lower case */
};

/* What a service sees of a request. The texts are the exchange's and live until net_respond. */
struct net_exchange {
    struct str method;        /* "GET", "POST" */
    struct str path;          /* begins with `/`; percent-encoding is decoded once; no NUL, valid UTF-8 */
    struct str query;         /* behind the first `?`, as it came; empty without one */
    struct net_field *fields; /* header fields, in their order; none begins with `:` */
    uint32_t fields_count;
    struct str body; /* whole in `serve`; empty in `begin` */
    bool is_http2;
    /* The client has reset the request or is gone: an answer is thrown away, and work for it can be spared. It
     * must still be given. */
    bool is_gone;
    int64_t begun_us;  /* os_monotonic_us() when the head was there */
    int64_t waited_us; /* for how long it is known to have waited before, unread */
    void *user;        /* the service's, NULL at first */
};

/* The value of the first header field of that name (lower case); data == NULL: there is none. */
struct str net_field(const struct net_exchange *exchange, const char *name);

/* Whether the request has one field `authorization: Bearer TOKEN` with that token; takes as long for each wrong one. */
bool net_sends_token(const struct net_exchange *exchange, const char *token);

/* Whether the content-type is one of gRPC, whose refusals are 200 with a grpc-status. */
bool net_is_grpc(const struct net_exchange *exchange);

struct net_response {
    int status;                     /* 200 .. 599 */
    const struct net_field *fields; /* content-type and others; content-length, date, connection are added */
    uint32_t fields_count;
    struct str body;
    const struct net_field *trailers; /* HTTP/2 only; HTTP/1.1 leaves them out */
    uint32_t trailers_count;
    bool must_close; /* HTTP/1.1: close the connection behind the answer */
};

/* Answers. Each exchange gets one answer, in `begin`, in `serve` or later, in any order. The response is copied;
 * the exchange must not be touched afterwards. */
void net_respond(struct net_exchange *exchange, const struct net_response *response);

/* A short answer in plain text, for errors and health: `text` is the body. */
void net_respond_text(struct net_exchange *exchange, int status, const char *text);

/* --- Answers that go on: streams --- */

enum { NET_STREAM_UNSENT_MAX = 256 << 10 };

/* Begins an answer whose body comes in parts, until net_stream_end: HTTP/1.1 sends it in chunks, HTTP/1.0 until the
 * connection's end, HTTP/2 as DATA. response: without body and trailers; copied. The exchange is the stream from now on.
 * gone: called once when the client is gone, or does not take what it is sent within write_ms, or the loop stops or is
 * freed; the exchange must not be touched afterwards. It may be called inside any call of this file, of this and of other
 * streams. Between parts there is no deadline: a stream may be quiet. False: there is nothing to stream, because the
 * client is gone already, the loop stops or this is a HEAD request; the exchange has its answer, and gone is not called. */
LEAT_CHECKED bool net_stream_begin(struct net_exchange *exchange, const struct net_response *response,
                                   void (*gone)(struct net_exchange *exchange));
/* Sends a part; copied. What is not sent yet counts in the loop's memory. False: nothing of the part is sent, because the
 * client has more than NET_STREAM_UNSENT_MAX to take, or the loop has no memory left: a later part may have room. */
LEAT_CHECKED bool net_stream_send(struct net_exchange *exchange, struct str part);
/* Ends the answer behind what was sent; the exchange must not be touched afterwards, and gone is not called. */
void net_stream_end(struct net_exchange *exchange);

struct net_service {
    /* The head is there, the body is not. May answer now, which refuses the body unread. Keeps no pointer to an
     * exchange that it does not answer: if the body does not come whole, the exchange is gone without a word. NULL:
     * nothing to say. */
    void (*begin)(void *user, struct net_exchange *exchange);
    /* The whole request is there. Answers now or later. */
    void (*serve)(void *user, struct net_exchange *exchange);
    /* A refusal before the service saw a request, for its counters: the status that was sent; 0: the connection
     * was closed without an answer. NULL is allowed. */
    void (*refused)(void *user, int status);
};

/* --- A loop and its listeners --- */

struct net_loop;

/* turn: called after each turn of the loop in which something came: all requests that were ready have been
 * served. NULL is allowed. memory_max: bytes that all connections together may hold, of requests being read and
 * answers being sent; requests beyond are answered 503. If SIGPIPE would end the process, it is ignored from now
 * on. */
struct net_loop *net_loop_new(uint64_t memory_max, void (*turn)(void *user), void *user);
/* All listeners and connections are closed; exchanges without an answer are dropped, and must not be touched
 * afterwards. NULL is allowed. */
void net_loop_free(struct net_loop *loop);

/* Serves until net_loop_stop, then until all exchanges are answered and sent, at most for grace_ms. */
void net_loop_run(struct net_loop *loop, uint32_t grace_ms);
/* Ends net_loop_run. Any thread, and signal handlers. */
void net_loop_stop(struct net_loop *loop);
/* Has `turn` called soon. Any thread, and signal handlers. */
void net_loop_wake(struct net_loop *loop);
/* Under overload, what came last is read first: once a pass over the connections that have bytes has taken pass_us, the
 * others wait unread, for about a second at most (engine/net/park.c). 0: never. Before net_loop_run. */
void net_loop_park(struct net_loop *loop, int64_t pass_us);
/* Calls `call` every `every_ms` while the loop runs. */
void net_loop_every(struct net_loop *loop, uint32_t every_ms, void (*call)(void *user), void *user);

struct net_listen {
    struct str address; /* "127.0.0.1:8000", "[::1]:8000", "localhost:0"; port 0: any free one */
    /* Paths of PEM files; certificate NULL: plaintext, which is refused off loopback. client_authority: clients
     * need a certificate that it signed; NULL: they need none. */
    const char *certificate, *key, *client_authority;
    /* Clients must send `authorization: Bearer TOKEN`; NULL: none. Required off loopback, unless clients have
     * certificates. second_token: is as good, for a service that tells them apart (net_sends_token); only with a
     * token. */
    const char *token, *second_token;
    bool needs_certificates; /* off loopback clients must have certificates: a token is not enough */
    /* For hints: what the names of the command's flags for all these begin with, "control-", if clients cannot have
     * certificates there; NULL: they are --certificate, --key, --token-file and --clients. */
    const char *flags;
    /* Paths that GET and HEAD may ask for without the token, up to a NULL; must outlive the loop. NULL: none. */
    const char *const *open_paths;
    uint32_t connections_max;
    uint32_t body_bytes_max;
    uint32_t head_ms;  /* from the first byte of a head to its end, and of a TLS handshake */
    uint32_t body_ms;  /* from the head to the end of the body */
    uint32_t idle_ms;  /* between requests */
    uint32_t write_ms; /* in which a client takes 64 KiB of what is to be sent, or all of it */
};

/* Defaults: 10,000 connections, bodies of 256 KiB, 5 s, 10 s, 60 s, 10 s. */
struct net_listen net_listen_defaults(struct str address);

/* Whether an address is good: what `leat check` asks. False after a diagnostic at `span`. */
LEAT_CHECKED bool net_address_check(struct str address, struct span span, struct diag_list *diags);

/* Listens. All of `listen` is copied. service, user: must outlive the loop. Returns the port; 0 after a diagnostic. */
LEAT_CHECKED uint16_t net_loop_listen(struct net_loop *loop, const struct net_listen *listen,
                                      const struct net_service *service, void *user, struct diag_list *diags);

/* Since the loop began; `now` figures are of this moment. */
struct net_counters {
    uint64_t connections, connections_refused, connections_now;
    uint64_t connections_parked; /* now: they have sent something that is not read yet (net_loop_park) */
    uint64_t requests_http1, requests_http2; /* that reached `begin` */
    uint64_t refused;                        /* requests and connections that broke a rule or a limit */
    uint64_t bytes_in, bytes_out;
    uint64_t memory_now, memory_peak; /* bytes of heads, bodies, and answers that are not sent yet */
};
struct net_counters net_loop_counters(const struct net_loop *loop);

#endif
