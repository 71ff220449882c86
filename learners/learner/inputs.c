/* What a learner reads: ids, dense features, labels' columns and weights; expressions become columns of the
 * input. */
#include "learners/learner/internal.h"

const struct option learner_input_options[] = {
    OPTION_EXPRESSION(struct inputs_config, label, "label", OPTION_REQUIRED,
                      "what to predict: a bool or number of the input; with `loss: logistic` a share "
                      "from 0 to 1, else the example is rejected"),
    OPTION_INCLUDE_ROWS(learner_feature_options),
    OPTIONS_END,
};

const struct option learner_feature_options[] = {
    OPTION_EXPRESSIONS(struct inputs_config, dense, "dense", 0,
                       "numbers or bools that the model reads as they are; scale them to about 1"),
    OPTION_EXPRESSION(struct inputs_config, weight, "weight", 0,
                      "weight of an example; default 1. An example of weight 0 is predicted but not "
                      "learned: it counts as `weightless`, not as an occurrence of its ids, and not in "
                      "schedules, batches and metrics. The metrics count every other example once"),
    OPTION_INT(struct inputs_config, list_max, "list_max", 0, "64", "1", "1024",
               "how many ids of a list are read, from its beginning. For each list feature the report "
               "counts longer lists (`lists_cut`) and the ids that were left out (`ids_cut`)"),
    OPTION_COLUMNS(struct inputs_config, known_early, "known_early", 0,
                   "columns that the label is computed from, but that are known when the model is "
                   "asked for a prediction"),
    OPTIONS_END,
};

const struct option learner_ids_options[] = {
    OPTION_EXPRESSIONS(struct inputs_config, sparse, "sparse", OPTION_REQUIRED,
                       "ids: single values or lists; each id has a vector and a weight"),
    OPTION_EXPRESSIONS(struct inputs_config, wide, "wide", 0,
                       "ids with a weight but no vector, for example crosses"),
    OPTIONS_END,
};

const struct option learner_vectors_options[] = {
    OPTION_EXPRESSIONS(struct inputs_config, sparse, "sparse", OPTION_REQUIRED,
                       "ids: single values or lists; each id has a vector"),
    OPTIONS_END,
};

static bool is_id_type(const struct type *type)
{
    return type->tag <= TYPE_TIME;
}

int learner_bind_column(struct operator_bind *bind, const struct ast *ast, bool is_number)
{
    int column = bind->add_column(bind, 0, ast);
    if (column < 0)
        return -1;
    const struct type *type = &bind->inputs[0].schema->fields[column].type;
    bool is_list = !is_number && type->tag == TYPE_LIST && is_id_type(type->element);
    bool fits = is_number ? type->tag <= TYPE_FLOAT : is_id_type(type) || is_list;
    if (fits)
        return column;
    struct diag *d =
        diag_error(bind->diags, DIAG_TYPE_CLASH, ast->span, "a learner cannot read a value of type %s here",
                   type_name(bind->arena, type));
    diag_hint(bind->diags, d,
              is_number ? "labels, weights and dense features are bools or numbers"
                        : "sparse features are single values or lists of them");
    return -1;
}

static bool feature_add(struct operator_bind *bind, int column, struct span span)
{
    struct learner_columns *known = bind->learner;
    if (known->count == LEARNER_FEATURES_MAX) {
        diag_error(bind->diags, DIAG_TOO_MANY, span, "a learner reads at most %d features",
                   LEARNER_FEATURES_MAX);
        return false;
    }
    known->features[known->count] = column;
    known->spans[known->count++] = span;
    return true;
}

/* A feature that is a list, of which the first list_max ids are read: names its counters, and warns if the
 * plan knows that lists can be longer (core/schema.h). */
static void bind_list(struct operator_bind *bind, struct learner_config *c, uint32_t field, struct span span)
{
    const struct field *column = &bind->inputs[0].schema->fields[c->inputs.sparse_columns[field]];
    if (!c->model.is_list[field])
        return;
    c->inputs.lists[field] = (struct learner_list){
        .lists_cut = arena_printf(bind->arena, "lists_cut.%.*s", STR_ARGS(column->name)),
        .ids_cut = arena_printf(bind->arena, "ids_cut.%.*s", STR_ARGS(column->name)),
    };
    if (column->type.length_max <= (uint64_t)c->inputs.list_max)
        return;
    struct diag *d =
        diag_warning(bind->diags, DIAG_LISTS_TOO_LONG, span,
                     "a list of `%.*s` has up to %u ids, but this learner reads only the first %lld",
                     STR_ARGS(column->name), column->type.length_max, (long long)c->inputs.list_max);
    diag_hint(bind->diags, d,
              column->type.length_max <= MODEL_LIST_MAX
                  ? "`list_max: %u` reads all ids; `ids_cut` in the report counts the ids that are left out"
                  : "`list_max` is at most %u; `ids_cut` in the report counts the ids that are left out",
              MIN(column->type.length_max, (uint32_t)MODEL_LIST_MAX));
}

