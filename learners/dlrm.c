/* Deep learning recommendation model (Naumov 2019): dense features become a vector beside
 * those of the ids. */
#include "learners/learner/learner.h"
#include "learners/networks/networks.h"

struct dlrm {
    struct learner_config common;
    struct layers_config layers;
    struct ints bottom;
    struct dot_network network;
};
_Static_assert(offsetof(struct dlrm, common) == 0, "the shared callbacks read the first member");

static const struct option dlrm_embedding[] = {
    LEARNER_DIM_OPTION("16", "length of an id's vector; a multiple of 4"),
    LEARNER_INIT_OPTION("0.03"),
    OPTION_INCLUDE_ROWS(learner_init_of_options),
    LEARNER_OPTIMIZER_OPTION("adagrad { rate: 0.05 }"),
    OPTION_INCLUDE_ROWS(learner_admission_options),
    OPTIONS_END,
};

static const struct option dlrm_options[] = {
    OPTION_INCLUDE(struct dlrm, common.inputs, learner_input_options),
    OPTION_INCLUDE(struct dlrm, common.inputs, learner_vectors_options),
    LEARNER_LOSS_OPTION("logistic"),
    LEARNER_EMBEDDING_OPTION(dlrm_embedding),
    OPTION_INTS(struct dlrm, bottom, "bottom", 0, "[64]", "1", "4096",
                "widths of the layers that the dense features go through, before a last layer of "
                "width `dim`"),
    LEARNER_HIDDEN_OPTION(struct dlrm, "[128, 64]", "widths of the layers on top of the products"),
    OPTION_INCLUDE(struct dlrm, layers, learner_layers_options),
    OPTION_INCLUDE(struct dlrm, common.steps, learner_batches_options),
    OPTION_INCLUDE(struct dlrm, common.balance, learner_balance_options),
    OPTION_INCLUDE(struct dlrm, common, learner_run_options),
    OPTIONS_END,
};

static bool dlrm_bind(struct operator_bind *bind)
{
    struct dlrm *c = bind->config;
    c->common.layers = &c->layers;
    return learner_has_products(bind, "dlrm") && learner_widths(bind, &c->bottom, c->network.bottom) &&
           learner_bind_network(bind, &network_dot, &c->network);
}

extern const struct operator_kind learner_dlrm;
const struct operator_kind learner_dlrm = {
    .name = "dlrm",
    .summary = "deep learning recommendation model: products of all pairs of vectors, dense layers on top",
    .example = "learner m = dlrm from events { label: clicked, sparse: [user_id, item_id, device], dense: "
               "[price] }",
    .details = "Relu layers turn the dense features into one more vector; this vector and the products of "
               "all pairs of vectors go through relu layers to the logit (Naumov 2019, section 2). Learns "
               "by batches.",
    LEARNER_KIND(struct dlrm, dlrm_options, dlrm_bind),
};
