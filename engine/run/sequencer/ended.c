/* Micro-batches behind the end of all sources, for operators that have work left then (operator_kind.wants_more).
 *
 * The first of them tells the end: the watermarks of the sources are TIME_MAX, and so is that of an operator's input,
 * once all before it have ended. The watermark of the operator's own output waits (base_watermarks_ended). Then one
 * micro-batch after another comes, each when all stages have run the one before, because what it is depends on what the
 * operators answered: while one wants more, another; when all are done, the final one. Their numbers, and the operators
 * that are done in each, so depend on the operators' state alone. A replay takes its own answers, not the log's: with the
 * same job they are the same, and another job may have other work over the same records.
 *
 * Over several workers the leader decides, by the operators' answers (peers_ended.c).
 *
 * A checkpoint has the operators that were done in its micro-batch. After a restore the sources, which may have grown,
 * are not read any more, and the operators are asked again. */
#include "run/sequencer/internal.h"

#include "run/base/peers.h"
#include "run/base/positions.h"

void ended_init(struct run *run)
{
    struct sequencer *s = run->sequencer;
    s->is_done = arena_array(&run->arena, bool, MAX(run->plan->nodes_count, 1));
    s->wants_more = arena_array(&run->arena, atomic_bool, MAX(run->plan->nodes_count, 1));
    for (uint32_t i = 0; i < run->plan->nodes_count; i++)
        atomic_init(&s->wants_more[i], run->plan->nodes[i].goes_on);
}

bool ended_is_run_here(const struct run *run, uint64_t micro_batch)
{
    const struct slot *before = sequencer_slot(run, micro_batch - 1);
    for (uint32_t stage = 0; stage < run->plan->stages_count && micro_batch > run->sequencer->first; stage++)
        if (atomic_load_explicit(&before->stage_done[stage], memory_order_acquire) !=
            run_stage_pieces(run, stage))
            return false;
    return true;
}

bool ended_is_through(const struct run *run, uint64_t micro_batch)
{
    if (!ended_is_run_here(run, micro_batch))
        return false;
    for (uint32_t stage = 0; stage < run->plan->stages_count && micro_batch > run->sequencer->first; stage++)
        if (!peers_have_done(run, stage, micro_batch - 1))
            return false;
    return true;
}

bool ended_has_work(struct run *run)
{
    struct sequencer *s = run->sequencer;
    bool has_work = false;
    for (uint32_t i = 0; i < run->plan->nodes_count; i++) {
        if (!run->plan->nodes[i].goes_on)
            continue;
        s->is_done[i] = !atomic_load_explicit(&s->wants_more[i], memory_order_relaxed);
        has_work |= !s->is_done[i];
    }
    return has_work;
}

void sequencer_answers(struct run *run, const struct plan_node *node, bool wants_more)
{
    leat_assert(node->goes_on && run->stage_instances[node->stage] == 1);
    atomic_store_explicit(&run->sequencer->wants_more[node->place], wants_more, memory_order_relaxed);
    if (!peers_is_leader(run))
        peers_answer(run, node, wants_more);
}

const bool *sequencer_done(const struct run *run)
{
    return run->sequencer->has_input_ended ? run->sequencer->is_done : NULL;
}

void ended_save(const struct run *run, struct byte_buffer *out)
{
    const struct sequencer *s = run->sequencer;
    uint64_t count = 0;
    for (uint32_t i = 0; i < run->plan->nodes_count; i++)
        count += s->is_done[i];
    words_put(out, count);
    for (uint32_t i = 0; i < run->plan->nodes_count; i++)
        if (s->is_done[i])
            words_put(out, run->ids[i]);
}

bool ended_restore(struct run *run, struct words *saved)
{
    struct sequencer *s = run->sequencer;
    uint64_t count = words_take(saved);
    /* With --from and all sources anew, the records come from the beginning. */
    for (uint32_t i = 0; i < run->plan->sources_count; i++)
        s->has_input_ended |= run->has_saved[run->plan->sources[i]];
    for (uint64_t i = 0; i < count && !saved->is_short; i++) {
        uint64_t id = words_take(saved);
        for (uint32_t k = 0; k < run->plan->nodes_count && s->has_input_ended; k++)
            if (run->plan->nodes[k].goes_on && run->has_saved[k] && run->ids[k] == id) {
                s->is_done[k] = true;
                atomic_init(&s->wants_more[k], false);
            }
    }
    for (uint32_t i = 0; i < s->partitions_count && s->has_input_ended; i++)
        s->partitions[i].is_ended = s->partitions[i].is_over = true;
    return !saved->is_short;
}
