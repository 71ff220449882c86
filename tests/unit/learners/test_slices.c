/* A step's sums do not depend on how its slices are shared among workers (kernels/slices.h): the gradient of each
 * weight, of a whole step, has the bits of the tree over the gradients of steps that have one slice's events
 * alone. Momentum with beta1 = 0 keeps the gradient as its state. */
#include "events.h"
#include "learners/model/internal.h"
#include "learners/train/train.h"

#include "core/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* 8 slices of 128 and 256 events; EVERY: dense weights compared, one of so many. */
enum { BATCH = 1100, SLICE = 128, SLICES = 8, CALL = 700, LIST = 2, EVERY = 3 };
enum { LISTS = 1, CLIPPED = 2 };

static const struct kind {
    const char *name;
    const struct interaction *interaction;
    const struct network *network;
    uint32_t hidden, micro;
    unsigned has;
} kinds[] = {
    {"linear", NULL, NULL, 0, 0, LISTS},
    {"fm", &interaction_fm, NULL, 0, 0, 0},
    {"ffm, lists", &interaction_ffm, NULL, 0, 0, LISTS},
    {"deepfm, by events", &interaction_fm, &network_deep, 12, 0, LISTS},
    {"deepfm, micro", &interaction_fm, &network_deep, 40, 100, 0},
    {"deepfm, by ids", &interaction_fm, &network_deep, 40, 0, 0},
    {"deepfm, clipped", &interaction_fm, &network_deep, 40, 0, CLIPPED},
    {"dcnv2, by ids", NULL, &network_cross, 40, 0, 0},
    {"dlrm", NULL, &network_dot, 12, 0, 0},
    {"afm", NULL, &network_attention, 8, 0, 0},
    {"mmoe, by ids", NULL, &network_experts, 40, 0, 0},
};

static struct events events;
static double logits[2 * MODEL_ROWS_MAX];
static uint8_t verdicts[MODEL_ROWS_MAX];

static struct model_options options_of(const struct kind *k)
{
    struct model_options o = events_options(k->interaction, k->hidden);
    o.linear = o.embedding = o.head =
        (struct optimizer_options){.kind = OPT_MOMENTUM, .params = {.rate = 0.05F, .step_max = 1e9F}};
    o.network = k->network, o.network_own = events_network(k->network);
    o.linear_is_off = events_linear_is_off(k->network);
    o.labels = k->network == &network_experts ? 2 : 1;
    o.vectors = k->interaction != NULL || k->network != NULL ? EVENT_FIELDS : 0;
    o.is_list[1] = (k->has & LISTS) != 0;
    o.clip_norm = k->has & CLIPPED ? 1e-3F : 0.0F;
    o.dim = 16, o.batch = BATCH, o.micro = k->micro, o.slice = SLICE;
    return o;
}

/* Learns n events from `begin` on in one call. An event's list has its own id and the next event's. */
static void call(struct model *m, uint32_t begin, uint32_t n)
{
    static uint64_t list[BATCH * LIST];
    static uint32_t starts[BATCH + 1];
    const uint64_t *ids[EVENT_FIELDS];
    const uint32_t *offsets[EVENT_FIELDS] = {NULL, m->options.is_list[1] ? starts : NULL};
    const float *dense[EVENT_DENSE], *more[] = {events.more_labels + begin};
    for (uint32_t i = 0; i <= n; i++)
        starts[i] = i * LIST;
    for (uint32_t i = 0; i < n * LIST; i++)
        list[i] = events.ids[1][begin + i / LIST + i % LIST];
    for (uint32_t f = 0; f < EVENT_FIELDS; f++)
        ids[f] = m->options.is_list[f] ? list : events.ids[f] + begin;
    for (uint32_t d = 0; d < EVENT_DENSE; d++)
        dense[d] = events.dense[d] + begin;
    struct model_input in = {.rows = n,
                             .ids = ids,
                             .offsets = offsets,
                             .dense = dense,
                             .labels = events.labels + begin,
                             .more_labels = more,
                             .event_time_us = events.times + begin};
    model_learn(m, &in, &(struct model_output){.logits = logits, .verdicts = verdicts});
}

/* Learns the events from..to of `at` in one step, in two calls or one. */
static void step(struct model *m, uint32_t at, uint32_t from, uint32_t to)
{
    model_set_step_events(m, to - from);
    for (; to - from > CALL; from += CALL)
        call(m, at + from, CALL);
    call(m, at + from, to - from);
    assert_int_equal(m->pending, 0);
    model_train_read(m);
}

/* A model that has learned one batch, and then the events from..to of the next. */
static struct model *learned(const struct model_options *o, uint32_t from, uint32_t to)
{
    struct model *m = model_new(o, kernels_pick(NULL, &(const char *){NULL}));
    step(m, 0, 0, BATCH);
    step(m, BATCH, from, to);
    return m;
}

/* The gradients of the whole step, and those of each slice. */
struct sums {
    struct model *whole, *slices[SLICES];
};

/* A node of the tree over the slices' gradients that are not NULL. Returns false if all are. */
static bool tree(const float *const *of, uint32_t first, uint32_t last, float *sum)
{
    float right = 0.0F;
    if (last - first == 1) {
        *sum = of[first] != NULL ? *of[first] : 0.0F;
        return of[first] != NULL;
    }
    uint32_t middle = (first + last) / 2;
    bool has_left = tree(of, first, middle, sum), has_right = tree(of, middle, last, &right);
    *sum = has_left && has_right ? *sum + right : has_left ? *sum : right;
    return has_left || has_right;
}

