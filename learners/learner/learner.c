/* What every learner does at bind, at open, for each batch, and for reports. */
#include "learners/learner/learner.h"
#include "learners/tables/cold.h"

#include "core/os.h"

#include <math.h>
#include <stdlib.h>

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
    struct diag *d = diag_error(bind->diags, DIAG_E0303, ast->span, "a learner cannot read a %s here",
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
        diag_error(bind->diags, DIAG_E0503, span, "a learner reads at most %d features",
                   LEARNER_FEATURES_MAX);
        return false;
    }
    known->features[known->count] = column;
    known->spans[known->count++] = span;
    return true;
}

static bool bind_sparse(struct operator_bind *bind, struct learner_config *c, const struct expressions *list)
{
    bool is_ok = true;
    for (uint32_t i = 0; i < list->count; i++) {
        if (c->sparse_count == MODEL_FIELDS_MAX) {
            diag_error(bind->diags, DIAG_E0503, list->items[i]->span,
                       "a learner has at most %d sparse features", MODEL_FIELDS_MAX);
            return false;
        }
        int column = learner_bind_column(bind, list->items[i], false);
        is_ok = column >= 0 && feature_add(bind, column, list->items[i]->span) && is_ok;
        if (column < 0)
            continue;
        c->model.is_list[c->sparse_count] = bind->inputs[0].schema->fields[column].type.tag == TYPE_LIST;
        c->sparse_columns[c->sparse_count] = column;
        learner_bind_list(bind, c, c->sparse_count++, list->items[i]->span);
    }
    return is_ok;
}

