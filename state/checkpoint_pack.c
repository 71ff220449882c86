/* Checkpoints as files for a mirror: opened all at once in the job's directory, and adopted in the mirror's. */
#include "state/checkpoint_files.h"

#include "core/mem.h"
#include "core/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { TRIES = 8, TABLES_DEPTH = 4 };

/* --- Open files --- */

bool file_unreadable(const char *path, int error, struct diag_list *diags)
{
    struct diag *diag = diag_error(diags, DIAG_CHECKPOINT_DAMAGED, (struct span){0, 0},
                                   "a file of the checkpoint cannot be read");
    diag_errno(diags, diag, error);
    diag_at(diags, diag, path, -1, -1);
    return false;
}

/* Raises this process's limit of open files as far as allowed: a checkpoint of a database has many files, and
 * all are open at once. */
static void raise_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

bool files_open(const struct checkpoint *chain, struct open_files *files, struct diag_list *diags)
{
    char path[PATH_BYTES + 1024];
    uint32_t count = 0;
    raise_limit();
    for (uint32_t link = 0; link < chain->count; link++)
        count += chain->chain[link].files_count;
    *files = (struct open_files){.fds = mem_alloc(MAX(count, 1) * sizeof(*files->fds))};
    for (uint32_t link = 0; link < chain->count; link++) {
        const struct manifest *manifest = &chain->chain[link];
        for (uint32_t i = 0; i < manifest->files_count; i++) {
            path_checkpoint(chain->dir, manifest->info.id, path);
            size_t length = strlen(path);
            snprintf(path + length, sizeof(path) - length, "/%.*s", STR_ARGS(manifest->files[i].path));
            int fd = open(path, O_RDONLY | O_CLOEXEC);
            if (fd < 0)
                return file_unreadable(path, errno, diags);
            files->fds[files->count++] = fd;
        }
    }
    return true;
}

void files_close(struct open_files *files)
{
    for (uint32_t i = 0; i < files->count; i++)
        close(files->fds[i]);
    free(files->fds);
    *files = (struct open_files){0};
}

/* --- Packs --- */

struct checkpoint_pack {
    struct checkpoint_id id;
    struct run_id run;
    struct arena arena; /* of the names */
    struct checkpoint_pack_file *files;
    int *fds; /* one for each file */
    uint32_t count, room;
};

/* Takes the descriptor. */
static void add_file(struct checkpoint_pack *pack, int fd, const struct checkpoint_pack_file *file)
{
    if (pack->count == pack->room) {
        pack->room = MAX(pack->room * 2, 64u);
        pack->files = mem_realloc(pack->files, pack->room * sizeof(*pack->files));
        pack->fds = mem_realloc(pack->fds, pack->room * sizeof(*pack->fds));
    }
    pack->files[pack->count] = *file;
    pack->fds[pack->count++] = fd;
}

/* Adds a file by its path below the directory. 0 or an errno. */
static int add_path(struct checkpoint_pack *pack, const struct checkpoint_dir *dir, const char *name,
                    bool is_table)
{
    char path[PATH_BYTES * 2];
    struct stat info;
    snprintf(path, sizeof(path), "%s/%s", dir->path, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return EINVAL;
    }
    struct checkpoint_pack_file file = {.name = name, .bytes = (uint64_t)info.st_size};
    if (is_table)
        file.changed_us = MAX(info.st_mtim.tv_sec * US_PER_SECOND + info.st_mtim.tv_nsec / 1000, 0);
    add_file(pack, fd, &file);
    return 0;
}

static void digest_content(const struct manifest_file *file, uint8_t content[16])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical,
                             XXH3_128bits(file->digests, digest_count(file->bytes) * DIGEST_BYTES));
    memcpy(content, canonical.digest, sizeof(canonical.digest));
}

static bool add_chain(struct checkpoint_pack *pack, const struct checkpoint *chain, struct diag_list *diags)
{
    struct open_files files;
    bool is_good = files_open(chain, &files, diags);
    uint32_t at = 0;
    for (uint32_t link = 0; is_good && link < chain->count; link++) {
        const struct manifest *manifest = &chain->chain[link];
        const char *folder = arena_printf(&pack->arena, "gen-%06u/ckpt-%012llu", manifest->info.id.generation,
                                          (unsigned long long)manifest->info.id.epoch);
        for (uint32_t i = 0; i < manifest->files_count; i++, at++) {
            const struct manifest_file *file = &manifest->files[i];
            struct checkpoint_pack_file own = {
                .name = arena_printf(&pack->arena, "%s/%.*s", folder, STR_ARGS(file->path)),
                .bytes = file->bytes,
                .has_content = true};
            digest_content(file, own.content);
            add_file(pack, files.fds[at], &own);
        }
        const char *name = arena_printf(&pack->arena, "%s/MANIFEST", folder);
        int error = add_path(pack, chain->dir, name, false);
        is_good = error == 0 || file_unreadable(name, error, diags);
    }
    /* The pack has the first `at` descriptors now. */
    memmove(files.fds, files.fds + at, (files.count - at) * sizeof(*files.fds));
    files.count -= at;
    files_close(&files);
    return is_good;
}

