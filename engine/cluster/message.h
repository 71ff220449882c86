/* Inside cluster/: the messages of a connection between two workers (link.h), as bytes.
 *
 * A message is a struct message_head and a body; they follow each other on a TCP connection. Who dials sends HELLO; who listens
 * answers CHALLENGE, with its proof (proof.h); PROOF and READY follow, then all others, both ways. A frame is cut into pieces of
 * MESSAGE_BODY_MAX bytes, and a last one of what is left. Words are little-endian. Pure functions; any thread. */
#ifndef LEAT_CLUSTER_MESSAGE_H
#define LEAT_CLUSTER_MESSAGE_H

#include "cluster/proof.h"
#include "core/base.h"

enum {
    MESSAGE_VERSION = 2,
    MESSAGE_BODY_MAX = 128 << 10, /* bytes behind a head */
    MESSAGE_WORKER_MAX = 1023,    /* the highest number of a worker */
};

#define MESSAGE_MAGIC     UINT32_C(0x54414c4c) /* "LLAT" */
#define MESSAGE_FRAME_MAX (UINT32_C(16) << 20) /* bytes of a frame */

enum message_kind {
    MESSAGE_HELLO = 1, /* body: struct message_hello */
    MESSAGE_CHALLENGE, /* struct message_hello */
    MESSAGE_PROOF,     /* struct message_proof */
    MESSAGE_READY,     /* struct message_status */
    MESSAGE_REFUSED,   /* no body; `sequence`: an enum message_refusal */
    MESSAGE_FRAME,     /* a piece of a frame */
    MESSAGE_STATUS,    /* struct message_status */
    MESSAGE_PING,      /* no body; `sequence`: the sender's clock, which PONG gives back */
    MESSAGE_PONG,      /* no body */
    MESSAGE_PROBE,     /* bytes that nobody reads; `sequence`: how many of them are still to come */
    MESSAGE_PROBED,    /* no body: all bytes of a probe have come */
    MESSAGE_KINDS
};

/* Why a listener ends a connection; its text for people is message_refusal_text. */
enum message_refusal {
    REFUSED_NOT = 0,
    REFUSED_DAMAGED,     /* not a message, or its digest is wrong */
    REFUSED_VERSION,     /* of another version of this protocol */
    REFUSED_OLDER,       /* of an older incarnation than the receiver's */
    REFUSED_NEWER,       /* of a newer one */
    REFUSED_WORKER,      /* another worker than the one that was called */
    REFUSED_UNKNOWN,     /* from a worker to which the receiver wants no link (yet) */
    REFUSED_STRANGER,    /* no proof of the secret, or anything but a greeting before it */
    REFUSED_ORDER,       /* a frame that does not follow the one before */
    REFUSED_OVER_CREDIT, /* a frame beyond the credits */
    REFUSED_COUNT
};

struct message_head {
    uint64_t digest; /* xxh3-64 of the rest of the head and of the body, seeded with `session` */
    uint32_t magic;
    uint8_t version, kind;
    uint16_t from;        /* number of the worker that sends */
    uint64_t incarnation; /* of the job, as the sender knows it */
    uint64_t session;     /* what both sides derived from the secret; 0 before that */
    uint64_t sequence;    /* FRAME: of the frame, from 1, without a gap; others: see message_kind */
    uint32_t length;      /* FRAME: of the whole frame; others: of the body */
    uint32_t offset;      /* FRAME: of the first byte of this body in the frame */
};

_Static_assert(sizeof(struct message_head) == 48, "heads are sent as they are");

struct message_hello {
    uint8_t nonce[PROOF_NONCE];
    uint8_t proof[PROOF_BYTES]; /* CHALLENGE: of the listener; HELLO: zero */
    uint64_t to;                /* number of the worker that is called */
};

struct message_proof {
    uint8_t proof[PROOF_BYTES]; /* of who dials */
    uint64_t sequence;          /* of the newest frame that it has received whole */
};

struct message_status {
    uint64_t sequence; /* of the newest frame that was received whole: the sender may forget it */
    uint64_t granted;  /* credits.h */
};

/* Sets magic, version, length (but for FRAME) and digest. */
void message_seal(struct message_head *head, const void *body, size_t bytes);
/* Bytes of the body that follows a head whose digest cannot be checked yet: at most MESSAGE_BODY_MAX. Returns REFUSED_NOT, or
 * REFUSED_DAMAGED or REFUSED_VERSION where no body can follow. */
enum message_refusal message_measure(const struct message_head *head, size_t *bytes);
/* Checks the bytes of a message and copies its head, as far as it can be read, to *head (zero: none of it can). Returns
 * REFUSED_NOT, REFUSED_DAMAGED or REFUSED_VERSION; of REFUSED_NOT all members are within their bounds, and the body has the
 * bytes that its kind demands. */
enum message_refusal message_open(const void *head_bytes, size_t head_length, const void *body, size_t bytes,
                                  struct message_head *head);
/* Whether a message of that kind may have a body of so many bytes. */
bool message_fits(uint8_t kind, size_t bytes);
/* A static text: what was refused, for a line such as "worker 3 refused this one: TEXT". */
const char *message_refusal_text(enum message_refusal refusal);

#endif
