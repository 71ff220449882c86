/* The placement of a run's key groups (core/placement.h) as a function of the micro-batch. A change takes two barriers. When a
 * micro-batch with the first one is formed, the change is announced; then instances give bases of the groups that will move, and take
 * those that come to them. A base goes in rounds: the first round has all, each other one what has changed since the round before.
 * When the second barrier is due, the other rounds follow one another, so that little is left for the barrier itself; when all
 * instances have taken the last one, a micro-batch may get the barrier: the change holds from the next one on. Rows of a micro-batch
 * go by its own placement, so two of them are in use until all stages have run the second barrier; the next one comes after that.
 *
 * Of several workers the leader decides: it tells the others of a change with the micro-batch that it has formed, and when a round
 * begins (PEER_ROUND); each of them says when its instances have taken a round (PEER_TAKEN). */
#ifndef LEAT_RUN_BASE_PLACEMENTS_H
#define LEAT_RUN_BASE_PLACEMENTS_H

#include "run/base/base.h"
#include "run/base/words.h"

/* Sets where key groups are when a life begins with the checkpoint, or with none (NULL): with as many instances groups are where they
 * were, with more or fewer as few as can be have moved (placement_keep), and stays begin as they were. *before: gets the instances that
 * the checkpoint had, without stays; 0 of them: it does not say. Control thread. False after a diagnostic. */
LEAT_CHECKED bool placements_first(struct run *run, struct checkpoint *from, struct placement *before,
                                   struct placement *first);
/* Sets the first placement of this life. Control thread. False after a diagnostic. */
bool placements_begin(struct run *run);
/* *left: the key groups that this worker's part of the checkpoint had, and that are at other workers now. Returns whether there are any.
 * Control thread. */
bool placements_left(const struct run *run, struct group_set *left);
/* The placement of the micro-batch that is formed next. Under the sequencer's mutex. */
const struct placement *placements_now(const struct run *run);
enum { PLACEMENT_ROUNDS = 3 };

/* Whether the placement may change in this life. Any thread. */
bool placements_may_change(const struct run *run);
/* The leader, while a barrier is due: whether it may be attached now: all instances have taken all rounds of the change that was
 * announced. Else the next round begins, once all have taken the one before. Under the sequencer's mutex. */
bool placements_prepare(struct run *run);
/* How many rounds have begun in this life, of all changes; a change has PLACEMENT_ROUNDS of them. Any thread. */
uint64_t placements_rounds(const struct run *run);
/* The leader, when it has formed a micro-batch with a barrier, which is not the last one of this life. *announced: the placement that
 * will come, if a change is announced; *next: the next micro-batch's, if key groups move behind this one; else NULL. */
void placements_turn(struct run *run, uint64_t micro_batch, const struct placement **announced,
                     const struct placement **next);
/* What the leader tells of that, as words, and another worker takes in. placements_follow: false: the job cannot have it. Under the
 * sequencer's mutex. */
void placements_put(const struct run *run, const struct placement *announced, const struct placement *next,
                    struct byte_buffer *out);
LEAT_CHECKED bool placements_follow(struct run *run, struct words *message,
                                    const struct placement **announced, const struct placement **next);
/* An instance of a keyed stage has taken all that comes to it in a round. Any thread. */
void placements_taken(struct run *run);
/* Whether all such instances of this worker have taken so many rounds. Any thread. */
bool placements_have_taken(const struct run *run, uint64_t rounds);
/* Take PEER_TAKEN and PEER_ROUND. False: the job cannot have them. */
LEAT_CHECKED bool placements_take_taken(struct run *run, uint32_t worker, struct words *message);
LEAT_CHECKED bool placements_take_round(struct run *run, struct words *message);
/* Whether the node is an operator that moves as a whole: it has state, and a stage with one instance. One with figures alone (tables
 * that it reads again from their files) has nothing to carry. */
bool placements_move_whole(const struct run *run, const struct plan_node *node);
/* The number, on this worker, of the instance whose store has the state of an operator, at that place in the plan, of a stage that has
 * one instance itself: at first 0, and another one with each change. Such operators stay on their worker. */
uint32_t placements_home(const struct run *run, const struct placement *placement, uint32_t place);
/* Whether such operators may move with the next barrier: its checkpoint must be a base then. Coordinator thread, between two
 * barriers. */
bool placements_want_base(const struct run *run);
/* Writes the placement that holds up to the next barrier into a checkpoint, of several workers, or where a group has ever moved.
 * Coordinator thread, between two barriers. False: the disk failed. */
bool placements_save(struct run *run, struct checkpoint_writer *writer);
/* Whether a group has ever moved, by its stays. */
bool placements_have_moved(const struct placement *placement);
/* Sets the stays to those of a checkpoint. False after a diagnostic. */
bool placements_load_stays(struct checkpoint *from, struct placement *placement, struct diag_list *diags);

#endif
