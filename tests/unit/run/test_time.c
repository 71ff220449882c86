/* Time of sources: the clock of arrival (processing time) ticks without records, and does so again in a
 * replay; a partition that is ahead by event time waits for one that is behind, live and from a recording. */
#include "live_rig.h"
#include "workers.h"

#include <stdio.h>
#include <unistd.h>

#define LAMP(source)                                                                                         \
    "source s = " source " { event_time: ts }\nstream d = s | lamp\nsink out = fake_sink from d {}\n"
#define ALIGN(source)                                                                                        \
    "source s = " source " { event_time: ts, align: 100us }\nsink out = fake_sink from s {}\n"

/* Rows move the clock of arrival; while none come, ticks do, some time behind the wall clock. The clock never
 * goes back. A replay by the order log gives the same times, from the fake_source and from a recording. */
static void test_clock_ticks(void **state)
{
    (void)state;
    char path[64];
    int64_t live_times[LAMP_TIMES_MAX], times[LAMP_TIMES_MAX];
    uint32_t count = 0;
    new_path(path);
    reset(1);
    struct run_options options = on(2);
    options.record_order = path;
    struct live *live = begin(LAMP("fake_source"), &options);
    int64_t before = os_wall_us() - 5 * US_PER_SECOND;
    give(0, 1, before - 10);
    give(0, 2, before);
    wait_for(&fake_sink.count, 2);
    for (int64_t since = 0; count == 0 || live_times[count - 1] <= before + US_PER_SECOND; wait_more(&since))
        count = lamp_times(live_times);
    assert_true(live_times[count - 1] <= os_wall_us() - US_PER_SECOND);
    end_fake_source();
    end(live);
    count = lamp_times(live_times);
    for (uint32_t i = 1; i < count; i++)
        assert_true(live_times[i] > live_times[i - 1]);
    assert_true(live_times[count - 1] == TIME_MAX);
    for (uint32_t lanes = 1; lanes <= 3; lanes++) {
        reset_fake_sink();
        options = on(lanes);
        options.order = path;
        end(begin(lanes == 3 ? LAMP("fake_recording") : LAMP("fake_source"), &options));
        assert_int_equal(lamp_times(times), count);
        assert_memory_equal(times, live_times, count * sizeof(*times));
    }
    unlink(path);
}

/* A window over arrival time closes by the clock of arrival alone, whatever the event times are; also
 * in a replay. */
static void test_windows_by_arrival(void **state)
{
    (void)state;
    enum { WINDOW_US = 100000 };
    static const char job[] = "source s = fake_source { event_time: ts }\n"
                              "stream d = s | window by id over tumbling(100ms) time arrival { n: count() }\n"
                              "sink out = fake_sink from d {}\n";
    char path[64];
    new_path(path);
    reset(1);
    fake_source.delay[0] = US_PER_HOUR + WINDOW_US / 2;
    struct run_options options = on(2);
    options.record_order = path;
    struct live *live = begin(job, &options);
    /* The rows arrive now: rows with an older arrival time may come after a tick, and would be late. */
    int64_t edge = (os_wall_us() / WINDOW_US + 1) * WINDOW_US;
    give(0, 7, edge - 1);
    give(0, 7, edge + 10);
    give(0, 7, edge + 20);
    give(0, 9, edge + 20);
    wait_for(&fake_sink.count, 3);
    end_fake_source();
    end(live);
    assert_int_equal(fake_sink.ids[0], 7);
    uint64_t hash = fake_sink.hash;
    for (uint32_t lanes = 1; lanes <= 3; lanes++) {
        reset_fake_sink();
        options = on(lanes);
        options.order = path;
        end(begin(job, &options));
        assert_true(fake_sink.count == 3 && fake_sink.hash == hash);
    }
    unlink(path);
}

/* Gives both partitions `rows` rows. Those of partition 1 arrive 1 ms after their event, so that in the order
 * of arrival partition 0 is 1 ms ahead by event time; with `align` it is at most 100 us ahead, and what one
 * micro-batch takes. */
