/* What a part's state in a checkpoint stands on, as text: so that a changed job can be compared with it, and
 * people can be told.
 *
 *     =WHAT: VALUE   the same in both, or the state cannot be taken over
 *     ?WHAT: VALUE   may come or go, but not change
 *     ~WHAT: VALUE   may come, go and change; that is said
 *
 * A line each; WHAT stands once, without a colon in it. */
#ifndef LEAT_CORE_SHAPE_H
#define LEAT_CORE_SHAPE_H

#include "core/arena.h"

/* One difference, as a sentence in the arena. is_allowed: the state can be taken over all the same. */
typedef void shape_difference(void *argument, bool is_allowed, const char *sentence);

/* In the order of the checkpoint's lines, then the job's. Any bytes may come in. */
void shape_compare(struct str checkpoint, struct str job, struct arena *arena, shape_difference *tell,
                   void *argument);

#endif
