/* leat run --supervise: a parent that restarts the run after a crash. */
#ifndef LEAT_CLI_SUPERVISE_H
#define LEAT_CLI_SUPERVISE_H

#include <stdbool.h>

/* Forks. Returns -1 in the child, which runs the job. *is_restart: the child is not the first life;
 * *had_begun: an earlier life has called supervise_begun. The parent stays in this function until the job
 * ends: it restarts the job after a crash or failure, with growing pauses, and returns its exit status. It
 * gives up, with a message, after five lives in a row that each ended within ten seconds. SIGINT and SIGTERM
 * are passed on to the child. */
int supervise(bool *is_restart, bool *had_begun);
/* Called by the child when the run begins: files written from now on belong to the run, and the next life
 * may replace them. */
void supervise_begun(void);

#endif
