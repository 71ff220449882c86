#include "core/os.h"
#include "core/mem.h"
#include "core/refused.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

int os_write_all(int fd, const void *data, size_t bytes, const char *point)
{
    int error = point == NULL ? 0 : failpoint(point);
    if (error != 0) {
        /* Leaves half of the bytes written, like a power cut. */
        if (bytes > 1 && write(fd, data, bytes / 2) < 0)
            return errno;
        return error;
    }
    const char *at = data;
    while (bytes > 0) {
        ssize_t written = write(fd, at, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return errno;
        at += written;
        bytes -= (size_t)written;
    }
    return 0;
}

int os_write_file(const char *path, const void *data, size_t bytes, const char *write_point,
                  const char *sync_point)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int error = fd < 0 ? errno : os_write_all(fd, data, bytes, write_point);
    if (error == 0)
        error = os_fsync(fd, sync_point);
    if (fd >= 0)
        close(fd);
    return error;
}

int os_pwrite_all(int fd, const void *data, size_t bytes, uint64_t offset, const char *point)
{
    int error = point == NULL ? 0 : failpoint(point);
    if (error != 0)
        return error;
    const char *at = data;
    while (bytes > 0) {
        ssize_t written = pwrite(fd, at, bytes, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return errno;
        at += written;
        offset += (uint64_t)written;
        bytes -= (size_t)written;
    }
    return 0;
}

/* offset -1: reads at the descriptor's position, which moves on. */
static int read_all(int fd, void *data, size_t bytes, int64_t offset, size_t *got)
{
    *got = 0;
    while (*got < bytes) {
        char *at = (char *)data + *got;
        ssize_t count =
            offset < 0 ? read(fd, at, bytes - *got) : pread(fd, at, bytes - *got, offset + (int64_t)*got);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return errno;
        if (count == 0)
            break;
        *got += (size_t)count;
    }
    return 0;
}

int os_read_all(int fd, void *data, size_t bytes, size_t *got)
{
    return read_all(fd, data, bytes, -1, got);
}

int os_pread_all(int fd, void *data, size_t bytes, uint64_t offset, size_t *got)
{
    return read_all(fd, data, bytes, (int64_t)offset, got);
}

int os_copy_bytes(int from, int to, uint64_t bytes, const char *point)
{
    enum { WINDOW_BYTES = 1 << 20 };
    char *window = mem_alloc(WINDOW_BYTES);
    int error = 0;
    while (error == 0 && bytes > 0) {
        size_t got;
        error = os_read_all(from, window, (size_t)MIN(bytes, (uint64_t)WINDOW_BYTES), &got);
        if (error == 0 && got == 0)
            error = ENODATA;
        if (error == 0)
            error = os_write_all(to, window, got, point);
        bytes -= got;
    }
    free(window);
    return error;
}

int os_fsync(int fd, const char *point)
{
    int error = point == NULL ? 0 : failpoint(point);
    if (error != 0)
        return error;
    return fsync(fd) == 0 ? 0 : errno;
}

int os_fsync_directory(const char *path, const char *point)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int error = os_fsync(fd, point);
    close(fd);
    return error;
}

char *os_directory(const char *path)
{
    const char *slash = strrchr(path, '/');
    return mem_str(slash == NULL ? STR(".") : (struct str){path, (size_t)(slash - path) + (slash == path)});
}

int os_fsync_parent(const char *path, const char *point)
{
    char *directory = os_directory(path);
    int error = os_fsync_directory(directory, point);
    free(directory);
    return error;
}

int os_rename(const char *from, const char *to, const char *point)
{
    int error = point == NULL ? 0 : failpoint(point);
    if (error != 0)
        return error;
    return rename(from, to) == 0 ? 0 : errno;
}

int os_rename_new(const char *from, const char *to, const char *point)
{
    struct stat info;
    int error = point == NULL ? 0 : failpoint(point);
    if (error != 0)
        return error;
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    if (lstat(to, &info) == 0) /* the file system has no RENAME_NOREPLACE: this check and the rename are not
                                  atomic */
        return EEXIST;
    return rename(from, to) == 0 ? 0 : errno;
}

