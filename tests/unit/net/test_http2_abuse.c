/* engine/net/http2*.c with clients that break the rules, or keep them and do harm: each is answered, refused or cut
 * off, nothing grows, and an honest client is not. */
#include "http2_peer.h"
#include "unit/core/cmocka_all.h"

#include <stdio.h>

/* The connection ended by GOAWAY of that code, was counted once, and holds no exchange. */
static void assert_ended(struct peer *peer, uint32_t error)
{
    assert_int_equal(peer->goaway, error);
    assert_true(peer->connection.is_finished);
    assert_int_equal(peer->connection.refused, 1);
    uint32_t begun = peer->connection.begun;
    peer_head(peer, 8001, END_STREAM, "GET", NULL);
    peer_send(peer);
    assert_int_equal(peer->connection.begun, begun);
    peer_close(peer);
    for (uint32_t i = 0; i < peer->connection.served_count; i++)
        fake_answer(peer->connection.served[i], 200, STR("thrown away"));
    assert_int_equal(peer->connection.exchanges, 0);
}

/* --- Streams that end before they are answered (CVE-2023-44487, CVE-2025-8671) --- */

static void put_resets(struct peer *peer, uint32_t from, uint32_t count)
{
    for (uint32_t stream = from; stream < from + 2 * count; stream += 2) {
        peer_head(peer, stream, END_STREAM, "GET", NULL);
        peer_put_u32(peer, NGHTTP2_RST_STREAM, stream, NGHTTP2_CANCEL);
    }
}

static void test_rapid_resets(void **state)
{
    (void)state;
    for (int service = FAKE_ECHOES; service <= FAKE_WAITS; service++) {
        struct peer peer;
        peer_open(&peer, true);
        peer.connection.service = (enum fake_service)service;
        put_resets(&peer, 1, 2000);
        peer_send(&peer);
        assert_int_equal(peer.connection.begun, 101);
        assert_ended(&peer, NGHTTP2_ENHANCE_YOUR_CALM);
    }
}

static void test_resets_by_server(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    peer.connection.service = FAKE_WAITS;
    for (uint32_t stream = 1; stream < 2001; stream += 2) {
        peer_head(&peer, stream, END_STREAM, "GET", NULL);
        peer_put_u32(&peer, NGHTTP2_WINDOW_UPDATE, stream,
                     INT32_MAX); /* the server has to reset the stream */
        peer_send(&peer);
        if (peer.connection.is_finished)
            break;
    }
    assert_int_equal(peer.connection.begun, 101);
    assert_ended(&peer, NGHTTP2_ENHANCE_YOUR_CALM);
}

static void test_resets_of_bad_heads(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    for (uint32_t stream = 1; stream < 2001 && !peer.connection.is_finished; stream += 2) {
        peer_head(&peer, stream, END_STREAM, "GET", "connection: close\n");
        peer_send(&peer);
    }
    assert_int_equal(peer_answer(&peer, 199)->reset, NGHTTP2_PROTOCOL_ERROR);
    assert_int_equal(peer.connection.begun, 0);
    assert_ended(&peer, NGHTTP2_ENHANCE_YOUR_CALM);
}

/* Clients that change their minds. */
static void test_resets_in_measure(void **state)
{
    (void)state;
    struct peer peer;
    uint32_t stream = 1;
    peer_open(&peer, true);
    for (int second = 0; second < 15; second++) {
        put_resets(&peer, stream, 100);
        stream += 200;
        peer_send(&peer);
        fake_pass_ms(&peer.connection, 1000);
    }
    for (uint32_t end = stream + 600; stream < end; stream += 2) {
        peer_head(&peer, stream, END_STREAM, "GET", NULL);
        peer_send(&peer);
    }
    put_resets(&peer, stream, 350);
    peer_send(&peer);
    peer_close_alive(&peer, 7001);
}

/* --- Frames without a part of a request --- */

