/* bucketize: adds a column with the number of the bucket that a value falls into. */
#include "operators/expr/compute.h"

struct bucketize {
    struct column_ref column;
    struct expression bounds;
    struct name_ref name;
    struct compute compute;
};

static const struct option bucketize_options[] = {
    OPTION_COLUMN(struct bucketize, column, "column", OPTION_REQUIRED | OPTION_POSITIONAL,
                  "the column of numbers"),
    OPTION_EXPRESSION(struct bucketize, bounds, "at", OPTION_REQUIRED,
                      "the bounds, a list of rising numbers"),
    OPTION_NAME(struct bucketize, name, "as", OPTION_REQUIRED,
                "the new column: the number of bounds that are <= the column's number"),
    OPTIONS_END,
};

static bool bucketize_bind(struct operator_bind *bind)
{
    struct bucketize *bucketize = bind->config;
    const struct ast *bounds = bucketize->bounds.ast;
    if (bounds->tag != AST_LIST) { /* a single bound becomes a list of one */
        struct ast *list = compute_call(bind->arena, "", bounds->span, &bounds, 1);
        list->tag = AST_LIST;
        bounds = list;
    }
    const struct ast *args[] = {compute_name(bind->arena, bucketize->column.name, bucketize->column.span),
                                bounds};
    struct ast *value = compute_call(bind->arena, "bucketize", bind->span, args, 2);
    return compute_extend(bind, &bucketize->compute, 1) &&
           compute_add(bind, &bucketize->compute, value, bucketize->compute.schema, bucketize->name.name,
                       bucketize->name.span) &&
           compute_done(bind, &bucketize->compute);
}

static void bucketize_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    const struct bucketize *bucketize = context->config;
    compute_process(context, &bucketize->compute, batch);
}

const struct operator_kind operator_bucketize = {
    .name = "bucketize",
    .summary = "adds the number of the bucket that a number falls into",
    .example = "events | bucketize price at [10, 20, 50] as price_bucket",
    .details = "The function bucketize(x, [bounds]) does the same in expressions.",
    .options = bucketize_options,
    .size = sizeof(struct bucketize),
    .determinism = DETERMINISM_BY_ROW,
    .keeps_columns = true,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = bucketize_bind,
    .process = bucketize_process,
    .read = bucketize_process,
};
