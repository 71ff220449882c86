/* Links between workers of one process, over TCP: order, sizes, credits, budgets, closing, strangers. */
#include "link_rig.h"

#include "../support/random.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

static struct rig_worker a, b, c;

static void test_order_and_sizes(void **state)
{
    (void)state;
    struct test_random random = {7};
    static const uint32_t sizes[] = {0,      1,      8,      100,     65535,   65536,
                                     131071, 131072, 131073, 1 << 20, 3000000, LINK_FRAME_MAX};
    rig_start(&a, 0, NULL);
    rig_start(&b, 1, NULL);
    rig_join(&a, &b);
    for (uint64_t i = 0; i < 100; i++) {
        uint32_t size = i < ARRAY_COUNT(sizes) ? sizes[i] : random_below(&random, 300000);
        rig_send(&a, 1, i, size);
        rig_send(&b, 0, i, size / 2);
    }
    rig_wait(&a, &a.frames, 100);
    rig_wait(&b, &b.frames, 100);
    for (int64_t since = 0; rig_figures(&a, 1).retained_bytes != 0 || rig_figures(&b, 0).retained_bytes != 0;)
        wait_more(&since);
    struct link_figures figures = rig_figures(&a, 1);
    assert_int_equal(figures.sent_frames, 100);
    assert_int_equal(figures.sent_bytes, rig_count(&b, &b.bytes));
    assert_int_equal(figures.received_bytes, rig_count(&a, &a.bytes));
    assert_int_equal(figures.held_bytes, 0);
    assert_int_equal(figures.doubled_frames, 0);
    assert_int_equal(rig_count(&a, &a.gones[1]) + rig_count(&b, &b.gones[0]), 0);
    assert_int_equal(rig_count(&a, &a.ups[1]) + rig_count(&b, &b.ups[0]), 2);
    rig_stop(&a);
    rig_stop(&b);
}

static void test_many_small_frames(void **state)
{
    (void)state;
    rig_start(&a, 0, NULL);
    rig_start(&b, 1, NULL);
    rig_join(&a, &b);
    for (uint64_t i = 0; i < 20000; i++)
        rig_send(&a, 1, i, (uint32_t)(i % 64));
    rig_wait(&b, &b.frames, 20000);
    rig_stop(&b);
    rig_stop(&a);
}

/* A window that is full: nothing passes; what is given back makes room, and that is told. */
static void test_credits(void **state)
{
    (void)state;
    struct links_options small = rig_options(1);
    small.window_bytes = 1000;
    rig_start(&a, 0, NULL);
    rig_start(&b, 1, &small);
    b.must_hold = true;
    rig_join(&a, &b);
    rig_wait(&a, &a.ups[1], 1); /* who dials has the first grant now */
    assert_int_equal(rig_try(&a, 1, 0, 400), LINK_SENT);
    assert_int_equal(rig_try(&a, 1, 1, 601), LINK_NO_ROOM);
    assert_int_equal(rig_try(&a, 1, 1, 600), LINK_SENT);
    assert_int_equal(rig_try(&a, 1, 2, 1), LINK_NO_ROOM);
    rig_wait(&b, &b.frames, 2);
    for (int64_t since = 0; rig_figures(&a, 1).retained_bytes != 0;)
        wait_more(&since);
    assert_int_equal(rig_try(&a, 1, 2, 1), LINK_NO_ROOM); /* b has them, and holds them */
    assert_int_equal(rig_figures(&b, 0).held_bytes, 1000);
    assert_int_equal(rig_figures(&a, 1).refused_sends, 3);
    assert_int_equal(rig_count(&a, &a.rooms[1]), 0);
    rig_release_first(&b);
    rig_wait(&a, &a.rooms[1], 1); /* for 1 byte; not for 601 */
    assert_int_equal(rig_try(&a, 1, 2, 401), LINK_NO_ROOM);
    assert_true(link_ping(a.links, 1));
    for (int64_t since = 0; rig_figures(&a, 1).round_trip_us < 0;)
        wait_more(&since);
    assert_int_equal(rig_count(&a, &a.rooms[1]), 1); /* the thread has looked: 401 bytes have no room yet */
    assert_int_equal(rig_try(&a, 1, 2, 400), LINK_SENT);
    rig_wait(&b, &b.frames, 3);
    rig_release(&b);
    rig_wait(&a, &a.rooms[1], 2);
    rig_send(&a, 1, 3, 1000); /* all that was given back has room, and no byte more */
    assert_int_equal(rig_try(&a, 1, 4, 1), LINK_NO_ROOM);
    rig_wait(&b, &b.frames, 4);
    assert_int_equal(rig_figures(&b, 0).held_bytes, 1000);
    rig_stop(&a);
    rig_stop(&b);
}

