/* Predictions, and the step of a full batch (train.h). */
#include "learners/train/step.h"

#include "core/base.h"

#include <math.h>

static struct batch_dedupe dedupe_of(const struct train_group *g, const struct train_input *in)
{
    return (struct batch_dedupe){.ids = in->there.ids + train_input_first(in, g->first),
                                 .tables = in->there.tables + train_input_tables(in, g->first),
                                 .tables_count = g->fields,
                                 .n = places_of(g, in),
                                 .method = DEDUPE_HASH,
                                 .count = g->count,
                                 .indices = g->indices,
                                 .unique_ids = g->unique_ids,
                                 .unique_tables = g->unique_tables,
                                 .order = g->order,
                                 .starts = g->starts};
}

/* CPU, a call: dense indices of the call's ids, continuing those of the batch's earlier calls
 * if they are kept. */
static void index_call(struct train *t, struct train_group *g, const struct train_input *in, unsigned who)
{
    struct batch_dedupe a = dedupe_of(g, in);
    bool is_behind = t->has_indices && t->batch.n > 0;
    g->at = is_behind ? t->batch.n : 0;
    g->fresh = is_behind ? g->count[0] : 0;
    a.indices += g->at, a.before = g->fresh;
    a.order = NULL;
    a.scratch = t->scratch[who], a.scratch_bytes = t->scratch_bytes;
    if (t->has_indices && t->keeps_indices)
        a.room = t->batch.capacity, a.scratch = g->slots, a.scratch_bytes = g->slots_bytes;
    t->device.kernels->dedupe(&a, t->device.stream);
}

/* CPU, a step: dense indices of the whole batch, unless its calls have left them, with order and starts. */
static void index_batch(struct train *t, struct train_group *g, const struct train_input *in, unsigned who)
{
    struct batch_dedupe a = dedupe_of(g, in);
    a.scratch = t->scratch[who], a.scratch_bytes = t->scratch_bytes;
    a.has_indices = t->has_indices;
    g->at = g->fresh = 0;
    t->device.kernels->dedupe(&a, t->device.stream);
}

/* Sends columns to the device and, unless the groups have them, makes dense indices. On a CPU the look-up
 * makes the indices. */
static void feed(struct train *t, struct train_input *in, bool learns)
{
    struct train_feed *f = &t->feed;
    if (learns)
        feed_await(f, &f->device, FEED_STEPPED);
    train_input_finish(in, learns, &f->device);
    if (t->device.api == NULL)
        return;
    if (learns)
        feed_reached(f, &f->device, FEED_SENT);
    if (!learns || !t->has_indices) {
        f->set = (f->set + 1) % FEED_SETS;
        t->groups = t->sets[f->set];
        for (uint32_t i = 0; i < t->groups_count; i++) {
            struct batch_dedupe a = dedupe_of(&t->groups[i], in);
            a.scratch = f->scratch, a.scratch_bytes = f->scratch_bytes;
            t->device.kernels->dedupe(&a, f->device.stream);
        }
    }
    feed_reached(f, &f->device, FEED_FED);
    feed_await(f, &t->device, FEED_FED);
}

/* --- As graphs (graph.h) --- */

struct work {
    struct train *t;
    struct piece p;  /* a call's events; of a step: the whole batch */
    bool is_forward; /* the forward pass has been made already */
};

/* In fp16 a step checks its gradients (WORK_GRADIENTS) before it moves weights (WORK_MOVE). */
enum work_kind { WORK_PREDICT, WORK_GRADIENTS, WORK_MOVE, WORK_LEARN };

static uint64_t digest_of(uint64_t digest, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        digest = num_mix(digest ^ at[i]);
    return digest;
}

/* The digest of all arguments of the forward, backward and update kernels that can differ from step to step.
 * A new argument that changes must be added here. */
