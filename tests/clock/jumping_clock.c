/* A library that is preloaded into a process and gives it a wall clock that a test sets, with the kernel's
 * behaviour for waits. test_clock.py makes the clock jump.
 *
 * The process and the test map the same file, which LEAT_CLOCK names; it holds a `struct shared`. The wall
 * clock is the real one plus `ahead_us`. A wait with a limit by the wall clock ends when that clock reaches
 * the limit, as futexes with FUTEX_CLOCK_REALTIME do: if the clock is set back by an hour, the wait lasts an
 * hour longer, also when it has begun already. (libfaketime converts the limit into a duration, and would not
 * show such waits.) Everything by the monotonic clock is left to the C library.
 *
 * Such waits are counted, and a test demands that there are none. RocksDB's timer thread, which writes
 * statistics to its log, is left out: it waits by the wall clock, and nothing waits for it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

/* MONOTONIC_CONDITION: glibc's bit in a condition variable that waits by the monotonic clock. */
enum { SLICE_NS = 2000000, MONOTONIC_CONDITION = 2 };

struct shared {
    _Atomic int64_t ahead_us;
    _Atomic uint64_t asked;      /* how often the wall clock was asked */
    _Atomic uint64_t wall_waits; /* number of waits with a limit by the wall clock */
    _Atomic uint64_t longest_us; /* the longest of these waits, by the monotonic clock */
};

static struct shared alone;

static struct shared *shared(void)
{
    static struct shared *_Atomic page;
    struct shared *found = atomic_load(&page);
    if (found != NULL)
        return found;
    const char *path = getenv("LEAT_CLOCK");
    int file = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    found = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(*found), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    if (found == MAP_FAILED)
        found = &alone;
    atomic_store(&page, found);
    return found;
}

static int64_t clock_us(clockid_t clock)
{
    struct timespec now;
    syscall(SYS_clock_gettime, clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int64_t wall_us(void)
{
    atomic_fetch_add_explicit(&shared()->asked, 1, memory_order_relaxed);
    return clock_us(CLOCK_REALTIME) + atomic_load(&shared()->ahead_us);
}

static int64_t time_of(const struct timespec *time)
{
    return (int64_t)time->tv_sec * 1000000 + time->tv_nsec / 1000;
}

/* --- Asking the wall clock --- */

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
        return (int)syscall(SYS_clock_gettime, clock, now);
    int64_t us = wall_us();
    *now = (struct timespec){us / 1000000, us % 1000000 * 1000};
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    int64_t us = wall_us();
    (void)zone;
    *now = (struct timeval){us / 1000000, us % 1000000};
    return 0;
}

time_t time(time_t *out)
{
    time_t now = wall_us() / 1000000;
    if (out != NULL)
        *out = now;
    return now;
}

int timespec_get(struct timespec *now, int base)
{
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, now) == 0 ? base : 0;
}

/* --- Waits with a limit by the wall clock --- */

static void note_wait(int64_t begin_us)
{
    uint64_t took = (uint64_t)(clock_us(CLOCK_MONOTONIC) - begin_us),
             longest = atomic_load(&shared()->longest_us);
    atomic_fetch_add(&shared()->wall_waits, 1);
    while (took > longest && !atomic_compare_exchange_weak(&shared()->longest_us, &longest, took))
        ;
}

static struct timespec slice(void)
{
    int64_t us = clock_us(CLOCK_MONOTONIC) + SLICE_NS / 1000;
    return (struct timespec){us / 1000000, us % 1000000 * 1000};
}

static int wait_by_wall(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *limit)
{
    int error = ETIMEDOUT;
    while (error == ETIMEDOUT && wall_us() < time_of(limit)) {
        struct timespec until = slice();
        error = pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, &until);
    }
    return error;
}

static bool is_rocksdb(const void *caller)
{
    Dl_info info;
    return dladdr(caller, &info) != 0 && info.dli_fname != NULL &&
           strstr(info.dli_fname, "librocksdb") != NULL;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict limit)
{
    if ((condition->__data.__wrefs & MONOTONIC_CONDITION) != 0)
        return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, limit);
    int64_t begin = clock_us(CLOCK_MONOTONIC);
    int error = wait_by_wall(condition, mutex, limit);
    if (!is_rocksdb(__builtin_return_address(0)))
        note_wait(begin);
    return error;
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict limit)
{
    int64_t begin = clock_us(CLOCK_MONOTONIC);
    int error = wait_by_wall((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, limit);
    note_wait(begin);
    return error == 0 ? thrd_success : error == ETIMEDOUT ? thrd_timedout : thrd_error;
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict limit)
{
    int64_t begin = clock_us(CLOCK_MONOTONIC);
    int error = -1;
    errno = ETIMEDOUT;
    while (error != 0 && errno == ETIMEDOUT && wall_us() < time_of(limit)) {
        struct timespec until = slice();
        error = sem_clockwait(semaphore, CLOCK_MONOTONIC, &until);
    }
    note_wait(begin);
    return error;
}
