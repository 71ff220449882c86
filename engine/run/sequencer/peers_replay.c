/* A replay over several workers. All are given the log; the leader alone reads it: it tells owners the partitions that the log names,
 * and chooses micro-batches, with the slices of each owner. An owner waits until it has the rows, and looks whether they are the
 * log's; where they are not, it tells the leader, which says so. Behind the end of a log whose order can be computed, owners begin to
 * offer what they have. Partitions that sources find while the job runs (peers_found.c) are told as those of a log. */
#include "run/sequencer/peers_internal.h"

#include "core/mem.h"
#include "run/order/order.h"

/* --- Partitions, and the end of the log --- */

void lead_tell_partitions(struct run *run)
{
    struct sequencer *s = run->sequencer;
    struct sequencer_peers *peers = s->peers;
    for (; peers->told_partitions < s->partitions_count; peers->told_partitions++) {
        struct partition *p = &s->partitions[peers->told_partitions];
        p->since = peers->next;
        peers_begin(&peers->out, PEER_PARTITION);
        words_put(&peers->out, peers->next);
        words_put(&peers->out, p->id);
        words_put(&peers->out, p->source);
        words_put(&peers->out, p->local);
        words_put(&peers->out, p->has_own_order);
        words_put(&peers->out, order_replay_log(run)->is_live);
        words_put(&peers->out, (uint64_t)p->offset);
        words_put_text(&peers->out, sequencer_partition_name(run, p));
        peers_post_all(run, &peers->out);
    }
}

enum told own_take_partition(struct run *run, struct words *message)
{
    struct sequencer *s = run->sequencer;
    uint64_t micro_batch = words_take(message), id = words_take(message), source = words_take(message),
             local = words_take(message), has_own_order = words_take(message), is_live = words_take(message);
    int64_t offset = (int64_t)words_take(message);
    struct str name = words_take_text(message);
    if (!peers_is_whole(message) || micro_batch != s->peers->own_next || id != s->partitions_count ||
        source >= run->plan->sources_count || has_own_order > 1 || is_live > 1)
        return TOLD_BAD;
    bool is_named = sequencer_is_named(run, (uint32_t)source);
    if (s->peers->offers && !is_named)
        return TOLD_BAD;
    if (is_named)
        local = sequencer_find_local(run, (uint32_t)source, name);
    if (s->peers->offers && local == UINT32_MAX)
        return TOLD_LATER; /* as many were found here, but others */
    for (uint32_t i = 0; i < s->partitions_count; i++)
        if (s->partitions[i].source == source && s->partitions[i].local == local)
            return TOLD_BAD;
    if (local >= run->sources[source].partitions_count)
        return TOLD_BAD;
    struct partition *p = sequencer_add_partition(run, (uint32_t)source, (uint32_t)local);
    if (p == NULL)
        return TOLD_BAD;
    p->has_own_order |= has_own_order != 0;
    order_replay_log(run)->is_live |= is_live != 0;
    if (!p->has_offsets || offset == p->offset)
        return TOLD_TAKEN;
    p->resume = (struct source_position){.b = offset};
    p->offset = offset;
    bool is_there =
        run_source_node(run, p->source)->source_kind->seek(&run->sources[p->source], p->local, &p->resume);
    return is_there ? TOLD_TAKEN : TOLD_BAD;
}

bool lead_tell_compute(struct run *run)
{
    struct sequencer_peers *peers = run->sequencer->peers;
    if (!peers->is_by_log || run->sequencer->is_replaying || run->sequencer->has_input_ended)
        return false;
    lead_tell_partitions(run);
    peers->is_by_log = false;
    peers_begin(&peers->out, PEER_COMPUTE);
    words_put(&peers->out, peers->next);
    for (uint32_t worker = 0; worker < peers_count(run); worker++)
        peers_send_to(run, worker);
    return true;
}

enum told own_take_compute(struct run *run, struct words *message)
{
    uint64_t micro_batch = words_take(message);
    if (!peers_is_whole(message) || micro_batch != run->sequencer->peers->own_next ||
        run->sequencer->peers->offers)
        return TOLD_BAD;
    run->sequencer->peers->offers = true;
    if (!peers_is_leader(run))
        run->sequencer->is_replaying = false;
    own_offer(run);
    return TOLD_TAKEN;
}

/* --- Slices --- */

void lead_note_slices(struct run *run, struct chosen *chosen)
{
    struct number *number = &chosen->number;
    if (chosen->slices_room < number->slices_count) {
        chosen->slices_room = number->slices_count;
        chosen->slices = mem_realloc(chosen->slices, chosen->slices_room * sizeof(*chosen->slices));
    }
    for (uint32_t i = 0; i < number->slices_count; i++) {
        chosen->slices[i] = number->slices[i];
        run->sequencer->peers->partitions[number->slices[i].partition].is_idle = false;
    }
    chosen->slices_count = number->slices_count;
    number->slices = NULL; /* the log's next ones take their place */
}

void lead_put_slices(const struct run *run, const struct chosen *chosen, uint32_t worker,
                     struct byte_buffer *out)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < chosen->slices_count; i++)
        count += run->sequencer->partitions[chosen->slices[i].partition].owner == worker;
    words_put(out, chosen->number.ends_all);
    words_put(out, count);
    for (uint32_t i = 0; i < chosen->slices_count; i++) {
        const struct order_slice *slice = &chosen->slices[i];
        if (run->sequencer->partitions[slice->partition].owner != worker)
            continue;
        words_put(out, slice->partition);
        words_put(out, slice->records);
        words_put(out, (uint64_t)slice->time);
        words_put(out, (uint64_t)slice->offset);
        words_put(out, slice->has_offset);
    }
}

