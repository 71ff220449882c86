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
    struct ints hidden;
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
                          "weight of an example; default 1. An example of weight 0 is predicted but not "    \
                          "learned: it counts as `weightless`, not as an occurrence of its ids, and not in " \
                          "schedules, batches and metrics. The metrics count every other example once"),     \
        OPTION_INT(struct learner_config, list_max, "list_max", 0, "64", "1", "1024",                        \
                   "how many ids of a list are read, from its beginning. For each list feature the report "  \
                   "counts longer lists (`lists_cut`) and the ids that were left out (`ids_cut`)"),          \
        OPTION_COLUMNS(struct learner_config, known_early, "known_early", 0,                                 \
                       "columns that the label is computed from, but that are known when the model is "      \
                       "asked for a prediction")

#define LEARNER_VECTORS_OPTION                                                                               \
    OPTION_EXPRESSIONS(struct learner_config, sparse, "sparse", OPTION_REQUIRED,                             \
                       "ids: single values or lists; each id has a vector")

#define LEARNER_IDS_OPTIONS                                                                                  \
    OPTION_EXPRESSIONS(struct learner_config, sparse, "sparse", OPTION_REQUIRED,                             \
                       "ids: single values or lists; each id has a vector and a weight"),                    \
        OPTION_EXPRESSIONS(struct learner_config, wide, "wide", 0,                                           \
                           "ids with a weight but no vector, for example crosses")

#define LEARNER_LOSS_OPTION(def)                                                                             \
    OPTION_ENUM(struct learner_config, loss, "loss", 0, def, "logistic|squared", "loss that is minimized")

/* embedding_table: an option table made of LEARNER_EMBEDDING_OPTIONS. */
#define LEARNER_WEIGHTS_OPTIONS(loss_def, embedding_table)                                                   \
    LEARNER_RATED_OPTIONS(loss_def, "adagrad { rate: 0.1 }", embedding_table)

#define LEARNER_RATED_OPTIONS(loss_def, linear_def, embedding_table)                                         \
    LEARNER_LOSS_OPTION(loss_def),                                                                           \
        OPTION_KIND(struct learner_config, linear, "linear", 0, linear_def, optimizer_kinds,                 \
                    "optimizer of the weights of ids and dense features"),                                   \
        OPTION_BLOCK(struct learner_config, embedding, struct embedding_config, "embedding", 0,              \
                     embedding_table, "vectors of ids")

/* Admission and expiry of ids. made: "a row" or "a weight"; many: the plural, for the help texts. */
#define LEARNER_ADMISSION_OPTIONS(made, many)                                                                \
    OPTION_INT(struct embedding_config, admit_after, "admit_after", 0, "1", "1", "255",                      \
               "occurrences of an id before it gets " made),                                                 \
        OPTION_BYTES(struct embedding_config, sketch_bytes, "sketch", 0, "4MiB", "4KiB", "16GiB",            \
                     "memory of each feature for counting ids that are not yet admitted"),                   \
        OPTION_DURATION(struct embedding_config, expire_after_us, "expire_after", 0, "0s", "0s", NULL,       \
                        "how long, in event time, an id may be absent before it is removed; 0s: for ever. "  \
                        "In the report, `rows` counts an expired id until a sweep removes it; from then on " \
                        "`rows_expired` counts it"),                                                         \
        OPTION_INT(struct embedding_config, rows_max, "rows_max", 0, "0", "0", NULL,                         \
                   "most " many " of a feature; 0: no limit")

#define LEARNER_EMBEDDING_OPTIONS(dim_def, dim_help, init_def, optimizer_def)                                \
    OPTION_INT(struct embedding_config, dim, "dim", 0, dim_def, "4", "512", dim_help),                       \
        OPTION_FLOAT(struct embedding_config, init, "init", 0, init_def, "0.0", "100.0",                     \
                     "initial values of vectors are uniform between minus `init` and `init`"),               \
        OPTION_ASSIGNMENTS(struct embedding_config, init_of, "init_of", 0,                                   \
                           "`init` of single features: `{ user_id: 0.01, hour: 0.2 }`"),                     \
        OPTION_KIND(struct embedding_config, optimizer, "optimizer", 0, optimizer_def, optimizer_kinds,      \
                    "optimizer of the vectors"),                                                             \
        LEARNER_ADMISSION_OPTIONS("a row", "rows")

