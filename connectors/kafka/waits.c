/* librdkafka 2.0 waits by cnd_timedwait of the C library, whose time limits are of the wall clock: when that
 * is set back by an hour, each of its threads, and each of ours that asks it for something "for 100 ms at
 * most", stands still for an hour. So the program has a cnd_timedwait of its own, which the dynamic linker
 * prefers to the C library's for all that is loaded: it waits as long as the limit is away, by the monotonic
 * clock.
 *
 * librdkafka makes a limit once, and may come back with it after a wake-up that was not for it. If the wall
 * clock jumped in between, the limit is of the time before: it is measured against both for a moment, and the
 * nearer is taken. */
#include "connectors/kafka/waits.h"

#include "core/os.h"
#include "core/wait.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <threads.h>

bool kafka_waits_join(pthread_t thread, int64_t us)
{
    struct timespec until = wait_until(us);
    return pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &until) == 0;
}

/* ThreadSanitizer knows nothing of librdkafka's mutexes, and would of this wait. */
#if !defined(__SANITIZE_THREAD__)

enum { JUMP_US = 2 * 1000000, JUMP_LASTS_US = 10 * 1000000, PASSED_US = 1000000 };

/* How far the wall clock is ahead of the monotonic one; before it last jumped; when that was seen. */
static _Atomic int64_t ahead_us, ahead_before_us, jumped_us;

static void note_jump(int64_t now, int64_t ahead)
{
    int64_t known = atomic_load(&ahead_us);
    if (known != 0 && llabs(ahead - known) >= JUMP_US) {
        atomic_store(&ahead_before_us, known);
        atomic_store(&jumped_us, now);
    }
    atomic_store(&ahead_us, ahead);
}

/* How long to wait for a limit of the wall clock. */
static int64_t time_left(int64_t limit_us)
{
    int64_t now = os_monotonic_us(), ahead = os_wall_us() - now;
    note_jump(now, ahead);
    int64_t left = limit_us - (now + ahead), jumped = atomic_load(&jumped_us);
    if (jumped == 0 || now - jumped > JUMP_LASTS_US)
        return left;
    int64_t before = limit_us - (now + atomic_load(&ahead_before_us));
    return before > -PASSED_US && before < left ? before : left;
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict limit)
{
    _Static_assert(sizeof(cnd_t) == sizeof(pthread_cond_t), "glibc: they are the same");
    struct timespec until =
        wait_until(MAX(time_left(limit->tv_sec * US_PER_SECOND + limit->tv_nsec / 1000), 0));
    return wait_on((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, &until) ? thrd_success
                                                                                  : thrd_timedout;
}

#endif
