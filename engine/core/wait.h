/* Waiting with a time limit, by the monotonic clock: whoever sets the wall clock back delays nobody. The
 * calls that go by the wall clock, or by what a condition was made with, are used nowhere (tests/tidy). Any
 * thread. */
#ifndef LEAT_CORE_WAIT_H
#define LEAT_CORE_WAIT_H

#include "core/base.h"
#include "core/os.h"

#include <pthread.h>
#include <time.h>

/* So long from now, by CLOCK_MONOTONIC: for wait_on, and the calls of libc that are told which clock. */
static inline struct timespec wait_until(int64_t us)
{
    int64_t end = time_add(os_monotonic_us(), us);
    return (struct timespec){.tv_sec = end / US_PER_SECOND, .tv_nsec = end % US_PER_SECOND * 1000};
}

/* As pthread_cond_wait, but until then at the latest. False: that has come. */
static inline bool wait_on(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until)
{
    return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, until) == 0;
}

#endif
