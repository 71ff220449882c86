/* Followers of the delta log; part of core/delta_log.h. A follower's file is dead when its lock is free; the
 * trainer removes it only while it holds the lock itself, so a follower that has just made its file and finds
 * it without a name makes another. */
#include "core/delta_log.h"
#include "core/mem.h"
#include "core/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char prefix[] = "follower-";

struct delta_follower {
    char *path;
    int fd;
};

static int enter(struct delta_follower *follower, const char *folder)
{
    enum { TRIES = 16 };
    for (int i = 0; i < TRIES; i++) {
        uint64_t token;
        struct stat info;
        if (getrandom(&token, sizeof(token), 0) != sizeof(token))
            return errno;
        free(follower->path);
        follower->path =
            mem_printf("%s/%s%d-%016llx", folder, prefix, (int)getpid(), (unsigned long long)token);
        follower->fd = open(follower->path, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (follower->fd < 0)
            return errno;
        if (os_lock(follower->fd) && fstat(follower->fd, &info) == 0 && info.st_nlink > 0)
            return 0;
        close(follower->fd);
        follower->fd = -1;
    }
    return EBUSY;
}

struct delta_follower *delta_follower_enter(const char *directory, struct diag_list *diags)
{
    struct delta_follower *follower = mem_calloc(1, sizeof(*follower));
    follower->fd = -1;
    char *folder = mem_printf("%s/followers", directory);
    int error = os_mkdirs(folder);
    if (error == 0)
        error = enter(follower, folder);
    if (error != 0) {
        struct diag *diag = diag_error(diags, DIAG_OUTPUT_FAILED, (struct span){0},
                                       "no file that says who follows can be made in %s", folder);
        diag_errno(diags, diag, error);
        diag_hint(diags, diag, "check that this user may write there");
        delta_follower_leave(follower);
        follower = NULL;
    }
    free(folder);
    return follower;
}

bool delta_follower_is_seen(const struct delta_follower *follower)
{
    struct stat info;
    return fstat(follower->fd, &info) == 0 && info.st_nlink > 0;
}

int delta_follower_ask(struct delta_follower *follower)
{
    return os_write_all(follower->fd, "c", 1, NULL);
}

void delta_follower_leave(struct delta_follower *follower)
{
    if (follower == NULL)
        return;
    if (follower->fd >= 0) {
        (void)unlink(follower->path);
        close(follower->fd);
    }
    free(follower->path);
    free(follower);
}

/* Whether the file is that of a follower that lives; removes that of a dead one. */
static bool look_at(DIR *dir, const char *name, bool *wanted)
{
    struct stat info;
    int fd = openat(dirfd(dir), name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    bool is_dead = flock(fd, LOCK_EX | LOCK_NB) == 0,
         is_file = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    if (is_file && is_dead)
        (void)unlinkat(dirfd(dir), name, 0);
    /* What is asked between the two calls is answered by the same checkpoint, which comes later. A wish that
     * cannot be cleared would ask for ever. */
    else if (is_file && info.st_size > 0 && ftruncate(fd, 0) == 0)
        *wanted = true;
    close(fd);
    return is_file && !is_dead;
}

uint32_t delta_followers_look(const char *directory, bool *wanted)
{
    uint32_t living = 0;
    *wanted = false;
    char *folder = mem_printf("%s/followers", directory);
    DIR *dir = opendir(folder);
    free(folder);
    if (dir == NULL)
        return 0;
    for (const struct dirent *one = readdir(dir); one != NULL; one = readdir(dir))
        if (strncmp(one->d_name, prefix, sizeof(prefix) - 1) == 0)
            living += look_at(dir, one->d_name, wanted);
    closedir(dir);
    return living;
}
