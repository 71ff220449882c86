/* Whole models: FTRL against the reference, equal bits for any variant and any cut of the stream into calls,
 * resuming, rejection. */
#include "events.h"
#include "ftrl_expected.h"

#include "core/base.h"
#include "core/buffer.h"
#include "learners/learner/metrics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct events events;
static double logits[EVENTS_MAX], other_logits[EVENTS_MAX];
static uint8_t verdicts[EVENTS_MAX];

static const struct kernels *best(void)
{
    const char *reason;
    return kernels_pick(NULL, &reason);
}

static void test_ftrl_reference(void **state)
{
    (void)state;
    struct model_options o = events_options(NULL, 0);
    o.linear_is_double = true;
    o.ftrl = (struct ftrl64_params){0.15, 1.0, 0.05, 0.3};
    struct model *m = model_new(&o, best());
    uint32_t n = ARRAY_COUNT(ftrl_expected);
    events_learn(&events, m, 0, n, 256, logits, verdicts);
    for (uint32_t i = 0; i < n; i++)
        assert_true(fabs(logits[i] - ftrl_expected[i]) < 1e-9);
    assert_true(fabs(logits[n - 1]) > 0.1);
    model_free(m);
}

struct shape {
    const struct interaction *interaction;
    uint32_t hidden, batch, block;
    bool has_pairs;
    enum opt_kind embedding;
    const struct network *network;
};
static const struct shape shapes[] = {
    {NULL, 0, 1, 1, false, OPT_ADAGRAD, NULL},
    {&interaction_fm, 0, 1, 1, false, OPT_ADAGRAD, NULL},
    {&interaction_ffm, 0, 1, 1, false, OPT_NEWTON, NULL},
    {&interaction_ffm, 0, 1, 1, true, OPT_ADAGRAD_BLOCK, NULL},
    {&interaction_fm, 24, 1, 16, false, OPT_ADAM, NULL},
    {&interaction_ffm, 24, 1, 5, true, OPT_ADAGRAD_ROW, NULL},
    {NULL, 0, 37, 1, false, OPT_ADAGRAD, NULL},
    {&interaction_fm, 24, 37, 1, false, OPT_MOMENTUM, NULL},
    {&interaction_ffm, 0, 1, 1, true, OPT_FTRL, NULL},
    {&interaction_fm, 0, 1, 1, true, OPT_NEWTON, NULL},
    {&interaction_ffm, 0, 64, 1, false, OPT_ADAGRAD_BLOCK, NULL},
    {&interaction_fm, 0, 5, 1, false, OPT_ADAM, NULL},
    {&interaction_ffm, 24, 1, 16, false, OPT_SGD, NULL},
    {NULL, 24, 37, 1, false, OPT_ADAGRAD, &network_cross},
    {NULL, 24, 64, 1, false, OPT_ADAGRAD_ROW, &network_dot},
    {NULL, 24, 1, 1, false, OPT_ADAGRAD, &network_dot},
};

static struct model_options shape_options(const struct shape *s)
{
    struct model_options o = events_options(s->interaction, s->hidden);
    o.batch = s->batch;
    o.block = s->block;
    o.embedding.kind = s->embedding;
    o.embedding.params.beta1 = o.embedding.params.beta2 = 0.9F;
    o.embedding.params.correction1 = o.embedding.params.correction2 = 1.0F;
    o.embedding.params.epsilon = 1.0F;
    if (s->embedding == OPT_ADAM || s->embedding == OPT_MOMENTUM)
        o.embedding.params.rate = 0.01F;
    o.network = s->network, o.linear_is_off = s->network != NULL;
    o.network_own = events_network(s->network);
    if (s->has_pairs)
        o.pairs = o.linear;
    if (s->has_pairs && s->interaction == &interaction_fm)
        o.pair_is_off[1] = 1;
    return o;
}

static double mean_loss(uint32_t begin, uint32_t end)
{
    double sum = 0.0;
    for (uint32_t i = begin; i < end; i++)
        sum += loss_value(LOSS_LOGISTIC, logits[i], (double)events.labels[i]);
    return sum / (end - begin);
}

