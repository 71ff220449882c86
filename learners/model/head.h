/*
 * The deep part of a model: dense layers with relu, the last one giving one logit, over blocks of
 * sixteen events, one event in each lane of a vector. Lanes without an event have zero inputs and zero
 * gradients. One thread.
 */
#ifndef LEAT_LEARNERS_MODEL_HEAD_H
#define LEAT_LEARNERS_MODEL_HEAD_H

#include "kernels/kernels.h"

struct head_layer {
    size_t n, d;          /* outputs, inputs */
    float *weights;       /* n * d weights, n biases, then the optimizer's state for all of them */
    float *gradient;      /* [n * d + n], laid out as the weights and biases */
    float *in_rows;       /* [16][d] inputs by event, for the gradient */
    float *out;           /* [n][16] after relu (the last layer: logits) */
    float *out_gradients; /* [n][16] gradients by this layer's outputs */
};

struct head {
    size_t layers; /* 0: no head */
    size_t inputs;
    struct head_layer *items;
    float *in;           /* [inputs][16] */
    float *in_gradients; /* [inputs][16] gradients by the inputs */
    enum opt_kind opt;
};

/* hidden: `count` widths; a layer of width 1 follows them. Initial weights: uniform, He
 * 2015, from the seed. */
void head_init(struct head *head, const struct kernels *k, size_t inputs, const uint32_t *hidden,
               size_t count, enum opt_kind opt, float accumulator, uint64_t seed);
void head_free(struct head *head);

/* Where the caller puts the inputs of event e (0 .. 15) before head_forward: `inputs` floats. */
static inline float *head_row(struct head *head, size_t e)
{
    return head->items[0].in_rows + e * head->inputs;
}

/* Computes the logits of the first `events` rows; the other rows count as zero. Valid until the next call. */
const float *head_forward(struct head *head, const struct kernels *k, size_t events);

/* Call after head_forward with the same rows. logit_gradients: [16], zero where there is no event. Computes
 * the gradients by all weights, summed over the events; returns those by the inputs, [16][inputs], valid
 * until the next call. */
const float *head_backward(struct head *head, const struct kernels *k, const float *logit_gradients);

/* One optimizer step with the gradients of head_backward. clip_norm: largest norm of the
 * gradients; 0: no limit. */
void head_step(struct head *head, const struct kernels *k, const struct opt_params *params, float clip_norm);

/* Floats of a layer's weights and their state, for snapshots; they begin at `weights`. */
size_t head_layer_floats(const struct head *head, size_t layer);

#endif
