/* What links refuse: strangers, other incarnations, wrong addresses, bytes that are no message; by whom, how often, and what is
 * said about it. The others go on. */
#include "link_rig.h"

#include "../support/random.h"
#include "cluster/message.h"
#include "core/mem.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ACCEPT_REST_US = 100000 }; /* after which a caller is looked for again: that of link_internal.h */

static struct rig_worker a, b;

/* a, worker 0, dials b, worker 1, and is told why not. */
static void expect_gone(const char *const *words)
{
    rig_wait(&a, &a.gones[1], 1);
    for (size_t i = 0; words[i] != NULL; i++)
        if (strstr(a.reason, words[i]) == NULL)
            fail_msg("\"%s\" says nothing of \"%s\"", a.reason, words[i]);
    assert_int_equal(rig_count(&a, &a.ups[1]) + rig_count(&b, &b.ups[0]) + rig_count(&b, &b.frames), 0);
}

static void start_both(const struct links_options *of_a, const struct links_options *of_b)
{
    rig_start(&a, 0, of_a);
    rig_start(&b, 1, of_b);
    rig_link_to(&b, 0, a.address);
    rig_link_to(&a, 1, b.address);
}

static void stop_both(void)
{
    rig_stop(&a);
    rig_stop(&b);
}

static void test_other_secret(void **state)
{
    (void)state;
    struct links_options other = rig_options(0);
    other.secret = STR("the secret of another cluster");
    start_both(&other, NULL);
    expect_gone(
        (const char *const[]){"worker 1", b.address, "secret of this incarnation", "same cluster", NULL});
    assert_int_equal(links_figures(a.links).strangers, 1);
    stop_both();
}

/* Older incarnations are refused at once, newer ones until the listener is there, too. */
static void test_incarnations(void **state)
{
    (void)state;
    struct links_options older = rig_options(0), newer = rig_options(0);
    struct links_options listener = rig_options(1);
    listener.incarnation = 5;
    older.incarnation = 4;
    start_both(&older, &listener);
    expect_gone((const char *const[]){"an older incarnation", "take over the newer", NULL});
    assert_int_equal(links_figures(b.links).older_incarnation, 1);
    stop_both();
    newer.incarnation = 6;
    start_both(&newer, &listener); /* the listener may be about to take it over: it is asked again */
    for (int64_t since = 0; links_figures(b.links).newer_incarnation < 2;)
        wait_more(&since);
    assert_int_equal(rig_count(&a, &a.gones[1]), 0);
    links_restart(b.links, 1, 6, newer.secret, 64 << 20);
    rig_join(&a, &b);
    stop_both();
}

/* Links of no incarnation refuse all, until they are told one. */
static void test_no_incarnation(void **state)
{
    (void)state;
    struct links_options dialer = rig_options(0), none = rig_options(1);
    none.incarnation = 0;
    none.secret.length = 0;
    rig_start(&a, 0, &dialer);
    rig_start(&b, 0, &none);
    rig_link_to(&a, 1, b.address);
    for (int64_t since = 0; links_figures(b.links).newer_incarnation < 2;)
        wait_more(&since);
    links_restart(b.links, 1, dialer.incarnation, dialer.secret, 64 << 20);
    b.self = 1;
    rig_join(&a, &b);
    stop_both();
}

static void test_wrong_worker(void **state)
{
    (void)state;
    struct links_options other = rig_options(2);
    start_both(NULL, &other); /* at the address of worker 1 is worker 2 */
    expect_gone((const char *const[]){"not that worker's", b.address, NULL});
    assert_int_equal(links_figures(b.links).other_worker, 1);
    stop_both();
}

/* The listener does not want the link yet: it is asked again. */
static void test_unknown_worker(void **state)
{
    (void)state;
    rig_start(&a, 0, NULL);
    rig_start(&b, 1, NULL);
    rig_link_to(&a, 1, b.address);
    for (int64_t since = 0; links_figures(b.links).unknown_worker < 2;)
        wait_more(&since);
    assert_int_equal(rig_count(&a, &a.gones[1]), 0);
    rig_join(&a, &b);
    rig_send(&a, 1, 0, 10);
    rig_wait(&b, &b.frames, 1);
    stop_both();
}

