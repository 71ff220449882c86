/* A standby (`leat run --cluster --standby`): while it waits, a thread of its own has each new head ready on this machine. Of a job with
 * an object store it keeps a copy of the newest part of each worker, in the directory that this process will have in that worker's place
 * (checkpoint_mirror_bring): what is new of a head alone comes from the store. Where all workers see one directory there is nothing to
 * bring; then it makes sure that it sees manifest and parts.
 *
 * Whatever it has prepared is used as any part that lies on a worker's disk is: where it is exactly the one that the round's head names
 * (run_head_fetch). Control thread. */
#ifndef LEAT_CLI_CLUSTER_STANDBY_H
#define LEAT_CLI_CLUSTER_STANDBY_H

#include "cli/cluster_directory.h"
#include "cluster/worker.h"
#include "run/run.h"

struct cluster_standby_options {
    struct worker *worker;
    const struct cluster_directory *directory; /* its diags are not used */
    struct str store;                          /* URL; length 0: all workers see the directory */
    int64_t keep_free;                         /* bytes of the disk that stay free */
};

struct cluster_standby;
/* What the options point to lives longer. Never NULL. */
struct cluster_standby *cluster_standby_new(const struct cluster_standby_options *options);
/* Ends the thread, too. NULL is allowed; it is by the functions below. */
void cluster_standby_free(struct cluster_standby *standby);

/* The worker waits: begins to prepare heads, or goes on. Says now and then how far it is. Call often. */
void cluster_standby_wait(struct cluster_standby *standby);
/* A round begins with the head (revision 0: with none): ends to prepare heads, with that one as the last, unless the round is over before,
 * or nothing was prepared yet. Returns, and says, whether it is. */
bool cluster_standby_end(struct cluster_standby *standby, const struct cluster_head *head);
/* Of a run in the round: once that has a head of its own, nobody begins with what was prepared, and the copies of other workers' parts are
 * removed. Call often. */
void cluster_standby_look(struct cluster_standby *standby, struct run *run,
                          const struct rendezvous_round *round);

#endif
