#include "learners/tables/chunks.h"

#include "core/base.h"
#include "core/mem.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { CHUNK_OPEN, CHUNK_CLAIMED, CHUNK_COPIED };

struct copied {
    struct copied *next;
    size_t count;
    unsigned char items[];
};

struct chunks {
    chunks_copy *copy;
    const void *owner;
    size_t count, chunk_bytes;
    _Atomic uint8_t *states;
    pthread_mutex_t mutex; /* guards `first` */
    struct copied *first;
};

struct chunks *chunks_begin(size_t count, size_t chunk_bytes, chunks_copy *copy, const void *owner)
{
    struct chunks *c = mem_calloc(1, sizeof(*c));
    *c = (struct chunks){.copy = copy, .owner = owner, .count = count, .chunk_bytes = chunk_bytes};
    pthread_mutex_init(&c->mutex, NULL);
    c->states = mem_calloc(MAX(count, 1), 1);
    return c;
}

static bool is_copied(struct chunks *c, size_t chunk)
{
    return atomic_load_explicit(&c->states[chunk], memory_order_acquire) == CHUNK_COPIED;
}

static bool claim(struct chunks *c, size_t chunk)
{
    uint8_t open = CHUNK_OPEN;
    return atomic_compare_exchange_strong_explicit(&c->states[chunk], &open, CHUNK_CLAIMED,
                                                   memory_order_acquire, memory_order_acquire);
}

static void set_copied(struct chunks *c, size_t chunk)
{
    atomic_store_explicit(&c->states[chunk], CHUNK_COPIED, memory_order_release);
}

void chunks_protect(struct chunks *c, size_t chunk)
{
    if (chunk >= c->count || is_copied(c, chunk))
        return;
    if (!claim(c, chunk)) {
        while (!is_copied(c, chunk))
            sched_yield(); /* the writer is copying this one chunk: a short wait */
        return;
    }
    struct copied *copy = mem_alloc(sizeof(*copy) + c->chunk_bytes);
    copy->count = c->copy(c->owner, chunk, copy->items);
    if (copy->count == 0) { /* no item of the chunk belongs to the snapshot */
        free(copy);
        set_copied(c, chunk);
        return;
    }
    pthread_mutex_lock(&c->mutex);
    copy->next = c->first;
    c->first = copy;
    pthread_mutex_unlock(&c->mutex);
    set_copied(c, chunk);
}

static struct copied *take_copies(struct chunks *c)
{
    pthread_mutex_lock(&c->mutex);
    struct copied *first = c->first;
    c->first = NULL;
    pthread_mutex_unlock(&c->mutex);
    return first;
}

static bool emit_copies(struct chunks *c, chunks_emit *emit, void *argument)
{
    bool is_ok = true;
    for (struct copied *copy = take_copies(c), *next; copy; copy = next) {
        next = copy->next;
        if (is_ok && copy->count > 0)
            is_ok = emit(argument, copy->items, copy->count);
        free(copy);
    }
    return is_ok;
}

bool chunks_write(struct chunks *c, chunks_emit *emit, void *argument)
{
    unsigned char *items = mem_alloc(c->chunk_bytes);
    bool is_ok = true;
    for (size_t chunk = 0; chunk < c->count && is_ok; chunk++) {
        if (!claim(c, chunk))
            continue;
        size_t count = c->copy(c->owner, chunk, items);
        set_copied(c, chunk);
        if (count > 0)
            is_ok = emit(argument, items, count);
        if (is_ok && chunk % 64 == 0)
            is_ok = emit_copies(c, emit, argument);
    }
    for (size_t chunk = 0; chunk < c->count && is_ok; chunk++) /* the owner may still be copying a chunk */
        while (!is_copied(c, chunk))
            sched_yield();
    is_ok = is_ok && emit_copies(c, emit, argument);
    free(items);
    return is_ok;
}

void chunks_end(struct chunks *c)
{
    if (!c)
        return;
    for (struct copied *copy = c->first, *next; copy; copy = next) {
        next = copy->next;
        free(copy);
    }
    pthread_mutex_destroy(&c->mutex);
    free((void *)c->states);
    free(c);
}
