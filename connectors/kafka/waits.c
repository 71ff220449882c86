/* librdkafka 2.0 waits with the C library's cnd_timedwait, whose time limits are wall-clock times: when the
 * wall clock is set back by an hour, each of librdkafka's threads, and each of ours that calls it with "100
 * ms at most", stands still for an hour. So the program defines its own cnd_timedwait, which the dynamic
 * linker prefers to the C library's: it waits for the remaining time by the monotonic clock.
 *
 * librdkafka computes a limit once, and may wait for it again after a spurious wake-up. If the wall clock
 * jumped in between, the limit is a time of the old clock: for some seconds after a jump the remaining time
 * is computed by both clocks, and the shorter is used.
 *
 * A client's main thread waits for its queue until its next timer, in whole milliseconds, rounded down. So through
 * the last millisecond it locks the queue and unlocks it again and again, without a wait; and a transaction sets two
 * timers of one millisecond, which was most of what a small transaction cost. So the program defines mtx_lock, too:
 * where a main thread has locked its queue some times since its last wait, it waits for the queue for a moment. It
 * wakes as soon as the queue gets something; a timer is late by that moment at most, and so is what came to the queue
 * just before it was locked.
 *
 * The thread of a broker polls its connection. While records wait that may not be sent yet, because as many as may be
 * are in flight, it polls without a wait, again and again until the broker answers: up to half of the CPU time of a job
 * from topic to topic, the more the busier the machine is. So the program defines poll, too: a broker's thread that has
 * polled some times in a row, and found nothing, waits for a moment. What comes from the broker, or for the thread, ends
 * that wait. */
#include "connectors/kafka/waits.h"

#include "core/os.h"
#include "core/wait.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

bool kafka_waits_join(pthread_t thread, int64_t us)
{
    struct timespec until = wait_until(us);
    return pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &until) == 0;
}

/* ThreadSanitizer does not see librdkafka's mutexes, but would see this wait. */
#if !defined(__SANITIZE_THREAD__)

enum { JUMP_US = 2 * 1000000, JUMP_LASTS_US = 10 * 1000000, PASSED_US = 1000000 };
enum { LOCKS_MAX = 4, POLLS_MAX = 4, MOMENT_US = 500 };

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

/* Of a client's main thread: its queue, which it waits for first, and which outlives it. NULLs in other threads. */
static _Thread_local struct {
    pthread_mutex_t *mutex;
    pthread_cond_t *condition;
    unsigned locks; /* of the mutex, by this thread since its last wait */
    bool is_known;
} queue;

/* Notes a wait. librdkafka gives a main thread its name before the thread waits. */
static void note_wait(pthread_mutex_t *mutex, pthread_cond_t *condition)
{
    char name[16] = "";
    if (!queue.is_known && pthread_getname_np(pthread_self(), name, sizeof(name)) == 0 &&
        strcmp(name, "rdk:main") == 0) {
        queue.mutex = mutex;
        queue.condition = condition;
    }
    queue.is_known = true;
    if (mutex == queue.mutex)
        queue.locks = 0;
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict limit)
{
    _Static_assert(sizeof(cnd_t) == sizeof(pthread_cond_t), "glibc: they are the same");
    struct timespec until =
        wait_until(MAX(time_left(limit->tv_sec * US_PER_SECOND + limit->tv_nsec / 1000), 0));
    note_wait((pthread_mutex_t *)mutex, (pthread_cond_t *)condition);
    return wait_on((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, &until) ? thrd_success
                                                                                  : thrd_timedout;
}

int mtx_lock(mtx_t *mutex)
{
    _Static_assert(sizeof(mtx_t) == sizeof(pthread_mutex_t), "glibc: they are the same");
    pthread_mutex_t *locked = (pthread_mutex_t *)mutex;
    if (pthread_mutex_lock(locked) != 0)
        return thrd_error;
    if (locked == queue.mutex && ++queue.locks > LOCKS_MAX) {
        struct timespec until = wait_until(MOMENT_US);
        queue.locks = LOCKS_MAX - 1;
        wait_on(queue.condition, locked, &until);
    }
    return thrd_success;
}

/* Of the thread of a broker, which has its name before it polls: polls in a row that found nothing, and did not wait. */
static _Thread_local struct {
    unsigned polls;
    bool is_known, is_broker;
} polling;

static bool is_broker_thread(void)
{
    char name[16] = "";
    if (!polling.is_known)
        polling.is_broker = pthread_getname_np(pthread_self(), name, sizeof(name)) == 0 &&
                            strncmp(name, "rdk:broker", strlen("rdk:broker")) == 0;
    polling.is_known = true;
    return polling.is_broker;
}

static int poll_once(struct pollfd *watched, nfds_t count, int timeout_ms)
{
    struct timespec wait = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    bool spins = timeout_ms == 0 && is_broker_thread() && ++polling.polls > POLLS_MAX;
    if (spins)
        wait.tv_nsec = MOMENT_US * 1000L;
    int found = ppoll(watched, count, timeout_ms < 0 ? NULL : &wait, NULL);
    if (found != 0 || timeout_ms != 0)
        polling.polls = 0;
    return found;
}

int poll(struct pollfd *watched, nfds_t count, int timeout_ms)
{
    return poll_once(watched, count, timeout_ms);
}

/* What librdkafka calls where it was built with _FORTIFY_SOURCE. */
int __poll_chk(struct pollfd *watched, nfds_t count, int timeout_ms, size_t bytes);
int __poll_chk(struct pollfd *watched, nfds_t count, int timeout_ms, size_t bytes)
{
    leat_assert(bytes / sizeof(*watched) >= count);
    return poll_once(watched, count, timeout_ms);
}

#endif
