/* Removes heads that are older than the newest one, with a thread of its own: nobody waits for that, neither the sinks, which are to be told of a
 * head, nor the next checkpoint. What stays costs room alone. */
#ifndef LEAT_CLI_CLUSTER_PRUNE_H
#define LEAT_CLI_CLUSTER_PRUNE_H

#include "cli/cluster_directory.h"

struct cluster_prune;
/* keep: how many heads stay. store: the URL; length 0: heads lie in the directory. Its texts live as long. */
struct cluster_prune *cluster_prune_new(const struct cluster_directory *directory, struct str store,
                                        uint32_t keep);
/* Of the leader: that is the head now. Any thread; it does not wait. */
void cluster_prune_behind(struct cluster_prune *prune, struct checkpoint_id head);
/* is_last: the job has ended here: waits a moment for what is left to do. NULL is allowed. */
void cluster_prune_free(struct cluster_prune *prune, bool is_last);

#endif
