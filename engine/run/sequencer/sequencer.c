/* The sequencer: merges the rows of all partitions into one order, and cuts this order into micro-batches.
 *
 * Each partition keeps a ring of pieces (raw batches). A lane without other work reads the next piece of a
 * partition, which one lane does at a time; then it decodes the piece, in parallel with other lanes. A row's
 * order time is the running maximum of its partition's arrival times, or of its accepted event times; it
 * never falls, so a slice is found by binary search.
 *
 * A micro-batch is formed when the head of every partition is decoded. Each head has a last row; the earliest
 * of these rows, by (order time, partition), is the micro-batch's bound. The micro-batch holds the rows of
 * all partitions up to the bound. With one partition each batch is a micro-batch. What the micro-batches hold
 * depends on the records alone, not on which lane decoded them, or when.
 *
 * Watermarks advance at cuts: see watermark.c, which also tells which events are too far ahead, and which
 * partitions wait. */
#include "run/sequencer/internal.h"

#include "run/base/placements.h"

#include "core/mem.h"

#include "run/base/barrier.h"
#include "run/order/order.h"
#include "run/publish/publish.h"

#include <stdlib.h>

/* --- Reading and decoding --- */

static uint32_t pieces_in_ring(const struct partition *p)
{
    return (uint32_t)(p->tail - p->head);
}

/* The partition to read next: the one with the fewest pieces, because a partition without a decoded head
 * stops all others. NULL: no partition may be read now. */
static struct partition *choose_partition(struct run *run)
{
    struct sequencer *s = run->sequencer;
    struct partition *best = NULL;
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        struct partition *p = &s->partitions[i];
        if (p->is_ended || p->is_reading || pieces_in_ring(p) >= p->ring || !live_may_read(run, p))
            continue;
        if (best == NULL || pieces_in_ring(p) < pieces_in_ring(best))
            best = p;
    }
    return best;
}

static void select_good_rows(struct batch *batch, const uint64_t *bad, uint32_t bad_count)
{
    if (bad_count == 0)
        return;
    uint16_t *sel = arena_alloc(&batch->arena, batch->rows * sizeof(*sel));
    uint32_t selected = 0;
    for (uint32_t row = 0; row < batch->rows; row++)
        if (!bit_get(bad, row))
            sel[selected++] = (uint16_t)row;
    batch->sel = sel;
    batch->selected = selected;
}

/* Takes event times from their column (rows without one are bad), then sets order times as if the partition
 * began with this piece. */
static void set_times(struct run *run, const struct partition *p, struct piece *piece)
{
    struct batch *batch = piece->batch;
    const struct source_common *common = run_source_node(run, p->source)->common;
    uint64_t bad[BATCH_VALID_WORDS] = {0};
    for (uint32_t i = 0; i < piece->output.bad_count; i++)
        bit_set(bad, piece->output.bad[i].row);
    bool has_time = common->event_time.name.length > 0;
    if (has_time) {
        const struct column *times = &batch->columns[common->event_time.index];
        for (uint32_t row = 0; row < batch->rows; row++) {
            bool is_valid = column_is_valid(times, row);
            batch->event_time[row] = is_valid ? times->ints[row] : 0;
            if (unlikely(!is_valid) && !bit_get(bad, row)) {
                bit_set(bad, row);
                piece->output.bad[piece->output.bad_count++] =
                    (struct bad_record){.row = row, .column = UINT32_MAX, .reason = "the event time is null"};
            }
        }
    } else {
        memset(batch->event_time, 0, batch->rows * sizeof(*batch->event_time));
    }
    /* Order times: as recorded, if a recording kept them; else arrival times; else event times. */
    const int64_t *recorded = batch->order_time;
    batch->order_time = arena_alloc(&batch->arena, MAX(batch->rows, 1) * sizeof(int64_t));
    const int64_t *times = recorded != NULL              ? recorded
                           : batch->arrival_time != NULL ? batch->arrival_time
                                                         : batch->event_time;
    piece->has_own_order = times != batch->event_time;
    int64_t running = TIME_MIN;
    for (uint32_t row = 0; row < batch->rows; row++) {
        if ((has_time || times != batch->event_time) && !bit_get(bad, row) && times[row] > running)
            running = times[row];
        batch->order_time[row] = running;
    }
    select_good_rows(batch, bad, piece->output.bad_count);
}

