/* What the workers of a cluster keep in a folder `cluster` of the job's checkpoint directory, which all of them must see, unless the job
 * names a store: then the directory is each worker's own, and heads are in the store (cluster_store.h).
 *
 *     NAME           the cluster's: no other one may go on with what is here; a run that is alone refuses a directory with `cluster`
 *     JOB            the job's digest
 *     BEFORE         generation of the run that was alone before; 0: none
 *     incarnation-I  incarnation I has begun: a run of an earlier one may do nothing more that others see
 *     worker-N       checkpoints of worker N
 *     heads          manifests of checkpoints (run/head.h); etcd says which one is the head
 *
 * Control thread, but where a comment says otherwise. */
#ifndef LEAT_CLI_CLUSTER_DIRECTORY_H
#define LEAT_CLI_CLUSTER_DIRECTORY_H

#include "cluster/coordination.h"
#include "core/buffer.h"
#include "core/diag.h"
#include "state/checkpoint.h"

/* The caller sets path (the checkpoint directory), name, arena and diags, which live as long. */
struct cluster_directory {
    const char *path;
    struct str name; /* of the cluster */
    bool is_own;     /* this worker's alone: heads and parts are in a store (cluster_store.h) */
    char job[2 * 16 +
             1]; /* digest of the job, as hex digits (run_cluster_digest); kept for `leat cluster rebuild` */
    struct arena *arena;
    struct diag_list *diags;
    const char *folder, *heads; /* path/cluster, path/cluster/heads */
    uint32_t before;            /* generation of the run that was alone: incarnations count from there on */
};

enum { CLUSTER_DIGEST_TEXT = 2 * 16 + 1 };
/* The digest of a manifest, as etcd has it. Any thread. */
void cluster_digest_text(struct str bytes, char text[CLUSTER_DIGEST_TEXT]);

/* Looks whose the directory is; makes nothing. *has_history: this cluster has begun here before. False after a diagnostic. */
LEAT_CHECKED bool cluster_directory_look(struct cluster_directory *directory, bool *has_history);
/* After cluster_directory_look: sets directory->job to what was claimed with. False: nothing was. */
LEAT_CHECKED bool cluster_directory_job(struct cluster_directory *directory);
/* After cluster_directory_look: the newest manifest, of generation 0 where there is none, and the highest generation that a file tells of. */
void cluster_directory_newest(const struct cluster_directory *directory, struct checkpoint_id *head,
                              uint32_t *generation);
/* Makes what is missing, and looks again whose it is. False after a diagnostic. */
LEAT_CHECKED bool cluster_directory_claim(struct cluster_directory *directory);
/* Appends the manifest of the run that was alone here. *is_there: there is a checkpoint of one. False after a diagnostic. */
LEAT_CHECKED bool cluster_directory_before(struct cluster_directory *directory, struct byte_buffer *manifest,
                                           bool *is_there);
/* Appends the manifest with which a round begins: of the head, or, where there is none, of the run that was alone; nothing where there was
 * none. False after a diagnostic. */
LEAT_CHECKED bool cluster_directory_head(struct cluster_directory *directory, const struct cluster_head *head,
                                         struct byte_buffer *manifest);
/* Whether this worker sees the parts of the manifest; *unseen: whose it does not see. The coordinator's thread. */
LEAT_CHECKED bool cluster_directory_has_parts(struct str manifest, uint32_t *unseen, struct diag_list *diags);
/* Says to runs of earlier incarnations, which may sleep, that this one begins, before it touches what they wrote; and removes what said so
 * of earlier ones. False after a diagnostic. */
LEAT_CHECKED bool cluster_directory_announce(struct cluster_directory *directory, uint32_t incarnation);
/* Whether a later incarnation has begun. What cannot be read is not known: false. Any thread. */
bool cluster_directory_is_replaced(const struct cluster_directory *directory, uint32_t incarnation);

#endif
