/* Matrix factorization with biases (Koren 2009): a factorization machine of two features. */
#include "learners/learner.h"

struct mf {
    struct learner_config common;
    struct expression user, item;
};

static const struct option mf_embedding[] = {
    OPTION_INT(struct embedding_config, dim, "dim", 0, "16", "4", "512",
               "length of an id's vector; a multiple of 4"),
    OPTION_FLOAT(struct embedding_config, init, "init", 0, "0.1", "0.0", "100.0",
                 "vectors start uniform within this of zero"),
    OPTION_KIND(struct embedding_config, optimizer, "optimizer", 0, "adagrad { rate: 0.05, l2: 0.02 }",
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

static const struct option mf_options[] = {
    LEARNER_INPUT_OPTIONS(struct mf),
    OPTION_EXPRESSION(struct mf, user, "user", OPTION_REQUIRED, "one side"),
    OPTION_EXPRESSION(struct mf, item, "item", OPTION_REQUIRED, "the other side"),
    OPTION_ENUM(struct mf, common.loss, "loss", 0, "squared", "logistic|squared", "what is minimised"),
    OPTION_KIND(struct mf, common.linear, "linear", 0, "adagrad { rate: 0.1 }", optimizer_kinds,
                "how the weights of ids and numbers move"),
    OPTION_BLOCK(struct mf, common.embedding, struct embedding_config, "embedding", 0, mf_embedding,
                 "vectors of ids"),
    LEARNER_TRAINING_OPTIONS(struct mf),
    OPTIONS_END,
};

static bool mf_bind(struct operator_bind *bind)
{
    struct mf *own = bind->config;
    const struct ast **sides = arena_array(bind->arena, const struct ast *, 2);
    sides[0] = own->user.ast;
    sides[1] = own->item.ast;
    own->common.sparse = (struct expressions){.items = sides, .count = 2};
    if (!learner_bind(bind, &own->common))
        return false;
    own->common.model.interaction = INTERACTION_FM;
    return true;
}

LEARNER_CALLBACKS(mf)

extern const struct operator_kind learner_mf;
const struct operator_kind learner_mf = {
    .name = "mf",
    .summary = "matrix factorization with biases, for ratings",
    .example = "learner m = mf from ratings { label: rating, user: user_id, item: item_id, bias: 3.5 }",
    .details = "prediction = bias + b_user + b_item + <p_user, q_item> (Koren 2009). Start `bias` near the "
               "mean of the label.",
    LEARNER_KIND(mf),
};
