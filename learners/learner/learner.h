/*
 * What all learners share: the option rows, the way from a batch's columns to a model's input, evaluation,
 * snapshots, callbacks. The file of a learner kind (linear.c, fm.c ...) has its option table, made of the
 * rows below and its own, and its bind. Its option struct is, or begins with, struct learner_config. All
 * calls come from the lane that owns the learner, except where said.
 */
#ifndef LEAT_LEARNERS_LEARNER_LEARNER_H
#define LEAT_LEARNERS_LEARNER_LEARNER_H

#include "core/learner.h"
#include "learners/learner/metrics.h"
#include "learners/learner/optimizer_options.h"
#include "learners/model/model.h"

struct embedding_config {
    int64_t dim, admit_after, rows_max, sketch_bytes;
    int64_t expire_after_us;
    double init;
    struct assignments init_of;
    struct kind_ref optimizer;
};

/* Bands of the evaluation window's figures; outside of them nothing is learned. 0: no bound. */
struct freeze_config {
    double calibration_min, calibration_max, label_mean_min, label_mean_max;
    int64_t after;
};

/* The first three have the values of enum row_format. */
enum learner_precision { PRECISION_FP32, PRECISION_BF16, PRECISION_FP16, PRECISION_AUTO };

struct learner_state;

struct learner_config {
    struct expression label, weight;
    struct expressions labels; /* of kinds that learn several labels */
    struct expressions sparse, wide, dense, pairs;
    struct columns known_early;
    struct embedding_config embedding; /* the kind's own option table binds it */
    struct kind_ref linear, head, pair_weights;
    struct ints hidden, bottom;
    int64_t cross_layers, experts;
    struct freeze_config freeze;
    struct expression device;
    int64_t device_memory, pinned_memory;
    /* what `device` says; set by bind, as is device_number */
    enum { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA } device_kind;
    int device_number;
    int loss;
    int precision; /* enum learner_precision */
    int64_t precision_trial;
    int64_t list_max, batch, batch_min, accumulate, hidden_batch, window, metrics_every, seed;
    double clip_norm, positive_weight, negative_weight, keep_negatives, bias;
    bool fake_negatives, mean_bias;
    /* The following members are set by bind. */
    int label_columns[LEARNER_LABELS_MAX];
    uint32_t labels_count;
    const struct learner_label *label_names; /* [labels_count] labels.c */
    int weight_column;                       /* -1: none */
    int sparse_columns[MODEL_FIELDS_MAX], dense_columns[MODEL_DENSE_MAX];
    struct learner_list {
        const char *lists_cut, *ids_cut; /* counters' names in the report; NULL: the field has no lists */
    } lists[MODEL_FIELDS_MAX];
    uint32_t sparse_count, vectors_count, dense_count;
    uint32_t own_columns; /* columns of the input itself, without those added for expressions */
    bool is_scheduled;    /* rates or `freeze` change with the examples seen: schedule.c */
    struct model_options model;
    /* input_schema: with the columns added for expressions */
    const struct schema *metrics_schema, *input_schema;
    struct learner_state *state;
};

/* Rows of a kind's option table, for members of struct learner_config. */
#define LEARNER_INPUT_OPTIONS                                                                                \
    OPTION_EXPRESSION(struct learner_config, label, "label", OPTION_REQUIRED,                                \
                      "what to predict: a bool or number of the input; with `loss: logistic` from 0 to 1, "  \
                      "examples with others are rejected"),                                                  \
        LEARNER_NUMBERS_OPTIONS

#define LEARNER_NUMBERS_OPTIONS                                                                              \
    OPTION_EXPRESSIONS(struct learner_config, dense, "dense", 0,                                             \
                       "numbers the model reads as they are; scale them to about 1"),                        \
        OPTION_EXPRESSION(struct learner_config, weight, "weight", 0,                                        \
                          "how much an example teaches, 1 where not given; one of weight 0 is predicted "    \
                          "and teaches nothing: it is no sighting of its ids, no example of a schedule, a "  \
                          "`batch` or the figures, and counts as `weightless`; of others the figures count " \
                          "each once"),                                                                      \
        OPTION_INT(                                                                                          \
            struct learner_config, list_max, "list_max", 0, "64", "1", "1024",                               \
            "ids of a list that are read, its first; of each feature that is a list the report counts "      \
            "lists that had more, `lists_cut`, and the ids that were left out, `ids_cut`"),                  \
        OPTION_COLUMNS(struct learner_config, known_early, "known_early", 0,                                 \
                       "columns the label is computed from that are known when serving")

