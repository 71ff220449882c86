/* What the leader does: it chooses micro-batches by what owners offer, and finishes them by what these have cut (peers.c). */
#include "run/sequencer/peers_internal.h"

#include "core/mem.h"
#include "core/os.h"

#include <stdlib.h>

static void add_end(struct peer_partition *known, struct known_end end)
{
    if (known->count == known->room) {
        uint32_t room = MAX(16, 2 * known->room);
        struct known_end *ends = mem_calloc(room, sizeof(*ends));
        for (uint32_t i = 0; i < known->count; i++)
            ends[i] = known->ends[(known->first + i) % known->room];
        free(known->ends);
        known->ends = ends;
        known->first = 0;
        known->room = room;
    }
    known->ends[(known->first + known->count++) % known->room] = end;
}

/* The ends of a partition's rows come in their order, and no more of them than an owner reads ahead. */
static bool take_ends(struct peer_partition *known, uint64_t count, struct words *message)
{
    if (known->state & OFFERS_ENDED && count > 0)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        struct known_end end = {.time = (int64_t)words_take(message)};
        uint64_t is_cut = words_take(message);
        end.is_cut = is_cut != 0;
        end.before_until = (int64_t)words_take(message);
        if (message->is_short || is_cut > 1 || end.time < known->newest || end.before_until > end.time ||
            known->count == ENDS_MAX)
            return false;
        known->newest = end.time;
        add_end(known, end);
    }
    return true;
}

/* Takes what alignment will compare of a partition, which never falls. */
static bool take_next(const struct peer_partition *known, struct words *message, struct next_event *next)
{
    uint64_t is_aligned = words_take(message);
    *next = (struct next_event){.is_aligned = is_aligned != 0, .time = (int64_t)words_take(message)};
    if (message->is_short || is_aligned > 1)
        return false;
    return next->is_aligned ? next->time >= known->next.time : next->time == 0;
}

static void note_next(struct peer_partition *known, struct next_event next)
{
    known->next.is_aligned = next.is_aligned;
    known->next.time = next.is_aligned ? next.time : known->next.time;
}

static bool take_state(struct peer_partition *known, bool can_rise, struct words *message)
{
    uint64_t state = words_take(message), dry_us = words_take(message);
    uint64_t behind = can_rise ? state & ~(uint64_t)OFFERS_RISEN : state;
    int64_t now = os_monotonic_us();
    bool is_known = behind == 0 || behind == OFFERS_ENDED || behind == OFFERS_DRY ||
                    behind == (OFFERS_DRY | OFFERS_QUIET);
    if (message->is_short || !is_known || (known->state & OFFERS_ENDED && behind != OFFERS_ENDED))
        return false;
    known->state = (unsigned)state;
    known->dry_us = now - (int64_t)MIN(dry_us, (uint64_t)now - 1); /* 0 would say that it is not dry */
    return true;
}

bool lead_take_offers(struct run *run, uint32_t from, struct words *message)
{
    const struct sequencer *s = run->sequencer;
    do {
        uint64_t id = words_take(message), count = words_take(message);
        if (message->is_short || id >= s->partitions_count || s->partitions[id].owner != from)
            return false;
        struct peer_partition *known = &s->peers->partitions[id];
        struct next_event next = known->next;
        bool is_first = known->count == 0;
        if (!take_ends(known, count, message) ||
            (count > 0 && watermark_may_align(run, &s->partitions[id]) &&
             !take_next(known, message, &next)) ||
            !take_state(known, s->partitions[id].has_offsets, message))
            return false;
        if (is_first)
            note_next(known, next);
        known->is_idle &= count == 0;
    } while (message->left.length > 0);
    return true;
}

bool lead_has_risen(const struct run *run)
{
    const struct sequencer *s = run->sequencer;
    for (uint32_t i = 0; i < s->partitions_count; i++)
        if (s->peers->partitions[i].state & OFFERS_RISEN)
            return true;
    return false;
}

