/* engine/net/http2*.c with clients that keep the rules: requests and answers, trailers, windows, deadlines, the
 * end. */
#include "http2_peer.h"
#include "unit/core/cmocka_all.h"

static const struct net_field grpc_status[] = {{{"grpc-status", 11}, {"0", 1}},
                                               {{"grpc-message", 12}, {"", 0}}};

static void assert_body(struct peer *peer, uint32_t stream, const char *text)
{
    struct peer_answer *answer = peer_answer(peer, stream);
    assert_int_equal(answer->body.length, strlen(text));
    assert_memory_equal(answer->body.data, text, strlen(text));
    assert_true(answer->is_ended);
}

/* --- A client session of nghttp2 --- */

struct client {
    nghttp2_session *session;
    uint32_t closed, good;
    size_t body_bytes;
};

static int client_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                         size_t name_bytes, const uint8_t *value, size_t value_bytes, uint8_t flags,
                         void *user)
{
    (void)session, (void)frame, (void)flags;
    struct client *client = user;
    if (name_bytes == 7 && memcmp(name, ":status", 7) == 0 && value_bytes == 3)
        client->good += memcmp(value, "200", 3) == 0;
    return 0;
}

static int client_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                       size_t count, void *user)
{
    (void)session, (void)flags, (void)id, (void)bytes;
    struct client *client = user;
    client->body_bytes += count;
    return 0;
}

static int client_close(nghttp2_session *session, int32_t id, uint32_t error, void *user)
{
    (void)session, (void)id;
    struct client *client = user;
    client->closed += error == NGHTTP2_NO_ERROR;
    return 0;
}

static ssize_t client_body(nghttp2_session *session, int32_t id, uint8_t *into, size_t bytes, uint32_t *flags,
                           nghttp2_data_source *source, void *user)
{
    (void)session, (void)id, (void)user;
    size_t count = MIN(bytes, (size_t)source->fd);
    memset(into, 'y', count);
    source->fd -= (int)count;
    if (source->fd == 0)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)count;
}

static void client_open(struct client *client)
{
    nghttp2_session_callbacks *callbacks;
    *client = (struct client){0};
    assert_int_equal(nghttp2_session_callbacks_new(&callbacks), 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, client_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, client_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, client_close);
    assert_int_equal(nghttp2_session_client_new(&client->session, callbacks, client), 0);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(client->session, NGHTTP2_FLAG_NONE, NULL, 0);
}

#define PAIR(name, value)                                                                                    \
    {                                                                                                        \
        (uint8_t *)(name), (uint8_t *)(value), sizeof(name) - 1, sizeof(value) - 1, NGHTTP2_NV_FLAG_NONE     \
    }

static void client_request(struct client *client, int bytes)
{
    const nghttp2_nv pairs[] = {PAIR(":method", "POST"), PAIR(":scheme", "http"), PAIR(":path", "/echo"),
                                PAIR(":authority", "here"), PAIR("te", "trailers")};
    nghttp2_data_provider provider = {.source.fd = bytes, .read_callback = client_body};
    assert_true(nghttp2_submit_request(client->session, NULL, pairs, 5, bytes > 0 ? &provider : NULL, NULL) >
                0);
}

/* Carries bytes both ways until nothing moves. */
static void carry(struct client *client, struct net_connection *connection)
{
    for (bool is_moving = true; is_moving;) {
        is_moving = false;
        const uint8_t *bytes;
        ssize_t count;
        while (!connection->is_paused && (count = nghttp2_session_mem_send(client->session, &bytes)) > 0) {
            http2_protocol.receive(connection->self, (const char *)bytes, (size_t)count);
            is_moving = true;
        }
        struct byte_buffer out = connection->out;
        connection->out = (struct byte_buffer){0};
        if (out.length > 0) {
            assert_int_equal(nghttp2_session_mem_recv(client->session, (uint8_t *)out.data, out.length),
                             out.length);
            buffer_free(&out);
            http2_protocol.drained(connection->self);
            is_moving = true;
        }
    }
}

