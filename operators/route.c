/* route: rows go to named side outputs, each by a condition; rows that match none stay in the stream. */
#include "operators/expr/compute.h"
#include "operators/limits.h"
#include "operators/sides.h"

enum { ROUTE_FIRST = 0 };

struct route {
    int match;
    struct assignments routes;
    struct expr *programs[ROUTE_OUTPUTS_MAX];
    const struct schema *output; /* of all outputs */
};

static const struct option route_options[] = {
    OPTION_ENUM(struct route, match, "match", 0, "first", "first|all",
                "`first`: a row goes to the first output whose condition is true; `all`: to each of them"),
    OPTION_ASSIGNMENTS(struct route, routes, "routes", OPTION_REQUIRED | OPTION_BODY,
                       "the outputs and their conditions: { dear: price > 100.0 }"),
    OPTIONS_END,
};

static bool route_bind(struct operator_bind *bind)
{
    struct route *route = bind->config;
    if (route->routes.count == 0 || route->routes.count > ROUTE_OUTPUTS_MAX) {
        diag_error(bind->diags, route->routes.count == 0 ? DIAG_OPTION_MISSING : DIAG_TOO_MANY, bind->span,
                   "expected 1 to %d outputs, for example { dear: price > 100.0 }", ROUTE_OUTPUTS_MAX);
        return false;
    }
    struct schema *output = operator_extend(bind, 0);
    bool is_good = true;
    for (uint32_t i = 0; i < route->routes.count; i++) {
        const struct assignment *item = &route->routes.items[i];
        route->programs[i] =
            expr_compile_condition(item->value, "route", bind->inputs[0].schema, bind->arena, bind->diags);
        is_good &= route->programs[i] != NULL;
        if (route->programs[i] != NULL)
            lineage_merge(&output->rows_lineage, expr_lineage(route->programs[i]));
        bind->outputs[i + 1] = output;
        bind->output_names[i + 1] = arena_strndup(bind->arena, item->name.data, item->name.length);
    }
    route->output = bind->outputs[0] = output;
    return is_good;
}

/* A view of the batch with the rows sel[0..count): the rows that no condition has taken so far. */
static struct batch *view_of(struct batch *batch, const struct schema *schema, const uint16_t *sel,
                             uint32_t count)
{
    struct batch *view = batch_derive(batch, schema);
    view->sel = arena_copy(&view->arena, sel, count * sizeof(*sel));
    view->selected = count;
    return view;
}

/* Rows for which a condition cannot be computed go to dead letters alone: every condition that may see a row
 * is computed before the first output is emitted. */
static void route_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    const struct route *route = context->config;
    struct expr_errors errors = {0};
    uint16_t taken[ROUTE_OUTPUTS_MAX][BATCH_ROWS], rest[BATCH_ROWS];
    uint32_t counts[ROUTE_OUTPUTS_MAX], rest_count = 0;
    uint64_t is_taken[BATCH_VALID_WORDS] = {0};
    batch_hold(batch);
    struct batch *left = batch;
    for (uint32_t i = 0; i < route->routes.count; i++) {
        counts[i] = expr_filter(route->programs[i], left, context->scratch, taken[i], &errors);
        for (uint32_t k = 0; k < counts[i]; k++)
            bit_set(is_taken, taken[i][k]);
        if (route->match != ROUTE_FIRST)
            continue;
        rest_count = sides_rest(left, taken[i], counts[i], errors.rows, rest);
        struct batch *view = view_of(left, left->schema, rest, rest_count);
        batch_release(left);
        left = view;
    }
    batch_release(left);
    for (uint32_t i = 0; i < route->routes.count; i++) {
        uint32_t kept = 0;
        for (uint32_t k = 0; k < counts[i]; k++)
            if (!bit_get(errors.rows, taken[i][k]))
                taken[i][kept++] = taken[i][k];
        sides_emit(context, i + 1, batch, route->output, taken[i], kept);
    }
    rest_count = 0;
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        if (!bit_get(is_taken, row) && !bit_get(errors.rows, row))
            rest[rest_count++] = (uint16_t)row;
    }
    context->counters.passed += rest_count;
    context->counters.filtered += batch->selected - errors.count - rest_count;
    compute_reject(context, batch, &errors);
    sides_emit(context, 0, batch, route->output, rest, rest_count);
}

const struct operator_kind operator_route = {
    .name = "route",
    .summary = "sends rows to named streams, each by a condition",
    .example = "events | route { dear: price > 100.0, cheap: price < 1.0 }",
    .details =
        "Each entry is a stream, `NAME.dear` and `NAME.cheap` in the example, with the same columns, for "
        "sinks and for other streams (`stream d = NAME.dear | ...`). A row goes to the first stream whose "
        "condition is true, with `match all` to each of them. Rows for which no condition is true stay in "
        "the stream itself; the other rows count as filtered. There can be up to 7 entries; `split` does the "
        "same with one condition.",
    .options = route_options,
    .size = sizeof(struct route),
    .determinism = DETERMINISM_BY_ROW,
    .keeps_columns = true,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = route_bind,
    .process = route_process,
    .read = route_process,
    .reading = READING_CHOICE,
};
