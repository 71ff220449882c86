/*
 * What all learners share: the option rows, the way from a batch's columns to a model's input, evaluation,
 * snapshots. A learner's own file (linear.c, fm.c ...) has its option struct, with struct learner_config
 * first, its table, and what it makes of the model's options. All calls come from the lane that owns the
 * learner, except where said.
 */
#ifndef LEARNERS_LEARNER_H
#define LEARNERS_LEARNER_H

#include "core/learner.h"
#include "learners/metrics.h"
#include "learners/model.h"
#include "learners/optimizer_options.h"

struct embedding_config {
    int64_t dim, admit_after, rows_max, sketch_bytes;
    int64_t expire_after_us;
    double init;
    struct kind_ref optimizer;
};

struct learner_state;

struct learner_config {
    struct expression label, weight;
    struct expressions sparse, wide, dense;
    struct columns known_early;
    struct embedding_config embedding; /* the learner's own table binds it */
    struct kind_ref linear, head, pairs;
    struct ints hidden;
    int loss;
    int64_t batch, hidden_batch, window, metrics_every, seed;
    double clip_norm, positive_weight, negative_weight, keep_negatives, bias;
    /* bind */
    int label_column, weight_column; /* weight_column -1: none */
    int sparse_columns[MODEL_FIELDS_MAX], dense_columns[MODEL_DENSE_MAX];
    uint32_t sparse_count, vectors_count, dense_count;
    uint32_t own_columns; /* of the input, without those added for expressions */
    struct model_options model;
    const struct schema *metrics_schema, *input_schema; /* with the columns added for expressions */
    struct learner_state *state;
};

/* `score` of what these rows make: tests/unit/learners checks each example. */
#define LEARNER_INPUT_OPTIONS(s)                                                                             \
    OPTION_EXPRESSION(s, common.label, "label", OPTION_REQUIRED,                                             \
                      "what to predict: a bool or number of the input"),                                     \
        OPTION_EXPRESSIONS(s, common.dense, "dense", 0,                                                      \
                           "numbers the model reads as they are; scale them to about 1"),                    \
        OPTION_EXPRESSION(s, common.weight, "weight", 0, "how much an example counts, 1 where not given"),   \
        OPTION_COLUMNS(s, common.known_early, "known_early", 0,                                              \
                       "columns the label is computed from that are known when serving")

#define LEARNER_TRAINING_OPTIONS(s)                                                                          \
    OPTION_INT(s, common.batch, "batch", 0, "1", "1", "65536",                                               \
               "examples a step; 1 learns from each example at once, and learns best"),                      \
        OPTION_FLOAT(s, common.clip_norm, "clip_norm", 0, "0.0", "0.0", NULL,                                \
                     "largest norm of an example's gradient; 0: not limited"),                               \
        OPTION_FLOAT(s, common.positive_weight, "positive_weight", 0, "1.0", "1e-6", "1e6",                  \
                     "weight of label 1"),                                                                   \
        OPTION_FLOAT(s, common.negative_weight, "negative_weight", 0, "1.0", "1e-6", "1e6",                  \
                     "weight of label 0"),                                                                   \
        OPTION_FLOAT(s, common.keep_negatives, "keep_negatives", 0, "1.0", "1e-6", "1.0",                    \
                     "share of the examples with label 0 to learn from; predictions are corrected for it"),  \
        OPTION_FLOAT(s, common.bias, "bias", 0, "0.0", "-1000.0", "1000.0", "where the bias starts"),        \
        OPTION_INT(s, common.window, "window", 0, "100000", "16", "1000000000",                              \
                   "examples of the sliding evaluation"),                                                    \
        OPTION_INT(s, common.metrics_every, "metrics_every", 0, "100000", "1", NULL,                         \
                   "examples between two rows of `metrics`"),                                                \
        OPTION_INT(s, common.seed, "seed", 0, "1", "0", NULL, "of the rows' first values")

/* Makes columns of the expressions, checks types, makes the output schema and model.{fields, dense ...}. */
bool learner_bind(struct operator_bind *bind, struct learner_config *c);
/* After the learner filled c->model. */
bool learner_open(struct operator_context *context, struct learner_config *c);
void learner_process(struct operator_context *context, struct learner_config *c, struct batch *batch);
void learner_on_watermark(struct operator_context *context, struct learner_config *c, int64_t watermark);
bool learner_snapshot(struct operator_context *context, struct learner_config *c,
                      struct snapshot_writer *writer);
