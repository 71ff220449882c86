/* What the files of the model share. */
#ifndef LEARNERS_MODEL_INTERNAL_H
#define LEARNERS_MODEL_INTERNAL_H

#include "kernels/gpu.h"
#include "learners/head.h"
#include "learners/model.h"
#include "learners/table_inline.h"

#include <stdatomic.h>

/*
 * A row's payload: the linear weight (float weight, then its state, one or two floats; or FTRL's z and sum as
 * doubles), then, if there is an interaction, the vector, which begins on a line, and its optimizer's state:
 * before the vector, next to the linear weight, if the row is a line shorter then; else behind it.
 */
enum { LINEAR_BYTES = 16, LINEAR_FLOATS = 4, LINE_BYTES = 64 };

/* One event, resolved. Entries are (row, field) pairs: one a field, more where a field is a list. */
struct example {
    uint32_t entries;
    struct table_row **rows; /* entries_max; NULL: absent */
    uint64_t *keys;          /* entries_max */
    uint16_t *fields;        /* entries_max */
    float *scales;           /* entries_max: 1, or 1 / length of the list */
    float *dense;            /* options.dense */
    float label, weight;
    float more_labels[MODEL_LABELS_MAX - 1];
    uint32_t seen;
    bool learns;
    bool is_rejected;
    double logit;           /* as learned, without correction */
    float slope, curvature; /* times weight */
    double slope_exact;     /* slope before it was rounded, for FTRL in double */
    float interaction;
    /* Forward results that the update needs. */
    const float **vectors; /* FFM_ROUND(fields): each field's vector, pooled or in place */
    float *pooled;         /* fields * vector_floats */
    float *partners;       /* FM: sum[dim] and gradients; FFM: partners */
    float *products;       /* FFM with a head or pair weights: fields * FFM_ROUND(fields) */
    void **places;         /* where the linear weights of entries, dense features and the bias live */
    float *values;         /* what each is multiplied with */
    float *weights;        /* those weights with their state behind (linear_part.c) */
    double *weights64;     /* the same in double: w, z, sums, g */
};

struct model_list {
    uint8_t *learns;
    uint32_t *seen, *steps;
    size_t capacity;
};

/* Scratch of a step that sums gradients over a batch (model_batch.c). */
struct model_entry {
    uint64_t place; /* field and row number: what entries are sorted by */
    uint32_t example, entry;
};

struct model_batch {
    uint64_t *keys; /* of all entries, field by field */
    uint32_t *seen;
    struct table_row **found;
    uint8_t *is_known; /* as table_resolve_batch */
    struct model_entry *entries, *sorted;
    uint32_t *order, *starts;
    float *gradients, *sums; /* a vector an entry; a vector a distinct row */
    float *scales;           /* of an entry's gradient */
    struct opt_row *rows;
    void **places;
    float *slopes, *weights;
    double *weights64;
};

/* Rows found ahead (lookahead.c). */
struct rows_ahead {
    struct call *call;   /* NULL: none in work */
    atomic_uint done;    /* events whose rows are resolved */
    atomic_bool is_busy; /* somebody resolves the next tile */
    uint32_t prefetched; /* events, by the learning thread */
};

struct train;
struct rows_cpu;
struct rows_gpu;

struct model {
    struct model_options options;
    const struct kernels *k;
    opt_function linear_step, embedding_step;
    uint32_t blocks;            /* FFM_ROUND(fields) */
    uint32_t vector_floats;     /* weights of a row's vector */
    size_t vector_at, state_at; /* where it and its state lie in a row's payload */
    size_t linear_states;       /* floats of state a linear weight has */
    float *zero;                /* a vector of zeros */
    float *absent;              /* the linear weight of an absent entry: its value is 0, so it never moves */
    struct table *tables;       /* [fields] */
    struct model_init *inits;
    float *dense_weights; /* (dense + 1) * LINEAR_FLOATS: as in a row; the bias last */
    bool has_pairs;
    float *pair_weights; /* FFM_ROUND(fields * (fields - 1) / 2), then their optimizer's state */
    float *pair_slopes;  /* scratch of the same length */
    float *pair_scales;  /* scratch: fields * FFM_ROUND(fields) */
    struct head head;
    struct example *examples; /* block or batch, then those only scored */
    uint32_t entries_max;     /* what examples have room for */
    uint32_t pending;         /* events of the block in progress */
    uint32_t step_events;     /* that make a step, by batches */
    uint64_t steps;           /* finished blocks or batches */
    struct model_mean mean;   /* is_centered */
    int64_t watermark_us;
    struct table_row **resolved[MODEL_FIELDS_MAX];
    size_t resolved_capacity[MODEL_FIELDS_MAX];
    struct rows_ahead ahead;
    struct team *team;      /* who may help; NULL: nobody */
    struct model_list list; /* list fields: what table_resolve wants to know of each id */
    struct model_batch batch;
    struct train *train; /* batches (train/train.h); NULL: batch 1, or a model that model_batch.c steps */
    struct rows_cpu *rows;
    struct rows_gpu *device_rows; /* on a GPU, instead of rows (model_device.c) */
    struct gpu_error error;       /* of the device; failure GPU_OK: none */
    struct compare *compare;      /* model_compare.c; NULL: no shadow */
    struct opt_row *opt_rows;
    struct plain *plain; /* scratch of linear_plain.c */
    struct kernels_calls calls;
};

