/* What the workers of a cluster keep in the object store that the job names (state/checkpoint_store_parts.h), in place of a directory that
 * all of them see: manifests of heads, and whose the store is. Control thread, but where a comment says otherwise. */
#ifndef LEAT_CLI_CLUSTER_STORE_H
#define LEAT_CLI_CLUSTER_STORE_H

#include "cli/cluster_directory.h"
#include "cluster/coordination.h"
#include "state/checkpoint_store.h"

/* Opens the store. NULL after E0710. */
struct checkpoint_store *cluster_store_open(struct str url, struct diag_list *diags);
/* Looks whose the store is; makes nothing. *has_history: this cluster has begun with it before. Sets directory->before. False after a
 * diagnostic. */
LEAT_CHECKED bool cluster_store_look(struct checkpoint_store *store, struct cluster_directory *directory,
                                     bool *has_history);
/* The same before there is a store that is open; url: length 0: the job names none, and nothing is done. */
LEAT_CHECKED bool cluster_store_look_first(struct str url, struct cluster_directory *directory,
                                           bool *has_history);
/* Says whose it is, where nobody has, and looks again. False after a diagnostic. */
LEAT_CHECKED bool cluster_store_claim(struct checkpoint_store *store, struct cluster_directory *directory);
/* Appends the manifest with which a round begins: of the head, or, where there is none, of the run that was alone; nothing where there was
 * none. False after a diagnostic. */
LEAT_CHECKED bool cluster_store_head(struct checkpoint_store *store,
                                     const struct cluster_directory *directory,
                                     const struct cluster_head *head, struct byte_buffer *manifest);
/* Whether the parts of the manifest are in the store as this worker sees it; *unseen: whose is not. The coordinator's thread. */
LEAT_CHECKED bool cluster_store_has_parts(struct checkpoint_store *store, struct str manifest,
                                          uint32_t *unseen, struct diag_list *diags);
/* Whether a run did not begin because the store is not reached: then it begins when the store is back. */
bool cluster_store_is_away(const struct diag_list *diags);

#endif
