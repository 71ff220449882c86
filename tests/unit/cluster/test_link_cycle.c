/* Three workers in a circle, with windows and budgets of a frame or so. Each number needs two exchanges of all with all. A frame that
 * has no room waits at its sender, and is tried again when there is room; a receiver gives back each frame as soon as it comes. All
 * numbers come to their end. Credits alone are attacked in test_credits.c, runs in test_worker_cycles.c. */
#include "../support/patience.h"
#include "../support/random.h"
#include "link_rig.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORKERS = 3, STAGES = 2, NUMBERS = 40, SEEDS = 6, AHEAD = 8, BYTES_MAX = 4000 };

/* What a frame begins with. */
struct part {
    uint32_t number, stage;
};

struct cycle {
    struct links *links;
    uint32_t self;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    uint64_t events;
    uint32_t came[NUMBERS + 2][STAGES + 1];
    struct link_frame *spilled[WORKERS]; /* newest first */
    uint32_t spills, ups;
    bool is_done;
    struct test_random random;
};

static struct cycle cycles[WORKERS];

static void wake(struct cycle *cycle)
{
    cycle->events++;
    pthread_cond_signal(&cycle->changed);
}

static void take(void *user, struct link_frame *frame)
{
    struct cycle *cycle = user;
    struct part part;
    memcpy(&part, frame->bytes, sizeof(part));
    int64_t held = link_release(cycle->links, frame);
    leat_assert(held == 0);
    pthread_mutex_lock(&cycle->mutex);
    cycle->came[part.number][part.stage]++;
    wake(cycle);
    pthread_mutex_unlock(&cycle->mutex);
}

static void is_up(void *user, uint32_t other)
{
    struct cycle *cycle = user;
    (void)other;
    pthread_mutex_lock(&cycle->mutex);
    cycle->ups++;
    wake(cycle);
    pthread_mutex_unlock(&cycle->mutex);
}

static void is_gone(void *user, uint32_t other, const char *reason)
{
    (void)user, (void)other, (void)reason;
}

static void has_room(void *user, uint32_t other)
{
    struct cycle *cycle = user;
    (void)other;
    pthread_mutex_lock(&cycle->mutex);
    wake(cycle);
    pthread_mutex_unlock(&cycle->mutex);
}

/* Spills a frame of the stage to each of the others; with the mutex locked. */
static void make_frames(struct cycle *cycle, uint32_t number, uint32_t stage)
{
    const struct part part = {number, stage};
    for (uint32_t to = 0; to < WORKERS; to++) {
        if (to == cycle->self)
            continue;
        uint32_t more = random_below(&cycle->random, BYTES_MAX - sizeof(part) + 1);
        struct link_frame *frame = link_frame_new(sizeof(part) + more);
        memset(frame->bytes, 0, frame->length);
        memcpy(frame->bytes, &part, sizeof(part));
        frame->next = cycle->spilled[to];
        cycle->spilled[to] = frame;
    }
}

/* Tries to send all that is spilled; with the mutex locked. false: some of it had no room. */
static bool send_spilled(struct cycle *cycle)
{
    uint32_t before = cycle->spills;
    for (uint32_t to = 0; to < WORKERS; to++)
        for (struct link_frame **at = &cycle->spilled[to]; *at != NULL;) {
            struct link_frame *frame = *at, *next = frame->next;
            enum link_sent sent = link_send(cycle->links, to, frame);
            if (sent == LINK_SENT)
                *at = next;
            else {
                cycle->spills++;
                at = &frame->next;
            }
        }
    return cycle->spills == before;
}

/* A worker: up to AHEAD numbers at once, each of which has two stages. It ends when all numbers are finished and sent. */
static void *work(void *argument)
{
    struct cycle *cycle = argument;
    uint32_t begun = 1, staged = 1, finished = 1; /* behind the last one */
    pthread_mutex_lock(&cycle->mutex);
    while (cycle->ups < WORKERS - 1)
        pthread_cond_wait(&cycle->changed, &cycle->mutex);
    for (bool is_sent = true; finished <= NUMBERS || !is_sent;) {
        uint64_t seen = cycle->events;
        for (; begun <= NUMBERS && begun < finished + AHEAD; begun++)
            make_frames(cycle, begun, 1);
        for (; staged < begun && cycle->came[staged][1] == WORKERS - 1; staged++)
            make_frames(cycle, staged, 2);
        while (finished < staged && cycle->came[finished][2] == WORKERS - 1)
            finished++;
        is_sent = send_spilled(cycle);
        bool may_begin = begun <= NUMBERS && begun < finished + AHEAD;
        while (!may_begin && (finished <= NUMBERS || !is_sent) && cycle->events == seen)
            pthread_cond_wait(&cycle->changed, &cycle->mutex);
    }
    cycle->is_done = true;
    pthread_mutex_unlock(&cycle->mutex);
    return NULL;
}

static bool is_done(struct cycle *cycle)
{
    pthread_mutex_lock(&cycle->mutex);
    bool is_done = cycle->is_done;
    pthread_mutex_unlock(&cycle->mutex);
    return is_done;
}

static void start_cycle(struct cycle *cycle, uint32_t self, uint64_t seed)
{
    struct links_options options = rig_options(self);
    struct diag_list none = {0};
    memset(cycle, 0, sizeof(*cycle));
    cycle->self = self;
    cycle->random.state = seed * WORKERS + self;
    pthread_mutex_init(&cycle->mutex, NULL);
    pthread_cond_init(&cycle->changed, NULL);
    options.window_bytes = BYTES_MAX + random_below(&cycle->random, 4000);
    options.retained_bytes = BYTES_MAX + random_below(&cycle->random, 4000);
    options.calls = (struct link_calls){take, is_up, is_gone, has_room};
    options.user = cycle;
    cycle->links = links_new(&options, &none);
    assert_non_null(cycle->links);
}

static void stop_cycle(struct cycle *cycle)
{
    links_free(cycle->links);
    pthread_cond_destroy(&cycle->changed);
    pthread_mutex_destroy(&cycle->mutex);
}

static void test_cycle(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        pthread_t threads[WORKERS];
        uint32_t spills = 0;
        for (uint32_t i = 0; i < WORKERS; i++)
            start_cycle(&cycles[i], i, seed);
        for (uint32_t i = 0; i < WORKERS; i++)
            for (uint32_t k = 0; k < WORKERS; k++) {
                char address[64];
                struct diag_list none = {0};
                snprintf(address, sizeof(address), "127.0.0.1:%u", links_port(cycles[k].links));
                if (i != k)
                    assert_true(link_to(cycles[i].links, k, address, &none));
            }
        for (uint32_t i = 0; i < WORKERS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, work, &cycles[i]), 0);
        for (uint32_t i = 0; i < WORKERS; i++) {
            for (int64_t since = 0; !is_done(&cycles[i]);)
                wait_more(&since);
            pthread_join(threads[i], NULL);
        }
        for (uint32_t i = 0; i < WORKERS; i++) {
            spills += cycles[i].spills;
            stop_cycle(&cycles[i]);
        }
        print_message("seed %llu: %u refusals\n", (unsigned long long)seed, spills);
        assert_true(spills > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cycle)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
