/* Finding and verifying checkpoints, and their databases. Their bytes are data from outside: everything is checked. */
#include "state/checkpoint_files.h"

#include "core/mem.h"
#include "core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COPY_BYTES = 1 << 20, DIGEST_THREADS_MAX = 3, DIGEST_BLOCKS_ALONE = 16, DIRECT_ALIGNMENT = 4096 };

/* --- Reading past the page cache --- */

int uncached_open(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    return fd < 0 && errno == EINVAL ? open(path, O_RDONLY | O_CLOEXEC) : fd;
}

int uncached_read(int fd, char *memory, size_t bytes, uint64_t offset, char **data)
{
    uint64_t first = offset / DIRECT_ALIGNMENT * DIRECT_ALIGNMENT;
    size_t wanted = (size_t)(offset - first) + bytes, got = 0;
    size_t rounded = (wanted + DIRECT_ALIGNMENT - 1) / DIRECT_ALIGNMENT * DIRECT_ALIGNMENT;
    *data = memory + (offset - first);
    ssize_t count = pread(fd, memory, rounded, (off_t)first);
    if (count >= (ssize_t)wanted)
        return 0;
    /* Too few bytes: a signal, a file system with another alignment, or the end of the file. */
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_DIRECT) < 0)
        return errno;
    int error = os_pread_all(fd, *data, bytes, offset, &got);
    return error != 0 ? error : got == bytes ? 0 : EIO;
}

char *uncached_memory(size_t bytes)
{
    void *memory = NULL;
    leat_assert(posix_memalign(&memory, DIRECT_ALIGNMENT, bytes + 2 * DIRECT_ALIGNMENT) == 0);
    return memory;
}

/* --- Digests of a file --- */

/* A file whose digests are computed by several threads, each taking the next block: a gigabyte is read at the
 * disk's speed, not at that of one core. */
struct digesting {
    int fd;
    uint64_t bytes;
    uint8_t *digests;
    _Atomic uint64_t next; /* the next block */
    atomic_int error;
};

static void *digest_blocks(void *argument)
{
    struct digesting *file = argument;
    char *memory = uncached_memory(CHECKPOINT_CHUNK_BYTES), *block;
    while (atomic_load(&file->error) == 0) {
        uint64_t offset = atomic_fetch_add(&file->next, 1) * CHECKPOINT_CHUNK_BYTES;
        if (offset >= file->bytes)
            break;
        size_t wanted = MIN(file->bytes - offset, (uint64_t)CHECKPOINT_CHUNK_BYTES);
        int error = uncached_read(file->fd, memory, wanted, offset, &block);
        if (error != 0) {
            atomic_store(&file->error, error);
            break;
        }
        digest_of(block, wanted, file->digests + offset / CHECKPOINT_CHUNK_BYTES * DIGEST_BYTES);
    }
    free(memory);
    return NULL;
}

