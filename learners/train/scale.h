/*
 * The scale of gradients in fp16 (Micikevicius et al. 2018, Mixed Precision Training, arXiv:1710.03740,
 * section 3.2). Weights and gradients are kept in fp32; the gradient by a layer's output is rounded to fp16,
 * times the scale, only while it is multiplied, so that small ones keep their bits. The scale adapts, because
 * a squared loss has gradients of any size: a step that leaves fp16's range is not lost but repeated with
 * half the scale, and counted; after SCALE_GROWS_AFTER steps in a row within the range the scale doubles. It
 * is a power of two, a function of the steps alone, and part of checkpoints.
 */
#ifndef LEAT_LEARNERS_TRAIN_SCALE_H
#define LEAT_LEARNERS_TRAIN_SCALE_H

#include "kernels/gpu.h"

enum { SCALE_GROWS_AFTER = 2000 };
#define SCALE_FIRST 0x1p10F
#define SCALE_MIN   0x1p-24F
#define SCALE_MAX   0x1p16F

struct train_scale {
    float scale;
    uint32_t good;    /* steps since the scale last changed */
    uint64_t lowered; /* times that the scale was halved */
};

struct train;
/* Call when all gradients of a step are made. *is_again: they have to be made again, with another scale.
 * first: the scale that the step began with; it is restored if no scale helps. Waits for the device; false:
 * it has failed. */
bool scale_judge(struct train *t, float first, bool *is_again, struct gpu_error *error);
/* Sets the scale of a checkpoint; false: it cannot be one. */
bool scale_set(struct train *t, struct train_scale scale);

#endif