static void put_idle(struct peer *peer, int kind, uint32_t count)
{
    static const unsigned char priority[5] = {0, 0, 0, 0, 16}, settings[6] = {0, 4, 0, 1, 0, 0};
    for (uint32_t i = 0; i < count; i++) {
        switch (kind) {
        case 0: peer_put(peer, NGHTTP2_PING, 0, 0, "12345678", 8); break;
        case 1: peer_put(peer, NGHTTP2_SETTINGS, 0, 0, settings, sizeof(settings)); break;
        case 2: peer_put(peer, NGHTTP2_PRIORITY, 0, 2 * i + 5, priority, sizeof(priority)); break;
        case 3: peer_put_u32(peer, NGHTTP2_WINDOW_UPDATE, i % 2, 1); break;
        case 4: peer_data(peer, 1, 0, 0); break;
        case 5: peer_data(peer, 1, 0, 1); break;
        case 6: peer_put(peer, NGHTTP2_PING, ACK, 0, "12345678", 8); break;
        case 7:
            peer_put_u32(peer, NGHTTP2_RST_STREAM, 3, NGHTTP2_CANCEL); /* long ended */
            break;
        case 8: peer_put(peer, NGHTTP2_GOAWAY, 0, 0, "\0\0\0\0\0\0\0", 8); break;
        default: peer_put(peer, NGHTTP2_DATA, PADDED, 1, "\7\0\0\0\0\0\0", 8);
        }
    }
}

enum { IDLE_KINDS = 10 };

static void open_uploading(struct peer *peer)
{
    peer_open(peer, true);
    peer->connection.listen.body_bytes_max = 1 << 20;
    peer_head(peer, 1, 0, "POST", NULL);
    peer_head(peer, 3, END_STREAM, "GET", NULL);
    peer_send(peer);
}

static void test_idle_floods(void **state)
{
    (void)state;
    for (int kind = 0; kind < IDLE_KINDS; kind++) {
        struct peer peer;
        open_uploading(&peer);
        for (int i = 0; i < 30 && !peer.connection.is_finished; i++) {
            put_idle(&peer, kind, 100);
            peer_send(&peer);
        }
        assert_int_equal(peer.connection.exchanges, peer.connection.is_finished);
        assert_ended(&peer, NGHTTP2_ENHANCE_YOUR_CALM);
    }
}

/* In one piece: answers to PING and SETTINGS cannot pile up inside the session. */
static void test_idle_floods_at_once(void **state)
{
    (void)state;
    for (int kind = 0; kind < IDLE_KINDS; kind++) {
        struct peer peer;
        open_uploading(&peer);
        put_idle(&peer, kind, 20000);
        peer_send(&peer);
        assert_true(peer.frames[NGHTTP2_PING] + peer.frames[NGHTTP2_SETTINGS] <= 1000 + 3);
        assert_ended(&peer, NGHTTP2_ENHANCE_YOUR_CALM);
    }
}

static void test_idle_in_measure(void **state)
{
    (void)state;
    for (int kind = 0; kind < IDLE_KINDS; kind++) {
        if (kind == 8)
            continue; /* a client's GOAWAY ends the connection in any case */
        struct peer peer;
        open_uploading(&peer);
        for (int second = 0; second < 8; second++) {
            put_idle(&peer, kind, 900);
            peer_send(&peer);
            put_idle(&peer, kind, 900);
            peer_send(&peer);
            fake_pass_ms(&peer.connection, 1000);
        }
        /* Those who are answered much may say much. */
        for (uint32_t stream = 1001; stream < 1201; stream += 2) {
            peer_head(&peer, stream, END_STREAM, "GET", NULL);
            peer_send(&peer);
        }
        for (int i = 0; i < 4; i++) {
            put_idle(&peer, kind, 800);
            peer_send(&peer);
        }
        peer_close_alive(&peer, 3001);
    }
}

/* --- Heads --- */

/* CVE-2024-28182 and its kin: a head without an end. */
static void test_continuations(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes <= 16384; bytes += 8192) {
        struct peer peer;
        char block[16384];
        memset(block, 0x84, sizeof(block)); /* `:path: /` */
        peer_open(&peer, true);
        peer_put(&peer, NGHTTP2_HEADERS, END_STREAM, 1, "\x82\x86\x84", 3);
        for (int i = 0; i < 1000; i++)
            peer_put(&peer, NGHTTP2_CONTINUATION, 0, 1, block, bytes);
        peer_send(&peer);
        assert_int_equal(peer.connection.begun, 0);
        assert_ended(&peer, NGHTTP2_ENHANCE_YOUR_CALM);
    }
}

