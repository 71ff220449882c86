/* drop: removes columns. */
#include "operators/expr/compute.h"

struct drop {
    struct columns columns;
    struct compute compute;
};

static const struct option drop_options[] = {
    OPTION_COLUMNS(struct drop, columns, "columns", OPTION_REQUIRED | OPTION_POSITIONAL,
                   "the columns to remove"),
    OPTIONS_END,
};

static bool drop_bind(struct operator_bind *bind)
{
    struct drop *drop = bind->config;
    const struct schema *input = bind->inputs[0].schema;
    if (!columns_resolve(&drop->columns, input, bind->arena, bind->diags) ||
        compute_schema(bind, &drop->compute, input->count) == NULL)
        return false;
    for (uint32_t i = 0; i < input->count; i++) {
        bool is_dropped = false;
        for (uint32_t k = 0; k < drop->columns.count; k++)
            is_dropped |= drop->columns.items[k].index == (int)i;
        if (!is_dropped && !compute_keep(bind, &drop->compute, (int)i, input->fields[i].name, bind->span))
            return false;
    }
    return compute_done(bind, &drop->compute);
}

static void drop_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    const struct drop *drop = context->config;
    compute_process(context, &drop->compute, batch);
}

const struct operator_kind operator_drop = {
    .name = "drop",
    .summary = "removes columns",
    .example = "events | drop device, price",
    .options = drop_options,
    .size = sizeof(struct drop),
    .determinism = DETERMINISM_BY_ROW,
    .keeps_columns = true,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = drop_bind,
    .process = drop_process,
    .read = drop_process,
};