static uint64_t arguments_of(const struct train *t, const struct train_input *in, enum work_kind kind)
{
    const struct model_options *o = t->options;
    if (t->device.api == NULL) /* a CPU has no graphs */
        return 1;
    uint64_t sizes[5 + MODEL_FIELDS_MAX] = {kind, in->n, t->net.options.precision, trial_runs(t),
                                            t->feed.set};
    for (uint32_t i = 0; i < t->groups_count; i++)
        sizes[5 + i] = places_of(&t->groups[i], in);
    uint64_t digest = digest_of(1, sizes, (5 + t->groups_count) * sizeof(*sizes));
    if (kind == WORK_PREDICT)
        return digest | 1;
    digest = digest_of(digest, &t->net.scale, sizeof(t->net.scale));
    digest = digest_of(digest, &o->linear.params, sizeof(o->linear.params));
    digest = digest_of(digest, &o->ftrl, sizeof(o->ftrl));
    digest = digest_of(digest, &o->embedding.params, sizeof(o->embedding.params));
    digest = digest_of(digest, &o->head.params, sizeof(o->head.params));
    if (t->rows.format != ROW_FP32) /* rounding uses the step's seed */
        digest = digest_of(digest, &t->steps, sizeof(t->steps));
    return digest | 1;
}

/* Copies logits of n events to the host. */
static void copy_logits(struct train *t, float *to, const float *logits, uint32_t n)
{
    for (uint32_t l = 0; l < MAX(t->options->labels, 1U); l++)
        train_copy(&t->device, to + (size_t)l * n, logits + (size_t)l * t->events_max, n * sizeof(*logits));
}

static void predict_all(void *of)
{
    struct work *w = of;
    struct train *t = w->t;
    uint32_t n = w->p.n;
    train_forward(t, &w->p);
    copy_logits(t, t->host_logits, t->logits + w->p.first, n);
    if (trial_runs(t))
        copy_logits(t, t->trial->host_logits, t->trial->logits, n);
    train_copy(&t->device, t->host_rejected, w->p.in->there.is_rejected, n);
}

/* --- Rows --- */

struct looked_up {
    struct train *t;
    const struct train_input *in;
    struct gpu_error *error;
    bool has_failed; /* only a GPU can fail */
};

static bool look_up(struct train *t, const struct train_input *in, share_piece *group,
                    struct gpu_error *error)
{
    struct looked_up w = {t, in, error, false};
    bool are_apart = train_shares(t, in->n) && t->rows.are_apart && t->rows.are_apart(t->rows.of, t);
    share_apart(are_apart ? t->net.team : NULL, t->groups_count, group, &w);
    return !w.has_failed;
}

/* Finds the rows of a call's events. */
static void find_group(void *of, uint32_t group, unsigned who)
{
    struct looked_up *w = of;
    struct train_group *g = &w->t->groups[group];
    if (w->has_failed)
        return;
    if (w->t->device.api == NULL)
        index_call(w->t, g, w->in, who);
    if (!w->t->rows.find(w->t->rows.of, w->t, g, w->in, w->error))
        w->has_failed = true;
}

/* Finds or makes the rows of a step. */
static void resolve_group(void *of, uint32_t group, unsigned who)
{
    struct looked_up *w = of;
    struct train_group *g = &w->t->groups[group];
    if (w->has_failed)
        return;
    if (w->t->device.api == NULL)
        index_batch(w->t, g, w->in, who);
    if (!w->t->rows.resolve(w->t->rows.of, w->t, g, w->error))
        w->has_failed = true;
}

/* --- Predictions --- */

/* Predicts events from..to of a call in the matrices' rows from `first` on; then call train_read. */
static bool predict_at(struct train *t, const struct train_events *events, uint32_t from, uint32_t to,
                       uint32_t first, struct gpu_error *error)
{
    struct train_input *in = &t->call;
    in->n = 0;
    struct train_events all = *events;
    all.learns = NULL;
    train_input_add(in, &all, from, to);
    train_clock_begin(&t->clock, &t->device);
    feed(t, in, false);
    struct work w = {.t = t, .p = {.in = in, .n = in->n, .first = first}};
    if (!look_up(t, in, find_group, error) ||
        !train_graph_run(&t->graphs, &t->device, arguments_of(t, in, WORK_PREDICT), predict_all, &w, error))
        return false;
    train_clock_end(&t->clock, &t->device);
    feed_reached(&t->feed, &t->device, FEED_PREDICTED);
    return true;
}

