#include "core/temporary.h"

#include "core/mem.h"
#include "core/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char directory_name[] = "leat-state-", lock_name[] = "lock";

const char *temporary_root(void)
{
    const char *root = getenv("TMPDIR");
    return root != NULL && *root != '\0' ? root : "/tmp";
}

/* Moves a descriptor above 2; returns -1 with errno if fd is -1 or cannot be moved. If descriptors 0 to 2
 * were closed, open() may return one of them, and data would be mixed with messages for people. */
static int above_standard(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int other = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
    close(fd);
    errno = error;
    return other;
}

/* For file systems without O_TMPFILE: makes a named file and unlinks it at once. */
static int unnamed_file(const char *directory)
{
    char *path = mem_printf("%s/leat-file-XXXXXX", directory);
    int fd = mkostemp(path, O_CLOEXEC), error = errno;
    if (fd >= 0)
        unlink(path);
    free(path);
    errno = error;
    return fd;
}

int temporary_file(const char *directory)
{
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL))
        fd = unnamed_file(directory);
    return above_standard(fd);
}

/* Removes the directory. Its lock goes last: as long as anything is left, the lock shows the owner. */
static void remove_directory(const char *path)
{
    DIR *entries = opendir(path);
    struct dirent *entry;
    bool is_empty = entries != NULL;
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        bool stays = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                     strcmp(entry->d_name, lock_name) == 0;
        char *child = mem_printf("%s/%s", path, entry->d_name);
        if (!stays && os_remove_tree(child) != 0)
            is_empty = false; /* the lock stays, so that the next process tries again */
        free(child);
    }
    if (entries != NULL)
        closedir(entries);
    char *lock = mem_printf("%s/%s", path, lock_name);
    if (is_empty && unlink(lock) == 0)
        (void)rmdir(path);
    free(lock);
}

/* Removes the directory of a process that no longer exists. */
static void remove_left(const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid())
        return;
    if (rmdir(path) == 0) /* the owner was killed before it made the lock; or the owner is about to make
                             the lock, and then tries another name */
        return;
    char *lock = mem_printf("%s/%s", path, lock_name);
    int fd = open(lock, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    free(lock);
    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        remove_directory(path);
    close(fd);
}

/* Removes the directories that killed processes left in temporary_root(). */
static void sweep(void)
{
    DIR *entries = opendir(temporary_root());
    struct dirent *entry;
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (strncmp(entry->d_name, directory_name, strlen(directory_name)) != 0)
            continue;
        char *path = mem_printf("%s/%s", temporary_root(), entry->d_name);
        remove_left(path);
        free(path);
    }
    if (entries != NULL)
        closedir(entries);
}

/* Creates and takes the lock. false with errno; ENOENT or EWOULDBLOCK: the sweep of another process was
 * faster. */
static bool take_lock(struct temporary_directory *directory)
{
    struct stat ours, there;
    char *name = mem_printf("%s/%s", directory->path, lock_name);
    directory->lock_fd = above_standard(open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    bool is_ours = directory->lock_fd >= 0 && flock(directory->lock_fd, LOCK_EX | LOCK_NB) == 0 &&
                   fstat(directory->lock_fd, &ours) == 0 && stat(name, &there) == 0 &&
                   ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
    int error = errno;
    free(name);
    if (!is_ours && directory->lock_fd >= 0)
        close(directory->lock_fd);
    errno = error;
    return is_ours;
}

bool temporary_directory_make(struct temporary_directory *directory)
{
    enum { TRIES = 16 };
    sweep();
    for (int i = 0; i < TRIES; i++) {
        *directory = (struct temporary_directory){
            .lock_fd = -1, .path = mem_printf("%s/%sXXXXXX", temporary_root(), directory_name)};
        bool is_made = mkdtemp(directory->path) != NULL;
        if (is_made && take_lock(directory))
            return true;
        int error = errno;
        if (is_made)
            (void)rmdir(directory->path);
        free(directory->path);
        *directory = (struct temporary_directory){0};
        errno = error;
        if (!is_made || (error != ENOENT && error != EWOULDBLOCK))
            return false;
    }
    return false;
}

void temporary_directory_remove(struct temporary_directory *directory)
{
    if (directory->path == NULL)
        return;
    remove_directory(directory->path);
    close(directory->lock_fd);
    free(directory->path);
    *directory = (struct temporary_directory){0};
    sweep();
}
