/* The placement of a run's key groups (core/placement.h) as a function of the micro-batch. A change takes two barriers. When a
 * micro-batch with the first one is formed, the change is announced; then instances give bases of the groups that will move, and take
 * those that come to them. A base goes in rounds: the first round has all, each other one what has changed since the round before.
 * When the second barrier is due, the other rounds follow one another, so that little is left for the barrier itself; when all
 * instances have taken the last one, a micro-batch may get the barrier: the change holds from the next one on. Rows of a micro-batch
 * go by its own placement, so two of them are in use until all stages have run the second barrier; the next one comes after that. */
#ifndef LEAT_RUN_BASE_PLACEMENTS_H
#define LEAT_RUN_BASE_PLACEMENTS_H

#include "run/base/base.h"

/* Sets the first placement of this life; with a checkpoint to resume from, stays begin as they were then. Control thread.
 * False after a diagnostic. */
bool placements_begin(struct run *run);
/* The placement of the micro-batch that is formed next. Under the sequencer's mutex. */
const struct placement *placements_now(const struct run *run);
enum { PLACEMENT_ROUNDS = 3 };

/* Call while a barrier is due. Whether it may be attached now: all instances have taken all rounds of the change that was
 * announced. Else the next round begins, once all have taken the one before. Under the sequencer's mutex. */
bool placements_prepare(struct run *run);
/* The round that instances are to give and take, from 1 on, of the change that was announced last. Any thread. */
uint32_t placements_round(const struct run *run);
/* Call when a micro-batch with a barrier is formed, which is not the last one of this life. *announced: the placement that will
 * come, if a change is announced; *next: the next micro-batch's, if key groups move behind this one; else NULL. */
void placements_turn(struct run *run, uint64_t micro_batch, const struct placement **announced,
                     const struct placement **next);
/* An instance of a keyed stage has taken all that comes to it in a round. Any thread. */
void placements_taken(struct run *run);
/* Whether the node is an operator that moves as a whole: it has state, and a stage with one instance. One with figures alone (tables
 * that it reads again from their files) has nothing to carry. */
bool placements_move_whole(const struct run *run, const struct plan_node *node);
/* The instance whose store has the state of an operator, at that place in the plan, of a stage that has one instance itself: at
 * first instance 0, and another one with each change. */
uint32_t placements_home(const struct run *run, const struct placement *placement, uint32_t place);
/* Whether such operators may move with the next barrier: its checkpoint must be a base then. Coordinator thread, between two
 * barriers. */
bool placements_want_base(const struct run *run);
/* Writes the stays that hold up to the next barrier into a checkpoint, where a group has ever moved. Coordinator thread,
 * between two barriers. False: the disk failed. */
bool placements_save(struct run *run, struct checkpoint_writer *writer);
/* Whether a group has ever moved, by its stays. */
bool placements_have_moved(const struct placement *placement);
/* Sets the stays to those of a checkpoint. False after a diagnostic. */
bool placements_load_stays(struct checkpoint *from, struct placement *placement, struct diag_list *diags);

#endif
