/* Arbitrary bytes as what a client sends over HTTP/1.1, with a connection in memory below. The first byte says in
 * parts of how many bytes they come, which changes no answer; answers come at once or later. What was held for the
 * connection is given back, whenever it is closed. */
#include "fuzz.h"
#include "net/loop.h"

enum { BYTES_MAX = 8 << 10, BODY_MAX = 1000 };

struct net_connection {
    struct net_loop *loop;
    struct net_listener *listener;
    struct byte_buffer out, sent;
    void *self;
    struct net_exchange *waiting;
    struct net_exchange *stream; /* an answer that goes on */
    int streams;                 /* that http1.c has told of */
    bool is_finishing, is_aborted, is_paused;
};

static struct net_connection connection; /* one at a time */

/* --- What http1.c, exchange.c and rules.c need of a connection --- */

struct byte_buffer *connection_out(struct net_connection *one)
{
    return &one->out;
}

size_t connection_pending(const struct net_connection *one)
{
    return one->out.length;
}

int64_t connection_waits_since(const struct net_connection *one LEAT_UNUSED)
{
    return 0;
}

void connection_finish(struct net_connection *one)
{
    one->is_finishing = true;
}

void connection_abort(struct net_connection *one, int status)
{
    (void)status;
    one->is_aborted = true;
}

void connection_pause(struct net_connection *one, bool is_paused)
{
    one->is_paused = is_paused;
}

void connection_expect(struct net_connection *one, enum net_wait wait)
{
    (void)one;
    must(wait == WAIT_HEAD || wait == WAIT_BODY || wait == WAIT_IDLE || wait == WAIT_SERVICE,
         "a wait has a name");
}

struct str connection_date(const struct net_connection *one)
{
    (void)one;
    return STR("Thu, 01 Jan 1970 00:00:00 GMT");
}

void connection_count(struct net_connection *one, int64_t bytes)
{
    loop_count(one->loop, bytes);
}

void connection_take_buffer(struct net_connection *one, struct byte_buffer *buffer)
{
    (void)one;
    (void)buffer;
}

void connection_give_buffer(struct net_connection *one, struct byte_buffer *buffer)
{
    (void)one;
    buffer_free(buffer);
}

struct net_loop *connection_loop(const struct net_connection *one)
{
    return one->loop;
}

const struct net_listener *connection_listener(const struct net_connection *one)
{
    return one->listener;
}

void connection_respond(struct exchange *exchange, const struct net_response *response)
{
    http1_protocol.respond(exchange->connection->self, exchange, response);
}

bool connection_begin_stream(struct exchange *exchange, const struct net_response *response)
{
    return http1_protocol.begin_stream(exchange->connection->self, exchange, response);
}

bool connection_send_stream(struct exchange *exchange, struct str part)
{
    return http1_protocol.send_stream(exchange->connection->self, exchange, part);
}

void connection_end_stream(struct exchange *exchange)
{
    http1_protocol.end_stream(exchange->connection->self, exchange);
}

void connection_streams(struct net_connection *one, int more)
{
    one->streams += more;
    must(one->streams == 0 || one->streams == 1, "a connection has one stream at a time");
}

void loop_refused(struct net_loop *loop, const struct net_listener *listener, int status)
{
    (void)listener;
    must(status >= 400 && status < 600, "a refusal is an error");
    loop->counters.refused++;
}

/* --- The service --- */

static void echo(struct net_exchange *exchange)
{
    struct net_field field = {STR("x-path-length"), {"", 0}};
    must(exchange->path.length > 0 && exchange->path.data[0] == '/', "a path begins with a slash");
    must(memchr(exchange->path.data, 0, exchange->path.length) == NULL, "a path has no NUL");
    must(exchange->body.length <= BODY_MAX, "bodies are bounded");
    net_respond(exchange, &(struct net_response){
                              .status = 200, .fields = &field, .fields_count = 1, .body = exchange->body});
}

static void begin(void *user, struct net_exchange *exchange)
{
    (void)user;
    must(exchange->fields_count <= NET_FIELDS_MAX, "fields are bounded");
    if (str_is(exchange->path, "/early"))
        net_respond_text(exchange, 404, "not here");
}

