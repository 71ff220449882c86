/*
 * Bind: the parts of a learner kind together, checked against each other and against the input. Expressions
 * become columns of the input, options become those of a model (learners/options.h), and the input's own
 * columns and the predictions become the output's schema.
 */
#include "learners/learner/internal.h"

const struct option learner_run_options[] = {
    OPTION_FLOAT(struct learner_config, bias, "bias", 0, "0.0", "-1000.0", "1000.0",
                 "initial value of the bias"),
    OPTION_INCLUDE(struct learner_config, score, learner_score_options),
    OPTION_INCLUDE(struct learner_config, evaluation, learner_evaluation_options),
    OPTION_INCLUDE(struct learner_config, device, learner_device_options),
    OPTION_INT(struct learner_config, seed, "seed", 0, "1", "0", NULL, "seed of initial values"),
    OPTIONS_END,
};

const struct option learner_training_options[] = {
    OPTION_INCLUDE(struct learner_config, steps, learner_steps_options),
    OPTION_INCLUDE(struct learner_config, balance, learner_balance_options),
    OPTION_INCLUDE_ROWS(learner_run_options),
    OPTIONS_END,
};

const struct schema *learner_output_schema(struct operator_bind *bind, uint32_t input,
                                           const struct schema *own, const int *features)
{
    const struct learner_config *c = bind->config;
    struct schema *out = schema_copy(bind->arena, own, c->inputs.labels_count);
    for (uint32_t l = 0; l < c->inputs.labels_count; l++) {
        struct field *field =
            schema_add(out, str_from(c->inputs.label_names[l].prediction), type_of(TYPE_FLOAT));
        for (uint32_t i = 0; i < bind->learner->count; i++)
            lineage_merge(&field->lineage, &bind->inputs[input].schema->fields[features[i]].lineage);
    }
    return out;
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
    if (c->inputs.sparse_count + c->inputs.dense_count == 0)
        problem = "a learner needs features: `sparse: [...]`, `dense: [...]` or both";
    else if (c->embedding.dim % 4 != 0)
        problem = "`dim` must be a multiple of 4: vectors are computed in slices of four";
    else if (learner_has_hidden(c) && (is_joint(&c->linear) || is_joint(&c->embedding.optimizer)))
        problem = "`joint: true` shares an example's error among the example's weights, but cannot include "
                  "the weights of `hidden`: set `joint: false`, or use no dense layers";
    else if (learner_has_hidden(c) && c->pairs != NULL && c->pairs->chosen.count > 0)
        problem = "dense layers read the products of all pairs: `pairs` needs a model without `hidden`";
    else if (c->balance.fake_negatives &&
             (c->loss != LOSS_LOGISTIC || c->balance.keep_negatives < 1.0 ||
              c->balance.positive_weight != 1.0 || c->balance.negative_weight != 1.0))
        problem = "`fake_negatives: true` weighs examples by the model's own probabilities: it needs `loss: "
                  "logistic`, and `positive_weight`, `negative_weight` and `keep_negatives` of 1.0";
    else if (c->steps.batch_min > c->steps.batch)
        problem = "`batch_min`, the smallest number of examples in a step, is larger than `batch`, "
                  "the largest";
    if (problem != NULL)
        diag_error(bind->diags, DIAG_BAD_LEARNER, bind->span, "%s", problem);
    return !problem;
}

