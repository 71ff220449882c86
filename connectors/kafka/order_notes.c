#include "connectors/kafka/order_notes.h"

#include "core/log.h"
#include "core/mem.h"
#include "core/order_log.h"

#include <stdlib.h>

void order_notes_init(struct order_notes *notes, uint64_t life)
{
    *notes = (struct order_notes){.life = life};
    notes->tail = &notes->head;
    pthread_mutex_init(&notes->mutex, NULL);
}

/* Call under the mutex. Frees what is out and nobody holds. */
static void sweep(struct order_notes *notes)
{
    struct order_note **at = &notes->head;
    while (*at != NULL) {
        struct order_note *note = *at;
        if (!note->is_out || note->holds > 0) {
            at = &note->following;
            continue;
        }
        *at = note->following;
        notes->bytes -= note->bytes;
        free(note);
    }
    notes->tail = at;
}

void order_notes_free(struct order_notes *notes)
{
    for (struct order_note *note = notes->head; note != NULL; note = note->following)
        note->is_out = true;
    sweep(notes);
    pthread_mutex_destroy(&notes->mutex);
    *notes = (struct order_notes){0};
}

void order_notes_add(struct order_notes *notes, struct str segment)
{
    struct order_head head;
    if (order_head_read(segment, &head) != NULL)
        return;
    struct order_note *note = mem_alloc(sizeof(*note) + segment.length);
    *note = (struct order_note){
        .epoch = head.epoch, .first = head.first, .next = head.next, .bytes = segment.length};
    memcpy(note->data, segment.data, segment.length);
    bool has_dropped = false;
    pthread_mutex_lock(&notes->mutex);
    *notes->tail = note;
    notes->tail = &note->following;
    notes->bytes += note->bytes;
    for (struct order_note *old = notes->head; old != note && notes->bytes > ORDER_NOTES_BYTES_MAX;
         old = notes->head) {
        has_dropped = !notes->has_said;
        if (old->holds > 0)
            break;
        old->is_out = true;
        sweep(notes);
    }
    notes->has_said |= has_dropped;
    pthread_mutex_unlock(&notes->mutex);
    if (has_dropped)
        log_say(LOG_LEVEL_WARNING,
                "the store and the brokers are behind, and the order log since then is too long to wait: if "
                "the checkpoint directory is lost, what was sent meanwhile cannot be made again");
}

void order_notes_stored(struct order_notes *notes, uint64_t epoch)
{
    pthread_mutex_lock(&notes->mutex);
    for (struct order_note *note = notes->head; note != NULL; note = note->following)
        note->is_out |= note->epoch <= epoch;
    sweep(notes);
    pthread_mutex_unlock(&notes->mutex);
    atomic_store(&notes->stored, epoch);
}

bool order_notes_are_many(struct order_notes *notes)
{
    pthread_mutex_lock(&notes->mutex);
    bool are_many = notes->bytes > ORDER_NOTES_MANY;
    pthread_mutex_unlock(&notes->mutex);
    return are_many;
}

struct order_note **order_notes_take(struct order_notes *notes, uint64_t epoch, uint32_t *count)
{
    uint32_t all = 0;
    pthread_mutex_lock(&notes->mutex);
    for (const struct order_note *note = notes->head; note != NULL; note = note->following)
        all++;
    struct order_note **taken = mem_alloc(MAX(all, 1U) * sizeof(struct order_note *));
    *count = 0;
    for (struct order_note *note = notes->head; note != NULL; note = note->following) {
        if (note->is_out || note->epoch > epoch)
            continue;
        note->holds++;
        taken[(*count)++] = note;
    }
    pthread_mutex_unlock(&notes->mutex);
    return taken;
}

void order_notes_release(struct order_notes *notes, struct order_note **taken, uint32_t count, bool is_out)
{
    pthread_mutex_lock(&notes->mutex);
    for (uint32_t i = 0; i < count; i++) {
        taken[i]->holds--;
        taken[i]->is_out |= is_out;
    }
    sweep(notes);
    pthread_mutex_unlock(&notes->mutex);
    free(taken);
}

uint64_t order_notes_stored_next(const struct order_notes *notes, const struct progress_orders *noted)
{
    uint64_t stored = atomic_load(&notes->stored), next = stored == 0 ? 0 : notes->restored_next;
    for (uint32_t i = 0; i < noted->count && stored > 0; i++)
        if (noted->items[i].life == notes->life && noted->items[i].epoch <= stored)
            next = MAX(next, noted->items[i].next);
    return next;
}
