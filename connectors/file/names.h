/* Names of output files: `{n}` is the file's number, `{time}` the begin of its span of event time. Private to
 * connectors/file. */
#ifndef LEAT_CONNECTORS_FILE_NAMES_H
#define LEAT_CONNECTORS_FILE_NAMES_H

#include "core/base.h"

/* The pattern for files that follow each other: one without a placeholder gets `-{n}` before its suffixes.
 * malloc'd. */
char *names_pattern(struct str path, bool is_rolled);
bool names_has_time(const char *pattern);
/* malloc'd. */
char *names_expand(const char *pattern, int64_t number, int64_t time_us);
/* Removes the unfinished files of the pattern. */
void names_remove_parts(const char *pattern);
/* A name of the pattern, final or `.part`, that exists already, malloc'd; NULL: none. With `remove` they all
 * are removed instead. */
char *names_existing(const char *pattern, bool remove);

#endif
