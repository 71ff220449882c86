/* Lanes: threads that run the stages of the plan, and the exchanges between stages. Control thread, unless a
 * comment says otherwise. */
#ifndef LEAT_RUN_LANES_LANES_H
#define LEAT_RUN_LANES_LANES_H

#include "run/base/peers.h"
#include "run/peek.h"

/* Measures the load of key groups since the last call, where they move by load: it comes to the leader. Coordinator thread, between two
 * barriers. */
void lanes_measure(struct run *run);
/* Makes and wires the instances of all stages, and opens their nodes. false after diagnostics. */
bool lanes_init(struct run *run);
void lanes_free(struct run *run);
/* Call before lanes_restore: the nodes' tables and queues import what run->stores did not take over as it was. false: a state
 * store failed; run_wait, or run_new's caller, says why. */
bool lanes_import(struct run *run);
/* Restores all nodes from the checkpoint; call after sequencer_restore. false after diagnostics. */
bool lanes_restore(struct run *run, struct checkpoint *from);
/* Begins the sinks; call after the restore. false after a diagnostic. */
bool lanes_begin_sinks(struct run *run);

/* Takes PEER_ROWS of another worker. False: it is none that the plan can have. Any thread. */
LEAT_CHECKED bool lanes_receive(struct run *run, uint32_t worker, struct words *message);
/* Takes PEER_PIECE, PEER_GIVEN or PEER_ROOM of another worker. False: it is none that this worker can have now. Any thread. */
LEAT_CHECKED bool moves_receive(struct run *run, uint32_t worker, enum peer_message tag,
                                struct words *message);

/* Starts the threads. false, without a diagnostic: the system refuses one; lanes_join joins those started. */
bool lanes_start(struct run *run);
bool lanes_have_ended(const struct run *run); /* any thread */
void lanes_join(struct run *run);
/* Call after the lanes have ended: sinks give files that the last checkpoint covers their names, finish if
 * the run has finished, and send what is left. false after diagnostics. */
bool lanes_finish_sinks(struct run *run);

/* Call when checkpoints up to `epoch` are committed: sinks that send their rows begin to send at once. segment: the order log
 * of that epoch; empty where the checkpoint is in an object store. Coordinator thread, or with `commit: store` the thread that
 * copies. */
void lanes_committed(struct run *run, uint64_t epoch, struct str segment);
/* Call when an object store has the checkpoint of that epoch. The thread that copies. */
void lanes_stored(struct run *run, uint64_t epoch);
/* run_peek_ask. Any thread. */
enum run_peek_end lanes_peek(struct run *run, struct run_peek *peek);
/* Fills in what run_times says of lanes and instances; lanes_count_instances: how many of them there are. Any thread. */
uint32_t lanes_count_instances(const struct run *run);
void lanes_times(const struct run *run, struct run_times *times);
/* Adds the figures of all nodes and queues, and once the run is joined, examples of dead letters. */
void lanes_stats(struct run *run, struct run_stats *stats);
/* Implements run_dead_letters. */
uint32_t lanes_dead_letters(const struct run *run, uint64_t after, struct run_dead_letter *letters);

#endif