static void decode_piece(struct run *run, struct decoding *decoding, struct partition *p, struct piece *piece)
{
    struct source *source = &run->sources[p->source];
    const struct source_kind *kind = run_source_node(run, p->source)->source_kind;
    if (decoding->decoders[p->source] == NULL && kind->decoder_new != NULL)
        decoding->decoders[p->source] = kind->decoder_new(source);
    struct batch *batch = batch_new(run->pool, source->schema, piece->raw.count);
    batch->partition = p->id;
    batch_number(batch, piece->raw.position.record, kind->has_offsets ? piece->raw.offsets : NULL);
    piece->output = (struct decode_output){
        .batch = batch,
        .bad = arena_alloc(&batch->arena, MAX(piece->raw.count, 1) * sizeof(struct bad_record)),
    };
    kind->decode(source, decoding->decoders[p->source], &piece->raw, &piece->output);
    leat_assert(piece->output.bad_count <= piece->raw.count);
    piece->batch = batch;
    set_times(run, p, piece);
    watermark_decoded(run, decoding, p, piece);
    if (unlikely(run->observer != NULL))
        run->observer->has_read(run, p->source, p->local, &piece->raw, batch);
    atomic_store_explicit(&piece->is_ready, true, memory_order_release);
}

enum work { WORK_NONE, WORK_DRY, WORK_DONE };

/* Reads and decodes a piece of one partition. */
static enum work read_piece(struct run *run, struct decoding *decoding)
{
    struct sequencer *s = run->sequencer;
    pthread_mutex_lock(&s->mutex);
    struct partition *p = s->has_ended ? NULL : choose_partition(run);
    if (p == NULL) {
        pthread_mutex_unlock(&s->mutex);
        return WORK_NONE;
    }
    p->is_reading = true;
    struct piece *piece = PIECE_AT(p, p->tail);
    pthread_mutex_unlock(&s->mutex);

    const struct source_kind *kind = run_source_node(run, p->source)->source_kind;
    uint64_t wakes = atomic_load(&s->wakes);
    arena_reset(&piece->raw.arena);
    piece->raw.next = (struct source_position){0};
    enum read_status status = kind->read(&run->sources[p->source], p->local, &piece->raw);
    leat_assert(status != READ_BATCH || (piece->raw.count > 0 && piece->raw.count <= BATCH_ROWS));

    pthread_mutex_lock(&s->mutex);
    p->is_reading = false;
    bool has_changed = live_was_read(p, status, wakes);
    if (status == READ_BATCH) {
        atomic_store_explicit(&piece->is_ready, false, memory_order_relaxed);
        piece->is_fixed = false;
        p->tail++;
    } else if (status == READ_END) {
        p->is_ended = true;
    }
    if (p->has_offsets && (status == READ_QUIET || status == READ_END))
        p->reach = MAX(p->reach, piece->raw.next.b);
    s->has_risen |= partition_has_risen(p);
    pthread_mutex_unlock(&s->mutex);
    if (status == READ_ERROR)
        run_fail(run);
    if (status == READ_BATCH)
        decode_piece(run, decoding, p, piece);
    else if (unlikely(run->observer != NULL))
        run->observer->has_reached(run, p->source, p->local, p->reach);
    return has_changed ? WORK_DONE : WORK_DRY;
}

bool sequencer_work(struct run *run, struct decoding *decoding)
{
    enum work work = WORK_DRY;
    while (work == WORK_DRY) /* the partition had no records, but another one may have some */
        work = read_piece(run, decoding);
    return work == WORK_DONE;
}

/* --- Forming micro-batches --- */

/* What the heads of the partitions offer for the next micro-batch. */
enum heads {
    HEADS_WAIT, /* wait for rows of a partition */
    HEADS_ROWS,
    HEADS_LULL, /* live sources have no rows now; or none may be taken: at a stop, or while sinks are full */
    HEADS_STOP, /* the replayed order log ends here, and later micro-batches cannot be computed */
    HEADS_OVER, /* no rows any more: all partitions have ended */
};

/* Prepares the heads of all partitions. Returns HEADS_WAIT unless every partition has a decoded head with
 * rows left, has ended, or is not waited for (live_goes_without). */
