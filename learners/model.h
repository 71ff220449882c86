/*
 * A model: tables of rows, one a sparse field; weights of the dense features and a bias; an interaction
 * (none, FM, FFM); perhaps a deep head. Reads decoded columns, predicts, then learns. Knows nothing of jobs,
 * lanes or batches of the engine; the learners' descriptors (linear.c, fm.c, ffm.c, mf.c, deepfm.c) set its
 * options.
 *
 *   logit = bias + sum w_i x_i + interaction(rows) [+ head(rows, dense)]
 *
 * What happens when (`block` is 1 without a head):
 *   An event is predicted with the weights left by the last finished block; its rows are made by its own
 * sighting. When `block` events are there, the head's weights make one step, then every event's rows make
 * theirs, in order. With `batch` > 1 instead, gradients of a batch are summed by row (stable order) and each
 * row makes one step; an event is predicted by the rows that were there before its batch. The result does not
 * depend on how the events are cut into calls of model_learn.
 *
 * One thread owns a model.
 */
#ifndef LEARNERS_MODEL_H
#define LEARNERS_MODEL_H

#include "kernels/kernels.h"
#include "learners/loss.h"
#include "learners/table.h"

#include "kernels/batch.h"

enum {
    MODEL_ROWS_MAX = 1024, /* events in one call */
    MODEL_FIELDS_MAX = 64,
    MODEL_DENSE_MAX = 256,
    MODEL_LAYERS_MAX = 6,
    MODEL_LABELS_MAX = 8,
    MODEL_LIST_MAX = 1024,        /* most that list_max can be */
    MODEL_STEP_IDS_MAX = 1 << 30, /* ids of a step's examples: what numbers of places are made for */
    MODEL_LIST_DEFAULT = 64,      /* where it is not said */
};

enum interaction_kind { INTERACTION_NONE, INTERACTION_FM, INTERACTION_FFM };

/* Dense layers (train/net.h): none; `hidden` over vectors and numbers, added to the rest (DeepFM); and those
 * that learn by batches alone, with neither a linear part nor an interaction: DCN V2, DLRM, MMoE. */
enum network_kind { NETWORK_NONE, NETWORK_HIDDEN, NETWORK_CROSS, NETWORK_DOT, NETWORK_EXPERTS };

struct optimizer_options {
    enum opt_kind kind;
    struct opt_params params;
    float accumulator; /* what AdaGrad's and newton's sums start at */
};

struct model_options {
    enum interaction_kind interaction;
    enum loss_kind loss;
    uint32_t fields;  /* sparse */
    uint32_t vectors; /* the first so many of them have vectors and interact; the others are linear only */
    uint32_t dense;
    uint32_t dim;                       /* a multiple of 4; 0 without interaction */
    float init_bound;                   /* vectors start uniform in +- this */
    float field_init[MODEL_FIELDS_MAX]; /* the same by field, where > 0; < 0: zeros */
    bool is_list[MODEL_FIELDS_MAX];     /* fields that may hold several ids: mean of their rows */
    uint32_t list_max;                  /* ids of a list that count, its first; 0: MODEL_LIST_DEFAULT */
    uint8_t pair_is_off[MODEL_FIELDS_MAX * (MODEL_FIELDS_MAX - 1) / 2]; /* pairs that do not interact */
    struct optimizer_options
        pairs; /* a learned weight for each pair of fields (Pan 2018); rate 0: none, all 1 */
    struct optimizer_options linear;
    bool linear_is_double; /* FTRL in double (McMahan 2013); else `linear` */
    struct ftrl64_params ftrl;
    struct optimizer_options embedding;
    enum network_kind network;         /* NETWORK_NONE with `hidden`: NETWORK_HIDDEN */
    uint32_t hidden[MODEL_LAYERS_MAX]; /* 0 ends */
    uint32_t bottom[MODEL_LAYERS_MAX]; /* NETWORK_DOT, _EXPERTS: train/net.h */
    uint32_t cross_layers, experts;
    uint32_t labels;           /* 0 and 1: one */
    bool linear_is_off;        /* ids have vectors alone */
    enum row_format precision; /* of the dense layers' products */
    bool is_tried;             /* ROW_BF16, beside fp32 for so many examples (train/trial.h) */
    uint64_t trial_examples;
    bool is_on_device;   /* model_attach follows */
    bool is_like_device; /* a CPU's: makes its products as a GPU does, where another way is faster */
    struct optimizer_options head;
    uint32_t block; /* events a head step: 1..16; 1 without a head */
    uint32_t batch; /* 1: an update per event (per block) */
    uint32_t micro; /* events of a batch that go through the network together; 0: all. Of models that learn by
                       train/; batch is a multiple of it, and it of 4 */
    float bias;     /* where the bias starts */
    /* Squared loss and one label: a prediction is the mean of the labels learned so far, bias_start before
     * the first, and what the model adds; which learns what a label is beside the mean with it. `bias` is 0.
     */
    bool is_centered;
    float bias_start;
    bool is_joint; /* newton: a step knows that an event's weights moved together (Kalman's gain) */
    float field_precision[MODEL_FIELDS_MAX]; /* linear newton: a field's own prior precision, where > 0 */
    float clip_norm;         /* 0: none; of an event's gradient by all its vectors and weights */
    float class_weights[2];  /* of labels 0 and 1 */
    bool has_fake_negatives; /* logistic: examples are weighed by loss_fake_negative_weight */
    double negatives_kept;   /* share of label-0 events that are learned, by hash of the identity; 1: all */
    uint64_t seed;
    const uint16_t *tables; /* [fields]: numbers that the tables' seeds stand on; NULL: 0, 1, 2 ... */
    uint32_t admit_after;
    size_t sketch_bytes;
    int64_t expire_after_us;
    uint64_t rows_max; /* a field; 0: no limit */
};