#define LEARNER_PAIRS_OPTIONS                                                                                \
    OPTION_EXPRESSIONS(struct learner_config, pairs, "pairs", 0,                                             \
                       "with `batch: 1`: pairs of features that interact: `[[user_id, item_id], [item_id, "  \
                       "device]]`; not given: all pairs"),                                                   \
        OPTION_KIND(struct learner_config, pair_weights, "pair_weights", 0, "sgd { rate: 0.0 }",             \
                    optimizer_kinds,                                                                         \
                    "with `batch: 1`: optimizer of the learned weight of each pair of features (Pan 2018); " \
                    "rate 0.0: all weights stay 1")

#define LEARNER_LAYERS_OPTIONS(hidden_def, hidden_help)                                                      \
    OPTION_INTS(struct learner_config, hidden, "hidden", 0, hidden_def, "1", "4096", hidden_help),           \
        OPTION_KIND(struct learner_config, head, "hidden_optimizer", 0,                                      \
                    "adagrad { rate: 0.05, accumulator: 0.1 }", optimizer_kinds,                             \
                    "optimizer of the dense layers; when they learn by batches: `sgd`, `momentum`, "         \
                    "`adagrad`, `adam` or `ftrl`"),                                                          \
        LEARNER_PRECISION_OPTIONS

#define LEARNER_PRECISION_OPTIONS                                                                            \
    OPTION_ENUM(struct learner_config, precision, "precision", 0, "fp32", "fp32|bf16|fp16|auto",             \
                "number format in which dense layers multiply when they learn by batches; weights and sums " \
                "are always fp32. fp32: no TF32; fp16: gradients are scaled; auto: bf16, if it makes the "   \
                "loss at most 0.1 % worse"),                                                                 \
        OPTION_INT(struct learner_config, precision_trial, "precision_trial", 0, "100000", "1", NULL,        \
                   "with `precision: auto`: how many examples are learned in both bf16 and fp32 before one " \
                   "of the two is kept"),                                                                    \
        OPTION_INT(struct learner_config, accumulate, "accumulate", 0, "1", "1", "1024",                     \
                   "batches whose gradients are added up for one step: n batches learn like one `batch` n "  \
                   "times as large, in the memory of one batch")

#define LEARNER_HEAD_OPTIONS(hidden_def, hidden_help)                                                        \
    LEARNER_LAYERS_OPTIONS(hidden_def, hidden_help),                                                         \
        OPTION_INT(struct learner_config, hidden_batch, "hidden_batch", 0, "16", "1", "16",                  \
                   "with `batch: 1`: examples in a step of the dense layers; weights of ids still change "   \
                   "with each example, by gradients computed before that step")

#define LEARNER_TRAINING_OPTIONS                                                                             \
    OPTION_INT(struct learner_config, batch, "batch", 0, "1", "1", "65536",                                  \
               "examples in a step; 1: learns from each example at once, which learns best"),                \
        LEARNER_BATCH_MIN_OPTION, LEARNER_STEP_OPTIONS

#define LEARNER_BATCH_MIN_OPTION                                                                             \
    OPTION_INT(struct learner_config, batch_min, "batch_min", 0, "0", "0", "65536",                          \
               "smallest number of examples in a step with live sources: steps follow the load, from "       \
               "`batch_min` when few examples arrive up to `batch` when the job catches up. A replay takes " \
               "the steps of the order log; files are learned by `batch`. 0: always `batch`")

/* For kinds that learn by batches alone. */
#define LEARNER_BATCH_SIZE_OPTIONS                                                                           \
    OPTION_INT(struct learner_config, batch, "batch", 0, "512", "1", "65536", "examples in a step"),         \
        LEARNER_BATCH_MIN_OPTION, LEARNER_CLIP_OPTION
#define LEARNER_BATCH_OPTIONS LEARNER_BATCH_SIZE_OPTIONS, LEARNER_BALANCE_OPTIONS, LEARNER_RUN_OPTIONS

