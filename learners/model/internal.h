/* What the model's files share. */
#ifndef LEAT_LEARNERS_MODEL_INTERNAL_H
#define LEAT_LEARNERS_MODEL_INTERNAL_H

#include "kernels/gpu.h"
#include "learners/model/head.h"
#include "learners/model/model.h"
#include "learners/tables/inline.h"

#include <stdatomic.h>

/*
 * A row's payload: the linear weight (one float and one or two floats of state; or FTRL's z and sum as
 * doubles), then, if there is an interaction, the vector, which begins on a cache line, and its optimizer's
 * state. The state lies before the vector, next to the linear weight, if that makes the row a line shorter;
 * else behind the vector.
 */
enum { LINEAR_BYTES = 16, LINEAR_FLOATS = 4, LINE_BYTES = 64 };

/* One event with its rows. Entries are (row, field) pairs: one a field, more if the field is a list. */
struct example {
    uint32_t entries;
    struct table_row **rows; /* [entries_max]; NULL: absent */
    uint64_t *keys;          /* [entries_max] */
    uint16_t *fields;        /* [entries_max] */
    float *scales;           /* [entries_max] 1, or 1 / length of the list */
    float *dense;            /* [options.dense] */
    float label, weight;
    float more_labels[MODEL_LABELS_MAX - 1];
    uint32_t seen; /* event time, seconds */
    bool learns;
    bool is_rejected;
    double logit;              /* as the model computes it, without model_correction */
    float gradient, curvature; /* first and second derivative of the loss by the logit, times weight */
    double gradient_exact;     /* `gradient` before it is rounded, for FTRL in double */
    float interaction;
    /* Results of the forward pass that the update needs. */
    const float **vectors; /* [FFM_ROUND(fields)] each field's vector, pooled or in its row */
    float *pooled;         /* [fields * vector_floats] */
    /* [vectors][vector_floats] the gradient by each field's vector, for a gradient of 1 by the logit (with dense
     * layers multiplied by the event's own, and with theirs added); behind them [dim] the sum of the vectors */
    float *partners;
    float *products; /* [fields * FFM_ROUND(fields)] FFM with a head or pair weights */
    unsigned char *
        possible; /* [entries_max] rows that the event's ids would get (model_possible_row); NULL: none yet */
    void **places;     /* where the linear weights of entries, dense features and the bias lie */
    float *values;     /* the input that each linear weight is multiplied with */
    float *weights;    /* copies of the linear weights, their state behind them (linear_part.c) */
    double *weights64; /* the same in double: w, z, sums, g */
};

/* Rows looked up ahead of the event that learns (lookahead.c). */
struct rows_ahead {
    struct call *call;   /* NULL: no call in progress */
    atomic_uint done;    /* events of the call whose rows are resolved */
    atomic_bool is_busy; /* a thread is resolving the next tile */
    uint32_t prefetched; /* events whose rows the learning thread has prefetched */
};

struct train;
struct rows_cpu;
struct rows_gpu;

struct model {
    struct model_options options;
    const struct kernels *k;
    opt_function linear_step, embedding_step;
    uint32_t blocks;            /* FFM_ROUND(fields) */
    uint32_t vector_floats;     /* floats of a row's vector */
    size_t vector_at, state_at; /* byte offsets of the vector and its state in a row's payload */
    size_t linear_states;       /* floats of state for each linear weight */
    float *zero;                /* a vector of zeros */
    float *absent;              /* the linear weight of an absent entry: its input is 0, so it never moves */
    struct table *tables;       /* [fields] */
    size_t possible_bytes;      /* of a row of any table, in whole cache lines */
    struct model_init *inits;
    float *dense_weights; /* [dense + 1][LINEAR_FLOATS], laid out as in a row; the bias last */
    bool has_pairs;
    float *pair_weights;   /* [FFM_ROUND(fields * (fields - 1) / 2)], then their optimizer's state */
    float *pair_gradients; /* scratch of the same length */
    float *pair_scales;    /* [fields * FFM_ROUND(fields)] scratch */
    struct head head;
    struct example *examples; /* slots of the block, then slots of events that are only predicted */
    uint32_t entries_max;     /* entries that each example has room for */
    uint32_t pending;         /* events in the block or batch in progress */
    uint32_t step_events;     /* events of a step, when learning by batches */
    uint64_t steps;           /* finished blocks or batches */
    struct model_mean mean;   /* is_centered */
    int64_t watermark_us;
    struct table_row **resolved[MODEL_FIELDS_MAX];
    size_t resolved_capacity[MODEL_FIELDS_MAX];
    struct rows_ahead ahead;
    struct team *team;   /* lanes that may help; NULL: none */
    struct train *train; /* steps of batches (train/train.h); NULL: the model learns event by event */
    struct rows_cpu *rows;
    struct rows_gpu *device_rows; /* on a GPU, instead of `rows` (device.c) */
    struct gpu_error error;       /* of the device; failure GPU_OK: no error */
    struct compare *compare;      /* compare.c; NULL: no shadow */
    struct opt_row *opt_rows;
    struct plain *plain; /* scratch of linear_plain.c */
    struct kernels_calls calls;
};

