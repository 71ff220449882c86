#include "core/delta_log_format.h"
#include "core/mem.h"
#include "core/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WHY_BYTES = 256 };

struct delta_log {
    char *directory;
    uint32_t generation;
    struct delta_segment_head head; /* of the next segment; its number and digest are set then */
    uint64_t budget_bytes, segment_bytes;
    int writer_fd; /* WRITER, held; -1: none */

    pthread_mutex_t mutex; /* guards what follows */
    int fd;                /* the newest segment; -1: the log is broken */
    uint64_t digest;       /* of the last entry, or of the segment's head */
    uint64_t *sizes;       /* bytes of segment `oldest + i`, for oldest to newest */
    size_t sizes_room;
    uint64_t oldest, newest; /* numbers of segments; none: oldest = newest + 1 */
    struct delta_log_figures figures;
    char why[WHY_BYTES];
};

/* Removes the segments of this log, the oldest first. */
static void remove_segments(const struct delta_log *log)
{
    char path[DELTA_PATH_BYTES];
    for (uint64_t i = log->oldest; i <= log->newest; i++)
        if (delta_segment_path(log->directory, log->generation, i, path))
            (void)unlink(path);
}

void delta_segments_remove(const char *directory)
{
    uint32_t generation;
    uint64_t segment;
    DIR *dir = opendir(directory);
    if (dir == NULL)
        return;
    for (const struct dirent *one = readdir(dir); one != NULL; one = readdir(dir))
        if (delta_segment_name(one->d_name, &generation, &segment))
            (void)unlinkat(dirfd(dir), one->d_name, 0);
    closedir(dir);
}

static void forget_segments(struct delta_log *log)
{
    if (log->fd >= 0)
        close(log->fd);
    log->fd = -1;
    log->oldest = log->newest + 1;
    log->figures.held_bytes = 0;
}

/* The log is broken from here: readers learn it from the segments that are gone. */
static bool break_log(struct delta_log *log, const char *what, int error)
{
    char text[128];
    snprintf(log->why, sizeof(log->why), "%s: %s", what, strerror_r(error, text, sizeof(text)));
    log->figures.is_broken = true;
    remove_segments(log);
    forget_segments(log);
    return false;
}

/* Writes all the pieces, which it changes. 0 or an errno. When the failpoint gives an error, half of the
 * first piece is written. */
static int write_pieces(int fd, struct iovec *pieces, int count)
{
    int error = failpoint("log.write");
    if (error != 0) {
        (void)!write(fd, pieces[0].iov_base, pieces[0].iov_len / 2);
        return error;
    }
    while (count > 0) {
        ssize_t wrote = writev(fd, pieces, count);
        if (wrote < 0 && errno != EINTR)
            return errno;
        size_t left = wrote < 0 ? 0 : (size_t)wrote;
        for (; count > 0 && left >= pieces->iov_len; pieces++, count--)
            left -= pieces->iov_len;
        if (wrote == 0 && count > 0)
            return ENOSPC;
        if (left > 0) {
            pieces->iov_base = (char *)pieces->iov_base + left;
            pieces->iov_len -= left;
        }
    }
    return 0;
}

static void add_bytes(struct delta_log *log, size_t bytes)
{
    log->sizes[log->newest - log->oldest] += bytes;
    log->figures.held_bytes += bytes;
    log->figures.bytes += bytes;
}

/* Writes an entry to the newest segment. */
static int put_entry(struct delta_log *log, const struct delta_entry *entry)
{
    static const char zeros[8];
    size_t length = entry->bytes.length + entry->more.length, padding = delta_padded(length) - length;
    struct delta_entry_head head = {.length = (uint32_t)length,
                                    .number = entry->number,
                                    .time_us = os_wall_us(),
                                    .kind = entry->kind,
                                    .part = entry->part};
    head.check = delta_entry_check(&head, log->digest);
    XXH3_state_t state;
    XXH3_64bits_reset_withSeed(&state, log->digest);
    XXH3_64bits_update(&state, &head.check, sizeof(head) - DELTA_DIGESTED_FROM);
    struct iovec pieces[4] = {{&head, sizeof(head)}};
    int count = 1;
    const struct str parts[] = {entry->bytes, entry->more, {zeros, padding}};
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
        if (parts[i].length > 0) {
            XXH3_64bits_update(&state, parts[i].data, parts[i].length);
            pieces[count++] = (struct iovec){(void *)(uintptr_t)parts[i].data, parts[i].length};
        }
    head.digest = XXH3_64bits_digest(&state);
    int error = write_pieces(log->fd, pieces, count);
    if (error != 0)
        return error;
    log->digest = head.digest;
    add_bytes(log, sizeof(head) + length + padding);
    return 0;
}

