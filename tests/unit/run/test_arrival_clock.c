/* A wall clock that is set, and what it does to ticks of the arrival clock: the rule alone, over random steps of
 * both clocks, and in live runs. */
#include "live_rig.h"

#include "run/sequencer/internal.h"

#include "core/log.h"

#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* --- The rule alone --- */

enum { LOOK_US = 100000 };
#define START_US (1700000000 * US_PER_SECOND)

struct clocks {
    struct arrival_clock clock;
    int64_t now, wall, arrived, time; /* time: what the last look gave */
    uint32_t news[3];                 /* by enum arrival_news: how often */
};

static struct clocks begin_clocks(void)
{
    struct clocks c = {.now = 5000, .wall = START_US, .arrived = TIME_MIN, .time = START_US};
    arrival_clock_begin(&c.clock, c.now, c.wall);
    return c;
}

/* Lets time pass, by both clocks, and looks. */
static void pass(struct clocks *c, int64_t microseconds)
{
    enum arrival_news news;
    c->now += microseconds;
    c->wall += microseconds;
    c->time = arrival_clock_look(&c->clock, c->now, c->wall, c->arrived, &news);
    c->news[news]++;
}

/* How long looks must go on until the clock has reached the wall clock; microseconds. */
static int64_t time_to_catch_up(struct clocks *c)
{
    int64_t took = 0;
    for (; c->time < c->wall; took += LOOK_US) {
        assert_true(took < 3 * US_PER_HOUR);
        pass(c, LOOK_US);
    }
    return took;
}

static void test_a_step_forward(void **state)
{
    (void)state;
    struct clocks c = begin_clocks();
    pass(&c, LOOK_US);
    assert_int_equal(c.time, START_US + LOOK_US);
    c.wall += US_PER_HOUR;
    int64_t before = c.time, since = 0;
    for (; since <= 5 * US_PER_SECOND; since += LOOK_US) /* it is doubted */
        pass(&c, LOOK_US);
    assert_int_equal(c.time, before + since);
    before = c.time, since = 0;
    for (; since < 10 * US_PER_SECOND; since += LOOK_US)
        pass(&c, LOOK_US);
    assert_int_equal(c.time, before + 2 * since); /* twice the speed */
    assert_int_equal(c.news[ARRIVAL_CATCHES_UP], 1);
    int64_t took = time_to_catch_up(&c);
    assert_in_range(took, US_PER_HOUR - 11 * US_PER_SECOND, US_PER_HOUR);
    assert_int_equal(c.news[ARRIVAL_CATCHES_UP], 1);
    c.wall += US_PER_MINUTE; /* another step is doubted and said anew */
    before = c.time;
    pass(&c, LOOK_US);
    assert_int_equal(c.time, before + LOOK_US);
    took = time_to_catch_up(&c);
    assert_in_range(took, 64 * US_PER_SECOND, 66 * US_PER_SECOND);
    assert_int_equal(c.news[ARRIVAL_CATCHES_UP], 2);
    assert_int_equal(c.news[ARRIVAL_STANDS], 0);
}

/* Records go on with the times that the clock has: however long the wall clock is ahead, the clock does not follow it. */
static void test_records_that_deny_a_step(void **state)
{
    (void)state;
    struct clocks c = begin_clocks();
    c.wall += US_PER_HOUR;
    for (int64_t since = LOOK_US; since < US_PER_MINUTE; since += LOOK_US) {
        if (since % US_PER_SECOND == 0)
            c.arrived = START_US + since;
        pass(&c, LOOK_US);
        assert_int_equal(c.time, START_US + since);
        c.arrived = MAX(c.arrived, c.time - US_PER_SECOND); /* a tick */
    }
    assert_int_equal(c.news[ARRIVAL_CATCHES_UP], 0);
}

/* After rows for an hour, in which nobody looked, nothing is caught up at once. */
static void test_a_long_pause(void **state)
{
    (void)state;
    struct clocks c = begin_clocks();
    c.wall += US_PER_HOUR;
    for (uint32_t i = 0; i < 60; i++)
        pass(&c, LOOK_US);
    int64_t before = c.time;
    pass(&c, US_PER_HOUR);
    assert_in_range(c.time, before + US_PER_HOUR, before + US_PER_HOUR + US_PER_SECOND);
}

/* A record confirms the step; then the clock is set back, and stands in front of the arrival clock. */
static void test_records_and_steps_back(void **state)
{
    (void)state;
    struct clocks c = begin_clocks();
    c.wall += US_PER_HOUR;
    pass(&c, LOOK_US);
    c.arrived = c.wall - 10;
    pass(&c, LOOK_US);
    assert_int_equal(c.time, c.arrived); /* at once; the 0.1 s since its arrival are doubted */
    c.arrived = c.wall + US_PER_DAY;
    pass(&c, LOOK_US);
    assert_int_equal(c.time, c.wall); /* never ahead of the wall clock */
    c.arrived = c.wall;
    c.wall -= US_PER_HOUR;
    pass(&c, LOOK_US);
    assert_int_equal(c.time, c.wall);
    pass(&c, LOOK_US);
    assert_int_equal(c.news[ARRIVAL_STANDS], 1); /* said once */
    c.wall += US_PER_HOUR;
    pass(&c, LOOK_US);
    assert_int_equal(c.time, c.arrived); /* never below what is in the log */
}

