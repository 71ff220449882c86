/* Watermarks of sources: what each partition contributes, when watermarks advance, and which partitions wait
 * for others.
 *
 * Watermarks advance only at cuts. A partition has a cut at the end of a batch of BATCH_ROWS records, after
 * BATCH_ROWS records since its last cut, after a punctuation row, and if it is live, at the end of every
 * batch and when it becomes idle. The end of a shorter batch of a partition that is not live is no cut:
 * batches also end early where a file ends or before a wide record, and whether a row is late must not depend
 * on that. A source's watermark at a cut is T - max_delay, where the option `watermark:` decides what T is:
 *
 * - bounded, order by event time: T is the highest order time sequenced so far, over all partitions of the
 *   run. A row's order time is the newest event time of its partition up to this row, and rows with lower
 *   order times have been merged before. So the next record of any partition is not older than T, or its
 *   partition's newest row has event time T: the record is late only if it is more than max_delay behind that
 *   row.
 * - bounded, rows with an order of their own (arrival times, or as recorded): T is the partition's newest
 *   event time. The source's watermark is the lowest over its partitions that have not ended.
 * - per_key: T is the lowest of the newest event times of the partition's keys (key_times.c); a key whose
 *   newest event is more than `within` behind the T of `bounded` does not count.
 * - punctuation: T is the event time of the partition's newest punctuation row. Such a row ends its
 *   micro-batch, so that rows behind it are compared with the new watermark.
 *
 * Jumps. With arrival times, a row is bad if its event time is more than max_jump ahead of its arrival.
 * Without arrival times, and only where the job sets max_jump, a row is bad if it is more than max_jump ahead
 * of the newest earlier row of its partition; but it is good if the next JUMP_ROWS - 1 rows are good rows
 * within max_jump of it. The partition's first row has no earlier row: it is good if one of the next
 * JUMP_ROWS - 1 rows is within max_jump of it, or if no row follows.
 *
 * Alignment. Where order is by event time, the merge itself aligns partitions. Where order is by arrival,
 * sources drift apart in event time, because their events arrive with different delays. So a partition of a
 * source with `align:` gives no rows to micro-batches while its next event is further ahead of the slowest
 * partition's next event than `align:` allows. Only partitions that have a decoded next row are compared: a
 * partition never waits for rows that have not arrived, so the wait is bounded, and a replay repeats it from
 * the records alone.
 *
 * All under the sequencer's mutex, except watermark_decoded. */
#include "run/sequencer/internal.h"

#include "core/civil.h"
#include "core/key.h"
#include "core/os.h"
#include "run/base/peers.h"

#include <stdlib.h>

/* Number of rows that must agree: a row that jumps, and the rows behind it. A partition's ring has room for
 * at least JUMP_ROWS pieces, which is enough even if each piece has one row. */
enum { JUMP_ROWS = 3 };
/* max_jump by arrival time where the job does not set it. */
#define JUMP_USUAL_US US_PER_DAY

static const struct plan_node *node_of(const struct run *run, const struct partition *p)
{
    return run_source_node(run, p->source);
}

void watermark_init(struct run *run)
{
    uint32_t count = run->plan->sources_count;
    struct sequencer *s = run->sequencer;
    s->source_watermarks = arena_array(&run->arena, int64_t, count + 1);
    int64_t now = os_monotonic_us(), ahead = run->options.wall_ahead_us;
    arrival_clock_begin(&s->arrival_clock, now, ahead != 0 ? now + ahead : os_wall_us());
    s->holders = arena_array(&run->arena, struct watermark_holder, MAX(count, 1));
    for (uint32_t i = 0; i <= count; i++)
        s->source_watermarks[i] = TIME_MIN;
    for (uint32_t i = 0; i < count; i++)
        s->holders[i] = (struct watermark_holder){NO_PARTITION, TIME_MIN};
    s->order_highest = TIME_MIN;
    s->cut.parts = arena_array(&run->arena, struct watermark_part, MAX(count, 1));
    for (uint32_t i = 0; i < SLOTS; i++)
        s->slots[i].watermarks = arena_array(&run->arena, int64_t, count + 1);
}

void watermark_free(struct run *run)
{
    for (uint32_t i = 0; i < run->sequencer->partitions_count; i++)
        key_times_free(&run->sequencer->partitions[i].keys);
}

/* --- Decoded pieces --- */

