/* Micro-batches behind the end of all sources (ended.c), over several workers. An operator that may have work left has one
 * instance. The worker that has it answers the leader before it says that its stage has run the micro-batch; so the leader, which
 * waits for that word of all, knows all answers when it chooses the next micro-batch. PEER_FORMED says which operators are done. */
#include "run/sequencer/peers_internal.h"

void peers_answer(struct run *run, const struct plan_node *node, bool wants_more)
{
    struct byte_buffer message = {0};
    peers_begin(&message, PEER_ANSWER);
    words_put(&message, node->place);
    words_put(&message, wants_more);
    peers_send(run, run->options.peers->leader, &message);
    buffer_free(&message);
}

/* Whether the operator's stage may be running a micro-batch behind the end, for which it is not done. */
static bool is_asked(struct run *run, const struct plan_node *node, uint32_t worker)
{
    uint64_t formed = sequencer_formed(run), first = sequencer_first(run);
    if (!node->goes_on || formed == first || !peers_is_in_turn(run, node->stage, worker, first, formed - 1))
        return false;
    const struct slot *slot = sequencer_slot(run, formed - 1);
    return slot->is_done != NULL && !slot->is_done[node->place];
}

bool lead_take_answer(struct run *run, uint32_t from, struct words *message)
{
    uint64_t place = words_take(message), wants_more = words_take(message);
    if (!peers_is_whole(message) || place >= run->plan->nodes_count || wants_more > 1 ||
        !is_asked(run, &run->plan->nodes[place], from))
        return false;
    atomic_store_explicit(&run->sequencer->wants_more[place], wants_more != 0, memory_order_relaxed);
    return true;
}

void lead_put_done(const struct run *run, const struct slot *slot, struct byte_buffer *out)
{
    words_put(out, slot->is_done != NULL);
    for (uint32_t i = 0; slot->is_done != NULL && i < run->plan->nodes_count; i++)
        if (run->plan->nodes[i].goes_on)
            words_put(out, slot->is_done[i]);
}

bool own_take_done(struct run *run, struct slot *slot, struct words *message)
{
    struct sequencer *s = run->sequencer;
    uint64_t is_behind = words_take(message);
    slot->is_done = is_behind != 0 ? s->is_done : NULL;
    if (is_behind > 1 || (is_behind == 0 && s->has_input_ended && !slot->is_end) ||
        (is_behind == 1 &&
         (slot->is_final || (s->has_input_ended && !ended_is_run_here(run, slot->micro_batch)))))
        return false;
    s->has_input_ended |= is_behind != 0;
    for (uint32_t i = 0; is_behind != 0 && i < run->plan->nodes_count; i++) {
        uint64_t is_done = run->plan->nodes[i].goes_on ? words_take(message) : 0;
        if (message->is_short || is_done > 1 || is_done < s->is_done[i])
            return false;
        s->is_done[i] = is_done != 0;
    }
    return !message->is_short;
}
