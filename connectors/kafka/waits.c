/* librdkafka 2.0 waits with the C library's cnd_timedwait, whose time limits are wall-clock times: when the
 * wall clock is set back by an hour, each of librdkafka's threads, and each of ours that calls it with "100
 * ms at most", stands still for an hour. So the program defines its own cnd_timedwait, which the dynamic
 * linker prefers to the C library's: it waits for the remaining time by the monotonic clock.
 *
 * librdkafka computes a limit once, and may wait for it again after a spurious wake-up. If the wall clock
 * jumped in between, the limit is a time of the old clock: for some seconds after a jump the remaining time
 * is computed by both clocks, and the shorter is used. */
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

/* ThreadSanitizer does not see librdkafka's mutexes, but would see this wait. */
#if !defined(__SANITIZE_THREAD__)

enum { JUMP_US = 2 * 1000000, JUMP_LASTS_US = 10 * 1000000, PASSED_US = 1000000 };

/* Offset of the wall clock from the monotonic clock: now, and before its last jump; and when the jump was
 * seen. */
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

/* Microseconds to wait for a wall-clock limit. */
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