/* A field of 3,900 bytes goes into the table; then each byte of the block is that field again. */
static void put_bomb(struct peer *peer, uint32_t stream, size_t times)
{
    struct byte_buffer block = {0};
    char value[3901];
    memset(value, 'v', 3900);
    value[3900] = '\0';
    peer_field(&block, ":method", "GET");
    peer_field(&block, ":scheme", "http");
    peer_field(&block, ":path", "/echo");
    peer_field(&block, ":authority", "here");
    size_t at = block.length;
    peer_field(&block, "x-bomb", value);
    block.data[at] = 0x40; /* with indexing */
    for (size_t i = 0; i < times; i++)
        buffer_append(&block, "\xbe", 1);
    peer_put(peer, NGHTTP2_HEADERS, END_HEADERS | END_STREAM, stream, block.data, block.length);
    buffer_free(&block);
}

static void test_bombs(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    put_bomb(&peer, 1, 2); /* 11.8 KB */
    put_bomb(&peer, 3, 4); /* 19.7 KB */
    put_bomb(&peer, 5, 60);
    peer_send(&peer);
    assert_true(peer_got(&peer, 1, ":status: 200\n"));
    assert_true(peer_got(&peer, 3, ":status: 431\n"));
    assert_true(peer_got(&peer, 5, ":status: 431\n"));
    assert_int_equal(peer.connection.begun, 1);
    peer_close_alive(&peer, 7);

    peer_open(&peer, true);
    put_bomb(&peer, 1, 10000); /* 39 MB */
    peer_send(&peer);
    assert_ended(&peer, NGHTTP2_ENHANCE_YOUR_CALM);
}

static void test_many_fields(void **state)
{
    (void)state;
    struct peer peer;
    struct byte_buffer lines = {0};
    peer_open(&peer, true);
    for (int i = 0; i < NET_FIELDS_MAX + 1; i++) {
        if (i == NET_FIELDS_MAX) {
            buffer_append(&lines, "", 1);
            lines.length--;
            peer_head(&peer, 1, END_STREAM, "GET", lines.data);
        }
        buffer_printf(&lines, "x-%d: 1\n", i);
    }
    peer_head(&peer, 3, END_STREAM, "GET", lines.data);
    peer_send(&peer);
    assert_true(peer_got(&peer, 1, ":status: 200\n"));
    assert_true(peer_got(&peer, 3, ":status: 431\n"));
    buffer_free(&lines);
    peer_close_alive(&peer, 5);
}

/* Trailers are dropped; those that decode to too much end the connection. */
static void test_large_trailers(void **state)
{
    (void)state;
    for (size_t times = 1; times <= 10000; times += 9999) {
        struct peer peer;
        struct byte_buffer block = {0};
        peer_open(&peer, true);
        put_bomb(&peer, 1, 0);
        for (size_t i = 0; i < times; i++)
            buffer_append(&block, "\xbe", 1);
        peer_head(&peer, 3, 0, "POST", NULL);
        peer_put(&peer, NGHTTP2_HEADERS, END_HEADERS | END_STREAM, 3, block.data, block.length);
        peer_send(&peer);
        buffer_free(&block);
        if (times > 1)
            assert_ended(&peer, NGHTTP2_ENHANCE_YOUR_CALM);
        else
            peer_close_alive(&peer, 5);
    }
}

