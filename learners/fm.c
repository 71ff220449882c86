/* Factorization machine (Rendle 2010): every pair of ids interacts through the product of their vectors. */
#include "learners/learner.h"

struct fm {
    struct learner_config common;
};

static const struct option fm_embedding[] = {
    OPTION_INT(struct embedding_config, dim, "dim", 0, "16", "4", "512",
               "length of an id's vector; a multiple of 4"),
    OPTION_FLOAT(struct embedding_config, init, "init", 0, "0.05", "0.0", "100.0",
                 "vectors start uniform within this of zero"),
    OPTION_KIND(struct embedding_config, optimizer, "optimizer", 0, "adagrad { rate: 0.05 }", optimizer_kinds,
                "how vectors move"),
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

static const struct option fm_options[] = {
    LEARNER_INPUT_OPTIONS(struct fm),
    OPTION_EXPRESSIONS(struct fm, common.sparse, "sparse", OPTION_REQUIRED,
                       "ids: single values or lists; a vector and a weight for each"),
    OPTION_EXPRESSIONS(struct fm, common.wide, "wide", 0,
                       "ids that get a weight but no vector: crosses, for example"),
    OPTION_ENUM(struct fm, common.loss, "loss", 0, "logistic", "logistic|squared", "what is minimised"),
    OPTION_KIND(struct fm, common.linear, "linear", 0, "adagrad { rate: 0.1 }", optimizer_kinds,
                "how the weights of ids and numbers move"),
    OPTION_BLOCK(struct fm, common.embedding, struct embedding_config, "embedding", 0, fm_embedding,
                 "vectors of ids"),
    LEARNER_TRAINING_OPTIONS(struct fm),
    OPTIONS_END,
};

static bool fm_bind(struct operator_bind *bind)
{
    struct fm *own = bind->config;
    if (!learner_bind(bind, &own->common))
        return false;
    own->common.model.interaction = INTERACTION_FM;
    return true;
}

LEARNER_CALLBACKS(fm)

extern const struct operator_kind learner_fm;
const struct operator_kind learner_fm = {
    .name = "fm",
    .summary = "factorization machine: pairs of ids by one vector each",
    .example = "learner m = fm from events { label: clicked, sparse: [user_id, item_id, device] }",
    .details = "logit = bias + sum of weights + sum over pairs of features of <v_i, v_j> (Rendle 2010). "
               "Lists count as the mean of their rows.",
    LEARNER_KIND(fm),
};
