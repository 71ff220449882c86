/* Copies one checkpoint, with the earlier checkpoints of its chain, into a new checkpoint directory: makes a
 * savepoint, or turns a savepoint into a checkpoint directory.
 *
 * All files are opened before the first byte is copied, so that a running job may remove the checkpoint
 * during the copy. Each MiB read is compared with its digest. The copy is written to TO.tmp, and renamed
 * to TO when it is complete and on disk. */
#include "state/checkpoint_files.h"

#include "core/mem.h"
#include "core/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { TRIES = 8 }; /* most tries to open the newest checkpoint while a running job removes checkpoints */

struct copying {
    struct checkpoint_dir *dir;     /* the directory to copy from */
    struct checkpoint *chain;       /* the checkpoint being copied; NULL: none is open */
    struct open_files files;        /* of all its manifests, base first */
    char *chunk;                    /* buffer of CHECKPOINT_CHUNK_BYTES */
    char temporary[PATH_BYTES + 8]; /* "TO.tmp" */
    uint64_t bytes;                 /* copied from the files so far */
    struct diag_list *diags;
};

/* --- Reading --- */

/* Whether the checkpoint has been removed from the disk. */
static bool is_gone(const struct checkpoint_dir *dir, struct checkpoint_id id)
{
    char path[PATH_BYTES];
    path_checkpoint(dir, id, path);
    return access(path, F_OK) != 0 && errno == ENOENT;
}

static void close_files(struct copying *c)
{
    files_close(&c->files);
    checkpoint_close(c->chain);
    c->chain = NULL;
}

/* --- Writing --- */

static bool cannot_write(struct copying *c, const char *path, int error)
{
    struct diag *diag =
        diag_error(c->diags, DIAG_CHECKPOINT_FAILED, (struct span){0, 0}, "the copy cannot be written");
    diag_errno(c->diags, diag, error);
    diag_at(c->diags, diag, path, -1, -1);
    diag_hint(c->diags, diag, "free some disk space, check that this user may write there, then copy again");
    return false;
}

static bool damaged(struct copying *c, const struct manifest_file *file, uint64_t offset)
{
    struct diag *diag = diag_error(c->diags, DIAG_CHECKPOINT_DAMAGED, (struct span){0, 0},
                                   "the MiB at this offset does not match its digest");
    char *path = arena_printf(c->diags->arena, "%.*s", STR_ARGS(file->path));
    diag_at(c->diags, diag, path, (int64_t)offset, -1);
    return false;
}

/* Copies descriptor `in` to descriptor `out`, compares each chunk with its digest in the manifest, and
 * fsyncs. path: of the new file, for messages. Returns false after a diagnostic. */
static bool copy_bytes(struct copying *c, int in, int out, const struct manifest_file *file, const char *path)
{
    for (uint64_t at = 0; at < file->bytes; at += CHECKPOINT_CHUNK_BYTES) {
        size_t want = (size_t)MIN(file->bytes - at, (uint64_t)CHECKPOINT_CHUNK_BYTES), got = 0;
        int error = os_pread_all(in, c->chunk, want, at, &got);
        if (error != 0)
            return file_unreadable(path, error, c->diags);
        XXH128_canonical_t canonical;
        XXH128_canonicalFromHash(&canonical, XXH3_128bits(c->chunk, got));
        const uint8_t *digest = file->digests + at / CHECKPOINT_CHUNK_BYTES * DIGEST_BYTES;
        if (got != want || memcmp(canonical.digest, digest, DIGEST_BYTES) != 0)
            return damaged(c, file, at);
        error = os_write_all(out, c->chunk, got, "ckpt.write");
        if (error != 0)
            return cannot_write(c, path, error);
        c->bytes += got;
    }
    int error = os_fsync(out, "ckpt.fsync");
    return error == 0 || cannot_write(c, path, error);
}

/* Copies descriptor `in` to the new file directory/file->path. Returns false after a diagnostic. */
static bool copy_one(struct copying *c, int in, const char *directory, const struct manifest_file *file)
{
    char path[PATH_BYTES * 2];
    snprintf(path, sizeof(path), "%s/%.*s", directory, STR_ARGS(file->path));
    char *slash = strrchr(path, '/');
    *slash = '\0';
    int error = os_mkdirs(path);
    *slash = '/';
    int out = error == 0 ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
    if (out < 0)
        return cannot_write(c, path, error != 0 ? error : errno);
    bool is_good = copy_bytes(c, in, out, file, path);
    close(out);
    return is_good;
}

