/* Figures for the live view, the summary and tests. */
#include "run/base/loads.h"
#include "run/base/peer_figures.h"
#include "run/base/peers.h"
#include "run/checkpoints/checkpoints.h"
#include "run/lanes/lanes.h"
#include "run/order/order.h"
#include "run/sequencer/sequencer.h"

#include "core/mem.h"
#include "core/os.h"

#include <math.h>
#include <stdlib.h>

static const uint64_t BUSY_EVERY_NS = UINT64_C(1000000000);

const char *const run_lane_time_names[RUN_LANE_TIMES] = {
    [RUN_LANE_DECODES] = "decode",
    [RUN_LANE_PROCESSES] = "process",
    [RUN_LANE_WAITS] = "wait_for_records",
    [RUN_LANE_BEHIND_NODES] = "behind_nodes",
    [RUN_LANE_BEHIND_CHECKPOINT] = "behind_checkpoint",
    [RUN_LANE_BEHIND_ORDER] = "behind_order_log",
    [RUN_LANE_BEHIND_SINKS] = "behind_sinks",
    [RUN_LANE_BEHIND_DISK] = "behind_disk",
    [RUN_LANE_BEHIND_STORE] = "behind_store",
};

static double end_share_done(const struct plan *plan, const struct run_stats *stats)
{
    double least = (double)NAN;
    for (uint32_t i = 0; i < stats->nodes_count; i++) {
        const struct report_item *item = report_find(&stats->nodes[i].report, "end_share_done");
        if (plan->nodes[i].goes_on && item != NULL && !(item->value >= least))
            least = item->value;
    }
    return least;
}

/* Levels that this worker's part has below zero. */
static void clamp_levels(struct run_stats *stats)
{
    for (uint32_t i = 0; i < stats->nodes_count; i++)
        if ((int64_t)stats->nodes[i].counters.held < 0)
            stats->nodes[i].counters.held = 0;
}

/* Of this worker's lanes, since it looked a second ago or longer. */
static double busy_share(struct run *run)
{
    struct run_busy *busy = &run->busy;
    struct run_times *times = run_times_new(run);
    uint64_t ns = 0;
    run_times(run, times);
    for (uint32_t lane = 0; lane < times->lanes_count; lane++)
        ns += times->lanes[lane].ns[RUN_LANE_DECODES] + times->lanes[lane].ns[RUN_LANE_PROCESSES];
    uint64_t passed = (times->at_ns - busy->at_ns) * times->lanes_count;
    if (busy->at_ns == 0 || times->at_ns - busy->at_ns >= BUSY_EVERY_NS) {
        busy->share = busy->at_ns == 0 ? (double)NAN : MIN((double)(ns - busy->ns) / (double)passed, 1);
        busy->at_ns = times->at_ns;
        busy->ns = ns;
    }
    run_times_free(times);
    return busy->share;
}

/* Fills in what there is of this worker, and who the others are. */
static void look_at_workers(struct run *run, struct run_stats *stats)
{
    const struct run_peers *peers = run->options.peers;
    struct run_worker_stats *own = &stats->per_worker[peers->self];
    stats->leader = peers->leader;
    stats->incarnation = peers->incarnation;
    for (uint32_t i = 0; i < peers->count; i++) {
        stats->per_worker[i].address = peers->addresses == NULL ? "" : peers->addresses[i];
        stats->per_worker[i].busy_share = (double)NAN;
        stats->per_worker[i].traffic.round_trip_us = -1;
    }
    own->is_known = true;
    own->lanes = run->lanes_count;
    own->records_life = stats->records_life;
    own->busy_share = busy_share(run);
    sequencer_own(run, &own->partitions, &own->groups);
    if (peers->look_at_traffic != NULL)
        peers->look_at_traffic(peers->engine, &own->traffic);
    own->waiting_bytes = atomic_load(&run->waiting_bytes) + own->traffic.waiting_bytes;
    own->spilled_bytes = atomic_load(&run->spilled_bytes);
}

/* Of several workers: makes the leader's figures the job's, and sends those of another worker to the leader. */
static void share_figures(struct run *run, struct run_stats *stats)
{
    look_at_workers(run, stats);
    if (stats->is_part)
        peer_figures_say(run, stats);
    else
        peer_figures_add(run, stats);
    if (stats->is_part || !run_has_all_figures(run))
        clamp_levels(stats);
}

bool run_has_all_figures(const struct run *run)
{
    return peer_figures_are_all(run);
}

void run_stats(struct run *run, struct run_stats *stats)
{
    const struct replay_log *log = order_replay_log(run);
    *stats = (struct run_stats){.is_resumed = run->is_resumed,
                                .was_finished = run->was_finished,
                                .was_at_until = run->was_at_until,
                                .is_from = run->is_from,
                                .notes = run->notes.data == NULL ? "" : run->notes.data,
                                .resumed_generation = run->resumed_generation,
                                .resumed_epoch = run->resumed_epoch,
                                .order = log->identity == 0 ? NULL : log->name,
                                .redo_next = log->redo_next,
                                .lanes = run->lanes_count,
                                .workers = peers_count(run),
                                .worker = peers_self(run),
                                .is_part = !peers_is_leader(run)};
    lanes_stats(run, stats);
    sequencer_stats(run, stats);
    stats->is_finished |= run->was_finished;
    stats->has_input_ended |= run->was_finished;
    checkpoints_stats(run, stats);
    loads_figures(run, &stats->imbalance, &stats->hot_groups);
    if (run->options.peers != NULL)
        share_figures(run, stats);
    stats->end_share_done = end_share_done(run->plan, stats);
    stats->elapsed_us = (run->is_joined ? run->ended_us : os_monotonic_us()) - run->started_us;
}

const char *run_folder(const struct run *run)
{
    if (run->dir == NULL)
        return "";
    return peers_is_leader(run) ? run->job_path : run->path;
}

uint32_t run_dead_letters(const struct run *run, uint64_t after, struct run_dead_letter *letters)
{
    return lanes_dead_letters(run, after, letters);
}

struct run_times *run_times_new(const struct run *run)
{
    struct run_times *times = mem_calloc(1, sizeof(*times));
    times->lanes_count = run->lanes_count;
    times->instances_count = lanes_count_instances(run);
    times->lanes = mem_calloc(times->lanes_count, sizeof(*times->lanes));
    times->instances = mem_calloc(MAX(times->instances_count, 1U), sizeof(*times->instances));
    return times;
}

void run_times_free(struct run_times *times)
{
    if (times == NULL)
        return;
    free(times->lanes);
    free(times->instances);
    free(times);
}

void run_times(const struct run *run, struct run_times *times)
{
    times->at_ns = os_monotonic_ns();
    lanes_times(run, times);
}
