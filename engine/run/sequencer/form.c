/* Forms micro-batches. One is formed when each partition has a decoded head, or is not waited for. The head's rows end where
 * it does, or at the partition's next cut; the earliest of these ends, by (order time, partition), is the bound of the
 * micro-batch, which has the rows of all partitions up to it.
 *
 * Four steps, each of which knows no more than it says:
 *
 *   offer    of each partition: whether it has rows, and the order time of its next end
 *   choose   from the offers, never from rows: what the micro-batch holds, and whether it has a barrier (struct number)
 *   cut      the rows of each partition, and what only they show: slices, and what moves watermarks
 *   finish   watermarks, load and placement; the entries in the order log; with a barrier, the positions
 *
 * All under the sequencer's mutex. */
#include "run/sequencer/internal.h"

#include "run/base/barrier.h"
#include "run/base/peers.h"
#include "run/base/placements.h"
#include "run/order/order.h"
#include "run/publish/publish.h"

#include "core/mem.h"

/* --- Offers --- */

uint32_t offer_end(const struct sequencer *s, const struct partition *p, const struct piece *piece,
                   uint32_t row, uint32_t since_cut, bool *is_cut)
{
    uint32_t rows = piece->batch->rows, records = s->cut_records - since_cut;
    uint32_t end = watermark_next_mark(piece, row, MIN(rows, row + records));
    *is_cut = end - row == records || watermark_is_mark(piece, end - 1) ||
              (end == rows && (p->is_live || partition_is_whole(p, piece)));
    return end;
}

void offer_own(struct run *run, struct partition *p)
{
    p->offer = (struct offer){.tag = OFFER_WAIT};
    while (p->head < p->tail) {
        if (!partition_prepare(run, p))
            return;
        if (p->head_row < PIECE_AT(p, p->head)->batch->rows)
            break;
        partition_drop_head(p);
    }
    bool goes_on = !p->is_ended || p->is_reading;
    p->offer.dry_us = p->is_ended ? 0 : p->dry_us;
    if (p->head < p->tail) {
        const struct piece *piece = PIECE_AT(p, p->head);
        const int64_t *times = piece->batch->order_time;
        p->offer.tag = OFFER_ROWS;
        p->offer.end = offer_end(run->sequencer, p, piece, p->head_row, p->since_cut, &p->offer.is_cut);
        p->offer.is_before_until = times[p->head_row] < run->sequencer->until_us;
        p->offer.end_time = times[p->offer.end - 1];
    } else if (!goes_on) {
        p->offer.tag = OFFER_OVER;
    } else if (live_goes_without(run, p, p->is_quiet, p->offer.dry_us)) {
        p->offer.tag = OFFER_NONE;
        p->offer.quiet_us = p->is_quiet && !p->is_reading ? p->dry_us : 0;
    }
}

static void make_offer(struct run *run, struct partition *p)
{
    if (unlikely(run->sequencer->peers != NULL))
        offer_known(run, p);
    else
        offer_own(run, p);
}

/* --- Choosing --- */

/* What the partitions offer together. */
enum heads {
    HEADS_WAIT, /* wait for rows of a partition */
    HEADS_ROWS,
    HEADS_LULL, /* live sources have no rows now; or none may be taken: at a stop, or while sinks are full */
    HEADS_STOP, /* the replayed order log ends here, and later micro-batches cannot be computed */
    HEADS_OVER, /* no rows any more: all partitions have ended */
};

/* Returns HEADS_WAIT unless every partition has rows to offer, has ended, or is not waited for. */
static enum heads find_heads(struct run *run)
{
    struct sequencer *s = run->sequencer;
    bool has_rows = false, is_over = true;
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        struct partition *p = &s->partitions[i];
        make_offer(run, p);
        if (p->offer.tag == OFFER_WAIT)
            return HEADS_WAIT;
        has_rows |= p->offer.tag == OFFER_ROWS;
        is_over &= p->offer.tag == OFFER_OVER;
        if (unlikely(s->peers != NULL))
            continue;
        if (p->offer.tag == OFFER_OVER && !p->is_over)
            log_ended(run, p);
        p->is_over = p->logged.is_over = p->offer.tag == OFFER_OVER;
    }
    return has_rows ? HEADS_ROWS : is_over ? HEADS_OVER : HEADS_LULL;
}

