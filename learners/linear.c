/* Logistic or linear regression over sparse ids and dense features, with FTRL-proximal or
 * another optimizer. */
#include "learners/learner/learner.h"

static const struct option linear_embedding[] = {
    LEARNER_ADMIT_OPTION("a weight"),
    OPTION_INCLUDE_ROWS(learner_expiry_options),
    LEARNER_ROWS_MAX_OPTION("ids"),
    OPTIONS_END,
};

static const struct option linear_options[] = {
    OPTION_INCLUDE(struct learner_config, inputs, learner_input_options),
    OPTION_EXPRESSIONS(struct learner_config, inputs.sparse, "sparse", 0,
                       "ids: single values or lists; each id has a weight"),
    LEARNER_LOSS_OPTION("logistic"),
    OPTION_KIND(struct learner_config, linear, "optimizer", 0, "ftrl { rate: 0.1 }", optimizer_kinds,
                "optimizer of the weights"),
    OPTION_BLOCK(struct learner_config, embedding, struct embedding_config, "ids", 0, linear_embedding,
                 "admission and expiry of ids"),
    OPTION_INCLUDE_ROWS(learner_training_options),
    OPTIONS_END,
};

static bool linear_bind(struct operator_bind *bind)
{
    return learner_bind(bind, NULL);
}

extern const struct operator_kind learner_linear;
const struct operator_kind learner_linear = {
    .name = "linear",
    .summary = "logistic or linear regression over ids and dense features",
    .example = "learner m = linear from events { label: clicked, sparse: [user_id, item_id] }",
    .details = "A weight for each id and dense feature, and a bias. FTRL-proximal (McMahan 2013) runs in "
               "double precision and gives sparse models with l1; adagrad is a little faster. Crosses of two "
               "columns, `cross(user_id, device)`, let the model learn a weight for each pair of values.",
    LEARNER_KIND(struct learner_config, linear_options, linear_bind),
};
