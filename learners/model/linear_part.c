/*
 * The linear part of a model. Its weights lie in rows all over memory: an event's weights are gathered into
 * one array, so that one kernel call computes or updates all of them, and scattered back.
 */
#include "learners/model/internal.h"

#include "core/base.h"

#include <math.h>

/* Most weights of an event: entries, dense features and the bias, rounded up to a multiple of 16. */
size_t linear_lanes(const struct model *m)
{
    return ((size_t)m->entries_max + m->options.dense + 1 + 15) / 16 * 16;
}

void linear_init_payload(const struct model *m, void *payload)
{
    if (m->options.linear_is_double) {
        memset(payload, 0, LINEAR_BYTES);
        return;
    }
    const struct optimizer_options *o = &m->options.linear;
    float *w = payload;
    size_t state = opt_state_floats(o->kind, 1);
    w[0] = 0.0F;
    for (size_t i = 0; i < state; i++)
        w[1 + i] = opt_state_init(o->kind, o->accumulator);
}

/* Sets e->places, where each weight of the event lies, and e->values, its input; an entry without a row
 * gets input 0. Returns the number of weights. */
static size_t linear_places(struct model *m, struct example *e)
{
    size_t used = 0;
    for (uint32_t i = 0; i < e->entries; i++, used++) {
        bool is_there = e->rows[i] != NULL;
        e->places[used] = is_there ? (void *)table_payload(e->rows[i]) : (void *)m->absent;
        e->values[used] = is_there ? e->scales[i] : 0.0F;
    }
    for (uint32_t d = 0; d < m->options.dense; d++, used++) {
        e->places[used] = m->dense_weights + d * LINEAR_FLOATS;
        e->values[used] = e->dense[d];
    }
    e->places[used] = m->dense_weights + m->options.dense * LINEAR_FLOATS;
    e->values[used++] = 1.0F;
    return used;
}

static double forward64(struct model *m, struct example *e, size_t used)
{
    size_t lanes = linear_lanes(m);
    double *w = e->weights64, *z = w + lanes, *sums = z + lanes;
    for (size_t i = 0; i < used; i++) {
        const double *place = e->places[i];
        z[i] = place[0];
        sums[i] = place[1];
    }
    m->k->ftrl64_weights(w, z, sums, used, &m->options.ftrl);
    double logit = 0.0;
    for (size_t i = 0; i < used; i++)
        logit += w[i] * (double)e->values[i];
    return logit + (double)m->options.bias;
}

/* Returns the linear part of the logit. With `whole` = the number of weights, rounded up to a multiple of 16,
 * fills e->weights in the optimizers' layout: [0, whole) the weights, [whole, 2 * whole) the first float of
 * each weight's state, and so on. Places that fill up a multiple of 16 have weight and input 0. For linear
 * weights in double it fills e->weights64 instead. */
double linear_forward(struct model *m, struct example *e)
{
    size_t used = linear_places(m, e);
    if (m->options.linear_is_double)
        return forward64(m, e, used);
    size_t whole = (used + 15) / 16 * 16, states = m->linear_states;
    float *w = e->weights;
    for (size_t i = 0; i < used; i++)
        w[i] = *(const float *)e->places[i];
    for (size_t i = used; i < whole; i++)
        w[i] = e->values[i] = 0.0F;
    for (size_t s = 1; s <= states; s++) {
        for (size_t i = 0; i < used; i++)
            w[s * whole + i] = ((const float *)e->places[i])[s];
        for (size_t i = used; i < whole; i++)
            w[s * whole + i] = 1.0F;
    }
    return (double)m->k->dot(w, e->values, whole) + (double)m->options.bias;
}

float linear_variance(struct model *m, const struct example *e)
{
    if (m->options.linear_is_double || m->options.linear.kind != OPT_NEWTON)
        return 0.0F;
    size_t whole = ((size_t)e->entries + m->options.dense + 1 + 15) / 16 * 16;
    struct opt_row row = {.w = e->weights, .state = e->weights + whole, .g = e->values};
    return m->k->newton_variance(&row, 1, whole);
}

static void update64(struct model *m, struct example *e, size_t used, double gradient)
{
    size_t lanes = linear_lanes(m);
    double *w = e->weights64, *z = w + lanes, *sums = z + lanes, *g = sums + lanes;
    for (size_t i = 0; i < used; i++)
        g[i] = gradient * (double)e->values[i];
    m->k->ftrl64_update(z, sums, w, g, used, &m->options.ftrl);
    for (size_t i = 0; i < used; i++) {
        double *place = e->places[i];
        place[0] = z[i], place[1] = sums[i];
    }
}

void linear_update(struct model *m, struct example *e, double gradient, float curvature)
{
    size_t used = (size_t)e->entries + m->options.dense + 1;
    if (m->options.linear_is_double) {
        update64(m, e, used, gradient);
        return;
    }
    float *w = e->weights;
    size_t whole = (used + 15) / 16 * 16;
    struct opt_row row = {
        .w = w, .state = w + whole, .g = e->values, .scale = (float)gradient, .curvature = curvature};
    m->linear_step(&row, 1, whole, &m->options.linear.params);
    for (size_t s = 0; s <= m->linear_states; s++) {
        for (size_t i = 0; i < used; i++)
            ((float *)e->places[i])[s] = w[s * whole + i];
    }
}

void linear_move_dense(struct model *m, float *w, size_t whole, bool is_in)
{
    for (size_t d = 0; d <= m->options.dense; d++, w++) {
        float *place = m->dense_weights + d * LINEAR_FLOATS;
        if (is_in)
            w[0] = place[0], w[whole] = place[1];
        else
            place[0] = w[0], place[1] = w[whole];
    }
}
