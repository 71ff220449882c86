/* Live sources, driven by the test: which partitions micro-batches wait for or go on without, which are
 * idle, which are found while running, and how full sinks hold the sources up. The same on several lanes,
 * and under TSan. */
#include "live_rig.h"
#include "workers.h"

#include <stdio.h>

#include "core/order_log.h"

#include <stdlib.h>

#define JOB(options) "source s = fake_source { event_time: ts" options " }\nsink out = fake_sink from s {}\n"
/* Likewise, and the watermarks are noted. */
#define JOB_WATERMARKS(options)                                                                              \
    "source s = fake_source { event_time: ts" options                                                        \
    " }\nstream d = s | watermarks\nsink out = fake_sink from d {}\n"

static void test_goes_on_without_the_quiet(void **state)
{
    (void)state;
    for (uint32_t lanes = 1; lanes <= 3; lanes++) {
        reset(2);
        struct run_options options = on(lanes);
        struct live *live = begin(JOB(""), &options);
        for (uint32_t i = 0; i < 100; i++) {
            give(i % 7 == 0, i, 1000 + i);
            wait_for(&fake_sink.count, i + 1);
        }
        end_fake_source();
        end(live);
        for (uint32_t i = 0; i < 100; i++)
            assert_int_equal(fake_sink.ids[i], i);
    }
}

/* One partition is late, and says so: the other's rows wait, and all come in the order of
 * their arrival times. */
static void test_waits_for_the_late(void **state)
{
    (void)state;
    for (uint32_t lanes = 1; lanes <= 3; lanes++) {
        reset(2);
        fake_source.is_late[1] = true;
        struct run_options options = on(lanes);
        struct live *live = begin(JOB(""), &options);
        for (uint32_t i = 0; i < 50; i++)
            give(0, 2 * i, 1000 + 2 * i);
        wait_until_asked(1, 20);
        assert_int_equal(fake_sink_count(&fake_sink.count), 0);
        pthread_mutex_lock(&fake_source.mutex);
        for (uint32_t i = 0; i < 50; i++)
            fake_source.rows[1][fake_source.given[1]++] =
                (struct fake_source_row){2 * i + 1, 1000 + 2 * i + 1, 0};
        pthread_mutex_unlock(&fake_source.mutex);
        give(1, 100, 2000);
        wait_for(&fake_sink.count, 101);
        end_fake_source();
        end(live);
        for (uint32_t i = 0; i < 101; i++)
            assert_int_equal(fake_sink.ids[i], i);
    }
}

static void test_waits_no_longer_than_told(void **state)
{
    (void)state;
    reset(2);
    fake_source.is_late[1] = true;
    struct run_options options = on(2);
    struct live *live = begin(JOB(", order_wait: 50ms"), &options);
    give(0, 1, 1000);
    wait_for(&fake_sink.count, 1);
    give(1, 2, 900);
    wait_for(&fake_sink.count, 2);
    end_fake_source();
    end(live);
    assert_order((const int64_t[]){1, 2}, 2);
}

/* A partition without rows holds the watermark, until it has been quiet for `idle_after`; its next row counts
 * again. */
static void test_idle(void **state)
{
    (void)state;
    reset(2);
    struct run_options options = on(2);
    struct live *live = begin(JOB_WATERMARKS(""), &options);
    give(0, 1, 5000);
    wait_for(&fake_sink.count, 1);
    wait_until_asked(1, 20);
    end_fake_source();
    end(live);
    assert_int_equal(lamp.count, 1);
    assert_int_equal(lamp.times[0], TIME_MAX); /* at the end */

    reset(2);
    live = begin(JOB_WATERMARKS(", idle_after: 60ms"), &options);
    give(0, 1, 5000);
    wait_for_time(5000);
    give(1, 2, 5500);
    give(0, 3, 6000);
    wait_for(&fake_sink.count, 3);
    wait_for_time(6000); /* of the partition that becomes idle last */
    end_fake_source();
    end(live);
}

