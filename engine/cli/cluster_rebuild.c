#include "cli/cluster_rebuild.h"

#include "cli/cluster_store.h"
#include "cli/run_cluster_job.h"
#include "core/hex.h"
#include "core/mem.h"
#include "core/os.h"
#include "run/head_store.h"
#include "state/checkpoint_store_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Incarnations that took no checkpoint leave no trace in a store: the next one is so far above those that do. */
enum { UNSEEN_INCARNATIONS = 1000 };

struct rebuild {
    const char *from;
    struct cluster_directory directory;
    struct byte_buffer manifest;
    struct run_head head;
    uint32_t newest; /* the highest generation that is known */
    struct arena arena;
    struct diag_list *diags;
};

static bool refuse_older(struct rebuild *r, struct checkpoint_id newest)
{
    struct diag *d = diag_error(r->diags, DIAG_NO_CHECKPOINT, (struct span){0},
                                "`%s` is not the newest head: there is one of incarnation %u, epoch %" PRIu64,
                                r->from, newest.generation, newest.epoch);
    diag_hint(r->diags, d, "rebuild from the newest one: sinks may have given away what it covers");
    return false;
}

static bool refuse_none(struct rebuild *r)
{
    struct diag *d = diag_error(r->diags, DIAG_NO_CHECKPOINT, (struct span){0},
                                "`%s` has no head of cluster `%.*s`", r->from, STR_ARGS(r->directory.name));
    diag_hint(
        r->diags, d,
        "where no head was ever made there is nothing to rebuild: remove the folder `cluster` of the checkpoint directory, or "
        "of the store, and start the workers");
    return false;
}

static struct checkpoint_id id_of(const struct rebuild *r)
{
    return (struct checkpoint_id){r->head.parts[0].id.generation, r->head.epoch};
}

/* Takes the newest head of the store, and what is known of the cluster there. False after a diagnostic. */
static bool read_store(struct rebuild *r)
{
    struct checkpoint_id named = {0}, newest;
    struct checkpoint_store_cluster cluster;
    size_t length = checkpoint_name_split(r->from, &named);
    struct checkpoint_store *store = cluster_store_open((struct str){r->from, length}, r->diags);
    bool has_history;
    bool is_good = store != NULL && cluster_store_look(store, &r->directory, &has_history) &&
                   checkpoint_store_read_cluster(store, &cluster, r->diags) &&
                   checkpoint_store_newest(store, &newest, r->diags);
    enum objects_result found =
        is_good ? run_head_in_store(store, named, &r->manifest, &r->head, r->diags) : OBJECTS_FAILED;
    if (found == OBJECTS_MISSING || (found == OBJECTS_DONE && !has_history))
        is_good = refuse_none(r);
    is_good = is_good && found == OBJECTS_DONE &&
              (!checkpoint_id_is_newer(newest, id_of(r)) || refuse_older(r, newest));
    if (is_good) {
        memcpy(r->directory.job, cluster.job, sizeof(cluster.job));
        r->newest = cluster.newest + UNSEEN_INCARNATIONS;
    }
    checkpoint_store_close(store);
    return is_good;
}

/* The same of the directory DIR/cluster/heads that has the file. */
static bool read_directory(struct rebuild *r)
{
    char *heads = os_directory(r->from), *folder = os_directory(heads), *path = os_directory(folder);
    struct checkpoint_id newest;
    bool has_history;
    r->directory.path = path;
    bool is_good = run_head_load(r->from, &r->manifest, &r->head, r->diags) &&
                   cluster_directory_look(&r->directory, &has_history) &&
                   ((has_history && cluster_directory_job(&r->directory)) || refuse_none(r));
    if (is_good) {
        cluster_directory_newest(&r->directory, &newest, &r->newest);
        is_good = !checkpoint_id_is_newer(newest, id_of(r)) || refuse_older(r, newest);
    }
    free(heads);
    free(folder);
    free(path);
    return is_good;
}

static bool write_record(struct rebuild *r, struct coordination *coordination)
{
    char run[2 * sizeof(struct run_id) + 1], name[RUN_HEAD_NAME_BYTES], digest[CLUSTER_DIGEST_TEXT];
    struct checkpoint_id id = id_of(r);
    uint64_t incarnation = MAX(r->newest, id.generation) - r->directory.before;
    hex_text(r->head.run.bytes, sizeof(r->head.run.bytes), run);
    run_head_name(id.generation, id.epoch, name);
    cluster_digest_text((struct str){r->manifest.data, r->manifest.length}, digest);
    const struct cluster_job job = {.digest = str_from(r->directory.job),
                                    .version = run_cluster_version(),
                                    .profile = STR("cpu"),
                                    .by = STR("leat cluster rebuild"),
                                    .run = str_from(run)};
    const struct cluster_head head = {.incarnation = id.generation - r->directory.before,
                                      .epoch = id.epoch,
                                      .manifest = str_from(name),
                                      .digest = str_from(digest)};
    if (coordination_rebuild(coordination, &job, &head, incarnation, r->diags) != ETCD_DONE)
        return false;
    printf("cluster %.*s: the record is there again, with the head %s; the next incarnation is %" PRIu64 "\n",
           STR_ARGS(r->directory.name), name, incarnation + 1);
    return true;
}

bool cluster_rebuild(struct coordination *coordination, struct str name, const char *from,
                     struct diag_list *diags)
{
    struct rebuild *r = mem_calloc(1, sizeof(*r));
    r->from = from;
    r->diags = diags;
    r->directory = (struct cluster_directory){.path = "", .name = name, .arena = &r->arena, .diags = diags};
    bool is_good = (objects_is_url(str_from(from)) ? read_store(r) : read_directory(r)) &&
                   (id_of(r).generation > r->directory.before || refuse_none(r)) &&
                   write_record(r, coordination);
    buffer_free(&r->manifest);
    arena_free(&r->arena);
    free(r);
    return is_good;
}