static enum heads find_heads(struct run *run)
{
    struct sequencer *s = run->sequencer;
    bool has_rows = false, is_over = true;
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        struct partition *p = &s->partitions[i];
        while (p->head < p->tail) {
            if (!partition_prepare(run, p))
                return HEADS_WAIT;
            if (p->head_row < PIECE_AT(p, p->head)->batch->rows)
                break;
            partition_drop_head(p);
        }
        bool is_empty = p->head == p->tail;
        bool goes_on = !p->is_ended || p->is_reading;
        if (is_empty && goes_on && !live_goes_without(run, p))
            return HEADS_WAIT;
        has_rows |= !is_empty;
        is_over &= is_empty && !goes_on;
        if (is_empty && !goes_on && !p->is_over)
            log_ended(run, p);
        p->is_over = is_empty && !goes_on;
    }
    return has_rows ? HEADS_ROWS : is_over ? HEADS_OVER : HEADS_LULL;
}

/* Index behind the last row that the next micro-batch may take from the head piece: the piece's end, or the
 * partition's next cut. */
static uint32_t head_end(const struct sequencer *s, const struct partition *p)
{
    const struct piece *piece = PIECE_AT(p, p->head);
    uint32_t end = MIN(piece->batch->rows, p->head_row + s->cut_records - p->since_cut);
    return watermark_next_mark(piece, p->head_row, end);
}

/* The partition whose head ends first. bound: gets the order time of that end. */
static struct partition *earliest_end(struct sequencer *s, int64_t *bound)
{
    struct partition *first = NULL;
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        struct partition *p = &s->partitions[i];
        if (p->head == p->tail || p->is_held_back)
            continue;
        const struct batch *batch = PIECE_AT(p, p->head)->batch;
        int64_t end = batch->order_time[head_end(s, p) - 1];
        if (first == NULL || end < *bound) {
            first = p;
            *bound = end;
        }
    }
    return first;
}

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

/* Whether the sequenced rows of the partition end at a cut; if so, starts the count to the next one. */
static bool take_cut(const struct sequencer *s, struct partition *p)
{
    const struct piece *piece = PIECE_AT(p, p->head);
    const struct batch *batch = piece->batch;
    bool is_cut = p->since_cut == s->cut_records || watermark_is_mark(piece, p->head_row - 1) ||
                  (p->head_row == batch->rows && (p->is_live || partition_is_whole(p)));
    if (is_cut)
        p->since_cut = 0;
    return is_cut;
}

/* Sets the slot's watermarks. A stop of the run is no cut: watermarks do not advance. */
static void set_watermarks(struct run *run, struct slot *slot, bool is_cut)
{
    if (is_cut)
        watermark_advance(run);
    /* The last element is the arrival clock. */
    for (uint32_t source = 0; source <= run->plan->sources_count; source++)
        slot->watermarks[source] = slot->is_final ? TIME_MAX : run->sequencer->source_watermarks[source];
}

/* The slot for this micro-batch, or NULL while a stage has not finished the slot's earlier one. */
static struct slot *free_slot(struct run *run, uint64_t micro_batch)
{
    struct slot *slot = sequencer_slot(run, micro_batch);
    if (micro_batch >= run->sequencer->first + SLOTS)
        for (uint32_t stage = 0; stage < run->plan->stages_count; stage++)
            if (atomic_load_explicit(&slot->stage_done[stage], memory_order_acquire) !=
                run_stage_pieces(run, stage))
                return NULL;
    return slot;
}

/* Cuts the slices of the micro-batch; returns the partition at whose cut it ends, or NULL. */
static struct partition *fill_slices(struct run *run, struct slot *slot)
{
    struct sequencer *s = run->sequencer;
    int64_t bound = TIME_MAX;
    watermark_align(run);
    struct partition *last = earliest_end(s, &bound);
    leat_assert(last != NULL);
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        struct partition *p = &s->partitions[i];
        if (p->head == p->tail || p->is_held_back)
            continue;
        uint32_t end = p == last ? head_end(s, p) : rows_up_to(p, bound, p->id < last->id);
        if (end > p->head_row)
            partition_cut(run, p, end, &slot->slices[slot->slices_count++]);
    }
    return take_cut(s, last) ? last : NULL;
}

/* Whether the next rows of all partitions are at or beyond --until. */
static bool is_beyond_until(struct run *run)
{
    struct sequencer *s = run->sequencer;
    if (s->until_us == TIME_MAX)
        return false;
    if (s->is_replaying)
        return replay_is_beyond(run);
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        const struct partition *p = &s->partitions[i];
        if (p->head < p->tail && PIECE_AT(p, p->head)->batch->order_time[p->head_row] < s->until_us)
            return false;
    }
    return true;
}

/* Whether the next micro-batch can be formed: by the order log in a replay, else by the partitions' heads. */
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

