/* What the files of this folder share. The lane that owns the learner makes all calls, except where said. */
#ifndef LEAT_LEARNERS_LEARNER_INTERNAL_H
#define LEAT_LEARNERS_LEARNER_INTERNAL_H

#include "learners/learner/learner.h"
#include "learners/learner/metrics.h"

/* The state of a running learner. */
struct learner_state {
    struct model *model;
    struct learner_gpu device; /* api NULL: it learns on the CPU */
    int64_t attached_us;       /* monotonic time when the model was attached to the device */
    bool has_failed;           /* the device has failed, and the diagnostic was emitted */
    const struct kernels *kernels;
    struct metrics *metrics; /* [labels] */
    struct learner_columns_scratch *columns;
    /* numbers of the fields' tables; numbers from tables_next on were never used */
    uint16_t tables[MODEL_FIELDS_MAX];
    uint32_t tables_next;
    struct model_saved saved;          /* of a restore: features and layers of the checkpoint */
    bool had_cold[MODEL_FIELDS_MAX];   /* a checkpoint of the chain may say that a table has cold rows */
    uint64_t totals[MODEL_FIELDS_MAX]; /* of a restore: all rows of a table with cold rows; else 0 */
    /* The epoch that changes of rows now belong to, from 1 on: the learner's own count, which rises with each
     * checkpoint and each cut (cut.c); all its tables begin their epochs together. */
    uint32_t epoch;
    bool notes_changes;     /* for cuts */
    size_t cut_bytes;       /* of the last cut; 0: there was none yet */
    size_t cut_model_bytes; /* of what it had beside the tables */
    uint32_t published;     /* newest epoch that a published checkpoint holds; 0: none */
    struct learner_snapshot *snapshot;
    uint64_t seen;        /* examples with weight: schedules, bands and rows of metrics count them */
    int64_t seen_last_us; /* event time of the last example with weight; TIME_MIN: not known */
    bool has_ended;       /* the input has ended and the last row of metrics was emitted */
    uint64_t learned, sampled_out, weightless, frozen, rejected; /* examples, by what became of them */
    uint64_t scored;                                             /* rows of input 1 with a score */
    struct column *request;                                      /* [columns of input 0] scratch of score.c */
    uint64_t lists_cut[MODEL_FIELDS_MAX], ids_cut[MODEL_FIELDS_MAX];
    bool is_frozen;
    double *logits;  /* [labels][BATCH_ROWS] */
    double *weighed; /* [BATCH_ROWS] scratch of labels.c */
    uint8_t verdicts[BATCH_ROWS];
};

/* --- learner.c --- */

/* Whether rows beyond the learner's memory go to cold stores; with `rows_max`, which bounds the rows, they do
 * not. */
bool learner_has_cold(const struct operator_context *context);
/* Frees the state's model, if there is one, and makes an empty model whose tables have the numbers in
 * state->tables. False after a diagnostic: the device refused. */
bool learner_make_model(struct operator_context *context);
/* Whether steps follow the load (`batch_min`). */
static inline bool learner_follows_load(const struct learner_config *c)
{
    return c->steps.batch_min > 0 && c->steps.batch_min < c->steps.batch;
}

/* Whether an example's weight is not 0: only then is it learned and evaluated (options.h,
 * MODEL_WEIGHTLESS). */
static inline bool learner_has_weight(const struct model_input *in, uint32_t i)
{
    return in->weights == NULL || in->weights[i] != 0.0F;
}

/*
 * --- The parts ---
 *
 * A part's bind function checks its options and sets the part's members of c->model; false after a diagnostic.
 * Its put function appends the part's lines of the learner's shape (core/shape.h).
 */

/* inputs.c. learner_bind_column: the column of an expression that has to be a number or (is_number false) an
 * id; -1 after a diagnostic. learner_bind_sparse: adds features to c->inputs.sparse_columns.
 * learner_vector_field: the number of the field among those with vectors; -1 after a diagnostic.
 * learner_check_lists: a step's examples cannot have more than MODEL_STEP_IDS_MAX ids; call it when the size of
 * a step is known. */
int learner_bind_column(struct operator_bind *bind, const struct ast *ast, bool is_number);
bool learner_bind_sparse(struct operator_bind *bind, struct learner_config *c,
                         const struct expressions *list);
bool learner_bind_dense(struct operator_bind *bind, struct learner_config *c);
int learner_vector_field(struct operator_bind *bind, const struct learner_config *c, const struct ast *ast);
bool learner_check_lists(struct operator_bind *bind, const struct learner_config *c);
void learner_put_lists(const struct learner_config *c, struct byte_buffer *out);
void learner_put_features(const struct learner_config *c, struct arena *arena, struct byte_buffer *out);
static inline struct str learner_field_name(const struct learner_config *c, uint32_t field)
{
    return c->inputs.schema->fields[c->inputs.sparse_columns[field]].name;
}
static inline struct str learner_dense_name(const struct learner_config *c, uint32_t dense)
{
    return c->inputs.schema->fields[c->inputs.dense_columns[dense]].name;
}

