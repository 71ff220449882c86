/* Temporary data of a run on disk, below TMPDIR: removed when the process ends, however it ends.
 *
 * A file has no name, so the kernel removes it. A directory has a name, so it contains a file `lock` that its
 * owner holds by flock: whenever a process makes or removes such a directory, it also removes this user's
 * directories whose lock is free, left by killed processes. Directories that are locked, belong to another
 * user, or have no `lock` (and are not empty) are left alone. Any thread. */
#ifndef LEAT_CORE_TEMPORARY_H
#define LEAT_CORE_TEMPORARY_H

#include "core/base.h"

/* $TMPDIR, or /tmp. */
const char *temporary_root(void);

/* Opens a new unnamed file in the directory, for reading and writing. Returns its descriptor, never 0, 1 or
 * 2; -1 with errno. */
int temporary_file(const char *directory);

struct temporary_directory {
    char *path; /* NULL: no directory */
    int lock_fd;
};

/* Makes ROOT/leat-state-XXXXXX; false with errno. */
LEAT_CHECKED bool temporary_directory_make(struct temporary_directory *directory);
/* Removes the directory with everything in it; does nothing for a zeroed struct. */
void temporary_directory_remove(struct temporary_directory *directory);

#endif
