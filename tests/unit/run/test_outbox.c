/* Messages for which a link has no room: whatever it refuses, and when, they come in their order, each once; what waits stays within a
 * share of the memory, and nobody who sends waits. */
#include "workers.h"

#include "core/mem.h"
#include "run/base/outbox.h"
#include "run/base/peers.h"
#include "unit/support/patience.h"
#include "unit/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { WORKERS = 3, SELF = 0, TO = 1, ROOM = 1000, SHARE = 4 * (WORKERS - 1), MESSAGES = 5000, SENDERS = 3 };
enum { LENGTH_MAX = 40 * (int)sizeof(uint64_t) };

static const char job[] = "source a = sequence { count: 10, event_time: ts }\nsink a = null from a\n";

/* The link to TO: it has room for so many messages, and carries what carry() takes from it. */
static struct {
    pthread_mutex_t mutex; /* guards all below */
    uint32_t room, there;
    uint64_t carried[SENDERS], refused; /* carried: by sender, in their order */
    bool has_refused;                   /* since it was told that there is room */
    struct run *opens; /* has room, and says so to this run, as soon as it has refused; NULL: it does not */
    bool is_slow;      /* at times */
} the_link;

static struct str message_of(uint64_t sender, uint64_t n, uint64_t *words)
{
    struct test_random random = {sender + SENDERS * n};
    size_t count = 2 + random_below(&random, LENGTH_MAX / sizeof(uint64_t) - 2);
    words[0] = sender;
    words[1] = n;
    for (size_t i = 2; i < count; i++)
        words[i] = random_below(&random, UINT32_MAX);
    return (struct str){(const char *)words, count * sizeof(uint64_t)};
}

/* Implements run_peers.send. */
static bool send_message(void *engine, uint32_t to, struct str message)
{
    uint64_t head[2], words[LENGTH_MAX / sizeof(uint64_t)];
    (void)engine;
    assert_int_equal(to, TO);
    if (the_link.is_slow && message.length % 128 == 0)
        usleep(100); /* others send meanwhile */
    pthread_mutex_lock(&the_link.mutex);
    bool has_room = the_link.there < the_link.room;
    if (has_room) {
        memcpy(head, message.data, sizeof(head));
        struct str is = message_of(head[0], head[1], words);
        assert_int_equal(message.length, is.length);
        assert_memory_equal(message.data, is.data, is.length);
        assert_int_equal(head[1], the_link.carried[head[0]]++);
        the_link.there++;
    } else {
        the_link.refused++;
        the_link.has_refused = true;
    }
    struct run *opens = has_room ? NULL : the_link.opens;
    the_link.room += opens != NULL;
    the_link.opens = NULL;
    pthread_mutex_unlock(&the_link.mutex);
    if (opens != NULL)
        run_has_room(opens, TO);
    return has_room;
}

/* The other side takes what is there. Returns whether the run must hear of the room. */
static bool carry(uint32_t room)
{
    pthread_mutex_lock(&the_link.mutex);
    the_link.there = 0;
    the_link.room = room;
    bool must_tell = the_link.has_refused && room > 0;
    the_link.has_refused = the_link.has_refused && !must_tell;
    pthread_mutex_unlock(&the_link.mutex);
    return must_tell;
}

static void begin(struct run *run)
{
    static struct run_peers peers;
    peers = *run->options.peers;
    pthread_mutex_init(&the_link.mutex, NULL);
    the_link.there = the_link.room = 0;
    the_link.refused = 0;
    the_link.has_refused = false;
    memset(the_link.carried, 0, sizeof(the_link.carried));
    peers.send = send_message;
    peers.flush = NULL;
    run->options.peers = &peers;
    run->waiting_budget = SHARE * ROOM;
}

static void post(const struct run *run, uint64_t sender, uint64_t n)
{
    uint64_t words[LENGTH_MAX / sizeof(uint64_t)];
    outbox_post(run, TO, message_of(sender, n, words));
}

static void post_and_carry(struct run *run)
{
    struct test_random random = {5};
    uint64_t posted = 0;
    begin(run);
    while (the_link.carried[0] < MESSAGES) {
        for (uint32_t i = (uint32_t)random_below(&random, 30); i > 0 && posted < MESSAGES; i--)
            post(run, 0, posted++);
        assert_true(run->waiting_bytes <= ROOM + LENGTH_MAX);
        if (carry((uint32_t)random_below(&random, 60)))
            run_has_room(run, TO);
    }
    assert_int_equal(posted, MESSAGES);
    assert_int_equal(run->waiting_bytes, 0);
    assert_true(the_link.refused > 50);
    assert_true(run->spilled_bytes > MESSAGES * sizeof(uint64_t));
    (void)carry(0);
    for (uint64_t n = 0; n < 20; n++)
        post(run, 0, MESSAGES + n); /* freed with the run */
    assert_true(run->waiting_bytes > 0);
}

static void test_order(void **state)
{
    (void)state;
    workers_look(job, WORKERS, SELF, &(struct way){0}, post_and_carry);
}

/* The room comes, and is told, between a refusal and the message's place in the queue. */
static void post_and_open(struct run *run)
{
    begin(run);
    the_link.opens = run;
    post(run, 0, 0);
    assert_int_equal(the_link.refused, 1);
    assert_int_equal(the_link.carried[0], 1);
}

static void test_opens(void **state)
{
    (void)state;
    workers_look(job, WORKERS, SELF, &(struct way){0}, post_and_open);
}

struct sender {
    const struct run *run;
    uint64_t number;
};

static void *send_all(void *argument)
{
    const struct sender *sender = argument;
    for (uint64_t n = 0; n < MESSAGES; n++) {
        post(sender->run, sender->number, n);
        if (n % 8 == 0)
            usleep(100); /* all that waits is sent meanwhile, now and then */
    }
    return NULL;
}

static bool all_came(void)
{
    bool all = true;
    pthread_mutex_lock(&the_link.mutex);
    for (uint32_t i = 0; i < SENDERS; i++)
        all &= the_link.carried[i] == MESSAGES;
    pthread_mutex_unlock(&the_link.mutex);
    return all;
}

/* What a sender posts while its last message is on the way from the queue to the link comes behind that. */
static void post_at_once(struct run *run)
{
    struct sender senders[SENDERS];
    pthread_t threads[SENDERS];
    struct test_random random = {6};
    begin(run);
    the_link.is_slow = true;
    for (uint32_t i = 0; i < SENDERS; i++) {
        senders[i] = (struct sender){run, i};
        assert_int_equal(pthread_create(&threads[i], NULL, send_all, &senders[i]), 0);
    }
    for (int64_t since = 0; !all_came();)
        if (carry((uint32_t)random_below(&random, 200)))
            run_has_room(run, TO);
        else
            wait_more(&since);
    for (uint32_t i = 0; i < SENDERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(run->waiting_bytes, 0);
    assert_true(the_link.refused > 0);
}

static void test_at_once(void **state)
{
    (void)state;
    workers_look(job, WORKERS, SELF, &(struct way){0}, post_at_once);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_opens),
                                       cmocka_unit_test(test_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