#define LEARNER_VECTORS_OPTION                                                                               \
    OPTION_EXPRESSIONS(struct learner_config, sparse, "sparse", OPTION_REQUIRED,                             \
                       "ids: single values or lists; a vector for each")

#define LEARNER_IDS_OPTIONS                                                                                  \
    OPTION_EXPRESSIONS(struct learner_config, sparse, "sparse", OPTION_REQUIRED,                             \
                       "ids: single values or lists; a vector and a weight for each"),                       \
        OPTION_EXPRESSIONS(struct learner_config, wide, "wide", 0,                                           \
                           "ids that get a weight but no vector: crosses, for example")

#define LEARNER_LOSS_OPTION(def)                                                                             \
    OPTION_ENUM(struct learner_config, loss, "loss", 0, def, "logistic|squared", "what is minimised")

/* embedding_table: an option table made of LEARNER_EMBEDDING_OPTIONS. */
#define LEARNER_WEIGHTS_OPTIONS(loss_def, embedding_table)                                                   \
    LEARNER_RATED_OPTIONS(loss_def, "adagrad { rate: 0.1 }", embedding_table)

#define LEARNER_RATED_OPTIONS(loss_def, linear_def, embedding_table)                                         \
    LEARNER_LOSS_OPTION(loss_def),                                                                           \
        OPTION_KIND(struct learner_config, linear, "linear", 0, linear_def, optimizer_kinds,                 \
                    "how the weights of ids and numbers move"),                                              \
        OPTION_BLOCK(struct learner_config, embedding, struct embedding_config, "embedding", 0,              \
                     embedding_table, "vectors of ids")

/* Admission and expiry of ids. made: "a row" or "a weight"; many: the plural, for the help texts. */
#define LEARNER_ADMISSION_OPTIONS(made, many)                                                                \
    OPTION_INT(struct embedding_config, admit_after, "admit_after", 0, "1", "1", "255",                      \
               "sightings of an id before it gets " made),                                                   \
        OPTION_BYTES(struct embedding_config, sketch_bytes, "sketch", 0, "4MiB", "4KiB", "16GiB",            \
                     "memory that counts ids not yet admitted, a feature"),                                  \
        OPTION_DURATION(                                                                                     \
            struct embedding_config, expire_after_us, "expire_after", 0, "0s", "0s", NULL,                   \
            "ids not seen for so long, in event time, are forgotten; 0s: never. `rows` of the report "       \
            "counts them until a sweep removes them, `rows_expired` from then on"),                          \
        OPTION_INT(struct embedding_config, rows_max, "rows_max", 0, "0", "0", NULL,                         \
                   "most " many " a feature may have; 0: not limited")

#define LEARNER_EMBEDDING_OPTIONS(dim_def, dim_help, init_def, optimizer_def)                                \
    OPTION_INT(struct embedding_config, dim, "dim", 0, dim_def, "4", "512", dim_help),                       \
        OPTION_FLOAT(struct embedding_config, init, "init", 0, init_def, "0.0", "100.0",                     \
                     "vectors start uniform within this of zero"),                                           \
        OPTION_ASSIGNMENTS(struct embedding_config, init_of, "init_of", 0,                                   \
                           "a feature's own init: `{ user_id: 0.01, hour: 0.2 }`"),                          \
        OPTION_KIND(struct embedding_config, optimizer, "optimizer", 0, optimizer_def, optimizer_kinds,      \
                    "how vectors move"),                                                                     \
        LEARNER_ADMISSION_OPTIONS("a row", "rows")

#define LEARNER_PAIRS_OPTIONS                                                                                \
    OPTION_EXPRESSIONS(struct learner_config, pairs, "pairs", 0,                                             \
                       "pairs of features that interact: `[[user_id, item_id], [item_id, device]]`; all "    \
                       "where not given"),                                                                   \
        OPTION_KIND(struct learner_config, pair_weights, "pair_weights", 0, "sgd { rate: 0.0 }",             \
                    optimizer_kinds,                                                                         \
                    "how a learned weight for each pair of features moves (Pan 2018); rate 0.0: all stay 1")

