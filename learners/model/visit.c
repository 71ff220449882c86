/* Shows a model: the weights that predict, without optimizer state, for `leat model` (core/learner.h), and
 * all that is stored for a key, for `leat state get`. */
#include "core/describe.h"
#include "core/learner.h"
#include "core/mem.h"
#include "learners/model/internal.h"
#include "learners/tables/cold.h"

#include <stdio.h>
#include <stdlib.h>

enum { LANES = 16 };

/* Returns the linear weight of a payload; FTRL stores sums, from which the weight is computed. */
static float linear_weight(const struct model *m, const void *payload)
{
    if (!m->options.linear_is_double)
        return *(const float *)payload;
    const double *stored = payload;
    double w[LANES] = {0}, z[LANES] = {stored[0]}, sums[LANES] = {stored[1]};
    m->k->ftrl64_weights(w, z, sums, 1, &m->options.ftrl);
    return (float)w[0];
}

static bool visit_dense(struct model *m, struct model_visitor *v)
{
    size_t count;
    (void)model_dense_weights(m, &count); /* reads the weights that the last step left */
    count /= LINEAR_FLOATS;
    float *weights = mem_calloc(count, sizeof(*weights));
    for (size_t i = 0; i < count; i++)
        weights[i] = linear_weight(m, m->dense_weights + i * LINEAR_FLOATS);
    weights[count - 1] = (float)((double)weights[count - 1] + model_bias(m));
    bool is_good = v->tensor(v->argument, "dense.weights", weights, 1, count);
    free(weights);
    for (size_t l = 0; l < model_layers(m) && is_good; l++) {
        size_t n, d;
        model_layer_shape(m, l, &n, &d);
        float *floats = mem_alloc(model_layer_floats(m, l) * sizeof(*floats));
        model_layer_get(m, MODEL_LAYERS_OWN, l, floats);
        char name[64];
        snprintf(name, sizeof(name), "hidden.%zu.weights", l);
        is_good = v->tensor(v->argument, name, floats, n, d);
        snprintf(name, sizeof(name), "hidden.%zu.bias", l);
        is_good = is_good && v->tensor(v->argument, name, floats + n * d, 1, n);
        free(floats);
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
    visit.weights = mem_calloc(visit.dim, sizeof(*visit.weights));
    bool is_good = table_visit(table, count_row, &visit) &&
                   v->table(v->argument, name, visit.dim, visit.count) &&
                   table_visit(table, visit_row, &visit);
    free(visit.weights);
    return is_good;
}

bool model_visit_weights(struct model *m, const char *const *names, struct model_visitor *v)
{
    bool is_good = visit_dense(m, v);
    for (uint32_t f = 0; f < m->options.fields && is_good; f++)
        is_good = visit_table(m, f, names[f], f < m->options.vectors, v);
    return is_good;
}

/* --- One row --- */

static void describe_floats(struct describe *out, const char *name, const float *values, size_t count)
{
    if (count == 0)
        return;
    describe_list(out, name);
    for (size_t i = 0; i < count; i++)
        describe_float32(out, NULL, values[i]);
    describe_close(out);
}

static void describe_row(const struct model *m, uint32_t field, struct table_row *row, struct describe *out)
{
    const float *payload = table_payload(row);
    describe_int(out, "occurrences", row->count);
    describe_time(out, "last_seen", (int64_t)row->seen * US_PER_SECOND);
    describe_float32(out, "weight", linear_weight(m, payload));
    if (m->options.linear_is_double) {
        describe_float(out, "ftrl_z", ((const double *)(const void *)payload)[0]);
        describe_float(out, "ftrl_n", ((const double *)(const void *)payload)[1]);
    } else {
        describe_floats(out, "weight_state", payload + 1, m->linear_states);
    }
    if (field >= m->options.vectors)
        return;
    describe_floats(out, "vector", model_vector(m, row), m->vector_floats);
    describe_floats(out, "vector_state", model_vector_state(m, row),
                    opt_state_floats(m->options.embedding.kind, m->vector_floats));
}

bool model_describe(struct model *m, uint32_t field, uint64_t key, struct describe *out)
{
    struct table *t = &m->tables[field];
    table_guests_begin(t); /* a row that is cold stays so */
    table_warm(t, &key, 1, (uint32_t)m->steps + 1);
    struct table_row *row = table_find(t, key);
    if (row == NULL)
        row = table_guest(t, key);
    if (row != NULL)
        describe_row(m, field, row, out);
    table_guests_end(t);
    if (row != NULL)
        return true;
    unsigned occurrences = t->sketch.counts == NULL ? 0 : sketch_count(&t->sketch, table_hash(t, key));
    if (occurrences == 0)
        return false;
    describe_int(out, "occurrences", occurrences);
    describe_int(out, "admit_after", m->options.admit_after);
    return true;
}
