/*
 * Bind: the options of a learner kind, checked against its input. Expressions become columns of the input,
 * options become those of a model (learners/options.h), and the input's own columns and the predictions
 * become the output's schema.
 */
#include "learners/learner/internal.h"

enum { STEP_EXAMPLES_MAX = 1 << 18 };

/* --- Columns --- */

static bool is_id_type(const struct type *type)
{
    return type->tag <= TYPE_TIME;
}

int learner_bind_column(struct operator_bind *bind, const struct ast *ast, bool is_number)
{
    int column = bind->add_column(bind, ast);
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
    const struct field *column = &bind->inputs[0].schema->fields[c->sparse_columns[field]];
    if (!c->model.is_list[field])
        return;
    c->lists[field] = (struct learner_list){
        .lists_cut = arena_printf(bind->arena, "lists_cut.%.*s", STR_ARGS(column->name)),
        .ids_cut = arena_printf(bind->arena, "ids_cut.%.*s", STR_ARGS(column->name)),
    };
    if (column->type.length_max <= (uint64_t)c->list_max)
        return;
    struct diag *d =
        diag_warning(bind->diags, DIAG_LISTS_TOO_LONG, span,
                     "a list of `%.*s` has up to %u ids, but this learner reads only the first %lld",
                     STR_ARGS(column->name), column->type.length_max, (long long)c->list_max);
    diag_hint(bind->diags, d,
              column->type.length_max <= MODEL_LIST_MAX
                  ? "`list_max: %u` reads all ids; `ids_cut` in the report counts the ids that are left out"
                  : "`list_max` is at most %u; `ids_cut` in the report counts the ids that are left out",
              MIN(column->type.length_max, (uint32_t)MODEL_LIST_MAX));
}

static bool bind_sparse(struct operator_bind *bind, struct learner_config *c, const struct expressions *list)
{
    bool is_ok = true;
    for (uint32_t i = 0; i < list->count; i++) {
        if (c->sparse_count == MODEL_FIELDS_MAX) {
            diag_error(bind->diags, DIAG_TOO_MANY, list->items[i]->span,
                       "a learner has at most %d sparse features", MODEL_FIELDS_MAX);
            return false;
        }
        int column = learner_bind_column(bind, list->items[i], false);
        is_ok = column >= 0 && feature_add(bind, column, list->items[i]->span) && is_ok;
        if (column < 0)
            continue;
        c->model.is_list[c->sparse_count] = bind->inputs[0].schema->fields[column].type.tag == TYPE_LIST;
        c->sparse_columns[c->sparse_count] = column;
        bind_list(bind, c, c->sparse_count++, list->items[i]->span);
    }
    return is_ok;
}

static bool bind_dense(struct operator_bind *bind, struct learner_config *c)
{
    bool is_ok = true;
    for (uint32_t i = 0; i < c->dense.count; i++) {
        if (c->dense_count == MODEL_DENSE_MAX) {
            diag_error(bind->diags, DIAG_TOO_MANY, c->dense.items[i]->span,
                       "a learner has at most %d dense features", MODEL_DENSE_MAX);
            return false;
        }
        int column = learner_bind_column(bind, c->dense.items[i], true);
        is_ok = column >= 0 && feature_add(bind, column, c->dense.items[i]->span) && is_ok;
        if (column >= 0)
            c->dense_columns[c->dense_count++] = column;
    }
    return is_ok;
}

/* The input's own columns and the predictions, whose lineage is that of the features. */
static const struct schema *output_schema(struct operator_bind *bind, const struct schema *own)
{
    const struct learner_config *c = bind->config;
    struct schema *out = schema_copy(bind->arena, own, c->labels_count);
    for (uint32_t l = 0; l < c->labels_count; l++) {
        struct field *field = schema_add(out, str_from(c->label_names[l].prediction), type_of(TYPE_FLOAT));
        for (uint32_t i = 0; i < bind->learner->count; i++)
            lineage_merge(&field->lineage,
                          &bind->inputs[0].schema->fields[bind->learner->features[i]].lineage);
    }
    return out;
}

/* --- Options of single sparse features --- */

/* The field's number among those with vectors; -1 after a diagnostic. */
static int vector_field(struct operator_bind *bind, const struct learner_config *c, const struct ast *ast)
{
    int column = bind->add_column(bind, ast);
    if (column < 0)
        return -1;
    for (uint32_t f = 0; f < c->vectors_count; f++)
        if (c->sparse_columns[f] == column)
            return (int)f;
    struct diag *d = diag_error(bind->diags, DIAG_NO_COLUMN, ast->span, "this is not a sparse feature");
    diag_hint(bind->diags, d, "name a feature of `sparse`; features of `wide` have no vectors");
    return -1;
}

