/* Dense layers in 16 bits and steps in pieces (gradient accumulation), for whole models: fp16's loss scale
 * adapts and survives a checkpoint; a step in pieces equals the whole step, rows bit for bit, and is clipped
 * as a whole. */
#include "events.h"

#include "core/base.h"
#include "core/buffer.h"
#include "learners/model/internal.h"
#include "learners/train/train.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static struct events events;
static double logits[EVENTS_MAX], others[EVENTS_MAX];
static uint8_t verdicts[EVENTS_MAX];

static const struct kernels *best(void)
{
    const char *reason;
    return kernels_pick(NULL, &reason);
}

static struct model_options options_of(const struct network *network)
{
    struct model_options o = events_options(network == &network_deep ? &interaction_fm : NULL, 12);
    o.network = network, o.linear_is_off = events_linear_is_off(network);
    o.vectors = network == &network_deep ? 2 : 3;
    o.network_own = events_network(network);
    o.batch = 64;
    return o;
}

static struct model *learned(const struct model_options *o, uint32_t end, double *out)
{
    struct model *m = model_new(o, best());
    events_learn(&events, m, 0, end, 250, out, verdicts);
    return m;
}

/* The largest difference of two models' dense weights, relative to the largest weight. */
static double layers_off(struct model *a, struct model *b)
{
    double off = 0.0, most = 0.0;
    for (size_t l = 0; l < model_layers(a); l++) {
        size_t count = model_layer_floats(a, l);
        float *x = calloc(count, sizeof(*x)), *y = calloc(count, sizeof(*y));
        model_layer_get(a, MODEL_LAYERS_OWN, l, x);
        model_layer_get(b, MODEL_LAYERS_OWN, l, y);
        for (size_t i = 0; i < count; i++) {
            off = fmax(off, fabs((double)x[i] - (double)y[i]));
            most = fmax(most, fabs((double)x[i]));
        }
        free(x);
        free(y);
    }
    return off / most;
}

static const struct network *networks[] = {&network_deep, &network_cross, &network_dot, &network_experts,
                                           &network_attention};

/* --- Pieces --- */

static void test_pieces(void **state)
{
    (void)state;
    for (size_t n = 0; n < ARRAY_COUNT(networks); n++) {
        for (int is_clipped = 0; is_clipped < 2; is_clipped++) {
            struct model_options o = options_of(networks[n]);
            o.clip_norm = is_clipped ? 0.5F : 0.0F;
            struct model *whole = learned(&o, 64, logits);
            o.micro = 16;
            struct model *pieces = learned(&o, 64, others);
            assert_true(whole->steps == 1 && pieces->steps == 1);
            assert_true(events_digest(whole, EVENT_FIELDS) == events_digest(pieces, EVENT_FIELDS));
            assert_true(layers_off(whole, pieces) < 1e-6);
            model_free(whole);
            model_free(pieces);
            o.micro = 0;
            whole = learned(&o, 3000, logits);
            o.micro = 4;
            pieces = learned(&o, 3000, others);
            for (uint32_t i = 0; i < 3000; i++)
                assert_true(fabs(logits[i] - others[i]) < 1e-4);
            model_free(whole);
            model_free(pieces);
        }
    }
}

/* An event whose logit is not finite has no part in the step, also where its forward pass is run again
 * for a piece. */
static void test_pieces_overflow(void **state)
{
    (void)state;
    struct model_options o = options_of(&network_cross);
    events.dense[0][5] = 3e38F;
    struct model *whole = learned(&o, 64, logits);
    o.micro = 16;
    struct model *pieces = learned(&o, 64, others);
    events_make(&events);
    assert_int_equal(verdicts[5], MODEL_REJECTED);
    assert_true(whole->steps == 1 && pieces->steps == 1);
    assert_true(events_digest(whole, EVENT_FIELDS) == events_digest(pieces, EVENT_FIELDS));
    assert_true(layers_off(whole, pieces) < 1e-6); /* and therefore all are finite */
    model_free(whole);
    model_free(pieces);
}

