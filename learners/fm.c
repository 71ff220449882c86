/* Factorization machine (Rendle 2010): every pair of ids interacts through the product of their vectors. */
#include "learners/learner/learner.h"

struct fm {
    struct learner_config common;
    struct pairs_config pairs;
};
_Static_assert(offsetof(struct fm, common) == 0, "the shared callbacks read the first member");

static const struct option fm_embedding[] = {
    LEARNER_DIM_OPTION("16", "length of an id's vector; a multiple of 4"),
    LEARNER_INIT_OPTION("0.05"),
    OPTION_INCLUDE_ROWS(learner_init_of_options),
    LEARNER_OPTIMIZER_OPTION("adagrad { rate: 0.05 }"),
    OPTION_INCLUDE_ROWS(learner_admission_options),
    OPTIONS_END,
};

static const struct option fm_options[] = {
    OPTION_INCLUDE(struct fm, common.inputs, learner_input_options),
    OPTION_INCLUDE(struct fm, common.inputs, learner_ids_options),
    LEARNER_LOSS_OPTION("logistic"),
    LEARNER_LINEAR_OPTION("adagrad { rate: 0.1 }"),
    LEARNER_EMBEDDING_OPTION(fm_embedding),
    OPTION_INCLUDE(struct fm, pairs, learner_pairs_options),
    OPTION_INCLUDE(struct fm, common, learner_training_options),
    OPTIONS_END,
};

static bool fm_bind(struct operator_bind *bind)
{
    struct fm *own = bind->config;
    own->common.pairs = &own->pairs;
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
    LEARNER_KIND(struct fm, fm_options, fm_bind),
};
