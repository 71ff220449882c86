/* Wrong messages about checkpoints of several workers, and about what holds at them: a worker takes none that the job cannot have then. The runs do not start, so what
 * a worker has done of a checkpoint is set here. */
#include "workers.h"

#include "core/os.h"
#include "run/base/peers.h"
#include "run/checkpoints/internal.h"
#include "run/sequencer/peers_internal.h"
#include "unit/support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { WITHDRAWN, ABANDONED, HEAD, IN_DOUBT }; /* of PEER_HEAD */
enum { LEADER, OTHER, ANOTHER, WORKERS };

static const char job[] = "job j { checkpoint: { dir: \"alone\" } }\n"
                          "source a = sequence { count: 10, event_time: ts }\nsink a = null from a\n";

/* Gives the run a message of so many words, the first one its tag. */
static bool take(struct run *run, uint32_t from, size_t count, const uint64_t *words)
{
    return run_receive(run, from, (struct str){(const char *)words, count * sizeof(*words)});
}
#define TAKE(run, from, ...)                                                                                 \
    take(run, from, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (uint64_t[]){__VA_ARGS__})

static void follow(struct run *run)
{
    struct many *many = run->checkpoints->many;
    struct barrier *b = run->barrier;
    static const uint64_t epochs[] = {0, (uint64_t)INT64_MAX + 1, UINT64_MAX};
    for (size_t i = 0; i < ARRAY_COUNT(epochs); i++)
        assert_false(TAKE(run, LEADER, PEER_BEGIN, epochs[i], 1));
    assert_false(TAKE(run, LEADER, PEER_BEGIN));
    assert_false(TAKE(run, LEADER, PEER_BEGIN, 1)); /* at no time */
    assert_false(TAKE(run, LEADER, PEER_BEGIN, 1, 0));
    assert_false(TAKE(run, LEADER, PEER_HEAD, 1, ABANDONED)); /* none has begun */
    assert_false(TAKE(run, ANOTHER, PEER_BEGIN, 1, 1));       /* who does not lead */
    assert_true(TAKE(run, LEADER, PEER_BEGIN, 1, 1));
    assert_false(TAKE(run, LEADER, PEER_BEGIN, 2, 1)); /* the first one is not decided upon */
    assert_false(TAKE(run, LEADER, PEER_ASK));
    assert_false(TAKE(run, LEADER, PEER_READY, 1, 1));
    assert_false(TAKE(run, LEADER, PEER_PART, 1, 0));
    assert_false(TAKE(run, LEADER, PEER_HEAD, 1));
    assert_false(TAKE(run, LEADER, PEER_HEAD, 2, ABANDONED));
    assert_false(TAKE(run, LEADER, PEER_HEAD, 1, IN_DOUBT + 1));
    assert_false(TAKE(run, ANOTHER, PEER_HEAD, 1, ABANDONED));
    assert_false(TAKE(run, LEADER, PEER_HEAD, 1, HEAD)); /* without this worker's part */
    assert_false(TAKE(run, LEADER, PEER_HEAD, 1, IN_DOUBT));
    assert_true(TAKE(run, LEADER, PEER_HEAD, 1, WITHDRAWN));
    assert_int_equal(many->withdrawn, 1);
    assert_false(TAKE(run, LEADER, PEER_HEAD, 1, ABANDONED)); /* once more */
    assert_true(TAKE(run, LEADER, PEER_BEGIN, 2, 1));
    b->epoch = 2;
    for (enum barrier_state state = BARRIER_RUNNING; state <= BARRIER_WRITING; state++) {
        b->state = state;
        assert_false(TAKE(run, LEADER, PEER_HEAD, 2, WITHDRAWN)); /* a micro-batch has the barrier */
    }
    many->written = 2;
    assert_true(TAKE(run, LEADER, PEER_HEAD, 2, HEAD));
    assert_int_equal(many->head, 2);
    assert_false(TAKE(run, LEADER, PEER_BEGIN, 2, 1));
    assert_true(TAKE(run, LEADER, PEER_BEGIN, 3, 1));
    many->written = b->epoch = 3;
    assert_true(TAKE(run, LEADER, PEER_HEAD, 3, IN_DOUBT));
    assert_true(many->abandoned < 3 && !b->has_failed); /* the part may be one of the head */
    assert_true(TAKE(run, LEADER, PEER_BEGIN, 4, 1));
    many->written = b->epoch = 4;
    assert_true(TAKE(run, LEADER, PEER_HEAD, 4, ABANDONED));
    assert_true(many->abandoned == 4 && many->head == 2 && b->has_failed);
    b->has_failed = false;
    assert_true(TAKE(run, LEADER, PEER_BEGIN, INT64_MAX, 1));
    b->state = BARRIER_IDLE;
}

