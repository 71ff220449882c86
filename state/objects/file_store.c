/* An object store in a directory that machines share: an object is a file. It is written below `.unfinished`, fsynced, and only
 * then given its name, which must be new; so nobody sees a part of it, and a name is never written over. */
#include "core/mem.h"
#include "core/os.h"
#include "state/objects/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20, DEPTH_MAX = 16 };

#define UNFINISHED ".unfinished"

static bool store_failed(const struct objects *objects, const char *path, int error, struct diag_list *diags)
{
    struct diag *d = diag_error(diags, DIAG_STORE_FAILED, (struct span){0}, "`%s`: `%s` cannot be used",
                                objects->url, path);
    diag_errno(diags, d, error);
    if (error == ENOSPC || error == EDQUOT)
        diag_hint(diags, d, "make room in the store; what is there already stays as it is");
    else if (error == EACCES || error == EPERM || error == EROFS)
        diag_hint(diags, d, "leat must be able to read and write the directory");
    return false;
}

static const char *root(const struct objects *objects)
{
    return objects->store;
}

static char *path_of(const struct objects *objects, struct str name)
{
    return mem_printf("%s/%.*s", root(objects), STR_ARGS(name));
}

static bool open_store(struct objects *objects, struct diag_list *diags)
{
    const char *path = objects->url + strlen(objects_file.scheme);
    while (path[0] == '/' && path[1] == '/') /* file:///DIR is file:/DIR */
        path++;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (path[0] == '/' && length > 1) {
        objects->store = mem_str((struct str){path, length});
        return true;
    }
    struct diag *d = diag_error(diags, DIAG_STORE_FAILED, (struct span){0},
                                "expected an absolute path behind `file:`, found `%s`", path);
    diag_hint(diags, d, "write `file:/shared/directory`");
    return false;
}

static void close_store(struct objects *objects)
{
    free(objects->store);
}

static bool check(struct objects *objects, struct diag_list *diags)
{
    char *path = mem_printf("%s/" UNFINISHED, root(objects));
    atomic_fetch_add(&objects->requests, 1);
    int error = os_mkdirs(path);
    if (error == 0 && access(path, R_OK | W_OK | X_OK) != 0)
        error = errno;
    free(path);
    return error == 0 || store_failed(objects, root(objects), error, diags);
}

/* --- Putting --- */

/* Where the bytes of an object come from: a file, or memory. */
struct origin {
    int fd; /* -1: memory */
    const char *data;
    uint64_t bytes;
};

/* *at: the `length` bytes at `offset`, in `room` where they come from a file. 0 or an errno; ENODATA: the file is shorter. */
static int read_piece(const struct origin *origin, uint64_t offset, size_t length, char *room,
                      const char **at)
{
    if (origin->fd < 0) {
        *at = origin->data + offset;
        return 0;
    }
    size_t got = 0;
    int error = os_pread_all(origin->fd, room, length, offset, &got);
    *at = room;
    return error != 0 ? error : got < length ? ENODATA : 0;
}

/* Writes the object's bytes to `fd`. 0 or an errno; *is_origin: of reading. */
static int write_pieces(struct objects *objects, const struct origin *origin, int fd, bool *is_origin)
{
    char *room = mem_alloc(PIECE_BYTES);
    int error = 0;
    for (uint64_t at = 0; at < origin->bytes && error == 0;) {
        size_t length = (size_t)MIN((uint64_t)PIECE_BYTES, origin->bytes - at);
        const char *piece = NULL;
        error =
            atomic_load(&objects->is_cancelled) ? ECANCELED : read_piece(origin, at, length, room, &piece);
        *is_origin = error != 0 && error != ECANCELED;
        if (error == 0)
            error = os_write_all(fd, piece, length, "objects.write");
        if (error == 0)
            atomic_fetch_add(&objects->bytes_up, length);
        at += length;
    }
    free(room);
    return error;
}

/* Whether the file `fd` has the origin's bytes. 0, EEXIST: it has others, or another errno. */
static int compare_pieces(const struct origin *origin, int fd)
{
    char *room = mem_alloc(PIECE_BYTES), *found = mem_alloc(PIECE_BYTES);
    struct stat info;
    int error = fstat(fd, &info) != 0 ? errno : (uint64_t)info.st_size != origin->bytes ? EEXIST : 0;
    for (uint64_t at = 0; at < origin->bytes && error == 0;) {
        size_t length = (size_t)MIN((uint64_t)PIECE_BYTES, origin->bytes - at), got = 0;
        const char *piece = NULL;
        error = read_piece(origin, at, length, room, &piece);
        if (error == 0)
            error = os_pread_all(fd, found, length, at, &got);
        if (error == 0 && (got < length || memcmp(piece, found, length) != 0))
            error = EEXIST;
        at += length;
    }
    free(room);
    free(found);
    return error;
}

