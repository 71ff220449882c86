#include "http2_peer.h"

#include "core/mem.h"

#include <stdlib.h>

void peer_put(struct peer *peer, int type, int flags, uint32_t stream, const void *payload, size_t bytes)
{
    const unsigned char head[9] = {
        (unsigned char)(bytes >> 16),  (unsigned char)(bytes >> 8),  (unsigned char)bytes,
        (unsigned char)type,           (unsigned char)flags,         (unsigned char)(stream >> 24),
        (unsigned char)(stream >> 16), (unsigned char)(stream >> 8), (unsigned char)stream};
    buffer_append(&peer->in, head, sizeof(head));
    buffer_append(&peer->in, payload, bytes);
}

void peer_put_u32(struct peer *peer, int type, uint32_t stream, uint32_t value)
{
    const unsigned char payload[4] = {(unsigned char)(value >> 24), (unsigned char)(value >> 16),
                                      (unsigned char)(value >> 8), (unsigned char)value};
    peer_put(peer, type, 0, stream, payload, sizeof(payload));
}

static void put_text(struct byte_buffer *block, const char *text)
{
    size_t length = strlen(text), rest = length;
    unsigned char bytes[8], count = 0;
    bytes[count++] = (unsigned char)MIN(length, 127);
    if (length >= 127) {
        for (rest -= 127; rest >= 128; rest >>= 7)
            bytes[count++] = (unsigned char)(rest | 128);
        bytes[count++] = (unsigned char)rest;
    }
    buffer_append(block, bytes, count);
    buffer_append(block, text, length);
}

void peer_field(struct byte_buffer *block, const char *name, const char *value)
{
    buffer_append(block, "", 1);
    put_text(block, name);
    put_text(block, value);
}

void peer_lines(struct byte_buffer *block, const char *lines)
{
    char *copy = mem_strdup(lines), *rest = copy;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0';) {
        char *value = strstr(line, ": ");
        leat_assert(value != NULL);
        *value = '\0';
        peer_field(block, line, value + 2);
    }
    free(copy);
}

void peer_head(struct peer *peer, uint32_t stream, int flags, const char *method, const char *more)
{
    struct byte_buffer block = {0};
    peer_field(&block, ":method", method);
    peer_field(&block, ":scheme", "http");
    peer_field(&block, ":path", "/echo");
    peer_field(&block, ":authority", "here");
    if (more != NULL)
        peer_lines(&block, more);
    peer_put(peer, NGHTTP2_HEADERS, flags | END_HEADERS, stream, block.data, block.length);
    buffer_free(&block);
}

void peer_data(struct peer *peer, uint32_t stream, int flags, size_t bytes)
{
    char *payload = mem_alloc(bytes);
    memset(payload, 'x', bytes);
    peer_put(peer, NGHTTP2_DATA, flags, stream, payload, bytes);
    free(payload);
}

/* --- What comes back --- */

struct peer_answer *peer_answer(struct peer *peer, uint32_t stream)
{
    leat_assert((stream + 1) / 2 < PEER_STREAMS_MAX);
    return &peer->answers[(stream + 1) / 2];
}

bool peer_got(struct peer *peer, uint32_t stream, const char *line)
{
    struct byte_buffer *head = &peer_answer(peer, stream)->head;
    buffer_append(head, "", 1);
    head->length--;
    return strstr(head->data, line) != NULL;
}

static void take_head(struct peer *peer, struct peer_answer *answer, const unsigned char *at, size_t bytes)
{
    if (answer->heads++ > 0)
        buffer_printf(&answer->head, "--\n");
    for (;;) {
        nghttp2_nv pair;
        int flags = 0;
        ssize_t used = nghttp2_hd_inflate_hd2(peer->inflater, &pair, &flags, at, bytes, 1);
        leat_assert(used >= 0);
        at += used;
        bytes -= (size_t)used;
        if (flags & NGHTTP2_HD_INFLATE_EMIT)
            buffer_printf(&answer->head, "%.*s: %.*s\n", (int)pair.namelen, (const char *)pair.name,
                          (int)pair.valuelen, (const char *)pair.value);
        if (flags & NGHTTP2_HD_INFLATE_FINAL)
            break;
    }
    nghttp2_hd_inflate_end_headers(peer->inflater);
}

