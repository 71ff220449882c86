#include "learners/retrieval/columns.h"
#include "learners/retrieval/choices.h"

static bool is_id(const struct type *type)
{
    return type->tag <= TYPE_TIME;
}

static const struct type *type_at(const struct operator_bind *bind, uint32_t input, int column)
{
    return &bind->inputs[input].schema->fields[column].type;
}

int choices_bind_id(struct operator_bind *bind, uint32_t input, const struct ast *ast, bool lists)
{
    int column = bind->add_column(bind, input, ast);
    if (column < 0)
        return -1;
    const struct type *type = type_at(bind, input, column);
    if (is_id(type) || (lists && type->tag == TYPE_LIST && is_id(type->element)))
        return column;
    struct diag *d =
        diag_error(bind->diags, DIAG_TYPE_CLASH, ast->span, "expected a single value%s, found %s",
                   lists ? " or a list of them" : "", type_name(bind->arena, type));
    if (!lists)
        diag_hint(bind->diags, d,
                  "take one value of it, or make a row of each with `unnest` before the learner");
    return -1;
}

bool choices_is_same_type(struct operator_bind *bind, uint32_t input, int column, int of_events,
                          const struct ast *ast)
{
    const struct type *here = type_at(bind, input, column),
                      *events = type_at(bind, LEARNER_EXAMPLES, of_events);
    if (type_equal(here, events))
        return true;
    struct diag *d = diag_error(bind->diags, DIAG_TYPE_CLASH, ast->span,
                                "this is of type %s among the events, and of type %s in `%.*s`",
                                type_name(bind->arena, events), type_name(bind->arena, here),
                                STR_ARGS(bind->inputs[input].stream));
    diag_hint(bind->diags, d,
              "equal values of different types are different: give the column the same type in both "
              "streams (`cast`)");
    return false;
}

int choices_bind_item(struct operator_bind *bind, const struct ast *ast)
{
    int column = choices_bind_id(bind, LEARNER_EXAMPLES, ast, false);
    bind->learner->labels[0] = column;
    bind->learner->label_spans[0] = ast->span;
    bind->learner->labels_count = 1;
    bind->learner->label_name = "the item";
    return column;
}

bool choices_bind_learn(struct operator_bind *bind, const struct ast *ast, int *column)
{
    *column = -1;
    if (ast == NULL)
        return true;
    *column = bind->add_column(bind, LEARNER_EXAMPLES, ast);
    if (*column < 0)
        return false;
    const struct type *type = type_at(bind, LEARNER_EXAMPLES, *column);
    if (type->tag == TYPE_BOOL)
        return true;
    struct diag *d = diag_error(bind->diags, DIAG_TYPE_CLASH, ast->span, "`learn` is a bool, found %s",
                                type_name(bind->arena, type));
    diag_hint(bind->diags, d, "compare, for example `learn: part = \"train\"`");
    return false;
}

const struct schema *choices_bind_output(struct operator_bind *bind, const struct ranks_config *ranks,
                                         int item_column, uint32_t input, const struct schema *own)
{
    const struct schema *all = bind->inputs[input].schema;
    const int *features = input == LEARNER_EXAMPLES ? bind->learner->features : bind->learner->scored;
    struct schema *out = schema_copy(bind->arena, own, 2);
    struct lineage lineage = {0};
    for (uint32_t i = 0; i < bind->learner->count; i++)
        lineage_merge(&lineage, &all->fields[features[i]].lineage);
    const struct field *item = &bind->inputs[LEARNER_EXAMPLES].schema->fields[item_column];
    return lists_bind(bind, out, item, choices_list(ranks), &lineage, bind->span) ? out : NULL;
}
