/* The workers of a job on several machines, as etcd knows them: for `leat cluster`. Control thread. */
#ifndef LEAT_CLI_CLUSTER_FOUND_H
#define LEAT_CLI_CLUSTER_FOUND_H

#include "cli/run_cluster.h"
#include "cluster/rendezvous.h"

/* Zeroed before the first look; its texts live until the next one. */
struct cluster_found {
    struct arena arena;
    struct cluster_view view;
    struct rendezvous_round *round; /* never NULL */
    bool has_round, has_ended;      /* has_ended: at all workers of the round */
};

/* NULL after a diagnostic. */
struct coordination *cluster_found_open(const struct run_cluster_flags *flags, struct diag_list *diags);
/* Asks etcd. False after a diagnostic: nothing is known, or there is no such cluster. */
LEAT_CHECKED bool cluster_found_look(struct coordination *coordination, struct cluster_found *found,
                                     struct diag_list *diags);

/* Number of the member in the round that goes on; -1: it waits. */
int cluster_found_number(const struct cluster_found *found, int64_t lease);
/* How many wait for a place; *standbys: and how many standbys. */
uint32_t cluster_found_waiting(const struct cluster_found *found, uint32_t *standbys);
/* Whether the workers are to change, or one is to leave. */
bool cluster_found_changes(const struct cluster_found *found);
/* Whether somebody has asked for more or fewer workers, and the workers have not begun to change, though they can. */
bool cluster_found_is_asked(const struct cluster_found *found);

void cluster_found_print(const struct cluster_found *found);
void cluster_found_print_json(const struct cluster_found *found);

#endif
