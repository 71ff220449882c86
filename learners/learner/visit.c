/* Shows a learner's model to `leat model` (core/learner.h): the weights that predict, without
 * optimizer state. */
#include "core/describe.h"
#include "learners/learner/learner.h"
#include "learners/model/internal.h"
#include "learners/tables/cold.h"

#include <stdio.h>
#include <stdlib.h>

enum { LANES = 16 };

/* The linear weight in a payload; FTRL stores sums, from which the weight follows. */
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
    size_t count;
    (void)model_dense_weights(m, &count); /* reads the weights that the last step left */
    count /= LINEAR_FLOATS;
    float *weights = calloc(count, sizeof(*weights));
    leat_assert(weights != NULL);
    for (size_t i = 0; i < count; i++)
        weights[i] = linear_weight(m, m->dense_weights + i * LINEAR_FLOATS);
    weights[count - 1] = (float)((double)weights[count - 1] + model_bias(m));
    bool is_good = v->tensor(v->argument, "dense.weights", weights, 1, count);
    free(weights);
    for (size_t l = 0; l < model_layers(m) && is_good; l++) {
        size_t n, d;
        model_layer_shape(m, l, &n, &d);
        float *floats = malloc(model_layer_floats(m, l) * sizeof(*floats));
        leat_assert(floats != NULL);
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
    visit.weights = calloc(visit.dim, sizeof(*visit.weights));
    leat_assert(visit.weights != NULL);
    bool is_good = table_visit(table, count_row, &visit) &&
                   v->table(v->argument, name, visit.dim, visit.count) &&
                   table_visit(table, visit_row, &visit);
    free(visit.weights);
    return is_good;
}

bool learner_table(const void *config, uint32_t number, int *column)
{
    const struct learner_config *c = config;
    if (number >= c->sparse_count)
        return false;
    *column = c->sparse_columns[number];
    return true;
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

/* --- One row, for `leat state get` --- */

static const char *field_names(struct operator_context *context, const struct learner_config *c)
{
    const char *all = "";
    for (uint32_t f = 0; f < c->sparse_count; f++)
        all = arena_printf(context->scratch, "%s%s%s", all, f > 0 ? ", " : "",
                           column_name(context->scratch, c->input_schema, c->sparse_columns[f]));
    return all;
}

/* The field with the query's name; -1 after a diagnostic. */
static int query_field(struct operator_context *context, const struct learner_config *c,
                       const struct state_query *query)
{
    struct str name = query->count > 0 ? query->words[0] : (struct str){"", 0};
    for (uint32_t f = 0; f < c->sparse_count; f++)
        if (query->count == 2 && str_equal(c->input_schema->fields[c->sparse_columns[f]].name, name))
            return (int)f;
    struct diag *d = query->count == 2
                         ? diag_error(context->diags, DIAG_E1001, (struct span){0, 0},
                                      "the learner has no sparse feature `%.*s`", STR_ARGS(name))
                         : diag_error(context->diags, DIAG_E1001, (struct span){0, 0},
                                      "a learner is asked by the name of a feature and a value of it");
    diag_hint(context->diags, d, "it has: %s", field_names(context, c));
    return -1;
}

/* The key of the query's value, given as text; 0 after a diagnostic. For a list feature the text
 * is one element. */
static uint64_t query_key(struct operator_context *context, const struct learner_config *c, uint32_t field,
                          struct str word)
{
    const struct type *type = &c->input_schema->fields[c->sparse_columns[field]].type;
    const struct type *single = type->tag == TYPE_LIST ? type->element : type;
    struct schema *schema = schema_copy(context->scratch, &(struct schema){0}, 1);
    (void)schema_add(schema, STR("value"), *single);
    struct batch *batch = batch_new(context->pool, schema, 1);
    bool is_value = describe_parse(batch, &batch->columns[0], single, 0, word);
    uint64_t key = is_value ? learner_id(&batch->columns[0], 0) : 0;
    batch_release(batch);
    if (!is_value)
        diag_error(context->diags, DIAG_E1001, (struct span){0, 0}, "`%.*s` is no %s", STR_ARGS(word),
                   type_name(context->scratch, single));
    return key;
}

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
    describe_int(out, "sightings", row->count);
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

bool learner_describe(struct operator_context *context, struct state_query *query, struct describe *out)
{
    struct learner_config *c = context->config;
    struct model *m = c->state->model;
    int field = query_field(context, c, query);
    uint64_t key = field < 0 ? 0 : query_key(context, c, (uint32_t)field, query->words[1]);
    if (key == 0)
        return false;
    struct table *t = &m->tables[field];
    query->looked_for = arena_printf(context->scratch, "key %016llx", (unsigned long long)key);
    table_warm(t, &key, 1, (uint32_t)m->steps + 1);
    struct table_row *row = table_find(t, key);
    describe_text(out, "key", str_from(arena_printf(context->scratch, "%016llx", (unsigned long long)key)));
    if (row != NULL) {
        describe_row(m, (uint32_t)field, row, out);
        return true;
    }
    unsigned sightings = t->sketch.counts == NULL ? 0 : sketch_count(&t->sketch, table_hash(t, key));
    if (sightings == 0)
        return false;
    describe_int(out, "sightings", sightings);
    describe_int(out, "admit_after", m->options.admit_after);
    return true;
}
