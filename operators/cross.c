/* cross: a feature cross of two or more columns, as one 64-bit id. */
#include "operators/expr/compute.h"
#include "operators/limits.h"

struct cross {
    struct columns columns;
    struct name_ref name;
    struct compute compute;
};

static const struct option cross_options[] = {
    OPTION_COLUMNS(struct cross, columns, "columns", OPTION_REQUIRED | OPTION_POSITIONAL,
                   "the columns to combine, at least two"),
    OPTION_NAME(struct cross, name, "as", OPTION_REQUIRED, "the new column"),
    OPTIONS_END,
};

static bool cross_bind(struct operator_bind *bind)
{
    struct cross *cross = bind->config;
    if (cross->columns.count < 2 || cross->columns.count > CROSS_COLUMNS_MAX) {
        diag_error(bind->diags, DIAG_OUT_OF_RANGE, bind->span, "`cross` takes 2 to %d columns",
                   CROSS_COLUMNS_MAX);
        return false;
    }
    const struct ast *names[CROSS_COLUMNS_MAX];
    for (uint32_t i = 0; i < cross->columns.count; i++)
        names[i] = compute_name(bind->arena, cross->columns.items[i].name, cross->columns.items[i].span);
    struct ast *value = compute_call(bind->arena, "cross", bind->span, names, cross->columns.count);
    return compute_extend(bind, &cross->compute, 1) &&
           compute_add(bind, &cross->compute, value, cross->compute.schema, cross->name.name,
                       cross->name.span) &&
           compute_done(bind, &cross->compute);
}

static void cross_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    const struct cross *cross = context->config;
    compute_process(context, &cross->compute, batch);
}

const struct operator_kind operator_cross = {
    .name = "cross",
    .summary = "adds a feature cross of columns, as one 64-bit id",
    .example = "events | cross user_id, device as user_device",
    .details = "A null counts as a value. The function cross(a, b, ...) does the same in expressions.",
    .options = cross_options,
    .size = sizeof(struct cross),
    .determinism = DETERMINISM_BY_ROW,
    .keeps_columns = true,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = cross_bind,
    .process = cross_process,
    .read = cross_process,
};
