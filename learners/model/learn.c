/* The training step: predicts, then learns, an event or a block of events at a time. */
#include "learners/model/internal.h"
#include "learners/tables/cold.h"
#include "learners/tables/inline.h"
#include "learners/train/train.h"

#include "core/base.h"

#include <math.h>
#include <stdlib.h>

/* For each example of the block (learned), and each that is only predicted (scored), the event's number in
 * this call; -1: the event came in an earlier call. */
struct origins {
    int32_t learned[KERNELS_BLOCK];
    int32_t scored[KERNELS_BLOCK];
    uint32_t scored_count;
};

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

void model_example_label(const struct model *m, struct example *e, const struct call *c, uint32_t i)
{
    e->label = c->in->labels[i];
    e->learns = c->learns[i];
    e->is_rejected = c->out->verdicts[i] == MODEL_REJECTED;
    e->weight = c->in->weights != NULL ? c->in->weights[i] : 1.0F;
    if (m->options.loss == LOSS_LOGISTIC)
        e->weight *= m->options.class_weights[e->label > 0.5F];
}

static void example_fill(struct model *m, struct example *e, const struct call *c, uint32_t i)
{
    const struct model_input *in = c->in;
    uint32_t n = 0;
    for (uint32_t f = 0; f < m->options.fields; f++) {
        const uint32_t *offsets = m->options.is_list[f] ? in->offsets[f] : NULL;
        uint32_t first = offsets ? offsets[i] - offsets[0] : i;
        uint32_t count = offsets ? MIN(offsets[i + 1] - offsets[i], model_field_ids(&m->options, f)) : 1;
        const uint64_t *ids = in->ids[f] + (offsets ? offsets[0] : 0);
        for (uint32_t k = 0; k < count; k++, n++) {
            e->keys[n] = ids[first + k];
            e->rows[n] = m->resolved[f][first + k];
            e->fields[n] = (uint16_t)f;
            e->scales[n] = 1.0F / (float)count;
        }
        if (offsets == NULL && m->ahead.call == c)
            lookahead_touch(m, c, f, i);
    }
    e->entries = n;
    e->seen = c->seen[i];
    for (uint32_t d = 0; d < m->options.dense; d++)
        e->dense[d] = in->dense[d][i];
    model_example_label(m, e, c, i);
}

/* The logit without the head. */
void model_example_forward(struct model *m, struct example *e)
{
    e->logit = linear_forward(m, e);
    if (m->vector_floats == 0)
        return;
    interaction_pool(m, e);
    e->interaction = m->options.interaction->forward(m, e);
    e->logit += (double)e->interaction;
}

/* Sets `gradient` and `curvature`, the derivatives by the logit; the event is rejected if logit or `gradient`
 * is not finite. */
void model_example_judge(struct model *m, struct example *e)
{
    struct loss_point at = loss_at(m->options.loss, e->logit, (double)e->label);
    double weight = (double)e->weight;
    if (m->options.has_fake_negatives)
        weight *= loss_fake_negative_weight(at.prediction, (double)e->label);
    double gradient = at.gradient * weight;
    e->is_rejected = e->is_rejected || !isfinite(e->logit) || !isfinite(gradient);
    e->gradient_exact = e->is_rejected ? 0.0 : gradient;
    e->gradient = (float)e->gradient_exact;
    e->curvature = e->is_rejected ? 0.0F : (float)(at.curvature * weight);
}

void model_output(const struct call *c, const struct example *e, int32_t event)
{
    if (event < 0)
        return;
    c->out->logits[event] = e->is_rejected ? (double)NAN : e->logit + c->correction;
    if (e->is_rejected)
        c->out->verdicts[event] = MODEL_REJECTED;
}

/* Returns the factor, at most 1, by which the event's gradient is multiplied so that its norm over all
 * weights is at most clip_norm. */
static float clip_scale(struct model *m, const struct example *e)
{
    float squares = 1.0F;
    for (uint32_t i = 0; i < e->entries; i++)
        squares += e->rows[i] != NULL ? e->scales[i] * e->scales[i] : 0.0F;
    squares += m->k->sum_squares(e->dense, m->options.dense);
    for (uint32_t f = 0; f < m->options.vectors; f++)
        squares += m->k->sum_squares(interaction_gradient(m, e, f), m->vector_floats);
    float norm = fabsf(e->gradient) * sqrtf(squares);
    return norm > m->options.clip_norm ? m->options.clip_norm / norm : 1.0F;
}