static void test_sessions(void **state)
{
    (void)state;
    struct client client;
    struct net_connection connection;
    client_open(&client);
    fake_open(&connection);
    size_t sum = 0;
    for (int i = 0; i < 300; i++) {
        client_request(&client, i % 1000);
        sum += (size_t)(i % 1000);
    }
    carry(&client, &connection);
    assert_int_equal(client.closed, 300);
    assert_int_equal(client.good, 300);
    assert_int_equal(client.body_bytes, sum);
    assert_int_equal(connection.exchanges, 0);
    assert_int_equal(connection.begun, 300);
    assert_string_equal(connection.authority, "here");
    assert_int_equal(connection.refused, 0);
    nghttp2_session_del(client.session);
    fake_close(&connection);
    assert_int_equal(connection.held, 0);
}

/* Answers of 3 MB go through windows of 64 KiB, and never more than CONNECTION_OUT_MAX and a frame wait. */
static void test_large_answers(void **state)
{
    (void)state;
    struct client client;
    struct net_connection connection;
    client_open(&client);
    fake_open(&connection);
    connection.listen.body_bytes_max = 3 << 20;
    for (int i = 0; i < 4; i++)
        client_request(&client, 3 << 20);
    carry(&client, &connection);
    assert_int_equal(client.closed, 4);
    assert_int_equal(client.body_bytes, 12 << 20);
    nghttp2_session_del(client.session);
    fake_close(&connection);
}

/* --- Answers --- */

static void test_settings(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, false);
    const unsigned char *out = (unsigned char *)peer.connection.out.data;
    static const unsigned char settings[] = {0, 0, 30, 4, 0, 0,  0, 0, 0, 0, 3, 0, 0, 0, 128, 0, 4, 0, 4, 0,
                                             0, 0, 6,  0, 0, 64, 0, 0, 8, 0, 0, 0, 0, 0, 9,   0, 0, 0, 1};
    static const unsigned char window[] = {0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 15, 0, 1}; /* 1 MiB - 65,535 */
    assert_memory_equal(out, settings, sizeof(settings));
    assert_memory_equal(out + sizeof(settings), window, sizeof(window));
    peer_close(&peer);
}

static void test_answer(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    peer_head(&peer, 1, 0, "POST", "content-length: 5\nx-one: 1\n");
    peer_data(&peer, 1, END_STREAM, 5);
    peer_head(&peer, 3, END_STREAM, "GET", NULL);
    peer_head(&peer, 5, 0, "HEAD", NULL);
    peer_data(&peer, 5, END_STREAM, 7);
    peer_send(&peer);
    assert_body(&peer, 1, "xxxxx");
    assert_true(peer_got(&peer, 1, ":status: 200\n"));
    assert_true(peer_got(&peer, 1, "content-length: 5\n"));
    assert_true(peer_got(&peer, 1, "content-type: text/plain\n"));
    assert_true(peer_got(&peer, 1, " GMT\n"));
    assert_body(&peer, 3, "");
    assert_true(peer_got(&peer, 3, "content-length: 0\n"));
    assert_body(&peer, 5, "");
    assert_true(peer_got(&peer, 5, "content-length: 7\n"));
    assert_int_equal(peer.frames[NGHTTP2_RST_STREAM], 0);
    peer_close(&peer);
}

static void test_trailers(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    peer.connection.trailers = grpc_status;
    peer.connection.trailers_count = 2;
    peer_head(&peer, 1, 0, "POST", "te: trailers\ncontent-type: application/grpc\n");
    peer_data(&peer, 1, END_STREAM, 5);
    peer_head(&peer, 3, END_STREAM, "POST", NULL);
    peer_send(&peer);
    assert_body(&peer, 1, "xxxxx");
    assert_int_equal(peer_answer(&peer, 1)->heads, 2);
    assert_true(peer_got(&peer, 1, "--\ngrpc-status: 0\ngrpc-message: \n"));
    assert_int_equal(peer_answer(&peer, 3)->frames, 1);
    assert_body(&peer, 3, "");
    assert_true(peer_got(&peer, 3, ":status: 200\n"));
    assert_true(peer_got(&peer, 3, "grpc-status: 0\n"));
    peer_close(&peer);
}

