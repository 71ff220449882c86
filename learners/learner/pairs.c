/* Pairs of features whose vectors interact: which do (`pairs`), and the learned weight of each. */
#include "learners/learner/internal.h"

const struct option learner_pairs_options[] = {
    OPTION_EXPRESSIONS(struct pairs_config, chosen, "pairs", 0,
                       "with `batch: 1`: pairs of features that interact: `[[user_id, item_id], [item_id, "
                       "device]]`; not given: all pairs"),
    OPTION_KIND(struct pairs_config, weights, "pair_weights", 0, "sgd { rate: 0.0 }", optimizer_kinds,
                "with `batch: 1`: optimizer of the learned weight of each pair of features (Pan 2018); "
                "rate 0.0: all weights stay 1"),
    OPTIONS_END,
};

static bool bind_pair(struct operator_bind *bind, struct learner_config *c, const struct ast *pair)
{
    if (pair->tag != AST_LIST || pair->count != 2) {
        struct diag *d =
            diag_error(bind->diags, DIAG_OPTION_TYPE, pair->span, "a pair is a list of two features");
        diag_hint(bind->diags, d, "for example `pairs: [[user_id, item_id], [item_id, device]]`");
        return false;
    }
    int a = learner_vector_field(bind, c, pair->children[0]),
        b = learner_vector_field(bind, c, pair->children[1]);
    if (a < 0 || b < 0)
        return false;
    uint32_t f = (uint32_t)MIN(a, b), g = (uint32_t)MAX(a, b);
    if (f == g) {
        diag_error(bind->diags, DIAG_OPTION_TWICE, pair->span, "a feature does not interact with itself");
        return false;
    }
    uint8_t *is_off = &c->model.pair_is_off[f * (2 * c->inputs.vectors_count - f - 1) / 2 + (g - f - 1)];
    if (*is_off == 0) {
        diag_error(bind->diags, DIAG_OPTION_TWICE, pair->span, "this pair is listed twice");
        return false;
    }
    *is_off = 0;
    return true;
}

bool learner_bind_pairs(struct operator_bind *bind, struct learner_config *c)
{
    const struct pairs_config *p = c->pairs;
    if (p == NULL)
        return true;
    c->model.pairs = optimizer_from(&p->weights);
    if (p->chosen.items == NULL) /* option not given; an empty list would mean no pair at all */
        return true;
    bool is_ok = true;
    memset(c->model.pair_is_off, 1, c->inputs.vectors_count * (c->inputs.vectors_count - 1) / 2);
    for (uint32_t i = 0; i < p->chosen.count; i++)
        is_ok = bind_pair(bind, c, p->chosen.items[i]) && is_ok;
    return is_ok;
}

/* Appends the features with vectors, in their order, if a vector has a part for each other feature (FFM) or
 * if pairs have weights or are chosen. */
void learner_put_pairs(const struct learner_config *c, struct byte_buffer *out)
{
    const struct pairs_config *p = c->pairs;
    if (p == NULL || c->inputs.vectors_count < 2)
        return;
    bool has_weights = p->chosen.items != NULL || c->model.pairs.params.rate > 0.0F;
    if (!has_weights && !c->model.interaction->is_field_aware)
        return;
    buffer_printf(out, "=pairs of: ");
    for (uint32_t f = 0; f < c->inputs.vectors_count; f++)
        buffer_printf(out, "%s%.*s", f > 0 ? ", " : "", STR_ARGS(learner_field_name(c, f)));
    buffer_printf(out, "; weighed by %s%s\n", has_weights ? optimizer_name(&p->weights) : "none",
                  p->chosen.items != NULL ? "; not all" : "");
    uint32_t pair = 0;
    for (uint32_t f = 0; f < c->inputs.vectors_count; f++)
        for (uint32_t g = f + 1; g < c->inputs.vectors_count; g++, pair++)
            if (p->chosen.items != NULL && c->model.pair_is_off[pair] == 0)
                buffer_printf(out, "=pair %u and %u: on\n", f + 1, g + 1);
}
