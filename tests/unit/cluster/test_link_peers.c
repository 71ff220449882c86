/* Links between processes: a peer that is killed, stopped, or whose frames come twice, late, damaged, or over a connection that
 * breaks. This program is the peer, too: it is started again with the words of rig_spawn. */
#include "link_rig.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { FRAMES = 60 };

static struct rig_worker a, b;

static uint32_t frame_bytes(uint64_t tag)
{
    return (uint32_t)(tag * 7919 % 300000);
}

/* --- The peer --- */

/* Worker 1: takes frames until it is killed. */
_Noreturn static void be_sink(void)
{
    rig_start(&b, 1, NULL);
    rig_link_to(&b, 0, "127.0.0.1:9");
    printf("%s\n", b.address);
    fflush(stdout);
    for (;;)
        pause();
}

/* Worker 0: sends all frames to worker 1, over as many connections as it takes; says when all have come. delay: each frame leaves so
 * many microseconds later. */
_Noreturn static void be_source(const char *address, const char *delay)
{
    struct links_options options = rig_options(0);
    options.delay_us = strtoll(delay, NULL, 10);
    rig_start(&a, 0, &options);
    rig_link_to(&a, 1, address);
    uint64_t gones = 0;
    int64_t since = 0;
    for (uint64_t sent = 0; sent < FRAMES || rig_figures(&a, 1).retained_bytes != 0;) {
        if (sent < FRAMES && rig_try(&a, 1, sent, frame_bytes(sent)) == LINK_SENT) {
            sent++;
            continue;
        }
        if (rig_count(&a, &a.gones[1]) != gones) {
            gones++;
            rig_link_to(&a, 1, address);
        }
        wait_more(&since);
    }
    printf("done after %llu breaks\n", (unsigned long long)gones);
    fflush(stdout);
    for (;;)
        pause();
}

static int be_peer(char **words)
{
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    if (!failpoints_init(&diags))
        return 1;
    if (strcmp(words[1], "sink") == 0)
        be_sink();
    be_source(words[2], words[3]);
}

/* --- Its parent --- */

static void reap(pid_t pid, int out)
{
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(out);
}

/* a has a link to the peer, a sink. */
static pid_t start_sink(int *out)
{
    char address[64];
    pid_t pid = rig_spawn((const char *const[]){"sink", NULL}, NULL, out);
    rig_read_line(*out, address, sizeof(address));
    rig_start(&a, 0, NULL);
    rig_link_to(&a, 1, address);
    rig_wait(&a, &a.ups[1], 1);
    return pid;
}

static void test_kill_while_sending(void **state)
{
    (void)state;
    int out;
    pid_t pid = start_sink(&out);
    uint64_t tag = 0;
    for (; tag < 30; tag++)
        rig_send(&a, 1, tag, 1 << 20);
    kill(pid, SIGKILL);
    int64_t killed_us = os_monotonic_us();
    while (rig_count(&a, &a.gones[1]) == 0)
        if (rig_try(&a, 1, tag, 1 << 20) == LINK_SENT)
            tag++;
    print_message("is_gone %lld us after the kill: %s\n", (long long)(os_monotonic_us() - killed_us),
                  a.reason);
    assert_false(rig_figures(&a, 1).is_up);
    link_close(a.links, 1);
    assert_int_equal(links_figures(a.links).retained_bytes, 0);
    assert_int_equal(links_figures(a.links).connections, 0);
    rig_stop(&a);
    reap(pid, out);
}

static void test_kill_while_idle(void **state)
{
    (void)state;
    int out;
    pid_t pid = start_sink(&out);
    rig_send(&a, 1, 0, 1000);
    for (int64_t since = 0; rig_figures(&a, 1).retained_bytes != 0;)
        wait_more(&since);
    kill(pid, SIGKILL);
    int64_t killed_us = os_monotonic_us();
    rig_wait(&a, &a.gones[1], 1);
    print_message("is_gone %lld us after the kill\n", (long long)(os_monotonic_us() - killed_us));
    rig_stop(&a);
    reap(pid, out);
}

