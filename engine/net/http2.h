/* Inside net/: a connection that speaks HTTP/2 (RFC 9113), over an nghttp2 session that works in memory.
 *
 * A session without streams takes about 15 KiB, which the loop's memory_now leaves out: the number of connections
 * bounds it. Answers that wait are counted.
 *
 * http2.c has the calls of a protocol, its deadlines and what a connection may do; http2_frames.c makes
 * requests of frames, http2_answer.c frames of answers. */
#ifndef LEAT_NET_HTTP2_H
#define LEAT_NET_HTTP2_H

#include "net/connection.h"

#include <nghttp2/nghttp2.h>

enum {
    HTTP2_STREAMS_MAX = 128,         /* of a connection at a time */
    HTTP2_STREAM_WINDOW = 256 << 10, /* bytes of a request's body that may be on their way */
    HTTP2_WINDOW = 1 << 20,          /* the same, of a connection */
    HTTP2_CONTINUATIONS_MAX = 8,     /* frames that go on with a head */
    HTTP2_DECODED_BYTES_MAX = 16 * NET_HEAD_BYTES_MAX, /* of a head and trailers, refused or not: then the
                                                          connection ends */
    HTTP2_ACKS_MAX = 1000,        /* answers to PING and SETTINGS that are not sent yet */
    HTTP2_RESETS_MAX = 100,       /* streams that end unanswered, in a second, beyond the answered ones */
    HTTP2_IDLE_FRAMES_MAX = 2000, /* frames without a part of a request, in a second ... */
    HTTP2_IDLE_FRAMES_PER_ANSWER = 16, /* ... and so many more for each answer, */
    HTTP2_IDLE_FRAME_BYTES = 512,      /* and one for so many bytes of an answer */
    HTTP2_DATA_BYTES_MIN = 64,         /* a DATA frame below is counted as one without a part of a request */
    HTTP2_HELD_BYTES_MAX = 1 << 20,    /* of answers; with more, requests wait before they are served */
    HTTP2_STALL_BYTES = 4 << 10,       /* a client that opens its window by less for write_ms is cut off */
    HTTP2_SPARE_STREAMS_MAX = 32,
    HTTP2_ANSWER_FIELDS_MAX = 64, /* of a service's answer, without trailers, and of its trailers */
};

/* A stream: an exchange until it is answered, then what is left to send of the answer. */
struct http2_stream {
    struct http2_stream *older, *newer; /* of the connection's */
    int32_t id;
    struct exchange *exchange; /* NULL: answered */
    int64_t since_us;          /* begin of the head, later of the body */
    bool is_reading;           /* the head is whole, the body is not */
    bool is_ready;             /* the request is whole, and waits to be served */
    bool is_sending;           /* answered, and not all is sent */
    bool is_ended;             /* all is sent */
    bool has_expect;           /* `expect: 100-continue` */
    int refusal;               /* status that the head has earned while it is read; 0: none */
    const char *refusal_text;
    size_t decoded_bytes; /* of the head and trailers */
    int64_t content_length;
    struct byte_buffer answer; /* the body, behind it the trailers: lengths of name and value, name, value */
    size_t body_bytes, sent_bytes;
    bool is_open; /* the answer is a stream that goes on: `answer` is what is to be sent of it now */
};

struct http2 {
    struct net_connection *connection;
    nghttp2_session *session;
    struct http2_stream *oldest, *newest;
    struct http2_stream *spare; /* to be used again; a list, by `newer` */
    uint32_t spare_count;
    uint32_t depth;    /* of calls of the protocol that are under way */
    bool is_receiving; /* nghttp2 is reading: its callbacks may end the connection */

    /* The head that is being read; there is one at a time. */
    struct http2_stream *heading;
    struct byte_buffer method, target, authority;
    bool has_target;

    /* What the client may still do. */
    int64_t now_us;    /* when the call began */
    int64_t second_us; /* begin of the second that the counts are of */
    uint32_t resets, answers, idle_frames, idle_credit;
    uint32_t failure; /* error code of HTTP/2 that ends the connection; 0: none */

    /* Deadlines. */
    bool is_greeted;  /* the client's SETTINGS came */
    bool is_paused;   /* nothing is read: too much waits to be sent */
    bool is_stopping; /* no new requests */
    bool is_finished; /* ends; nothing is read or sent any more */
    uint32_t streams, reading, ready, sending;
    size_t held_bytes;          /* of all answers */
    int64_t opened_us, idle_us; /* idle_us: since when there has been no stream */
    int64_t reading_us;         /* no stream has been reading its body for longer */
    int64_t stalled_us;         /* since when answers have waited for the client's window; 0: they do not */
    size_t stalled_bytes;       /* that were sent since */
    int64_t deadline_us;        /* the first of all */
    int64_t armed_us;           /* when the connection will call `expired`, at the latest */
};

/* http2_frames.c: nghttp2's callbacks, set. */
void http2_frames_callbacks(nghttp2_session_callbacks *callbacks);
/* The stream's request is whole. It is served now, or by http2_serve_ready. */
void http2_serve(struct http2 *http2, struct http2_stream *stream);
/* Serves what waits as long as answers have room. Whether there was something. */
bool http2_serve_ready(struct http2 *http2);
/* Takes the stream out of the connection; an exchange without an answer is orphaned. */
void http2_stream_free(struct http2 *http2, struct http2_stream *stream);

/* http2_answer.c: submits the answer and gives the exchange back. */
void http2_answer(struct http2 *http2, struct exchange *exchange, const struct net_response *response);
/* As in struct net_protocol. */
LEAT_CHECKED bool http2_answer_begin(struct http2 *http2, struct exchange *exchange,
                                     const struct net_response *response);
LEAT_CHECKED bool http2_answer_more(struct http2 *http2, struct http2_stream *stream, struct str part);
void http2_answer_end(struct http2 *http2, struct http2_stream *stream);
/* A whole frame went out: what the answer's end demands. */
void http2_answer_sent(struct http2 *http2, const nghttp2_frame *frame);

/* http2.c: counts against the connection. False: it has done too much; `failure` is set. */
LEAT_CHECKED bool http2_may_idle(struct http2 *http2);
LEAT_CHECKED bool http2_may_reset(struct http2 *http2);

#endif
