/* The sequencer: merges the rows of all partitions into one order, and cuts this order into micro-batches.
 *
 * Each partition keeps a ring of pieces (raw batches). A lane without other work reads the next piece of a
 * partition, which one lane does at a time; then it decodes the piece, in parallel with other lanes. A row's
 * order time is the running maximum of its partition's arrival times, or of its accepted event times; it
 * never falls, so a slice is found by binary search.
 *
 * form.c cuts micro-batches from the heads. With one partition each batch is a micro-batch. What the micro-batches hold
 * depends on the records alone, not on which lane decoded them, or when.
 *
 * Watermarks advance at cuts: see watermark.c, which also tells which events are too far ahead, and which
 * partitions wait. */
#include "run/sequencer/internal.h"

#include "run/base/peers.h"
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
        if (p->owner != peers_self(run) || p->is_ended || p->is_reading || pieces_in_ring(p) >= p->ring ||
            !live_may_read(run, p))
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

/* --- Micro-batches that are formed --- */

bool sequencer_form(struct run *run)
{
    bool is_formed = false;
    pthread_mutex_lock(&run->sequencer->mutex);
    if (unlikely(run->sequencer->peers != NULL))
        is_formed = peers_form(run);
    /* A few micro-batches ahead are enough; the lanes' time is better spent on those already formed. */
    while (likely(run->sequencer->peers == NULL) &&
           atomic_load_explicit(&run->sequencer->formed, memory_order_relaxed) -
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