/* The micro-batch ends with the offer that ends first. */
static void choose_rows(struct run *run, struct number *number)
{
    const struct sequencer *s = run->sequencer;
    const struct partition *first = NULL;
    watermark_align(run);
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        const struct partition *p = &s->partitions[i];
        if (p->offer.tag == OFFER_ROWS && !p->is_held_back &&
            (first == NULL || p->offer.end_time < first->offer.end_time))
            first = p;
    }
    leat_assert(first != NULL);
    number->rows = NUMBER_UP_TO;
    number->bound = first->offer.end_time;
    number->last = first->id;
    number->cut = first->offer.is_cut ? first->id : NO_PARTITION;
}

/* Whether the next rows of all partitions are at or beyond --until. */
static bool is_beyond_until(struct run *run)
{
    const struct sequencer *s = run->sequencer;
    if (s->until_us == TIME_MAX)
        return false;
    if (s->is_replaying)
        return replay_is_beyond(run);
    for (uint32_t i = 0; i < s->partitions_count; i++)
        if (s->partitions[i].offer.tag == OFFER_ROWS && s->partitions[i].offer.is_before_until)
            return false;
    return true;
}

/* Whether the next micro-batch can be formed: by the order log in a replay, else by the partitions' offers. */
static enum heads next_heads(struct run *run)
{
    enum replay_state state = run->sequencer->is_replaying ? replay_ready(run) : REPLAY_WAIT;
    if (run_has_failed(run))
        return HEADS_WAIT;
    if (!run->sequencer->is_replaying)
        return find_heads(run);
    switch (state) {
    case REPLAY_NUMBER: return HEADS_ROWS;
    case REPLAY_LAST: return HEADS_OVER;
    case REPLAY_OUT: return HEADS_STOP;
    default: return HEADS_WAIT;
    }
}

/* Whether a partition without rows is given up by a stop: a source that ends does not answer. */
static bool is_silent(struct run *run)
{
    const struct sequencer *s = run->sequencer;
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        make_offer(run, &s->partitions[i]);
        if (s->partitions[i].offer.tag == OFFER_WAIT && live_is_silent(s->partitions[i].offer.dry_us))
            return true;
    }
    return false;
}

/* What the last micro-batch before a stop that was asked for holds: with sources that end the rows that are next, however long it takes
 * to read and decode them, so that no stop, and no change of workers, shows in the numbers of micro-batches. None where rows may not be
 * taken, or a source does not answer. */
static enum heads heads_at_stop(struct run *run)
{
    const struct sequencer *s = run->sequencer;
    bool has_rows = s->is_replaying
                        ? replay_log_is_redo(run)
                        : !s->is_live && (hold_own(run, false) | (peers_holds(run) & HOLD_ALL)) == 0;
    enum heads heads = has_rows ? next_heads(run) : HEADS_LULL;
    if (s->is_replaying)
        return heads;
    return heads == HEADS_OVER || (heads == HEADS_WAIT && is_silent(run)) ? HEADS_LULL : heads;
}

static enum heads choose_heads(struct run *run, bool is_stop, bool is_held)
{
    if (run->sequencer->has_input_ended)
        return HEADS_OVER;
    if (is_stop)
        return heads_at_stop(run);
    return is_held && !run->sequencer->is_replaying ? HEADS_LULL : next_heads(run);
}

bool form_slot_is_free(const struct run *run, uint64_t micro_batch)
{
    const struct slot *slot = sequencer_slot(run, micro_batch);
    if (micro_batch >= run->sequencer->first + SLOTS)
        for (uint32_t stage = 0; stage < run->plan->stages_count; stage++)
            if (atomic_load_explicit(&slot->stage_done[stage], memory_order_acquire) !=
                run_stage_pieces(run, stage))
                return false;
    return true;
}

