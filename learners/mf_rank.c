/* Matrix factorization that ranks (Rendle et al. 2009; Weston et al. 2011): a vector of each user and of each item, whose
 * product orders the items. `mf`, which predicts ratings, is another kind. */
#include "learners/losses/options.h"
#include "learners/towers/learner.h"

struct mf_rank {
    struct towers_config common;
    struct expression user;
};
_Static_assert(offsetof(struct mf_rank, common) == 0, "the shared callbacks read the first member");

static const struct option mf_rank_options[] = {
    OPTION_EXPRESSION(struct mf_rank, user, "user", OPTION_REQUIRED, "who chose the item: a single value"),
    OPTION_INCLUDE_ROWS(towers_options_of),
    OPTION_INCLUDE_ROWS(towers_refresh_option),
    OPTION_KIND(struct towers_config, loss, "loss", 0, "bpr", losses_choices,
                "what is minimized: the item that came against other items; not `softmax`"),
    OPTION_INT(struct towers_config, batch, "batch", 0, "128", "1", "1023", "events of a step"),
    OPTIONS_END,
};

static bool mf_rank_bind(struct operator_bind *bind)
{
    struct mf_rank *own = bind->config;
    const struct ast **items = arena_array(bind->arena, const struct ast *, 1);
    items[0] = own->user.ast;
    own->common.query = (struct expressions){.items = items, .count = 1};
    own->common.list_max = 1;
    /* there are no layers that it could step: any kind that bind lets pass */
    own->common.hidden_optimizer = own->common.embedding.optimizer;
    if (!towers_bind(bind))
        return false;
    if (!own->common.is_list[0])
        return true;
    diag_hint(bind->diags,
              diag_error(bind->diags, DIAG_TYPE_CLASH, own->user.ast->span,
                         "`user` is a single value, found a list"),
              "`two_tower` reads the mean of a list: `query: [...], towers: []`");
    return false;
}

extern const struct operator_kind learner_mf_rank;
const struct operator_kind learner_mf_rank = {
    .name = "mf_rank",
    .summary = "matrix factorization that ranks items for a user",
    .example = "learner m = mf_rank from events { user: user_id, item: item_id, top: 10 }",
    .details =
        "A vector of the user times a vector of each item orders the items; the loss compares the item that came "
        "with others (`bpr`: one that was drawn; `warp`: one that scores too high). It is `two_tower` "
        "without layers, for users and items alone. For ratings take `mf`.",
    TOWERS_KIND(struct mf_rank, mf_rank_options, mf_rank_bind),
};
