/* Waiting with a time limit, by the monotonic clock, so that setting the wall clock back delays nobody.
 * libc's waits that use the wall clock, or the clock a condition was created with, are used nowhere
 * (tests/tidy checks). Any thread. */
#ifndef LEAT_CORE_WAIT_H
#define LEAT_CORE_WAIT_H

#include "core/base.h"
#include "core/os.h"

#include <pthread.h>
#include <time.h>

/* The deadline `us` microseconds from now, by CLOCK_MONOTONIC: for wait_on and for libc calls that
 * take a clock. */
static inline struct timespec wait_until(int64_t us)
{
    int64_t end = time_add(os_monotonic_us(), us);
    return (struct timespec){.tv_sec = end / US_PER_SECOND, .tv_nsec = end % US_PER_SECOND * 1000};
}

/* Like pthread_cond_wait, but at most until the deadline. false: the deadline has passed. */
static inline bool wait_on(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until)
{
    return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, until) == 0;
}

#endif