static void test_a_start_behind_the_log(void **state)
{
    (void)state;
    struct clocks c = begin_clocks();
    c.arrived = c.wall + US_PER_MINUTE;
    pass(&c, LOOK_US);
    pass(&c, LOOK_US);
    assert_int_equal(c.time, c.wall);
    assert_int_equal(c.news[ARRIVAL_STANDS], 1);
}

/* A random time up to an hour; short ones as often as long ones. */
static int64_t random_time(struct test_random *random)
{
    int64_t limit = 1 + (US_PER_HOUR >> random_below(random, 30));
    return (int64_t)(random_next(random) % (uint64_t)limit);
}

/* Random steps of the wall clock, both ways, pauses and records. Between two looks the clock advances by twice
 * the time that passed at most, and by that time alone unless the wall clock was ahead for 5 s in looks before;
 * it is never ahead of the wall clock, and falls only with it. */
static void test_bounds(void **state)
{
    (void)state;
    enum { STEPS = 200000 };
    struct test_random random = {27};
    struct clocks c = begin_clocks();
    int64_t ahead_since = TIME_MAX;
    uint32_t fast = 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        int64_t passed = random_time(&random), before = c.time;
        if (random_chance(&random, 2))
            c.wall += random_chance(&random, 50) ? random_time(&random) : -random_time(&random);
        int64_t arrived = c.wall - random_time(&random);
        if (random_chance(&random, 2))
            c.arrived = MAX(c.arrived, arrived);
        pass(&c, passed);
        int64_t plain = MAX(before + passed, c.arrived);
        assert_true(c.time <= c.wall && c.time >= MIN(before + passed, c.wall));
        assert_true(c.time <= plain + passed);
        if (c.time > plain) {
            assert_true(c.now - ahead_since >= 5 * US_PER_SECOND);
            fast++;
        }
        ahead_since = c.time == c.wall ? TIME_MAX : MIN(ahead_since, c.now);
        c.arrived = MAX(c.arrived, c.time - US_PER_SECOND); /* a tick */
    }
    assert_true(fast > STEPS / 100 && c.news[ARRIVAL_CATCHES_UP] > 0 && c.news[ARRIVAL_STANDS] > 0);
}

/* --- Live runs --- */

/* Replaces the C library's clock_gettime, also for os.c: a wall clock that the test sets. */
static _Atomic int64_t wall_jump_us;

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int error = (int)syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec += atomic_load(&wall_jump_us) / US_PER_SECOND;
    return error;
}

/* The wall clock is set forward for a moment, in a lull: rows that arrive after that are not late. Then it is
 * set forward for longer, and records have such times: windows close in lulls as before. */
static void test_a_clock_that_jumps(void **state)
{
    (void)state;
    static const char job[] = "source s = fake_source { event_time: ts }\n"
                              "stream d = s | window by id over tumbling(100ms) time arrival { n: count() }\n"
                              "sink out = fake_sink from d {}\n";
    reset(1);
    fake_source.delay[0] = 0;
    struct run_options options = on(2);
    struct live *live = begin(job, &options);
    give(0, 1, os_wall_us());
    wait_for(&fake_sink.count, 1);
    atomic_store(&wall_jump_us, US_PER_HOUR);
    lull(2500000);
    atomic_store(&wall_jump_us, 0);
    give(0, 2, os_wall_us());
    wait_for(&fake_sink.count, 2);
    atomic_store(&wall_jump_us, US_PER_HOUR);
    lull(1500000);
    give(0, 3, os_wall_us());
    wait_for(&fake_sink.count, 3);
    atomic_store(&wall_jump_us, 0);
    end_fake_source();
    end(live);
    assert_int_equal(fake_sink.count, 3);
}

/* A run that begins in a process that began long ago, with a wall clock that was set since: it is doubted. */
static void test_a_later_run_of_a_process(void **state)
{
    (void)state;
    static const char job[] = "source s = fake_source { event_time: ts }\n"
                              "stream d = s | window by id over tumbling(100ms) time arrival { n: count() }\n"
                              "sink out = fake_sink from d {}\n";
    reset(1);
    fake_source.delay[0] = 0;
    struct run_options options = on(2);
    options.wall_ahead_us = os_wall_us() - os_monotonic_us();
    int64_t begun = os_wall_us();
    atomic_store(&wall_jump_us, US_PER_HOUR);
    struct live *live = begin(job, &options);
    give(0, 1, begun);
    wait_for(&fake_sink.count, 1); /* its window has closed, by a tick */
    give(0, 2, begun + 2 * US_PER_SECOND);
    wait_for(&fake_sink.count, 2); /* it is not late */
    atomic_store(&wall_jump_us, 0);
    end_fake_source();
    end(live);
}

