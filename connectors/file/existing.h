/* Files that are there under an output's names when a run begins. Private to connectors/file. */
#ifndef LEAT_CONNECTORS_FILE_EXISTING_H
#define LEAT_CONNECTORS_FILE_EXISTING_H

#include "connectors/file/names.h"

#include "core/connector.h"

/* Whether a new run may begin although they are there: they are its own, or it is to replace them. Removes
 * nothing. False after E0606 (a file), E0605 (no regular file), E0617 (a file that another part of the job
 * reads). */
LEAT_CHECKED bool existing_check(const struct sink_context *context, const char *pattern, bool overwrite);
/* Removes them; each is looked at once more before it goes. False: context->error. */
LEAT_CHECKED bool existing_remove(struct sink_context *context, const char *pattern, bool overwrite);
/* Removes or replaces nothing; false where the file of that name may not be: context->error. */
LEAT_CHECKED bool existing_may_go(struct sink_context *context, const char *path);

#endif