/* The sender's own budget: frames that a slow way keeps, to a receiver that takes none. */
static void test_retained_budget(void **state)
{
    (void)state;
    struct links_options small = rig_options(0);
    small.retained_bytes = 1000;
    small.delay_us = 200000;
    rig_start(&a, 0, &small);
    rig_start(&b, 1, NULL);
    rig_join(&a, &b);
    rig_wait(&a, &a.ups[1], 1);   /* who dials has the first grant now */
    pthread_mutex_lock(&b.mutex); /* b does not get on with the first frame, and acknowledges none */
    int64_t began_us = os_monotonic_us();
    assert_int_equal(rig_try(&a, 1, 0, 1000), LINK_SENT);
    assert_int_equal(rig_try(&a, 1, 1, 1), LINK_NO_ROOM);
    assert_int_equal(links_figures(a.links).retained_bytes, 1000);
    pthread_mutex_unlock(&b.mutex);
    rig_wait(&a, &a.rooms[1], 1);
    assert_true(os_monotonic_us() - began_us >= 200000);
    assert_int_equal(rig_try(&a, 1, 1, 1000), LINK_SENT);
    rig_wait(&b, &b.frames, 2);
    for (int64_t since = 0; links_figures(a.links).retained_bytes != 0;)
        wait_more(&since);
    rig_stop(&a);
    rig_stop(&b);
}

/* A link that is capped takes its time. */
static void test_cap(void **state)
{
    (void)state;
    struct links_options slow = rig_options(0);
    slow.bytes_per_s = 2000000;
    rig_start(&a, 0, &slow);
    rig_start(&b, 1, NULL);
    rig_join(&a, &b);
    int64_t began_us = os_monotonic_us();
    for (uint64_t i = 0; i < 10; i++)
        rig_send(&a, 1, i, 50000);
    rig_wait(&b, &b.frames, 10);
    assert_true(os_monotonic_us() - began_us >= 200000); /* 450,000 bytes before the last frame: 225 ms */
    rig_stop(&a);
    rig_stop(&b);
}

/* Both sides have frames on their way when one closes: its memory is back, and the other hears of it. */
static void test_close_with_frames_in_flight(void **state)
{
    (void)state;
    for (int round = 0; round < 5; round++) {
        rig_start(&a, 0, NULL);
        rig_start(&b, 1, NULL);
        rig_join(&a, &b);
        for (uint64_t i = 0; i < 20; i++) {
            rig_send(&a, 1, i, 1000000);
            rig_send(&b, 0, i, 1000000);
        }
        link_close(a.links, 1);
        assert_int_equal(links_figures(a.links).retained_bytes, 0);
        struct link_figures figures;
        assert_false(link_figures(a.links, 1, &figures));
        assert_int_equal(rig_try(&a, 1, 0, 1), LINK_NO_LINK);
        rig_wait(&b, &b.gones[0], 1);
        assert_int_equal(rig_count(&a, &a.gones[1]), 0); /* who closes is not told */
        link_close(b.links, 0);
        for (int64_t since = 0; links_figures(b.links).connections + links_figures(a.links).connections != 0;)
            wait_more(&since);
        pthread_mutex_lock(&a.mutex);
        a.next[1] = 0;
        pthread_mutex_unlock(&a.mutex);
        pthread_mutex_lock(&b.mutex);
        b.next[0] = 0;
        uint64_t before = b.frames;
        pthread_mutex_unlock(&b.mutex);
        rig_join(&a, &b); /* a new link begins anew */
        rig_send(&a, 1, 0, 100);
        rig_wait(&b, &b.frames, before + 1);
        rig_stop(&a);
        rig_stop(&b);
    }
}