/* Any variant and any cut into calls give the same logits and the same model, bit for bit; and
 * the model learns. */
static void test_same_bits(void **state)
{
    (void)state;
    for (size_t s = 0; s < ARRAY_COUNT(shapes); s++) {
        struct model_options o = shape_options(&shapes[s]);
        uint64_t digest = 0;
        for (int v = 0; v < KERNELS_VARIANTS; v++) {
            const struct kernels *k = kernels_variant((enum kernels_variant)v);
            if (k == NULL)
                continue;
            struct model *m = model_new(&o, k);
            events_learn(&events, m, 0, EVENTS_MAX, v == 0 ? 1024 : 100 + 77 * (uint32_t)v, other_logits,
                         verdicts);
            if (v == 0) {
                memcpy(logits, other_logits, sizeof(logits));
                digest = events_digest(m, EVENT_FIELDS);
            }
            assert_memory_equal(logits, other_logits, sizeof(logits));
            assert_true(digest == events_digest(m, EVENT_FIELDS));
            assert_true(model_calls(m)->calls[v] > 0);
            model_free(m);
        }
        double first = mean_loss(0, 1000), last = mean_loss(EVENTS_MAX - 2000, EVENTS_MAX);
        if (last >= first - 0.005)
            fail_msg("shape %zu does not learn: %f then %f", s, first, last);
    }
}

/* Fields with one id each and no special options take a shorter path (model/vectors_plain.c): it must give
 * the same bits as the longer path, which a clip_norm that no gradient reaches selects. */
static void test_short_way(void **state)
{
    (void)state;
    static const struct interaction *kinds[] = {&interaction_fm, &interaction_ffm};
    for (size_t i = 0; i < 2 * ARRAY_COUNT(kinds); i++) {
        struct model_options o = events_options(kinds[i / 2], 0);
        o.embedding.kind = i % 2 ? OPT_ADAGRAD_BLOCK : OPT_ADAGRAD;
        o.vectors = EVENT_FIELDS - 1; /* the last field is linear only */
        o.admit_after = 2;            /* some rows are absent */
        o.sketch_bytes = 4096;
        struct model *shorter = model_new(&o, best());
        o.clip_norm = 1e30F;
        struct model *longer = model_new(&o, best());
        events_learn(&events, shorter, 0, EVENTS_MAX, 500, logits, verdicts);
        events_learn(&events, longer, 0, EVENTS_MAX, 500, other_logits, verdicts);
        assert_memory_equal(logits, other_logits, sizeof(logits));
        assert_true(events_digest(shorter, EVENT_FIELDS) == events_digest(longer, EVENT_FIELDS));
        model_free(shorter);
        model_free(longer);
    }
}

/* A vector begins at a cache line; the few sums of adagrad_block lie before it, where the linear weight
 * leaves room. */
static void test_row_layout(void **state)
{
    (void)state;
    enum { SUMS = 8, WEIGHTS = 32 }; /* three fields, padded to four */
    struct model_options o = events_options(&interaction_ffm, 0);
    o.dim = 8;
    o.embedding.kind = OPT_ADAGRAD_BLOCK;
    o.embedding.accumulator = 0.5F;
    o.embedding.params.rate = 0.0F;
    struct model *m = model_new(&o, best());
    events_learn(&events, m, 0, 1, 1, logits, verdicts);
    struct table_row *row = table_find(model_table(m, 0), events.ids[0][0]);
    assert_non_null(row);
    assert_int_equal(model_table(m, 0)->stride, 192);
    const float *payload = table_payload(row), *sums = payload + 2, *vector = sums + SUMS;
    assert_true((uintptr_t)vector % 64 == 0);
    assert_true(payload[0] != 0.0F && payload[1] >= o.linear.accumulator);
    for (int i = 0; i < SUMS; i++)
        assert_true(sums[i] >= 0.5F && sums[i] < 0.51F);
    for (int i = 0; i < WEIGHTS; i++)
        assert_true(vector[i] != 0.0F && fabsf(vector[i]) <= o.init_bound);
    model_free(m);
}

struct stored {
    const struct table *table;
    struct model *into;
    uint32_t field;
};