/* Most ids that an event can have of a field. */
static inline uint32_t model_field_ids(const struct model_options *options, uint32_t field)
{
    uint32_t most = options->list_max > 0 ? options->list_max : MODEL_LIST_DEFAULT;
    return options->is_list[field] ? most : 1;
}

/* Decoded columns of up to MODEL_ROWS_MAX events. */
struct model_input {
    uint32_t rows;
    const uint64_t *const
        *ids; /* [fields]: hashed ids, 0 = absent; a list field's are all its events' in a row */
    const uint32_t *const
        *offsets; /* [fields]: NULL, or rows + 1 offsets into ids of a list field; NULL: no lists */
    const float *const *dense;       /* [dense][rows] */
    const float *labels;             /* [rows] */
    const float *const *more_labels; /* [labels - 1][rows] of a model of several */
    const float *weights;            /* [rows] or NULL */
    const int64_t *event_time_us;    /* [rows] */
    const uint64_t *identity;        /* [rows]: hash of the event's identity; NULL without down-sampling */
    /* NULL, or makes `ids` of events begin..end, for a model that model_reads_ahead: called piece by piece,
     * by whoever looks up their rows. */
    void (*read_ids)(void *argument, uint32_t begin, uint32_t end);
    void *read_argument;
};

/* An event of weight 0 is predicted and teaches nothing: it is no sighting of its ids, no part of a batch, no
 * step. */
enum model_verdict { MODEL_LEARNED, MODEL_SAMPLED_OUT, MODEL_REJECTED, MODEL_WEIGHTLESS, MODEL_VERDICTS };

struct model_output {
    double *logits;    /* [rows], corrected for sampling and class weights; NaN if rejected */
    uint8_t *verdicts; /* [rows], enum model_verdict */
};

struct model;

struct model *model_new(const struct model_options *options, const struct kernels *kernels);
void model_free(struct model *model);

/*
 * A GPU on which a model of `is_on_device` learns, from before its first event on: rows, weights and steps
 * are there. memory_bytes: of it for rows; pinned_bytes: of host memory for those below; stores[fields], or
 * NULL: for those below these, the model's from now on. false: error; then, too. model_error: what has made
 * the device fail since, or NULL: nothing that was learned after can be trusted.
 */
struct cold_store;
struct model_device {
    const struct gpu_api *api;
    struct gpu *gpu;
    struct gpu_stream *stream;
    uint64_t memory_bytes, pinned_bytes;
    struct cold_store *const *stores;
};
struct gpu_error;
/* What a model that learns by batches takes, beside its tables, before anything is made: where it learns, and
 * of a GPU's host (pinned). device NULL: on the CPU; of a device the kernels and the stream are asked. false:
 * it learns event by event, which takes little. */
struct model_plan {
    size_t input, rows, activations, parameters, scratch;
    size_t pinned;
};
bool model_plan(const struct model_options *options, const struct kernels *kernels,
                const struct model_device *device, struct model_plan *plan);
bool model_can_attach(const struct model_options *options);
bool model_attach(struct model *model, const struct model_device *device, struct gpu_error *error);
const struct gpu_error *model_error(const struct model *model);
/* Of a field's table on a device, with its rows below, and what it takes there; waits. */
struct table_stats model_device_stats(struct model *model, uint32_t field, uint64_t *bytes);
/* The set of tables on a device that has a field, and the field's number there. */
struct device_table *model_device_table(const struct model *model, uint32_t field, uint32_t *number);
/* Where what fails on it is noted. */
struct gpu_error *model_error_place(struct model *model);
/* Of dense layers that learn by batches: what they multiply now; fp16's scale of slopes, and how often it was
 * lowered (train/scale.h); of a trial, how it stands (train/trial.h). */