/* A call of model_learn: its events' verdicts, times and steps, known before the first step. */
struct call {
    const struct model_input *in;
    struct model_output *out;
    double correction;
    bool all_learn;
    uint8_t learns[MODEL_ROWS_MAX];
    uint32_t seen[MODEL_ROWS_MAX];
    uint32_t steps[MODEL_ROWS_MAX];
};

/* The vector of a row, and the state of its optimizer. */
static inline float *model_vector(const struct model *m, struct table_row *row)
{
    return (float *)(void *)((unsigned char *)table_payload(row) + m->vector_at);
}

static inline float *model_vector_state(const struct model *m, struct table_row *row)
{
    return (float *)(void *)((unsigned char *)table_payload(row) + m->state_at);
}

/* example.c. model_example_label: copies label and weight of the call's event i, whether it learns, and whether
 * it is rejected. model_example_fill: the same, and its rows, which must be found (lookahead.c), and dense
 * features. model_example_forward: computes e->logit without the head. model_example_judge: sets the loss's
 * derivatives; rejects the example if logit or gradient is not finite. model_output: writes an example's logit,
 * corrected, and its verdict if it is rejected, to the call's output as those of event `event`; -1: does nothing.
 * model_example_update: moves the weights of a model without a head. */
void model_example_label(const struct model *m, struct example *e, const struct call *c, uint32_t i);
void model_example_fill(struct model *m, struct example *e, const struct call *c, uint32_t i);
void model_example_forward(struct model *m, struct example *e);
void model_example_judge(struct model *m, struct example *e);
void model_output(const struct call *c, const struct example *e, int32_t event);
void model_example_update(struct model *m, struct example *e);
/* Makes the row of an entry for which the look-up gave table_possible; valid until the example gets another
 * event. */
struct table_row *model_possible_row(struct model *m, struct example *e, uint32_t entry, uint32_t field,
                                     uint64_t key);
/* Before each step: sets the optimizers' parameters that depend on the step's number (Adam's
 * bias correction). */
void model_step_begin(struct model *m);

/* blocks.c, for a model with a head. blocks_predict: the rows are found. */
void blocks_learn(struct model *m, struct call *c);
void blocks_predict(struct model *m, struct call *c);

/* lookahead.c. lookahead_resolve finds the rows of all events at once and writes their headers. */
void lookahead_resolve(struct model *m, struct call *c);
/* Between lookahead_begin and lookahead_end rows are found ahead: lookahead_need returns when m->resolved is
 * filled up to `event`; the headers are left to lookahead_touch. */
void lookahead_begin(struct model *m, struct call *c);
void lookahead_need(struct model *m, uint32_t event);
void lookahead_end(struct model *m);

enum { LOOKAHEAD_PREFETCH = 3 };

/* Prefetches the cache lines of event i's rows, fields from..to. */
static inline void lookahead_prefetch(const struct model *m, uint32_t i, uint32_t from, uint32_t to)
{
    for (uint32_t f = from; f < to; f++) {
        const unsigned char *row = (const unsigned char *)m->resolved[f][i];
        for (size_t line = 0; row && line < m->tables[f].stride; line += LINE_BYTES)
            prefetch_line(row + line);
    }
}

/* Returns when event i's rows are found; prefetches the rows of LOOKAHEAD_PREFETCH events more. */
static inline void lookahead_rows(struct model *m, const struct call *c, uint32_t i)
{
    uint32_t end = MIN(i + LOOKAHEAD_PREFETCH + 1, c->in->rows), fields = 0;
    while (fields < m->options.fields && !m->options.is_list[fields])
        fields++;
    lookahead_need(m, end - 1);
    for (; m->ahead.prefetched < end; m->ahead.prefetched++)
        lookahead_prefetch(m, m->ahead.prefetched, 0, fields);
}

/* Counts an occurrence of event i's row in a field that is no list, by the learning thread. */
static inline void lookahead_touch(struct model *m, const struct call *c, uint32_t f, uint32_t i)
{
    struct table *t = &m->tables[f];
    struct table_row *row = m->resolved[f][i];
    if (row != NULL && c->learns[i] && !table_is_eager(t))
        table_touch(t, row, c->seen[i], c->steps[i], 1);
}

/* vectors_plain.c: models whose fields have one id each, in a shorter loop */
bool vectors_are_plain(const struct model *m);
void vectors_learn_plain(struct model *m, struct call *c);

