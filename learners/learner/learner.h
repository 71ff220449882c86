/*
 * The parts of a learner kind. The kind's file (linear.c, fm.c ...) has an option table, made of the rows
 * below and of its own rows; a function `bind`; and a descriptor, whose other callbacks LEARNER_KIND sets.
 * The kind's option struct is struct learner_config, or begins with it.
 */
#ifndef LEAT_LEARNERS_LEARNER_LEARNER_H
#define LEAT_LEARNERS_LEARNER_LEARNER_H

#include "core/learner.h"
#include "learners/learner/optimizer_options.h"
#include "learners/model/model.h"

struct embedding_config {
    int64_t dim, admit_after, rows_max, sketch_bytes;
    int64_t expire_after_us;
    double init;
    struct assignments init_of;
    struct kind_ref optimizer;
};

/* Bands of the evaluation window's figures: while a figure is outside its band nothing is learned. 0: no
 * bound. after: examples with weight before the bands count. */
struct freeze_config {
    double calibration_min, calibration_max, label_mean_min, label_mean_max;
    int64_t after;
};

/* The first three values are those of enum row_format. */
enum learner_precision { PRECISION_FP32, PRECISION_BF16, PRECISION_FP16, PRECISION_AUTO };

static inline const char *learner_precision_name(int precision)
{
    static const char *const names[] = {"fp32", "bf16", "fp16", "auto"};
    return names[precision];
}

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
    /* the option `device` as bind has read it; device_number: the GPU's number */
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
    /* [sparse features] names of the counters in the report; NULL: the feature is no list */
    struct learner_list {
        const char *lists_cut, *ids_cut;
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
                      "what to predict: a bool or number of the input; with `loss: logistic` a share "       \
                      "from 0 to 1, else the example is rejected"),                                          \
        LEARNER_FEATURE_OPTIONS

#define LEARNER_FEATURE_OPTIONS                                                                              \
    OPTION_EXPRESSIONS(struct learner_config, dense, "dense", 0,                                             \
                       "numbers or bools that the model reads as they are; scale them to about 1"),          \
        OPTION_EXPRESSION(struct learner_config, weight, "weight", 0,                                        \
                          "weight of an example, 1 where not given. An example of weight 0 is predicted "    \
                          "but not learned: it counts as `weightless`, not as an occurrence of its ids "     \
                          "and not in schedules, batches and figures. The figures count every other "        \
                          "example once"),                                                                   \
        OPTION_INT(struct learner_config, list_max, "list_max", 0, "64", "1", "1024",                        \
                   "how many ids of a list are read, the first ones. The report counts, for each "           \
                   "feature that is a list, longer lists (`lists_cut`) and the ids that were left "          \
                   "out (`ids_cut`)"),                                                                       \
        OPTION_COLUMNS(struct learner_config, known_early, "known_early", 0,                                 \
                       "columns that the label is computed from but that are known when serving")

#define LEARNER_VECTORS_OPTION                                                                               \
    OPTION_EXPRESSIONS(struct learner_config, sparse, "sparse", OPTION_REQUIRED,                             \
                       "ids: single values or lists; a vector for each")

#define LEARNER_IDS_OPTIONS                                                                                  \
    OPTION_EXPRESSIONS(struct learner_config, sparse, "sparse", OPTION_REQUIRED,                             \
                       "ids: single values or lists; a vector and a weight for each"),                       \
        OPTION_EXPRESSIONS(struct learner_config, wide, "wide", 0,                                           \
                           "ids that get a weight but no vector: crosses, for example")

#define LEARNER_LOSS_OPTION(def)                                                                             \
    OPTION_ENUM(struct learner_config, loss, "loss", 0, def, "logistic|squared", "what is minimized")

/* embedding_table: an option table made of LEARNER_EMBEDDING_OPTIONS. */
#define LEARNER_WEIGHTS_OPTIONS(loss_def, embedding_table)                                                   \
    LEARNER_RATED_OPTIONS(loss_def, "adagrad { rate: 0.1 }", embedding_table)

