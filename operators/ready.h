/* Batches that are finished and wait until no bracket of a table is open: only then may an operator emit. */
#ifndef LEAT_OPERATORS_READY_H
#define LEAT_OPERATORS_READY_H

#include "core/operator.h"

struct ready_batches {
    struct batch *first, *last;
    uint32_t count;
};

/* Takes over the caller's reference. */
static inline void ready_add(struct ready_batches *ready, struct batch *batch)
{
    batch->next = NULL;
    *(ready->first == NULL ? &ready->first : &ready->last->next) = batch;
    ready->last = batch;
    ready->count++;
}

/* Takes the first batch, whose reference the caller then owns; NULL: there is none. */
static inline struct batch *ready_take(struct ready_batches *ready)
{
    struct batch *batch = ready->first;
    if (batch == NULL)
        return NULL;
    ready->first = batch->next;
    ready->count--;
    batch->next = NULL;
    return batch;
}

/* Emits all batches to output 0. Not inside a bracket. */
static inline void ready_emit(struct ready_batches *ready, struct operator_context *context)
{
    struct batch *batch;
    while ((batch = ready_take(ready)) != NULL)
        operator_emit(context, 0, batch);
}

#endif
