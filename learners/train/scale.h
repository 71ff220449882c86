/*
 * The scale of slopes in fp16 (Micikevicius et al. 2018, Mixed Precision Training, arXiv:1710.03740, section
 * 3.2). Weights, slopes and gradients are kept in fp32; a slope is in fp16 only while it is multiplied, times
 * the scale, so that small ones keep their bits. The scale follows what is learned, for a squared loss has
 * slopes of any size: a step that leaves the range is not lost but made again with half the scale, and
 * counted; after SCALE_GROWS_AFTER steps in a row that did not, the scale doubles. It is a power of two, a
 * function of the steps alone, and part of checkpoints.
 */
#ifndef LEARNERS_TRAIN_SCALE_H
#define LEARNERS_TRAIN_SCALE_H

#include "kernels/gpu.h"

enum { SCALE_GROWS_AFTER = 2000 };
#define SCALE_FIRST 0x1p10F
#define SCALE_MIN   0x1p-24F
#define SCALE_MAX   0x1p16F

struct train_scale {
    float scale;
    uint32_t good;    /* steps since it has changed */
    uint64_t lowered; /* times */
};

struct train;
/* After all slopes of a step: whether they have to be made again, the scale being another now. first: the
 * scale that the step began with; it is that again where no scale helps. Waits for the device. false: it has
 * failed. */
bool scale_judge(struct train *t, float first, bool *is_again, struct gpu_error *error);
/* Of a checkpoint; false: it cannot be one. */
bool scale_set(struct train *t, struct train_scale scale);

#endif
