/* Layers over the input whose gradients are computed once for each distinct id (learners/train/distinct.c): a
 * step must move all rows and weights as the same step computed event by event. Models with lists compute
 * event by event; here their lists have one id each. */
#include "learners/model/internal.h"
#include "learners/train/train.h"

#include "core/base.h"
#include "events.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { BATCH = 600, STEPS = 3, LABELS = 2 }; /* BATCH: more ids of a field than are processed at a time */

static struct events events;
static double logits[LABELS * MODEL_ROWS_MAX], other_logits[LABELS * MODEL_ROWS_MAX];
static uint8_t verdicts[MODEL_ROWS_MAX];
static uint32_t spoilt; /* an event of the last step that has the vector of spoil() */

static const struct {
    const char *name;
    const struct interaction *interaction;
    const struct network *network;
    uint32_t dense;
} kinds[] = {
    {"deepfm", &interaction_fm, &network_deep, 2},
    {"dcnv2", NULL, &network_cross, 2},
    {"dcnv2 without dense features", NULL, &network_cross, 0},
    {"mmoe", NULL, &network_experts, 2},
};

static struct model_options options_of(size_t k)
{
    struct model_options o = events_options(kinds[k].interaction, 40);
    o.network = kinds[k].network, o.linear_is_off = events_linear_is_off(kinds[k].network);
    o.dense = kinds[k].dense;
    o.network_own = events_network(kinds[k].network);
    o.labels = kinds[k].network == &network_experts ? LABELS : 0;
    o.dim = 16, o.batch = BATCH;
    return o;
}

/* Learns one batch; lists: field 2 is given as lists. */
static void step(struct model *m, uint32_t at, bool lists, double *to)
{
    static uint32_t offsets[BATCH + 1];
    for (uint32_t i = 0; i <= BATCH; i++)
        offsets[i] = i;
    const uint64_t *ids[EVENT_FIELDS];
    const uint32_t *of[EVENT_FIELDS] = {NULL, NULL, lists ? offsets : NULL};
    const float *dense[EVENT_DENSE], *more[] = {events.more_labels + at};
    for (int f = 0; f < EVENT_FIELDS; f++)
        ids[f] = events.ids[f] + at;
    for (int d = 0; d < EVENT_DENSE; d++)
        dense[d] = events.dense[d] + at;
    struct model_input in = {.rows = BATCH,
                             .ids = ids,
                             .offsets = of,
                             .dense = dense,
                             .labels = events.labels + at,
                             .more_labels = more,
                             .event_time_us = events.times + at};
    struct model_output out = {.logits = to, .verdicts = verdicts};
    model_learn(m, &in, &out);
}

/* Makes one vector not finite: events that have its id are rejected from now on. */
static void spoil(struct model *m)
{
    float *payload = table_payload(table_find(model_table(m, 2), events.ids[2][0]));
    payload[m->vector_at / sizeof(float) + 3] = NAN;
}

/* Fails unless |a - b| <= share (|b| + rms of b) for each float; NaN equals NaN. */
static void are_near(const char *what, const float *a, const float *b, size_t count, double share)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++)
        sum += isnan(b[i]) ? 0.0 : (double)b[i] * (double)b[i];
    double rms = sqrt(sum / (double)MAX(count, 1U));
    for (size_t i = 0; i < count; i++)
        if (!(isnan(a[i]) && isnan(b[i])) &&
            !(fabs((double)a[i] - (double)b[i]) <= share * (fabs((double)b[i]) + rms)))
            fail_msg("%s: float %zu of %zu is %.9g by ids, %.9g by events", what, i, count, (double)a[i],
                     (double)b[i]);
}

static void rows_are_near(const char *name, struct model *a, struct model *b, double share)
{
    for (uint32_t f = 0; f < EVENT_FIELDS; f++) {
        size_t ours, theirs, floats = model_table(b, f)->options.payload_bytes / sizeof(float);
        struct table_row **x = table_sorted(model_table(a, f), &ours);
        struct table_row **y = table_sorted(model_table(b, f), &theirs);
        assert_int_equal(ours, theirs);
        float *both = calloc(2 * ours * floats + 1, sizeof(*both));
        assert_non_null(both);
        for (size_t r = 0; r < ours; r++) {
            assert_true(x[r]->key == y[r]->key && x[r]->count == y[r]->count);
            memcpy(both + r * floats, table_payload(x[r]), floats * sizeof(*both));
            memcpy(both + (ours + r) * floats, table_payload(y[r]), floats * sizeof(*both));
        }
        are_near(name, both, both + ours * floats, ours * floats, share);
        free(both);
        free(x);
        free(y);
    }
}