/* The name is there already. */
static bool check_same(const struct objects *objects, const struct origin *origin, const char *path,
                       struct diag_list *diags)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int error = fd < 0 ? errno : compare_pieces(origin, fd);
    if (fd >= 0)
        close(fd);
    if (error == 0)
        return true;
    if (error != EEXIST)
        return store_failed(objects, path, error, diags);
    struct diag *d = diag_error(diags, DIAG_STORE_DAMAGED, (struct span){0},
                                "`%s`: expected `%s` to be new, or to have the same bytes; it has others",
                                objects->url, path);
    diag_hint(
        diags, d,
        "does another job, or a copy of this job's directory, use the same store? Give each job a directory of "
        "its own");
    return false;
}

/* Writes an unfinished file, syncs it, and gives it its name. 0 or an errno. */
static int write_object(struct objects *objects, const struct origin *origin, const char *temporary,
                        const char *path, bool *is_origin)
{
    char *directory = os_directory(path);
    int error = os_mkdirs(directory);
    int fd = error == 0 ? open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
    free(directory);
    if (fd < 0)
        return error != 0 ? error : errno;
    error = write_pieces(objects, origin, fd, is_origin);
    if (error == 0)
        error = os_fsync(fd, "objects.fsync");
    if (close(fd) != 0 && error == 0)
        error = errno;
    if (error == 0)
        error = os_rename_new(temporary, path, "objects.rename");
    if (error == 0)
        return os_fsync_parent(path, "objects.fsync_parent");
    unlink(temporary);
    return error;
}

/* source: the local file's name, for messages; NULL: memory. is_taken: gets whether the name was there, whose bytes are not compared then; NULL:
 * they are. */
static bool put_origin(struct objects *objects, struct str name, const struct origin *origin,
                       const char *source, bool *is_taken, struct diag_list *diags)
{
    static _Atomic uint64_t numbers;
    if (!check(objects, diags))
        return false;
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    char *path = path_of(objects, name);
    char *temporary =
        mem_printf("%s/" UNFINISHED "/%s-%ld-%lld-%llu", root(objects), host, (long)getpid(),
                   (long long)os_monotonic_us(), (unsigned long long)atomic_fetch_add(&numbers, 1));
    bool is_origin = false, ok;
    int error = write_object(objects, origin, temporary, path, &is_origin);
    if (error == EEXIST && is_taken != NULL) {
        ok = *is_taken = true;
    } else if (error == EEXIST) {
        ok = check_same(objects, origin, path, diags);
    } else if (error == ECANCELED) {
        ok = objects_say_cancelled(objects, diags);
    } else if (is_origin && source != NULL) {
        struct diag *d = diag_error(diags, DIAG_FILE_UNREADABLE, (struct span){0},
                                    "expected a file of %llu bytes", (unsigned long long)origin->bytes);
        diag_at(diags, d, source, -1, -1);
        diag_errno(diags, d, error);
        ok = false;
    } else {
        ok = error == 0 || store_failed(objects, path, error, diags);
    }
    free(path);
    free(temporary);
    return ok;
}

static bool put(struct objects *objects, struct str name, const void *data, size_t bytes,
                struct diag_list *diags)
{
    return put_origin(objects, name, &(struct origin){-1, data, bytes}, NULL, NULL, diags);
}

static enum objects_new put_new(struct objects *objects, struct str name, const void *data, size_t bytes,
                                struct diag_list *diags)
{
    bool is_taken = false;
    if (!put_origin(objects, name, &(struct origin){-1, data, bytes}, NULL, &is_taken, diags))
        return OBJECTS_NEW_FAILED;
    return is_taken ? OBJECTS_NEW_TAKEN : OBJECTS_NEW_ALONE;
}

static bool put_file(struct objects *objects, struct str name, int fd, uint64_t bytes, const char *path,
                     struct diag_list *diags)
{
    return put_origin(objects, name, &(struct origin){fd, NULL, bytes}, path, NULL, diags);
}