/* How many entries with the tag and the partition the order log in the file has. */
static uint32_t entries(const char *path, enum order_tag tag, uint32_t partition)
{
    static char text[1 << 16];
    struct order_reader reader;
    struct order_entry entry;
    uint32_t count = 0;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t bytes = fread(text, 1, sizeof(text), file);
    fclose(file);
    for (size_t at = 0; at < bytes; at += order_segment_bytes(&reader.head)) {
        assert_true(order_open(&reader, (struct str){text + at, bytes - at}));
        while (order_next(&reader, &entry))
            count += entry.tag == tag && entry.partition == partition;
        assert_null(reader.why);
        order_close(&reader);
    }
    return count;
}

static void test_found_while_running(void **state)
{
    (void)state;
    char path[64];
    new_path(path);
    reset(1);
    struct run_options options = on(2);
    options.record_order = path;
    struct live *live = begin(JOB(""), &options);
    give(0, 1, 1000);
    wait_for(&fake_sink.count, 1);
    pthread_mutex_lock(&fake_source.mutex);
    fake_source.partitions = 3;
    pthread_mutex_unlock(&fake_source.mutex);
    give(2, 2, 2000);
    wait_for(&fake_sink.count, 2);
    give(1, 3, 2500);
    wait_for(&fake_sink.count, 3);
    end_fake_source();
    end(live);
    assert_order((const int64_t[]){1, 2, 3}, 3);
    assert_int_equal(entries(path, ORDER_ADDED, 1) + entries(path, ORDER_ADDED, 2), 2);
    unlink(path);
}

/* A replay by the order log repeats a live run: micro-batches without rows, idle partitions, and rows in an
 * order that the records alone would not give. */
static void test_done_again_by_the_log(void **state)
{
    (void)state;
    char path[64];
    new_path(path);
    reset(2);
    struct run_options options = on(2);
    options.record_order = path;
    struct live *live = begin(JOB_WATERMARKS(", idle_after: 30ms"), &options);
    uint32_t micro_batches = 0;
    for (int64_t i = 0; i < 40; i++) {
        give(i % 3 == 0, i, 10000 - 10 * i); /* against the order of arrival */
        wait_for(&fake_sink.count, (uint32_t)i + 1);
        if (i % 10 == 9) /* one becomes idle, or both: a micro-batch without rows */
            micro_batches = wait_for_micro_batch(MAX(micro_batches, (uint32_t)i + 1));
    }
    end_fake_source();
    end(live);
    for (uint32_t lanes = 1; lanes <= 3; lanes++) {
        reset_fake_sink();
        options = on(lanes);
        options.order = path;
        end(begin(JOB_WATERMARKS(", idle_after: 30ms"), &options));
        assert_int_equal(fake_sink.count, 40);
        for (uint32_t i = 0; i < 40; i++)
            assert_int_equal(fake_sink.ids[i], i);
    }
    unlink(path);
}

/* Replays the log on so many workers, 0: alone; appends where the replay ended. */
static void replay_by(const char *job, const char *path, uint32_t count, uint32_t lanes,
                      struct byte_buffer *ended)
{
    struct live *lives[RUN_WORKERS_MAX];
    struct run *runs[RUN_WORKERS_MAX];
    struct workers *workers = count > 0 ? workers_new(count, lanes + count) : NULL;
    for (uint32_t i = 0; i < MAX(count, 1); i++) {
        struct run_options options = on(lanes);
        options.peers = count > 0 ? workers_peers(workers, i) : NULL;
        options.order = path;
        lives[i] = begin(job, &options);
        runs[i] = lives[i]->run;
    }
    if (count > 0) {
        workers_begin(workers, runs);
        workers_end(workers);
    }
    while (!run_has_ended(runs[0]))
        lull(200);
    run_describe_order_end(runs[count > 0 ? workers_peers(workers, 0)->leader : 0], ended);
    for (uint32_t i = 0; i < MAX(count, 1); i++)
        end(lives[i]);
    if (count > 0)
        workers_free(workers);
}

