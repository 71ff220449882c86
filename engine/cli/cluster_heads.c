#include "cli/cluster_heads.h"

#include "cli/cluster_store.h"
#include "core/log.h"
#include "core/os.h"
#include "run/head.h"
#include "state/checkpoint_store_parts.h"

bool cluster_heads_read(const struct cluster_heads *heads, const struct cluster_head *head,
                        struct byte_buffer *manifest)
{
    return heads->store != NULL ? cluster_store_head(heads->store, heads->directory, head, manifest)
                                : cluster_directory_head(heads->directory, head, manifest);
}

bool cluster_heads_see_parts(struct cluster_heads *heads, struct str manifest, uint32_t *unseen,
                             struct diag_list *diags)
{
    *unseen = RUN_WORKERS_MAX;
    heads->has_seen_parts =
        heads->has_seen_parts ||
        (heads->store != NULL ? cluster_store_has_parts(heads->store, manifest, unseen, diags)
                              : cluster_directory_has_parts(manifest, unseen, diags));
    return heads->has_seen_parts;
}

void cluster_heads_refuse_unseen(const struct cluster_heads *heads, uint32_t worker, struct str address,
                                 struct str store, struct diag_list *diags)
{
    struct diag *d = diag_error(
        diags, DIAG_FOREIGN_DIRECTORY, (struct span){0},
        "the checkpoint of worker %u, at %.*s, is not in `%.*s` as this worker sees it", worker,
        STR_ARGS(address), STR_ARGS(heads->store != NULL ? store : str_from(heads->directory->folder)));
    diag_hint(
        diags, d, "%s",
        heads->store != NULL
            ? "all workers need the same store: compare AWS_ENDPOINT_URL, and where `file:` leads"
            : "`dir` of `checkpoint` must be one directory that all workers see under the same path, unless the "
              "job names a `store`");
}

bool cluster_heads_write(const struct cluster_heads *heads, struct checkpoint_id id, struct str manifest,
                         struct diag_list *diags)
{
    if (heads->store == NULL)
        return run_head_write(heads->directory->heads, id.generation, id.epoch, manifest, diags);
    return failpoint("head.put") == 0 && checkpoint_store_put_manifest(heads->store, id, manifest, diags);
}
