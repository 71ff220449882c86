/* The field-aware factorization machine (Juan 2016, eq. 4): an id has a vector for each other field, and the
 * product of a pair is that of the two vectors for each other's field. */
#include "learners/model/internal.h"

#include "core/base.h"

static uint32_t ffm_floats(uint32_t fields, uint32_t dim)
{
    return (uint32_t)FFM_ROUND(fields) * dim;
}

static size_t ffm_inputs(uint32_t fields, uint32_t dim)
{
    (void)dim;
    return (size_t)fields * (fields - 1) / 2;
}

/* Dense layers and weights of pairs need each pair's product. */
static float ffm_forward(struct model *m, struct example *e)
{
    size_t n = m->options.vectors, d = m->options.dim;
    if (m->head.layers == 0 && !m->has_pairs)
        return m->k->ffm_forward(e->partners, e->vectors, m->zero, n, d);
    m->k->ffm_pairs_forward(e->products, e->partners, e->vectors, m->zero, n, d);
    float total = 0.0F;
    const float *weight = m->pair_weights;
    for (size_t f = 0; f < n; f++) {
        const float *row = e->products + f * m->blocks;
        for (size_t g = f + 1; g < n; g++)
            total += m->has_pairs ? *weight++ * row[g] : row[g];
    }
    return total;
}

/* Dense layers read the products of pairs. */
static void ffm_read(const struct model *m, const struct example *e, float *inputs)
{
    uint32_t n = m->options.vectors;
    for (uint32_t f = 0; f < n; f++, inputs += n - f)
        memcpy(inputs, e->products + (size_t)f * m->blocks + f + 1, (n - f - 1) * sizeof(*inputs));
}

static void ffm_add(struct model *m, struct example *e, const float *input_gradients)
{
    uint32_t n = m->options.vectors;
    float *scales = e->products;
    if (m->has_pairs) {
        interaction_pairs_step(m, e, m->pair_scales);
        scales = m->pair_scales;
    }
    for (uint32_t f = 0; f < n; f++) {
        for (uint32_t g = f + 1; g < n; g++, input_gradients++) {
            float weight = m->has_pairs ? scales[f * m->blocks + g] : 1.0F;
            scales[f * m->blocks + g] = scales[g * m->blocks + f] = weight * e->gradient + *input_gradients;
        }
    }
    m->k->ffm_pairs_backward(e->partners, scales, n, m->options.dim);
}

static void ffm_weigh(struct model *m, struct example *e)
{
    m->k->ffm_pairs_backward(e->partners, m->pair_scales, m->options.vectors, m->options.dim);
}

static void ffm_batch(const struct batch_kernels *kernels, struct batch_interaction *a, void *stream)
{
    kernels->ffm(a, stream);
}

const struct interaction interaction_ffm = {
    .name = "ffm",
    .floats = ffm_floats,
    .inputs = ffm_inputs,
    .forward = ffm_forward,
    .read = ffm_read,
    .add = ffm_add,
    .weigh = ffm_weigh,
    .batch = ffm_batch,
    .is_field_aware = true,
};
