/* Partitions that sources find while the job runs, over several workers. Each worker asks its own sources, and tells the leader how
 * many partitions they have. Once all workers have found as many as the leader, the leader gives the new ones their numbers, and with
 * them their owners, and tells all (PEER_PARTITION): so no owner is waited for until its source knows the partition. No micro-batch is
 * open then, so that a checkpoint's positions have either all that an owner says of a partition, or nothing. */
#include "run/sequencer/peers_internal.h"

void own_find(struct run *run)
{
    struct sequencer *s = run->sequencer;
    struct sequencer_peers *peers = s->peers;
    uint64_t wakes = atomic_load_explicit(&s->wakes, memory_order_relaxed);
    if (!s->is_live || peers_is_leader(run) || s->discovered_at == wakes || !live_ask_sources(run))
        return;
    s->discovered_at = wakes;
    for (uint32_t i = 0; i < run->plan->sources_count; i++) {
        uint32_t count = run->sources[i].partitions_count;
        if (!sequencer_is_named(run, i) || count == peers->said_found[i])
            continue;
        peers->said_found[i] = count;
        peers_begin(&peers->out, PEER_FOUND);
        words_put(&peers->out, i);
        words_put(&peers->out, count);
        peers_send_to(run, run->options.peers->leader);
    }
}

bool lead_take_found(struct run *run, uint32_t from, struct words *message)
{
    struct sequencer *s = run->sequencer;
    uint64_t source = words_take(message), count = words_take(message);
    if (!peers_is_whole(message) || source >= run->plan->sources_count ||
        !sequencer_is_named(run, (uint32_t)source) || count > PARTITIONS_MAX)
        return false;
    uint32_t *found = &s->peers->found[from * run->plan->sources_count + source];
    if (count <= *found)
        return false;
    *found = (uint32_t)count;
    s->discovered_at = 0;
    return true;
}

uint32_t peers_found(const struct run *run, uint32_t source)
{
    const struct sequencer *s = run->sequencer;
    uint32_t count = run->sources[source].partitions_count;
    for (uint32_t worker = 0; worker < peers_count(run); worker++)
        if (worker != peers_self(run) && s->peers->found[worker * run->plan->sources_count + source] < count)
            return s->known[source];
    return count;
}

bool peers_may_add(const struct run *run)
{
    const struct sequencer *s = run->sequencer;
    bool has_new = false;
    for (uint32_t i = 0; i < run->plan->sources_count; i++)
        has_new |= sequencer_is_named(run, i) && peers_found(run, i) > s->known[i];
    return !has_new || s->peers->next == sequencer_formed(run);
}