/* Removes rows from the batch's selection. rows: bit set per physical row to remove. */
static void unselect(struct batch *batch, const uint64_t *rows)
{
    uint16_t *sel = arena_alloc(&batch->arena, MAX(batch->selected, 1) * sizeof(*sel));
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->selected; i++)
        if (!bit_get(rows, batch_row(batch, i)))
            sel[count++] = (uint16_t)batch_row(batch, i);
    batch->sel = sel;
    batch->selected = count;
}

static void add_bad(struct piece *piece, uint32_t row, const char *reason)
{
    leat_assert(piece->output.bad_count < piece->batch->rows);
    piece->output.bad[piece->output.bad_count++] =
        (struct bad_record){.row = row, .column = UINT32_MAX, .reason = reason};
}

static const char *ahead_reason(struct batch *batch, int64_t time, int64_t than, const char *of_what,
                                const char *more)
{
    char text[32], other[32];
    text[civil_format(time, text)] = '\0';
    other[civil_format(than, other)] = '\0';
    return arena_printf(&batch->arena, "the event time %s is more than `max_jump` ahead of %s, %s%s", text,
                        of_what, other, more);
}

/* Rejects rows whose event time is too far ahead of their arrival. An arrival time of 0 or below: unknown to
 * the broker; such rows pass. */
static void judge_by_arrival(const struct source_common *common, struct piece *piece)
{
    struct batch *batch = piece->batch;
    int64_t jump = common->max_jump_us == 0 ? JUMP_USUAL_US : common->max_jump_us;
    uint64_t bad[BATCH_VALID_WORDS] = {0};
    uint32_t before = piece->output.bad_count;
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        int64_t arrival = batch->arrival_time[row];
        if (likely(arrival <= 0 || batch->event_time[row] <= time_add(arrival, jump)))
            continue;
        bit_set(bad, row);
        add_bad(piece, row, ahead_reason(batch, batch->event_time[row], arrival, "its arrival", ""));
    }
    if (piece->output.bad_count > before)
        unselect(batch, bad);
}

static void hash_keys(const struct watermark_per_key *per_key, struct piece *piece)
{
    struct batch *batch = piece->batch;
    struct key keys[BATCH_ROWS];
    bool has_null[BATCH_ROWS];
    key_encode(batch, per_key->indices, per_key->by.count, keys, has_null);
    piece->key_hashes = arena_calloc(&batch->arena, MAX(batch->rows, 1), sizeof(uint64_t));
    for (uint32_t i = 0; i < batch->selected; i++)
        if (!has_null[i])
            piece->key_hashes[batch_row(batch, i)] = MAX(key_hash(keys[i]), 1);
}

struct failures {
    struct piece *piece;
    uint64_t rows[BATCH_VALID_WORDS];
};

static void fail_row(void *argument, uint32_t row, const char *reason)
{
    struct failures *failures = argument;
    bit_set(failures->rows, row);
    add_bad(failures->piece, row, arena_strdup(&failures->piece->batch->arena, reason));
}

static void find_marks(struct decoding *decoding, const struct watermark_punctuation *punctuation,
                       struct piece *piece)
{
    struct batch *batch = piece->batch;
    uint16_t sel[BATCH_ROWS];
    struct failures failures = {.piece = piece};
    uint32_t before = piece->output.bad_count;
    uint32_t count = punctuation->kind->filter(punctuation->condition, batch, &decoding->scratch, sel,
                                               fail_row, &failures);
    arena_reset(&decoding->scratch);
    if (piece->output.bad_count > before)
        unselect(batch, failures.rows);
    if (count == 0)
        return;
    piece->marks = arena_calloc(&batch->arena, BATCH_VALID_WORDS, sizeof(uint64_t));
    for (uint32_t i = 0; i < count; i++)
        bit_set(piece->marks, sel[i]);
}

void watermark_decoded(struct run *run, struct decoding *decoding, const struct partition *p,
                       struct piece *piece)
{
    const struct plan_node *node = node_of(run, p);
    const struct source_common *common = node->common;
    piece->key_hashes = piece->marks = NULL;
    if (!node->has_time)
        return;
    if (piece->batch->arrival_time != NULL)
        judge_by_arrival(common, piece);
    if (common->watermark.choice == WATERMARK_PER_KEY)
        hash_keys(common->watermark.config, piece);
    else if (common->watermark.choice == WATERMARK_PUNCTUATION)
        find_marks(decoding, common->watermark.config, piece);
}

