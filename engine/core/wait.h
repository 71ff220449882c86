/* Waiting for a condition with a time limit, by the monotonic clock: whoever sets the wall clock back delays
 * nobody. Any thread. */
#ifndef LEAT_CORE_WAIT_H
#define LEAT_CORE_WAIT_H

#include "core/base.h"
#include "core/os.h"

#include <pthread.h>
#include <time.h>

static inline void wait_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* So long from now: for pthread_cond_timedwait on a condition of wait_init, and what else takes
 * CLOCK_MONOTONIC. */
static inline struct timespec wait_until(int64_t us)
{
    int64_t end = time_add(os_monotonic_us(), us);
    return (struct timespec){.tv_sec = end / US_PER_SECOND, .tv_nsec = end % US_PER_SECOND * 1000};
}

#endif
