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
    struct str
        flags; /* of this start: must be alike at all workers that are there; at most COORDINATION_TEXT_BYTES_MAX bytes */
    uint32_t least, most; /* number of workers of a round */
    int64_t wait_us;      /* at the beginning, for more than `least` */
    int64_t return_us;    /* later, for those that have gone */
    bool grows;           /* as in rendezvous_options */
    int64_t rest_us;
    bool is_standby;       /* likewise */
    const char *listen;    /* "HOST:PORT" of an own interface; port 0: any free one */
    const char *advertise; /* under which the others reach it; NULL: `listen` */
    uint32_t lanes;
    int64_t
        links_bytes; /* of memory, for frames between this worker and all others; at least some 64 KiB for each link are used */
    char *(*describe)(void *user,
                      uint64_t incarnation); /* rendezvous_options.describe; the keeper calls it */
    char *(*place)(void *user, const struct rendezvous_round *last,
                   const struct rendezvous_round *next); /* rendezvous_options.place, likewise */
    void *user;
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

/* Where it stands; waits for another state than `seen`, at most wait_us. Any thread. */
enum worker_state worker_await(struct worker *worker, enum worker_state seen, int64_t wait_us);
/* The round that goes on or is over; unchanged until worker_say_over. */
const struct rendezvous_round *worker_round(const struct worker *worker);
/* Copies for what it waits, in words. */
void worker_waits_for(struct worker *worker, char *text, size_t bytes);
/* The newest head that the last look at etcd has shown. Any thread. */
struct worker_head {
    struct cluster_head head; /* its texts are those below; revision 0: there is none */
    char manifest[64], digest[64];
};
void worker_newest_head(struct worker *worker, struct worker_head *head);
/* Of a standby: says which head it has prepared; others are told once in a second at most. Any thread. */
void worker_say_prepared(struct worker *worker, const struct cluster_prepared *prepared);
/* The round that goes on without this worker, which waits for a place. */
struct worker_other {
    uint64_t incarnation;
    uint32_t leader;                  /* its number */
    struct str address, host, inputs; /* of the leader; rendezvous_round.inputs */
    int64_t seen_us; /* when the look began that has shown that the round goes on; monotonic */
};
/* Its texts lie in the arena. False: there is none. */
LEAT_CHECKED bool worker_other_round(struct worker *worker, struct arena *arena, struct worker_other *other);
/* Says that this worker has what that round's leader has described: until then no round comes to a planned end for it. */
void worker_say_fits(struct worker *worker, uint64_t incarnation);
/* Asks for the job's stop, as `leat cluster stop` does: worker_must_stop follows, at all workers, also at those that wait for a place. */
void worker_ask_stop(struct worker *worker);
/* Copies what somebody has asked the leader for: at most COORDINATION_TEXT_BYTES_MAX bytes. Returns its revision; 0: nothing. */
int64_t worker_request(struct worker *worker, char text[COORDINATION_TEXT_BYTES_MAX + 1]);
/* Of the leader: says how far that is: at most COORDINATION_TEXT_BYTES_MAX bytes of UTF-8. Of several texts the last one counts. */
void worker_answer(struct worker *worker, const char *text);
/* Of the leader: the round is to come to a planned end, for one with such places (rendezvous_place): worker_changes follows. */
void worker_place(struct worker *worker, const char *places);
/* Whether somebody has asked for the job's stop since this worker was there. Any thread. */
bool worker_must_stop(const struct worker *worker);
/* Whether this worker may take it that no later incarnation has begun than that of the round, which goes on: its lease lives for certain,
 * and etcd has shown so a moment ago. It asks nobody; after the next look it may be true again. Any thread. */
bool worker_is_certain(struct worker *worker);
/* Says that this worker is to leave, at a planned end of the round that goes on: worker_may_leave follows. */
void worker_leave(struct worker *worker);
/* Whether somebody has asked that this worker leaves. Any thread. */
bool worker_must_leave(const struct worker *worker);
/* Whether the round that goes on is to come to a planned end, for other workers: its leader stops the work behind a checkpoint, all say
 * that it has ended, and the next round begins with that head. Any thread. */
bool worker_changes(const struct worker *worker);
/* Whether it has come to that end at all workers, and this one has said that it leaves. Any thread. */
bool worker_may_leave(const struct worker *worker);
/* After WORKER_REFUSED. */
const struct diag_list *worker_diags(const struct worker *worker);

/* Of the round's work. */
struct worker_calls {
    /* A message of another worker; those of one come in order, each once. A thread of the links; must not wait. */
    void (*receive)(void *user, uint32_t from, struct str message);
    /* worker_send to that worker has been refused, and may not be now. A thread of the links, or worker_attach; must not wait. */
    void (*has_room)(void *user, uint32_t to);
    /* The round is over: the work must end. The keeper, or worker_attach; must not wait. */
    void (*is_over)(void *user);
};
/* From now on calls are made, at first for messages that have come already. */
void worker_attach(struct worker *worker, const struct worker_calls *calls, void *user);
/* When it returns, no call is made any more; messages that come are dropped. */
void worker_detach(struct worker *worker);

/* Sends a message to another worker of the round, at the latest with worker_flush; the bytes are copied. False: the link has no room;
 * worker_calls.has_room follows, once for all that were refused, and where that is before worker_attach, then. Nothing happens where that
 * worker has gone. Never waits. Any thread. */
LEAT_CHECKED bool worker_send(struct worker *worker, uint32_t to, struct str message);
/* Sends all messages that wait. Any thread. */
void worker_flush(struct worker *worker);

/* What the links of the round have carried, in sum over all other workers; asks for a round trip of each. Control thread. */
struct worker_traffic {
    uint64_t sent_bytes, sent_frames, received_bytes;
    uint64_t waiting_bytes; /* of frames that lie here now: sent and not come there, or come and not taken */
    int64_t round_trip_us;  /* the longest; -1: not known */
};
void worker_look_at_traffic(struct worker *worker, struct worker_traffic *traffic);

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