bool train_read(struct train *t, uint32_t from, double *logits, struct gpu_error *error)
{
    if (!feed_wait(&t->feed, FEED_PREDICTED, error))
        return false;
    train_clock_count(&t->clock, &t->device);
    uint32_t labels = MAX(t->options->labels, 1U), n = t->call.n;
    for (uint32_t l = 0; l < labels; l++)
        for (uint32_t i = 0; i < n; i++)
            logits[(size_t)l * MODEL_ROWS_MAX + from + i] =
                t->host_rejected[i] ? (double)NAN : (double)t->host_logits[(size_t)l * n + i];
    return true;
}

bool train_predict(struct train *t, const struct train_events *events, uint32_t from, uint32_t to,
                   double *logits, struct gpu_error *error)
{
    t->has_indices = false;
    return predict_at(t, events, from, to, t->call_at, error) && train_read(t, from, logits, error);
}

void train_add(struct train *t, const struct train_events *events, uint32_t from, uint32_t to)
{
    struct gpu_error sticky; /* the device's error is sticky, and the next step reports it */
    (void)feed_wait(&t->feed, FEED_SENT, &sticky);
    train_input_add(&t->batch, events, from, to);
    t->is_forward = t->has_indices = false;
}

/* Copies the forward pass's results of an event from one row of the matrices to another. */
static void move_event(struct train *t, uint32_t from, uint32_t to)
{
    uint32_t stride = t->net.output ? t->net.output->stride : 1;
    net_move(&t->net, from, to);
    memcpy(t->out_gradients + (size_t)to * stride, t->out_gradients + (size_t)from * stride,
           stride * sizeof(*t->out_gradients));
}

/* On a CPU the forward pass of an event is made once (train.h): the values that its prediction left in the
 * matrices serve its step. If all events of a call learn, their forward pass is made where they will lie in
 * the batch; else the results of those that learn are moved there. */
bool train_learn(struct train *t, const struct train_events *events, uint32_t from, uint32_t to,
                 struct gpu_error *error)
{
    uint32_t n = to - from, place = t->batch.n;
    t->is_forward = t->call_at > 0 && !trial_runs(t) && (t->is_forward || place == 0);
    bool all_learn = memchr(events->learns + from, 0, n) == NULL;
    uint32_t first = t->is_forward && all_learn ? place : t->call_at;
    t->has_indices = all_learn && (place == 0 || (t->keeps_indices && t->has_indices));
    if (!predict_at(t, events, from, to, first, error) || !feed_wait(&t->feed, FEED_SENT, error))
        return false;
    train_input_add(&t->batch, events, from, to);
    for (uint32_t i = 0; i < n && t->is_forward; i++) {
        if (!events->learns[from + i])
            continue;
        if (first + i != place)
            move_event(t, first + i, place);
        t->batch.host.is_rejected[place++] = t->call.host.is_rejected[i];
    }
    return true;
}

bool train_refresh(struct train *t, const struct train_events *events, uint32_t from, uint32_t to,
                   struct gpu_error *error)
{
    struct train_input *in = &t->call;
    in->n = 0;
    t->has_indices = false;
    train_input_add(in, events, from, to);
    if (in->n == 0)
        return true;
    feed(t, in, false);
    for (uint32_t i = 0; i < t->groups_count; i++)
        if (!t->rows.refresh(t->rows.of, t, &t->groups[i], in, error))
            return false;
    feed_reached(&t->feed, &t->device, FEED_PREDICTED);
    return feed_wait(&t->feed, FEED_PREDICTED, error);
}

/* --- Backward --- */

static void begin_back(struct net *net, const struct piece *p, const uint8_t *is_rejected)
{
    net->event = p->from;
    net_begin(net);
    net_mask(net, p->n, is_rejected);
}

static void end_back(struct train *t, struct net *net, const struct piece *p, const uint8_t *is_rejected)
{
    struct batch_mask_rows a = {.x = net->output->gradients,
                                .n = p->n,
                                .columns = net->output->columns,
                                .stride = net->output->stride,
                                .is_rejected = is_rejected};
    if (t->options->labels > 1) /* an event that one label rejects is rejected by all */
        t->device.kernels->mask_rows(&a, t->device.stream);
    net->output->has_gradients = true;
    net_backward(net, p->n);
}