static bool restore_rows(void *argument, const void *rows, size_t count)
{
    const struct stored *s = argument;
    struct table *t = model_table(s->into, s->field);
    for (size_t i = 0; i < count; i++)
        table_restore_row(t, (const unsigned char *)rows + i * table_stored_bytes(t));
    return true;
}

static struct model *copy_by_snapshot(struct model *m, const struct model_options *o)
{
    struct model *copy = model_new(o, best());
    struct byte_buffer small = {0};
    model_save(m, &small);
    for (uint32_t f = 0; f < EVENT_FIELDS; f++) {
        const struct table_keys *removed;
        uint32_t epoch = model_table(m, f)->epoch;
        struct stored s = {.into = copy, .field = f};
        struct table_snapshot *snapshot = table_snapshot_begin(model_table(m, f), 0, epoch, &removed);
        assert_true(table_snapshot_write(snapshot, restore_rows, &s));
        assert_true(table_snapshot_write_counts(snapshot, events_restore_counts, model_table(copy, f)));
        table_snapshot_end(model_table(m, f), true);
        table_restored(model_table(copy, f), epoch);
    }
    assert_true(model_load(copy, small.data, small.length));
    assert_false(model_load(copy, small.data, small.length - 1));
    assert_true(model_load(copy, small.data, small.length));
    buffer_free(&small);
    return copy;
}

/* A model stopped in the middle of a block or batch, saved, loaded and continued equals one that
 * was not stopped. */
static void test_resume(void **state)
{
    (void)state;
    for (size_t s = 0; s < ARRAY_COUNT(shapes); s++) {
        struct model_options o = shape_options(&shapes[s]);
        o.admit_after = 2;
        o.sketch_bytes = 4096;
        struct model *whole = model_new(&o, best()), *first = model_new(&o, best());
        events_learn(&events, whole, 0, EVENTS_MAX, 500, logits, verdicts);
        events_learn(&events, first, 0, 3003, 300, other_logits, verdicts);
        struct model *second = copy_by_snapshot(first, &o);
        model_free(first);
        events_learn(&events, second, 3003, EVENTS_MAX, 700, other_logits, verdicts);
        assert_memory_equal(logits, other_logits, sizeof(logits));
        assert_true(events_digest(whole, EVENT_FIELDS) == events_digest(second, EVENT_FIELDS));
        model_free(whole);
        model_free(second);
    }
}

/* A bad event changes only its own verdict. */
static void test_rejected(void **state)
{
    (void)state;
    static struct events bad, good;
    for (size_t s = 0; s < ARRAY_COUNT(shapes); s++) {
        struct model_options o = shape_options(&shapes[s]);
        memcpy(&bad, &events, sizeof(bad));
        bad.dense[1][100] = NAN;
        bad.labels[200] = INFINITY;
        struct model *m = model_new(&o, best()), *n = model_new(&o, best());
        events_learn(&bad, m, 0, 1024, 1024, logits, verdicts);
        assert_int_equal(verdicts[100], MODEL_REJECTED);
        assert_int_equal(verdicts[200], MODEL_REJECTED);
        assert_true(isnan(logits[100]) && isnan(logits[200]) && !isnan(logits[1023]));
        memcpy(&good, &events, sizeof(good)); /* the same stream without these two events */
        events_learn(&good, n, 0, 100, 100, other_logits, verdicts);
        events_learn(&good, n, 101, 200, 99, other_logits, verdicts);
        events_learn(&good, n, 201, 1024, 823, other_logits, verdicts);
        assert_true(events_digest(m, EVENT_FIELDS) == events_digest(n, EVENT_FIELDS));
        assert_true(logits[1023] == other_logits[1023]);
        model_free(m);
        model_free(n);
    }
}

/* Sampled negatives and class weights: the mean prediction over the whole stream stays at
 * the labels' mean. */
