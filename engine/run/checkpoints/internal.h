/* Private to run/checkpoints. */
#ifndef LEAT_RUN_CHECKPOINTS_INTERNAL_H
#define LEAT_RUN_CHECKPOINTS_INTERNAL_H

#include "run/base/barrier.h"
#include "run/checkpoint_list.h"
#include "run/checkpoints/checkpoints.h"
#include "run/head.h"
#include "state/checkpoint_store_parts.h"

enum { PARTS_ID_MAX = UINT16_MAX };

struct past_checkpoint {
    uint64_t epoch, bytes; /* bytes: written for it */
    int64_t duration_us, stop_us;
};

/* The checkpoints that this process published, and those that failed, in rings; the counts go on. */
struct past {
    struct past_checkpoint taken[RUN_CHECKPOINTS_MAX];
    struct run_checkpoint_failure failed[RUN_CHECKPOINTS_FAILED_MAX];
    uint64_t taken_count, failed_count;
};

/* many.c: what workers have said of checkpoints; under the barrier's mutex. */
struct many {
    /* Of a worker that does not lead: the newest epoch that the leader has begun; withdrawn before it had a barrier; decided upon;
     * abandoned, so that no head can name it; and made the head; and the newest of which this worker has written its part. */
    uint64_t begun, withdrawn, decided, abandoned, head, written;
    /* Wall clock of the leader when it began the epoch in work: the time of all parts, by which `keep` goes. Of the next one already where
     * the leader has given up the one that is being written. */
    _Atomic int64_t begun_us;
    /* Of the leader: the epoch in work; whether it awaits parts, or before, that all have begun; who has answered; and the worker
     * that has refused, RUN_WORKERS_MAX: none. */
    uint64_t epoch;
    bool awaits_parts, has_answered[RUN_WORKERS_MAX];
    uint32_t answers, refuser;
    uint32_t
        in_doubt; /* manifests since the last head of which it is not known whether they are; the coordinator's alone */
    struct run_head_part parts[RUN_WORKERS_MAX]; /* their directories are malloc'd */
    char own_name
        [CHECKPOINT_PART_NAME_BYTES]; /* in the store, of this worker's last part; the coordinator's alone */
    uint64_t behind;                  /* checkpoints that this worker has written since the newest head; */
    int64_t behind_since_us;          /* monotonic: when the oldest of them was written */
};

struct checkpoints {
    struct run *run;
    struct checkpoint_from from;               /* with --from, the other run's checkpoint; path NULL: none */
    struct checkpoint_dir *from_dir;           /* directory of `from`, or of its copy */
    struct temporary_directory from_temporary; /* where a trace has the copy */
    struct run_id from_run;            /* with run.is_begun_again: id of the run, which stays the same */
    struct byte_buffer parts;          /* the list of parts, which every checkpoint holds */
    struct byte_buffer inputs;         /* the list of inputs; likewise */
    const struct plan_input *measured; /* what `inputs` lists; in the run's arena; NULL: not read yet */
    struct upload *upload;             /* NULL: the job names no store */
    pthread_t thread;
    bool has_thread;
    struct arena arena;
    struct diag_list diags; /* the coordinator's diagnostics */
    int64_t begun_us;       /* when the last checkpoint was begun, on the monotonic clock */
    /* An operator has moved, or may at the next barrier, as a whole, and no base was published since. */
    bool must_be_base;
    /* Under the barrier's mutex. */
    uint64_t next_epoch;
    bool last_is_published;
    char why[RUN_WHY_BYTES]; /* why the last failed checkpoint failed; "": none has failed */
    /* Checkpoints published; errors; bytes written for the last checkpoint. */
    uint64_t count, failures, bytes;
    /* When the last checkpoint was published, on the monotonic clock; the time from its barrier until then; and the longest
     * that a lane stood still for it. */
    int64_t published_us, duration_us, stop_us;
    struct past past;
    struct many *many;     /* NULL: the run is alone */
    struct run_head *head; /* with which this life begins; NULL: none */
    /* Up to the next barrier, of several workers: the key groups of this one; and what the head says of who has what. */
    struct group_set groups;
    uint8_t placement[CHECKPOINT_DIGEST_BYTES];
};

/* past.c; under the barrier's mutex. */
void past_add(struct checkpoints *c, const struct past_checkpoint *taken);
void past_add_failure(struct checkpoints *c, const char *reason);

/* upload.c: copies of checkpoints in an object store; each function takes NULL, where the job names none. */
struct upload;
/* Opens the store that the job names, and sends nothing. false after E0710. Control thread; so are start, end and free. */
LEAT_CHECKED bool upload_open(struct run *run);
/* false: the system refuses a thread. */
LEAT_CHECKED bool upload_start(struct upload *upload);
/* A checkpoint was published. Coordinator thread; never waits. */
void upload_published(struct upload *upload, uint64_t epoch);
/* After the coordinator has ended: waits a while for the last checkpoint to go up. */
void upload_end(struct upload *upload);
/* After upload_end: false, after E0710, where sinks wait for checkpoints that the store lacks. */
LEAT_CHECKED bool upload_is_committed(struct upload *upload, struct diag_list *diags);
void upload_free(struct upload *upload);
/* Any thread. */
void upload_stats(struct upload *upload, struct run_stats *stats);

