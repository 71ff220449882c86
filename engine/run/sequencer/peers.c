/* Forming micro-batches over several workers, by the steps of form.c:
 *
 *   each owner    decodes ahead, and offers the ends of its partitions' rows, in their order        PEER_OFFERS
 *   the leader    chooses micro-batch after micro-batch, as far as the offers go                    PEER_NUMBER
 *   each owner    cuts its rows of a micro-batch, and says what they show                           PEER_CUT
 *   the leader    has what all owners said: finishes the micro-batch                                PEER_FORMED
 *
 * A micro-batch ends where the earliest offer does, so it takes that offer, and no other one to its end: what is left of the
 * offers is known without a word of the owners, and the next micro-batch can be chosen at once. Not so with `align:`: which
 * partitions are held back depends on the event times of their next rows, which owners say with their cuts, and with offers where
 * nothing else was left to take. So a micro-batch with rows must be formed before the next one is chosen: one round trip for each.
 *
 * In a replay the leader chooses by the log, before owners have the rows (peers_replay.c).
 *
 * Messages wait in the inbox, also those to itself, until a lane forms micro-batches. The leader's messages come in order. Under
 * the sequencer's mutex, but for the inbox. */
#include "run/sequencer/peers_internal.h"

#include "core/mem.h"
#include "run/base/placements.h"

#include <stdlib.h>

void sequencer_peers_init(struct run *run)
{
    struct sequencer *s = run->sequencer;
    if (run->options.peers == NULL)
        return;
    struct sequencer_peers *peers = s->peers = mem_calloc(1, sizeof(*peers));
    uint32_t sources = MAX(run->plan->sources_count, 1), partitions = MAX(s->partitions_room, 1);
    inbox_init(&peers->inbox, INBOX_SHARE);
    peers->told_last = &peers->told;
    peers->partitions = mem_calloc(partitions, sizeof(*peers->partitions));
    for (uint32_t i = 0; i < partitions; i++)
        peers->partitions[i].taken.time = peers->partitions[i].newest = peers->partitions[i].cut_time =
            peers->partitions[i].next.time = TIME_MIN;
    peers->said_found = arena_array(&run->arena, uint32_t, sources);
    peers->found = arena_array(&run->arena, uint32_t, peers_count(run) * sources);
    peers->own.parts = arena_array(&run->arena, struct watermark_part, sources);
    for (uint32_t i = 0; i < SLOTS; i++)
        peers->chosen[i].cut.parts = arena_array(&run->arena, struct watermark_part, sources);
}

void sequencer_peers_begin(struct run *run)
{
    const struct sequencer *s = run->sequencer;
    struct sequencer_peers *peers = s->peers;
    if (peers == NULL)
        return;
    peers->offers = !s->is_replaying;
    peers->is_by_log = s->is_replaying && peers_is_leader(run);
    peers->told_partitions = s->partitions_count;
    peers->next = peers->own_next = s->first;
    for (uint32_t worker = 0; worker < peers_count(run); worker++)
        peers->cuts_next[worker] = s->first;
    for (uint32_t i = 0; i < s->partitions_count; i++)
        peers->partitions[i].is_idle = s->partitions[i].is_idle;
}

void sequencer_peers_free(struct run *run)
{
    struct sequencer_peers *peers = run->sequencer->peers;
    if (peers == NULL)
        return;
    inbox_free(run, &peers->inbox);
    while (peers->told != NULL) {
        struct message *message = peers->told;
        peers->told = message->next;
        message_free(run, message);
    }
    for (uint32_t i = 0; i < run->sequencer->partitions_room; i++) {
        free(peers->partitions[i].ends);
        buffer_free(&peers->partitions[i].position);
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        free(peers->chosen[i].cut.slices);
        free(peers->chosen[i].over.items);
        free(peers->chosen[i].idle.items);
        free(peers->chosen[i].without.items);
        free(peers->chosen[i].slices);
    }
    for (enum list list = 0; list < LISTS; list++)
        free(peers->lists[list].items);
    free(peers->own_slices);
    free(peers->own.slices);
    free(peers->partitions);
    buffer_free(&peers->out);
    free(peers);
}

/* --- Messages --- */

bool sequencer_receive(struct run *run, uint32_t worker, struct str message)
{
    struct words words = {.left = message};
    uint64_t tag = words_take(&words);
    bool is_leader = worker == run->options.peers->leader;
    bool is_of_leader =
        tag == PEER_NUMBER || tag == PEER_PARTITION || tag == PEER_COMPUTE || tag == PEER_FORMED;
    if (tag == PEER_STOP && peers_is_leader(run) && peers_is_whole(&words)) {
        sequencer_stop(run);
        return true;
    }
    if (tag == PEER_HOLD)
        return peers_take_holds(run, worker, &words);
    if (tag == PEER_ANSWER && peers_is_leader(run))
        return lead_take_answer(run, worker, &words);
    if (tag < PEER_OFFERS || tag >= PEER_TAGS || (is_of_leader && !is_leader) ||
        (!is_of_leader && !peers_is_leader(run)))
        return false;
    inbox_put(run, &run->sequencer->peers->inbox, worker, message);
    run_wake(run);
    return true;
}

