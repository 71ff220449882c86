/* Heads of a round, where all workers find them: in the checkpoint directory that they share, or in the job's object store. */
#ifndef LEAT_CLI_CLUSTER_HEADS_H
#define LEAT_CLI_CLUSTER_HEADS_H

#include "cli/cluster_directory.h"
#include "state/checkpoint_store.h"

/* Zeroed at first, but for directory and store. */
struct cluster_heads {
    struct cluster_directory *directory;
    struct checkpoint_store *store; /* that the job names; NULL: all workers see the directories */
    bool has_seen_parts;
};

/* Reads the manifest with which the round begins; it is appended. False after a diagnostic, in the directory's list. */
LEAT_CHECKED bool cluster_heads_read(const struct cluster_heads *heads, const struct cluster_head *head,
                                     struct byte_buffer *manifest);
/* Whether this worker sees the parts of all others: else nobody could begin with the head. Looks at the first head of a round. *unseen: the
 * worker whose part is not there; RUN_WORKERS_MAX: none. */
LEAT_CHECKED bool cluster_heads_see_parts(struct cluster_heads *heads, struct str manifest, uint32_t *unseen,
                                          struct diag_list *diags);
/* Says that this worker does not see the checkpoint of another one; store: the URL, if the job names one. */
void cluster_heads_refuse_unseen(const struct cluster_heads *heads, uint32_t worker, struct str address,
                                 struct str store, struct diag_list *diags);
/* Of the leader: writes the manifest. False after a diagnostic. */
LEAT_CHECKED bool cluster_heads_write(const struct cluster_heads *heads, struct checkpoint_id id,
                                      struct str manifest, struct diag_list *diags);
#endif