/* Says the part of epoch 5 for a worker. */
static bool take_part(struct run *run, uint32_t from, uint64_t generation, size_t digest_bytes,
                      struct str directory)
{
    static const char digest[2 * CHECKPOINT_DIGEST_BYTES];
    struct byte_buffer message = {0};
    peers_begin(&message, PEER_PART);
    words_put(&message, 5);
    words_put(&message, true);
    words_put(&message, generation);
    words_put(&message, 1000); /* bytes */
    words_put_text(&message, (struct str){digest, digest_bytes});
    words_put_text(&message, directory);
    bool is_good = run_receive(run, from, (struct str){message.data, message.length});
    for (message.length--; is_good && message.length > 0; message.length--) /* now it has been said */
        assert_false(run_receive(run, from, (struct str){message.data, message.length}));
    buffer_free(&message);
    return is_good;
}

static void lead(struct run *run)
{
    enum { GENERATION = 3, BYTES = CHECKPOINT_DIGEST_BYTES };
    static char path[CHECKPOINT_PATH_BYTES / 2];
    struct many *many = run->checkpoints->many;
    const struct str good = STR("many/1");
    memset(path, 'a', sizeof(path));
    many->refuser = RUN_WORKERS_MAX;
    assert_false(TAKE(run, OTHER, PEER_ASK, 1));
    assert_false(run->barrier->is_wanted);
    assert_true(TAKE(run, OTHER, PEER_ASK));
    assert_true(run->barrier->is_wanted);
    assert_false(TAKE(run, OTHER, PEER_BEGIN, 1, 1));
    assert_false(TAKE(run, OTHER, PEER_HEAD, 1, ABANDONED));
    assert_false(TAKE(run, OTHER, PEER_READY, 0, 1)); /* none is in work */
    assert_false(TAKE(run, OTHER, PEER_READY, 1, 1));
    many->epoch = 5;
    assert_true(TAKE(run, OTHER, PEER_READY, 4, 1)); /* late, and it counts for nothing */
    assert_false(TAKE(run, OTHER, PEER_READY, 6, 1));
    assert_false(TAKE(run, OTHER, PEER_READY, 5));
    assert_false(take_part(run, OTHER, GENERATION, BYTES, good)); /* not before the barrier */
    assert_int_equal(many->answers, 0);
    assert_true(TAKE(run, OTHER, PEER_READY, 5, 1));
    assert_false(TAKE(run, OTHER, PEER_READY, 5, 1)); /* once more */
    assert_int_equal(many->answers, 1);
    memset(many->has_answered, 0, sizeof(many->has_answered));
    many->awaits_parts = true;
    assert_false(TAKE(run, OTHER, PEER_READY, 5, 1));
    assert_false(TAKE(run, OTHER, PEER_PART, 5, 1));
    assert_false(take_part(run, OTHER, 0, BYTES, good));
    assert_false(take_part(run, OTHER, GENERATION + 1, BYTES, good));
    assert_false(take_part(run, OTHER, GENERATION + (1ULL << 32), BYTES, good));
    assert_false(take_part(run, OTHER, GENERATION, BYTES - 1, good));
    assert_false(take_part(run, OTHER, GENERATION, 2 * BYTES, good));
    assert_false(take_part(run, OTHER, GENERATION, BYTES, STR("")));
    assert_false(take_part(run, OTHER, GENERATION, BYTES, (struct str){"a\0b", 3}));
    assert_false(take_part(run, OTHER, GENERATION, BYTES, (struct str){path, sizeof(path)}));
    assert_int_equal(many->answers, 1);
    assert_true(take_part(run, OTHER, GENERATION, BYTES, good));
    assert_false(take_part(run, OTHER, GENERATION, BYTES, good));
    assert_int_equal(many->refuser, RUN_WORKERS_MAX);
    assert_true(TAKE(run, ANOTHER, PEER_PART, 5, 0));
    assert_int_equal(many->refuser, ANOTHER);
}

static void test_others(void **state)
{
    (void)state;
    workers_look(job, WORKERS, OTHER, &(struct way){.folder = "many", .incarnation = 3}, follow);
    assert_int_equal(os_remove_tree("many"), 0);
}

static void test_leader(void **state)
{
    (void)state;
    workers_look(job, WORKERS, LEADER, &(struct way){.folder = "many", .incarnation = 3}, lead);
    assert_int_equal(os_remove_tree("many"), 0);
}

static void without(struct run *run)
{
    for (uint64_t tag = PEER_ASK; tag <= PEER_HEAD; tag++)
        assert_false(TAKE(run, LEADER, tag, 1, 1));
    assert_false(TAKE(run, LEADER, PEER_HOLD, HOLD_STATE));
    assert_false(TAKE(run, LEADER, PEER_HOLD, HOLD_DISK));
}

