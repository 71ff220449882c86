/* Networks over windows on a device (or the host's model of one) and on the CPU: the same windows, inputs and gradients
 * by outputs for both. A plain program, without cmocka. */
#ifndef LEAT_TESTS_UNIT_LEARNERS_SEQUENCE_DEVICE_H
#define LEAT_TESTS_UNIT_LEARNERS_SEQUENCE_DEVICE_H

#include "open_device.h"

#include "core/base.h"
#include "kernels/num.h"
#include "learners/networks/networks.h"
#include "learners/train/net.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE_ROWS_MAX = 240 };

/* A network on the CPU or on the device, and the host's copies of its matrices. */
struct side {
    struct train_device device;
    struct train_memory memory;
    struct net net;
    float *in, *out, *in_gradients, *out_gradients; /* what a device copies from and to */
    uint8_t *is_rejected, *rejected_there;
};

/* The windows of a pass, for both. */
struct side_windows {
    uint32_t count, offsets[SIDE_ROWS_MAX + 1], seconds[SIDE_ROWS_MAX];
    uint64_t identities[SIDE_ROWS_MAX];
};

static inline const struct kernels *side_kernels(void)
{
    return kernels_pick(NULL, &(const char *){NULL});
}

static inline float side_uniform(uint64_t seed, uint64_t i)
{
    return (float)(num_mix(num_mix(seed) ^ i) >> 40) / (float)(1 << 23) - 1.0F;
}

static inline float *side_host(const struct side *s, size_t floats)
{
    struct gpu_error error;
    float *memory = train_host_new(&s->device, floats * sizeof(float), &error);
    must(memory != NULL, &error, "pinned memory");
    return memory;
}

static inline void side_take(struct side *s)
{
    net_take(&s->net, &s->memory);
    s->rejected_there = train_take(&s->memory, TRAIN_INPUT, SIDE_ROWS_MAX, 1);
}

static inline void side_begin(struct side *s, const struct net_options *options, bool is_on_device)
{
    struct gpu_error error;
    *s = (struct side){.device = {.kernels = batch_beside(side_kernels())}};
    if (is_on_device)
        s->device = (struct train_device){.kernels = api->kernels, .api = api, .gpu = gpu, .stream = stream};
    s->memory.device = &s->device;
    net_shape(&s->net, options, &s->device, SIDE_ROWS_MAX, SIDE_ROWS_MAX);
    side_take(s);
    must(train_memory_make(&s->memory, &error), &error, "memory");
    side_take(s);
    must(net_start(&s->net, side_kernels(), &error), &error, "net_start");
    size_t in = (size_t)SIDE_ROWS_MAX * s->net.input->stride,
           out = (size_t)SIDE_ROWS_MAX * s->net.output->stride;
    s->in = side_host(s, in), s->in_gradients = side_host(s, in);
    s->out = side_host(s, out), s->out_gradients = side_host(s, out);
    s->is_rejected = (uint8_t *)side_host(s, SIDE_ROWS_MAX);
}

static inline void side_end(struct side *s)
{
    void *host[] = {s->in, s->out, s->in_gradients, s->out_gradients, s->is_rejected};
    net_stop(&s->net);
    for (size_t i = 0; i < ARRAY_COUNT(host); i++)
        train_host_free(&s->device, host[i]);
    train_memory_free(&s->memory);
}

static inline void side_wait(const struct side *s)
{
    struct gpu_error error = {.failure = GPU_OK};
    must(train_wait(&s->device, &error), &error, "waiting");
}

/* Windows of these lengths; what they have follows from their numbers from `first` on. */
static inline void side_windows(struct side_windows *w, const uint32_t *lengths, uint32_t count,
                                uint32_t first)
{
    w->count = count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t time = 1000000;
        w->identities[i] = num_mix(first + i + 1);
        w->offsets[i + 1] = w->offsets[i] + lengths[i];
        for (uint32_t r = w->offsets[i]; r < w->offsets[i + 1]; r++)
            w->seconds[r] = time += (uint32_t)(num_mix(((uint64_t)(first + i) << 32) + r) >> 44);
    }
}

/* Both passes over the windows. rejected: a window that is; UINT32_MAX: none. event: the first window's number in the
 * step. */
static inline void side_pass(struct side *s, const struct side_windows *w, uint32_t rejected,
                             bool is_both_ways, uint32_t event)
{
    struct net_matrix *in = s->net.input, *out = s->net.output;
    uint32_t n = w->offsets[w->count];
    for (size_t i = 0; i < (size_t)n * in->stride; i++)
        s->in[i] = side_uniform(w->identities[0], i);
    for (size_t i = 0; i < (size_t)n * out->stride; i++)
        s->out_gradients[i] = side_uniform(w->identities[0] + 1, i);
    s->net.windows = (struct net_windows){.offsets = w->offsets,
                                          .count = w->count,
                                          .seconds = w->seconds,
                                          .identities = w->identities,
                                          .chance = 99 + event,
                                          .drops = true,
                                          .is_both_ways = is_both_ways};
    s->net.event = event;
    train_copy(&s->device, in->values, s->in, (size_t)n * in->stride * sizeof(float));
    net_forward(&s->net, n);
    train_copy(&s->device, s->out, out->values, (size_t)n * out->stride * sizeof(float));
    side_wait(s);
    if (rejected != UINT32_MAX) {
        for (uint32_t r = 0; r < n; r++)
            s->is_rejected[r] = r >= w->offsets[rejected] && r < w->offsets[rejected + 1];
        train_copy(&s->device, s->rejected_there, s->is_rejected, n);
        net_mask(&s->net, n, s->rejected_there);
        size_t from = (size_t)w->offsets[rejected] * out->stride;
        memset(s->out_gradients + from, 0,
               ((size_t)w->offsets[rejected + 1] * out->stride - from) * sizeof(float));
    }
    net_begin(&s->net);
    train_copy(&s->device, out->gradients, s->out_gradients, (size_t)n * out->stride * sizeof(float));
    net_backward(&s->net, n);
    train_copy(&s->device, s->in_gradients, in->gradients, (size_t)n * in->stride * sizeof(float));
    side_wait(s);
}

/* The largest difference, as a share of the largest number. */
static inline double side_apart(const float *a, const float *b, size_t n)
{
    double most = 0.0, size = 0.0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        size = fmax(size, fabs((double)a[i]));
        if (isnan(a[i]) || isnan(b[i]))
            return HUGE_VAL;
    }
    return size > 0.0 ? most / size : most;
}

/* The host's copy of a parameter's gradients (its first level), or of its weights; the caller frees it with free(). */
static inline float *side_floats(const struct side *s, uint32_t parameter, bool is_weights)
{
    const struct net_params *p = &s->net.params[parameter];
    float *pinned = side_host(s, p->floats), *copy = malloc(p->floats * sizeof(float));
    train_copy(&s->device, pinned, is_weights ? p->w : p->gradient, p->floats * sizeof(float));
    side_wait(s);
    memcpy(copy, pinned, p->floats * sizeof(float));
    train_host_free(&s->device, pinned);
    return copy;
}

/* The largest difference between all gradients, or weights, of two networks. */
static inline double side_params_apart(const struct side *a, const struct side *b, bool is_weights)
{
    double most = 0.0;
    for (uint32_t p = 0; p < a->net.params_count; p++) {
        float *x = side_floats(a, p, is_weights), *y = side_floats(b, p, is_weights);
        most = fmax(most, side_apart(x, y, a->net.params[p].floats));
        free(x);
        free(y);
    }
    return most;
}

#endif
