/* The checkpoint coordinator's state; shared by barrier.c, restore.c and run.c. */
#ifndef LEAT_RUN_BARRIER_H
#define LEAT_RUN_BARRIER_H

#include "core/os.h"
#include "run/internal.h"
#include "state/checkpoint.h"
#include "state/state.h"

enum barrier_state {
    BARRIER_IDLE,
    BARRIER_OPENING,   /* the coordinator makes its directory */
    BARRIER_REQUESTED, /* begun; the next number formed gets the barrier */
    BARRIER_RUNNING,   /* stages are passing it */
    BARRIER_WRITING,   /* all have; the coordinator writes */
};

/* A part of every checkpoint, deltas too: those of the newest epoch count. */
struct saved_counters {
    uint64_t epoch;
    struct counters counters;
};

struct run_checkpoints {
    struct run *run;
    struct checkpoint_dir *dir;
    const char *path;                /* of the directory */
    struct checkpoint *resumed;      /* what this run began from, until it is restored */
    struct checkpoint_from from;     /* of a run from another's checkpoint; path NULL: none */
    struct checkpoint_dir *from_dir; /* that one's */
    struct run_id from_run;          /* of the attempt before that came to no checkpoint */
    bool has_from_run;
    struct byte_buffer parts; /* the record of every checkpoint */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t mutex; /* everything below; taken inside the sequencer's mutex, never around it */
    pthread_cond_t condition;
    enum barrier_state state;
    struct checkpoint_writer *writer;
    uint64_t epoch, next_epoch;
    unsigned remaining; /* stage instances that have not snapshot yet */
    bool has_failed, is_last, last_is_published, must_end;
    bool last_is_wanted, last_is_refused; /* the end waits for a checkpoint; there can be none */
    bool is_wanted;                       /* before its turn */
    bool has_lately_failed;               /* since the last one that was published */
    int64_t disk_looked_us;               /* of the sequencer: when its free space was last asked for */
    bool disk_is_low;                     /* of the sequencer: the sources pause */
    struct byte_buffer positions;
    _Atomic uint64_t published; /* epoch */
    struct arena arena;
    struct diag_list diags; /* of the coordinator */
    char why[512];          /* the last checkpoint that failed did so; empty: none has */
    uint64_t count, failures, bytes;
    int64_t begun_us; /* the last one */
    int64_t barrier_us, published_us, duration_us, stop_us;
    int64_t stop_max_us; /* of all checkpoints of this life */
};

/* Opens the directory and finds what to resume (run->is_resumed, run->was_finished). Before sources and
 * stages. */
bool checkpoints_init(struct run *run);
/* Opens the state store: in the checkpoint directory, or in a temporary one. */
bool checkpoints_open_state(struct run *run);
/* Gives every node its state back. After sources and stages were opened. */
bool checkpoints_restore(struct run *run);
bool checkpoints_start(struct run *run);
void checkpoints_join(struct run *run);
void checkpoints_free(struct run *run);
/* The part of a checkpoint that is a sink's, by its name: a job may gain or lose sinks. Its end tells it from
 * those of longer names. */
enum { CHECKPOINT_SINK_BYTES = 120, CHECKPOINT_PART_BYTES = CHECKPOINT_SINK_BYTES + 32 };
void checkpoint_sink_part(const struct plan_node *sink, char name[CHECKPOINT_SINK_BYTES]);
/* And the one that says of which kind it was. */
void checkpoint_kind_part(const struct plan_node *sink, char name[CHECKPOINT_PART_BYTES]);
/* And that of a node's counters, but for the instance. */
void checkpoint_counters_part(const struct node_instance *node, char name[CHECKPOINT_PART_BYTES]);

#endif
