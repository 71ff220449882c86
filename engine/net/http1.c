/* HTTP/1.1 and 1.0. A head is collected, checked strictly (head.c), then read by http_parser. Requests of a
 * connection are answered one after the other: bytes behind a request are held until its answer is out. */
#include "core/mem.h"
#include "net/chunked.h"
#include "net/connection.h"
#include "net/head.h"

#include <http_parser.h>
#include <stdio.h>
#include <stdlib.h>

enum http1_state {
    AT_HEAD,
    AT_BODY,    /* of body_left bytes */
    AT_CHUNKS,  /* a chunked body */
    AT_SERVICE, /* the request is whole; its answer is awaited */
    AT_STREAM,  /* its answer goes on */
    AT_END,     /* nothing more is read */
};

struct http1 {
    struct net_connection *connection;
    enum http1_state state;
    bool is_stopping;
    bool is_http10, keeps_alive; /* of the request */
    bool is_waiting;             /* the deadline of the head's or body's first byte has been set */
    struct exchange *exchange;
    struct byte_buffer held; /* from held_from on: a head's first bytes, or what follows the request */
    size_t held_from;
    size_t counted; /* bytes of `held` in the loop's figures */
    struct head_scan scan;
    uint64_t body_left;
    struct chunked chunks;
};

static void *http1_open(struct net_connection *connection)
{
    struct http1 *http1 = mem_calloc(1, sizeof(*http1));
    http1->connection = connection;
    return http1;
}

static bool has_held(const struct http1 *http1)
{
    return http1->held.length > http1->held_from;
}

static void count_held(struct http1 *http1)
{
    connection_count(http1->connection, (int64_t)http1->held.length - (int64_t)http1->counted);
    http1->counted = http1->held.length;
}

/* --- Answers --- */

static const char *phrase(int status)
{
    static const struct {
        int status;
        const char *text;
    } phrases[] = {
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(phrases); i++) {
        if (phrases[i].status == status)
            return phrases[i].text;
    }
    return "Status";
}

static char *put(char *at, struct str text)
{
    memcpy(at, text.data, text.length);
    return at + text.length;
}

static char *put_number(char *at, uint64_t number)
{
    char digits[20];
    size_t count = 0;
    do
        digits[count++] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    while (count > 0)
        *at++ = digits[--count];
    return at;
}

enum { HEAD_ROOM = 256 }; /* for all of an answer's head but the service's fields */

enum framing {
    FRAMING_LENGTH, /* the body follows the head */
    FRAMING_CHUNKS, /* a stream */
    FRAMING_CLOSE,  /* a stream to an HTTP/1.0 client */
};

static void write_answer(struct http1 *http1, const struct net_response *response, enum framing framing,
                         bool is_head, bool must_close)
{
    struct byte_buffer *out = connection_out(http1->connection);
    bool has_body = response->status != 204 && response->status != 304;
    size_t room = HEAD_ROOM + (has_body ? response->body.length : 0);
    for (uint32_t i = 0; i < response->fields_count; i++)
        room += response->fields[i].name.length + response->fields[i].value.length + 4;
    char *begin = buffer_reserve(out, room), *at = begin;
    at = put_number(put(at, STR("HTTP/1.1 ")), (uint64_t)response->status);
    *at++ = ' ';
    at = put(at, str_from(phrase(response->status)));
    if (framing == FRAMING_CHUNKS)
        at = put(at, STR("\r\ntransfer-encoding: chunked"));
    else if (has_body && framing == FRAMING_LENGTH)
        at = put_number(put(at, STR("\r\ncontent-length: ")), response->body.length);
    at = put(put(at, STR("\r\ndate: ")), connection_date(http1->connection));
    if (must_close)
        at = put(at, STR("\r\nconnection: close"));
    else if (http1->is_http10)
        at = put(at, STR("\r\nconnection: keep-alive"));
    for (uint32_t i = 0; i < response->fields_count; i++) {
        at = put(put(at, STR("\r\n")), response->fields[i].name);
        at = put(put(at, STR(": ")), response->fields[i].value);
    }
    at = put(at, STR("\r\n\r\n"));
    if (has_body && !is_head && response->body.length > 0)
        at = put(at, response->body);
    leat_assert((size_t)(at - begin) <= room);
    out->length += (size_t)(at - begin);
}

static void finish(struct http1 *http1)
{
    http1->state = AT_END;
    connection_finish(http1->connection);
}

