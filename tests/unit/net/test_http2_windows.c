/* engine/net/http2*.c with clients that do not take their answers, or take them slowly. */
#include "http2_peer.h"
#include "unit/core/cmocka_all.h"

static void put_window_setting(struct peer *peer, unsigned char bytes)
{
    const unsigned char settings[6] = {0, 4, 0, 0, 0, bytes};
    peer_put(peer, NGHTTP2_SETTINGS, 0, 0, settings, sizeof(settings));
}

static void test_closed_window(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    peer.connection.listen.body_bytes_max = 1 << 20;
    put_window_setting(&peer, 0);
    peer_head(&peer, 1, 0, "POST", NULL);
    peer_data(&peer, 1, END_STREAM, 900);
    peer_send(&peer);
    assert_true(peer_got(&peer, 1, ":status: 200\n"));
    for (int i = 0; i < 9; i++) { /* a byte a second is no reason to wait */
        fake_pass_ms(&peer.connection, 1000);
        peer_put_u32(&peer, NGHTTP2_WINDOW_UPDATE, 1, 1);
        peer_send(&peer);
    }
    assert_int_equal(peer_answer(&peer, 1)->body.length, 9);
    fake_pass_ms(&peer.connection, 999);
    assert_false(peer.connection.is_aborted);
    fake_pass_ms(&peer.connection, 1);
    assert_true(peer.connection.is_aborted);
    assert_int_equal(peer.connection.refused, 1);
    peer_close(&peer);
    assert_int_equal(peer.connection.exchanges, 0);
}

/* Many answers and no window: requests wait unserved, and are served in the end. */
static void test_held_answers(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    peer.connection.listen.body_bytes_max = 1 << 20;
    put_window_setting(&peer, 0);
    for (uint32_t stream = 1; stream < 257; stream += 2) {
        peer_head(&peer, stream, 0, "POST", NULL);
        peer_data(&peer, stream, 0, 15000);
        peer_data(&peer, stream, END_STREAM, 15000);
        peer_send(&peer);
    }
    assert_int_equal(peer.connection.begun, 128);
    assert_int_equal(peer.connection.exchanges, 128 - 35); /* 35 of 30,000 bytes are more than 1 MiB */
    assert_in_range(peer.connection.held, 1 << 20, (1 << 20) + 30000);
    peer_put_u32(&peer, NGHTTP2_RST_STREAM, 255, NGHTTP2_CANCEL);
    peer_put_u32(&peer, NGHTTP2_WINDOW_UPDATE, 0, 1 << 30);
    for (uint32_t stream = 1; stream < 255; stream += 2)
        peer_put_u32(&peer, NGHTTP2_WINDOW_UPDATE, stream, 30000);
    peer_send(&peer);
    for (uint32_t stream = 1; stream < 255; stream += 2)
        assert_int_equal(peer_answer(&peer, stream)->body.length, 30000);
    assert_int_equal(peer.connection.exchanges, 0);
    put_window_setting(&peer, 255);
    peer_close_alive(&peer, 301);
}

static void test_slow_window(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    peer.connection.listen.body_bytes_max = 1 << 20;
    put_window_setting(&peer, 0);
    peer_head(&peer, 1, 0, "POST", NULL);
    for (int i = 0; i < 3; i++)
        peer_data(&peer, 1, i == 2, 16384);
    peer_send(&peer);
    for (int i = 0; i < 6; i++) {
        fake_pass_ms(&peer.connection, 9000);
        peer_put_u32(&peer, NGHTTP2_WINDOW_UPDATE, 1, 8192);
        peer_send(&peer);
    }
    assert_int_equal(peer_answer(&peer, 1)->body.length, 3 * 16384);
    assert_true(peer_answer(&peer, 1)->is_ended);
    fake_pass_ms(&peer.connection, 30000);
    put_window_setting(&peer, 255);
    peer_close_alive(&peer, 3);
}

