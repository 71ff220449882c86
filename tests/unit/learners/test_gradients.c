/* Every part of a model, on every path, learns by the derivative of the loss: one step of plain gradient descent
 * with rate 1 moves each weight by minus the derivative, which differences of the loss around the weight give. */
#include "events.h"
#include "learners/model/internal.h"

#include "core/base.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* WARM: events that give the model rows and weights. LIST: ids of an event in a field that is a list. */
enum { WARM = 512, STEP_MAX = 16, LIST = 3, OTHERS = 16, PARTS_CHECKED = 600 };
enum { PAIRS = 1, LISTS = 2, SQUARED = 4, WIDE = 8 };

static const struct kind {
    const char *name;
    const struct interaction *interaction;
    const struct network *network;
    uint32_t hidden, batch, block;
    unsigned has;
} kinds[] = {
    {"linear", NULL, NULL, 0, 1, 1, 0},
    {"linear, squared, lists", NULL, NULL, 0, 1, 1, SQUARED | LISTS},
    {"linear, batch", NULL, NULL, 0, 16, 1, LISTS},
    {"fm", &interaction_fm, NULL, 0, 1, 1, 0},
    {"fm, lists, a wide field", &interaction_fm, NULL, 0, 1, 1, LISTS | WIDE},
    {"fm, pairs", &interaction_fm, NULL, 0, 1, 1, PAIRS | SQUARED},
    {"fm, batch", &interaction_fm, NULL, 0, 16, 1, LISTS},
    {"ffm", &interaction_ffm, NULL, 0, 1, 1, 0},
    {"ffm, pairs, lists", &interaction_ffm, NULL, 0, 1, 1, PAIRS | LISTS},
    {"ffm, batch", &interaction_ffm, NULL, 0, 16, 1, SQUARED | WIDE},
    {"ffm, layers", &interaction_ffm, &network_deep, 12, 1, 16, 0},
    {"ffm, layers, pairs", &interaction_ffm, &network_deep, 12, 1, 1, PAIRS},
    {"deepfm", &interaction_fm, &network_deep, 12, 1, 16, LISTS},
    {"deepfm, one", &interaction_fm, &network_deep, 12, 1, 1, WIDE},
    {"deepfm, batch", &interaction_fm, &network_deep, 12, 16, 1, LISTS},
    {"deepfm, batch, by ids", &interaction_fm, &network_deep, 40, 16, 1, 0},
    {"dcnv2, batch", NULL, &network_cross, 12, 16, 1, LISTS},
    {"dlrm, batch", NULL, &network_dot, 12, 16, 1, 0},
    {"mmoe, batch", NULL, &network_experts, 12, 16, 1, SQUARED},
    {"afm, batch", NULL, &network_attention, 0, 16, 1, LISTS},
    {"afm, squared, a wide field", NULL, &network_attention, 0, 16, 1, SQUARED | WIDE},
};

static struct events events;

static struct model_options options_of(const struct kind *k)
{
    struct model_options o = events_options(k->interaction, k->hidden);
    struct optimizer_options sgd = {.kind = OPT_SGD,
                                    .params = {.rate = 0.05F, .decay = 1.0F, .step_max = 1e9F}};
    bool has_vectors = k->interaction != NULL || network_needs_batches(k->network);
    o.linear = o.embedding = o.head = sgd;
    o.pairs = sgd;
    o.pairs.params.rate = (k->has & PAIRS) ? 0.05F : 0.0F;
    o.network = k->network, o.network_own = events_network(k->network);
    o.linear_is_off = events_linear_is_off(k->network);
    o.loss = (k->has & SQUARED) ? LOSS_SQUARED : LOSS_LOGISTIC;
    o.labels = k->network == &network_experts ? 2 : 1;
    o.vectors = !has_vectors ? 0 : (k->has & WIDE) ? EVENT_FIELDS - 1 : EVENT_FIELDS;
    o.is_list[1] = (k->has & LISTS) != 0;
    o.dim = k->hidden == 40 ? 16 : 8;
    o.batch = k->batch, o.block = k->block;
    if (k->network == &network_attention)
        o.init_bound = 1.0F; /* products of shorter vectors have derivatives too small to be compared */
    return o;
}

