/* GET /api/v1/events: what happens in the run, as server-sent events (text/event-stream) for as long as the client reads.
 *
 *   event: hello     at the beginning: the job, and `life`, which is another in another process
 *   event: figures   once a second: those of /api/v1/figures, on one line
 *   : quiet          a comment, where nothing was sent for QUIET_SECONDS
 *
 * `id` is the number of the second since the API began. The figures of a second are made once, for all streams, and only
 * if there are streams. A client that has not taken those of earlier seconds does not get the next ones: what it reads
 * later is then newer. */
#include "control/api_internal.h"

#include "core/mem.h"
#include "core/os.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

enum { STREAMS_MAX = 32, QUIET_SECONDS = 15, TICK_MS = 1000 };

struct api_stream {
    struct net_exchange *exchange; /* NULL: the place is free */
    uint32_t quiet_s;
};

struct api_events {
    struct api *api;
    int64_t begun_us; /* monotonic */
    char life[48];
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

/* Each second. */
static void tick(void *user)
{
    struct api_events *events = user;
    struct byte_buffer body = {0};
    if (events->count == 0)
        return;
    put_event(events, "figures", &body);
    bool has_figures = api_put_figures(events->api, true, &body);
    buffer_printf(&body, "\n");
    for (uint32_t i = 0; i < STREAMS_MAX; i++) {
        struct api_stream *stream = &events->streams[i];
        struct str part = {body.data, body.length};
        if (stream->exchange == NULL)
            continue;
        if (!has_figures) {
            if (stream->quiet_s + 1 < QUIET_SECONDS) {
                stream->quiet_s++;
                continue;
            }
            part = STR(": quiet\n\n");
        }
        /* What has no room is left out; a client that takes nothing more is closed by the connection. */
        stream->quiet_s = net_stream_send(stream->exchange, part) ? 0 : stream->quiet_s + 1;
    }
    buffer_free(&body);
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