static uint16_t open_port(int *fd, bool must_listen)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(*fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(must_listen ? listen(*fd, 8) : 0, 0);
    assert_int_equal(getsockname(*fd, (struct sockaddr *)&address, &size), 0);
    return ntohs(address.sin_port);
}

/* Nobody listens; somebody does who never answers; a listener waits for nobody. */
static void test_nobody_there(void **state)
{
    (void)state;
    for (int listens = 0; listens < 2; listens++) {
        struct links_options options = rig_options(0);
        options.patience_us = 300000;
        int fd;
        char address[64];
        snprintf(address, sizeof(address), "127.0.0.1:%u", open_port(&fd, listens == 1));
        rig_start(&a, 0, &options);
        rig_link_to(&a, 1, address);
        rig_wait(&a, &a.gones[1], 1);
        assert_non_null(strstr(a.reason, address));
        assert_non_null(strstr(a.reason, "is that worker running"));
        print_message("%s\n", a.reason);
        close(fd);
        rig_link_to(&a, 1, address); /* tries again, and says so again */
        rig_wait(&a, &a.gones[1], 2);
        rig_stop(&a);
    }
    struct links_options options = rig_options(1);
    options.patience_us = 100000;
    rig_start(&b, 1, &options);
    rig_link_to(&b, 0, "127.0.0.1:9");
    rig_wait(&b, &b.gones[0], 1);
    assert_non_null(strstr(b.reason, "worker 0 (127.0.0.1:9) did not call in time"));
    rig_stop(&b);
}

/* --- Options and addresses --- */

/* Whether the links do not start, with one error that has all the words. */
static void expect_error(const struct links_options *options, const char *to, const char *const *words)
{
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    if (to != NULL)
        assert_false(link_to(a.links, 1, to, &diags));
    else
        assert_null(links_new(options, &diags));
    assert_int_equal(diags.errors, 1);
    assert_int_equal(diags.items[0].code, DIAG_LINK_FAILED);
    assert_non_null(diags.items[0].hint);
    for (size_t i = 0; words[i] != NULL; i++) {
        const char *cause = diags.items[0].cause != NULL ? diags.items[0].cause : "";
        if (strstr(diags.items[0].message, words[i]) == NULL &&
            strstr(diags.items[0].hint, words[i]) == NULL && strstr(cause, words[i]) == NULL)
            fail_msg("\"%s\" (%s; %s) says nothing of \"%s\"", diags.items[0].message, cause,
                     diags.items[0].hint, words[i]);
    }
    arena_free(&arena);
}

static void test_addresses(void **state)
{
    (void)state;
    char *longest = mem_alloc(100001);
    memset(longest, 'h', 100000);
    longest[100000] = '\0';
    rig_start(&a, 0, NULL);
    const char *const bad[] = {"",
                               "host",
                               ":80",
                               "127.0.0.1:",
                               "127.0.0.1:0",
                               "h:70000",
                               "h:-1",
                               "h:80x",
                               "[::1]:80",
                               "h:8:9",
                               "0.0.0.0:9",
                               "127.0.0.1:9 ",
                               "no.such.invalid:80",
                               "256.0.0.1:9:",
                               longest};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        expect_error(NULL, bad[i], (const char *const[]){"HOST:PORT", NULL});
    struct link_figures figures;
    assert_false(link_figures(a.links, 1, &figures));
    rig_link_to(&a, 1, "localhost:9");
    rig_stop(&a);
    free(longest);
}

