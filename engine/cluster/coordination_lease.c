/* The lease, kept alive by a thread.
 *
 * etcd counts a lease's time from when a keep-alive reaches it; here it counts from before the keep-alive was sent, and a tenth
 * less. So whatever delays the answer, the thread or the whole process, is_member turns false before etcd can have given the
 * member up, and whoever asks behind a stop (SIGSTOP, a machine that slept) is told by the clock alone. Clocks may run a tenth
 * apart. When etcd's members elect a new leader the lease gets its full time again, which is longer: that harms nobody. */
#include "cluster/coordination_internal.h"
#include "core/os.h"
#include "core/wait.h"

#include <time.h>

int64_t coordination_clock_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * US_PER_SECOND + now.tv_nsec / 1000;
}

/* Counts the lease's time from sent_us on. */
static void extend(struct lease_keeper *keeper, int64_t sent_us, int64_t ttl_s)
{
    int64_t ttl_us = MIN(ttl_s, (int64_t)COORDINATION_LEASE_S_MAX) * US_PER_SECOND;
    atomic_store(&keeper->until_us, sent_us + ttl_us - ttl_us / 10);
}

/* One keep-alive, of the lease that there was when it began; ttl_us: its time. */
static void keep(struct lease_keeper *keeper, int64_t ttl_us, struct arena *arena)
{
    struct diag_list diags;
    struct etcd_answer answer;
    int64_t lease = atomic_load(&keeper->lease), sent_us = coordination_clock_us();
    if (lease == 0 || atomic_load(&keeper->is_gone))
        return;
    diag_list_init(&diags, arena);
    etcd_set_deadline(keeper->etcd, MAX(ttl_us / 2, US_PER_SECOND / 2));
    enum etcd_outcome outcome = etcd_lease_keep(keeper->etcd, lease, &answer, &diags);
    pthread_mutex_lock(&keeper->mutex);
    if (atomic_load(&keeper->lease) == lease) { /* else another was taken over meanwhile */
        if (outcome == ETCD_DONE)
            extend(keeper, sent_us, answer.ttl_s);
        else if (answer.error == ETCD_NO_LEASE)
            atomic_store(&keeper->is_gone, true);
    }
    pthread_mutex_unlock(&keeper->mutex);
    arena_reset(arena);
}

static void *run(void *user)
{
    struct lease_keeper *keeper = user;
    struct arena arena = {.block_bytes = 4096};
    pthread_mutex_lock(&keeper->mutex);
    while (!keeper->must_stop) {
        const struct timespec until = wait_until(MAX(keeper->ttl_us / 4, US_PER_SECOND / 10));
        wait_on(&keeper->wake, &keeper->mutex, &until);
        if (keeper->must_stop)
            break;
        int64_t ttl_us = keeper->ttl_us;
        pthread_mutex_unlock(&keeper->mutex);
        keep(keeper, ttl_us, &arena);
        pthread_mutex_lock(&keeper->mutex);
    }
    pthread_mutex_unlock(&keeper->mutex);
    arena_free(&arena);
    return NULL;
}

bool keeper_start(struct lease_keeper *keeper, const struct etcd_options *options, struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 1024};
    struct diag_list known; /* what the other client of these options has said already */
    diag_list_init(&known, &arena);
    pthread_mutex_init(&keeper->mutex, NULL);
    pthread_cond_init(&keeper->wake, NULL);
    keeper->etcd = etcd_open(options, &known);
    arena_free(&arena);
    keeper->is_running = keeper->etcd != NULL && pthread_create(&keeper->thread, NULL, run, keeper) == 0;
    if (!keeper->is_running)
        diag_error(diags, DIAG_MEMORY_REFUSED, (struct span){0}, "the system refuses a thread for the lease");
    return keeper->is_running;
}

void keeper_stop(struct lease_keeper *keeper)
{
    if (keeper->is_running) {
        pthread_mutex_lock(&keeper->mutex);
        keeper->must_stop = true;
        pthread_cond_signal(&keeper->wake);
        pthread_mutex_unlock(&keeper->mutex);
        etcd_stop(keeper->etcd);
        pthread_join(keeper->thread, NULL);
    }
    if (keeper->etcd != NULL)
        etcd_close(keeper->etcd);
    pthread_cond_destroy(&keeper->wake);
    pthread_mutex_destroy(&keeper->mutex);
}

void keeper_take(struct lease_keeper *keeper, int64_t lease, int64_t sent_us, int64_t ttl_s)
{
    pthread_mutex_lock(&keeper->mutex);
    keeper->ttl_us = MIN(ttl_s, (int64_t)COORDINATION_LEASE_S_MAX) * US_PER_SECOND;
    atomic_store(&keeper->is_gone, false);
    extend(keeper, sent_us, ttl_s);
    atomic_store(&keeper->lease, lease);
    pthread_cond_signal(&keeper->wake);
    pthread_mutex_unlock(&keeper->mutex);
}

void keeper_drop(struct lease_keeper *keeper)
{
    pthread_mutex_lock(&keeper->mutex);
    atomic_store(&keeper->lease, 0);
    atomic_store(&keeper->until_us, 0);
    pthread_mutex_unlock(&keeper->mutex);
}

int64_t coordination_member_us(const struct coordination *coordination)
{
    const struct lease_keeper *keeper = &coordination->keeper;
    if (atomic_load(&keeper->lease) == 0 || atomic_load(&keeper->is_gone))
        return 0;
    return MAX(INT64_C(0), atomic_load(&keeper->until_us) - coordination_clock_us());
}

bool coordination_is_member(const struct coordination *coordination)
{
    return coordination_member_us(coordination) > 0;
}

bool coordination_is_gone(const struct coordination *coordination)
{
    return atomic_load(&coordination->keeper.is_gone);
}

int64_t coordination_lease(const struct coordination *coordination)
{
    return atomic_load(&coordination->keeper.lease);
}