static void backward(struct train *t, const struct piece *p)
{
    struct net *net = &t->net;
    const uint8_t *is_rejected = p->in->there.is_rejected + p->from;
    net->input->gradients = t->input_gradients + (size_t)p->from * net->input->stride;
    begin_back(net, p, is_rejected);
    if (t->options->interaction != NULL && t->options->vectors > 0) {
        struct batch_interaction a = interaction_of(t, p);
        a.logit_gradients = out_gradients_of(t, p);
        a.grads = net->input->gradients + net->vectors_from, a.grads_stride = net->input->stride;
        interact(t, &a);
        net->input->has_gradients = true;
    }
    if (!net->output)
        return;
    net->output->gradients = out_gradients_of(t, p);
    end_back(t, net, p, is_rejected);
    if (!trial_runs(t))
        return;
    begin_back(&t->trial->net, p, t->trial->is_rejected);
    end_back(t, &t->trial->net, p, t->trial->is_rejected);
}

/* Computes the gradients of all weights that the batch moves, piece by piece; pieces of `micro` events end where a
 * slice ends. */
static void make_gradients(void *of)
{
    struct work *w = of;
    const struct batch_slices *s = &w->t->net.slices;
    uint32_t all = w->p.n, micro = w->t->options->micro;
    for (struct piece p = w->p; p.from < all; p.from += p.n) {
        p.n = all - p.from;
        if (micro > 0)
            p.n = MIN(micro, s->borders[batch_slice_of(s, p.from) + 1] - p.from);
        if (!w->is_forward)
            train_forward(w->t, &p);
        backward(w->t, &p);
    }
}

/* The places of a group, sorted by index, for summing gradients by row. */
static struct batch_segments segments_of(const struct train *t, const struct train_group *g,
                                         const struct train_input *in)
{
    size_t first = train_input_first(in, g->first);
    bool is_event = t->device.api == NULL && in->there.offsets == NULL; /* places are a field's events */
    return (struct batch_segments){.event = is_event ? NULL : in->there.event + first,
                                   .slices = t->net.slices,
                                   .scales = in->there.scales != NULL ? in->there.scales + first : NULL,
                                   .order = g->order,
                                   .starts = g->starts,
                                   .count = g->count,
                                   .n = places_of(g, in)};
}

static void update_vectors(struct train *t, const struct train_group *g, const struct train_input *in,
                           unsigned who)
{
    struct batch_update a = {.in = segments_of(t, g, in),
                             .rows = g->rows,
                             .keys = g->unique_ids,
                             .format = t->rows.format,
                             .kind = t->options->embedding.kind,
                             .params = t->options->embedding.params,
                             .seed = num_mix(t->options->seed + t->steps + 1),
                             .scratch = t->scratch[who],
                             .scratch_bytes = t->scratch_bytes};
    a.in.grads = t->input_gradients;
    a.in.bag = in->there.bag + train_input_first(in, g->first);
    a.in.unit = 4, a.in.d = t->net.options.dim;
    if (t->net.is_by_ids)
        distinct_update(t, g, &a, who);
    else
        t->device.kernels->update(&a, t->device.stream);
}

static void update_weights(struct train *t, const struct train_group *g, const struct train_input *in,
                           unsigned who)
{
    struct batch_weights_update a = {.of = weights_of(t, g->rows, linear_at(t, g)),
                                     .in = segments_of(t, g, in),
                                     .scratch = t->scratch[who],
                                     .scratch_bytes = t->scratch_bytes};
    a.in.grads = t->out_gradients;
    a.in.bag = a.in.event; /* NULL: a place's number is its event's */
    a.in.d = 1;
    t->device.kernels->weights_update(&a, t->device.stream);
}

/* Fills order and starts of the dense features' places for n events: columns are `capacity` places apart, of
 * which the first n belong to the step. */
