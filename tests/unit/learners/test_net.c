/* The dense part of models that learn by batches: the backward pass of each network gives the derivatives by
 * every weight and every input, as differences of the forward pass do; rejected events have no effect. */
#include "learners/networks/networks.h"
#include "learners/train/net.h"

#include "core/base.h"
#include "kernels/num.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { EVENTS = 7, EVENTS_ROOM = 9 };

static struct train_device cpu_of(const struct kernels *k)
{
    return (struct train_device){.kernels = batch_beside(k)};
}

static const struct kernels *best(void)
{
    const char *reason;
    return kernels_pick(NULL, &reason);
}

static float uniform(uint64_t seed, uint64_t i)
{
    return (float)(num_mix(num_mix(seed) ^ i) >> 40) / (float)(1 << 23) - 1.0F;
}

struct trial {
    struct train_device device;
    struct train_memory memory;
    struct net net;
};

static void trial_begin(struct trial *t, const struct net_options *options)
{
    *t = (struct trial){.device = cpu_of(best())};
    struct gpu_error error;
    t->memory.device = &t->device;
    net_shape(&t->net, options, &t->device, EVENTS_ROOM, EVENTS_ROOM);
    net_take(&t->net, &t->memory);
    assert_true(train_memory_make(&t->memory, &error));
    net_take(&t->net, &t->memory);
    assert_true(net_start(&t->net, best(), &error));
    struct net_matrix *in = t->net.input;
    for (uint32_t e = 0; e < EVENTS; e++)
        for (uint32_t c = t->net.vectors_from; c < in->columns; c++)
            in->values[e * in->stride + c] = uniform(1, e * 1000 + c);
    /* The gradients by the outputs are arbitrary numbers (gradient_of); the objective is the dot product of
     * outputs and these. Weights are doubled, because layers that start small would be lost in rounding. */
    for (uint32_t p = 0; p < t->net.params_count; p++)
        for (size_t i = 0; i < t->net.params[p].floats; i++)
            t->net.params[p].w[i] *= 2.0F;
}

static void trial_end(struct trial *t)
{
    train_memory_free(&t->memory);
}

static float gradient_of(uint32_t event, uint32_t label)
{
    return uniform(2, event * 8 + label);
}

static double objective(struct trial *t)
{
    double sum = 0.0;
    net_forward(&t->net, EVENTS);
    const struct net_matrix *out = t->net.output;
    for (uint32_t e = 0; e < EVENTS; e++)
        for (uint32_t l = 0; l < out->columns; l++)
            sum += (double)gradient_of(e, l) * (double)out->values[e * out->stride + l];
    return sum;
}

static void back(struct trial *t)
{
    struct net_matrix *out = t->net.output;
    net_begin(&t->net);
    (void)objective(t);
    for (uint32_t e = 0; e < EVENTS; e++)
        for (uint32_t l = 0; l < out->columns; l++)
            out->gradients[e * out->stride + l] = gradient_of(e, l);
    out->has_gradients = true;
    net_backward(&t->net, EVENTS);
}

/* Whether `gradient` agrees with the objective's differences around *x; true also at a corner of a relu.
 * *off: how much they differ. */
static bool agrees(struct trial *t, float *x, float gradient, double *off)
{
    const float h = 4e-3F, at = *x;
    double here = objective(t);
    *x = at + h;
    double up = objective(t);
    *x = at - h;
    double down = objective(t);
    *x = at;
    double right = (up - here) / (double)h, left = (here - down) / (double)h;
    double middle = (right + left) / 2.0, scale = 1e-2 * (1.0 + fabs(middle));
    if (fabs(right - left) > scale) /* a corner of a relu */
        return true;
    *off = middle - (double)gradient;
    return fabs(*off) <= scale;
}

