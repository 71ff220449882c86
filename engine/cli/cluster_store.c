#include "cli/cluster_store.h"

#include "core/mem.h"
#include "run/head_store.h"
#include "state/checkpoint_store_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

enum { CLAIM_REST_S = 2 };

struct checkpoint_store *cluster_store_open(struct str url, struct diag_list *diags)
{
    const struct objects_options options = {.url = url};
    return checkpoint_store_open(&options, diags);
}

static bool refuse_name(const struct cluster_directory *directory, const char *found)
{
    struct diag *d = diag_error(directory->diags, DIAG_FOREIGN_DIRECTORY, (struct span){0},
                                "the store of checkpoints is of another cluster: expected `%.*s`, found `%s`",
                                STR_ARGS(directory->name), found);
    diag_hint(directory->diags, d, "go on with that cluster, or give this one a store of its own");
    return false;
}

/* The newest checkpoint of a run that was alone. False after a diagnostic. */
static bool find_alone(struct checkpoint_store *store, struct diag_list *diags, struct checkpoint_id *id)
{
    struct byte_buffer manifest = {0};
    struct run_head *head = mem_alloc(sizeof(*head));
    const char *why;
    enum objects_result found = run_head_alone_in_store(store, (struct checkpoint_id){0}, &manifest, diags);
    bool is_there =
        found == OBJECTS_DONE && run_head_decode((struct str){manifest.data, manifest.length}, head, &why);
    *id = is_there ? head->parts[0].id : (struct checkpoint_id){0};
    free(head);
    buffer_free(&manifest);
    return found != OBJECTS_FAILED;
}

/* A run that was alone here may have gone further than the store knows. False after a diagnostic. */
static bool check_alone(const struct cluster_directory *directory, struct checkpoint_id in_store)
{
    struct cluster_directory here = *directory;
    struct byte_buffer manifest = {0};
    struct run_head *head = mem_calloc(1, sizeof(*head));
    const char *why;
    bool is_there;
    bool is_good = cluster_directory_before(&here, &manifest, &is_there);
    if (is_good && is_there && run_head_decode((struct str){manifest.data, manifest.length}, head, &why) &&
        checkpoint_id_is_newer(head->parts[0].id, in_store)) {
        struct diag *d =
            diag_error(directory->diags, DIAG_STORE_FAILED, (struct span){0},
                       "the run that was alone has checkpoint %u-%" PRIu64
                       " in `%s`, and the store has none that is as new: workers would do the rest again",
                       head->parts[0].id.generation, head->parts[0].id.epoch, directory->path);
        diag_hint(
            directory->diags, d,
            "start the job once without --cluster, and end it with Ctrl-C: it copies its last checkpoint");
        is_good = false;
    }
    free(head);
    buffer_free(&manifest);
    return is_good;
}

bool cluster_store_look(struct checkpoint_store *store, struct cluster_directory *directory,
                        bool *has_history)
{
    struct checkpoint_store_cluster cluster;
    struct checkpoint_id alone;
    if (!checkpoint_store_read_cluster(store, &cluster, directory->diags))
        return false;
    *has_history = cluster.name[0] != '\0';
    directory->before = cluster.before;
    if (*has_history)
        return str_is(directory->name, cluster.name) || refuse_name(directory, cluster.name);
    if (!find_alone(store, directory->diags, &alone) || !check_alone(directory, alone))
        return false;
    directory->before = alone.generation;
    return true;
}

bool cluster_store_look_first(struct str url, struct cluster_directory *directory, bool *has_history)
{
    if (url.length == 0)
        return true;
    struct checkpoint_store *store = cluster_store_open(url, directory->diags);
    bool is_good = store != NULL && cluster_store_look(store, directory, has_history);
    checkpoint_store_close(store);
    return is_good;
}

/* Where the store knows no condition, two clusters may do it at one time, and the later one's record stays: whose that is shows when both have
 * done it. Between looking and writing lies less than a moment, unless a process was stopped there. */