void offer_known(struct run *run, struct partition *p)
{
    const struct peer_partition *known = &run->sequencer->peers->partitions[p->id];
    p->offer = (struct offer){.tag = known->state & OFFERS_ENDED ? OFFER_OVER : OFFER_WAIT,
                              .dry_us = known->state & OFFERS_DRY ? known->dry_us : 0};
    if (known->count == 0) {
        bool is_quiet = (known->state & OFFERS_QUIET) != 0;
        if (live_goes_without(run, p, is_quiet, p->offer.dry_us))
            p->offer = (struct offer){.tag = OFFER_NONE, .quiet_us = is_quiet ? known->dry_us : 0};
        return;
    }
    const struct known_end *end = &known->ends[known->first];
    bool is_left = end->before_until > known->taken.time ||
                   (end->before_until == known->taken.time && !known->taken.is_whole);
    p->offer = (struct offer){.tag = OFFER_ROWS,
                              .end_time = end->time,
                              .is_cut = end->is_cut,
                              .is_before_until = end->before_until != TIME_MIN && is_left};
}

struct next_event next_event_known(const struct run *run, const struct partition *p)
{
    return run->sequencer->peers->partitions[p->id].next;
}

void ids_add(struct ids *ids, uint32_t id)
{
    if (ids->count == ids->room) {
        ids->room = MAX(8, 2 * ids->room);
        ids->items = mem_realloc(ids->items, ids->room * sizeof(*ids->items));
    }
    ids->items[ids->count++] = id;
}

static void put_ids(struct byte_buffer *out, const struct ids *ids)
{
    words_put(out, ids->count);
    for (uint32_t i = 0; i < ids->count; i++)
        words_put(out, ids->items[i]);
}

bool peers_note_idle(struct run *run, const struct partition *p)
{
    struct sequencer_peers *peers = run->sequencer->peers;
    if (peers->partitions[p->id].is_idle)
        return false;
    peers->partitions[p->id].is_idle = true;
    ids_add(&chosen_at(peers, peers->next)->idle, p->id);
    return true;
}

void peers_note_over(struct run *run, const struct partition *p)
{
    struct sequencer_peers *peers = run->sequencer->peers;
    peers->partitions[p->id].is_over = true;
    ids_add(&chosen_at(peers, peers->next)->over, p->id);
}

void peers_note_was_over(struct run *run, const struct partition *p)
{
    struct peer_partition *known = &run->sequencer->peers->partitions[p->id];
    if (known->is_over)
        return;
    known->was_over = true;
    peers_note_over(run, p);
}

/* Which partitions are over with the micro-batch that was chosen (they have ended, and no rows are left), and which ones it
 * goes without: they have no rows, or are held back. */
static void note_offers(struct run *run, struct chosen *chosen)
{
    const struct sequencer *s = run->sequencer;
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        struct peer_partition *known = &s->peers->partitions[i];
        enum offer_tag tag = s->partitions[i].offer.tag;
        bool is_held_back = chosen->number.rows == NUMBER_UP_TO && s->partitions[i].is_held_back;
        if (tag == OFFER_NONE || is_held_back)
            ids_add(&chosen->without, i);
        if (tag != OFFER_OVER || known->is_over)
            continue;
        known->is_over = true;
        ids_add(&chosen->over, i);
    }
}

/* What owners will say of the micro-batch. */
static void await_cuts(const struct run *run, struct chosen *chosen)
{
    struct cut *cut = &chosen->cut;
    chosen->cuts_left = peers_count(run);
    cut->slices_count = cut->rows = 0;
    cut->arrival = TIME_MIN;
    for (uint32_t i = 0; i < run->plan->sources_count; i++)
        cut->parts[i] = (struct watermark_part){
            .lowest = TIME_MAX, .holder = NO_PARTITION, .highest_idle = TIME_MIN, .newest = TIME_MIN};
}

/* Takes the offer with which the micro-batch ends. */
static void take_end(const struct run *run, const struct number *number)
{
    const struct sequencer *s = run->sequencer;
    struct peer_partition *last = &s->peers->partitions[number->last];
    if (number->rows != NUMBER_UP_TO)
        return;
    last->first = (last->first + 1) % last->room;
    last->count--;
    for (uint32_t i = 0; s->until_us != TIME_MAX && i < s->partitions_count; i++) {
        struct peer_partition *known = &s->peers->partitions[i];
        const struct partition *p = &s->partitions[i];
        if (p->offer.tag != OFFER_ROWS || p->is_held_back || number->bound < known->taken.time)
            continue;
        known->taken.is_whole =
            i <= number->last || (number->bound == known->taken.time && known->taken.is_whole);
        known->taken.time = number->bound;
    }
}