/* What `from` says that holds is the reason for which lanes wait here; it is said once, and taken back once. */
static void hold_for(struct run *run, uint32_t from, uint64_t holds, enum run_lane_time why)
{
    assert_true(TAKE(run, from, PEER_HOLD, holds));
    assert_false(sequencer_form(run));
    assert_int_equal(sequencer_held(run), why);
    assert_false(TAKE(run, from, PEER_HOLD, holds));
    assert_true(TAKE(run, from, PEER_HOLD, 0));
    assert_false(sequencer_form(run));
    assert_int_equal(sequencer_held(run), RUN_LANE_WAITS);
    assert_false(TAKE(run, from, PEER_HOLD, 0));
}

/* The sink is at OTHER. */
static void hold_of(struct run *run, uint32_t from)
{
    static const uint64_t never[] = {HOLD_STORE, HOLD_SENDERS, HOLD_ALL + 1, UINT64_MAX,
                                     1ULL << 32 | HOLD_STATE};
    for (size_t i = 0; i < ARRAY_COUNT(never); i++)
        assert_false(TAKE(run, from, PEER_HOLD, never[i]));
    assert_false(TAKE(run, from, PEER_HOLD));
    assert_false(TAKE(run, from, PEER_HOLD, HOLD_STATE, 0));
    hold_for(run, from, HOLD_STATE, RUN_LANE_BEHIND_CHECKPOINT);
    hold_for(run, from, HOLD_STATE | HOLD_DISK, RUN_LANE_BEHIND_CHECKPOINT);
    hold_for(run, from, HOLD_DISK, RUN_LANE_BEHIND_DISK);
    if (from == LEADER)
        hold_for(run, from, HOLD_ORDER, RUN_LANE_BEHIND_ORDER);
    else
        assert_false(TAKE(run, from, PEER_HOLD, HOLD_ORDER));
    if (from == OTHER)
        hold_for(run, from, HOLD_SINKS, RUN_LANE_BEHIND_SINKS);
    else
        assert_false(TAKE(run, from, PEER_HOLD, HOLD_SINKS));
}

static void hold(struct run *run)
{
    uint32_t self = run->options.peers->self, one = self == LEADER ? OTHER : LEADER;
    for (uint32_t from = LEADER; from < WORKERS; from++)
        if (from != self)
            hold_of(run, from);
    /* Two hold: each says for itself that it does not any more. */
    assert_true(TAKE(run, one, PEER_HOLD, HOLD_DISK));
    assert_true(TAKE(run, ANOTHER, PEER_HOLD, HOLD_DISK));
    assert_true(TAKE(run, one, PEER_HOLD, 0));
    assert_false(sequencer_form(run));
    assert_int_equal(sequencer_held(run), RUN_LANE_BEHIND_DISK);
    /* At a stop, space on a disk does not count, but state that waits for a checkpoint does. */
    run_stop(run);
    (void)sequencer_form(run);
    assert_int_equal(sequencer_held(run), self == LEADER ? RUN_LANE_WAITS : RUN_LANE_BEHIND_DISK);
    assert_true(TAKE(run, one, PEER_HOLD, HOLD_STATE));
    assert_false(sequencer_form(run));
    assert_int_equal(sequencer_held(run), RUN_LANE_BEHIND_CHECKPOINT);
}

static void test_holds(void **state)
{
    (void)state;
    for (uint32_t self = LEADER; self < ANOTHER; self++)
        workers_look(job, WORKERS, self, &(struct way){.folder = "many", .incarnation = 3 + self}, hold);
    assert_int_equal(os_remove_tree("many"), 0);
}

/* A worker whose disk has too little space holds. */
static void fill_disk(struct run *run)
{
    struct plan *plan = (struct plan *)(uintptr_t)run->plan;
    plan->config.checkpoint.free_bytes = INT64_MAX;
    assert_false(sequencer_form(run));
    assert_int_equal(sequencer_held(run), RUN_LANE_BEHIND_DISK);
    assert_int_equal(run->sequencer->peers->own_holds, HOLD_DISK);
}

static void test_disk(void **state)
{
    (void)state;
    workers_look(job, WORKERS, OTHER, &(struct way){.folder = "many", .incarnation = 3}, fill_disk);
    assert_int_equal(os_remove_tree("many"), 0);
}

/* A job that takes no checkpoints has no such messages. */
static void test_without(void **state)
{
    (void)state;
    workers_look(strchr(job, '\n') + 1, WORKERS, OTHER, &(struct way){0}, without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_others), cmocka_unit_test(test_leader),
                                       cmocka_unit_test(test_holds), cmocka_unit_test(test_disk),
                                       cmocka_unit_test(test_without)};
    char folder[TEMPORARY_PATH_BYTES];
    temporary_make(folder);
    if (chdir(folder) != 0)
        return 2;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return chdir("/") != 0 || rmdir(folder) != 0 ? 2 : failed;
}
