/* split: the rows for which a condition is true go on, the others go to the second output. */
#include "operators/expr/compute.h"
#include "operators/sides.h"

enum { SPLIT_REST = 1 };

struct split {
    struct expression where;
    struct expr *program;
    const struct schema *output; /* of both outputs */
};

static const struct option split_options[] = {
    OPTION_EXPRESSION(struct split, where, "where", OPTION_REQUIRED,
                      "rows for which this is false or null go to `NAME.rest`"),
    OPTIONS_END,
};

static bool split_bind(struct operator_bind *bind)
{
    struct split *split = bind->config;
    split->program =
        expr_compile_condition(split->where.ast, "split", bind->inputs[0].schema, bind->arena, bind->diags);
    if (split->program == NULL)
        return false;
    struct schema *output = operator_extend(bind, 0);
    lineage_merge(&output->rows_lineage, expr_lineage(split->program));
    split->output = bind->outputs[0] = bind->outputs[SPLIT_REST] = output;
    bind->output_names[SPLIT_REST] = "rest";
    return true;
}

static void split_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    const struct split *split = context->config;
    struct expr_errors errors = {0};
    uint16_t taken[BATCH_ROWS], rest[BATCH_ROWS];
    uint32_t count = expr_filter(split->program, batch, context->scratch, taken, &errors);
    uint32_t rest_count = sides_rest(batch, taken, count, errors.rows, rest);
    compute_reject(context, batch, &errors);
    context->counters.passed += count;
    context->counters.filtered += rest_count;
    sides_emit(context, 0, batch, split->output, taken, count);
    sides_emit(context, SPLIT_REST, batch, split->output, rest, rest_count);
}

const struct operator_kind operator_split = {
    .name = "split",
    .summary = "keeps the rows for which a condition is true, and makes the others a stream of their own",
    .example = "events | split where user_id > 0 and position <= 100",
    .details =
        "Like `where`, but rows for which the condition is false or null are not lost: they become the "
        "stream `NAME.rest`, with the same columns, for sinks and for other streams (`stream odd = NAME.rest "
        "| ...`). They count as filtered.",
    .options = split_options,
    .size = sizeof(struct split),
    .determinism = DETERMINISM_BY_ROW,
    .keeps_columns = true,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = split_bind,
    .process = split_process,
    .read = split_process,
    .reading = READING_CHOICE,
};
