/* For tests of sequence models' layers: a network over windows on the CPU, its input, and the gradients by its
 * output, which are arbitrary numbers: the objective is the dot product of outputs and these. */
#ifndef LEAT_TESTS_UNIT_LEARNERS_SEQUENCE_RIG_H
#define LEAT_TESTS_UNIT_LEARNERS_SEQUENCE_RIG_H

#include "learners/networks/networks.h"
#include "learners/train/net.h"

#include "core/base.h"
#include "kernels/num.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { RIG_WINDOWS_MAX = 400, RIG_ROWS_MAX = 8192 };

struct rig {
    struct train_device device;
    struct train_memory memory;
    struct net net;
    uint32_t rows;
    uint32_t offsets[RIG_WINDOWS_MAX + 1], seconds[RIG_ROWS_MAX];
    uint64_t identities[RIG_WINDOWS_MAX];
};

static inline const struct kernels *rig_kernels(void)
{
    return kernels_pick(NULL, &(const char *){NULL});
}

static inline float rig_uniform(uint64_t seed, uint64_t i)
{
    return (float)(num_mix(num_mix(seed) ^ i) >> 40) / (float)(1 << 23) - 1.0F;
}

static inline struct net_options rig_options(const struct network *network, const void *own, uint32_t columns,
                                             uint32_t window_max)
{
    return (struct net_options){.network = network,
                                .own = own,
                                .fields = 1,
                                .dim = columns,
                                .optimizer = OPT_ADAGRAD,
                                .params = {.rate = 0.05F, .decay = 1.0F, .step_max = 1.0F},
                                .accumulator = 0.1F,
                                .slices_max = BATCH_SLICES_MAX,
                                .window_max = window_max,
                                .seed = 7};
}

/* Sets windows of these lengths; times, identities and inputs follow from the window's number from `first` on and
 * the row's position in it. */
static inline void rig_windows(struct rig *t, const uint32_t *lengths, uint32_t count, uint32_t first)
{
    struct net_matrix *in = t->net.input;
    assert_true(count <= RIG_WINDOWS_MAX);
    t->rows = 0;
    for (uint32_t w = 0; w < count; w++) {
        uint32_t time = 1000000;
        t->identities[w] = num_mix(first + w + 1);
        for (uint32_t i = 0; i < lengths[w]; i++, t->rows++) {
            uint64_t place = ((uint64_t)(first + w) << 32) + i;
            assert_true(t->rows < t->net.events_max);
            t->seconds[t->rows] = time += (uint32_t)(num_mix(place) >> (44 + num_mix(place + 5) % 20));
            for (uint32_t c = 0; c < in->columns; c++)
                in->values[(size_t)t->rows * in->stride + c] = rig_uniform(1, place * 256 + c);
        }
        t->offsets[w + 1] = t->rows;
    }
    t->net.windows = (struct net_windows){.offsets = t->offsets,
                                          .count = count,
                                          .seconds = t->seconds,
                                          .identities = t->identities,
                                          .chance = 99,
                                          .drops = true};
}

/* has_second: a second thread may help; t->net.team is the caller's. */
static inline void rig_begin(struct rig *t, const struct net_options *options, uint32_t rows_max,
                             bool has_second)
{
    struct gpu_error error;
    *t = (struct rig){.device = {.kernels = batch_beside(rig_kernels())}};
    t->memory.device = &t->device;
    assert_true(rows_max <= RIG_ROWS_MAX);
    net_shape(&t->net, options, &t->device, rows_max, rows_max);
    if (has_second)
        t->net.second = net_second(&t->net);
    net_take(&t->net, &t->memory);
    assert_true(train_memory_make(&t->memory, &error));
    net_take(&t->net, &t->memory);
    assert_true(net_start(&t->net, rig_kernels(), &error));
}

/* Moves all weights, so that gains and biases are no plain ones and zeros. */
static inline void rig_stir(struct rig *t)
{
    for (uint32_t p = 0; p < t->net.params_count; p++) {
        const struct net_params *of = &t->net.params[p];
        size_t weights = (size_t)of->n * of->stride;
        for (size_t i = 0; i < weights + of->n; i++)
            if (i >= weights || i % of->stride < of->d)
                of->w[i] += 0.2F * rig_uniform(3 + p, i);
    }
}

static inline void rig_end(struct rig *t)
{
    train_memory_free(&t->memory);
    free(t->net.second);
}

static inline float rig_slope(const struct rig *t, uint32_t row, uint32_t column)
{
    return rig_uniform(2, t->identities[0] + (uint64_t)row * 256 + column);
}

/* The forward and the backward pass; the gradients by the input are those of these rows alone. */
static inline void rig_run(struct rig *t)
{
    struct net_matrix *out = t->net.output;
    net_begin(&t->net);
    net_forward(&t->net, t->rows);
    for (uint32_t r = 0; r < t->rows; r++)
        for (uint32_t c = 0; c < out->columns; c++)
            out->gradients[(size_t)r * out->stride + c] = rig_slope(t, r, c);
    out->has_gradients = true;
    net_backward(&t->net, t->rows);
}

#endif
