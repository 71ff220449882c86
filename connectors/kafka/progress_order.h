/* The order log in a progress topic: segments (core/order_log.h) of the epochs whose rows are out, so that a run whose checkpoints
 * were lost, and that goes on from an older one in an object store, executes the same micro-batches again. A segment goes into
 * records of PROGRESS_ORDER_PIECE bytes, one after another; a later segment that begins with the same micro-batch replaces it.
 * Part of progress.h. */
#ifndef LEAT_CONNECTORS_KAFKA_PROGRESS_ORDER_H
#define LEAT_CONNECTORS_KAFKA_PROGRESS_ORDER_H

#include "core/buffer.h"

enum {
    PROGRESS_ORDER_PIECE = 256 << 10,
    PROGRESS_ORDERS_MAX = 1 << 16, /* more segments than this mean damage */
    /* Segments that a partition keeps, and their bytes; older ones get tombstones. */
    PROGRESS_ORDERS_KEPT = 1 << 15,
    PROGRESS_ORDER_BYTES_MAX = 64 << 20,
    PROGRESS_ORDERS_NEEDLESS =
        256, /* segments that a transaction makes void only because the store has them, at most */
};

struct progress_order {
    uint64_t life; /* generation of the process that wrote it */
    uint64_t epoch, first, next;
    uint64_t bytes;       /* of the segment */
    uint32_t pieces, got; /* got: how many of them have been read, in their order */
    char *data;           /* the pieces read, malloc'd; NULL: not kept */
};

/* The segments of a partition, by `first`. */
struct progress_orders {
    struct progress_order *items;
    uint32_t count, capacity;
    uint64_t bytes;  /* of all segments */
    bool keeps_data; /* set by the user before the first record is read */
};

static inline uint32_t progress_order_pieces(uint64_t bytes)
{
    return (uint32_t)((bytes + PROGRESS_ORDER_PIECE - 1) / PROGRESS_ORDER_PIECE);
}
/* Whether all pieces were read, and kept. */
static inline bool progress_order_is_whole(const struct progress_order *order)
{
    return order->data != NULL && order->got == order->pieces;
}
/* The micro-batch behind the last segment; 0: there is none. */
uint64_t progress_orders_next(const struct progress_orders *orders);
/* Adds a record: piece `piece` of the segment that begins with micro-batch `first`; value.data NULL: its tombstone. Returns false
 * if the value is damaged. A piece that does not continue what was read before belongs to a replaced segment, and is ignored. */
bool progress_orders_apply(struct progress_orders *orders, uint64_t first, uint64_t piece, struct str value);
/* How many of the oldest segments a transaction makes void that adds `more` segments with `more_bytes`: those before micro-batch
 * `stored_next`, which the object store makes needless, and those that are too many. The last one stays: it says up to where
 * segments are noted. */
uint32_t progress_orders_void(const struct progress_orders *orders, uint64_t stored_next, uint32_t more,
                              uint64_t more_bytes);
/* Appends the value of a piece. segment: all its bytes. */
void progress_order_put(const struct progress_order *order, uint32_t piece, struct str segment,
                        struct byte_buffer *value);
/* Forgets all segments; keeps keeps_data. */
void progress_orders_clear(struct progress_orders *orders);

#endif