/* Whether the micro-batch that was chosen last must be formed before the next one can be chosen: what that one is depends on what
 * operators answer, or on the event times of rows that it leaves (`align:`). */
static bool must_wait(const struct run *run)
{
    struct sequencer_peers *peers = run->sequencer->peers;
    if (peers->next == sequencer_formed(run))
        return false;
    const struct number *last = &chosen_at(peers, peers->next - 1)->number;
    return last->has_work || (run->plan->has_alignment && last->rows == NUMBER_UP_TO);
}

/* Tells each owner what the micro-batch holds, in a replay with the slices of that owner. */
static void tell_number(struct run *run, const struct chosen *chosen)
{
    const struct number *number = &chosen->number;
    struct byte_buffer *out = &run->sequencer->peers->out;
    peers_begin(out, PEER_NUMBER);
    words_put(out, number->micro_batch);
    words_put(out, number->rows);
    words_put(out, (uint64_t)number->bound);
    words_put(out, (uint64_t)number->highest);
    words_put(out, number->last);
    words_put(out, number->cut);
    put_ids(out, &chosen->over);
    put_ids(out, &chosen->idle);
    put_ids(out, &chosen->without);
    put_barrier(number, out);
    size_t length = out->length;
    for (uint32_t worker = 0; worker < peers_count(run); worker++) {
        out->length = length;
        if (number->rows == NUMBER_LOGGED)
            lead_put_slices(run, chosen, worker, out);
        peers_send_to(run, worker);
    }
}

/* Chooses the next micro-batch, and tells all owners; false: not possible now. */
bool lead_choose(struct run *run)
{
    struct sequencer_peers *peers = run->sequencer->peers;
    struct chosen *chosen = chosen_at(peers, peers->next);
    struct number *number = &chosen->number;
    if (peers->has_chosen_end || peers->next - sequencer_formed(run) >= SLOTS || must_wait(run))
        return false;
    chosen->over.count = chosen->without.count = 0;
    bool is_chosen = form_choose(run, peers->next, number);
    lead_tell_partitions(run);
    if (!is_chosen)
        return lead_tell_compute(run);
    if (number->rows == NUMBER_LOGGED)
        lead_note_slices(run, chosen);
    else
        note_offers(run, chosen);
    await_cuts(run, chosen);
    take_end(run, number);
    peers->has_chosen_end = number->is_end;
    peers->next++;
    tell_number(run, chosen);
    return true;
}

static void add_part(struct watermark_part *all, struct watermark_part part)
{
    bool is_lower = part.has_say && (!all->has_say || part.lowest < all->lowest ||
                                     (part.lowest == all->lowest && part.holder < all->holder));
    if (is_lower) {
        all->lowest = part.lowest;
        all->holder = part.holder;
    }
    all->has_say |= part.has_say;
    all->highest_idle = MAX(all->highest_idle, part.highest_idle);
    all->newest = MAX(all->newest, part.newest);
}

static void add_slice(struct cut *cut, struct cut_slice slice)
{
    if (cut->slices_count == cut->slices_room) {
        cut->slices_room = MAX(16, 2 * cut->slices_room);
        cut->slices = mem_realloc(cut->slices, cut->slices_room * sizeof(*cut->slices));
    }
    cut->rows += (uint32_t)slice.records;
    cut->slices[cut->slices_count++] = slice;
}

/* Takes the slices of an owner, by partition. Whether they may be what the micro-batch holds of it. */
static bool take_slices(struct run *run, uint32_t from, struct chosen *chosen, struct words *message)
{
    const struct sequencer *s = run->sequencer;
    uint64_t count = words_take(message), next = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t id = words_take(message);
        struct cut_slice slice = {.partition = (uint32_t)id, .records = words_take(message)};
        slice.time = (int64_t)words_take(message);
        slice.offset = (int64_t)words_take(message);
        if (message->is_short || id < next || id >= s->partitions_count || s->partitions[id].owner != from)
            return false;
        struct peer_partition *known = &s->peers->partitions[id];
        bool is_chosen = chosen->number.rows == NUMBER_LOGGED
                             ? lead_is_logged(run, chosen, from, i, &slice)
                             : chosen->number.rows == NUMBER_UP_TO && slice.records - 1 < BATCH_ROWS;
        struct next_event behind = {0};
        bool may_align = watermark_may_align(run, &s->partitions[id]);
        if (!is_chosen || slice.time < known->cut_time || slice.time > chosen->number.bound ||
            slice.offset < known->cut_offset || (may_align && !take_next(known, message, &behind)) ||
            (behind.is_aligned && known->count == 0))
            return false;
        note_next(known, behind);
        next = id + 1;
        known->cut_time = slice.time;
        known->cut_offset = slice.offset;
        add_slice(&chosen->cut, slice);
    }
    return !message->is_short;
}

