/*
 * A shadow on the CPU beside a model that learns on a GPU (`leat run --compare cpu`): it gets the
 * same batches, and after each step the two are compared: logits, dense weights, and the rows that
 * the step has touched, with their optimizers' state. The first difference of more than
 * COMPARE_TOLERANCE ends the comparison.
 *
 * The shadow goes on from its own weights, not from the GPU's: rounding differences add up from step to step.
 */
#include "learners/model/internal.h"
#include "learners/train/rows_cpu.h"

#include "core/base.h"
#include "core/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct compare {
    struct model *shadow;
    struct model_difference found;
    uint64_t events; /* events predicted since this process started */
    double logits[MODEL_LABELS_MAX * MODEL_ROWS_MAX];
};

struct model *model_shadow(const struct model *m)
{
    return m->compare != NULL ? m->compare->shadow : NULL;
}

void model_compare_begin(struct model *m)
{
    leat_assert(m->options.is_on_device && m->train != NULL && m->compare == NULL);
    struct model_options options = m->options;
    options.is_on_device = false;
    options.is_like_device = true;
    m->compare = mem_calloc(1, sizeof(*m->compare));
    m->compare->shadow = model_new(&options, m->k);
}

void model_compare_free(struct model *m)
{
    if (m->compare != NULL)
        model_free(m->compare->shadow);
    free(m->compare);
    m->compare = NULL;
}

const struct model_difference *model_compared(const struct model *m)
{
    return &m->compare->found;
}

/* --- Comparing --- */

/* Root mean square of the finite values. */
static double rms_of(const double *values, size_t count)
{
    double sum = 0.0;
    size_t finite = 0;
    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i]))
            sum += values[i] * values[i], finite++;
    return finite > 0 ? sqrt(sum / (double)finite) : 0.0;
}

static bool differs(double a, double b, double rms)
{
    if (isnan(a) || isnan(b))
        return isnan(a) != isnan(b);
    return a != b && !(fabs(a - b) <= COMPARE_TOLERANCE * (fabs(b) + rms));
}

/* The index of the first value of a tensor that differs; count: none does. */
static size_t first_difference(const double *ours, const double *theirs, size_t count)
{
    double rms = rms_of(theirs, count);
    size_t i = 0;
    while (i < count && !differs(ours[i], theirs[i], rms))
        i++;
    return i;
}

/* Notes a difference. where: describes the value and its place in the tensor. */
static void note(struct compare *c, uint64_t step, const char *where, double ours, double theirs)
{
    c->found.is_found = true;
    snprintf(c->found.text, sizeof(c->found.text),
             "step %" PRIu64
             ", %s: %.9g on the GPU, %.9g on the CPU, which differ by more than %g of their size",
             step, where, ours, theirs, COMPARE_TOLERANCE);
}

static void compare_floats(struct model *m, const char *tensor, const float *ours, const float *theirs,
                           size_t count)
{
    struct compare *c = m->compare;
    double *values = mem_calloc(2 * count + 1, sizeof(*values));
    for (size_t i = 0; i < count; i++)
        values[i] = (double)ours[i], values[count + i] = (double)theirs[i];
    size_t at = first_difference(values, values + count, count);
    if (at < count && !c->found.is_found) {
        char where[96];
        snprintf(where, sizeof(where), "%s, value %zu of %zu", tensor, at + 1, count);
        note(c, c->shadow->steps, where, values[at], values[count + at]);
    }
    free(values);
}

void model_compare_predicted(struct model *m, const struct train_events *events, uint32_t from, uint32_t to,
                             const double *logits)
{
    struct compare *c = m->compare;
    struct model *s = c->shadow;
    if (c->found.is_found)
        return;
    bool is_good = train_predict(s->train, events, from, to, c->logits, &s->error);
    leat_assert(is_good); /* predicting on the CPU cannot fail */
    for (uint32_t l = 0; l < MAX(m->options.labels, 1U) && !c->found.is_found; l++) {
        size_t label = (size_t)l * MODEL_ROWS_MAX + from;
        size_t at = first_difference(logits + label, c->logits + label, to - from);
        if (at == to - from)
            continue;
        char where[96];
        snprintf(where, sizeof(where), "logit %u of event %" PRIu64, l + 1, c->events + at + 1);
        note(c, s->steps + 1, where, logits[label + at], c->logits[label + at]);
    }
    c->events += to - from;
    train_add(s->train, events, from, to);
    s->pending = train_pending(s->train);
}

/* --- After a step --- */

