/* Requests of HTTP/2: what nghttp2 calls while it reads frames. It has checked the frames, the states of
 * streams, names and values of fields, pseudo-fields, and content-length against the body. */
#include "net/http2.h"

#include "core/mem.h"

#include <stdlib.h>

static struct http2_stream *stream_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static void refuse_later(struct http2_stream *stream, int status, const char *text)
{
    if (stream->refusal != 0)
        return;
    stream->refusal = status;
    stream->refusal_text = text;
}

/* --- Streams --- */

static struct http2_stream *stream_new(struct http2 *http2, int32_t id)
{
    struct http2_stream *stream = http2->spare;
    if (stream != NULL) {
        http2->spare = stream->newer;
        http2->spare_count--;
    } else {
        stream = mem_alloc(sizeof(*stream));
    }
    *stream = (struct http2_stream){
        .id = id, .since_us = http2->now_us, .content_length = -1, .older = http2->newest};
    *(http2->newest == NULL ? &http2->oldest : &http2->newest->newer) = stream;
    http2->newest = stream;
    http2->streams++;
    stream->exchange = net_exchange_new(http2->connection);
    stream->exchange->stream = stream;
    stream->exchange->public.is_http2 = true;
    return stream;
}

void http2_stream_free(struct http2 *http2, struct http2_stream *stream)
{
    *(stream->older == NULL ? &http2->oldest : &stream->older->newer) = stream->newer;
    *(stream->newer == NULL ? &http2->newest : &stream->newer->older) = stream->older;
    http2->streams--;
    http2->reading -= stream->is_reading;
    http2->ready -= stream->is_ready;
    http2->sending -= stream->is_sending;
    http2->held_bytes -= stream->answer.length;
    if (http2->streams == 0)
        http2->idle_us = http2->now_us;
    if (http2->heading == stream)
        http2->heading = NULL;
    if (stream->is_open)
        connection_streams(http2->connection, -1);
    if (stream->exchange != NULL && stream->exchange->is_begun)
        net_exchange_orphan(stream->exchange);
    else if (stream->exchange != NULL)
        net_exchange_free(stream->exchange);
    connection_count(http2->connection, -(int64_t)stream->answer.length);
    connection_give_buffer(http2->connection, &stream->answer);
    if (http2->spare_count == HTTP2_SPARE_STREAMS_MAX) {
        free(stream);
        return;
    }
    stream->newer = http2->spare;
    http2->spare = stream;
    http2->spare_count++;
}

static int stream_close(nghttp2_session *session, int32_t id, uint32_t error, void *user)
{
    (void)error;
    struct http2 *http2 = user;
    struct http2_stream *stream = stream_of(session, id);
    if (stream == NULL)
        return 0;
    bool is_good = stream->is_ended || http2_may_reset(http2);
    http2_stream_free(http2, stream);
    return is_good || !http2->is_receiving ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

/* --- Heads --- */

static int begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct http2 *http2 = user;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct http2_stream *stream = stream_new(http2, frame->hd.stream_id);
    nghttp2_session_set_stream_user_data(session, stream->id, stream);
    http2->heading = stream;
    http2->has_target = false;
    buffer_clear(&http2->method);
    buffer_clear(&http2->target);
    buffer_clear(&http2->authority);
    return 0;
}

static struct str text_of(const struct byte_buffer *buffer)
{
    return (struct str){buffer->data, buffer->length};
}

/* Pseudo-fields come first: with the first field behind them the target is known. */
static void set_target(struct http2 *http2, struct http2_stream *stream)
{
    if (http2->has_target)
        return;
    http2->has_target = true;
    struct str method = text_of(&http2->method);
    stream->exchange->is_head_request = str_is(method, "HEAD");
    if (!net_exchange_set_target(stream->exchange, method, text_of(&http2->target)))
        refuse_later(stream, 414, "the target is too long");
}

static void take_pseudo(struct http2 *http2, struct str name, struct str value)
{
    struct byte_buffer *into = NULL;
    if (str_is(name, ":method"))
        into = &http2->method;
    else if (str_is(name, ":path"))
        into = &http2->target;
    else if (str_is(name, ":authority"))
        into = &http2->authority;
    if (into != NULL)
        buffer_append(into, value.data, value.length);
}

static void take_field(struct http2 *http2, struct http2_stream *stream, struct str name, struct str value)
{
    set_target(http2, stream);
    if (str_is(name, "host")) {
        if (http2->authority.length == 0)
            buffer_append(&http2->authority, value.data, value.length);
        else if (!str_equal(text_of(&http2->authority), value))
            refuse_later(stream, 400, "`host` differs from `:authority`");
    } else if (str_is(name, "content-length")) {
        int64_t length = 0;
        for (size_t i = 0; i < value.length; i++)
            if (__builtin_mul_overflow(length, 10, &length) ||
                __builtin_add_overflow(length, value.data[i] - '0', &length))
                length = INT64_MAX;
        stream->content_length = length;
    } else if (str_is(name, "expect")) {
        stream->has_expect = str_is(value, "100-continue");
    }
    if (!net_exchange_add_field(stream->exchange, name, value))
        refuse_later(stream, 431, "the header fields are too long or too many");
}

/* Counts what a head and trailers have come to, as SETTINGS_MAX_HEADER_LIST_SIZE counts. */
static bool may_decode(struct http2 *http2, struct http2_stream *stream, struct str name, struct str value)
{
    stream->decoded_bytes += name.length + value.length + 32;
    if (stream->decoded_bytes <= HTTP2_DECODED_BYTES_MAX)
        return true;
    http2->failure = NGHTTP2_ENHANCE_YOUR_CALM;
    return false;
}