/* How the workers' source is: what the job says of it, and how many partitions it has at first, of four. */
struct shared {
    const char *options;
    uint32_t partitions;
    int64_t delay_us; /* of partition n, n times that much */
};

/* Several workers read the partitions, and one of them decides by its clock: what they did together, a replay does, alone and on
 * several workers. */
static void test_workers_are_done_again(void **state)
{
    char job[300];
    enum { WORKERS = 3, ROWS = 300 };
    struct test_random random = {7};
    const struct shared *shared = *state;
    snprintf(
        job, sizeof(job),
        "source s = fake_source { event_time: ts, idle_after: 30ms%s }\n"
        "stream w = s | with k = id %% 5 | window by k over tumbling(10ms) { n: count(), f: first(id) }\n"
        "sink out = fake_sink from w {}\n",
        shared->options);
    for (uint32_t lanes = 1; lanes <= 2; lanes++) {
        char path[64];
        struct live *lives[WORKERS];
        struct run *runs[WORKERS];
        struct workers *workers = workers_new(WORKERS, lanes);
        new_path(path);
        reset(shared->partitions);
        for (uint32_t i = 1; i < 4; i++)
            fake_source.delay[i] = shared->delay_us * i;
        for (uint32_t i = 0; i < WORKERS; i++) {
            struct run_options options = on(lanes);
            options.peers = workers_peers(workers, i);
            options.record_order = i == options.peers->leader ? path : NULL;
            lives[i] = begin(job, &options);
            runs[i] = lives[i]->run;
        }
        workers_begin(workers, runs);
        for (int64_t i = 0; i < ROWS; i++) {
            give(random_below(&random, MIN(fake_source.partitions, i > ROWS / 2 ? 4 : 3)), i,
                 1000000 + 700 * i + random_below(&random, 900));
            if (i % 50 == 49)
                lull(random_below(&random, 60000)); /* some become idle, or none */
            pthread_mutex_lock(&fake_source.mutex);
            fake_source.partitions = MIN(fake_source.partitions + (i % 70 == 69), 4);
            pthread_mutex_unlock(&fake_source.mutex);
        }
        wait_until_read();
        end_fake_source();
        workers_end(workers);
        for (uint32_t i = 0; i < WORKERS; i++)
            end(lives[i]);
        workers_free(workers);
        uint64_t hash = fake_sink.hash;
        uint32_t count = fake_sink.count;
        assert_true(count > 20);
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(entries(path, ORDER_ADDED, i), i >= shared->partitions);
        struct byte_buffer alone = {0};
        for (uint32_t by = 0; by <= 4; by++) {
            struct byte_buffer ended = {0};
            reset_fake_sink();
            replay_by(job, path, by, 1 + by % 2, by == 0 ? &alone : &ended);
            assert_int_equal(fake_sink.count, count);
            assert_true(fake_sink.hash == hash);
            assert_true(by == 0 || (ended.length == alone.length && alone.length > 0 &&
                                    memcmp(ended.data, alone.data, alone.length) == 0));
            buffer_free(&ended);
        }
        buffer_free(&alone);
        unlink(path);
    }
}

/* In the replay, the rows of one batch and one micro-batch may come in more batches than are read ahead. */
static void test_done_again_in_small_batches(void **state)
{
    (void)state;
    enum { ROWS = 200 };
    char path[64];
    new_path(path);
    reset(2);
    struct run_options options = on(2);
    options.record_order = path;
    for (uint32_t i = 0; i < ROWS; i++)
        fake_source.rows[i % 2][fake_source.given[i % 2]++] = (struct fake_source_row){i, 1000 + i / 50, 0};
    struct live *live = begin(JOB(""), &options);
    wait_for(&fake_sink.count, ROWS);
    uint64_t hash = fake_sink.hash;
    end_fake_source();
    end(live);
    for (uint32_t lanes = 1; lanes <= 3; lanes++) {
        reset_fake_sink();
        fake_source.batch_max = lanes;
        options = on(lanes);
        options.order = path;
        end(begin(JOB(""), &options));
        assert_int_equal(fake_sink.count, ROWS);
        assert_true(fake_sink.hash == hash);
    }
    unlink(path);
}

