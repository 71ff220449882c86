/* Answers of HTTP/2: a head, a body as far as the client's windows are open, trailers. */
#include "net/http2.h"

/* --- Fields --- */

static nghttp2_nv pair(struct str name, struct str value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name.data, (uint8_t *)(uintptr_t)value.data, name.length,
                        value.length, NGHTTP2_NV_FLAG_NONE};
}

/* A name that lives as long as the program. */
static nghttp2_nv pair_of_ours(struct str name, struct str value)
{
    nghttp2_nv one = pair(name, value);
    one.flags = NGHTTP2_NV_FLAG_NO_COPY_NAME;
    return one;
}

static size_t add_fields(nghttp2_nv *pairs, size_t count, const struct net_field *fields, uint32_t more)
{
    for (uint32_t i = 0; i < more; i++)
        pairs[count++] = pair(fields[i].name, fields[i].value);
    return count;
}

static struct str decimal(char *end, uint64_t value)
{
    char *at = end;
    do {
        *--at = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    return (struct str){at, (size_t)(end - at)};
}

/* --- What is kept until it is sent --- */

static void keep_text(struct byte_buffer *buffer, struct str text)
{
    buffer_append(buffer, text.data, text.length);
}

/* Copies the body, and the trailers behind it. */
static void keep(struct http2 *http2, struct http2_stream *stream, const struct net_response *response)
{
    struct byte_buffer *answer = &stream->answer;
    connection_take_buffer(http2->connection, answer);
    keep_text(answer, response->body);
    stream->body_bytes = answer->length;
    for (uint32_t i = 0; i < response->trailers_count; i++) {
        const struct net_field *field = &response->trailers[i];
        size_t lengths[2] = {field->name.length, field->value.length};
        buffer_append(answer, lengths, sizeof(lengths));
        keep_text(answer, field->name);
        keep_text(answer, field->value);
    }
    http2->held_bytes += answer->length;
    connection_count(http2->connection, (int64_t)answer->length);
}

/* The client has opened its windows for all that a stream has said so far: it is not waited for. */
static void all_is_sent(struct http2 *http2, struct http2_stream *stream)
{
    http2->sending -= stream->is_sending;
    stream->is_sending = false;
    http2->held_bytes -= stream->answer.length;
    connection_count(http2->connection, -(int64_t)stream->answer.length);
    buffer_clear(&stream->answer);
    connection_give_buffer(http2->connection, &stream->answer);
    stream->body_bytes = stream->sent_bytes = 0;
}

static bool submit_trailers(struct http2 *http2, struct http2_stream *stream)
{
    nghttp2_nv pairs[HTTP2_ANSWER_FIELDS_MAX];
    size_t count = 0;
    const char *at = stream->answer.data + stream->body_bytes,
               *end = stream->answer.data + stream->answer.length;
    while (at < end) {
        size_t lengths[2];
        memcpy(lengths, at, sizeof(lengths));
        at += sizeof(lengths);
        pairs[count++] = pair((struct str){at, lengths[0]}, (struct str){at + lengths[0], lengths[1]});
        at += lengths[0] + lengths[1];
    }
    return nghttp2_submit_trailer(http2->session, stream->id, pairs, count) == 0;
}

static ssize_t read_body(nghttp2_session *session, int32_t id, uint8_t *into, size_t bytes, uint32_t *flags,
                         nghttp2_data_source *source, void *user)
{
    (void)session, (void)id;
    struct http2_stream *stream = source->ptr;
    size_t count = MIN(bytes, stream->body_bytes - stream->sent_bytes);
    if (count > 0)
        memcpy(into, stream->answer.data + stream->sent_bytes, count);
    stream->sent_bytes += count;
    if (stream->sent_bytes < stream->body_bytes)
        return (ssize_t)count;
    if (stream->is_open) {
        all_is_sent(user, stream);
        return count > 0 ? (ssize_t)count : NGHTTP2_ERR_DEFERRED;
    }
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (stream->answer.length > stream->body_bytes) {
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (!submit_trailers(user, stream))
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return (ssize_t)count;
}

/* --- Answers --- */

static bool submit(struct http2 *http2, struct http2_stream *stream, const struct net_response *response,
                   bool is_head_request)
{
    static const struct str status_name = {":status", 7}, length_name = {"content-length", 14},
                            date_name = {"date", 4};
    char status[3], length[20];
    nghttp2_nv pairs[3 + 2 * HTTP2_ANSWER_FIELDS_MAX];
    size_t count = 0;
    bool may_have_body = response->status != 204 && response->status != 304;
    bool has_body = may_have_body && !is_head_request && (stream->is_open || response->body.length > 0);
    pairs[count++] = pair_of_ours(status_name, decimal(status + sizeof(status), (uint64_t)response->status));
    if (may_have_body && response->trailers_count == 0 && !stream->is_open)
        pairs[count++] = pair_of_ours(length_name, decimal(length + sizeof(length), response->body.length));
    pairs[count++] = pair_of_ours(date_name, connection_date(http2->connection));
    count = add_fields(pairs, count, response->fields, response->fields_count);
    nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = read_body};
    if (has_body)
        keep(http2, stream, response);
    else
        count = add_fields(pairs, count, response->trailers, response->trailers_count);
    return nghttp2_submit_response(http2->session, stream->id, pairs, count, has_body ? &provider : NULL) ==
           0;
}

void http2_answer(struct http2 *http2, struct exchange *exchange, const struct net_response *response)
{
    struct http2_stream *stream = exchange->stream;
    leat_assert(stream != NULL && stream->exchange == exchange);
    leat_assert(response->status >= 200 && response->status <= 599);
    leat_assert(response->fields_count <= HTTP2_ANSWER_FIELDS_MAX);
    leat_assert(response->trailers_count <= HTTP2_ANSWER_FIELDS_MAX);
    http2->reading -= stream->is_reading;
    stream->is_reading = false;
    if (!http2->is_finished && submit(http2, stream, response, exchange->is_head_request)) {
        stream->is_sending = true;
        http2->sending++;
    } else if (!http2->is_finished) {
        nghttp2_submit_rst_stream(http2->session, NGHTTP2_FLAG_NONE, stream->id, NGHTTP2_INTERNAL_ERROR);
    }
    stream->exchange = NULL;
    net_exchange_free(exchange);
}

/* --- Answers that go on --- */

bool http2_answer_begin(struct http2 *http2, struct exchange *exchange, const struct net_response *response)
{
    struct http2_stream *stream = exchange->stream;
    leat_assert(stream != NULL && stream->exchange == exchange && !stream->is_reading);
    leat_assert(response->fields_count <= HTTP2_ANSWER_FIELDS_MAX);
    stream->is_open = true;
    if (!exchange->is_head_request && !http2->is_finished && !http2->is_stopping &&
        submit(http2, stream, response, false)) {
        connection_streams(http2->connection, 1);
        return true;
    }
    stream->is_open = false;
    http2_answer(http2, exchange, response);
    return false;
}

bool http2_answer_more(struct http2 *http2, struct http2_stream *stream, struct str part)
{
    if (http2->is_finished || stream->body_bytes - stream->sent_bytes > NET_STREAM_UNSENT_MAX)
        return false;
    struct byte_buffer *answer = &stream->answer;
    size_t before = answer->length;
    if (stream->sent_bytes > 0) {
        memmove(answer->data, answer->data + stream->sent_bytes, answer->length - stream->sent_bytes);
        answer->length -= stream->sent_bytes;
        stream->sent_bytes = 0;
    }
    if (answer->length == 0)
        connection_take_buffer(http2->connection, answer);
    keep_text(answer, part);
    stream->body_bytes = answer->length;
    http2->held_bytes += answer->length - before;
    connection_count(http2->connection, (int64_t)answer->length - (int64_t)before);
    http2->sending += !stream->is_sending;
    stream->is_sending = true;
    nghttp2_session_resume_data(http2->session, stream->id);
    return true;
}

void http2_answer_end(struct http2 *http2, struct http2_stream *stream)
{
    net_exchange_free(stream->exchange);
    stream->exchange = NULL;
    stream->is_open = false;
    connection_streams(http2->connection, -1);
    http2->sending += !stream->is_sending;
    stream->is_sending = true;
    if (!http2->is_finished)
        nghttp2_session_resume_data(http2->session, stream->id);
}

void http2_answer_sent(struct http2 *http2, const nghttp2_frame *frame)
{
    bool is_end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (frame->hd.type == NGHTTP2_DATA) {
        http2->stalled_bytes += frame->hd.length;
        http2->idle_credit += (uint32_t)frame->hd.length / HTTP2_IDLE_FRAME_BYTES;
    }
    if (!is_end || (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS))
        return;
    struct http2_stream *stream = nghttp2_session_get_stream_user_data(http2->session, frame->hd.stream_id);
    if (stream == NULL)
        return;
    http2->sending -= stream->is_sending;
    stream->is_sending = false;
    stream->is_ended = true;
    http2->answers++;
    http2->idle_credit += HTTP2_IDLE_FRAMES_PER_ANSWER;
    http2->stalled_bytes = HTTP2_STALL_BYTES;
    /* The client may spare itself the rest of the body. */
    if (nghttp2_session_get_stream_remote_close(http2->session, stream->id) == 0)
        nghttp2_submit_rst_stream(http2->session, NGHTTP2_FLAG_NONE, stream->id, NGHTTP2_NO_ERROR);
}