/* Sends peers->out, also where the worker is this one. */
void peers_send_to(struct run *run, uint32_t worker)
{
    struct sequencer_peers *peers = run->sequencer->peers;
    if (worker != peers_self(run))
        peers_post(run, worker, &peers->out);
    else
        inbox_put(run, &peers->inbox, worker, (struct str){peers->out.data, peers->out.length});
}

/* Takes the watermarks of a micro-batch, which never fall. */
static bool take_watermarks(struct run *run, struct slot *slot, struct words *message)
{
    struct sequencer *s = run->sequencer;
    for (uint32_t i = 0; i <= run->plan->sources_count; i++) {
        slot->watermarks[i] = (int64_t)words_take(message);
        if (slot->is_final ? slot->watermarks[i] != TIME_MAX : slot->watermarks[i] < s->source_watermarks[i])
            return false;
        s->source_watermarks[i] = slot->is_final ? s->source_watermarks[i] : slot->watermarks[i];
    }
    return !message->is_short;
}

/* Others: the leader has finished a micro-batch, which this worker has cut: its slot is free. */
static bool take_formed(struct run *run, struct words *message)
{
    struct sequencer *s = run->sequencer;
    uint64_t micro_batch = words_take(message), is_end = words_take(message), is_final = words_take(message),
             load = words_take(message);
    struct slot *slot = sequencer_slot(run, micro_batch);
    if (micro_batch != sequencer_formed(run) || micro_batch >= s->peers->own_next || s->has_ended ||
        is_end > 1 || is_final > is_end || load > ORDER_LOAD_MAX)
        return false;
    slot->micro_batch = micro_batch;
    slot->is_end = is_end != 0;
    slot->is_final = is_final != 0;
    slot->load = s->load = (uint32_t)load;
    slot->is_published = false;
    slot->placement = placements_now(run);
    if (!own_take_done(run, slot, message) || !take_watermarks(run, slot, message) ||
        !take_formed_barrier(run, slot, message) || !peers_is_whole(message))
        return false;
    form_slot(run, slot);
    return true;
}

/* A message that waits for its turn is put aside, and *is_kept is set. False: the job cannot have it. */
static bool take(struct run *run, struct message *message, bool *is_kept)
{
    struct sequencer_peers *peers = run->sequencer->peers;
    struct words words = {.left = {message->bytes, message->length}};
    switch (words_take(&words)) {
    case PEER_OFFERS: return lead_take_offers(run, message->from, &words);
    case PEER_FOUND: return lead_take_found(run, message->from, &words);
    case PEER_DIFFERS: return lead_take_differs(run, message->from, &words);
    case PEER_CUT: return lead_take_cut(run, message->from, &words);
    case PEER_FORMED: return take_formed(run, &words);
    default: break;
    }
    if (peers->told_count == TOLD_MAX)
        return false;
    message->next = NULL;
    *peers->told_last = message;
    peers->told_last = &message->next;
    peers->told_count++;
    *is_kept = true;
    return true;
}

static enum told take_told(struct run *run, const struct message *message)
{
    struct words words = {.left = {message->bytes, message->length}};
    switch (words_take(&words)) {
    case PEER_NUMBER: return own_take_number(run, &words);
    case PEER_PARTITION: return own_take_partition(run, &words);
    default: return own_take_compute(run, &words);
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

/* Does what the leader has told, in its order, as far as this worker's rows go; false: nothing can be done now. */
static bool follow(struct run *run)
{
    struct sequencer_peers *peers = run->sequencer->peers;
    bool has_worked = false;
    while (peers->told != NULL && !run_has_failed(run)) {
        struct message *message = peers->told;
        enum told told = take_told(run, message);
        if (told == TOLD_LATER)
            break;
        if (told == TOLD_BAD)
            refuse(run, message);
        has_worked = true;
        peers->told = message->next;
        if (peers->told == NULL)
            peers->told_last = &peers->told;
        peers->told_count--;
        message_free(run, message);
    }
    return has_worked;
}

static void take_all(struct run *run, bool *has_worked)
{
    struct inbox *inbox = &run->sequencer->peers->inbox;
    for (struct message *message; (message = inbox_take(run, inbox)) != NULL;) {
        bool is_kept = false;
        if (!take(run, message, &is_kept))
            refuse(run, message);
        *has_worked = true;
        if (is_kept) {
            (void)follow(run);
            continue;
        }
        message_free(run, message);
    }
}

bool peers_form(struct run *run)
{
    uint64_t formed = sequencer_formed(run);
    bool has_worked = true;
    if (run->sequencer->has_ended)
        return false;
    peers_say_holds(run);
    own_find(run);
    own_offer(run);
    while (has_worked && !run_has_failed(run)) {
        has_worked = false;
        take_all(run, &has_worked);
        has_worked |= follow(run);
        while (peers_is_leader(run) && lead_finish(run))
            has_worked = true;
        while (peers_is_leader(run) && lead_choose(run))
            has_worked = true;
    }
    return sequencer_formed(run) > formed;
}
