#include "workers.h"

#include "core/buffer.h"
#include "core/key.h"
#include "core/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Messages of one sender to one receiver. */
struct queue {
    struct byte_buffer bytes; /* each with its length before it */
    size_t taken;
};

struct worker {
    struct workers *workers;
    struct run_peers peers;
    struct run *run;
    struct queue queues[RUN_WORKERS_MAX]; /* by sender */
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    pthread_t thread;
    uint64_t draws;
    bool must_end;
};

struct workers {
    uint32_t count;
    uint64_t seed;
    struct worker items[RUN_WORKERS_MAX];
};

static void send_message(void *engine, uint32_t to, struct str message)
{
    struct worker *from = engine, *worker = &from->workers->items[to];
    uint64_t length = message.length;
    pthread_mutex_lock(&worker->mutex);
    struct queue *queue = &worker->queues[from->peers.self];
    buffer_append(&queue->bytes, &length, sizeof(length));
    buffer_append(&queue->bytes, message.data, message.length);
    pthread_cond_signal(&worker->condition);
    pthread_mutex_unlock(&worker->mutex);
}

struct workers *workers_new(uint32_t count, uint64_t seed)
{
    struct workers *workers = mem_calloc(1, sizeof(*workers));
    leat_assert(count <= RUN_WORKERS_MAX);
    workers->count = count;
    workers->seed = seed;
    for (uint32_t i = 0; i < count; i++) {
        struct worker *worker = &workers->items[i];
        worker->workers = workers;
        worker->peers = (struct run_peers){.self = i,
                                           .count = count,
                                           .leader = (uint32_t)(seed % count),
                                           .send = send_message,
                                           .engine = worker};
        pthread_mutex_init(&worker->mutex, NULL);
        pthread_cond_init(&worker->condition, NULL);
    }
    return workers;
}

const struct run_peers *workers_peers(struct workers *workers, uint32_t worker)
{
    return &workers->items[worker].peers;
}

/* The queue of which the next message is taken; NULL: all are empty. Under the mutex. */
static struct queue *choose(struct worker *worker)
{
    uint32_t count = worker->workers->count;
    uint64_t draw = key_hash((struct key){worker->workers->seed + worker->peers.self, worker->draws++});
    for (uint32_t i = 0; i < count; i++) {
        struct queue *queue = &worker->queues[(draw + i) % count];
        if (queue->taken < queue->bytes.length)
            return queue;
    }
    return NULL;
}

static void *deliver(void *argument)
{
    struct worker *worker = argument;
    struct byte_buffer message = {0};
    for (;;) {
        pthread_mutex_lock(&worker->mutex);
        struct queue *queue = choose(worker);
        while (queue == NULL && !worker->must_end) {
            pthread_cond_wait(&worker->condition, &worker->mutex);
            queue = choose(worker);
        }
        if (worker->must_end) {
            pthread_mutex_unlock(&worker->mutex);
            break;
        }
        uint64_t length;
        memcpy(&length, queue->bytes.data + queue->taken, sizeof(length));
        message.length = 0;
        buffer_append(&message, queue->bytes.data + queue->taken + sizeof(length), length);
        queue->taken += sizeof(length) + length;
        if (queue->taken == queue->bytes.length)
            queue->taken = queue->bytes.length = 0;
        uint32_t from = (uint32_t)(queue - worker->queues);
        pthread_mutex_unlock(&worker->mutex);
        bool is_good = run_receive(worker->run, from, (struct str){message.data, message.length});
        leat_assert(is_good);
    }
    buffer_free(&message);
    return NULL;
}

void workers_begin(struct workers *workers, struct run **runs)
{
    for (uint32_t i = 0; i < workers->count; i++)
        workers->items[i].run = runs[i];
    for (uint32_t i = 0; i < workers->count; i++)
        leat_assert(pthread_create(&workers->items[i].thread, NULL, deliver, &workers->items[i]) == 0);
}

void workers_end(struct workers *workers)
{
    for (uint32_t i = 0; i < workers->count; i++) {
        struct worker *worker = &workers->items[i];
        pthread_mutex_lock(&worker->mutex);
        worker->must_end = true;
        pthread_cond_signal(&worker->condition);
        pthread_mutex_unlock(&worker->mutex);
        pthread_join(worker->thread, NULL);
    }
}

void workers_free(struct workers *workers)
{
    for (uint32_t i = 0; i < workers->count; i++) {
        for (uint32_t k = 0; k < workers->count; k++)
            buffer_free(&workers->items[i].queues[k].bytes);
        pthread_mutex_destroy(&workers->items[i].mutex);
        pthread_cond_destroy(&workers->items[i].condition);
    }
    free(workers);
}
