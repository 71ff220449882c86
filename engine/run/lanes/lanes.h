/* Lanes: threads that run the stages of the plan, and the exchanges between them. */
#ifndef LEAT_RUN_LANES_LANES_H
#define LEAT_RUN_LANES_LANES_H

#include "run/base/base.h"

/* Makes and wires the instances of all stages, and opens their nodes. false after diagnostics. */
bool lanes_init(struct run *run);
void lanes_free(struct run *run);
/* Gives every node the state that it has in the checkpoint; positions are restored by then. */
bool lanes_restore(struct run *run, struct checkpoint *from);
/* Begins the sinks; after the restore. */
bool lanes_begin_sinks(struct run *run);

/* Starts the threads; false: the system refuses them. */
bool lanes_start(struct run *run);
bool lanes_have_ended(const struct run *run); /* any thread */
void lanes_join(struct run *run);
/* After the lanes: files that the last checkpoint covers get their names, and sinks finish and send the
 * rest. */
bool lanes_finish_sinks(struct run *run);

/* Call when a checkpoint was published: sinks that send the checkpoint's rows begin to send at once. segment:
 * the checkpoint's order log. Coordinator thread. */
void lanes_committed(struct run *run, uint64_t epoch, struct str segment);
/* Adds the figures of all nodes, of queues, and once the run is joined, of dead letters. */
void lanes_stats(struct run *run, struct run_stats *stats);

#endif
