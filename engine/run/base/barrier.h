/* The barrier: how the coordinator, the sequencer and the stages agree on where a checkpoint is cut.
 *
 *   coordinator: begins a checkpoint, asks for a barrier (BARRIER_REQUESTED), and waits
 *   sequencer:   attaches the barrier to the next micro-batch that it chooses, and when that is formed, saves
 *                the position of each partition behind it
 *   stages:      each instance, when it has run that micro-batch, snapshots its nodes and calls barrier_pass
 *   coordinator: after the last instance's call (BARRIER_WRITING), writes and publishes the checkpoint
 *                (checkpoints/coordinator.c)
 *
 * Of several workers, the leader's coordinator begins the checkpoint at all of them, and its sequencer attaches the
 * barrier; at the others it comes with the micro-batch that the leader has formed (checkpoints/many.c).
 *
 * One checkpoint is taken at a time. The last micro-batch of a life has a barrier too: it is not formed while
 * another checkpoint is on its way, nor before its own checkpoint has begun. A thread that holds the
 * sequencer's mutex may take the barrier's mutex, never the other way round. */
#ifndef LEAT_RUN_BASE_BARRIER_H
#define LEAT_RUN_BASE_BARRIER_H

#include "run/base/base.h"

struct checkpoint_writer;

enum barrier_state {
    BARRIER_IDLE,
    BARRIER_OPENING, /* the coordinator makes the checkpoint's directory; of several workers, each makes its own */
    BARRIER_REQUESTED, /* the checkpoint has begun: the next micro-batch chosen gets the barrier */
    BARRIER_RUNNING,   /* stages are passing the barrier, or will when the micro-batch is formed */
    BARRIER_WRITING, /* all stages of this worker have passed it; the coordinator writes, and awaits other workers */
};

struct barrier {
    pthread_mutex_t mutex;    /* guards all members whose comment names no other owner */
    pthread_cond_t condition; /* for the coordinator, and for the thread that joins it */
    enum barrier_state state;
    /* From BARRIER_OPENING on. */
    struct checkpoint_writer *writer;
    uint64_t epoch;
    struct byte_buffer positions; /* the sequencer's while it forms the micro-batch, then the coordinator's */
    unsigned remaining;           /* stage instances that have not taken their snapshot yet */
    bool has_failed;              /* a snapshot could not be written */
    bool is_last;                 /* it is the barrier of the last micro-batch */
    /* Requests to the coordinator. */
    bool is_wanted;             /* barrier_ask: take the next checkpoint before its time */
    bool is_wanted_next;        /* barrier_take_ask: take another one behind the one that is written */
    bool last_is_wanted;        /* the last micro-batch waits for a checkpoint to begin */
    bool last_is_refused;       /* the last checkpoint could not be written: end the run without it */
    bool has_lately_failed;     /* no checkpoint was published since the last failure */
    bool must_end;              /* the coordinator's thread must end */
    int64_t work_us;            /* CPU time that the last checkpoint took, of lanes and of its writing */
    int64_t barrier_us;         /* when the barrier was attached, on the monotonic clock */
    int64_t asked_us;           /* when a follower last got its wish for a checkpoint; 0: none did */
    int64_t stop_us;            /* longest time that a lane stood still for the checkpoint */
    int64_t stop_max_us;        /* longest stop_us of all checkpoints of this life */
    _Atomic uint64_t published; /* epoch of the newest published checkpoint */
    /* Epoch of the newest checkpoint that is committed: sinks give away what it covers. With `commit: local` the newest
     * published one, with `commit: store` the newest one that the store has; 0: none of this run is known to be. */
    _Atomic uint64_t committed;
    _Atomic uint64_t uncommitted; /* how many checkpoints are published and wait to be committed */
};

struct barrier *barrier_new(void);
void barrier_free(struct barrier *barrier); /* NULL is allowed */

/* --- For the sequencer, under its mutex; only where run->barrier is not NULL --- */

/* Whether the next micro-batch formed gets a barrier. */
bool barrier_is_waiting(struct run *run);
/* Whether the coordinator still has to begin a checkpoint, and could begin the last one. */
bool barrier_is_to_come(struct run *run);
/* Whether stages are passing a barrier, or the coordinator is writing a checkpoint. */
bool barrier_is_busy(struct run *run);
/* Returns whether the last micro-batch may be formed now: a barrier has been requested for it, or the disk
 * refuses the last checkpoint, and the run ends without a barrier. Else asks the coordinator for a
 * checkpoint, once it has written the one that it writes. */
bool barrier_takes_last(struct run *run);
/* Call while a micro-batch is chosen. Attaches the requested barrier to it, if there is one, and returns
 * the epoch of that checkpoint; the caller then fills barrier->positions. 0: no barrier. is_last: this is
 * the last micro-batch of this life. */
uint64_t barrier_attach(struct run *run, bool is_last);
/* A worker that does not lead: the micro-batch that the leader has formed has the barrier of this epoch. False: this worker has begun
 * no checkpoint of that epoch. */
LEAT_CHECKED bool barrier_follow(struct run *run, uint64_t epoch, bool is_last);
/* Asks for a checkpoint soon: the epoch's order log is long, or a full sink waits for one. Of several workers, any may ask. */
void barrier_ask(struct run *run);
/* The leader: another worker has asked. That worker is through with a checkpoint before the leader is, may have rows behind its
 * barrier by then, and does not ask again before it has begun the next one: so an ask is kept while a checkpoint is written. One that
 * comes before the barrier is met by the checkpoint in work. */
void barrier_take_ask(struct run *run);
/* As barrier_ask, for a follower, which asks again and again until it has one: no sooner after the last one that a follower got
 * than BARRIER_SHARE times what a checkpoint takes, so that followers that begin anew do not stop the job. Who comes first
 * gets one at once, however long the job's own ones take. */
enum { BARRIER_SHARE = 50 };
void barrier_ask_seldom(struct run *run);

/* --- For the coordinator, with the barrier's mutex held --- */

/* The checkpoint that was written is through. What others have asked for meanwhile is due now; after a failure the next checkpoint
 * comes by itself. */
void barrier_end(struct barrier *b, bool is_published);

/* --- For lanes --- */

/* Says that a stage instance has taken its snapshot for the current barrier. stopped_us: how long its lane
 * stood still for the snapshot, microseconds. is_good: false if the snapshot could not be written. */
void barrier_pass(struct run *run, int64_t stopped_us, bool is_good);
/* Epoch of the newest published checkpoint; 0: none. Any thread. */
uint64_t barrier_published(const struct run *run);
/* barrier.committed and barrier.uncommitted; 0 without checkpoints. Any thread. */
uint64_t barrier_committed(const struct run *run);
uint64_t barrier_uncommitted(const struct run *run);

#endif
