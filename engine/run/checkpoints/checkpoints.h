/* Checkpoints of a run: the one that the run begins with, the coordinator that takes new ones, and the parts
 * in each. Control thread. */
#ifndef LEAT_RUN_CHECKPOINTS_CHECKPOINTS_H
#define LEAT_RUN_CHECKPOINTS_CHECKPOINTS_H

#include "run/base/base.h"
#include "run/base/peers.h"
#include "state/checkpoint.h"

/* Opens the checkpoint directory and finds the checkpoint to begin with: sets the members of struct run under
 * "How this life begins". Call before sources and stages are opened. false after diagnostics, also below. */
bool checkpoints_init(struct run *run);
/* Opens the state store, in the checkpoint directory or in a temporary one. */
bool checkpoints_open_state(struct run *run);
/* Restores sources and nodes, which are open, from run->resumed, and closes that checkpoint. */
bool checkpoints_restore(struct run *run);
/* Closes run->resumed and the checkpoint directory; both are NULL afterwards. For a trace, which takes no
 * checkpoints. */
void checkpoints_close(struct run *run);
void checkpoints_free(struct run *run);

/* checkpoints_start, checkpoints_join, checkpoints_have_last: call only where run->barrier is not NULL.
 * checkpoints_start starts the coordinator, unless the run was finished, and the copies to an object store; false, without a
 * diagnostic: the system refuses a thread. */
bool checkpoints_start(struct run *run);
/* Call after the lanes have ended: waits for a checkpoint that is being written, and ends the coordinator.
 * Abandons a checkpoint that has begun, but whose barrier has not passed all stages. */
void checkpoints_join(struct run *run);
/* Call after the join: whether the last micro-batch's checkpoint was published and is committed; else adds a diagnostic. */
bool checkpoints_have_last(struct run *run);
/* Takes PEER_ASK, PEER_BEGIN, PEER_READY, PEER_PART or PEER_HEAD of another worker. False: it is none that the run can have. Any thread, from
 * checkpoints_init to checkpoints_free. */
LEAT_CHECKED bool checkpoints_receive(struct run *run, uint32_t worker, enum peer_message tag,
                                      struct words *message);
/* Fills *turn; only where run->barrier is not NULL. */
void checkpoints_turn(struct run *run, struct run_checkpoint_turn *turn);
/* Adds the figures of checkpoints. */
void checkpoints_stats(struct run *run, struct run_stats *stats);

/* A part is a node's state in a checkpoint: its name (plan_node.part), the id under which it is saved, and
 * its shape (core/shape.h). A part keeps its id in all later checkpoints, also through `--from`, so that the
 * database need not be written anew when a job changes; a new part gets an id that no part had before. */
struct part {
    uint32_t id;
    bool has_state, is_single; /* is_single: of a stage with one instance; format 9 does not say so */
    struct str name, shape;
};

struct parts {
    struct part *items;
    uint32_t count, next_id; /* next_id: lowest id that no part has had */
};

/* Reads the list of a checkpoint's parts into the arena. false after E0702. */
LEAT_CHECKED bool parts_read(struct checkpoint *checkpoint, struct arena *arena, struct parts *parts,
                             struct diag_list *diags);
/* Whether the node, which has state, is of a stage with one instance. */
bool part_is_single(const struct run *run, const struct plan_node *node);
/* Finds a part by its name. NULL: there is none. */
const struct part *parts_find(const struct parts *parts, struct str name);

#endif
