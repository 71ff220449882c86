/* Names of output files: `{n}` is the file's number, `{time}` the begin of its span of event time. Private to
 * connectors/file. */
#ifndef LEAT_CONNECTORS_FILE_NAMES_H
#define LEAT_CONNECTORS_FILE_NAMES_H

#include "core/base.h"

/* The pattern for files that follow each other: one without a placeholder gets `-{n}` before its suffixes.
 * malloc'd. */
char *names_pattern(struct str path, bool is_rolled);
bool names_has_time(const char *pattern);
/* Whether files that begin in one span of time have one name. */
bool names_repeat(const char *pattern);
/* malloc'd. */
char *names_expand(const char *pattern, int64_t number, int64_t time_us);
/* As a glob(3); what else is special there is meant as it stands. malloc'd. */
char *names_glob(const char *pattern, const char *ending);
/* What a resumed run of that life copies first, to go on with: NAME.part.new-LIFE, ten digits, as
 * core/claims.c knows them. malloc'd. */
char *names_copy(const char *path, uint32_t life);
/* Calls visit for the names of the pattern that are there, until it says false; whether it never did.
 * NAMES_COPY: those of names_copy, of any life. */
enum { NAMES_FINAL = 1, NAMES_PART = 2, NAMES_COPY = 4 };
bool names_walk(const char *pattern, unsigned which, bool (*visit)(void *argument, const char *path),
                void *argument);

#endif
