/* A worker that waits while a round goes on without it: it sees what that round's leader has described, and says that it fits. */
#include "cluster/worker_internal.h"

#include "core/os.h"

void worker_note_other(struct worker *worker, int64_t began_us)
{
    const struct rendezvous_round *other = rendezvous_other(worker->rendezvous);
    pthread_mutex_lock(&worker->mutex);
    struct rendezvous_round *copy = &worker->other;
    worker->has_other = other != NULL;
    worker->other_us = began_us;
    if (other != NULL && other->incarnation != copy->incarnation) {
        arena_reset(&worker->other_arena);
        rendezvous_copy(other, &worker->other_arena, copy);
    }
    pthread_mutex_unlock(&worker->mutex);
}

bool worker_other_round(struct worker *worker, struct arena *arena, struct worker_other *other)
{
    pthread_mutex_lock(&worker->mutex);
    const struct rendezvous_round *round = &worker->other;
    bool has = worker->has_other;
    if (has) {
        const struct rendezvous_worker *leader = &round->workers[round->leader];
        *other = (struct worker_other){.incarnation = round->incarnation,
                                       .leader = round->leader,
                                       .address = arena_str(arena, leader->address),
                                       .host = arena_str(arena, leader->host),
                                       .inputs = arena_str(arena, round->inputs),
                                       .seen_us = worker->other_us};
    }
    pthread_mutex_unlock(&worker->mutex);
    return has;
}

void worker_say_fits(struct worker *worker, uint64_t incarnation)
{
    pthread_mutex_lock(&worker->mutex);
    worker->fits = incarnation;
    pthread_mutex_unlock(&worker->mutex);
}