/* A stopped peer takes nothing and is not reported; closing does not wait for it. */
static void test_stop_while_sending(void **state)
{
    (void)state;
    int out;
    pid_t pid = start_sink(&out);
    for (uint64_t tag = 0; tag < 10; tag++)
        rig_send(&a, 1, tag, 100000);
    kill(pid, SIGSTOP);
    uint64_t tag = 10;
    while (rig_try(&a, 1, tag, 1 << 20) == LINK_SENT) /* until a budget is used up */
        tag++;
    assert_true(rig_figures(&a, 1).retained_bytes > 30 << 20);
    assert_int_equal(rig_count(&a, &a.gones[1]), 0);
    int64_t began_us = os_monotonic_us();
    link_close(a.links, 1);
    print_message("closing took %lld us\n",
                  (long long)(os_monotonic_us() - began_us)); /* a flush would never end */
    assert_int_equal(links_figures(a.links).retained_bytes, 0);
    assert_int_equal(links_figures(a.links).connections, 0);
    rig_stop(&a);
    reap(pid, out);
}

/* b takes the frames of a source with that delay and failpoint, and has each of them once, in order. Returns b's figures of the link. */
static struct link_figures take_all(const char *delay, const char *failpoint, const char *expected)
{
    int out;
    char line[128];
    rig_start(&b, 1, NULL);
    rig_link_to(&b, 0, "127.0.0.1:9");
    pid_t pid = rig_spawn((const char *const[]){"source", b.address, delay, NULL}, failpoint, &out);
    rig_wait(&b, &b.frames, FRAMES);
    rig_read_line(out, line, sizeof(line));
    assert_string_equal(line, expected);
    struct link_figures figures = rig_figures(&b, 0);
    assert_int_equal(rig_count(&b, &b.frames), FRAMES);
    assert_int_equal(figures.received_frames, FRAMES);
    reap(pid, out);
    return figures;
}

static void test_bad_ways(void **state)
{
    (void)state;
    assert_int_equal(take_all("0", NULL, "done after 0 breaks").doubled_frames, 0);
    rig_stop(&b);
    assert_int_equal(take_all("0", "link.twice=error:EIO@7", "done after 0 breaks").doubled_frames, 1);
    rig_stop(&b);
    assert_int_equal(take_all("0", "link.late=error:EIO@7", "done after 0 breaks").doubled_frames, 0);
    rig_stop(&b);
    take_all("0", "link.damaged=error:EIO@7", "done after 1 breaks");
    assert_int_equal(links_figures(b.links).damaged, 1);
    assert_true(rig_count(&b, &b.ups[0]) == 2 && rig_count(&b, &b.gones[0]) >= 1);
    rig_stop(&b);
    static const char *const breaks[][2] = {
        {"0", "link.cut=error:EIO@7"},
        {"0", "link.piece=error:EIO@20"},
        {"300000", "link.cut=error:EIO@7"}, /* all have been sent before */
        {"300000", "link.piece=error:EIO@20"}};
    for (size_t i = 0; i < ARRAY_COUNT(breaks); i++) {
        take_all(breaks[i][0], breaks[i][1], "done after 1 breaks");
        assert_int_equal(links_figures(b.links).damaged, 0);
        assert_int_equal(rig_count(&b, &b.ups[0]), 2);
        rig_stop(&b);
    }
}

