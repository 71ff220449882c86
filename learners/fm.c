/* Factorization machine (Rendle 2010): every pair of ids interacts through the product of their vectors. */
#include "learners/learner/learner.h"

static const struct option fm_embedding[] = {
    LEARNER_EMBEDDING_OPTIONS("16", "length of an id's vector; a multiple of 4", "0.05",
                              "adagrad { rate: 0.05 }"),
    OPTIONS_END,
};

static const struct option fm_options[] = {
    LEARNER_INPUT_OPTIONS, LEARNER_IDS_OPTIONS,      LEARNER_WEIGHTS_OPTIONS("logistic", fm_embedding),
    LEARNER_PAIRS_OPTIONS, LEARNER_TRAINING_OPTIONS, OPTIONS_END,
};

static bool fm_bind(struct operator_bind *bind)
{
    return learner_bind(bind, &interaction_fm);
}

extern const struct operator_kind learner_fm;
const struct operator_kind learner_fm = {
    .name = "fm",
    .summary = "factorization machine: each id has one vector, and pairs of ids interact",
    .example = "learner m = fm from events { label: clicked, sparse: [user_id, item_id, device] }",
    .details = "logit = bias + sum of weights + sum over pairs of features of <v_i, v_j> (Rendle 2010). A "
               "list counts as the mean of its rows. With `pairs` only the named pairs interact, and with "
               "`pair_weights` each pair has a learned weight (Pan 2018): if you know which features "
               "interact, `pairs` learns from the fewest events.",
    LEARNER_KIND(struct learner_config, fm_options, fm_bind),
};
