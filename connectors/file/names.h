/* Names of output files: `{n}` is the file's number, `{time}` the beginning of its span of event time.
 * Private to connectors/file. */
#ifndef LEAT_CONNECTORS_FILE_NAMES_H
#define LEAT_CONNECTORS_FILE_NAMES_H

#include "core/base.h"

/* The pattern for the names of an output's files. is_rolled: there are several, so a path without a
 * placeholder gets `-{n}` before its suffixes. malloc'd. */
char *names_pattern(struct str path, bool is_rolled);
bool names_has_time(const char *pattern);
/* Whether two files that begin in the same span of time would get the same name. */
bool names_repeat(const char *pattern);
/* The name of file number `number`, which begins at event time time_us. malloc'd. */
char *names_expand(const char *pattern, int64_t number, int64_t time_us);
/* A glob(3) pattern for the names of `pattern` plus `ending`; escapes other special characters. malloc'd. */
char *names_glob(const char *pattern, const char *ending);
/* Name under which a life makes a file before it becomes NAME.part: NAME.part.new-LIFE, with ten digits, as core/claims.c expects it.
 * malloc'd. */
char *names_copy(const char *path, uint32_t life);
/* Calls `visit` for each existing file whose name fits the pattern, until it returns false. which: NAMES_...
 * bits; NAMES_COPY: names_copy of any life. Returns whether no call of `visit` returned false. */
enum { NAMES_FINAL = 1, NAMES_PART = 2, NAMES_COPY = 4 };
bool names_walk(const char *pattern, unsigned which, bool (*visit)(void *argument, const char *path),
                void *argument);

/* Removes the copies of lives before `life`: an older process that is still just before its rename then finds no file to rename. */
void names_forget_earlier(const char *pattern, uint32_t life);

#endif