/* A job with checkpoints in a new directory; no rows are given yet. */
struct kept {
    char path[64], text[512];
};

static void keep(struct kept *kept, uint32_t partitions, const char *every, const char *job)
{
    new_directory(kept->path);
    snprintf(kept->text, sizeof(kept->text),
             "job j { checkpoint: { dir: \"%s\", every: %s, min_free: 0B } }\n%s", kept->path, every, job);
    reset(partitions);
}

/* The last rows before a lull are committed, too: a micro-batch without rows is made for the checkpoint. */
static void test_commits_in_a_lull(void **state)
{
    (void)state;
    struct kept kept;
    keep(&kept, 2, "50ms", JOB(""));
    struct run_options options = on(2);
    struct live *live = begin(kept.text, &options);
    for (uint32_t i = 0; i < 3; i++) {
        give(0, i, 1000 + i);
        wait_for(&fake_sink.committed_rows, i + 1);
    }
    uint64_t committed = fake_sink.committed;
    lull(300000);
    assert_int_equal(fake_sink.committed, committed); /* no checkpoint while nothing happens */
    end_fake_source();
    end(live);
    os_remove_tree(kept.path);
}

/* A full sink holds the sources up; if it sends its rows at checkpoints, it gets one soon, long before the
 * next is due. */
static void test_full_sink(void **state)
{
    (void)state;
    struct kept kept;
    keep(&kept, 1, "1h", JOB(""));
    fake_sink.sends_checkpoints = true;
    struct run_options options = on(2);
    struct live *live = begin(kept.text, &options);
    give(0, 0, 1000);
    wait_for(&fake_sink.count, 1);
    atomic_store(&fake_sink.context->is_full, true);
    for (uint32_t i = 1; i <= 10; i++)
        give(0, i, 1000 + i);
    wait_for(&fake_sink.committed_rows, 1);
    lull(100000);
    assert_int_equal(fake_sink_count(&fake_sink.count), 1);
    atomic_store(&fake_sink.context->is_full, false);
    fake_sink.context->wake(fake_sink.context->engine);
    wait_for(&fake_sink.count, 11);
    end_fake_source();
    end(live);
    os_remove_tree(kept.path);
}

/* A resumed run finds the partitions of its checkpoint by name, and adds those that came since. */
static void test_resume(void **state)
{
    (void)state;
    struct kept kept;
    keep(&kept, 2, "50ms", JOB(""));
    struct run_options options = on(2);
    struct live *live = begin(kept.text, &options);
    give(0, 0, 1000);
    give(1, 1, 1001);
    wait_for(&fake_sink.committed_rows, 2);
    run_stop(live->run);
    end(live);
    fake_source.partitions = 3;
    reset_fake_sink();
    fake_source.read[0] = fake_source.read[1] = 77; /* seek must set where to begin */
    live = begin(kept.text, &options);
    give(2, 2, 1002);
    wait_for(&fake_sink.count, 1);
    give(1, 3, 1003);
    wait_for(&fake_sink.count, 2);
    end_fake_source();
    end(live);
    assert_order((const int64_t[]){2, 3}, 2);
    os_remove_tree(kept.path);
}

/* A source may number its partitions differently: each goes on where the one with its name ended. */
static void test_resume_by_name(void **state)
{
    (void)state;
    struct kept kept;
    keep(&kept, 2, "50ms", JOB(""));
    struct run_options options = on(2);
    struct live *live = begin(kept.text, &options);
    for (uint32_t i = 0; i < 3; i++)
        give(0, i, 1000 + i);
    give(1, 3, 1003);
    wait_for(&fake_sink.committed_rows, 4);
    run_stop(live->run);
    end(live);
    fake_source.is_turned = true;
    fake_source.given[0] = fake_source.read[0] = 1;
    fake_source.given[1] = fake_source.read[1] = 3;
    reset_fake_sink();
    live = begin(kept.text, &options);
    give(0, 4, 1004);
    wait_for(&fake_sink.count, 1);
    give(1, 5, 1005);
    wait_for(&fake_sink.count, 2);
    end_fake_source();
    end(live);
    assert_order((const int64_t[]){4, 5}, 2);
    os_remove_tree(kept.path);
}