bool learner_bind_sparse(struct operator_bind *bind, struct learner_config *c, const struct expressions *list)
{
    bool is_ok = true;
    for (uint32_t i = 0; i < list->count; i++) {
        if (c->inputs.sparse_count == MODEL_FIELDS_MAX) {
            diag_error(bind->diags, DIAG_TOO_MANY, list->items[i]->span,
                       "a learner has at most %d sparse features", MODEL_FIELDS_MAX);
            return false;
        }
        int column = learner_bind_column(bind, list->items[i], false);
        is_ok = column >= 0 && feature_add(bind, column, list->items[i]->span) && is_ok;
        if (column < 0)
            continue;
        c->model.is_list[c->inputs.sparse_count] =
            bind->inputs[0].schema->fields[column].type.tag == TYPE_LIST;
        c->inputs.sparse_columns[c->inputs.sparse_count] = column;
        bind_list(bind, c, c->inputs.sparse_count++, list->items[i]->span);
    }
    return is_ok;
}

bool learner_bind_dense(struct operator_bind *bind, struct learner_config *c)
{
    bool is_ok = true;
    for (uint32_t i = 0; i < c->inputs.dense.count; i++) {
        if (c->inputs.dense_count == MODEL_DENSE_MAX) {
            diag_error(bind->diags, DIAG_TOO_MANY, c->inputs.dense.items[i]->span,
                       "a learner has at most %d dense features", MODEL_DENSE_MAX);
            return false;
        }
        int column = learner_bind_column(bind, c->inputs.dense.items[i], true);
        is_ok = column >= 0 && feature_add(bind, column, c->inputs.dense.items[i]->span) && is_ok;
        if (column >= 0)
            c->inputs.dense_columns[c->inputs.dense_count++] = column;
    }
    return is_ok;
}

int learner_vector_field(struct operator_bind *bind, const struct learner_config *c, const struct ast *ast)
{
    int column = bind->add_column(bind, 0, ast);
    if (column < 0)
        return -1;
    for (uint32_t f = 0; f < c->inputs.vectors_count; f++)
        if (c->inputs.sparse_columns[f] == column)
            return (int)f;
    struct diag *d = diag_error(bind->diags, DIAG_NO_COLUMN, ast->span, "this is not a sparse feature");
    diag_hint(bind->diags, d, "name a feature of `sparse`; features of `wide` have no vectors");
    return -1;
}

bool learner_check_lists(struct operator_bind *bind, const struct learner_config *c)
{
    uint64_t ids = 0, examples = MAX(c->model.batch, (uint32_t)MODEL_ROWS_MAX);
    for (uint32_t f = 0; f < c->inputs.sparse_count; f++)
        ids += model_field_ids(&c->model, f);
    if (ids * examples <= MODEL_STEP_IDS_MAX)
        return true;
    struct diag *d =
        diag_error(bind->diags, DIAG_BAD_LEARNER, bind->span,
                   "a step of %llu examples with up to %llu ids each exceeds the limit of %d ids in a step",
                   (unsigned long long)examples, (unsigned long long)ids, MODEL_STEP_IDS_MAX);
    diag_hint(bind->diags, d, "make `list_max`, `batch` or `accumulate` smaller");
    return false;
}

/* --- The shape of the state --- */

/* Omitted with the default, so that a shape without this option stays the same. */
void learner_put_lists(const struct learner_config *c, struct byte_buffer *out)
{
    bool has_lists = memchr(c->model.is_list, 1, c->inputs.sparse_count) != NULL;
    if (has_lists && c->inputs.list_max != MODEL_LIST_DEFAULT)
        buffer_printf(out, "~list_max: %lld\n", (long long)c->inputs.list_max);
}

/* Appends the beginning of a line, `?WHAT NAME`. A colon ends the name, which may be any expression; so
 * colons and line ends in it become semicolons. */
static void put_what(struct byte_buffer *out, const char *what, struct str name)
{
    buffer_printf(out, "?%s ", what);
    for (size_t i = 0; i < name.length; i++) {
        char c = name.data[i];
        buffer_append(out, c == ':' || c == '\n' ? ";" : &c, 1);
    }
}

void learner_put_features(const struct learner_config *c, struct arena *arena, struct byte_buffer *out)
{
    for (uint32_t f = 0; f < c->inputs.sparse_count; f++) {
        put_what(out, f < c->inputs.vectors_count ? "feature" : "wide feature", learner_field_name(c, f));
        buffer_printf(out, ": %s\n",
                      type_name(arena, &c->inputs.schema->fields[c->inputs.sparse_columns[f]].type));
    }
    for (uint32_t d = 0; d < c->inputs.dense_count; d++) {
        /* "number": a dense feature, as checkpoints say */
        put_what(out, "number", learner_dense_name(c, d));
        buffer_printf(out, ": float\n");
    }
}
