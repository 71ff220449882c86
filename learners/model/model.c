/* Making and freeing a model, and its small accessors. learn.c makes the steps. */
#include "learners/model/internal.h"
#include "learners/networks/networks.h"
#include "learners/tables/cold.h"
#include "learners/tables/shard.h"

#include "core/base.h"
#include "core/mem.h"
#include "kernels/num.h"

#include <math.h>
#include <stdlib.h>

struct model_init {
    const struct model *model;
    float bound;
    float precision; /* the field's own prior precision of a linear weight; 0: the optimizer's */
    bool has_vector;
    uint64_t seed;
};

static void *zeroed(size_t bytes)
{
    bytes = (bytes + 127) / 64 * 64;
    void *p = mem_aligned(64, bytes);
    memset(p, 0, bytes);
    return p;
}

size_t model_linear_bytes(const struct model *m)
{
    if (m->options.linear_is_off)
        return 0;
    return m->options.linear_is_double ? LINEAR_BYTES : (1 + m->linear_states) * sizeof(float);
}

static size_t vector_state_bytes(const struct model *m)
{
    return opt_state_floats(m->options.embedding.kind, m->vector_floats) * sizeof(float);
}

/* The first offset in a payload, from `used` on, where a cache line of the row begins. */
static size_t next_line(size_t used)
{
    return (TABLE_ROW_HEADER + used + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES - TABLE_ROW_HEADER;
}

static void place_vector(struct model *m)
{
    size_t linear = model_linear_bytes(m), vector = m->vector_floats * sizeof(float),
           state = vector_state_bytes(m);
    size_t behind = next_line(linear) + vector, before = next_line(linear + state);
    m->vector_at = next_line(linear);
    m->state_at = behind;
    /* updates by batches need a vector's state behind the vector */
    if (!model_learns_by_batches(&m->options) && next_line(before + vector) < next_line(behind + state)) {
        m->vector_at = before;
        m->state_at = before - state;
    }
}

/* Bytes of a row's linear weight that predictions read: without its optimizer's state, if the weight is stored. */
static size_t linear_read(const struct model *m)
{
    return MIN(model_linear_bytes(m), m->options.linear_is_double ? (size_t)LINEAR_BYTES : sizeof(float));
}

static void init_payload(void *argument, uint64_t key, void *payload)
{
    const struct model_init *init = argument;
    const struct model *m = init->model;
    if (!m->options.linear_is_off)
        linear_init_payload(m, payload);
    if (init->precision > 0.0F)
        ((float *)payload)[1] = init->precision;
    if (!init->has_vector)
        return;
    unsigned char *bytes = payload;
    size_t linear = model_linear_bytes(m), first = MIN(m->vector_at, m->state_at);
    memset(bytes + linear, 0, first - linear);
    float *vector = (float *)(void *)(bytes + m->vector_at), *states = (float *)(void *)(bytes + m->state_at);
    m->k->init_uniform(vector, num_mix(init->seed ^ key), init->bound, m->vector_floats);
    const struct optimizer_options *o = &m->options.embedding;
    size_t state = opt_state_floats(o->kind, m->vector_floats);
    float start = opt_state_init(o->kind, o->accumulator);
    for (size_t i = 0; i < state; i++)
        states[i] = start;
}

static size_t payload_bytes(const struct model *m, uint32_t field)
{
    if (field >= m->options.vectors)
        return model_linear_bytes(m);
    size_t vector_end = m->vector_at + m->vector_floats * sizeof(float);
    return MAX(vector_end, m->state_at + vector_state_bytes(m));
}

/* The arrays of an example: X(member, its length). floats: number of floats of all its vectors; lanes:
 * linear_lanes. */
#define EXAMPLE_ARRAYS(X)                                                                                    \
    X(rows, m->entries_max)                                                                                  \
    X(keys, m->entries_max)                                                                                  \
    X(fields, m->entries_max)                                                                                \
    X(scales, m->entries_max)                                                                                \
    X(dense, m->options.dense)                                                                               \
    X(vectors, m->blocks)                                                                                    \
    X(pooled, floats)                                                                                        \
    X(partners, floats + m->options.dim)                                                                     \
    X(products, (size_t)m->options.vectors * m->blocks)                                                      \
    X(places, lanes)                                                                                         \
    X(values, lanes)                                                                                         \
    X(weights, 3 * lanes)                                                                                    \
    X(weights64, 4 * lanes)

static void example_free(struct example *e)
{
#define FREE(array, length) free(e->array);
    EXAMPLE_ARRAYS(FREE)
    free(e->possible);
    *e = (struct example){0};
}

static size_t example_slots(const struct model *m)
{
    if (model_learns_by_batches(&m->options))
        return 1; /* the events of a batch lie in columns; checkpoints read and write them one by one */
    return m->head.layers > 0 ? m->options.block + KERNELS_BLOCK : 1; /* blocks.c */
}

static void example_init(struct model *m, struct example *e)
{
    size_t lanes = linear_lanes(m), floats = (size_t)m->options.vectors * m->vector_floats;
#define TAKE(array, length) e->array = zeroed((length) * sizeof(*e->array));
    EXAMPLE_ARRAYS(TAKE)
}

static size_t hidden_count(const struct model_options *options)
{
    size_t count = 0;
    while (count < MODEL_LAYERS_MAX && options->hidden[count] > 0)
        count++;
    return count;
}

/* Inputs of the head: each field's vector (FM) or each pair's product (FFM), then the dense features. */
static size_t head_inputs(const struct model *m)
{
    return interaction_inputs(m, m->options.vectors) + m->options.dense;
}

static void tables_init(struct model *m)
{
    const struct model_options *o = &m->options;
    bool is_plain = linear_is_plain(m);
    m->tables = zeroed(o->fields * sizeof(*m->tables));
    m->inits = zeroed(o->fields * sizeof(*m->inits));
    for (uint32_t f = 0; f < o->fields; f++) {
        float own = o->field_init[f];
        uint32_t number = o->tables == NULL ? f : o->tables[f];
        bool has_precision = o->linear.kind == OPT_NEWTON && !o->linear_is_double;
        bool has_vector = f < o->vectors;
        m->inits[f] = (struct model_init){
            .model = m,
            .precision = has_precision ? o->field_precision[f] : 0.0F,
            .has_vector = has_vector,
            .bound = own > 0.0F ? own : (own < 0.0F ? 0.0F : o->init_bound),
            .seed = num_mix(o->seed + number + 1),
        };
        struct table_options table = {
            .payload_bytes = payload_bytes(m, f),
            .read_first = linear_read(m),
            .read_at = has_vector ? m->vector_at : 0,
            .read_bytes = has_vector ? m->vector_floats * sizeof(float) : 0,
            .align = has_vector ? 64 : 8,
            .is_inline = is_plain,
            .admit_after = o->admit_after,
            .sketch_bytes = o->sketch_bytes,
            .expire_after_us = o->expire_after_us,
            .rows_max = o->rows_max,
            .shards = table_shards_of(o->admit_after > 1 ? o->sketch_bytes : 0, o->rows_max),
            .seed = num_mix(o->seed ^ (number + 1)),
            .init = init_payload,
            .init_argument = &m->inits[f],
        };
        table_init(&m->tables[f], &table);
        m->possible_bytes =
            MAX(m->possible_bytes, (m->tables[f].stride + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES);
    }
}

static void pairs_init(struct model *m)
{
    const struct optimizer_options *o = &m->options.pairs;
    size_t count = interaction_pairs(m), states = opt_state_floats(o->kind, count);
    m->pair_weights = zeroed((count + states) * sizeof(float));
    m->pair_gradients = zeroed(count * sizeof(float));
    m->pair_scales = zeroed((size_t)m->options.vectors * m->blocks * sizeof(float));
    for (size_t i = 0; i < count + states; i++)
        m->pair_weights[i] = i < count ? 1.0F : opt_state_init(o->kind, o->accumulator);
    for (size_t i = 0; i < count; i++) {
        if (i < sizeof(m->options.pair_is_off) && m->options.pair_is_off[i])
            m->pair_weights[i] = 0.0F;
    }
}

static bool has_pairs_off(const struct model *m)
{
    const struct model_options *o = &m->options;
    return memchr(o->pair_is_off, 1, MIN(interaction_pairs(m), sizeof(o->pair_is_off))) != NULL;
}

void model_shape(struct model *m, const struct model_options *options)
{
    leat_assert(options->fields <= MODEL_FIELDS_MAX && options->dense <= MODEL_DENSE_MAX);
    leat_assert(options->dim % 4 == 0 && options->list_max <= MODEL_LIST_MAX);
    struct model_options *o = &m->options;
    *o = *options;
    size_t hidden = hidden_count(o);
    o->batch = MAX(o->batch, 1);
    if (hidden == 0 || o->block == 0 || o->batch > 1)
        o->block = 1;
    leat_assert(o->block <= KERNELS_BLOCK);
    if (o->network == NULL && hidden > 0)
        o->network = &network_deep;
    if (o->interaction == NULL && !network_needs_batches(o->network))
        o->vectors = 0;
    leat_assert(o->vectors <= o->fields);
    m->blocks = (uint32_t)FFM_ROUND(o->vectors);
    m->vector_floats = model_vector_floats(o);
    m->linear_states = opt_state_floats(o->linear.kind, 1);
    for (uint32_t f = 0; f < o->fields; f++)
        m->entries_max += model_field_ids(o, f);
    m->has_pairs = o->interaction != NULL && (o->pairs.params.rate > 0.0F || has_pairs_off(m));
}

unsigned model_clashes(const struct model_options *options)
{
    struct model m = {.k = NULL};
    const struct model_options *o = &m.options;
    model_shape(&m, options);
    bool has_layers = o->network != NULL;
    bool is_unfit =
        o->head.kind == OPT_ADAGRAD_ROW || o->head.kind == OPT_ADAGRAD_BLOCK || o->head.kind == OPT_NEWTON;
    return (m.has_pairs && has_pairs_off(&m) ? CLASH_PAIRS : 0U) |
           (m.has_pairs && o->pairs.params.rate > 0.0F ? CLASH_PAIR_WEIGHTS : 0U) |
           (has_layers && o->interaction != NULL && o->interaction->is_field_aware ? CLASH_PRODUCTS : 0U) |
           (!has_layers && o->clip_norm > 0.0F ? CLASH_CLIPPING : 0U) |
           (has_layers && is_unfit ? CLASH_OPTIMIZER : 0U) |
           (m.vector_floats > BATCH_DIM_MAX ? CLASH_VECTORS : 0U) |
           (o->linear.kind == OPT_NEWTON || o->embedding.kind == OPT_NEWTON ? CLASH_NEWTON : 0U);
}

struct model *model_new(const struct model_options *options, const struct kernels *kernels)
{
    bool is_by_batches = model_learns_by_batches(options);
    leat_assert(kernels && (is_by_batches ? model_clashes(options) == 0 : !options->is_on_device));
    struct model *m = zeroed(sizeof(*m));
    model_shape(m, options);
    m->k = kernels;
    m->linear_step = opt_pick(kernels, options->linear.kind);
    m->embedding_step = opt_pick(kernels, options->embedding.kind);
    m->zero = zeroed(m->vector_floats * sizeof(float) + 64);
    m->watermark_us = INT64_MIN;
    m->absent = zeroed(LINEAR_BYTES);
    linear_init_payload(m, m->absent);
    place_vector(m);
    tables_init(m);
    m->dense_weights = zeroed((options->dense + 1) * LINEAR_BYTES);
    for (uint32_t i = 0; i <= options->dense; i++)
        linear_init_payload(m, m->dense_weights + i * LINEAR_FLOATS);
    if (m->has_pairs)
        pairs_init(m);
    m->step_events = options->batch;
    size_t hidden = hidden_count(options);
    if (is_by_batches && !options->is_on_device)
        model_train_init(m);
    else if (!is_by_batches && hidden > 0)
        head_init(&m->head, kernels, head_inputs(m), options->hidden, hidden, options->head.kind,
                  options->head.accumulator, num_mix(options->seed ^ 0x4ead));
    m->examples = zeroed(example_slots(m) * sizeof(*m->examples));
    for (size_t i = 0; i < example_slots(m); i++)
        example_init(m, &m->examples[i]);
    m->opt_rows = zeroed(m->entries_max * sizeof(*m->opt_rows));
    m->plain = linear_is_plain(m) ? linear_plain_new(m) : NULL;
    return m;
}

void model_free(struct model *m)
{
    if (!m)
        return;
    for (uint32_t f = 0; f < m->options.fields; f++) {
        table_free(&m->tables[f]);
        free(m->resolved[f]);
    }
    for (size_t i = 0; i < example_slots(m); i++)
        example_free(&m->examples[i]);
    if (m->head.layers > 0)
        head_free(&m->head);
    free(m->examples);
    free(m->tables);
    free(m->inits);
    free(m->dense_weights);
    free(m->zero);
    free(m->absent);
    free(m->opt_rows);
    free(m->pair_weights);
    free(m->pair_gradients);
    free(m->pair_scales);
    linear_plain_free(m->plain);
    model_compare_free(m);
    model_train_free(m);
    model_device_free(m);
    free(m);
}

double model_correction(const struct model_options *o)
{
    double odds = (double)o->class_weights[1] / ((double)o->class_weights[0] * o->negatives_kept);
    return o->loss == LOSS_LOGISTIC && odds != 1.0 ? -log(odds) : 0.0;
}

float model_field_bound(const struct model *m, uint32_t field)
{
    return m->inits[field].bound;
}

uint64_t model_field_seed(const struct model *m, uint32_t field)
{
    return m->inits[field].seed;
}

struct table *model_table(struct model *m, uint32_t field)
{
    leat_assert(field < m->options.fields);
    return &m->tables[field];
}

const float *model_pair_weights(const struct model *m)
{
    return m->pair_weights;
}

const struct kernels_calls *model_calls(const struct model *m)
{
    return &m->calls;
}

const float *model_dense_weights(struct model *m, size_t *count)
{
    if (m->train)
        model_train_read(m);
    *count = (size_t)(m->options.dense + 1) * LINEAR_FLOATS;
    return m->dense_weights;
}

struct model_mean *model_mean(struct model *m)
{
    return &m->mean;
}

double model_bias(const struct model *m)
{
    if (!m->options.is_centered)
        return (double)m->options.bias;
    return m->mean.weights > 0.0 ? m->mean.labels / m->mean.weights : (double)m->options.bias_start;
}

void model_set_rates(struct model *m, const struct model_rates *rates)
{
    m->options.linear.params.rate = rates->linear;
    m->options.embedding.params.rate = rates->embedding;
    m->options.head.params.rate = rates->head;
    m->options.pairs.params.rate = rates->pairs;
    if (model_shadow(m))
        model_set_rates(model_shadow(m), rates);
}

uint32_t model_step_in_progress(const struct model *m)
{
    return m->pending > 0 ? (uint32_t)m->steps + 1 : TABLE_STEP_NONE;
}

void model_set_watermark(struct model *m, int64_t watermark_us)
{
    /* Remove expired rows at once, even in the middle of a block: results must not depend on where calls
     * end. Rows of the block in progress are spared. */
    uint32_t step = model_step_in_progress(m);
    m->watermark_us = MAX(m->watermark_us, watermark_us);
    if (m->device_rows != NULL) {
        model_device_watermark(m);
        if (model_shadow(m) != NULL)
            model_set_watermark(model_shadow(m), watermark_us);
        return;
    }
    for (uint32_t f = 0; f < m->options.fields; f++)
        table_set_watermark(&m->tables[f], m->watermark_us, step);
}

/* --- Memory: one budget for all tables, whose rows beyond it are cold (tables/cold.h) --- */

void model_set_cold(struct model *m, uint32_t field, struct cold_store *store)
{
    table_cold_init(&m->tables[field], store);
}

/*
 * Sketches stay in memory: rows have the rest of the budget, but at least a quarter of it. Tables grow freely
 * until rows take three quarters of their budget; then the memory each table has becomes its share, and the
 * last quarter is divided evenly, so that a small table can still grow a little.
 */
void model_keep_memory(struct model *m, int64_t bytes)
{
    if (m->options.fields == 0 || m->tables[0].cold == NULL)
        return;
    size_t budget = (size_t)MAX(bytes, 0), rows = 0, sketches = 0;
    bool is_shared = m->tables[0].cold->bytes_max > 0;
    for (uint32_t f = 0; f < m->options.fields && !is_shared; f++) {
        rows += table_row_bytes(&m->tables[f]);
        sketches += sketch_bytes(&m->tables[f].sketch);
    }
    budget = MAX(budget - MIN(sketches, budget), budget / 4);
    if (!is_shared && rows <= budget / 4 * 3)
        return;
    for (uint32_t f = 0; f < m->options.fields; f++) {
        struct table *t = &m->tables[f];
        if (!is_shared) {
            double part = MIN(1.0, (double)budget * 0.75 / (double)rows);
            size_t own = (size_t)((double)table_row_bytes(t) * part);
            table_share(t, MAX(own, budget / (4 * m->options.fields)) + 1);
        }
        table_keep(t, (uint32_t)m->steps + 1, m->pending > 0);
    }
}
