#include "core/replacement.h"

#include "core/mem.h"
#include "core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns PATH.PID-N, which the caller frees; N counts within the process. */
static char *temporary_name(const char *path)
{
    static unsigned counter;
    unsigned number = __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED);
    return mem_printf("%s.%ld-%u", path, (long)getpid(), number);
}

/* Opens a new file in the path's directory: unnamed, or with a temporary name where unnamed files
 * are not supported. */
static int open_beside(struct replacement *r)
{
    char *directory = mem_strdup(r->path), *slash = strrchr(directory, '/');
    if (slash != NULL)
        *(slash == directory ? slash + 1 : slash) = '\0';
    bool can_be_named = access("/proc/self/fd", X_OK) == 0;
    r->fd = can_be_named ? open(slash == NULL ? "." : directory, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666) : -1;
    free(directory);
    if (r->fd >= 0)
        return 0;
    if (can_be_named && errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
        return errno;
    r->temporary = temporary_name(r->path);
    r->fd = open(r->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    return r->fd < 0 ? errno : 0;
}

int replacement_begin(struct replacement *r, const char *path)
{
    struct stat info;
    *r = (struct replacement){.fd = -1};
    bool is_there = stat(path, &info) == 0;
    if (is_there && S_ISDIR(info.st_mode))
        return EISDIR;
    if (is_there && !S_ISREG(info.st_mode)) {
        r->fd = open(path, O_WRONLY | O_CLOEXEC);
        return r->fd < 0 ? errno : 0;
    }
    r->path = is_there ? realpath(path, NULL) : mem_strdup(path);
    if (r->path == NULL)
        return errno;
    int error = open_beside(r);
    if (error == 0 && is_there && fchmod(r->fd, info.st_mode & 07777) != 0)
        error = errno;
    if (error != 0)
        replacement_abandon(r);
    return error;
}

static int give_name(struct replacement *r)
{
    if (r->temporary == NULL) {
        char unnamed[64];
        snprintf(unnamed, sizeof(unnamed), "/proc/self/fd/%d", r->fd);
        r->temporary = temporary_name(r->path);
        if (linkat(AT_FDCWD, unnamed, AT_FDCWD, r->temporary, AT_SYMLINK_FOLLOW) != 0) {
            int error = errno;
            free(r->temporary);
            r->temporary = NULL;
            return error;
        }
    }
    int error = os_rename(r->temporary, r->path, NULL);
    if (error != 0)
        return error;
    free(r->temporary);
    r->temporary = NULL;
    return os_fsync_parent(r->path, NULL);
}

int replacement_commit(struct replacement *r)
{
    int error = 0;
    if (r->path != NULL)
        error = os_fsync(r->fd, NULL);
    if (error == 0 && r->path != NULL)
        error = give_name(r);
    if (close(r->fd) != 0 && error == 0)
        error = errno;
    r->fd = -1;
    replacement_abandon(r);
    return error;
}

void replacement_abandon(struct replacement *r)
{
    if (r->temporary != NULL)
        unlink(r->temporary);
    if (r->fd > 0)
        close(r->fd);
    free(r->temporary);
    free(r->path);
    *r = (struct replacement){.fd = -1};
}
