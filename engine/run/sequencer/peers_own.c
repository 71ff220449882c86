/* What a worker does with its partitions: it offers the ends of their rows, and cuts their rows (peers.c). */
#include "run/sequencer/peers_internal.h"

#include "core/os.h"

/* Order time of the last one of the rows [first, end) that is below `until`; TIME_MIN: none is. */
static int64_t last_before(const struct batch *batch, uint32_t first, uint32_t end, int64_t until)
{
    while (end > first && batch->order_time[end - 1] >= until)
        end--;
    return end > first ? batch->order_time[end - 1] : TIME_MIN;
}

static void begin_offers(const struct partition *p, struct peer_partition *known)
{
    if (known->has_begun)
        return;
    known->has_begun = true;
    known->piece = p->head;
    known->row = p->head_row;
    known->since_cut = p->since_cut;
    known->skip_rows = p->skip_rows;
    known->event = p->has_event ? p->event_max : TIME_MIN;
    known->has_own_order = p->has_own_order;
}

/* Takes in the event times of the rows of a piece that are offered. Returns what alignment will compare once the first one of them is
 * the partition's next row. */
static struct next_event pass_events(const struct run *run, const struct partition *p,
                                     struct peer_partition *known, const struct piece *piece)
{
    const struct batch *batch = piece->batch;
    if (!watermark_may_align(run, p))
        return (struct next_event){0};
    known->has_own_order |= piece->has_own_order;
    if (known->row == batch->rows)
        return (struct next_event){0};
    struct next_event next = {.is_aligned = known->has_own_order,
                              .time = watermark_newest(batch, known->row, known->row + 1, known->event)};
    known->event = watermark_newest(batch, known->row, batch->rows, known->event);
    return next;
}

static void put_next(struct next_event next, struct byte_buffer *out)
{
    words_put(out, next.is_aligned);
    words_put(out, next.is_aligned ? (uint64_t)next.time : 0);
}

/* Appends the ends of the partition's rows that are decoded and were not offered: its id and the count of them, for each what
 * struct known_end has; where there are some, and the partition may be held back, the struct next_event of the first row; and at last
 * its offer_state, and for how long it has been dry. */
static void put_offers(struct run *run, struct partition *p, struct byte_buffer *out)
{
    struct sequencer *s = run->sequencer;
    struct peer_partition *known = &s->peers->partitions[p->id];
    struct next_event first = {0};
    size_t begin = out->length;
    uint64_t count = 0;
    words_put(out, p->id);
    words_put(out, 0);
    begin_offers(p, known);
    for (; known->piece < p->tail; known->piece++, known->row = 0) {
        const struct piece *piece = PIECE_AT(p, known->piece);
        if (!atomic_load_explicit(&piece->is_ready, memory_order_acquire) ||
            (known->piece == p->fixed && !watermark_fix(run, p, known->piece)))
            break;
        uint32_t skipped = MIN(known->skip_rows, piece->batch->rows);
        known->skip_rows -= skipped;
        known->row = MAX(known->row, skipped);
        struct next_event next = pass_events(run, p, known, piece);
        first = count == 0 ? next : first;
        for (; known->row < piece->batch->rows; count++) {
            bool is_cut;
            uint32_t end = offer_end(s, p, piece, known->row, known->since_cut, &is_cut);
            known->since_cut = is_cut ? 0 : known->since_cut + end - known->row;
            words_put(out, (uint64_t)piece->batch->order_time[end - 1]);
            words_put(out, is_cut);
            words_put(out, (uint64_t)last_before(piece->batch, known->row, end, s->until_us));
            known->row = end;
        }
    }
    if (count > 0 && watermark_may_align(run, p))
        put_next(first, out);
    bool are_all = known->piece == p->tail;
    unsigned state = are_all && p->is_ended && !p->is_reading ? OFFERS_ENDED : 0;
    if (are_all && !p->is_ended && p->dry_us != 0)
        state = OFFERS_DRY | (p->is_quiet ? OFFERS_QUIET : 0);
    state |= partition_has_risen(p) ? OFFERS_RISEN : 0;
    words_put(out, state);
    words_put(out, state & OFFERS_DRY ? (uint64_t)(os_monotonic_us() - p->dry_us) : 0);
    if (count == 0 && state == known->said)
        out->length = begin;
    else
        memcpy(out->data + begin + sizeof(uint64_t), &count, sizeof(count));
    known->said = state;
}

void own_offer(struct run *run)
{
    struct sequencer *s = run->sequencer;
    struct byte_buffer *out = &s->peers->out;
    if (!s->peers->offers)
        return;
    peers_begin(out, PEER_OFFERS);
    size_t begin = out->length;
    for (uint32_t i = 0; i < s->partitions_count; i++)
        if (s->partitions[i].owner == peers_self(run))
            put_offers(run, &s->partitions[i], out);
    if (out->length > begin)
        peers_send_to(run, run->options.peers->leader);
}

/* What alignment will compare, of the rows that were offered and are not cut. */
static struct next_event next_of_offered(const struct run *run, const struct partition *p)
{
    const struct peer_partition *known = &run->sequencer->peers->partitions[p->id];
    struct next_event next = {.is_aligned = p->has_own_order};
    uint32_t row = p->head_row;
    for (uint64_t i = p->head; known->has_begun && i < known->piece; i++, row = 0) {
        const struct piece *piece = PIECE_AT(p, i);
        next.is_aligned |= piece->has_own_order;
        if (row == piece->batch->rows)
            continue;
        next.time = watermark_newest(piece->batch, row, row + 1, p->has_event ? p->event_max : TIME_MIN);
        return next;
    }
    return (struct next_event){0};
}

