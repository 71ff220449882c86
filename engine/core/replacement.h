/* Atomic replacement of a file: the new content is written to an unnamed file, synced, and only then given
 * the name. So a reader of the name finds the old bytes or the new ones, whatever crashes, and a kill
 * leaves nothing behind. The new file gets the old file's permissions; a symbolic link is followed, and its
 * target replaced. Pipes and devices are written to directly: only regular files are replaced. One thread
 * at a time. */
#ifndef LEAT_CORE_REPLACEMENT_H
#define LEAT_CORE_REPLACEMENT_H

#include "core/base.h"

struct replacement {
    int fd;          /* write the new content here; -1: none */
    char *path;      /* name of the file to replace; NULL: a pipe or device, or none */
    char *temporary; /* name of the new file, where the file system has no unnamed files */
};

/* Opens the new file, or the pipe or device at `path`. Returns 0 or an errno; EISDIR if `path` is a
 * directory. */
int replacement_begin(struct replacement *replacement, const char *path);
/* Gives the new file its name, durably, and closes it. Returns 0, or an errno: then the old file
 * is still there. */
int replacement_commit(struct replacement *replacement);
/* Discards the new file. Does nothing for a zeroed or committed struct. */
void replacement_abandon(struct replacement *replacement);

#endif
