/* Attentional factorization machine (Xiao 2017): attention weighs the products of all pairs of vectors. */
#include "learners/learner/learner.h"
#include "learners/networks/networks.h"

struct afm {
    struct learner_config common;
    struct layers_config layers;
    int64_t attention;
    struct attention_network network;
};
_Static_assert(offsetof(struct afm, common) == 0, "the shared callbacks read the first member");

static const struct option afm_embedding[] = {
    LEARNER_DIM_OPTION("16", "length of an id's vector; a multiple of 4"),
    LEARNER_INIT_OPTION("0.05"),
    OPTION_INCLUDE_ROWS(learner_init_of_options),
    LEARNER_OPTIMIZER_OPTION("adagrad { rate: 0.05 }"),
    OPTION_INCLUDE_ROWS(learner_admission_options),
    OPTIONS_END,
};

static const struct option afm_options[] = {
    OPTION_INCLUDE(struct afm, common.inputs, learner_input_options),
    OPTION_INCLUDE(struct afm, common.inputs, learner_ids_options),
    LEARNER_LOSS_OPTION("logistic"),
    LEARNER_LINEAR_OPTION("adagrad { rate: 0.1 }"),
    LEARNER_EMBEDDING_OPTION(afm_embedding),
    OPTION_INT(struct afm, attention, "attention", 0, "16", "4", "512",
               "width of the relu layer that gives each pair of features its weight; a multiple of 4"),
    OPTION_INCLUDE(struct afm, layers, learner_layers_options),
    OPTION_INCLUDE(struct afm, common.steps, learner_batches_options),
    OPTION_INCLUDE(struct afm, common.balance, learner_balance_options),
    OPTION_INCLUDE(struct afm, common, learner_run_options),
    OPTIONS_END,
};

static bool afm_bind(struct operator_bind *bind)
{
    struct afm *own = bind->config;
    const char *problem = NULL;
    own->common.layers = &own->layers;
    own->network.width = (uint32_t)own->attention;
    if (own->attention % 4 != 0)
        problem = "`attention` must be a multiple of 4: pairs are computed in slices of four";
    else if (own->common.inputs.sparse.count < 2)
        problem = "`afm` weighs pairs of features: it needs at least two in `sparse`";
    if (problem != NULL) {
        diag_error(bind->diags, DIAG_BAD_LEARNER, bind->span, "%s", problem);
        return false;
    }
    return learner_bind_network(bind, &network_attention, &own->network);
}

extern const struct operator_kind learner_afm;
const struct operator_kind learner_afm = {
    .name = "afm",
    .summary = "factorization machine whose pairs are weighed by attention",
    .example = "learner m = afm from events { label: clicked, sparse: [user_id, item_id, device] }",
    .details =
        "logit = bias + sum of weights + <p, sum over pairs of a_ij (v_i * v_j)>, products element by element; "
        "a = softmax over the pairs of <h, relu(W (v_i * v_j) + b)>, so that each event has its own weights of "
        "pairs (Xiao 2017, eq. 4-6). Learns by batches.",
    LEARNER_KIND(struct afm, afm_options, afm_bind),
};
