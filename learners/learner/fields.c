/* Options of single sparse features: which pairs interact, how a feature's vectors are initialised. */
#include "learners/learner/learner.h"

/* The field's number among those with vectors; -1 after a diagnostic. */
static int vector_field(struct operator_bind *bind, const struct learner_config *c, const struct ast *ast)
{
    int column = bind->add_column(bind, ast);
    if (column < 0)
        return -1;
    for (uint32_t f = 0; f < c->vectors_count; f++)
        if (c->sparse_columns[f] == column)
            return (int)f;
    struct diag *d = diag_error(bind->diags, DIAG_E0302, ast->span, "this is not a sparse feature");
    diag_hint(bind->diags, d, "name what stands in `sparse`; features of `wide` have no vectors");
    return -1;
}

static bool bind_pair(struct operator_bind *bind, struct learner_config *c, const struct ast *pair)
{
    if (pair->tag != AST_LIST || pair->count != 2) {
        struct diag *d = diag_error(bind->diags, DIAG_E0403, pair->span, "a pair is a list of two features");
        diag_hint(bind->diags, d, "for example `pairs: [[user_id, item_id], [item_id, device]]`");
        return false;
    }
    int a = vector_field(bind, c, pair->children[0]), b = vector_field(bind, c, pair->children[1]);
    if (a < 0 || b < 0)
        return false;
    uint32_t f = (uint32_t)MIN(a, b), g = (uint32_t)MAX(a, b);
    if (f == g) {
        diag_error(bind->diags, DIAG_E0406, pair->span, "a feature does not interact with itself");
        return false;
    }
    uint8_t *is_off = &c->model.pair_is_off[f * (2 * c->vectors_count - f - 1) / 2 + (g - f - 1)];
    if (*is_off == 0) {
        diag_error(bind->diags, DIAG_E0406, pair->span, "this pair is listed twice");
        return false;
    }
    *is_off = 0;
    return true;
}

bool learner_bind_pairs(struct operator_bind *bind, struct learner_config *c)
{
    if (c->pairs.items == NULL) /* option not given; an empty list would mean no pair at all */
        return true;
    bool is_ok = true;
    memset(c->model.pair_is_off, 1, c->vectors_count * (c->vectors_count - 1) / 2);
    for (uint32_t i = 0; i < c->pairs.count; i++)
        is_ok = bind_pair(bind, c, c->pairs.items[i]) && is_ok;
    return is_ok;
}

bool learner_bind_inits(struct operator_bind *bind, struct learner_config *c)
{
    bool is_ok = true;
    for (uint32_t i = 0; i < c->embedding.init_of.count; i++) {
        const struct assignment *own = &c->embedding.init_of.items[i];
        const struct ast name = {.tag = AST_NAME, .span = own->name_span, .text = own->name};
        int field = vector_field(bind, c, &name);
        double init = own->value->tag == AST_FLOAT ? own->value->real
                      : own->value->tag == AST_INT ? (double)own->value->integer
                                                   : -1.0;
        if (init < 0.0 || init > 100.0) {
            struct diag *d = diag_error(bind->diags, DIAG_E0404, own->value->span, "`init_of` takes numbers");
            diag_hint(bind->diags, d, "allowed is 0.0 to 100.0, as for `init`");
            is_ok = false;
        } else if (field >= 0) {
            c->model.field_init[field] = init > 0.0 ? (float)init : -1.0F; /* model.h: below 0 is zeros */
        }
        is_ok = field >= 0 && is_ok;
    }
    return is_ok;
}
