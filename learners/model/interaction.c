/* The vectors of an event: pooled before their interaction (fm_part.c, ffm_part.c), and their step after it. */
#include "learners/model/internal.h"

#include "core/base.h"

/* Points e->vectors[f] at field f's vector: in its row, or, for a list of several ids, at the mean of their
 * rows' vectors; at zeros if there is no row. */
void interaction_pool(struct model *m, struct example *e)
{
    uint32_t i = 0;
    for (uint32_t f = 0; f < m->options.vectors; f++) {
        uint32_t first = i;
        const float *list[MODEL_LIST_MAX];
        size_t count = 0;
        for (; i < e->entries && e->fields[i] == f; i++) {
            if (e->rows[i] != NULL && count < ARRAY_COUNT(list))
                list[count++] = model_vector(m, e->rows[i]);
        }
        e->vectors[f] = count == 0 ? m->zero : list[0];
        if (count > 0 && i - first > 1) {
            float *pooled = e->pooled + (size_t)f * m->vector_floats;
            m->k->pool_mean(pooled, list, count, m->vector_floats);
            e->vectors[f] = pooled;
        }
    }
    for (uint32_t f = m->options.vectors; f < m->blocks; f++)
        e->vectors[f] = m->zero;
}

size_t interaction_pairs(const struct model *m)
{
    return FFM_ROUND((size_t)m->options.vectors * (m->options.vectors - 1) / 2);
}

/* One step of the pairs' weights, whose gradient is the pair's product; `scales` gets the weights
 * before the step. */
void interaction_pairs_step(struct model *m, struct example *e, float *scales)
{
    size_t n = m->options.vectors, pair = 0, count = interaction_pairs(m);
    memset(m->pair_gradients, 0, count * sizeof(*m->pair_gradients));
    for (size_t f = 0; f < n; f++) {
        for (size_t g = f + 1; g < n; g++, pair++) {
            m->pair_gradients[pair] = m->options.pair_is_off[pair] ? 0.0F : e->products[f * m->blocks + g];
            scales[f * m->blocks + g] = scales[g * m->blocks + f] = m->pair_weights[pair];
        }
    }
    struct opt_row row = {.w = m->pair_weights,
                          .state = m->pair_weights + count,
                          .g = m->pair_gradients,
                          .scale = e->gradient,
                          .curvature = e->curvature};
    opt_pick(m->k, m->options.pairs.kind)(&row, 1, count, &m->options.pairs.params);
}

/* Fills m->opt_rows for the event's vectors; returns how many. */
static size_t vector_rows(struct model *m, const struct example *e, float gradient, float curvature)
{
    size_t count = 0;
    for (uint32_t i = 0; i < e->entries; i++) {
        if (e->fields[i] >= m->options.vectors)
            break;
        if (e->rows[i] == NULL)
            continue;
        float scale = e->scales[i];
        m->opt_rows[count++] = (struct opt_row){
            .w = model_vector(m, e->rows[i]),
            .state = model_vector_state(m, e->rows[i]),
            .g = interaction_gradient(m, e, e->fields[i]),
            .scale = gradient * scale,
            .curvature = curvature * scale * scale,
        };
    }
    return count;
}

float interaction_variance(struct model *m, const struct example *e)
{
    if (m->options.embedding.kind != OPT_NEWTON || m->vector_floats == 0)
        return 0.0F;
    return m->k->newton_variance(m->opt_rows, vector_rows(m, e, 1.0F, 1.0F), m->vector_floats);
}

void interaction_learn_pairs(struct model *m, struct example *e)
{
    if (m->has_pairs && m->head.layers == 0) { /* with a head, the interaction's `add` does this */
        interaction_pairs_step(m, e, m->pair_scales);
        if (m->options.interaction->weigh != NULL)
            m->options.interaction->weigh(m, e);
    }
}

void interaction_update(struct model *m, struct example *e, float gradient, float curvature)
{
    size_t count = vector_rows(m, e, gradient, curvature);
    m->embedding_step(m->opt_rows, count, m->vector_floats, &m->options.embedding.params);
}