/* Takes what an owner's partitions contribute to a source's watermark. */
static bool take_part(const struct run *run, uint32_t from, uint32_t source, struct watermark_part *all,
                      struct words *message)
{
    const struct sequencer *s = run->sequencer;
    uint64_t has_say = words_take(message);
    struct watermark_part part = {.has_say = has_say != 0, .lowest = (int64_t)words_take(message)};
    uint64_t holder = words_take(message);
    part.holder = (uint32_t)holder;
    part.highest_idle = (int64_t)words_take(message);
    part.newest = (int64_t)words_take(message);
    bool is_own = holder < s->partitions_count && s->partitions[holder].owner == from &&
                  s->partitions[holder].source == source;
    if (message->is_short || has_say > 1 || (has_say == 1 ? !is_own : holder != NO_PARTITION))
        return false;
    add_part(all, part);
    return true;
}

/* The leader: takes in what an owner's rows of a micro-batch show. */
bool lead_take_cut(struct run *run, uint32_t from, struct words *message)
{
    struct sequencer_peers *peers = run->sequencer->peers;
    uint64_t micro_batch = words_take(message);
    struct chosen *chosen = chosen_at(peers, micro_batch);
    if (message->is_short || micro_batch != peers->cuts_next[from] || micro_batch >= peers->next ||
        !take_slices(run, from, chosen, message))
        return false;
    peers->cuts_next[from]++;
    struct cut *cut = &chosen->cut;
    bool is_cut = chosen->number.cut != NO_PARTITION;
    int64_t arrival = is_cut ? (int64_t)words_take(message) : TIME_MIN;
    cut->arrival = MAX(cut->arrival, arrival);
    for (uint32_t i = 0; is_cut && i < run->plan->sources_count; i++)
        if (!take_part(run, from, i, &cut->parts[i], message))
            return false;
    if (!lead_take_positions(run, from, &chosen->number, message))
        return false;
    chosen->cuts_left--;
    return peers_is_whole(message);
}

static int by_partition(const void *a, const void *b)
{
    const struct cut_slice *x = a, *y = b;
    return x->partition < y->partition ? -1 : x->partition > y->partition;
}

/* The leader: finishes the next micro-batch, if all owners have cut it, and tells all others. */
bool lead_finish(struct run *run)
{
    struct sequencer_peers *peers = run->sequencer->peers;
    uint64_t micro_batch = sequencer_formed(run);
    struct chosen *chosen = chosen_at(peers, micro_batch);
    struct cut *cut = &chosen->cut;
    if (micro_batch == peers->next || chosen->cuts_left > 0)
        return false;
    for (uint32_t i = 0; i < chosen->over.count; i++) {
        struct peer_partition *known = &peers->partitions[chosen->over.items[i]];
        if (!known->was_over)
            log_ended(run, &run->sequencer->partitions[chosen->over.items[i]]);
        known->was_over = false;
    }
    for (uint32_t i = 0; i < chosen->idle.count; i++)
        log_idle(run, &run->sequencer->partitions[chosen->idle.items[i]]);
    chosen->idle.count = 0;
    if (cut->slices_count > 1)
        qsort(cut->slices, cut->slices_count, sizeof(*cut->slices), by_partition);
    form_finish(run, &chosen->number, cut);
    const struct slot *slot = sequencer_slot(run, micro_batch);
    peers_begin(&peers->out, PEER_FORMED);
    words_put(&peers->out, micro_batch);
    words_put(&peers->out, slot->is_end);
    words_put(&peers->out, slot->is_final);
    words_put(&peers->out, slot->load);
    lead_put_done(run, slot, &peers->out);
    for (uint32_t i = 0; i <= run->plan->sources_count; i++)
        words_put(&peers->out, (uint64_t)slot->watermarks[i]);
    put_formed_barrier(run, slot, &peers->out);
    peers_post_all(run, &peers->out);
    return log_keep_up(run);
}
