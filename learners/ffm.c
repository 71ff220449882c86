/* Field-aware factorization machine (Juan 2016), optionally with dense layers over the pairs' products. */
#include "learners/learner/learner.h"

struct ffm {
    struct learner_config common;
    struct pairs_config pairs;
    struct layers_config layers;
};
_Static_assert(offsetof(struct ffm, common) == 0, "the shared callbacks read the first member");

static const struct option ffm_embedding[] = {
    LEARNER_DIM_OPTION("8", "length of an id's vector for each other feature; a multiple of 4"),
    LEARNER_INIT_OPTION("0.05"),
    OPTION_INCLUDE_ROWS(learner_init_of_options),
    LEARNER_OPTIMIZER_OPTION("adagrad { rate: 0.1 }"),
    OPTION_INCLUDE_ROWS(learner_admission_options),
    OPTIONS_END,
};

static const struct option ffm_options[] = {
    OPTION_INCLUDE(struct ffm, common.inputs, learner_input_options),
    OPTION_INCLUDE(struct ffm, common.inputs, learner_ids_options),
    LEARNER_LOSS_OPTION("logistic"),
    LEARNER_LINEAR_OPTION("adagrad { rate: 0.1 }"),
    LEARNER_EMBEDDING_OPTION(ffm_embedding),
    OPTION_INCLUDE(struct ffm, pairs, learner_pairs_options),
    LEARNER_HIDDEN_OPTION(
        struct ffm, NULL,
        "with `batch: 1`: widths of the dense layers; by default no dense layers: plain ffm"),
    OPTION_INCLUDE(struct ffm, layers, learner_head_options),
    OPTION_INCLUDE(struct ffm, common, learner_training_options),
    OPTIONS_END,
};

static bool ffm_bind(struct operator_bind *bind)
{
    struct ffm *own = bind->config;
    own->common.pairs = &own->pairs;
    own->common.layers = &own->layers;
    return (!learner_has_hidden(&own->common) || learner_has_products(bind, "ffm")) &&
           learner_bind(bind, &interaction_ffm);
}

extern const struct operator_kind learner_ffm;
const struct operator_kind learner_ffm = {
    .name = "ffm",
    .summary = "field-aware factorization machine: a vector for each pair of features",
    .example =
        "learner m = ffm from events { label: clicked, sparse: [user_id, item_id, device], hidden: [64] }",
    .details = "An id has a vector for each other feature: logit = bias + sum of weights + sum over pairs of "
               "<v_i,g, v_j,f> (Juan 2016). With `hidden`, the products and the dense features also go "
               "through relu layers.",
    LEARNER_KIND(struct ffm, ffm_options, ffm_bind),
};