/* The source is killed while it sends: what came is a beginning of what was sent, and the next life begins anew. */
static void test_killed_source(void **state)
{
    (void)state;
    int out;
    rig_start(&b, 1, NULL);
    rig_link_to(&b, 0, "127.0.0.1:9");
    pid_t pid = rig_spawn((const char *const[]){"source", b.address, "0", NULL}, "link.piece=kill@40", &out);
    rig_wait(&b, &b.gones[0], 1);
    reap(pid, out);
    uint64_t frames = rig_count(&b, &b.frames);
    assert_true(frames < 40);
    assert_int_equal(rig_figures(&b, 0).held_bytes, 0);
    link_close(b.links, 0);
    rig_link_to(&b, 0, "127.0.0.1:9");
    pthread_mutex_lock(&b.mutex);
    b.next[0] = 0;
    pthread_mutex_unlock(&b.mutex);
    pid = rig_spawn((const char *const[]){"source", b.address, "0", NULL}, NULL, &out);
    rig_wait(&b, &b.frames, frames + FRAMES);
    reap(pid, out);
    rig_stop(&b);
}

/* --- Measuring: test_link_peers measure --- */

static double cpu_s(int who)
{
    struct rusage usage;
    getrusage(who, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static int by_size(const void *x, const void *y)
{
    int64_t a_us = *(const int64_t *)x, b_us = *(const int64_t *)y;
    return (a_us > b_us) - (a_us < b_us);
}

static int64_t median_round_trip_us(void)
{
    int64_t times[301];
    for (size_t i = 0; i < ARRAY_COUNT(times); i++) {
        int64_t before = rig_figures(&a, 1).round_trip_us;
        assert_true(link_ping(a.links, 1));
        for (int tries = 0; tries < 20 && rig_figures(&a, 1).round_trip_us == before; tries++)
            usleep(500); /* the threads sleep in between */
        times[i] = rig_figures(&a, 1).round_trip_us;
    }
    qsort(times, ARRAY_COUNT(times), sizeof(times[0]), by_size);
    return times[ARRAY_COUNT(times) / 2];
}

/* CPU time of both processes for a GB, by probes, whose bytes nobody makes or looks at; round trips; what rest costs. */
static int measure(void)
{
    int out;
    pid_t pid = start_sink(&out);
    double began_s = cpu_s(RUSAGE_SELF);
    int64_t began_us = os_monotonic_us();
    uint64_t wakes = links_figures(a.links).wakes;
    for (int i = 0; i < 16; i++) {
        assert_true(link_probe(a.links, 1, LINK_PROBE_MAX));
        for (int64_t since = 0; rig_figures(&a, 1).probe_bytes_per_s < 0;)
            wait_more(&since);
    }
    double took_s = (double)(os_monotonic_us() - began_us) / 1e6, sender_s = cpu_s(RUSAGE_SELF) - began_s;
    wakes = links_figures(a.links).wakes - wakes;
    int64_t round_trip_us = median_round_trip_us();
    double rest_s = cpu_s(RUSAGE_SELF);
    uint64_t rest_wakes = links_figures(a.links).wakes;
    sleep(10);
    rest_s = cpu_s(RUSAGE_SELF) - rest_s;
    rest_wakes = links_figures(a.links).wakes - rest_wakes;
    rig_stop(&a);
    reap(pid, out);
    double gb = 16.0 * LINK_PROBE_MAX / 1e9, receiver_s = cpu_s(RUSAGE_CHILDREN);
    printf(
        "CPU s a GB: sender %.2f, receiver %.2f; %.2f GB/s, %.0f wake-ups a GB; round trip %lld us (median); "
        "10 s of rest: %.4f CPU s, %llu wake-ups\n",
        sender_s / gb, receiver_s / gb, gb / took_s, (double)wakes / gb, (long long)round_trip_us, rest_s,
        (unsigned long long)rest_wakes);
    return 0;
}

int main(int count, char **words)
{
    if (count == 2 && strcmp(words[1], "measure") == 0)
        return measure();
    if (count == 3 &&
        strcmp(words[1], "only") == 0) { /* test_link_peers only test_bad_ways: to look for a rare failure */
        cmocka_set_test_filter(words[2]);
        count = 1;
    }
    if (count > 1)
        return be_peer(words);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill_while_sending), cmocka_unit_test(test_kill_while_idle),
        cmocka_unit_test(test_stop_while_sending), cmocka_unit_test(test_bad_ways),
        cmocka_unit_test(test_killed_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
