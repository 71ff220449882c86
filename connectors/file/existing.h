/* Files that already have an output's names when a run begins. Private to connectors/file. */
#ifndef LEAT_CONNECTORS_FILE_EXISTING_H
#define LEAT_CONNECTORS_FILE_EXISTING_H

#include "connectors/file/names.h"

#include "core/connector.h"

/* Whether a new run may begin despite existing files: they are the run's own, or it is to replace them.
 * Removes nothing. Returns false after E0606 (a file exists), E0605 (not a regular file) or E0617 (another
 * part of the job reads the file). */
LEAT_CHECKED bool existing_check(const struct sink_context *context, const char *pattern, bool overwrite);
/* Removes the existing files, checking each once more just before. Returns false with context->error set. */
LEAT_CHECKED bool existing_remove(struct sink_context *context, const char *pattern, bool overwrite);
/* Whether the file `path` may be removed or replaced; changes nothing. False: context->error is set. */
LEAT_CHECKED bool existing_may_go(struct sink_context *context, const char *path);

#endif