/* Answers that come to their ends are progress, however short they are. */
static void test_short_answers(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    put_window_setting(&peer, 0);
    for (uint32_t stream = 1; stream < 13; stream += 2) {
        peer_head(&peer, stream, 0, "POST", NULL);
        peer_data(&peer, stream, END_STREAM, 100);
    }
    peer_send(&peer);
    for (uint32_t stream = 1; stream < 13; stream += 2) {
        fake_pass_ms(&peer.connection, 9000);
        peer_put_u32(&peer, NGHTTP2_WINDOW_UPDATE, stream, 100);
        peer_send(&peer);
        assert_true(peer_answer(&peer, stream)->is_ended);
    }
    put_window_setting(&peer, 255);
    peer_close_alive(&peer, 13);
}

/* Those who take much may open their windows often. */
static void test_many_updates(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    peer.connection.listen.body_bytes_max = 3 << 20;
    put_window_setting(&peer, 0);
    peer_put_u32(&peer, NGHTTP2_WINDOW_UPDATE, 0, 1 << 30);
    peer_head(&peer, 1, 0, "POST", NULL);
    for (int i = 0; i < 190; i++) {
        peer_data(&peer, 1, i == 189, 16384);
        peer_send(&peer);
    }
    for (int i = 0; i < 6080; i++) {
        peer_put_u32(&peer, NGHTTP2_WINDOW_UPDATE, 1, 512);
        peer_send(&peer);
    }
    assert_int_equal(peer_answer(&peer, 1)->body.length, 190 * 16384);
    put_window_setting(&peer, 255);
    peer_close_alive(&peer, 3);
}

/* An answer that waits for a window, to a request whose body has not come. */
static void test_refusal_in_closed_window(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    peer.connection.listen.body_ms = 3000;
    put_window_setting(&peer, 0);
    peer_head(&peer, 1, 0, "POST", NULL);
    peer_data(&peer, 1, 0, 2000);
    peer_head(&peer, 3, 0, "POST", NULL);
    peer_send(&peer);
    assert_true(peer_got(&peer, 1, ":status: 413\n"));
    fake_pass_ms(&peer.connection, 4000);
    peer_take(&peer);
    assert_true(peer_got(&peer, 3, ":status: 408\n"));
    peer_put_u32(&peer, NGHTTP2_WINDOW_UPDATE, 1, 100);
    peer_put_u32(&peer, NGHTTP2_WINDOW_UPDATE, 3, 100);
    put_window_setting(&peer, 255);
    peer_close_alive(&peer, 5);
}

/* Nothing is read while the client takes nothing, and what waits is bounded. */
static void test_deaf(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, true);
    peer.is_deaf = true;
    peer.connection.listen.body_bytes_max = 1 << 20;
    peer_put_u32(&peer, NGHTTP2_WINDOW_UPDATE, 0, 1 << 30);
    uint32_t stream = 1;
    for (; stream < 201 && !peer.connection.is_paused; stream += 2) {
        peer_head(&peer, stream, 0, "POST", NULL);
        peer_data(&peer, stream, END_STREAM, 16000);
        peer_send(&peer);
    }
    assert_true(peer.connection.is_paused);
    assert_in_range(peer.connection.out.length, CONNECTION_OUT_MAX, CONNECTION_OUT_MAX + 20000);
    size_t before = peer.connection.out.length;
    for (int i = 0; i < 20; i++) { /* what had been read already */
        for (int j = 0; j < 10; j++)
            peer_put(&peer, NGHTTP2_PING, 0, 0, "12345678", 8);
        peer_send(&peer);
    }
    assert_int_equal(peer.connection.out.length, before);
    peer.is_deaf = false;
    peer_take(&peer);
    assert_false(peer.connection.is_paused);
    assert_int_equal(peer.frames[NGHTTP2_PING], 200);
    for (uint32_t i = 1; i < stream; i += 2)
        assert_int_equal(peer_answer(&peer, i)->body.length, 16000);
    peer_close_alive(&peer, 301);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closed_window), cmocka_unit_test(test_held_answers),
        cmocka_unit_test(test_slow_window),   cmocka_unit_test(test_short_answers),
        cmocka_unit_test(test_many_updates),  cmocka_unit_test(test_refusal_in_closed_window),
        cmocka_unit_test(test_deaf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