/* --- Events --- */

/* The columns of events begin..begin + rows. An event's list has its own id, and those of the next events. */
struct columns {
    struct model_input in;
    const uint64_t *ids[EVENT_FIELDS];
    const uint32_t *offsets[EVENT_FIELDS];
    const float *dense[EVENT_DENSE], *more[1];
    uint64_t list[WARM * LIST];
    uint32_t starts[WARM + 1];
};

static void columns_of(struct columns *c, const struct model_options *o, uint32_t begin, uint32_t rows)
{
    *c = (struct columns){.more = {events.more_labels + begin}};
    for (uint32_t f = 0; f < EVENT_FIELDS; f++)
        c->ids[f] = o->is_list[f] ? c->list : events.ids[f] + begin;
    for (uint32_t i = 0; i < rows * LIST; i++)
        c->list[i] = events.ids[1][begin + i / LIST + i % LIST];
    for (uint32_t i = 0; i <= rows; i++)
        c->starts[i] = i * LIST;
    c->offsets[1] = o->is_list[1] ? c->starts : NULL;
    for (uint32_t d = 0; d < EVENT_DENSE; d++)
        c->dense[d] = events.dense[d] + begin;
    c->in = (struct model_input){.rows = rows,
                                 .ids = c->ids,
                                 .offsets = c->offsets,
                                 .dense = c->dense,
                                 .labels = events.labels + begin,
                                 .more_labels = c->more};
}

static void learn(struct model *m, const struct columns *c)
{
    static double logits[2 * MODEL_ROWS_MAX];
    uint8_t verdicts[MODEL_ROWS_MAX];
    struct model_output out = {.logits = logits, .verdicts = verdicts};
    model_learn(m, &c->in, &out);
    for (uint32_t i = 0; i < c->in.rows; i++)
        assert_int_equal(verdicts[i], MODEL_LEARNED);
}

static double loss_of(struct model *m, const struct columns *c)
{
    static double logits[2 * MODEL_ROWS_MAX];
    double sum = 0.0;
    model_predict(m, &c->in, logits);
    for (uint32_t l = 0; l < m->options.labels; l++) {
        const float *labels = l == 0 ? c->in.labels : c->in.more_labels[l - 1];
        for (uint32_t i = 0; i < c->in.rows; i++)
            sum += loss_value(m->options.loss, logits[l * MODEL_ROWS_MAX + i], (double)labels[i]);
    }
    return sum;
}

/* --- Weights --- */

/* A weight in memory that the model reads itself (layer < 0), or one of a layer or of the dense weights, of which
 * the model of a batch has its own copy. */
struct weight {
    char name[48];
    float *at;
    int layer;
    size_t number;
};

static struct weight weights[1 << 15];
static size_t weights_count;

static void add(const char *part, int layer, size_t number, float *at)
{
    assert_true(weights_count < ARRAY_COUNT(weights));
    struct weight *w = &weights[weights_count++];
    *w = (struct weight){.at = at, .layer = layer, .number = number};
    snprintf(w->name, sizeof(w->name), "%s %d, float %zu", part, layer, number);
}

static bool has_id(const struct columns *c, uint32_t field, uint64_t id)
{
    size_t ids = c->offsets[field] != NULL ? c->offsets[field][c->in.rows] : c->in.rows;
    for (size_t i = 0; i < ids; i++)
        if (c->ids[field][i] == id)
            return true;
    return false;
}