/* What the sender was told to have come has come, whenever the link is closed, and by whom. */
static void test_close_keeps_what_was_acknowledged(void **state)
{
    (void)state;
    enum { FRAME_BYTES = 200000 }; /* two pieces */
    struct test_random random = {5};
    for (uint32_t round = 0; round < 20; round++) {
        struct link_figures figures;
        uint64_t sent = 0, rest = 1 + random_below(&random, 100);
        rig_start(&a, 0, NULL);
        rig_start(&b, 1, NULL);
        rig_join(&a, &b);
        while (link_figures(a.links, 1, &figures) && (sent < rest || figures.retained_bytes == 0))
            rig_send(&a, 1, sent++, FRAME_BYTES);
        uint64_t acknowledged = sent - (uint64_t)figures.retained_bytes / FRAME_BYTES;
        if (round % 2 == 0)
            link_close(a.links, 1);
        else
            link_close(b.links, 0);
        assert_true(rig_count(&b, &b.frames) >= acknowledged);
        rig_stop(&a);
        rig_stop(&b);
    }
}

/* Nothing is under way when one side closes: the other hears of it all the same. */
static void test_close_while_idle(void **state)
{
    (void)state;
    rig_start(&a, 0, NULL);
    rig_start(&b, 1, NULL);
    rig_start(&c, 2, NULL);
    rig_join(&a, &b);
    rig_join(&b, &c);
    link_close(a.links, 1); /* who dialed */
    rig_wait(&b, &b.gones[0], 1);
    link_close(c.links, 1); /* who was called */
    rig_wait(&b, &b.gones[2], 1);
    rig_stop(&c);
    rig_stop(&b);
    rig_stop(&a);
}

/* A child of fork has the sockets, too, when links are closed: the other side hears of it all the same, and nothing comes of them
 * later. */
static void test_child_has_the_sockets(void **state)
{
    (void)state;
    rig_start(&a, 0, NULL);
    rig_start(&b, 1, NULL);
    rig_join(&a, &b);
    pid_t pid = rig_fork();
    while (pid == 0)
        pause();
    link_close(a.links, 1);
    rig_wait(&b, &b.gones[0], 1);
    link_close(b.links, 0);
    rig_join(&a, &b);
    uint64_t before = links_figures(a.links).wakes + links_figures(b.links).wakes;
    usleep(100000); /* events of a socket that is closed would come without end */
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    rig_send(&a, 1, 0, 1000);
    rig_wait(&b, &b.frames, 1);
    assert_true(links_figures(a.links).wakes + links_figures(b.links).wakes - before < 100);
    rig_stop(&a);
    rig_stop(&b);
}

/* Three workers, each with links to the others; a restart of all moves them to the next incarnation. */
static void test_three_and_a_restart(void **state)
{
    (void)state;
    struct rig_worker workers[3];
    for (uint32_t i = 0; i < 3; i++)
        rig_start(&workers[i], i, NULL);
    for (uint64_t incarnation = 1; incarnation <= 3; incarnation++) {
        for (uint32_t i = 0; i < 3; i++)
            for (uint32_t k = 0; k < i; k++)
                rig_join(&workers[k], &workers[i]);
        for (uint64_t tag = 0; tag < 50; tag++)
            for (uint32_t i = 0; i < 3; i++)
                for (uint32_t k = 0; k < 3; k++)
                    if (i != k)
                        rig_send(&workers[i], k, tag, 20000);
        for (uint32_t i = 0; i < 3; i++)
            rig_wait(&workers[i], &workers[i].frames, incarnation * 100);
        for (uint32_t i = 0; i < 3; i++) {
            links_restart(workers[i].links, i, incarnation + 1, STR("the secret of the next incarnation"),
                          64 << 20);
            struct link_figures figures;
            assert_false(link_figures(workers[i].links, (i + 1) % 3, &figures));
            assert_int_equal(links_figures(workers[i].links).retained_bytes, 0);
            memset(workers[i].next, 0, sizeof(workers[i].next));
        }
    }
    for (uint32_t i = 0; i < 3; i++)
        rig_stop(&workers[i]);
}

