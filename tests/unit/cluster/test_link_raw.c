/* A worker that knows the secret and breaks the rules: this test is worker 0, byte by byte over its own socket. What it sends is
 * refused by its right name and counted, the connection ends, and the link goes on by the next one. */
#include "link_rig.h"

#include "cluster/message.h"
#include "core/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WINDOW = 400000 };

static struct rig_worker b;

/* A connection on which both have proven themselves. */
static int fd;
static uint64_t session;

static void put(const void *bytes, size_t length)
{
    assert_int_equal(send(fd, bytes, length, MSG_NOSIGNAL), length);
}

static void say(struct message_head head, const void *body, size_t bytes)
{
    message_seal(&head, body, bytes);
    put(&head, sizeof(head));
    if (bytes != 0)
        put(body, bytes);
}

/* Reads the next message; false: the connection has ended. */
static bool hear(struct message_head *head, void *body, size_t room)
{
    size_t bytes;
    if (recv(fd, head, sizeof(*head), MSG_WAITALL) != sizeof(*head))
        return false;
    assert_int_equal(message_measure(head, &bytes), REFUSED_NOT);
    assert_true(bytes <= room);
    return bytes == 0 || recv(fd, body, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

/* Dials and proves itself; receive_bytes: of the socket's buffer, 0: the usual ones. */
static void connect_to_b(int receive_bytes)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(links_port(b.links)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct str secret = rig_options(1).secret;
    struct proof_case proven = {.incarnation = 1, .dialer = 0, .listener = 1};
    struct message_head head = {.kind = MESSAGE_HELLO, .incarnation = 1};
    struct message_hello hello = {.to = 1}, challenge;
    struct message_proof proof = {.sequence = 0};
    struct message_status status;
    int one = 1;
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (receive_bytes != 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    proof_nonce(proven.dialer_nonce);
    memcpy(hello.nonce, proven.dialer_nonce, PROOF_NONCE);
    say(head, &hello, sizeof(hello));
    assert_true(hear(&head, &challenge, sizeof(challenge)));
    assert_int_equal(head.kind, MESSAGE_CHALLENGE);
    memcpy(proven.listener_nonce, challenge.nonce, PROOF_NONCE);
    assert_true(proof_is_right(secret, PROOF_LISTENER, &proven, challenge.proof));
    proof_make(secret, PROOF_DIALER, &proven, proof.proof);
    session = proof_session(secret, &proven);
    head = (struct message_head){.kind = MESSAGE_PROOF, .incarnation = 1, .session = session};
    say(head, &proof, sizeof(proof));
    assert_true(hear(&head, &status, sizeof(status)));
    assert_int_equal(head.kind, MESSAGE_READY);
}

/* A piece of a frame of that length, whose content is made from its sequence. */
static void say_piece(struct message_head head)
{
    struct link_frame *frame = link_frame_new(head.length);
    rig_fill(frame, head.sequence - 1);
    say(head, frame->bytes + head.offset, MIN((uint32_t)MESSAGE_BODY_MAX, head.length - head.offset));
    link_frame_free(frame);
}

static struct message_head piece(uint64_t sequence, uint32_t length, uint32_t offset)
{
    return (struct message_head){.kind = MESSAGE_FRAME,
                                 .incarnation = 1,
                                 .session = session,
                                 .sequence = sequence,
                                 .length = length,
                                 .offset = offset};
}

static struct message_head plain(enum message_kind kind, uint64_t sequence)
{
    return (struct message_head){
        .kind = (uint8_t)kind, .incarnation = 1, .session = session, .sequence = sequence};
}

static void say_status(uint64_t sequence, uint64_t granted)
{
    struct message_status status = {sequence, granted};
    say(plain(MESSAGE_STATUS, 0), &status, sizeof(status));
}

/* Reads until the refusal and the end that follows it. */
static void expect_refusal(enum message_refusal refusal)
{
    struct message_head head;
    struct message_status status;
    do
        if (!hear(&head, &status, sizeof(status)))
            fail_msg("it ended without a reason");
    while (head.kind != MESSAGE_REFUSED);
    assert_int_equal(head.sequence, refusal);
    assert_false(hear(&head, &status, sizeof(status)));
    close(fd);
}

static void begin(int64_t delay_us)
{
    struct links_options options = rig_options(1);
    options.window_bytes = WINDOW;
    options.delay_us = delay_us;
    rig_start(&b, 1, &options);
    rig_link_to(&b, 0, "127.0.0.1:9");
}

/* --- What is refused --- */

enum fault {
    DAMAGED_DIGEST,
    DAMAGED_LENGTH,
    OTHER_VERSION,
    OLDER,
    NEWER,
    OTHER_SESSION,
    OTHER_WORKER,
    GREETING,
    SKIPPED_FRAME,
    SKIPPED_PIECE,
    OTHER_LENGTH,
    OVER_CREDIT,
    ACKNOWLEDGED_UNSENT,
    GRANT_TOO_LARGE,
    GRANT_FELL,
    FAULTS
};

static const enum message_refusal names[FAULTS] = {
    [DAMAGED_DIGEST] = REFUSED_DAMAGED,
    [DAMAGED_LENGTH] = REFUSED_DAMAGED,
    [OTHER_VERSION] = REFUSED_VERSION,
    [OLDER] = REFUSED_OLDER,
    [NEWER] = REFUSED_NEWER,
    [OTHER_SESSION] = REFUSED_STRANGER,
    [OTHER_WORKER] = REFUSED_STRANGER,
    [GREETING] = REFUSED_ORDER,
    [SKIPPED_FRAME] = REFUSED_ORDER,
    [SKIPPED_PIECE] = REFUSED_ORDER,
    [OTHER_LENGTH] = REFUSED_ORDER,
    [OVER_CREDIT] = REFUSED_OVER_CREDIT,
    [ACKNOWLEDGED_UNSENT] = REFUSED_ORDER,
    [GRANT_TOO_LARGE] = REFUSED_ORDER,
    [GRANT_FELL] = REFUSED_ORDER,
};

/* One head that is wrong, and all that is behind it. */
static void say_wrong_head(enum fault fault)
{
    static const struct message_hello hello;
    struct message_head head = piece(1, 10, 0);
    message_seal(&head, "0123456789", 10);
    switch (fault) {
    case DAMAGED_DIGEST: head.digest ^= 1; break;
    case DAMAGED_LENGTH: head.length = LINK_FRAME_MAX + 1; break;
    case OTHER_VERSION: head.version++; break;
    case OLDER: head.incarnation = 0; break;
    case NEWER: head.incarnation = 2; break;
    case OTHER_SESSION: head.session++; break;
    case OTHER_WORKER: head.from = 2; break;
    case GREETING: say(plain(MESSAGE_HELLO, 0), &hello, sizeof(hello)); return;
    case SKIPPED_FRAME: head.sequence = 2; break;
    default: fail();
    }
    if (fault >= OLDER)
        message_seal(&head, "0123456789", 10);
    put(&head, sizeof(head));
    put("0123456789", 10);
}

static void say_wrong(enum fault fault)
{
    switch (fault) {
    case SKIPPED_PIECE: say_piece(piece(1, 200000, MESSAGE_BODY_MAX)); break;
    case OTHER_LENGTH:
        say_piece(piece(1, 200000, 0));
        say_piece(piece(1, 200001, MESSAGE_BODY_MAX));
        break;
    case OVER_CREDIT: say_piece(piece(1, WINDOW + 1, 0)); break;
    case ACKNOWLEDGED_UNSENT: /* a frame that b keeps for a minute */
        say_status(0, 100);
        rig_send(&b, 0, 0, 100);
        say_status(1, 100);
        break;
    case GRANT_TOO_LARGE: say_status(0, UINT64_C(1) << 41); break;
    case GRANT_FELL:
        say_status(0, 100);
        say_status(0, 99);
        break;
    default: say_wrong_head(fault);
    }
}

static uint64_t counted(enum message_refusal refusal)
{
    struct links_figures figures = links_figures(b.links);
    switch (refusal) {
    case REFUSED_DAMAGED: return figures.damaged;
    case REFUSED_VERSION: return figures.other_version;
    case REFUSED_OLDER: return figures.older_incarnation;
    case REFUSED_NEWER: return figures.newer_incarnation;
    case REFUSED_STRANGER: return figures.strangers;
    case REFUSED_ORDER: return figures.out_of_order;
    case REFUSED_OVER_CREDIT: return figures.over_credit;
    default: return 0;
    }
}

static void test_each_fault(void **state)
{
    (void)state;
    for (int fault = 0; fault < FAULTS; fault++) {
        begin(fault == ACKNOWLEDGED_UNSENT ? US_PER_MINUTE : 0);
        connect_to_b(0);
        rig_wait(&b, &b.ups[0], 1);
        print_message("fault %d\n", fault);
        say_wrong((enum fault)fault);
        expect_refusal(names[fault]);
        rig_wait(&b, &b.gones[0], 1);
        assert_non_null(strstr(b.reason, message_refusal_text(names[fault])));
        assert_int_equal(counted(names[fault]), 1);
        assert_int_equal(rig_count(&b, &b.frames), 0);
        connect_to_b(0); /* the link goes on, and begins the frame anew */
        say_piece(piece(1, 200000, 0));
        say_piece(piece(1, 200000, MESSAGE_BODY_MAX));
        rig_wait(&b, &b.frames, 1);
        close(fd);
        rig_stop(&b);
    }
}

/* --- What is taken --- */

/* A byte at a time, then all at once; the same frames once more are dropped. */
static void test_ways_of_the_bytes(void **state)
{
    (void)state;
    enum { MESSAGES = 40 };
    struct message_head head;
    struct link_frame *frame = link_frame_new(300);
    size_t size = sizeof(head) + frame->length;
    uint8_t *bytes = mem_alloc(MESSAGES * size);
    begin(0);
    connect_to_b(0);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        rig_fill(frame, i);
        head = piece(i + 1, frame->length, 0);
        message_seal(&head, frame->bytes, frame->length);
        memcpy(bytes + i * size, &head, sizeof(head));
        memcpy(bytes + i * size + sizeof(head), frame->bytes, frame->length);
    }
    for (size_t i = 0; i < 2 * size; i++)
        put(bytes + i, 1);
    put(bytes + 2 * size, (MESSAGES - 2) * size);
    rig_wait(&b, &b.frames, MESSAGES);
    put(bytes, MESSAGES * size);
    say_piece(piece(MESSAGES + 1, 5, 0));
    rig_wait(&b, &b.frames, MESSAGES + 1);
    assert_int_equal(rig_figures(&b, 0).doubled_frames, MESSAGES);
    assert_int_equal(rig_count(&b, &b.gones[0]), 0);
    close(fd);
    rig_stop(&b);
    free(bytes);
    link_frame_free(frame);
}

/* The connection ends within a message, at each place of a head and at some of a body: nothing of it stays. */
static void test_half_a_message(void **state)
{
    (void)state;
    begin(0);
    uint8_t bytes[sizeof(struct message_head) + 200];
    struct link_frame *frame = link_frame_new(200);
    rig_fill(frame, 0);
    for (size_t length = 0; length < sizeof(bytes);
         length += length < sizeof(struct message_head) + 2 ? 1 : 67) {
        uint64_t gones = rig_count(&b, &b.gones[0]);
        connect_to_b(0);
        struct message_head head = piece(1, frame->length, 0);
        message_seal(&head, frame->bytes, frame->length);
        memcpy(bytes, &head, sizeof(head));
        memcpy(bytes + sizeof(head), frame->bytes, frame->length);
        put(bytes, length);
        close(fd);
        rig_wait(&b, &b.gones[0], gones + 1);
    }
    assert_int_equal(rig_count(&b, &b.frames), 0);
    connect_to_b(0);
    say_piece(piece(1, 200, 0));
    rig_wait(&b, &b.frames, 1);
    close(fd);
    rig_stop(&b);
    link_frame_free(frame);
}

/* It asks without end, and reads no answer: what waits for it is bounded, and then the connection ends. */
static void test_asks_and_does_not_read(void **state)
{
    (void)state;
    begin(0);
    connect_to_b(4096);
    struct message_head head = plain(MESSAGE_PING, 7);
    message_seal(&head, NULL, 0);
    while (send(fd, &head, sizeof(head), MSG_NOSIGNAL) == sizeof(head)) {
    }
    assert_true(errno == EPIPE || errno == ECONNRESET);
    rig_wait(&b, &b.gones[0], 1);
    assert_non_null(strstr(b.reason, "does not read the answers"));
    close(fd);
    rig_stop(&b);
}

/* It sends, and does not read for a long time what it is sent and told: the link goes on, and is told the newest state. */
static void test_sends_and_does_not_read(void **state)
{
    (void)state;
    enum { FRAMES = 2000 };
    static uint8_t body[MESSAGE_BODY_MAX];
    struct message_head head;
    struct message_status status = {0};
    begin(0);
    connect_to_b(4096);
    say_status(0, UINT64_C(1) << 30);
    for (uint64_t i = 0; i < 20; i++) /* more than the sockets take */
        rig_send(&b, 0, i, 1000000);
    for (uint64_t i = 1; i <= FRAMES; i++) { /* each in a turn of its own */
        say_piece(piece(i, 8, 0));
        while (rig_count(&b, &b.frames) < i)
            sched_yield();
    }
    assert_int_equal(rig_count(&b, &b.gones[0]), 0);
    while (status.sequence < FRAMES) {
        assert_true(hear(&head, body, sizeof(body)));
        if (head.kind == MESSAGE_STATUS)
            memcpy(&status, body, sizeof(status));
    }
    close(fd);
    rig_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_fault),
        cmocka_unit_test(test_ways_of_the_bytes),
        cmocka_unit_test(test_half_a_message),
        cmocka_unit_test(test_asks_and_does_not_read),
        cmocka_unit_test(test_sends_and_does_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
