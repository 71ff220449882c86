/* A connection without a socket, and exchanges without rules: what engine/net/http2.c is tested against. Time
 * stands still unless a test moves it (os_monotonic_us is wrapped when the test is linked). */
#ifndef LEAT_TESTS_UNIT_NET_FAKE_CONNECTION_H
#define LEAT_TESTS_UNIT_NET_FAKE_CONNECTION_H

#include "net/connection.h"

enum fake_service { FAKE_ECHOES, FAKE_WAITS, FAKE_REFUSES /* in `begin`, by 401 */ };
enum { FAKE_SERVED_MAX = 4096 };

struct net_connection {
    struct net_listen listen;
    void *self; /* of http2_protocol */
    struct byte_buffer out;
    size_t unsent; /* bytes that the socket has not taken, beside `out` */
    bool is_paused, is_finished, is_aborted;
    uint32_t flushes, refused;
    int64_t deadline_us, held;
    int streams;

    enum fake_service service;
    const struct net_field *trailers; /* of echoes */
    uint32_t trailers_count;
    uint32_t exchanges, begun, orphaned; /* exchanges: that live; begun: that were not refused then */
    struct exchange *served[FAKE_SERVED_MAX];
    uint32_t served_count;
    int64_t content_length; /* of the last request that began; its authority, cut */
    char authority[16];
    int refusal; /* the last status that net_exchange_refuse answered */
};

extern int64_t fake_now_us;

void fake_open(struct net_connection *connection);
void fake_close(struct net_connection *connection);
/* Moves the time; calls `expired` where the deadline has passed. */
void fake_pass_ms(struct net_connection *connection, int64_t ms);
/* Answers an exchange that the service has waited with. */
void fake_answer(struct exchange *exchange, int status, struct str body);

#endif