/* embedding.c; learner_bind_inits (`init_of`): call it when `sparse` is bound. */
bool learner_bind_inits(struct operator_bind *bind, struct learner_config *c);
void learner_embedding_model(const struct embedding_config *e, struct model_options *o);
void learner_put_embedding(const struct embedding_config *e, struct byte_buffer *out);

/* pairs.c: call it when `sparse` is bound. */
bool learner_bind_pairs(struct operator_bind *bind, struct learner_config *c);
void learner_put_pairs(const struct learner_config *c, struct byte_buffer *out);

/* layers.c. learner_bind_layers: sets the format of dense layers' products, and how many examples of a step go
 * through the layers at a time (`accumulate`). */
extern const char *const learner_precision_names[]; /* of enum learner_precision, and so of enum row_format */
bool learner_bind_layers(struct operator_bind *bind, struct learner_config *c);
void learner_put_layers(const struct learner_config *c, struct byte_buffer *out);
void learner_put_precision(const struct learner_config *c, struct byte_buffer *out);

/* training.c. learner_check_batch: refuses options that only `batch: 1` can have. */
bool learner_check_batch(struct operator_bind *bind, const struct learner_config *c);

/* --- labels.c --- */

enum { LEARNER_FIGURES = 8 };
struct learner_label {
    const char *name, *prediction;           /* prediction: name of its column */
    const char *report[1 + LEARNER_FIGURES]; /* names of the count of examples and of each figure */
};
bool learner_bind_labels(struct operator_bind *bind, struct learner_config *c);
/* Names each label's column of predictions, rows of metrics and figures in the report. Call it when the
 * input's columns are known. */
void learner_name_labels(struct operator_bind *bind, struct learner_config *c);
void learner_report_labels(const struct learner_config *c, struct report *report);
/* learner_metrics_add scores a call's examples, and emits rows of the output `NAME.metrics`: one for each
 * label at each multiple of metrics_every examples, wherever batches end. Examples of weight 0 do not count.
 * logits: [labels][BATCH_ROWS]. */
const struct schema *learner_metrics_schema(struct arena *arena, uint32_t labels);
void learner_metrics_add(struct operator_context *context, struct learner_config *c,
                         const struct model_input *in, const double *logits);
/* After the last example: emits one more row for each label, if examples came since the last rows. */
void learner_metrics_end(struct operator_context *context, struct learner_config *c);

/* --- schedule.c --- */

/* learner_piece: how many of `rows` rows come before the next decision about rates and freezing.
 * learner_schedule: decides; call it before each piece. */
bool learner_schedule_bind(struct operator_bind *bind, struct learner_config *c);
uint32_t learner_piece(const struct learner_config *c, uint32_t rows);
void learner_schedule(struct learner_config *c);

/* --- bind.c --- */

/* The schema of predictions for an input: its own columns, and the predictions, whose lineage is that of the
 * columns `features` [bind->learner->count]. */
const struct schema *learner_output_schema(struct operator_bind *bind, uint32_t input,
                                           const struct schema *own, const int *features);

/* --- learner.c --- */

/* Emits the batch's own columns and the predictions of state->logits (NaN: null). */
void learner_emit(struct operator_context *context, const struct learner_config *c, struct batch *batch,
                  uint32_t output, const struct schema *schema, uint32_t own_columns);

/* --- score.c: rows without a label --- */

/* After the features of input 0 are bound: finds or adds the columns of input 1. False after a diagnostic. */
bool learner_bind_score(struct operator_bind *bind, struct learner_config *c);
/* A batch of input 1 as one of input 0: its columns stand where the model's features are looked for, other columns are
 * not set. Good until the next call; the batch stays the caller's. */
struct batch learner_scored_view(const struct learner_config *c, const struct batch *batch);
/* Emits rows of input 1 with the predictions of state->logits. */
void learner_emit_scores(struct operator_context *context, const struct learner_config *c,
                         struct batch *batch);
/* Predicts rows of input 1 and emits them. */
void learner_score(struct operator_context *context, struct learner_config *c, struct batch *batch);

/* --- columns.c: a batch's columns as the model reads them --- */

struct learner_columns_scratch;
struct learner_columns_scratch *learner_columns_new(const struct learner_config *c);
void learner_columns_free(struct learner_columns_scratch *scratch);
/* Fills `in` with the batch's selected rows, and counts lists that are cut. `in` is valid until the next call,
 * and as long as `batch`. learner_columns_request: for model_predict; reads the features alone, counts
 * nothing. */
