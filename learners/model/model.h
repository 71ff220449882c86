/*
 * A model: tables of rows, one table for each sparse field; weights of the dense features and a bias; an
 * interaction (none, FM, FFM); perhaps dense layers. It reads decoded columns, predicts, then learns. It
 * knows nothing of jobs, lanes or the engine's batches; the learners' descriptors (linear.c, fm.c, ffm.c,
 * mf.c, deepfm.c ...) set its options.
 *
 *   logit = bias + sum w_i x_i + interaction(rows) [+ head(rows, dense features)]
 *
 * Order of updates:
 *   - `batch` 1: an event is predicted with the weights that the last finished block left; its rows are made
 *     by its own occurrence. When `block` events have come, the head's weights make one step, then each
 *     event's rows make theirs, in order. Without a head `block` is 1.
 *   - `batch` > 1: gradients of a batch are summed by row (stable order) and each row makes one step; an
 *     event is predicted by the rows that existed before its batch.
 *
 * The result does not depend on how the events are cut into calls of model_learn. One thread owns a model.
 */
#ifndef LEAT_LEARNERS_MODEL_MODEL_H
#define LEAT_LEARNERS_MODEL_MODEL_H

#include "learners/options.h"
#include "learners/tables/table.h"

struct model;

/* What a model that learns by batches cannot have: the batch kernels have no weights of pairs, no products of
 * FFM under dense layers, no norm of a single event's gradient, no curvature (newton), and no optimizer of dense
 * layers whose state several weights share. CLASH_VECTORS: rows of more than BATCH_DIM_MAX floats. */
enum model_clash {
    CLASH_PAIRS = 1,
    CLASH_PAIR_WEIGHTS = 2,
    CLASH_PRODUCTS = 4,
    CLASH_CLIPPING = 8,
    CLASH_OPTIMIZER = 16,
    CLASH_VECTORS = 32,
    CLASH_NEWTON = 64, /* of linear weights or vectors */
};
/* Which of these the options have: a sum of enum model_clash. A model that learns by batches may have none. */
unsigned model_clashes(const struct model_options *options);

/* Copies the options. The caller frees the model with model_free, which takes NULL, too. */
struct model *model_new(const struct model_options *options, const struct kernels *kernels);
void model_free(struct model *model);

/*
 * A GPU for a model of `is_on_device`: rows, weights and steps are there. Attach it before the first event.
 * memory_bytes: GPU memory for rows. pinned_bytes: host memory for rows that do not fit there.
 * stores[fields], or NULL: where rows go that do not fit in pinned memory; the model owns them, also when
 * model_attach returns false and sets `error`. model_error: the failure of the device since then, or NULL;
 * after one, nothing learned can be trusted.
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
/* Bytes of memory, beside the tables, of a model that learns by batches, computed before the model is made.
 * pinned: of host memory, for a model on a GPU; the other members: of the GPU's memory, or of the host's for
 * a model on the CPU (device NULL). Of a device only api, gpu and stream are read. Returns false for a model
 * that learns event by event, which takes little. */
struct model_plan {
    size_t input, rows, activations, parameters, scratch;
    size_t pinned;
};
bool model_plan(const struct model_options *options, const struct kernels *kernels,
                const struct model_device *device, struct model_plan *plan);
bool model_attach(struct model *model, const struct model_device *device, struct gpu_error *error);
const struct gpu_error *model_error(const struct model *model);
/* The stats of a field's table on a device, with its rows in pinned memory and the cold store; *bytes: what
 * the table takes on the device. Waits for the device. */
struct table_stats model_device_stats(struct model *model, uint32_t field, uint64_t *bytes);
/* The set of device tables that contains a field's table; *table: the field's table within the set. */
struct device_table *model_device_table(const struct model *model, uint32_t field, uint32_t *table);
/* Where failures of the device are noted; model_error reads it. */
struct gpu_error *model_error_place(struct model *model);
/* Dense layers that learn by batches: the format of their products now; fp16's gradient scale and how often
 * it was lowered (train/scale.h); the state of a trial (train/trial.h). */
struct model_precision {
    enum row_format now;
    float scale;
    uint64_t lowered;
    bool is_undecided;
    uint64_t trial_examples;
    double trial_loss_bf16, trial_loss_fp32; /* mean losses; NaN: no examples yet */
};
struct model_precision model_precision(const struct model *model);
/* After a checkpoint's barrier: rows that change from now on belong to `epoch`. */
void model_device_set_epoch(struct model *model, uint32_t epoch);

/*
 * model_compare_begin gives a model on a GPU, before its first event and before a restore, a shadow on the
 * CPU that learns the same batches. Logits are compared, and after each step weights and rows. Values a
 * (GPU) and b (CPU) differ if |a - b| > COMPARE_TOLERANCE * (|b| + root mean square of b's tensor). Comparing
 * waits for the device often. model_shadow: the shadow, whose rows and weights a restore has to restore, too;
 * NULL: none.
 */
#define COMPARE_TOLERANCE 1e-5
struct model_difference {
    bool is_found;
    uint64_t steps; /* steps compared without a difference */
    char text[320]; /* the first difference: step, tensor, place, both values */
};
void model_compare_begin(struct model *model);
struct model *model_shadow(const struct model *model);
const struct model_difference *model_compared(const struct model *model);

/* Sets the lanes that may help within model_learn; NULL: none. The result is the same. */
struct team;
void model_set_team(struct model *model, struct team *team);

