#include "serve/loaded.h"

#include "core/mem.h"

#include <stdlib.h>
#include <unistd.h>

static struct checkpoint *find(const struct loaded_ask *ask, struct checkpoint_dir *dir, bool *is_none,
                               struct diag_list *diags)
{
    struct checkpoint *found = NULL;
    if (ask->id.generation != 0)
        found = checkpoint_open(dir, ask->id, diags);
    else
        *is_none = checkpoint_find(dir, &found, diags) == CHECKPOINT_NONE;
    if (found == NULL || str_is(checkpoint_info(found)->fingerprint, ask->plan->fingerprint))
        return found;
    struct diag *d = diag_error(diags, DIAG_OTHER_JOB, (struct span){0},
                                "the checkpoint is of another version of this job");
    diag_hint(diags, d, "use the job file and the --set of the run that took the checkpoint");
    checkpoint_close(found);
    return NULL;
}

static bool open_ways(struct loaded *loaded, const struct loaded_ask *ask, struct diag_list *diags)
{
    const struct plan *plan = ask->plan;
    loaded->ways_count = plan->serves_count;
    loaded->ways = mem_calloc(MAX(plan->serves_count, 1), sizeof(*loaded->ways));
    for (uint32_t i = 0; i < plan->serves_count; i++) {
        const struct plan_serve *serve = &plan->serves[i];
        if (ask->only != NULL && ask->only != serve)
            continue;
        loaded->ways[i] = way_open(plan, serve, loaded->checkpoint, ask->directory, diags);
        if (loaded->ways[i] == NULL)
            return false;
    }
    return true;
}

struct loaded *loaded_open(const struct loaded_ask *ask, bool *is_none, struct diag_list *diags)
{
    *is_none = access(ask->directory, F_OK) != 0;
    if (*is_none)
        return NULL;
    struct loaded *loaded = mem_calloc(1, sizeof(*loaded));
    struct checkpoint_dir_options options = {.path = ask->directory, .read_only = true};
    loaded->dir = checkpoint_dir_open(&options, diags);
    loaded->checkpoint = loaded->dir == NULL ? NULL : find(ask, loaded->dir, is_none, diags);
    if (loaded->checkpoint != NULL) {
        loaded->id = checkpoint_info(loaded->checkpoint)->id;
        loaded->created_us = checkpoint_info(loaded->checkpoint)->created_us;
        if (open_ways(loaded, ask, diags))
            return loaded;
    }
    loaded_close(loaded);
    return NULL;
}

void loaded_close(struct loaded *loaded)
{
    if (loaded == NULL)
        return;
    for (uint32_t i = 0; i < loaded->ways_count; i++)
        way_close(loaded->ways[i]);
    free(loaded->ways);
    checkpoint_close(loaded->checkpoint);
    checkpoint_dir_close(loaded->dir);
    free(loaded);
}

bool loaded_newest(const char *directory, struct checkpoint_id *id, struct diag_list *diags)
{
    *id = (struct checkpoint_id){0};
    if (access(directory, F_OK) != 0)
        return true;
    struct arena arena = {0};
    struct checkpoint_list list = {0};
    struct checkpoint_dir_options options = {.path = directory, .read_only = true};
    struct checkpoint_dir *dir = checkpoint_dir_open(&options, diags);
    bool is_good = dir != NULL && checkpoint_walk(dir, &arena, &list, diags);
    for (uint32_t i = list.count; is_good && i-- > 0;)
        if (!list.is_damaged[i])
            *id = list.items[i].id;
    checkpoint_dir_close(dir);
    arena_free(&arena);
    return is_good;
}
