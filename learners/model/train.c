/*
 * Models that learn by batches (train/train.h): an event is predicted by the existing rows and weights, and
 * waits in the batch; a full batch makes its step. Also reads and writes, for checkpoints, the events that
 * wait and the dense layers.
 */
#include "learners/model/internal.h"
#include "learners/train/rows_cpu.h"

#include "core/base.h"
#include "core/mem.h"
#include "core/team.h"

#include <math.h>
#include <stdlib.h>

bool model_plan(const struct model_options *options, const struct kernels *kernels,
                const struct model_device *device, struct model_plan *plan)
{
    struct model m = {.k = kernels};
    if (!model_learns_by_batches(options))
        return false;
    model_shape(&m, options);
    struct train_setup setup = {.options = &m.options, .device = {.kernels = batch_beside(kernels)}};
    if (device != NULL)
        setup.device = (struct train_device){.kernels = device->api->kernels,
                                             .api = device->api,
                                             .gpu = device->gpu,
                                             .stream = device->stream};
    struct train_plan train;
    train_plan(&setup, &train);
    *plan = (struct model_plan){.input = train.parts[TRAIN_INPUT],
                                .rows = train.parts[TRAIN_ROWS],
                                .activations = train.parts[TRAIN_ACTIVATIONS],
                                .parameters = train.parts[TRAIN_PARAMETERS],
                                .scratch = train.parts[TRAIN_SCRATCH],
                                .pinned = train.host};
    if (device == NULL) {
        plan->input += plan->pinned, plan->pinned = 0;
        plan->rows += rows_cpu_bytes((size_t)MAX(m.options.batch, (uint32_t)MODEL_ROWS_MAX) * m.entries_max);
    }
    return true;
}

void model_train_init(struct model *m)
{
    uint32_t events = MAX(m->options.batch, (uint32_t)MODEL_ROWS_MAX);
    m->rows = mem_calloc(1, sizeof(*m->rows));
    rows_cpu_init(m->rows, m->tables, m->vector_at, (size_t)events * m->entries_max);
    struct train_setup setup = {.options = &m->options,
                                .device = {.kernels = batch_beside(m->k)},
                                .rows = rows_cpu_of(m->rows),
                                .kernels = m->k};
    m->train = train_new(&setup, &m->error); /* cannot fail on a CPU: without memory the process ends */
    leat_assert(m->train);
    model_train_write(m);
}

void model_train_free(struct model *m)
{
    train_free(m->train);
    if (m->rows != NULL)
        rows_cpu_free(m->rows);
    free(m->rows);
}

void model_train_read(struct model *m)
{
    (void)train_save_dense(m->train, m->dense_weights, &m->error);
}

void model_train_write(struct model *m)
{
    (void)train_load_dense(m->train, m->dense_weights, &m->error);
}

/* --- Learning --- */

/* Computes the losses of `n` events by one label, for a trial; with squared loss the square, without the 1/2
 * of loss.h. NaN where the logit is NaN. */
static void losses_of(const struct model *m, double *losses, const double *logits, const float *labels,
                      uint32_t n)
{
    if (m->options.loss == LOSS_LOGISTIC) {
        m->k->logloss64(losses, logits, labels, n);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        losses[i] = (logits[i] - (double)labels[i]) * (logits[i] - (double)labels[i]);
}

/* Adds to the trial's score the losses of a call's events, which both sets of layers have predicted before
 * learning them: event by event, so that it does not matter where calls end. */
static void compare(struct model *m, const struct call *c, uint32_t from, uint32_t to)
{
    struct train_trial *trial = m->train->trial;
    uint32_t n = to - from, count = MAX(m->options.labels, 1U);
    double logits[MODEL_ROWS_MAX];
    for (uint32_t l = 0; l < count; l++) {
        const float *labels = (l == 0 ? c->in->labels : c->in->more_labels[l - 1]) + from;
        for (uint32_t i = 0; i < n; i++)
            logits[i] = c->correction + (double)trial->host_logits[(size_t)l * n + i];
        losses_of(m, trial->losses[1][l], logits, labels, n);
        losses_of(m, trial->losses[0][l], c->out->logits + (size_t)l * MODEL_ROWS_MAX + from, labels, n);
    }
    for (uint32_t i = 0; i < n; i++) {
        double bf16 = 0.0, fp32 = 0.0;
        for (uint32_t l = 0; l < count; l++)
            bf16 += trial->losses[0][l][i], fp32 += trial->losses[1][l][i];
        uint8_t verdict = c->out->verdicts[from + i];
        if (!isfinite(bf16) || !isfinite(fp32) || verdict == MODEL_REJECTED || verdict == MODEL_WEIGHTLESS)
            continue;
        trial->score.bf16 += bf16, trial->score.fp32 += fp32;
        trial->score.examples++;
    }
}

/* Writes the corrected logits and the verdicts to the call's output. An event that one of its labels
 * rejects is rejected as a whole (step.c). */
static void give(const struct model *m, const struct call *c, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        if (isnan(c->out->logits[i]))
            c->out->verdicts[i] = MODEL_REJECTED;
        for (uint32_t l = 0; l < MAX(m->options.labels, 1U); l++)
            c->out->logits[(size_t)l * MODEL_ROWS_MAX + i] += c->correction;
    }
}

