/* A learner's part of `leat model` and `leat state get` (core/learner.h): finds the names of features, and
 * the key that is asked for. model/visit.c shows the weights and the row. */
#include "core/describe.h"
#include "learners/learner/internal.h"

static const char *column_name(struct arena *arena, const struct schema *schema, int column)
{
    struct str name = schema->fields[column].name;
    return arena_strndup(arena, name.data, name.length);
}

bool learner_table(const void *config, uint32_t number, int *column)
{
    const struct learner_config *c = config;
    if (number >= c->inputs.sparse_count)
        return false;
    *column = c->inputs.sparse_columns[number];
    return true;
}

bool learner_visit(struct operator_context *context, struct model_visitor *v)
{
    const struct learner_config *c = context->config;
    const char *names[MODEL_FIELDS_MAX];
    for (uint32_t f = 0; f < c->inputs.sparse_count; f++)
        names[f] = column_name(context->scratch, c->inputs.schema, c->inputs.sparse_columns[f]);
    return model_visit_weights(c->state->model, names, v);
}

/* --- One row, for `leat state get` --- */

static const char *field_names(struct operator_context *context, const struct learner_config *c)
{
    const char *all = "";
    for (uint32_t f = 0; f < c->inputs.sparse_count; f++)
        all = arena_printf(context->scratch, "%s%s%s", all, f > 0 ? ", " : "",
                           column_name(context->scratch, c->inputs.schema, c->inputs.sparse_columns[f]));
    return all;
}

/* The field with the query's name; -1 after a diagnostic. */
static int query_field(struct operator_context *context, const struct learner_config *c,
                       const struct state_query *query)
{
    struct str name = query->count > 0 ? query->words[0] : (struct str){"", 0};
    for (uint32_t f = 0; f < c->inputs.sparse_count; f++)
        if (query->count == 2 && str_equal(c->inputs.schema->fields[c->inputs.sparse_columns[f]].name, name))
            return (int)f;
    struct diag *d = query->count == 2
                         ? diag_error(context->diags, DIAG_NO_COMMAND, (struct span){0, 0},
                                      "the learner has no sparse feature `%.*s`", STR_ARGS(name))
                         : diag_error(context->diags, DIAG_NO_COMMAND, (struct span){0, 0},
                                      "the key of a learner's state is the name of a sparse feature and a "
                                      "value of the feature");
    diag_hint(context->diags, d, "its sparse features: %s", field_names(context, c));
    return -1;
}

/* The key of the query's value, given as text; 0 after a diagnostic. For a list feature the text
 * is one element. */
static uint64_t query_key(struct operator_context *context, const struct learner_config *c, uint32_t field,
                          struct str word)
{
    const struct type *type = &c->inputs.schema->fields[c->inputs.sparse_columns[field]].type;
    const struct type *single = type->tag == TYPE_LIST ? type->element : type;
    struct schema *schema = schema_copy(context->scratch, &(struct schema){0}, 1);
    (void)schema_add(schema, STR("value"), *single);
    struct batch *batch = batch_new(context->pool, schema, 1);
    bool is_value = word.data == NULL || describe_parse(batch, &batch->columns[0], single, 0, word);
    if (word.data == NULL)
        batch_set_null(batch, &batch->columns[0], 0);
    uint64_t key = is_value ? learner_id(&batch->columns[0], 0) : 0;
    batch_release(batch);
    if (!is_value)
        diag_error(context->diags, DIAG_NO_COMMAND, (struct span){0, 0}, "`%.*s` is not a value of type %s",
                   STR_ARGS(word), type_name(context->scratch, single));
    return key;
}

bool learner_describe(struct operator_context *context, struct state_query *query, struct describe *out)
{
    struct learner_config *c = context->config;
    if (query->is_live && c->model.is_on_device) {
        query->refused = "its rows lie on a GPU while it learns: `leat state get` on a checkpoint shows them";
        return false;
    }
    int field = query_field(context, c, query);
    uint64_t key = field < 0 ? 0 : query_key(context, c, (uint32_t)field, query->words[1]);
    if (key == 0)
        return false;
    const char *hex = arena_printf(context->scratch, "%016llx", (unsigned long long)key);
    query->looked_for = arena_printf(context->scratch, "key %s", hex);
    describe_text(out, "key", str_from(hex));
    return model_describe(c->state->model, (uint32_t)field, key, out);
}