static bool place_dense(struct train *t, uint32_t n, struct gpu_error *error)
{
    uint32_t columns = t->options->dense + 1;
    uint32_t *order = t->host_order, *starts = order + (size_t)columns * n;
    if (t->dense_placed == n)
        return true;
    if (!train_wait(&t->device, error)) /* the copies of the last call may still read host_order */
        return false;
    for (uint32_t c = 0; c <= columns; c++)
        starts[c] = c * n;
    for (uint32_t c = 0; c < columns; c++)
        for (uint32_t e = 0; e < n; e++)
            order[c * n + e] = c * t->batch.capacity + e;
    train_copy(&t->device, t->dense_order, order, (size_t)columns * n * sizeof(*order));
    train_copy(&t->device, t->dense_starts, starts, (columns + 1) * sizeof(*starts));
    t->dense_placed = n;
    return true;
}

/* A dense feature's weight has one place for each event, with the feature's value as the scale; the bias's
 * scale is 1. */
static void update_dense(struct train *t, const struct train_input *in)
{
    uint32_t columns = t->options->dense + 1;
    struct batch_weights_update a = {.of = weights_of(t, t->dense_rows, 0),
                                     .in = {.grads = t->out_gradients,
                                            .bag = t->dense_event,
                                            .event = t->dense_event,
                                            .slices = t->net.slices,
                                            .scales = in->there.dense,
                                            .order = t->dense_order,
                                            .starts = t->dense_starts,
                                            .count = t->dense_count,
                                            .n = columns * in->n,
                                            .d = 1},
                                     .scratch = t->scratch[SHARE_OWNER],
                                     .scratch_bytes = t->scratch_bytes};
    t->device.kernels->weights_update(&a, t->device.stream);
}

static void move_group(void *of, uint32_t group, unsigned who)
{
    const struct work *w = of;
    const struct train_group *g = &w->t->groups[group];
    if (g->has_vectors)
        update_vectors(w->t, g, w->p.in, who);
    if (has_linear(w->t))
        update_weights(w->t, g, w->p.in, who);
}

static void move(void *of)
{
    struct work *w = of;
    struct train *t = w->t;
    share_apart(train_shares(t, w->p.n) ? t->net.team : NULL, t->groups_count, move_group, w);
    if (has_linear(t))
        update_dense(t, w->p.in);
    net_update(&t->net);
    if (trial_runs(t))
        net_update(&t->trial->net);
}

static void learn_all(void *of)
{
    make_gradients(of);
    move(of);
}

/* With fp16: repeats the gradients with smaller scales until all are finite. */
static bool learn(struct train *t, const struct train_input *in, struct gpu_error *error)
{
    struct work w = {.t = t, .p = {.in = in, .n = in->n}, .is_forward = t->is_forward};
    float scale = t->scale.scale;
    bool is_again = true;
    if (t->net.options.precision != ROW_FP16)
        return train_graph_run(&t->graphs, &t->device, arguments_of(t, in, WORK_LEARN), learn_all, &w, error);
    while (is_again) {
        uint64_t arguments = arguments_of(t, in, WORK_GRADIENTS);
        if (!train_graph_run(&t->graphs, &t->device, arguments, make_gradients, &w, error) ||
            !scale_judge(t, scale, &is_again, error))
            return false;
    }
    return train_graph_run(&t->graphs, &t->device, arguments_of(t, in, WORK_MOVE), move, &w, error);
}

static void begin_step(const struct train *t, struct net *net)
{
    net->options.params = t->options->head.params;
    leat_assert(t->options->slice % BATCH_SLICE_UNIT == 0); /* else slices are parts of a chunk of sums */
    net->slices = batch_slices_of(t->batch.n, t->options->slice);
}

bool train_step(struct train *t, struct gpu_error *error)
{
    struct train_input *in = &t->batch;
    leat_assert(in->n > 0 && in->n <= in->capacity);
    if (has_linear(t) && !place_dense(t, in->n, error))
        return false;
    train_clock_begin(&t->clock, &t->device);
    feed(t, in, true);
    if (!look_up(t, in, resolve_group, error))
        return false;
    for (uint32_t i = 0; i < t->groups_count; i++)
        t->is_forward &= !t->groups[i].has_lost;
    begin_step(t, &t->net);
    if (t->trial != NULL)
        begin_step(t, &t->trial->net);
    if (!learn(t, in, error))
        return false;
    train_clock_end(&t->clock, &t->device);
    feed_reached(&t->feed, &t->device, FEED_STEPPED);
    t->steps++;
    trial_decide(t);
    in->n = 0;
    t->has_indices = false;
    return true;
}
