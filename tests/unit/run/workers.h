/* Runs of one job as the workers of a cluster, in one process: each gets its messages on a thread of its own, in an order that
 * a seed decides, but those of one sender in theirs. */
#ifndef LEAT_TESTS_UNIT_RUN_WORKERS_H
#define LEAT_TESTS_UNIT_RUN_WORKERS_H

#include "run/run.h"

struct workers *workers_new(uint32_t count, uint64_t seed);
/* For run_options.peers of one worker. */
const struct run_peers *workers_peers(struct workers *workers, uint32_t worker);
/* Begins to deliver; runs: one for each worker. */
void workers_begin(struct workers *workers, struct run **runs);
/* Ends the threads; call when run_wait has returned for each run. */
void workers_end(struct workers *workers);
void workers_free(struct workers *workers);

#endif
