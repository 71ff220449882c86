/* `leat run --serve`: a `leat serve` process beside the run. It is of a session of its own and survives the run: a run
 * that starts again finds it by the lock on DIR/SERVE, beside the checkpoints. Only an orderly end of the run stops it. */
#ifndef LEAT_CLI_SERVE_BESIDE_H
#define LEAT_CLI_SERVE_BESIDE_H

#include "cli/job.h"

/* Starts the process unless one serves already (*is_new), and says so on stderr. Makes the checkpoint directory. False
 * after a diagnostic: the job serves nothing, or the process ended before it listened. */
LEAT_CHECKED bool serve_beside_start(const struct job_load *load, bool *is_new, struct diag_list *diags);
/* Stops the process that serves, if there is one, and waits some seconds for its end. */
void serve_beside_stop(const struct job_load *load);

#endif
