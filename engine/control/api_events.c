/* GET /api/v1/events: what happens in the run, as server-sent events (text/event-stream) for as long as the client reads.
 *
 *   event: hello     at the beginning: the job, and `life`, which is another in another process
 *   event: log       a line that the process said, as /api/v1/log has it; at most LINES_MAX a second
 *   event: figures   once a second: those of /api/v1/figures, on one line
 *   : quiet          a comment, where nothing was sent for QUIET_SECONDS
 *
 * `id` is the number of the second since the API began. The figures of a second are made once, for all streams, and only
 * if there are streams. A client that has not taken those of earlier seconds does not get the next ones: what it reads
 * later is then newer. Lines that have no room are counted, and a line with `left_out` says how many: /api/v1/log has them.
 * When the run has ended, its last figures are sent, and the streams end. */
#include "control/api_internal.h"

#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

enum { STREAMS_MAX = 32, QUIET_SECONDS = 15, TICK_MS = 1000, LINES_MAX = 50, LINES_BYTES_MAX = 64 << 10 };

struct api_stream {
    struct net_exchange *exchange; /* NULL: the place is free */
    uint32_t quiet_s;
    uint64_t left_out; /* lines of the log that it was not sent, and was not told of */
};

/* The lines of the log that were said since the last second. */
struct news {
    const struct api_events *events;
    struct byte_buffer body;
    uint64_t sent, left_out;
};

struct api_events {
    struct api *api;
    int64_t begun_us; /* monotonic */
    char life[48];
    uint64_t log_at; /* the number of the newest line that was sent */
    uint32_t count;
    struct api_stream streams[STREAMS_MAX];
};

static void gone(struct net_exchange *exchange)
{
    struct api_events *events = exchange->user;
    for (uint32_t i = 0; i < STREAMS_MAX; i++)
        if (events->streams[i].exchange == exchange)
            events->streams[i].exchange = NULL;
    events->count--;
}

static void put_event(const struct api_events *events, const char *name, struct byte_buffer *out)
{
    buffer_printf(out, "event: %s\nid: %" PRId64 "\ndata: ", name,
                  (os_monotonic_us() - events->begun_us) / US_PER_SECOND);
}

static void put_hello(const struct api_events *events, struct byte_buffer *out)
{
    const struct plan *plan = events->api->plan;
    json_t *data =
        json_pack("{s:s%, s:s, s:s, s:I}", "job", plan->name.data, plan->name.length, "fingerprint",
                  plan->fingerprint, "life", events->life, "now", (json_int_t)(os_wall_us() / 1000));
    char *text = data == NULL ? NULL : json_dumps(data, JSON_COMPACT);
    put_event(events, "hello", out);
    buffer_printf(out, "%s\n\n", text == NULL ? "{}" : text);
    free(text);
    json_decref(data);
}

static void take_line(void *user, const struct log_line *line)
{
    struct news *news = user;
    if (news->sent == LINES_MAX || news->body.length + line->text.length > LINES_BYTES_MAX) {
        news->left_out++;
        return;
    }
    news->sent++;
    put_event(news->events, "log", &news->body);
    api_put_log_line(&news->body, line);
    buffer_printf(&news->body, "\n\n");
}

static bool send_left_out(const struct api_events *events, struct api_stream *stream)
{
    struct byte_buffer body = {0};
    put_event(events, "log", &body);
    buffer_printf(&body,
                  "{\"n\": %" PRIu64 ", \"time\": %" PRIi64 ", \"level\": \"info\", \"text\": \"%" PRIu64
                  " lines are left out here: /api/v1/log has them\", \"repeated\": 1, \"left_out\": %" PRIu64
                  "}\n\n",
                  events->log_at, os_wall_us() / 1000, stream->left_out, stream->left_out);
    bool is_sent = net_stream_send(stream->exchange, (struct str){body.data, body.length});
    if (is_sent && stream->exchange != NULL)
        stream->left_out = 0;
    buffer_free(&body);
    return is_sent;
}