/* Learns with lists of ids in one field, so that pieces begin in the middle of its occurrences. */
static void learn_lists(struct model *m, uint32_t end, double *out)
{
    static uint64_t ids[3 * EVENTS_MAX];
    static uint32_t ends[EVENTS_MAX + 1];
    for (uint32_t i = 0; i < end; i++) {
        uint32_t count = i % 4;
        ends[i + 1] = ends[i] + count;
        for (uint32_t k = 0; k < count; k++)
            ids[ends[i] + k] = events.ids[1][(i + k) % EVENTS_MAX];
    }
    const uint64_t *columns[EVENT_FIELDS] = {events.ids[0], ids, events.ids[2]};
    const uint32_t *offsets[EVENT_FIELDS] = {NULL, ends, NULL};
    const float *dense[EVENT_DENSE] = {events.dense[0], events.dense[1]};
    struct model_input in = {.rows = end,
                             .ids = columns,
                             .offsets = offsets,
                             .dense = dense,
                             .labels = events.labels,
                             .event_time_us = events.times,
                             .identity = events.identity};
    struct model_output to = {.logits = out, .verdicts = verdicts};
    model_learn(m, &in, &to);
}

static void test_pieces_of_lists(void **state)
{
    (void)state;
    struct model_options o = options_of(&network_deep);
    o.is_list[1] = true;
    struct model *whole = model_new(&o, best());
    o.micro = 16;
    struct model *pieces = model_new(&o, best());
    learn_lists(whole, 64, logits);
    learn_lists(pieces, 64, others);
    assert_true(whole->steps == 1 && pieces->steps == 1);
    assert_true(events_digest(whole, EVENT_FIELDS) == events_digest(pieces, EVENT_FIELDS));
    model_free(whole);
    model_free(pieces);
}

/* Clipping uses the norm of all pieces together. */
static void test_clipped(void **state)
{
    (void)state;
    struct model_options o = options_of(&network_cross);
    o.head.kind = OPT_SGD, o.head.params.rate = 1.0F;
    o.clip_norm = 0.25F, o.micro = 16;
    struct model *before = model_new(&o, best()), *m = learned(&o, 64, logits);
    double moved = 0.0;
    for (size_t l = 0; l < model_layers(m); l++) {
        size_t count = model_layer_floats(m, l);
        float *x = calloc(count, sizeof(*x)), *y = calloc(count, sizeof(*y));
        model_layer_get(before, MODEL_LAYERS_OWN, l, x);
        model_layer_get(m, MODEL_LAYERS_OWN, l, y);
        for (size_t i = 0; i < count; i++)
            moved += pow((double)x[i] - (double)y[i], 2.0);
        free(x);
        free(y);
    }
    assert_true(fabs(sqrt(moved) - 0.25) < 1e-4);
    model_free(before);
    model_free(m);
}

/* --- The scale --- */

/* A model after one step with labels multiplied by `label`. */
static struct model *learned_large(float label)
{
    struct model_options o = options_of(&network_deep);
    o.loss = LOSS_SQUARED, o.precision = ROW_FP16;
    struct events *large = malloc(sizeof(*large));
    *large = events;
    for (uint32_t i = 0; i < EVENTS_MAX; i++)
        large->labels[i] *= label;
    struct model *m = model_new(&o, best());
    events_learn(large, m, 0, 64, 64, logits, verdicts);
    for (uint32_t i = 0; i < 64; i++)
        assert_true(verdicts[i] == MODEL_LEARNED);
    assert_true(m->steps == 1);
    free(large);
    return m;
}

/* Gradients of a million exceed fp16's range at first: the step is repeated with a lower scale, and
 * all is learned. */
static void test_scale_falls(void **state)
{
    (void)state;
    struct model_options o = options_of(&network_deep);
    struct model *m = learned_large(4e6F), *new = model_new(&o, best());
    struct model_precision p = model_precision(m);
    assert_true(p.lowered > 3 && p.scale == ldexpf(SCALE_FIRST, -(int)p.lowered));
    assert_true(layers_off(m, new) > 1e-3 && layers_off(m, new) < 10.0);
    model_free(m);
    model_free(new);
}

/* If no scale brings a step's gradients into range, the step is given up, and the scale for later steps stays
 * at its first value; weights stay finite. */
