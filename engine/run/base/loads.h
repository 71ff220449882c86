/* The load of key groups: rows that came for each group of each keyed stage, and the time that the stage took for rows. Each worker
 * measures its own before a checkpoint (lanes/load.c); at the leader they come together, and decide which groups move
 * (core/placement_balance.h). */
#ifndef LEAT_RUN_BASE_LOADS_H
#define LEAT_RUN_BASE_LOADS_H

#include "run/base/base.h"
#include "run/base/words.h"

/* Of one stage, since the last measurement. */
struct stage_load {
    uint64_t ns;               /* its instances' own time */
    uint64_t rows[KEY_GROUPS]; /* of a keyed stage */
    uint64_t queued;           /* bytes of its queues, now */
};

/* Of all stages that a worker has instances of. */
struct worker_load {
    uint64_t bytes[KEY_GROUPS]; /* of state, now, without queues */
    struct stage_load stages[PLAN_STAGES_MAX];
};

/* Control thread. loads_init: where run->balances. */
void loads_init(struct run *run);
void loads_free(struct run *run);
/* Whether the stage has instances for key groups. */
bool loads_is_keyed(const struct run *run, uint32_t stage);
/* The leader takes in what its own lanes have measured. Coordinator thread. */
void loads_add(struct run *run, const struct worker_load *load);
/* Another worker sends that to the leader, who takes PEER_LOAD; false: it is none. */
void loads_say(const struct run *run, const struct worker_load *load);
LEAT_CHECKED bool loads_take(struct run *run, uint32_t worker, struct words *message);
/* The leader: takes in what has come since it last decided, if that is enough. Whether
 * groups are to move: then `next`, which is the placement of now, gets the moves. Under the sequencer's mutex. */
bool loads_decide(struct run *run, struct placement *next);
/* The leader: the next group from `from` on that has more load than an instance can have without being busier than the others, and
 * that no earlier call has returned; *share: gets its share of all load. KEY_GROUPS: there is none. Any thread. */
uint32_t loads_next_hot(struct run *run, uint32_t from, double *share);
/* The change of the placement that was decided on last: bytes of the state of what moves, and of all; imbalance before and after, by the
 * load that was measured. */
struct loads_change {
    uint32_t groups;
    double bytes, of_bytes, before, after;
};
/* The leader: takes that change, once. False: there is none that was not taken. Any thread. */
bool loads_take_change(struct run *run, struct loads_change *change);
/* For figures: load of the busiest instance by the mean, as it was measured last, 0: not yet; and the number of groups that have more
 * than the mean. Any thread. */
void loads_figures(const struct run *run, double *imbalance, uint32_t *hot);

/* The leader: what somebody has asked for (run_ask_moves), while key groups can move at all, and how far that is. Control thread. */
void loads_ask(struct run *run, const struct run_moves_asked *asked);
void loads_look(struct run *run, struct run_moves *moves);
/* The leader: adds the time that each stage's instances have taken in this life, as far as it was measured. Any thread. */
void loads_times(struct run *run, uint64_t ns[PLAN_STAGES_MAX]);

#endif