/* The weights of the step's ids, and of every OTHERS-th other id, whose weights must not move. */
static void list_weights(struct model *m, const struct columns *step)
{
    weights_count = 0;
    for (uint32_t f = 0; f < m->options.fields; f++) {
        size_t count;
        struct table_row **rows = table_sorted(&m->tables[f], &count);
        for (size_t r = 0; r < count; r++) {
            if (r % OTHERS != 0 && !has_id(step, f, rows[r]->key))
                continue;
            if (!m->options.linear_is_off)
                add("weight of an id in field", -1, f, table_payload(rows[r]));
            for (uint32_t v = 0; v < m->vector_floats && f < m->options.vectors; v++)
                add("vector", -1, v, model_vector(m, rows[r]) + v);
        }
        free(rows);
    }
    for (uint32_t d = 0; d <= m->options.dense && !m->options.linear_is_off; d++)
        add("dense weight", -1, d, m->dense_weights + (size_t)d * LINEAR_FLOATS);
    for (size_t p = 0; p < interaction_pairs(m) && m->has_pairs; p++)
        if (p < m->options.vectors * (m->options.vectors - 1) / 2)
            add("pair", -1, p, m->pair_weights + p);
    for (size_t l = 0; l < model_layers(m); l++) {
        size_t n, d;
        model_layer_shape(m, l, &n, &d);
        for (size_t i = 0; i < n * d + n; i++)
            add("layer", (int)l, i, NULL);
    }
}

static float get(struct model *m, const struct weight *w)
{
    static float floats[1 << 16];
    if (m->train != NULL)
        model_train_read(m);
    if (w->layer < 0)
        return *w->at;
    assert_true(model_layer_floats(m, (size_t)w->layer) <= ARRAY_COUNT(floats));
    model_layer_get(m, MODEL_LAYERS_OWN, (size_t)w->layer, floats);
    return floats[w->number];
}

static void set(struct model *m, const struct weight *w, float value)
{
    static float floats[1 << 16];
    if (w->layer < 0) {
        *w->at = value;
        if (m->train != NULL)
            model_train_write(m);
        return;
    }
    model_layer_get(m, MODEL_LAYERS_OWN, (size_t)w->layer, floats);
    floats[w->number] = value;
    model_layer_put(m, MODEL_LAYERS_OWN, (size_t)w->layer, floats);
}

/* The derivative of the loss by a weight; NaN at a corner of a relu. */
static double derivative(struct model *m, const struct columns *c, const struct weight *w)
{
    const float h = 1e-3F, at = get(m, w);
    double here = loss_of(m, c);
    set(m, w, at + h);
    double up = loss_of(m, c);
    set(m, w, at - h);
    double down = loss_of(m, c);
    set(m, w, at);
    double right = (up - here) / (double)h, left = (here - down) / (double)h;
    return fabs(right - left) > 5e-3 * (1.0 + fabs(right + left)) ? (double)NAN : (right + left) / 2.0;
}

static void check(const struct kind *k)
{
    static struct columns warm, step;
    static double slopes[ARRAY_COUNT(weights)];
    static float before[ARRAY_COUNT(weights)];
    struct model_options o = options_of(k);
    const char *reason;
    struct model *m = model_new(&o, kernels_pick(NULL, &reason));
    columns_of(&warm, &o, 0, WARM);
    learn(m, &warm);
    assert_int_equal(m->pending, 0);
    for (size_t p = 0; p < interaction_pairs(m) && m->has_pairs; p++)
        m->pair_weights[p] += 0.5F - 0.3F * (float)p; /* far from their initial value, 1 */
    columns_of(&step, &o, 64, MAX(k->batch, k->block));
    list_weights(m, &step);
    size_t moved = 0, corners = 0, stride = weights_count / PARTS_CHECKED + 1;
    for (size_t i = 0; i < weights_count; i += stride) {
        before[i] = get(m, &weights[i]);
        slopes[i] = derivative(m, &step, &weights[i]);
    }
    model_set_rates(m, &(struct model_rates){1.0F, 1.0F, 1.0F, 1.0F});
    learn(m, &step);
    for (size_t i = 0; i < weights_count; i += stride) {
        double by = (double)before[i] - (double)get(m, &weights[i]);
        moved += by != 0.0;
        corners += isnan(slopes[i]) != 0;
        if (fabs(by - slopes[i]) > 1e-2 * (1.0 + fabs(slopes[i])))
            fail_msg("%s: %s: moved by %g, derivative %g", k->name, weights[i].name, by, slopes[i]);
    }
    if (moved < 5 || corners > weights_count / stride / 10)
        fail_msg("%s: %zu weights of %zu moved, %zu corners", k->name, moved, weights_count / stride,
                 corners);
    model_free(m);
}

static void test_kinds(void **state)
{
    (void)state;
    events_make(&events);
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++)
        check(&kinds[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
