/* Links: how the workers of one job send each other frames, over TCP.
 *
 * A frame is bytes. Frames of a link arrive whole, once, in the order in which they were sent. The sender keeps a frame until the
 * receiver has it; after a broken connection, the next one goes on behind what was received. Flow is bounded by credits of the
 * receiver and by the sender's own budget; link_send never blocks, and refuses what has no room. Frames that a receiver holds take
 * room from all that follow: a receiver that gives them back at once (link_release) holds nobody up.
 *
 * Of two workers the one with the lower number dials. Both prove that they know the secret of the incarnation before either
 * takes a frame. Nothing is encrypted: that is the network's part.
 *
 * One thread a `struct links`, the runner, reads and writes all connections. It sleeps while nothing happens. Callbacks run on it:
 * they must not wait, and may call all functions but those that say otherwise. All functions are for
 * any thread, unless they say otherwise. */
#ifndef LEAT_CLUSTER_LINK_H
#define LEAT_CLUSTER_LINK_H

#include "core/diag.h"

enum {
    LINK_WORKER_MAX = 1023, /* the highest number of a worker; the lowest is 0 */
    LINK_SECRET_MIN = 16,   /* bytes of a secret */
    LINK_SECRET_MAX = 256,
    LINK_ADDRESS_MAX = 262, /* bytes of "HOST:PORT" */
    LINK_REASON_MAX = 768,  /* bytes of a reason */
};

#define LINK_FRAME_MAX  (UINT32_C(16) << 20) /* bytes of a frame */
#define LINK_PROBE_MAX  (UINT32_C(256) << 20)
#define LINK_PROBE_US   INT64_C(1000000)
#define LINK_BUDGET_MAX (INT64_C(1) << 40) /* bytes of a budget */

struct links;

/* A frame. The sender fills `bytes`; the rest is the links' own. */
struct link_frame {
    struct link_frame *next;
    uint64_t sequence;
    int64_t due_us;
    uint64_t life;   /* received: of the link that it came by */
    uint32_t worker; /* received: from whom */
    uint32_t length;
    uint32_t pins; /* pieces in the outbox of a connection */
    bool is_orphan;
    bool is_twice, is_cut, is_damaged; /* for tests: failpoints */
    uint8_t bytes[] __attribute__((aligned(16)));
};

/* What the links tell. `worker` is the other one's number, `reason` a text for people: what was tried, what came, what to do. */
struct link_calls {
    /* A frame came; the callee owns it, and gives it back by link_release. */
    void (*take)(void *user, struct link_frame *frame);
    /* The other side is there, and has proven who it is. */
    void (*is_up)(void *user, uint32_t worker);
    /* The connection broke, or none came about in time. Frames that were sent are kept until link_close; link_to tries again. A
     * killed process is told at once; a machine that vanishes, or a cut cable, after silence_us. */
    void (*is_gone)(void *user, uint32_t worker, const char *reason);
    /* After link_send has refused frames: one of the least length among them would pass now. */
    void (*has_room)(void *user, uint32_t worker);
};

struct links_options {
    uint32_t self;        /* own number */
    uint64_t incarnation; /* of the job, from 1; 0: none yet: all callers are refused until links_restart */
    struct str secret;    /* of the incarnation; copied; not used where there is none */
    const char *listen;   /* "HOST:PORT" of an own interface; port 0: any */
    int64_t
        retained_bytes; /* budget of frames that are sent and not yet received, over all links; at least 1 */
    int64_t window_bytes; /* budget of a link's frames that came and were not released; at least 1 */
    int64_t patience_us;  /* how long to dial before is_gone; 0: 10 s */
    int64_t silence_us;   /* how long the other side may answer nothing before is_gone; 0: for ever */
    int64_t delay_us;     /* for tests: each frame leaves so much later */
    int64_t bytes_per_s;  /* for tests: frames leave at most that fast; 0: no limit */
    struct link_calls calls;
    void *user; /* of the callbacks */
};

/* Starts to listen, and the thread. NULL + diagnostic: an option is out of its bounds, the address is not an own one or taken,
 * or the system has no descriptor or thread left. The caller frees it by links_free. */
