/* A lane is a thread that looks for work, downstream stages first. */
#include "run/lanes/internal.h"

#include "core/os.h"
#include "core/wait.h"
#include "run/base/peers.h"

enum {
    SPINS = 500,          /* looks in a row: some tens of microseconds */
    SPINS_OF_TEAM = 5000, /* looks, of which those behind SPINS yield the core: a millisecond or more */
    SLEEP_US = 20000,
    FLUSH_NS = 200000,
};

/* Runs a piece of the work that a learner of another lane has given to its team; false: there is none. */
static bool help_teams(struct run *run)
{
    for (uint32_t i = 0; i < run->lanes->teams_count; i++)
        if (team_help(&run->lanes->teams[i]))
            return true;
    return false;
}

/* Whether the learners are more than SLOTS / 2 micro-batches behind stage 0: then this lane helps their teams
 * before it reads more records. */
static bool is_far_ahead(struct run *run)
{
    return run->lanes->teams_count > 0 &&
           sequencer_claimed(run) >
               atomic_load_explicit(&run->lanes->learning, memory_order_relaxed) + SLOTS / 2;
}

static bool any_comes_again(struct run *run)
{
    for (uint32_t i = 0; i < run->lanes->teams_count; i++)
        if (atomic_load_explicit(&run->lanes->teams[i].comes_again, memory_order_relaxed))
            return true;
    return false;
}

/* Where learners have teams: waits without sleeping, because a lane that helps is needed again within
 * microseconds, sooner than a sleeping thread wakes. Returns whether another lane made progress after
 * `seen`. */
static bool spin_until_progress(struct run *run, uint64_t seen)
{
    if (run->lanes->teams_count == 0)
        return false;
    for (unsigned i = 0; i < SPINS || (i < SPINS_OF_TEAM && any_comes_again(run)); i++) {
        if (atomic_load_explicit(&run->progress, memory_order_relaxed) != seen)
            return true;
        team_pause(i < SPINS ? 0 : i);
    }
    return false;
}

/* Sleeps until another lane makes progress after `seen`, or for sleep_us; then sources that had no records
 * are read again. */
static void sleep_until_progress(struct run *run, uint64_t seen, int64_t sleep_us)
{
    if (spin_until_progress(run, seen))
        return;
    struct timespec until = wait_until(sleep_us);
    pthread_mutex_lock(&run->idle_mutex);
    atomic_fetch_add(&run->idle_sleepers, 1);
    while (atomic_load(&run->progress) == seen)
        if (!wait_on(&run->idle_condition, &run->idle_mutex, &until))
            break;
    atomic_fetch_sub(&run->idle_sleepers, 1);
    pthread_mutex_unlock(&run->idle_mutex);
    sequencer_look_again(run);
}

/* Lets messages to other workers leave that lanes have posted: while the lane works, once in FLUSH_NS, or twice behind a long piece of
 * work, so that a message seldom waits for one; what is left goes before the lane rests. Fewer of them are fewer frames and wake-ups. */
static void flush_sometimes(struct lane *lane)
{
    if (likely(lane->run->options.peers == NULL))
        return;
    uint64_t now = os_monotonic_ns();
    if (now < lane->flush_ns)
        return;
    lane->flush_ns = MAX(lane->flush_ns, now - 2 * FLUSH_NS) + FLUSH_NS;
    peers_flush(lane->run);
}

/* Runs one micro-batch on the most downstream stage that is ready. */
static bool run_one_stage(struct lane *lane)
{
    for (uint32_t i = 0; i < lane->instances_count; i++) {
        struct stage_instance *stage = lane->instances[i];
        if (!stage_is_ready(stage))
            continue;
        uint64_t next = atomic_load_explicit(&stage->next, memory_order_relaxed);
        stage_run(stage, sequencer_slot(lane->run, next));
        return true;
    }
    return false;
}

static bool run_sources(struct lane *lane)
{
    struct run *run = lane->run;
    sequencer_form(run);
    flush_sometimes(lane);
    struct slot *slot = sequencer_claim(run);
    if (slot == NULL)
        return false;
    failpoint("run.claimed"); /* lets tests run a job slowly */
    stage_run(lane->sources, slot);
    return true;
}

/* Whether all micro-batches are formed and this lane's stages have run the last one. */
static bool is_finished(struct lane *lane)
{
    uint64_t formed;
    if (!sequencer_has_ended(lane->run, &formed))
        return false;
    for (uint32_t i = 0; i < lane->instances_count; i++)
        if (lane->instances[i]->next < formed)
            return false;
    return true;
}