/* Adds the regular files below a folder. What goes meanwhile is left out: the operators remove versions that no checkpoint
 * needs. */
static void add_folder(struct checkpoint_pack *pack, const struct checkpoint_dir *dir, const char *folder,
                       int depth)
{
    char path[PATH_BYTES * 2];
    snprintf(path, sizeof(path), "%s/%s", dir->path, folder);
    DIR *stream = opendir(path);
    if (stream == NULL)
        return;
    for (const struct dirent *one; (one = readdir(stream)) != NULL;) {
        if (one->d_name[0] == '.')
            continue;
        const char *name = arena_printf(&pack->arena, "%s/%s", folder, one->d_name);
        if (add_path(pack, dir, name, true) == EINVAL && depth > 1)
            add_folder(pack, dir, name, depth - 1);
    }
    closedir(stream);
}

struct checkpoint_pack *checkpoint_pack_open_one(struct checkpoint_dir *dir, struct checkpoint_id id,
                                                 struct diag_list *diags)
{
    char path[PATH_BYTES];
    enum decode_result result;
    struct checkpoint *chain = chain_open(dir, id, false, &result, diags);
    if (chain == NULL)
        return NULL;
    struct checkpoint_pack *pack = mem_calloc(1, sizeof(*pack));
    pack->id = id;
    pack->run = checkpoint_info(chain)->run;
    arena_init(&pack->arena, 16 << 10);
    bool is_good = add_chain(pack, chain, diags);
    checkpoint_close(chain);
    if (!is_good) {
        checkpoint_pack_close(pack);
        return NULL;
    }
    add_folder(pack, dir, "tables", TABLES_DEPTH);
    /* As long as the checkpoint is there, the operators keep the tables that it needs. */
    path_checkpoint(dir, id, path);
    if (access(path, F_OK) == 0)
        return pack;
    file_unreadable(path, errno, diags);
    checkpoint_pack_close(pack);
    return NULL;
}

struct checkpoint_pack *checkpoint_pack_open(struct checkpoint_dir *dir, bool *is_none,
                                             struct diag_list *diags)
{
    struct checkpoint_pack *pack = NULL;
    uint32_t count = 1;
    /* A running job may remove what was just listed. */
    for (int tries = 0; tries < TRIES && pack == NULL && count > 0; tries++) {
        struct arena arena = {0};
        struct diag_list said;
        struct checkpoint_id *ids = ids_walk(dir, &count);
        bool is_last = tries + 1 == TRIES;
        diag_list_init(&said, is_last ? diags->arena : &arena);
        for (uint32_t i = 0; i < count && pack == NULL; i++)
            pack = checkpoint_pack_open_one(dir, ids[i], is_last ? diags : &said);
        free(ids);
        arena_free(&arena);
    }
    *is_none = count == 0;
    return pack;
}

void checkpoint_pack_close(struct checkpoint_pack *pack)
{
    if (pack == NULL)
        return;
    for (uint32_t i = 0; i < pack->count; i++)
        close(pack->fds[i]);
    free(pack->fds);
    free(pack->files);
    arena_free(&pack->arena);
    free(pack);
}

struct checkpoint_id checkpoint_pack_id(const struct checkpoint_pack *pack)
{
    return pack->id;
}

struct run_id checkpoint_pack_run(const struct checkpoint_pack *pack)
{
    return pack->run;
}

const struct checkpoint_pack_file *checkpoint_pack_files(const struct checkpoint_pack *pack, uint32_t *count)
{
    *count = pack->count;
    return pack->files;
}

int checkpoint_pack_fd(const struct checkpoint_pack *pack, uint32_t file)
{
    return pack->fds[file];
}

int checkpoint_pack_read(const struct checkpoint_pack *pack, uint32_t file, uint64_t offset, void *data,
                         size_t bytes, size_t *got)
{
    uint64_t length = pack->files[file].bytes; /* a table's file may grow while it is copied */
    *got = 0;
    if (offset >= length)
        return 0;
    return os_pread_all(pack->fds[file], data, (size_t)MIN(bytes, length - offset), offset, got);
}

/* --- Adopting --- */

