/*
 * The parts of a learner kind. The kind's file (linear.c, fm.c ...) has an option table, made of the tables
 * and rows below and of its own rows; a function `bind`; and a descriptor, whose other callbacks LEARNER_KIND sets.
 * The kind's option struct is struct learner_config, or begins with it.
 */
#ifndef LEAT_LEARNERS_LEARNER_LEARNER_H
#define LEAT_LEARNERS_LEARNER_LEARNER_H

#include "core/learner.h"
#include "learners/learner/optimizer_options.h"
#include "learners/learner/where.h"
#include "learners/model/model.h"

/* --- The parts of a learner: each has its option struct, its option table and its file --- */

/* inputs.c: what the learner reads. */
struct inputs_config {
    struct expression label, weight;
    struct expressions labels; /* of kinds that learn several labels */
    struct expressions sparse, wide, dense;
    struct columns known_early;
    int64_t list_max;
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
    uint32_t own_columns;        /* columns of the input itself, without those added for expressions */
    const struct schema *schema; /* of the input, with the columns added for expressions */
};
extern const struct option learner_input_options[];   /* `label`, and learner_feature_options */
extern const struct option learner_feature_options[]; /* dense features, weights, lists */
extern const struct option learner_ids_options[];     /* ids with weights: `sparse` and `wide` */
extern const struct option learner_vectors_options[]; /* `sparse` of kinds without weights of ids */

/* embedding.c: rows of ids. */
struct embedding_config {
    int64_t dim, admit_after, rows_max, sketch_bytes;
    int64_t expire_after_us;
    double init;
    struct assignments init_of;
    struct kind_ref optimizer;
};
/* learner_expiry_options: the rows of learner_admission_options whose help also suits ids with a weight
 * alone. */
extern const struct option learner_init_of_options[];
extern const struct option learner_admission_options[];
extern const struct option learner_expiry_options[];

/* pairs.c: which pairs of vectors interact, and how much. */
struct pairs_config {
    struct expressions chosen; /* the option `pairs`; items NULL: not given */
    struct kind_ref weights;
};
extern const struct option learner_pairs_options[];

/* layers.c: dense layers. */
enum learner_precision {
    PRECISION_FP32,
    PRECISION_BF16,
    PRECISION_FP16,
    PRECISION_AUTO
}; /* enum row_format */
struct layers_config {
    struct ints hidden;
    struct kind_ref optimizer;
    int precision; /* enum learner_precision */
    int64_t trial; /* examples of `precision: auto` */
    int64_t accumulate;
    int64_t block; /* the option `hidden_batch` */
};
extern const struct option learner_layers_options[]; /* beside LEARNER_HIDDEN_OPTION */
extern const struct option learner_head_options[];   /* learner_layers_options, also with `batch: 1` */

/* training.c: steps, and which examples count how much. */
struct steps_config {
    int64_t batch, batch_min;
    double clip_norm;
};
struct balance_config {
    double positive_weight, negative_weight, keep_negatives;
    bool fake_negatives;
};
extern const struct option learner_steps_options[];   /* of kinds that also learn from single events */
extern const struct option learner_batches_options[]; /* of kinds that learn by batches alone */
extern const struct option learner_balance_options[];

/* schedule.c: figures, and bands of the evaluation window's figures: while a figure is outside its band
 * nothing is learned. 0: no bound. after: examples with weight before the bands count. */
struct freeze_config {
    double calibration_min, calibration_max, label_mean_min, label_mean_max;
    int64_t after;
};
struct evaluation_config {
    int64_t window, metrics_every;
    struct freeze_config freeze;
    const struct schema *schema; /* of the output `metrics`; set by bind */
};
extern const struct option learner_evaluation_options[];

/* device.c: where the learner runs. */
struct device_config {
    struct learner_where where;
    int64_t memory, pinned;
};
extern const struct option learner_device_options[];

/* score.c: rows without a label, which are predicted and not learned. */
struct score_config {
    struct name_ref stream;
    /* The following members are set by bind. */
    const struct schema *schema; /* of the output `scores`; NULL: no stream is given */
    uint32_t own_columns;        /* of the stream, without those added for expressions */
    int sparse_columns[MODEL_FIELDS_MAX], dense_columns[MODEL_DENSE_MAX]; /* of input 1 */
};
extern const struct option learner_score_options[];

struct learner_state;

struct learner_config {
    struct inputs_config inputs;
    int loss;
    double bias;
    bool mean_bias;
    struct kind_ref linear; /* config NULL: the kind has no weights of ids and dense features */
    struct embedding_config embedding;
    struct steps_config steps;
    struct balance_config balance;
    struct evaluation_config evaluation;
    struct device_config device;
    struct score_config score;
    int64_t seed;
    /* Parts that not every kind has: members of the kind's own struct, set before learner_bind. NULL: the kind
     * does not have the part. */
    struct pairs_config *pairs;
    struct layers_config *layers;
    /* The following members are set by bind. */
    bool is_scheduled; /* rates or `freeze` change with the examples seen: schedule.c */
    struct model_options model;
    struct learner_state *state;
};

static inline bool learner_has_hidden(const struct learner_config *c)
{
    return c->layers != NULL && c->layers->hidden.count > 0;
}

