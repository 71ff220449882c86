/* When a checkpoint that somebody asks for is wanted: at once, or for followers a while after one of them got one. */
#include "run/base/barrier.h"
#include "run/base/outbox.h"
#include "run/base/peers.h"

#include "core/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { NEVER = -1 };

/* ago_us: since a follower got one. */
static bool is_wanted(struct run *run, void ask(struct run *run), int64_t ago_us, int64_t work_us)
{
    struct barrier *b = run->barrier;
    b->is_wanted = false;
    b->asked_us = ago_us == NEVER ? 0 : os_monotonic_us() - ago_us;
    b->work_us = work_us;
    ask(run);
    return b->is_wanted;
}

static void test_asked_seldom(void **state)
{
    enum { SECOND = 1000 * 1000 };
    static struct run run;
    (void)state;
    run.barrier = barrier_new();
    assert_true(is_wanted(&run, barrier_ask_seldom, NEVER, 0)); /* there was none in this life */
    run.barrier->barrier_us = os_monotonic_us();
    assert_true(
        is_wanted(&run, barrier_ask_seldom, NEVER, SECOND)); /* the job has just made one of its own */
    run.barrier->is_wanted = false;
    barrier_ask_seldom(&run);
    assert_false(run.barrier->is_wanted);
    assert_false(is_wanted(&run, barrier_ask_seldom, (BARRIER_SHARE - 2) * SECOND, SECOND));
    assert_true(is_wanted(&run, barrier_ask_seldom, (BARRIER_SHARE + 2) * SECOND, SECOND));
    assert_true(is_wanted(&run, barrier_ask, 0, SECOND));
    run.barrier->state = BARRIER_WRITING; /* one is on its way */
    assert_false(is_wanted(&run, barrier_ask, 0, 0));
    assert_false(is_wanted(&run, barrier_ask_seldom, 0, 0));
    barrier_free(run.barrier);
}

static uint32_t asks; /* that the leader got */

static bool count_ask(void *engine, uint32_t worker, struct str message)
{
    struct words words = {.left = message};
    (void)engine;
    assert_int_equal(worker, 0);
    assert_int_equal(words_take(&words), PEER_ASK);
    assert_true(peers_is_whole(&words));
    asks++;
    return true;
}

/* A worker that does not lead tells the leader, also for a follower; once for each checkpoint that it begins. */
static void test_asks_leader(void **state)
{
    static struct run run;
    const struct run_peers peers = {.self = 1, .count = 2, .leader = 0, .send = count_ask};
    (void)state;
    run.options.peers = &peers;
    outboxes_init(&run);
    run.barrier = barrier_new();
    barrier_ask(&run);
    barrier_ask(&run);
    assert_int_equal(asks, 1);
    assert_true(is_wanted(&run, barrier_ask_seldom, NEVER, 0));
    assert_int_equal(asks, 2);
    barrier_ask_seldom(&run);
    assert_int_equal(asks, 2);
    barrier_free(run.barrier);
    outboxes_free(&run);
}

/* The leader, when another worker has asked in each state: whether a checkpoint is wanted once the one in work is through. */
static void test_asked_by_another(void **state)
{
    static struct run run;
    (void)state;
    for (enum barrier_state when = BARRIER_IDLE; when <= BARRIER_WRITING; when++)
        for (int is_published = 0; is_published < 2; is_published++) {
            struct barrier *b = run.barrier = barrier_new();
            b->state = when;
            barrier_take_ask(&run);
            assert_int_equal(b->is_wanted, when == BARRIER_IDLE);
            b->is_wanted = false; /* it begins */
            barrier_end(b, is_published != 0);
            assert_int_equal(b->is_wanted, when == BARRIER_WRITING && is_published != 0);
            assert_int_equal(b->has_lately_failed, is_published == 0);
            b->is_wanted = false;
            barrier_end(b, true); /* and counts for one */
            assert_false(b->is_wanted);
            barrier_free(b);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_asked_seldom),
                                       cmocka_unit_test(test_asks_leader),
                                       cmocka_unit_test(test_asked_by_another)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
