/*
 * The field-weighted factorization machine (Pan 2018, "Field-weighted Factorization Machines", eq. 4):
 *
 *   sum over pairs f < g of r_fg <v_f, v_g>
 *
 * An id has one vector for all other features, so that all its sightings teach the same few weights; r says
 * which pairs count, and how much. Pairs that are off have r = 0 for good and cost nothing.
 */
#include "learners/model/internal.h"

#include "core/base.h"

static void add_scaled(float *to, const float *from, float scale, size_t d)
{
    for (size_t i = 0; i < d; i++)
        to[i] += scale * from[i];
}

float interaction_weighted_forward(struct model *m, struct example *e)
{
    size_t n = m->options.vectors, d = m->options.dim;
    float *gradients = e->partners + d, total = 0.0F;
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