/* Asks this lane's sinks that send in the background for errors, so that these are reported now, not with the
 * next rows. */
static void look_at_sinks(struct lane *lane)
{
    struct run *run = lane->run;
    for (uint32_t i = 0; i < run->sinks_count; i++) {
        struct node_instance *sink = run->lanes->sinks[i];
        const struct sink_kind *kind = sink->node->sink_kind;
        if (sink->stage->lane == lane->index && kind->is_well != NULL && !kind->is_well(&sink->sink))
            sink_failed(sink);
    }
}

/* Followers get what the learners of this lane changed last, also if no more rows come. Returns in how many microseconds
 * it is to be called again, at most SLEEP_US. */
static int64_t publish_rest(struct lane *lane)
{
    int64_t again_us = SLEEP_US;
    for (uint32_t i = 0; i < lane->instances_count; i++)
        if (lane->instances[i]->publishes)
            again_us = MIN(again_us, stage_publish_rest(lane->instances[i]));
    return again_us;
}

/* Does a piece of work, the most urgent there is; false: there is none. */
static bool do_work(struct lane *lane)
{
    struct run *run = lane->run;
    bool has_worked = run_one_stage(lane), has_helped = false, has_decoded = false;
    if (!has_worked && is_far_ahead(run))
        has_helped = help_teams(run);
    if (!has_worked && !has_helped)
        has_worked = run_sources(lane);
    if (!has_worked && !has_helped)
        has_decoded = sequencer_work(run, &lane->decoding);
    if (has_worked || has_decoded)
        run_wake(run);
    else if (!has_helped)
        has_helped = help_teams(run);
    if (!has_worked && !has_helped && !has_decoded)
        return false;
    time_spent(lane, has_decoded ? RUN_LANE_DECODES : RUN_LANE_PROCESSES);
    flush_sometimes(lane);
    return true;
}

/* Why a lane has no work. */
static enum run_lane_time reason(const struct lane *lane)
{
    for (uint32_t i = 0; i < lane->instances_count; i++)
        if (stage_is_held(lane->instances[i]))
            return RUN_LANE_BEHIND_CHECKPOINT;
    return sequencer_held(lane->run);
}

static void *lane_main(void *argument)
{
    struct lane *lane = argument;
    struct run *run = lane->run;
    bool is_at_work = true;
    lane->since_ns = os_monotonic_ns();
    peek_begin(lane);
    while (!run_has_failed(run)) {
        uint64_t seen = atomic_load(&run->progress);
        if (unlikely(atomic_load_explicit(&lane->has_peeks, memory_order_relaxed))) {
            peek_serve(lane);
            time_spent(lane, RUN_LANE_PROCESSES);
        }
        bool has_moved = run->lanes->have_moves && moves_work(lane);
        if (do_work(lane) || has_moved)
            continue;
        if (is_finished(lane)) {
            if (is_at_work && atomic_fetch_sub(&run->lanes->at_work, 1) == 1)
                run_wake(run);
            is_at_work = false;
            if (run->lanes->teams_count == 0 || atomic_load(&run->lanes->at_work) == 0)
                break; /* otherwise this lane may still help a learner */
        }
        peers_flush(run);
        look_at_sinks(lane);
        int64_t sleep_us = publish_rest(lane);
        time_spent(lane, RUN_LANE_PROCESSES);
        sleep_until_progress(run, seen, sleep_us);
        time_spent(lane, reason(lane));
    }
    peers_flush(run);
    peek_end(lane);
    atomic_fetch_sub(&run->lanes->running, 1);
    run_wake(run);
    return NULL;
}

bool lanes_start(struct run *run)
{
    struct lanes *lanes = run->lanes;
    atomic_store(&lanes->running, run->lanes_count);
    atomic_store(&lanes->at_work, run->lanes_count);
    for (; lanes->started < run->lanes_count; lanes->started++) {
        struct lane *lane = &lanes->lanes[lanes->started];
        if (pthread_create(&lane->thread, NULL, lane_main, lane) != 0) {
            atomic_fetch_sub(&lanes->running, run->lanes_count - lanes->started);
            return false;
        }
    }
    return true;
}

bool lanes_have_ended(const struct run *run)
{
    return atomic_load(&run->lanes->running) == 0;
}

void lanes_join(struct run *run)
{
    for (uint32_t i = 0; i < run->lanes->started; i++)
        pthread_join(run->lanes->lanes[i].thread, NULL);
}
