/* Several workers read a live source that gets partitions while they take checkpoints. */
#include "live_rig.h"
#include "workers.h"

#include "core/os.h"

#include <stdio.h>

static struct byte_buffer newest; /* manifest of the newest checkpoint of several workers */

static bool publish(void *engine, uint64_t epoch, struct str manifest)
{
    (void)engine, (void)epoch;
    buffer_clear(&newest);
    buffer_append(&newest, manifest.data, manifest.length);
    return true;
}

/* A life of two workers, fed by the leader's side. */
static void live_with_checkpoints(const char *text, const char *path, uint32_t incarnation, struct str head,
                                  void (*feed)(struct run *leader))
{
    enum { WORKERS = 2 };
    struct workers *workers =
        workers_new(WORKERS, 1); /* its leader, 1, has the sink, which wants the order log */
    struct run_peers peers[WORKERS];
    struct live *lives[WORKERS];
    struct run *runs[WORKERS];
    char directories[WORKERS][96];
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct run_options options = on(2);
        snprintf(directories[i], sizeof(directories[i]), "%s/%u", path, i);
        peers[i] = *workers_peers(workers, i);
        peers[i].directory = directories[i];
        peers[i].incarnation = incarnation;
        peers[i].publish = publish;
        options.peers = &peers[i];
        options.head = head;
        lives[i] = prepare(text, &options);
        runs[i] = lives[i]->run;
    }
    workers_begin(workers, runs);
    for (uint32_t i = 0; i < WORKERS; i++) /* all have set where to read */
        assert_true(run_start(runs[i]));
    feed(runs[1]);
    for (uint32_t i = 0; i < WORKERS; i++)
        assert_true(run_wait(runs[i]));
    workers_end(workers);
    for (uint32_t i = 0; i < WORKERS; i++)
        end(lives[i]);
    workers_free(workers);
}

/* Partitions come while rows do, and checkpoints are taken. */
static void feed_and_stop(struct run *leader)
{
    for (int64_t i = 0; i < 300; i++) {
        give((uint32_t)i % fake_source.partitions, i, 1000000 + 700 * i);
        run_checkpoint(leader);
        pthread_mutex_lock(&fake_source.mutex);
        fake_source.partitions = MIN(fake_source.partitions + (i % 60 == 53), 4);
        pthread_mutex_unlock(&fake_source.mutex);
        if (i % 10 == 9)
            lull(2000);
    }
    wait_until_read();
    run_stop(leader);
}

static void feed_and_end(struct run *leader)
{
    (void)leader;
    for (int64_t i = 300; i < 400; i++)
        give((uint32_t)i % 4, i, 1000000 + 700 * i);
    wait_until_read();
    end_fake_source();
}

/* Positions of a checkpoint have what was found before its barrier, and the next life finds the rest. */
static void test_found_between_checkpoints(void **state)
{
    enum { ROUNDS = 8 }; /* a partition is seldom found while a barrier is on its way */
    (void)state;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        char path[64], text[256];
        bool is_there[400] = {false};
        new_directory(path);
        snprintf(text, sizeof(text),
                 "job j { checkpoint: { dir: \"%s\", every: 1h, min_free: 0B } }\n"
                 "source s = fake_source { event_time: ts }\nsink out = fake_sink from s {}\n",
                 path);
        reset(1);
        live_with_checkpoints(text, path, 1, (struct str){0}, feed_and_stop);
        struct byte_buffer head = newest;
        newest = (struct byte_buffer){0};
        forget_reading();
        live_with_checkpoints(text, path, 2, (struct str){head.data, head.length}, feed_and_end);
        assert_int_equal(fake_sink.count, ARRAY_COUNT(is_there));
        for (uint32_t i = 0; i < fake_sink.count; i++) {
            assert_false(is_there[fake_sink.ids[i]]);
            is_there[fake_sink.ids[i]] = true;
        }
        buffer_free(&head);
        buffer_free(&newest);
        newest = (struct byte_buffer){0};
        os_remove_tree(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_found_between_checkpoints)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