bool own_take_slices(struct run *run, struct number *number, struct words *message)
{
    struct sequencer *s = run->sequencer;
    struct sequencer_peers *peers = s->peers;
    uint64_t ends_all = words_take(message), count = words_take(message), next = 0;
    if (message->is_short || ends_all > 1 || count > s->partitions_count || peers->offers)
        return false;
    if (peers->own_slices_room < count) {
        peers->own_slices_room = (uint32_t)count;
        peers->own_slices = mem_realloc(peers->own_slices, count * sizeof(*peers->own_slices));
    }
    for (uint64_t i = 0; i < count; i++) {
        uint64_t id = words_take(message);
        struct order_slice slice = {.partition = (uint32_t)id, .records = words_take(message)};
        slice.time = (int64_t)words_take(message);
        slice.offset = (int64_t)words_take(message);
        uint64_t has_offset = words_take(message);
        slice.has_offset = has_offset != 0;
        if (message->is_short || id < next || id >= s->partitions_count || has_offset > 1 ||
            s->partitions[id].owner != peers_self(run) || slice.records == 0)
            return false;
        next = id + 1;
        peers->own_slices[i] = slice;
    }
    number->slices = peers->own_slices;
    number->slices_count = (uint32_t)count;
    number->ends_all = ends_all != 0;
    return true;
}

static void say_differs(struct run *run, const struct number *number, const struct replay_finding *finding)
{
    struct sequencer_peers *peers = run->sequencer->peers;
    struct byte_buffer *out = &peers->out;
    if (peers->has_differed)
        return;
    peers->has_differed = true;
    peers_begin(out, PEER_DIFFERS);
    words_put(out, number->micro_batch);
    words_put(out, finding->tag);
    words_put(out, finding->partition);
    words_put(out, finding->found);
    words_put(out, (uint64_t)finding->time);
    words_put(out, (uint64_t)finding->offset);
    words_put(out, finding->are_by_offset);
    words_put(out, finding->records_before);
    words_put(out, (uint64_t)finding->offset_before);
    peers_send_to(run, run->options.peers->leader);
}

/* Whether the partition, which is this worker's, ends with the number. */
static bool ends_with(const struct sequencer *s, const struct number *number, const struct partition *p)
{
    const struct ids *over = &s->peers->lists[LIST_OVER];
    for (uint32_t i = 0; i < over->count; i++)
        if (over->items[i] == p->id)
            return true;
    return number->ends_all && !p->is_over;
}

enum told own_fit(struct run *run, const struct number *number)
{
    struct sequencer *s = run->sequencer;
    struct replay_finding finding;
    enum replay_fit fit = REPLAY_FITS;
    for (uint32_t i = 0; fit == REPLAY_FITS && i < s->partitions_count; i++) {
        struct partition *p = &s->partitions[i];
        if (p->owner == peers_self(run) && ends_with(s, number, p))
            fit = replay_fit_end(run, p, &finding);
    }
    for (uint32_t i = 0; fit == REPLAY_FITS && i < number->slices_count; i++)
        fit = replay_fit_slice(run, &number->slices[i], &finding);
    if (fit == REPLAY_DIFFERS)
        say_differs(run, number, &finding);
    return fit == REPLAY_FITS ? TOLD_TAKEN : TOLD_LATER;
}

bool lead_is_logged(const struct run *run, const struct chosen *chosen, uint32_t from, uint64_t index,
                    const struct cut_slice *slice)
{
    for (uint32_t i = 0; i < chosen->slices_count; i++) {
        const struct order_slice *logged = &chosen->slices[i];
        if (run->sequencer->partitions[logged->partition].owner == from && index-- == 0)
            return logged->partition == slice->partition && logged->records == slice->records &&
                   logged->time == slice->time;
    }
    return false;
}

bool lead_take_differs(struct run *run, uint32_t from, struct words *message)
{
    struct sequencer *s = run->sequencer;
    uint64_t micro_batch = words_take(message), tag = words_take(message), partition = words_take(message);
    struct replay_finding finding = {.tag = (enum replay_found)tag,
                                     .partition = (uint32_t)partition,
                                     .found = words_take(message),
                                     .time = (int64_t)words_take(message),
                                     .offset = (int64_t)words_take(message)};
    uint64_t are_by_offset = words_take(message);
    finding.are_by_offset = are_by_offset != 0;
    finding.records_before = words_take(message);
    finding.offset_before = (int64_t)words_take(message);
    const struct chosen *chosen = chosen_at(s->peers, micro_batch);
    if (!peers_is_whole(message) || micro_batch != s->peers->cuts_next[from] ||
        micro_batch >= s->peers->next || chosen->number.rows != NUMBER_LOGGED || tag >= FOUND_TAGS ||
        partition >= s->partitions_count || s->partitions[partition].owner != from || are_by_offset > 1)
        return false;
    const struct order_slice *slice = NULL;
    for (uint32_t i = 0; i < chosen->slices_count; i++)
        if (chosen->slices[i].partition == partition)
            slice = &chosen->slices[i];
    if (slice == NULL && tag != FOUND_MORE)
        return false;
    replay_say(run, chosen->number.logged, slice, &finding);
    return true;
}
