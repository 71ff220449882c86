/* with: adds computed columns. */
#include "operators/expr/compute.h"

struct with {
    struct assignments columns;
    struct compute compute;
};

static const struct option with_options[] = {
    OPTION_ASSIGNMENTS(struct with, columns, "columns", OPTION_REQUIRED | OPTION_POSITIONAL,
                       "new columns; a later one may use those before it"),
    OPTIONS_END,
};

static bool with_bind(struct operator_bind *bind)
{
    struct with *with = bind->config;
    if (!compute_extend(bind, &with->compute, with->columns.count))
        return false;
    bool is_good = true;
    for (uint32_t i = 0; i < with->columns.count; i++) {
        const struct assignment *a = &with->columns.items[i];
        is_good &= compute_add(bind, &with->compute, a->value, with->compute.schema, a->name, a->name_span);
    }
    return is_good && compute_done(bind, &with->compute);
}

static void with_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    const struct with *with = context->config;
    compute_process(context, &with->compute, batch);
}

const struct operator_kind operator_with = {
    .name = "with",
    .summary = "adds computed columns",
    .example = "events | with total = price * 2.0, rounded = round(total)",
    .details =
        "A row for which an expression fails (integer overflow, division by zero, a cast) goes to dead "
        "letters; the `try_` functions give null instead. A new column with the name of an existing one is "
        "an error: `cast` and `clean` change columns in place.",
    .options = with_options,
    .size = sizeof(struct with),
    .determinism = DETERMINISM_BY_ROW,
    .keeps_columns = true,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = with_bind,
    .process = with_process,
    .read = with_process,
};
