/* Figures for the live view, the summary and tests. */
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

/* Of several workers: makes the leader's figures the job's, and sends those of another worker to the leader. */
static void share_figures(struct run *run, struct run_stats *stats)
{
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
    if (run->options.peers != NULL)
        share_figures(run, stats);
    stats->end_share_done = end_share_done(run->plan, stats);
    stats->elapsed_us = (run->is_joined ? run->ended_us : os_monotonic_us()) - run->started_us;
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