/* Makes the file of segment newest + 1, empty. -1 + errno: it cannot be made. */
static int make_file(const struct delta_log *log)
{
    char path[DELTA_PATH_BYTES];
    errno = ENAMETOOLONG;
    if (!delta_segment_path(log->directory, log->generation, log->newest + 1, path))
        return -1;
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
}

/* Begins segment newest + 1 with its file `fd`, after the end entry of the segment before. */
static int begin_segment(struct delta_log *log, int fd)
{
    size_t held = (size_t)(log->newest + 1 - log->oldest);
    if (held == log->sizes_room) {
        log->sizes_room = MAX(log->sizes_room * 2, (size_t)16);
        log->sizes = mem_realloc(log->sizes, log->sizes_room * sizeof(*log->sizes));
    }
    if (log->fd >= 0)
        close(log->fd);
    log->fd = fd;
    log->newest++;
    log->sizes[held] = 0;
    log->head.segment = log->figures.segment = log->newest;
    log->head.digest = delta_segment_digest(&log->head);
    log->digest = log->head.digest;
    struct iovec piece = {&log->head, sizeof(log->head)};
    int error = write_pieces(fd, &piece, 1);
    if (error == 0)
        add_bytes(log, sizeof(log->head));
    return error;
}

static int next_segment(struct delta_log *log)
{
    static const struct delta_entry next = {.kind = DELTA_KIND_NEXT};
    int fd = make_file(log), error = fd < 0 ? errno : put_entry(log, &next);
    if (error == 0)
        return begin_segment(log, fd);
    /* The new file has no place among the segments yet. */
    char path[DELTA_PATH_BYTES];
    if (fd >= 0)
        close(fd);
    if (fd >= 0 && delta_segment_path(log->directory, log->generation, log->newest + 1, path))
        (void)unlink(path);
    return error;
}

/* Drops the oldest segments until `bytes` more fit the budget; the newest segment stays. */
static void drop_segments(struct delta_log *log, uint64_t bytes)
{
    char path[DELTA_PATH_BYTES];
    size_t drop = 0, held = (size_t)(log->newest + 1 - log->oldest);
    for (; drop + 1 < held && log->figures.held_bytes + bytes > log->budget_bytes; drop++) {
        if (delta_segment_path(log->directory, log->generation, log->oldest + drop, path))
            (void)unlink(path);
        log->figures.held_bytes -= log->sizes[drop];
    }
    if (drop == 0)
        return;
    log->oldest += drop;
    log->figures.dropped += drop;
    memmove(log->sizes, log->sizes + drop, (held - drop) * sizeof(*log->sizes));
}

/* --- Opening and closing --- */

int delta_writer_hold(const char *directory, uint32_t generation, int *fd)
{
    char path[DELTA_PATH_BYTES], text[DELTA_WRITER_BYTES];
    int length = snprintf(path, sizeof(path), "%s/WRITER", directory);
    if (length < 0 || length >= (int)sizeof(path))
        return ENAMETOOLONG;
    if (*fd < 0)
        *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0)
        return errno;
    if (!os_lock(*fd))
        return EWOULDBLOCK;
    length = snprintf(text, sizeof(text), "%u\n", generation);
    if (ftruncate(*fd, 0) != 0)
        return errno;
    return os_pwrite_all(*fd, text, (size_t)length, 0, NULL);
}

static void free_log(struct delta_log *log)
{
    if (log->fd >= 0)
        close(log->fd);
    if (log->writer_fd >= 0)
        close(log->writer_fd);
    pthread_mutex_destroy(&log->mutex);
    free(log->sizes);
    free(log->directory);
    free(log);
}

