/* item2vec (Barkan and Koenigstein 2016; learners/towers/alike.c): items that the same users met soon after each other get
 * vectors that point the same way. */
#include "learners/losses/options.h"
#include "learners/towers/learner.h"

struct item2vec {
    struct towers_config common;
    struct expression by, like;
    int64_t negatives;
};
_Static_assert(offsetof(struct item2vec, common) == 0, "the shared callbacks read the first member");

static const struct option item2vec_options[] = {
    OPTION_EXPRESSION(struct item2vec, by, "by", OPTION_REQUIRED,
                      "whose events follow one another: the user, or the session; a single value"),
    OPTION_INCLUDE_ROWS(towers_options_of),
    OPTION_STREAM(
        struct towers_config, items, "items", 0,
        "stream of the items that there are: a row adds an item, and removes it if `_op` is \"delete\". It "
        "has the columns that `item` reads. With it, events bring no items"),
    OPTION_EXPRESSION(
        struct item2vec, like, "like", 0,
        "an item that a row asks about: where it is not null, the list has the items alike to it, and not "
        "those alike to the last items of `by`"),
    OPTION_INT(struct towers_config, history, "history", 0, "20", "1", "500",
               "the window: the last events of a user, with whose items the next one's is paired, and whose "
               "mean is the user's query; when it is full and one more comes, the older half goes"),
    OPTION_INT(
        struct towers_config, occurrences_min, "occurrences_min", 0, "5", "1", "1000000000",
        "an item is in lists from its so many-th event that teaches on: before that, its vector says little"),
    OPTION_INT(struct item2vec, negatives, "negatives", 0, "15", "1", "4096",
               "items drawn for each pair, frequent ones more often, which the model learns to keep apart"),
    OPTION_FLOAT(
        struct towers_config, subsample, "subsample", 0, "0.0", "0.0", "1.0",
        "the share of all events above which an item makes fewer pairs, with probability sqrt(subsample / "
        "share); usual are 0.001 to 0.00001. 0: all make pairs"),
    OPTION_INT(struct towers_config, batch, "batch", 0, "512", "1", "1023", "pairs of a step"),
    OPTIONS_END,
};

/* The loss: bce over drawn items is that of skip-gram with negative sampling. */
static void set_loss(struct operator_bind *bind, struct item2vec *own)
{
    struct losses_options *losses = arena_array(bind->arena, struct losses_options, 1);
    *losses = (struct losses_options){.temperature = 1.0, .negatives = own->negatives};
    own->common.loss = (struct kind_ref){.config = losses};
    while (losses_chosen(&own->common.loss) != losses_find(STR("bce")))
        own->common.loss.choice++;
}

static bool is_single(struct operator_bind *bind, const struct towers_config *c, uint32_t field,
                      const char *option)
{
    if (!c->is_list[field])
        return true;
    diag_error(bind->diags, DIAG_TYPE_CLASH, c->query.items[field]->span,
               "`%s` is a single value, found a list", option);
    return false;
}

/* Equal values of different types are different items. */
static bool is_item(struct operator_bind *bind, const struct towers_config *c)
{
    const struct field *fields = bind->inputs[LEARNER_EXAMPLES].schema->fields;
    const struct type *item = &fields[c->item_column].type,
                      *like = &fields[c->query_columns[LEARNER_EXAMPLES][1]].type;
    if (type_equal(item, like))
        return true;
    diag_hint(bind->diags,
              diag_error(bind->diags, DIAG_TYPE_CLASH, c->query.items[1]->span,
                         "`like` is an item, of type %s, found %s", type_name(bind->arena, item),
                         type_name(bind->arena, like)),
              "give it the same type (`cast`)");
    return false;
}

static bool item2vec_bind(struct operator_bind *bind)
{
    struct item2vec *own = bind->config;
    struct towers_config *c = &own->common;
    const struct ast **query = arena_array(bind->arena, const struct ast *, 2);
    query[0] = own->by.ast, query[1] = own->like.ast;
    c->query = (struct expressions){.items = query, .count = own->like.ast != NULL ? 2 : 1};
    c->list_max = 1;
    c->hidden_optimizer = c->embedding.optimizer; /* there are no layers that it could step */
    set_loss(bind, own);
    if (!towers_bind(bind))
        return false;
    bool is_ok = is_single(bind, c, 0, "by");
    return (own->like.ast == NULL || (is_single(bind, c, 1, "like") && is_item(bind, c))) && is_ok;
}

extern const struct operator_kind learner_item2vec;
const struct operator_kind learner_item2vec = {
    .name = "item2vec",
    .summary = "items as vectors: which are alike, because the same users met them",
    .example = "learner m = item2vec from events { by: user_id, item: item_id, batch: 64, top: 10 }",
    .details =
        "An event's item is paired with each of the last `history` items of its user, in both directions; a pair's "
        "vectors are moved towards each other, and away from those of drawn items. An item has two vectors, its own and "
        "one as a neighbour; scores are cosines of own vectors: of the mean of the user's last items before the event, or "
        "of the item that `like` asks about, and each item. Items are drawn by how often they occur lately, to the power of "
        "0.75. An item that has made no pair yet is in no list. Rows where `learn` is not true become part of their users' "
        "histories, too. `seen: dropped` leaves the user's last items out, which are the most alike to their mean.",
    TOWERS_KIND(struct item2vec, item2vec_options, item2vec_bind),
};
