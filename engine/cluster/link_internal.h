/* Inside cluster/: what the files of links share (link.h). The thread of the links is called the runner.
 *
 * Members marked [m] are guarded by links->mutex; the others belong to the runner, or never change. No callback is called, and
 * nothing is read from or written to the network, with the mutex locked. */
#ifndef LEAT_CLUSTER_LINK_INTERNAL_H
#define LEAT_CLUSTER_LINK_INTERNAL_H

#include "cluster/credits.h"
#include "cluster/link.h"
#include "cluster/message.h"

#include <netinet/in.h>
#include <pthread.h>

enum {
    PIECES_MAX = 16,          /* of frames in the outbox of a connection */
    OUTBOX_BYTES = 256 << 10, /* of pieces in an outbox: with this many, no more are added */
    CONTROLS_MAX = 256,       /* other messages in it; one more, and the connection is broken */
    GREETING_ROOM = 256,      /* bytes of an inbox until the other side has proven itself */
    SLACK_BYTES = 16 << 10,   /* that are read behind the message that is being read */
    STRANGERS_MAX = 64,       /* connections that have not proven themselves */
    HANDSHAKE_US = 5000000,
    REFUSED_US = 1000000, /* for the other side to read why it was refused */
    PATIENCE_US = 10000000,
    LATE_US = 100000,     /* the failpoint link.late */
    DIAL_REST_US = 50000, /* between two attempts; doubles, up to DIAL_REST_MAX_US */
    DIAL_REST_MAX_US = 1000000,
    ACCEPT_REST_US = 100000, /* after the system refused a descriptor for a connection */
};

/* A message in a connection's outbox. */
struct sending {
    struct sending *next;
    struct link_frame *frame; /* of a piece; else NULL */
    const uint8_t *body;      /* in the frame, in `own`, or static */
    uint32_t bytes;           /* of the body */
    struct message_head head;
    uint8_t own[sizeof(struct message_hello)];
};

enum connection_state {
    CONNECTION_CALLED,   /* we listen: HELLO is to come */
    CONNECTION_DIALING,  /* we dial */
    CONNECTION_DIALED,   /* we dialed: CHALLENGE is to come */
    CONNECTION_ASKED,    /* we listen: PROOF is to come */
    CONNECTION_ANSWERED, /* we dialed: READY is to come */
    CONNECTION_UP,
    CONNECTION_REFUSED, /* the other side is told, and hangs up */
    CONNECTION_BROKEN,  /* its socket is closed; `broken_by` says why; the runner frees it */
};

struct connection {
    struct connection *next;
    struct links *links;
    struct link *link; /* NULL: not known yet */
    int fd;
    uint32_t watched; /* events that the runner sleeps on */
    enum connection_state state;
    enum message_refusal refusal; /* by the other side */
    char broken_by[256];
    struct proof_case proven;
    uint64_t session;    /* 0: none yet */
    int64_t deadline_us; /* of all states but UP and BROKEN */

    struct sending *outbox, **outbox_end; /* messages to be written, oldest first */
    size_t written;                       /* bytes of the oldest that are written */
    size_t piece_bytes;                   /* of the pieces in it */
    uint32_t pieces, controls;            /* in it */
    bool has_status;                      /* a STATUS is in it: the next one waits until it is written */
    bool is_deaf;                         /* a write failed: nothing more is written */
    bool is_silent;                       /* it is broken, for the other side did not answer */

    uint8_t *inbox; /* begins with the head of a message */
    size_t inbox_room, inbox_bytes;
    size_t missing; /* bytes of the message that is being read */
};

enum link_state { LINK_DIALING, LINK_WAITING, LINK_UP, LINK_GONE };

struct link {
    struct links *links;
    uint32_t worker;
    uint64_t life;                           /* tells this link from earlier ones to the same worker */
    enum link_state state;                   /* [m] */
    bool is_closing;                         /* [m] link_close waits */
    bool is_wanting;                         /* [m] frames were refused: */
    uint64_t wanted_bytes;                   /* [m] the least length of them */
    bool is_called;                          /* [m] link_to was called: begin to dial, or to wait */
    bool must_ping;                          /* [m] */
    struct sockaddr_in address;              /* [m] */
    char address_text[LINK_ADDRESS_MAX + 1]; /* [m] */

    struct link_frame *frames, **frames_end; /* [m] that are not received there, oldest first */
    struct link_frame *to_send;              /* [m] the first of them that is not in the outbox whole */
    uint64_t sequence;                       /* [m] of the newest frame */
    uint64_t sent;                           /* [m] of the newest frame that ever went to the outbox whole */
    struct credits_sender sender;            /* [m] */
    struct credits_receiver receiver;        /* [m] */
    struct link_figures figures;             /* [m] */
    uint32_t probe_size, probe_left;         /* [m] bytes of a probe; of them to be sent */
    int64_t probe_began_us;                  /* [m] 0: no probe is on its way */