static bool step(struct model *m)
{
    model_step_begin(m);
    m->train->steps = m->steps;
    if (!train_step(m->train, &m->error))
        return false;
    if (m->compare != NULL)
        model_compare_step(m);
    m->pending = 0;
    m->steps++;
    return true;
}

void model_set_step_events(struct model *m, uint32_t events)
{
    leat_assert(m->train != NULL && events > 0 && events <= m->options.batch);
    m->step_events = events;
    if (m->pending >= events)
        (void)step(m);
}

uint32_t model_step_events(const struct model *m)
{
    return m->step_events;
}

double model_device_busy_ms(const struct model *m)
{
    return m->train ? m->train->clock.busy_ms : 0.0;
}

static void learn_call(struct model *m, struct call *c)
{
    struct train_events events = {
        .in = c->in, .learns = c->learns, .verdicts = c->out->verdicts, .seen = c->seen};
    for (uint32_t at = 0, end; at < c->in->rows; at = end) {
        uint32_t wanted = m->step_events - m->pending;
        for (end = at; end < c->in->rows && wanted > 0; end++)
            wanted -= c->learns[end];
        if (!train_learn(m->train, &events, at, end, &m->error))
            return;
        m->pending = train_pending(m->train);
        bool is_due = m->pending == m->step_events, is_watched = m->compare != NULL || trial_runs(m->train);
        if ((is_due && !is_watched && !step(m)) || !train_read(m->train, at, c->out->logits, &m->error))
            return;
        if (m->compare != NULL)
            model_compare_predicted(m, &events, at, end, c->out->logits);
        give(m, c, at, end);
        if (trial_runs(m->train))
            compare(m, c, at, end);
        if (is_due && is_watched && !step(m))
            return;
    }
}

void model_train_learn(struct model *m, struct call *c)
{
    if (m->team != NULL)
        atomic_store_explicit(&m->team->comes_again, true, memory_order_relaxed);
    learn_call(m, c);
    if (m->team != NULL)
        atomic_store_explicit(&m->team->comes_again, false, memory_order_relaxed);
}

void model_train_predict(struct model *m, struct call *c)
{
    struct train_events events = {.in = c->in, .verdicts = c->out->verdicts, .seen = c->seen};
    m->train->steps = m->steps;
    if (train_predict(m->train, &events, 0, c->in->rows, c->out->logits, &m->error))
        give(m, c, 0, c->in->rows);
}

void model_train_refresh(struct model *m, const struct call *c)
{
    struct train_events events = {
        .in = c->in, .learns = c->learns, .verdicts = c->out->verdicts, .seen = c->seen};
    (void)train_refresh(m->train, &events, 0, c->in->rows, &m->error);
}

/* --- Checkpoints --- */

void model_train_get(const struct model *m, uint32_t event, struct example *e)
{
    const struct train_input *in = &m->train->batch;
    e->entries = train_input_entries(in, event, e->keys, e->fields, e->scales);
    for (uint32_t d = 0; d < m->options.dense; d++)
        e->dense[d] = in->host.dense[(size_t)d * in->capacity + event];
    e->label = in->host.labels[event];
    for (uint32_t l = 1; l < m->options.labels; l++)
        e->more_labels[l - 1] = in->host.labels[(size_t)l * in->capacity + event];
    e->weight = in->host.weights[event];
    e->seen = in->event_seen[event];
}