/* A partition that was idle at the checkpoint is idle after it: the watermark does not wait for it again. */
static void test_resume_idle(void **state)
{
    (void)state;
    struct kept kept;
    char log[64];
    keep(&kept, 2, "30ms", JOB_WATERMARKS(", idle_after: 400ms"));
    new_path(log);
    struct run_options options = on(2);
    options.record_order = log;
    struct live *live = begin(kept.text, &options);
    give(0, 0, 5000);
    wait_for_time(5000); /* the other partition is idle */
    give(0, 1, 6000);
    wait_for(&fake_sink.committed_rows, 2);
    run_stop(live->run);
    end(live);
    reset_fake_sink();
    live = begin(kept.text, &options);
    give(0, 2, 9000);
    wait_for_time(9000);
    give(1, 3, 9500);
    wait_for(&fake_sink.count, 2);
    end_fake_source();
    end(live);
    assert_int_equal(entries(log, ORDER_IDLE, 1), 1); /* by the first life */
    unlink(log);
    os_remove_tree(kept.path);
}

/* Rows that were read as one batch may come in smaller ones after a resume: none of them counts again, also
 * if the next checkpoint is taken while some are still to be skipped. */
static void test_resume_in_smaller_batches(void **state)
{
    (void)state;
    struct kept kept;
    keep(&kept, 1, "30ms", JOB(""));
    struct run_options options = on(2);
    for (uint32_t i = 0; i < 10; i++) /* before the run reads */
        fake_source.rows[0][fake_source.given[0]++] = (struct fake_source_row){i, 1000 + i, 0};
    struct live *live = begin(kept.text, &options);
    wait_for(&fake_sink.committed_rows, 10);
    run_stop(live->run);
    end(live);
    uint32_t lives = 0;
    for (uint32_t given = 0; lives < 3; lives++) {
        reset_fake_sink();
        fake_source.batch_max = 3;
        fake_source.is_late[0] = lives == 0; /* so that the run is stopped while rows are skipped */
        fake_source.given[0] = lives == 0 ? 4 : 10 + given;
        live = begin(kept.text, &options);
        if (lives == 0) {
            wait_until_asked(0, 1);
        } else {
            give(0, 10 + given, 2000 + given);
            wait_for(&fake_sink.count, 1);
            assert_int_equal(fake_sink.ids[0], 10 + given++);
        }
        run_stop(live->run);
        end(live);
        assert_int_equal(fake_sink.count, lives > 0);
    }
    os_remove_tree(kept.path);
}

int main(void)
{
    static struct shared shared[] = {
        {"", 4, 0}, {", align: 1ms", 4, 2000}, {"", 1, 0}, {", align: 1ms", 2, 2000}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on_without_the_quiet),
        cmocka_unit_test(test_waits_for_the_late),
        cmocka_unit_test(test_waits_no_longer_than_told),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_found_while_running),
        cmocka_unit_test(test_done_again_by_the_log),
        cmocka_unit_test_prestate(test_workers_are_done_again, &shared[0]),
        cmocka_unit_test_prestate(test_workers_are_done_again, &shared[1]),
        cmocka_unit_test_prestate(test_workers_are_done_again, &shared[2]),
        cmocka_unit_test_prestate(test_workers_are_done_again, &shared[3]),
        cmocka_unit_test(test_done_again_in_small_batches),
        cmocka_unit_test(test_commits_in_a_lull),
        cmocka_unit_test(test_full_sink),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_resume_by_name),
        cmocka_unit_test(test_resume_idle),
        cmocka_unit_test(test_resume_in_smaller_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
