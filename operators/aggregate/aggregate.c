/* Bodies: `{ name: aggregate(argument), ... }` checked and evaluated. */
#include "operators/aggregate/aggregate.h"

enum { TOP_MAX = 128, REFERENCE_BYTES = 16 };

static const struct aggregate_kind *const kinds[] = {
#define AGGREGATE_KIND(symbol) &symbol,
#include "operators/aggregate/kinds.def"
#undef AGGREGATE_KIND
};

static bool fits(const struct aggregate_kind *kind, const struct aggregate *aggregate)
{
    if (aggregate->argument == NULL || kind->argument == AGGREGATE_NONE)
        return aggregate->argument == NULL && kind->argument == AGGREGATE_NONE;
    return kind->argument == (int)aggregate->argument_type.tag ||
           (kind->argument == AGGREGATE_ANY && aggregate->argument_type.tag != TYPE_LIST);
}

static struct type result_type(struct arena *arena, const struct aggregate *aggregate)
{
    if (aggregate->kind->result == AGGREGATE_ANY)
        return aggregate->argument_type;
    if (aggregate->kind->result != TYPE_LIST)
        return type_of((enum type_tag)aggregate->kind->result);
    struct type *element = arena_new(arena, struct type);
    *element = aggregate->argument_type;
    return (struct type){.tag = TYPE_LIST, .element = element};
}

static bool bind_argument(struct operator_bind *bind, const struct ast *call, const struct schema *schema,
                          struct aggregate *aggregate)
{
    if (call->count == 0)
        return true;
    if (expr_has_aggregate(call->children[0])) {
        diag_error(bind->diags, DIAG_E0308, call->children[0]->span, "an aggregate inside of an aggregate");
        return false;
    }
    aggregate->argument = expr_compile(call->children[0], schema, bind->arena, bind->diags);
    if (aggregate->argument == NULL)
        return false;
    aggregate->argument_type = expr_type(aggregate->argument);
    aggregate->lineage = *expr_lineage(aggregate->argument);
    return true;
}

static bool bind_kind(struct operator_bind *bind, const struct ast *call, struct aggregate *aggregate)
{
    bool has_name = false;
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        if (!str_is(call->text, kinds[i]->name))
            continue;
        has_name = true;
        if (fits(kinds[i], aggregate) && call->count <= 1U + kinds[i]->has_parameter) {
            aggregate->kind = kinds[i];
            break;
        }
    }
    if (aggregate->kind == NULL) {
        struct diag *diag =
            aggregate->argument == NULL
                ? diag_error(bind->diags, DIAG_E0305, call->span, "%.*s needs an argument",
                             STR_ARGS(call->text))
                : diag_error(bind->diags, DIAG_E0305, call->span,
                             "%.*s does not take %u arguments, the first a %s", STR_ARGS(call->text),
                             call->count, type_name(bind->arena, &aggregate->argument_type));
        leat_assert(has_name);
        diag_hint(bind->diags, diag, "`leat help functions` lists the aggregates");
        return false;
    }
    if (!aggregate->kind->has_parameter)
        return true;
    const struct ast *parameter = call->count == 2 ? call->children[1] : NULL;
    if (parameter == NULL || parameter->tag != AST_INT || parameter->integer < 1 ||
        parameter->integer > TOP_MAX) {
        diag_error(bind->diags, DIAG_E0305, parameter == NULL ? call->span : parameter->span,
                   "%.*s wants how many values as its second argument: 1 to %d", STR_ARGS(call->text),
                   TOP_MAX);
        return false;
    }
    aggregate->parameter = parameter->integer;
    return true;
}

static bool bind_one(struct operator_bind *bind, const struct assignment *entry, const struct schema *schema,
                     bool is_feature, struct aggregate *aggregate)
{
    *aggregate = (struct aggregate){.name = entry->name, .span = entry->name_span};
    if (!expr_is_aggregate(entry->value)) {
        struct diag *diag =
            diag_error(bind->diags, DIAG_E0308, entry->value->span,
                       "`%.*s` must be one aggregate: count(), sum(x), ...", STR_ARGS(entry->name));
        diag_hint(bind->diags, diag, "compute with the results in a `with` after this step");
        return false;
    }
    if (!bind_argument(bind, entry->value, schema, aggregate) || !bind_kind(bind, entry->value, aggregate))
        return false;
    if (aggregate->kind->is_feature_only && !is_feature) {
        diag_error(bind->diags, DIAG_E0308, entry->value->span,
                   "%s belongs into a `feature`: a window has no reader", aggregate->kind->name);
        return false;
    }
    aggregate->result = result_type(bind->arena, aggregate);
    return true;
}

bool aggregates_bind(struct operator_bind *bind, const struct assignments *body, const struct schema *schema,
                     bool is_feature, struct aggregates *aggregates)
{
    if (body->count == 0 || body->count > AGGREGATES_MAX) {
        diag_error(bind->diags, body->count == 0 ? DIAG_E0402 : DIAG_E0503, bind->span,
                   "1 to %d aggregates are wanted, as { n: count() }", AGGREGATES_MAX);
        return false;
    }
    aggregates->items = arena_array(bind->arena, struct aggregate, body->count);
    aggregates->is_additive = true;
    bool is_good = true;
    for (uint32_t i = 0; i < body->count; i++) {
        struct aggregate *aggregate = &aggregates->items[i];
        if (!bind_one(bind, &body->items[i], schema, is_feature, aggregate)) {
            is_good = false;
            continue;
        }
        aggregate->offset = aggregates->bytes;
        aggregates->bytes += aggregate->kind->bytes == 0 ? REFERENCE_BYTES : aggregate->kind->bytes;
        aggregates->variable += aggregate->kind->bytes == 0;
        aggregates->is_additive &= aggregate->kind->is_additive;
    }
    aggregates->count = body->count;
    return is_good;
}

struct column *aggregates_evaluate(const struct aggregates *aggregates, const struct batch *batch,
                                   struct arena *scratch, struct expr_errors *errors)
{
    struct column *columns = arena_array(scratch, struct column, aggregates->count);
    for (uint32_t i = 0; i < aggregates->count; i++)
        if (aggregates->items[i].argument != NULL)
            expr_eval(aggregates->items[i].argument, batch, scratch, scratch, &columns[i], errors);
    return columns;
}