static void put_cut(struct run *run, const struct number *number, const struct cut *cut,
                    struct byte_buffer *out)
{
    const struct sequencer *s = run->sequencer;
    peers_begin(out, PEER_CUT);
    words_put(out, number->micro_batch);
    words_put(out, cut->slices_count);
    for (uint32_t i = 0; i < cut->slices_count; i++) {
        words_put(out, cut->slices[i].partition);
        words_put(out, cut->slices[i].records);
        words_put(out, (uint64_t)cut->slices[i].time);
        words_put(out, (uint64_t)cut->slices[i].offset);
        const struct partition *p = &s->partitions[cut->slices[i].partition];
        if (watermark_may_align(run, p))
            put_next(next_of_offered(run, p), out);
    }
    if (number->cut == NO_PARTITION)
        return;
    words_put(out, (uint64_t)cut->arrival);
    for (uint32_t i = 0; i < run->plan->sources_count; i++) {
        words_put(out, cut->parts[i].has_say);
        words_put(out, (uint64_t)cut->parts[i].lowest);
        words_put(out, cut->parts[i].holder);
        words_put(out, (uint64_t)cut->parts[i].highest_idle);
        words_put(out, (uint64_t)cut->parts[i].newest);
    }
}

/* Takes a list of partitions of a micro-batch. */
static bool take_ids(struct sequencer *s, struct words *message, struct ids *ids)
{
    uint64_t count = words_take(message);
    ids->count = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t id = words_take(message);
        if (message->is_short || id >= s->partitions_count)
            return false;
        ids_add(ids, (uint32_t)id);
    }
    return !message->is_short;
}

static void apply_lists(struct sequencer *s)
{
    const struct ids *lists = s->peers->lists;
    for (uint32_t i = 0; i < lists[LIST_OVER].count; i++)
        s->partitions[lists[LIST_OVER].items[i]].is_over = true;
    for (uint32_t i = 0; i < lists[LIST_IDLE].count; i++)
        s->partitions[lists[LIST_IDLE].items[i]].is_idle = true;
    for (uint32_t i = 0; i < s->partitions_count; i++)
        s->partitions[i].is_held_back = false;
    for (uint32_t i = 0; i < lists[LIST_WITHOUT].count; i++)
        s->partitions[lists[LIST_WITHOUT].items[i]].is_held_back = true;
}

/* Makes the offers of this worker's partitions. Whether they are what the leader goes by: a partition that it does not go without
 * has rows or is over, the one that ends the micro-batch does so there, and those said to be over have no rows. */
static bool offers_fit(struct run *run, const struct number *number)
{
    struct sequencer *s = run->sequencer;
    bool fit = number->rows != NUMBER_UP_TO || s->peers->offers;
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        struct partition *p = &s->partitions[i];
        if (p->owner != peers_self(run))
            continue;
        offer_own(run, p);
        bool has_rows = p->offer.tag == OFFER_ROWS;
        fit &= !p->is_over || p->offer.tag == OFFER_OVER;
        if (number->rows != NUMBER_UP_TO)
            continue;
        fit &= has_rows || p->offer.tag == OFFER_OVER || p->is_held_back;
        fit &= p->id != number->last || (has_rows && !p->is_held_back && p->offer.end_time == number->bound);
    }
    return fit;
}

/* Takes what a micro-batch holds; nothing of the partitions changes. */
static bool take_number(struct run *run, struct words *message, struct number *number)
{
    struct sequencer *s = run->sequencer;
    *number = (struct number){.micro_batch = words_take(message), .tick = TIME_MIN};
    number->slot = sequencer_slot(run, number->micro_batch);
    uint64_t rows = words_take(message);
    number->rows = rows == NUMBER_UP_TO ? NUMBER_UP_TO : rows == NUMBER_LOGGED ? NUMBER_LOGGED : NUMBER_EMPTY;
    number->bound = (int64_t)words_take(message);
    number->highest = (int64_t)words_take(message);
    uint64_t last = words_take(message), cut = words_take(message);
    number->last = (uint32_t)last;
    number->cut = (uint32_t)cut;
    if (message->is_short || rows > NUMBER_LOGGED || number->micro_batch != s->peers->own_next ||
        !form_slot_is_free(run, number->micro_batch) ||
        (rows == NUMBER_UP_TO && last >= s->partitions_count) || number->highest < number->bound ||
        (cut != NO_PARTITION && cut >= s->partitions_count))
        return false;
    for (enum list list = 0; list < LISTS; list++)
        if (!take_ids(s, message, &s->peers->lists[list]))
            return false;
    return take_barrier(run, number, message) &&
           (rows != NUMBER_LOGGED || own_take_slices(run, number, message)) && peers_is_whole(message);
}

/* An owner: cuts what the leader has chosen. */
enum told own_take_number(struct run *run, struct words *message)
{
    struct sequencer *s = run->sequencer;
    struct number number;
    if (!take_number(run, message, &number))
        return TOLD_BAD;
    enum told told = number.rows == NUMBER_LOGGED ? own_fit(run, &number) : TOLD_TAKEN;
    if (told != TOLD_TAKEN)
        return told;
    apply_lists(s);
    if (number.rows != NUMBER_LOGGED && !offers_fit(run, &number))
        return TOLD_BAD;
    s->peers->own_next++;
    form_cut(run, &number, &s->peers->own);
    for (uint32_t i = 0; i < s->partitions_count; i++)
        s->partitions[i].is_held_back = false;
    put_cut(run, &number, &s->peers->own, &s->peers->out);
    put_positions(run, &number, &s->peers->out);
    peers_send_to(run, run->options.peers->leader);
    return TOLD_TAKEN;
}
