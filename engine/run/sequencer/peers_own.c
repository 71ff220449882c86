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

/* Appends the ends of the partition's rows that are decoded and were not offered: its id and the count of them, for each what
 * struct known_end has, and at last its offer_state, and for how long it has been dry. */
static void put_offers(struct run *run, struct partition *p, struct byte_buffer *out)
{
    struct sequencer *s = run->sequencer;
    struct peer_partition *known = &s->peers->partitions[p->id];
    size_t begin = out->length;
    uint64_t count = 0;
    words_put(out, p->id);
    words_put(out, 0);
    if (!known->has_begun) {
        known->has_begun = true;
        known->piece = p->head;
        known->row = p->head_row;
        known->since_cut = p->since_cut;
        known->skip_rows = p->skip_rows;
    }
    for (; known->piece < p->tail; known->piece++, known->row = 0) {
        const struct piece *piece = PIECE_AT(p, known->piece);
        if (!atomic_load_explicit(&piece->is_ready, memory_order_acquire) ||
            (known->piece == p->fixed && !watermark_fix(run, p, known->piece)))
            break;
        uint32_t skipped = MIN(known->skip_rows, piece->batch->rows);
        known->skip_rows -= skipped;
        for (known->row = MAX(known->row, skipped); known->row < piece->batch->rows; count++) {
            bool is_cut;
            uint32_t end = offer_end(s, p, piece, known->row, known->since_cut, &is_cut);
            known->since_cut = is_cut ? 0 : known->since_cut + end - known->row;
            words_put(out, (uint64_t)piece->batch->order_time[end - 1]);
            words_put(out, is_cut);
            words_put(out, (uint64_t)last_before(piece->batch, known->row, end, s->until_us));
            known->row = end;
        }
    }
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

static void put_cut(struct run *run, const struct number *number, const struct cut *cut,
                    struct byte_buffer *out)
{
    peers_begin(out, PEER_CUT);
    words_put(out, number->micro_batch);
    words_put(out, cut->slices_count);
    for (uint32_t i = 0; i < cut->slices_count; i++) {
        words_put(out, cut->slices[i].partition);
        words_put(out, cut->slices[i].records);
        words_put(out, (uint64_t)cut->slices[i].time);
        words_put(out, (uint64_t)cut->slices[i].offset);
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
