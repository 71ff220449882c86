/* A checkpoint and the job it is of, for commands that look inside. Control thread. */
#ifndef LEAT_CLI_CHECKPOINT_JOB_H
#define LEAT_CLI_CHECKPOINT_JOB_H

#include "plan/plan.h"
#include "state/checkpoint.h"

struct checkpoint_job {
    /* In. */
    const char *directory; /* or a job file: then the one that its job block names */
    const char *which;     /* "3-17"; NULL: the newest */
    /* Out. */
    struct arena arena;
    struct diag_list diags;
    struct checkpoint_dir *dir;
    struct checkpoint *checkpoint; /* verified */
    struct plan *plan;             /* of the job as it was when the checkpoint was taken */
};

void checkpoint_job_init(struct checkpoint_job *job);
/* false: diags has why. */
bool checkpoint_job_open(struct checkpoint_job *job);
void checkpoint_job_close(struct checkpoint_job *job);

#endif