static void test_sampling(void **state)
{
    (void)state;
    struct model_options o = events_options(NULL, 0);
    o.negatives_kept = 0.25;
    o.class_weights[1] = 2.0F;
    struct model *m = model_new(&o, best());
    events_learn(&events, m, 0, EVENTS_MAX, 1000, logits, verdicts);
    uint32_t sampled = 0, negatives = 0;
    double predicted = 0.0, observed = 0.0;
    for (uint32_t i = 0; i < EVENTS_MAX; i++) {
        sampled += verdicts[i] == MODEL_SAMPLED_OUT;
        negatives += events.labels[i] == 0.0F;
        assert_false(verdicts[i] == MODEL_SAMPLED_OUT && events.labels[i] == 1.0F);
        if (i > EVENTS_MAX / 2)
            predicted += num_sigmoid(logits[i]), observed += (double)events.labels[i];
    }
    assert_true(fabs((double)sampled / negatives - 0.75) < 0.03);
    assert_true(fabs(predicted / observed - 1.0) < 0.06);
    assert_true(fabs(model_correction(&o) + log(8.0)) < 1e-12);
    model_free(m);
}

static void copy_event(struct events *to, uint32_t at, uint32_t from, float label)
{
    for (int f = 0; f < EVENT_FIELDS; f++)
        to->ids[f][at] = events.ids[f][from];
    for (int d = 0; d < EVENT_DENSE; d++)
        to->dense[d][at] = events.dense[d][from];
    to->times[at] = events.times[from];
    to->labels[at] = label;
}

/* Each event occurs with label 0, and if its true label is 1, again with 1 a hundred events later. Returns
 * how far the mean prediction is from the mean of the true labels. */
static double fake_negative_error(bool has_weights)
{
    static struct events twice;
    static float truth[EVENTS_MAX];
    struct model_options o = events_options(&interaction_fm, 0);
    uint32_t count = 0;
    for (uint32_t i = 0, answered = 0; count < EVENTS_MAX; i++) {
        truth[count] = events.labels[i];
        copy_event(&twice, count++, i, 0.0F);
        while (answered + 100 < i && events.labels[answered] == 0.0F)
            answered++;
        if (answered + 100 >= i || count == EVENTS_MAX)
            continue;
        truth[count] = -1.0F;
        copy_event(&twice, count++, answered++, 1.0F);
    }
    o.has_fake_negatives = has_weights;
    struct model *m = model_new(&o, best());
    events_learn(&twice, m, 0, EVENTS_MAX, 1000, logits, verdicts);
    model_free(m);
    double predicted = 0.0, observed = 0.0;
    for (uint32_t i = EVENTS_MAX / 2; i < EVENTS_MAX; i++)
        if (truth[i] >= 0.0F)
            predicted += num_sigmoid(logits[i]), observed += (double)truth[i];
    return predicted / observed - 1.0;
}

static void test_fake_negatives(void **state)
{
    (void)state;
    double plain = fake_negative_error(false), weighed = fake_negative_error(true);
    if (plain > -0.1 || fabs(weighed) > 0.06)
        fail_msg("predictions are off by %f without the weights, by %f with them", plain, weighed);
}

/* Each loss's gradient and curvature, by differences. */
static void test_losses(void **state)
{
    (void)state;
    for (int kind = LOSS_LOGISTIC; kind <= LOSS_SQUARED; kind++) {
        for (double z = -3.0; z <= 3.0; z += 0.37) {
            enum loss_kind loss = (enum loss_kind)kind;
            double h = 1e-4, y = 1.0, up = loss_value(loss, z + h, y), down = loss_value(loss, z - h, y);
            struct loss_point at = loss_at(loss, z, y);
            assert_true(fabs((up - down) / (2 * h) - at.gradient) < 1e-7);
            assert_true(fabs((up - 2 * loss_value(loss, z, y) + down) / (h * h) - at.curvature) < 1e-5);
        }
    }
}

/* The gradient of every shape, by differences: with plain SGD of rate r, a step moves a weight by -r
 * dL/dw; copies of the model with one weight moved by +-h give dL/dw. One event, so blocks and batches
 * have one event. */
