/* Binds and evaluates bodies: `{ name: aggregate(argument), ... }`. */
#include "operators/aggregate/aggregate.h"

enum { REFERENCE_BYTES = 16 };

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
    return (struct type){.tag = TYPE_LIST, .element = element, .length_max = (uint32_t)aggregate->parameter};
}

static struct expr *compile(struct operator_bind *bind, const struct ast *ast, const struct schema *schema)
{
    if (!expr_has_aggregate(ast))
        return expr_compile(ast, schema, bind->arena, bind->diags);
    diag_error(bind->diags, DIAG_BAD_AGGREGATE, ast->span, "an aggregate cannot contain another aggregate");
    return NULL;
}

static bool bind_argument(struct operator_bind *bind, const struct ast *call, const struct schema *schema,
                          struct aggregate *aggregate)
{
    if (call->count == 0)
        return true;
    aggregate->argument = compile(bind, call->children[0], schema);
    if (aggregate->argument == NULL)
        return false;
    aggregate->argument_type = expr_type(aggregate->argument);
    aggregate->lineage = *expr_lineage(aggregate->argument);
    return true;
}

/* The largest number of arguments that the kind takes. */
static uint32_t arguments_of(const struct aggregate_kind *kind)
{
    return (kind->argument != AGGREGATE_NONE ? 1U : 0U) + (kind->parameter != PARAMETER_NONE ? 1U : 0U) +
           (kind->has_by ? 1U : 0U);
}

static bool bind_share(struct operator_bind *bind, const struct ast *call, struct aggregate *aggregate)
{
    const struct ast *ast = call->count >= 2 ? call->children[1] : NULL;
    if (ast != NULL && ast->tag == AST_FLOAT)
        aggregate->share = ast->real;
    else if (ast != NULL && ast->tag == AST_INT)
        aggregate->share = (double)ast->integer;
    else
        aggregate->share = -1;
    if (aggregate->share >= 0 && aggregate->share <= 1)
        return true;
    struct diag *diag =
        diag_error(bind->diags, DIAG_BAD_ARGUMENTS, ast == NULL ? call->span : ast->span,
                   "%.*s needs a number from 0 to 1 as its second argument", STR_ARGS(call->text));
    diag_hint(bind->diags, diag, "the median is %.*s(x, 0.5)", STR_ARGS(call->text));
    return false;
}

static bool bind_parameter(struct operator_bind *bind, const struct ast *call, struct aggregate *aggregate)
{
    const struct aggregate_kind *kind = aggregate->kind;
    if (kind->parameter == PARAMETER_SHARE)
        return bind_share(bind, call, aggregate);
    if (kind->parameter == PARAMETER_NONE)
        return true;
    const struct ast *ast = call->count >= 2 ? call->children[1] : NULL;
    if (ast == NULL || ast->tag != AST_INT || ast->integer < 1 || ast->integer > kind->parameter_max) {
        diag_error(bind->diags, DIAG_BAD_ARGUMENTS, ast == NULL ? call->span : ast->span,
                   "%.*s needs the number of values as its second argument, an int from 1 to %u",
                   STR_ARGS(call->text), kind->parameter_max);
        return false;
    }
    aggregate->parameter = ast->integer;
    return true;
}

/* Binds the last argument, by which rows are ranked. */
static bool bind_by(struct operator_bind *bind, const struct ast *call, const struct schema *schema,
                    struct aggregate *aggregate)
{
    uint32_t wanted = arguments_of(aggregate->kind);
    if (!aggregate->kind->has_by)
        return true;
    if (call->count < wanted) {
        struct diag *diag =
            diag_error(bind->diags, DIAG_BAD_ARGUMENTS, call->span,
                       "%.*s needs the value that ranks the rows as its last argument", STR_ARGS(call->text));
        diag_hint(bind->diags, diag, "`leat help functions` lists the aggregates");
        return false;
    }
    const struct ast *ast = call->children[wanted - 1];
    aggregate->by = compile(bind, ast, schema);
    if (aggregate->by == NULL)
        return false;
    struct type type = expr_type(aggregate->by);
    lineage_merge(&aggregate->lineage, expr_lineage(aggregate->by));
    if (type.tag == TYPE_INT || type.tag == TYPE_FLOAT || type.tag == TYPE_TIME)
        return true;
    diag_error(bind->diags, DIAG_BAD_ARGUMENTS, ast->span,
               "%.*s ranks by an int, a float or a time, not a %s", STR_ARGS(call->text),
               type_name(bind->arena, &type));
    return false;
}