/* device.c: rows on a GPU. */
void model_device_free(struct model *m);
void model_device_watermark(struct model *m);
void model_device_times(const struct model *m, uint32_t field, int64_t *halved_at_us, int64_t *watermark_us,
                        uint32_t *expired_before);
void model_device_set_times(struct model *m, uint32_t field, int64_t halved_at_us, int64_t watermark_us,
                            uint32_t expired_before);

/* model.c: sets m->options and the sizes that follow from them, without taking memory. */
void model_shape(struct model *m, const struct model_options *options);

/* compare.c, for a model with a shadow. model_compare_predicted: events from..to were predicted as
 * `logits` and are about to be added to the batch. model_compare_step: the step was made, but m->steps does
 * not count it yet. */
struct train_events;
void model_compare_predicted(struct model *m, const struct train_events *events, uint32_t from, uint32_t to,
                             const double *logits);
void model_compare_step(struct model *m);
void model_compare_free(struct model *m);

/* train.c: a model that learns by batches of flat columns, on any device. */
void model_train_init(struct model *m);
size_t model_linear_bytes(const struct model *m);
float model_field_bound(const struct model *m, uint32_t field);
uint64_t model_field_seed(const struct model *m, uint32_t field);
void model_train_free(struct model *m);
void model_train_learn(struct model *m, struct call *c);
void model_train_predict(struct model *m, struct call *c);
void model_train_refresh(struct model *m, const struct call *c); /* on a GPU */
/* For checkpoints: model_train_get copies event number `event` of the batch in progress to `e`;
 * model_train_put adds the event `e` to the batch. False: `e` cannot be an event of this model. */
void model_train_get(const struct model *m, uint32_t event, struct example *e);
bool model_train_put(struct model *m, const struct example *e);
/* Reads m->dense_weights from where the steps keep them, and writes them there. A failure of the device is
 * noted in m->error, here and in all functions without a result. */
void model_train_read(struct model *m);
void model_train_write(struct model *m);

/* Dense layers, wherever they lie: their number; outputs n and inputs d of a layer; its weights, biases and
 * state, in floats. MODEL_LAYERS_TRIAL: the fp32 layers of a trial beside the model's own (train/trial.h), of
 * the same shapes. MODEL_LAYERS_WEIGHTS: of the model's own, the n * d weights and n biases without state. */
enum model_layers_of { MODEL_LAYERS_OWN, MODEL_LAYERS_TRIAL, MODEL_LAYERS_WEIGHTS };
size_t model_layers(const struct model *m);
void model_layer_shape(const struct model *m, size_t layer, size_t *n, size_t *d);
size_t model_layer_floats(const struct model *m, size_t layer);
void model_layer_get(struct model *m, enum model_layers_of of, size_t layer, float *floats);
void model_layer_put(struct model *m, enum model_layers_of of, size_t layer, const float *floats);

/* linear_part.c: the weights of an event's entries, the dense features and the bias, gathered
 * into one array. */
size_t linear_lanes(const struct model *m);
double linear_forward(struct model *m, struct example *e);
void linear_update(struct model *m, struct example *e, double gradient, float curvature);
/* Copies the dense weights and the bias, with one float of state each, into the gathered array (is_in) or
 * back. w: where the first dense weight lies in the array; its state lies at w[whole]. */
void linear_move_dense(struct model *m, float *w, size_t whole, bool is_in);
void linear_init_payload(const struct model *m, void *payload);

/* linear_plain.c: models of linear weights alone, with one float of state each. */
bool linear_is_plain(const struct model *m);
struct plain *linear_plain_new(const struct model *m);
void linear_plain_free(struct plain *plain);
void linear_learn_plain(struct model *m, struct call *c);

/* Inputs of dense layers over the vectors of `fields` fields; 0 without an interaction. */
static inline size_t interaction_inputs(const struct model *m, uint32_t fields)
{
    const struct interaction *i = m->options.interaction;
    return i != NULL ? i->inputs(fields, m->options.dim) : 0;
}

/* interaction.c */
void interaction_pool(struct model *m, struct example *e);
/* The gradient by a field's vector. */
static inline const float *interaction_gradient(const struct model *m, const struct example *e,
                                                uint32_t field)
{
    return e->partners + (size_t)field * m->vector_floats;
}
/* Floats of pair_weights without their optimizer's state. */
size_t interaction_pairs(const struct model *m);
/* The logit's variance by newton's precisions; 0 for other optimizers. Call after the forward pass
 * and interaction_learn_pairs. */
float interaction_variance(struct model *m, const struct example *e);
float linear_variance(struct model *m, const struct example *e);
/* Without a head: moves the pair weights, and computes the gradients of the weighted sum. */
void interaction_learn_pairs(struct model *m, struct example *e);
void interaction_pairs_step(struct model *m, struct example *e, float *scales);
void interaction_update(struct model *m, struct example *e, float gradient, float curvature);

#endif