static void gone(struct net_exchange *exchange)
{
    must(connection.stream == exchange, "the stream that is gone is the one there is");
    connection.stream = NULL;
}

static void stream(struct net_exchange *exchange)
{
    struct net_field field = {STR("content-type"), STR("text/event-stream")};
    if (net_stream_begin(exchange, &(struct net_response){.status = 200, .fields = &field, .fields_count = 1},
                         gone))
        connection.stream = exchange;
}

static void serve(void *user, struct net_exchange *exchange)
{
    (void)user;
    must(connection.waiting == NULL && connection.stream == NULL, "a connection has one request at a time");
    if (str_is(exchange->path, "/later"))
        connection.waiting = exchange;
    else if (str_is(exchange->path, "/stream") || str_is(exchange->path, "/stream/on"))
        stream(exchange);
    else
        echo(exchange);
}

static const struct net_service service = {.begin = begin, .serve = serve};

/* --- Feeding --- */

static bool is_open(void)
{
    return !connection.is_finishing && !connection.is_aborted;
}

static void settle(struct net_loop *loop)
{
    for (;;) {
        if (connection.out.length > 0) {
            buffer_append(&connection.sent, connection.out.data, connection.out.length);
            buffer_clear(&connection.out);
            if (is_open())
                http1_protocol.drained(connection.self);
        } else if (connection.waiting != NULL) {
            struct net_exchange *exchange = connection.waiting;
            connection.waiting = NULL;
            echo(exchange);
        } else if (connection.stream != NULL && str_is(connection.stream->path, "/stream")) {
            struct net_exchange *exchange = connection.stream;
            connection.stream = NULL;
            must(net_stream_send(exchange, STR("a part")) && net_stream_send(exchange, exchange->body),
                 "there is room");
            net_stream_end(exchange);
        } else {
            net_exchanges_recycle(loop);
            return;
        }
    }
}

/* Leaves all that was sent, without `100 Continue`, which depends on when the body comes. */
static void feed(const char *bytes, size_t count, size_t part, struct byte_buffer *sent)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct net_loop *loop = calloc(1, sizeof(*loop));
    must(loop != NULL, "there is memory");
    loop->memory_max = 1 << 20;
    struct net_listener listener = {
        .loop = loop, .service = &service, .host = STR("localhost"), .is_loopback = true};
    listener.listen.body_bytes_max = BODY_MAX;
    connection = (struct net_connection){.loop = loop, .listener = &listener};
    connection.self = http1_protocol.open(&connection);
    for (size_t at = 0; at < count && is_open(); at += part) {
        struct fuzz_input input = {(const uint8_t *)bytes + at, (const uint8_t *)bytes + count};
        struct str piece = fuzz_take(&input, part);
        http1_protocol.receive(connection.self, piece.data, piece.length);
        free((char *)piece.data);
        settle(loop);
    }
    http1_protocol.close(connection.self);
    net_exchanges_free(loop);
    must(loop->counters.memory_now == 0, "all memory is given back");
    must(connection.streams == 0 && connection.stream == NULL, "a stream ends with its connection");
    free(loop);
    buffer_free(&connection.out);
    struct str all = {connection.sent.data, connection.sent.length};
    for (size_t i = 0; i < all.length;) {
        bool is_go_on =
            all.length - i >= sizeof(go_on) - 1 && memcmp(all.data + i, go_on, sizeof(go_on) - 1) == 0;
        if (is_go_on)
            i += sizeof(go_on) - 1;
        else
            buffer_append(sent, all.data + i++, 1);
    }
    buffer_free(&connection.sent);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > BYTES_MAX)
        return 0;
    struct byte_buffer whole = {0}, parts = {0};
    feed((const char *)data + 1, size - 1, BYTES_MAX, &whole);
    feed((const char *)data + 1, size - 1, (size_t)data[0] % 64 + 1, &parts);
    must(whole.length == parts.length, "answers do not depend on how the bytes come");
    must(whole.length == 0 || memcmp(whole.data, parts.data, whole.length) == 0,
         "answers do not depend on how the bytes come");
    buffer_free(&whole);
    buffer_free(&parts);
    return 0;
}
