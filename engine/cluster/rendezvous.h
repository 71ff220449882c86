/* Rendezvous: who the workers of an incarnation are.
 *
 * Workers that have joined (coordination_join) wait for each other. The leader begins an incarnation once `most` of them are there, or
 * `least` and a while has passed; it writes who takes part, and in which order, as the record `placement`: that is a round. A
 * round is over when one of its workers has gone, is doubted by another one that tells so, or the leader has begun the next one, which
 * it does once its own work in the last one has ended. Who
 * comes while a round goes on waits for the next. When the parts of all workers of a round have come to their end, the leader
 * writes so: the job has ended, and all may leave.
 *
 * All workers of a round have the flags of the one that leads: a worker with others takes no part, and is refused.
 *
 * A standby takes the place of a worker that has gone, before others that wait do, and is never one more: a round has standbys only up to
 * the number of workers of the round before; where no round goes on that anybody here has seen, up to `least`, once `wait_us` has passed
 * without enough others. It leads only once it has seen a round go on. At a planned change others that wait come before it.
 *
 * Time from the end of a round to the next one: `return_us`, in which those that have gone may come back; no time at all once
 * there are as many as before.
 *
 * A planned change. Where other workers are to take part - one says that it leaves, somebody has asked for more or fewer, or one has
 * come and `grows` - the leader writes `changes` into the round that goes on. Its workers come to an end behind a last checkpoint, as if
 * the job were stopped, and say so (rendezvous_tell_ended); the leader begins the next round at once, with exactly that head. Who leaves
 * may go when all have said so, also the leader: another one then leads, and begins that round. If a worker dies meanwhile, it is as at
 * any other time. Those of the round before keep their numbers, where there are so many. Who waits compares what all must have alike with
 * what the round's leader has described, and says that it fits; before that no round ends for it, for it may be refused.
 *
 * One thread uses a rendezvous: the one that uses its coordination. */
#ifndef LEAT_CLUSTER_RENDEZVOUS_H
#define LEAT_CLUSTER_RENDEZVOUS_H

#include "cluster/coordination.h"

enum {
    RENDEZVOUS_WORKERS_MAX = 64,
    RENDEZVOUS_INPUTS_BYTES_MAX = 256 << 10,
    RENDEZVOUS_PLACES_BYTES_MAX = 128 << 10
};

struct rendezvous_round;

struct rendezvous_options {
    struct coordination *coordination; /* the caller's; lives longer */
    uint32_t least, most;              /* 1 <= least <= most <= RENDEZVOUS_WORKERS_MAX */
    int64_t wait_us;                   /* before the first round, for more than `least` */
    int64_t return_us;                 /* before a later one, for those that have gone */
    struct str flags; /* cluster_member.flags of this worker; lives as long as the rendezvous */
    int64_t
        apart_us; /* for so long two workers that did not reach each other are not in one round; 0: 20 s */
    /* Of the leader, before it writes a round, unless `most` is 1: what it has that all must have alike; malloc'd UTF-8. NULL: nothing. */
    char *(*describe)(void *user, uint64_t incarnation);
    /* Of the leader, before it writes a round: which of its workers have what belongs to one of them; malloc'd UTF-8. last: the round
     * before, count 0: there is none; last->next_places: as somebody has asked for. NULL: nothing. */
    char *(*place)(void *user, const struct rendezvous_round *last, const struct rendezvous_round *next);
    void *user;
    bool grows; /* a round comes to a planned end for workers that wait, though nobody has asked for that */
    int64_t rest_us; /* with `grows`: for so long no other one has come */
    bool is_standby; /* this worker */
};

struct rendezvous_worker {
    int64_t lease;
    struct str address, host;
};

/* What all workers of an incarnation know alike. */
struct rendezvous_round {
    uint64_t incarnation;
    uint8_t secret[COORDINATION_SECRET_BYTES];
    uint32_t self, count, leader; /* numbers of workers: places in `workers` */
    struct rendezvous_worker workers[RENDEZVOUS_WORKERS_MAX];
    uint32_t lanes;         /* of each worker: as many as the leader's */
    uint32_t least, most;   /* as the leader was told */
    int64_t wanted;         /* the newest request when it began (cluster_wanted.revision) */
    bool changes;           /* it comes to a planned end, for other workers */
    struct str run;         /* cluster_job.run */
    struct str inputs;      /* as the leader's `describe` gave it; length 0: nothing */
    struct str places;      /* as the leader's `place` gave it; likewise */
    struct str next_places; /* with `changes`: what the next round's `place` is to heed; length 0: nothing */
    struct cluster_head head; /* with which it begins; revision 0: there is none */
};

/* Number of the worker of that lease, or of that address; the round's count: there is none. Any thread. */
uint32_t rendezvous_number(const struct rendezvous_round *round, int64_t lease);
uint32_t rendezvous_number_at(const struct rendezvous_round *round, struct str address);
/* Copies the round, with all texts, which lie in the arena. Any thread. */
void rendezvous_copy(const struct rendezvous_round *round, struct arena *arena,
                     struct rendezvous_round *copy);

struct rendezvous;

/* Sends nothing. NULL after E0404: options out of their bounds. */
struct rendezvous *rendezvous_new(const struct rendezvous_options *options, struct diag_list *diags);
/* NULL is allowed. */
void rendezvous_free(struct rendezvous *rendezvous);

/* Looks at the record, and does this worker's part, as the leader or as another one. Call it again and again, after
 * coordination_wait, also while a round goes on; each call takes at most a few requests.
 *
 * ETCD_DONE     *round is the round that this worker is in, the rendezvous' own, unchanged until another one begins; NULL: there is none,
 *               and a round that went on is over: rendezvous_tell_over says so once its work has ended
 * ETCD_UNKNOWN  nothing is known; *round is as before. Who has work in hand goes on
 * ETCD_REFUSED  after a diagnostic: this worker must join again (E0709), nobody may go on (E0714), or the leader has other flags (E0713);
 *               *round is NULL */