static void test_options(void **state)
{
    (void)state;
    struct links_options options = rig_options(0);
    options.listen = "192.0.2.1:0"; /* no address of this machine */
    expect_error(&options, NULL,
                 (const char *const[]){"listen on 192.0.2.1:0", "address of this machine", NULL});
    int fd;
    char taken[64];
    snprintf(taken, sizeof(taken), "127.0.0.1:%u", open_port(&fd, true));
    options.listen = taken;
    expect_error(&options, NULL, (const char *const[]){taken, "nobody uses", NULL});
    close(fd);
    options = rig_options(LINK_WORKER_MAX + 1);
    expect_error(&options, NULL, (const char *const[]){"own number", NULL});
    options = rig_options(0);
    options.secret.length = LINK_SECRET_MIN - 1;
    expect_error(&options, NULL, (const char *const[]){"secret", "16 to 256", NULL});
    options = rig_options(0);
    options.window_bytes = 0;
    expect_error(&options, NULL, (const char *const[]){"budget", NULL});
    options = rig_options(0);
    options.delay_us = -1;
    expect_error(&options, NULL, (const char *const[]){"time", NULL});
}

/* --- Strangers --- */

static int call_port_by(int fd, uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static int call_port(uint16_t port)
{
    return call_port_by(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port);
}

static void say(int fd, struct message_head head, const void *body, size_t bytes)
{
    message_seal(&head, body, bytes);
    assert_int_equal(send(fd, &head, sizeof(head), MSG_NOSIGNAL), sizeof(head));
    assert_int_equal(send(fd, body, bytes, MSG_NOSIGNAL), bytes);
}

/* Reads the refusal, and that nothing follows it. */
static void expect_refusal(int fd, enum message_refusal refusal)
{
    struct message_head head;
    assert_int_equal(recv(fd, &head, sizeof(head), MSG_WAITALL), sizeof(head));
    assert_int_equal(head.kind, MESSAGE_REFUSED);
    assert_int_equal(head.sequence, refusal);
    shutdown(fd, SHUT_WR);
    assert_true(recv(fd, &head, 1, 0) <= 0);
    close(fd);
}

static void test_strangers(void **state)
{
    (void)state;
    static char body[1000];
    rig_start(&a, 0, NULL);
    rig_start(&b, 2, NULL);
    rig_join(&a, &b);
    rig_link_to(&b, 1, "127.0.0.1:9"); /* b waits for worker 1 */
    uint16_t port = links_port(b.links);
    const struct message_head frame = {
        .kind = MESSAGE_FRAME, .from = 1, .incarnation = 1, .sequence = 1, .length = 1000};
    const struct message_head hello_head = {.kind = MESSAGE_HELLO, .from = 1, .incarnation = 1};
    const struct message_head proof_head = {.kind = MESSAGE_PROOF, .from = 1, .incarnation = 1, .session = 7};
    const struct message_hello hello = {.to = 2};
    int fd = call_port(port); /* a frame without a greeting */
    say(fd, frame, body, sizeof(body));
    expect_refusal(fd, REFUSED_STRANGER);
    fd = call_port(port); /* a proof that is none */
    say(fd, hello_head, &hello, sizeof(hello));
    struct message_head challenge;
    struct message_hello nonce;
    assert_int_equal(recv(fd, &challenge, sizeof(challenge), MSG_WAITALL), sizeof(challenge));
    assert_int_equal(challenge.kind, MESSAGE_CHALLENGE);
    assert_int_equal(recv(fd, &nonce, sizeof(nonce), MSG_WAITALL), sizeof(nonce));
    say(fd, proof_head, body, sizeof(struct message_proof));
    expect_refusal(fd, REFUSED_STRANGER);
    assert_int_equal(links_figures(b.links).strangers, 2);
    fd = call_port(port); /* longer than any greeting */
    struct message_head longer = hello_head;
    longer.length = UINT32_MAX;
    longer.magic = MESSAGE_MAGIC;
    longer.version = MESSAGE_VERSION;
    assert_int_equal(send(fd, &longer, sizeof(longer), MSG_NOSIGNAL), sizeof(longer));
    expect_refusal(fd, REFUSED_DAMAGED);
    fd = call_port(port); /* another protocol */
    static const char http[] =
        "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: somebody/1.0\r\nAccept: */*\r\n\r\n";
    assert_int_equal(send(fd, http, sizeof(http) - 1, MSG_NOSIGNAL), sizeof(http) - 1);
    expect_refusal(fd, REFUSED_DAMAGED);
    assert_int_equal(rig_count(&b, &b.ups[1]), 0);
    rig_send(&a, 2, 0, 1000); /* the others go on */
    rig_wait(&b, &b.frames, 1);
    assert_int_equal(rig_count(&b, &b.gones[0]), 0);
    stop_both();
}

/* Connections that say nothing: a bounded number is kept, for a bounded time. */
static void test_silent_strangers(void **state)
{
    (void)state;
    int fds[100];
    rig_start(&a, 0, NULL);
    rig_start(&b, 1, NULL);
    rig_join(&a, &b);
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++)
        fds[i] = call_port(links_port(b.links));
    for (int64_t since = 0; links_figures(b.links).rejected < 36;)
        wait_more(&since);
    assert_int_equal(links_figures(b.links).connections, 1 + 64);
    rig_send(&a, 1, 0, 1000);
    rig_wait(&b, &b.frames, 1);
    for (int64_t since = 0; links_figures(b.links).connections != 1;) /* 5 s later */
        wait_more(&since);
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++)
        close(fds[i]);
    assert_int_equal(rig_count(&b, &b.gones[0]), 0);
    stop_both();
}

