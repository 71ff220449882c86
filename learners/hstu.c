/* HSTU (Zhai et al. 2024): layers of gated, pointwise attention with biases of distance and time predict the item that
 * comes next. */
#include "learners/networks/networks.h"
#include "learners/sequential/learner.h"

struct hstu {
    struct sequential_config common;
    struct hstu_network network;
};
_Static_assert(offsetof(struct hstu, common) == 0, "the shared callbacks read the first member");

static const struct option hstu_options[] = {
    OPTION_INCLUDE_ROWS(sequential_options_of),
    OPTIONS_END,
};

static bool hstu_bind(struct operator_bind *bind)
{
    struct hstu *own = bind->config;
    const struct sequential_config *c = &own->common;
    own->network = (struct hstu_network){.layers = (uint32_t)c->layers,
                                         .heads = (uint32_t)c->heads,
                                         .dim = (uint32_t)c->embedding.dim,
                                         .dropout = (float)c->dropout,
                                         .attention_dropout = (float)c->attention_dropout};
    return sequential_bind(bind, &network_hstu, &own->network);
}

extern const struct operator_kind learner_hstu;
const struct operator_kind learner_hstu = {
    .name = "hstu",
    .summary = "gated attention with the time between events, for the item that comes next",
    .example = "learner m = hstu from events { by: user_id, item: item_id, top: 10 }",
    .details =
        "As `sasrec`, with another attention (Zhai et al. 2024): each earlier event counts by itself, by what it is, "
        "how many events ago and how long ago it was, instead of sharing a sum of 1 with the others; and a gate "
        "decides which of it goes on. It reads event times, so they should mean something.",
    SEQUENTIAL_KIND(struct hstu, hstu_options, hstu_bind),
};