#define LEARNER_LAYERS_OPTIONS(hidden_def, hidden_help)                                                      \
    OPTION_INTS(struct learner_config, hidden, "hidden", 0, hidden_def, "1", "4096", hidden_help),           \
        OPTION_KIND(struct learner_config, head, "hidden_optimizer", 0,                                      \
                    "adagrad { rate: 0.05, accumulator: 0.1 }", optimizer_kinds,                             \
                    "how the dense layers move"),                                                            \
        LEARNER_PRECISION_OPTIONS

/* precision.c */
#define LEARNER_PRECISION_OPTIONS                                                                            \
    OPTION_ENUM(                                                                                             \
        struct learner_config, precision, "precision", 0, "fp32", "fp32|bf16|fp16|auto",                     \
        "what dense layers multiply, of a `batch`; their weights and sums are fp32 all the same. fp32: "     \
        "no TF32; fp16: slopes are scaled; auto: bf16, if it costs at most 0.1 % of the loss"),              \
        OPTION_INT(struct learner_config, precision_trial, "precision_trial", 0, "100000", "1", NULL,        \
                   "with precision: auto, examples that fp32 learns beside bf16 before one of them stays"),  \
        OPTION_INT(struct learner_config, accumulate, "accumulate", 0, "1", "1", "1024",                     \
                   "batches whose gradients add up to one step: as a `batch` so many times as large, with "  \
                   "the memory of one")

#define LEARNER_HEAD_OPTIONS(hidden_def, hidden_help)                                                        \
    LEARNER_LAYERS_OPTIONS(hidden_def, hidden_help),                                                         \
        OPTION_INT(struct learner_config, hidden_batch, "hidden_batch", 0, "16", "1", "16",                  \
                   "with batch: 1, examples a step of the dense layers; ids then move example by example, "  \
                   "by gradients taken before that step")

#define LEARNER_TRAINING_OPTIONS                                                                             \
    OPTION_INT(struct learner_config, batch, "batch", 0, "1", "1", "65536",                                  \
               "examples a step; 1 learns from each example at once, and learns best"),                      \
        LEARNER_BATCH_MIN_OPTION, LEARNER_STEP_OPTIONS

#define LEARNER_BATCH_MIN_OPTION                                                                             \
    OPTION_INT(                                                                                              \
        struct learner_config, batch_min, "batch_min", 0, "0", "0", "65536",                                 \
        "of live sources, steps follow the load: from so many examples, when few come, to `batch` of "       \
        "them, to catch up; a replay obeys the order log, else `batch`; 0: always `batch`")

/* For kinds that learn by batches alone. */
#define LEARNER_BATCH_SIZE_OPTIONS                                                                           \
    OPTION_INT(struct learner_config, batch, "batch", 0, "512", "1", "65536", "examples a step"),            \
        LEARNER_BATCH_MIN_OPTION, LEARNER_CLIP_OPTION
#define LEARNER_BATCH_OPTIONS LEARNER_BATCH_SIZE_OPTIONS, LEARNER_BALANCE_OPTIONS, LEARNER_RUN_OPTIONS

#define LEARNER_CLIP_OPTION                                                                                  \
    OPTION_FLOAT(struct learner_config, clip_norm, "clip_norm", 0, "0.0", "0.0", NULL,                       \
                 "largest norm of an example's gradient, with dense layers of a step's by them; 0: not "     \
                 "limited")

#define LEARNER_STEP_OPTIONS LEARNER_CLIP_OPTION, LEARNER_BALANCE_OPTIONS, LEARNER_RUN_OPTIONS

#define LEARNER_BALANCE_OPTIONS                                                                              \
    OPTION_FLOAT(struct learner_config, positive_weight, "positive_weight", 0, "1.0", "1e-6", "1e6",         \
                 "weight of label 1"),                                                                       \
        OPTION_FLOAT(struct learner_config, negative_weight, "negative_weight", 0, "1.0", "1e-6", "1e6",     \
                     "weight of label 0"),                                                                   \
        OPTION_FLOAT(struct learner_config, keep_negatives, "keep_negatives", 0, "1.0", "1e-6", "1.0",       \
                     "share of the examples with label 0 to learn from; predictions are corrected for it"),  \
        OPTION_BOOL(struct learner_config, fake_negatives, "fake_negatives", "false",                        \
                    "the examples come from `attribute ... emit fake_negative`: weighs them so that "        \
                    "predictions are of the true labels (Ktena 2019, fake negative weighted; without it, "   \
                    "`prediction / (1.0 - prediction)` is, fake negative calibration); the metrics are of "  \
                    "the rows as they come")