/* Writes the new file directory/name, a MANIFEST or GENERATION, and fsyncs it. Returns false after a
 * diagnostic. */
static bool write_text(struct copying *c, const char *directory, const char *name,
                       const struct byte_buffer *text)
{
    char path[PATH_BYTES * 2];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int error = fd < 0 ? errno : os_write_all(fd, text->data, text->length, "ckpt.manifest");
    if (error == 0)
        error = os_fsync(fd, "ckpt.fsync");
    if (fd >= 0)
        close(fd);
    return error == 0 || cannot_write(c, path, error);
}

static bool sync_directory(struct copying *c, const char *path)
{
    int error = os_fsync_directory(path, "ckpt.fsync_directory");
    return error == 0 || cannot_write(c, path, error);
}

/* Copies one checkpoint of the chain into the directory `generation`. files: descriptors of the manifest's
 * files. */
static bool copy_link(struct copying *c, const struct manifest *manifest, const int *files,
                      const char *generation)
{
    char directory[PATH_BYTES + 64], database[PATH_BYTES + 80], name[DATABASE_NAME_BYTES];
    snprintf(directory, sizeof(directory), "%.*s/ckpt-%012llu", PATH_BYTES, generation,
             (unsigned long long)manifest->info.id.epoch);
    int error = os_mkdirs(directory);
    bool is_good = error == 0 || cannot_write(c, directory, error);
    for (uint32_t i = 0; is_good && i < manifest->files_count; i++)
        is_good = copy_one(c, files[i], directory, &manifest->files[i]);
    struct byte_buffer text = {0};
    manifest_encode(manifest, &text);
    is_good = is_good && write_text(c, directory, "MANIFEST", &text);
    buffer_free(&text);
    for (uint32_t i = 0; is_good && i < manifest->info.databases; i++) {
        database_name(i, name);
        snprintf(database, sizeof(database), "%s/%s", directory, name);
        is_good = access(database, F_OK) != 0 || sync_directory(c, database);
    }
    return is_good && sync_directory(c, directory);
}

/* Writes all checkpoints of the chain into the new checkpoint directory c->temporary, as one generation
 * without a parent. The generation has the number and the run of the copied checkpoint. */
static bool copy_chain(struct copying *c)
{
    const struct checkpoint_info *info = checkpoint_info(c->chain);
    struct generation own = {.generation = info->id.generation, .run = info->run};
    char generation[PATH_BYTES + 32];
    int error = os_remove_tree(c->temporary);
    snprintf(generation, sizeof(generation), "%s/gen-%06u", c->temporary, own.generation);
    if (error == 0)
        error = os_mkdirs(generation);
    if (error != 0)
        return cannot_write(c, generation, error);
    struct byte_buffer text = {0};
    generation_encode(&own, &text);
    bool is_good = write_text(c, generation, "GENERATION", &text);
    buffer_free(&text);
    const int *files = c->files.fds;
    for (uint32_t link = 0; is_good && link < c->chain->count; link++) {
        is_good = copy_link(c, &c->chain->chain[link], files, generation);
        files += c->chain->chain[link].files_count;
    }
    return is_good && sync_directory(c, generation) && sync_directory(c, c->temporary);
}

/* --- The target --- */

static bool refuse_target(struct copying *c, const char *to, const char *why, const char *hint)
{
    struct diag *diag = diag_error(c->diags, DIAG_FOREIGN_DIRECTORY, (struct span){0, 0}, "`%s` %s", to, why);
    diag_hint(c->diags, diag, "%s", hint);
    return false;
}

/* Removes the LOCK of a checkpoint directory that holds nothing else. Returns false after E0706 if a process
 * holds the lock. */
static bool take_lock_away(struct copying *c, const char *to)
{
    char path[PATH_BYTES + 8];
    snprintf(path, sizeof(path), "%s/LOCK", to);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    bool is_free = fd >= 0 && os_lock(fd);
    if (is_free)
        (void)unlink(path);
    if (fd >= 0)
        close(fd);
    if (is_free)
        return true;
    struct diag *diag =
        diag_error(c->diags, DIAG_DIRECTORY_IN_USE, (struct span){0, 0}, "%s is used by another process", to);
    diag_hint(c->diags, diag, "stop that process, or copy to another directory");
    return false;
}

