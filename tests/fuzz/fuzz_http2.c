/* Arbitrary bytes as what a client of HTTP/2 sends. The first byte says how: whether the client's preface stands in
 * front, whether the service answers at once, how many bytes come at a time, whether the client takes what is sent.
 *
 * What is sent back is whole frames that nghttp2's own decoder of heads reads, none behind a stream's end; each
 * exchange ends once; when the connection is closed and all is answered no memory is held. */
#include "fuzz.h"
#include "unit/net/fake_connection.h"

#include <nghttp2/nghttp2.h>

enum { BYTES_MAX = 16384, OUT_MAX = CONNECTION_OUT_MAX + 16384 + 9, STREAMS_MAX = 128 };

static const struct net_field trailers[] = {{{"grpc-status", 11}, {"0", 1}}};

/* Streams that the server has ended. */
struct ended {
    uint32_t ids[4096];
    uint32_t count;
};

static uint32_t number(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void check_head(nghttp2_hd_inflater *inflater, const unsigned char *at, size_t bytes)
{
    for (int flags = 0; !(flags & NGHTTP2_HD_INFLATE_FINAL);) {
        nghttp2_nv pair;
        ssize_t used = nghttp2_hd_inflate_hd2(inflater, &pair, &flags, at, bytes, 1);
        must(used >= 0, "a head of ours can be read");
        at += used;
        bytes -= (size_t)used;
    }
    nghttp2_hd_inflate_end_headers(inflater);
}

static void check_frame(struct ended *ended, nghttp2_hd_inflater *inflater, const unsigned char *at,
                        size_t bytes)
{
    int type = at[3], flags = at[4];
    uint32_t stream = number(at + 5);
    for (uint32_t i = 0; i < ended->count && stream != 0; i++)
        must(ended->ids[i] != stream || type == NGHTTP2_RST_STREAM || type == NGHTTP2_WINDOW_UPDATE,
             "no answer behind a stream's end");
    must(type <= NGHTTP2_WINDOW_UPDATE && type != NGHTTP2_PRIORITY && type != NGHTTP2_PUSH_PROMISE,
         "only frames that a server sends");
    if (type == NGHTTP2_HEADERS) {
        must((flags & NGHTTP2_FLAG_END_HEADERS) != 0, "heads of ours fit into a frame");
        check_head(inflater, at + 9, bytes);
    }
    if (type <= NGHTTP2_HEADERS && flags & NGHTTP2_FLAG_END_STREAM && ended->count < ARRAY_COUNT(ended->ids))
        ended->ids[ended->count++] = stream;
}

static void take(struct net_connection *connection, struct ended *ended, nghttp2_hd_inflater *inflater)
{
    while (connection->out.length > 0) {
        const unsigned char *at = (const unsigned char *)connection->out.data,
                            *end = at + connection->out.length;
        while (at < end) {
            must(end - at >= 9, "frames are whole");
            size_t bytes = (size_t)at[0] << 16 | (size_t)at[1] << 8 | at[2];
            must(bytes <= 16384 && (size_t)(end - at) - 9 >= bytes, "frames are whole and not too long");
            check_frame(ended, inflater, at, bytes);
            at += 9 + bytes;
        }
        buffer_clear(&connection->out);
        if (!connection->is_finished && !connection->is_aborted)
            http2_protocol.drained(connection->self);
    }
}

static void answer(struct net_connection *connection, uint32_t *answered, uint32_t until)
{
    static char body[32000];
    for (; *answered < until; ++*answered)
        fake_answer(connection->served[*answered], 200, (struct str){body, *answered * 700 % sizeof(body)});
}

static void feed(struct net_connection *connection, struct fuzz_input *input, int how)
{
    static struct ended ended;
    static const size_t steps[] = {1, 9, 100, BYTES_MAX};
    nghttp2_hd_inflater *inflater = NULL;
    must(nghttp2_hd_inflate_new(&inflater) == 0, "there is memory");
    ended.count = 0;
    uint32_t answered = 0, round = 0;
    bool is_deaf = (how & 16) != 0;
    while (input->at < input->end && !connection->is_finished && !connection->is_aborted) {
        struct str piece = fuzz_take(input, steps[how >> 2 & 3]);
        if (!connection->is_paused)
            http2_protocol.receive(connection->self, piece.data, piece.length);
        free((char *)(uintptr_t)piece.data);
        must(connection->exchanges <= STREAMS_MAX + connection->orphaned, "exchanges are bounded");
        must(connection->out.length <= OUT_MAX, "what waits is bounded");
        if (++round % 8 == 0 && !connection->is_finished)
            answer(connection, &answered, connection->served_count);
        if (!is_deaf || round % 32 == 0)
            take(connection, &ended, inflater);
        if (how & 32)
            fake_pass_ms(connection, how & 128 ? 700 : 50);
    }
    take(connection, &ended, inflater);
    http2_protocol.close(connection->self);
    answer(connection, &answered, connection->served_count);
    nghttp2_hd_inflate_del(inflater);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > BYTES_MAX)
        return 0;
    struct fuzz_input input = {data, data + size};
    struct net_connection connection;
    int how = fuzz_byte(&input);
    fake_open(&connection);
    connection.service = (how & 2) != 0 ? FAKE_WAITS : FAKE_ECHOES;
    connection.trailers = trailers;
    connection.trailers_count = (how & 64) != 0;
    connection.listen.body_bytes_max = 400;
    connection.listen.body_ms = 600;
    connection.listen.write_ms = 5000;
    if (!(how & 1))
        http2_protocol.receive(connection.self, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
    feed(&connection, &input, how);
    buffer_free(&connection.out);
    must(connection.exchanges == 0, "each exchange has ended");
    must(connection.held == 0, "no memory is held");
    return 0;
}
