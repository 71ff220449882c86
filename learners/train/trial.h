/*
 * `precision: auto`: whether bf16 is good enough for a job is tried on its own events. A second set of dense
 * layers, of fp32, begins alike and learns beside those of bf16: the same events, vectors and numbers, by the
 * slopes of its own predictions. Vectors and linear weights are one set, and learn from bf16 alone, so that a
 * model that keeps bf16 is the one that `precision: bf16` makes, bit for bit. After so many examples that
 * both have predicted before they learned them, at the end of a step: bf16 stays where its loss is at most
 * TRIAL_COST of fp32's worse; else the layers of fp32 take its place. A function of the events; decided once,
 * and part of checkpoints until then and after.
 *
 * What it cannot see is what bf16's slopes cost the vectors, which both share.
 */
#ifndef LEARNERS_TRAIN_TRIAL_H
#define LEARNERS_TRAIN_TRIAL_H

#include "learners/train/net.h"

#define TRIAL_COST 1e-3

/* What is summed up of it, and how it stands. */
struct trial_score {
    uint64_t examples;
    double bf16, fp32; /* sums of losses */
    bool is_over, keeps_bf16;
};

struct train_trial {
    struct net net;
    struct trial_score score;
    float *logits;                                      /* [labels][events_max] */
    float *host_logits;                                 /* what comes back of a call's events */
    uint8_t *is_rejected;                               /* [events_max] */
    double losses[2][MODEL_LABELS_MAX][MODEL_ROWS_MAX]; /* scratch: of a call's events, bf16 and fp32 */
};

struct train;
struct kernels;

/* NULL, but with `precision: auto`; shape is that of the layers of bf16. Memory: in both walks. */
struct train_trial *trial_new(const struct train *t, const struct net_options *shape, uint32_t together);
void trial_take(struct train *t, struct train_memory *memory);
bool trial_start(struct train *t, const struct kernels *kernels, struct gpu_error *error);
void trial_free(struct train *t);

/* Whether both learn. */
bool trial_runs(const struct train *t);
/* Between steps: the decision, when it is due. */
void trial_decide(struct train *t);
/* Of a checkpoint, before the weights; false: it cannot be one. */
bool trial_set(struct train *t, struct trial_score score);

#endif
