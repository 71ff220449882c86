/* Multi-gate mixture of experts (Ma 2018): several labels, predicted by networks that all labels share. */
#include "learners/learner/learner.h"
#include "learners/networks/networks.h"

struct mmoe {
    struct learner_config common;
    struct layers_config layers;
    int64_t experts;
    struct ints towers;
    struct experts_network network;
};
_Static_assert(offsetof(struct mmoe, common) == 0, "the shared callbacks read the first member");

static const struct option mmoe_embedding[] = {
    LEARNER_DIM_OPTION("16", "length of an id's vector; a multiple of 4"),
    LEARNER_INIT_OPTION("0.03"),
    OPTION_INCLUDE_ROWS(learner_init_of_options),
    LEARNER_OPTIMIZER_OPTION("adagrad { rate: 0.05 }"),
    OPTION_INCLUDE_ROWS(learner_admission_options),
    OPTIONS_END,
};

static const struct option mmoe_options[] = {
    OPTION_EXPRESSIONS(struct mmoe, common.inputs.labels, "labels", OPTION_REQUIRED,
                       "what to predict: bools or numbers of the input; each gets a prediction"),
    OPTION_INCLUDE(struct mmoe, common.inputs, learner_feature_options),
    OPTION_INCLUDE(struct mmoe, common.inputs, learner_vectors_options),
    LEARNER_LOSS_OPTION("logistic"),
    LEARNER_EMBEDDING_OPTION(mmoe_embedding),
    OPTION_INT(struct mmoe, experts, "experts", 0, "4", "1", "16",
               "number of networks that all labels share; each label weighs them by a gate of its own"),
    OPTION_INTS(struct mmoe, towers, "towers", 0, "[32]", "1", "4096",
                "widths of each label's own layers, on top of the experts"),
    LEARNER_HIDDEN_OPTION(struct mmoe, "[64]", "widths of each expert's layers"),
    OPTION_INCLUDE(struct mmoe, layers, learner_layers_options),
    OPTION_INCLUDE(struct mmoe, common.steps, learner_batches_options),
    OPTION_INCLUDE(struct mmoe, common, learner_run_options),
    OPTIONS_END,
};

static bool mmoe_bind(struct operator_bind *bind)
{
    struct mmoe *own = bind->config;
    struct learner_config *c = &own->common;
    c->layers = &own->layers;
    own->network.experts = (uint32_t)own->experts;
    c->balance.positive_weight = c->balance.negative_weight = c->balance.keep_negatives = 1.0;
    if (c->layers->hidden.count == 0) {
        diag_error(bind->diags, DIAG_BAD_LEARNER, bind->span,
                   "experts need layers, for example `hidden: [64]`");
        return false;
    }
    return learner_widths(bind, &own->towers, own->network.towers) &&
           learner_bind_network(bind, &network_experts, &own->network);
}

extern const struct operator_kind learner_mmoe;
const struct operator_kind learner_mmoe = {
    .name = "mmoe",
    .summary = "mixture of experts with a gate for each of several labels",
    .example = "learner m = mmoe from events { labels: [clicked, rating >= 4.0], sparse: [user_id, item_id, "
               "device] }",
    .details =
        "All labels share the experts, which are relu layers over all vectors and dense features; label t "
        "gets sum_k g_k(x) expert_k(x), g = softmax(W_t x), through layers of its own (Ma 2018, section "
        "4.2). Predictions are `prediction_LABEL`; `metrics` has a row for each label. An example that lacks "
        "one of its labels is rejected. Learns by batches.",
    LEARNER_KIND(struct mmoe, mmoe_options, mmoe_bind),
};
