/* leat run --supervise: a parent that restarts the run after a crash. */
#ifndef LEAT_CLI_SUPERVISE_H
#define LEAT_CLI_SUPERVISE_H

#include <stdbool.h>

/* Forks. Returns -1 in the child, which is to run the job (*is_restart: a life after the first; *had_begun:
 * one of those before it called supervise_begun); the parent stays in here until the job ends, restarts it
 * after a crash or a failure with growing pauses, and returns the exit status. It gives up, saying so, after
 * five lives in a row that each ended within ten seconds. Signals that end the parent are passed on. */
int supervise(bool *is_restart, bool *had_begun);
/* The run begins: what is written from now on is its own, and the next life may replace it. */
void supervise_begun(void);

#endif
