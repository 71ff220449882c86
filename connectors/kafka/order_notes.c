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
        free(note);
    }
    notes->tail = at;
}

/* Call under the mutex. The note waits no longer. */
static void take_out(struct order_notes *notes, struct order_note *note)
{
    if (note->is_out)
        return;
    note->is_out = true;
    notes->count--;
    notes->bytes -= note->bytes;
}

void order_notes_free(struct order_notes *notes)
{
    for (struct order_note *note = notes->head; note != NULL; note = note->following)
        take_out(notes, note);
    sweep(notes);
    pthread_mutex_destroy(&notes->mutex);
    *notes = (struct order_notes){0};
}

/* Call under the mutex. Drops the oldest notes while too many wait; one that a transaction holds is freed when that ends. Returns
 * whether this is to be said. */
static bool drop_oldest(struct order_notes *notes, const struct order_note *newest)
{
    bool has_dropped = false;
    for (struct order_note *old = notes->head;
         old != newest && (notes->bytes > ORDER_NOTES_BYTES_MAX || notes->count > ORDER_NOTES_COUNT_MAX);
         old = old->following) {
        has_dropped |= !old->is_out;
        take_out(notes, old);
    }
    if (!has_dropped)
        return false;
    sweep(notes);
    bool is_said = notes->has_said;
    notes->has_said = true;
    return !is_said;
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
    pthread_mutex_lock(&notes->mutex);
    *notes->tail = note;
    notes->tail = &note->following;
    notes->count++;
    notes->bytes += note->bytes;
    bool must_say = drop_oldest(notes, note);
    pthread_mutex_unlock(&notes->mutex);
    if (must_say)
        log_say(LOG_LEVEL_WARNING,
                "the store and the brokers are behind, and the order log since then is too long to wait: if "
                "the checkpoint directory is lost, what was sent meanwhile cannot be made again");
}

void order_notes_stored(struct order_notes *notes, uint64_t epoch)
{
    pthread_mutex_lock(&notes->mutex);
    for (struct order_note *note = notes->head; note != NULL; note = note->following)
        if (note->epoch <= epoch)
            take_out(notes, note);
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
    *count = 0;
    pthread_mutex_lock(&notes->mutex);
    struct order_note **taken = mem_alloc(MAX(notes->count, 1U) * sizeof(struct order_note *));
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
        if (is_out)
            take_out(notes, taken[i]);
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
