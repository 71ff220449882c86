#include "connectors/file/existing.h"

#include "core/mem.h"
#include "core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The kinds of files that a new run may remove, as NAMES_... bits: with `overwrite`, or after an earlier life
 * of the same run without checkpoints, all kinds; after an earlier life that ended before its first
 * checkpoint, the files without their final names. */
static unsigned replaced(const struct sink_context *context, bool overwrite)
{
    return overwrite || context->replaces_all ? NAMES_FINAL | NAMES_PART | NAMES_COPY
           : context->replaces_parts          ? NAMES_PART | NAMES_COPY
                                              : 0;
}

/* The first file that is in the way, and why it may not be replaced. */
struct obstacle {
    const struct sink_context *context;
    const char *refusal;
    enum diag_code code; /* of the refusal */
    char path[4096];
};

static bool note_any(void *argument, const char *path)
{
    struct obstacle *obstacle = argument;
    snprintf(obstacle->path, sizeof(obstacle->path), "%s", path);
    return false;
}

static bool note_refused(void *argument, const char *path)
{
    struct obstacle *obstacle = argument;
    obstacle->refusal = claims_refuse(obstacle->context->claims, path, &obstacle->code);
    return obstacle->refusal == NULL || note_any(obstacle, path);
}

static bool report_existing(const struct obstacle *obstacle)
{
    const struct sink_context *context = obstacle->context;
    size_t length = strlen(obstacle->path);
    bool is_part = length > 5 && strcmp(obstacle->path + length - 5, ".part") == 0;
    struct diag *d = diag_error(context->diags, DIAG_OUTPUT_EXISTS, context->span,
                                "the output `%s` exists already", obstacle->path);
    diag_hint(
        context->diags, d, "%s",
        !is_part ? "move the file away, choose another `path`, or say `overwrite: true`"
        : context->has_checkpoints
            ? "an earlier run did not end: continue the run with --resume, move the file away, or "
              "say `overwrite: true`"
            : "an earlier run did not end, and cannot be resumed without `checkpoint:`: move the file away, "
              "or say `overwrite: true`");
    return false;
}

bool existing_check(const struct sink_context *context, const char *pattern, bool overwrite)
{
    struct obstacle obstacle = {.context = context};
    unsigned gone = replaced(context, overwrite);
    if (!names_walk(pattern, NAMES_FINAL | NAMES_PART | gone, note_refused, &obstacle)) {
        struct diag *d =
            diag_error(context->diags, obstacle.code, context->span,
                       "the output `%s` cannot be replaced: it %s", obstacle.path, obstacle.refusal);
        diag_hint(context->diags, d, "choose another `path`");
        return false;
    }
    return names_walk(pattern, (NAMES_FINAL | NAMES_PART) & ~gone, note_any, &obstacle) ||
           report_existing(&obstacle);
}

bool existing_may_go(struct sink_context *context, const char *path)
{
    enum diag_code code;
    const char *refusal = claims_refuse(context->claims, path, &code);
    if (refusal == NULL)
        return true;
    context->error_code = code;
    snprintf(context->error, sizeof(context->error), "`%s` cannot be replaced: it %s", path, refusal);
    return false;
}

static bool cannot_remove(struct sink_context *context, const char *path, int error)
{
    context->error_code = DIAG_OUTPUT_FAILED;
    snprintf(context->error, sizeof(context->error), "`%s` cannot be removed: %s", path, strerror(error));
    return false;
}

/* Removes a file that was `seen` before sink_check was asked. A process that was replaced since must not remove what its successor has
 * made under that name: so the file gets another name first, of this life, and gets its own back where it is not the one that was seen. */
static int remove_seen(const struct sink_context *context, const char *path, const struct stat *seen)
{
    static const char part[] = ".part";
    struct stat now;
    size_t length = strlen(path), cut = sizeof(part) - 1;
    bool is_part = length > cut && strcmp(path + length - cut, part) == 0;
    char *name = mem_str((struct str){path, is_part ? length - cut : length}),
         *aside = names_copy(name, context->life);
    free(name);
    int error = os_rename_new(path, aside, NULL);
    bool is_other =
        error == 0 && lstat(aside, &now) == 0 && (now.st_dev != seen->st_dev || now.st_ino != seen->st_ino);
    if (is_other)
        error = os_rename_new(aside, path, NULL) == 0 ? ESTALE : errno;
    else if (error == 0 && unlink(aside) != 0)
        error = errno;
    free(aside);
    return error;
}

static bool remove_one(void *argument, const char *path)
{
    struct sink_context *context = argument;
    struct stat seen;
    if (!existing_may_go(context, path))
        return false;
    int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC); /* so that no other file gets its inode */
    if (fd < 0)
        return errno == ENOENT || cannot_remove(context, path, errno);
    int error = fstat(fd, &seen) != 0 ? errno : sink_check(context);
    if (error == 0)
        error = remove_seen(context, path, &seen);
    close(fd);
    return error == 0 || error == ENOENT || cannot_remove(context, path, error);
}

/* A copy is of an earlier life (names_forget_earlier), or of a run before this one. */
static bool remove_copy(void *argument, const char *path)
{
    if (sink_check(argument) == 0 && existing_may_go(argument, path))
        (void)unlink(path);
    return true;
}

bool existing_remove(struct sink_context *context, const char *pattern, bool overwrite)
{
    unsigned which = replaced(context, overwrite);
    if ((which & NAMES_COPY) != 0)
        (void)names_walk(pattern, NAMES_COPY, remove_copy, context);
    return names_walk(pattern, which & ~(unsigned)NAMES_COPY, remove_one, context);
}
