/* Copies of the delta log; part of core/delta_log.h. A copy's segments have the bytes of the log's; the rule that the file of
 * the next segment is made before the end of a segment is written holds in the copy, too. */
#include "core/delta_log_format.h"
#include "core/mem.h"
#include "core/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

/* --- Reading --- */

bool delta_log_writer(const char *directory, uint32_t *generation)
{
    char path[DELTA_PATH_BYTES], text[DELTA_WRITER_BYTES + 1] = "";
    snprintf(path, sizeof(path), "%s/WRITER", directory);
    *generation = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    bool is_held = flock(fd, LOCK_SH | LOCK_NB) != 0;
    if (is_held && pread(fd, text, sizeof(text) - 1, 0) > 0)
        *generation = (uint32_t)strtoul(text, NULL, 10);
    close(fd);
    return is_held;
}

uint64_t delta_log_oldest(const char *directory, uint32_t generation)
{
    uint64_t oldest = 0, segment;
    uint32_t found;
    DIR *dir = opendir(directory);
    if (dir == NULL)
        return 0;
    for (const struct dirent *one = readdir(dir); one != NULL; one = readdir(dir))
        if (delta_segment_name(one->d_name, &found, &segment) && found == generation && segment > 0 &&
            (oldest == 0 || segment < oldest))
            oldest = segment;
    closedir(dir);
    return oldest;
}

static int64_t segment_bytes(const char *directory, uint32_t generation, uint64_t segment)
{
    char path[DELTA_PATH_BYTES];
    return delta_segment_path(directory, generation, segment, path) ? os_file_bytes(path) : -1;
}

int delta_log_piece(const char *directory, uint32_t generation, uint64_t segment, uint64_t offset, char *data,
                    size_t room, struct delta_piece *piece)
{
    char path[DELTA_PATH_BYTES];
    *piece = (struct delta_piece){0};
    if (offset > INT64_MAX - room || !delta_segment_path(directory, generation, segment, path))
        return EINVAL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        piece->is_gone = errno == ENOENT;
        return piece->is_gone ? 0 : errno;
    }
    /* Once the next segment has bytes, this one gets none: what is read afterwards reaches its end. */
    bool is_ended = segment_bytes(directory, generation, segment + 1) > 0;
    int error = os_pread_all(fd, data, room, offset, &piece->got);
    piece->is_complete = is_ended && piece->got < room;
    /* The file was made before the end of this segment was written. */
    piece->has_next = segment_bytes(directory, generation, segment + 1) >= 0;
    close(fd);
    return error;
}

/* --- Writing --- */

struct delta_copy {
    char *directory;
    uint64_t budget_bytes;
    int writer_fd;           /* WRITER, held while `generation` is not 0 and the log's writer lives */
    uint32_t generation;     /* 0: not begun */
    uint64_t oldest, newest; /* segments; newest 0: none */
    uint64_t offset;         /* bytes of the newest */
    uint64_t held_bytes;     /* of all */
    bool is_held;
    int fd; /* the newest segment; -1: none */
};

struct delta_copy *delta_copy_open(const char *directory, uint64_t budget_bytes, struct diag_list *diags)
{
    struct delta_copy *copy = mem_calloc(1, sizeof(*copy));
    *copy = (struct delta_copy){
        .directory = mem_strdup(directory), .budget_bytes = budget_bytes, .writer_fd = -1, .fd = -1};
    int error = os_mkdirs(directory);
    if (error == 0)
        error = delta_writer_hold(directory, 0, &copy->writer_fd);
    if (error == 0) {
        delta_segments_remove(directory);
        flock(copy->writer_fd, LOCK_UN);
        return copy;
    }
    struct diag *diag =
        diag_error(diags, error == EWOULDBLOCK ? DIAG_DIRECTORY_IN_USE : DIAG_OUTPUT_FAILED, (struct span){0},
                   "the copy of a delta log in %s cannot be written", directory);
    if (error == EWOULDBLOCK)
        diag_hint(diags, diag, "another process writes there: stop it, or name another directory");
    else
        diag_errno(diags, diag, error);
    if (copy->writer_fd >= 0)
        close(copy->writer_fd);
    copy->writer_fd = -1; /* another process's segments stay */
    delta_copy_close(copy);
    return NULL;
}

