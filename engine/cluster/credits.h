/* Inside cluster/: the credits of one direction of a link (link.h), as numbers alone: no memory, no clock, no thread.
 *
 * The receiver grants bytes; grants, charges and releases are sums since the link began, so that a message that is lost with
 * its connection takes nothing along. A frame needs credit for all its bytes. Workers in a circle do not wait for each other as
 * long as each receiver releases frames without waiting for others.
 *
 * A struct belongs to one thread at a time. Unit: bytes. */
#ifndef LEAT_CLUSTER_CREDITS_H
#define LEAT_CLUSTER_CREDITS_H

#include "core/base.h"

#define CREDITS_WINDOW_MAX (UINT64_C(1) << 40) /* bytes of a window */

/* What a sender knows of its receiver. All zero: nothing is granted yet. */
struct credits_sender {
    uint64_t granted; /* bytes that the receiver allows, since the link began */
    uint64_t charged; /* bytes of the frames that were taken for sending; at most `granted` */
};

/* What a receiver grants. */
struct credits_receiver {
    uint64_t window;   /* bytes that may lie here unreleased */
    uint64_t received; /* bytes of whole frames; at most `told` */
    uint64_t released; /* bytes that the engine gave back; at most `received` */
    uint64_t told;     /* the grant that the sender was told last */
};

/* Bytes that may be sent now. */
uint64_t credits_room(const struct credits_sender *sender);
/* Charges a frame; bytes: at most credits_room. */
void credits_charge(struct credits_sender *sender, uint64_t bytes);
/* Takes over what the receiver told. false: it takes back what it had granted, or grants more than a window; nothing is
 * changed then. */
bool credits_hear(struct credits_sender *sender, uint64_t granted);

/* Whether the sender has credit for a frame of so many bytes. */
bool credits_is_allowed(const struct credits_receiver *receiver, uint64_t bytes);
/* Counts a whole frame that credits_is_allowed let pass. */
void credits_receive(struct credits_receiver *receiver, uint64_t bytes);
/* Counts bytes that the engine gave back. */
void credits_release(struct credits_receiver *receiver, uint64_t bytes);
/* The grant as it is now; the sender is to be told when credits_must_tell. */
uint64_t credits_grant(const struct credits_receiver *receiver);
/* Whether the sender should hear of the grant: an eighth of the window came free, or the whole window is free. */
bool credits_must_tell(const struct credits_receiver *receiver);
/* Likewise, whether the sender may be waiting for it: the free window alone can wait a little. */
bool credits_is_urgent(const struct credits_receiver *receiver);
/* Notes that the sender is told the present grant. */
void credits_told(struct credits_receiver *receiver);

#endif