static bool bind_dense(struct operator_bind *bind, struct learner_config *c)
{
    bool is_ok = true;
    for (uint32_t i = 0; i < c->dense.count; i++) {
        if (c->dense_count == MODEL_DENSE_MAX) {
            diag_error(bind->diags, DIAG_E0503, c->dense.items[i]->span,
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
    else if (c->hidden.count >= MODEL_LAYERS_MAX || c->bottom.count >= MODEL_LAYERS_MAX)
        problem = "at most five dense layers stand behind each other";
    else if (c->batch > 1 &&
             ((c->embedding.optimizer.config != NULL && c->embedding.optimizer.choice == OPT_NEWTON) ||
              (c->linear.config != NULL && c->linear.choice == OPT_NEWTON)))
        problem = "the newton optimizer learns one example at a time: it needs `batch: 1`";
    else if (c->hidden.count > 0 && (is_joint(&c->linear) || is_joint(&c->embedding.optimizer)))
        problem = "`joint: true` shares an example's error among all its weights, which it cannot with those "
                  "of `hidden`: take `joint: false` or no dense layers";
    else if (c->hidden.count > 0 && c->pairs.count > 0)
        problem = "dense layers read the products of all pairs: `pairs` needs a model without `hidden`";
    else if (c->fake_negatives && (c->loss != LOSS_LOGISTIC || c->keep_negatives < 1.0 ||
                                   c->positive_weight != 1.0 || c->negative_weight != 1.0))
        problem = "`fake_negatives: true` weighs examples by the model's own probabilities: it needs `loss: "
                  "logistic`, and no other weights of classes or share of negatives";
    else if (c->batch_min > c->batch)
        problem = "`batch_min` is the least that a step has, and `batch` the most";
    if (problem != NULL)
        diag_error(bind->diags, DIAG_E0901, bind->span, "%s", problem);
    return !problem;
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
    for (uint32_t i = 0; i < c->hidden.count; i++)
        o->hidden[i] = (uint32_t)c->hidden.items[i];
    for (uint32_t i = 0; i < c->bottom.count; i++)
        o->bottom[i] = (uint32_t)c->bottom.items[i];
    o->cross_layers = (uint32_t)c->cross_layers;
    o->experts = (uint32_t)c->experts;
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

static bool bind_model(struct operator_bind *bind, enum interaction_kind interaction)
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
    if (!is_ok || !check_options(bind, c))
        return false;
    learner_name_labels(bind, c);
    bind->learner->known = c->known_early;
    bind->outputs[0] = output_schema(bind, own);
    bind->outputs[1] = c->metrics_schema = learner_metrics_schema(bind->arena, c->labels_count);
    c->input_schema = bind->inputs[0].schema;
    common_options(c, &c->model);
    bind->needs_memory = c->sparse_count > 0 && c->model.rows_max == 0;
    c->model.interaction = interaction;
    return true;
}

static bool follows_load(const struct learner_config *c)
{
    return c->batch_min > 0 && c->batch_min < c->batch;
}

/* Only models that learn by the batch kernels can have steps of varying size. */
static bool bind_load(struct operator_bind *bind, const struct learner_config *c)
{
    bind->follows_load = follows_load(c);
    if (!follows_load(c) || model_can_attach(&c->model))
        return true;
    diag_error(
        bind->diags, DIAG_E0901, bind->span,
        "steps of this learner cannot follow the load: weights of pairs, `ffm` with `hidden`, `clip_norm` "
        "without dense layers, and dense layers by `adagrad_row` or `adagrad_block` need `batch_min: 0`");
    return false;
}

bool learner_bind(struct operator_bind *bind, enum interaction_kind interaction)
{
    return bind_model(bind, interaction) && bind_load(bind, bind->config) &&
           learner_bind_precision(bind, bind->config) && learner_check_lists(bind, bind->config) &&
           learner_bind_device(bind, bind->config);
}

bool learner_bind_network(struct operator_bind *bind, enum network_kind network)
{
    struct learner_config *c = bind->config;
    if (!bind_model(bind, INTERACTION_NONE))
        return false;
    enum opt_kind kind = c->model.head.kind;
    const char *problem = NULL;
    if (kind == OPT_ADAGRAD_ROW || kind == OPT_ADAGRAD_BLOCK || kind == OPT_NEWTON)
        problem = "dense layers of a batch move by `sgd`, `momentum`, `adagrad`, `adam` or `ftrl`";
    else if (c->embedding.optimizer.choice == OPT_NEWTON)
        problem = "the newton optimizer learns one example at a time: vectors of a batch need another one";
    if (problem != NULL) {
        diag_error(bind->diags, DIAG_E0901, bind->span, "%s", problem);
        return false;
    }
    c->model.network = network;
    c->model.linear_is_off = true;
    return bind_load(bind, c) && learner_bind_precision(bind, c) && learner_check_lists(bind, c) &&
           learner_bind_device(bind, c);
}

bool learner_open(struct operator_context *context)
{
    struct learner_config *c = context->config;
    const char *reason;
    const struct kernels *kernels = kernels_pick_env(&reason);
    if (kernels == NULL) {
        diag_error(context->diags, DIAG_E1002, (struct span){0, 0}, "LEAT_KERNELS: %s", reason);
        return false;
    }
    struct learner_state *s = calloc(1, sizeof(*s));
    leat_assert(s);
    c->state = s;
    s->kernels = kernels;
    s->seen_last_us = TIME_MIN;
    s->tables_next = c->sparse_count;
    for (uint32_t f = 0; f < c->sparse_count; f++)
        s->tables[f] = (uint16_t)f;
    if (!learner_pick_device(context) || !learner_check_memory(context) || !learner_make_model(context))
        return false;
    s->columns = learner_columns_new(c);
    s->metrics = calloc(c->labels_count, sizeof(*s->metrics));
    s->logits = calloc((size_t)c->labels_count * BATCH_ROWS, sizeof(*s->logits));
    s->scored = calloc(BATCH_ROWS, sizeof(*s->scored));
    leat_assert(s->metrics != NULL && s->logits != NULL && s->scored != NULL);
    for (uint32_t l = 0; l < c->labels_count; l++)
        metrics_init(&s->metrics[l], c->model.loss, (uint64_t)c->window);
    return true;
}

/* Fills a column with predictions; null where the event was rejected. */
static void put_predictions(const struct learner_config *c, const double *logits, struct batch *batch,
                            struct batch *out, struct column *column)
{
    batch_column_init(out, column, type_of(TYPE_FLOAT), batch->rows);
    double predictions[BATCH_ROWS];
    if (c->model.loss == LOSS_LOGISTIC)
        c->state->kernels->sigmoid64(predictions, logits, batch->selected);
    else
        memcpy(predictions, logits, batch->selected * sizeof(*logits));
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        column->floats[row] = isnan(logits[i]) ? 0.0 : predictions[i];
        if (isnan(logits[i]))
            batch_set_null(out, column, row);
    }
}

static void emit(struct operator_context *context, const struct learner_config *c, struct batch *batch)
{
    struct batch *out = batch_derive(batch, context->output);
    for (uint32_t l = 0; l < c->labels_count; l++)
        put_predictions(c, c->state->logits + (size_t)l * BATCH_ROWS, batch, out,
                        &out->columns[c->own_columns + l]);
    context->counters.emitted += batch->selected;
    operator_emit(context, 0, out);
}

/* Predicts, and learns unless frozen; counts the verdicts. */
static void learn(struct operator_context *context, struct learner_config *c, const struct model_input *in,
                  double *logits)
{
    struct learner_state *s = c->state;
    struct model_output out = {.logits = logits, .verdicts = s->verdicts};
    uint64_t counts[MODEL_VERDICTS] = {0}, frozen = 0;
    (s->is_frozen ? model_serve : model_learn)(s->model, in, &out);
    for (uint32_t i = 0; i < in->rows; i++)
        counts[s->verdicts[i]]++;
    if (s->is_frozen) {
        frozen = counts[MODEL_LEARNED] + counts[MODEL_SAMPLED_OUT];
        counts[MODEL_LEARNED] = counts[MODEL_SAMPLED_OUT] = 0;
    }
    s->learned += counts[MODEL_LEARNED];
    s->sampled_out += counts[MODEL_SAMPLED_OUT];
    s->weightless += counts[MODEL_WEIGHTLESS];
    s->frozen += frozen;
    s->rejected += counts[MODEL_REJECTED];
    context->counters.absorbed += counts[MODEL_LEARNED];
    context->counters.filtered += counts[MODEL_SAMPLED_OUT] + counts[MODEL_WEIGHTLESS] + frozen;
    context->counters.dead += counts[MODEL_REJECTED];
}

/* context->load is set for each micro-batch, so the number of examples in a step depends only on
 * the micro-batch. */
static void follow_load(const struct operator_context *context, const struct learner_config *c)
{
    uint64_t wanted = (uint64_t)1 << context->load;
    if (follows_load(c))
        model_set_step_events(c->state->model,
                              (uint32_t)MIN(MAX(wanted, (uint64_t)c->batch_min), (uint64_t)c->batch));
}

void learner_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    struct learner_config *c = context->config;
    struct learner_state *s = c->state;
    uint16_t selection[BATCH_ROWS];
    learner_snapshot_settle(s, false);
    model_keep_memory(s->model, context->memory_bytes);
    follow_load(context, c);
    for (uint32_t at = 0, count; at < batch->selected; at += count) {
        struct model_input in;
        /* a copy of the batch, reduced to its rows from `at` on up to the next decision */
        struct batch piece = {.pool = NULL};
        /* without the references, which others may count */
        memcpy(&piece, batch, offsetof(struct batch, arena));
        count = learner_piece(c, batch->selected - at);
        if (count < batch->selected) {
            for (uint32_t i = 0; i < count; i++)
                selection[i] = (uint16_t)batch_row(batch, at + i);
            piece.sel = selection;
            piece.selected = count;
        }
        learner_schedule(c);
        learner_columns_read(s->columns, c, &piece, &in);
        learn(context, c, &in, s->logits + at);
        if (!learner_check_device(context) || !learner_check_compared(context))
            return;
        learner_metrics_add(context, c, &in, s->logits + at);
    }
    emit(context, c, batch);
}

void learner_on_watermark(struct operator_context *context, int64_t watermark)
{
    struct learner_config *c = context->config;
    follow_load(context, c); /* also while no rows arrive */
    if (learner_check_device(context))
        model_set_watermark(c->state->model, watermark);
    if (watermark == TIME_MAX)
        learner_metrics_end(context, c);
}

void learner_report(struct operator_context *context, struct report *report)
{
    struct learner_config *c = context->config;
    struct learner_state *s = c->state;
    learner_report_labels(c, report);
    report_add(report, "learned", (double)s->learned, false);
    report_add(report, "sampled_out", (double)s->sampled_out, false);
    if (c->weight_column >= 0)
        report_add(report, "weightless", (double)s->weightless, false);
    report_add(report, "frozen", (double)s->frozen, false);
    report_add(report, "is_frozen", s->is_frozen ? 1.0 : 0.0, false);
    report_add(report, "rejected", (double)s->rejected, false);
    learner_report_lists(c, report);
    if (follows_load(c))
        report_add(report, "step_examples", (double)model_step_events(s->model), false);
    if (s->gpu_api) {
        report_add(report, "device_busy",
                   model_device_busy_ms(s->model) * 1e3 / (double)(os_monotonic_us() - s->attached_us + 1),
                   false);
        report_add(report, "device_held", (double)learner_device_held(s, c->sparse_count), false);
    }
    if (model_shadow(s->model))
        report_add(report, LEARNER_COMPARED, (double)model_compared(s->model)->steps, false);
    uint64_t rows = 0, cold = 0, loaded = 0, bytes = 0, evicted = 0, expired = 0, waiting = 0;
    uint64_t device_bytes = 0;
    for (uint32_t f = 0; f < c->sparse_count; f++) {
        if (s->gpu_api) {
            struct table_stats on_device = model_device_stats(s->model, f, &device_bytes);
            cold += learner_device_cold(s, f, &loaded);
            rows += on_device.rows, evicted += on_device.evicted, expired += on_device.expired;
            waiting += on_device.waiting, bytes += device_bytes;
            continue;
        }
        const struct table *t = model_table(s->model, f);
        rows += table_rows(t);
        cold += t->cold == NULL ? 0 : t->cold->rows;
        loaded += t->cold == NULL ? 0 : t->cold->loaded;
        evicted += t->stats.evicted;
        expired += t->stats.expired;
        waiting += t->stats.waiting;
        bytes += table_bytes(t);
    }
    report_add(report, "rows", (double)rows, false);
    report_add(report, "rows_cold", (double)cold, false);
    report_add(report, "rows_loaded", (double)loaded, false);
    report_add(report, "rows_evicted", (double)evicted, false);
    report_add(report, "rows_expired", (double)expired, false);
    report_add(report, "sightings_waiting", (double)waiting, false);
    report_add(report, "table_bytes", (double)bytes, false);
    learner_report_precision(c, report);
    static const char *const names[KERNELS_VARIANTS] = {"kernel_calls_scalar", "kernel_calls_avx2",
                                                        "kernel_calls_avx512"};
    for (int v = 0; v < KERNELS_VARIANTS; v++)
        report_add(report, names[v], (double)model_calls(s->model)->calls[v], false);
}

void learner_close(struct operator_context *context)
{
    struct learner_config *c = context->config;
    if (c->state == NULL)
        return;
    learner_snapshot_settle(c->state, true);
    model_free(c->state->model);
    learner_close_device(c->state);
    learner_columns_free(c->state->columns);
    free(c->state->metrics);
    free(c->state->logits);
    free(c->state->scored);
    free(c->state);
    c->state = NULL;
}
