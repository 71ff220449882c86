/* The public functions: build, start, wait, free. */
#include "run/base/barrier.h"
#include "run/base/loads.h"
#include "run/base/outbox.h"
#include "run/base/peer_figures.h"
#include "run/base/peers.h"
#include "run/base/placements.h"
#include "run/checkpoints/checkpoints.h"
#include "run/lanes/lanes.h"
#include "run/order/order.h"
#include "run/publish/publish.h"
#include "run/sequencer/sequencer.h"
#include "run/trace.h"

#include "core/mem.h"
#include "core/os.h"
#include "core/refused.h"
#include "state/state.h"

#include <stdlib.h>
#include <unistd.h>

static uint32_t choose_lanes(const struct plan *plan, const struct run_options *options)
{
    if (options->trace != NULL)
        return 1;
    if (options->lanes > 0)
        return options->lanes;
    if (plan->config.workers > 0)
        return (uint32_t)plan->config.workers;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? (uint32_t)MIN(cores, 256) : 1;
}

static void count_instances(struct run *run)
{
    const struct plan *plan = run->plan;
    run->stage_instances = arena_array(&run->arena, uint32_t, plan->stages_count);
    for (uint32_t stage = 0; stage < plan->stages_count; stage++)
        run->stage_instances[stage] = plan->stages[stage].tag != STAGE_SINGLE     ? run->lanes_count
                                      : peers_home(run, stage) == peers_self(run) ? 1
                                                                                  : 0;
}

struct run *run_new(const struct plan *plan, const struct run_options *options, struct diag_list *diags)
{
    struct run *run = mem_calloc(1, sizeof(*run));
    run->plan = plan;
    run->options = *options;
    run->diags = diags;
    run->trace = options->trace;
    run->observer = run->trace != NULL ? &trace_observer : NULL;
    run->lanes_count = choose_lanes(plan, options);
    base_init(run);
    count_instances(run);
    refused_budget(plan->config.memory_bytes);
    peers_init(run);
    bool is_good = checkpoints_init(run) && placements_begin(run) && checkpoints_open_state(run);
    if (is_good)
        publish_init(run);
    is_good = is_good && sequencer_init(run) && order_init(run);
    if (is_good && !run->is_resumed && order_replay_log(run)->identity == 0)
        sequencer_add_partitions(run);
    is_good = is_good && lanes_init(run);
    is_good = is_good && (!run->is_resumed || checkpoints_restore(run)) && sequencer_begin(run);
    /* All checks are done: files that are written from here on, first by the sinks, are this run's own. */
    if (is_good && options->has_begun != NULL)
        options->has_begun();
    is_good = is_good && lanes_begin_sinks(run);
    if (is_good && run->trace != NULL) {
        const struct replay_log *log = order_replay_log(run);
        run->trace->ordered = log->identity != 0 ? UINT64_MAX : log->redo_next;
        checkpoints_close(run);
    }
    if (is_good)
        return run;
    run_ends_fenced(run);
    run_free(run);
    return NULL;
}

bool run_receive(struct run *run, uint32_t worker, struct str message)
{
    struct words words = {.left = message};
    uint64_t tag = words_take(&words);
    if (words.is_short || worker >= peers_count(run) || worker == peers_self(run))
        return false;
    switch (tag) {
    case PEER_ROWS: return lanes_receive(run, worker, &words);
    case PEER_DONE:
        return peers_take_done(run, worker, &words, sequencer_first(run), sequencer_formed(run) + SLOTS);
    case PEER_PIECE:
    case PEER_GIVEN:
    case PEER_ROOM: return moves_receive(run, worker, (enum peer_message)tag, &words);
    case PEER_TAKEN: return placements_take_taken(run, worker, &words);
    case PEER_ROUND: return worker == run->options.peers->leader && placements_take_round(run, &words);
    case PEER_LOAD: return loads_take(run, worker, &words);
    case PEER_FIGURES: return peer_figures_take(run, worker, &words);
    case PEER_ASK:
    case PEER_BEGIN:
    case PEER_READY:
    case PEER_PART:
    case PEER_HEAD: return checkpoints_receive(run, worker, (enum peer_message)tag, &words);
    default: return sequencer_receive(run, worker, message);
    }
}

