/* What holds back the sources at a worker that does not lead: a full sink, also one that sends only what a checkpoint has, and evictions
 * that wait for a checkpoint. The leader forms no more micro-batches than are under way, all workers name the cause, and the job goes on
 * when the hold ends. And checkpoints that a worker asks for while the leader still writes one. */
#include "later.h"
#include "workers.h"

#include "core/mem.h"
#include "core/os.h"
#include "core/snapshot.h"
#include "run/base/barrier.h"
#include "run/base/peers.h"
#include "run/sequencer/sequencer.h"
#include "state/store.h"
#include "unit/support/patience.h"

#include <stdlib.h>

enum { ROWS = 12000, CUT = 25 /* rows of a micro-batch */, CUP_ROWS = 2000 };

#define STREAMS                                                                                              \
    "source a = sequence { count: 12000, keys: 50, rate: 900, event_time: ts }\n"                            \
    "stream f = a | feature by key over 1h { n: count() }\n"                                                 \
    "stream g = f | gate\n"                                                                                  \
    "sink c = cup from g\n"

static const char job[] = STREAMS;
static const char job_with_checkpoints[] =
    "job j { checkpoint: { dir: \"alone\", every: 1h, min_free: 0B } }\n" STREAMS;

/* Of so many workers, of which each has so many lanes, and so the first or the last one leads: whether the sink is the leader's. */
static const struct size {
    uint32_t workers, lanes;
    bool is_at_leader;
} sizes[] = {{2, 1, false}, {2, 2, true}, {3, 1, false}, {3, 2, true}};

/* --- The sink `cup`: is full when it has CUP_ROWS rows, and is emptied by the test, or by a checkpoint --- */

static struct {
    bool sends_checkpoints;
    _Atomic bool is_bottomless, is_shut; /* is_shut: a write waits */
    unsigned pause_us, commit_us;        /* that a write takes, and `committed` */
    _Atomic uint64_t rows, held, held_most, snapshots, emptied,
        filled_at;    /* filled_at: micro-batch; 0: it was not */
    uint64_t removed; /* rows that were taken out */
    struct sink_context *context;
} cup;

static bool cup_open(struct sink_context *context)
{
    cup.context = context;
    context->sends_checkpoints = cup.sends_checkpoints;
    return true;
}

static bool cup_write(struct sink_context *context, const struct batch *batch)
{
    cup.rows += batch->selected;
    uint64_t held = atomic_fetch_add(&cup.held, batch->selected) + batch->selected;
    cup.held_most = MAX(cup.held_most, held);
    if (held >= CUP_ROWS && !cup.is_bottomless && !atomic_exchange(&context->is_full, true))
        cup.filled_at = context->micro_batch;
    context->counters.absorbed += batch->selected;
    usleep(cup.pause_us);
    while (cup.is_shut)
        usleep(200);
    return true;
}

static void cup_empty(uint64_t rows)
{
    uint64_t held = atomic_fetch_sub(&cup.held, rows) - rows;
    cup.emptied++;
    atomic_store(&cup.context->is_full, held >= CUP_ROWS);
    cup.context->wake(cup.context->engine);
}

static bool cup_snapshot(struct sink_context *context LEAT_UNUSED, struct snapshot_writer *writer)
{
    cup.snapshots = cup.rows;
    return snapshot_put(writer, SNAPSHOT_GLOBAL, "cup", 3);
}

static bool cup_committed(struct sink_context *context LEAT_UNUSED, uint64_t epoch LEAT_UNUSED,
                          struct str order LEAT_UNUSED)
{
    usleep(cup.commit_us);
    if (cup.sends_checkpoints)
        cup_empty(cup.snapshots - cup.removed);
    cup.removed = cup.snapshots;
    return true;
}

static const struct option cup_options[] = {OPTIONS_END};

static const struct sink_kind sink_cup = {.name = "cup",
                                          .options = cup_options,
                                          .size = 1,
                                          .open = cup_open,
                                          .write = cup_write,
                                          .snapshot = cup_snapshot,
                                          .committed = cup_committed};

static const struct registry *registry_with_cup(void)
{
    static const struct sink_kind *const sinks[] = {&sink_cup, NULL};
    static struct registry registry;
    registry = *registry_with(&operator_gate);
    registry.sinks = sinks;
    return &registry;
}

/* --- Runs --- */

static uint32_t leader_of(struct run **runs)
{
    return runs[0]->options.peers->leader;
}