#define LEARNER_RUN_OPTIONS                                                                                  \
    OPTION_FLOAT(struct learner_config, bias, "bias", 0, "0.0", "-1000.0", "1000.0",                         \
                 "where the bias starts"),                                                                   \
        OPTION_INT(struct learner_config, window, "window", 0, "100000", "16", "1000000000",                 \
                   "examples of the sliding evaluation"),                                                    \
        OPTION_INT(struct learner_config, metrics_every, "metrics_every", 0, "100000", "1", NULL,            \
                   "examples between two rows of `metrics`; one more comes when the input has ended"),       \
        OPTION_BLOCK(struct learner_config, freeze, struct freeze_config, "freeze", 0, learner_freeze,       \
                     "when to stop learning, not predicting, until the window's figures are back; ids that " \
                     "it meets meanwhile stay, with their weights, others expire as ever (`expire_after`)"), \
        OPTION_EXPRESSION(struct learner_config, device, "device", OPTION_RUNTIME,                           \
                          "where it learns: `cpu`, `cuda(0)` a GPU by its number, `auto` a GPU where there " \
                          "is one and it learns by batches"),                                                \
        OPTION_BYTES(struct learner_config, device_memory, "device_memory", OPTION_RUNTIME, "0B", "0B",      \
                     NULL,                                                                                   \
                     "of a GPU, for rows, an eighth of it for those that a checkpoint copies; 0B: two "      \
                     "thirds of what is free"),                                                              \
        OPTION_BYTES(struct learner_config, pinned_memory, "pinned_memory", OPTION_RUNTIME, "64MiB", "1MiB", \
                     NULL, "of the host, for rows that do not fit into the GPU's"),                          \
        OPTION_INT(struct learner_config, seed, "seed", 0, "1", "0", NULL, "of the rows' first values")

/* The column of an expression that has to be a number or (is_number false) an id; -1 after a diagnostic. */
int learner_bind_column(struct operator_bind *bind, const struct ast *ast, bool is_number);
/* Makes columns of the expressions, checks types, makes the output schema and c->model. The three bind
 * functions return false after a diagnostic. */
bool learner_bind(struct operator_bind *bind, enum interaction_kind interaction);
/* Likewise, for a kind that is a network without a linear part or an interaction. */
bool learner_bind_network(struct operator_bind *bind, enum network_kind network);
/* precision.c. learner_bind_precision: call it when the model's options are set. */
bool learner_bind_precision(struct operator_bind *bind, struct learner_config *c);
void learner_shape_precision(const struct learner_config *c, struct byte_buffer *out);
void learner_report_precision(const struct learner_config *c, struct report *report);
/* schedule.c. learner_piece: how many of `rows` rows come before the next decision about rates and
 * freezing. learner_schedule: decides; call it before each piece. */
extern const struct option learner_freeze[];
bool learner_schedule_bind(struct operator_bind *bind, struct learner_config *c);
uint32_t learner_piece(const struct learner_config *c, uint32_t rows);
void learner_schedule(struct learner_config *c);
/* fields.c: options `pairs` and `init_of`; call them when `sparse` is bound. */
bool learner_bind_pairs(struct operator_bind *bind, struct learner_config *c);
bool learner_bind_inits(struct operator_bind *bind, struct learner_config *c);
bool learner_open(struct operator_context *context);
void learner_process(struct operator_context *context, uint32_t input, struct batch *batch);
void learner_on_watermark(struct operator_context *context, int64_t watermark);
bool learner_is_held(const struct operator_context *context);
bool learner_snapshot(struct operator_context *context, struct snapshot_writer *writer);
bool learner_restore(struct operator_context *context, struct snapshot_reader *reader);
void learner_report(struct operator_context *context, struct report *report);
bool learner_visit(struct operator_context *context, struct model_visitor *visitor); /* visit.c */
bool learner_table(const void *config, uint32_t number, int *column);
/* visit.c: describes the row of a feature's value; the query's words are FIELD VALUE. */
bool learner_describe(struct operator_context *context, struct state_query *query, struct describe *out);
void learner_close(struct operator_context *context);
/* features.c: the list of features in a checkpoint. */
void learner_shape(const struct operator_bind *bind, struct byte_buffer *out);
void learner_features_save(const struct learner_config *c, struct byte_buffer *out);
/* Reads the list of a checkpoint, before any of its rows; makes the model anew if the tables' numbers differ.
 * False: the bytes cannot be such a list, or the model could not be made. */
