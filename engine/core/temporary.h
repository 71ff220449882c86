/* What a run keeps on disk while it lives, below TMPDIR: gone when the process is, however that ends.
 *
 * A file has no name. A directory has one, so it holds a file `lock` whose flock is its owner's; what a
 * killed process left is removed when the next one makes a directory or gives one back: each of this user's
 * whose lock is free. One that is locked, of another user, or without a `lock` (and not empty) is left alone.
 * Any thread. */
#ifndef LEAT_CORE_TEMPORARY_H
#define LEAT_CORE_TEMPORARY_H

#include "core/base.h"

/* TMPDIR, or /tmp. */
const char *temporary_root(void);

/* A new file without a name in the directory, for reading and writing. Never 0, 1 or 2; -1 with errno. */
int temporary_file(const char *directory);

struct temporary_directory {
    char *path; /* NULL: none */
    int lock_fd;
};

/* ROOT/leat-state-XXXXXX; false with errno. */
LEAT_CHECKED bool temporary_directory_make(struct temporary_directory *directory);
/* Removes it and everything in it; tolerates a zeroed one. */
void temporary_directory_remove(struct temporary_directory *directory);

#endif
