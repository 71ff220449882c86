/* What the workers of a cluster keep in a folder `cluster` of the job's checkpoint directory, which all of them must see:
 *
 *     NAME           the cluster's: no other one may go on with what is here; a run that is alone refuses a directory with `cluster`
 *     BEFORE         generation of the run that was alone before; 0: none
 *     incarnation-I  incarnation I has begun: a run of an earlier one may do nothing more that others see
 *     worker-N       checkpoints of worker N
 *     heads          manifests of checkpoints (run/head.h); etcd says which one is the head
 *
 * Control thread, but where a comment says otherwise. */
#ifndef LEAT_CLI_CLUSTER_DIRECTORY_H
#define LEAT_CLI_CLUSTER_DIRECTORY_H

#include "core/buffer.h"
#include "core/diag.h"

/* The caller sets path (the checkpoint directory), name, arena and diags, which live as long. */
struct cluster_directory {
    const char *path;
    struct str name; /* of the cluster */
    struct arena *arena;
    struct diag_list *diags;
    const char *folder, *heads; /* path/cluster, path/cluster/heads */
    uint32_t before;            /* generation of the run that was alone: incarnations count from there on */
};

/* Looks whose the directory is; makes nothing. *has_history: this cluster has begun here before. False after a diagnostic. */
LEAT_CHECKED bool cluster_directory_look(struct cluster_directory *directory, bool *has_history);
/* Makes what is missing, and looks again whose it is. False after a diagnostic. */
LEAT_CHECKED bool cluster_directory_claim(struct cluster_directory *directory);
/* Appends the manifest of the run that was alone here. *is_there: there is a checkpoint of one. False after a diagnostic. */
LEAT_CHECKED bool cluster_directory_before(struct cluster_directory *directory, struct byte_buffer *manifest,
                                           bool *is_there);
/* Says to runs of earlier incarnations, which may sleep, that this one begins, before it touches what they wrote; and removes what said so
 * of earlier ones. False after a diagnostic. */
LEAT_CHECKED bool cluster_directory_announce(struct cluster_directory *directory, uint32_t incarnation);
/* Whether a later incarnation has begun. What cannot be read is not known: false. Any thread. */
bool cluster_directory_is_replaced(const struct cluster_directory *directory, uint32_t incarnation);

#endif