static int header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                  size_t name_bytes, const uint8_t *value, size_t value_bytes, uint8_t flags, void *user)
{
    (void)flags;
    struct http2 *http2 = user;
    struct str key = {(const char *)name, name_bytes}, text = {(const char *)value, value_bytes};
    bool is_head = frame->headers.cat == NGHTTP2_HCAT_REQUEST;
    struct http2_stream *stream = is_head ? http2->heading : stream_of(session, frame->hd.stream_id);
    if (stream == NULL)
        return 0;
    if (!may_decode(http2, stream, key, text))
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (!is_head || stream->refusal != 0)
        return 0;
    if (stream->decoded_bytes > NET_HEAD_BYTES_MAX)
        refuse_later(stream, 431, "the header fields are too long");
    else if (key.data[0] == ':')
        take_pseudo(http2, key, text);
    else
        take_field(http2, stream, key, text);
    return 0;
}

/* A field that nghttp2 would leave out: upper case in its name, or characters that no name or value may have. */
static int invalid_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                          size_t name_bytes, const uint8_t *value, size_t value_bytes, uint8_t flags,
                          void *user)
{
    (void)flags;
    struct http2 *http2 = user;
    struct str key = {(const char *)name, name_bytes}, text = {(const char *)value, value_bytes};
    bool is_head = frame->headers.cat == NGHTTP2_HCAT_REQUEST;
    struct http2_stream *stream = is_head ? http2->heading : stream_of(session, frame->hd.stream_id);
    if (stream == NULL)
        return 0;
    if (!may_decode(http2, stream, key, text))
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (is_head)
        refuse_later(stream, 400, "a header field has characters that are not allowed");
    return 0;
}

static void send_continue(struct http2 *http2, struct http2_stream *stream)
{
    nghttp2_nv status = {(uint8_t *)":status", (uint8_t *)"100", 7, 3, NGHTTP2_NV_FLAG_NONE};
    nghttp2_submit_headers(http2->session, NGHTTP2_FLAG_NONE, stream->id, NULL, &status, 1, NULL);
}

static void head_is_whole(struct http2 *http2, bool is_end)
{
    struct http2_stream *stream = http2->heading;
    if (stream == NULL)
        return;
    http2->heading = NULL;
    if (stream->refusal == 0)
        set_target(http2, stream);
    if (stream->refusal != 0) {
        net_exchange_refuse(stream->exchange, stream->refusal, stream->refusal_text);
        return;
    }
    stream->exchange->authority = text_of(&http2->authority);
    int64_t none = is_end ? 0 : -1;
    net_exchange_begin(stream->exchange, stream->content_length < 0 ? none : stream->content_length);
    if (stream->exchange == NULL)
        return;
    if (is_end) {
        http2_serve(http2, stream);
        return;
    }
    if (http2->reading++ == 0)
        http2->reading_us = http2->now_us;
    stream->is_reading = true;
    stream->since_us = http2->now_us;
    if (stream->has_expect)
        send_continue(http2, stream);
}

/* --- Bodies --- */

void http2_serve(struct http2 *http2, struct http2_stream *stream)
{
    bool must_wait = http2->held_bytes >= HTTP2_HELD_BYTES_MAX;
    http2->ready += (uint32_t)must_wait - stream->is_ready;
    stream->is_ready = must_wait;
    if (!must_wait)
        net_exchange_serve(stream->exchange);
}

bool http2_serve_ready(struct http2 *http2)
{
    bool has_served = false;
    for (struct http2_stream *stream = http2->oldest; stream != NULL && http2->ready > 0;
         stream = stream->newer) {
        if (http2->held_bytes >= HTTP2_HELD_BYTES_MAX)
            break;
        if (!stream->is_ready)
            continue;
        http2_serve(http2, stream);
        has_served = true;
    }
    return has_served;
}

static int data_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t count,
                      void *user)
{
    (void)flags, (void)user;
    struct http2_stream *stream = stream_of(session, id);
    if (stream != NULL && stream->exchange != NULL &&
        !net_exchange_body(stream->exchange, (const char *)bytes, count))
        leat_assert(stream->exchange == NULL);
    return 0;
}

static void body_is_whole(struct http2 *http2, struct http2_stream *stream)
{
    if (stream == NULL || stream->exchange == NULL)
        return;
    http2->reading -= stream->is_reading;
    stream->is_reading = false;
    http2_serve(http2, stream);
}

static int frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct http2 *http2 = user;
    bool is_end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (frame->hd.type == NGHTTP2_SETTINGS)
        http2->is_greeted = true;
    else if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        head_is_whole(http2, is_end);
    else if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) && is_end)
        body_is_whole(http2, stream_of(session, frame->hd.stream_id));
    return 0;
}

/* --- Frames that are counted --- */

static int begin_frame(nghttp2_session *session, const nghttp2_frame_hd *head, void *user)
{
    (void)session;
    bool is_data = head->type == NGHTTP2_DATA;
    bool is_end = (head->flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (head->type == NGHTTP2_CONTINUATION || (is_data && (is_end || head->length >= HTTP2_DATA_BYTES_MIN)))
        return 0;
    return http2_may_idle(user) ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    (void)session;
    struct http2 *http2 = user;
    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR)
        connection_refused(http2->connection);
    http2_answer_sent(http2, frame);
    return 0;
}

void http2_frames_callbacks(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(callbacks, invalid_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, data_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, frame_recv);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, frame_send);
}