static void scale_gradient(struct example *e, float scale)
{
    e->gradient_exact *= (double)scale;
    e->gradient = (float)e->gradient_exact;
}

/*
 * With newton's independent steps each of an event's weights would make up for the whole error. Kalman's gain
 * shares it: `gradient` and `curvature` shrink by 1 + curvature * variance of the logit.
 */
static void joint_gain(struct model *m, struct example *e)
{
    float variance = linear_variance(m, e) + interaction_variance(m, e);
    float gain = 1.0F / (1.0F + e->curvature * variance);
    scale_gradient(e, gain);
    e->curvature *= gain;
}

/* Sets Adam's bias corrections for the step after `step` steps: they depend on this number alone, so
 * checkpoints need no state for them. */
static void correct_adam(struct optimizer_options *o, uint64_t step)
{
    if (o->kind != OPT_ADAM)
        return;
    double power[2] = {1.0, 1.0}, base[2] = {(double)o->params.beta1, (double)o->params.beta2};
    for (uint64_t t = step + 1; t > 0; t >>= 1) {
        for (int i = 0; i < 2; i++) {
            power[i] *= t & 1 ? base[i] : 1.0;
            base[i] *= base[i];
        }
    }
    o->params.correction1 = (float)(1.0 / (1.0 - power[0]));
    o->params.correction2 = (float)(1.0 / (1.0 - power[1]));
}

void model_step_begin(struct model *m)
{
    correct_adam(&m->options.linear, m->steps);
    correct_adam(&m->options.embedding, m->steps);
    correct_adam(&m->options.head, m->steps);
    correct_adam(&m->options.pairs, m->steps);
}

static void example_update(struct model *m, struct example *e)
{
    if (m->options.clip_norm > 0.0F)
        scale_gradient(e, clip_scale(m, e));
    interaction_learn_pairs(m, e);
    if (m->options.is_joint)
        joint_gain(m, e);
    linear_update(m, e, e->gradient_exact, e->curvature);
    if (m->vector_floats > 0)
        interaction_update(m, e, e->gradient, e->curvature);
}

static void learn_single(struct model *m, struct call *c)
{
    struct example *e = &m->examples[0];
    lookahead_begin(m, c);
    for (uint32_t i = 0; i < c->in->rows; i++) {
        lookahead_rows(m, c, i);
        example_fill(m, e, c, i);
        model_example_forward(m, e);
        model_example_judge(m, e);
        model_output(c, e, (int32_t)i);
        if (!e->learns)
            continue;
        model_step_begin(m);
        m->steps++;
        if (!e->is_rejected)
            example_update(m, e);
    }
    lookahead_end(m);
}

static void head_inputs(struct model *m, const struct example *e, float *row)
{
    size_t sparse = interaction_inputs(m, m->options.vectors);
    if (m->options.interaction != NULL)
        m->options.interaction->read(m, e, row);
    memcpy(row + sparse, e->dense, m->options.dense * sizeof(*row));
}

/* Adds the head's logits to `count` examples and writes their predictions out. */
static void block_predict(struct model *m, struct call *c, struct example *examples, uint32_t count,
                          const int32_t *events)
{
    for (uint32_t i = 0; i < count; i++)
        head_inputs(m, &examples[i], head_row(&m->head, i));
    const float *logits = head_forward(&m->head, m->k, count);
    for (uint32_t i = 0; i < count; i++) {
        struct example *e = &examples[i];
        double shallow = e->logit;
        e->logit += (double)logits[i];
        model_example_judge(m, e);
        model_output(c, e, events[i]);
        if (!e->learns || count < m->options.block)
            e->logit = shallow; /* the event is predicted again when its block is full */
    }
}

