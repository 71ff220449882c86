/* A worker that is a standby: the heads that it may prepare, and what it tells of them (worker.h). */
#include "cluster/worker_internal.h"
#include "core/os.h"

enum { TELL_US = 1000000 };

void worker_standby_look(struct worker *worker)
{
    const struct cluster_head *head = rendezvous_head(worker->rendezvous);
    struct worker_head *newest = &worker->newest;
    pthread_mutex_lock(&worker->mutex);
    if (head->revision != newest->head.revision && head->manifest.length < sizeof(newest->manifest) &&
        head->digest.length < sizeof(newest->digest)) {
        newest->head = *head;
        memcpy(newest->manifest, head->manifest.data, head->manifest.length);
        memcpy(newest->digest, head->digest.data, head->digest.length);
    }
    pthread_mutex_unlock(&worker->mutex);
}

void worker_newest_head(struct worker *worker, struct worker_head *head)
{
    pthread_mutex_lock(&worker->mutex);
    *head = worker->newest;
    pthread_mutex_unlock(&worker->mutex);
    head->head.manifest.data = head->manifest;
    head->head.digest.data = head->digest;
}

void worker_say_prepared(struct worker *worker, const struct cluster_prepared *prepared)
{
    pthread_mutex_lock(&worker->mutex);
    worker->prepared = *prepared;
    worker->says_prepared = true;
    pthread_mutex_unlock(&worker->mutex);
}

bool worker_standby_is_due(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    bool says = worker->says_prepared;
    pthread_mutex_unlock(&worker->mutex);
    return says && os_monotonic_us() - worker->prepared_us >= TELL_US;
}

enum etcd_outcome worker_standby_tell(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    struct cluster_prepared prepared = worker->prepared;
    worker->says_prepared = false;
    pthread_mutex_unlock(&worker->mutex);
    worker->prepared_us = os_monotonic_us();
    enum etcd_outcome outcome =
        rendezvous_tell_prepared(worker->rendezvous, &worker->member, &prepared, &worker->diags);
    pthread_mutex_lock(&worker->mutex);
    worker->says_prepared |= outcome == ETCD_UNKNOWN;
    pthread_mutex_unlock(&worker->mutex);
    return outcome;
}