/* The answer is whole. */
static void end_exchange(struct http1 *http1, bool must_close)
{
    net_exchange_free(http1->exchange);
    http1->exchange = NULL;
    if (must_close)
        finish(http1);
    else
        http1->state = AT_HEAD;
}

static void http1_respond(void *self, struct exchange *exchange, const struct net_response *response)
{
    struct http1 *http1 = self;
    leat_assert(exchange == http1->exchange);
    /* An answer before the end of the request leaves bytes that nobody reads. */
    bool must_close =
        http1->state != AT_SERVICE || !http1->keeps_alive || http1->is_stopping || response->must_close;
    write_answer(http1, response, FRAMING_LENGTH, exchange->is_head_request, must_close);
    end_exchange(http1, must_close);
}

/* --- Streams --- */

static bool must_close_stream(const struct http1 *http1)
{
    return !http1->keeps_alive || http1->is_stopping || http1->is_http10;
}

static bool http1_begin_stream(void *self, struct exchange *exchange, const struct net_response *response)
{
    struct http1 *http1 = self;
    leat_assert(exchange == http1->exchange && http1->state == AT_SERVICE);
    bool is_empty = exchange->is_head_request || http1->is_stopping, must_close = must_close_stream(http1);
    enum framing framing = http1->is_http10 ? FRAMING_CLOSE : FRAMING_CHUNKS;
    write_answer(http1, response, framing, exchange->is_head_request, must_close);
    if (!is_empty) {
        http1->state = AT_STREAM;
        connection_streams(http1->connection, 1);
        return true;
    }
    if (!exchange->is_head_request && !http1->is_http10)
        buffer_append(connection_out(http1->connection), "0\r\n\r\n", 5);
    end_exchange(http1, must_close);
    return false;
}

static bool http1_send_stream(void *self, struct exchange *exchange, struct str part)
{
    struct http1 *http1 = self;
    leat_assert(exchange == http1->exchange && http1->state == AT_STREAM);
    if (connection_pending(http1->connection) > NET_STREAM_UNSENT_MAX)
        return false;
    struct byte_buffer *out = connection_out(http1->connection);
    if (!http1->is_http10)
        buffer_printf(out, "%zx\r\n", part.length);
    buffer_append(out, part.data, part.length);
    if (!http1->is_http10)
        buffer_append(out, "\r\n", 2);
    return true;
}

static void http1_end_stream(void *self, struct exchange *exchange)
{
    struct http1 *http1 = self;
    leat_assert(exchange == http1->exchange && http1->state == AT_STREAM);
    if (!http1->is_http10)
        buffer_append(connection_out(http1->connection), "0\r\n\r\n", 5);
    connection_streams(http1->connection, -1);
    end_exchange(http1, must_close_stream(http1));
}

/* Answers what is no request of the service's, and closes. */
static void reject(struct http1 *http1, struct broken_rule broken)
{
    if (http1->exchange == NULL)
        http1->exchange = net_exchange_new(http1->connection);
    net_exchange_refuse(http1->exchange, broken.status, broken.text);
}

/* --- Heads --- */

/* What http_parser finds in a head. */
struct reading {
    struct exchange *exchange;
    struct str method, target, name, value;
    bool keeps_alive, is_too_large;
};

static int on_url(http_parser *parser, const char *at, size_t length)
{
    struct reading *reading = parser->data;
    reading->target = (struct str){at, length};
    reading->is_too_large |= !net_exchange_set_target(reading->exchange, reading->method, reading->target);
    return 0;
}

static int on_field(http_parser *parser, const char *at, size_t length)
{
    struct reading *reading = parser->data;
    reading->name = (struct str){at, length};
    return 0;
}

static int on_value(http_parser *parser, const char *at, size_t length)
{
    struct reading *reading = parser->data;
    while (length > 0 && (at[length - 1] == ' ' || at[length - 1] == '\t'))
        length--;
    reading->is_too_large |=
        !net_exchange_add_field(reading->exchange, reading->name, (struct str){at, length});
    return 0;
}

/* The head is whole; the body is ours. */
static int on_headers(http_parser *parser)
{
    struct reading *reading = parser->data;
    reading->keeps_alive = http_should_keep_alive(parser) != 0;
    http_parser_pause(parser, 1);
    return 0;
}

static const http_parser_settings settings = {.on_url = on_url,
                                              .on_header_field = on_field,
                                              .on_header_value = on_value,
                                              .on_headers_complete = on_headers};

