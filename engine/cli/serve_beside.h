/* `leat run --serve`: a `leat serve` process beside the run. It is of a session of its own and survives the run: a run
 * that starts again finds it by the lock on DIR/SERVE, beside the checkpoints. Only an orderly end of the run stops it. */
#ifndef LEAT_CLI_SERVE_BESIDE_H
#define LEAT_CLI_SERVE_BESIDE_H

#include "cli/job.h"

/* Starts the process unless one serves already (*is_new), and says so on stderr. One that serves another version of the job
 * is replaced, unless it is that of a run that is still there and that this run does not take over from. Makes the
 * checkpoint directory. False after a diagnostic: the job serves nothing, or the process ended before it listened. */
LEAT_CHECKED bool serve_beside_start(const struct job_load *load, bool takes_over, bool *is_new,
                                     struct diag_list *diags);
/* Whether a process serves beside the run. */
bool serve_beside_is_there(const struct job_load *load);
/* The path of the file in which the process writes what it does (cli/serve_figures.h); the caller frees it. */
char *serve_beside_figures(const struct job_load *load);
/* Stops the process that serves, if there is one, and waits some seconds for its end. */
void serve_beside_stop(const struct job_load *load);

#endif