LEAT_CHECKED enum etcd_outcome rendezvous_turn(struct rendezvous *rendezvous,
                                               const struct rendezvous_round **round,
                                               struct diag_list *diags);

/* The link to the worker with that number has broken: the round is over at this one's next turn, and if this one leads, the next round
 * is without that worker, until it says that it has left this one. is_unreached: that worker did not answer. rendezvous_tell_over says
 * so, and the next round is without one of the two (rendezvous_reach.c). */
void rendezvous_doubt(struct rendezvous *rendezvous, uint32_t worker, bool is_unreached);

/* Incarnation of the newest round that this worker was in, of whose workers it may doubt; 0: there is none. */
uint64_t rendezvous_newest(const struct rendezvous *rendezvous);
/* Adds to the record of a member that joins again what others must know of its last round: that it has left it, and who did not answer it.
 * unreached: room for RENDEZVOUS_WORKERS_MAX addresses, which the record names. */
void rendezvous_describe(const struct rendezvous *rendezvous, struct cluster_member *member,
                         struct str *unreached);
/* Says that this worker's part in that incarnation has ended, so that the leader begins the next one. `member`: its record
 * (coordination_join). */
LEAT_CHECKED enum etcd_outcome rendezvous_tell_over(struct rendezvous *rendezvous,
                                                    const struct cluster_member *member, uint64_t incarnation,
                                                    struct diag_list *diags);

/* Says that this worker's part of the job has come to its end in that incarnation; it stays in the round, for another worker may
 * die before all have said so: then the next round begins with the last head. is_finished: the job has no more to do, ever; else it was
 * stopped, and may go on. */
LEAT_CHECKED enum etcd_outcome rendezvous_tell_ended(struct rendezvous *rendezvous,
                                                     const struct cluster_member *member,
                                                     uint64_t incarnation, bool is_finished,
                                                     struct diag_list *diags);
/* After a turn: whether the job has ended at all workers: it is finished, or was stopped since this worker has seen its round. */
bool rendezvous_have_ended(const struct rendezvous *rendezvous);

/* Says that this worker leaves, for good: at a planned end of the round that goes on. */
LEAT_CHECKED enum etcd_outcome rendezvous_tell_leaves(struct rendezvous *rendezvous,
                                                      const struct cluster_member *member,
                                                      struct diag_list *diags);

/* Writes this worker's record, with what `member` and earlier calls say. */
LEAT_CHECKED enum etcd_outcome rendezvous_tell(struct rendezvous *rendezvous,
                                               const struct cluster_member *member, struct diag_list *diags);
/* Says which head this worker, a standby, has prepared. */
LEAT_CHECKED enum etcd_outcome rendezvous_tell_prepared(struct rendezvous *rendezvous,
                                                        const struct cluster_member *member,
                                                        const struct cluster_prepared *prepared,
                                                        struct diag_list *diags);
/* After a turn: the newest head, until the next one; revision 0: there is none. */
const struct cluster_head *rendezvous_head(const struct rendezvous *rendezvous);
/* After a turn: the round that goes on without this worker, which waits, without secret, head and run; NULL: there is none. */
const struct rendezvous_round *rendezvous_other(const struct rendezvous *rendezvous);
/* Says that this worker has what that round's leader has described (rendezvous_options.describe). */
LEAT_CHECKED enum etcd_outcome rendezvous_tell_fits(struct rendezvous *rendezvous,
                                                    const struct cluster_member *member, uint64_t incarnation,
                                                    struct diag_list *diags);

/* After a turn: whether somebody has asked for the job's stop (coordination_ask_stop) since the first turn. */
bool rendezvous_must_stop(const struct rendezvous *rendezvous);
/* After a turn: whether somebody has asked that this worker leaves (cluster_wanted.drains). */
bool rendezvous_must_leave(const struct rendezvous *rendezvous);
/* After a turn: whether the round that goes on is to come to a planned end. */
bool rendezvous_changes(const struct rendezvous *rendezvous);
/* After a turn: whether it has, at all of its workers, and this one has said that it leaves. */
bool rendezvous_may_leave(const struct rendezvous *rendezvous);

/* Of the leader: the round that goes on is to come to a planned end, for a round with such places: at most RENDEZVOUS_PLACES_BYTES_MAX
 * bytes of UTF-8. Nothing comes of it where the round is over meanwhile. */
void rendezvous_place(struct rendezvous *rendezvous, struct str places);
/* After a turn: what somebody has asked the leader for; until the next turn. */
const struct cluster_text *rendezvous_request(const struct rendezvous *rendezvous);

/* Reads a placement (cluster_view): all but secret, head and run. *has_ended: at all of them. False: it is no round. The texts
 * lie in the arena. Any thread. */
LEAT_CHECKED bool rendezvous_read(struct str placement, struct arena *arena, struct rendezvous_round *round,
                                  bool *has_ended);

/* After a turn without a round: the incarnation of the newest round, if this worker has not said that it has left it: it is not in that
 * round, or saw it too late; or if what it said of workers that did not answer is old. A worker without work in hand says so (rendezvous_tell_over), for a leader that doubts it waits for
 * that. 0: there is none. */
uint64_t rendezvous_missed(const struct rendezvous *rendezvous);

/* Who is there, for people: "3 of 4 to 8 workers: a, b, c". Never NULL; until the next turn. */
const char *rendezvous_waits_for(const struct rendezvous *rendezvous);

#endif
