/* What targets.c (draws, losses) and targets_rows.c (the rows' gradients) share. */
#ifndef LEAT_LEARNERS_LOSSES_INTERNAL_H
#define LEAT_LEARNERS_LOSSES_INTERNAL_H

#include "learners/losses/softmax.h"
#include "learners/losses/targets.h"
#include "learners/train/share.h"

/* A thread's memory. */
struct targets_thread {
    struct losses_work work;
    const float **rows; /* the list of a target's negatives: [negatives_max] */
    uint32_t *numbers;
    double *log_q;
    uint32_t negatives_max;
    void *scratch; /* of kernels */
    uint32_t rejected;
};

/* An array that grows and keeps its contents. */
struct targets_array {
    void *at;
    size_t bytes;
};

enum {
    TARGETS_INDEX_OF, /* uint32_t by dense number: its index in the step, BATCH_NONE; between steps, too */
    TARGETS_ITEMS,    /* uint32_t by index: the dense number */
    TARGETS_INDICES,  /* uint32_t [count][1 + draws]: the indices of a target's positive and its draws */
    TARGETS_LOG_Q,    /* double [count][draws]: log_q of the draws, where they differ */
    TARGETS_OTHERS,   /* double [count]: log_q of the targets' items as negatives of each other */
    TARGETS_SCALES,   /* float [count][1 + draws + others]: derivatives by the scores, over the temperature */
    TARGETS_VECTORS,  /* float [][dim]: queries; tokens' gradients; each thread's tile */
    TARGETS_ROWS,     /* by dense number: softmax's rows */
    TARGETS_POINTS,   /* struct softmax_point [count] */
    TARGETS_COMPACT,  /* float [count][dim]: softmax's query gradients, where the caller's have a stride */
    TARGETS_STARTS,   /* uint32_t [items + 2]: places of index u are starts[u] .. starts[u + 1] */
    TARGETS_BAG,      /* uint32_t by place, in that order: its vector */
    TARGETS_FACTORS,  /* float by place: the factor of the vector */
    TARGETS_ORDER,    /* uint32_t: 0, 1, 2 .. */
    TARGETS_TAUGHT,   /* void * by index: the row that makes a step */
    TARGETS_ARRAYS
};

struct targets {
    struct targets_options o;
    struct frequencies frequencies;
    struct targets_thread threads[SHARE_THREADS];
    struct targets_array arrays[TARGETS_ARRAYS];
    size_t scratch_bytes; /* of each thread */
    size_t order_count;   /* numbers that TARGETS_ORDER has */
    /* the step */
    uint32_t count, draws, others; /* others: of a target in its batch */
    uint32_t numbers;              /* TARGETS_INDEX_OF and TARGETS_ITEMS have this many places */
    uint32_t items;
    uint32_t judged; /* targets that have gradients */
    double log_q;    /* of each draw, if all are alike */
    struct softmax_step softmax;
};

/* The array with room for `count` elements; what it had is kept, what is new is undefined. */
void *targets_grow(struct targets *t, unsigned array, size_t count, size_t size);

/* The places of a target. */
static inline size_t targets_stride(const struct targets *t)
{
    return (size_t)1 + t->draws + t->others;
}

#endif