/* What is wrong with one request touches no other. reset: error code, or the status of an answer. */
static void test_bad_requests(void **state)
{
    (void)state;
    enum { PROTOCOL = NGHTTP2_PROTOCOL_ERROR };
    static const struct {
        const char *head;
        int reset;
    } cases[] = {
        {":method: GET\n:scheme: http\n:path: /\n", PROTOCOL}, /* no authority */
        {":method: GET\n:scheme: http\n:path: /\nhost: here\n", 200},
        {":method: GET\n:scheme: http\n:path: /\n:authority: here\nhost: here\n", 200},
        {":method: GET\n:scheme: http\n:path: /\n:authority: here\nhost: there\n", 400},
        {":method: GET\n:scheme: http\n:path: /\n:authority: a\n:authority: b\n", PROTOCOL},
        {":method: GET\n:scheme: http\n:path: /\nhost: here\nhost: there\n", PROTOCOL},
        {":method: GET\n:scheme: http\n:authority: here\n", PROTOCOL},
        {":method: GET\n:path: /\n:authority: here\n", PROTOCOL},
        {":scheme: http\n:path: /\n:authority: here\n", PROTOCOL},
        {":method: GET\n:method: GET\n:scheme: http\n:path: /\n:authority: here\n", PROTOCOL},
        {":method: GET\n:scheme: http\n:path: /\n:authority: here\n:status: 200\n", PROTOCOL},
        {":method: GET\n:scheme: http\n:path: /\n:authority: here\n:protocol: websocket\n", PROTOCOL},
        {":method: GET\n:scheme: http\nx: 1\n:path: /\n:authority: here\n", PROTOCOL},
        {":method: GET\n:scheme: http\n:path: \n:authority: here\n", PROTOCOL},
        {":method: GET\n:scheme: http\n:path: /\n:authority: here\nX-Upper: 1\n", PROTOCOL},
        {":method: GET\n:scheme: http\n:path: /\n:authority: here\nx-bad: a\rb\n", 400},
        {":method: GET\n:scheme: http\n:path: /\n:authority: here\nx bad: 1\n", 400},
        {":method: GET\n:scheme: http\n:path: /\n:authority: here\nconnection: close\n", PROTOCOL},
        {":method: GET\n:scheme: http\n:path: /\n:authority: here\ntransfer-encoding: chunked\n", PROTOCOL},
        {":method: GET\n:scheme: http\n:path: /\n:authority: here\nkeep-alive: 1\n", PROTOCOL},
        {":method: GET\n:scheme: http\n:path: /\n:authority: here\nupgrade: h3\n", PROTOCOL},
        {":method: GET\n:scheme: http\n:path: /\n:authority: here\nte: gzip\n", PROTOCOL},
        {":method: GET\n:scheme: http\n:path: /\n:authority: here\ncontent-length: -1\n", PROTOCOL},
        {":method: GET\n:scheme: http\n:path: /\n:authority: here\ncontent-length: 1\n", PROTOCOL},
        {":method: GET\n:scheme: http\n:path: /\n:authority: here\ncontent-length: 0\ncontent-length: 0\n",
         PROTOCOL},
        {":method: CONNECT\n:authority: here\n", 405},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct peer peer;
        struct byte_buffer block = {0};
        char status[24];
        peer_open(&peer, true);
        peer_lines(&block, cases[i].head);
        peer_put(&peer, NGHTTP2_HEADERS, END_HEADERS | END_STREAM, 1, block.data, block.length);
        peer_send(&peer);
        buffer_free(&block);
        snprintf(status, sizeof(status), ":status: %d\n", cases[i].reset);
        if (cases[i].reset == PROTOCOL ? peer_answer(&peer, 1)->reset != PROTOCOL
                                       : !peer_got(&peer, 1, status))
            fail_msg("case %zu: reset %d, head %s", i, (int)peer_answer(&peer, 1)->reset,
                     peer_got(&peer, 1, "") ? peer_answer(&peer, 1)->head.data : "");
        assert_int_equal(peer.connection.begun, cases[i].reset == 200);
        peer_close_alive(&peer, 3);
    }
}

static void test_wrong_lengths(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    peer_head(&peer, 1, 0, "POST", "content-length: 5\n");
    peer_data(&peer, 1, END_STREAM, 4);
    peer_head(&peer, 3, 0, "POST", "content-length: 5\n");
    peer_data(&peer, 3, 0, 6);
    peer_send(&peer);
    assert_int_equal(peer_answer(&peer, 1)->reset, NGHTTP2_PROTOCOL_ERROR);
    assert_int_equal(peer_answer(&peer, 3)->reset, NGHTTP2_PROTOCOL_ERROR);
    assert_int_equal(peer.connection.exchanges, 0);
    peer_close_alive(&peer, 5);
}

/* --- Connections --- */

