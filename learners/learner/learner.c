/* Open, each batch, each request, report, close: a learner from its first event to its last. */
#include "learners/learner/internal.h"
#include "learners/tables/cold.h"

#include "core/mem.h"
#include "core/os.h"
#include "kernels/gpu.h"

#include <math.h>
#include <stdlib.h>

bool learner_has_cold(const struct operator_context *context)
{
    const struct learner_config *c = context->config;
    return context->cold_store != NULL && c->model.rows_max == 0;
}

bool learner_make_model(struct operator_context *context)
{
    struct learner_config *c = context->config;
    struct learner_state *s = c->state;
    model_free(s->model);
    c->model.tables = s->tables;
    s->model = model_new(&c->model, s->kernels);
    if (c->model.is_on_device)
        return learner_attach(context);
    model_set_team(s->model, context->team);
    for (uint32_t f = 0; f < c->inputs.sparse_count && learner_has_cold(context); f++)
        model_set_cold(
            s->model, f,
            context->cold_store(context, s->tables[f], table_stored_bytes(model_table(s->model, f))));
    return true;
}

bool learner_open(struct operator_context *context)
{
    struct learner_config *c = context->config;
    const char *reason;
    const struct kernels *kernels = kernels_pick_env(&reason);
    if (kernels == NULL) {
        diag_error(context->diags, DIAG_BAD_ENVIRONMENT, (struct span){0, 0}, "LEAT_KERNELS: %s", reason);
        return false;
    }
    struct learner_state *s = mem_calloc(1, sizeof(*s));
    c->state = s;
    s->kernels = kernels;
    s->seen_last_us = TIME_MIN;
    s->epoch = 1;
    s->tables_next = c->inputs.sparse_count;
    for (uint32_t f = 0; f < c->inputs.sparse_count; f++)
        s->tables[f] = (uint16_t)f;
    if (!learner_pick_device(context) || !learner_check_memory(context) || !learner_make_model(context))
        return false;
    s->columns = learner_columns_new(c);
    s->metrics = mem_calloc(c->inputs.labels_count, sizeof(*s->metrics));
    s->logits = mem_calloc((size_t)c->inputs.labels_count * BATCH_ROWS, sizeof(*s->logits));
    s->weighed = mem_calloc(BATCH_ROWS, sizeof(*s->weighed));
    for (uint32_t l = 0; l < c->inputs.labels_count; l++)
        metrics_init(&s->metrics[l], c->model.loss, (uint64_t)c->evaluation.window);
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

void learner_emit(struct operator_context *context, const struct learner_config *c, struct batch *batch,
                  uint32_t output, const struct schema *schema, uint32_t own_columns)
{
    struct batch *out = batch_derive(batch, schema);
    for (uint32_t l = 0; l < c->inputs.labels_count; l++)
        put_predictions(c, c->state->logits + (size_t)l * BATCH_ROWS, batch, out,
                        &out->columns[own_columns + l]);
    context->counters.emitted += batch->selected;
    operator_emit(context, output, out);
}

static void emit_predictions(struct operator_context *context, const struct learner_config *c,
                             struct batch *batch)
{
    learner_emit(context, c, batch, LEARNER_PREDICTIONS, context->output, c->inputs.own_columns);
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
    if (learner_follows_load(c))
        model_set_step_events(c->state->model, (uint32_t)MIN(MAX(wanted, (uint64_t)c->steps.batch_min),
                                                             (uint64_t)c->steps.batch));
}

/* Predicts and learns the examples. */
static void learn_all(struct operator_context *context, struct learner_config *c, struct batch *batch)
{
    struct learner_state *s = c->state;
    uint16_t selection[BATCH_ROWS];
    for (uint32_t at = 0, count; at < batch->selected; at += count) {
        struct model_input in;
        /* a copy of the batch, reduced to its rows from `at` on up to the next decision */
        struct batch piece = {.pool = NULL};
        /* not the members from `arena` on: other threads may change `references` meanwhile */
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
    emit_predictions(context, c, batch);
}

void learner_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    struct learner_config *c = context->config;
    learner_snapshot_settle(c->state, false);
    model_keep_memory(c->state->model, context->memory_bytes);
    follow_load(context, c);
    (input == LEARNER_SCORED ? learner_score : learn_all)(context, c, batch);
}

/* The model predicts each row as if it came next, with the weights of its last step, and stays as it is. What a
 * request has as labels or weights does not matter. On a GPU rows of lower tiers are brought up, as for a frozen
 * learner. */
void learner_read(struct operator_context *context, uint32_t input, struct batch *batch)
{
    struct learner_config *c = context->config;
    struct learner_state *s = c->state;
    struct model_input in;
    struct batch view;
    if (input == LEARNER_SCORED)
        view = learner_scored_view(c, batch);
    learner_columns_request(s->columns, c, input == LEARNER_SCORED ? &view : batch, &in);
    model_predict(s->model, &in, s->logits);
    const struct gpu_error *error = model_error(s->model); /* the next `process` ends the run */
    if (error == NULL) {
        (input == LEARNER_SCORED ? learner_emit_scores : emit_predictions)(context, c, batch);
        return;
    }
    for (uint32_t i = 0; i < batch->selected; i++)
        operator_reject(context, batch, batch_row(batch, i), error->text);
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

static void report_lists(const struct learner_config *c, struct report *report)
{
    for (uint32_t f = 0; f < c->inputs.sparse_count; f++) {
        if (!c->model.is_list[f])
            continue;
        report_add(report, c->inputs.lists[f].lists_cut, (double)c->state->lists_cut[f], false);
        report_add(report, c->inputs.lists[f].ids_cut, (double)c->state->ids_cut[f], false);
    }
}

static void report_precision(const struct learner_config *c, struct report *report)
{
    if (c->layers == NULL || c->layers->precision == PRECISION_FP32)
        return;
    struct model_precision p = model_precision(c->state->model);
    report_add_text(report, "precision",
                    p.is_undecided ? "bf16, with fp32 beside it" : learner_precision_names[p.now]);
    if (c->layers->precision == PRECISION_FP16) {
        report_add(report, "gradient_scale", (double)p.scale, false);
        report_add(report, "gradient_scale_lowered", (double)p.lowered, false);
    }
    if (c->layers->precision == PRECISION_AUTO) {
        report_add(report, "trial_examples", (double)p.trial_examples, false);
        report_add(report, "trial_loss_bf16", p.trial_loss_bf16, false);
        report_add(report, "trial_loss_fp32", p.trial_loss_fp32, false);
    }
}

void learner_report_calls(const struct kernels_calls *calls, struct report *report)
{
    static const char *const names[KERNELS_VARIANTS] = {"kernel_calls_scalar", "kernel_calls_avx2",
                                                        "kernel_calls_avx512"};
    for (int v = 0; v < KERNELS_VARIANTS; v++)
        report_add(report, names[v], (double)calls->calls[v], false);
}

void learner_report(struct operator_context *context, struct report *report)
{
    struct learner_config *c = context->config;
    struct learner_state *s = c->state;
    learner_report_labels(c, report);
    report_add(report, "learned", (double)s->learned, false);
    report_add(report, "sampled_out", (double)s->sampled_out, false);
    if (c->inputs.weight_column >= 0)
        report_add(report, "weightless", (double)s->weightless, false);
    report_add(report, "frozen", (double)s->frozen, false);
    report_add(report, "is_frozen", s->is_frozen ? 1.0 : 0.0, false);
    report_add(report, "rejected", (double)s->rejected, false);
    if (c->score.schema != NULL)
        report_add(report, "scored", (double)s->scored, false);
    report_lists(c, report);
    if (learner_follows_load(c))
        report_add(report, "step_examples", (double)model_step_events(s->model), false);
    if (s->device.api) {
        report_add(report, "device_busy",
                   model_device_busy_ms(s->model) * 1e3 / (double)(os_monotonic_us() - s->attached_us + 1),
                   false);
        report_add(report, "device_held", (double)learner_device_held(s, c->inputs.sparse_count), false);
    }
    if (model_shadow(s->model))
        report_add(report, LEARNER_COMPARED, (double)model_compared(s->model)->steps, false);
    uint64_t rows = 0, cold = 0, loaded = 0, bytes = 0, evicted = 0, expired = 0, waiting = 0;
    uint64_t device_bytes = 0;
    for (uint32_t f = 0; f < c->inputs.sparse_count; f++) {
        if (s->device.api) {
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
    report_add(report, "occurrences_waiting", (double)waiting, false);
    report_add(report, "table_bytes", (double)bytes, false);
    report_precision(c, report);
    learner_report_calls(model_calls(s->model), report);
}

void learner_close(struct operator_context *context)
{
    struct learner_config *c = context->config;
    if (c->state == NULL)
        return;
    learner_snapshot_settle(c->state, true);
    model_free(c->state->model);
    learner_gpu_close(&c->state->device);
    learner_columns_free(c->state->columns);
    free(c->state->metrics);
    free(c->state->logits);
    free(c->state->weighed);
    free(c->state->request);
    free(c->state);
    c->state = NULL;
}
