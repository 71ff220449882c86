/* An example of weight 0 teaches nothing: a model that has seen any number of them between other examples
 * equals a model that has not, byte for byte: weights, optimizer state, occurrences, sketches, the step in
 * progress. For every kind of model and every optimizer, with all options that shrink weights (l1, l2) or
 * depend on the number of steps (adam). */
#include "events.h"

#include "core/base.h"
#include "core/buffer.h"
#include "learners/model/internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { TAUGHT = 700, ALL_MAX = 4 * TAUGHT, IDS_MAX = 3 * ALL_MAX, LIST_FIELD = 2 };

/* Examples by column; the last field is one id, or a list of up to three ids. */
struct stream {
    uint32_t n;
    uint64_t ids[EVENT_FIELDS][ALL_MAX], listed[IDS_MAX];
    uint32_t offsets[ALL_MAX + 1];
    float dense[EVENT_DENSE][ALL_MAX], labels[ALL_MAX], more_labels[ALL_MAX], weights[ALL_MAX];
    int64_t times[ALL_MAX];
    uint64_t identity[ALL_MAX];
    uint32_t origin[ALL_MAX]; /* the index of the taught example; TAUGHT: it is none */
    double logits[2][ALL_MAX];
    uint8_t verdicts[ALL_MAX];
};

static struct events events;
static struct stream without, with;

static const struct kernels *best(void)
{
    const char *reason;
    return kernels_pick(NULL, &reason);
}

/* --- Examples --- */

static void add(struct stream *s, uint32_t event, float weight, bool is_stranger)
{
    uint32_t at = s->n++;
    uint64_t seed = num_mix(event * 3 + (weight == 0.0F ? at : 0));
    for (uint32_t f = 0; f < EVENT_FIELDS; f++)
        s->ids[f][at] = is_stranger ? num_mix(seed + f) | 1 : events.ids[f][event];
    uint32_t first = s->offsets[at], count = (uint32_t)(num_mix(seed) % 4);
    for (uint32_t k = 0; k < count; k++)
        s->listed[first + k] = is_stranger ? num_mix(seed + k) | 1 : 1 + num_mix(seed + k) % 40;
    s->offsets[at + 1] = first + count;
    for (uint32_t d = 0; d < EVENT_DENSE; d++)
        s->dense[d][at] = events.dense[d][event] * (is_stranger ? 30.0F : 1.0F);
    s->labels[at] = events.labels[event];
    s->more_labels[at] = events.more_labels[event];
    s->weights[at] = weight;
    /* An event time later than all others would let the row stay longer. */
    s->times[at] = events.times[event] + (is_stranger ? 5000 * US_PER_SECOND : 0);
    s->identity[at] = events.identity[event] + (is_stranger ? 1000000 : 0);
    s->origin[at] = weight == 0.0F ? TAUGHT : event;
}

/* Between the taught examples there are none, some, or more than a whole batch of examples of weight 0, with
 * known and with new ids. */
static void make_streams(void)
{
    events_make(&events);
    for (uint32_t i = 0; i < TAUGHT; i++) {
        float weight = 0.5F + (float)(num_mix(i) % 4);
        uint64_t r = num_mix(i + 77);
        uint32_t between = i == 0 || i == TAUGHT / 2 ? 150 : r % 3 == 0 ? (uint32_t)(r >> 8) % 5 : 0;
        for (uint32_t k = 0; k < between; k++)
            add(&with, (uint32_t)((i + k * 13) % TAUGHT), (r >> 20 & 1) ? 0.0F : -0.0F, (k + i) % 2 == 0);
        add(&without, i, weight, false);
        add(&with, i, weight, false);
    }
    for (uint32_t k = 0; k < 70; k++)
        add(&with, k, 0.0F, k % 2 == 0);
}

static void learn(struct model *m, struct stream *s, uint32_t calls)
{
    bool has_list = m->options.is_list[LIST_FIELD];
    uint32_t labels = MAX(m->options.labels, 1U);
    double logits[2 * MODEL_ROWS_MAX];
    for (uint32_t at = 0, rows; at < s->n; at += rows) {
        rows = MIN(calls, s->n - at);
        const uint64_t *ids[EVENT_FIELDS] = {s->ids[0] + at, s->ids[1] + at,
                                             has_list ? s->listed + s->offsets[at] : s->ids[LIST_FIELD] + at};
        uint32_t offsets_of_list[MODEL_ROWS_MAX + 1];
        for (uint32_t i = 0; i <= rows; i++)
            offsets_of_list[i] = s->offsets[at + i] - s->offsets[at];
        const uint32_t *offsets[EVENT_FIELDS] = {NULL, NULL, has_list ? offsets_of_list : NULL};
        const float *dense[EVENT_DENSE] = {s->dense[0] + at, s->dense[1] + at},
                    *more[] = {s->more_labels + at};
        struct model_input in = {.rows = rows,
                                 .ids = ids,
                                 .offsets = offsets,
                                 .dense = dense,
                                 .labels = s->labels + at,
                                 .more_labels = more,
                                 .weights = s->weights + at,
                                 .event_time_us = s->times + at,
                                 .identity = s->identity + at};
        struct model_output out = {.logits = logits, .verdicts = s->verdicts + at};
        model_learn(m, &in, &out);
        for (uint32_t l = 0; l < labels; l++)
            memcpy(s->logits[l] + at, logits + (size_t)l * MODEL_ROWS_MAX, rows * sizeof(*logits));
    }
}