static enum heads choose_heads(struct run *run, bool is_stop, bool is_held)
{
    bool is_replaying = run->sequencer->is_replaying;
    if (run->sequencer->has_input_ended)
        return HEADS_OVER;
    bool is_empty = is_stop ? !is_replaying || !replay_log_is_redo(run) : is_held && !is_replaying;
    return is_empty ? HEADS_LULL : next_heads(run);
}

/* Whether to form a micro-batch without rows, in a lull or while sinks are full: because a partition became
 * idle, because the arrival clock ticks, or because a checkpoint waits for a barrier and has something to
 * save: an epoch that has micro-batches, or positions that rose without records. */
static bool is_worth_a_micro_batch(struct run *run, uint64_t micro_batch, const struct partition *idle,
                                   int64_t tick)
{
    return idle != NULL || tick != TIME_MIN ||
           (run->barrier != NULL &&
            (micro_batch > run->sequencer->last_barrier || run->sequencer->has_risen) &&
            barrier_is_waiting(run));
}

static void set_room(struct run *run, struct slot *slot)
{
    uint32_t room = run->sequencer->partitions_count;
    if (slot->slices_room >= room)
        return;
    slot->slices = mem_realloc(slot->slices, room * sizeof(*slot->slices));
    slot->slices_room = room;
}

static bool has_read_all(const struct sequencer *s)
{
    for (uint32_t i = 0; i < s->partitions_count; i++)
        if (!s->partitions[i].is_ended && !s->partitions[i].is_quiet)
            return false;
    return true;
}

/* Whether nothing that comes behind the sources keeps a micro-batch from being formed. *is_held: it may have no rows. */
static bool may_form(struct run *run, const struct slot *slot, uint64_t micro_batch, bool is_stop,
                     bool *is_held)
{
    if (slot == NULL)
        return hold_because(run, RUN_LANE_BEHIND_NODES);
    if (hold_state_is_pressed(run))
        return hold_because(run, RUN_LANE_BEHIND_CHECKPOINT);
    if (order_is_full(run))
        return hold_because(run, RUN_LANE_BEHIND_ORDER);
    if (run->sequencer->has_input_ended && !ended_is_through(run, micro_batch))
        return hold_because(run, RUN_LANE_BEHIND_NODES);
    if (!run->sequencer->has_input_ended && !live_discover(run))
        return false;
    *is_held = !is_stop && hold_sinks_are_full(run);
    if (*is_held && !hold_may_form(run, micro_batch))
        return hold_because(run, RUN_LANE_BEHIND_SINKS);
    if (!is_stop && run->barrier != NULL && hold_disk_is_low(run))
        return hold_because(run, RUN_LANE_BEHIND_DISK);
    if (!is_stop && hold_store_is_behind(run))
        return hold_because(run, RUN_LANE_BEHIND_STORE);
    (void)hold_because(run, RUN_LANE_WAITS);
    return true;
}

