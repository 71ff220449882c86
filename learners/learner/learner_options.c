/* Option tables that kinds of learners share: each kind's table includes those it needs. */
#include "learners/learner/learner.h"

/* --- Inputs --- */

const struct option learner_input_options[] = {
    OPTION_EXPRESSION(struct learner_config, label, "label", OPTION_REQUIRED,
                      "what to predict: a bool or number of the input; with `loss: logistic` a share "
                      "from 0 to 1, else the example is rejected"),
    OPTION_INCLUDE_ROWS(learner_feature_options),
    OPTIONS_END,
};

const struct option learner_feature_options[] = {
    OPTION_EXPRESSIONS(struct learner_config, dense, "dense", 0,
                       "numbers or bools that the model reads as they are; scale them to about 1"),
    OPTION_EXPRESSION(struct learner_config, weight, "weight", 0,
                      "weight of an example; default 1. An example of weight 0 is predicted but not "
                      "learned: it counts as `weightless`, not as an occurrence of its ids, and not in "
                      "schedules, batches and metrics. The metrics count every other example once"),
    OPTION_INT(struct learner_config, list_max, "list_max", 0, "64", "1", "1024",
               "how many ids of a list are read, from its beginning. For each list feature the report "
               "counts longer lists (`lists_cut`) and the ids that were left out (`ids_cut`)"),
    OPTION_COLUMNS(struct learner_config, known_early, "known_early", 0,
                   "columns that the label is computed from, but that are known when the model is "
                   "asked for a prediction"),
    OPTIONS_END,
};

const struct option learner_ids_options[] = {
    OPTION_EXPRESSIONS(struct learner_config, sparse, "sparse", OPTION_REQUIRED,
                       "ids: single values or lists; each id has a vector and a weight"),
    OPTION_EXPRESSIONS(struct learner_config, wide, "wide", 0,
                       "ids with a weight but no vector, for example crosses"),
    OPTIONS_END,
};

const struct option learner_vectors_options[] = {
    OPTION_EXPRESSIONS(struct learner_config, sparse, "sparse", OPTION_REQUIRED,
                       "ids: single values or lists; each id has a vector"),
    OPTIONS_END,
};

/* --- Embeddings --- */

const struct option learner_init_of_options[] = {
    OPTION_ASSIGNMENTS(struct embedding_config, init_of, "init_of", 0,
                       "`init` of single features: `{ user_id: 0.01, hour: 0.2 }`"),
    OPTIONS_END,
};

const struct option learner_admission_options[] = {
    LEARNER_ADMIT_OPTION("a row"),
    OPTION_INCLUDE_ROWS(learner_expiry_options),
    LEARNER_ROWS_MAX_OPTION("rows"),
    OPTIONS_END,
};

const struct option learner_expiry_options[] = {
    OPTION_BYTES(struct embedding_config, sketch_bytes, "sketch", 0, "4MiB", "4KiB", "16GiB",
                 "memory of each feature for counting ids that are not yet admitted"),
    OPTION_DURATION(struct embedding_config, expire_after_us, "expire_after", 0, "0s", "0s", NULL,
                    "how long, in event time, an id may be absent before it is removed; 0s: for ever. "
                    "In the report, `rows` counts an expired id until a sweep removes it; from then on "
                    "`rows_expired` counts it"),
    OPTIONS_END,
};

/* --- Interactions and dense layers --- */

const struct option learner_pairs_options[] = {
    OPTION_EXPRESSIONS(struct learner_config, pairs, "pairs", 0,
                       "with `batch: 1`: pairs of features that interact: `[[user_id, item_id], [item_id, "
                       "device]]`; not given: all pairs"),
    OPTION_KIND(struct learner_config, pair_weights, "pair_weights", 0, "sgd { rate: 0.0 }", optimizer_kinds,
                "with `batch: 1`: optimizer of the learned weight of each pair of features (Pan 2018); "
                "rate 0.0: all weights stay 1"),
    OPTIONS_END,
};

const struct option learner_layers_options[] = {
    OPTION_KIND(struct learner_config, head, "hidden_optimizer", 0,
                "adagrad { rate: 0.05, accumulator: 0.1 }", optimizer_kinds,
                "optimizer of the dense layers; when they learn by batches: `sgd`, `momentum`, "
                "`adagrad`, `adam` or `ftrl`"),
    OPTION_ENUM(struct learner_config, precision, "precision", 0, "fp32", "fp32|bf16|fp16|auto",
                "number format in which dense layers multiply when they learn by batches; weights and sums "
                "are always fp32. fp32: no TF32; fp16: gradients are scaled; auto: bf16, if it makes the "
                "loss at most 0.1 % worse"),
    OPTION_INT(struct learner_config, precision_trial, "precision_trial", 0, "100000", "1", NULL,
               "with `precision: auto`: how many examples are learned in both bf16 and fp32 before one "
               "of the two is kept"),
    OPTION_INT(struct learner_config, accumulate, "accumulate", 0, "1", "1", "1024",
               "batches whose gradients are added up for one step: n batches learn like one `batch` n "
               "times as large, in the memory of one batch"),
    OPTIONS_END,
};