/* --- What a model is --- */

static void append_table(const struct table *t, struct byte_buffer *out)
{
    size_t count;
    struct table_row **rows = table_sorted(t, &count);
    for (size_t i = 0; i < count; i++) {
        buffer_append(out, rows[i], offsetof(struct table_row, step));
        buffer_append(out, table_payload(rows[i]), t->options.payload_bytes);
    }
    free(rows);
    if (t->sketch.counts != NULL)
        buffer_append(out, t->sketch.counts, SKETCH_DEPTH * t->sketch.width);
}

static struct byte_buffer bytes_of(struct model *m)
{
    struct byte_buffer out = {0};
    model_save(m, &out);
    for (uint32_t f = 0; f < EVENT_FIELDS; f++)
        append_table(model_table(m, f), &out);
    return out;
}

/* --- Models --- */

static const struct kind {
    const char *name;
    const struct interaction *interaction;
    const struct network *network;
    uint32_t hidden, batch, block, micro;
    enum {
        PLAIN,
        LISTS = 1,
        PAIRS = 2,
        CLIPPED = 4,
        SAMPLED = 8,
        LIMITED = 16,
        FAKE = 32,
        DOUBLE = 64,
        TRIED = 128
    } has;
} kinds[] = {
    {"linear", NULL, NULL, 0, 1, 1, 0, PLAIN},
    {"linear, lists", NULL, NULL, 0, 1, 1, 0, LISTS},
    {"linear, limited, sampled", NULL, NULL, 0, 1, 1, 0, LIMITED | SAMPLED},
    {"linear, ftrl in double", NULL, NULL, 0, 1, 1, 0, DOUBLE},
    {"linear, batch", NULL, NULL, 0, 37, 1, 0, LISTS | LIMITED},
    {"linear, batch, ftrl in double", NULL, NULL, 0, 37, 1, 0, DOUBLE},
    {"fm", &interaction_fm, NULL, 0, 1, 1, 0, PLAIN},
    {"fm, fake negatives", &interaction_fm, NULL, 0, 1, 1, 0, FAKE | LISTS},
    {"fm, pairs", &interaction_fm, NULL, 0, 1, 1, 0, PAIRS | CLIPPED | LIMITED},
    {"fm, batch", &interaction_fm, NULL, 0, 64, 1, 0, SAMPLED | LISTS},
    {"ffm", &interaction_ffm, NULL, 0, 1, 1, 0, PLAIN},
    {"ffm, lists, pairs", &interaction_ffm, NULL, 0, 1, 1, 0, LISTS | PAIRS},
    {"ffm, batch", &interaction_ffm, NULL, 0, 37, 1, 0, PLAIN},
    {"ffm, layers", &interaction_ffm, &network_deep, 12, 1, 16, 0, PLAIN},
    {"ffm, layers, lists", &interaction_ffm, &network_deep, 12, 1, 5, 0, LISTS | PAIRS},
    {"deepfm", &interaction_fm, &network_deep, 12, 1, 5, 0, LISTS | SAMPLED},
    {"deepfm, batch", &interaction_fm, &network_deep, 12, 37, 1, 0, PLAIN},
    {"deepfm, batch, by ids", &interaction_fm, &network_deep, 40, 48, 1, 0, LIMITED},
    {"dcnv2", NULL, &network_cross, 12, 37, 1, 0, LISTS},
    {"dcnv2, accumulated", NULL, &network_cross, 12, 48, 1, 16, PLAIN},
    {"dcnv2, on trial", NULL, &network_cross, 12, 37, 1, 0, TRIED},
    {"dlrm", NULL, &network_dot, 12, 64, 1, 0, PLAIN},
    {"dlrm, one", NULL, &network_dot, 12, 1, 1, 0, CLIPPED},
    {"dcnv2, one", NULL, &network_cross, 12, 1, 1, 0, LISTS},
    {"mmoe, one", NULL, &network_experts, 12, 1, 1, 0, PLAIN},
    {"mmoe", NULL, &network_experts, 12, 37, 1, 0, PLAIN},
    {"afm", NULL, &network_attention, 0, 37, 1, 0, LISTS},
    {"afm, one", NULL, &network_attention, 0, 1, 1, 0, PLAIN},
    {"mmoe, accumulated", NULL, &network_experts, 12, 48, 1, 16, LISTS},
};