static void test_lengths(void **state)
{
    (void)state;
    static const struct {
        int flags;
        const char *more;
        int64_t length;
    } cases[] = {{END_STREAM, NULL, 0},
                 {END_STREAM, "content-length: 0\n", 0},
                 {0, NULL, -1},
                 {0, "content-length: 17\n", 17},
                 {0, "content-length: 9223372036854775807\n", INT64_MAX}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct peer peer;
        peer_open(&peer, true);
        peer_head(&peer, 1, cases[i].flags, "POST", cases[i].more);
        peer_send(&peer);
        assert_int_equal(peer.connection.content_length, cases[i].length);
        peer_close(&peer);
    }
}

static void test_late_answers(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    peer.connection.service = FAKE_WAITS;
    for (uint32_t stream = 1; stream < 20; stream += 2)
        peer_head(&peer, stream, END_STREAM, "GET", NULL);
    peer_send(&peer);
    assert_int_equal(peer.connection.served_count, 10);
    fake_pass_ms(&peer.connection, 3600 * 1000); /* the service has deadlines of its own */
    assert_int_equal(peer.connection.deadline_us, INT64_MAX);
    assert_false(peer.connection.is_finished);
    for (uint32_t i = 10; i-- > 0;)
        fake_answer(peer.connection.served[i], i == 3 ? 204 : 503, i == 3 ? STR("") : STR("late"));
    assert_int_equal(peer.connection.flushes, 10);
    peer_take(&peer);
    assert_body(&peer, 1, "late");
    assert_true(peer_got(&peer, 1, ":status: 503\n"));
    assert_true(peer_got(&peer, 7, ":status: 204\n"));
    assert_false(peer_got(&peer, 7, "content-length"));
    assert_int_equal(peer.connection.exchanges, 0);
    peer_close(&peer);
}

static void test_continue(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    peer_head(&peer, 1, 0, "POST", "expect: 100-continue\n");
    peer_send(&peer);
    assert_true(peer_got(&peer, 1, ":status: 100\n"));
    peer_data(&peer, 1, END_STREAM, 5);
    peer_send(&peer);
    assert_true(peer_got(&peer, 1, "--\n:status: 200\n"));
    peer_close(&peer);
}

static void test_request_trailers(void **state)
{
    (void)state;
    struct peer peer;
    struct byte_buffer block = {0};
    peer_open(&peer, true);
    peer.connection.service = FAKE_WAITS;
    peer_field(&block, "x-sum", "7");
    peer_head(&peer, 1, 0, "POST", NULL);
    peer_data(&peer, 1, 0, 5);
    peer_put(&peer, NGHTTP2_HEADERS, END_HEADERS | END_STREAM, 1, block.data, block.length);
    peer_send(&peer);
    assert_int_equal(peer.connection.served_count, 1);
    assert_int_equal(peer.connection.served[0]->public.fields_count, 0);
    fake_answer(peer.connection.served[0], 200, STR("good"));
    peer_take(&peer);
    assert_body(&peer, 1, "good");
    buffer_free(&block);
    peer_close(&peer);
}

/* --- Refusals, resets --- */

static void test_early_refusals(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    peer_head(&peer, 1, 0, "POST", "content-length: 5000\n");
    peer_head(&peer, 3, 0, "POST", NULL);
    peer_data(&peer, 3, 0, 900);
    peer_data(&peer, 3, 0, 900);
    peer_data(&peer, 3, 0, 900); /* on its way while the answer is */
    peer_send(&peer);
    for (uint32_t stream = 1; stream <= 3; stream += 2) {
        assert_true(peer_got(&peer, stream, ":status: 413\n"));
        assert_body(&peer, stream, "the body is too long\n");
        assert_int_equal(peer_answer(&peer, stream)->reset, NGHTTP2_NO_ERROR);
    }
    peer.connection.service = FAKE_REFUSES;
    peer_data(&peer, 3, 0, 900);
    peer_head(&peer, 5, 0, "POST", NULL);
    peer_head(&peer, 7, END_STREAM, "POST", NULL);
    peer_send(&peer);
    assert_true(peer_got(&peer, 5, ":status: 401\n"));
    assert_int_equal(peer_answer(&peer, 5)->reset, NGHTTP2_NO_ERROR);
    assert_int_equal(peer_answer(&peer, 7)->reset, -1);
    assert_int_equal(peer.goaway, -1);
    assert_int_equal(peer.connection.exchanges, 0);
    peer_close(&peer);
}