/* --- Getting --- */

/* Opens the object's file; *fd is -1 unless DONE. */
static enum objects_result open_object(struct objects *objects, const char *path, int *fd, uint64_t *bytes,
                                       struct diag_list *diags)
{
    struct stat info;
    atomic_fetch_add(&objects->requests, 1);
    int error = failpoint("objects.request");
    *fd = error == 0 ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (error == 0 && *fd < 0)
        error = errno;
    if (error == ENOENT || error == ENOTDIR)
        return OBJECTS_MISSING;
    if (error == 0 && fstat(*fd, &info) != 0)
        error = errno;
    if (error == 0 && !S_ISREG(info.st_mode)) {
        close(*fd);
        *fd = -1;
        return OBJECTS_MISSING;
    }
    if (error == 0) {
        *bytes = (uint64_t)info.st_size;
        return OBJECTS_DONE;
    }
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    store_failed(objects, path, error, diags);
    return OBJECTS_FAILED;
}

static enum objects_result wrong_size(const struct objects *objects, const char *path, uint64_t found,
                                      uint64_t expected, bool is_bound, struct diag_list *diags)
{
    struct diag *d =
        diag_error(diags, DIAG_STORE_DAMAGED, (struct span){0},
                   "`%s`: expected `%s` with at %s %llu bytes, found %llu", objects->url, path,
                   is_bound ? "most" : "least", (unsigned long long)expected, (unsigned long long)found);
    diag_hint(diags, d,
              "take another checkpoint; the object was cut, or replaced by something else than leat");
    return OBJECTS_FAILED;
}

static enum objects_result read_object(struct objects *objects, const char *path, int fd, uint64_t offset,
                                       size_t bytes, struct byte_buffer *out, struct diag_list *diags)
{
    size_t got = 0;
    int error = os_pread_all(fd, buffer_reserve(out, bytes), bytes, offset, &got);
    atomic_fetch_add(&objects->bytes_down, got);
    if (error != 0) {
        store_failed(objects, path, error, diags);
        return OBJECTS_FAILED;
    }
    if (got < bytes)
        return wrong_size(objects, path, offset + got, offset + bytes, false, diags);
    out->length += bytes;
    return OBJECTS_DONE;
}

/* Appends the bytes at `offset`; whole: all bytes, which must be at most `bytes`. */
static enum objects_result get_bytes(struct objects *objects, struct str name, uint64_t offset, size_t bytes,
                                     bool whole, struct byte_buffer *out, struct diag_list *diags)
{
    char *path = path_of(objects, name);
    uint64_t size = 0;
    int fd = -1;
    enum objects_result result = open_object(objects, path, &fd, &size, diags);
    if (result == OBJECTS_DONE && whole && size > bytes)
        result = wrong_size(objects, path, size, bytes, true, diags);
    else if (result == OBJECTS_DONE)
        result = read_object(objects, path, fd, offset, whole ? (size_t)size : bytes, out, diags);
    if (fd >= 0)
        close(fd);
    free(path);
    return result;
}

static enum objects_result get(struct objects *objects, struct str name, size_t bytes_max,
                               struct byte_buffer *out, struct diag_list *diags)
{
    return get_bytes(objects, name, 0, bytes_max, true, out, diags);
}

static enum objects_result get_range(struct objects *objects, struct str name, uint64_t offset, size_t bytes,
                                     struct byte_buffer *out, struct diag_list *diags)
{
    return get_bytes(objects, name, offset, bytes, false, out, diags);
}

static enum objects_result head(struct objects *objects, struct str name, uint64_t *bytes,
                                struct diag_list *diags)
{
    char *path = path_of(objects, name);
    int fd = -1;
    enum objects_result result = open_object(objects, path, &fd, bytes, diags);
    if (fd >= 0)
        close(fd);
    free(path);
    return result;
}

/* --- Listing and deleting --- */

struct walk {
    struct objects *objects;
    struct str prefix;
    struct arena *arena;
    struct objects_entries entries;
    struct diag_list *diags;
};

/* Whether names that begin with `name` can begin with the prefix. */
static bool may_match(const struct walk *walk, struct str name)
{
    size_t length = MIN(walk->prefix.length, name.length);
    return memcmp(walk->prefix.data, name.data, length) == 0;
}

static bool walk_directory(struct walk *walk, const char *below, int depth);