static bool is_in_chain(const struct checkpoint *chain, struct checkpoint_id id)
{
    for (uint32_t i = 0; i < chain->count; i++)
        if (chain->chain[i].info.id.generation == id.generation && chain->chain[i].info.id.epoch == id.epoch)
            return true;
    return false;
}

/* Removes all checkpoints and generations but those of the chain. 0 or an errno. */
static int remove_others(const struct checkpoint_dir *dir, const struct checkpoint *chain)
{
    char path[PATH_BYTES];
    uint32_t count, own = checkpoint_info(chain)->id.generation;
    int error = 0;
    struct checkpoint_id *ids = ids_list(dir, &count);
    for (uint32_t i = 0; i < count && error == 0; i++)
        if (!is_in_chain(chain, ids[i])) {
            path_checkpoint(dir, ids[i], path);
            error = os_remove_tree(path);
        }
    free(ids);
    uint32_t *generations = generations_list(dir, &count);
    for (uint32_t i = 0; i < count && error == 0; i++)
        if (generations[i] != own) {
            path_generation(dir, generations[i], path);
            error = os_remove_tree(path);
        }
    free(generations);
    return error;
}

/* Writes the GENERATION of the chain unless it is there. 0 or an errno. */
static int write_generation(const struct checkpoint_dir *dir, const struct checkpoint *chain)
{
    char directory[PATH_BYTES], path[PATH_BYTES + 16];
    const struct checkpoint_info *info = checkpoint_info(chain);
    struct generation own = {.generation = info->id.generation, .run = info->run};
    path_generation(dir, own.generation, directory);
    snprintf(path, sizeof(path), "%s/GENERATION", directory);
    return access(path, F_OK) == 0 ? 0 : generation_write(directory, &own);
}

int chain_settle(const struct checkpoint_dir *dir, const struct checkpoint *chain)
{
    int error = write_generation(dir, chain);
    return error == 0 ? remove_others(dir, chain) : error;
}

/* Reads every byte of the chain, and removes the checkpoints of it that are damaged. False after E0702. */
static bool verify_chain(const struct checkpoint_dir *dir, const struct checkpoint *chain,
                         struct diag_list *diags)
{
    char path[PATH_BYTES];
    bool is_whole = true;
    for (uint32_t i = 0; i < chain->count; i++) {
        if (manifest_verify(dir, &chain->chain[i], false, diags))
            continue;
        is_whole = false;
        path_checkpoint(dir, chain->chain[i].info.id, path);
        (void)os_remove_tree(path);
    }
    return is_whole;
}

/* Of a folder below the directory. */
static void sweep_folder(const char *directory, const char *folder, int depth,
                         bool (*is_kept)(const void *argument, const char *name), const void *argument)
{
    char *path = mem_printf("%s/%s", directory, folder);
    DIR *stream = opendir(path);
    free(path);
    if (stream == NULL)
        return;
    for (const struct dirent *one; (one = readdir(stream)) != NULL;) {
        if (one->d_name[0] == '.')
            continue;
        char *name = mem_printf("%s/%s", folder, one->d_name);
        if (!is_kept(argument, name) && unlinkat(dirfd(stream), one->d_name, 0) != 0 && depth > 1) {
            sweep_folder(directory, name, depth - 1, is_kept, argument);
            (void)unlinkat(dirfd(stream), one->d_name, AT_REMOVEDIR); /* unless files are in it */
        }
        free(name);
    }
    closedir(stream);
}

void checkpoint_tables_sweep(const char *directory, bool (*is_kept)(const void *argument, const char *name),
                             const void *argument)
{
    sweep_folder(directory, "tables", TABLES_DEPTH, is_kept, argument);
}

bool checkpoint_pack_adopt(const char *directory, struct checkpoint_id id, bool *is_damaged,
                           struct diag_list *diags)
{
    enum decode_result result;
    struct checkpoint_dir_options options = {.path = directory, .read_only = true};
    struct checkpoint_dir *dir = checkpoint_dir_open(&options, diags);
    struct checkpoint *chain = dir == NULL ? NULL : chain_open(dir, id, false, &result, diags);
    int error = 0;
    *is_damaged = dir != NULL && (chain == NULL || !verify_chain(dir, chain, diags));
    bool is_good = chain != NULL && !*is_damaged;
    if (is_good)
        error = chain_settle(dir, chain);
    if (error != 0) {
        struct diag *diag = diag_error(diags, DIAG_CHECKPOINT_FAILED, (struct span){0, 0},
                                       "the mirror's checkpoint in %s cannot be put in place", directory);
        diag_errno(diags, diag, error);
        diag_hint(diags, diag, "free some disk space, and check that this user may write there");
    }
    checkpoint_close(chain);
    checkpoint_dir_close(dir);
    return is_good && error == 0;
}