static struct broken_rule parse(struct http1 *http1, const struct head *head, const char *bytes, size_t count)
{
    struct reading reading = {.exchange = http1->exchange, .method = head->method};
    http_parser parser;
    http_parser_init(&parser, HTTP_REQUEST);
    parser.data = &reading;
    http_parser_execute(&parser, &settings, bytes, count);
    if (HTTP_PARSER_ERRNO(&parser) != HPE_PAUSED)
        return (struct broken_rule){400, http_errno_description(HTTP_PARSER_ERRNO(&parser))};
    if (reading.is_too_large)
        return (struct broken_rule){431, "the request's head is longer than 16 KiB"};
    http1->keeps_alive = reading.keeps_alive;
    http1->is_http10 = head->minor_version == 0;
    return (struct broken_rule){0, NULL};
}

/* The head is whole. has_more: bytes of the body are there already. */
static void begin(struct http1 *http1, const char *bytes, size_t count, bool has_more)
{
    struct head head;
    http1->exchange = net_exchange_new(http1->connection);
    http1->scan = (struct head_scan){0};
    http1->is_waiting = false;
    struct broken_rule broken = head_check(bytes, count, &head);
    if (broken.status == 0)
        broken = rules_method(head.method); /* http_parser knows fewer */
    if (broken.status == 0)
        broken = parse(http1, &head, bytes, count);
    if (broken.status != 0) {
        reject(http1, broken);
        return;
    }
    http1->body_left = head.content_length > 0 ? (uint64_t)head.content_length : 0;
    http1->chunks = (struct chunked){0};
    http1->state = head.is_chunked ? AT_CHUNKS : http1->body_left > 0 ? AT_BODY : AT_SERVICE;
    struct exchange *exchange = http1->exchange;
    net_exchange_begin(exchange, head.is_chunked ? -1 : MAX(head.content_length, 0));
    if (exchange->is_answered)
        return;
    if (http1->state == AT_SERVICE)
        net_exchange_serve(exchange);
    else if (head.must_continue && !has_more)
        buffer_append(connection_out(http1->connection), "HTTP/1.1 100 Continue\r\n\r\n", 25);
}

