/* Which workers cannot be in one round, because they do not reach each other. Numbers alone. */
#ifndef LEAT_CLUSTER_REACH_H
#define LEAT_CLUSTER_REACH_H

#include "core/base.h"

#include <stdint.h>

/* unreached[i]: bit k: worker i has told that worker k did not answer it; count: of workers, at most 64. One worker after the other is left
 * out, the one that most others miss, until all that remain reach each other. Among equals: not `leader`, and the one with the higher
 * number. Returns the workers that are left out, a bit each; 0 where fewer than `least` would remain: then all try again. Any thread. */
uint64_t reach_left_out(const uint64_t *unreached, uint32_t count, uint32_t leader, uint32_t least);

#endif
