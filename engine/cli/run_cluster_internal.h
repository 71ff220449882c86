/* What the files of `leat run --cluster` share. Private to run_cluster.c and run_cluster_peers.c. */
#ifndef LEAT_CLI_RUN_CLUSTER_INTERNAL_H
#define LEAT_CLI_RUN_CLUSTER_INTERNAL_H

#include "cli/cluster_directory.h"
#include "cli/cluster_heads.h"
#include "cli/cluster_moves.h"
#include "cli/cluster_prune.h"
#include "cli/cluster_standby.h"
#include "cli/run_cluster.h"
#include "cli/run_life.h"
#include "cli/run_wait.h"
#include "cluster/worker.h"

struct cluster {
    const struct run_cluster_options *o;
    struct job_load *load;
    struct worker *worker;
    struct arena arena;
    struct cluster_directory directory;
    struct cluster_moves moves;
    const char *flags; /* run_cluster_same */
    char job_run[2 * sizeof(struct run_id) + 1];
    uint32_t lives;
    int64_t leaving_us; /* since when this worker leaves; 0: it stays */
    struct run_wait wait;
    struct api *api;                 /* while this worker waits for a round; NULL: none */
    bool has_tried_api;              /* since it waits */
    struct cluster_standby *standby; /* NULL: it is none */
    char *inputs;                    /* that this worker has described last, as a leader; NULL: none */
};

/* A run in one round. */
struct part {
    struct cluster *cluster;
    const struct rendezvous_round *round;
    struct run_peers peers;
    struct run *run;
    struct run_life *life;
    struct api *api;         /* NULL: none */
    struct byte_buffer head; /* manifest with which it begins */
    bool is_prepared;        /* this worker, a standby, has its parts */
    struct cluster_heads heads;
    struct cluster_prune *prune; /* of the leader */
    _Atomic uint32_t
        unseen; /* whose checkpoint this worker, the leader, does not see, and one more; 0: nobody's */
    _Atomic uint32_t bad_from; /* who sent a message that this run cannot have, and one more; 0: nobody */
};

/* run_cluster_peers.c. Reads the manifest with which the round begins; empty: it begins with nothing. False after a diagnostic. */
LEAT_CHECKED bool run_cluster_read_head(struct part *part);
/* What the run is told of the other workers, and how it reaches them. False after a diagnostic. */
LEAT_CHECKED bool run_cluster_set_peers(struct part *part);
/* Implements run_peers.is_over: whether the round is. Any thread. */
bool run_cluster_is_over(void *part);

#endif
