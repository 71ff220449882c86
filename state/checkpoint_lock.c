/* Who holds a checkpoint directory: its file LOCK.
 *
 *     pid 4711 on mill-3                  for people, and for machines that share a disk but no flock
 *     9f3ac0d1...                         a random token: two processes may have the same pid and host name
 *
 * A LOCK that is empty, or whose text begins with "free", is held by nobody. A holder has the flock of its
 * LOCK, which the kernel gives back when the process dies. A process that takes a directory over
 * (`--take-over`) renames a new LOCK into place and never writes into the old one. So a process that slept
 * meanwhile still has the old inode, and learns from checkpoint_dir_check that it was replaced.
 *
 * checkpoint_dir_check is asked before each step that others can see: the rename of a checkpoint, the removal
 * of an old one, a file's final name, a transaction. A process can fall asleep between the question and its
 * step, and be replaced in that moment. Then this one step comes too late, and is built so that it changes
 * nothing:
 *
 *     a checkpoint in the sleeper's own generation   found by nobody: the successor's generation says which
 *                                                    checkpoint it goes on from
 *     a rename over a file that both write           its source has the sleeper's generation in its name, and
 *                                                    the successor removes those of others before it begins
 *     a new file                                     it gets its name by such a rename
 *     the removal of an old file                     the sleeper looks at what it took away, and gives back what is not the old one
 *     the final name of a file                       the successor has given it that name already
 *     a transaction                                  sinks are fenced before a checkpoint is chosen */
#include "state/checkpoint_files.h"

#include "core/hex.h"
#include "core/mem.h"
#include "core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HOST_BYTES = 256, LOCK_TEXT_BYTES = 512, TRIES_MAX = 10 };

static const char free_text[] = "free; the last was ";

static void path_lock(const struct checkpoint_dir *dir, char *path)
{
    snprintf(path, PATH_BYTES + 8, "%s/LOCK", dir->path);
}

/* Reads the text of a LOCK, terminated; empty if the file is empty or cannot be read. */
static void read_text(int fd, char text[LOCK_TEXT_BYTES])
{
    ssize_t got = pread(fd, text, LOCK_TEXT_BYTES - 1, 0);
    text[MAX(got, 0)] = '\0';
}

static int open_new(const char *path)
{
    return open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

static bool make_text(struct checkpoint_dir *dir)
{
    uint8_t token[16];
    char host[HOST_BYTES] = "", text[LOCK_TEXT_BYTES], hex[33];
    if (getrandom(token, sizeof(token), 0) != sizeof(token))
        return false;
    hex_text(token, sizeof(token), hex);
    gethostname(host, sizeof(host) - 1);
    snprintf(text, sizeof(text), "pid %d on %s\n%s\n", (int)getpid(), host, hex);
    dir->lock_text = mem_strdup(text);
    return true;
}

static bool refuse(const struct checkpoint_dir *dir, const char *holder, struct diag_list *diags)
{
    struct diag *diag =
        diag_error(diags, DIAG_DIRECTORY_IN_USE, (struct span){0, 0}, "%s is used by another process: %.*s",
                   dir->path, (int)strcspn(holder, "\n"), holder);
    diag_hint(diags, diag, "stop that process; if it is gone for good, continue without it by `--take-over`");
    return false;
}

static bool cannot_lock(const struct checkpoint_dir *dir, int error, struct diag_list *diags)
{
    struct diag *diag =
        diag_error(diags, DIAG_FOREIGN_DIRECTORY, (struct span){0, 0}, "%s cannot be locked", dir->path);
    diag_errno(diags, diag, error);
    diag_hint(diags, diag, "check that this user may write there, or name another `dir:`");
    return false;
}

static bool is_free_text(const char *text)
{
    return text[0] == '\0' || strncmp(text, free_text, strlen(free_text)) == 0;
}

/* Whether the text names another host, which an flock may not reach. */
static bool is_elsewhere(const char *text)
{
    char host[HOST_BYTES] = "";
    if (is_free_text(text))
        return false;
    gethostname(host, sizeof(host) - 1);
    const char *on = strstr(text, " on ");
    size_t length = on == NULL ? 0 : strcspn(on + 4, "\n");
    return on != NULL && (length != strlen(host) || strncmp(on + 4, host, length) != 0);
}

/* Whether the path still names the file that fd has open. */
static bool is_named(int fd, const char *path)
{
    struct stat own, named;
    return fstat(fd, &own) == 0 && stat(path, &named) == 0 && own.st_dev == named.st_dev &&
           own.st_ino == named.st_ino;
}

/* Puts a LOCK of this process in place of the LOCK that another process holds. If several processes do so,
 * the last one has the directory; the others learn from checkpoint_dir_check that they lost it. 0 or an
 * errno. */
static int replace(struct checkpoint_dir *dir, const char *path)
{
    char temporary[PATH_BYTES + 64];
    const char *token = strchr(dir->lock_text, '\n') + 1;
    snprintf(temporary, sizeof(temporary), "%s/.LOCK-%.32s", dir->path, token);
    int fd = open_new(temporary), error = fd < 0 ? errno : 0;
    if (error == 0 && flock(fd, LOCK_EX | LOCK_NB) != 0)
        error = errno;
    if (error == 0)
        error = os_write_all(fd, dir->lock_text, strlen(dir->lock_text), NULL);
    if (error == 0)
        error = os_fsync(fd, NULL);
    if (error == 0)
        error = os_rename(temporary, path, "ckpt.lock");
    if (error == 0)
        error = os_fsync_directory(dir->path, NULL);
    if (error != 0 && fd >= 0)
        close(fd);
    if (error != 0)
        (void)unlink(temporary);
    else
        dir->lock_fd = fd;
    return error;
}

/* Opens the LOCK, tries to take its flock (*is_free: taken) and reads its text. is_patient: waits a while for
 * a holder that is dying. 0 or an errno. */
static int open_lock(const char *path, bool is_patient, int *fd, bool *is_free, char text[LOCK_TEXT_BYTES])
{
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (*fd < 0)
            return errno;
        *is_free = is_patient ? os_lock(*fd) : flock(*fd, LOCK_EX | LOCK_NB) == 0;
        if (is_named(*fd, path)) {
            read_text(*fd, text);
            return 0;
        }
        close(*fd); /* another process has put a new LOCK in place of the opened file */
    }
    return EBUSY;
}

