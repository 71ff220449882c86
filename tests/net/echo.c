/* A server for the tests of engine/net: it uses net.h alone.
 *
 *     leat_echo --port-file PATH [--address A] [--token T] [--certificate P --key P [--authority P]]
 *               [--connections N] [--body N] [--memory N] [--head-ms N] [--body-ms N] [--idle-ms N] [--write-ms N]
 *               [--grace-ms N] [--pass-us N]
 *
 * /echo answers with the request's body, /spin after a millisecond of work with how long the
 * request had waited unread, in microseconds, /trailers likewise with trailers behind it, /large?N with N bytes, /slow after
 * some time, /turn when the loop calls `turn`, /early in `begin`, /see with what it saw of the request, /counters with
 * the loop's figures. /stream?N,BYTES answers with a stream of N parts, one a tick (0: without end), each `part I` and a
 * newline behind BYTES dots. /open and /counters need no token. SIGTERM stops it; it prints the figures as it ends. */
#include "core/mem.h"
#include "core/os.h"
#include "net/net.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOW_MS = 50, SLOW_TICKS = 4 };

struct waiting {
    struct net_exchange *exchange;
    int ticks; /* 0: answered by the next turn */
};

/* A stream; the exchange's `user`. */
struct stream {
    struct net_exchange *exchange;
    unsigned long parts, bytes, sent; /* parts 0: without end */
    uint64_t tick;                    /* the last one in which it was sent to */
    struct stream *next;
};

static struct {
    struct net_loop *loop;
    struct stream *streams;
    uint64_t tick, streams_gone, parts_left_out;
    struct waiting *waiting;
    size_t waiting_count, waiting_capacity;
    uint64_t refused, gone;
    struct byte_buffer text;
} echo;

static const struct net_field plain = {{"content-type", 12}, {"text/plain", 10}};

static void respond(struct net_exchange *exchange, struct str body)
{
    net_respond(exchange,
                &(struct net_response){.status = 200, .fields = &plain, .fields_count = 1, .body = body});
}

static void respond_with_trailers(struct net_exchange *exchange)
{
    static const struct net_field trailers[] = {{{"grpc-status", 11}, {"0", 1}},
                                                {{"grpc-message", 12}, {"", 0}}};
    net_respond(exchange, &(struct net_response){.status = 200,
                                                 .fields = &plain,
                                                 .fields_count = 1,
                                                 .body = exchange->body,
                                                 .trailers = trailers,
                                                 .trailers_count = 2});
}

static void respond_counters(struct net_exchange *exchange)
{
    struct net_counters now = net_loop_counters(echo.loop);
    buffer_clear(&echo.text);
    buffer_printf(&echo.text,
                  "connections %" PRIu64 "\nconnections_refused %" PRIu64 "\nconnections_now %" PRIu64
                  "\nrequests_http1 %" PRIu64 "\nrequests_http2 %" PRIu64 "\nrefused %" PRIu64
                  "\nbytes_in %" PRIu64 "\nbytes_out %" PRIu64 "\nmemory_now %" PRIu64
                  "\nmemory_peak %" PRIu64 "\ntold_refused %" PRIu64 "\ngone %" PRIu64
                  "\nwaiting %zu\nparked %" PRIu64 "\nstreams_gone %" PRIu64 "\nparts_left_out %" PRIu64 "\n",
                  now.connections, now.connections_refused, now.connections_now, now.requests_http1,
                  now.requests_http2, now.refused, now.bytes_in, now.bytes_out, now.memory_now,
                  now.memory_peak, echo.refused, echo.gone, echo.waiting_count, now.connections_parked,
                  echo.streams_gone, echo.parts_left_out);
    if (exchange != NULL)
        respond(exchange, (struct str){echo.text.data, echo.text.length});
}

static void respond_seen(struct net_exchange *exchange)
{
    buffer_clear(&echo.text);
    buffer_printf(&echo.text, "%.*s\n%.*s\n%.*s\n", STR_ARGS(exchange->method), STR_ARGS(exchange->path),
                  STR_ARGS(exchange->query));
    for (uint32_t i = 0; i < exchange->fields_count; i++)
        buffer_printf(&echo.text, "%.*s=%.*s\n", STR_ARGS(exchange->fields[i].name),
                      STR_ARGS(exchange->fields[i].value));
    buffer_append(&echo.text, exchange->body.data, exchange->body.length);
    respond(exchange, (struct str){echo.text.data, echo.text.length});
}

