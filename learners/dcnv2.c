/* Deep & cross network, version 2 (Wang 2021): cross layers of explicit products beside dense layers. */
#include "learners/learner/learner.h"
#include "learners/networks/networks.h"

struct dcnv2 {
    struct learner_config common;
    struct layers_config layers;
    int64_t cross_layers;
    struct cross_network network;
};
_Static_assert(offsetof(struct dcnv2, common) == 0, "the shared callbacks read the first member");

static const struct option dcnv2_embedding[] = {
    LEARNER_DIM_OPTION("16", "length of an id's vector; a multiple of 4"),
    LEARNER_INIT_OPTION("0.03"),
    OPTION_INCLUDE_ROWS(learner_init_of_options),
    LEARNER_OPTIMIZER_OPTION("adagrad { rate: 0.05 }"),
    OPTION_INCLUDE_ROWS(learner_admission_options),
    OPTIONS_END,
};

static const struct option dcnv2_options[] = {
    OPTION_INCLUDE(struct dcnv2, common.inputs, learner_input_options),
    OPTION_INCLUDE(struct dcnv2, common.inputs, learner_vectors_options),
    LEARNER_LOSS_OPTION("logistic"),
    LEARNER_EMBEDDING_OPTION(dcnv2_embedding),
    OPTION_INT(struct dcnv2, cross_layers, "cross_layers", 0, "3", "1", "16",
               "number of cross layers: with n cross layers, up to n + 1 features interact"),
    LEARNER_HIDDEN_OPTION(struct dcnv2, "[128, 64]", "widths of the dense layers beside the cross layers"),
    OPTION_INCLUDE(struct dcnv2, layers, learner_layers_options),
    OPTION_INCLUDE(struct dcnv2, common.steps, learner_batches_options),
    OPTION_INCLUDE(struct dcnv2, common.balance, learner_balance_options),
    OPTION_INCLUDE(struct dcnv2, common, learner_run_options),
    OPTIONS_END,
};

static bool dcnv2_bind(struct operator_bind *bind)
{
    struct dcnv2 *c = bind->config;
    c->common.layers = &c->layers;
    c->network.layers = (uint32_t)c->cross_layers;
    return learner_bind_network(bind, &network_cross, &c->network);
}

extern const struct operator_kind learner_dcnv2;
const struct operator_kind learner_dcnv2 = {
    .name = "dcnv2",
    .summary = "deep & cross network: products of all features, learned layer by layer",
    .example = "learner m = dcnv2 from events { label: clicked, sparse: [user_id, item_id, device], dense: "
               "[price] }",
    .details = "x_0 is all vectors and dense features of an example; x_{l+1} = x_0 * (W_l x_l + b_l) + "
               "x_l, element by element (Wang 2021, eq. 1, DCN-V2 in the parallel structure). The logit is "
               "a weighted sum of the last cross layer and the last dense one. Learns by batches.",
    LEARNER_KIND(struct dcnv2, dcnv2_options, dcnv2_bind),
};