/* --- Jumps --- */

static bool is_selected(const struct batch *batch, uint32_t row)
{
    if (batch->sel == NULL)
        return true;
    for (uint32_t i = 0; i < batch->selected; i++)
        if (batch->sel[i] == row)
            return true;
    return false;
}

/* Looks at the next JUMP_ROWS - 1 rows behind the row `row` of piece `index`. *there: how many exist;
 * *agreeing: how many are good and within `jump` (microseconds) of the row. Returns false if they are not
 * decoded yet. */
static bool count_agreeing(const struct partition *p, uint64_t index, uint32_t row, int64_t jump,
                           uint32_t *there, uint32_t *agreeing)
{
    int64_t time = PIECE_AT(p, index)->batch->event_time[row];
    *there = *agreeing = 0;
    while (*there < JUMP_ROWS - 1) {
        row++;
        while (index < p->tail && atomic_load_explicit(&PIECE_AT(p, index)->is_ready, memory_order_acquire) &&
               row >= PIECE_AT(p, index)->batch->rows) {
            index++;
            row = 0;
        }
        if (index == p->tail)
            return p->is_ended && !p->is_reading;
        const struct piece *piece = PIECE_AT(p, index);
        if (!atomic_load_explicit(&piece->is_ready, memory_order_acquire))
            return false;
        int64_t other = piece->batch->event_time[row];
        bool is_near = other <= time_add(time, jump) && time <= time_add(other, jump);
        *agreeing += is_near && is_selected(piece->batch, row);
        (*there)++;
    }
    return true;
}

/* Makes a row bad, and clears its punctuation mark and its key, so that it does not move the watermark. */
static void reject(struct piece *piece, uint64_t *bad, uint32_t row, const char *reason)
{
    bit_set(bad, row);
    add_bad(piece, row, reason);
    if (piece->marks != NULL)
        bit_clear(piece->marks, row);
    if (piece->key_hashes != NULL)
        piece->key_hashes[row] = 0;
}

/* Rejects rows of the piece that jump ahead of the newest earlier row of the partition, from row `first` on.
 * drops: punctuation rows will be dropped; they are checked as well, but later rows are not compared with
 * them. Returns false if rows behind the piece must be decoded first. */
static bool judge_jumps(struct partition *p, uint64_t index, uint32_t first, int64_t jump, bool drops)
{
    struct piece *piece = PIECE_AT(p, index);
    struct batch *batch = piece->batch;
    uint64_t bad[BATCH_VALID_WORDS] = {0};
    int64_t newest = p->event_fixed;
    bool has_newest = p->has_event_fixed;
    uint32_t before = piece->output.bad_count;
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i), there, agreeing;
        int64_t time = batch->event_time[row];
        if (row < first)
            continue;
        if (!has_newest || time > time_add(newest, jump)) {
            if (!count_agreeing(p, index, row, jump, &there, &agreeing)) {
                piece->output.bad_count = before; /* the piece is checked again when more is decoded */
                return false;
            }
            if (has_newest ? agreeing < JUMP_ROWS - 1 : agreeing < MIN(there, 1)) {
                reject(piece, bad, row,
                       has_newest
                           ? ahead_reason(batch, time, newest, "the newest event time before it",
                                          ", and the next rows do not agree")
                           : "the event time is the partition's first, and the next rows are more than "
                             "`max_jump` away from it");
                continue;
            }
        }
        if (drops && watermark_is_mark(piece, row))
            continue;
        newest = has_newest ? MAX(newest, time) : time;
        has_newest = true;
    }
    if (piece->output.bad_count > before)
        unselect(batch, bad);
    return true;
}

/* Sets the order times again after rows were rejected: the running maximum of the good rows' event times. */
static void order_again(struct batch *batch)
{
    int64_t running = TIME_MIN;
    for (uint32_t row = 0, i = 0; row < batch->rows; row++) {
        bool is_good = i < batch->selected && batch_row(batch, i) == row;
        i += is_good;
        running = is_good ? MAX(running, batch->event_time[row]) : running;
        batch->order_time[row] = running;
    }
}