static bool bind_pair(struct operator_bind *bind, struct learner_config *c, const struct ast *pair)
{
    if (pair->tag != AST_LIST || pair->count != 2) {
        struct diag *d =
            diag_error(bind->diags, DIAG_OPTION_TYPE, pair->span, "a pair is a list of two features");
        diag_hint(bind->diags, d, "for example `pairs: [[user_id, item_id], [item_id, device]]`");
        return false;
    }
    int a = vector_field(bind, c, pair->children[0]), b = vector_field(bind, c, pair->children[1]);
    if (a < 0 || b < 0)
        return false;
    uint32_t f = (uint32_t)MIN(a, b), g = (uint32_t)MAX(a, b);
    if (f == g) {
        diag_error(bind->diags, DIAG_OPTION_TWICE, pair->span, "a feature does not interact with itself");
        return false;
    }
    uint8_t *is_off = &c->model.pair_is_off[f * (2 * c->vectors_count - f - 1) / 2 + (g - f - 1)];
    if (*is_off == 0) {
        diag_error(bind->diags, DIAG_OPTION_TWICE, pair->span, "this pair is listed twice");
        return false;
    }
    *is_off = 0;
    return true;
}

bool learner_bind_pairs(struct operator_bind *bind, struct learner_config *c)
{
    if (c->pairs.items == NULL) /* option not given; an empty list would mean no pair at all */
        return true;
    bool is_ok = true;
    memset(c->model.pair_is_off, 1, c->vectors_count * (c->vectors_count - 1) / 2);
    for (uint32_t i = 0; i < c->pairs.count; i++)
        is_ok = bind_pair(bind, c, c->pairs.items[i]) && is_ok;
    return is_ok;
}

bool learner_bind_inits(struct operator_bind *bind, struct learner_config *c)
{
    bool is_ok = true;
    for (uint32_t i = 0; i < c->embedding.init_of.count; i++) {
        const struct assignment *own = &c->embedding.init_of.items[i];
        const struct ast name = {.tag = AST_NAME, .span = own->name_span, .text = own->name};
        int field = vector_field(bind, c, &name);
        double init = own->value->tag == AST_FLOAT ? own->value->real
                      : own->value->tag == AST_INT ? (double)own->value->integer
                                                   : -1.0;
        if (init < 0.0 || init > 100.0) {
            struct diag *d = diag_error(bind->diags, DIAG_OUT_OF_RANGE, own->value->span,
                                        "a value of `init_of` is not a number, or is out of range");
            diag_hint(bind->diags, d, "give a number from 0.0 to 100.0, as for `init`");
            is_ok = false;
        } else if (field >= 0) {
            c->model.field_init[field] = init > 0.0 ? (float)init : -1.0F; /* options.h: below 0: zeros */
        }
        is_ok = field >= 0 && is_ok;
    }
    return is_ok;
}

/* --- Options of all learners --- */

static bool is_joint(const struct kind_ref *ref)
{
    const struct optimizer_config *config = ref->config;
    return config && ref->choice == OPT_NEWTON && config->joint;
}

static bool check_options(struct operator_bind *bind, const struct learner_config *c)
{
    const char *problem = NULL;
    if (c->sparse_count + c->dense_count == 0)
        problem = "a learner needs features: `sparse: [...]`, `dense: [...]` or both";
    else if (c->embedding.dim % 4 != 0)
        problem = "`dim` must be a multiple of 4: vectors are computed in slices of four";
    else if (c->batch > 1 &&
             ((c->embedding.optimizer.config != NULL && c->embedding.optimizer.choice == OPT_NEWTON) ||
              (c->linear.config != NULL && c->linear.choice == OPT_NEWTON)))
        problem = "the newton optimizer learns one example at a time: it needs `batch: 1`";
    else if (c->hidden.count > 0 && (is_joint(&c->linear) || is_joint(&c->embedding.optimizer)))
        problem = "`joint: true` shares an example's error among the example's weights, but cannot include "
                  "the weights of `hidden`: set `joint: false`, or use no dense layers";
    else if (c->hidden.count > 0 && c->pairs.count > 0)
        problem = "dense layers read the products of all pairs: `pairs` needs a model without `hidden`";
    else if (c->fake_negatives && (c->loss != LOSS_LOGISTIC || c->keep_negatives < 1.0 ||
                                   c->positive_weight != 1.0 || c->negative_weight != 1.0))
        problem = "`fake_negatives: true` weighs examples by the model's own probabilities: it needs `loss: "
                  "logistic`, and `positive_weight`, `negative_weight` and `keep_negatives` of 1.0";
    else if (c->batch_min > c->batch)
        problem = "`batch_min`, the smallest number of examples in a step, is larger than `batch`, "
                  "the largest";
    if (problem != NULL)
        diag_error(bind->diags, DIAG_BAD_LEARNER, bind->span, "%s", problem);
    return !problem;
}

