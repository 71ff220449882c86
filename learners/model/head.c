#include "learners/model/head.h"

#include "core/base.h"
#include "core/mem.h"
#include "kernels/num.h"

#include <math.h>
#include <stdlib.h>

static float *floats_new(size_t n)
{
    size_t bytes = (n * sizeof(float) + 63) / 64 * 64 + 64;
    float *p = mem_aligned(64, bytes);
    memset(p, 0, bytes);
    return p;
}

static size_t layer_weights(const struct head_layer *layer)
{
    return layer->n * layer->d + layer->n;
}

size_t head_layer_floats(const struct head *head, size_t layer)
{
    size_t weights = layer_weights(&head->items[layer]);
    return weights + opt_state_floats(head->opt, weights);
}

static void layer_init(struct head *head, const struct kernels *k, size_t l, size_t n, size_t d,
                       float accumulator, uint64_t seed)
{
    struct head_layer *layer = &head->items[l];
    *layer = (struct head_layer){.n = n, .d = d};
    size_t weights = layer_weights(layer), all = head_layer_floats(head, l);
    layer->weights = floats_new(all);
    layer->gradient = floats_new(weights);
    layer->in_rows = floats_new(16 * d);
    layer->out = floats_new(16 * n);
    layer->out_gradients = floats_new(16 * n);
    float bound = sqrtf(6.0F / (float)d) * (l + 1 == head->layers ? 0.1F : 1.0F);
    k->init_uniform(layer->weights, num_mix(seed + l + 1), bound, n * d);
    for (size_t i = weights; i < all; i++)
        layer->weights[i] = opt_state_init(head->opt, accumulator);
}

void head_init(struct head *head, const struct kernels *k, size_t inputs, const uint32_t *hidden,
               size_t count, enum opt_kind opt, float accumulator, uint64_t seed)
{
    *head = (struct head){.layers = count + 1, .inputs = inputs, .opt = opt};
    head->items = mem_calloc(head->layers, sizeof(*head->items));
    leat_assert(inputs > 0);
    head->in = floats_new(inputs * 16);
    head->in_gradients = floats_new(inputs * 16);
    for (size_t l = 0; l < head->layers; l++)
        layer_init(head, k, l, l < count ? hidden[l] : 1, l > 0 ? hidden[l - 1] : inputs, accumulator, seed);
}

void head_free(struct head *head)
{
    for (size_t l = 0; l < head->layers; l++) {
        free(head->items[l].weights);
        free(head->items[l].gradient);
        free(head->items[l].in_rows);
        free(head->items[l].out);
        free(head->items[l].out_gradients);
    }
    free(head->items);
    free(head->in);
    free(head->in_gradients);
    *head = (struct head){0};
}

const float *head_forward(struct head *head, const struct kernels *k, size_t events)
{
    memset(head_row(head, events), 0, (16 - events) * head->inputs * sizeof(float));
    k->dense_rows_to_lanes(head->in, head->items[0].in_rows, head->inputs);
    const float *in = head->in;
    for (size_t l = 0; l < head->layers; l++) {
        struct head_layer *layer = &head->items[l];
        k->dense_forward(layer->out, in, layer->weights, layer->weights + layer->n * layer->d, layer->n,
                         layer->d);
        if (l + 1 < head->layers)
            k->relu_forward(layer->out, layer->n * 16);
        in = layer->out;
    }
    return in;
}

const float *head_backward(struct head *head, const struct kernels *k, const float *logit_gradients)
{
    memcpy(head->items[head->layers - 1].out_gradients, logit_gradients, 16 * sizeof(*logit_gradients));
    for (size_t l = head->layers; l-- > 0;) {
        struct head_layer *layer = &head->items[l];
        float *below = l > 0 ? head->items[l - 1].out_gradients : head->in_gradients;
        if (l > 0)
            k->dense_lanes_to_rows(layer->in_rows, head->items[l - 1].out, layer->d);
        k->dense_gradient(layer->gradient, layer->gradient + layer->n * layer->d, layer->out_gradients,
                          layer->in_rows, layer->n, layer->d);
        k->dense_backward(below, layer->out_gradients, layer->weights, layer->n, layer->d);
        if (l > 0)
            k->relu_backward(below, head->items[l - 1].out, layer->d * 16);
    }
    k->dense_lanes_to_rows(head->in, head->in_gradients, head->inputs);
    return head->in;
}

void head_step(struct head *head, const struct kernels *k, const struct opt_params *params, float clip_norm)
{
    float scale = 1.0F;
    if (clip_norm > 0.0F) {
        float squares = 0.0F;
        for (size_t l = 0; l < head->layers; l++)
            squares += k->sum_squares(head->items[l].gradient, layer_weights(&head->items[l]));
        float norm = sqrtf(squares);
        scale = norm > clip_norm ? clip_norm / norm : 1.0F;
    }
    for (size_t l = 0; l < head->layers; l++) {
        struct head_layer *layer = &head->items[l];
        size_t weights = layer_weights(layer);
        struct opt_row row = {.w = layer->weights,
                              .state = layer->weights + weights,
                              .g = layer->gradient,
                              .scale = scale,
                              .curvature = 1.0F};
        opt_pick(k, head->opt)(&row, 1, weights, params);
    }
}
