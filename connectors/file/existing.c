#include "connectors/file/existing.h"

#include <errno.h>
#include <stdio.h>
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

static bool remove_one(void *argument, const char *path)
{
    struct sink_context *context = argument;
    if (!existing_may_go(context, path))
        return false;
    int error = sink_check(context); /* asked after existing_may_go: a successor's file is never removed */
    if (error == 0 && (unlink(path) == 0 || (error = errno) == ENOENT))
        return true;
    context->error_code = DIAG_OUTPUT_FAILED;
    snprintf(context->error, sizeof(context->error), "`%s` cannot be removed: %s", path, strerror(error));
    return false;
}

bool existing_remove(struct sink_context *context, const char *pattern, bool overwrite)
{
    return names_walk(pattern, replaced(context, overwrite), remove_one, context);
}