static bool bind_kind(struct operator_bind *bind, const struct ast *call, struct aggregate *aggregate)
{
    bool has_name = false;
    for (size_t i = 0; i < ARRAY_COUNT(kinds) && aggregate->kind == NULL; i++) {
        if (!str_is(call->text, kinds[i]->name))
            continue;
        has_name = true;
        if (fits(kinds[i], aggregate) && call->count <= arguments_of(kinds[i]))
            aggregate->kind = kinds[i];
    }
    if (aggregate->kind != NULL)
        return bind_parameter(bind, call, aggregate);
    struct diag *diag =
        aggregate->argument == NULL
            ? diag_error(bind->diags, DIAG_BAD_ARGUMENTS, call->span, "%.*s needs an argument",
                         STR_ARGS(call->text))
            : diag_error(bind->diags, DIAG_BAD_ARGUMENTS, call->span,
                         "%.*s does not take these arguments: %u given, the first a %s", STR_ARGS(call->text),
                         call->count, type_name(bind->arena, &aggregate->argument_type));
    leat_assert(has_name);
    diag_hint(bind->diags, diag, "`leat help functions` lists the aggregates");
    return false;
}

static bool bind_one(struct operator_bind *bind, const struct assignment *entry, const struct schema *schema,
                     bool is_feature, struct aggregate *aggregate)
{
    *aggregate = (struct aggregate){.name = entry->name, .span = entry->name_span};
    if (!expr_is_aggregate(entry->value)) {
        struct diag *diag =
            diag_error(bind->diags, DIAG_BAD_AGGREGATE, entry->value->span,
                       "`%.*s` must be one aggregate: count(), sum(x), ...", STR_ARGS(entry->name));
        diag_hint(bind->diags, diag, "compute with the aggregates in a step `with` after this one");
        return false;
    }
    if (!bind_argument(bind, entry->value, schema, aggregate) || !bind_kind(bind, entry->value, aggregate) ||
        !bind_by(bind, entry->value, schema, aggregate))
        return false;
    if (aggregate->kind->is_feature_only && !is_feature) {
        diag_error(bind->diags, DIAG_BAD_AGGREGATE, entry->value->span,
                   "%s works in `feature` only: it measures the time up to the row that gets the value",
                   aggregate->kind->name);
        return false;
    }
    aggregate->result = result_type(bind->arena, aggregate);
    return true;
}

bool aggregates_bind(struct operator_bind *bind, const struct assignments *body, const struct schema *schema,
                     bool is_feature, struct aggregates *aggregates)
{
    if (body->count == 0 || body->count > AGGREGATES_MAX) {
        diag_error(bind->diags, body->count == 0 ? DIAG_OPTION_MISSING : DIAG_TOO_MANY, bind->span,
                   "expected 1 to %d aggregates, for example { n: count() }", AGGREGATES_MAX);
        return false;
    }
    aggregates->items = arena_array(bind->arena, struct aggregate, body->count);
    aggregates->is_additive = true;
    aggregates->columns = body->count;
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
        if (aggregate->by != NULL)
            aggregate->by_column = aggregates->columns++;
    }
    aggregates->count = body->count;
    return is_good;
}

void aggregates_mark_columns(const struct aggregates *aggregates, bool *columns)
{
    for (uint32_t i = 0; i < aggregates->count; i++) {
        if (aggregates->items[i].argument != NULL)
            expr_mark_columns(aggregates->items[i].argument, columns);
        if (aggregates->items[i].by != NULL)
            expr_mark_columns(aggregates->items[i].by, columns);
    }
}

struct column *aggregates_evaluate(const struct aggregates *aggregates, const struct batch *batch,
                                   struct arena *scratch, struct expr_errors *errors)
{
    struct column *columns = arena_array(scratch, struct column, aggregates->columns);
    for (uint32_t i = 0; i < aggregates->count; i++) {
        const struct aggregate *aggregate = &aggregates->items[i];
        if (aggregate->argument != NULL)
            expr_eval(aggregate->argument, batch, scratch, scratch, &columns[i], errors);
        if (aggregate->by != NULL)
            expr_eval(aggregate->by, batch, scratch, scratch, &columns[aggregate->by_column], errors);
    }
    return columns;
}
