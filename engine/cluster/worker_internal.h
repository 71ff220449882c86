/* What the files of the worker share. Private to worker*.c. */
#ifndef LEAT_CLUSTER_WORKER_INTERNAL_H
#define LEAT_CLUSTER_WORKER_INTERNAL_H

#include "cluster/link.h"
#include "cluster/worker.h"
#include "core/buffer.h"

#include <pthread.h>
#include <stdatomic.h>

/* A message that came before the round's work was there. */
struct worker_message {
    struct worker_message *next;
    uint32_t from;
    struct byte_buffer bytes;
};

/* Frames to one worker that the links have not taken: those before its link was up for the first time. */
struct worker_unsent {
    pthread_mutex_t mutex;
    struct link_frame *first, **last;
};

/* Messages of the round: worker_links.c. */
struct worker_links {
    struct links *links;
    struct worker_unsent unsent[RENDEZVOUS_WORKERS_MAX]; /* by receiver */
    pthread_mutex_t mutex;                               /* held while a call is made; guards all below */
    struct worker_calls calls;
    void *user;
    bool is_attached, keeps;              /* keeps: what comes waits for worker_attach; else it is dropped */
    struct worker_message *first, **last; /* that wait */
    struct byte_buffer parts[RENDEZVOUS_WORKERS_MAX]; /* of messages longer than a frame, by sender */
    _Atomic uint64_t gone; /* workers of the round whose links have broken: a bit each */
};

enum publishing { PUBLISHING_NOTHING, PUBLISHING_ASKED, PUBLISHED_NOT, PUBLISHED };

struct worker {
    struct worker_options o;
    char address[LINK_ADDRESS_MAX + 1], host[256];
    struct coordination *coordination;
    struct rendezvous *rendezvous;
    struct worker_links links;

    /* The keeper's own. */
    struct arena arena;
    struct diag_list diags;
    struct cluster_member member;
    uint64_t incarnation; /* of the round that goes on; 0: none does */
    bool has_joined, has_hinted;
    int64_t turn_us;    /* when the next turn is due at the latest; monotonic */
    uint32_t fruitless; /* rounds in a row that ended without a head of their own */
    int64_t stop;       /* the newest request to stop that was there before this worker; -1: not known yet */
    atomic_bool job_must_stop;

    pthread_t keeper;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    enum worker_state state;
    struct rendezvous_round round; /* the newest one; changes only in WORKER_GATHERS */
    struct arena round_arena;
    char waits_for[400];
    bool must_stop, say_ended, is_finished, say_over;
    bool is_publishing; /* the keeper is at it */
    bool has_head;      /* with say_over: the round had a head of its own */
    enum publishing publishing;
    struct cluster_head head; /* with publishing; its texts lie in name and digest */
    char name[64], digest[64];
};

/* worker_links.c. Control thread: listens, and ends. */
LEAT_CHECKED bool worker_links_begin(struct worker *worker, struct diag_list *diags);
void worker_links_end(struct worker *worker);
/* The keeper: goes on with the workers of the round. */
void worker_links_meet(struct worker *worker, const struct rendezvous_round *round, struct arena *arena);
/* The keeper: tells the round's work, if there is any, that the round is over. */
void worker_links_say_over(struct worker *worker);

#endif