/* No descriptor is left for a caller: the thread sleeps all the same, links go on, and callers are taken later. */
static void test_no_descriptors(void **state)
{
    (void)state;
    int spare[64], count = 0, caller = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct rlimit usual, low;
    rig_start(&a, 0, NULL);
    rig_start(&b, 1, NULL);
    rig_join(&a, &b);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    low = usual;
    low.rlim_cur = ARRAY_COUNT(spare);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    while (count < (int)ARRAY_COUNT(spare) && (spare[count] = dup(caller)) >= 0)
        count++;
    call_port_by(caller, links_port(b.links));
    for (int64_t since = 0; links_figures(b.links).rejected == 0;)
        wait_more(&since);
    int64_t began_us = os_monotonic_us();
    struct links_figures before = links_figures(b.links);
    usleep(500000); /* time itself is tested */
    struct links_figures after = links_figures(b.links);
    uint64_t rests = 1 + (uint64_t)(os_monotonic_us() - began_us) / ACCEPT_REST_US;
    assert_true(after.rejected - before.rejected <= 2 * rests);
    assert_true(after.wakes - before.wakes <= 4 * rests);
    rig_send(&a, 1, 0, 1000);
    rig_wait(&b, &b.frames, 1);
    assert_int_equal(links_figures(b.links).connections, 1);
    while (count > 0)
        close(spare[--count]);
    for (int64_t since = 0; links_figures(b.links).connections != 2;)
        wait_more(&since);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
    close(caller);
    stop_both();
}

/* Random bytes, zeros and ones at the port, beside a link that goes on. */
static void test_random_bytes(void **state)
{
    (void)state;
    struct test_random random = {11};
    uint8_t bytes[4096];
    rig_start(&a, 0, NULL);
    rig_start(&b, 1, NULL);
    rig_join(&a, &b);
    for (uint32_t round = 0; round < 80; round++) {
        int fd = call_port(links_port(b.links));
        for (size_t i = 0; i < sizeof(bytes); i++)
            bytes[i] = round % 4 == 0 ? 0 : round % 4 == 1 ? 0xff : (uint8_t)random_next(&random);
        (void)send(fd, bytes, 64 + round * 101 % (sizeof(bytes) - 64), MSG_NOSIGNAL);
        rig_send(&a, 1, round, 1000);
        rig_wait(&b, &b.frames, round + 1);
        expect_refusal(fd, REFUSED_DAMAGED);
    }
    assert_int_equal(links_figures(b.links).damaged, 80);
    assert_int_equal(rig_count(&b, &b.gones[0]), 0);
    stop_both();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_secret),   cmocka_unit_test(test_incarnations),
        cmocka_unit_test(test_no_incarnation), cmocka_unit_test(test_wrong_worker),
        cmocka_unit_test(test_unknown_worker), cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_addresses),      cmocka_unit_test(test_options),
        cmocka_unit_test(test_strangers),      cmocka_unit_test(test_silent_strangers),
        cmocka_unit_test(test_no_descriptors), cmocka_unit_test(test_random_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
