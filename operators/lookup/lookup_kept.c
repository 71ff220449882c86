#include "operators/lookup/lookup_kept.h"

#include "core/mem.h"
#include "core/operator_history.h"
#include "core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { COPY_BYTES = 1 << 20 };

const char *lookup_path(struct arena *arena, const char *directory, const char *name)
{
    return arena_printf(arena, "%s/%s", directory, name);
}

/* Loads a table from the copy at `path`. The bound source is not changed: there may be several copies. */
static struct lookup_table *load(const struct lookup_kept *kept, const char *path, struct arena *arena,
                                 struct diag_list *diags)
{
    char *config = arena_copy(arena, kept->source->config, kept->source->kind->size);
    struct texts texts = {.items = arena_new(arena, struct str), .count = 1};
    *texts.items = str_from(path);
    memcpy(config + option_find(kept->source->kind->options, STR("path")).offset, &texts, sizeof(texts));
    return lookup_table_load(kept->source, config, kept->pool, diags);
}

struct lookup_signature lookup_signature_of(const struct stat *info)
{
    return (struct lookup_signature){.device = info->st_dev,
                                     .inode = info->st_ino,
                                     .bytes = info->st_size,
                                     .modified_s = info->st_mtim.tv_sec,
                                     .modified_ns = info->st_mtim.tv_nsec};
}

bool lookup_is_same(const struct lookup_signature *a, const struct lookup_signature *b)
{
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes &&
           a->modified_s == b->modified_s && a->modified_ns == b->modified_ns;
}

static int copy_bytes(int from, int to)
{
    char *bytes = mem_alloc(COPY_BYTES);
    size_t got = 1;
    int error = 0;
    while (error == 0 && got > 0) {
        error = os_read_all(from, bytes, COPY_BYTES, &got);
        if (error == 0 && got > 0)
            error = os_write_all(to, bytes, got, "sink.write");
    }
    free(bytes);
    return error == 0 ? os_fsync(to, "sink.fsync") : error;
}

void lookup_cannot(const struct lookup_source *source, struct diag_list *diags, int error, const char *what)
{
    bool is_full = error == ENOSPC || error == EDQUOT;
    struct diag *d = diag_error(diags,
                                is_full           ? DIAG_DISK_FULL
                                : error == ENOENT ? DIAG_NO_FILE
                                                  : DIAG_FILE_UNREADABLE,
                                source->span, "`%s` cannot be %s", source->path, what);
    diag_errno(diags, d, error);
}

/* Copies the file as it is now to *path, in the directory kept->next. False after a diagnostic. */
static bool copy_file(const struct lookup_kept *kept, struct arena *arena, const char **path,
                      struct lookup_signature *signature, struct diag_list *diags)
{
    struct stat before, after;
    const char *directory = lookup_path(arena, kept->directory, kept->next);
    *path = lookup_path(arena, directory, kept->base);
    int from = open(kept->source->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int error = from < 0 || fstat(from, &before) != 0 ? errno : 0, to = -1;
    bool is_file = error == 0 && S_ISREG(before.st_mode), is_read = error == 0;
    if (error == 0 && !is_file)
        error = EINVAL;
    if (error == 0)
        error = os_remove_tree(directory);
    if (error == 0 || error == ENOENT)
        error = is_file ? os_mkdirs(directory) : error;
    if (error == 0)
        to = open(*path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (error == 0)
        error = to < 0 ? errno : copy_bytes(from, to);
    if (error == 0)
        error = fstat(from, &after) != 0 ? errno : os_fsync_directory(directory, NULL);
    if (from >= 0)
        close(from);
    if (to >= 0)
        close(to);
    if (error != 0) {
        lookup_cannot(kept->source, diags, error, is_read ? "copied beside the checkpoints" : "read");
        return false;
    }
    struct lookup_signature then = lookup_signature_of(&before), now = lookup_signature_of(&after);
    *signature = now;
    if (lookup_is_same(&then, &now))
        return true;
    struct diag *d = diag_error(diags, DIAG_FILE_CHANGED, kept->source->span,
                                "`%s` was written to while it was read", kept->source->path);
    diag_hint(diags, d, "write the new table under another name, then rename it to this one");
    return false;
}

/* Moves the copy to the directory of its digest, where it may replace a copy with the same content. */
static bool keep_copy(const struct lookup_kept *kept, const char *path, const char *digest,
                      struct arena *arena, struct diag_list *diags)
{
    const char *to = lookup_path(arena, kept->directory, digest);
    int error = operator_check(kept->context);
    if (error == 0)
        error = os_mkdirs(to);
    if (error == 0)
        error = os_rename(path, lookup_path(arena, to, kept->base), "sink.rename");
    if (error == 0)
        error = os_fsync_directory(to, NULL);
    if (error == 0)
        error = os_fsync_directory(kept->directory, NULL);
    if (error != 0)
        lookup_cannot(kept->source, diags, error, "kept beside the checkpoints");
    return error == 0;
}

struct lookup_table *lookup_kept_file(const struct lookup_kept *kept, struct lookup_signature *signature,
                                      bool *is_refused, struct diag_list *diags)
{
    struct arena arena = {0};
    const char *path;
    struct lookup_table *table = NULL;
    *is_refused = false;
    if (copy_file(kept, &arena, &path, signature, diags)) {
        table = load(kept, path, &arena, diags);
        *is_refused = table == NULL;
    }
    if (table != NULL && !keep_copy(kept, path, lookup_table_digest(table), &arena, diags)) {
        lookup_table_free(table);
        table = NULL;
    }
    os_remove_tree(lookup_path(&arena, kept->directory, kept->next));
    arena_free(&arena);
    return table;
}

struct lookup_table *lookup_kept_take(const struct lookup_kept *kept, const char *directory,
                                      const char *digest, struct diag_list *diags)
{
    struct arena arena = {0};
    struct lookup_table *table = NULL;
    const char *path = lookup_path(&arena, lookup_path(&arena, directory, digest), kept->base);
    if (access(path, F_OK) == 0)
        table = load(kept, path, &arena, diags);
    arena_free(&arena);
    if (table == NULL || strcmp(lookup_table_digest(table), digest) == 0)
        return table;
    lookup_table_free(table);
    return NULL;
}
