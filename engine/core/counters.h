/* Counters of one operator instance. They add up (docs/design.md, section 1, promise 5): in = passed +
 * filtered + late + duplicate + dead + absorbed + held; `emitted` counts rows the operator made. `held` is
 * a level: rows waiting now. They are of the thread that runs the operator; the view reads copies
 * (run/lanes/figures.c). */
#ifndef LEAT_CORE_COUNTERS_H
#define LEAT_CORE_COUNTERS_H

#include "core/base.h"

struct counters {
    uint64_t in, passed, filtered, late, duplicate, dead, absorbed, held;
    uint64_t emitted;
    uint64_t late_updates; /* updates that came after their pane had expired; the row itself was passed on */
    uint64_t null_keys;    /* rows with a null key: a group, a non-match or a pass, depending
                              on the operator */
};

enum { COUNTERS_COUNT = sizeof(struct counters) / sizeof(uint64_t) };

static inline void counters_add(struct counters *into, const struct counters *from)
{
    uint64_t *a = (uint64_t *)into;
    const uint64_t *b = (const uint64_t *)from;
    for (size_t i = 0; i < COUNTERS_COUNT; i++)
        a[i] += b[i];
}

static inline bool counters_balance(const struct counters *c)
{
    return c->in == c->passed + c->filtered + c->late + c->duplicate + c->dead + c->absorbed + c->held;
}

#endif
