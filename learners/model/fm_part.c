/* The factorization machine (Rendle 2010, eq. 5): an id has one vector, and the products of all pairs are
 * summed. */
#include "learners/model/internal.h"

#include "core/base.h"

static uint32_t fm_floats(uint32_t fields, uint32_t dim)
{
    (void)fields;
    return dim;
}

static size_t fm_inputs(uint32_t fields, uint32_t dim)
{
    return (size_t)fields * dim;
}

static void add_scaled(float *to, const float *from, float scale, size_t d)
{
    for (size_t i = 0; i < d; i++)
        to[i] += scale * from[i];
}

/*
 * The field-weighted factorization machine (Pan 2018, "Field-weighted Factorization Machines", eq. 4):
 *
 *   sum over pairs f < g of r_fg <v_f, v_g>
 *
 * An id has one vector for all other features, so that all its occurrences teach the same few weights; r says
 * which pairs count, and how much. Pairs that are off have r = 0 for good and cost nothing. Computes the
 * gradients, too.
 */
static float weighted_forward(struct model *m, struct example *e)
{
    size_t n = m->options.vectors, d = m->options.dim;
    float *gradients = e->partners, total = 0.0F;
    memset(gradients, 0, n * d * sizeof(*gradients));
    for (size_t f = 0, pair = 0; f < n; f++) {
        for (size_t g = f + 1; g < n; g++, pair++) {
            if (m->options.pair_is_off[pair])
                continue;
            float weight = m->pair_weights[pair], product = m->k->dot(e->vectors[f], e->vectors[g], d);
            e->products[f * m->blocks + g] = product;
            total += weight * product;
            add_scaled(gradients + f * d, e->vectors[g], weight, d);
            add_scaled(gradients + g * d, e->vectors[f], weight, d);
        }
    }
    return total;
}

static float fm_forward(struct model *m, struct example *e)
{
    size_t n = m->options.vectors, d = m->options.dim;
    if (m->has_pairs)
        return weighted_forward(m, e);
    float *sum = e->partners + n * d;
    float value = m->k->fm_forward(sum, e->vectors, n, d);
    m->k->fm_backward(e->partners, sum, e->vectors, n, d);
    return value;
}

/* Dense layers read the vectors. */
static void fm_read(const struct model *m, const struct example *e, float *inputs)
{
    for (uint32_t f = 0; f < m->options.vectors; f++, inputs += m->options.dim)
        memcpy(inputs, e->vectors[f], m->options.dim * sizeof(*inputs));
}

static void fm_add(struct model *m, struct example *e, const float *input_gradients)
{
    m->k->blend(e->partners, input_gradients, e->gradient, (size_t)m->options.vectors * m->options.dim);
}

static void fm_batch(const struct batch_kernels *kernels, struct batch_interaction *a, void *stream)
{
    kernels->fm(a, stream);
}

const struct interaction interaction_fm = {
    .name = "fm",
    .floats = fm_floats,
    .inputs = fm_inputs,
    .forward = fm_forward,
    .read = fm_read,
    .add = fm_add,
    .batch = fm_batch,
};