static void block_learn(struct model *m, struct call *c, const int32_t *events)
{
    uint32_t count = m->options.block;
    float logit_gradients[KERNELS_BLOCK] = {0};
    model_step_begin(m);
    block_predict(m, c, m->examples, count, events);
    for (uint32_t i = 0; i < count; i++) {
        struct example *e = &m->examples[i];
        if (e->is_rejected) /* the event's inputs may be non-finite */
            memset(head_row(&m->head, i), 0, m->head.inputs * sizeof(float));
        logit_gradients[i] = e->gradient;
    }
    const float *in_gradients = head_backward(&m->head, m->k, logit_gradients);
    head_step(&m->head, m->k, &m->options.head.params, m->options.clip_norm);
    for (uint32_t i = 0; i < count; i++) {
        struct example *e = &m->examples[i];
        if (e->is_rejected)
            continue;
        if (m->options.interaction != NULL)
            m->options.interaction->add(m, e, in_gradients + i * m->head.inputs);
        if (i > 0) /* earlier events of the block have changed these weights: gather them again */
            (void)linear_forward(m, e);
        linear_update(m, e, e->gradient_exact, e->curvature);
        /* the gradients by the vectors contain the gradient by the logit already */
        float curvature = e->gradient != 0.0F ? e->curvature / (e->gradient * e->gradient) : 0.0F;
        interaction_update(m, e, 1.0F, curvature);
    }
    m->pending = 0;
    m->steps++;
}

static void flush_scored(struct model *m, struct call *c, struct origins *o)
{
    if (o->scored_count > 0)
        block_predict(m, c, m->examples + m->options.block, o->scored_count, o->scored);
    o->scored_count = 0;
}

/* Marks the rows of pending events of earlier calls as changed: a checkpoint may lie in between, and this
 * block's step will change the rows. */
static void touch_pending(struct model *m)
{
    for (uint32_t i = 0; i < m->pending; i++) {
        const struct example *e = &m->examples[i];
        for (uint32_t k = 0; k < e->entries; k++)
            if (e->rows[k] != NULL && e->rows[k]->epoch != m->tables[e->fields[k]].epoch)
                table_mark_changed(&m->tables[e->fields[k]], e->rows[k]);
    }
}

static void learn_blocks(struct model *m, struct call *c)
{
    struct origins o = {.scored_count = 0};
    touch_pending(m);
    for (uint32_t i = 0; i < m->pending; i++)
        o.learned[i] = -1;
    lookahead_begin(m, c);
    for (uint32_t i = 0; i < c->in->rows; i++) {
        lookahead_rows(m, c, i);
        uint32_t slot = c->learns[i] ? m->pending : m->options.block + o.scored_count;
        struct example *e = &m->examples[slot];
        example_fill(m, e, c, i);
        model_example_forward(m, e);
        if (!e->learns) {
            o.scored[o.scored_count++] = (int32_t)i;
            if (o.scored_count == KERNELS_BLOCK)
                flush_scored(m, c, &o);
            continue;
        }
        o.learned[m->pending++] = (int32_t)i;
        if (m->pending == m->options.block) {
            flush_scored(m, c, &o);
            block_learn(m, c, o.learned);
        }
    }
    lookahead_end(m);
    flush_scored(m, c, &o);
    if (m->pending > 0)
        block_predict(m, c, m->examples, m->pending, o.learned);
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
    if (m->train != NULL) {
        model_train_predict(m, &c);
        kernels_count(&m->calls, m->k);
        return;
    }
    lookahead_resolve(m, &c);
    struct origins o = {.scored_count = 0};
    for (uint32_t i = 0; i < in.rows; i++) {
        struct example *e = &m->examples[m->options.block + o.scored_count];
        example_fill(m, e, &c, i);
        model_example_forward(m, e);
        o.scored[o.scored_count++] = (int32_t)i;
        if (m->head.layers > 0) {
            if (o.scored_count == KERNELS_BLOCK)
                flush_scored(m, &c, &o);
            continue;
        }
        o.scored_count = 0;
        model_example_judge(m, e);
        model_output(&c, e, (int32_t)i);
    }
    flush_scored(m, &c, &o);
    kernels_count(&m->calls, m->k);
}

void model_predict(struct model *m, const struct model_input *input, double *logits)
{
    predict(m, input, logits);
    for (uint32_t i = 0; m->options.is_centered && i < input->rows; i++)
        logits[i] += model_bias(m);
}

/* Raises `seen` of the rows of events that learn (c->learns), in tables of the CPU. model_predict has already
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
    model_predict(m, input, out->logits);
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
        (m->head.layers > 0 ? learn_blocks : learn_single)(m, c);
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
