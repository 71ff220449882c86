/* A worker of a cluster that has no place in the round that goes on: it says for what it waits, and compares what all must have alike with
 * what the round's leader has described (cluster_inputs.h), and says that it fits: until then no round ends for it. One that differs is
 * refused by itself, and the others do not notice. Control thread. */
#ifndef LEAT_CLI_RUN_WAIT_H
#define LEAT_CLI_RUN_WAIT_H

#include "cluster/worker.h"
#include "plan/plan.h"

/* Zeroed at first; run_wait_free at the end. */
struct run_wait {
    char said[400];
    int64_t said_us;
    uint64_t compared; /* incarnation; 0: of none yet */
    bool fits;         /* with that one's leader */
    int64_t judged_us; /* when the comparison ended; monotonic */
    struct arena arena;
    struct diag_list differs;
};

/* Says for what the worker waits, where that is another thing than before, or was said long ago. */
void run_wait_say(struct run_wait *wait, struct worker *worker);
/* Call again and again. False after a diagnostic: this worker has others. What is missed when a round ends meanwhile counts for nothing:
 * a difference stands when the round still goes on behind the comparison, for its leader removes what it has made only then. */
LEAT_CHECKED bool run_wait_compare(struct run_wait *wait, struct worker *worker, const struct plan *plan,
                                   struct diag_list *diags);
void run_wait_free(struct run_wait *wait);

#endif