LEAT_CHECKED struct links *links_new(const struct links_options *options, struct diag_list *diags);
/* Closes all links, and ends the thread. No callback comes after it. Not from a callback. */
void links_free(struct links *links);
/* Port on which it listens. */
uint16_t links_port(const struct links *links);
/* Closes all links; from now on it speaks for another, later incarnation, in which its own number is `self`, and the links have such
 * windows. Not from a callback. */
void links_restart(struct links *links, uint32_t self, uint64_t incarnation, struct str secret,
                   int64_t window_bytes);

/* Looks at all links now: those whose other side has answered nothing for two thirds of silence_us have gone, as if that time had passed.
 * Not from a callback. */
void links_end_silent(struct links *links);

/* Wants a link to the worker, at "HOST:PORT" (IPv4 or a name, which is resolved here and may take as long as the system's
 * resolver); the address matters only where this one dials. is_up or is_gone follow. Where the link is gone, tries again. Not
 * from a callback. false + diagnostic: the address or the number is none. */
LEAT_CHECKED bool link_to(struct links *links, uint32_t worker, const char *address, struct diag_list *diags);
/* Ends the link, whatever the other side does: what was sent and not received is dropped, its memory is free when the call
 * returns. Both sides close a link before they make it anew. Frames that came and were not released stay with who has them.
 * Nothing happens where there is no link. Not from a callback. */
void link_close(struct links *links, uint32_t worker);

/* A frame with room for the bytes; length: at most LINK_FRAME_MAX. The caller owns it. */
struct link_frame *link_frame_new(uint32_t length);
void link_frame_free(struct link_frame *frame); /* one that was never sent, or was refused */

enum link_sent {
    LINK_SENT,    /* the links own the frame */
    LINK_NO_ROOM, /* the caller keeps it, and spills; has_room will be called */
    LINK_NO_LINK, /* the caller keeps it: no link was made to that worker, or it was closed */
};

/* Sends a frame, or refuses it at once. Before the link is up for the first time there is no room. A frame that is longer than the
 * receiver's window or the sender's budget never has room. */
LEAT_CHECKED enum link_sent link_send(struct links *links, uint32_t worker, struct link_frame *frame);
/* Gives back a frame that `take` got: the sender gets credit for its bytes. Returns how many bytes of other frames that came by that
 * link were not given back; 0, too, where the link was closed. */
int64_t link_release(struct links *links, struct link_frame *frame);

/* Asks for a round trip, unless one is on its way; link_figures shows how long it took. false: the link is not up. */
bool link_ping(struct links *links, uint32_t worker);
/* Measures the bandwidth: sends so many bytes (1 to LINK_PROBE_MAX), which nobody reads, or fewer: those of
 * LINK_PROBE_US; link_figures shows the speed. false: the link is not up, or a probe is on its way. */
bool link_probe(struct links *links, uint32_t worker, uint32_t bytes);

struct link_figures {
    uint64_t sent_frames, sent_bytes;         /* handed to the connection, once for each time */
    uint64_t received_frames, received_bytes; /* whole, once each */
    uint64_t doubled_frames;                  /* that came once more, and were dropped */
    uint64_t refused_sends;                   /* that had no room */
    int64_t retained_bytes;                   /* of frames that the other side does not have yet */
    int64_t held_bytes;                       /* of frames that came and were not released */
    int64_t round_trip_us;                    /* of the last ping; -1: none came back */
    int64_t probe_bytes_per_s;                /* of the last probe; -1: none has ended */
    bool is_up;
    bool
        is_unreached; /* it has gone, for the other side did not answer: no link came about, or it was silent for too long */
};

/* false: there is no link to that worker. */
bool link_figures(struct links *links, uint32_t worker, struct link_figures *figures);

struct links_figures {
    uint64_t damaged, other_version, older_incarnation, newer_incarnation, other_worker, unknown_worker,
        strangers, out_of_order, over_credit; /* messages that were refused */
    uint64_t rejected; /* callers beyond those that may wait for their proof, or for want of descriptors */
    uint64_t wakes;    /* of the thread */
    int64_t retained_bytes; /* over all links */
    uint32_t connections;
};

struct links_figures links_figures(struct links *links);

#endif
