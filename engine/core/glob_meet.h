/* Whether two patterns of glob(3) have a name in common. Any thread. */
#ifndef LEAT_CORE_GLOB_MEET_H
#define LEAT_CORE_GLOB_MEET_H

#include "core/base.h"

/* `*`, `?`, `[...]` and `\`; wildcards do not match `/`. They may match a `.` at the begin of a name, other
 * than glob(3)'s: patterns that only so have a name in common are said to meet. */
bool globs_meet(const char *a, const char *b);

#endif
