/*
 * `precision: auto`: tries on a job's own events whether bf16 is good enough. A second set of dense layers,
 * of fp32, starts with the same weights and learns beside those of bf16: the same events, vectors and dense
 * features, by the gradients of its own predictions. Vectors and linear weights exist once, and learn from
 * bf16 alone, so that a model that keeps bf16 equals that of `precision: bf16`, bit for bit. When both have
 * predicted trial_examples examples before learning them, the next end of a step decides: bf16 stays if its
 * loss is at most TRIAL_COST (relative) above that of fp32; else the layers of fp32 replace it. The decision
 * is a function of the events, made once; it, and the state before it, are part of checkpoints.
 *
 * The trial cannot see how bf16's gradients affect the vectors, because both sets use the same vectors.
 */
#ifndef LEAT_LEARNERS_TRAIN_TRIAL_H
#define LEAT_LEARNERS_TRAIN_TRIAL_H

#include "learners/train/net.h"

#define TRIAL_COST 1e-3

/* The sums of a trial, and its state. */
struct trial_score {
    uint64_t examples;
    double bf16, fp32; /* sums of losses */
    bool is_over, keeps_bf16;
};

struct train_trial {
    struct net net;
    struct trial_score score;
    float *logits;        /* [labels][events_max] */
    float *host_logits;   /* a call's logits, copied back */
    uint8_t *is_rejected; /* [events_max] */
    /* scratch: losses of a call's events, bf16 and fp32 */
    double losses[2][MODEL_LABELS_MAX][MODEL_ROWS_MAX];
};

struct train;
struct kernels;

/* NULL unless `precision: auto`. shape: that of the bf16 layers. together: most events in one call of
 * net_forward. trial_take: memory, in both walks. */
struct train_trial *trial_new(const struct train *t, const struct net_options *shape, uint32_t together);
void trial_take(struct train *t, struct train_memory *memory);
bool trial_start(struct train *t, const struct kernels *kernels, struct gpu_error *error);
void trial_free(struct train *t);

/* Whether the trial is not decided yet, so that both sets of layers learn. */
bool trial_runs(const struct train *t);
/* Call between steps: once the trial has trial_examples examples, decides which precision stays. */
void trial_decide(struct train *t);
/* Sets the score of a checkpoint, before the weights are loaded; false: it cannot be one. */
bool trial_set(struct train *t, struct trial_score score);

#endif