bool learner_widths(struct operator_bind *bind, const struct ints *from, uint32_t to[MODEL_LAYERS_MAX])
{
    if (from->count >= MODEL_LAYERS_MAX) {
        diag_error(bind->diags, DIAG_BAD_LEARNER, bind->span,
                   "at most five dense layers can follow each other: shorten `hidden`, `bottom` or `towers`");
        return false;
    }
    for (uint32_t i = 0; i < MODEL_LAYERS_MAX; i++)
        to[i] = i < from->count ? (uint32_t)from->items[i] : 0;
    return true;
}

static void common_options(const struct learner_config *c, struct model_options *o)
{
    o->loss = (enum loss_kind)c->loss;
    o->fields = c->sparse_count;
    o->vectors = c->vectors_count;
    o->dense = c->dense_count;
    o->list_max = (uint32_t)c->list_max;
    o->batch = (uint32_t)c->batch;
    o->block = (uint32_t)MAX(c->hidden_batch, 1);
    o->is_centered = c->mean_bias && c->loss == LOSS_SQUARED;
    o->bias = o->is_centered ? 0.0F : (float)c->bias;
    o->bias_start = (float)c->bias;
    o->clip_norm = (float)c->clip_norm;
    o->class_weights[0] = (float)c->negative_weight;
    o->class_weights[1] = (float)c->positive_weight;
    o->has_fake_negatives = c->fake_negatives;
    o->negatives_kept = c->keep_negatives;
    o->seed = (uint64_t)c->seed;
    o->dim = (uint32_t)c->embedding.dim;
    o->init_bound = (float)c->embedding.init;
    o->admit_after = (uint32_t)c->embedding.admit_after;
    o->sketch_bytes = (size_t)c->embedding.sketch_bytes;
    o->expire_after_us = c->embedding.expire_after_us;
    o->rows_max = (uint64_t)c->embedding.rows_max;
    o->labels = c->labels_count;
    if (c->linear.config != NULL) {
        o->linear = optimizer_from(&c->linear);
        o->linear_is_double = c->linear.choice == OPT_FTRL;
        if (o->linear_is_double)
            o->ftrl = optimizer_ftrl(&c->linear);
    }
    o->is_joint = is_joint(&c->linear) || is_joint(&c->embedding.optimizer);
    if (c->embedding.optimizer.config != NULL)
        o->embedding = optimizer_from(&c->embedding.optimizer);
    if (c->head.config != NULL)
        o->head = optimizer_from(&c->head);
    if (c->pair_weights.config != NULL)
        o->pairs = optimizer_from(&c->pair_weights);
}

static bool bind_model(struct operator_bind *bind, const struct interaction *interaction)
{
    struct learner_config *c = bind->config;
    const struct schema *own = bind->inputs[0].schema;
    c->own_columns = own->count;
    c->weight_column = -1;
    c->model = (struct model_options){0};
    bool is_ok = learner_bind_labels(bind, c);
    if (c->weight.ast != NULL) {
        c->weight_column = learner_bind_column(bind, c->weight.ast, true);
        is_ok = c->weight_column >= 0 && is_ok;
    }
    is_ok = bind_sparse(bind, c, &c->sparse) && is_ok;
    c->vectors_count = c->sparse_count;
    is_ok = is_ok && learner_bind_pairs(bind, c);
    is_ok = learner_bind_inits(bind, c) && is_ok;
    is_ok = learner_schedule_bind(bind, c) && is_ok;
    is_ok = bind_sparse(bind, c, &c->wide) && is_ok;
    is_ok = bind_dense(bind, c) && is_ok;
    is_ok = columns_resolve(&c->known_early, bind->inputs[0].schema, bind->arena, bind->diags) && is_ok;
    if (!is_ok || !check_options(bind, c) || !learner_widths(bind, &c->hidden, c->model.hidden))
        return false;
    learner_name_labels(bind, c);
    bind->learner->known = c->known_early;
    bind->outputs[0] = output_schema(bind, own);
    bind->outputs[1] = c->metrics_schema = learner_metrics_schema(bind->arena, c->labels_count);
    c->input_schema = bind->inputs[0].schema;
    common_options(c, &c->model);
    bind->needs_memory = c->sparse_count > 0 && c->model.rows_max == 0;
    bind->follows_load = learner_follows_load(c);
    c->model.interaction = interaction;
    return true;
}

/* What only learners with `batch: 1` can have, and how to do without. */
static const struct {
    enum model_clash clash;
    const char *what, *without;
} clashes[] = {
    {CLASH_PAIRS, "`pairs`", "leave out `pairs`"},
    {CLASH_PAIR_WEIGHTS, "`pair_weights`", "leave out `pair_weights`"},
    {CLASH_PRODUCTS, "`hidden` in an `ffm`", "leave out `hidden`"},
    {CLASH_CLIPPING, "`clip_norm` without dense layers", "leave out `clip_norm`"},
    {CLASH_OPTIMIZER, "this `hidden_optimizer`",
     "take `sgd`, `momentum`, `adagrad`, `adam` or `ftrl` as `hidden_optimizer`"},
    {CLASH_VECTORS, "more than 512 floats an id", "make `dim` or the number of features in `sparse` smaller"},
};
_Static_assert(BATCH_DIM_MAX == 512, "the limit that users read");

