/* Logistic or linear regression over sparse ids and dense numbers, by FTRL-proximal or any other optimizer.
 */
#include "learners/learner.h"

struct linear {
    struct learner_config common;
};

static const struct option linear_embedding[] = {
    OPTION_INT(struct embedding_config, admit_after, "admit_after", 0, "1", "1", "255",
               "sightings of an id before it gets a weight"),
    OPTION_BYTES(struct embedding_config, sketch_bytes, "sketch", 0, "4MiB", "4KiB", "16GiB",
                 "memory that counts ids not yet admitted, a feature"),
    OPTION_DURATION(struct embedding_config, expire_after_us, "expire_after", 0, "0s", "0s", NULL,
                    "ids not seen for so long, in event time, are forgotten; 0s: never"),
    OPTION_INT(struct embedding_config, rows_max, "rows_max", 0, "0", "0", NULL,
               "most ids a feature may have; 0: not limited"),
    OPTIONS_END,
};

static const struct option linear_options[] = {
    LEARNER_INPUT_OPTIONS(struct linear),
    OPTION_EXPRESSIONS(struct linear, common.sparse, "sparse", 0,
                       "ids: single values or lists; a weight for each"),
    OPTION_ENUM(struct linear, common.loss, "loss", 0, "logistic", "logistic|squared", "what is minimised"),
    OPTION_KIND(struct linear, common.linear, "optimizer", 0, "ftrl { rate: 0.1 }", optimizer_kinds,
                "how weights move"),
    OPTION_BLOCK(struct linear, common.embedding, struct embedding_config, "ids", 0, linear_embedding,
                 "when ids get weights and lose them"),
    LEARNER_TRAINING_OPTIONS(struct linear),
    OPTIONS_END,
};

static bool linear_bind(struct operator_bind *bind)
{
    struct linear *own = bind->config;
    if (!learner_bind(bind, &own->common))
        return false;
    own->common.model.interaction = INTERACTION_NONE;
    return true;
}

LEARNER_CALLBACKS(linear)

extern const struct operator_kind learner_linear;
const struct operator_kind learner_linear = {
    .name = "linear",
    .summary = "logistic or linear regression over ids and numbers",
    .example = "learner m = linear from events { label: clicked, sparse: [user_id, item_id] }",
    .details = "A weight for each id and number, and a bias. FTRL-proximal (McMahan 2013) runs in double "
               "precision and "
               "gives sparse models with l1; adagrad is a little faster. Crosses of two columns, "
               "`cross(user_id, device)`, let it learn what only the pair tells.",
    LEARNER_KIND(linear),
};