static uint32_t worker_with_cup(struct run **runs)
{
    uint32_t worker = 0;
    while (runs[worker]->sinks_count == 0)
        worker++;
    return worker;
}

/* Waits until all workers wait for that reason, before the job ends. */
static void await_held(struct run **runs, uint32_t count, enum run_lane_time why)
{
    uint32_t held = 0;
    for (int64_t since = 0; held < count; wait_more(&since)) {
        assert_false(run_has_ended(runs[leader_of(runs)]));
        for (held = 0; held < count && sequencer_held(runs[held]) == why;)
            held++;
    }
}

static uint64_t time_of(struct run *run, enum run_lane_time why)
{
    struct run_times *times = run_times_new(run);
    run_times(run, times);
    uint64_t ns = times->lanes[0].ns[why];
    run_times_free(times);
    return ns;
}

/* Waits until the first lane of each worker has waited for that reason for a while longer. */
static void await_time(struct run **runs, uint32_t count, enum run_lane_time why)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t began = time_of(runs[i], why);
        for (int64_t since = 0; time_of(runs[i], why) < began + 50000000; wait_more(&since)) {
            assert_false(run_has_ended(runs[i]));
        }
    }
}

/* What was under way comes to an end, and then no micro-batch comes any more; the time of lanes is named. */
static void stands(struct run **runs, uint32_t count, enum run_lane_time why)
{
    await_time(runs, count, why);
    uint64_t formed = sequencer_formed(runs[leader_of(runs)]);
    await_time(runs, count, why);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(sequencer_formed(runs[i]), formed);
}

static bool expects_leader;

static void hold_by_sink(struct run **runs, uint32_t count)
{
    assert_int_equal(worker_with_cup(runs) == leader_of(runs), expects_leader);
    await_held(runs, count, RUN_LANE_BEHIND_SINKS);
    stands(runs, count, RUN_LANE_BEHIND_SINKS);
    assert_true(cup.filled_at > 0);
    assert_true(sequencer_formed(runs[leader_of(runs)]) <= cup.filled_at + 2 * SLOTS);
    cup.is_bottomless = true;
    cup_empty(cup.held);
}

/* Runs the job on so many workers. */
static void run_job(const char *text, const struct size *size, struct way *way)
{
    struct outcome outcome;
    way->registry = registry_with_cup();
    way->incarnation = 1;
    expects_leader = size->is_at_leader;
    workers_run(text, size->workers, size->lanes, way, &outcome);
    assert_true(outcome.is_finished);
    assert_int_equal(cup.rows, ROWS);
}

/* As the environment says. */
static void set_knobs(void)
{
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    assert_true(failpoints_init(&diags));
    arena_free(&arena);
}

static void begin(void)
{
    memset(&cup, 0, sizeof(cup));
}

static void test_full_sink(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        begin();
        run_job(job, &sizes[i], &(struct way){.meanwhile = hold_by_sink});
    }
}

static void wait_for_end(struct run **runs, uint32_t count LEAT_UNUSED)
{
    for (int64_t since = 0; !run_has_ended(runs[leader_of(runs)]); wait_more(&since)) {
    }
}

/* No checkpoint is due within an hour: each is taken because the sink is full. */
static void test_sender(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        struct heads heads = {0};
        begin();
        cup.sends_checkpoints = true;
        run_job(job_with_checkpoints, &sizes[i],
                &(struct way){.meanwhile = wait_for_end, .folder = "many", .heads = &heads});
        assert_true(heads.published > ROWS / (CUP_ROWS + 2 * SLOTS * CUT) && cup.emptied == heads.published);
        assert_true(cup.held_most <= CUP_ROWS + 2 * SLOTS * CUT);
        buffer_free(&heads.last);
        assert_int_equal(os_remove_tree("many"), 0);
    }
}

static struct heads *heads_now;

static void hold_by_state(struct run **runs, uint32_t count)
{
    uint32_t pressed = expects_leader ? leader_of(runs) : (leader_of(runs) + 1) % count;
    enum { PRESSURE = 1 << 30 };
    atomic_store(&heads_now->is_late, true);
    run_checkpoint(runs[leader_of(runs)]);
    for (int64_t since = 0; !atomic_load(&heads_now->has_come); wait_more(&since)) {
        assert_false(run_has_ended(runs[leader_of(runs)]));
    }
    store_add_pressure(runs[pressed]->stores.items[0], PRESSURE);
    await_held(runs, count, RUN_LANE_BEHIND_CHECKPOINT);
    stands(runs, count, RUN_LANE_BEHIND_CHECKPOINT);
    atomic_store(&heads_now->is_late, false);
    wait_for_end(runs, count);
    store_add_pressure(runs[pressed]->stores.items[0], -PRESSURE);
}