static bool is_method_byte(char c)
{
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

/* Returns the bytes of the head; 0: it is not whole yet. */
static size_t take_head(struct http1 *http1, const char *bytes, size_t count)
{
    if (!is_method_byte(bytes[0])) { /* TLS, most often */
        reject(http1, (struct broken_rule){400, "expected a request line: method, target, HTTP/1.1"});
        return 0;
    }
    switch (head_find_end(&http1->scan, bytes, count)) {
    case HEAD_BROKEN:
        reject(http1, (struct broken_rule){
                          400, "a line of the request's head does not end with CR LF, or is empty"});
        return 0;
    case HEAD_OPEN:
        if (count > NET_HEAD_BYTES_MAX)
            reject(http1, (struct broken_rule){431, "the request's head is longer than 16 KiB"});
        return 0;
    default: {
        size_t length = http1->scan.scanned;
        if (length > NET_HEAD_BYTES_MAX)
            reject(http1, (struct broken_rule){431, "the request's head is longer than 16 KiB"});
        else
            begin(http1, bytes, length, count > length);
        return length;
    }
    }
}

/* --- Bodies --- */

static void serve(struct http1 *http1)
{
    http1->state = AT_SERVICE;
    http1->is_waiting = false;
    net_exchange_serve(http1->exchange);
}

static size_t take_body(struct http1 *http1, const char *bytes, size_t count)
{
    size_t used = MIN(count, http1->body_left);
    if (!net_exchange_body(http1->exchange, bytes, used))
        return used;
    http1->body_left -= used;
    if (http1->body_left == 0)
        serve(http1);
    return used;
}

static size_t take_chunks(struct http1 *http1, const char *bytes, size_t count)
{
    size_t from = 0, until = 0;
    switch (chunked_next(&http1->chunks, bytes, count, &from, &until)) {
    case CHUNKED_BROKEN:
        reject(http1, (struct broken_rule){400, "the chunked body breaks the rules of RFC 9112, 7.1"});
        return count;
    case CHUNKED_DATA:
        if (!net_exchange_body(http1->exchange, bytes + from, until - from))
            return count;
        return until;
    case CHUNKED_END: serve(http1); return until;
    default: return until;
    }
}

/* --- Bytes in order --- */

/* Whether bytes can be taken now. */
static bool is_ready(const struct http1 *http1)
{
    return http1->state != AT_SERVICE && http1->state != AT_STREAM && http1->state != AT_END &&
           !(http1->state == AT_HEAD && connection_pending(http1->connection) > CONNECTION_OUT_MAX);
}

/* Returns how many bytes are used up. */
static size_t take(struct http1 *http1, const char *bytes, size_t count)
{
    size_t used = 0;
    while (used < count && is_ready(http1)) {
        const char *at = bytes + used;
        size_t left = count - used;
        if (http1->state == AT_HEAD) {
            size_t head = take_head(http1, at, left);
            if (head == 0)
                break;
            used += head;
        } else {
            used += http1->state == AT_BODY ? take_body(http1, at, left) : take_chunks(http1, at, left);
        }
    }
    return http1->state == AT_END ? count : used;
}

/* What the connection waits for now, and whether it reads on. */
static void wait_on(struct http1 *http1)
{
    bool is_holding = has_held(http1);
    struct net_connection *connection = http1->connection;
    if (!is_ready(http1)) {
        http1->is_waiting = false;
        connection_expect(connection, WAIT_SERVICE);
    } else if (http1->state == AT_HEAD && !is_holding) {
        connection_expect(connection, connection_pending(connection) > 0 ? WAIT_SERVICE : WAIT_IDLE);
    } else if (!http1->is_waiting) {
        http1->is_waiting = true;
        connection_expect(connection, http1->state == AT_HEAD ? WAIT_HEAD : WAIT_BODY);
    }
    connection_pause(connection, is_holding && !is_ready(http1));
}

static void take_held(struct http1 *http1)
{
    http1->held_from +=
        take(http1, http1->held.data + http1->held_from, http1->held.length - http1->held_from);
    if (has_held(http1))
        return;
    http1->held_from = 0;
    buffer_clear(&http1->held);
    connection_give_buffer(http1->connection, &http1->held);
}

static void hold(struct http1 *http1, const char *bytes, size_t count)
{
    connection_take_buffer(http1->connection, &http1->held);
    if (http1->held_from > 0)
        memmove(http1->held.data, http1->held.data + http1->held_from, http1->held.length - http1->held_from);
    http1->held.length -= http1->held_from;
    http1->held_from = 0;
    buffer_append(&http1->held, bytes, count);
}

static void http1_receive(void *self, const char *bytes, size_t count)
{
    struct http1 *http1 = self;
    if (http1->state == AT_END)
        return;
    if (has_held(http1)) {
        hold(http1, bytes, count);
        take_held(http1);
    } else {
        size_t used = take(http1, bytes, count);
        if (used < count)
            hold(http1, bytes + used, count - used);
    }
    count_held(http1);
    wait_on(http1);
}

static void http1_drained(void *self)
{
    struct http1 *http1 = self;
    if (has_held(http1)) {
        take_held(http1);
        count_held(http1);
    }
    wait_on(http1);
}

/* --- Ends --- */

static void http1_stop(void *self)
{
    struct http1 *http1 = self;
    http1->is_stopping = true;
    if (http1->state == AT_HEAD && connection_pending(http1->connection) == 0)
        connection_abort(http1->connection, -1);
    else if (http1->state == AT_HEAD)
        finish(http1);
    else if (http1->state == AT_STREAM)
        net_exchange_end_stream(http1->exchange);
}

static void http1_expired(void *self)
{
    struct http1 *http1 = self;
    if (http1->state == AT_HEAD && !has_held(http1))
        connection_abort(http1->connection, -1);
    else if (http1->state == AT_HEAD)
        reject(http1, (struct broken_rule){408, "the request's head did not come in time"});
    else if (http1->exchange != NULL)
        reject(http1, (struct broken_rule){408, "the request's body did not come in time"});
}

static void http1_close(void *self)
{
    struct http1 *http1 = self;
    if (http1->state == AT_STREAM)
        connection_streams(http1->connection, -1);
    if (http1->exchange != NULL)
        net_exchange_orphan(http1->exchange);
    buffer_clear(&http1->held);
    count_held(http1);
    buffer_free(&http1->held);
    free(http1);
}

const struct net_protocol http1_protocol = {.open = http1_open,
                                            .receive = http1_receive,
                                            .respond = http1_respond,
                                            .begin_stream = http1_begin_stream,
                                            .send_stream = http1_send_stream,
                                            .end_stream = http1_end_stream,
                                            .drained = http1_drained,
                                            .stop = http1_stop,
                                            .expired = http1_expired,
                                            .close = http1_close};