bool checkpoint_lock(struct checkpoint_dir *dir, bool take_over, struct diag_list *diags)
{
    char path[PATH_BYTES + 8], holder[LOCK_TEXT_BYTES];
    bool is_free = false;
    int fd = -1;
    path_lock(dir, path);
    if (!make_text(dir))
        return cannot_lock(dir, errno, diags);
    int error = open_lock(path, !take_over, &fd, &is_free, holder);
    if (error != 0)
        return cannot_lock(dir, error, diags);
    bool is_held = !is_free || is_elsewhere(holder);
    if (is_held && !take_over) {
        close(fd);
        return refuse(dir, is_free_text(holder) ? "(unknown)" : holder, diags);
    }
    if (is_held) {
        close(fd);
        error = replace(dir, path);
        if (error == 0)
            snprintf(dir->taken_from, sizeof(dir->taken_from), "%.*s", (int)strcspn(holder, "\n"), holder);
    } else {
        dir->lock_fd = fd;
        size_t length = strlen(dir->lock_text);
        error = ftruncate(fd, 0) != 0 ? errno : os_pwrite_all(fd, dir->lock_text, length, 0, NULL);
    }
    return error == 0 || cannot_lock(dir, error, diags);
}

void checkpoint_unlock(struct checkpoint_dir *dir)
{
    if (dir->lock_fd >= 0 && dir->lock_text != NULL && checkpoint_dir_check(dir) == 0) {
        char text[LOCK_TEXT_BYTES];
        int length = snprintf(text, sizeof(text), "%s%.*s\n", free_text, (int)strcspn(dir->lock_text, "\n"),
                              dir->lock_text);
        if (ftruncate(dir->lock_fd, 0) == 0)
            (void)os_pwrite_all(dir->lock_fd, text, (size_t)length, 0, NULL);
        flock(dir->lock_fd, LOCK_UN);
    }
    if (dir->lock_fd >= 0)
        close(dir->lock_fd);
    dir->lock_fd = -1;
    free(dir->lock_text);
    dir->lock_text = NULL;
}

/* Whether another process has started the generation after this process's. */
static bool is_passed(const struct checkpoint_dir *dir)
{
    char path[PATH_BYTES];
    if (dir->generation.generation == 0)
        return false;
    path_generation(dir, dir->generation.generation + 1, path);
    return access(path, F_OK) == 0;
}

int checkpoint_dir_check(const struct checkpoint_dir *dir)
{
    char path[PATH_BYTES + 8], text[LOCK_TEXT_BYTES];
    struct stat own, named;
    if (dir->is_read_only)
        return 0;
    path_lock(dir, path);
    /* Opened, not only stat'ed: then a network file system asks its server. */
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? ESTALE : errno;
    int error = fstat(fd, &named) != 0 || fstat(dir->lock_fd, &own) != 0 ? errno : 0;
    read_text(fd, text);
    close(fd);
    if (error != 0)
        return error;
    bool is_own =
        own.st_dev == named.st_dev && own.st_ino == named.st_ino && strcmp(text, dir->lock_text) == 0;
    return is_own && !is_passed(dir) ? 0 : ESTALE;
}

void checkpoint_dir_holder(const struct checkpoint_dir *dir, char holder[CHECKPOINT_HOLDER_BYTES])
{
    char path[PATH_BYTES + 8], text[LOCK_TEXT_BYTES] = "";
    path_lock(dir, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        read_text(fd, text);
        close(fd);
    }
    size_t length = strcspn(text, "\n");
    if (fd < 0)
        snprintf(holder, CHECKPOINT_HOLDER_BYTES, "its LOCK is gone");
    else if (text[0] == '\0')
        snprintf(holder, CHECKPOINT_HOLDER_BYTES, "its LOCK is empty");
    else if (is_free_text(text))
        snprintf(holder, CHECKPOINT_HOLDER_BYTES, "%.*s, which has ended since",
                 (int)(length - strlen(free_text)), text + strlen(free_text));
    else
        snprintf(holder, CHECKPOINT_HOLDER_BYTES, "%.*s", (int)length, text);
}

bool checkpoint_holder(const char *directory, char holder[CHECKPOINT_HOLDER_BYTES])
{
    char text[LOCK_TEXT_BYTES] = "", *path = mem_printf("%s/LOCK", directory);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool is_held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0;
    if (fd >= 0) {
        read_text(fd, text);
        close(fd);
    }
    free(path);
    snprintf(holder, CHECKPOINT_HOLDER_BYTES, "%.*s", (int)strcspn(text, "\n"), text);
    return !is_free_text(text) && (is_held || is_elsewhere(text));
}

const char *checkpoint_dir_taken_from(const struct checkpoint_dir *dir)
{
    return dir->taken_from[0] == '\0' ? NULL : dir->taken_from;
}
