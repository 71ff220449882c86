/* A checkpoint and the job that took it, for commands that look inside checkpoints. Control thread. */
#ifndef LEAT_CLI_CHECKPOINT_JOB_H
#define LEAT_CLI_CHECKPOINT_JOB_H

#include "core/temporary.h"
#include "plan/plan.h"
#include "state/checkpoint.h"

struct checkpoint_job {
    /* Set by the caller. */
    /* A checkpoint directory; or a job file: then the directory that its job block names; or the file of a head, of several workers; or the
     * URL of an object store. */
    const char *directory;
    const char *which; /* a checkpoint's name, "3-17"; NULL: the newest */
    /* Set by checkpoint_job_open. */
    struct arena arena;
    struct diag_list diags;
    struct checkpoint_dir *dir; /* NULL: of a head */
    struct temporary_directory temporary;
    struct checkpoint *checkpoint; /* verified; that of a head is when it is read */
    struct plan *plan;             /* of the job as of the time of the checkpoint */
};

void checkpoint_job_init(struct checkpoint_job *job);
/* Opens the checkpoint and makes the plan. false: the reason is in job->diags; call checkpoint_job_close
 * then, too. */
bool checkpoint_job_open(struct checkpoint_job *job);
void checkpoint_job_close(struct checkpoint_job *job);

/* Reads a checkpoint's name, "3-17". directory: for the hint. false after a diagnostic. */
bool checkpoint_named(const char *name, const char *directory, struct checkpoint_id *id,
                      struct diag_list *diags);

#endif