static void check(const char *name, const struct net_options *options)
{
    struct trial t;
    trial_begin(&t, options);
    back(&t);
    struct net *net = &t.net;
    uint32_t checked = 0, zeros = 0;
    double off = 0.0;
    for (uint32_t p = 0; p < net->params_count; p++) {
        struct net_params *of = &net->params[p];
        size_t weights = (size_t)of->n * of->stride + of->n, step = weights / 60 + 1;
        for (size_t i = 0; i < weights; i += step, checked++) {
            bool is_padding = i < (size_t)of->n * of->stride && i % of->stride >= of->d;
            zeros += of->gradient[i] == 0.0F;
            if (is_padding ? of->gradient[i] != 0.0F : !agrees(&t, &of->w[i], of->gradient[i], &off))
                fail_msg("%s: weight %zu of layer %u: gradient %g, off by %g", name, i, p,
                         (double)of->gradient[i], off);
        }
    }
    assert_true(checked > 20 && zeros < checked / 4 * 3);
    back(&t);
    struct net_matrix *in = net->input;
    for (uint32_t e = 0; e < EVENTS; e++) {
        for (uint32_t c = 0; c < options->fields * options->dim; c++) {
            size_t at = (size_t)e * in->stride + net->vectors_from + c;
            float gradient = in->gradients[at];
            if (!agrees(&t, &in->values[at], gradient, &off))
                fail_msg("%s: vector float %u of event %u: gradient %g, off by %g", name, c, e,
                         (double)gradient, off);
        }
    }
    trial_end(&t);
}

static const struct dot_network no_bottom;
static const struct net_options networks[] = {
    {.network = &network_deep, .fields = 3, .dim = 8, .dense = 3, .labels = 1, .hidden = {12, 5}},
    {.network = &network_deep, .fields = 0, .dim = 0, .dense = 3, .labels = 1, .hidden = {7}},
    {.network = &network_cross,
     .fields = 2,
     .dim = 4,
     .dense = 3,
     .labels = 1,
     .hidden = {9, 5},
     .own = &(const struct cross_network){3}},
    {.network = &network_cross,
     .fields = 2,
     .dim = 4,
     .dense = 0,
     .labels = 1,
     .own = &(const struct cross_network){1}},
    {.network = &network_dot,
     .fields = 4,
     .dim = 8,
     .dense = 3,
     .labels = 1,
     .hidden = {16, 9},
     .own = &(const struct dot_network){{6, 5}}},
    {.network = &network_dot,
     .fields = 4,
     .dim = 4,
     .dense = 5,
     .labels = 1,
     .hidden = {6},
     .own = &no_bottom},
    {.network = &network_dot,
     .fields = 5,
     .dim = 12,
     .dense = 0,
     .labels = 1,
     .hidden = {6},
     .own = &no_bottom},
    {.network = &network_experts,
     .fields = 3,
     .dim = 4,
     .dense = 2,
     .labels = 2,
     .hidden = {8, 6},
     .own = &(const struct experts_network){3, {5}}},
    {.network = &network_experts,
     .fields = 1,
     .dim = 4,
     .dense = 0,
     .labels = 3,
     .hidden = {4},
     .own = &(const struct experts_network){.experts = 5}},
    {.network = &network_attention,
     .fields = 4,
     .dim = 8,
     .dense = 3,
     .labels = 1,
     .own = &(const struct attention_network){12}},
    {.network = &network_attention,
     .fields = 3,
     .dim = 4,
     .labels = 1,
     .own = &(const struct attention_network){4}},
};

static struct net_options network(size_t i)
{
    struct net_options o = networks[i];
    o.optimizer = OPT_ADAGRAD;
    o.params = (struct opt_params){.rate = 0.05F, .decay = 1.0F, .step_max = 1.0F};
    o.accumulator = 0.1F;
    o.seed = 7 + i;
    return o;
}

static void test_derivatives(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(networks); i++) {
        struct net_options o = network(i);
        char name[32];
        snprintf(name, sizeof(name), "network %zu", i);
        check(name, &o);
    }
}

/* --- Sixteen bits --- */

/* The backward pass with the outputs' gradients times `factor`. */
static void back_by(struct trial *t, float factor)
{
    struct net_matrix *out = t->net.output;
    net_begin(&t->net);
    (void)objective(t);
    for (uint32_t e = 0; e < EVENTS; e++)
        for (uint32_t l = 0; l < out->columns; l++)
            out->gradients[e * out->stride + l] = factor * gradient_of(e, l);
    out->has_gradients = true;
    net_backward(&t->net, EVENTS);
}

