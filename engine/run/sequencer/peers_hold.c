/* What holds back the sources, over several workers. Each has sinks, state and a disk of its own, and rows of all partitions come to
 * them: so it does not help that a worker which holds offers no rows of its own partitions. It says what holds, to all others, when
 * that changes (PEER_HOLD). The leader chooses no micro-batch with rows while any worker holds, and the others name the cause where
 * their lanes wait. As in a run that is alone, what was chosen before goes on: SLOTS micro-batches at most.
 *
 * Each hold ends without another micro-batch with rows: evictions wait for a checkpoint that stages pass already; sinks send, or do
 * when a checkpoint has their rows, for which the leader asks as for its own sinks (hold_may_form); space on a disk is for people to
 * make. */
#include "run/sequencer/peers_internal.h"

unsigned peers_holds(const struct run *run)
{
    struct sequencer_peers *peers = run->sequencer->peers;
    unsigned holds = 0;
    for (uint32_t i = 0; peers != NULL && i < peers_count(run); i++)
        holds |= atomic_load_explicit(&peers->holds[i], memory_order_relaxed);
    return holds;
}

void peers_say_holds(struct run *run)
{
    struct sequencer *s = run->sequencer;
    struct sequencer_peers *peers = s->peers;
    unsigned holds = hold_own(run, atomic_load_explicit(&s->stop_requested, memory_order_relaxed));
    if (holds != peers->own_holds) {
        peers->own_holds = holds;
        peers_begin(&peers->out, PEER_HOLD);
        words_put(&peers->out, holds);
        peers_post_all(run, &peers->out);
    }
    if (peers_is_leader(run))
        return;
    enum run_lane_time cause = hold_cause(holds | peers_holds(run));
    bool has_slot = cause != RUN_LANE_WAITS || form_has_slot(run, peers->own_next);
    (void)hold_because(run, has_slot ? cause : RUN_LANE_BEHIND_NODES);
}

static bool has_sink(const struct run *run, uint32_t worker)
{
    for (uint32_t i = 0; i < run->plan->nodes_count; i++)
        if (run->plan->nodes[i].tag == PLAN_SINK && peers_has_stage(run, worker, run->plan->nodes[i].stage))
            return true;
    return false;
}

/* Only the leader writes an order log; state waits for checkpoints, and lies on their disk; no store has copies of those of several
 * workers. */
static bool can_hold(const struct run *run, uint32_t from, uint64_t holds)
{
    uint64_t possible = has_sink(run, from) ? HOLD_SINKS : 0;
    possible |= from == run->options.peers->leader ? HOLD_ORDER : 0;
    possible |=
        run->barrier != NULL ? HOLD_STATE | HOLD_DISK | (possible & HOLD_SINKS ? HOLD_SENDERS : 0) : 0;
    return (holds & ~possible) == 0 && (!(holds & HOLD_SENDERS) || holds & HOLD_SINKS);
}

bool peers_take_holds(struct run *run, uint32_t from, struct words *message)
{
    _Atomic unsigned *said = &run->sequencer->peers->holds[from];
    uint64_t holds = words_take(message);
    if (!peers_is_whole(message) || !can_hold(run, from, holds) ||
        holds == atomic_load_explicit(said, memory_order_relaxed))
        return false;
    atomic_store_explicit(said, (unsigned)holds, memory_order_relaxed);
    run_wake(run);
    return true;
}