static void fill_late(uint32_t rows)
{
    fake_source.delay[1] = 1000;
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t p = 0; p < 2; p++)
            fake_source.rows[p][fake_source.given[p]++] = (struct fake_source_row){2 * i + p, 1000000 + i, 0};
}

/* How far partition 0 is ahead of partition 1 by event time, at most, in the order of the fake_sink's
 * rows; microseconds. */
static int64_t furthest_ahead(void)
{
    int64_t newest[2] = {0, 0}, ahead = 0;
    for (uint32_t i = 0; i < fake_sink.count; i++) {
        uint32_t p = (uint32_t)(fake_sink.ids[i] & 1);
        newest[p] = fake_sink.ids[i] / 2 - fake_source.delay[p];
        if (i > 0 && i + 1 < fake_sink.count && newest[0] != 0 && newest[1] != 0)
            ahead = MAX(ahead, newest[0] - newest[1]);
    }
    return ahead;
}

static void test_alignment(void **state)
{
    (void)state;
    enum { ROWS = 3000, BATCH = 64 };
    static int64_t ids[2 * ROWS];
    reset(2);
    fake_source.batch_max = BATCH;
    fill_late(ROWS);
    struct run_options options = on(1);
    end(begin("source s = fake_recording { event_time: ts }\nsink out = fake_sink from s {}\n", &options));
    assert_int_equal(fake_sink.count, 2 * ROWS);
    assert_true(furthest_ahead() >= 1000); /* in the order of arrival */
    for (uint32_t lanes = 1; lanes <= 3; lanes++) {
        reset_fake_sink();
        options = on(lanes);
        end(begin(ALIGN("fake_recording"), &options));
        assert_int_equal(fake_sink.count, 2 * ROWS);
        if (lanes == 1)
            memcpy(ids, fake_sink.ids, sizeof(ids));
        else
            assert_memory_equal(ids, fake_sink.ids, sizeof(ids));
    }
    /* Without the end, where partition 0 has no more rows of partition 1 to wait for. */
    fake_sink.count = 2 * ROWS - 2 * 1200;
    assert_true(furthest_ahead() <= 100 + 2 * BATCH);
    for (uint32_t lanes = 1; lanes <= 2; lanes++) {
        reset_fake_sink();
        options = on(lanes);
        struct live *live = begin(ALIGN("fake_source"), &options);
        wait_for(&fake_sink.count, 2 * ROWS); /* a live run does not wait for rows that may never come */
        end_fake_source();
        end(live);
        fake_source.has_ended = false;
    }
}

/* Several workers hold partition 0 back, too, as long as partition 1 has rows. Both are live; all rows are there from the beginning. */
static void test_alignment_of_workers(void **state)
{
    (void)state;
    enum { ROWS = 3000, BATCH = 64, WORKERS_MAX = 3 };
    static const char *const jobs[] = {
        ALIGN("fake_source"), "source s = fake_source { event_time: ts }\nsink out = fake_sink from s {}\n"};
    for (uint32_t count = 1; count <= WORKERS_MAX; count++)
        for (size_t j = 0; j < ARRAY_COUNT(jobs); j++) {
            struct workers *workers = workers_new(count, count + 1);
            struct live *lives[WORKERS_MAX];
            struct run *runs[WORKERS_MAX];
            reset(2);
            fake_source.batch_max = BATCH;
            fill_late(ROWS);
            for (uint32_t i = 0; i < count; i++) {
                struct run_options options = on(2);
                options.peers = workers_peers(workers, i);
                lives[i] = begin(jobs[j], &options);
                runs[i] = lives[i]->run;
            }
            workers_begin(workers, runs);
            wait_for(&fake_sink.count, 2 * ROWS);
            end_fake_source();
            workers_end(workers);
            for (uint32_t i = 0; i < count; i++)
                end(lives[i]);
            workers_free(workers);
            /* Before the end of partition 1, which is 1 ms behind. */
            fake_sink.count = 2 * ROWS - 2 * 1200;
            assert_true(j == 0 ? furthest_ahead() <= 100 + 2 * BATCH : furthest_ahead() >= 1000);
        }
}