struct delta_log *delta_log_open(const struct delta_log_options *options, struct diag_list *diags)
{
    leat_assert(options->run.length <= DELTA_RUN_MAX && options->segment_bytes >= DELTA_SEGMENT_LEAST);
    struct delta_log *log = mem_calloc(1, sizeof(*log));
    log->directory = mem_strdup(options->directory);
    log->generation = options->generation;
    log->budget_bytes = options->budget_bytes;
    log->segment_bytes = options->segment_bytes;
    log->fd = log->writer_fd = -1;
    log->oldest = 1;
    log->head.generation = options->generation;
    log->head.run_length = (uint32_t)options->run.length;
    memcpy(log->head.magic, DELTA_MAGIC, sizeof(log->head.magic));
    if (options->run.length > 0)
        memcpy(log->head.run, options->run.data, options->run.length);
    pthread_mutex_init(&log->mutex, NULL);
    int error = os_mkdirs(log->directory);
    if (error == 0)
        error = delta_writer_hold(log->directory, log->generation, &log->writer_fd);
    if (error == 0) {
        delta_segments_remove(log->directory); /* of earlier lives */
        int fd = make_file(log);
        error = fd < 0 ? errno : begin_segment(log, fd);
    }
    if (error == 0)
        return log;
    struct diag *diag;
    if (error == EWOULDBLOCK) {
        diag = diag_error(diags, DIAG_DIRECTORY_IN_USE, (struct span){0},
                          "another process writes the delta log in %s", log->directory);
        diag_hint(diags, diag, "stop that process, or name another directory");
    } else {
        diag = diag_error(diags, DIAG_OUTPUT_FAILED, (struct span){0},
                          "the delta log in %s cannot be written", log->directory);
        diag_errno(diags, diag, error);
    }
    remove_segments(log);
    free_log(log);
    return NULL;
}

void delta_log_close(struct delta_log *log)
{
    static const struct delta_entry closed = {.kind = DELTA_KIND_CLOSED};
    if (log == NULL)
        return;
    if (log->fd >= 0) {
        int error = put_entry(log, &closed);
        if (error != 0)
            break_log(log, "the log cannot be closed", error);
    }
    free_log(log);
}

/* --- Appending --- */

bool delta_log_append(struct delta_log *log, const struct delta_entry *entry)
{
    leat_assert(entry->kind <= DELTA_KIND_MAX);
    leat_assert(entry->bytes.length <= DELTA_ENTRY_MAX && entry->more.length <= DELTA_ENTRY_MAX &&
                entry->bytes.length + entry->more.length <= DELTA_ENTRY_MAX);
    uint64_t bytes = sizeof(struct delta_entry_head) + delta_padded(entry->bytes.length + entry->more.length);
    pthread_mutex_lock(&log->mutex);
    bool is_good = log->fd >= 0;
    if (is_good && log->sizes[log->newest - log->oldest] >= log->segment_bytes) {
        int error = next_segment(log);
        is_good = error == 0 || break_log(log, "a segment of the log cannot be begun", error);
    }
    if (is_good) {
        drop_segments(log, bytes);
        int error = put_entry(log, entry);
        is_good = error == 0 || break_log(log, "an entry of the log cannot be written", error);
        log->figures.entries += is_good;
    }
    pthread_mutex_unlock(&log->mutex);
    return is_good;
}

const char *delta_log_error(struct delta_log *log)
{
    pthread_mutex_lock(&log->mutex);
    const char *why = log->figures.is_broken ? log->why : NULL;
    pthread_mutex_unlock(&log->mutex);
    return why;
}

bool delta_log_restart(struct delta_log *log)
{
    pthread_mutex_lock(&log->mutex);
    remove_segments(log);
    forget_segments(log);
    log->figures.is_broken = false;
    int fd = make_file(log), error = fd < 0 ? errno : begin_segment(log, fd);
    bool is_good = error == 0 || break_log(log, "the log cannot be begun again", error);
    pthread_mutex_unlock(&log->mutex);
    return is_good;
}

void delta_log_figures(struct delta_log *log, struct delta_log_figures *figures)
{
    pthread_mutex_lock(&log->mutex);
    *figures = log->figures;
    pthread_mutex_unlock(&log->mutex);
}
