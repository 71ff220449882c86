/* Forming micro-batches over several workers, by the steps of form.c:
 *
 *   each owner    decodes ahead, and offers the ends of its partitions' rows, in their order        PEER_OFFERS
 *   the leader    chooses micro-batch after micro-batch, as far as the offers go                    PEER_NUMBER
 *   each owner    cuts its rows of a micro-batch, and says what they show                           PEER_CUT
 *   the leader    has what all owners said: finishes the micro-batch                                PEER_FORMED
 *
 * A micro-batch ends where the earliest offer does, so it takes that offer, and no other one to its end: what is left of the
 * offers is known without a word of the owners, and the next micro-batch can be chosen at once.
 *
 * Messages wait in the inbox, also those to itself, until a lane forms micro-batches. The leader's messages come in order. Under
 * the sequencer's mutex, but for the inbox. */
#include "run/sequencer/internal.h"

#include "core/mem.h"
#include "core/os.h"
#include "run/base/peers.h"
#include "run/base/placements.h"

#include <stdlib.h>

/* An end of a partition's rows, at which a micro-batch may end. */
struct known_end {
    int64_t time; /* order time of the last row */
    bool is_cut;
    int64_t before_until; /* order time of the last row below --until; TIME_MIN: none is */
};

/* What there is to a partition besides struct partition. */
struct peer_partition {
    /* The owner's: pieces below this one were offered, and of this one the rows below `row`. */
    uint64_t piece;
    uint32_t row, since_cut, skip_rows;
    bool has_begun;
    unsigned said; /* enum offer_state, as it was said last */
    /* The leader's: what the partition offers and no micro-batch has taken: `count` ends from `first` on, in a ring. */
    struct known_end *ends;
    uint32_t first, count, room;
    unsigned state; /* enum offer_state, behind these ends */
    int64_t dry_us; /* with OFFERS_DRY: monotonic time since when */
    bool is_over;   /* a micro-batch says so to all */
    bool is_idle;   /* likewise, and it has offered no rows since */
    struct {
        int64_t time;
        bool is_whole;
    } taken; /* with --until: its rows up to this order time are taken, and where is_whole, those of that time */
};

/* What comes behind the rows that were offered. */
enum offer_state { OFFERS_ENDED = 1, OFFERS_DRY = 2, OFFERS_QUIET = 4 /* dry, and all records were read */ };

/* The leader's: a micro-batch that is chosen, and not yet formed. */
struct chosen {
    struct number number;
    struct cut cut;     /* what owners have said */
    uint32_t cuts_left; /* owners that have not */
    /* Partitions that are over with it; become idle with it; have no rows, and are not waited for. */
    struct ids {
        uint32_t *items, count, room;
    } over, idle, without;
};

struct message {
    struct message *next;
    uint32_t from;
    struct byte_buffer bytes;
};

struct sequencer_peers {
    pthread_mutex_t mutex; /* guards the inbox */
    struct message *first, **last;
    _Atomic bool has_messages;
    struct peer_partition *partitions;
    struct byte_buffer out;
    struct cut own; /* what the last cut of this worker's rows showed */
    /* The leader's. */
    uint64_t next; /* micro-batches below this number were chosen */
    bool has_chosen_end;
    struct chosen chosen[SLOTS];
};

static struct chosen *chosen_at(struct sequencer_peers *peers, uint64_t micro_batch)
{
    return &peers->chosen[micro_batch & (SLOTS - 1)];
}

void sequencer_peers_init(struct run *run)
{
    struct sequencer *s = run->sequencer;
    if (run->options.peers == NULL)
        return;
    struct sequencer_peers *peers = s->peers = mem_calloc(1, sizeof(*peers));
    uint32_t sources = MAX(run->plan->sources_count, 1), partitions = MAX(s->partitions_room, 1);
    pthread_mutex_init(&peers->mutex, NULL);
    peers->last = &peers->first;
    peers->partitions = mem_calloc(partitions, sizeof(*peers->partitions));
    for (uint32_t i = 0; i < partitions; i++)
        peers->partitions[i].taken.time = TIME_MIN;
    peers->own.parts = arena_array(&run->arena, struct watermark_part, sources);
    for (uint32_t i = 0; i < SLOTS; i++)
        peers->chosen[i].cut.parts = arena_array(&run->arena, struct watermark_part, sources);
}

