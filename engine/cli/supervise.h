/* leat run --supervise: a parent that restarts the run after a crash. */
#ifndef LEAT_CLI_SUPERVISE_H
#define LEAT_CLI_SUPERVISE_H

#include <stdbool.h>

/* Forks. Returns -1 in the child, which is to run the job (*is_restart: a life after the first); the parent
 * stays in here until the job ends, restarts it after a crash or a failure with growing pauses, and returns
 * the exit status. It gives up, saying so, after five lives in a row that each ended within ten seconds.
 * Signals that end the parent are passed on. */
int supervise(bool *is_restart);

#endif
