/* Rendezvous: who the workers of an incarnation are.
 *
 * Workers that have joined (coordination_join) wait for each other. The leader begins an incarnation once `most` of them are there, or
 * `least` and a while has passed; it writes who takes part, and in which order, as the record `placement`: that is a round. A
 * round is over when one of its workers has gone, is doubted by another one that tells so, or the leader has begun the next one. Who
 * comes while a round goes on waits for the next. When the parts of all workers of a round have come to their end, the leader
 * writes so: the job has ended, and all may leave.
 *
 * Time from the end of a round to the next one: `return_us`, in which those that have gone may come back; no time at all once
 * there are as many as before.
 *
 * One thread uses a rendezvous: the one that uses its coordination. */
#ifndef LEAT_CLUSTER_RENDEZVOUS_H
#define LEAT_CLUSTER_RENDEZVOUS_H

#include "cluster/coordination.h"

enum { RENDEZVOUS_WORKERS_MAX = 64 };

struct rendezvous_options {
    struct coordination *coordination; /* the caller's; lives longer */
    uint32_t least, most;              /* 1 <= least <= most <= RENDEZVOUS_WORKERS_MAX */
    int64_t wait_us;                   /* before the first round, for more than `least` */
    int64_t return_us;                 /* before a later one, for those that have gone */
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
    uint32_t lanes;           /* of each worker: as many as the leader's */
    struct str run;           /* cluster_job.run */
    struct cluster_head head; /* with which it begins; revision 0: there is none */
};

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
 * ETCD_REFUSED  after a diagnostic: this worker must join again (E0709), or nobody may go on (E0714); *round is NULL */
LEAT_CHECKED enum etcd_outcome rendezvous_turn(struct rendezvous *rendezvous,
                                               const struct rendezvous_round **round,
                                               struct diag_list *diags);

/* The worker with that number does not answer: the round is over at this one's next turn, and if this one leads, the next round
 * is without that worker, until it says that it has left this one. */
void rendezvous_doubt(struct rendezvous *rendezvous, uint32_t worker);

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

/* After a turn: the mod revision of the newest request to stop the job (coordination_ask_stop); 0: there is none. */
int64_t rendezvous_stop(const struct rendezvous *rendezvous);

/* Reads a placement (cluster_view): incarnation, workers, leader, lanes. *has_ended: at all of them. False: it is no round. The texts
 * lie in the arena. Any thread. */
LEAT_CHECKED bool rendezvous_read(struct str placement, struct arena *arena, struct rendezvous_round *round,
                                  bool *has_ended);

/* After a turn without a round: the incarnation of the newest round, if this worker has not said that it has left it: it is not in that
 * round, or saw it too late. A worker without work in hand says so (rendezvous_tell_over), for a leader that doubts it waits for
 * that. 0: there is none. */
uint64_t rendezvous_missed(const struct rendezvous *rendezvous);

/* Who is there, for people: "3 of 4 to 8 workers: a, b, c". Never NULL; until the next turn. */
const char *rendezvous_waits_for(const struct rendezvous *rendezvous);

#endif
