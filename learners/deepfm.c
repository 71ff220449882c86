/* DeepFM (Guo 2017): a factorization machine and dense layers over the same vectors. */
#include "learners/learner.h"

struct deepfm {
    struct learner_config common;
};

static const struct option deepfm_embedding[] = {
    OPTION_INT(struct embedding_config, dim, "dim", 0, "16", "4", "512",
               "length of an id's vector; a multiple of 4"),
    OPTION_FLOAT(struct embedding_config, init, "init", 0, "0.03", "0.0", "100.0",
                 "vectors start uniform within this of zero"),
    OPTION_KIND(struct embedding_config, optimizer, "optimizer", 0, "adagrad { rate: 0.05, l2: 0.001 }",
                optimizer_kinds, "how vectors move"),
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

static const struct option deepfm_options[] = {
    LEARNER_INPUT_OPTIONS(struct deepfm),
    OPTION_EXPRESSIONS(struct deepfm, common.sparse, "sparse", OPTION_REQUIRED,
                       "ids: single values or lists; a vector and a weight for each"),
    OPTION_EXPRESSIONS(struct deepfm, common.wide, "wide", 0,
                       "ids that get a weight but no vector: crosses, for example"),
    OPTION_ENUM(struct deepfm, common.loss, "loss", 0, "logistic", "logistic|squared", "what is minimised"),
    OPTION_KIND(struct deepfm, common.linear, "linear", 0, "adagrad { rate: 0.1 }", optimizer_kinds,
                "how the weights of ids and numbers move"),
    OPTION_BLOCK(struct deepfm, common.embedding, struct embedding_config, "embedding", 0, deepfm_embedding,
                 "vectors of ids"),
    OPTION_INTS(struct deepfm, common.hidden, "hidden", 0, "[128, 64]", "1", "4096",
                "widths of the dense layers"),
    OPTION_KIND(struct deepfm, common.head, "hidden_optimizer", 0, "adagrad { rate: 0.05, accumulator: 0.1 }",
                optimizer_kinds, "how the dense layers move"),
    OPTION_INT(struct deepfm, common.hidden_batch, "hidden_batch", 0, "16", "1", "16",
               "with batch: 1, examples a step of the dense layers; ids then move example by example, by "
               "gradients taken "
               "before that step"),
    LEARNER_TRAINING_OPTIONS(struct deepfm),
    OPTIONS_END,
};

static bool deepfm_bind(struct operator_bind *bind)
{
    struct deepfm *own = bind->config;
    if (!learner_bind(bind, &own->common))
        return false;
    own->common.model.interaction = INTERACTION_FM;
    return true;
}

LEARNER_CALLBACKS(deepfm)

extern const struct operator_kind learner_deepfm;
const struct operator_kind learner_deepfm = {
    .name = "deepfm",
    .summary = "factorization machine with dense layers over the same vectors",
    .example = "learner m = deepfm from events { label: clicked, sparse: [user_id, item_id, device], dense: "
               "[price] }",
    .details = "The vectors of all sparse features and the dense numbers go through relu layers; their logit "
               "adds to that of the factorization machine (Guo 2017).",
    LEARNER_KIND(deepfm),
};