static double event_loss(struct model *m, uint32_t i)
{
    double logit;
    const uint64_t *ids[EVENT_FIELDS];
    const float *dense[EVENT_DENSE];
    for (int f = 0; f < EVENT_FIELDS; f++)
        ids[f] = events.ids[f] + i;
    for (int d = 0; d < EVENT_DENSE; d++)
        dense[d] = events.dense[d] + i;
    struct model_input in = {.rows = 1, .ids = ids, .dense = dense, .event_time_us = events.times + i};
    model_predict(m, &in, &logit);
    return loss_value(LOSS_LOGISTIC, logit, (double)events.labels[i]);
}

static void test_gradients(void **state)
{
    (void)state;
    for (int f = 0; f < EVENT_FIELDS; f++) /* the event's rows exist and were updated before */
        events.ids[f][300] = events.ids[f][299];
    for (size_t s = 0; s < ARRAY_COUNT(shapes); s++) {
        struct model_options o = shape_options(&shapes[s]);
        struct optimizer_options sgd = {.kind = OPT_SGD, .params = {.rate = 1.0F / 64, .step_max = 100.0F}};
        o.linear = o.embedding = o.head = sgd;
        if (shapes[s].has_pairs)
            o.pairs = sgd;
        o.block = o.batch = 1;
        o.init_bound = 0.5F;
        struct model *m = model_new(&o, best());
        events_learn(&events, m, 0, 300, 300, logits, verdicts);
        for (uint32_t f = 0; f < EVENT_FIELDS; f++) {
            struct table_row *row = table_find(model_table(m, f), events.ids[f][300]);
            assert_non_null(row);
            size_t floats = model_table(m, f)->options.payload_bytes / sizeof(float);
            float *w = table_payload(row), before[512], after[512];
            double gradients[512];
            memcpy(before, w, floats * sizeof(*w));
            for (size_t i = 0; i < floats; i++) {
                double side[2];
                for (int k = 0; k < 2; k++) {
                    w[i] = before[i] + (k ? 0.002F : -0.002F); /* crosses few kinks of relu */
                    side[k] = event_loss(m, 300);
                    w[i] = before[i];
                }
                gradients[i] = (side[1] - side[0]) / 0.004;
            }
            struct model *step = copy_by_snapshot(m, &o);
            events_learn(&events, step, 300, 301, 1, logits, verdicts);
            memcpy(after, table_payload(table_find(model_table(step, f), events.ids[f][300])),
                   floats * sizeof(*w));
            for (size_t i = 0; i < floats; i++) {
                double moved = -64.0 * ((double)after[i] - (double)before[i]);
                if (fabs(moved - gradients[i]) > 2e-3)
                    fail_msg("shape %zu field %u float %zu: %f by the step, %f by differences", s, f, i,
                             moved, gradients[i]);
            }
            model_free(step);
        }
        model_free(m);
    }
    events_make(&events);
}

static void test_lists(void **state)
{
    (void)state;
    struct model_options o = events_options(&interaction_ffm, 0);
    o.is_list[1] = true;
    struct model *listed = model_new(&o, best());
    o.is_list[1] = false;
    struct model *single = model_new(&o, best());
    static uint32_t offsets[1025];
    for (uint32_t i = 0; i <= 1000; i++)
        offsets[i] = i; /* lists of one id equal single values */
    const uint64_t *ids[EVENT_FIELDS] = {events.ids[0], events.ids[1], events.ids[2]};
    const uint32_t *lists[EVENT_FIELDS] = {NULL, offsets, NULL};
    const float *dense[EVENT_DENSE] = {events.dense[0], events.dense[1]};
    struct model_input in = {.rows = 1000,
                             .ids = ids,
                             .offsets = lists,
                             .dense = dense,
                             .labels = events.labels,
                             .event_time_us = events.times};
    struct model_output out = {.logits = logits, .verdicts = verdicts};
    model_learn(listed, &in, &out);
    events_learn(&events, single, 0, 1000, 1000, other_logits, verdicts);
    assert_memory_equal(logits, other_logits, 1000 * sizeof(*logits));
    assert_true(events_digest(listed, EVENT_FIELDS) == events_digest(single, EVENT_FIELDS));
    in.rows = 2; /* an empty list, and a list of two ids: the mean of their rows */
    uint32_t few[3] = {0, 0, 2};
    lists[1] = few;
    model_learn(listed, &in, &out);
    assert_true(isfinite(logits[0]) && isfinite(logits[1]));
    model_free(listed);
    model_free(single);
}