/* bind.c, for struct learner_config: options that all kinds have. learner_training_options: these and the steps
 * and the balance of kinds that also learn from single events. */
extern const struct option learner_training_options[];
extern const struct option learner_run_options[];

/* Rows of a kind's option table, for members of struct learner_config. */
#define LEARNER_LOSS_OPTION(def)                                                                             \
    OPTION_ENUM(struct learner_config, loss, "loss", 0, def, "logistic|squared", "loss that is minimized")
#define LEARNER_LINEAR_OPTION(def)                                                                           \
    OPTION_KIND(struct learner_config, linear, "linear", 0, def, optimizer_kinds,                            \
                "optimizer of the weights of ids and dense features")
/* table: for struct embedding_config. */
#define LEARNER_EMBEDDING_OPTION(table)                                                                      \
    OPTION_BLOCK(struct learner_config, embedding, struct embedding_config, "embedding", 0, table,           \
                 "vectors of ids")
/* For the member `layers` of the kind's struct. */
#define LEARNER_HIDDEN_OPTION(structure, def, text)                                                          \
    OPTION_INTS(structure, layers.hidden, "hidden", 0, def, "1", "4096", text)

/* Rows for members of struct embedding_config. made: "a row" or "a weight"; many: the plural. */
#define LEARNER_DIM_OPTION(def, text)                                                                        \
    OPTION_INT(struct embedding_config, dim, "dim", 0, def, "4", "512", text)
#define LEARNER_INIT_OPTION(def)                                                                             \
    OPTION_FLOAT(struct embedding_config, init, "init", 0, def, "0.0", "100.0",                              \
                 "initial values of vectors are uniform between minus `init` and `init`")
#define LEARNER_OPTIMIZER_OPTION(def)                                                                        \
    OPTION_KIND(struct embedding_config, optimizer, "optimizer", 0, def, optimizer_kinds,                    \
                "optimizer of the vectors")
#define LEARNER_ADMIT_OPTION(made)                                                                           \
    OPTION_INT(struct embedding_config, admit_after, "admit_after", 0, "1", "1", "255",                      \
               "occurrences of an id before it gets " made)
#define LEARNER_ROWS_MAX_OPTION(many)                                                                        \
    OPTION_INT(struct embedding_config, rows_max, "rows_max", 0, "0", "0", NULL,                             \
               "most " many " of a feature; 0: no limit")

/* bind.c: make columns of the expressions, check options, make the output schema and c->model. False after a
 * diagnostic. learner_bind_network: for a kind that is a network without an interaction, and without a linear part
 * unless its options have LEARNER_LINEAR_OPTION (then it has one label); own: the network's own options, which
 * live as long as the job. */
bool learner_bind(struct operator_bind *bind, const struct interaction *interaction);
bool learner_bind_network(struct operator_bind *bind, const struct network *network, const void *own);
/* For a kind whose layers read products of pairs of vectors, and the dense features. False after a diagnostic: it
 * has neither. */
bool learner_has_products(struct operator_bind *bind, const char *kind);
/* Copies widths of layers, and ends them with 0. False after a diagnostic: there are too many. */
bool learner_widths(struct operator_bind *bind, const struct ints *from, uint32_t to[MODEL_LAYERS_MAX]);

/* The callbacks of a kind, besides its bind (core/operator.h, core/learner.h). */
bool learner_open(struct operator_context *context);
void learner_process(struct operator_context *context, uint32_t input, struct batch *batch);
void learner_read(struct operator_context *context, uint32_t input, struct batch *batch);
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
/* Adds the calls of kernels by variant to a report. */
void learner_report_calls(const struct kernels_calls *calls, struct report *report);
/* Fills `plan` with the memory that the learner will take, by part; `leat explain` shows it. For the time of
 * the call it opens the GPU on which the learner would learn. */
void learner_memory(void *config, struct memory_plan *plan);
/* Describes the row of a sparse feature's value; the query's words are FEATURE VALUE. */
bool learner_describe(struct operator_context *context, struct state_query *query, struct describe *out);
/* cut.c */
bool learner_cut_note(struct operator_context *context, bool is_on);
bool learner_cut(struct operator_context *context, struct byte_buffer *out);
size_t learner_cut_bytes(const struct operator_context *context);
bool learner_take_cut(struct operator_context *context, struct str bytes);
void learner_close(struct operator_context *context);

/* rows: the kind's option table. */
#define LEARNER_KIND(structure, rows, bind_)                                                                 \
    .options = rows, .size = sizeof(structure), .determinism = DETERMINISM_BY_ALL_ROWS, .inputs_min = 1,     \
    .inputs_max = LEARNER_SCORED + 1, .bind = bind_, .open = learner_open, .process = learner_process,       \
    .read = learner_read, .on_watermark = learner_on_watermark, .is_held = learner_is_held,                  \
    .shape = learner_shape, .snapshot = learner_snapshot, .restore = learner_restore,                        \
    .report = learner_report, .visit = learner_visit, .table = learner_table, .key = learner_id,             \
    .memory = learner_memory, .describe = learner_describe, .cut_note = learner_cut_note,                    \
    .cut = learner_cut, .cut_bytes = learner_cut_bytes, .take_cut = learner_take_cut, .close = learner_close

#endif
