/* Whether some name matches both of two glob(3) patterns. Any thread. */
#ifndef LEAT_CORE_GLOB_MEET_H
#define LEAT_CORE_GLOB_MEET_H

#include "core/base.h"

/* Patterns have `*`, `?`, `[...]` and `\`; wildcards do not match `/`. Unlike in glob(3), wildcards match
 * a `.` at the beginning of a name, so patterns that share only such names are reported as meeting, too. */
bool globs_meet(const char *a, const char *b);

#endif