static const char *and_also(struct arena *arena, const char *list, const char *item)
{
    return list == NULL ? item : arena_printf(arena, "%s and %s", list, item);
}

static bool check_batch(struct operator_bind *bind, const struct learner_config *c)
{
    const char *what = NULL, *without = NULL;
    unsigned found = model_learns_by_batches(&c->model) ? model_clashes(&c->model) : 0;
    for (size_t i = 0; i < ARRAY_COUNT(clashes); i++) {
        if ((found & clashes[i].clash) == 0)
            continue;
        what = and_also(bind->arena, what, clashes[i].what);
        without = and_also(bind->arena, without, clashes[i].without);
    }
    if (what == NULL)
        return true;
    struct diag *d = diag_error(bind->diags, DIAG_BAD_LEARNER, bind->span,
                                "with `batch: %lld` a learner cannot have %s", (long long)c->batch, what);
    diag_hint(bind->diags, d, "set `batch: 1`, or %s", without);
    return false;
}

/* Checks that a step's examples cannot have more than MODEL_STEP_IDS_MAX ids. Call it when the size of a step
 * is known. */
static bool check_lists(struct operator_bind *bind, const struct learner_config *c)
{
    uint64_t ids = 0, examples = MAX(c->model.batch, (uint32_t)MODEL_ROWS_MAX);
    for (uint32_t f = 0; f < c->sparse_count; f++)
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

/* Sets the format of dense layers' products, and how many examples of a step go through the layers at a time
 * (`accumulate`). */
static bool bind_precision(struct operator_bind *bind, struct learner_config *c)
{
    struct model_options *o = &c->model;
    const char *problem = NULL;
    bool has_layers = o->network != NULL || c->hidden.count > 0, is_more = c->accumulate > 1;
    o->is_tried = c->precision == PRECISION_AUTO;
    o->trial_examples = (uint64_t)c->precision_trial;
    o->precision = o->is_tried ? ROW_BF16 : (enum row_format)c->precision;
    if (o->precision == ROW_FP32 && !is_more)
        return true;
    if (!has_layers)
        problem = "`precision` and `accumulate` need dense layers, which this learner does not have";
    else if (c->batch <= 1)
        problem = "`precision` and `accumulate` need dense layers that learn by batches: set the number of "
                  "examples in a step, for example `batch: 512`";
    else if (is_more && c->batch_min > 0)
        problem = "`accumulate` makes steps of one size: it needs `batch_min: 0`";
    else if (is_more && (c->batch % 4 != 0 || c->batch * c->accumulate > STEP_EXAMPLES_MAX))
        problem = "with `accumulate`, `batch` must be a multiple of 4, and `batch` times `accumulate` at "
                  "most 262,144";
    if (problem != NULL)
        diag_error(bind->diags, DIAG_BAD_LEARNER, bind->span, "%s", problem);
    if (is_more) {
        o->micro = (uint32_t)c->batch;
        o->batch = (uint32_t)(c->batch * c->accumulate);
    }
    return !problem;
}

bool learner_bind(struct operator_bind *bind, const struct interaction *interaction)
{
    return bind_model(bind, interaction) && check_batch(bind, bind->config) &&
           bind_precision(bind, bind->config) && check_lists(bind, bind->config) &&
           learner_bind_device(bind, bind->config);
}

bool learner_bind_network(struct operator_bind *bind, const struct network *network, const void *own)
{
    struct learner_config *c = bind->config;
    if (!bind_model(bind, NULL))
        return false;
    enum opt_kind kind = c->model.head.kind;
    const char *problem = NULL;
    if (kind == OPT_ADAGRAD_ROW || kind == OPT_ADAGRAD_BLOCK || kind == OPT_NEWTON)
        problem = "dense layers that learn by batches need `sgd`, `momentum`, `adagrad`, `adam` or `ftrl` "
                  "as `hidden_optimizer`";
    else if (c->embedding.optimizer.choice == OPT_NEWTON)
        problem = "the newton optimizer learns one example at a time: vectors that learn by batches need "
                  "another optimizer";
    if (problem != NULL) {
        diag_error(bind->diags, DIAG_BAD_LEARNER, bind->span, "%s", problem);
        return false;
    }
    c->model.network = network;
    c->model.network_own = own;
    c->model.linear_is_off = true;
    return bind_precision(bind, c) && check_lists(bind, c) && learner_bind_device(bind, c);
}