static void drop_all(struct delta_copy *copy)
{
    if (copy->fd >= 0)
        close(copy->fd);
    copy->fd = -1;
    delta_segments_remove(copy->directory);
    copy->oldest = copy->newest = copy->offset = copy->held_bytes = 0;
}

int delta_copy_begin(struct delta_copy *copy, uint32_t generation)
{
    drop_all(copy);
    copy->generation = 0;
    int error = delta_writer_hold(copy->directory, generation, &copy->writer_fd);
    if (error == 0)
        copy->generation = generation;
    copy->is_held = error == 0;
    return error;
}

uint32_t delta_copy_generation(const struct delta_copy *copy)
{
    return copy->generation;
}

void delta_copy_place(const struct delta_copy *copy, uint64_t *segment, uint64_t *offset)
{
    *segment = copy->newest;
    *offset = copy->offset;
}

/* Opens the file of a segment, and makes it if it is missing; *fd: of the file. 0 or an errno. */
static int make_segment(const struct delta_copy *copy, uint64_t segment, int *fd)
{
    char path[DELTA_PATH_BYTES];
    if (!delta_segment_path(copy->directory, copy->generation, segment, path))
        return ENAMETOOLONG;
    *fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    return *fd < 0 ? errno : 0;
}

static int go_to(struct delta_copy *copy, uint64_t segment)
{
    if (copy->fd >= 0)
        close(copy->fd);
    copy->fd = -1;
    int error = make_segment(copy, segment, &copy->fd);
    copy->newest = segment;
    copy->offset = 0;
    if (copy->oldest == 0)
        copy->oldest = segment;
    return error;
}

/* Drops the oldest segments that go beyond the budget; the newest stays. */
static void drop_oldest(struct delta_copy *copy)
{
    char path[DELTA_PATH_BYTES];
    for (; copy->held_bytes > copy->budget_bytes && copy->oldest < copy->newest; copy->oldest++) {
        int64_t bytes = segment_bytes(copy->directory, copy->generation, copy->oldest);
        copy->held_bytes -= MIN((uint64_t)MAX(bytes, 0), copy->held_bytes);
        if (delta_segment_path(copy->directory, copy->generation, copy->oldest, path))
            (void)unlink(path);
    }
}

int delta_copy_append(struct delta_copy *copy, uint64_t segment, const char *data,
                      const struct delta_piece *piece)
{
    leat_assert(copy->generation > 0 && segment > 0 && (copy->newest == 0 || segment == copy->newest));
    int next_fd = -1, error = copy->newest == 0 ? go_to(copy, segment) : 0;
    if (error == 0 && piece->has_next)
        error = make_segment(copy, segment + 1, &next_fd);
    if (next_fd >= 0)
        close(next_fd);
    if (error == 0)
        error = os_write_all(copy->fd, data, piece->got, "log.write");
    if (error != 0)
        return error;
    copy->offset += piece->got;
    copy->held_bytes += piece->got;
    if (piece->is_complete)
        error = go_to(copy, segment + 1);
    drop_oldest(copy);
    /* A writer that seemed to have ended: it has written more. */
    if (error == 0 && !copy->is_held && piece->got > 0) {
        error = delta_writer_hold(copy->directory, copy->generation, &copy->writer_fd);
        copy->is_held = error == 0;
    }
    return error;
}

void delta_copy_forget(struct delta_copy *copy)
{
    drop_all(copy);
    copy->generation = 0;
    delta_copy_pause(copy);
}

void delta_copy_pause(struct delta_copy *copy)
{
    if (copy->is_held)
        flock(copy->writer_fd, LOCK_UN);
    copy->is_held = false;
}

void delta_copy_close(struct delta_copy *copy)
{
    if (copy == NULL)
        return;
    if (copy->writer_fd >= 0)
        drop_all(copy);
    if (copy->fd >= 0)
        close(copy->fd);
    if (copy->writer_fd >= 0)
        close(copy->writer_fd);
    free(copy->directory);
    free(copy);
}