bool watermark_fix(struct run *run, struct partition *p, uint64_t index)
{
    struct piece *piece = PIECE_AT(p, index);
    struct batch *batch = piece->batch;
    const struct source_common *common = node_of(run, p)->common;
    leat_assert(index == p->fixed);
    bool is_judged = common->max_jump_us > 0 && common->max_jump_us != TIME_MAX &&
                     batch->arrival_time == NULL && node_of(run, p)->has_time;
    uint32_t first = index == p->head ? MIN(p->skip_rows, batch->rows) : 0;
    uint32_t bad = piece->output.bad_count;
    const struct watermark_punctuation *punctuation = common->watermark.config;
    bool drops =
        node_of(run, p)->has_time && common->watermark.choice == WATERMARK_PUNCTUATION && punctuation->drops;
    if (is_judged && !judge_jumps(p, index, first, common->max_jump_us, drops))
        return false;
    if (piece->output.bad_count > bad && !piece->has_own_order)
        order_again(batch);
    for (uint32_t row = 0; row < batch->rows && batch->order_time[row] < p->order_fixed; row++)
        batch->order_time[row] = p->order_fixed;
    p->order_fixed = batch->rows > 0 ? batch->order_time[batch->rows - 1] : p->order_fixed;
    if (drops && piece->marks != NULL)
        unselect(batch, piece->marks);
    for (uint32_t i = 0; is_judged && i < batch->selected; i++) {
        int64_t time = batch->event_time[batch_row(batch, i)];
        p->event_fixed = p->has_event_fixed ? MAX(p->event_fixed, time) : time;
        p->has_event_fixed = true;
    }
    p->fixed = index + 1;
    return true;
}

/* --- Rows that go into a micro-batch --- */

void watermark_take(struct run *run, struct partition *p, const struct piece *piece, uint32_t first,
                    uint32_t end)
{
    const struct batch *batch = piece->batch;
    if (run->plan->has_arrival_clock && batch->arrival_time != NULL)
        for (uint32_t row = first; row < end; row++)
            p->arrival_max = MAX(p->arrival_max, batch->arrival_time[row]);
    if (piece->key_hashes != NULL) {
        const struct watermark_per_key *per_key = node_of(run, p)->common->watermark.config;
        for (uint32_t row = first; row < end; row++)
            if (piece->key_hashes[row] != 0)
                key_times_see(&p->keys, (uint32_t)per_key->keys_max, piece->key_hashes[row],
                              batch->event_time[row]);
    }
    for (uint32_t row = first; piece->marks != NULL && row < end; row++)
        if (watermark_is_mark(piece, row))
            p->marked = MAX(p->marked, batch->event_time[row]);
}

uint32_t watermark_next_mark(const struct piece *piece, uint32_t row, uint32_t end)
{
    while (piece->marks != NULL && row < end)
        if (watermark_is_mark(piece, row++))
            return row;
    return end;
}

/* --- Alignment --- */

bool watermark_may_align(const struct run *run, const struct partition *p)
{
    return node_of(run, p)->has_time && node_of(run, p)->common->align_us > 0;
}

int64_t watermark_newest(const struct batch *batch, uint32_t first, uint32_t end, int64_t newest)
{
    if (batch->sel == NULL)
        for (uint32_t row = first; row < end; row++)
            newest = MAX(newest, batch->event_time[row]);
    for (uint32_t i = 0; batch->sel != NULL && i < batch->selected && batch->sel[i] < end; i++)
        if (batch->sel[i] >= first)
            newest = MAX(newest, batch->event_time[batch->sel[i]]);
    return newest;
}

static struct next_event next_event(const struct run *run, const struct partition *p)
{
    struct next_event next = {.is_aligned = p->offer.tag == OFFER_ROWS && watermark_may_align(run, p)};
    if (!next.is_aligned)
        return next;
    if (unlikely(run->sequencer->peers != NULL))
        return next_event_known(run, p);
    next.is_aligned = p->has_own_order;
    next.time = watermark_newest(PIECE_AT(p, p->head)->batch, p->head_row, p->head_row + 1,
                                 p->has_event ? p->event_max : TIME_MIN);
    return next;
}

void watermark_align(struct run *run)
{
    struct sequencer *s = run->sequencer;
    int64_t slowest = TIME_MAX;
    if (!run->plan->has_alignment)
        return;
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        struct next_event next = next_event(run, &s->partitions[i]);
        slowest = next.is_aligned ? MIN(slowest, next.time) : slowest;
    }
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        struct partition *p = &s->partitions[i];
        struct next_event next = next_event(run, p);
        p->is_held_back = next.is_aligned && next.time > time_add(slowest, node_of(run, p)->common->align_us);
    }
}