int os_mkdirs(const char *path)
{
    char *copy = mem_strdup(path);
    if (copy == NULL)
        return ENOMEM;
    int error = 0;
    for (char *at = copy + 1; error == 0; at++) {
        char c = *at;
        if (c != '/' && c != '\0')
            continue;
        *at = '\0';
        struct stat info;
        bool is_new = mkdir(copy, 0777) == 0;
        if (!is_new && (errno != EEXIST || stat(copy, &info) != 0 || !S_ISDIR(info.st_mode)))
            error = errno == EEXIST ? ENOTDIR : errno;
        if (is_new)
            error = os_fsync_parent(copy, NULL);
        if (error == EACCES && is_new) /* the parent may not be read, so it cannot be opened and synced */
            error = 0;
        *at = c;
        if (c == '\0')
            break;
    }
    free(copy);
    return error;
}

int os_remove_tree(const char *path)
{
    /* A link is removed, never followed. */
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL) {
        int reason = errno;
        if (fd >= 0)
            close(fd);
        if (reason == ENOENT)
            return 0;
        if (reason != ENOTDIR && reason != ELOOP)
            return reason;
        return unlink(path) == 0 ? 0 : errno;
    }
    int error = 0;
    struct dirent *entry;
    while (error == 0 && (entry = readdir(directory)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char *child = mem_printf("%s/%s", path, entry->d_name);
        struct stat info;
        if (lstat(child, &info) != 0)
            error = errno == ENOENT ? 0 : errno;
        else if (S_ISDIR(info.st_mode))
            error = os_remove_tree(child);
        else if (unlink(child) != 0 && errno != ENOENT)
            error = errno;
        free(child);
    }
    closedir(directory);
    if (error == 0 && rmdir(path) != 0 && errno != ENOENT)
        error = errno;
    return error;
}

int os_read_file(const char *path, size_t max_bytes, char **data, size_t *bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    size_t capacity = 4096, length = 0;
    char *memory = refused_ask(capacity + 1);
    int error = memory == NULL ? ENOMEM : 0;
    while (error == 0) {
        size_t got;
        error = os_read_all(fd, memory + length, capacity - length, &got);
        length += got;
        if (error != 0 || length < capacity)
            break;
        if (length > max_bytes) {
            error = EFBIG;
            break;
        }
        capacity *= 2;
        char *larger = refused_ask_again(memory, capacity + 1);
        if (larger == NULL)
            error = ENOMEM;
        else
            memory = larger;
    }
    close(fd);
    if (error == 0 && length > max_bytes)
        error = EFBIG;
    if (error != 0) {
        free(memory);
        return error;
    }
    memory[length] = '\0';
    *data = memory;
    *bytes = length;
    return 0;
}

int64_t os_free_bytes(const char *path)
{
    struct statvfs info;
    if (statvfs(path, &info) != 0)
        return -1;
    return (int64_t)(info.f_bavail * info.f_frsize);
}

int64_t os_file_bytes(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (int64_t)info.st_size : -1;
}

/* The number after `name` in a small kernel file; -1: no number there ("max"), or no such file. */
static int64_t number_in(const char *path, const char *name)
{
    char *text;
    size_t bytes;
    if (os_read_file(path, 1 << 16, &text, &bytes) != 0)
        return -1;
    const char *at = strstr(text, name);
    char *end = NULL;
    long long number = at == NULL ? -1 : strtoll(at + strlen(name), &end, 10);
    bool is_number = at != NULL && end != at + strlen(name);
    free(text);
    return is_number && number >= 0 ? (int64_t)number : -1;
}

int64_t os_memory_available(void)
{
    int64_t kib = number_in("/proc/meminfo", "MemAvailable:"),
            limit = number_in("/sys/fs/cgroup/memory.max", "");
    int64_t bytes = kib < 0 || kib > INT64_MAX / 1024 ? -1 : kib * 1024;
    return limit >= 0 && (bytes < 0 || limit < bytes) ? limit : bytes;
}

bool os_lock(int fd)
{
    enum { WAIT_MS = 3000, TRY_MS = 10 };
    for (int waited_ms = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; waited_ms += TRY_MS) {
        if (waited_ms >= WAIT_MS)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = TRY_MS * 1000 * 1000}, NULL);
    }
    return true;
}

static int64_t clock_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * US_PER_SECOND + now.tv_nsec / 1000;
}

int64_t os_monotonic_us(void)
{
    return clock_us(CLOCK_MONOTONIC);
}

uint64_t os_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

int64_t os_thread_cpu_us(void)
{
    return clock_us(CLOCK_THREAD_CPUTIME_ID);
}

int64_t os_wall_us(void)
{
    return clock_us(CLOCK_REALTIME);
}
