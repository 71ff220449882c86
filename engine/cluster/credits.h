/* Inside cluster/: the credits of one direction of a link (link.h), as numbers alone: no memory, no clock, no thread.
 *
 * The receiver grants bytes; grants, charges and releases are sums since the link began, so that a message that is lost with
 * its connection takes nothing along. One rule keeps cycles of workers from waiting for each other: a frame whose first number
 * is at most the lowest one that the receiver has not finished needs no credit. The receiver takes it beyond its window, and
 * spills. Whoever holds the lowest unfinished number of all workers therefore gets what it needs, however full its window is.
 *
 * A struct belongs to one thread at a time. Units: bytes; numbers of micro-batches, from 1. */
#ifndef LEAT_CLUSTER_CREDITS_H
#define LEAT_CLUSTER_CREDITS_H

#include "core/base.h"

#define CREDITS_WINDOW_MAX (UINT64_C(1) << 40) /* bytes of a window */

/* What a sender knows of its receiver. All zero: nothing is granted yet. */
struct credits_sender {
    uint64_t granted; /* bytes that the receiver allows, since the link began */
    uint64_t
        charged; /* bytes of the frames that were taken for sending; above `granted` by frames without credit */
    uint64_t unfinished; /* lowest number that the receiver has not finished */
};

/* What a receiver grants. */
struct credits_receiver {
    uint64_t window;      /* bytes that may lie here unreleased */
    uint64_t received;    /* bytes of whole frames */
    uint64_t released;    /* bytes that the engine gave back; at most `received` */
    uint64_t told;        /* the grant that the sender was told last */
    uint64_t unfinished;  /* lowest number that is not finished here */
    uint64_t told_lowest; /* `unfinished`, as the sender was told last */
};

/* Bytes that may be sent with credit now. */
uint64_t credits_room(const struct credits_sender *sender);
/* Whether a frame may be sent now: it has credit, or the receiver cannot go on without it. */
bool credits_may_send(const struct credits_sender *sender, uint64_t first, uint64_t bytes);
/* Charges a frame that credits_may_send let pass. */
void credits_charge(struct credits_sender *sender, uint64_t bytes);
/* Takes over what the receiver told. false: it takes back what it had granted, or grants more than a window; nothing is
 * changed then. */
bool credits_hear(struct credits_sender *sender, uint64_t granted, uint64_t unfinished);

/* Whether a sender that keeps the rule may send such a frame. */
bool credits_is_allowed(const struct credits_receiver *receiver, uint64_t first, uint64_t bytes);
/* Counts a whole frame. */
void credits_receive(struct credits_receiver *receiver, uint64_t bytes);
/* Counts bytes that the engine gave back. */
void credits_release(struct credits_receiver *receiver, uint64_t bytes);
/* The grant as it is now; the sender is to be told when credits_must_tell. */
uint64_t credits_grant(const struct credits_receiver *receiver);
/* Whether the sender should hear of the grant or of the lowest number: that number rose, an eighth of the window came free, or
 * the whole window is free. */
bool credits_must_tell(const struct credits_receiver *receiver);
/* Likewise, whether the sender may be waiting for it: the free window alone can wait a little. */
bool credits_is_urgent(const struct credits_receiver *receiver);
/* Notes that the sender is told the present grant and lowest number. */
void credits_told(struct credits_receiver *receiver);

#endif