int digest_file(const char *path, uint64_t *bytes, uint8_t **digests)
{
    struct digesting file = {.fd = uncached_open(path)};
    *bytes = 0;
    *digests = NULL;
    struct stat status;
    if (file.fd < 0 || fstat(file.fd, &status) != 0) {
        int error = errno;
        if (file.fd >= 0)
            close(file.fd);
        return error;
    }
    file.bytes = (uint64_t)status.st_size;
    uint64_t blocks = digest_count(file.bytes);
    file.digests = mem_alloc(MAX(blocks, 1) * DIGEST_BYTES);
    pthread_t threads[DIGEST_THREADS_MAX];
    uint32_t wanted = blocks < DIGEST_BLOCKS_ALONE ? 0 : DIGEST_THREADS_MAX, count = 0;
    while (count < wanted && pthread_create(&threads[count], NULL, digest_blocks, &file) == 0)
        count++;
    digest_blocks(&file);
    for (uint32_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    close(file.fd);
    *bytes = file.bytes;
    *digests = file.digests;
    return atomic_load(&file.error);
}

int copy_file(const char *from, const char *to)
{
    int in = open(from, O_RDONLY | O_CLOEXEC);
    if (in < 0)
        return errno;
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int error = out < 0 ? errno : 0;
    char *chunk = mem_alloc(COPY_BYTES);
    size_t got = COPY_BYTES;
    while (error == 0 && got == COPY_BYTES) {
        error = os_read_all(in, chunk, COPY_BYTES, &got);
        if (error == 0)
            error = os_write_all(out, chunk, got, "ckpt.write");
    }
    if (error == 0)
        error = os_fsync(out, "ckpt.fsync");
    free(chunk);
    close(in);
    if (out >= 0)
        close(out);
    return error;
}

/* --- Verifying --- */

struct diag *checkpoint_damaged(const char *path, int64_t offset, bool is_warning, struct diag_list *diags,
                                const char *why)
{
    struct diag *diag =
        is_warning ? diag_warning(diags, DIAG_CHECKPOINT_DAMAGED, (struct span){0, 0}, "skipped: %s", why)
                   : diag_error(diags, DIAG_CHECKPOINT_DAMAGED, (struct span){0, 0}, "%s", why);
    return diag_at(diags, diag, path, offset, -1);
}

bool manifest_file_verify(const char *path, const struct manifest_file *file, bool is_warning,
                          struct diag_list *diags)
{
    uint64_t bytes = 0;
    uint8_t *digests = NULL;
    int error = digest_file(path, &bytes, &digests);
    bool is_good = true;
    if (error != 0) {
        diag_errno(diags,
                   checkpoint_damaged(path, -1, is_warning, diags, "a file of the checkpoint cannot be read"),
                   error);
        is_good = false;
    } else if (bytes != file->bytes) {
        char why[128];
        snprintf(why, sizeof(why), "the file has %llu bytes instead of %llu", (unsigned long long)bytes,
                 (unsigned long long)file->bytes);
        checkpoint_damaged(path, (int64_t)MIN(bytes, file->bytes), is_warning, diags, why);
        is_good = false;
    }
    for (uint64_t i = 0; is_good && i < digest_count(bytes); i++)
        if (memcmp(digests + i * DIGEST_BYTES, file->digests + i * DIGEST_BYTES, DIGEST_BYTES) != 0) {
            checkpoint_damaged(path, (int64_t)(i * CHECKPOINT_CHUNK_BYTES), is_warning, diags,
                               "the MiB at this offset does not match its digest");
            is_good = false;
        }
    free(digests);
    return is_good;
}

bool manifest_verify(const struct checkpoint_dir *dir, const struct manifest *manifest, bool is_warning,
                     struct diag_list *diags)
{
    char directory[PATH_BYTES], path[PATH_BYTES + 1024];
    path_checkpoint(dir, manifest->info.id, directory);
    for (uint32_t i = 0; i < manifest->files_count; i++) {
        snprintf(path, sizeof(path), "%s/%.*s", directory, STR_ARGS(manifest->files[i].path));
        if (!manifest_file_verify(path, &manifest->files[i], is_warning, diags))
            return false;
    }
    return true;
}

/* --- Opening --- */

/* is_older: in a format that --from takes. */
static void refuse_format(const struct checkpoint_dir *dir, struct checkpoint_id id, bool is_older,
                          struct diag_list *diags)
{
    char path[PATH_BYTES];
    path_checkpoint(dir, id, path);
    struct diag *diag =
        diag_error(diags, DIAG_OTHER_VERSION, (struct span){0, 0},
                   "another version of leat wrote this checkpoint; this version goes on only from format %d",
                   CHECKPOINT_FORMAT);
    diag_at(diags, diag, path, -1, -1);
    if (is_older)
        diag_hint(
            diags, diag,
            "run the version of leat that wrote the checkpoint; or `--from %s` starts a new run with its "
            "state, and says which rows may be emitted again",
            dir->path);
    else
        diag_hint(diags, diag,
                  "run the version of leat that wrote the checkpoint, or start anew with `--fresh` "
                  "or another directory");
}

struct checkpoint *chain_open(struct checkpoint_dir *dir, struct checkpoint_id id, bool is_warning,
                              enum decode_result *result, struct diag_list *diags)
{
    struct checkpoint *checkpoint = mem_calloc(1, sizeof(*checkpoint));
    checkpoint->dir = dir;
    arena_init(&checkpoint->arena, 64 << 10);
    struct manifest newest_first[CHECKPOINT_CHAIN_MAX];
    uint32_t count = 0;
    const char *why = NULL;
    bool is_older = false;
    *result = DECODE_GOOD;
    struct checkpoint_id at = id;
    while (*result == DECODE_GOOD && at.generation != 0) {
        if (count == CHECKPOINT_CHAIN_MAX) {
            why = "its chain has no base";
            *result = DECODE_DAMAGED;
            break;
        }
        *result = manifest_read(dir, at, &checkpoint->arena, &newest_first[count], &why);
        is_older = *result == DECODE_GOOD && newest_first[count].info.format != CHECKPOINT_FORMAT;
        if (is_older && !dir->is_read_only)
            *result = DECODE_OTHER_FORMAT;
        if (*result == DECODE_GOOD)
            at = newest_first[count++].info.previous;
    }
    if (*result == DECODE_GOOD) {
        for (uint32_t i = 0; i < count; i++)
            checkpoint->chain[i] = newest_first[count - 1 - i];
        checkpoint->count = count;
        return checkpoint;
    }
    if (*result == DECODE_OTHER_FORMAT) {
        refuse_format(dir, at, is_older, diags);
    } else {
        char path[PATH_BYTES], message[256];
        path_checkpoint(dir, at, path);
        strcat(path, "/MANIFEST");
        snprintf(message, sizeof(message), "the MANIFEST is damaged: %s", why);
        checkpoint_damaged(path, -1, is_warning, diags, message);
    }
    checkpoint_close(checkpoint);
    return NULL;
}

static bool verify_chain(struct checkpoint *checkpoint, bool is_warning, struct diag_list *diags)
{
    for (uint32_t i = 0; i < checkpoint->count; i++)
        if (!manifest_verify(checkpoint->dir, &checkpoint->chain[i], is_warning, diags))
            return false;
    return true;
}

static bool is_same_job(const struct checkpoint *checkpoint, struct diag_list *diags)
{
    const struct checkpoint_info *info = checkpoint_info(checkpoint);
    if (checkpoint->dir->fingerprint.length == 0 ||
        str_equal(info->fingerprint, checkpoint->dir->fingerprint))
        return true;
    struct diag *diag = diag_error(
        diags, DIAG_OTHER_JOB, (struct span){0, 0},
        "the checkpoints in %s are of another job, or of this job before it changed", checkpoint->dir->path);
    diag_hint(
        diags, diag,
        "`--from %s` starts a new run with the state that still matches, and `--fresh` a new run without "
        "state: both say which rows may be emitted again; or name another `dir:`",
        checkpoint->dir->path);
    return false;
}

/* Whether the checkpoint has all key groups that this process is to have. */
static bool has_groups(const struct checkpoint *checkpoint, struct diag_list *diags)
{
    const struct checkpoint_dir *dir = checkpoint->dir;
    const struct group_set *groups = checkpoint->chain[checkpoint->count - 1].groups;
    char path[PATH_BYTES], has[GROUP_SET_TEXT_BYTES], wanted[GROUP_SET_TEXT_BYTES] = "all of them";
    if (groups == NULL || group_set_includes(groups, dir->groups))
        return true;
    path_checkpoint(dir, checkpoint_info(checkpoint)->id, path);
    group_set_text(groups, has);
    if (dir->groups != NULL)
        group_set_text(dir->groups, wanted);
    struct diag *diag = diag_error(diags, DIAG_FOREIGN_DIRECTORY, (struct span){0, 0},
                                   "the checkpoint has key groups %s alone, expected %s", has, wanted);
    diag_at(diags, diag, path, -1, -1);
    diag_hint(
        diags, diag,
        "if it was restored for these groups: restore the other ones, or all of the checkpoint, with "
        "`leat checkpoint restore URL --to DIR`; if it is one worker's part: begin with the head, which names all parts");
    return false;
}

struct checkpoint *checkpoint_open(struct checkpoint_dir *dir, struct checkpoint_id id,
                                   struct diag_list *diags)
{
    enum decode_result result;
    struct checkpoint *checkpoint = chain_open(dir, id, false, &result, diags);
    if (checkpoint == NULL)
        return NULL;
    if ((dir->is_read_only || is_same_job(checkpoint, diags)) && has_groups(checkpoint, diags) &&
        verify_chain(checkpoint, false, diags))
        return checkpoint;
    checkpoint_close(checkpoint);
    return NULL;
}

/* Warns of damaged GENERATION files. They hide no checkpoint: the walk goes on to the generation before. */
static void warn_of_generations(const struct checkpoint_dir *dir, struct diag_list *diags)
{
    uint32_t count;
    uint32_t *generations = generations_list(dir, &count);
    for (uint32_t i = 0; i < count; i++) {
        struct generation generation;
        const char *why;
        char path[PATH_BYTES];
        if (generation_read(dir, generations[i], &generation, &why) != DECODE_DAMAGED)
            continue;
        path_generation(dir, generations[i], path);
        strcat(path, "/GENERATION");
        diag_at(diags,
                diag_warning(diags, DIAG_CHECKPOINT_DAMAGED, (struct span){0, 0},
                             "a GENERATION file is damaged: %s", why),
                path, -1, -1);
    }
    free(generations);
}

/* Whether the file or directory can be opened: 0 or an errno. Returns 0, too, if it does not exist. */
static int opens(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : errno;
    close(fd);
    return 0;
}

/* Returns false after E0701 if this process cannot open a file or directory (rights, too few descriptors).
 * The checkpoint need not be damaged then, and nobody knows which checkpoint is the newest, so starting
 * anew would be wrong. */
static bool may_be_read(const struct checkpoint_dir *dir, struct diag_list *diags)
{
    uint32_t generations_count, count = 0;
    uint32_t *generations = generations_list(dir, &generations_count);
    char path[PATH_BYTES];
    int error = 0;
    for (uint32_t i = 0; i < generations_count && error == 0; i++) {
        path_generation(dir, generations[i], path);
        error = opens(path);
        if (error != 0)
            break;
        strcat(path, "/GENERATION");
        error = opens(path);
    }
    struct checkpoint_id *ids = error == 0 ? ids_walk(dir, &count) : NULL;
    for (uint32_t i = 0; i < count && error == 0; i++) {
        path_checkpoint(dir, ids[i], path);
        strcat(path, "/MANIFEST");
        error = opens(path);
    }
    free(ids);
    free(generations);
    if (error == 0)
        return true;
    struct diag *diag =
        diag_error(diags, DIAG_FOREIGN_DIRECTORY, (struct span){0, 0}, "`%s` cannot be opened", path);
    diag_errno(diags, diag, error);
    diag_hint(diags, diag,
              error == EMFILE || error == ENFILE
                  ? "raise the limit of open files (`ulimit -n`), then start again"
                  : "see that this user may read all of the checkpoint directory, then start again");
    return false;
}

enum checkpoint_found checkpoint_find(struct checkpoint_dir *dir, struct checkpoint **found,
                                      struct diag_list *diags)
{
    uint32_t count;
    *found = NULL;
    if (!may_be_read(dir, diags))
        return CHECKPOINT_REFUSED;
    struct checkpoint_id *ids = ids_walk(dir, &count);
    enum checkpoint_found outcome = count == 0 ? CHECKPOINT_NONE : CHECKPOINT_REFUSED;
    unsigned errors = diags->errors;
    warn_of_generations(dir, diags);
    for (uint32_t i = 0; i < count && *found == NULL && diags->errors == errors; i++) {
        enum decode_result result;
        struct checkpoint *checkpoint = chain_open(dir, ids[i], true, &result, diags);
        if (checkpoint == NULL)
            continue;
        if (!is_same_job(checkpoint, diags) || !has_groups(checkpoint, diags) ||
            !verify_chain(checkpoint, true, diags))
            checkpoint_close(checkpoint);
        else
            *found = checkpoint;
    }
    free(ids);
    if (*found != NULL)
        return CHECKPOINT_FOUND;
    if (count > 0 && diags->errors == errors) {
        struct diag *diag =
            diag_error(diags, DIAG_NO_CHECKPOINT, (struct span){0, 0},
                       "%s contains %u checkpoints, and all of them are damaged", dir->path, count);
        diag_hint(diags, diag, "restore the directory from a copy, or start anew with `--fresh`");
    }
    return outcome;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    for (struct checkpoint *next; checkpoint != NULL; checkpoint = next) {
        next = checkpoint->next;
        if (checkpoint->is_part)
            checkpoint_dir_close(checkpoint->dir);
        arena_free(&checkpoint->arena);
        free(checkpoint);
    }
}

const struct checkpoint_info *checkpoint_info(const struct checkpoint *checkpoint)
{
    return &checkpoint->chain[checkpoint->count - 1].info;
}

uint32_t checkpoint_databases(const struct checkpoint *checkpoint, uint32_t part, uint32_t *first)
{
    uint32_t before = 0;
    for (uint32_t i = 1; checkpoint != NULL; checkpoint = checkpoint->next, i++) {
        *first = before;
        if (i == part)
            return checkpoint_info(checkpoint)->databases;
        before += checkpoint_info(checkpoint)->databases;
    }
    *first = 0;
    return before;
}

const struct checkpoint *checkpoint_part_of(const struct checkpoint *checkpoint, uint32_t *number)
{
    for (; *number >= checkpoint_info(checkpoint)->databases && checkpoint->next != NULL;
         checkpoint = checkpoint->next)
        *number -= checkpoint_info(checkpoint)->databases;
    return checkpoint;
}

bool checkpoint_restore_database(struct checkpoint *from, uint32_t number, const char *path,
                                 bool *has_database, struct diag_list *diags)
{
    const struct checkpoint *checkpoint = checkpoint_part_of(from, &number);
    char database[DATABASE_NAME_BYTES + 1];
    const struct manifest *manifest = &checkpoint->chain[checkpoint->count - 1];
    char directory[PATH_BYTES], file[PATH_BYTES + 1024], to[PATH_BYTES + 1024];
    path_checkpoint(checkpoint->dir, manifest->info.id, directory);
    database_name(number, database);
    strcat(database, "/");
    size_t length = strlen(database);
    *has_database = false;
    int error = os_remove_tree(path);
    for (uint32_t i = 0; error == 0 && i < manifest->files_count; i++) {
        struct str name = manifest->files[i].path;
        if (name.length <= length || memcmp(name.data, database, length) != 0)
            continue;
        error = *has_database ? 0 : os_mkdirs(path);
        *has_database = true;
        if (error != 0)
            break;
        snprintf(file, sizeof(file), "%s/%.*s", directory, STR_ARGS(name));
        if (checkpoint->is_part && !manifest_file_verify(file, &manifest->files[i], false, diags))
            return false;
        snprintf(to, sizeof(to), "%s/%.*s", path, (int)(name.length - length), name.data + length);
        bool is_table = name.length > 4 && memcmp(name.data + name.length - 4, ".sst", 4) == 0;
        /* Table files never change and can be linked; the others change, and the checkpoint's must not. */
        if (!is_table || link(file, to) != 0)
            error = copy_file(file, to);
    }
    if (error == 0)
        return true;
    struct diag *diag = diag_error(diags, DIAG_CHECKPOINT_DAMAGED, (struct span){0, 0},
                                   "the state database cannot be restored to %s", path);
    diag_errno(diags, diag, error);
    return false;
}