void sequencer_peers_free(struct run *run)
{
    struct sequencer_peers *peers = run->sequencer->peers;
    if (peers == NULL)
        return;
    for (struct message *message = peers->first, *next; message != NULL; message = next) {
        next = message->next;
        buffer_free(&message->bytes);
        free(message);
    }
    for (uint32_t i = 0; i < run->sequencer->partitions_room; i++)
        free(peers->partitions[i].ends);
    for (uint32_t i = 0; i < SLOTS; i++) {
        free(peers->chosen[i].cut.slices);
        free(peers->chosen[i].over.items);
        free(peers->chosen[i].idle.items);
        free(peers->chosen[i].without.items);
    }
    free(peers->own.slices);
    free(peers->partitions);
    buffer_free(&peers->out);
    pthread_mutex_destroy(&peers->mutex);
    free(peers);
}

/* --- Messages --- */

static void put_into_inbox(struct sequencer_peers *peers, uint32_t from, struct str bytes)
{
    struct message *message = mem_calloc(1, sizeof(*message));
    message->from = from;
    buffer_append(&message->bytes, bytes.data, bytes.length);
    pthread_mutex_lock(&peers->mutex);
    *peers->last = message;
    peers->last = &message->next;
    atomic_store(&peers->has_messages, true);
    pthread_mutex_unlock(&peers->mutex);
}

bool sequencer_receive(struct run *run, uint32_t worker, struct str message)
{
    struct words words = {.left = message};
    uint64_t tag = words_take(&words);
    bool is_leader = worker == run->options.peers->leader;
    bool is_of_leader = tag == PEER_NUMBER || tag == PEER_FORMED;
    if (tag == PEER_STOP && peers_is_leader(run)) {
        sequencer_stop(run);
        return true;
    }
    if (tag < PEER_OFFERS || tag >= PEER_TAGS || (is_of_leader && !is_leader) ||
        (!is_of_leader && !peers_is_leader(run)))
        return false;
    put_into_inbox(run->sequencer->peers, worker, message);
    run_wake(run);
    return true;
}

static struct message *take_from_inbox(struct sequencer_peers *peers)
{
    if (!atomic_load(&peers->has_messages))
        return NULL;
    pthread_mutex_lock(&peers->mutex);
    struct message *message = peers->first;
    peers->first = message->next;
    if (peers->first == NULL) {
        peers->last = &peers->first;
        atomic_store(&peers->has_messages, false);
    }
    pthread_mutex_unlock(&peers->mutex);
    return message;
}

/* Sends peers->out, also where the worker is this one. */
static void send_to(struct run *run, uint32_t worker)
{
    struct sequencer_peers *peers = run->sequencer->peers;
    if (worker != peers_self(run))
        peers_send(run, worker, &peers->out);
    else
        put_into_inbox(peers, worker, (struct str){peers->out.data, peers->out.length});
}

/* --- Offers --- */

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
        for (known->row = skipped; known->row < piece->batch->rows; count++) {
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
    words_put(out, state);
    words_put(out, state & OFFERS_DRY ? (uint64_t)(os_monotonic_us() - p->dry_us) : 0);
    if (count == 0 && state == known->said)
        out->length = begin;
    else
        memcpy(out->data + begin + sizeof(uint64_t), &count, sizeof(count));
    known->said = state;
}

static void offer(struct run *run)
{
    struct sequencer *s = run->sequencer;
    struct byte_buffer *out = &s->peers->out;
    peers_begin(out, PEER_OFFERS);
    size_t begin = out->length;
    for (uint32_t i = 0; i < s->partitions_count; i++)
        if (s->partitions[i].owner == peers_self(run))
            put_offers(run, &s->partitions[i], out);
    if (out->length > begin)
        send_to(run, run->options.peers->leader);
}

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

static bool take_offers(struct run *run, uint32_t from, struct words *message)
{
    const struct sequencer *s = run->sequencer;
    while (message->left.length > 0) {
        uint64_t id = words_take(message), count = words_take(message);
        if (message->is_short || id >= s->partitions_count || s->partitions[id].owner != from)
            return false;
        struct peer_partition *known = &s->peers->partitions[id];
        for (uint64_t i = 0; i < count && !message->is_short; i++) {
            struct known_end end = {.time = (int64_t)words_take(message)};
            end.is_cut = words_take(message) != 0;
            end.before_until = (int64_t)words_take(message);
            add_end(known, end);
        }
        known->is_idle &= count == 0;
        known->state = (unsigned)words_take(message);
        known->dry_us = os_monotonic_us() - (int64_t)words_take(message);
    }
    return !message->is_short;
}

