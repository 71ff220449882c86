/* A file that takes the place of one: written without a name, made durable, and only then given its name, so
 * that whoever reads the name finds the old bytes or the new ones, whatever crashes, and a kill leaves
 * nothing behind. What is there keeps its rights; a link leads to what is replaced. A pipe or a device is
 * written to as it is: nothing but a regular file is ever replaced. One thread at a time. */
#ifndef LEAT_CORE_REPLACEMENT_H
#define LEAT_CORE_REPLACEMENT_H

#include "core/base.h"

struct replacement {
    int fd;          /* to write to; -1: none */
    char *path;      /* that is replaced; NULL: a pipe or a device, or none */
    char *temporary; /* where the file system has no files without a name */
};

/* Returns 0 or an errno: EISDIR of a directory. */
int replacement_begin(struct replacement *replacement, const char *path);
/* What was written is the file now, on disk, and closed; or, with an errno, what was there still is. */
int replacement_commit(struct replacement *replacement);
/* Tolerates a zeroed one, and one that is committed. */
void replacement_abandon(struct replacement *replacement);

#endif
