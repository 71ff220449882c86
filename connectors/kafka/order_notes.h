/* Segments of the order log that wait to be noted in a sink's progress topic (progress_order.h). The shards of a sink share them:
 * a transaction that sends an epoch's rows notes all segments up to that epoch which no shard has noted yet, so that what is out
 * can be made again. Segments of epochs that the object store has are not needed any more. All functions: any thread, but for
 * init and free. */
#ifndef LEAT_CONNECTORS_KAFKA_ORDER_NOTES_H
#define LEAT_CONNECTORS_KAFKA_ORDER_NOTES_H

#include "connectors/kafka/progress_order.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    ORDER_NOTES_MANY = 256 << 10,     /* bytes */
    ORDER_NOTES_BYTES_MAX = 64 << 20, /* that wait */
    ORDER_NOTES_COUNT_MAX = 1 << 13,  /* segments that wait */
};

struct order_note {
    struct order_note *following;
    uint64_t epoch, first, next;
    uint32_t holds; /* transactions under way that have it */
    bool is_out;    /* noted, in the store, or dropped: it does not wait, and is freed once nobody holds it */
    size_t bytes;
    char data[];
};

struct order_notes {
    pthread_mutex_t mutex;
    struct order_note *head, **tail;
    uint32_t count; /* of notes that wait */
    uint64_t bytes; /* theirs */
    uint64_t life;  /* generation of this process */
    uint64_t
        restored_next; /* the checkpoint with which this process began is before this micro-batch; 0: with none */
    bool has_said;     /* that segments were dropped */
    _Atomic uint64_t
        stored; /* epoch of the newest checkpoint that the object store has, of this life or the one with which it
                                 began; 0: not known */
};

void order_notes_init(struct order_notes *notes, uint64_t life);
void order_notes_free(struct order_notes *notes);
/* Adds a segment; copies it. Beyond ORDER_NOTES_BYTES_MAX or ORDER_NOTES_COUNT_MAX the oldest are dropped, which is said once.
 * Ignores bytes that are no segment. */
void order_notes_add(struct order_notes *notes, struct str segment);
/* The object store has the checkpoint of this epoch. */
void order_notes_stored(struct order_notes *notes, uint64_t epoch);
/* Whether so much waits that a transaction without rows is worth it. */
bool order_notes_are_many(struct order_notes *notes);
/* Returns the segments up to `epoch` that are not noted yet, in an array to free, and holds them until order_notes_release. */
struct order_note **order_notes_take(struct order_notes *notes, uint64_t epoch, uint32_t *count);
/* is_out: they are noted now. */
void order_notes_release(struct order_notes *notes, struct order_note **taken, uint32_t count, bool is_out);
/* The micro-batch before which the store has everything, as far as the segments noted in a partition tell. */
uint64_t order_notes_stored_next(const struct order_notes *notes, const struct progress_orders *noted);

#endif