/* The distance of gradients and the input's gradients from those of fp32, relative to the length
 * of the latter. */
static double distance(size_t i, enum row_format precision, float scale, float factor)
{
    struct net_options o = network(i);
    struct trial exact, rounded;
    trial_begin(&exact, &o);
    o.precision = precision;
    trial_begin(&rounded, &o);
    rounded.net.scale = scale;
    back_by(&exact, factor);
    back_by(&rounded, factor);
    double off = 0.0, all = 0.0;
    for (uint32_t p = 0; p < exact.net.params_count; p++) {
        const struct net_params *want = &exact.net.params[p], *have = &rounded.net.params[p];
        for (size_t g = 0; g < want->floats; g++) {
            off += pow((double)have->gradient[g] - (double)want->gradient[g], 2.0);
            all += pow((double)want->gradient[g], 2.0);
        }
    }
    const struct net_matrix *want = exact.net.input, *have = rounded.net.input;
    for (size_t s = 0; s < (size_t)EVENTS * want->stride; s++) {
        off += pow((double)have->gradients[s] - (double)want->gradients[s], 2.0);
        all += pow((double)want->gradients[s], 2.0);
    }
    trial_end(&exact);
    trial_end(&rounded);
    return sqrt(off / all);
}

/* Derivatives differ from those of fp32 by more than 0, and by no more than the formats' half steps, 2^-9 and
 * 2^-12, a few times over for consecutive layers. */
static void test_rounded(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(networks); i++) {
        double bf16 = distance(i, ROW_BF16, 1.0F, 1.0F), fp16 = distance(i, ROW_FP16, 1024.0F, 1.0F);
        if (!(bf16 > 1e-4 && bf16 < 0.05 && fp16 > 1e-5 && fp16 < 0.0025))
            fail_msg("network %zu: bf16 is off by %g, fp16 by %g", i, bf16, fp16);
    }
}

/* In fp16, gradients of 1e-7 have one bit, those of 1e6 none; with a fitting scale they have all. */
static void test_scaled(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(networks); i++) {
        assert_true(distance(i, ROW_FP16, 1.0F, 1e-7F) > 0.05);
        assert_true(distance(i, ROW_FP16, 0x1p16F, 1e-7F) < 0.0025);
        assert_true(!(distance(i, ROW_FP16, 1.0F, 1e6F) < 1e9)); /* NaN */
        assert_true(distance(i, ROW_FP16, 0x1p-8F, 1e6F) < 0.0025);
    }
}

/* net_check finds gradients that are out of range, in every network. */
static void test_checked(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(networks); i++) {
        struct net_options o = network(i);
        struct trial t;
        o.precision = ROW_FP16;
        trial_begin(&t, &o);
        for (int is_large = 0; is_large < 2; is_large++) {
            back_by(&t, is_large ? 1e6F : 1.0F);
            net_check(&t.net);
            const void *found = memchr(t.net.is_finite, 0, net_gradient_rows(&t.net));
            assert_true(is_large ? found != NULL : found == NULL);
        }
        trial_end(&t);
    }
}

/* The gradients of network i, of its parameters and its input, with event 2 rejected. is_strange: the event has NaNs
 * and infinities in its input, then in all matrices. Returns their number; the caller frees *gradients. */