void run_has_room(struct run *run, uint32_t worker)
{
    leat_assert(worker < peers_count(run) && worker != peers_self(run));
    outbox_drain(run, worker);
    peers_flush(run);
}

bool run_start(struct run *run)
{
    leat_assert(!run->is_started);
    run->started_us = os_monotonic_us();
    run->is_started = true;
    if ((run->barrier == NULL || checkpoints_start(run)) &&
        (run_was_over(run) || ((run->publisher == NULL || publish_start(run)) && lanes_start(run))))
        return true;
    struct diag *d = diag_error(run->diags, DIAG_MEMORY_BUDGET, (struct span){0},
                                "the system refuses to start %u threads", run->lanes_count);
    diag_hint(run->diags, d, "lower --workers, or raise the limits that `ulimit -a` shows");
    run_fail(run);
    return false;
}

void run_stop(struct run *run)
{
    sequencer_stop(run);
}

void run_abandon(struct run *run)
{
    run_fail(run);
}

bool run_is_failing(const struct run *run)
{
    return run_has_failed(run);
}

void run_checkpoint(struct run *run)
{
    if (run->barrier != NULL)
        barrier_ask(run);
}

bool run_ask_moves(struct run *run, const struct run_moves_asked *asked, const char **why)
{
    *why = !run->options.balances        ? "the workers were started with --balance=no"
           : run->options.move_seed != 0 ? "the workers were started with --move"
           : peers_instances(run) < 2    ? "there is one lane"
                                         : "an operator has state, and no function that gives it away";
    if (run->loads == NULL)
        return false;
    loads_ask(run, asked);
    run_checkpoint(run);
    return true;
}

void run_look_at_moves(struct run *run, struct run_moves *moves)
{
    *moves = (struct run_moves){.state = RUN_MOVES_NONE};
    if (run->loads == NULL)
        return;
    loads_look(run, moves);
    if (moves->state == RUN_MOVES_WORK)
        run_checkpoint(run);
}

void run_stage_times(struct run *run, uint64_t ns[PLAN_STAGES_MAX])
{
    loads_times(run, ns);
}

bool run_checkpoint_turn(struct run *run, struct run_checkpoint_turn *turn)
{
    *turn = (struct run_checkpoint_turn){0};
    if (run->barrier != NULL)
        checkpoints_turn(run, turn);
    return run->barrier != NULL;
}

bool run_has_ended(const struct run *run)
{
    return lanes_have_ended(run);
}

bool run_wait(struct run *run)
{
    if (!run->is_joined)
        lanes_join(run);
    run->is_joined = true;
    if (run->publisher != NULL)
        publish_end(run);
    if (run->barrier != NULL)
        checkpoints_join(run);
    bool is_good = !atomic_load(&run->has_failed) && !run_is_fenced(run);
    is_good = is_good && (run->barrier == NULL || checkpoints_have_last(run));
    is_good = is_good && order_finish(run) && (run->trace != NULL || lanes_finish_sinks(run));
    const char *error = state_stores_error(&run->stores);
    if (error != NULL && !run_is_fenced(run))
        diag_cause(run->diags,
                   diag_error(run->diags, DIAG_STATE_FAILED, (struct span){0}, "the state store failed"),
                   "%s", error);
    is_good &= error == NULL;
    run->ended_us = os_monotonic_us();
    if (!is_good)
        run_ends_fenced(run);
    return is_good;
}

void run_free(struct run *run)
{
    if (run == NULL)
        return;
    leat_assert(!run->is_started || run->is_joined);
    lanes_free(run);
    sequencer_free(run);
    order_free(run);
    publish_free(run);
    state_stores_close(&run->stores);
    checkpoints_free(run);
    temporary_directory_remove(&run->temporary);
    loads_free(run);
    peers_free(run);
    base_free(run);
    free(run);
}
