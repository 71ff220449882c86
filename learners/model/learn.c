/* Calls of a model: verdicts on their events, and the path on which the events are predicted and learned. */
#include "learners/model/internal.h"
#include "learners/tables/cold.h"
#include "learners/tables/inline.h"
#include "learners/train/train.h"

#include "core/base.h"

#include <math.h>
#include <stdlib.h>

/* Clears is_good[i] of each event whose label is NaN or infinite, or outside 0 to 1 with logistic loss.
 * The difference x - x, which is 0 for finite numbers only, lets the compiler vectorize the loop. */
static void judge_labels(const struct model *m, const float *labels, uint32_t rows, uint8_t *is_good)
{
    bool is_share = m->options.loss == LOSS_LOGISTIC;
    for (uint32_t i = 0; i < rows; i++)
        is_good[i] &=
            labels[i] - labels[i] == 0.0F && (!is_share || (labels[i] >= 0.0F && labels[i] <= 1.0F));
}

static void judge_finite(const struct model *m, const struct model_input *in, uint8_t *is_good)
{
    memset(is_good, 1, in->rows);
    judge_labels(m, in->labels, in->rows, is_good);
    for (uint32_t l = 1; l < m->options.labels; l++)
        judge_labels(m, in->more_labels[l - 1], in->rows, is_good);
    for (uint32_t i = 0; in->weights && i < in->rows; i++)
        is_good[i] &= in->weights[i] - in->weights[i] == 0.0F;
    for (uint32_t d = 0; d < m->options.dense; d++) {
        const float *column = in->dense[d];
        for (uint32_t i = 0; i < in->rows; i++)
            is_good[i] &= column[i] - column[i] == 0.0F;
    }
}

static bool is_sampled_out(const struct model *m, const struct model_input *in, uint32_t i)
{
    double kept = m->options.negatives_kept;
    if (kept >= 1.0 || in->identity == NULL || in->labels[i] != 0.0F)
        return false;
    return (double)(num_mix(in->identity[i] ^ 0x5a3d1eU) >> 11) * 0x1p-53 >= kept;
}

static enum model_verdict verdict_of(const struct model *m, const struct model_input *in, uint32_t i,
                                     bool is_good)
{
    if (!is_good)
        return MODEL_REJECTED;
    if (in->weights != NULL && in->weights[i] == 0.0F)
        return MODEL_WEIGHTLESS;
    return is_sampled_out(m, in, i) ? MODEL_SAMPLED_OUT : MODEL_LEARNED;
}

static void judge(const struct model *m, struct call *c)
{
    uint64_t learned = 0, pending = m->pending, block = m->options.block;
    judge_finite(m, c->in, c->learns);
    for (uint32_t i = 0; i < c->in->rows; i++) {
        enum model_verdict verdict = verdict_of(m, c->in, i, c->learns[i]);
        c->learns[i] = verdict == MODEL_LEARNED;
        c->out->verdicts[i] = (uint8_t)verdict;
        int64_t seconds = c->in->event_time_us ? c->in->event_time_us[i] / US_PER_SECOND : 0;
        c->seen[i] = (uint32_t)MIN(MAX(seconds, 0), (int64_t)UINT32_MAX);
        c->steps[i] =
            (uint32_t)(m->steps + (block == 1 ? pending + learned : (pending + learned) / block)) + 1;
        learned += c->learns[i];
    }
    c->all_learn = learned == c->in->rows;
}

static void learn_single(struct model *m, struct call *c)
{
    struct example *e = &m->examples[0];
    lookahead_begin(m, c);
    for (uint32_t i = 0; i < c->in->rows; i++) {
        lookahead_rows(m, c, i);
        model_example_fill(m, e, c, i);
        model_example_forward(m, e);
        model_example_judge(m, e);
        model_output(c, e, (int32_t)i);
        if (!e->learns)
            continue;
        model_step_begin(m);
        m->steps++;
        if (!e->is_rejected)
            model_example_update(m, e);
    }
    lookahead_end(m);
}

static void predict_single(struct model *m, struct call *c)
{
    struct example *e = &m->examples[0];
    for (uint32_t i = 0; i < c->in->rows; i++) {
        model_example_fill(m, e, c, i);
        model_example_forward(m, e);
        model_example_judge(m, e);
        model_output(c, e, (int32_t)i);
    }
}

static void predict(struct model *m, const struct model_input *input, double *logits)
{
    static const float zeros[MODEL_ROWS_MAX];
    uint8_t verdicts[MODEL_ROWS_MAX];
    struct model_output out = {.logits = logits, .verdicts = verdicts};
    struct model_input in = *input;
    const float *const no_labels[] = {zeros, zeros, zeros, zeros, zeros, zeros, zeros, zeros};
    _Static_assert(ARRAY_COUNT(no_labels) >= MODEL_LABELS_MAX, "zeros for each");
    in.labels = zeros, in.more_labels = no_labels;
    in.weights = NULL;
    struct call c = {.in = &in, .out = &out, .correction = model_correction(&m->options)};
    judge(m, &c);
    c.all_learn = false;
    memset(c.learns, 0, sizeof(c.learns));
    for (uint32_t i = 0; i < in.rows; i++)
        c.steps[i] = (uint32_t)m->steps + 1; /* each event as if it came next */
    if (m->train != NULL) {
        model_train_predict(m, &c);
    } else {
        lookahead_resolve(m, &c);
        (m->head.layers > 0 ? blocks_predict : predict_single)(m, &c);
    }
    for (uint32_t i = 0; m->options.is_centered && i < in.rows; i++)
        logits[i] += model_bias(m);
}