/* learner_visit.c */
bool learner_visit(struct operator_context *context, struct learner_config *c, struct model_visitor *visitor);
bool learner_restore(struct operator_context *context, struct learner_config *c,
                     struct snapshot_reader *reader);
void learner_report(struct operator_context *context, struct learner_config *c, struct report *report);
void learner_close(struct operator_context *context, struct learner_config *c);

/* The callbacks of one learner but `bind`: it calls learner_bind, then sets what is its own in common.model.
 */
#define LEARNER_CALLBACKS(name)                                                                              \
    static bool name##_open(struct operator_context *context)                                                \
    {                                                                                                        \
        return learner_open(context, &((struct name *)context->config)->common);                             \
    }                                                                                                        \
    static void name##_process(struct operator_context *context, uint32_t input, struct batch *batch)        \
    {                                                                                                        \
        (void)input;                                                                                         \
        learner_process(context, &((struct name *)context->config)->common, batch);                          \
    }                                                                                                        \
    static void name##_on_watermark(struct operator_context *context, int64_t watermark)                     \
    {                                                                                                        \
        learner_on_watermark(context, &((struct name *)context->config)->common, watermark);                 \
    }                                                                                                        \
    static bool name##_snapshot(struct operator_context *context, struct snapshot_writer *writer)            \
    {                                                                                                        \
        return learner_snapshot(context, &((struct name *)context->config)->common, writer);                 \
    }                                                                                                        \
    static bool name##_restore(struct operator_context *context, struct snapshot_reader *reader)             \
    {                                                                                                        \
        return learner_restore(context, &((struct name *)context->config)->common, reader);                  \
    }                                                                                                        \
    static void name##_report(struct operator_context *context, struct report *report)                       \
    {                                                                                                        \
        learner_report(context, &((struct name *)context->config)->common, report);                          \
    }                                                                                                        \
    static bool name##_visit(struct operator_context *context, struct model_visitor *visitor)                \
    {                                                                                                        \
        return learner_visit(context, &((struct name *)context->config)->common, visitor);                   \
    }                                                                                                        \
    static void name##_close(struct operator_context *context)                                               \
    {                                                                                                        \
        learner_close(context, &((struct name *)context->config)->common);                                   \
    }

#define LEARNER_KIND(kind)                                                                                   \
    .options = kind##_options, .size = sizeof(struct kind), .determinism = DETERMINISM_BY_ALL_ROWS,          \
    .inputs_min = 1, .inputs_max = 1, .bind = kind##_bind, .open = kind##_open, .process = kind##_process,   \
    .on_watermark = kind##_on_watermark, .snapshot = kind##_snapshot, .restore = kind##_restore,             \
    .report = kind##_report, .visit = kind##_visit, .close = kind##_close

/* learner_metrics.c: the rows of `NAME.metrics`, one at each multiple of metrics_every examples, wherever
 * batches end. */
const struct schema *learner_metrics_schema(struct arena *arena);
void learner_metrics_add(struct operator_context *context, struct learner_config *c,
                         const struct model_input *in);

/* learner_columns.c: a batch's columns as the model reads them; valid until the next call. */
struct learner_columns_scratch;
struct learner_columns_scratch *learner_columns_new(const struct learner_config *c);
void learner_columns_free(struct learner_columns_scratch *scratch);
void learner_columns_read(struct learner_columns_scratch *scratch, const struct learner_config *c,
                          const struct batch *batch, struct model_input *in);

/* The live part, for learner_state.c. */
struct learner_state {
    struct model *model;
    struct metrics metrics;
    struct learner_columns_scratch *columns;
    uint32_t published; /* newest epoch that a published checkpoint holds */
    struct learner_snapshot *snapshot;
    uint64_t seen, learned, sampled_out, rejected;
    double logits[BATCH_ROWS];
    uint8_t verdicts[BATCH_ROWS];
};

/* learner_state.c */
void learner_snapshot_settle(struct learner_state *state, bool is_closing);

#endif