#define LEARNER_RATED_OPTIONS(loss_def, linear_def, embedding_table)                                         \
    LEARNER_LOSS_OPTION(loss_def),                                                                           \
        OPTION_KIND(struct learner_config, linear, "linear", 0, linear_def, optimizer_kinds,                 \
                    "how the weights of ids and dense features move"),                                       \
        OPTION_BLOCK(struct learner_config, embedding, struct embedding_config, "embedding", 0,              \
                     embedding_table, "vectors of ids")

/* Admission and expiry of ids. made: "a row" or "a weight"; many: the plural, for the help texts. */
#define LEARNER_ADMISSION_OPTIONS(made, many)                                                                \
    OPTION_INT(struct embedding_config, admit_after, "admit_after", 0, "1", "1", "255",                      \
               "occurrences of an id before it gets " made),                                                 \
        OPTION_BYTES(struct embedding_config, sketch_bytes, "sketch", 0, "4MiB", "4KiB", "16GiB",            \
                     "memory, for each feature, that counts ids not yet admitted"),                          \
        OPTION_DURATION(struct embedding_config, expire_after_us, "expire_after", 0, "0s", "0s", NULL,       \
                        "how long, in event time, an id may be absent before it is forgotten; 0s: for "      \
                        "ever. `rows` of the report counts expired ids until a sweep removes them, then "    \
                        "`rows_expired` does"),                                                              \
        OPTION_INT(struct embedding_config, rows_max, "rows_max", 0, "0", "0", NULL,                         \
                   "most " many " of a feature; 0: no limit")

#define LEARNER_EMBEDDING_OPTIONS(dim_def, dim_help, init_def, optimizer_def)                                \
    OPTION_INT(struct embedding_config, dim, "dim", 0, dim_def, "4", "512", dim_help),                       \
        OPTION_FLOAT(struct embedding_config, init, "init", 0, init_def, "0.0", "100.0",                     \
                     "initial values of vectors are uniform between minus this and this"),                   \
        OPTION_ASSIGNMENTS(struct embedding_config, init_of, "init_of", 0,                                   \
                           "a feature's own init: `{ user_id: 0.01, hour: 0.2 }`"),                          \
        OPTION_KIND(struct embedding_config, optimizer, "optimizer", 0, optimizer_def, optimizer_kinds,      \
                    "how vectors move"),                                                                     \
        LEARNER_ADMISSION_OPTIONS("a row", "rows")

#define LEARNER_PAIRS_OPTIONS                                                                                \
    OPTION_EXPRESSIONS(struct learner_config, pairs, "pairs", 0,                                             \
                       "pairs of features that interact: `[[user_id, item_id], [item_id, device]]`; "        \
                       "not given: all pairs"),                                                              \
        OPTION_KIND(struct learner_config, pair_weights, "pair_weights", 0, "sgd { rate: 0.0 }",             \
                    optimizer_kinds,                                                                         \
                    "how the learned weight of each pair of features moves (Pan 2018); rate 0.0: "           \
                    "all weights stay 1")

#define LEARNER_LAYERS_OPTIONS(hidden_def, hidden_help)                                                      \
    OPTION_INTS(struct learner_config, hidden, "hidden", 0, hidden_def, "1", "4096", hidden_help),           \
        OPTION_KIND(struct learner_config, head, "hidden_optimizer", 0,                                      \
                    "adagrad { rate: 0.05, accumulator: 0.1 }", optimizer_kinds,                             \
                    "how the dense layers move"),                                                            \
        LEARNER_PRECISION_OPTIONS

#define LEARNER_PRECISION_OPTIONS                                                                            \
    OPTION_ENUM(struct learner_config, precision, "precision", 0, "fp32", "fp32|bf16|fp16|auto",             \
                "format of the factors in the products of dense layers, with `batch`; weights "              \
                "and sums are always fp32. fp32: no TF32; fp16: gradients are scaled; auto: "                \
                "bf16, if it costs at most 0.1 % of the loss"),                                              \
        OPTION_INT(struct learner_config, precision_trial, "precision_trial", 0, "100000", "1", NULL,        \
                   "with precision: auto, examples that fp32 learns beside bf16 before one of the "          \
                   "two stays"),                                                                             \
        OPTION_INT(struct learner_config, accumulate, "accumulate", 0, "1", "1", "1024",                     \
                   "batches whose gradients are added up for one step: like a `batch` so many "              \
                   "times as large, in the memory of one")