/* What the call knows of each of its events before the first step. */
struct call {
    const struct model_input *in;
    struct model_output *out;
    double correction;
    bool all_learn;
    uint8_t learns[MODEL_ROWS_MAX];
    uint32_t seen[MODEL_ROWS_MAX];
    uint32_t steps[MODEL_ROWS_MAX];
};

static inline float *model_vector(const struct model *m, struct table_row *row)
{
    return (float *)(void *)((unsigned char *)table_payload(row) + m->vector_at);
}

static inline float *model_vector_state(const struct model *m, struct table_row *row)
{
    return (float *)(void *)((unsigned char *)table_payload(row) + m->state_at);
}

/* model_learn.c, for model_batch.c and linear_part.c */
void model_example_label(const struct model *m, struct example *e, const struct call *c, uint32_t i);
void model_output(const struct call *c, const struct example *e, int32_t event);
void model_example_forward(struct model *m, struct example *e);
void model_example_judge(struct model *m, struct example *e);
float model_clip_scale(struct model *m, const struct example *e);
/* Before each step: what of the optimizers depends on its number. */
void model_step_begin(struct model *m);
void model_scale_slope(struct example *e, float scale);
void model_head_inputs(struct model *m, const struct example *e, float *row);
void model_deepen(struct model *m, struct example *e, const float *in_slope);

/* lookahead.c. At once, headers included: the rows of events begin..end. learns: which events' keys are
 * sighted; of others only rows that are there are found. */
void lookahead_resolve(struct model *m, struct call *c, const uint8_t *learns, uint32_t begin, uint32_t end);
/* Ahead, between begin and end: m->resolved is filled up to `event`; headers are left to lookahead_touch. */
void lookahead_begin(struct model *m, struct call *c);
void lookahead_need(struct model *m, uint32_t event);
void lookahead_end(struct model *m);

enum { LOOKAHEAD_PREFETCH = 3 };

/* Asks for the lines of event i's rows, of fields from..to. */
static inline void lookahead_prefetch(const struct model *m, uint32_t i, uint32_t from, uint32_t to)
{
    for (uint32_t f = from; f < to; f++) {
        const unsigned char *row = (const unsigned char *)m->resolved[f][i];
        for (size_t line = 0; row && line < m->tables[f].stride; line += LINE_BYTES)
            prefetch_line(row + line);
    }
}

/* Event i's rows are there, and those of some events more are on their way into the cache. */
static inline void lookahead_rows(struct model *m, const struct call *c, uint32_t i)
{
    uint32_t end = MIN(i + LOOKAHEAD_PREFETCH + 1, c->in->rows), fields = 0;
    while (fields < m->options.fields && !m->options.is_list[fields])
        fields++;
    lookahead_need(m, end - 1);
    for (; m->ahead.prefetched < end; m->ahead.prefetched++)
        lookahead_prefetch(m, m->ahead.prefetched, 0, fields);
}

/* A sighting of event i's row of a field that is no list, by the learning thread. */
static inline void lookahead_touch(struct model *m, const struct call *c, uint32_t f, uint32_t i)
{
    struct table *t = &m->tables[f];
    struct table_row *row = m->resolved[f][i];
    if (row && c->learns[i] && !table_is_eager(t))
        table_touch(t, row, c->seen[i], c->steps[i], 1);
}

/* model_cold.c: before rows are looked up event by event: the call's keys. */
void model_warm(struct model *m, const struct call *c);

/* vector_part.c */
bool vectors_are_plain(const struct model *m);
void vectors_learn_plain(struct model *m, struct call *c);

/* model_batch.c: one step of all pending examples, whose keys are set; rows are resolved here. */
void model_batch_init(struct model *m);
void model_batch_free(struct model *m);
void model_batch_step(struct model *m);