static void test_scale_gives_up(void **state)
{
    (void)state;
    struct model *m = learned_large(1e30F);
    struct model_precision p = model_precision(m);
    assert_true(p.scale == SCALE_FIRST && p.lowered == 34);
    for (size_t l = 0; l < model_layers(m); l++) {
        size_t n, d;
        model_layer_shape(m, l, &n, &d);
        float *floats = calloc(model_layer_floats(m, l), sizeof(*floats));
        model_layer_get(m, MODEL_LAYERS_OWN, l, floats);
        for (size_t i = 0; i < n * d + n; i++)
            assert_true(fabsf(floats[i]) < 100.0F);
        free(floats);
    }
    model_free(m);
}

/* After enough good steps the scale rises, also when the model is saved and loaded in between, in the middle
 * of a batch. */
static void test_scale_rises(void **state)
{
    (void)state;
    struct model_options o = options_of(&network_deep);
    o.precision = ROW_FP16, o.batch = 2;
    for (uint32_t f = 0; f < EVENT_FIELDS; f++)
        o.field_init[f] = -1.0F; /* model_save does not save rows: here all of them are zeros, as if absent */
    o.embedding.params.rate = o.linear.params.rate = 0.0F;
    struct model *m = learned(&o, 3001, logits), *next = model_new(&o, best());
    assert_true(model_precision(m).scale == SCALE_FIRST);
    struct byte_buffer saved = {0};
    model_save(m, &saved);
    assert_false(model_load(next, saved.data, saved.length - 1));
    assert_true(model_load(next, saved.data, saved.length));
    events_learn(&events, m, 3001, 4500, 250, logits, verdicts);
    events_learn(&events, next, 3001, 4500, 99, others, verdicts);
    assert_true(model_precision(m).scale == 2.0F * SCALE_FIRST);
    assert_true(model_precision(next).scale == 2.0F * SCALE_FIRST);
    assert_memory_equal(logits + 3001, others + 3001, 1499 * sizeof(*logits));
    assert_true(layers_off(m, next) == 0.0);
    struct train_scale bad[] = {{0.0F, 0, 0}, {NAN, 0, 0}, {3.0F, 0, 0}, {0x1p17F, 0, 0}, {0x1p-25F, 0, 0}};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        assert_false(scale_set(m->train, bad[i]));
    buffer_free(&saved);
    model_free(m);
    model_free(next);
}

/* --- Learning --- */

static double logloss(uint32_t count)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < count; i++)
        sum += log1p(exp(logits[i])) - (double)events.labels[i] * logits[i];
    return sum / count;
}

static void test_learns(void **state)
{
    (void)state;
    for (size_t n = 0; n < ARRAY_COUNT(networks); n++) {
        double losses[3];
        for (int precision = ROW_FP32; precision <= ROW_FP16; precision++) {
            struct model_options o = options_of(networks[n]);
            o.precision = (enum row_format)precision;
            model_free(learned(&o, EVENTS_MAX, logits));
            losses[precision] = logloss(EVENTS_MAX);
        }
        for (int precision = ROW_BF16; precision <= ROW_FP16; precision++)
            if (losses[precision] == losses[0] || fabs(losses[precision] / losses[0] - 1.0) > 1e-3)
                fail_msg("network %s: %g, in sixteen bits %g", networks[n]->name, losses[0],
                         losses[precision]);
    }
}

/* --- The trial --- */

static struct model_options tried(const struct network *network, uint64_t examples)
{
    struct model_options o = options_of(network);
    o.precision = ROW_BF16, o.is_tried = true, o.trial_examples = examples;
    return o;
}

/* A model whose trial keeps bf16 equals a model of bf16, before and after the decision; trial_loss_bf16 is
 * its mean logloss. */