/* Each of a list's first list_max ids has a share in the prediction, and no further id has. */
static void test_long_lists(void **state)
{
    (void)state;
    enum { LONG = 1500 };
    static uint64_t listed[LONG];
    static const uint32_t most[] = {1, 64, 300, MODEL_LIST_MAX, 0};
    for (size_t k = 0; k < ARRAY_COUNT(shapes) * ARRAY_COUNT(most); k++) {
        struct model_options o = shape_options(&shapes[k / ARRAY_COUNT(most)]);
        o.is_list[1] = true;
        o.list_max = most[k % ARRAY_COUNT(most)];
        if (o.interaction != NULL)
            o.linear.params.rate = 0.0F; /* so that the vectors alone decide */
        if (o.embedding.kind == OPT_FTRL)
            o.embedding.kind = OPT_ADAGRAD; /* FTRL leaves vectors at 0 if gradients are nearly 0 */
        uint32_t last = (o.list_max > 0 ? o.list_max : MODEL_LIST_DEFAULT) - 1;
        struct model *m = model_new(&o, best());
        uint32_t lists[2] = {0, LONG};
        const uint64_t *ids[EVENT_FIELDS] = {events.ids[0], listed, events.ids[2]};
        const uint32_t *offsets[EVENT_FIELDS] = {NULL, lists, NULL};
        const float *dense[EVENT_DENSE] = {events.dense[0], events.dense[1]};
        struct model_input in = {.rows = 1,
                                 .ids = ids,
                                 .offsets = offsets,
                                 .dense = dense,
                                 .labels = events.labels,
                                 .event_time_us = events.times,
                                 .identity = events.identity};
        struct model_output out = {.logits = logits, .verdicts = verdicts};
        for (uint32_t i = 0; i < LONG; i++)
            listed[i] = 1 + i;
        for (uint32_t i = 0; i < 2 * MAX(o.batch, o.block); i++)
            model_learn(m, &in, &out);
        double before, other, beyond;
        model_predict(m, &in, &before);
        listed[last] = 99999;
        model_predict(m, &in, &other);
        listed[last] = 1 + last;
        listed[last + 1] = 99999;
        model_predict(m, &in, &beyond);
        if (before == other || before != beyond)
            fail_msg("shape %zu, list_max %u: %.17g, another last id %.17g, one beyond %.17g",
                     k / ARRAY_COUNT(most), o.list_max, before, other, beyond);
        model_free(m);
    }
}

/* count and seen of an id's row cover all its occurrences in a batch, whichever of them is the latest. */
static void test_occurrences(void **state)
{
    (void)state;
    static const int64_t seconds[] = {70, 90, 80, 90, 60};
    struct model_options o = events_options(&interaction_fm, 0);
    o.batch = 5;
    for (uint32_t call = 1; call <= 5; call++) { /* events in a call */
        struct model *m = model_new(&o, best());
        for (int i = 0; i < 5; i++) {
            events.ids[0][i] = 17 + (uint64_t)(i == 3);
            events.times[i] = seconds[i] * 1000000;
        }
        events_learn(&events, m, 0, 5, call, logits, verdicts);
        const struct table_row *often = table_find(model_table(m, 0), 17),
                               *once = table_find(model_table(m, 0), 18);
        assert_true(often != NULL && often->count == 4 && often->seen == 90);
        assert_true(once != NULL && once->count == 1 && once->seen == 90);
        model_free(m);
    }
    events_make(&events);
}

static int setup(void **state)
{
    (void)state;
    events_make(&events);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_losses),     cmocka_unit_test(test_ftrl_reference),
        cmocka_unit_test(test_gradients),  cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_resume),     cmocka_unit_test(test_rejected),
        cmocka_unit_test(test_sampling),   cmocka_unit_test(test_fake_negatives),
        cmocka_unit_test(test_lists),      cmocka_unit_test(test_short_way),
        cmocka_unit_test(test_row_layout), cmocka_unit_test(test_occurrences),
        cmocka_unit_test(test_long_lists),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
