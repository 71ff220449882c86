/* The shape of a part's state in a checkpoint: a text that says what the state depends on. The shape that a
 * changed job has is compared with the checkpoint's, and the user is told the differences. One line for each
 * property:
 *
 *     =WHAT: VALUE   must be equal in checkpoint and job, else the state cannot be taken over
 *     ?WHAT: VALUE   may be added or removed, but not changed
 *     ~WHAT: VALUE   may be added, removed or changed; the difference is reported
 *
 * WHAT occurs once and contains no colon. */
#ifndef LEAT_CORE_SHAPE_H
#define LEAT_CORE_SHAPE_H

#include "core/arena.h"

/* Receives one difference. sentence: lives in the arena. is_allowed: the state can be taken over in
 * spite of it. */
typedef void shape_difference(void *argument, bool is_allowed, const char *sentence);

/* Calls `tell` for each difference: first in the order of the checkpoint's lines, then lines only the job
 * has. Both texts may be any bytes. */
void shape_compare(struct str checkpoint, struct str job, struct arena *arena, shape_difference *tell,
                   void *argument);

#endif