/* many.c: checkpoints of several workers. many_new: NULL: the run is alone. */
struct many *many_new(const struct run *run);
void many_free(struct many *many); /* NULL is allowed */
/* Whether another worker leads, and says when checkpoints begin. */
bool many_follows(const struct checkpoints *c);
/* Whether the leader has begun a checkpoint that this worker has not; sets its epoch as the next one. With the barrier's mutex held. */
bool many_is_begun(struct checkpoints *c);
/* Whether the leader has withdrawn the checkpoint that this worker has begun, before it had a barrier. With the mutex held. */
bool many_is_withdrawn(const struct checkpoints *c);
/* The leader's writer is made: whether all others have begun the checkpoint, too. False after a diagnostic: it is withdrawn. */
LEAT_CHECKED bool many_open(struct checkpoints *c);
/* Tells the leader whether this worker has begun the checkpoint. Not with the mutex held: a transport may lock. */
void many_say_ready(struct checkpoints *c, uint64_t epoch, bool is_good);
/* This worker has written its part, or could not: whether the checkpoint has become the head. Waits for the other workers. False after
 * a diagnostic, or because this worker could not. */
LEAT_CHECKED bool many_agree(struct checkpoints *c, bool is_written);
/* How far the store is behind this worker, and what this worker has sent there. Nothing where there is none. With the mutex held. */
void many_stats(const struct checkpoints *c, struct run_stats *stats);

/* head_begin.c: beginning with a head (run_options.head). Control thread; each bool is false after a diagnostic.
 *   - head_read: reads the manifest, if the run has one, into c->head, brings parts from the store, and opens them as run->resumed.
 *   - head_forget: the run has taken what it needs of the head: removes parts that came from the store.
 *   - head_may_begin_anew: whether the run may begin without a head and a checkpoint: its directory is of no run that has a head.
 *   - head_note_placement: sets c->groups and c->placement. Between two barriers.
 *   - head_digest_placement: what a head says of a placement (run_head.placement): of that one; NULL: of the next one.
 *   - head_start: starts the generation of a worker, or of a run that begins with a head. */
LEAT_CHECKED bool head_read(struct run *run);
void head_forget(struct run *run);
LEAT_CHECKED bool head_may_begin_anew(struct run *run);
LEAT_CHECKED bool head_start(struct run *run);
void head_note_placement(struct checkpoints *c);
void head_digest_placement(const struct run *run, const struct run_head *head,
                           const struct placement *placement, uint64_t move_seed,
                           uint8_t digest[CHECKPOINT_DIGEST_BYTES]);

/* head_databases.c. Control thread. */
struct head_databases {
    bool is_known; /* else any database may have rows of this worker */
    uint32_t
        own; /* the part of run->resumed whose databases this worker takes over as they are, from 1 on; 0: none */
    uint64_t needed[BIT_WORDS(PLACEMENT_INSTANCES_MAX)]; /* a bit for each database to import from */
};
/* The worker of the head that had the one instance of the stage. */
uint32_t head_home_before(const struct run *run, const struct run_head *head, uint32_t stage);
/* Chooses, when the placement is set. */
void head_choose_databases(const struct run *run, struct head_databases *chosen);
/* Once the stores are open: deletes, in databases that were taken over, the rows of operators with one instance that were at this
 * worker, and are at another one now. */
void head_drop_left(struct run *run);

/* parts.c */
/* Call when run->resumed is chosen: sets run->ids and run->has_saved. For a run that begins with another
 * run's checkpoint it compares the two jobs, with one diagnostic for each difference that would lose state.
 * *next_id: lowest id that no part has had so far. false after diagnostics. */
LEAT_CHECKED bool parts_init(struct run *run, uint32_t *next_id);
/* Appends the list of the job's parts, which every checkpoint has as a record. */
void parts_put(const struct run *run, uint32_t next_id, struct byte_buffer *out);

/* inputs.c. Control thread, but for inputs_save. inputs_put: appends the list of what the job reads besides its
 * records, as it is now; files are read. inputs_save: writes c->inputs into a checkpoint; coordinator thread. */
void inputs_put(struct checkpoints *c, struct byte_buffer *out);
LEAT_CHECKED bool inputs_save(const struct checkpoints *c, struct checkpoint_writer *writer);
/* Notes what has changed since run->resumed; nothing, if that checkpoint has no list. */
void inputs_tell(struct run *run);
/* Call when checkpoint_find has refused: if the job is another one, adds to the diagnostic what has changed. */
void inputs_explain_refusal(struct run *run);

/* from.c */
/* Opens the other run's checkpoint that this run begins with, as run->resumed. false after a diagnostic. */
LEAT_CHECKED bool from_open(struct run *run);
/* Whether the newest run of the checkpoint directory began from another run's checkpoint and has published no
 * checkpoint. If so, sets `from` and from_run, with which this run begins again. */
bool from_is_unfinished(struct run *run);
/* After a restart by the supervisor: whether an earlier life has begun from options.from; this life then
 * resumes that run. */
bool from_has_begun(const struct run *run);
/* Matches the checkpoint's parts with the job's, by name and shape. false after diagnostics. */
LEAT_CHECKED bool from_match(struct run *run, const struct parts *saved);

/* from_store.c */
/* Copies run->checkpoints->from, the newest whole checkpoint where it names none, from the object store, unless the start that began this run
 * has done so, and sets from.id and from.newest. Returns the copy's path, malloc'd: a directory, or of a checkpoint of several workers the
 * file of a manifest; NULL after a diagnostic. */
char *from_store_copy(struct run *run);
/* Removes copies that earlier starts have left in the checkpoint directory, or this one; what cannot be removed is a warning.
 * Control thread; after the start, coordinator thread. */
void from_store_forget(const struct run *run, struct diag_list *diags);

/* before_record.c: for a trace, chooses the newest checkpoint before the record, without changing the
 * directory. false after a diagnostic. */
LEAT_CHECKED bool before_record_choose(struct run *run);

#endif