void offer_known(struct run *run, struct partition *p)
{
    const struct peer_partition *known = &run->sequencer->peers->partitions[p->id];
    p->offer = (struct offer){.tag = known->state & OFFERS_ENDED ? OFFER_OVER : OFFER_WAIT};
    if (known->count == 0) {
        bool is_quiet = (known->state & OFFERS_QUIET) != 0;
        if (known->state & OFFERS_DRY && live_goes_without(run, p, is_quiet, known->dry_us))
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

/* --- Micro-batches --- */

static void add_id(struct ids *ids, uint32_t id)
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
    add_id(&chosen_at(peers, peers->next)->idle, p->id);
    return true;
}

/* Which partitions are over with the micro-batch that was chosen (they have ended, and no rows are left), and which ones it
 * goes without. */
static void note_offers(struct run *run, struct chosen *chosen)
{
    const struct sequencer *s = run->sequencer;
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        struct peer_partition *known = &s->peers->partitions[i];
        enum offer_tag tag = s->partitions[i].offer.tag;
        if (tag == OFFER_NONE)
            add_id(&chosen->without, i);
        if (tag != OFFER_OVER || known->is_over)
            continue;
        known->is_over = true;
        add_id(&chosen->over, i);
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
        if (s->partitions[i].offer.tag != OFFER_ROWS || number->bound < known->taken.time)
            continue;
        known->taken.is_whole =
            i <= number->last || (number->bound == known->taken.time && known->taken.is_whole);
        known->taken.time = number->bound;
    }
}

/* Chooses the next micro-batch, and tells all owners; false: not possible now. */
static bool choose(struct run *run)
{
    struct sequencer_peers *peers = run->sequencer->peers;
    struct chosen *chosen = chosen_at(peers, peers->next);
    const struct number *number = &chosen->number;
    chosen->over.count = chosen->without.count = 0;
    if (peers->has_chosen_end || peers->next - sequencer_formed(run) >= SLOTS ||
        !form_choose(run, peers->next, &chosen->number))
        return false;
    note_offers(run, chosen);
    await_cuts(run, chosen);
    take_end(run, number);
    peers->has_chosen_end = number->is_end;
    peers->next++;
    peers_begin(&peers->out, PEER_NUMBER);
    words_put(&peers->out, number->micro_batch);
    words_put(&peers->out, number->rows);
    words_put(&peers->out, (uint64_t)number->bound);
    words_put(&peers->out, (uint64_t)number->highest);
    words_put(&peers->out, number->last);
    words_put(&peers->out, number->cut);
    put_ids(&peers->out, &chosen->over);
    put_ids(&peers->out, &chosen->idle);
    put_ids(&peers->out, &chosen->without);
    for (uint32_t worker = 0; worker < peers_count(run); worker++)
        send_to(run, worker);
    return true;
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

enum list { LIST_OVER, LIST_IDLE, LIST_WITHOUT };

/* Takes in a list of partitions of a micro-batch, in the order in which the leader puts them. */
static bool take_ids(struct sequencer *s, struct words *message, enum list list)
{
    uint64_t count = words_take(message);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t id = words_take(message);
        if (message->is_short || id >= s->partitions_count)
            return false;
        s->partitions[id].is_over |= list == LIST_OVER;
        s->partitions[id].is_idle |= list == LIST_IDLE;
        s->partitions[id].is_held_back |= list == LIST_WITHOUT;
    }
    return !message->is_short;
}