const struct option learner_head_options[] = {
    OPTION_INCLUDE_ROWS(learner_layers_options),
    OPTION_INT(struct learner_config, hidden_batch, "hidden_batch", 0, "16", "1", "16",
               "with `batch: 1`: examples in a step of the dense layers; weights of ids still change "
               "with each example, by gradients computed before that step"),
    OPTIONS_END,
};

/* --- Training --- */

static const struct option step_options[] = {
    OPTION_INT(struct learner_config, batch_min, "batch_min", 0, "0", "0", "65536",
               "smallest number of examples in a step with live sources: steps follow the load, from "
               "`batch_min` when few examples arrive up to `batch` when the job catches up. A replay takes "
               "the steps of the order log; files are learned by `batch`. 0: always `batch`"),
    OPTION_FLOAT(struct learner_config, clip_norm, "clip_norm", 0, "0.0", "0.0", NULL,
                 "largest norm of an example's gradient, which needs `batch: 1`; with dense layers, and any "
                 "`batch`, of a step's gradient with respect to their weights; 0: no limit"),
    OPTIONS_END,
};

const struct option learner_training_options[] = {
    OPTION_INT(struct learner_config, batch, "batch", 0, "1", "1", "65536",
               "examples in a step; 1: learns from each example at once, which learns best"),
    OPTION_INCLUDE_ROWS(step_options),
    OPTION_INCLUDE_ROWS(learner_balance_options),
    OPTION_INCLUDE_ROWS(learner_run_options),
    OPTIONS_END,
};

const struct option learner_batch_options[] = {
    OPTION_INT(struct learner_config, batch, "batch", 0, "512", "1", "65536", "examples in a step"),
    OPTION_INCLUDE_ROWS(step_options),
    OPTIONS_END,
};

const struct option learner_balance_options[] = {
    OPTION_FLOAT(struct learner_config, positive_weight, "positive_weight", 0, "1.0", "1e-6", "1e6",
                 "weight of label 1"),
    OPTION_FLOAT(struct learner_config, negative_weight, "negative_weight", 0, "1.0", "1e-6", "1e6",
                 "weight of label 0"),
    OPTION_FLOAT(struct learner_config, keep_negatives, "keep_negatives", 0, "1.0", "1e-6", "1.0",
                 "share of the examples with label 0 that are learned; predictions are corrected for "
                 "the share"),
    OPTION_BOOL(struct learner_config, fake_negatives, "fake_negatives", "false",
                "for examples from `attribute ... emit fake_negative`: weighs examples so that the "
                "prediction is the probability of the true label (Ktena 2019, fake negative weighted); "
                "without this option the probability is `prediction / (1.0 - prediction)` (fake "
                "negative calibration). The metrics count the rows as they come"),
    OPTIONS_END,
};

const struct option learner_run_options[] = {
    OPTION_FLOAT(struct learner_config, bias, "bias", 0, "0.0", "-1000.0", "1000.0",
                 "initial value of the bias"),
    OPTION_INT(struct learner_config, window, "window", 0, "100000", "16", "1000000000",
               "number of newest examples in the sliding evaluation"),
    OPTION_INT(struct learner_config, metrics_every, "metrics_every", 0, "100000", "1", NULL,
               "examples between two rows of `metrics`; one more row comes when the input has ended"),
    OPTION_BLOCK(struct learner_config, freeze, struct freeze_config, "freeze", 0, learner_freeze,
                 "stops learning, but not predicting, while figures of the window are outside "
                 "of these bands; meanwhile ids that occur keep their rows, and other ids "
                 "expire (`expire_after`)"),
    OPTION_EXPRESSION(struct learner_config, device, "device", OPTION_RUNTIME,
                      "where the learner runs: `cpu`; `cuda(0)`: a GPU by its number; `auto`: GPU 0 if "
                      "it is usable and the learner learns by batches, else the CPU"),
    OPTION_BYTES(struct learner_config, device_memory, "device_memory", OPTION_RUNTIME, "0B", "0B", NULL,
                 "memory of the GPU for rows; an eighth of it is for rows that a checkpoint copies; "
                 "0B: two thirds of the free memory"),
    OPTION_BYTES(struct learner_config, pinned_memory, "pinned_memory", OPTION_RUNTIME, "64MiB", "1MiB", NULL,
                 "pinned memory of the host, for rows that do not fit into `device_memory`"),
    OPTION_INT(struct learner_config, seed, "seed", 0, "1", "0", NULL, "seed of initial values"),
    OPTIONS_END,
};