void model_predict(struct model *m, const struct model_input *input, double *logits)
{
    for (uint32_t f = 0; f < m->options.fields; f++)
        table_guests_begin(&m->tables[f]);
    predict(m, input, logits);
    for (uint32_t f = 0; f < m->options.fields; f++)
        table_guests_end(&m->tables[f]);
}

/* Raises `seen` of the rows of events that learn (c->learns), in tables of the CPU. Their prediction has already
 * loaded cold rows. */
static void refresh_rows(struct model *m, const struct call *c)
{
    for (uint32_t f = 0; f < m->options.fields; f++) {
        const uint32_t *offsets = m->options.is_list[f] ? c->in->offsets[f] : NULL;
        for (uint32_t i = 0; i < c->in->rows; i++) {
            uint32_t from = offsets ? offsets[i] : i;
            uint32_t count = offsets ? MIN(offsets[i + 1] - from, model_field_ids(&m->options, f)) : 1;
            for (uint32_t k = from; k < from + count && c->learns[i]; k++) {
                struct table_row *row = table_find(&m->tables[f], c->in->ids[f][k]);
                if (row != NULL)
                    table_refresh(&m->tables[f], row, c->seen[i]);
            }
        }
    }
}

void model_serve(struct model *m, const struct model_input *input, struct model_output *out)
{
    struct call c = {.in = input, .out = out};
    predict(m, input, out->logits);
    kernels_count(&m->calls, m->k);
    judge(m, &c);
    for (uint32_t i = 0; i < input->rows; i++) {
        bool is_good = c.out->verdicts[i] != MODEL_REJECTED;
        for (uint32_t l = 0; l < MAX(m->options.labels, 1U) && is_good; l++)
            is_good = isfinite(out->logits[(size_t)l * MODEL_ROWS_MAX + i]);
        for (uint32_t l = 0; l < MAX(m->options.labels, 1U) && !is_good; l++)
            out->logits[(size_t)l * MODEL_ROWS_MAX + i] = (double)NAN;
        out->verdicts[i] = is_good ? out->verdicts[i] : MODEL_REJECTED;
        c.learns[i] = c.learns[i] && is_good;
    }
    if (m->options.expire_after_us == 0)
        return;
    if (m->device_rows != NULL)
        model_train_refresh(m, &c);
    else
        refresh_rows(m, &c);
    if (model_shadow(m) != NULL)
        refresh_rows(model_shadow(m), &c);
}

void model_set_team(struct model *m, struct team *team)
{
    m->team = team;
    if (m->train != NULL)
        m->train->net.team = team;
}

/* For each event i: sets biases[i] to model_bias, the mean of the labels before it, with which it is
 * predicted; then adds the label to the mean, if the event learns; and sets labels[i] to the label minus the
 * new mean. */
static void center(struct model *m, const struct call *c, float *labels, double *biases)
{
    for (uint32_t i = 0; i < c->in->rows; i++) {
        double label = (double)c->in->labels[i], weight = c->in->weights ? (double)c->in->weights[i] : 1.0;
        biases[i] = model_bias(m);
        if (c->learns[i] && weight > 0.0) {
            m->mean.labels += weight * label;
            m->mean.weights += weight;
        }
        labels[i] = (float)(label - model_bias(m));
    }
}

/* Loads a call's keys from the cold stores, before rows are looked up event by event. */
static void warm(struct model *m, const struct call *c)
{
    for (uint32_t f = 0; f < m->options.fields; f++)
        table_warm(&m->tables[f], c->in->ids[f], c->in->rows, c->steps[0]);
}

static void learn(struct model *m, struct call *c)
{
    if (m->train != NULL) {
        model_train_learn(m, c);
    } else if (m->plain != NULL) {
        warm(m, c);
        linear_learn_plain(m, c);
    } else if (vectors_are_plain(m)) {
        vectors_learn_plain(m, c);
    } else {
        (m->head.layers > 0 ? blocks_learn : learn_single)(m, c);
    }
    kernels_count(&m->calls, m->k);
}

void model_learn(struct model *m, const struct model_input *input, struct model_output *out)
{
    leat_assert(input->rows <= MODEL_ROWS_MAX);
    struct call c = {.in = input, .out = out, .correction = model_correction(&m->options)};
    judge(m, &c);
    if (!m->options.is_centered) {
        learn(m, &c);
        return;
    }
    struct model_input centered = *input;
    float labels[MODEL_ROWS_MAX];
    double biases[MODEL_ROWS_MAX];
    center(m, &c, labels, biases);
    centered.labels = labels;
    c.in = &centered;
    learn(m, &c);
    for (uint32_t i = 0; i < input->rows; i++)
        out->logits[i] += biases[i];
}
