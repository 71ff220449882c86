/* Savepoints that a run makes of itself: copies of its checkpoints in DIR/savepoints, which belongs to the run as all of its
 * checkpoint directory does. A copy shares nothing with the checkpoints, so that `keep` can drop those. */
#include "run/checkpoints/internal.h"

#include "core/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

bool run_savepoint_name_is_good(struct str name)
{
    bool is_good = name.length > 0 && name.length <= RUN_SAVEPOINT_NAME_MAX;
    for (size_t i = 0; i < name.length && is_good; i++) {
        char c = name.data[i];
        is_good = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    }
    return is_good;
}

static char *path_of(const struct run *run, const char *name)
{
    return mem_printf("%s/" CHECKPOINT_SAVEPOINTS "/%s", run->path, name);
}

bool run_has_savepoint(const struct run *run, const char *name)
{
    char *path = path_of(run, name);
    bool is_there = access(path, F_OK) == 0;
    free(path);
    return is_there;
}

/* The newest checkpoint whose manifest can be read; false after a diagnostic: there is none of that epoch or a later one. */
static bool find(struct checkpoint_dir *dir, uint64_t epoch, struct checkpoint_id *id,
                 struct diag_list *diags)
{
    struct arena arena = {0};
    struct checkpoint_list list = {0};
    bool is_listed = checkpoint_walk(dir, &arena, &list, diags);
    bool is_good = is_listed && list.count > 0 && !list.is_damaged[0] && list.items[0].id.epoch >= epoch;
    if (is_good)
        *id = list.items[0].id;
    else if (is_listed)
        diag_error(diags, DIAG_NO_CHECKPOINT, (struct span){0},
                   "the checkpoint %" PRIu64 " that was taken for the savepoint is damaged or gone", epoch);
    arena_free(&arena);
    return is_good;
}

static bool save_once(const struct run *run, struct checkpoint_dir *dir, uint64_t epoch, const char *name,
                      struct run_savepoint *saved, struct diag_list *diags)
{
    char own_name[RUN_SAVEPOINT_NAME_MAX];
    struct checkpoint_id id;
    if (!find(dir, epoch, &id, diags))
        return false;
    snprintf(own_name, sizeof(own_name), "%u-%" PRIu64, id.generation, id.epoch);
    char *path = path_of(run, name[0] == '\0' ? own_name : name);
    bool is_good = checkpoint_copy(dir, &id, path, &saved->bytes, diags);
    if (is_good) {
        saved->generation = id.generation;
        saved->epoch = id.epoch;
        saved->path = realpath(path, NULL);
        if (saved->path == NULL)
            saved->path = mem_strdup(path);
    }
    free(path);
    return is_good;
}

bool run_save(const struct run *run, uint64_t epoch, const char *name, struct run_savepoint *saved,
              struct diag_list *diags)
{
    if (run->options.peers != NULL) {
        struct diag *d =
            diag_error(diags, DIAG_OPTIONS_CLASH, (struct span){0},
                       "a worker of a cluster has a part of each checkpoint alone, and takes no savepoint");
        diag_hint(
            diags, d,
            "a new run begins with a checkpoint of all workers by the file of its head: --from %s/cluster/heads/head-...",
            run->job_path);
        *saved = (struct run_savepoint){0};
        return false;
    }
    enum { TRIES = 8 }; /* a run that keeps few checkpoints may drop one before the copy has opened it */
    struct checkpoint_dir_options options = {.path = run->path, .read_only = true};
    struct checkpoint_dir *dir = checkpoint_dir_open(&options, diags);
    bool is_good = false, is_gone = dir != NULL;
    *saved = (struct run_savepoint){0};
    for (int tries = 0; !is_good && is_gone && tries < TRIES; tries++) {
        diag_list_init(diags, diags->arena);
        is_good = save_once(run, dir, epoch, name, saved, diags);
        is_gone = diags->count > 0 && diags->items[0].code == DIAG_NO_CHECKPOINT;
    }
    checkpoint_dir_close(dir);
    return is_good;
}