static size_t rejected_gradients(size_t i, bool is_strange, float **gradients)
{
    struct net_options o = network(i);
    struct trial t;
    uint8_t is_rejected[EVENTS_ROOM] = {0};
    is_rejected[2] = 1;
    trial_begin(&t, &o);
    struct net *net = &t.net;
    for (uint32_t m = 0; m <= net->matrices_count; m++) { /* first the input, then what is made of it */
        const struct net_matrix *matrix = m == 0 ? net->input : &net->matrices[m - 1];
        for (uint32_t c = 0; is_strange && c < matrix->columns; c++)
            matrix->values[2 * matrix->stride + c] = c % 2 ? NAN : INFINITY;
        if (m == 0)
            (void)objective(&t);
    }
    net_begin(net);
    net_mask(net, EVENTS, is_rejected);
    for (uint32_t e = 0; e < EVENTS; e++)
        for (uint32_t l = 0; l < net->output->columns; l++)
            net->output->gradients[e * net->output->stride + l] = is_rejected[e] ? 0.0F : gradient_of(e, l);
    net->output->has_gradients = true;
    net_backward(net, EVENTS);
    size_t count = 0, inputs = (size_t)EVENTS * net->input->stride;
    for (uint32_t p = 0; p < net->params_count; p++)
        count += net->params[p].floats;
    *gradients = calloc(count + inputs, sizeof(**gradients));
    count = 0;
    for (uint32_t p = 0; p < net->params_count; count += net->params[p++].floats)
        memcpy(*gradients + count, net->params[p].gradient, net->params[p].floats * sizeof(**gradients));
    memcpy(*gradients + count, net->input->gradients, inputs * sizeof(**gradients));
    trial_end(&t);
    return count + inputs;
}

/* Gradients do not depend, bit for bit, on what a rejected event has in any matrix. */
static void test_rejected(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(networks); i++) {
        float *plain, *strange;
        size_t count = rejected_gradients(i, false, &plain);
        assert_int_equal(count, rejected_gradients(i, true, &strange));
        for (size_t g = 0; g < count; g++)
            if (!isfinite(plain[g]) || plain[g] != strange[g])
                fail_msg("network %zu: gradient %zu: %g, with a strange event that is rejected %g", i, g,
                         (double)plain[g], (double)strange[g]);
        free(plain);
        free(strange);
    }
}

/* A network that loads what another saved has the same outputs and the same next steps, whatever
 * it had before. */
static void test_saved(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(networks); i++) {
        struct net_options o = network(i);
        o.clip_norm = 0.01F;
        struct trial a, b;
        struct gpu_error error;
        trial_begin(&a, &o);
        back(&a);
        net_update(&a.net);
        o.seed++;
        trial_begin(&b, &o);
        for (uint32_t p = 0; p < a.net.params_count; p++) {
            float *floats = calloc(net_saved_floats(&a.net, p), sizeof(*floats));
            assert_true(net_save(&a.net, p, floats, &error) && net_load(&b.net, p, floats, &error));
            free(floats);
        }
        double before = objective(&a);
        assert_true(before == objective(&b));
        back(&a);
        back(&b);
        net_update(&a.net);
        net_update(&b.net);
        assert_true(objective(&a) == objective(&b) && objective(&a) < before);
        trial_end(&a);
        trial_end(&b);
    }
}

/* All gradients together are no longer than clip_norm: SGD with rate 1 moves the weights no further. */
static void test_clipped(void **state)
{
    (void)state;
    struct net_options o = network(0);
    o.optimizer = OPT_SGD, o.params.rate = 1.0F, o.clip_norm = 0.25F;
    struct trial t;
    trial_begin(&t, &o);
    back(&t);
    double squares = 0.0, moved = 0.0;
    float *before[8];
    for (uint32_t p = 0; p < t.net.params_count; p++) {
        const struct net_params *of = &t.net.params[p];
        before[p] = malloc(of->floats * sizeof(float));
        memcpy(before[p], of->w, of->floats * sizeof(float));
        for (size_t i = 0; i < of->floats; i++)
            squares += (double)of->gradient[i] * (double)of->gradient[i];
    }
    assert_true(sqrt(squares) > 0.3);
    net_update(&t.net);
    for (uint32_t p = 0; p < t.net.params_count; p++) {
        const struct net_params *of = &t.net.params[p];
        for (size_t i = 0; i < of->floats; i++)
            moved += pow((double)of->w[i] - (double)before[p][i], 2.0);
        free(before[p]);
    }
    assert_true(fabs(sqrt(moved) - 0.25) < 1e-4);
    trial_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_derivatives), cmocka_unit_test(test_rounded),  cmocka_unit_test(test_scaled),
        cmocka_unit_test(test_checked),     cmocka_unit_test(test_rejected), cmocka_unit_test(test_saved),
        cmocka_unit_test(test_clipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