#define LEARNER_HEAD_OPTIONS(hidden_def, hidden_help)                                                        \
    LEARNER_LAYERS_OPTIONS(hidden_def, hidden_help),                                                         \
        OPTION_INT(struct learner_config, hidden_batch, "hidden_batch", 0, "16", "1", "16",                  \
                   "with batch: 1, examples in a step of the dense layers; weights of ids then "             \
                   "move example by example, by gradients computed before that step")

#define LEARNER_TRAINING_OPTIONS                                                                             \
    OPTION_INT(struct learner_config, batch, "batch", 0, "1", "1", "65536",                                  \
               "examples in a step; 1 learns from each example at once, and learns best"),                   \
        LEARNER_BATCH_MIN_OPTION, LEARNER_STEP_OPTIONS

#define LEARNER_BATCH_MIN_OPTION                                                                             \
    OPTION_INT(struct learner_config, batch_min, "batch_min", 0, "0", "0", "65536",                          \
               "with live sources, steps follow the load: so many examples when few come, up "               \
               "to `batch` to catch up. A replay follows the order log; files learn by "                     \
               "`batch`. 0: always `batch`")

/* For kinds that learn by batches alone. */
#define LEARNER_BATCH_SIZE_OPTIONS                                                                           \
    OPTION_INT(struct learner_config, batch, "batch", 0, "512", "1", "65536", "examples in a step"),         \
        LEARNER_BATCH_MIN_OPTION, LEARNER_CLIP_OPTION
#define LEARNER_BATCH_OPTIONS LEARNER_BATCH_SIZE_OPTIONS, LEARNER_BALANCE_OPTIONS, LEARNER_RUN_OPTIONS

#define LEARNER_CLIP_OPTION                                                                                  \
    OPTION_FLOAT(struct learner_config, clip_norm, "clip_norm", 0, "0.0", "0.0", NULL,                       \
                 "largest norm of an example's gradient; with dense layers, of a step's gradient "           \
                 "by their weights; 0: no limit")

#define LEARNER_STEP_OPTIONS LEARNER_CLIP_OPTION, LEARNER_BALANCE_OPTIONS, LEARNER_RUN_OPTIONS

#define LEARNER_BALANCE_OPTIONS                                                                              \
    OPTION_FLOAT(struct learner_config, positive_weight, "positive_weight", 0, "1.0", "1e-6", "1e6",         \
                 "weight of label 1"),                                                                       \
        OPTION_FLOAT(struct learner_config, negative_weight, "negative_weight", 0, "1.0", "1e-6", "1e6",     \
                     "weight of label 0"),                                                                   \
        OPTION_FLOAT(struct learner_config, keep_negatives, "keep_negatives", 0, "1.0", "1e-6", "1.0",       \
                     "share of the examples with label 0 that are learned; predictions are corrected "       \
                     "for it"),                                                                              \
        OPTION_BOOL(struct learner_config, fake_negatives, "fake_negatives", "false",                        \
                    "set it if the examples come from `attribute ... emit fake_negative`: weighs "           \
                    "them so that predictions are those of the true labels (Ktena 2019, fake "               \
                    "negative weighted); without it, `prediction / (1.0 - prediction)` is (fake "            \
                    "negative calibration). The metrics are of the rows as they come")