static void respond_large(struct net_exchange *exchange)
{
    char number[24] = "";
    memcpy(number, exchange->query.data, MIN(exchange->query.length, sizeof(number) - 1));
    size_t bytes = strtoull(number, NULL, 10);
    char *body = mem_alloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++)
        body[i] = (char)('a' + i % 23);
    respond(exchange, (struct str){body, bytes});
    free(body);
}

static void wait_for(struct net_exchange *exchange, int ticks)
{
    if (echo.waiting_count == echo.waiting_capacity) {
        echo.waiting_capacity = MAX(echo.waiting_capacity * 2, 64);
        echo.waiting = mem_realloc(echo.waiting, echo.waiting_capacity * sizeof(*echo.waiting));
    }
    echo.waiting[echo.waiting_count++] = (struct waiting){exchange, ticks};
}

/* Answers those whose ticks are at most 0, the last first. */
static void answer_waiting(int passed)
{
    size_t kept = 0, count = echo.waiting_count;
    for (size_t i = 0; i < count; i++) {
        struct waiting one = echo.waiting[i];
        one.ticks -= passed;
        if (one.ticks > 0) {
            echo.waiting[kept++] = one;
            continue;
        }
        echo.gone += one.exchange->is_gone;
        respond(one.exchange, one.exchange->body);
    }
    echo.waiting_count = kept;
}

static void forget_stream(struct net_exchange *exchange)
{
    struct stream **at = &echo.streams, *stream = exchange->user;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    free(stream);
}

static void stream_gone(struct net_exchange *exchange)
{
    leat_assert(exchange->is_gone);
    echo.streams_gone++;
    forget_stream(exchange);
}

static void begin_stream(struct net_exchange *exchange)
{
    char numbers[48] = "", *end = NULL;
    memcpy(numbers, exchange->query.data, MIN(exchange->query.length, sizeof(numbers) - 1));
    struct stream *stream = mem_calloc(1, sizeof(*stream));
    *stream = (struct stream){.exchange = exchange, .parts = strtoul(numbers, &end, 10)};
    if (*end == ',')
        stream->bytes = strtoul(end + 1, NULL, 10);
    struct net_response response = {.status = 200, .fields = &plain, .fields_count = 1};
    if (!net_stream_begin(exchange, &response, stream_gone)) {
        free(stream);
        return;
    }
    exchange->user = stream;
    stream->next = echo.streams;
    echo.streams = stream;
}

static void send_part(struct stream *stream)
{
    struct byte_buffer part = {0};
    stream->sent++;
    stream->tick = echo.tick;
    memset(buffer_reserve(&part, stream->bytes + 1), '.', stream->bytes);
    part.length = stream->bytes;
    buffer_printf(&part, "part %lu\n", stream->sent);
    bool is_last = stream->sent == stream->parts;
    struct net_exchange *exchange = stream->exchange;
    if (!net_stream_send(exchange, (struct str){part.data, part.length}))
        echo.parts_left_out++;
    buffer_free(&part);
    struct stream *same = echo.streams; /* it may be gone */
    while (same != NULL && same != stream)
        same = same->next;
    if (same == NULL || !is_last)
        return;
    forget_stream(exchange);
    net_stream_end(exchange);
}

/* A stream that was not sent to in this tick. */
static struct stream *due_stream(void)
{
    struct stream *stream = echo.streams;
    while (stream != NULL && stream->tick == echo.tick)
        stream = stream->next;
    return stream;
}

static void turn(void *user)
{
    (void)user;
    answer_waiting(0);
}

static void tick(void *user)
{
    (void)user;
    answer_waiting(1);
    echo.tick++;
    for (struct stream *stream; (stream = due_stream()) != NULL;)
        send_part(stream);
}

/* Works for SPIN_US, and answers with how long the request is known to have waited. */
static void spin(struct net_exchange *exchange)
{
    enum { SPIN_US = 1000 };
    char text[32];
    for (int64_t end = os_monotonic_us() + SPIN_US; os_monotonic_us() < end;)
        continue;
    int length = snprintf(text, sizeof(text), "%" PRId64, exchange->waited_us);
    respond(exchange, (struct str){text, (size_t)length});
}

static void begin(void *user, struct net_exchange *exchange)
{
    (void)user;
    if (str_is(exchange->path, "/early"))
        net_respond_text(exchange, 404, "not here");
}

