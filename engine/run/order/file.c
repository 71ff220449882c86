/* --record-order: writes the whole order log, beside the checkpoints.
 *
 * A file takes segments one behind the other. A resume goes on with a copy of the segments that its
 * checkpoint covers, because a process that was replaced may still write to the old inode. A directory is for
 * jobs that run for months:
 *
 *     DIR/RUN                               16 bytes: id of the run
 *     DIR/00000003-00000000000000012345     segments from micro-batch 12345 on, written by the third life
 *
 * Each life begins a file of its own, and another whenever one is large, so that old ones can be moved
 * away; files of an earlier life are never cut or written to. If two files have the same micro-batch, the
 * file of the newer life counts, because the run went on with that life. */
#include "run/order/internal.h"

#include "core/mem.h"
#include "core/os.h"
#include "state/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIRECTORY_FILE_BYTES = 64 << 20, NAME_BYTES = 8 + 1 + 20 };

static bool file_failed(const char *path, int error, const char *what, struct diag_list *diags)
{
    struct diag *d =
        diag_error(diags, error == ENOSPC || error == EDQUOT ? DIAG_DISK_FULL : DIAG_OUTPUT_FAILED,
                   (struct span){0}, "the order log `%s` cannot be %s", path, what);
    diag_errno(diags, d, error);
    diag_hint(diags, d, "correct the cause, or run without --record-order");
    return false;
}

/* --- One file --- */

static bool file_is_short(struct run *run, const char *path, uint64_t next)
{
    struct diag *d =
        diag_error(run->diags, DIAG_FILE_DAMAGED, (struct span){0},
                   "the order log `%s` ends before micro-batch %llu, and the run resumes at micro-batch %llu",
                   path, (unsigned long long)next, (unsigned long long)run->order->first);
    diag_hint(run->diags, d,
              "name the file or directory that this run has written so far, or run without --record-order");
    return false;
}

/* Number of the first micro-batch in the file: 0, except if the run began with another run's checkpoint. */
static uint64_t file_first(const struct run *run, int fd)
{
    char text[ORDER_HEAD_BYTES];
    size_t got = 0;
    struct order_head head;
    int error = os_pread_all(fd, text, sizeof(text), 0, &got);
    bool has_head = error == 0 && order_head_read((struct str){text, got}, &head) == NULL;
    return has_head ? head.first : run->is_from ? run->order->first : 0;
}

/* A resume keeps the segments up to its checkpoint: sets order->file_end to their end. False after a
 * diagnostic. */
static bool file_resume(struct run *run, int fd)
{
    struct order *order = run->order;
    uint64_t next = file_first(run, fd);
    while (next < run->order->first) {
        char text[ORDER_HEAD_BYTES];
        size_t got = 0;
        struct order_head head;
        int error = os_pread_all(fd, text, sizeof(text), order->file_end, &got);
        if (error != 0)
            return file_failed(order->file_path, error, "read", run->diags);
        if (order_head_read((struct str){text, got}, &head) != NULL || head.first != next ||
            head.next > run->order->first || head.next == next)
            return file_is_short(run, order->file_path, next);
        next = head.next;
        order->file_end += order_segment_bytes(&head);
    }
    return true;
}

static bool file_exists(struct run *run, const char *path)
{
    struct diag *d = diag_error(run->diags, DIAG_OUTPUT_EXISTS, (struct span){0},
                                "the order log `%s` exists already", path);
    diag_hint(run->diags, d, "remove it, or give --record-order another name");
    return false;
}

/* Whether the open file is a regular file that is empty or an order log; nothing else may be copied and
 * written to. */
static bool is_order_file(int fd)
{
    char text[ORDER_HEAD_BYTES];
    struct stat info;
    struct order_head head;
    size_t got = 0;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
           os_pread_all(fd, text, sizeof(text), 0, &got) == 0 &&
           (got == 0 || order_head_read((struct str){text, got}, &head) == NULL);
}

static bool refuse_file(struct run *run, const char *path)
{
    struct diag *d = diag_error(run->diags, DIAG_OUTPUT_EXISTS, (struct span){0},
                                "`%s` exists already and is not an order log", path);
    diag_hint(run->diags, d, "give --record-order another name");
    return false;
}

/* Removes copies that other lives have left. A process of another life that is still there then has no copy
 * to rename over the file. */