static bool walk_entry(struct walk *walk, const char *below, const char *entry, int depth)
{
    struct stat info;
    char *name = arena_printf(walk->arena, "%s%s%s", below, below[0] == '\0' ? "" : "/", entry);
    struct str text = str_from(name);
    if (!objects_name_is_good(text) || !may_match(walk, text))
        return true;
    char *path = path_of(walk->objects, text);
    int error = lstat(path, &info) != 0 ? errno : 0;
    free(path);
    if (error == ENOENT)
        return true; /* deleted meanwhile */
    if (error != 0)
        return store_failed(walk->objects, name, error, walk->diags);
    if (S_ISDIR(info.st_mode))
        return depth == DEPTH_MAX || walk_directory(walk, name, depth + 1);
    if (!S_ISREG(info.st_mode) || text.length < walk->prefix.length)
        return true;
    return objects_entries_add(&walk->entries, text, (uint64_t)info.st_size) ||
           store_failed(walk->objects, name, E2BIG, walk->diags);
}

static bool walk_directory(struct walk *walk, const char *below, int depth)
{
    char *path = path_of(walk->objects, str_from(below));
    DIR *directory = opendir(path);
    int error = directory == NULL ? errno : 0;
    bool ok = true;
    if (error != 0 && error != ENOENT)
        ok = store_failed(walk->objects, path, error, walk->diags);
    free(path);
    if (directory == NULL)
        return ok;
    const struct dirent *entry;
    while (ok && (entry = readdir(directory)) != NULL)
        ok = walk_entry(walk, below, entry->d_name, depth);
    closedir(directory);
    return ok;
}

static int by_name(const void *a, const void *b)
{
    return str_compare(((const struct objects_entry *)a)->name, ((const struct objects_entry *)b)->name);
}

static bool list(struct objects *objects, struct str prefix, struct arena *arena,
                 struct objects_entry **entries, uint32_t *count, struct diag_list *diags)
{
    struct walk walk = {.objects = objects, .prefix = prefix, .arena = arena, .diags = diags};
    atomic_fetch_add(&objects->requests, 1);
    bool ok = walk_directory(&walk, "", 0);
    if (ok && walk.entries.count > 0) {
        qsort(walk.entries.items, walk.entries.count, sizeof(*walk.entries.items), by_name);
        *entries = arena_copy(arena, walk.entries.items, walk.entries.count * sizeof(*walk.entries.items));
        *count = walk.entries.count;
    }
    free(walk.entries.items);
    return ok;
}

static bool remove_object(struct objects *objects, struct str name, struct diag_list *diags)
{
    char *path = path_of(objects, name);
    atomic_fetch_add(&objects->requests, 1);
    int error = failpoint("objects.request");
    if (error == 0 && unlink(path) != 0 && errno != ENOENT && errno != ENOTDIR)
        error = errno;
    bool ok = error == 0 || store_failed(objects, path, error, diags);
    free(path);
    return ok;
}

/* By the store's own clock: a new file's time, so that machines whose clocks differ remove nothing that is in work. */
static bool abandon(struct objects *objects, int64_t age_us, uint32_t *count, struct diag_list *diags)
{
    char *path = mem_printf("%s/" UNFINISHED, root(objects));
    struct stat now, info;
    int error = 0, probe = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = probe < 0 ? NULL : fdopendir(probe);
    if (directory == NULL) {
        error = errno;
        free(path);
        return error == ENOENT || store_failed(objects, root(objects), error, diags);
    }
    if (futimens(probe, NULL) != 0 || fstat(probe, &now) != 0)
        error = errno;
    const struct dirent *entry;
    while (error == 0 && (entry = readdir(directory)) != NULL) {
        if (fstatat(probe, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode) ||
            (now.st_mtim.tv_sec - info.st_mtim.tv_sec) * US_PER_SECOND < age_us)
            continue;
        if (unlinkat(probe, entry->d_name, 0) == 0)
            ++*count;
        else if (errno != ENOENT)
            error = errno;
    }
    closedir(directory);
    bool ok = error == 0 || store_failed(objects, path, error, diags);
    free(path);
    return ok;
}

const struct objects_kind objects_file = {
    .scheme = "file:",
    .open = open_store,
    .close = close_store,
    .check = check,
    .put = put,
    .put_new = put_new,
    .put_file = put_file,
    .get = get,
    .get_range = get_range,
    .head = head,
    .list = list,
    .remove = remove_object,
    .abandon = abandon,
};
