/* One event: its rows, its prediction, and the step of its weights. */
#include "learners/model/internal.h"
#include "learners/tables/inline.h"

#include "core/base.h"
#include "core/mem.h"

#include <math.h>

void model_example_label(const struct model *m, struct example *e, const struct call *c, uint32_t i)
{
    e->label = c->in->labels[i];
    e->learns = c->learns[i];
    e->is_rejected = c->out->verdicts[i] == MODEL_REJECTED;
    e->weight = c->in->weights != NULL ? c->in->weights[i] : 1.0F;
    if (m->options.loss == LOSS_LOGISTIC)
        e->weight *= m->options.class_weights[e->label > 0.5F];
}

struct table_row *model_possible_row(struct model *m, struct example *e, uint32_t entry, uint32_t field,
                                     uint64_t key)
{
    if (e->possible == NULL)
        e->possible = mem_aligned(LINE_BYTES, m->possible_bytes * m->entries_max);
    struct table_row *row = (struct table_row *)(void *)(e->possible + entry * m->possible_bytes);
    table_make_possible(&m->tables[field], key, row);
    return row;
}

void model_example_fill(struct model *m, struct example *e, const struct call *c, uint32_t i)
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
            if (unlikely(e->rows[n] == &table_possible))
                e->rows[n] = model_possible_row(m, e, n, f, e->keys[n]);
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

void model_step_begin(struct model *m)
{
    optimizer_begin_step(&m->options.linear, m->steps);
    optimizer_begin_step(&m->options.embedding, m->steps);
    optimizer_begin_step(&m->options.head, m->steps);
    optimizer_begin_step(&m->options.pairs, m->steps);
}

void model_example_update(struct model *m, struct example *e)
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
