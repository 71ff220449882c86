/* HTTP/2 as a protocol of connections: bytes in, bytes out, deadlines, and what a client may do in a second. */
#include "net/http2.h"

#include "core/mem.h"
#include "core/os.h"
#include "core/refused.h"

#include <stdlib.h>

/* --- What a client may do --- */

static void begin_second(struct http2 *http2)
{
    if (http2->now_us - http2->second_us < US_PER_SECOND)
        return;
    http2->second_us = http2->now_us;
    http2->resets = http2->answers = http2->idle_frames = http2->idle_credit = 0;
}

bool http2_may_idle(struct http2 *http2)
{
    if (++http2->idle_frames <= HTTP2_IDLE_FRAMES_MAX + http2->idle_credit)
        return true;
    http2->failure = NGHTTP2_ENHANCE_YOUR_CALM;
    return false;
}

bool http2_may_reset(struct http2 *http2)
{
    if (++http2->resets <= HTTP2_RESETS_MAX + http2->answers)
        return true;
    http2->failure = NGHTTP2_ENHANCE_YOUR_CALM;
    return false;
}

/* --- Deadlines --- */

/* Deadlines that are so near have passed: the connection's clock and ours differ by the length of a turn. */
enum { NEAR_US = 100 * 1000 };

static uint32_t wait_ms(const struct http2 *http2, enum net_wait wait)
{
    const struct net_listen *listen = connection_listen(http2->connection);
    return wait == WAIT_HEAD     ? listen->head_ms
           : wait == WAIT_BODY   ? listen->body_ms
           : wait == WAIT_WINDOW ? listen->write_ms
                                 : listen->idle_ms;
}

/* Since when there has been that to wait for; INT64_MAX: there is not. */
static int64_t waiting_since(const struct http2 *http2, enum net_wait wait)
{
    switch (wait) {
    case WAIT_HEAD:
        if (!http2->is_greeted)
            return http2->opened_us;
        return http2->heading != NULL ? http2->heading->since_us : INT64_MAX;
    case WAIT_BODY: return http2->reading > 0 ? http2->reading_us : INT64_MAX;
    case WAIT_WINDOW: return http2->stalled_us > 0 ? http2->stalled_us : INT64_MAX;
    default: return http2->streams == 0 && http2->is_greeted ? http2->idle_us : INT64_MAX;
    }
}

static int64_t deadline_of(const struct http2 *http2, enum net_wait wait)
{
    int64_t since_us = waiting_since(http2, wait);
    return since_us == INT64_MAX ? INT64_MAX : since_us + (int64_t)wait_ms(http2, wait) * 1000;
}

static bool has_passed(const struct http2 *http2, enum net_wait wait)
{
    int64_t deadline_us = deadline_of(http2, wait);
    return deadline_us != INT64_MAX && deadline_us <= http2->now_us + NEAR_US;
}

/* A connection has one deadline, which lasts as long as one of the waits; several things may be waited for. So
 * the longest wait that ends before the first of their deadlines is set, again and again; the last time the
 * shortest. A deadline that begins now is kept to the millisecond, another by up to the shortest wait late. */
static void arm(struct http2 *http2)
{
    int64_t deadline_us = INT64_MAX;
    for (enum net_wait wait = WAIT_HEAD; wait <= WAIT_WINDOW; wait++)
        deadline_us = MIN(deadline_us, deadline_of(http2, wait));
    if (deadline_us == http2->deadline_us && http2->armed_us != INT64_MAX)
        return;
    http2->deadline_us = deadline_us;
    if (deadline_us == INT64_MAX)
        return;
    enum net_wait best = WAIT_HEAD;
    for (enum net_wait wait = WAIT_BODY; wait <= WAIT_WINDOW; wait++) {
        int64_t best_us = (int64_t)wait_ms(http2, best) * 1000, us = (int64_t)wait_ms(http2, wait) * 1000;
        bool is_before = http2->now_us + us <= deadline_us,
             is_best_before = http2->now_us + best_us <= deadline_us;
        if (is_before == is_best_before ? is_before == (us > best_us) : is_before)
            best = wait;
    }
    int64_t end_us = http2->now_us + (int64_t)wait_ms(http2, best) * 1000;
    if (http2->armed_us <= deadline_us && end_us != deadline_us)
        return;
    http2->armed_us = end_us;
    connection_expect(http2->connection, best);
}

/* --- Calls --- */

static void enter(struct http2 *http2)
{
    http2->now_us = os_monotonic_us();
    begin_second(http2);
    http2->depth++;
}