static bool is_free_target(struct copying *c, const char *to)
{
    DIR *stream = opendir(to);
    if (stream == NULL && errno == ENOENT)
        return true;
    if (stream == NULL)
        return refuse_target(c, to, "exists, and is no directory", "name a directory that does not exist");
    bool has_lock = false, has_more = false;
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        bool is_own = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        bool is_lock = strcmp(entry->d_name, "LOCK") == 0;
        has_lock |= is_lock;
        has_more |= !is_own && !is_lock;
    }
    closedir(stream);
    if (has_more)
        return refuse_target(c, to, "is not empty: its files could be mistaken for those of the copy",
                             "name another directory, or move these files away");
    return !has_lock || take_lock_away(c, to);
}

/* Makes the parent directory of `to`, if it is missing. Returns its real path, which the caller frees;
 * NULL, and *error is set: it cannot be made. */
static char *parent_of(const char *to, int *error)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s", to);
    char *slash = strrchr(path, '/');
    if (slash != NULL)
        *(slash == path ? slash + 1 : slash) = '\0';
    *error = slash == NULL ? 0 : os_mkdirs(path);
    char *parent = *error == 0 ? realpath(slash == NULL ? "." : path, NULL) : NULL;
    if (*error == 0 && parent == NULL)
        *error = errno;
    return parent;
}

static bool check_target(struct copying *c, const char *to)
{
    if (strlen(to) > PATH_BYTES / 2)
        return refuse_target(c, to, "is too long a path", "name a shorter path");
    int error;
    char *parent = parent_of(to, &error), *own = realpath(c->dir->path, NULL);
    size_t length = own == NULL ? 0 : strlen(own);
    bool is_inside = parent != NULL && own != NULL && strncmp(parent, own, length) == 0 &&
                     (parent[length] == '/' || parent[length] == '\0') &&
                     strcmp(parent + length, "/" CHECKPOINT_SAVEPOINTS) != 0;
    free(parent);
    free(own);
    if (error != 0)
        return cannot_write(c, to, error);
    if (is_inside)
        return refuse_target(c, to, "lies within the directory that is copied",
                             "name a directory outside of it, or one in its folder `" CHECKPOINT_SAVEPOINTS
                             "`");
    return is_free_target(c, to);
}

static bool give_name(struct copying *c, const char *to)
{
    int error = os_rename(c->temporary, to, "ckpt.rename");
    if (error != 0)
        return cannot_write(c, to, error);
    char *parent = parent_of(to, &error);
    if (error == 0)
        error = os_fsync_directory(parent, "ckpt.fsync_parent");
    free(parent);
    return error == 0 || cannot_write(c, to, error);
}

/* --- Choosing the checkpoint --- */

enum copied { COPIED, COPY_GONE, COPY_FAILED };

/* Copies checkpoint `id` to c->temporary; its diagnostics go to `said`. COPY_GONE: a running job removed the
 * checkpoint before all its files were open. */
static enum copied copy_id(struct copying *c, struct checkpoint_id id, struct diag_list *said)
{
    enum decode_result result;
    struct diag_list *diags = c->diags;
    c->diags = said;
    c->bytes = 0;
    c->chain = chain_open(c->dir, id, false, &result, said);
    bool is_open = c->chain != NULL && files_open(c->chain, &c->files, said);
    bool is_good = is_open && copy_chain(c);
    bool went = !is_open && is_gone(c->dir, id);
    close_files(c);
    c->diags = diags;
    return is_good ? COPIED : went ? COPY_GONE : COPY_FAILED;
}

/* Repeats the errors in `said`, about a checkpoint that is skipped, as warnings. */
static void warn(struct copying *c, const struct diag_list *said)
{
    for (unsigned i = 0; i < said->count; i++) {
        const struct diag *d = &said->items[i];
        struct diag *warning =
            diag_warning(c->diags, d->code, (struct span){0, 0}, "checkpoint skipped: %s", d->message);
        warning->path = d->path, warning->offset = d->offset, warning->cause = d->cause;
    }
}