static bool write_cluster(struct checkpoint_store *store, const struct checkpoint_store_cluster *cluster,
                          struct diag_list *diags)
{
    enum objects_new put = checkpoint_store_write_cluster(store, cluster, diags);
    if (put == OBJECTS_NEW_UNKNOWN)
        nanosleep(&(struct timespec){.tv_sec = CLAIM_REST_S}, NULL);
    return put != OBJECTS_NEW_FAILED;
}

bool cluster_store_claim(struct checkpoint_store *store, struct cluster_directory *directory)
{
    struct checkpoint_store_cluster cluster;
    if (!checkpoint_store_read_cluster(store, &cluster, directory->diags))
        return false;
    if (cluster.name[0] == '\0') {
        leat_assert(directory->name.length <= CHECKPOINT_CLUSTER_NAME_BYTES);
        memcpy(cluster.name, directory->name.data, directory->name.length);
        cluster.name[directory->name.length] = '\0';
        cluster.before = directory->before;
        memcpy(cluster.job, directory->job, sizeof(cluster.job));
        if (!write_cluster(store, &cluster, directory->diags) ||
            !checkpoint_store_read_cluster(store, &cluster, directory->diags))
            return false;
    }
    return (str_is(directory->name, cluster.name) && directory->before == cluster.before) ||
           refuse_name(directory, cluster.name);
}

static bool refuse_head(const struct cluster_directory *directory, const struct cluster_head *head,
                        const char *found)
{
    struct diag *d =
        diag_error(directory->diags, DIAG_STORE_DAMAGED, (struct span){0},
                   "the store does not have the head: etcd names `%.*s` of digest %.*s, found %s",
                   STR_ARGS(head->manifest), STR_ARGS(head->digest), found);
    diag_hint(
        directory->diags, d,
        "do all workers have the same AWS_ENDPOINT_URL? Else restore the store as it was; `leat checkpoint list` shows "
        "what is there");
    return false;
}

bool cluster_store_head(struct checkpoint_store *store, const struct cluster_directory *directory,
                        const struct cluster_head *head, struct byte_buffer *manifest)
{
    char name[RUN_HEAD_NAME_BYTES], digest[CLUSTER_DIGEST_TEXT];
    if (head->revision == 0)
        return run_head_alone_in_store(store, (struct checkpoint_id){0}, manifest, directory->diags) !=
               OBJECTS_FAILED;
    struct checkpoint_id id = {(uint32_t)head->incarnation + directory->before, head->epoch};
    run_head_name(id.generation, id.epoch, name);
    switch (checkpoint_store_get_manifest(store, id, manifest, directory->diags)) {
    case OBJECTS_FAILED: return false;
    case OBJECTS_MISSING: return refuse_head(directory, head, "nothing");
    case OBJECTS_DONE: break;
    }
    cluster_digest_text((struct str){manifest->data, manifest->length}, digest);
    return (str_is(head->manifest, name) && str_is(head->digest, digest)) ||
           refuse_head(directory, head, digest);
}

bool cluster_store_has_parts(struct checkpoint_store *store, struct str manifest, uint32_t *unseen,
                             struct diag_list *diags)
{
    const char *why;
    struct run_head *head = mem_alloc(sizeof(*head));
    enum objects_result found = run_head_decode(manifest, head, &why) ? OBJECTS_DONE : OBJECTS_FAILED;
    *unseen = RUN_WORKERS_MAX;
    for (uint32_t i = 0; found == OBJECTS_DONE && i < head->count; i++) {
        found = checkpoint_store_has_part(store, head->parts[i].directory, diags);
        if (found == OBJECTS_MISSING)
            *unseen = i;
    }
    free(head);
    return found == OBJECTS_DONE;
}

bool cluster_store_is_away(const struct diag_list *diags)
{
    bool is_away = diags->errors > 0;
    for (unsigned i = 0; i < diags->count; i++)
        is_away &= diags->items[i].severity != DIAG_ERROR || diags->items[i].code == DIAG_STORE_FAILED;
    return is_away;
}
