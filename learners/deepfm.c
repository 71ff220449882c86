/* DeepFM (Guo 2017): a factorization machine, and dense layers over the same vectors. */
#include "learners/learner/learner.h"
#include "learners/networks/networks.h"

static const struct option deepfm_embedding[] = {
    LEARNER_EMBEDDING_OPTIONS("16", "length of an id's vector; a multiple of 4", "0.03",
                              "adagrad { rate: 0.05, l2: 0.001 }"),
    OPTIONS_END,
};

static const struct option deepfm_options[] = {
    LEARNER_INPUT_OPTIONS,
    LEARNER_IDS_OPTIONS,
    LEARNER_WEIGHTS_OPTIONS("logistic", deepfm_embedding),
    LEARNER_HEAD_OPTIONS("[128, 64]", "widths of the dense layers"),
    LEARNER_TRAINING_OPTIONS,
    OPTIONS_END,
};

static bool deepfm_bind(struct operator_bind *bind)
{
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
    LEARNER_KIND(struct learner_config, deepfm_options, deepfm_bind),
};