/* Whether all diagnostics are about the checkpoint being copied (E0702), and none about the new directory. */
static bool is_of_source(const struct diag_list *said)
{
    bool is_source = said->errors > 0;
    for (unsigned i = 0; i < said->count; i++)
        is_source &= said->items[i].code == DIAG_CHECKPOINT_DAMAGED;
    return is_source;
}

static void say_all(struct copying *c, const struct diag_list *said)
{
    for (unsigned i = 0; i < said->count; i++) {
        const struct diag *d = &said->items[i];
        struct diag *copy = diag_error(c->diags, d->code, d->span, "%s", d->message);
        copy->hint = d->hint, copy->cause = d->cause;
        copy->path = d->path, copy->offset = d->offset;
    }
}

static bool none_left(struct copying *c, uint32_t count)
{
    struct diag *diag = count == 0 ? diag_error(c->diags, DIAG_NO_CHECKPOINT, (struct span){0, 0},
                                                "there is no checkpoint in `%s`", c->dir->path)
                                   : diag_error(c->diags, DIAG_NO_CHECKPOINT, (struct span){0, 0},
                                                "%s contains %u checkpoints, and all of them are damaged",
                                                c->dir->path, count);
    diag_hint(c->diags, diag,
              count == 0 ? "name the directory that `checkpoint: { dir: ... }` of the job names"
                         : "`leat checkpoint verify` says what is damaged");
    return false;
}

/* Copies the newest checkpoint that is whole, and sets *id to it; damaged ones are skipped with warnings.
 * If a running job removes a checkpoint while it is opened, looks for the newest again, at most TRIES
 * times. */
static bool copy_newest(struct copying *c, struct checkpoint_id *id)
{
    uint32_t count = 0;
    for (int tries = 0; tries < TRIES; tries++) {
        struct checkpoint_id *ids = ids_walk(c->dir, &count);
        enum copied copied = COPY_FAILED;
        for (uint32_t i = 0; i < count && copied == COPY_FAILED; i++) {
            struct diag_list said;
            diag_list_init(&said, c->diags->arena);
            *id = ids[i];
            copied = copy_id(c, ids[i], &said);
            if (copied == COPY_FAILED && !is_of_source(&said)) {
                say_all(c, &said);
                free(ids);
                return false;
            }
            if (copied == COPY_FAILED)
                warn(c, &said);
        }
        free(ids);
        if (copied != COPY_GONE)
            return copied == COPIED || none_left(c, count);
    }
    struct diag *diag = diag_error(c->diags, DIAG_NO_CHECKPOINT, (struct span){0, 0},
                                   "the job removes its checkpoints faster than they can be opened");
    diag_hint(c->diags, diag, "let the job `keep` more checkpoints, or take them less often");
    return false;
}

static bool copy_named(struct copying *c, struct checkpoint_id id)
{
    struct diag_list said;
    diag_list_init(&said, c->diags->arena);
    enum copied copied = copy_id(c, id, &said);
    if (copied == COPY_FAILED)
        say_all(c, &said);
    if (copied == COPY_GONE) {
        struct diag *diag = diag_error(c->diags, DIAG_NO_CHECKPOINT, (struct span){0, 0},
                                       "there is no checkpoint %u-%llu in `%s`", id.generation,
                                       (unsigned long long)id.epoch, c->dir->path);
        diag_hint(c->diags, diag, "`leat checkpoint list` shows the checkpoints that are there");
    }
    return copied == COPIED;
}

bool checkpoint_copy(struct checkpoint_dir *dir, struct checkpoint_id *id, const char *to, uint64_t *bytes,
                     struct diag_list *diags)
{
    struct copying c = {.dir = dir, .diags = diags};
    char path[PATH_BYTES];
    size_t length = strlen(to);
    while (length > 1 && to[length - 1] == '/')
        length--;
    snprintf(path, sizeof(path), "%.*s", (int)MIN(length, (size_t)PATH_BYTES - 1), to);
    if (!check_target(&c, path))
        return false;
    snprintf(c.temporary, sizeof(c.temporary), "%s.tmp", path);
    c.chunk = mem_alloc(CHECKPOINT_CHUNK_BYTES);
    bool is_good = id->generation != 0 ? copy_named(&c, *id) : copy_newest(&c, id);
    is_good = is_good && give_name(&c, path);
    if (!is_good)
        (void)os_remove_tree(c.temporary);
    free(c.chunk);
    *bytes = c.bytes;
    return is_good;
}