static void layers_are_near(const char *name, struct model *a, struct model *b, double share)
{
    for (size_t l = 0; l < model_layers(a); l++) {
        size_t floats = model_layer_floats(a, l);
        float *both = calloc(2 * floats, sizeof(*both));
        assert_non_null(both);
        model_layer_get(a, MODEL_LAYERS_OWN, l, both);
        model_layer_get(b, MODEL_LAYERS_OWN, l, both + floats);
        are_near(name, both, both + floats, floats, share);
        free(both);
    }
}

static void test_as_by_events(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        struct model_options o = options_of(k);
        double share = 1e-5;
        struct model *by_ids = model_new(&o, kernels_pick(NULL, &(const char *){NULL}));
        o.is_list[2] = true;
        struct model *by_events = model_new(&o, kernels_pick(NULL, &(const char *){NULL}));
        assert_true(by_ids->train->net.is_by_ids && !by_events->train->net.is_by_ids);
        for (uint32_t s = 0; s < STEPS; s++) {
            step(by_ids, s * BATCH, false, logits);
            step(by_events, s * BATCH, true, other_logits);
            assert_int_equal(by_ids->steps, s + 1);
            for (uint32_t i = 0; i < BATCH; i++)
                assert_true(s == 0 ? logits[i] == other_logits[i] || isnan(logits[i])
                                   : !(fabs(logits[i] - other_logits[i]) > 10.0 * share));
            layers_are_near(kinds[k].name, by_ids, by_events, share * (s + 1));
            rows_are_near(kinds[k].name, by_ids, by_events, share * (s + 1));
            spoil(by_ids);
            spoil(by_events);
        }
        assert_int_equal(verdicts[spoilt % BATCH], MODEL_REJECTED);
        model_free(by_ids);
        model_free(by_events);
    }
}

/* A digest of all rows, and of the layers with their optimizer's state. */
static uint64_t digest_of(struct model *m)
{
    uint64_t digest = events_digest(m, EVENT_FIELDS);
    for (size_t l = 0; l < model_layers(m); l++) {
        size_t floats = model_layer_floats(m, l);
        uint32_t *words = calloc(floats, sizeof(*words));
        assert_non_null(words);
        model_layer_get(m, MODEL_LAYERS_OWN, l, (float *)(void *)words);
        for (size_t w = 0; w < floats; w++)
            digest = num_mix(digest ^ words[w]);
        free(words);
    }
    return digest;
}

static void test_same_bits(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        struct model_options o = options_of(k);
        uint64_t digest = 0;
        for (int v = 0; v < KERNELS_VARIANTS; v++) {
            if (kernels_variant((enum kernels_variant)v) == NULL)
                continue;
            struct model *m = model_new(&o, kernels_variant((enum kernels_variant)v));
            for (uint32_t s = 0; s < STEPS; s++)
                step(m, s * BATCH, false, logits);
            digest = v == 0 ? digest_of(m) : digest;
            assert_true(digest == digest_of(m));
            model_free(m);
        }
    }
}

static int setup(void **state)
{
    (void)state;
    events_make(&events);
    spoilt = BATCH * (STEPS - 1) + 5;
    events.ids[2][BATCH + 9] = events.ids[2][spoilt] = events.ids[2][0];
    for (uint32_t i = 0; i < BATCH * STEPS; i++) {
        events.ids[1][i] = i % 7 == 0 ? 0 : events.ids[1][i];     /* some ids are absent */
        events.ids[0][i] = i / BATCH == 1 ? 0 : events.ids[0][i]; /* in one step a field has no id at all */
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_by_events), cmocka_unit_test(test_same_bits)};
    return cmocka_run_group_tests(tests, setup, NULL);
}