/* Sends one stream what there is to say. False: nothing was sent. The stream may be gone afterwards. */
static bool send_to(const struct api_events *events, struct api_stream *stream, const struct news *news,
                    const struct byte_buffer *figures)
{
    bool is_sent = false;
    if (news->body.length > 0) {
        is_sent = net_stream_send(stream->exchange, (struct str){news->body.data, news->body.length});
        stream->left_out += is_sent ? 0 : news->sent;
    }
    stream->left_out += news->left_out;
    if (stream->exchange != NULL && stream->left_out > 0)
        is_sent |= send_left_out(events, stream);
    if (stream->exchange != NULL && figures->length > 0)
        is_sent |= net_stream_send(stream->exchange, (struct str){figures->data, figures->length});
    return is_sent;
}

static void send_all(struct api_events *events)
{
    struct news news = {.events = events};
    struct byte_buffer figures = {0};
    events->log_at = log_since(events->log_at, take_line, &news);
    put_event(events, "figures", &figures);
    if (api_put_figures(events->api, true, &figures))
        buffer_printf(&figures, "\n");
    else
        buffer_clear(&figures);
    for (uint32_t i = 0; i < STREAMS_MAX; i++) {
        struct api_stream *stream = &events->streams[i];
        if (stream->exchange == NULL)
            continue;
        /* What has no room is left out; a client that takes nothing more is closed by the connection. */
        stream->quiet_s = send_to(events, stream, &news, &figures) ? 0 : stream->quiet_s + 1;
        if (stream->quiet_s >= QUIET_SECONDS && stream->exchange != NULL &&
            net_stream_send(stream->exchange, STR(": quiet\n\n")))
            stream->quiet_s = 0;
    }
    buffer_free(&news.body);
    buffer_free(&figures);
}

/* Each second. */
static void tick(void *user)
{
    struct api_events *events = user;
    if (events->count > 0)
        send_all(events);
}

void api_events_turn(struct api_events *events)
{
    if (events->count == 0 || !atomic_load(&events->api->has_ended))
        return;
    send_all(events);
    for (uint32_t i = 0; i < STREAMS_MAX; i++) {
        struct net_exchange *exchange = events->streams[i].exchange;
        if (exchange == NULL)
            continue;
        events->streams[i].exchange = NULL;
        events->count--;
        net_stream_end(exchange);
    }
}

static void ignore(void *user LEAT_UNUSED, const struct log_line *line LEAT_UNUSED)
{
}

void api_events_serve(struct api *api, struct net_exchange *exchange)
{
    static const struct net_field fields[] = {{{"content-type", 12}, {"text/event-stream", 17}},
                                              {{"cache-control", 13}, {"no-store", 8}},
                                              {{"x-content-type-options", 22}, {"nosniff", 7}}};
    struct api_events *events = api->events;
    struct byte_buffer out = {0};
    uint32_t place = 0;
    while (place < STREAMS_MAX && events->streams[place].exchange != NULL)
        place++;
    if (place == STREAMS_MAX) {
        net_respond_text(exchange, 503, "as many streams of events as there may be are open: close one\n");
        return;
    }
    struct net_response response = {.status = 200, .fields = fields, .fields_count = ARRAY_COUNT(fields)};
    exchange->user = events;
    if (!net_stream_begin(exchange, &response, gone))
        return;
    if (events->count == 0)
        events->log_at = log_since(0, ignore, NULL); /* /api/v1/log has what was said before */
    events->streams[place] = (struct api_stream){.exchange = exchange};
    events->count++;
    put_hello(events, &out);
    if (!net_stream_send(exchange, (struct str){out.data, out.length}) &&
        events->streams[place].exchange == exchange) {
        events->streams[place].exchange = NULL; /* there is no memory for another stream */
        events->count--;
        net_stream_end(exchange);
    }
    buffer_free(&out);
}

struct api_events *api_events_new(struct api *api)
{
    struct api_events *events = mem_calloc(1, sizeof(*events));
    events->api = api;
    events->begun_us = os_monotonic_us();
    snprintf(events->life, sizeof(events->life), "%" PRIx64 "-%x", (uint64_t)os_wall_us(),
             (unsigned)getpid());
    net_loop_every(api->loop, TICK_MS, tick, events);
    return events;
}

void api_events_free(struct api_events *events)
{
    free(events);
}