void learner_columns_read(struct learner_columns_scratch *scratch, const struct learner_config *c,
                          const struct batch *batch, struct model_input *in);
void learner_columns_request(struct learner_columns_scratch *scratch, const struct learner_config *c,
                             const struct batch *batch, struct model_input *in);

/* --- features.c: the list of features in a checkpoint --- */

void learner_features_save(const struct learner_config *c, struct byte_buffer *out);
/* Reads the list of a checkpoint, before any of its rows; makes the model anew if the tables' numbers differ.
 * False: the bytes cannot be such a list, or the model could not be made. */
bool learner_features_load(struct operator_context *context, struct str list);

/* --- checkpoint.c --- */

/* Ends the snapshot in progress if its outcome is known, or if the learner is closing. */
void learner_snapshot_settle(struct learner_state *state, bool is_closing);

/* --- memory.c --- */

/* Call before the model is made. False after a diagnostic: the learner needs more memory than the GPU, or the
 * host of a learner on the CPU, has free. */
bool learner_check_memory(struct operator_context *context);

/* --- device.c: learning on a GPU --- */

/* Reads the option `device`; false after a diagnostic. */
bool learner_bind_device(struct operator_bind *bind, struct learner_config *c);
/* At open: decides which device this start uses, and opens it; false after a diagnostic. */
bool learner_pick_device(struct operator_context *context);
/* Opens the device that `device` asks for into `state`, if it is a GPU. False: `device` demands a GPU that
 * cannot be used; error says why. */
bool learner_open_device(const struct learner_config *c, struct learner_state *state,
                         struct gpu_error *error);
/* Bytes of the open device's memory. learner_device_free: what is free now. learner_device_memory: what rows
 * may take, the option `device_memory` or two thirds of what is free. */
uint64_t learner_device_free(const struct learner_state *state);
uint64_t learner_device_memory(const struct learner_config *c, const struct learner_state *state);
/* Attaches the model to the open device; false after a diagnostic. */
bool learner_attach(struct operator_context *context);
/* False: the device has failed. The first call that returns false emits the diagnostic, which ends the
 * run. */
bool learner_check_device(struct operator_context *context);
/* --compare: false if the shadow differs; then the run ends with a diagnostic that shows the difference. */
bool learner_check_compared(struct operator_context *context);

/* At a checkpoint's barrier: begins the snapshots of all tables (device_table_snapshot_begin); from then on
 * changes belong to epoch + 1. fields: number of fields. learner_check_device tells of a failure. */
void learner_device_begin(struct learner_state *state, uint32_t fields, uint32_t since, uint32_t epoch);
/* Whether the learner must get no further rows yet: the checkpoint in progress holds the tables
 * (device_table_is_held), or pinned memory is full and the stores take no rows (device_table_is_pressed). */
bool learner_device_is_held(const struct learner_state *state, uint32_t fields);
/* Number of snapshots that held the tables since this process started, because staging was too small. */
uint64_t learner_device_held(const struct learner_state *state, uint32_t fields);
/* Ends the snapshots of all tables, once the checkpoint is published or abandoned. */
void learner_device_settle(struct learner_state *state, uint32_t fields, bool is_published);
/* Whether some rows of a field's table are in its cold store alone; all rows of the table. */
bool learner_device_has_cold(const struct learner_state *state, uint32_t field);
uint64_t learner_device_total(const struct learner_state *state, uint32_t field);
/* Returns the number of rows that lie in the field's store alone. If the field is the first of its set of
 * tables, also adds to *loaded the rows loaded so far from the stores of the whole set. */
uint64_t learner_device_cold(const struct learner_state *state, uint32_t field, uint64_t *loaded);

struct cold_store *learner_device_store(const struct learner_state *state, uint32_t field);
/* Restores `count` stored items of a field; kind: that of their record ('R', 'D' or 'C', checkpoint.c).
 * False: they cannot be of this table, or the device has failed. */
bool learner_device_restore(struct learner_state *state, uint32_t field, uint8_t kind, const void *items,
                            size_t count);
/* Call after the last item; epoch: the checkpoint's. False: the device has failed. */
bool learner_device_restored(struct learner_state *state, uint32_t fields, uint32_t epoch);
/* Cuts of all tables on the device (device_table_cut_note, _cut, _cut_write). The state's epoch is the one that ends;
 * later changes belong to the next one. False: the device has failed, or (note) has too little memory. */
bool learner_device_cut_note(struct learner_state *state, uint32_t fields, bool is_on);
bool learner_device_cut(struct learner_state *state, uint32_t fields);
void learner_device_cut_write(const struct learner_state *state, uint32_t field, struct byte_buffer *out);
/* During a restore: whether the device has failed; if so, emits a diagnostic. */
bool learner_restore_failed(struct operator_context *context);

#endif