static void test_bad_frames(void **state)
{
    (void)state;
    static const struct {
        int type, flags;
        uint32_t stream;
        size_t bytes;
        uint32_t error;
    } cases[] = {
        {NGHTTP2_DATA, 0, 0, 5, NGHTTP2_PROTOCOL_ERROR},
        {NGHTTP2_DATA, 0, 9, 5, NGHTTP2_PROTOCOL_ERROR}, /* idle */
        {NGHTTP2_DATA, PADDED, 1, 0, NGHTTP2_PROTOCOL_ERROR},
        {NGHTTP2_HEADERS, END_HEADERS, 2, 0, NGHTTP2_PROTOCOL_ERROR}, /* a server's */
        {NGHTTP2_HEADERS, END_HEADERS, 0, 0, NGHTTP2_PROTOCOL_ERROR},
        {NGHTTP2_CONTINUATION, END_HEADERS, 1, 0, NGHTTP2_PROTOCOL_ERROR},
        {NGHTTP2_PUSH_PROMISE, END_HEADERS, 1, 4, NGHTTP2_PROTOCOL_ERROR},
        {NGHTTP2_RST_STREAM, 0, 9, 4, NGHTTP2_PROTOCOL_ERROR},
        {NGHTTP2_RST_STREAM, 0, 1, 3, NGHTTP2_FRAME_SIZE_ERROR},
        {NGHTTP2_PING, 0, 0, 7, NGHTTP2_FRAME_SIZE_ERROR},
        {NGHTTP2_PING, 0, 1, 8, NGHTTP2_PROTOCOL_ERROR},
        {NGHTTP2_SETTINGS, 0, 0, 5, NGHTTP2_FRAME_SIZE_ERROR},
        {NGHTTP2_SETTINGS, 0, 0, 6 * 33, NGHTTP2_ENHANCE_YOUR_CALM},
        {NGHTTP2_WINDOW_UPDATE, 0, 0, 4, NGHTTP2_PROTOCOL_ERROR}, /* by 0 */
        {NGHTTP2_GOAWAY, 0, 1, 8, NGHTTP2_PROTOCOL_ERROR},
        {NGHTTP2_DATA, 0, 1, 16385, NGHTTP2_FRAME_SIZE_ERROR},
        {0x42, 0, 1, 16385, NGHTTP2_FRAME_SIZE_ERROR},
    };
    static const char zeros[16385];
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct peer peer;
        peer_open(&peer, true);
        peer.connection.service = FAKE_WAITS;
        peer_head(&peer, 1, 0, "POST", NULL);
        peer_put(&peer, cases[i].type, cases[i].flags, cases[i].stream, zeros, cases[i].bytes);
        peer_send(&peer);
        if (peer.goaway != cases[i].error)
            fail_msg("case %zu: GOAWAY %d", i, (int)peer.goaway);
        assert_ended(&peer, cases[i].error);
    }
}

static void test_bad_beginnings(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, false);
    memcpy(peer.in.data, "PRI * HTTP/3.0", 14);
    peer_send(&peer);
    assert_ended(&peer, NGHTTP2_PROTOCOL_ERROR);

    peer_open(&peer, false);
    peer.in.length = NGHTTP2_CLIENT_MAGIC_LEN;
    peer_put(&peer, NGHTTP2_PING, 0, 0, "12345678", 8); /* where SETTINGS must be */
    peer_send(&peer);
    assert_ended(&peer, NGHTTP2_PROTOCOL_ERROR);
}

static void test_many_streams(void **state)
{
    (void)state;
    struct peer peer;
    /* A client that has not seen the limit yet. */
    peer_open(&peer, false);
    peer.connection.service = FAKE_WAITS;
    for (uint32_t stream = 1; stream < 401; stream += 2)
        peer_head(&peer, stream, END_STREAM, "GET", NULL);
    peer_send(&peer);
    assert_int_equal(peer.connection.served_count, 128);
    assert_int_equal(peer_answer(&peer, 257)->reset, NGHTTP2_REFUSED_STREAM);
    for (uint32_t i = 0; i < 128; i++)
        fake_answer(peer.connection.served[i], 200, STR("good"));
    peer_take(&peer);
    assert_true(peer_got(&peer, 255, ":status: 200\n"));
    peer_close_alive(&peer, 501);
    /* One that has. */
    peer_open(&peer, true);
    peer.connection.service = FAKE_WAITS;
    for (uint32_t stream = 1; stream < 401; stream += 2)
        peer_head(&peer, stream, END_STREAM, "GET", NULL);
    peer_send(&peer);
    assert_int_equal(peer.connection.served_count, 128);
    assert_ended(&peer, NGHTTP2_PROTOCOL_ERROR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rapid_resets),
        cmocka_unit_test(test_resets_by_server),
        cmocka_unit_test(test_resets_of_bad_heads),
        cmocka_unit_test(test_resets_in_measure),
        cmocka_unit_test(test_idle_floods),
        cmocka_unit_test(test_idle_floods_at_once),
        cmocka_unit_test(test_idle_in_measure),
        cmocka_unit_test(test_continuations),
        cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_many_fields),
        cmocka_unit_test(test_large_trailers),
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_wrong_lengths),
        cmocka_unit_test(test_bad_frames),
        cmocka_unit_test(test_bad_beginnings),
        cmocka_unit_test(test_many_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
