/*
 * Events of a model with dense layers (head.c), sixteen at a time: one step of the layers for a block of events,
 * then one step of each event's rows. An event is predicted with the weights that the last finished block
 * left.
 */
#include "learners/model/internal.h"
#include "learners/tables/inline.h"

#include "core/base.h"

/* For each example of the block (learned), and each that is only predicted (scored), the event's number in
 * this call; -1: the event came in an earlier call. */
struct origins {
    int32_t learned[KERNELS_BLOCK];
    int32_t scored[KERNELS_BLOCK];
    uint32_t scored_count;
};

static void head_inputs(struct model *m, const struct example *e, float *row)
{
    if (m->options.interaction != NULL)
        m->options.interaction->read(m, e, row);
    memcpy(row + m->head.inputs - m->options.dense, e->dense, m->options.dense * sizeof(*row));
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

void blocks_learn(struct model *m, struct call *c)
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
        model_example_fill(m, e, c, i);
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

void blocks_predict(struct model *m, struct call *c)
{
    struct origins o = {.scored_count = 0};
    for (uint32_t i = 0; i < c->in->rows; i++) {
        struct example *e = &m->examples[m->options.block + o.scored_count];
        model_example_fill(m, e, c, i);
        model_example_forward(m, e);
        o.scored[o.scored_count++] = (int32_t)i;
        if (o.scored_count == KERNELS_BLOCK)
            flush_scored(m, c, &o);
    }
    flush_scored(m, c, &o);
}
