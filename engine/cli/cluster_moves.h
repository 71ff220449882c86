/* Of the worker that leads: does what `leat cluster rebalance` and `move` ask for (cluster_request.h), and says how far it is. Control
 * thread, but for cluster_moves_place. */
#ifndef LEAT_CLI_CLUSTER_MOVES_H
#define LEAT_CLI_CLUSTER_MOVES_H

#include "cli/cluster_request.h"
#include "cluster/worker.h"
#include "plan/plan.h"

/* Zeroed, but for the first two. */
struct cluster_moves {
    const struct plan *plan;
    struct worker *worker;
    int64_t seen; /* revision of the newest request that was looked at */
    bool is_busy; /* groups move, as was asked for */
    struct cluster_answer said;
    uint64_t ns
        [PLAN_STAGES_MAX]; /* time that stages took in the last round that this worker led; all 0: not known */
    uint8_t homes[PLAN_STAGES_MAX]; /* run_peers.homes, of the round */
};

/* Sets homes for the round, which begins. False: its record's places are none for this job. */
LEAT_CHECKED bool cluster_moves_begin(struct cluster_moves *moves, const struct rendezvous_round *round);
/* While the round's run goes on: call often. */
void cluster_moves_look(struct cluster_moves *moves, struct run *run, const struct rendezvous_round *round);
/* The run has ended, and will be freed; before worker_say_over, or worker_say_ended. */
void cluster_moves_end(struct cluster_moves *moves, struct run *run, const struct rendezvous_round *round);
/* For worker_options.place. */
char *cluster_moves_place(const struct cluster_moves *moves, const struct rendezvous_round *last,
                          const struct rendezvous_round *next);

#endif