    struct connection *connection; /* that is up; NULL: none */
    uint32_t offset;               /* bytes of to_send that went to the outbox */
    uint64_t received;             /* sequence of the newest whole frame */
    struct link_frame *assembled;  /* the frame that is being received */
    uint32_t assembled_bytes;
    bool must_tell;  /* a STATUS is due: frames came */
    int64_t tell_us; /* [m] when it is due at the latest; 0: there is nothing to tell */
    int64_t free_us; /* when the next frame may leave (bytes_per_s) */
    int64_t pinged_us;
    int64_t dial_us, give_up_us, dial_rest_us; /* when to dial next; until when; the rest before the next */
    uint32_t dials;
    char failure[256];            /* of the last dial, or the last refusal */
    enum message_refusal refusal; /* by the other side, since link_to */
};

struct links {
    struct links_options options;    /* without secret, incarnation and texts */
    int wake_fd, listen_fd, poll_fd; /* poll_fd: epoll of the others, and of connections */
    uint16_t port;
    pthread_t runner;

    pthread_mutex_t mutex;
    pthread_cond_t changed;                      /* a link was closed, or the incarnation changed */
    bool is_asleep;                              /* [m] the runner must be woken through wake_fd */
    bool has_news;                               /* [m] something for the runner to look at */
    bool must_stop;                              /* [m] */
    bool must_end_silent;                        /* [m] */
    bool must_restart;                           /* [m] for next_self, next_incarnation and next_secret */
    struct link *by_worker[LINK_WORKER_MAX + 1]; /* [m] */
    uint32_t workers_end;                        /* [m] behind the highest number that ever had a link */
    uint64_t lives;                              /* [m] of links, so far */
    uint32_t next_self;                          /* [m] */
    uint64_t next_incarnation;                   /* [m] */
    int64_t next_window;                         /* [m] */
    char next_secret[LINK_SECRET_MAX];           /* [m] */
    size_t next_secret_length;                   /* [m] */
    struct links_figures figures;                /* [m] */

    uint64_t incarnation;
    char secret[LINK_SECRET_MAX];
    size_t secret_length;
    struct connection *connections;
    struct sending *idle;   /* sendings that can be used again */
    uint32_t strangers;     /* connections that are not up */
    int64_t accept_rest_us; /* until when nobody is accepted; 0: all are */
};

/* --- links.c --- */
/* Whether a frame of so many bytes may be sent now: it is within both budgets; with the mutex locked. */
bool link_passes(const struct link *link, uint64_t bytes);

/* --- runner.c --- */
void *links_run(void *argument);
/* Makes the runner look at all links; with the mutex locked. */
void links_wake(struct links *links);
/* Likewise; unlocks the mutex. */
void links_wake_and_unlock(struct links *links);
/* Counts a refused message. */
void links_count(struct links *links, enum message_refusal refusal);

/* --- connection.c --- */
/* Connections to all who called. */
void connection_take_caller(struct links *links);
/* A connection to the link's worker. */
void connection_dial(struct link *link, const struct sockaddr_in *address);
/* Something happened to its socket: events of epoll. */
void connection_event(struct connection *connection, uint32_t events);
/* Marks it broken and closes its socket; the runner frees it in a later turn, when no event can name it. */
void connection_break(struct connection *connection, const char *format, ...) LEAT_PRINTF(2, 3);
/* Frees one that is broken. */
void connection_free(struct connection *connection);
/* Puts a message without a frame into the outbox. */
void connection_tell(struct connection *connection, enum message_kind kind, uint64_t sequence,
                     const void *body, size_t bytes);
/* Puts a piece of a frame into the outbox; frame NULL: `bytes` bytes of a probe, of which `offset` are left then. */
void connection_piece(struct connection *connection, struct link_frame *frame, uint32_t offset,
                      uint32_t bytes);
/* Whether the outbox has no room for another piece. */
bool connection_is_full(const struct connection *connection);
/* Writes what the socket takes of the outbox; the rest goes when it takes more. */
void connection_write_out(struct connection *connection);
/* Lets go of a frame that a list no longer has. Runner. */
void frame_drop(struct link_frame *frame);

/* --- silence.c --- */
/* A connection is up: from now on it breaks when the other side is silent for silence_us. */
void silence_watch(const struct connection *connection);
/* Whether the other side of one that is up has been silent for two thirds of that time. */
bool silence_is_long(const struct connection *connection);

/* --- handshake.c --- */
void handshake_begin(struct connection *connection);
/* Takes a message of a connection that is not up. */
void handshake_take(struct connection *connection, const struct message_head *head, const void *body);
/* Counts a refusal, and tells the other side. */
void handshake_refuse(struct connection *connection, enum message_refusal refusal);

/* --- receive.c --- */
/* Takes a message of a connection that is up. */
enum message_refusal receive_message(struct connection *connection, const struct message_head *head,
                                     const void *body, size_t bytes);
/* The connection of a link is up; the other side has all frames up to `sequence`. false: it cannot have. */
bool receive_resume(struct connection *connection, struct link *link, uint64_t sequence);
/* Takes the other side's status. false: it is impossible. */
bool receive_status(struct link *link, const struct message_status *status);
/* What is to be told of this side; notes that it is told. */
struct message_status receive_own_status(struct link *link);

#endif
