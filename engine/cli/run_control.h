/* The page and the control API of a run, as the flags of `leat run` and `ui` of the job ask for them. */
#ifndef LEAT_CLI_RUN_CONTROL_H
#define LEAT_CLI_RUN_CONTROL_H

#include "cli/job.h"
#include "control/api.h"

#define RUN_CONTROL_ADDRESS "127.0.0.1:8081" /* of --ui without one */

struct run_control_flags {
    bool has_ui; /* --ui or --control was given */
    /* NULL: not given; the job's `ui` holds. */
    const char *address, *token, *certificate, *key;
};

/* Starts what is wanted; *api NULL: nothing is. False after a diagnostic. Control thread. */
LEAT_CHECKED bool run_control_start(const struct run_control_flags *flags, const struct job_load *load,
                                    struct api **api, struct diag_list *diags);

#endif
