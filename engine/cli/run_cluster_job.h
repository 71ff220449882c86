/* What all workers of a cluster must have alike. */
#ifndef LEAT_CLI_RUN_CLUSTER_JOB_H
#define LEAT_CLI_RUN_CLUSTER_JOB_H

#include "cli/job.h"
#include "run/run.h"
#include "state/checkpoint.h"

/* Who the job is, for as long as the cluster lives: the digest, as hex digits, of its file, and of --set, --replay and --sink, in any
 * order. */
void run_cluster_digest(const struct job_load *load, char digest[2 * CHECKPOINT_DIGEST_BYTES + 1]);

/* The flags of one start that all workers must be given alike, as people write them, for cluster_member.flags; "": none of them is
 * given. The arena's. */
const char *run_cluster_same(const struct run_options *options, struct arena *arena);

/* This version of leat, as workers compare it; tests may say it is another one, by LEAT_TEST_VERSION. */
struct str run_cluster_version(void);
/* Lanes of each worker, where this one leads: of --workers, the job's, else one per core. */
uint32_t run_cluster_lanes(const struct run_options *options, const struct plan *plan);

/* The options of a life that begins with that manifest, length 0: none; without peers and lanes. --from is for the beginning without a head;
 * is_first: of this process, then it is said where it does not hold. */
struct run_options run_cluster_life(const struct run_options *given, struct str head, bool is_first);

/* Logs what went wrong with a head. Any thread. */
void run_cluster_say_diags(const struct diag_list *diags);

#endif
