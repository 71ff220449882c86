/* leat cluster rebalance|move: asks the leader (cluster_request.h), and waits until it is done. Control thread. */
#ifndef LEAT_CLI_CLUSTER_MOVE_H
#define LEAT_CLI_CLUSTER_MOVE_H

#include "cli/cluster_found.h"

struct cluster_move {
    const char *what, *to; /* key groups or a part of the job, and a worker; NULL: rebalance */
    int64_t within_us;     /* to wait */
    const volatile sig_atomic_t *must_leave; /* not 0: waits no longer */
};

/* *found: what was found, and gets what is found last. False after a diagnostic: E0716, it cannot be done, or
 * was not in time. */
LEAT_CHECKED bool cluster_move(struct coordination *coordination, const struct cluster_move *move,
                               struct cluster_found *found, struct diag_list *diags);

#endif
