/* Field-aware factorization machine (Juan 2016), with dense layers over the pairs' products if wanted. */
#include "learners/learner.h"

struct ffm {
    struct learner_config common;
};

static const struct option ffm_embedding[] = {
    OPTION_INT(struct embedding_config, dim, "dim", 0, "8", "4", "512",
               "length of an id's vector for each other feature; a multiple of 4"),
    OPTION_FLOAT(struct embedding_config, init, "init", 0, "0.05", "0.0", "100.0",
                 "vectors start uniform within this of zero"),
    OPTION_KIND(struct embedding_config, optimizer, "optimizer", 0, "adagrad { rate: 0.1 }", optimizer_kinds,
                "how vectors move"),
    OPTION_INT(struct embedding_config, admit_after, "admit_after", 0, "1", "1", "255",
               "sightings of an id before it gets a row"),
    OPTION_BYTES(struct embedding_config, sketch_bytes, "sketch", 0, "4MiB", "4KiB", "16GiB",
                 "memory that counts ids not yet admitted, a feature"),
    OPTION_DURATION(struct embedding_config, expire_after_us, "expire_after", 0, "0s", "0s", NULL,
                    "ids not seen for so long, in event time, are forgotten; 0s: never"),
    OPTION_INT(struct embedding_config, rows_max, "rows_max", 0, "0", "0", NULL,
               "most rows a feature may have; 0: not limited"),
    OPTIONS_END,
};

static const struct option ffm_options[] = {
    LEARNER_INPUT_OPTIONS(struct ffm),
    OPTION_EXPRESSIONS(struct ffm, common.sparse, "sparse", OPTION_REQUIRED,
                       "ids: single values or lists; a vector and a weight for each"),
    OPTION_EXPRESSIONS(struct ffm, common.wide, "wide", 0,
                       "ids that get a weight but no vector: crosses, for example"),
    OPTION_ENUM(struct ffm, common.loss, "loss", 0, "logistic", "logistic|squared", "what is minimised"),
    OPTION_KIND(struct ffm, common.linear, "linear", 0, "adagrad { rate: 0.1 }", optimizer_kinds,
                "how the weights of ids and numbers move"),
    OPTION_BLOCK(struct ffm, common.embedding, struct embedding_config, "embedding", 0, ffm_embedding,
                 "vectors of ids"),
    OPTION_KIND(struct ffm, common.pairs, "pair_weights", 0, "sgd { rate: 0.0 }", optimizer_kinds,
                "how a learned weight for each pair of features moves (Pan 2018); rate 0.0: all stay 1"),
    OPTION_INTS(struct ffm, common.hidden, "hidden", 0, NULL, "1", "4096",
                "widths of the dense layers; none: plain ffm"),
    OPTION_KIND(struct ffm, common.head, "hidden_optimizer", 0, "adagrad { rate: 0.05, accumulator: 0.1 }",
                optimizer_kinds, "how the dense layers move"),
    OPTION_INT(struct ffm, common.hidden_batch, "hidden_batch", 0, "16", "1", "16",
               "with batch: 1, examples a step of the dense layers; ids then move example by example, by "
               "gradients taken "
               "before that step"),
    LEARNER_TRAINING_OPTIONS(struct ffm),
    OPTIONS_END,
};

static bool ffm_bind(struct operator_bind *bind)
{
    struct ffm *own = bind->config;
    if (!learner_bind(bind, &own->common))
        return false;
    own->common.model.interaction = INTERACTION_FFM;
    return true;
}

LEARNER_CALLBACKS(ffm)

extern const struct operator_kind learner_ffm;
const struct operator_kind learner_ffm = {
    .name = "ffm",
    .summary = "field-aware factorization machine: a vector for each pair of features",
    .example =
        "learner m = ffm from events { label: clicked, sparse: [user_id, item_id, device], hidden: [64] }",
    .details = "An id has a vector for each other feature: logit = bias + sum of weights + sum over pairs of "
               "<v_i,g, v_j,f> (Juan 2016). With `hidden`, the products and the dense numbers also go "
               "through relu layers.",
    LEARNER_KIND(ffm),
};