bool model_train_put(struct model *m, const struct example *e)
{
    struct train_input *in = &m->train->batch;
    uint32_t entry = 0, to = in->n;
    for (uint32_t f = 0; f < m->options.fields; f++) {
        uint32_t *own = in->field_offsets[f], at = own ? own[to] : to, count = 0;
        uint32_t count_max = model_field_ids(&m->options, f);
        if (own == NULL)
            in->field_ids[f][to] = 0;
        for (; entry < e->entries && e->fields[entry] == f && count < count_max; entry++, count++)
            in->field_ids[f][at + count] = e->keys[entry];
        if (own != NULL)
            own[to + 1] = at + count;
    }
    if (entry != e->entries)
        return false;
    for (uint32_t d = 0; d < m->options.dense; d++)
        in->host.dense[(size_t)d * in->capacity + to] = e->dense[d];
    in->host.labels[to] = e->label;
    for (uint32_t l = 1; l < m->options.labels; l++)
        in->host.labels[(size_t)l * in->capacity + to] = e->more_labels[l - 1];
    in->host.weights[to] = e->weight;
    in->host.is_rejected[to] = 0;
    in->event_seen[to] = e->seen;
    /* the restored event was predicted by an earlier process: the forward pass has to be made again */
    m->train->is_forward = m->train->has_indices = false;
    in->n++;
    return true;
}

struct model_precision model_precision(const struct model *m)
{
    const struct train *t = m->train;
    const struct trial_score none = {0}, *s = t->trial ? &t->trial->score : &none;
    return (struct model_precision){.now = t->net.options.precision,
                                    .scale = t->scale.scale,
                                    .lowered = t->scale.lowered,
                                    .is_undecided = trial_runs(t),
                                    .trial_examples = s->examples,
                                    .trial_loss_bf16 = s->bf16 / (double)s->examples,
                                    .trial_loss_fp32 = s->fp32 / (double)s->examples};
}

size_t model_layers(const struct model *m)
{
    return m->train ? m->train->net.params_count : m->head.layers;
}

void model_layer_shape(const struct model *m, size_t layer, size_t *n, size_t *d)
{
    *n = m->train != NULL ? m->train->net.params[layer].n : m->head.items[layer].n;
    *d = m->train != NULL ? m->train->net.params[layer].d : m->head.items[layer].d;
}

size_t model_layer_floats(const struct model *m, size_t layer)
{
    return m->train ? net_saved_floats(&m->train->net, (uint32_t)layer) : head_layer_floats(&m->head, layer);
}

/* Floats of a layer of a model that learns event by event. */
static size_t layer_floats(const struct model *m, enum model_layers_of of, size_t layer)
{
    const struct head_layer *l = &m->head.items[layer];
    return of == MODEL_LAYERS_WEIGHTS ? l->n * l->d + l->n : head_layer_floats(&m->head, layer);
}

static struct net *net_of(struct model *m, enum model_layers_of of)
{
    return of == MODEL_LAYERS_TRIAL ? &m->train->trial->net : &m->train->net;
}

void model_layer_get(struct model *m, enum model_layers_of of, size_t layer, float *floats)
{
    if (m->train == NULL)
        memcpy(floats, m->head.items[layer].weights, layer_floats(m, of, layer) * sizeof(*floats));
    else if (of == MODEL_LAYERS_WEIGHTS)
        (void)net_save_weights(&m->train->net, (uint32_t)layer, floats, &m->error);
    else
        (void)net_save(net_of(m, of), (uint32_t)layer, floats, &m->error);
}

void model_layer_put(struct model *m, enum model_layers_of of, size_t layer, const float *floats)
{
    if (m->train == NULL)
        memcpy(m->head.items[layer].weights, floats, layer_floats(m, of, layer) * sizeof(*floats));
    else if (of == MODEL_LAYERS_WEIGHTS)
        (void)net_load_weights(&m->train->net, (uint32_t)layer, floats, &m->error);
    else
        (void)net_load(net_of(m, of), (uint32_t)layer, floats, &m->error);
}