bool form_has_slot(const struct run *run, uint64_t micro_batch)
{
    if (!form_slot_is_free(run, micro_batch))
        return false;
    if (micro_batch >= run->sequencer->first + SLOTS)
        for (uint32_t stage = 0; stage < run->plan->stages_count; stage++)
            if (!peers_have_done(run, stage, micro_batch - SLOTS))
                return false;
    return true;
}

static bool has_risen(const struct run *run)
{
    return likely(run->sequencer->peers == NULL) ? run->sequencer->has_risen : lead_has_risen(run);
}

/* Whether to form a micro-batch without rows, in a lull or while sinks are full: because a partition became
 * idle, because the arrival clock ticks, or because a checkpoint waits for a barrier and has something to
 * save: an epoch that has micro-batches, or positions that rose without records. */
static bool is_worth_a_micro_batch(struct run *run, const struct number *number)
{
    return number->cut != NO_PARTITION || number->tick != TIME_MIN ||
           (run->barrier != NULL && (number->micro_batch > run->sequencer->last_barrier || has_risen(run)) &&
            barrier_is_waiting(run));
}

static bool has_read_all(const struct sequencer *s)
{
    for (uint32_t i = 0; i < s->partitions_count; i++)
        if (!s->partitions[i].is_ended && !s->partitions[i].is_quiet)
            return false;
    return true;
}

/* Workers that go on from a head begin with a checkpoint (checkpoints/coordinator.c), for which sinks wait since the round before: its
 * barrier comes with the first micro-batch, not behind the many that could be formed while all of them begin it. */
static bool awaits_first_checkpoint(struct run *run, uint64_t micro_batch)
{
    return run->options.peers != NULL && run->options.head.length > 0 && run->barrier != NULL &&
           micro_batch == run->sequencer->first && barrier_is_to_come(run);
}

/* Whether nothing that comes behind the sources keeps a micro-batch from being formed. *is_held: it may have no rows. */
static bool may_form(struct run *run, uint64_t micro_batch, bool is_stop, bool *is_held)
{
    if (!form_has_slot(run, micro_batch))
        return hold_because(run, RUN_LANE_BEHIND_NODES);
    if (!is_stop && awaits_first_checkpoint(run, micro_batch))
        return hold_because(run, RUN_LANE_BEHIND_CHECKPOINT);
    unsigned holds = hold_own(run, is_stop) | (peers_holds(run) & (is_stop ? HOLD_AT_STOP : HOLD_ALL));
    if (holds & HOLD_AT_STOP)
        return hold_because(run, hold_cause(holds));
    if (run->sequencer->has_input_ended && !ended_is_through(run, micro_batch))
        return hold_because(run, RUN_LANE_BEHIND_NODES);
    if (!run->sequencer->has_input_ended && !live_discover(run))
        return false;
    *is_held = (holds & HOLD_SINKS) != 0;
    if (*is_held && !hold_may_form(run, micro_batch, holds))
        return hold_because(run, RUN_LANE_BEHIND_SINKS);
    enum run_lane_time cause = hold_cause(holds & (HOLD_DISK | HOLD_STORE));
    (void)hold_because(run, cause);
    return cause == RUN_LANE_WAITS;
}

/* Marks live partitions that have become idle; returns the last one marked, or NO_PARTITION. */
static uint32_t take_idle(struct run *run, enum heads heads)
{
    struct sequencer *s = run->sequencer;
    uint32_t idle = NO_PARTITION;
    for (uint32_t i = 0; s->is_live && i < s->partitions_count; i++) {
        struct partition *p = &s->partitions[i];
        if (heads == HEADS_LULL) /* offers are old, where no rows may be taken */
            make_offer(run, p);
        if (!live_becomes_idle(run, p) ||
            (unlikely(s->peers != NULL) ? !peers_note_idle(run, p) : p->is_idle))
            continue;
        if (likely(s->peers == NULL)) {
            log_idle(run, p);
            p->is_idle = true;
        }
        idle = p->id;
    }
    return idle;
}