#define LEARNER_RUN_OPTIONS                                                                                  \
    OPTION_FLOAT(struct learner_config, bias, "bias", 0, "0.0", "-1000.0", "1000.0",                         \
                 "initial value of the bias"),                                                               \
        OPTION_INT(struct learner_config, window, "window", 0, "100000", "16", "1000000000",                 \
                   "examples of the sliding evaluation"),                                                    \
        OPTION_INT(struct learner_config, metrics_every, "metrics_every", 0, "100000", "1", NULL,            \
                   "examples between two rows of `metrics`; one more comes when the input has ended"),       \
        OPTION_BLOCK(struct learner_config, freeze, struct freeze_config, "freeze", 0, learner_freeze,       \
                     "when to stop learning, but not predicting, until the figures of the window are "       \
                     "back in these bands; meanwhile ids that occur keep their rows, and other ids "         \
                     "expire (`expire_after`)"),                                                             \
        OPTION_EXPRESSION(struct learner_config, device, "device", OPTION_RUNTIME,                           \
                          "where the learner runs: `cpu`; `cuda(0)`, a GPU by its number; `auto`, a GPU "    \
                          "if there is one and the learner learns by batches"),                              \
        OPTION_BYTES(struct learner_config, device_memory, "device_memory", OPTION_RUNTIME, "0B", "0B",      \
                     NULL,                                                                                   \
                     "memory of the GPU for rows, of which an eighth is for rows that a checkpoint "         \
                     "copies; 0B: two thirds of what is free"),                                              \
        OPTION_BYTES(struct learner_config, pinned_memory, "pinned_memory", OPTION_RUNTIME, "64MiB", "1MiB", \
                     NULL, "pinned memory of the host, for rows that do not fit into `device_memory`"),      \
        OPTION_INT(struct learner_config, seed, "seed", 0, "1", "0", NULL, "seed of initial values")

/* bind.c: make columns of the expressions, check options, make the output schema and c->model. False after a
 * diagnostic. learner_bind_network: for a kind that is a network without a linear part or an interaction. */
bool learner_bind(struct operator_bind *bind, enum interaction_kind interaction);
bool learner_bind_network(struct operator_bind *bind, enum network_kind network);

extern const struct option learner_freeze[]; /* schedule.c */

/* The callbacks of a kind, besides its bind (core/operator.h, core/learner.h). */
bool learner_open(struct operator_context *context);
void learner_process(struct operator_context *context, uint32_t input, struct batch *batch);
void learner_on_watermark(struct operator_context *context, int64_t watermark);
bool learner_is_held(const struct operator_context *context);
void learner_shape(const struct operator_bind *bind, struct byte_buffer *out);
bool learner_snapshot(struct operator_context *context, struct snapshot_writer *writer);
bool learner_restore(struct operator_context *context, struct snapshot_reader *reader);
void learner_report(struct operator_context *context, struct report *report);
bool learner_visit(struct operator_context *context, struct model_visitor *visitor);
bool learner_table(const void *config, uint32_t number, int *column);
/* The id by which the model knows a column's value in a row: a hash, never 0. All nulls, and NaN, have one
 * id. */
uint64_t learner_id(const struct column *column, uint32_t row);
/* Fills `plan` with the memory that the learner will take, by part; `leat explain` shows it. For the time of
 * the call it opens the GPU on which the learner would learn. */
void learner_memory(void *config, struct memory_plan *plan);
/* Describes the row of a sparse feature's value; the query's words are FEATURE VALUE. */
bool learner_describe(struct operator_context *context, struct state_query *query, struct describe *out);
void learner_close(struct operator_context *context);

/* rows: the kind's option table. */
#define LEARNER_KIND(structure, rows, bind_)                                                                 \
    .options = rows, .size = sizeof(structure), .determinism = DETERMINISM_BY_ALL_ROWS, .inputs_min = 1,     \
    .inputs_max = 1, .bind = bind_, .open = learner_open, .process = learner_process,                        \
    .on_watermark = learner_on_watermark, .is_held = learner_is_held, .shape = learner_shape,                \
    .snapshot = learner_snapshot, .restore = learner_restore, .report = learner_report,                      \
    .visit = learner_visit, .table = learner_table, .key = learner_id, .memory = learner_memory,             \
    .describe = learner_describe, .close = learner_close

#endif