bool learner_features_load(struct operator_context *context, struct str list);
/* Whether rows beyond the learner's memory go to cold stores; with `rows_max`, which bounds the
 * rows, they do not. */
bool learner_has_cold(const struct operator_context *context);
/* Makes an empty model whose tables have the numbers in the state, in place of the old one. False after a
 * diagnostic: a device refused. */
bool learner_make_model(struct operator_context *context);

/* The callbacks of a kind whose option struct is, or begins with, struct learner_config. rows:
 * its option table. */
#define LEARNER_KIND(structure, rows, bind_)                                                                 \
    .options = rows, .size = sizeof(structure), .determinism = DETERMINISM_BY_ALL_ROWS, .inputs_min = 1,     \
    .inputs_max = 1, .bind = bind_, .open = learner_open, .process = learner_process,                        \
    .on_watermark = learner_on_watermark, .is_held = learner_is_held, .shape = learner_shape,                \
    .snapshot = learner_snapshot, .restore = learner_restore, .report = learner_report,                      \
    .visit = learner_visit, .table = learner_table, .key = learner_id, .memory = learner_memory,             \
    .describe = learner_describe, .close = learner_close

/* Whether an example has weight: only then can it teach anything (model.h, MODEL_WEIGHTLESS). */
static inline bool learner_has_weight(const struct model_input *in, uint32_t i)
{
    return in->weights == NULL || in->weights[i] != 0.0F;
}

/* metrics_rows.c: the rows of the output `NAME.metrics`, one at each multiple of metrics_every examples,
 * wherever batches end. Examples of weight 0 do not count. logits: [labels][BATCH_ROWS]. */
const struct schema *learner_metrics_schema(struct arena *arena, uint32_t labels);
void learner_metrics_add(struct operator_context *context, struct learner_config *c,
                         const struct model_input *in, const double *logits);
/* After the last example: emits the row of the examples since the last row, if there are any. */
void learner_metrics_end(struct operator_context *context, struct learner_config *c);

/* labels.c: names of each label: of its prediction's column, its rows of metrics, its
 * figures in the report. */
enum { LEARNER_FIGURES = 8 };
struct learner_figure {
    const char *name;
    size_t offset; /* offset in struct metrics_values */
    bool is_of_probabilities, is_in_rows;
};
extern const struct learner_figure learner_figures[LEARNER_FIGURES];
struct learner_label {
    const char *name, *prediction;
    const char *report[1 + LEARNER_FIGURES]; /* names of the count of examples and of each figure */
};
bool learner_bind_labels(struct operator_bind *bind, struct learner_config *c);
/* Call when the input's columns are known. */
void learner_name_labels(struct operator_bind *bind, struct learner_config *c);
void learner_report_labels(const struct learner_config *c, struct report *report);

/*
 * device.c: learning on a GPU. learner_bind_device: reads the option `device`.
 * learner_pick_device: decides at open which device this start uses. learner_attach: attaches the model to
 * it. learner_check_device: false if the device has failed since, which ends the run.
 * learner_device_begin: a checkpoint, at its barrier (device/table.h); the tables are held for a while if
 * the checkpoint has many rows.
 */
bool learner_bind_device(struct operator_bind *bind, struct learner_config *c);
bool learner_pick_device(struct operator_context *context);
/* Opens the device that `device` asks for into `state`, if it is a GPU. False: `device` demands a GPU that
 * cannot be used; error says why. learner_device_free: bytes of its memory that are free;
 * learner_device_memory: bytes that tables may take. */
bool learner_open_device(const struct learner_config *c, struct learner_state *state,
                         struct gpu_error *error);
uint64_t learner_device_free(const struct learner_state *state);
uint64_t learner_device_memory(const struct learner_config *c, const struct learner_state *state);
bool learner_attach(struct operator_context *context);
bool learner_check_device(struct operator_context *context);
/* --compare: false if the shadow differs; then the run ends with a diagnostic that shows the difference. */
bool learner_check_compared(struct operator_context *context);
/* During a restore: whether the device has failed; if so, emits a diagnostic. */
bool learner_restore_failed(struct operator_context *context);
void learner_close_device(struct learner_state *state);
void learner_device_begin(struct learner_state *state, uint32_t fields, uint32_t since, uint32_t epoch);
bool learner_device_has_store(const struct learner_state *state, uint32_t field);
/* All rows of a field's table if some are in its cold store; else 0. */
uint64_t learner_device_total(const struct learner_state *state, uint32_t field);
/* Rows in the field's store alone; adds the rows loaded from the stores of a set of tables to *loaded, with
 * the set's first field. */
