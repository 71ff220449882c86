/* Matrix factorization with biases (Koren 2009): a factorization machine of two features. */
#include "learners/learner/learner.h"

struct mf {
    struct learner_config common;
    struct expression user, item;
};
_Static_assert(offsetof(struct mf, common) == 0, "the shared callbacks read the first member");

static const struct option mf_embedding[] = {
    LEARNER_DIM_OPTION("16", "length of an id's vector; a multiple of 4"),
    LEARNER_INIT_OPTION("0.1"),
    OPTION_INCLUDE_ROWS(learner_init_of_options),
    LEARNER_OPTIMIZER_OPTION("adagrad { rate: 0.2, l2: 0.02 }"),
    OPTION_INCLUDE_ROWS(learner_admission_options),
    OPTIONS_END,
};

static const struct option mf_options[] = {
    OPTION_INCLUDE(struct mf, common.inputs, learner_input_options),
    OPTION_EXPRESSION(struct mf, user, "user", OPTION_REQUIRED, "id of one side"),
    OPTION_EXPRESSION(struct mf, item, "item", OPTION_REQUIRED, "id of the other side"),
    LEARNER_LOSS_OPTION("squared"),
    LEARNER_LINEAR_OPTION("adagrad { rate: 0.25, l2: 0.02, decay: 0.99 }"),
    LEARNER_EMBEDDING_OPTION(mf_embedding),
    OPTION_INCLUDE(struct mf, common, learner_training_options),
    OPTION_BOOL(struct mf, common.mean_bias, "mean_bias", "true",
                "with `loss: squared`, the bias is the weighted mean of the labels learned so far, "
                "and `bias` before the first label; false: the bias starts at `bias` and is learned "
                "like a weight"),
    OPTIONS_END,
};

static bool mf_bind(struct operator_bind *bind)
{
    struct mf *own = bind->config;
    const struct ast **sides = arena_array(bind->arena, const struct ast *, 2);
    sides[0] = own->user.ast;
    sides[1] = own->item.ast;
    own->common.inputs.sparse = (struct expressions){.items = sides, .count = 2};
    return learner_bind(bind, &interaction_fm);
}

extern const struct operator_kind learner_mf;
const struct operator_kind learner_mf = {
    .name = "mf",
    .summary = "matrix factorization with biases, for ratings",
    .example = "learner m = mf from ratings { label: rating, user: user_id, item: item_id }",
    .details =
        "prediction = bias + b_user + b_item + <p_user, q_item> (Koren 2009). The bias is the mean of the "
        "labels so far (`mean_bias`), plus a learned weight. The defaults were chosen on movie ratings in "
        "time order.",
    LEARNER_KIND(struct mf, mf_options, mf_bind),
};