/* --- Watermarks at a cut --- */

/* The partition's part in its source's watermark. highest: order time sequenced, over all partitions.
 * Returns false if the partition has ended and no longer counts. */
static bool partition_watermark(const struct partition *p, const struct plan_node *node, int64_t highest,
                                int64_t *watermark)
{
    const struct source_common *common = node->common;
    bool is_by_event = node->has_time && !p->has_own_order;
    int strategy = node->has_time ? common->watermark.choice : WATERMARK_BOUNDED;
    if (p->is_over && (!is_by_event || strategy == WATERMARK_PUNCTUATION))
        return false;
    bool is_known = is_by_event ? highest != TIME_MIN : node->has_time && p->has_event;
    int64_t time = is_by_event ? highest : p->event_max;
    if (strategy == WATERMARK_PUNCTUATION) {
        is_known = p->marked != TIME_MIN;
        time = p->marked;
    } else if (strategy == WATERMARK_PER_KEY && is_known && !p->is_over) {
        const struct watermark_per_key *per_key = common->watermark.config;
        time = MIN(time, key_times_oldest(&p->keys, time_add(time, -per_key->within_us)));
    }
    *watermark = is_known ? time_add(time, -common->max_delay_us) : TIME_MIN;
    return true;
}

static struct watermark_part contribute(const struct run *run, uint32_t source, const struct number *number)
{
    const struct sequencer *s = run->sequencer;
    const struct plan_node *node = run_source_node(run, source);
    struct watermark_part part = {
        .lowest = TIME_MAX, .holder = NO_PARTITION, .highest_idle = TIME_MIN, .newest = TIME_MIN};
    int64_t watermark;
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        const struct partition *p = &s->partitions[i];
        if (p->source != source || p->owner != peers_self(run) || p->since > number->micro_batch)
            continue;
        part.newest = p->has_event ? MAX(part.newest, p->event_max) : part.newest;
        if (!partition_watermark(p, node, number->highest, &watermark))
            continue;
        part.highest_idle = p->is_idle ? MAX(part.highest_idle, watermark) : part.highest_idle;
        if (!p->is_idle && (!part.has_say || watermark < part.lowest)) {
            part.lowest = watermark;
            part.holder = p->id;
        }
        part.has_say |= !p->is_idle;
    }
    return part;
}

void watermark_contribute(const struct run *run, const struct number *number, struct cut *cut)
{
    const struct sequencer *s = run->sequencer;
    cut->arrival = TIME_MIN;
    for (uint32_t i = 0; i < s->partitions_count; i++)
        cut->arrival = MAX(cut->arrival, s->partitions[i].arrival_max);
    for (uint32_t source = 0; source < run->plan->sources_count; source++)
        cut->parts[source] = contribute(run, source, number);
}

/* A source's watermark is the lowest of its partitions that are not idle; if all are idle, the highest, because idle
 * partitions hold no watermark back. A source that has ended, or is idle and never had a record, gets the lowest watermark of
 * the other sources, so that it does not hold back operators that read several sources. */
void watermark_advance(struct run *run, const struct cut *cut)
{
    struct sequencer *s = run->sequencer;
    uint32_t count = run->plan->sources_count;
    bool has_say[PLAN_SOURCES_MAX];
    int64_t lowest_alive = TIME_MAX, *clock = &s->source_watermarks[count];
    *clock = MAX(*clock, cut->arrival);
    for (uint32_t source = 0; source < count; source++) {
        const struct watermark_part *part = &cut->parts[source];
        struct watermark_holder *holder = &s->holders[source];
        holder->partition = part->holder;
        holder->newest = MAX(holder->newest, part->newest);
        has_say[source] = part->has_say || part->highest_idle != TIME_MIN;
        if (!has_say[source])
            continue;
        int64_t watermark = part->has_say ? part->lowest : part->highest_idle;
        s->source_watermarks[source] = MAX(s->source_watermarks[source], watermark);
        lowest_alive = MIN(lowest_alive, s->source_watermarks[source]);
    }
    for (uint32_t source = 0; source < count; source++)
        if (!has_say[source] && lowest_alive != TIME_MAX)
            s->source_watermarks[source] = MAX(s->source_watermarks[source], lowest_alive);
}
