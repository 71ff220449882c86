/* leat cluster grow|shrink|drain: asks for other workers, and waits until they are as asked for. Control thread. */
#ifndef LEAT_CLI_CLUSTER_CHANGE_H
#define LEAT_CLI_CLUSTER_CHANGE_H

#include "cli/cluster_found.h"

enum cluster_change_kind { CLUSTER_GROW, CLUSTER_SHRINK, CLUSTER_DRAIN };

struct cluster_change {
    enum cluster_change_kind kind;
    int64_t workers; /* how many there are to be; 0: of CLUSTER_GROW, as many as may be */
    const char **
        names; /* of workers, by number or address: of CLUSTER_DRAIN one; of CLUSTER_SHRINK those that are to wait */
    uint32_t names_count;
    int64_t within_us;                       /* to wait for the change */
    const volatile sig_atomic_t *must_leave; /* not 0: waits no longer */
};

/* *found: what was found, and gets what is found last. False after a diagnostic: E0716, the change cannot be
 * made, or was not made in time. */
LEAT_CHECKED bool cluster_change(struct coordination *coordination, const struct cluster_change *change,
                                 struct cluster_found *found, struct diag_list *diags);

/* Adds E0716 with a hint, and returns false. */
bool cluster_change_refuse(struct diag_list *diags, const char *hint, const char *format, ...)
    LEAT_PRINTF(3, 4);
/* Whether the job runs, and no change of its workers is under way. False after a diagnostic. */
LEAT_CHECKED bool cluster_change_can_begin(const struct cluster_found *found, struct diag_list *diags);
/* The member of that number or address; NULL after a diagnostic. */
const struct cluster_member *cluster_change_find(const struct cluster_found *found, const char *name,
                                                 struct diag_list *diags);

#endif