/* An error of nghttp2, or one that a callback has put into `failure`: says goodbye. */
static void fail(struct http2 *http2, ssize_t error)
{
    if (http2->failure == 0 && error == NGHTTP2_ERR_FLOODED)
        http2->failure = NGHTTP2_ENHANCE_YOUR_CALM;
    else if (http2->failure == 0 && error == NGHTTP2_ERR_TOO_MANY_CONTINUATIONS)
        http2->failure = NGHTTP2_ENHANCE_YOUR_CALM;
    else if (http2->failure == 0 && error == NGHTTP2_ERR_BAD_CLIENT_MAGIC)
        http2->failure = NGHTTP2_PROTOCOL_ERROR;
    else if (http2->failure == 0)
        http2->failure = NGHTTP2_INTERNAL_ERROR;
    nghttp2_session_terminate_session(http2->session, http2->failure);
}

static bool is_full(const struct http2 *http2)
{
    return connection_pending(http2->connection) >= CONNECTION_OUT_MAX;
}

/* Takes frames out of the session while the connection may hold more. */
static void pump(struct http2 *http2)
{
    while (!is_full(http2) && nghttp2_session_want_write(http2->session)) {
        const uint8_t *bytes = NULL;
        ssize_t count = nghttp2_session_mem_send(http2->session, &bytes);
        if (count < 0) {
            http2->is_finished = true;
            connection_abort(http2->connection, 0);
        }
        if (count <= 0)
            return;
        if (http2->failure != 0)
            nghttp2_session_terminate_session(http2->session, http2->failure);
        buffer_append(connection_out(http2->connection), bytes, (size_t)count);
    }
}

/* Looks whether the client takes what is sent: nothing is read while too much waits. */
static void look(struct http2 *http2)
{
    bool must_pause = is_full(http2);
    if (must_pause != http2->is_paused) {
        http2->is_paused = must_pause;
        connection_pause(http2->connection, must_pause);
    }
    bool is_stalled = http2->sending > 0 && !must_pause;
    if (!is_stalled)
        http2->stalled_us = 0;
    else if (http2->stalled_us == 0 || http2->stalled_bytes >= HTTP2_STALL_BYTES)
        http2->stalled_us = http2->now_us;
    else
        return;
    http2->stalled_bytes = 0;
}

/* The end of each call: sends, and ends the connection where nothing more is to come. */
static void leave(struct http2 *http2)
{
    leat_assert(http2->depth == 1);
    do {
        if (!http2->is_finished)
            pump(http2);
    } while (!http2->is_finished && http2->failure == 0 && http2_serve_ready(http2));
    http2->depth = 0;
    if (http2->is_finished)
        return;
    look(http2);
    if (nghttp2_session_want_read(http2->session) || nghttp2_session_want_write(http2->session)) {
        arm(http2);
        return;
    }
    http2->is_finished = true;
    connection_finish(http2->connection);
}

static void http2_receive(void *self, const char *bytes, size_t count)
{
    struct http2 *http2 = self;
    if (http2->is_finished)
        return;
    enter(http2);
    http2->is_receiving = true;
    ssize_t used = nghttp2_session_mem_recv(http2->session, (const uint8_t *)bytes, count);
    http2->is_receiving = false;
    if (used < 0)
        fail(http2, used);
    leave(http2);
}

static void http2_respond(void *self, struct exchange *exchange, const struct net_response *response)
{
    struct http2 *http2 = self;
    if (http2->depth > 0) {
        http2_answer(http2, exchange, response);
        return;
    }
    enter(http2);
    http2_answer(http2, exchange, response);
    leave(http2);
    connection_flush(http2->connection);
}

/* A call about a stream, which may come within another call of the protocol. Whether it is the outermost. */
static bool enter_stream(struct http2 *http2)
{
    bool is_outermost = http2->depth == 0;
    if (is_outermost)
        enter(http2);
    return is_outermost;
}

static void leave_stream(struct http2 *http2, bool is_outermost)
{
    if (!is_outermost)
        return;
    leave(http2);
    connection_flush(http2->connection);
}

static bool http2_begin_stream(void *self, struct exchange *exchange, const struct net_response *response)
{
    struct http2 *http2 = self;
    bool is_outermost = enter_stream(http2), is_begun = http2_answer_begin(http2, exchange, response);
    leave_stream(http2, is_outermost);
    return is_begun;
}

static bool http2_send_stream(void *self, struct exchange *exchange, struct str part)
{
    struct http2 *http2 = self;
    bool is_outermost = enter_stream(http2), is_sent = http2_answer_more(http2, exchange->stream, part);
    leave_stream(http2, is_outermost);
    return is_sent;
}

static void http2_end_stream(void *self, struct exchange *exchange)
{
    struct http2 *http2 = self;
    bool is_outermost = enter_stream(http2);
    http2_answer_end(http2, exchange->stream);
    leave_stream(http2, is_outermost);
}