static void test_ping_and_probe(void **state)
{
    (void)state;
    rig_start(&a, 0, NULL);
    rig_start(&b, 1, NULL);
    rig_link_to(&a, 1, "127.0.0.1:1");
    assert_false(link_ping(a.links, 1) || link_probe(a.links, 1, 1));
    link_close(a.links, 1);
    rig_join(&a, &b);
    assert_int_equal(rig_figures(&a, 1).round_trip_us, -1);
    assert_true(link_ping(a.links, 1));
    for (int64_t since = 0; rig_figures(&a, 1).round_trip_us < 0;)
        wait_more(&since);
    pthread_mutex_lock(&b.mutex); /* the other side does not get on with the frame before the probe */
    rig_send(&a, 1, 0, 100000);
    assert_true(link_probe(a.links, 1, 8 << 20));
    assert_false(link_probe(a.links, 1, 1)); /* one at a time */
    rig_send(&a, 1, 1, 100000);              /* frames go on beside it */
    pthread_mutex_unlock(&b.mutex);
    rig_wait(&b, &b.frames, 2);
    for (int64_t since = 0; rig_figures(&a, 1).probe_bytes_per_s < 0;)
        wait_more(&since);
    assert_true(rig_figures(&a, 1).probe_bytes_per_s > 100000);
    assert_true(link_probe(a.links, 1, 1));
    for (int64_t since = 0; rig_figures(&a, 1).probe_bytes_per_s < 0;)
        wait_more(&since);
    rig_stop(&a);
    rig_stop(&b);
}

/* Frames that come one after the other do not bring an answer each, which would wake the sender; who waits gets one soon. */
static void test_few_answers(void **state)
{
    (void)state;
    enum { FRAMES = 200, EACH_US = 500, ANSWERS_MAX = FRAMES / 2 };
    rig_start(&a, 0, NULL);
    rig_start(&b, 1, NULL);
    rig_join(&a, &b);
    uint64_t before = links_figures(a.links).wakes;
    for (uint64_t tag = 0; tag < FRAMES; tag++) {
        rig_send(&a, 1, tag, 100);
        usleep(EACH_US); /* the speed of sending is tested */
    }
    rig_wait(&b, &b.frames, FRAMES);
    for (int64_t since = 0; rig_figures(&a, 1).retained_bytes != 0;)
        wait_more(&since);
    uint64_t wakes = links_figures(a.links).wakes - before;
    print_message("%d frames, %llu wake-ups of who sends them\n", FRAMES, (unsigned long long)wakes);
    assert_true(wakes <= FRAMES + ANSWERS_MAX);
    rig_stop(&a);
    rig_stop(&b);
}

/* While nothing happens the threads sleep. */
static void test_idle(void **state)
{
    (void)state;
    rig_start(&a, 0, NULL);
    rig_start(&b, 1, NULL);
    rig_join(&a, &b);
    rig_send(&a, 1, 0, 1000);
    for (int64_t since = 0; rig_figures(&a, 1).retained_bytes != 0;)
        wait_more(&since);
    usleep(200000); /* what was going on comes to its end */
    uint64_t before = links_figures(a.links).wakes + links_figures(b.links).wakes;
    struct timespec begin, end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    sleep(1); /* time itself is tested */
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    uint64_t wakes = links_figures(a.links).wakes + links_figures(b.links).wakes - before;
    int64_t cpu_us = (end.tv_sec - begin.tv_sec) * US_PER_SECOND + (end.tv_nsec - begin.tv_nsec) / 1000;
    print_message("idle for 1 s: %llu wake-ups, %lld us of CPU time\n", (unsigned long long)wakes,
                  (long long)cpu_us);
    assert_true(wakes <= 4);
    assert_true(cpu_us < 50000);
    rig_stop(&a);
    rig_stop(&b);
}

int main(int count, char **words)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_sizes),
        cmocka_unit_test(test_many_small_frames),
        cmocka_unit_test(test_credits),
        cmocka_unit_test(test_retained_budget),
        cmocka_unit_test(test_cap),
        cmocka_unit_test(test_close_with_frames_in_flight),
        cmocka_unit_test(test_close_keeps_what_was_acknowledged),
        cmocka_unit_test(test_close_while_idle),
        cmocka_unit_test(test_child_has_the_sockets),
        cmocka_unit_test(test_three_and_a_restart),
        cmocka_unit_test(test_ping_and_probe),
        cmocka_unit_test(test_few_answers),
        cmocka_unit_test(test_idle),
    };
    if (count == 3 &&
        strcmp(words[1], "only") == 0) /* test_link only test_idle: to look for a rare failure */
        cmocka_set_test_filter(words[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
