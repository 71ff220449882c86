/* SASRec (Kang and McAuley 2018): a transformer over what a user did predicts the item that comes next. */
#include "learners/networks/networks.h"
#include "learners/sequential/learner.h"

struct sasrec {
    struct sequential_config common;
    struct sasrec_network network;
    int64_t hidden;
};
_Static_assert(offsetof(struct sasrec, common) == 0, "the shared callbacks read the first member");

static const struct option sasrec_options[] = {
    OPTION_INCLUDE_ROWS(sequential_options_of),
    OPTION_INT(struct sasrec, hidden, "hidden", 0, "0", "0", "4096",
               "columns between the two dense layers of a block; 0: `dim`"),
    OPTIONS_END,
};

static bool sasrec_bind(struct operator_bind *bind)
{
    struct sasrec *own = bind->config;
    const struct sequential_config *c = &own->common;
    own->network =
        (struct sasrec_network){.layers = (uint32_t)c->layers,
                                .heads = (uint32_t)c->heads,
                                .dim = (uint32_t)c->embedding.dim,
                                .hidden = (uint32_t)(own->hidden > 0 ? own->hidden : c->embedding.dim),
                                .is_causal = true,
                                .dropout = (float)c->dropout,
                                .attention_dropout = (float)c->attention_dropout};
    return sequential_bind(bind, &network_sasrec, &own->network);
}

extern const struct operator_kind learner_sasrec;
const struct operator_kind learner_sasrec = {
    .name = "sasrec",
    .summary = "self-attention over a user's events, for the item that comes next",
    .example = "learner m = sasrec from events { by: user_id, item: item_id, top: 10 }",
    .details =
        "Each event is predicted from the user's events before it, and then learned: there is no `label`, what is "
        "predicted is `item`. The items before it, what stood beside them, and their order go through layers of "
        "attention (Kang and McAuley 2018) and become a query, which is compared with the rows of all items: "
        "`rank` is the place that the item had, `top` the list of the best. The learner keeps the histories "
        "itself. docs/learners.md says how to choose the options, and how to read the figures.",
    SEQUENTIAL_KIND(struct sasrec, sasrec_options, sasrec_bind),
};