static void test_client_resets(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    peer.connection.service = FAKE_WAITS;
    peer_head(&peer, 1, END_STREAM, "GET", NULL);
    peer_head(&peer, 3, 0, "POST", NULL);
    peer_head(&peer, 5, END_STREAM, "GET", NULL);
    peer_send(&peer);
    peer_put_u32(&peer, NGHTTP2_RST_STREAM, 1, NGHTTP2_CANCEL);
    peer_put_u32(&peer, NGHTTP2_RST_STREAM, 3, NGHTTP2_CANCEL);
    peer_send(&peer);
    assert_int_equal(peer.connection.orphaned, 2);
    fake_pass_ms(&peer.connection, 200000);
    assert_int_equal(peer.connection.deadline_us, INT64_MAX);
    assert_true(peer.connection.served[0]->public.is_gone);
    assert_false(peer.connection.served[1]->public.is_gone);
    fake_answer(peer.connection.served[0], 200, STR("thrown away"));
    assert_int_equal(peer_answer(&peer, 1)->frames, 0);
    struct exchange *last = peer.connection.served[1];
    http2_protocol.close(peer.connection.self);
    assert_true(last->public.is_gone);
    fake_answer(last, 200, STR("thrown away"));
    assert_int_equal(peer.connection.exchanges, 0);
    peer.connection.self = http2_protocol.open(&peer.connection);
    peer_close(&peer);
}

static void test_stop(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    peer.connection.service = FAKE_WAITS;
    peer_head(&peer, 1, END_STREAM, "GET", NULL);
    peer_head(&peer, 3, 0, "POST", NULL);
    peer_send(&peer);
    http2_protocol.stop(peer.connection.self);
    peer_take(&peer);
    assert_int_equal(peer.goaway, NGHTTP2_NO_ERROR);
    assert_int_equal(peer.goaway_stream, 3);
    peer_head(&peer, 5, END_STREAM, "GET", NULL);
    peer_data(&peer, 3, END_STREAM, 5);
    peer_send(&peer);
    assert_int_equal(peer.connection.served_count, 2);
    assert_int_equal(peer_answer(&peer, 5)->frames, 0);
    fake_answer(peer.connection.served[0], 200, STR("one"));
    peer_take(&peer);
    assert_false(peer.connection.is_finished);
    fake_answer(peer.connection.served[1], 200, STR("two"));
    peer_take(&peer);
    assert_body(&peer, 1, "one");
    assert_body(&peer, 3, "two");
    assert_true(peer.connection.is_finished);
    assert_int_equal(peer.connection.refused, 0);
    peer_close(&peer);
}

/* A client that wants no more than it has asked for gets it. */
static void test_client_stops(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    peer.connection.service = FAKE_WAITS;
    peer_head(&peer, 1, END_STREAM, "GET", NULL);
    peer_put(&peer, NGHTTP2_GOAWAY, 0, 0, "\0\0\0\0\0\0\0", 8);
    peer_send(&peer);
    assert_false(peer.connection.is_finished);
    fake_answer(peer.connection.served[0], 200, STR("one"));
    peer_take(&peer);
    assert_body(&peer, 1, "one");
    assert_true(peer.connection.is_finished);
    assert_int_equal(peer.connection.refused, 0);
    peer_close(&peer);
}

static void test_stop_idle(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    http2_protocol.stop(peer.connection.self);
    peer_take(&peer);
    assert_int_equal(peer.goaway, NGHTTP2_NO_ERROR);
    assert_true(peer.connection.is_finished);
    peer_close(&peer);
}

/* --- Deadlines --- */