struct model_precision {
    enum row_format now;
    float scale;
    uint64_t lowered;
    bool is_undecided;
    uint64_t trial_examples;
    double trial_loss_bf16, trial_loss_fp32; /* means; NaN: of none */
};
struct model_precision model_precision(const struct model *model);
/* A checkpoint: rows that change from now on belong to `epoch`. */
void model_device_set_epoch(struct model *model, uint32_t epoch);

/*
 * A model on a GPU, before its first event and before a restore, gets a shadow on the CPU that learns the
 * same batches from then on; after each step both are compared, model_compare.c says what. a and b differ
 * where |a - b| > COMPARE_TOLERANCE * (|b| + root of the mean square of b's tensor). It waits for the device
 * often. model_shadow: the shadow, whose rows and weights a restore has to bring back, too; NULL: there is
 * none.
 */
#define COMPARE_TOLERANCE 1e-5
struct model_difference {
    bool is_found;
    uint64_t steps; /* that were compared, and agreed */
    char text[320]; /* the first difference: step, tensor, place, both values */
};
void model_compare_begin(struct model *model);
struct model *model_shadow(const struct model *model);
const struct model_difference *model_compared(const struct model *model);

/* Lanes that may help within model_learn; NULL: none. The result is the same. */
struct team;
void model_set_team(struct model *model, struct team *team);

/* Rows of the field's table beyond the memory go to the store, which the model frees. Before the first event.
 */
void model_set_cold(struct model *model, uint32_t field, struct cold_store *store);
/* Between calls: keeps all tables together within so many bytes, where they have stores. */
void model_keep_memory(struct model *model, int64_t bytes);

/* Whether model_learn takes input whose ids are read while it learns (read_ids). */
bool model_reads_ahead(const struct model *model);

/* Predicts each event, then learns from it. */
void model_learn(struct model *model, const struct model_input *input, struct model_output *output);

/* Predicts only; labels are not read. Keys without a row count as absent. */
void model_predict(struct model *model, const struct model_input *input, double *logits);

/*
 * Predicts only, as a frozen learner does: what model_learn would have learned keeps its ids' rows from
 * expiring. No sighting, no other change. Verdicts: LEARNED is what would have been.
 */
void model_serve(struct model *model, const struct model_input *input, struct model_output *output);

/* is_centered: sums, for checkpoints. */
struct model_mean {
    double labels, weights;
};
struct model_mean *model_mean(struct model *model);
/* What is added to all predictions, beside the bias's own weight. */
double model_bias(const struct model *model);

/* Between events: from now on. FTRL in double keeps its own. */
struct model_rates {
    float linear, embedding, head, pairs;
};
/*
 * How many events a step has from now on, 1 .. options.batch (at first: that); if as many wait already, they
 * make theirs. Of models that learn by batches with kernels (model_can_attach).
 */
void model_set_step_events(struct model *model, uint32_t events);
uint32_t model_step_events(const struct model *model);
/* How long the GPU has been busy with its calls and steps so far; 0 on a CPU. */
double model_device_busy_ms(const struct model *model);
void model_set_rates(struct model *model, const struct model_rates *rates);

/* Between events: expiry and admission follow the watermark. */
void model_set_watermark(struct model *model, int64_t watermark_us);

/* He 2014, section 6.3, and class weights in one: what is added to a logit learned from re-weighted events.
 */
double model_correction(const struct model_options *options);

/*
 * What is not in the tables' rows: dense weights, head, pair weights, the block or batch in progress,
 * sketches. Appends to the buffer. model_load takes it back into a model of the same options whose tables'
 * rows were restored before; false if the bytes cannot be that.
 */
struct byte_buffer;
void model_save(struct model *model, struct byte_buffer *out);
bool model_load(struct model *model, const void *data, size_t bytes);

/* A model that was saved with other features or dense layers, seen from this one. */
struct model_saved {
    uint32_t fields, vectors, dense;
    uint32_t hidden[MODEL_LAYERS_MAX];
    int16_t field_of[MODEL_FIELDS_MAX]; /* where a field of then is now; -1: gone */
    int16_t dense_of[MODEL_DENSE_MAX];
};
/* As this model is saved itself. */
struct model_saved model_saved_as(const struct model *model);
/* model_load of such a one: weights of features that stay, and dense layers whose shape and inputs are the
 * same; the others stay as they were made. Vectors that pairs of features weigh are all there, in their order
 * (FFM, `pairs`). */
bool model_load_saved(struct model *model, const struct model_saved *saved, const void *data, size_t bytes);

struct table *model_table(struct model *model, uint32_t field);
const struct kernels_calls *model_calls(const struct model *model);

/* The dense weights, bias last, and the head's: for export and tests. */
const float *model_dense_weights(struct model *model, size_t *count);

/* The learned weight of each pair of fields, (0, 1), (0, 2) ... (n - 2, n - 1); NULL without `pairs`. */
const float *model_pair_weights(const struct model *model);

#endif