static void remove_copies(const char *path)
{
    struct arena arena = {0};
    const char *slash = strrchr(path, '/');
    const char *directory = slash == NULL ? "." : arena_printf(&arena, "%.*s", (int)(slash - path) + 1, path);
    const char *prefix = arena_printf(&arena, "%s.new-", slash == NULL ? path : slash + 1);
    DIR *stream = opendir(directory);
    for (struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL;) {
        const char *life = entry->d_name + strlen(prefix);
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && *life != '\0' &&
            life[strspn(life, "0123456789")] == '\0')
            (void)unlink(arena_printf(&arena, "%s/%s", directory, entry->d_name));
    }
    if (stream != NULL)
        closedir(stream);
    arena_free(&arena);
}

/* Copies the first file_end bytes of the file, open as `from`, to a new file, and renames this copy to the
 * file's name. Returns an errno or 0. */
static int file_copy(struct run *run, int from)
{
    struct order *order = run->order;
    uint32_t life = run->dir != NULL ? checkpoint_generation(run->dir) : 0;
    const char *copy = arena_printf(&run->arena, "%s.new-%u", order->file_path, life);
    remove_copies(order->file_path);
    order->file_fd = open(copy, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int error = order->file_fd < 0 || lseek(from, 0, SEEK_SET) != 0 ? errno : 0;
    if (error == 0)
        error = os_copy_bytes(from, order->file_fd, order->file_end, "sink.write");
    if (error == 0)
        error = os_fsync(order->file_fd, "sink.fsync");
    if (error == 0)
        error = run_check(run);
    if (error == 0)
        error = os_rename(copy, order->file_path, "sink.rename");
    return error == 0 ? os_fsync_parent(order->file_path, NULL) : error;
}

static bool file_new(struct run *run)
{
    struct order *order = run->order;
    order->file_fd = open(order->file_path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    int error = order->file_fd < 0 ? errno : os_fsync_parent(order->file_path, NULL);
    return error == 0 ? file_resume(run, order->file_fd)
                      : file_failed(order->file_path, error, "opened", run->diags);
}

static bool file_open(struct run *run)
{
    struct order *order = run->order;
    bool may_exist = (run->is_resumed && !run->is_from) || run->replaces_parts || run_replaces_own(run);
    int from = open(order->file_path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), error = errno;
    if (from < 0 && error == ENOENT)
        return file_new(run);
    if (from < 0 && error != ELOOP && error != EISDIR && error != ENXIO)
        return file_failed(order->file_path, error, "opened", run->diags);
    bool is_good = (from >= 0 && is_order_file(from)) || refuse_file(run, order->file_path);
    if (is_good && !may_exist)
        is_good = file_exists(run, order->file_path);
    is_good = is_good && file_resume(run, from);
    if (is_good && (error = file_copy(run, from)) != 0)
        is_good = file_failed(order->file_path, error, "copied", run->diags);
    if (from >= 0)
        close(from);
    return is_good;
}

/* --- A directory --- */

struct part {
    uint32_t life;
    uint64_t first;
};

static int compare_parts(const void *left, const void *right)
{
    const struct part *a = left, *b = right;
    if (a->life != b->life)
        return a->life < b->life ? -1 : 1;
    return (a->first > b->first) - (a->first < b->first);
}

static bool part_of(const char *name, struct part *part)
{
    char *end;
    if (strlen(name) != NAME_BYTES || strspn(name, "0123456789-") != NAME_BYTES || name[8] != '-')
        return false;
    part->life = (uint32_t)strtoul(name, &end, 10);
    bool has_life = end == name + 8;
    part->first = strtoull(name + 9, &end, 10);
    return has_life && *end == '\0';
}

static char *part_path(struct arena *arena, const char *directory, const struct part *part)
{
    return arena_printf(arena, "%s/%08u-%020llu", directory, part->life, (unsigned long long)part->first);
}

/* The parts in the directory, sorted; malloc'd. NULL: *error has an errno. */
static struct part *list_parts(const char *directory, uint32_t *count, int *error)
{
    DIR *stream = opendir(directory);
    *count = 0;
    *error = stream == NULL ? errno : 0;
    if (stream == NULL)
        return NULL;
    struct part *parts = mem_alloc(sizeof(*parts));
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        struct part part;
        if (!part_of(entry->d_name, &part))
            continue;
        if ((*count & (*count - 1)) == 0)
            parts = mem_realloc(parts, MAX(*count * 2, 1) * sizeof(*parts));
        parts[(*count)++] = part;
    }
    closedir(stream);
    if (*count > 0)
        qsort(parts, *count, sizeof(*parts), compare_parts);
    return parts;
}

static int read_run(const char *directory, uint8_t run[ORDER_RUN_BYTES], struct arena *arena)
{
    char *text;
    size_t bytes;
    int error = os_read_file(arena_printf(arena, "%s/RUN", directory), ORDER_RUN_BYTES, &text, &bytes);
    if (error != 0)
        return error;
    if (bytes == ORDER_RUN_BYTES)
        memcpy(run, text, ORDER_RUN_BYTES);
    free(text);
    return bytes == ORDER_RUN_BYTES ? 0 : EINVAL;
}

const char *order_directory(const char *path, struct arena *arena, struct order_path **paths, uint32_t *count,
                            uint8_t run[ORDER_RUN_BYTES], int *error)
{
    *count = 0;
    *error = read_run(path, run, arena);
    if (*error == ENOENT) {
        *error = 0;
        return NULL;
    }
    if (*error != 0)
        return "its file RUN is damaged";
    uint32_t parts_count;
    struct part *parts = list_parts(path, &parts_count, error);
    if (*error != 0)
        return "it cannot be read";
    *paths = arena_array(arena, struct order_path, MAX(parts_count, 1));
    uint64_t until = UINT64_MAX;
    uint32_t at = parts_count;
    for (uint32_t i = parts_count; i-- > 0;) { /* from the newest life back */
        if (parts[i].first < until) {
            (*paths)[--at] = (struct order_path){part_path(arena, path, &parts[i]), until, true};
            until = parts[i].first;
        }
    }
    *count = parts_count - at;
    memmove(*paths, *paths + at, *count * sizeof(**paths));
    free(parts);
    return *count == 0 ? "it has no segments" : NULL;
}

static int write_run(const char *directory, const uint8_t run[ORDER_RUN_BYTES], struct arena *arena)
{
    const char *temporary = arena_printf(arena, "%s/RUN.tmp", directory);
    int error = os_write_file(temporary, run, ORDER_RUN_BYTES, "sink.write", "sink.fsync");
    if (error == 0)
        error = os_rename(temporary, arena_printf(arena, "%s/RUN", directory), NULL);
    return error == 0 ? os_fsync_directory(directory, NULL) : error;
}

/* Whether the files reach the first micro-batch of this life; earlier ones may have been moved away. False
 * after a diagnostic. */
static bool directory_reaches(struct run *run, const struct order_path *paths, uint32_t count)
{
    uint64_t first = run->order->first, next = 0, offset = 0;
    uint32_t at = 0;
    while (at < count && paths[at].until < first)
        at++;
    int fd = at < count ? open(paths[at].path, O_RDONLY | O_CLOEXEC) : -1;
    for (bool is_there = fd >= 0; is_there && next < first;) {
        char text[ORDER_HEAD_BYTES];
        size_t got = 0;
        struct order_head head;
        is_there = os_pread_all(fd, text, sizeof(text), offset, &got) == 0 &&
                   order_head_read((struct str){text, got}, &head) == NULL && head.next > head.first;
        next = is_there ? head.next : next;
        offset += is_there ? order_segment_bytes(&head) : 0;
    }
    if (fd >= 0)
        close(fd);
    return next >= first || file_is_short(run, run->order->directory, next);
}

static bool is_other_run(struct run *run)
{
    struct diag *d = diag_error(run->diags, DIAG_OUTPUT_EXISTS, (struct span){0},
                                "the order log `%s` is of another run", run->order->directory);
    diag_hint(run->diags, d, "give --record-order a directory that is empty or does not exist");
    return false;
}

static bool own_run(struct run *run, uint8_t own[ORDER_RUN_BYTES])
{
    _Static_assert(sizeof(struct run_id) == ORDER_RUN_BYTES, "as those of checkpoints");
    if (run->dir != NULL) {
        memcpy(own, checkpoint_run(run->dir).bytes, ORDER_RUN_BYTES);
        return true;
    }
    return getrandom(own, ORDER_RUN_BYTES, 0) == ORDER_RUN_BYTES;
}

/* Whether the directory's parts were written by lives that published no checkpoint, so that this life may
 * replace them. found: id of their run. */
static bool is_void(const struct run *run, const uint8_t found[ORDER_RUN_BYTES])
{
    struct run_id id;
    memcpy(id.bytes, found, sizeof(id.bytes));
    return run_replaces_own(run) || (run->replaces_parts && checkpoint_had_run(run->dir, &id));
}

/* Removes all parts: without checkpoints each life writes under the same names. Returns an errno or 0. */
static int remove_own_parts(struct run *run, const char *directory)
{
    uint32_t count;
    int error;
    struct part *parts = list_parts(directory, &count, &error);
    for (uint32_t i = 0; i < count && error == 0; i++)
        if (unlink(part_path(&run->arena, directory, &parts[i])) != 0)
            error = errno;
    free(parts);
    return error;
}

static bool directory_open(struct run *run)
{
    struct order *order = run->order;
    struct order_path *paths = NULL;
    uint8_t own[ORDER_RUN_BYTES], found[ORDER_RUN_BYTES] = {0};
    uint32_t count = 0;
    int error = os_mkdirs(order->directory);
    if (error == 0 && !own_run(run, own))
        error = errno;
    if (error == 0)
        error = read_run(order->directory, found, &run->arena);
    bool is_other = error == EINVAL || (error == 0 && memcmp(found, own, sizeof(own)) != 0);
    if (is_other && !is_void(run, found))
        return is_other_run(run);
    if (error == ENOENT && run->is_resumed && !run->is_from && run->order->first > 0)
        return file_is_short(run, order->directory, 0);
    if (is_other && run_replaces_own(run))
        error = remove_own_parts(run, order->directory);
    if (error == ENOENT || is_other)
        error = write_run(order->directory, own, &run->arena);
    if (error != 0)
        return file_failed(order->directory, error, "opened", run->diags);
    (void)order_directory(order->directory, &run->arena, &paths, &count, found, &error);
    return run->order->first == 0 || run->is_from || directory_reaches(run, paths, count);
}

/* Opens a new file for segments from micro-batch `first` on. Returns an errno or 0. */
static int directory_next(struct order *order, uint64_t first)
{
    struct arena arena = {0};
    struct part part = {order->life, first};
    free(order->part_path);
    order->part_path = mem_strdup(part_path(&arena, order->directory, &part));
    arena_free(&arena);
    order->file_path = order->part_path;
    order->file_end = 0;
    order->file_fd = open(order->file_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return order->file_fd < 0 ? errno : os_fsync_directory(order->directory, NULL);
}

/* --- A file or a directory --- */

bool order_is_directory(const char *path)
{
    struct stat info;
    size_t length = strlen(path);
    return (length > 0 && path[length - 1] == '/') || (stat(path, &info) == 0 && S_ISDIR(info.st_mode));
}

bool order_file_open(struct run *run)
{
    struct order *order = run->order;
    if (!order_is_directory(order->file_path))
        return file_open(run);
    order->directory = order->file_path;
    order->life = run->dir != NULL ? checkpoint_generation(run->dir) : 1;
    return directory_open(run);
}

/* Writes behind the published bytes, over bytes that a failed attempt may have left there. */
bool order_file_append(struct run *run, uint64_t first, struct diag_list *diags)
{
    struct order *order = run->order;
    int error = run_check(run);
    if (error == 0 && order->directory != NULL && order->file_fd < 0)
        error = directory_next(order, first);
    if (error == 0)
        error = ftruncate(order->file_fd, (off_t)order->file_end) == 0 ? 0 : errno;
    if (error == 0)
        error = os_pwrite_all(order->file_fd, order->segment.data, order->segment.length, order->file_end,
                              "sink.write");
    if (error == 0)
        error = os_fsync(order->file_fd, "sink.fsync");
    return error == 0 || file_failed(order->file_path, error, "written", diags);
}

void order_file_published(struct order *order)
{
    order->file_end += order->segment.length;
    if (order->directory == NULL || order->file_end < DIRECTORY_FILE_BYTES)
        return;
    close(order->file_fd);
    order->file_fd = -1;
}
