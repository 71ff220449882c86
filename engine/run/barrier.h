/* The checkpoint coordinator's state; shared by barrier.c, restore.c and run.c. */
#ifndef LEAT_RUN_BARRIER_H
#define LEAT_RUN_BARRIER_H

#include "core/os.h"
#include "run/internal.h"
#include "state/checkpoint.h"
#include "state/state.h"

enum barrier_state {
    BARRIER_IDLE,
    BARRIER_OPENING,   /* the coordinator makes the checkpoint's directory */
    BARRIER_REQUESTED, /* begun: the next micro-batch formed gets the barrier */
    BARRIER_RUNNING,   /* stages are passing the barrier */
    BARRIER_WRITING,   /* all stages have passed it; the coordinator writes */
};

/* A record of counters. Every checkpoint has all of them, deltas too: a chain repeats them, and those of
 * the newest epoch count. */
struct saved_counters {
    uint64_t epoch;
    struct counters counters;
};

struct run_checkpoints {
    struct run *run;
    struct checkpoint_dir *dir;
    const char *path;                /* path of the checkpoint directory */
    struct checkpoint *resumed;      /* the checkpoint this run began from; NULL once it is restored */
    struct checkpoint_from from;     /* with --from, the other run's checkpoint; path NULL: none */
    struct checkpoint_dir *from_dir; /* directory of `from` */
    struct run_id from_run;          /* id of the attempt before, which published no checkpoint */
    bool has_from_run;
    struct byte_buffer parts; /* the list of parts (parts.h), which every checkpoint holds */
    pthread_t thread;
    bool has_thread;
    /* Protects everything below; taken inside the sequencer's mutex, never around it. */
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    enum barrier_state state;
    struct checkpoint_writer *writer;
    uint64_t epoch, next_epoch;
    unsigned remaining; /* stage instances that have not taken their snapshot yet */
    bool has_failed, is_last, last_is_published, must_end;
    bool last_is_wanted, last_is_refused; /* the end of the run waits for a checkpoint; the disk refuses it */
    bool is_wanted;                       /* a checkpoint is asked for before its turn */
    bool has_lately_failed;               /* no checkpoint was published since the last failure */
    int64_t disk_looked_us;               /* the sequencer's: when it last asked for the free disk space */
    bool disk_is_low;                     /* the sequencer's: the sources pause */
    struct byte_buffer positions;
    _Atomic uint64_t published; /* epoch of the newest published checkpoint */
    struct arena arena;
    struct diag_list diags; /* the coordinator's diagnostics */
    char why[512];          /* why the last failed checkpoint failed; "": none has failed */
    uint64_t count, failures, bytes;
    int64_t begun_us; /* of the last checkpoint, on the monotonic clock */
    int64_t barrier_us, published_us, duration_us, stop_us;
    int64_t stop_max_us; /* longest stop of a lane, of all checkpoints of this life */
};

/* Opens the checkpoint directory and finds the checkpoint to resume (run->is_resumed, run->was_finished).
 * Before sources and stages are opened. */
bool checkpoints_init(struct run *run);
/* Opens the state store, in the checkpoint directory or in a temporary one. */
bool checkpoints_open_state(struct run *run);
/* Gives every node its state back. After sources and stages were opened. */
bool checkpoints_restore(struct run *run);
bool checkpoints_start(struct run *run);
void checkpoints_join(struct run *run);
void checkpoints_free(struct run *run);
/* Name of the checkpoint part that holds a sink's state. It goes by the sink's name, since a job may gain
 * or lose sinks, and ends in a slash, so that it is no prefix of another sink's part. */
enum { CHECKPOINT_SINK_BYTES = 120, CHECKPOINT_PART_BYTES = CHECKPOINT_SINK_BYTES + 32 };
void checkpoint_sink_part(const struct plan_node *sink, char name[CHECKPOINT_SINK_BYTES]);
/* Name of the part that holds the name of the sink's kind. */
void checkpoint_kind_part(const struct plan_node *sink, char name[CHECKPOINT_PART_BYTES]);
/* Name of the part that holds a node's counters, without the number of the instance. */
void checkpoint_counters_part(const struct node_instance *node, char name[CHECKPOINT_PART_BYTES]);

#endif