/* Rows of the field's table beyond the memory go to the store, which the model frees. Call before
 * the first event. */
void model_set_cold(struct model *model, uint32_t field, struct cold_store *store);
/* Call between calls of model_learn: keeps all tables together within `bytes`, where they have stores. */
void model_keep_memory(struct model *model, int64_t bytes);

/* Whether model_learn reads the ids piece by piece while it learns (read_ids). */
bool model_reads_ahead(const struct model *model);

/* Predicts each event, then learns from it. */
void model_learn(struct model *model, const struct model_input *input, struct model_output *output);

/*
 * Predicts each event as if it came next, as model_learn would, bit for bit; labels and weights are not read. A
 * key without a row counts as absent in a model that learns by batches. Else it has the row that its occurrence
 * would make: a prediction never depends on whether its event teaches. On a CPU nothing changes: cold rows stay
 * in their store, and the call is not counted. A GPU brings the rows of the call's keys up, and counts its time.
 */
void model_predict(struct model *model, const struct model_input *input, double *logits);

/*
 * Predicts only, as a frozen learner does: ids of events that model_learn would have learned do not expire.
 * No occurrence, no other change. Verdict LEARNED: model_learn would have learned the event.
 */
void model_serve(struct model *model, const struct model_input *input, struct model_output *output);

/* is_centered: weighted sums over the events learned, for checkpoints. */
struct model_mean {
    double labels, weights;
};
struct model_mean *model_mean(struct model *model);
/* What is added to all predictions, beside the learned weight of the bias. */
double model_bias(const struct model *model);

/* Learning rates from now on; set them between events. FTRL in double keeps its own rate. */
struct model_rates {
    float linear, embedding, head, pairs;
};
/*
 * Sets the events of a step from now on, 1 .. options.batch (the initial value); if that many events wait
 * already, they make a step at once. For models that learn by batches.
 */
void model_set_step_events(struct model *model, uint32_t events);
uint32_t model_step_events(const struct model *model);
/* Milliseconds that the GPU has been busy with calls and steps so far; 0 on a CPU. */
double model_device_busy_ms(const struct model *model);
void model_set_rates(struct model *model, const struct model_rates *rates);

/* The step whose rows are spared from expiry, because events of its block wait; TABLE_STEP_NONE: no step is in
 * progress. */
uint32_t model_step_in_progress(const struct model *model);

/* Call between events: expiry and admission follow the watermark. */
void model_set_watermark(struct model *model, int64_t watermark_us);

/* What is added to a logit learned from re-weighted events: He 2014, section 6.3, and class weights
 * in one formula. */
double model_correction(const struct model_options *options);

/*
 * Saves the state that is not in the tables' rows: dense weights, head, pair weights, the block or batch in
 * progress, the tables' times. model_save appends it to the buffer. model_load restores it into a model of
 * the same options whose tables' rows were restored before; false if the bytes cannot be such a state.
 */
struct byte_buffer;
void model_save(struct model *model, struct byte_buffer *out);
bool model_load(struct model *model, const void *data, size_t bytes);

/*
 * What predictions depend on, of the same state, and the mean of the labels: no optimizer state of the dense layers,
 * no batch in progress; a block in progress stays, for its rows are spared. model_load_reader puts it into a model of
 * the same options that never learns; it may be called again and again, each time after the tables' rows. False: the
 * bytes, which may be damaged or hostile, cannot be such a state; then the model cannot be used.
 */
void model_save_reader(struct model *model, struct byte_buffer *out);
bool model_load_reader(struct model *model, const void *data, size_t bytes);

/* The features and dense layers of a saved model, mapped to those of this model. */
struct model_saved {
    uint32_t fields, vectors, dense;
    uint32_t hidden[MODEL_LAYERS_MAX];
    int16_t field_of[MODEL_FIELDS_MAX]; /* the saved field's number in this model; -1: gone */
    int16_t dense_of[MODEL_DENSE_MAX];  /* likewise for dense features */
};
/* The mapping of a model to itself. */
struct model_saved model_saved_as(const struct model *model);
/* model_load from a model saved with other features or dense layers: restores the weights of features
 * that both have, and of dense layers whose shape and inputs are the same; the others keep their initial
 * values. Where pairs of features matter (FFM, `pairs`) all features with vectors must be the same, in
 * the same order. */
bool model_load_saved(struct model *model, const struct model_saved *saved, const void *data, size_t bytes);

/* The field's table on the CPU, owned by the model; for a model on a GPU it has no rows. */
struct table *model_table(struct model *model, uint32_t field);
/* Number of calls of model_learn and model_serve so far, by the kernels' variant. */
const struct kernels_calls *model_calls(const struct model *model);

/* visit.c. Shows the weights that predict, dense ones first, then each field's table under names[field];
 * false: the visitor stopped, or a cold store failed. */
struct model_visitor;
bool model_visit_weights(struct model *model, const char *const *names, struct model_visitor *visitor);
/* Describes what is stored for a key (not 0) of a field: its row, or how often it was seen so far; false:
 * nothing. */
struct describe;
bool model_describe(struct model *model, uint32_t field, uint64_t key, struct describe *out);

/* The weights of the dense features, the bias last, LINEAR_FLOATS each: for export and tests.
 * *count: floats. */
const float *model_dense_weights(struct model *model, size_t *count);

/* The learned weight of each pair of fields, (0, 1), (0, 2) ... (n - 2, n - 1); NULL without `pairs`. */
const float *model_pair_weights(const struct model *model);

#endif