#define LAMP                                                                                                 \
    "source s = fake_source { event_time: ts }\nstream d = s | lamp\nsink out = fake_sink from d {}\n"

struct wanted {
    const char *text;
    uint64_t after, last; /* numbers of log lines: look behind `after`; the last one with the text, or 0 */
};

static void look_for(void *user, const struct log_line *line)
{
    struct wanted *wanted = user;
    if (line->n > wanted->after &&
        memmem(line->text.data, line->text.length, wanted->text, strlen(wanted->text)) != NULL)
        wanted->last = line->n;
}

static void ignore_line(void *user, const struct log_line *line)
{
    (void)user, (void)line;
}

/* Number of the newest line of the log with this text, beyond the first `after` lines; 0: none. */
static uint64_t said(uint64_t after, const char *text)
{
    struct wanted wanted = {.text = text, .after = after};
    (void)log_since(0, look_for, &wanted);
    return wanted.last;
}

/* The newest time of the arrival clock that the lamp was told. */
static int64_t newest_time(void)
{
    int64_t times[LAMP_TIMES_MAX];
    uint32_t count = lamp_times(times);
    return count == 0 ? TIME_MIN : times[count - 1];
}

/* The wall clock is set forward by an hour for good, in a lull. Ticks go on as before, then at twice the speed, and
 * a line of the log says so. */
static void test_an_hour_forward(void **state)
{
    (void)state;
    reset(1);
    uint64_t lines = log_since(0, ignore_line, NULL);
    struct run_options options = on(2);
    struct live *live = begin(LAMP, &options);
    int64_t begun = os_wall_us(), began = os_monotonic_us();
    give(0, 1, begun);
    wait_for(&fake_sink.count, 1);
    atomic_store(&wall_jump_us, US_PER_HOUR);
    for (int64_t since = 0;; wait_more(&since)) {
        int64_t newest = newest_time(), passed = os_monotonic_us() - began;
        assert_true(newest <= begun + passed + MAX(passed - 5 * US_PER_SECOND, 0) - US_PER_SECOND ||
                    newest == begun);
        if (newest > begun + passed) /* ahead of a clock that was not set */
            break;
    }
    assert_true(said(lines, "catches up at twice the speed") != 0);
    atomic_store(&wall_jump_us, 0);
    end_fake_source();
    end(live);
    int64_t times[LAMP_TIMES_MAX];
    uint32_t count = lamp_times(times);
    assert_true(count > 5);
    for (uint32_t i = 1; i < count; i++)
        assert_true(times[i] > times[i - 1]);
}

/* A process that begins with a wall clock an hour behind the log: the arrival clock stands, and that is said; rows
 * move it, and ticks do once the clock is right. */
static void test_a_resume_behind_the_log(void **state)
{
    (void)state;
    char path[64], job[512];
    new_directory(path);
    snprintf(job, sizeof(job), "job j { checkpoint: { dir: \"%s\", every: 50ms, min_free: 0B } }\n%s", path,
             LAMP);
    reset(1);
    struct run_options options = on(2);
    struct live *live = begin(job, &options);
    int64_t begun = os_wall_us();
    give(0, 1, begun);
    wait_for(&fake_sink.committed_rows, 1);
    run_stop(live->run);
    end(live);
    reset_fake_sink();
    uint64_t lines = log_since(0, ignore_line, NULL);
    atomic_store(&wall_jump_us, -US_PER_HOUR);
    live = begin(job, &options);
    for (int64_t since = 0; said(lines, "behind the arrival clock, which never goes back") == 0;
         wait_more(&since)) {
    }
    give(0, 2, begun + 10);
    wait_for_time(begun + 10);
    lull(1500000);
    assert_int_equal(newest_time(), begun + 10);
    atomic_store(&wall_jump_us, 0);
    for (int64_t since = 0; newest_time() <= begun + 10; wait_more(&since)) {
    }
    assert_true(newest_time() <= os_wall_us() - US_PER_SECOND);
    end_fake_source();
    end(live);
    os_remove_tree(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_forward),           cmocka_unit_test(test_a_long_pause),
        cmocka_unit_test(test_records_that_deny_a_step), cmocka_unit_test(test_records_and_steps_back),
        cmocka_unit_test(test_a_start_behind_the_log),   cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_a_clock_that_jumps),       cmocka_unit_test(test_a_later_run_of_a_process),
        cmocka_unit_test(test_an_hour_forward),          cmocka_unit_test(test_a_resume_behind_the_log)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