/* An owner: cuts what the leader has chosen. */
static bool take_number(struct run *run, struct words *message)
{
    struct sequencer *s = run->sequencer;
    struct number number = {.micro_batch = words_take(message), .tick = TIME_MIN};
    number.slot = sequencer_slot(run, number.micro_batch);
    uint64_t rows = words_take(message);
    number.rows = rows;
    number.bound = (int64_t)words_take(message);
    number.highest = (int64_t)words_take(message);
    number.last = (uint32_t)words_take(message);
    number.cut = (uint32_t)words_take(message);
    if (message->is_short || rows > NUMBER_UP_TO ||
        (number.cut != NO_PARTITION && number.cut >= s->partitions_count))
        return false;
    for (enum list list = LIST_OVER; list <= LIST_WITHOUT; list++)
        if (!take_ids(s, message, list))
            return false;
    form_cut(run, &number, &s->peers->own);
    for (uint32_t i = 0; i < s->partitions_count; i++)
        s->partitions[i].is_held_back = false;
    put_cut(run, &number, &s->peers->own, &s->peers->out);
    send_to(run, run->options.peers->leader);
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

/* The leader: takes in what an owner's rows of a micro-batch show. */
static bool take_cut(struct run *run, uint32_t from, struct words *message)
{
    const struct sequencer *s = run->sequencer;
    struct sequencer_peers *peers = s->peers;
    uint64_t micro_batch = words_take(message), slices = words_take(message);
    struct chosen *chosen = chosen_at(peers, micro_batch);
    if (message->is_short || micro_batch < sequencer_formed(run) || micro_batch >= peers->next ||
        chosen->cuts_left == 0)
        return false;
    const struct number *number = &chosen->number;
    struct cut *cut = &chosen->cut;
    for (uint64_t i = 0; i < slices && !message->is_short; i++) {
        struct cut_slice slice = {.partition = (uint32_t)words_take(message)};
        slice.records = words_take(message);
        slice.time = (int64_t)words_take(message);
        slice.offset = (int64_t)words_take(message);
        if (slice.partition >= s->partitions_count || s->partitions[slice.partition].owner != from)
            return false;
        add_slice(cut, slice);
    }
    int64_t arrival = number->cut != NO_PARTITION ? (int64_t)words_take(message) : TIME_MIN;
    cut->arrival = MAX(cut->arrival, arrival);
    for (uint32_t i = 0; number->cut != NO_PARTITION && i < run->plan->sources_count; i++) {
        struct watermark_part part = {.has_say = words_take(message) != 0};
        part.lowest = (int64_t)words_take(message);
        part.holder = (uint32_t)words_take(message);
        part.highest_idle = (int64_t)words_take(message);
        part.newest = (int64_t)words_take(message);
        add_part(&cut->parts[i], part);
    }
    chosen->cuts_left--;
    return !message->is_short;
}

static int by_partition(const void *a, const void *b)
{
    const struct cut_slice *x = a, *y = b;
    return x->partition < y->partition ? -1 : x->partition > y->partition;
}

/* The leader: finishes the next micro-batch, if all owners have cut it, and tells all others. */
static bool finish(struct run *run)
{
    struct sequencer_peers *peers = run->sequencer->peers;
    uint64_t micro_batch = sequencer_formed(run);
    struct chosen *chosen = chosen_at(peers, micro_batch);
    struct cut *cut = &chosen->cut;
    if (micro_batch == peers->next || chosen->cuts_left > 0)
        return false;
    for (uint32_t i = 0; i < chosen->over.count; i++)
        log_ended(run, &run->sequencer->partitions[chosen->over.items[i]]);
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
    for (uint32_t i = 0; i <= run->plan->sources_count; i++)
        words_put(&peers->out, (uint64_t)slot->watermarks[i]);
    peers_send_all(run, &peers->out);
    return log_keep_up(run);
}

/* Others: the leader has finished a micro-batch. */
static bool take_formed(struct run *run, struct words *message)
{
    struct sequencer *s = run->sequencer;
    uint64_t micro_batch = words_take(message);
    struct slot *slot = sequencer_slot(run, micro_batch);
    if (micro_batch != sequencer_formed(run))
        return false;
    slot->micro_batch = micro_batch;
    slot->is_end = words_take(message) != 0;
    slot->is_final = words_take(message) != 0;
    slot->load = s->load = (uint32_t)words_take(message);
    for (uint32_t i = 0; i <= run->plan->sources_count; i++) {
        slot->watermarks[i] = (int64_t)words_take(message);
        s->source_watermarks[i] = slot->is_final ? s->source_watermarks[i] : slot->watermarks[i];
    }
    slot->is_done = NULL;
    slot->is_published = false;
    slot->barrier = 0;
    slot->next = slot->announced = NULL;
    slot->placement = placements_now(run);
    if (message->is_short)
        return false;
    form_slot(run, slot);
    return true;
}

static bool take(struct run *run, const struct message *message)
{
    struct words words = {.left = {message->bytes.data, message->bytes.length}};
    switch (words_take(&words)) {
    case PEER_OFFERS: return take_offers(run, message->from, &words);
    case PEER_NUMBER: return take_number(run, &words);
    case PEER_CUT: return take_cut(run, message->from, &words);
    case PEER_FORMED: return take_formed(run, &words);
    default: return false;
    }
}

static void refuse(struct run *run, const struct message *message)
{
    pthread_mutex_lock(&run->diags_mutex);
    struct diag *d =
        diag_error(run->diags, DIAG_FILE_DAMAGED, (struct span){0},
                   "a message of worker %u does not fit what this worker has of the job", message->from);
    diag_hint(run->diags, d, "start all workers with the same job and the same version of leat");
    pthread_mutex_unlock(&run->diags_mutex);
    run_fail(run);
}

bool peers_form(struct run *run)
{
    struct sequencer_peers *peers = run->sequencer->peers;
    uint64_t formed = sequencer_formed(run);
    bool has_worked = true;
    if (run->sequencer->has_ended)
        return false;
    offer(run);
    while (has_worked && !run_has_failed(run)) {
        has_worked = false;
        for (struct message *message = take_from_inbox(peers); message != NULL;
             message = take_from_inbox(peers)) {
            if (!take(run, message))
                refuse(run, message);
            buffer_free(&message->bytes);
            free(message);
            has_worked = true;
        }
        while (peers_is_leader(run) && finish(run))
            has_worked = true;
        while (peers_is_leader(run) && choose(run))
            has_worked = true;
    }
    return sequencer_formed(run) > formed;
}
