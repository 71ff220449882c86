#include "run/base/barrier.h"
#include "run/base/peers.h"
#include "run/base/placements.h"

#include "core/mem.h"
#include "core/os.h"

#include <stdlib.h>

struct barrier *barrier_new(void)
{
    struct barrier *b = mem_calloc(1, sizeof(*b));
    pthread_mutex_init(&b->mutex, NULL);
    pthread_cond_init(&b->condition, NULL);
    return b;
}

void barrier_free(struct barrier *b)
{
    if (b == NULL)
        return;
    buffer_free(&b->positions);
    pthread_cond_destroy(&b->condition);
    pthread_mutex_destroy(&b->mutex);
    free(b);
}

bool barrier_is_waiting(struct run *run)
{
    struct barrier *b = run->barrier;
    pthread_mutex_lock(&b->mutex);
    bool is_waiting = b->state == BARRIER_REQUESTED && placements_prepare(run);
    pthread_mutex_unlock(&b->mutex);
    return is_waiting;
}

bool barrier_is_to_come(struct run *run)
{
    struct barrier *b = run->barrier;
    pthread_mutex_lock(&b->mutex);
    bool is_to_come =
        (b->state == BARRIER_IDLE || b->state == BARRIER_OPENING) && !b->has_lately_failed && !b->must_end;
    pthread_mutex_unlock(&b->mutex);
    return is_to_come;
}

bool barrier_is_busy(struct run *run)
{
    struct barrier *b = run->barrier;
    pthread_mutex_lock(&b->mutex);
    bool is_busy = b->state == BARRIER_RUNNING || b->state == BARRIER_WRITING;
    pthread_mutex_unlock(&b->mutex);
    return is_busy;
}

bool barrier_takes_last(struct run *run)
{
    struct barrier *b = run->barrier;
    pthread_mutex_lock(&b->mutex);
    bool is_ready = b->state == BARRIER_REQUESTED || (b->state == BARRIER_IDLE && b->last_is_refused);
    bool comes_next = b->state == BARRIER_IDLE || b->state == BARRIER_WRITING;
    if (comes_next && !is_ready && !b->last_is_wanted) {
        b->last_is_wanted = true;
        pthread_cond_broadcast(&b->condition);
    }
    pthread_mutex_unlock(&b->mutex);
    return is_ready;
}

uint64_t barrier_attach(struct run *run, bool is_last)
{
    struct barrier *b = run->barrier;
    uint64_t epoch = 0;
    pthread_mutex_lock(&b->mutex);
    if (b->state == BARRIER_REQUESTED && (is_last || placements_prepare(run))) {
        epoch = b->epoch;
        b->state = BARRIER_RUNNING;
        b->is_last = is_last;
        b->barrier_us = os_monotonic_us();
        buffer_clear(&b->positions);
    }
    pthread_mutex_unlock(&b->mutex);
    return epoch;
}

bool barrier_follow(struct run *run, uint64_t epoch, bool is_last)
{
    struct barrier *b = run->barrier;
    pthread_mutex_lock(&b->mutex);
    bool is_good = b->state == BARRIER_REQUESTED && b->epoch == epoch;
    if (is_good) {
        b->state = BARRIER_RUNNING;
        b->is_last = is_last;
        b->barrier_us = os_monotonic_us();
    }
    pthread_mutex_unlock(&b->mutex);
    return is_good;
}

/* Called with the mutex held. False: one is on its way, or cannot be now. */
static bool want(struct barrier *b)
{
    if (b->is_wanted || b->has_lately_failed || b->state != BARRIER_IDLE)
        return false;
    b->is_wanted = true;
    pthread_cond_broadcast(&b->condition);
    return true;
}

/* Not with the mutex held: a transport may lock. */
static void ask_leader(struct run *run)
{
    struct byte_buffer message = {0};
    if (peers_is_leader(run))
        return;
    peers_begin(&message, PEER_ASK);
    peers_send(run, run->options.peers->leader, &message);
    buffer_free(&message);
}

void barrier_ask(struct run *run)
{
    struct barrier *b = run->barrier;
    pthread_mutex_lock(&b->mutex);
    bool is_new = want(b);
    pthread_mutex_unlock(&b->mutex);
    if (is_new)
        ask_leader(run);
}

void barrier_take_ask(struct run *run)
{
    struct barrier *b = run->barrier;
    pthread_mutex_lock(&b->mutex);
    b->is_wanted_next |= !want(b) && b->state == BARRIER_WRITING;
    pthread_mutex_unlock(&b->mutex);
}

void barrier_end(struct barrier *b, bool is_published)
{
    b->state = BARRIER_IDLE;
    b->has_lately_failed = !is_published;
    b->is_wanted |= b->is_wanted_next && is_published;
    b->is_wanted_next = false;
}

void barrier_ask_seldom(struct run *run)
{
    struct barrier *b = run->barrier;
    pthread_mutex_lock(&b->mutex);
    int64_t now_us = os_monotonic_us();
    bool is_soon = b->asked_us != 0 && now_us - b->asked_us < BARRIER_SHARE * b->work_us;
    bool is_new = !is_soon && want(b);
    if (is_new)
        b->asked_us = now_us;
    pthread_mutex_unlock(&b->mutex);
    if (is_new)
        ask_leader(run);
}

void barrier_pass(struct run *run, int64_t stopped_us, bool is_good)
{
    struct barrier *b = run->barrier;
    pthread_mutex_lock(&b->mutex);
    b->stop_us = MAX(b->stop_us, stopped_us);
    b->stop_max_us = MAX(b->stop_max_us, stopped_us);
    b->has_failed |= !is_good;
    leat_assert(b->remaining > 0);
    if (--b->remaining == 0) {
        b->state = BARRIER_WRITING;
        pthread_cond_broadcast(&b->condition);
    }
    pthread_mutex_unlock(&b->mutex);
}

uint64_t barrier_published(const struct run *run)
{
    return run->barrier == NULL ? 0 : atomic_load_explicit(&run->barrier->published, memory_order_acquire);
}

uint64_t barrier_committed(const struct run *run)
{
    return run->barrier == NULL ? 0 : atomic_load_explicit(&run->barrier->committed, memory_order_acquire);
}

uint64_t barrier_uncommitted(const struct run *run)
{
    return run->barrier == NULL ? 0 : atomic_load_explicit(&run->barrier->uncommitted, memory_order_relaxed);
}
