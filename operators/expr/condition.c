/* Conditions, for registry.conditions. */
#include "operators/expr/expr.h"

static const void *compile(const struct ast *ast, const char *what, const struct schema *schema,
                           struct arena *arena, struct diag_list *diags)
{
    return expr_compile_condition(ast, what, schema, arena, diags);
}

static uint32_t filter(const void *condition, const struct batch *batch, struct arena *scratch, uint16_t *sel,
                       void (*fail)(void *argument, uint32_t row, const char *reason), void *argument)
{
    struct expr_errors errors = {0};
    uint32_t count = expr_filter(condition, batch, scratch, sel, &errors);
    for (uint32_t i = 0; errors.count > 0 && i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        if (bit_get(errors.rows, row))
            fail(argument, row, errors.reasons[row]);
    }
    return count;
}

const struct condition_kind expr_conditions = {.compile = compile, .filter = filter};