static void compare_layers(struct model *m)
{
    struct model *s = m->compare->shadow;
    for (size_t layer = 0; layer < model_layers(m) && !m->compare->found.is_found; layer++) {
        size_t floats = model_layer_floats(m, layer), n, d;
        float *both = mem_calloc(2 * floats + 1, sizeof(*both));
        model_layer_get(m, MODEL_LAYERS_OWN, layer, both);
        model_layer_get(s, MODEL_LAYERS_OWN, layer, both + floats);
        model_layer_shape(m, layer, &n, &d);
        char tensor[80];
        snprintf(tensor, sizeof(tensor), "dense layer %zu (%zu x %zu, biases, optimizer's state)", layer + 1,
                 n, d);
        compare_floats(m, tensor, both, both + floats, floats);
        free(both);
    }
}

static void compare_dense(struct model *m)
{
    struct model *s = m->compare->shadow;
    model_train_read(m);
    model_train_read(s);
    if (!m->options.linear_is_off && !m->options.linear_is_double)
        compare_floats(m, "linear weights of the dense features and the bias", m->dense_weights,
                       s->dense_weights, (m->options.dense + 1) * (size_t)LINEAR_FLOATS);
}

/* The distinct ids of a group and copies of their rows after the step, in memory that a device can copy to:
 * the linear weight with its state, then the vector with its own; zeros where an id has no row (yet). */
struct rows_seen {
    uint32_t count;
    size_t linear, vector, row_bytes; /* bytes; linear is rounded up to a multiple of 8 */
    uint64_t *ids;
    void **rows;
    uint32_t *tables;
    unsigned char *bytes;
};

static void forget(struct model *m, struct rows_seen *seen)
{
    train_host_free(&m->train->device, seen->ids);
    train_host_free(&m->train->device, seen->bytes);
}

/* Adds the ids of group `g` of model m to `seen`, with copies of their rows. table: index of g's first
 * table within the group that `seen` is about. */
static bool add_ids(struct model *m, const struct train_group *g, uint32_t table, struct rows_seen *seen)
{
    const struct train_device *d = &m->train->device;
    uint32_t at = seen->count, count;
    train_copy(d, seen->tables + at, g->count, sizeof(*g->count));
    if (!train_wait(d, &m->error))
        return false;
    count = seen->tables[at];
    train_copy(d, seen->ids + at, g->unique_ids, count * sizeof(*seen->ids));
    train_copy(d, seen->rows + at, (const void *)g->rows, count * sizeof(*seen->rows));
    train_copy(d, seen->tables + at, g->unique_tables, count * sizeof(*seen->tables));
    seen->count += count;
    if (!train_wait(d, &m->error))
        return false;
    for (; at < seen->count; at++)
        seen->tables[at] += table;
    return true;
}

/* Collects the ids and rows of the GPU's group `g` from either model; on the CPU each field of that group
 * is a group of its own. */
static bool see_ids(struct model *m, const struct train_group *g, struct rows_seen *seen)
{
    size_t most = g->places_max + 1, each = sizeof(*seen->ids) + sizeof(*seen->rows) + sizeof(*seen->tables);
    seen->ids = train_host_new(&m->train->device, most * each, &m->error);
    if (seen->ids == NULL)
        return false;
    seen->rows = (void **)(void *)(seen->ids + most);
    seen->tables = (uint32_t *)(void *)(seen->rows + most);
    bool is_good = true;
    for (uint32_t i = 0; i < m->train->groups_count && is_good; i++) {
        const struct train_group *own = &m->train->groups[i];
        if (own->first >= g->first && own->first < g->first + g->fields)
            is_good = add_ids(m, own, own->first - g->first, seen);
    }
    return is_good;
}

static bool see_rows(struct model *m, const struct train_group *g, struct rows_seen *seen)
{
    const struct train_device *d = &m->train->device;
    size_t linear = model_linear_bytes(m), vector = m->vector_floats;
    *seen = (struct rows_seen){.linear = (linear + 7) / 8 * 8};
    if (g->has_vectors)
        seen->vector = (vector + opt_state_floats(m->options.embedding.kind, vector)) * sizeof(float);
    seen->row_bytes = seen->linear + (seen->vector + 7) / 8 * 8;
    if (!see_ids(m, g, seen))
        return false;
    seen->bytes = train_host_new(d, seen->count * seen->row_bytes, &m->error);
    for (uint32_t u = 0; seen->bytes && u < seen->count; u++) {
        unsigned char *to = seen->bytes + u * seen->row_bytes, *row = seen->rows[u];
        if (row == NULL)
            continue;
        train_copy(d, to, row + (g->has_vectors ? m->train->rows.linear_at : 0), linear);
        train_copy(d, to + seen->linear, row, seen->vector);
    }
    return seen->bytes && train_wait(d, &m->error);
}

