/* where: keeps the rows for which a condition is true. */
#include "operators/expr/compute.h"
#include "operators/sides.h"

struct where {
    struct expression condition;
    struct expr *program;
};

static const struct option where_options[] = {
    OPTION_EXPRESSION(struct where, condition, "condition", OPTION_REQUIRED | OPTION_POSITIONAL,
                      "rows for which this is false or null are filtered out"),
    OPTIONS_END,
};

static bool where_bind(struct operator_bind *bind)
{
    struct where *where = bind->config;
    const struct schema *input = bind->inputs[0].schema;
    where->program = expr_compile_condition(where->condition.ast, "where", input, bind->arena, bind->diags);
    if (where->program == NULL)
        return false;
    struct schema *output = operator_extend(bind, 0);
    lineage_merge(&output->rows_lineage, expr_lineage(where->program));
    bind->outputs[0] = output;
    return true;
}

static void where_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    const struct where *where = context->config;
    struct expr_errors errors = {0};
    uint16_t sel[BATCH_ROWS];
    uint32_t count = expr_filter(where->program, batch, context->scratch, sel, &errors);
    compute_reject(context, batch, &errors);
    context->counters.passed += count;
    context->counters.filtered += batch->selected - count - errors.count;
    sides_emit(context, 0, batch, context->output, sel, count);
}

const struct operator_kind operator_where = {
    .name = "where",
    .summary = "keeps the rows for which a condition is true",
    .example = "events | where user_id > 0 and position <= 100",
    .details = "A row for which the condition is null (a comparison with null) is filtered out, too. The "
               "parts of `and`, `or` and `case` are evaluated from left to right, and each part only for the "
               "rows that need it: `n != 0 and 1 / n > 2` fails for no row.",
    .options = where_options,
    .size = sizeof(struct where),
    .determinism = DETERMINISM_BY_ROW,
    .keeps_columns = true,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = where_bind,
    .process = where_process,
    .read = where_process,
    .reading = READING_CHOICE,
};