static uint32_t number(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void take_frame(struct peer *peer, int type, int flags, uint32_t stream, const unsigned char *payload,
                       size_t bytes)
{
    struct peer_answer *answer = peer_answer(peer, stream);
    peer->frames[type]++;
    answer->frames++;
    leat_assert(!answer->is_ended || type == NGHTTP2_RST_STREAM);
    if (type == NGHTTP2_HEADERS) {
        leat_assert(flags & END_HEADERS);
        take_head(peer, answer, payload, bytes);
    } else if (type == NGHTTP2_DATA) {
        buffer_append(&answer->body, payload, bytes);
    } else if (type == NGHTTP2_RST_STREAM) {
        answer->reset = number(payload);
    } else if (type == NGHTTP2_GOAWAY) {
        peer->goaway_stream = (int32_t)number(payload);
        peer->goaway = number(payload + 4);
    } else if (type == NGHTTP2_SETTINGS && !(flags & ACK)) {
        peer_put(peer, NGHTTP2_SETTINGS, ACK, 0, NULL, 0);
    }
    if ((type == NGHTTP2_HEADERS || type == NGHTTP2_DATA) && flags & END_STREAM)
        answer->is_ended = true;
}

static bool take_frames(struct peer *peer)
{
    struct byte_buffer *out = &peer->connection.out;
    const unsigned char *at = (const unsigned char *)out->data, *end = at + out->length;
    bool has_come = at < end;
    while (at < end) {
        size_t bytes = (size_t)at[0] << 16 | (size_t)at[1] << 8 | at[2];
        leat_assert(bytes + 9 <= (size_t)(end - at));
        take_frame(peer, at[3], at[4], number(at + 5) & INT32_MAX, at + 9, bytes);
        at += 9 + bytes;
    }
    buffer_clear(out);
    return has_come;
}

void peer_take(struct peer *peer)
{
    while (!peer->is_deaf && take_frames(peer))
        http2_protocol.drained(peer->connection.self);
}

void peer_send(struct peer *peer)
{
    /* Of exact size, so that a sanitizer sees a read beyond. */
    size_t bytes = peer->in.length;
    char *copy = mem_alloc(bytes);
    if (bytes > 0)
        memcpy(copy, peer->in.data, bytes);
    buffer_clear(&peer->in);
    http2_protocol.receive(peer->connection.self, copy, bytes);
    free(copy);
    peer_take(peer);
}

void peer_open(struct peer *peer, bool is_greeted)
{
    *peer = (struct peer){.goaway = -1};
    peer->answers = mem_calloc(PEER_STREAMS_MAX, sizeof(*peer->answers));
    for (size_t i = 0; i < PEER_STREAMS_MAX; i++)
        peer->answers[i].reset = -1;
    leat_assert(nghttp2_hd_inflate_new(&peer->inflater) == 0);
    fake_open(&peer->connection);
    buffer_append(&peer->in, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
    peer_put(peer, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
    if (!is_greeted)
        return;
    peer_send(peer);
    peer_send(peer);
}

void peer_close(struct peer *peer)
{
    fake_close(&peer->connection);
    leat_assert(peer->connection.held == 0);
    for (size_t i = 0; i < PEER_STREAMS_MAX; i++) {
        buffer_free(&peer->answers[i].head);
        buffer_free(&peer->answers[i].body);
    }
    nghttp2_hd_inflate_del(peer->inflater);
    free(peer->answers);
    buffer_free(&peer->in);
}

void peer_close_alive(struct peer *peer, uint32_t stream)
{
    peer->connection.service = FAKE_ECHOES;
    peer_head(peer, stream, 0, "POST", NULL);
    peer_data(peer, stream, END_STREAM, 5);
    peer_send(peer);
    leat_assert(peer->goaway == -1);
    leat_assert(peer_got(peer, stream, ":status: 200\n"));
    leat_assert(peer_answer(peer, stream)->body.length == 5);
    peer_close(peer);
}