static void test_idle(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    fake_pass_ms(&peer.connection, 40000);
    peer_head(&peer, 1, END_STREAM, "GET", NULL);
    peer_send(&peer);
    fake_pass_ms(&peer.connection, 59999);
    /* Frames that ask for nothing do not keep a connection open. */
    peer_put(&peer, NGHTTP2_PING, 0, 0, "12345678", 8);
    peer_send(&peer);
    assert_int_equal(peer.goaway, -1);
    fake_pass_ms(&peer.connection, 1);
    peer_take(&peer);
    assert_int_equal(peer.goaway, NGHTTP2_NO_ERROR);
    assert_true(peer.connection.is_finished);
    assert_int_equal(peer.connection.refused, 0);
    peer_close(&peer);
}

static void test_slow_heads(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, false);
    peer.in.length = 10; /* of the preface */
    peer_send(&peer);
    fake_pass_ms(&peer.connection, 4999);
    assert_false(peer.connection.is_finished);
    fake_pass_ms(&peer.connection, 1);
    assert_true(peer.connection.is_finished);
    assert_int_equal(peer.connection.refused, 1);
    peer_close(&peer);

    peer_open(&peer, true);
    peer_put(&peer, NGHTTP2_HEADERS, END_STREAM, 1, NULL, 0);
    peer_send(&peer);
    fake_pass_ms(&peer.connection, 4999);
    peer_put(&peer, NGHTTP2_CONTINUATION, 0, 1, NULL, 0);
    peer_send(&peer);
    assert_false(peer.connection.is_finished);
    fake_pass_ms(&peer.connection, 1);
    assert_true(peer.connection.is_finished);
    assert_int_equal(peer.connection.refused, 1);
    peer_close(&peer);
}

/* A wait that begins is kept exactly, whatever was waited for before. */
static void test_body_after_idling(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    fake_pass_ms(&peer.connection, 57000);
    peer_head(&peer, 1, 0, "POST", NULL);
    peer_send(&peer);
    fake_pass_ms(&peer.connection, 9999);
    peer_take(&peer);
    assert_int_equal(peer_answer(&peer, 1)->frames, 0);
    fake_pass_ms(&peer.connection, 1);
    peer_take(&peer);
    assert_true(peer_got(&peer, 1, ":status: 408\n"));
    peer_close(&peer);
}

static void test_slow_bodies(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    peer.connection.listen.head_ms = 1000; /* the step by which the second is found */
    peer_head(&peer, 1, 0, "POST", NULL);
    peer_send(&peer);
    fake_pass_ms(&peer.connection, 6000);
    peer_head(&peer, 3, 0, "POST", NULL);
    peer_data(&peer, 1, 0, 5);
    peer_send(&peer);
    fake_pass_ms(&peer.connection, 3999);
    peer_take(&peer);
    assert_int_equal(peer_answer(&peer, 1)->frames, 0);
    fake_pass_ms(&peer.connection, 1);
    peer_take(&peer);
    assert_true(peer_got(&peer, 1, ":status: 408\n"));
    assert_int_equal(peer_answer(&peer, 1)->reset, NGHTTP2_NO_ERROR);
    peer_head(&peer, 5, 0, "POST", NULL);
    peer_send(&peer);
    fake_pass_ms(&peer.connection, 5799);
    peer_take(&peer);
    assert_int_equal(peer_answer(&peer, 3)->frames, 0);
    fake_pass_ms(&peer.connection, 201);
    peer_take(&peer);
    assert_true(peer_got(&peer, 3, ":status: 408\n"));
    peer_data(&peer, 5, END_STREAM, 5);
    peer_send(&peer);
    assert_body(&peer, 5, "xxxxx");
    assert_int_equal(peer.connection.refused, 2);
    peer_close(&peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_large_answers),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_answer),
        cmocka_unit_test(test_trailers),
        cmocka_unit_test(test_late_answers),
        cmocka_unit_test(test_continue),
        cmocka_unit_test(test_request_trailers),
        cmocka_unit_test(test_early_refusals),
        cmocka_unit_test(test_client_resets),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_stop_idle),
        cmocka_unit_test(test_client_stops),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_slow_heads),
        cmocka_unit_test(test_slow_bodies),
        cmocka_unit_test(test_body_after_idling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
