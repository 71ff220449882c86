/* What the files of the worker share. Private to worker*.c. */
#ifndef LEAT_CLUSTER_WORKER_INTERNAL_H
#define LEAT_CLUSTER_WORKER_INTERNAL_H

#include "cluster/link.h"
#include "cluster/worker.h"
#include "core/buffer.h"

#include <pthread.h>
#include <stdatomic.h>

/* Messages to one worker that the links have not taken. */
struct worker_unsent {
    pthread_mutex_t mutex;
    struct link_frame *first,
        **last;   /* frames for which the link has no room: those of one message, and of what had gathered */
    size_t bytes; /* of them */
    struct link_frame *open; /* takes messages until worker_flush; NULL: not made yet */
    uint32_t room;           /* bytes of `open` that are left */
};

/* Messages of the round: worker_links.c. */
struct worker_links {
    struct links *links;
    int64_t half;    /* of the memory of links: for frames that go, or for frames that come */
    uint32_t window; /* of each link of the round; the keeper's, between rounds */
    struct worker_unsent unsent[RENDEZVOUS_WORKERS_MAX]; /* by receiver */
    _Atomic uint64_t open;                               /* receivers for whom messages wait: a bit each */
    pthread_mutex_t mutex;                               /* held while a call is made; guards all below */
    struct worker_calls calls;
    void *user;
    bool is_attached, keeps;          /* keeps: what comes waits for worker_attach; else it is dropped */
    struct link_frame *first, **last; /* that wait, and are not released */
    struct byte_buffer parts[RENDEZVOUS_WORKERS_MAX]; /* of messages longer than a frame, by sender */
    _Atomic uint64_t gone;      /* workers of the round whose links have broken: a bit each */
    _Atomic uint64_t unreached; /* of them: those that did not answer */
};

/* worker_rates.c; the keeper's own. */
struct worker_rates {
    struct cluster_rate rates[RENDEZVOUS_WORKERS_MAX]; /* that are known */
    uint32_t count;
    bool is_news;     /* some were not told yet */
    int64_t began_us; /* when the round began, or they were told last; monotonic */
    uint32_t
        probes[RENDEZVOUS_WORKERS_MAX]; /* that came back in this round, by worker; of those not known yet */
    int64_t best[RENDEZVOUS_WORKERS_MAX]; /* of them, in bytes a second */
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
    uint64_t ended;       /* the one in which this worker's part came to its end, as it has told the others */
    bool has_joined, has_hinted;
    struct worker_rates rates;
    int64_t prepared_us;     /* when it has told which head it has prepared, last; monotonic */
    int64_t turn_us;         /* when the next turn is due at the latest; monotonic */
    bool answer_is_in_doubt; /* the write of told_answer */
    char told_answer[COORDINATION_TEXT_BYTES_MAX + 1];
    uint64_t told_fits; /* as it has told, or with say_fits will */
    bool say_fits;
    uint32_t fruitless; /* rounds in a row that ended without a head of their own */
    atomic_bool job_must_stop, must_leave, changes, may_leave;
    _Atomic int64_t
        seen_us; /* when a turn began, by the monotonic clock, that showed that the round goes on */

    pthread_t keeper;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    enum worker_state state;
    struct rendezvous_round round; /* the newest one; changes only in WORKER_GATHERS */
    struct arena round_arena;
    char waits_for[400];
    bool must_stop, say_ended, is_finished, say_over, say_leaves, say_stop, say_answer;
    int64_t request_revision; /* 0: there is none */
    char request[COORDINATION_TEXT_BYTES_MAX + 1], answer[COORDINATION_TEXT_BYTES_MAX + 1];
    char *places;                  /* of worker_place, for the keeper; NULL: none */
    struct rendezvous_round other; /* worker_other_round */
    struct arena other_arena;
    bool has_other;
    int64_t other_us;   /* when the turn began that has shown it */
    uint64_t fits;      /* worker_say_fits */
    bool is_publishing; /* the keeper is at it */
    bool has_head;      /* with say_over: the round had a head of its own */
    bool says_prepared;
    struct cluster_prepared prepared; /* with says_prepared */
    struct worker_head newest;        /* its texts are set when it is copied */
    enum publishing publishing;
    struct cluster_head head; /* with publishing; its texts lie in name and digest */
    char name[64], digest[64];
};

/* worker_standby.c. The keeper:
 *   - worker_standby_look: takes over the newest head that a turn has shown.
 *   - worker_standby_is_due: whether there is a prepared head to tell now.
 *   - worker_standby_tell: tells it. */
void worker_standby_look(struct worker *worker);
bool worker_standby_is_due(struct worker *worker);
LEAT_CHECKED enum etcd_outcome worker_standby_tell(struct worker *worker);
/* worker_rates.c. The keeper:
 *   - worker_rates_begin: with the workers of a round that begins.
 *   - worker_rates_look: at each turn: takes what was measured, and measures what is not known.
 *   - worker_rates_is_due: whether there are rates to tell now.
 *   - worker_rates_tell: tells them. */
void worker_rates_begin(struct worker *worker, const struct rendezvous_round *round);
void worker_rates_look(struct worker *worker);
bool worker_rates_is_due(const struct worker *worker);
LEAT_CHECKED enum etcd_outcome worker_rates_tell(struct worker *worker);
/* worker_waits.c. The keeper: behind a turn that began then. */
void worker_note_other(struct worker *worker, int64_t began_us);

/* worker_links.c. Control thread: listens, and ends. */
LEAT_CHECKED bool worker_links_begin(struct worker *worker, struct diag_list *diags);
void worker_links_end(struct worker *worker);
/* The keeper: goes on with the workers of the round. */
void worker_links_meet(struct worker *worker, const struct rendezvous_round *round, struct arena *arena);
/* The keeper: tells the round's work, if there is any, that the round is over. */
void worker_links_say_over(struct worker *worker);

/* worker_requests.c. The keeper. _end: the round's work has ended: what it has said counts no more. At each turn: takes over what is
 * asked; hands places that were given to the rendezvous, before the turn; writes the answer that was given. */
void worker_requests_end(struct worker *worker);
void worker_requests_look(struct worker *worker);
void worker_requests_place(struct worker *worker);
LEAT_CHECKED enum etcd_outcome worker_requests_answer(struct worker *worker);

#endif
