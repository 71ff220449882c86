/* A worker: one process's part in a cluster. It joins the others in etcd, and takes part in rounds (rendezvous.h), one after the other;
 * in a round the workers send each other messages, and the leader publishes heads.
 *
 *     struct worker *worker = worker_new(&options, diags);
 *     while ((state = worker_await(worker, wait_us)) ...)
 *         WORKER_RUNS: worker_round; worker_attach; work; worker_detach; then worker_say_ended or worker_say_over
 *     worker_free(worker);
 *
 * A thread of its own, the keeper, does all that asks etcd. Functions are for the control thread, unless they say otherwise. */
#ifndef LEAT_CLUSTER_WORKER_H
#define LEAT_CLUSTER_WORKER_H

#include "cluster/rendezvous.h"

struct worker;

struct worker_options {
    struct coordination_options coordination;
    struct cluster_job job; /* `by` is filled in */
    uint32_t least, most;   /* number of workers of a round */
    int64_t wait_us;        /* at the beginning, for more than `least` */
    int64_t return_us;      /* later, for those that have gone */
    const char *listen;     /* "HOST:PORT" of an own interface; port 0: any free one */
    const char *advertise;  /* under which the others reach it; NULL: `listen` */
    uint32_t lanes;
    bool has_history; /* there are heads of this cluster: its record must be there (coordination_join) */
};

/* Listens; asks etcd nothing yet. The texts of the options live as long as the worker. NULL after a diagnostic. */
struct worker *worker_new(const struct worker_options *options, struct diag_list *diags);
/* Leaves the cluster, if etcd answers within some seconds, and ends both threads. NULL is allowed. */
void worker_free(struct worker *worker);

enum worker_state {
    WORKER_GATHERS,   /* there is no round for it: worker_waits_for says what for */
    WORKER_RUNS,      /* a round goes on */
    WORKER_IS_OVER,   /* the round has ended before the job did: worker_say_over comes next */
    WORKER_HAS_ENDED, /* the job has ended, at all workers; also long ago, if it is finished */
    WORKER_REFUSED,   /* it cannot take part: worker_diags says why */
};

/* Where it stands; waits for another state than `seen`, at most wait_us. */
enum worker_state worker_await(struct worker *worker, enum worker_state seen, int64_t wait_us);
/* The round that goes on or is over; unchanged until worker_say_over. */
const struct rendezvous_round *worker_round(const struct worker *worker);
/* Copies for what it waits, in words. */
void worker_waits_for(struct worker *worker, char *text, size_t bytes);
/* Whether somebody has asked for the job's stop since this worker was there. Any thread. */
bool worker_must_stop(const struct worker *worker);
/* After WORKER_REFUSED. */
const struct diag_list *worker_diags(const struct worker *worker);

/* Of the round's work. */
struct worker_calls {
    /* A message of another worker; those of one come in order, each once. A thread of the links; must not wait. */
    void (*receive)(void *user, uint32_t from, struct str message);
    /* The round is over: the work must end. The keeper, or worker_attach; must not wait. */
    void (*is_over)(void *user);
};
/* From now on calls are made, at first for messages that have come already. */
void worker_attach(struct worker *worker, const struct worker_calls *calls, void *user);
/* When it returns, no call is made any more; messages that come are dropped. */
void worker_detach(struct worker *worker);

/* Sends a message to another worker of the round; the bytes are copied. Nothing happens where that worker has gone. Never waits. Any
 * thread. */
void worker_send(struct worker *worker, uint32_t to, struct str message);

/* Of the leader: makes the checkpoint the job's head. manifest, digest: cluster_head's, at most 63 bytes each; copied. Waits until it is
 * known whether it is, the round is over, or gives_up(user). False: not, or not known. One thread at a time. */
LEAT_CHECKED bool worker_publish(struct worker *worker, uint64_t epoch, struct str manifest,
                                 struct str digest, bool (*gives_up)(void *user), void *user);

/* The job has come to its end here; WORKER_HAS_ENDED follows when it has everywhere, or WORKER_IS_OVER. is_finished: it has no more to
 * do; else it was stopped, and may go on later. */
void worker_say_ended(struct worker *worker, bool is_finished);
/* The round's work has ended here, before the job's end, whether the round is over or not, and worker_detach was called. incarnation:
 * of the round; nothing happens where that is not the newest one. has_head: a checkpoint of the round became the head; rounds without one,
 * in a row, begin later and later. */
void worker_say_over(struct worker *worker, uint64_t incarnation, bool has_head);

#endif