/* model_device.c: rows on a GPU. */
void model_device_free(struct model *m);
void model_device_watermark(struct model *m);
void model_device_times(const struct model *m, uint32_t field, int64_t *halved_at_us, int64_t *watermark_us,
                        uint32_t *expired_before);
void model_device_set_times(struct model *m, uint32_t field, int64_t halved_at_us, int64_t watermark_us,
                            uint32_t expired_before);

/* model.c: options as they hold, and what follows of them, without memory. */
void model_shape(struct model *m, const struct model_options *options);
/* Of an event that waits or is learned: the arrays of struct example. */
size_t model_example_bytes(const struct model *m);
/* model_batch.c: of all events of a batch. */
size_t model_batch_bytes(const struct model *m);

/* model_compare.c, of a model with a shadow: events are about to be added to the batch, and were predicted
 * so; the step was made, and is not counted yet. */
struct train_events;
void model_compare_predicted(struct model *m, const struct train_events *events, uint32_t from, uint32_t to,
                             const double *logits);
void model_compare_step(struct model *m);
void model_compare_free(struct model *m);

/* model_train.c: a model that learns by batches of flat columns, on any device. */
bool model_is_trained(const struct model *m);
void model_train_init(struct model *m);
size_t model_linear_bytes(const struct model *m);
float model_field_bound(const struct model *m, uint32_t field);
uint64_t model_field_seed(const struct model *m, uint32_t field);
void model_train_free(struct model *m);
void model_train_learn(struct model *m, struct call *c);
void model_train_predict(struct model *m, struct call *c);
void model_train_refresh(struct model *m, const struct call *c); /* on a GPU */
/* An event of the batch in progress, to a checkpoint and back; false: it cannot be one. */
void model_train_get(const struct model *m, uint32_t event, struct example *e);
bool model_train_put(struct model *m, const struct example *e);
/* m->dense_weights as the step has left them; and the way back. What fails on a device is in m->error, here
 * and in all that has no result. */
void model_train_read(struct model *m);
void model_train_write(struct model *m);

/* Dense layers, wherever they lie: how many; outputs and inputs of one; its weights, biases and state. Of a
 * trial: those of fp32 beside the model's own (train/trial.h), of the same shapes. */
enum model_layers_of { MODEL_LAYERS_OWN, MODEL_LAYERS_TRIAL };
size_t model_layers(const struct model *m);
void model_layer_shape(const struct model *m, size_t layer, size_t *n, size_t *d);
size_t model_layer_floats(const struct model *m, size_t layer);
void model_layer_get(struct model *m, enum model_layers_of of, size_t layer, float *floats);
void model_layer_put(struct model *m, enum model_layers_of of, size_t layer, const float *floats);

/* linear_part.c: one step of `count` separate linear weights, at places, with gradients slopes. The scratch
 * arrays have room for four times count rounded up to 16. */
void linear_step_places(struct model *m, void *const *places, float *slopes, size_t count, float *weights,
                        double *weights64);

/* linear_part.c: the weights of entries, dense features and the bias, gathered into one array. */
size_t linear_lanes(const struct model *m);
double linear_forward(struct model *m, struct example *e);
void linear_update(struct model *m, struct example *e, double slope, float curvature);
/* The dense weights and the bias, between their place and the gathered array, whose lane w is the first's. */
void linear_move_dense(struct model *m, float *w, size_t whole, bool is_in);
void linear_init_payload(const struct model *m, void *payload);

/* linear_plain.c: models that are nothing but this, with one float of state a weight. */
bool linear_is_plain(const struct model *m);
struct plain *linear_plain_new(const struct model *m);
void linear_plain_free(struct plain *plain);
void linear_learn_plain(struct model *m, struct call *c);

/* interaction.c */
void interaction_pool(struct model *m, struct example *e);
float interaction_forward(struct model *m, struct example *e);
/* interaction_pairs.c: FM with a weight for each pair of fields; makes the gradients too. */
float interaction_weighted_forward(struct model *m, struct example *e);
/* Gradient by each field's vector, unit slope: row f at interaction_gradient(m, e, f). */
const float *interaction_gradient(const struct model *m, const struct example *e, uint32_t field);
/* Floats of pair_weights without state. */
size_t interaction_pairs(const struct model *m);
/* The logit's variance by newton's precisions; 0 for other optimizers. After forward and interaction_deepen.
 */
float interaction_variance(struct model *m, const struct example *e);
float linear_variance(struct model *m, const struct example *e);
/* Without a head: moves the pair weights; the gradients are then those of the weighted sum. */
void interaction_deepen(struct model *m, struct example *e);
void interaction_pairs_step(struct model *m, struct example *e, float *scales);
void interaction_update(struct model *m, struct example *e, float slope, float curvature);

#endif
