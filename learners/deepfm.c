/* DeepFM (Guo 2017): a factorization machine, and dense layers over the same vectors. */
#include "learners/learner/learner.h"

struct deepfm {
    struct learner_config common;
    struct layers_config layers;
};
_Static_assert(offsetof(struct deepfm, common) == 0, "the shared callbacks read the first member");

static const struct option deepfm_embedding[] = {
    LEARNER_DIM_OPTION("16", "length of an id's vector; a multiple of 4"),
    LEARNER_INIT_OPTION("0.03"),
    OPTION_INCLUDE_ROWS(learner_init_of_options),
    LEARNER_OPTIMIZER_OPTION("adagrad { rate: 0.05, l2: 0.001 }"),
    OPTION_INCLUDE_ROWS(learner_admission_options),
    OPTIONS_END,
};

static const struct option deepfm_options[] = {
    OPTION_INCLUDE(struct deepfm, common.inputs, learner_input_options),
    OPTION_INCLUDE(struct deepfm, common.inputs, learner_ids_options),
    LEARNER_LOSS_OPTION("logistic"),
    LEARNER_LINEAR_OPTION("adagrad { rate: 0.1 }"),
    LEARNER_EMBEDDING_OPTION(deepfm_embedding),
    LEARNER_HIDDEN_OPTION(struct deepfm, "[128, 64]", "widths of the dense layers"),
    OPTION_INCLUDE(struct deepfm, layers, learner_head_options),
    OPTION_INCLUDE(struct deepfm, common, learner_training_options),
    OPTIONS_END,
};

static bool deepfm_bind(struct operator_bind *bind)
{
    struct deepfm *own = bind->config;
    own->common.layers = &own->layers;
    return learner_bind(bind, &interaction_fm);
}

extern const struct operator_kind learner_deepfm;
const struct operator_kind learner_deepfm = {
    .name = "deepfm",
    .summary = "factorization machine with dense layers over the same vectors",
    .example = "learner m = deepfm from events { label: clicked, sparse: [user_id, item_id, device], dense: "
               "[price] }",
    .details =
        "The vectors of all sparse features and the dense features go through relu layers; the logit is the "
        "sum of their output and the factorization machine's logit (Guo 2017).",
    LEARNER_KIND(struct deepfm, deepfm_options, deepfm_bind),
};
