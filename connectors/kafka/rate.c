/* Option `max_rate`: limits how many records all partitions of a source give per second. */
#include "connectors/kafka/partition.h"

#include "core/os.h"

uint32_t kafka_rate_ask(struct kafka_shared *shared, uint32_t wanted)
{
    if (shared->rate == 0)
        return wanted;
    pthread_mutex_lock(&shared->mutex);
    int64_t now = os_monotonic_us();
    double most = MAX((double)shared->rate / 20, 1); /* records of 50 ms: no bursts */
    double more = (double)(now - shared->rate_at_us) * (double)shared->rate / 1e6;
    shared->allowance = MIN(shared->allowance + more, most);
    shared->rate_at_us = now;
    uint32_t allowed = (uint32_t)MAX(MIN(shared->allowance, (double)wanted), 0);
    shared->allowance -= allowed;
    pthread_mutex_unlock(&shared->mutex);
    if (allowed == 0)
        atomic_store(&shared->is_held, true);
    return allowed;
}

void kafka_rate_give_back(struct kafka_shared *shared, uint32_t unused)
{
    if (shared->rate == 0 || unused == 0)
        return;
    pthread_mutex_lock(&shared->mutex);
    shared->allowance += unused;
    pthread_mutex_unlock(&shared->mutex);
}

bool kafka_rate_has(struct kafka_shared *shared)
{
    uint32_t has = shared->rate == 0 ? 1 : kafka_rate_ask(shared, 1);
    kafka_rate_give_back(shared, has);
    return has > 0;
}

void kafka_rate_take(struct kafka_shared *shared, uint32_t records)
{
    if (shared->rate == 0)
        return;
    pthread_mutex_lock(&shared->mutex);
    shared->allowance -= records; /* may become negative: later reads wait until it is 1 or more */
    pthread_mutex_unlock(&shared->mutex);
}