/* Compares the ids of the step in both models, and which of these ids have rows. */
static bool same_ids(struct model *m, const struct train_group *g, const struct rows_seen *a,
                     const struct rows_seen *b)
{
    char where[96];
    uint32_t u = 0, count = MIN(a->count, b->count);
    while (u < count && a->ids[u] == b->ids[u] && a->tables[u] == b->tables[u] &&
           (a->rows[u] == NULL) == (b->rows[u] == NULL))
        u++;
    if (u == count && a->count == b->count)
        return true;
    if (u == count || a->ids[u] != b->ids[u] || a->tables[u] != b->tables[u])
        snprintf(where, sizeof(where), "number of the step's distinct ids, which differ from index %u on", u);
    else
        snprintf(where, sizeof(where), "sparse feature %u, id %016" PRIx64 ": number of its rows",
                 g->first + a->tables[u] + 1, a->ids[u]);
    bool is_row = u < count && a->ids[u] == b->ids[u];
    note(m->compare, m->compare->shadow->steps, where, is_row ? a->rows[u] != NULL : a->count,
         is_row ? b->rows[u] != NULL : b->count);
    return false;
}

static double value_at(const unsigned char *bytes, size_t i, bool is_double)
{
    float single;
    double value;
    memcpy(&single, bytes + i * sizeof(single), sizeof(single));
    if (!is_double)
        return (double)single;
    memcpy(&value, bytes + i * sizeof(value), sizeof(value));
    return value;
}

/* Compares `count` values from byte `from` on, in all rows. */
static void compare_part(struct model *m, const struct train_group *g, const struct rows_seen *a,
                         const struct rows_seen *b, const char *tensor, size_t from, size_t count,
                         bool is_double)
{
    size_t all = a->count * count;
    double *values = mem_calloc(2 * all + 1, sizeof(*values));
    for (size_t i = 0; i < all; i++) {
        size_t at = i / count * a->row_bytes + from;
        values[i] = value_at(a->bytes + at, i % count, is_double);
        values[all + i] = value_at(b->bytes + at, i % count, is_double);
    }
    size_t at = first_difference(values, values + all, all);
    if (at < all) {
        char where[128];
        size_t u = at / count;
        snprintf(where, sizeof(where), "%s of sparse feature %u, id %016" PRIx64 ", value %zu of %zu", tensor,
                 g->first + a->tables[u] + 1, a->ids[u], at % count + 1, count);
        note(m->compare, m->compare->shadow->steps, where, values[at], values[all + at]);
    }
    free(values);
}

static void compare_seen(struct model *m, const struct train_group *g, const struct rows_seen *a,
                         const struct rows_seen *b)
{
    const struct compare *c = m->compare;
    bool is_double = m->options.linear_is_double;
    size_t linear = model_linear_bytes(m) / (is_double ? sizeof(double) : sizeof(float));
    size_t vector = m->vector_floats, state = a->vector / sizeof(float) - (a->vector > 0 ? vector : 0);
    if (!same_ids(m, g, a, b))
        return;
    if (linear > 0)
        compare_part(m, g, a, b, "linear weight and its state", 0, linear, is_double);
    if (a->vector > 0 && !c->found.is_found)
        compare_part(m, g, a, b, "vector", a->linear, vector, false);
    if (state > 0 && !c->found.is_found)
        compare_part(m, g, a, b, "vector's state", a->linear + vector * sizeof(float), state, false);
}

static void compare_rows(struct model *m, uint32_t group)
{
    struct model *s = m->compare->shadow;
    const struct train_group *g = &m->train->groups[group];
    struct rows_seen ours = {0}, theirs = {0};
    if (see_rows(m, g, &ours) && see_rows(s, g, &theirs))
        compare_seen(m, g, &ours, &theirs);
    forget(m, &ours);
    forget(s, &theirs);
}

void model_compare_step(struct model *m)
{
    struct compare *c = m->compare;
    struct model *s = c->shadow;
    if (c->found.is_found)
        return;
    s->steps = m->steps;
    model_step_begin(s);
    s->train->steps = s->steps;
    bool is_good = train_step(s->train, &s->error);
    leat_assert(is_good);
    s->pending = 0;
    s->steps++;
    for (uint32_t i = 0; i < m->train->groups_count && !c->found.is_found && m->error.failure == GPU_OK; i++)
        compare_rows(m, i);
    if (!c->found.is_found)
        compare_dense(m);
    if (!c->found.is_found)
        compare_layers(m);
    if (!c->found.is_found && m->error.failure == GPU_OK)
        c->found.steps++;
}