/* Forms one micro-batch; false: not possible now. */
static bool form_one(struct run *run)
{
    struct sequencer *s = run->sequencer;
    uint64_t micro_batch = atomic_load_explicit(&s->formed, memory_order_relaxed);
    if (s->has_ended)
        return false;
    struct slot *slot = free_slot(run, micro_batch);
    bool is_stop = atomic_load_explicit(&s->stop_requested, memory_order_relaxed), is_held;
    if (!may_form(run, slot, micro_batch, is_stop, &is_held))
        return false;
    enum heads heads = choose_heads(run, is_stop, is_held);
    if (heads == HEADS_WAIT)
        return false;
    /* A replay after a fallback must form the micro-batches of the log unchanged: at a stop, too, the last
     * micro-batch is the next one of the log. */
    bool is_redo = s->is_replaying && replay_log_is_redo(run);
    is_stop |= heads == HEADS_STOP || (heads == HEADS_ROWS && !is_redo && is_beyond_until(run));
    bool is_filled = !is_stop || is_redo;
    bool has_ended = heads == HEADS_OVER, has_work = has_ended && ended_has_work(run);
    bool is_final = has_ended && !has_work;
    if ((is_stop || is_final) && run->barrier != NULL && !barrier_takes_last(run))
        return false;
    bool is_computed = !is_stop && !has_ended && !s->is_replaying;
    /* Live sources have no end; so a run with a trace stops when all sources have nothing more to read. */
    if (unlikely(run->trace != NULL) && heads == HEADS_LULL && has_read_all(s))
        atomic_store(&s->stop_requested, true);
    struct partition *idle = is_computed ? live_take_idle(run) : NULL;
    int64_t tick = is_computed && heads == HEADS_LULL && !is_held ? live_tick(run) : TIME_MIN;
    if (is_computed && heads == HEADS_LULL && !is_worth_a_micro_batch(run, micro_batch, idle, tick))
        return false;
    if (tick != TIME_MIN)
        live_set_clock(run, tick);
    slot->micro_batch = micro_batch;
    slot->slices_count = 0;
    slot->is_final = is_final;
    slot->is_end = is_stop || is_final;
    slot->is_done = has_work ? s->is_done : NULL;
    set_room(run, slot);
    struct partition *cut = NULL;
    if (is_filled && s->is_replaying)
        cut = replay_fill(run, slot);
    else if (is_computed && heads == HEADS_ROWS)
        cut = fill_slices(run, slot);
    else if (idle != NULL)
        (cut = idle)->since_cut = 0;
    set_watermarks(run, slot, cut != NULL);
    if (is_computed)
        live_follow_load(run, slot);
    slot->load = s->load;
    slot->placement = placements_now(run);
    slot->is_published = run->publisher != NULL && publish_is_on(run);
    log_micro_batch(run, slot, cut);
    s->is_finished = slot->is_final;
    s->has_input_ended |= has_work;
    s->is_replaying &= !has_work;
    slot->barrier = run->barrier == NULL ? 0 : barrier_attach(run, slot->is_end);
    if (slot->barrier != 0) {
        sequencer_save(run, slot->is_final, &run->barrier->positions);
        log_seal(run);
    }
    slot->next = slot->announced = NULL;
    if (slot->barrier != 0 && !slot->is_end)
        placements_turn(run, micro_batch, &slot->announced, &slot->next);
    s->last_barrier = slot->barrier != 0 ? micro_batch + 1 : s->last_barrier;
    for (uint32_t stage = 0; stage < run->plan->stages_count; stage++)
        atomic_store_explicit(&slot->stage_done[stage], 0, memory_order_relaxed);
    s->has_ended = slot->is_end;
    atomic_store_explicit(&s->formed, micro_batch + 1, memory_order_release);
    return log_keep_up(run);
}

bool sequencer_form(struct run *run)
{
    bool is_formed = false;
    pthread_mutex_lock(&run->sequencer->mutex);
    /* A few micro-batches ahead are enough; the lanes' time is better spent on those already formed. */
    while (atomic_load_explicit(&run->sequencer->formed, memory_order_relaxed) -
                   atomic_load_explicit(&run->sequencer->claimed, memory_order_relaxed) <
               run->lanes_count &&
           form_one(run))
        is_formed = true;
    pthread_mutex_unlock(&run->sequencer->mutex);
    return is_formed;
}

/* Whether stage 0 has finished all micro-batches up to and including `micro_batch`. */
static bool stage_0_is_past(struct run *run, uint64_t micro_batch)
{
    uint64_t first = micro_batch + 1 > SLOTS ? micro_batch + 1 - SLOTS : 0;
    for (uint64_t n = MAX(first, run->sequencer->first); n <= micro_batch; n++) {
        const struct slot *slot = sequencer_slot(run, n);
        if (slot->micro_batch == n && atomic_load_explicit(&slot->stage_done[0], memory_order_acquire) == 0)
            return false;
    }
    return true;
}

struct slot *sequencer_claim(struct run *run)
{
    struct sequencer *s = run->sequencer;
    struct slot *slot = NULL;
    pthread_mutex_lock(&s->mutex);
    uint64_t micro_batch = atomic_load_explicit(&s->claimed, memory_order_relaxed);
    if (micro_batch < atomic_load_explicit(&s->formed, memory_order_relaxed)) {
        slot = sequencer_slot(run, micro_batch);
        /* Stage 0 runs on all lanes, and a snapshot needs the sum of their counters. So before a micro-batch
         * with a barrier begins, stage 0 must have finished all earlier ones; and the micro-batch after a
         * barrier waits for the one with the barrier. */
        bool is_after_barrier = micro_batch > s->first && sequencer_slot(run, micro_batch - 1)->barrier != 0;
        bool is_gate = slot->barrier != 0 || is_after_barrier;
        if (is_gate && micro_batch > s->first && !stage_0_is_past(run, micro_batch - 1))
            slot = NULL;
        else
            atomic_store_explicit(&s->claimed, micro_batch + 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&s->mutex);
    return slot;
}
