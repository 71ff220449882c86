/* The checkpoints of a run, for people who look while it goes on: those in its directory, what became of those that this
 * process took, and why others failed. Reads directories and MANIFESTs, never data, and each MANIFEST once.
 *
 *     struct run_checkpoint_list *list = run_checkpoint_list_new(run);
 *     run_checkpoint_list_look(list); ... list->items ... run_checkpoint_list_free(list);
 *
 * One thread at a time, any thread, while the run exists. */
#ifndef LEAT_RUN_CHECKPOINT_LIST_H
#define LEAT_RUN_CHECKPOINT_LIST_H

#include "run/run.h"

enum { RUN_CHECKPOINTS_MAX = 200, RUN_CHECKPOINTS_FAILED_MAX = 50, RUN_CHECKPOINT_REASON_BYTES = 512 };

/* What this process took and could not take; the newest of each come first. */
struct run_checkpoint_failure {
    int64_t time_us; /* wall clock */
    char reason[RUN_CHECKPOINT_REASON_BYTES];
};

struct run_checkpoint {
    uint32_t generation; /* with the epoch: its id */
    uint64_t epoch;
    uint32_t
        previous_generation; /* with previous_epoch: of the checkpoint that it is a delta on; 0: it is whole by itself */
    uint64_t previous_epoch;
    int64_t created_us;            /* wall clock */
    uint64_t bytes, written_bytes; /* of all its files; of those that were written for it */
    int64_t duration_us,
        stop_us; /* from its barrier until it was published; the longest that a lane stood still for it;
                                        -1: an earlier process took it */
    uint64_t micro_batch; /* number of micro-batches that it has; UINT64_MAX: of another format */
};

struct run_checkpoint_list {
    const struct run *run;
    uint32_t count, failed_count;
    struct run_checkpoint items[RUN_CHECKPOINTS_MAX]; /* newest first; of more, the newest */
    struct run_checkpoint_failure failed[RUN_CHECKPOINTS_FAILED_MAX];
};

/* An empty list. */
struct run_checkpoint_list *run_checkpoint_list_new(const struct run *run);
void run_checkpoint_list_free(struct run_checkpoint_list *list); /* NULL is allowed */
/* Looks again. Checkpoints that are damaged, or that are removed meanwhile, are left out. */
void run_checkpoint_list_look(struct run_checkpoint_list *list);

#endif