static void common_options(const struct learner_config *c, struct model_options *o)
{
    o->loss = (enum loss_kind)c->loss;
    o->fields = c->inputs.sparse_count;
    o->vectors = c->inputs.vectors_count;
    o->dense = c->inputs.dense_count;
    o->list_max = (uint32_t)c->inputs.list_max;
    o->batch = (uint32_t)c->steps.batch;
    o->slice = MODEL_SLICE;
    o->block = 1;
    o->is_centered = c->mean_bias && c->loss == LOSS_SQUARED;
    o->bias = o->is_centered ? 0.0F : (float)c->bias;
    o->bias_start = (float)c->bias;
    o->clip_norm = (float)c->steps.clip_norm;
    o->class_weights[0] = (float)c->balance.negative_weight;
    o->class_weights[1] = (float)c->balance.positive_weight;
    o->has_fake_negatives = c->balance.fake_negatives;
    o->negatives_kept = c->balance.keep_negatives;
    o->seed = (uint64_t)c->seed;
    learner_embedding_model(&c->embedding, o);
    o->labels = c->inputs.labels_count;
    if (c->linear.config != NULL) {
        o->linear = optimizer_from(&c->linear);
        o->linear_is_double = c->linear.choice == OPT_FTRL;
        if (o->linear_is_double)
            o->ftrl = optimizer_ftrl(&c->linear);
    }
    o->is_joint = is_joint(&c->linear) || is_joint(&c->embedding.optimizer);
    if (c->layers != NULL) {
        o->head = optimizer_from(&c->layers->optimizer);
        o->block = (uint32_t)MAX(c->layers->block, 1);
    }
}

static bool bind_model(struct operator_bind *bind)
{
    struct learner_config *c = bind->config;
    const struct schema *own = bind->inputs[0].schema;
    c->inputs.own_columns = own->count;
    c->inputs.weight_column = -1;
    c->model = (struct model_options){0};
    bool is_ok = learner_bind_labels(bind, c);
    if (c->inputs.weight.ast != NULL) {
        c->inputs.weight_column = learner_bind_column(bind, c->inputs.weight.ast, true);
        is_ok = c->inputs.weight_column >= 0 && is_ok;
    }
    is_ok = learner_bind_sparse(bind, c, &c->inputs.sparse) && is_ok;
    c->inputs.vectors_count = c->inputs.sparse_count;
    is_ok = is_ok && learner_bind_pairs(bind, c);
    is_ok = learner_bind_inits(bind, c) && is_ok;
    is_ok = learner_schedule_bind(bind, c) && is_ok;
    is_ok = learner_bind_sparse(bind, c, &c->inputs.wide) && is_ok;
    is_ok = learner_bind_dense(bind, c) && is_ok;
    is_ok =
        columns_resolve(&c->inputs.known_early, bind->inputs[0].schema, bind->arena, bind->diags) && is_ok;
    if (!is_ok || !check_options(bind, c) ||
        (c->layers != NULL && !learner_widths(bind, &c->layers->hidden, c->model.hidden)))
        return false;
    learner_name_labels(bind, c);
    bind->learner->known = c->inputs.known_early;
    bind->outputs[LEARNER_PREDICTIONS] =
        learner_output_schema(bind, LEARNER_EXAMPLES, own, bind->learner->features);
    bind->outputs[LEARNER_METRICS] = c->evaluation.schema =
        learner_metrics_schema(bind->arena, c->inputs.labels_count);
    c->inputs.schema = bind->inputs[0].schema;
    common_options(c, &c->model);
    bind->needs_memory = c->inputs.sparse_count > 0 && c->model.rows_max == 0;
    return learner_bind_score(bind, c);
}

/* The rest of a bind, once c->model says which interaction or network it has. */
static bool bind_rest(struct operator_bind *bind, struct learner_config *c)
{
    bind->follows_load = learner_follows_load(c);
    return learner_check_batch(bind, c) && learner_bind_layers(bind, c) && learner_check_lists(bind, c) &&
           learner_bind_device(bind, c);
}

bool learner_bind(struct operator_bind *bind, const struct interaction *interaction)
{
    struct learner_config *c = bind->config;
    if (!bind_model(bind))
        return false;
    c->model.interaction = interaction;
    return bind_rest(bind, c);
}

bool learner_bind_network(struct operator_bind *bind, const struct network *network, const void *own)
{
    struct learner_config *c = bind->config;
    if (!bind_model(bind))
        return false;
    c->model.network = network;
    c->model.network_own = own;
    c->model.linear_is_off = c->linear.config == NULL;
    leat_assert(c->model.linear_is_off || c->inputs.labels_count == 1); /* there is one linear part */
    return bind_rest(bind, c);
}