/* A micro-batch whose rows are not chosen by a log, and which is neither a stop's nor behind the end. False: not now. */
static bool choose_now(struct run *run, enum heads heads, bool is_held, struct number *number)
{
    uint32_t idle = take_idle(run, heads);
    number->follows_load = true;
    if (heads == HEADS_ROWS) {
        choose_rows(run, number);
        return true;
    }
    /* Live sources have no end; so a run with a trace stops when all sources have nothing more to read. */
    if (unlikely(run->trace != NULL) && has_read_all(run->sequencer))
        atomic_store(&run->sequencer->stop_requested, true);
    number->cut = idle;
    number->tick = is_held ? TIME_MIN : live_tick(run);
    return is_worth_a_micro_batch(run, number);
}

bool form_choose(struct run *run, uint64_t micro_batch, struct number *number)
{
    struct sequencer *s = run->sequencer;
    *number = (struct number){.micro_batch = micro_batch,
                              .slot = sequencer_slot(run, micro_batch),
                              .cut = NO_PARTITION,
                              .bound = TIME_MIN,
                              .tick = TIME_MIN};
    bool is_stop = atomic_load_explicit(&s->stop_requested, memory_order_relaxed), is_held;
    if (!may_form(run, micro_batch, is_stop, &is_held))
        return false;
    enum heads heads = choose_heads(run, is_stop, is_held);
    if (heads == HEADS_WAIT)
        return false;
    /* A replay after a fallback must form the micro-batches of the log unchanged: at a stop, too, the last
     * micro-batch is the next one of the log. */
    bool is_redo = s->is_replaying && replay_log_is_redo(run);
    bool has_rows = heads == HEADS_ROWS && (is_redo || !is_beyond_until(run));
    s->is_at_until = heads == HEADS_ROWS && !has_rows && !s->is_live && !s->is_replaying;
    is_stop |= heads == HEADS_STOP || (heads == HEADS_ROWS && !has_rows);
    bool has_ended = heads == HEADS_OVER;
    number->has_work = has_ended && ended_has_work(run);
    number->is_final = has_ended && !number->has_work;
    number->is_end = is_stop || number->is_final;
    if (number->is_end && run->barrier != NULL && !barrier_takes_last(run))
        return false;
    if (s->is_replaying && (!is_stop || is_redo))
        replay_choose(run, number);
    else if ((!is_stop || has_rows) && !has_ended && !choose_now(run, heads, is_held, number))
        return false;
    s->order_highest = MAX(s->order_highest, number->bound);
    number->highest = s->order_highest;
    number->barrier = run->barrier == NULL ? 0 : barrier_attach(run, number->is_end);
    if (number->barrier != 0)
        s->last_barrier = micro_batch + 1;
    return true;
}

/* --- Cutting --- */

