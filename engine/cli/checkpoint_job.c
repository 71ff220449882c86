#include "cli/checkpoint_job.h"

#include "cli/checkpoint_head.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "run/head.h"
#include "run/inspect.h"
#include "state/objects/objects.h"

#include "core/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

static const char *no_environment(void *argument, const char *name)
{
    (void)argument;
    (void)name;
    return NULL;
}

static int no_file(void *argument, const char *path, size_t max_bytes, char **data, size_t *bytes)
{
    (void)argument;
    (void)path;
    (void)max_bytes;
    *data = mem_strdup("");
    *bytes = 0;
    return 0;
}

static struct lang_settings settings_of(struct arena *arena, struct str lines)
{
    uint32_t count = 0;
    for (size_t i = 0; i < lines.length; i++)
        count += lines.data[i] == '\n';
    struct lang_setting *items = arena_array(arena, struct lang_setting, count);
    const char *at = lines.data;
    for (uint32_t i = 0; i < count; i++) {
        const char *end = memchr(at, '\n', (size_t)(lines.data + lines.length - at));
        const char *equals = memchr(at, '=', (size_t)(end - at));
        leat_assert(equals != NULL);
        items[i].name = (struct str){at, (size_t)(equals - at)};
        items[i].value = (struct str){equals + 1, (size_t)(end - equals - 1)};
        at = end + 1;
    }
    /* State does not depend on environment variables such as brokers, but a text in their place must parse
     * as an address. */
    return (struct lang_settings){.items = items,
                                  .count = count,
                                  .get_env = no_environment,
                                  .unset = "unknown:1",
                                  .read_file = no_file};
}

/* If job->directory is a job file, replaces it by the checkpoint directory of its job block. */
static bool resolve_job(struct checkpoint_job *job)
{
    struct stat status;
    if (stat(job->directory, &status) != 0 || !S_ISREG(status.st_mode))
        return true;
    struct job_load load = {.path = job->directory};
    bool is_good = job_load(&load);
    struct str directory = is_good ? load.plan->config.checkpoint.directory : (struct str){"", 0};
    const char *path = job->directory;
    if (directory.length > 0) {
        job->directory = arena_strndup(&job->arena, directory.data, directory.length);
    } else {
        struct diag *d =
            diag_error(&job->diags, DIAG_RESUME_OR_FRESH, (struct span){0},
                       is_good ? "the job in `%s` takes no checkpoints" : "the job in `%s` has errors", path);
        diag_hint(&job->diags, d,
                  is_good ? "name the checkpoint directory instead" : "`leat check %s` shows the errors",
                  path);
    }
    job_free(&load);
    return directory.length > 0;
}

bool checkpoint_named(const char *name, const char *directory, struct checkpoint_id *id,
                      struct diag_list *diags)
{
    if (checkpoint_id_parse(str_from(name), id))
        return true;
    struct diag *d =
        diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "`%s` is not the name of a checkpoint", name);
    diag_hint(diags, d, "`leat checkpoint list %s` shows their names, such as 3-17", directory);
    return false;
}

static bool choose(struct checkpoint_job *job, struct checkpoint_id *id)
{
    if (job->which != NULL)
        return checkpoint_named(job->which, job->directory, id, &job->diags);
    struct checkpoint_list found;
    if (!checkpoint_list(job->dir, &job->arena, &found, &job->diags))
        return false;
    if (found.count == 0)
        diag_error(&job->diags, DIAG_NO_CHECKPOINT, (struct span){0}, "there is no checkpoint in `%s`",
                   job->directory);
    else
        *id = found.items[0].id;
    return found.count > 0;
}

static bool make_plan(struct checkpoint_job *job)
{
    struct str text, lines;
    if (!model_job(job->checkpoint, &job->arena, &text, &lines, &job->diags))
        return false;
    struct lang_settings settings = settings_of(&job->arena, lines);
    struct job_file *file = lang_parse(&job->arena, &job->diags, &builtin_registry, text);
    struct plan_options options = {.registry = &builtin_registry};
    if (!lang_expand(file, &job->arena, &job->diags, &settings))
        return false;
    job->plan = plan_make(file, &options, &job->arena, &job->diags);
    return job->plan != NULL;
}

void checkpoint_job_init(struct checkpoint_job *job)
{
    diag_list_init(&job->diags, &job->arena);
}

bool checkpoint_job_open(struct checkpoint_job *job)
{
    struct stat status;
    if (objects_is_url(str_from(job->directory)) || run_head_is_file(job->directory)) {
        job->checkpoint = checkpoint_head_open(job->directory, job->which, &job->temporary, &job->diags);
        return job->checkpoint != NULL && make_plan(job);
    }
    if (!resolve_job(job))
        return false;
    if (stat(job->directory, &status) != 0) {
        diag_error(&job->diags, DIAG_FOREIGN_DIRECTORY, (struct span){0}, "there is no directory `%s`",
                   job->directory);
        return false;
    }
    struct checkpoint_dir_options options = {.path = job->directory, .read_only = true};
    struct checkpoint_id id;
    job->dir = checkpoint_dir_open(&options, &job->diags);
    if (job->dir == NULL || !choose(job, &id))
        return false;
    job->checkpoint = checkpoint_open(job->dir, id, &job->diags);
    return job->checkpoint != NULL && make_plan(job);
}

void checkpoint_job_close(struct checkpoint_job *job)
{
    checkpoint_close(job->checkpoint);
    checkpoint_dir_close(job->dir);
    temporary_directory_remove(&job->temporary);
    arena_free(&job->arena);
}