static void check(const char *kind, const char *part, size_t number, float whole, const float *const *of)
{
    float sum;
    assert_true(tree(of, 0, SLICES, &sum));
    if (memcmp(&whole, &sum, sizeof(sum)) != 0)
        fail_msg("%s: %s, float %zu: %.9g in one step, %.9g as a tree", kind, part, number, (double)whole,
                 (double)sum);
}

static bool occurs(const struct model *m, uint32_t field, uint64_t id, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to + (m->options.is_list[field] ? 1 : 0); i++)
        if (events.ids[field][BATCH + i] == id)
            return true;
    return false;
}

/* The rows of a field: the states of the vectors and of the linear weights. Returns how many ids occur in several
 * slices. */
static size_t check_rows(const char *kind, const struct sums *s, uint32_t field,
                         const struct batch_slices *slices)
{
    struct model *m = s->whole;
    size_t count, several = 0, floats = model_table(m, field)->options.payload_bytes / sizeof(float);
    size_t state = field < m->options.vectors ? m->state_at / sizeof(float) : floats;
    struct table_row **rows = table_sorted(model_table(m, field), &count);
    for (size_t r = 0; r < count; r++) {
        const float *payload = table_payload(rows[r]), *of[SLICES], *at[SLICES];
        size_t parts = 0;
        for (uint32_t i = 0; i < SLICES; i++) {
            bool is_there = occurs(m, field, rows[r]->key, slices->borders[i], slices->borders[i + 1]);
            struct table_row *row = table_find(model_table(s->slices[i], field), rows[r]->key);
            of[i] = is_there ? table_payload(row) : NULL;
            parts += is_there;
        }
        several += parts > 1;
        for (size_t f = 0; f < floats && parts > 0; f++) {
            bool is_linear = f == 1 && !m->options.linear_is_off;
            if (!is_linear && (f < state || f >= state + m->vector_floats))
                continue;
            for (uint32_t i = 0; i < SLICES; i++)
                at[i] = of[i] != NULL ? of[i] + f : NULL;
            check(kind, is_linear ? "a linear weight" : "a vector", f, payload[f], at);
        }
    }
    free(rows);
    return several;
}

static void check_dense(const char *kind, const struct sums *s)
{
    const float *at[SLICES];
    const struct model *m = s->whole;
    for (uint32_t d = 0; d <= m->options.dense && !m->options.linear_is_off; d++) {
        for (uint32_t i = 0; i < SLICES; i++)
            at[i] = s->slices[i]->dense_weights + (size_t)d * LINEAR_FLOATS + 1;
        check(kind, "a dense weight", d, m->dense_weights[(size_t)d * LINEAR_FLOATS + 1], at);
    }
    const struct net *net = &m->train->net;
    for (uint32_t p = 0; p < net->params_count; p++)
        for (size_t f = 0; f < net->params[p].floats; f += EVERY) {
            for (uint32_t i = 0; i < SLICES; i++)
                at[i] = s->slices[i]->train->net.params[p].gradient + f;
            check(kind, "a layer", f, net->params[p].gradient[f], at);
        }
}

static void test_trees(void **state)
{
    (void)state;
    events_make(&events);
    const struct batch_slices slices = batch_slices_of(BATCH, SLICE);
    assert_int_equal(slices.count, SLICES);
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        struct model_options o = options_of(&kinds[k]);
        struct sums s = {.whole = learned(&o, 0, BATCH)};
        for (uint32_t i = 0; i < SLICES; i++)
            s.slices[i] = learned(&o, slices.borders[i], slices.borders[i + 1]);
        size_t several = 0;
        for (uint32_t f = 0; f < EVENT_FIELDS; f++)
            several += check_rows(kinds[k].name, &s, f, &slices);
        assert_true(several > 100);
        check_dense(kinds[k].name, &s);
        model_free(s.whole);
        for (uint32_t i = 0; i < SLICES; i++)
            model_free(s.slices[i]);
    }
}

/* 1, 2, 4, 8 or 16 slices, of at least `least` events each, that divide the events at multiples of 128. */
static void test_borders(void **state)
{
    (void)state;
    for (uint32_t least = SLICE; least <= 8 * SLICE; least *= 2) {
        for (uint32_t n = 1; n <= BATCH_SLICES_EVENTS; n += n < 3000 ? 1 : n < 40000 ? 997 : 1 + n / 1000) {
            struct batch_slices s = batch_slices_of(n, least);
            assert_true(s.count <= BATCH_SLICES_MAX && (s.count & (s.count - 1)) == 0);
            assert_true(s.count == 1 || n / s.count >= least);
            assert_true(s.count == BATCH_SLICES_MAX || n / (2 * s.count) < least);
            assert_true(s.borders[0] == 0 && s.borders[s.count] == n);
            for (uint32_t i = 0; i < s.count; i++) {
                assert_true(s.borders[i] < s.borders[i + 1] && s.borders[i] % BATCH_SLICE_UNIT == 0);
                assert_int_equal(s.borders[i],
                                 (uint64_t)i * n / s.count / BATCH_SLICE_UNIT * BATCH_SLICE_UNIT);
                assert_int_equal(batch_slice_of(&s, s.borders[i]), i);
                assert_int_equal(batch_slice_of(&s, s.borders[i + 1] - 1), i);
            }
        }
    }
    assert_int_equal(batch_slices_of(1 << 20, 0).count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_trees), cmocka_unit_test(test_borders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