static void serve(void *user, struct net_exchange *exchange)
{
    (void)user;
    if (str_is(exchange->path, "/echo"))
        respond(exchange, exchange->body);
    else if (str_is(exchange->path, "/spin"))
        spin(exchange);
    else if (str_is(exchange->path, "/trailers"))
        respond_with_trailers(exchange);
    else if (str_is(exchange->path, "/turn"))
        wait_for(exchange, 0);
    else if (str_is(exchange->path, "/slow"))
        wait_for(exchange, SLOW_TICKS);
    else if (str_is(exchange->path, "/large"))
        respond_large(exchange);
    else if (str_is(exchange->path, "/stream"))
        begin_stream(exchange);
    else if (str_is(exchange->path, "/counters"))
        respond_counters(exchange);
    else if (str_is(exchange->path, "/close"))
        net_respond(exchange, &(struct net_response){.status = 204, .must_close = true});
    else
        respond_seen(exchange);
}

static void refused(void *user, int status)
{
    (void)user;
    (void)status;
    echo.refused++;
}

static void stop(int number)
{
    (void)number;
    net_loop_stop(echo.loop);
}

static void write_port(const char *path, uint16_t port)
{
    char *part = mem_printf("%s.part", path);
    FILE *file = fopen(part, "w");
    if (file == NULL || fprintf(file, "%u\n", port) < 0 || fclose(file) != 0 || rename(part, path) != 0) {
        perror(path);
        exit(1);
    }
    free(part);
}

static struct net_listen listen_options;
static uint64_t memory_max = 64 << 20;
static uint32_t grace_ms = 2000, pass_us;
static const char *port_file;

static void read_words(int count, char **words)
{
    struct net_listen *listen = &listen_options;
    static const char *const open_paths[] = {"/open", "/counters", NULL};
    *listen = net_listen_defaults(STR("127.0.0.1:0"));
    listen->open_paths = open_paths;
    const struct {
        const char *name;
        const char **text;
        uint32_t *number;
    } options[] = {
        {"--port-file", &port_file, NULL},
        {"--token", &listen->token, NULL},
        {"--certificate", &listen->certificate, NULL},
        {"--key", &listen->key, NULL},
        {"--authority", &listen->client_authority, NULL},
        {"--connections", NULL, &listen->connections_max},
        {"--body", NULL, &listen->body_bytes_max},
        {"--head-ms", NULL, &listen->head_ms},
        {"--body-ms", NULL, &listen->body_ms},
        {"--idle-ms", NULL, &listen->idle_ms},
        {"--write-ms", NULL, &listen->write_ms},
        {"--grace-ms", NULL, &grace_ms},
        {"--pass-us", NULL, &pass_us},
    };
    for (int i = 1; i + 1 < count; i += 2) {
        if (strcmp(words[i], "--address") == 0)
            listen->address = str_from(words[i + 1]);
        else if (strcmp(words[i], "--memory") == 0)
            memory_max = strtoull(words[i + 1], NULL, 10);
        for (size_t k = 0; k < ARRAY_COUNT(options); k++) {
            if (strcmp(words[i], options[k].name) == 0 && options[k].text != NULL)
                *options[k].text = words[i + 1];
            else if (strcmp(words[i], options[k].name) == 0)
                *options[k].number = (uint32_t)strtoul(words[i + 1], NULL, 10);
        }
    }
}

static void run(uint16_t port)
{
    net_loop_every(echo.loop, SLOW_MS, tick, NULL);
    net_loop_park(echo.loop, pass_us);
    signal(SIGTERM, stop);
    if (port_file != NULL)
        write_port(port_file, port);
    net_loop_run(echo.loop, grace_ms);
    signal(SIGTERM, SIG_IGN); /* a second one has nothing to stop */
    respond_counters(NULL);
    fwrite(echo.text.data, 1, echo.text.length, stdout);
}

int main(int count, char **words)
{
    read_words(count, words);
    struct arena arena;
    arena_init(&arena, 0);
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    echo.loop = net_loop_new(memory_max, turn, NULL);
    static const struct net_service service = {.begin = begin, .serve = serve, .refused = refused};
    uint16_t port = net_loop_listen(echo.loop, &listen_options, &service, NULL, &diags);
    if (port != 0)
        run(port);
    else
        diag_print(stderr, &diags, &(struct diag_source){"echo", {"", 0}}, false);
    net_loop_free(echo.loop);
    free(echo.waiting);
    buffer_free(&echo.text);
    arena_free(&arena);
    return port != 0 ? 0 : 3;
}
