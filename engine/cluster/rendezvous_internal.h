/* What the files of the rendezvous share. Private to rendezvous*.c. */
#ifndef LEAT_CLUSTER_RENDEZVOUS_INTERNAL_H
#define LEAT_CLUSTER_RENDEZVOUS_INTERNAL_H

#include "cluster/admission.h"
#include "cluster/rendezvous.h"

enum { RENDEZVOUS_WAITS_BYTES = 400, RENDEZVOUS_SLOW_BYTES = 400 };

/* A worker that did not answer, until it says that it has left that incarnation, or its lease has expired. One for each lease. */
struct doubt {
    int64_t lease; /* 0: none */
    uint64_t incarnation;
};

struct rendezvous {
    struct rendezvous_options o;
    struct arena arena; /* of the round */
    struct rendezvous_round round;
    bool has_round;
    struct arena other_arena;
    struct rendezvous_round other; /* rendezvous_other */
    bool has_other;
    uint64_t unreached;         /* workers of the round that did not answer this one: a bit each */
    int64_t unreached_until_us; /* for how long it says so; monotonic */
    bool has_told_unreached;
    uint64_t over; /* rounds up to this incarnation are over for this worker, who has said so */
    uint64_t
        ended; /* the incarnation in which this worker's part has come to its end, as it has said; 0: in none */
    bool leaves;                      /* as this worker has said */
    struct cluster_prepared prepared; /* likewise */
    struct cluster_head head;         /* the newest one, whose texts lie in the arena below */
    struct arena head_arena;
    uint64_t fits; /* as this worker has said */
    uint64_t
        missed; /* incarnation of the newest round, in which this worker takes no part; 0: there is none */
    uint64_t
        seen; /* incarnation of the newest round that had not ended when this worker saw it; 0: there is none */
    uint64_t lived;     /* incarnation of the newest round that this worker saw go on; 0: there is none */
    bool have_ended;    /* all workers of that round, or the job is finished */
    bool is_finished;   /* as this worker has said */
    bool must_leave;    /* somebody has asked for that */
    bool changes;       /* the round that goes on comes to a planned end */
    bool may_leave;     /* and has come to it, at all of its workers */
    int64_t stop;       /* mod revision of the newest request to stop */
    int64_t first_stop; /* of the one that was there before this worker; -1: not known yet */
    struct doubt doubts[RENDEZVOUS_WORKERS_MAX];
    int64_t apart
        [RENDEZVOUS_WORKERS_MAX]; /* of the leader: leases of those that it left out, for others do not reach them; 0: none */
    struct arena request_arena;
    struct cluster_text request; /* in request_arena */
    char *places;                /* of rendezvous_place, until a round with `changes` has it; NULL: none */
    char *pending; /* a placement that this worker, the leader, has written or will; NULL: none */
    uint32_t candidates;
    int64_t since_us; /* since when there are so many; monotonic */
    char waits_for[RENDEZVOUS_WAITS_BYTES];
    struct admission admission;
    char slow[RENDEZVOUS_SLOW_BYTES]; /* of the leader: the slow pairs that it has named last (rates.h) */
};

/* What has become of the job in a round. */
enum ended { ENDED_NOT, ENDED_STOPPED, ENDED_FINISHED };

/* rendezvous_round.c: a round as text. rendezvous_round_write: the caller frees it. rendezvous_round_read: all but the secret, the head
 * and the run. False: it is no round. */
char *rendezvous_round_write(const struct rendezvous_round *round, enum ended ended);
LEAT_CHECKED bool rendezvous_round_read(struct str text, struct arena *arena, struct rendezvous_round *round,
                                        enum ended *ended);

bool rendezvous_has_worker(const struct rendezvous_round *round, int64_t lease);
/* Whether the worker is doubted since that incarnation, or a later one. */
bool rendezvous_is_doubted(const struct rendezvous *r, const struct cluster_member *member, uint64_t since);
/* Whether the worker is doubted at all: of admission.h, whose user is the struct rendezvous. */
bool rendezvous_has_gone(const void *rendezvous, const struct cluster_member *member);

/* --- rendezvous_next.c: of the leader --- */

/* Fills in the workers of the round after `last`, with their numbers; count: as many as can take part, the leader among them, but for
 * one that leaves. is_planned: the round begins at a planned end of `last`: unless somebody has asked for more, nobody is taken in whom
 * others did not reach; nor, unless there are fewer than before else, who has not said that it fits. standbys_to: so many workers there may
 * be with standbys. */
void rendezvous_choose(const struct rendezvous *r, const struct cluster_view *view,
                       const struct rendezvous_round *last, bool is_planned, uint32_t standbys_to,
                       struct rendezvous_round *next);
/* The round `next` begins, without those of `before` that are not in it: they are apart, until they are in a round again. */
void rendezvous_note_apart(struct rendezvous *r, const struct rendezvous_round *before,
                           const struct rendezvous_round *next);
/* Takes those out of the next round that cannot be in it with the others, as workers have told of the last round. Returns who it was, a bit
 * each by place in *before, which is the round with them. */
uint64_t rendezvous_leave_out(const struct rendezvous *r, const struct cluster_view *view,
                              const struct rendezvous_round *last, struct rendezvous_round *next,
                              struct rendezvous_round *before);
/* The most workers that a round may have now. */
uint32_t rendezvous_most(const struct rendezvous *r, const struct cluster_view *view);
/* Of a round that follows none that anybody has seen: whether standbys are needed, for others have not come, and it takes as many as are
 * needed into *next. */
bool rendezvous_fill(struct rendezvous *r, const struct cluster_view *view,
                     const struct rendezvous_round *last, struct rendezvous_round *next);
/* Since when there have been so many candidates; monotonic. */
int64_t rendezvous_since(struct rendezvous *r, uint32_t candidates);
/* Whether the round `last`, which goes on, is to come to a planned end, for other workers. */
bool rendezvous_change_is_due(struct rendezvous *r, const struct cluster_view *view,
                              const struct rendezvous_round *last);

/* --- rendezvous_say.c: what this worker waits for, in words --- */

/* Of the leader: who would take part. */
void rendezvous_say_who(struct rendezvous *r, const struct rendezvous_round *next);
/* Of a worker that does not lead. has_ended: the round `last`, at all of its workers. */
void rendezvous_say_what_for(struct rendezvous *r, const struct cluster_view *view,
                             const struct rendezvous_round *last, bool has_ended);

#endif