static struct optimizer_options optimizer(enum opt_kind kind)
{
    return (struct optimizer_options){.kind = kind,
                                      .accumulator = 1.0F,
                                      .params = {.rate = kind == OPT_ADAM ? 0.01F : 0.05F,
                                                 .l1 = 1e-4F,
                                                 .l2 = 0.02F,
                                                 .decay = 0.999F,
                                                 .step_max = 1.0F,
                                                 .epsilon = kind == OPT_FTRL ? 1.0F : 1e-4F,
                                                 .beta1 = 0.9F,
                                                 .beta2 = 0.99F,
                                                 .correction1 = 1.0F,
                                                 .correction2 = 1.0F}};
}

/* Sets the model's options. Returns false if no such model can be bound. */
static bool options_of(const struct kind *k, enum opt_kind kind, bool is_joint, struct model_options *o)
{
    bool has_row_sum = kind == OPT_ADAGRAD_ROW || kind == OPT_ADAGRAD_BLOCK;
    bool is_network = network_needs_batches(k->network), is_by_batches = is_network || k->batch > 1;
    if ((kind == OPT_NEWTON && is_by_batches) || (is_joint && (kind != OPT_NEWTON || k->network != NULL)) ||
        ((k->has & DOUBLE) && kind != OPT_FTRL))
        return false;
    *o = events_options(k->interaction, k->hidden);
    o->linear = o->embedding = o->head = optimizer(kind);
    if (is_by_batches && has_row_sum)
        o->head = optimizer(OPT_ADAM);
    o->pairs = optimizer((k->has & PAIRS) ? kind : OPT_SGD);
    o->pairs.params.rate = (k->has & PAIRS) ? 0.05F : 0.0F;
    o->linear_is_double = (k->has & DOUBLE) != 0;
    o->ftrl = (struct ftrl64_params){0.15, 1.0, 0.05, 0.3};
    o->network = k->network, o->linear_is_off = events_linear_is_off(k->network);
    o->labels = k->network == &network_experts ? 2 : 1;
    o->network_own = events_network(k->network);
    o->dim = 16, o->batch = k->batch, o->block = k->block, o->micro = k->micro;
    o->is_list[LIST_FIELD] = (k->has & LISTS) != 0;
    o->clip_norm = (k->has & CLIPPED) ? 0.3F : 0.0F;
    o->negatives_kept = (k->has & SAMPLED) ? 0.7 : 1.0;
    o->has_fake_negatives = (k->has & FAKE) != 0;
    o->admit_after = 2, o->sketch_bytes = 4096;
    o->rows_max = (k->has & LIMITED) ? 128 : 0;
    o->expire_after_us = (k->has & LIMITED) ? 300 * US_PER_SECOND : 0;
    o->precision = (k->has & TRIED) ? ROW_BF16 : ROW_FP32;
    o->is_tried = (k->has & TRIED) != 0, o->trial_examples = TAUGHT / 2;
    o->is_joint = is_joint;
    return true;
}

/* Compares the predictions of taught examples: a prediction depends on every weight moved before. */
static void check_predictions(const char *what, uint32_t labels)
{
    for (uint32_t i = 0; i < with.n; i++) {
        for (uint32_t l = 0; l < labels; l++) {
            double own = with.logits[l][i];
            bool is_same = with.origin[i] == TAUGHT
                               ? isfinite(own)
                               : memcmp(&own, &without.logits[l][with.origin[i]], sizeof(own)) == 0;
            if (!is_same)
                fail_msg("%s: label %u of example %u is predicted %.17g", what, l, i, own);
        }
        bool is_weightless = with.verdicts[i] == MODEL_WEIGHTLESS;
        if (is_weightless != (with.origin[i] == TAUGHT))
            fail_msg("%s: example %u has verdict %u", what, i, with.verdicts[i]);
    }
}

static uint32_t check(const struct kind *k, enum opt_kind kind, bool is_joint)
{
    char what[120];
    struct model_options o;
    if (!options_of(k, kind, is_joint, &o))
        return 0;
    snprintf(what, sizeof(what), "%s, optimizer %d%s", k->name, (int)kind, is_joint ? ", joint" : "");
    struct model *a = model_new(&o, best()), *b = model_new(&o, best());
    learn(a, &without, 250);
    learn(b, &with, 333);
    check_predictions(what, o.labels);
    struct byte_buffer expected = bytes_of(a), found = bytes_of(b);
    if (expected.length != found.length || memcmp(expected.data, found.data, found.length) != 0)
        fail_msg("%s: another model: %zu bytes, %zu expected", what, found.length, expected.length);
    buffer_free(&expected);
    buffer_free(&found);
    model_free(a);
    model_free(b);
    return 1;
}

static void test_kinds(void **state)
{
    (void)state;
    uint32_t checked = 0;
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++)
        for (int kind = 0; kind < OPT_KINDS; kind++)
            for (int joint = 0; joint < 2; joint++)
                checked += check(&kinds[k], (enum opt_kind)kind, joint == 1);
    print_message("%u models\n", checked);
    assert_true(checked > 150);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds)};
    make_streams();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