static void test_pressed(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        struct heads heads = {0};
        begin();
        heads_now = &heads;
        cup.is_bottomless = true;
        cup.pause_us = 1000;
        run_job(job_with_checkpoints, &sizes[i],
                &(struct way){.meanwhile = hold_by_state, .folder = "many", .heads = &heads});
        buffer_free(&heads.last);
        assert_int_equal(os_remove_tree("many"), 0);
    }
}

enum { HEADS = 3 };

static void ask_again(struct run **runs, uint32_t count)
{
    uint32_t asks = (leader_of(runs) + 1) % count;
    for (int64_t since = 0; heads_now->published < HEADS; wait_more(&since)) {
        assert_true(!run_has_ended(runs[asks]) || heads_now->published >= HEADS);
        run_checkpoint(runs[asks]);
    }
}

/* The leader's sinks take long, when the others are through with the checkpoint and one asks for the next. */
static void test_asks(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        struct heads heads = {0};
        if (!sizes[i].is_at_leader)
            continue;
        begin();
        heads_now = &heads;
        cup.is_bottomless = true;
        cup.commit_us = 50000;
        run_job(job_with_checkpoints, &sizes[i],
                &(struct way){.meanwhile = ask_again, .folder = "many", .heads = &heads, .waits_for = HEADS});
        buffer_free(&heads.last);
        assert_int_equal(os_remove_tree("many"), 0);
    }
}

/* --- A slow reader --- */

#define PAD                                                                                                  \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"

static const char job_of_wide_rows[] =
    "job j { memory: 32MiB }\n"
    "source a = sequence { count: 100000, keys: 5000, rate: 900, event_time: ts }\n"
    "stream f = a | feature by key over 1h { n: count() } | with pad = \"" PAD PAD PAD "\"\n"
    "sink c = cup from f\n";

/* Whether the other workers have run the first SLOTS micro-batches, so that all their rows for this one have come. */
static bool have_come(const struct run *run)
{
    if (sequencer_formed(run) < SLOTS)
        return false;
    for (uint32_t stage = 0; stage + 1 < run->plan->stages_count; stage++)
        for (uint64_t n = 0; n < SLOTS; n++)
            if (!peers_others_have_done(run, stage, n))
                return false;
    return true;
}

/* The sink takes no rows, until as many have come as may be under way: what waits for it stays within the budget. */
static void read_slowly(struct run **runs, uint32_t count)
{
    const struct run *run = runs[worker_with_cup(runs)];
    for (int64_t since = 0; !have_come(run); wait_more(&since)) {
        assert_false(run_has_failed(runs[leader_of(runs)]));
    }
    await_held(runs, count, RUN_LANE_BEHIND_NODES);
    assert_int_equal(sequencer_formed(runs[leader_of(runs)]), SLOTS);
    assert_true(run->waiting_bytes > run->waiting_budget / 2); /* the rest lies in files */
    assert_true(run->waiting_bytes <= run->waiting_budget + run->waiting_budget / 8);
    cup.is_shut = false;
}

static void test_slow_reader(void **state)
{
    (void)state;
    assert_int_equal(setenv("LEAT_TEST_CUT", "1024", 1), 0);
    set_knobs();
    for (uint32_t lanes = 2; lanes <= 4; lanes++) { /* of which the sink stops one */
        struct outcome outcome;
        begin();
        cup.is_bottomless = cup.is_shut = true;
        workers_run(job_of_wide_rows, 2, lanes,
                    &(struct way){.registry = registry_with_cup(), .meanwhile = read_slowly}, &outcome);
        assert_int_equal(cup.rows, 100000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_full_sink), cmocka_unit_test(test_sender),
                                       cmocka_unit_test(test_pressed), cmocka_unit_test(test_asks),
                                       cmocka_unit_test(test_slow_reader)};
    char folder[] = "worker-holds-XXXXXX";
    if (setenv("LEAT_TEST_CUT", "25", 1) != 0 || setenv("LEAT_TEST_STATE", "4096", 1) != 0 ||
        mkdtemp(folder) == NULL || chdir(folder) != 0)
        return 2;
    set_knobs();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return chdir("..") != 0 || rmdir(folder) != 0 ? 2 : failed;
}
