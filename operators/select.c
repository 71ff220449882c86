/* select: the output's columns, named one by one. */
#include "operators/expr/compute.h"

struct select {
    struct assignments columns;
    struct compute compute;
};

static const struct option select_options[] = {
    OPTION_ASSIGNMENTS(struct select, columns, "columns", OPTION_REQUIRED | OPTION_POSITIONAL,
                       "columns to keep, as they are or computed from the input's: `a, b, c = x + 1`"),
    OPTIONS_END,
};

static bool select_bind(struct operator_bind *bind)
{
    struct select *select = bind->config;
    const struct schema *input = bind->inputs[0].schema;
    if (compute_schema(bind, &select->compute, select->columns.count) == NULL)
        return false;
    bool is_good = true;
    for (uint32_t i = 0; i < select->columns.count; i++) {
        const struct assignment *a = &select->columns.items[i];
        int source = a->value->tag == AST_NAME ? schema_find(input, a->value->text) : -1;
        is_good &= source >= 0 ? compute_keep(bind, &select->compute, source, a->name, a->name_span)
                               : compute_add(bind, &select->compute, a->value, input, a->name, a->name_span);
    }
    return is_good && compute_done(bind, &select->compute);
}

static void select_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    const struct select *select = context->config;
    compute_process(context, &select->compute, batch);
}

const struct operator_kind operator_select = {
    .name = "select",
    .summary = "keeps the named columns only, in that order, and computes new ones",
    .example = "events | select user_id, item_id, cents = int(price * 100.0)",
    .options = select_options,
    .size = sizeof(struct select),
    .determinism = DETERMINISM_BY_ROW,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = select_bind,
    .process = select_process,
    .read = select_process,
};