/* A row whose event time is too far ahead of its arrival time (`max_jump`, by default a day) goes
 * to dead letters. */
static void test_ahead_of_arrival(void **state)
{
    (void)state;
    static const struct {
        const char *job;
        int64_t ahead;
        uint32_t rows; /* that stay, of 4 */
    } cases[] = {
        {"source s = fake_recording { event_time: ts }\nsink out = fake_sink from s {}\n", US_PER_DAY, 4},
        {"source s = fake_recording { event_time: ts }\nsink out = fake_sink from s {}\n", US_PER_DAY + 1, 2},
        {"source s = fake_recording { event_time: ts, max_jump: 1h }\nsink out = fake_sink from s {}\n",
         US_PER_HOUR + 1, 2},
        {"source s = fake_recording { event_time: ts, max_jump: 2d }\nsink out = fake_sink from s {}\n",
         2 * US_PER_DAY, 4},
        {"source s = fake_recording { event_time: ts, max_jump: forever }\nsink out = fake_sink from s {}\n",
         9000 * US_PER_DAY, 4},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        reset(2);
        fake_source.delay[1] = -cases[i].ahead;
        for (uint32_t p = 0; p < 2; p++)
            for (int64_t row = 0; row < 2; row++)
                fake_source.rows[p][fake_source.given[p]++] =
                    (struct fake_source_row){2 * row + p, 1000000 + row, 0};
        struct run_options options = on(2);
        struct live *live = begin(cases[i].job, &options);
        assert_true(run_wait(live->run));
        run_stats(live->run, &live->stats);
        assert_int_equal(fake_sink.count, cases[i].rows);
        assert_int_equal(live->stats.nodes[0].counters.dead, 4 - cases[i].rows);
        end(live);
    }
}

/* An operator that goes by arrival time, or by event time, is told the end when its input has ended, if an operator
 * behind it has work left, and only then. That operator is refused where the input has no end. */
static void test_ended(void **state)
{
    (void)state;
    static const char *const jobs[] = {
        "source s = fake_recording { event_time: ts }\nstream d = s | lamp | later 3\nsink out = fake_sink from d {}\n",
        "source s = fake_recording { event_time: ts }\nstream d = s | watermarks | later 3\n"
        "sink out = fake_sink from d {}\n",
        "source s = fake_recording { event_time: ts }\nstream d = s | later 3 | watermarks\n"
        "sink out = fake_sink from d {}\n",
    };
    static const uint32_t after[] = {
        3, 3, 0}; /* the micro-batch that tells the end behind `later` comes after 3 parts */
    reset(1);
    for (int i = 0; i < 10; i++)
        fake_source.rows[0][fake_source.given[0]++] = (struct fake_source_row){i, 1000000 + i, 0};
    for (size_t i = 0; i < ARRAY_COUNT(jobs); i++) {
        reset_fake_sink();
        struct run_options options = on(2);
        end(begin(jobs[i], &options));
        assert_int_equal(fake_sink.count, 10);
        assert_true(lamp.ended > 1);
        assert_int_equal(lamp.micro_batches - lamp.ended, after[i]);
    }
    struct run_options options = on(2);
    static const char *const says[] = {"`later` does the rest of its work when the input ends",
                                       "use a recording of the source (--replay)", NULL};
    begin_refused(
        "source s = fake_source { event_time: ts }\nstream d = s | later 3\nsink out = fake_sink from d {}\n",
        &options, says);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ended),
                                       cmocka_unit_test(test_clock_ticks),
                                       cmocka_unit_test(test_windows_by_arrival),
                                       cmocka_unit_test(test_alignment),
                                       cmocka_unit_test(test_alignment_of_workers),
                                       cmocka_unit_test(test_ahead_of_arrival)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