static void test_trial_keeps(void **state)
{
    (void)state;
    for (size_t n = 0; n < ARRAY_COUNT(networks); n++) {
        struct model_options o = options_of(networks[n]), of_trial = tried(networks[n], 2000);
        o.precision = ROW_BF16;
        o.micro = of_trial.micro = n % 2 == 0 ? 16 : 0;
        struct model *bf16 = learned(&o, 3000, logits), *m = learned(&of_trial, 3000, others);
        assert_memory_equal(logits, others, 3000 * sizeof(*logits));
        assert_true(events_digest(m, EVENT_FIELDS) == events_digest(bf16, EVENT_FIELDS));
        assert_true(layers_off(m, bf16) == 0.0);
        struct model_precision p = model_precision(m);
        assert_true(!p.is_undecided && p.now == ROW_BF16);
        assert_true(p.trial_examples == 2048); /* the trial is decided at the end of a step */
        assert_true(fabs(p.trial_loss_bf16 - logloss(2048)) < 1e-5);
        assert_true(p.trial_loss_fp32 != p.trial_loss_bf16);
        assert_true(fabs(p.trial_loss_fp32 - p.trial_loss_bf16) < 1e-3);
        model_free(bf16);
        model_free(m);
    }
}

/* If embeddings do not learn, they do not carry bf16's gradients into the trial's fp32 layers: these equal
 * the layers of a model of fp32. */
static void test_trial_beside(void **state)
{
    (void)state;
    for (size_t n = 0; n < ARRAY_COUNT(networks); n++) {
        struct model_options o = options_of(networks[n]), of_trial = tried(networks[n], 900);
        o.embedding.params.rate = of_trial.embedding.params.rate = 0.0F;
        o.linear.params.rate = of_trial.linear.params.rate = 0.0F;
        struct model *fp32 = learned(&o, 1000, logits), *m = model_new(&of_trial, best());
        m->train->trial->score.bf16 = 1e6; /* as if bf16 had a high loss */
        events_learn(&events, m, 0, 1000, 250, others, verdicts);
        struct model_precision p = model_precision(m);
        assert_true(!p.is_undecided && p.now == ROW_FP32);
        assert_true(layers_off(m, fp32) == 0.0);
        assert_true(logits[700] != others[700] && logits[999] == others[999]);
        model_free(fp32);
        model_free(m);
    }
}

/* Saved and loaded before and after the decision, in the middle of a batch: the loaded model equals
 * the saved one. */
static void test_trial_saved(void **state)
{
    (void)state;
    for (int keeps = 0; keeps < 2; keeps++) {
        for (uint32_t cut = 999; cut < 2500; cut += 1000) {
            struct model_options o = tried(&network_dot, 1500);
            struct model *m = model_new(&o, best()), *next = model_new(&o, best());
            m->train->trial->score.bf16 = keeps ? 0.0 : 1e6;
            events_learn(&events, m, 0, cut, 250, logits, verdicts);
            struct byte_buffer saved = {0}, again = {0};
            model_save(m, &saved);
            assert_false(model_load(next, saved.data, saved.length - 1));
            assert_true(model_load(next, saved.data, saved.length));
            model_save(next, &again);
            assert_true(saved.length == again.length);
            assert_memory_equal(saved.data, again.data, saved.length);
            struct model_precision p = model_precision(next);
            assert_true(p.is_undecided == (cut < 1500));
            assert_true(p.now == (cut < 1500 || keeps ? ROW_BF16 : ROW_FP32));
            buffer_free(&saved);
            buffer_free(&again);
            model_free(m);
            model_free(next);
        }
    }
}

/* The trial's scores do not depend on where calls end. */
static void test_trial_calls(void **state)
{
    (void)state;
    struct model_options o = tried(&network_experts, 1500);
    struct model *a = model_new(&o, best()), *b = model_new(&o, best());
    events_learn(&events, a, 0, 1000, 1000, logits, verdicts);
    events_learn(&events, b, 0, 1000, 77, logits, verdicts);
    assert_memory_equal(&a->train->trial->score, &b->train->trial->score, sizeof(struct trial_score));
    model_free(a);
    model_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),          cmocka_unit_test(test_pieces_of_lists),
        cmocka_unit_test(test_pieces_overflow), cmocka_unit_test(test_clipped),
        cmocka_unit_test(test_scale_falls),     cmocka_unit_test(test_scale_gives_up),
        cmocka_unit_test(test_scale_rises),     cmocka_unit_test(test_learns),
        cmocka_unit_test(test_trial_keeps),     cmocka_unit_test(test_trial_beside),
        cmocka_unit_test(test_trial_saved),     cmocka_unit_test(test_trial_calls),
    };
    events_make(&events);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