#define LEARNER_CLIP_OPTION                                                                                  \
    OPTION_FLOAT(                                                                                            \
        struct learner_config, clip_norm, "clip_norm", 0, "0.0", "0.0", NULL,                                \
        "largest norm of an example's gradient, which needs `batch: 1`; with dense layers, and any "         \
        "`batch`, of a step's gradient with respect to their weights; 0: no limit")

#define LEARNER_STEP_OPTIONS LEARNER_CLIP_OPTION, LEARNER_BALANCE_OPTIONS, LEARNER_RUN_OPTIONS

#define LEARNER_BALANCE_OPTIONS                                                                              \
    OPTION_FLOAT(struct learner_config, positive_weight, "positive_weight", 0, "1.0", "1e-6", "1e6",         \
                 "weight of label 1"),                                                                       \
        OPTION_FLOAT(struct learner_config, negative_weight, "negative_weight", 0, "1.0", "1e-6", "1e6",     \
                     "weight of label 0"),                                                                   \
        OPTION_FLOAT(struct learner_config, keep_negatives, "keep_negatives", 0, "1.0", "1e-6", "1.0",       \
                     "share of the examples with label 0 that are learned; predictions are corrected for "   \
                     "the share"),                                                                           \
        OPTION_BOOL(struct learner_config, fake_negatives, "fake_negatives", "false",                        \
                    "for examples from `attribute ... emit fake_negative`: weighs examples so that the "     \
                    "prediction is the probability of the true label (Ktena 2019, fake negative weighted); " \
                    "without this option the probability is `prediction / (1.0 - prediction)` (fake "        \
                    "negative calibration). The metrics count the rows as they come")

#define LEARNER_RUN_OPTIONS                                                                                  \
    OPTION_FLOAT(struct learner_config, bias, "bias", 0, "0.0", "-1000.0", "1000.0",                         \
                 "initial value of the bias"),                                                               \
        OPTION_INT(struct learner_config, window, "window", 0, "100000", "16", "1000000000",                 \
                   "number of newest examples in the sliding evaluation"),                                   \
        OPTION_INT(struct learner_config, metrics_every, "metrics_every", 0, "100000", "1", NULL,            \
                   "examples between two rows of `metrics`; one more row comes when the input has ended"),   \
        OPTION_BLOCK(struct learner_config, freeze, struct freeze_config, "freeze", 0, learner_freeze,       \
                     "stops learning, but not predicting, while figures of the window are outside "          \
                     "of these bands; meanwhile ids that occur keep their rows, and other ids "              \
                     "expire (`expire_after`)"),                                                             \
        OPTION_EXPRESSION(struct learner_config, device, "device", OPTION_RUNTIME,                           \
                          "where the learner runs: `cpu`; `cuda(0)`: a GPU by its number; `auto`: GPU 0 if " \
                          "it is usable and the learner learns by batches, else the CPU"),                   \
        OPTION_BYTES(struct learner_config, device_memory, "device_memory", OPTION_RUNTIME, "0B", "0B",      \
                     NULL,                                                                                   \
                     "memory of the GPU for rows; an eighth of it is for rows that a checkpoint copies; "    \
                     "0B: two thirds of the free memory"),                                                   \
        OPTION_BYTES(struct learner_config, pinned_memory, "pinned_memory", OPTION_RUNTIME, "64MiB", "1MiB", \
                     NULL, "pinned memory of the host, for rows that do not fit into `device_memory`"),      \
        OPTION_INT(struct learner_config, seed, "seed", 0, "1", "0", NULL, "seed of initial values")

/* bind.c: make columns of the expressions, check options, make the output schema and c->model. False after a
 * diagnostic. learner_bind_network: for a kind that is a network without a linear part or an interaction; own:
 * the network's own options, which live as long as the job. */
bool learner_bind(struct operator_bind *bind, const struct interaction *interaction);
bool learner_bind_network(struct operator_bind *bind, const struct network *network, const void *own);
/* Copies widths of layers, and ends them with 0. False after a diagnostic: there are too many. */
bool learner_widths(struct operator_bind *bind, const struct ints *from, uint32_t to[MODEL_LAYERS_MAX]);

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
