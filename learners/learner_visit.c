/* Shows a learner's model to `leat model` (core/learner.h): weights as they predict, without optimizer state.
 */
#include "learners/learner.h"
#include "learners/model_internal.h"
#include "learners/table_cold.h"

#include <stdio.h>
#include <stdlib.h>

enum { LANES = 16 };

/* The linear weight of a payload; FTRL keeps sums from which it follows. */
static float linear_weight(const struct model *m, const void *payload)
{
    if (!m->options.linear_is_double)
        return *(const float *)payload;
    const double *stored = payload;
    double w[LANES] = {0}, z[LANES] = {stored[0]}, sums[LANES] = {stored[1]};
    m->k->ftrl64_weights(w, z, sums, 1, &m->options.ftrl);
    return (float)w[0];
}

static const char *column_name(struct arena *arena, const struct schema *schema, int column)
{
    struct str name = schema->fields[column].name;
    return arena_strndup(arena, name.data, name.length);
}

static bool visit_dense(struct model *m, struct model_visitor *v)
{
    size_t count = (size_t)m->options.dense + 1;
    float *weights = calloc(count, sizeof(*weights));
    leat_assert(weights != NULL);
    for (size_t i = 0; i < count; i++)
        weights[i] = linear_weight(m, m->dense_weights + i * LINEAR_FLOATS);
    weights[count - 1] += m->options.bias;
    bool is_good = v->tensor(v->argument, "dense.weights", weights, 1, count);
    free(weights);
    const struct head *head = &m->head;
    for (size_t l = 0; l < head->layers && is_good; l++) {
        const struct head_layer *layer = &head->items[l];
        char name[64];
        snprintf(name, sizeof(name), "hidden.%zu.weights", l);
        is_good = v->tensor(v->argument, name, layer->weights, layer->n, layer->d);
        snprintf(name, sizeof(name), "hidden.%zu.bias", l);
        is_good = is_good && v->tensor(v->argument, name, layer->weights + layer->n * layer->d, 1, layer->n);
    }
    size_t fields = m->options.vectors;
    if (is_good && m->has_pairs && fields > 1)
        is_good = v->tensor(v->argument, "pairs", m->pair_weights, 1, fields * (fields - 1) / 2);
    return is_good;
}

struct row_visit {
    const struct model *model;
    struct model_visitor *visitor;
    size_t dim;
    float *weights;
    uint64_t count;
};

static bool count_row(void *argument, struct table_row *row)
{
    (void)row;
    ((struct row_visit *)argument)->count++;
    return true;
}

static bool visit_row(void *argument, struct table_row *row)
{
    const struct row_visit *r = argument;
    struct model_visitor *v = r->visitor;
    r->weights[0] = linear_weight(r->model, table_payload(row));
    if (r->dim > 1)
        memcpy(r->weights + 1, model_vector(r->model, row), (r->dim - 1) * sizeof(*r->weights));
    return v->row(v->argument, row->key, r->weights, row->count, (int64_t)row->seen * US_PER_SECOND);
}

static bool visit_table(struct model *m, uint32_t field, const char *name, bool has_vector,
                        struct model_visitor *v)
{
    const struct table *table = &m->tables[field];
    struct row_visit visit = {.model = m, .visitor = v, .dim = 1 + (has_vector ? m->vector_floats : 0)};
    visit.weights = calloc(visit.dim, sizeof(*visit.weights));
    leat_assert(visit.weights != NULL);
    bool is_good = table_visit(table, count_row, &visit) &&
                   v->table(v->argument, name, visit.dim, visit.count) &&
                   table_visit(table, visit_row, &visit);
    free(visit.weights);
    return is_good;
}

bool learner_visit(struct operator_context *context, struct model_visitor *v)
{
    struct learner_config *c = context->config;
    struct model *m = c->state->model;
    if (!visit_dense(m, v))
        return false;
    for (uint32_t f = 0; f < c->sparse_count; f++) {
        const char *name = column_name(context->scratch, c->input_schema, c->sparse_columns[f]);
        if (!visit_table(m, f, name, f < m->options.vectors, v))
            return false;
    }
    return true;
}
