/*
 * The deep part of a model: dense layers with relu, the last one giving one logit, over blocks of sixteen
 * events, an event a lane. Lanes that hold no event have zero inputs and zero slopes. One thread.
 */
#ifndef LEARNERS_HEAD_H
#define LEARNERS_HEAD_H

#include "kernels/kernels.h"

struct head_layer {
    size_t n, d;     /* outputs, inputs */
    float *weights;  /* n * d weights, n biases, then the optimizer's state for all of them */
    float *gradient; /* n * d + n */
    float *sum;      /* the same, over several blocks */
    float *in_rows;  /* 16 * d: inputs by event, for the gradient */
    float *out;      /* n * 16: after relu (the last layer: logits) */
    float *slope;    /* n * 16: by this layer's outputs */
};

struct head {
    size_t layers; /* 0: no head */
    size_t inputs;
    struct head_layer *items;
    float *in;       /* inputs * 16 */
    float *in_slope; /* inputs * 16: the gradient by the inputs */
    enum opt_kind opt;
};

/* hidden: widths, `count` of them; a layer of width 1 follows. Weights: uniform, He 2015, from the seed. */
void head_init(struct head *head, const struct kernels *k, size_t inputs, const uint32_t *hidden,
               size_t count, enum opt_kind opt, float accumulator, uint64_t seed);
void head_free(struct head *head);

/* Where event e's inputs go: `inputs` floats. */
static inline float *head_row(struct head *head, size_t e)
{
    return head->items[0].in_rows + e * head->inputs;
}

/* Logits of the first `events` rows, the others being taken as zero; valid until the next call. */
const float *head_forward(struct head *head, const struct kernels *k, size_t events);

/* After head_forward with the same rows. slopes: 16, zero where there is no event. Gradients by all weights,
 * summed over the events, and by the inputs: event-major, 16 * inputs, valid until the next call. */
const float *head_backward(struct head *head, const struct kernels *k, const float *slopes);

/* For steps of several blocks: adds the gradients of head_backward to a sum (first: begins it) and, at the
 * end, puts the sum in their place for head_step. */
void head_sum_add(struct head *head, const struct kernels *k, bool is_first);
void head_sum_take(struct head *head);

/* One optimizer step with the gradients of head_backward. clip_norm 0: none. */
void head_step(struct head *head, const struct kernels *k, const struct opt_params *params, float clip_norm);

/* All layers' weights with state, for snapshots: bytes of layer l at weights. */
size_t head_layer_floats(const struct head *head, size_t layer);

#endif