/* Index behind the head's rows with order times up to the bound, by binary search: order times never fall. */
static uint32_t rows_up_to(const struct partition *p, int64_t bound, bool is_inclusive)
{
    const struct batch *batch = PIECE_AT(p, p->head)->batch;
    uint32_t low = p->head_row, high = batch->rows;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        bool is_within =
            is_inclusive ? batch->order_time[middle] <= bound : batch->order_time[middle] < bound;
        if (is_within)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void cut_rows(struct run *run, const struct number *number)
{
    struct sequencer *s = run->sequencer;
    struct slot *slot = number->slot;
    slot->slices_count = 0;
    if (slot->slices_room < s->partitions_count) {
        slot->slices = mem_realloc(slot->slices, s->partitions_count * sizeof(*slot->slices));
        slot->slices_room = s->partitions_count;
    }
    if (number->rows == NUMBER_LOGGED)
        replay_cut(run, number);
    for (uint32_t i = 0; number->rows == NUMBER_UP_TO && i < s->partitions_count; i++) {
        struct partition *p = &s->partitions[i];
        if (p->offer.tag != OFFER_ROWS || p->is_held_back || p->owner != peers_self(run))
            continue;
        uint32_t end =
            p->id == number->last ? p->offer.end : rows_up_to(p, number->bound, p->id < number->last);
        if (end > p->head_row)
            partition_cut(run, p, end, &slot->slices[slot->slices_count++]);
    }
    if (number->cut != NO_PARTITION)
        s->partitions[number->cut].since_cut = 0;
}

void form_cut(struct run *run, const struct number *number, struct cut *cut)
{
    const struct slot *slot = number->slot;
    cut_rows(run, number);
    if (cut->slices_room < run->sequencer->partitions_count) {
        cut->slices_room = run->sequencer->partitions_count;
        cut->slices = mem_realloc(cut->slices, cut->slices_room * sizeof(*cut->slices));
    }
    cut->slices_count = cut->rows = 0;
    for (uint32_t i = 0; i < slot->slices_count;) {
        const struct partition *p = slot->slices[i].partition;
        struct cut_slice *taken = &cut->slices[cut->slices_count++];
        *taken = (struct cut_slice){.partition = p->id, .time = p->order_max, .offset = p->offset};
        /* In a replay a slice of the log may span several batches. */
        for (; i < slot->slices_count && slot->slices[i].partition == p; i++)
            taken->records += slot->slices[i].end - slot->slices[i].begin;
        cut->rows += (uint32_t)taken->records;
    }
    if (number->cut != NO_PARTITION)
        watermark_contribute(run, number, cut);
}

/* --- Finishing --- */

/* Sets the slot's watermarks. A micro-batch that ends at no cut, such as that of a stop without rows, does not advance them. */
static void set_watermarks(struct run *run, const struct number *number, const struct cut *cut)
{
    const struct sequencer *s = run->sequencer;
    if (number->cut != NO_PARTITION)
        watermark_advance(run, cut);
    /* The last element is the arrival clock. */
    for (uint32_t source = 0; source <= run->plan->sources_count; source++)
        number->slot->watermarks[source] = number->is_final ? TIME_MAX : s->source_watermarks[source];
}

/* Does what is due at a barrier. */
static void finish_barrier(struct run *run, struct slot *slot, uint64_t epoch)
{
    slot->barrier = epoch;
    slot->next = slot->announced = NULL;
    if (slot->barrier == 0)
        return;
    sequencer_save(run, slot->is_final, &run->barrier->positions);
    log_seal(run);
    if (!slot->is_end)
        placements_turn(run, slot->micro_batch, &slot->announced, &slot->next);
}

void form_slot(struct run *run, struct slot *slot)
{
    struct sequencer *s = run->sequencer;
    for (uint32_t stage = 0; stage < run->plan->stages_count; stage++)
        atomic_store_explicit(&slot->stage_done[stage], 0, memory_order_relaxed);
    s->is_finished = slot->is_final;
    s->has_ended = slot->is_end;
    atomic_store_explicit(&s->formed, slot->micro_batch + 1, memory_order_release);
}

void form_finish(struct run *run, const struct number *number, const struct cut *cut)
{
    struct sequencer *s = run->sequencer;
    struct slot *slot = number->slot;
    slot->micro_batch = number->micro_batch;
    slot->is_final = number->is_final;
    slot->is_end = number->is_end;
    slot->is_done = number->has_work ? s->is_done : NULL;
    if (number->tick != TIME_MIN)
        live_set_clock(run, number->tick);
    set_watermarks(run, number, cut);
    if (number->rows == NUMBER_LOGGED)
        live_set_load(run, number->load);
    if (number->rows == NUMBER_LOGGED)
        s->logged_next = number->logged + 1;
    if (number->follows_load)
        live_follow_load(run, cut->rows);
    slot->load = s->load;
    slot->placement = placements_now(run);
    slot->is_published = run->publisher != NULL && publish_is_on(run);
    log_micro_batch(run, number, cut);
    s->has_input_ended |= number->has_work;
    s->is_replaying &= !number->has_work;
    finish_barrier(run, slot, number->barrier);
    form_slot(run, slot);
}

bool form_one(struct run *run)
{
    struct sequencer *s = run->sequencer;
    struct number number;
    if (s->has_ended || !form_choose(run, atomic_load_explicit(&s->formed, memory_order_relaxed), &number))
        return false;
    form_cut(run, &number, &s->cut);
    form_finish(run, &number, &s->cut);
    return log_keep_up(run);
}
