/*
 * softmax over all items for many targets at once, in tiles: softmax.c tells how. The parts of the work may be
 * done by any threads: the bits do not depend on who does which part, nor on how many parts there are.
 *
 *   losses_softmax_targets, for ranges that cover all targets; then, when all of them are done,
 *   losses_softmax_items, for ranges that cover all tiles.
 */
#ifndef LEAT_LEARNERS_LOSSES_SOFTMAX_H
#define LEAT_LEARNERS_LOSSES_SOFTMAX_H

#include "core/base.h"
#include "kernels/batch.h"

enum {
    SOFTMAX_TILE = 256,   /* items of a tile: numbers from a multiple of it up */
    SOFTMAX_TARGETS = 64, /* targets of a block; a range of losses_softmax_targets may be any */
};

/* What the second part needs to know of a target. Its negatives have the derivatives factor * e^((score - top)
 * / temperature - rest), the positive has `positive`. */
struct softmax_point {
    float top, rest, factor, positive;
};

/* A step; all memory is the caller's. */
struct softmax_step {
    const struct kernels *kernels;
    const struct batch_kernels *batch; /* of a CPU */
    const float *const *rows; /* [items] rows of d floats by dense number; NULL: no item has this number */
    uint32_t items, d;
    const float *queries; /* [targets][d] */
    uint32_t targets;
    const uint32_t *positives; /* [targets] dense numbers, of items that have a row */
    const float *weights;      /* [targets] factors of the losses; NULL: 1 */
    double temperature;        /* above 0 */
    /* Results. A target whose scores, loss or gradient is not finite is rejected: it has a loss of 0 and
     * teaches nothing. */
    double *losses;               /* [targets], times weight */
    uint8_t *is_rejected;         /* [targets] */
    float *query_gradients;       /* [targets][d] */
    struct softmax_point *points; /* [targets] */
};

static inline uint32_t losses_softmax_tiles(uint32_t items)
{
    return items / SOFTMAX_TILE + (items % SOFTMAX_TILE > 0);
}

/* Bytes of scratch memory, aligned to 64, that each thread needs for a step of items of d floats. */
size_t losses_softmax_scratch(const struct batch_kernels *batch, uint32_t d);

/* The losses of targets begin .. end - 1, and their query gradients. */
void losses_softmax_targets(const struct softmax_step *step, uint32_t begin, uint32_t end, void *scratch);

/*
 * The gradients by the rows of tiles begin .. end - 1: gradients[i][d] of the item whose number is begin *
 * SOFTMAX_TILE + i, 0 for a number without an item. A row's gradient is one sum over the targets, in order; a
 * step of several slices (kernels/slices.h) is a step a slice, whose sums are added by the tree.
 */
void losses_softmax_items(const struct softmax_step *step, uint32_t begin, uint32_t end, float *gradients,
                          void *scratch);

#endif