uint64_t learner_device_cold(const struct learner_state *state, uint32_t field, uint64_t *loaded);
bool learner_device_is_held(const struct learner_state *state, uint32_t fields);
/* Checkpoints of this run that held the tables, because staging was too small. */
uint64_t learner_device_held(const struct learner_state *state, uint32_t fields);
void learner_device_settle(struct learner_state *state, uint32_t fields, bool is_published);
/* Restores `count` stored items of a field; kind: that of their record ('R', 'D' or 'C', checkpoint.c).
 * False: they cannot be of this table, or the device has failed. */
bool learner_device_restore(struct learner_state *state, uint32_t field, uint8_t kind, const void *items,
                            size_t count);
bool learner_device_restored(struct learner_state *state, uint32_t fields, uint32_t epoch);

/* memory.c. learner_memory: the plan that `leat explain` shows. learner_check_memory: before the
 * learner opens; false after a diagnostic that says how much is lacking. */
void learner_memory(void *config, struct memory_plan *plan);
bool learner_check_memory(struct operator_context *context);

/*
 * lists.c: features that are lists, of which the first list_max ids are read.
 * learner_bind_list: one such feature, whose length the plan may know. learner_check_lists: all of
 * them, when the step's size is known.
 */
void learner_bind_list(struct operator_bind *bind, struct learner_config *c, uint32_t field,
                       struct span span);
bool learner_check_lists(struct operator_bind *bind, const struct learner_config *c);
void learner_shape_lists(const struct learner_config *c, struct byte_buffer *out);
void learner_report_lists(const struct learner_config *c, struct report *report);

/* columns.c: a batch's columns as the model reads them; `in` is valid until the next call. */
struct learner_columns_scratch;
struct learner_columns_scratch *learner_columns_new(const struct learner_config *c);
void learner_columns_free(struct learner_columns_scratch *scratch);
/* The id of one value, as the model sees it; never 0. */
uint64_t learner_id(const struct column *column, uint32_t row);
void learner_columns_read(struct learner_columns_scratch *scratch, const struct learner_config *c,
                          const struct batch *batch, struct model_input *in);

/* The state of a running learner. */
struct learner_state {
    struct model *model;
    const struct gpu_api *gpu_api; /* NULL: it learns on the CPU */
    struct gpu *gpu;
    struct gpu_stream *gpu_stream;
    int64_t attached_us; /* monotonic time when the model was attached to the device */
    bool has_failed;     /* the device has failed, and the diagnostic was emitted */
    const struct kernels *kernels;
    struct metrics *metrics; /* [labels] */
    struct learner_columns_scratch *columns;
    /* numbers of the fields' tables; numbers from tables_next on were never used */
    uint16_t tables[MODEL_FIELDS_MAX];
    uint32_t tables_next;
    struct model_saved saved;          /* of a restore: features and layers of the checkpoint */
    uint64_t totals[MODEL_FIELDS_MAX]; /* of a restore: all rows of tables that have cold ones */
    uint32_t published;                /* newest epoch that a published checkpoint holds */
    struct learner_snapshot *snapshot;
    uint64_t seen;        /* examples with weight: schedules, bands and rows of metrics count them */
    int64_t seen_last_us; /* event time of the last example with weight; TIME_MIN: not known */
    bool has_ended;       /* the input has ended and the last row of metrics was emitted */
    uint64_t learned, sampled_out, weightless, frozen, rejected;
    uint64_t lists_cut[MODEL_FIELDS_MAX], ids_cut[MODEL_FIELDS_MAX]; /* lists.c */
    bool is_frozen;
    double *logits; /* [labels][BATCH_ROWS] */
    double *scored; /* [BATCH_ROWS] scratch of metrics_rows.c */
    uint8_t verdicts[BATCH_ROWS];
};

/* checkpoint.c: ends the snapshot in progress if its outcome is known, or if the learner is closing. */
void learner_snapshot_settle(struct learner_state *state, bool is_closing);

#endif
