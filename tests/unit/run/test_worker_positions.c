/* Positions of partitions that several workers read, in checkpoints of all. */
#include "live_rig.h"
#include "workers.h"

#include "run/base/barrier.h"

#include <stdio.h>
#include <stdlib.h>

enum { WORKERS = 2, LEADER = 1 };

static struct {
    pthread_mutex_t mutex;
    struct run *leader;
    int64_t next
        [PARTITIONS]; /* of the newest checkpoint, by the number in the partition's name; 0: it has none */
} heads = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Implements run_peers.publish: notes the positions, as they are shown to people. */
static bool note_positions(void *engine, uint64_t epoch, struct str manifest)
{
    struct byte_buffer shown = {0};
    const struct byte_buffer *positions = &heads.leader->barrier->positions;
    (void)engine, (void)epoch, (void)manifest;
    run_describe_positions((struct str){positions->data, positions->length}, &shown);
    buffer_append(&shown, "", 1);
    pthread_mutex_lock(&heads.mutex);
    const char *at = shown.data;
    for (unsigned p; (at = strstr(at, "next offset ")) != NULL; at++) {
        long long offset;
        if (sscanf(at, "next offset %lld  watermark %*s  fake_source/%u", &offset, &p) == 2)
            heads.next[p] = offset;
    }
    pthread_mutex_unlock(&heads.mutex);
    buffer_free(&shown);
    return true;
}

/* Asks for checkpoints until one says that the partition goes on there. */
static void await_position(uint32_t partition, int64_t offset)
{
    int64_t next = 0;
    for (int64_t since = 0; next != offset; wait_more(&since)) {
        run_checkpoint(heads.leader);
        pthread_mutex_lock(&heads.mutex);
        next = heads.next[partition];
        pthread_mutex_unlock(&heads.mutex);
    }
}

/* Begins the job on so many workers, of which the last one leads, and has the sink. */
static void begin_workers(struct workers *workers, const char *path, struct live **lives, struct run **runs)
{
    static struct run_peers peers[WORKERS];
    static char directories[WORKERS][80];
    static char text[256];
    snprintf(text, sizeof(text),
             "job j { checkpoint: { dir: \"%s\", every: 1h, min_free: 0B } }\n"
             "source s = fake_source { event_time: ts }\nsink out = fake_sink from s {}\n",
             path);
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct run_options options = on(1);
        snprintf(directories[i], sizeof(directories[i]), "%s/%u", path, i);
        peers[i] = *workers_peers(workers, i);
        peers[i].directory = directories[i];
        peers[i].incarnation = 1;
        peers[i].publish = note_positions;
        options.peers = &peers[i];
        lives[i] = begin(text, &options);
        runs[i] = lives[i]->run;
    }
    heads.leader = runs[LEADER];
    workers_begin(workers, runs);
}

/* Of each worker, the position of a partition rises without records: a checkpoint has it, also where no rows come. */
static void test_workers_rise(void **state)
{
    enum { END = 1000, ROUNDS = 3 };
    char path[64];
    struct live *lives[WORKERS];
    struct run *runs[WORKERS];
    struct workers *workers = workers_new(WORKERS, LEADER);
    (void)state;
    new_directory(path);
    reset(WORKERS);
    begin_workers(workers, path, lives, runs);
    for (uint32_t p = 0; p < WORKERS; p++)
        give(p, p, 1000000);
    for (uint32_t p = 0; p < WORKERS; p++)
        await_position(p, 1);
    for (uint32_t round = 1; round <= ROUNDS; round++)
        for (uint32_t p = 0; p < WORKERS; p++) {
            pthread_mutex_lock(&fake_source.mutex);
            fake_source.ends[p] = END * round;
            pthread_mutex_unlock(&fake_source.mutex);
            await_position(p, END * round);
        }
    end_fake_source();
    for (uint32_t i = 0; i < WORKERS; i++)
        assert_true(run_wait(runs[i]));
    workers_end(workers);
    for (uint32_t i = 0; i < WORKERS; i++) {
        run_free(runs[i]);
        arena_free(&lives[i]->arena);
        free(lives[i]);
    }
    workers_free(workers);
    assert_int_equal(os_remove_tree(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_workers_rise)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