static void http2_drained(void *self)
{
    struct http2 *http2 = self;
    bool has_more = http2->is_paused || http2->sending > 0 || nghttp2_session_want_write(http2->session);
    if (http2->is_finished || !has_more)
        return;
    enter(http2);
    leave(http2);
}

static void http2_stop(void *self)
{
    struct http2 *http2 = self;
    if (http2->is_finished || http2->is_stopping)
        return;
    enter(http2);
    http2->is_stopping = true;
    nghttp2_submit_goaway(http2->session, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(http2->session), NGHTTP2_NO_ERROR, NULL, 0);
    for (struct http2_stream *stream = http2->oldest; stream != NULL; stream = stream->newer)
        if (stream->is_open)
            net_exchange_end_stream(stream->exchange);
    leave(http2);
}

/* Refuses the requests whose bodies have taken too long. */
static void refuse_slow(struct http2 *http2)
{
    int64_t body_us = (int64_t)wait_ms(http2, WAIT_BODY) * 1000, since_us = http2->now_us;
    for (struct http2_stream *stream = http2->oldest; stream != NULL; stream = stream->newer) {
        if (!stream->is_reading)
            continue;
        if (stream->since_us + body_us <= http2->now_us + NEAR_US)
            net_exchange_refuse(stream->exchange, 408, "the request's body took too long");
        else
            since_us = MIN(since_us, stream->since_us);
    }
    http2->reading_us = since_us;
}

static void http2_expired(void *self)
{
    struct http2 *http2 = self;
    if (http2->is_finished)
        return;
    enter(http2);
    http2->armed_us = INT64_MAX;
    if (has_passed(http2, WAIT_WINDOW)) {
        http2->is_finished = true;
        connection_abort(http2->connection, 0);
    } else if (has_passed(http2, WAIT_HEAD)) {
        nghttp2_session_terminate_session(http2->session, NGHTTP2_ENHANCE_YOUR_CALM);
    } else if (has_passed(http2, WAIT_IDLE)) {
        nghttp2_session_terminate_session(http2->session, NGHTTP2_NO_ERROR);
    } else if (has_passed(http2, WAIT_BODY)) {
        refuse_slow(http2);
    }
    leave(http2);
}

/* --- Open and close --- */

static nghttp2_session *session_new(struct http2 *http2)
{
    nghttp2_session *session = NULL;
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    bool is_good = nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&option) == 0;
    if (is_good) {
        http2_frames_callbacks(callbacks);
        nghttp2_option_set_max_outbound_ack(option, HTTP2_ACKS_MAX);
        nghttp2_option_set_max_continuations(option, HTTP2_CONTINUATIONS_MAX);
        nghttp2_option_set_no_closed_streams(option, 1);
        /* http2_may_reset counts streams however they end, and lets clients cancel what they got answers for. */
        nghttp2_option_set_stream_reset_rate_limit(option, UINT32_MAX, UINT32_MAX);
        is_good = nghttp2_session_server_new2(&session, callbacks, http2, option) == 0;
    }
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(option);
    return is_good ? session : NULL;
}

static bool greet(nghttp2_session *session)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, HTTP2_STREAMS_MAX},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, HTTP2_STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, NET_HEAD_BYTES_MAX},
        {NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL, 0},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    return nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings, ARRAY_COUNT(settings)) == 0 &&
           nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, HTTP2_WINDOW) == 0;
}

static void *http2_open(struct net_connection *connection)
{
    struct http2 *http2 = mem_calloc(1, sizeof(*http2));
    http2->connection = connection;
    http2->armed_us = INT64_MAX;
    http2->opened_us = http2->idle_us = os_monotonic_us();
    http2->session = session_new(http2);
    if (http2->session == NULL || !greet(http2->session))
        refused_memory(sizeof(*http2));
    enter(http2);
    leave(http2);
    return http2;
}

static void http2_close(void *self)
{
    struct http2 *http2 = self;
    leat_assert(http2->depth == 0);
    while (http2->oldest != NULL)
        http2_stream_free(http2, http2->oldest);
    for (struct http2_stream *spare = http2->spare, *next; spare != NULL; spare = next) {
        next = spare->newer;
        free(spare);
    }
    nghttp2_session_del(http2->session);
    buffer_free(&http2->method);
    buffer_free(&http2->target);
    buffer_free(&http2->authority);
    free(http2);
}

const struct net_protocol http2_protocol = {
    .open = http2_open,
    .receive = http2_receive,
    .respond = http2_respond,
    .begin_stream = http2_begin_stream,
    .send_stream = http2_send_stream,
    .end_stream = http2_end_stream,
    .drained = http2_drained,
    .stop = http2_stop,
    .expired = http2_expired,
    .close = http2_close,
};
