/* Forward, and the step of a full batch (train.h). */
#include "learners/train/step.h"

#include "core/base.h"

#include <math.h>

/* Networks of their own papers have neither linear part nor interaction. */
static bool has_linear(const struct train *t)
{
    return !t->options->linear_is_off;
}

static struct batch_weights weights_of(const struct train *t, void *const *rows, int32_t at)
{
    return (struct batch_weights){.rows = rows,
                                  .at = at,
                                  .is_double = t->options->linear_is_double,
                                  .kind = t->options->linear.kind,
                                  .params = t->options->linear.params,
                                  .ftrl = t->options->ftrl};
}

static const uint32_t *offsets_of(const struct train_group *g, const struct train_input *in)
{
    return in->there.offsets ? in->there.offsets + train_input_offsets(in, g->first) : NULL;
}

static int32_t linear_at(const struct train *t, const struct train_group *g)
{
    return g->has_vectors ? t->rows.linear_at : 0;
}

static uint32_t places_of(const struct train_group *g, const struct train_input *in)
{
    return train_input_places(in, g->first, g->fields);
}

static void dedupe(struct train *t, const struct train_group *g, const struct train_input *in)
{
    struct batch_dedupe a = {.ids = in->there.ids + train_input_first(in, g->first),
                             .tables = in->there.tables + train_input_tables(in, g->first),
                             .tables_count = g->fields,
                             .n = places_of(g, in),
                             .method = DEDUPE_HASH,
                             .count = g->count,
                             .unique = g->unique,
                             .unique_ids = g->unique_ids,
                             .unique_tables = g->unique_tables,
                             .order = g->order,
                             .starts = g->starts,
                             .scratch = t->scratch,
                             .scratch_bytes = t->scratch_bytes};
    t->device.kernels->dedupe(&a, t->device.stream);
}

/* --- forward ----------------------------------------------------------------------------------------------
 */

/* Fields of a group that lie together: all of a whole batch, one of a part of it. */
struct some_fields {
    uint32_t first, count; /* of the group's */
    const uint32_t *numbers, *offsets;
};

/* The next of them after `fields` (zeros: the first); false: there are none. numbers: of each place which row
 * it is; the places of a group begin at its own 0, and without offsets they are the bags. */
static bool next_fields(const struct train *t, const struct train_group *g, const struct piece *p,
                        struct some_fields *fields)
{
    const uint32_t *offsets = offsets_of(g, p->in), *numbers = p->by_number ? g->unique : t->iota;
    fields->first += fields->count;
    fields->count = p->n == p->in->n ? g->fields : 1;
    size_t bag = (size_t)fields->first * p->in->n + p->from;
    fields->numbers = offsets ? numbers : numbers + bag;
    fields->offsets = offsets ? offsets + bag : NULL;
    return fields->first < g->fields;
}

static void *const *rows_of(const struct train_group *g, const struct piece *p)
{
    return p->by_number ? g->rows : g->found;
}

static void gather(struct train *t, const struct train_group *g, const struct piece *p)
{
    for (struct some_fields fields = {0}; next_fields(t, g, p, &fields);) {
        struct batch_gather_pool a = {.rows = (const void *const *)rows_of(g, p),
                                      .unique = fields.numbers,
                                      .offsets = fields.offsets,
                                      .bags = fields.count * p->n,
                                      .d = t->net.options.dim,
                                      .fields = fields.count,
                                      .stride = t->net.input->stride,
                                      .format = t->rows.format,
                                      .is_mean = p->in->has_lists,
                                      .out = net_values(&t->net, t->net.input) + t->net.vectors_from +
                                             (size_t)fields.first * t->net.options.dim};
        t->device.kernels->gather_pool(&a, t->device.stream);
    }
}

static void read_weights(struct train *t, struct train_group *g, const struct piece *p)
{
    uint32_t places = places_of(g, p->in);
    struct batch_weights_read a = {.of = weights_of(t, rows_of(g, p), linear_at(t, g)),
                                   .count = p->by_number ? g->count : t->iota + places, /* iota[n] is n */
                                   .n = places,
                                   .out = g->weights};
    t->device.kernels->weights_read(&a, t->device.stream);
}

static void read_numbers(struct train *t)
{
    uint32_t n = t->options->dense + 1;
    struct batch_weights_read a = {
        .of = weights_of(t, t->number_rows, 0), .count = t->number_count, .n = n, .out = t->number_weights};
    t->device.kernels->weights_read(&a, t->device.stream);
}

/* The linear part: some fields after the others; the first have the bias and the numbers. */
static void add_linear(struct train *t, const struct train_group *g, const struct piece *p,
                       const struct some_fields *fields, bool is_first)
{
    float *logits = t->logits + p->first;
    struct batch_weights_forward a = {.start = is_first ? NULL : logits,
                                      .base = t->options->bias,
                                      .bias = is_first ? t->number_weights + t->options->dense : NULL,
                                      .dense = p->in->there.numbers + p->from,
                                      .dense_weights = t->number_weights,
                                      .dense_stride = p->in->capacity,
                                      .dense_count = is_first ? t->options->dense : 0,
                                      .is_rejected = p->in->there.is_rejected + p->from,
                                      .weights = g ? g->weights : NULL,
                                      .unique = fields->numbers,
                                      .offsets = fields->offsets,
                                      .fields = fields->count,
                                      .n = p->n,
                                      .logits = logits};
    t->device.kernels->weights_forward(&a, t->device.stream);
}

static void forward_linear(struct train *t, const struct train_group *g, const struct piece *p, bool is_first)
{
    for (struct some_fields fields = {0}; next_fields(t, g, p, &fields); is_first = false)
        add_linear(t, g, p, &fields, is_first);
}

static struct batch_interaction interaction_of(const struct train *t, const struct piece *p)
{
    return (struct batch_interaction){.vectors = net_values(&t->net, t->net.input) + t->net.vectors_from,
                                      .bags = p->n,
                                      .fields = t->options->vectors,
                                      .d = t->options->dim,
                                      .stride = t->net.input->stride};
}

static void interact(struct train *t, struct batch_interaction *a)
{
    const struct batch_kernels *k = t->device.kernels;
    if (t->options->interaction == INTERACTION_FM)
        k->fm(a, t->device.stream);
    else if (t->options->interaction == INTERACTION_FFM)
        k->ffm(a, t->device.stream);
}

static void pack_numbers(struct train *t, const struct piece *p)
{
    const struct model_options *o = t->options;
    struct batch_pack a = {.columns = p->in->there.numbers + p->from,
                           .columns_stride = p->in->capacity,
                           .count = o->dense,
                           .n = p->n,
                           .is_rejected = p->in->there.is_rejected + p->from,
                           .out = net_values(&t->net, t->net.input) + t->net.vectors_from +
                                  (size_t)o->vectors * t->net.options.dim,
                           .stride = t->net.input->stride};
    if (o->dense > 0 && o->network != NETWORK_NONE)
        t->device.kernels->pack(&a, t->device.stream);
}

/* Of the outputs, or of logits where there is no network. */
static float *slopes_of(const struct train *t, const struct piece *p)
{
    return t->slopes + ((size_t)p->first + p->from) * (t->net.output ? t->net.output->stride : 1);
}

/* A network's predictions of a piece, with those of the linear part and the interaction. */
struct judged {
    const struct net *net;
    float *logits; /* [labels][events_max] */
    float *slopes; /* [n] of out's stride */
    uint8_t *is_rejected;
};

/* Logits and, in is_rejected, who has none; slopes, but that of the network. */
static void judge(struct train *t, const struct piece *p, const struct judged *by)
{
    const struct model_options *o = t->options;
    const struct train_columns *there = &p->in->there;
    const struct net_matrix *out = by->net->output; /* NULL: there is no network */
    for (uint32_t l = 0; l < MAX(o->labels, 1U); l++) {
        struct batch_loss a = {.logits = t->logits + (size_t)l * t->events_max + p->first,
                               .more = out ? net_values(by->net, out) + l : NULL,
                               .more_stride = out ? out->stride : 0,
                               .labels = there->labels + (size_t)l * p->in->capacity + p->from,
                               .weights = there->weights + p->from,
                               .class_weights = {1.0F, 1.0F},
                               .is_squared = o->loss == LOSS_SQUARED,
                               .has_fake_negatives = o->has_fake_negatives,
                               .scale = 1.0F,
                               .n = p->n,
                               .sums = by->logits + (size_t)l * t->events_max,
                               .slopes = by->slopes + l,
                               .slopes_stride = out ? out->stride : 1,
                               .is_rejected = by->is_rejected};
        t->device.kernels->loss(&a, t->device.stream);
    }
}

/* Before the model's own logits take the place of what they are made of. */
static void judge_trial(struct train *t, const struct piece *p)
{
    struct train_trial *trial = t->trial;
    struct net_matrix *in = trial->net.input; /* of its own: layers may write into it, and it is masked */
    train_copy(&t->device, in->values, net_values(&t->net, t->net.input),
               (size_t)p->n * in->stride * sizeof *in->values);
    net_forward(&trial->net, p->n);
    train_copy(&t->device, trial->is_rejected, p->in->there.is_rejected + p->from, p->n);
    judge(t, p, &(struct judged){&trial->net, trial->logits, trial->net.output->slopes, trial->is_rejected});
}

void train_forward(struct train *t, const struct piece *p)
{
    bool is_first = true;
    t->net.first = p->first;
    if (has_linear(t))
        read_numbers(t);
    else
        train_fill(&t->device, t->logits, 0, t->logits_bytes);
    for (uint32_t i = 0; i < t->groups_count; i++) {
        struct train_group *g = &t->groups[i];
        if (g->has_vectors)
            gather(t, g, p);
        if (!has_linear(t))
            continue;
        if (p->from == 0)
            read_weights(t, g, p);
        forward_linear(t, g, p, is_first);
        is_first = false;
    }
    if (has_linear(t) && is_first)
        add_linear(t, NULL, p, &(struct some_fields){0}, true);
    pack_numbers(t, p);
    struct batch_interaction a = interaction_of(t, p);
    a.logits = t->logits + p->first, a.adds = true;
    interact(t, &a);
    net_forward(&t->net, p->n);
    if (trial_runs(t))
        judge_trial(t, p);
    judge(
        t, p,
        &(struct judged){&t->net, t->logits + p->first, slopes_of(t, p), p->in->there.is_rejected + p->from});
    t->net.first = 0;
}

/* --- as graphs (graph.h) ----------------------------------------------------------------------------------
 */

struct work {
    struct train *t;
    struct piece p;  /* of a step: the whole batch */
    bool is_forward; /* all of it, already */
};

/* fp16 looks at its slopes before it moves by them. */
enum work_kind { WORK_PREDICT, WORK_SLOPES, WORK_MOVE, WORK_LEARN };

static uint64_t digest_of(uint64_t digest, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        digest = num_mix(digest ^ at[i]);
    return digest;
}

/* All that a kernel of forward, backward or an update is told, and that is not the same in every step:
 * whoever gives one a new argument that changes adds it here. */
static uint64_t arguments_of(const struct train *t, const struct train_input *in, enum work_kind kind)
{
    const struct model_options *o = t->options;
    uint64_t sizes[4 + ARRAY_COUNT(t->groups)] = {kind, in->n, t->net.options.precision, trial_runs(t)};
    for (uint32_t i = 0; i < t->groups_count; i++)
        sizes[4 + i] = places_of(&t->groups[i], in);
    uint64_t digest = digest_of(1, sizes, sizeof sizes);
    if (kind == WORK_PREDICT)
        return digest | 1;
    digest = digest_of(digest, &t->net.scale, sizeof t->net.scale);
    digest = digest_of(digest, &o->linear.params, sizeof o->linear.params);
    digest = digest_of(digest, &o->ftrl, sizeof o->ftrl);
    digest = digest_of(digest, &o->embedding.params, sizeof o->embedding.params);
    digest = digest_of(digest, &o->head.params, sizeof o->head.params);
    if (t->rows.format != ROW_FP32) /* which is rounded by the step's seed */
        digest = digest_of(digest, &t->steps, sizeof t->steps);
    return digest | 1;
}

/* Of a call's events, to the host. */
static void copy_logits(struct train *t, float *to, const float *logits, uint32_t n)
{
    for (uint32_t l = 0; l < MAX(t->options->labels, 1U); l++)
        train_copy(&t->device, to + (size_t)l * n, logits + (size_t)l * t->events_max, n * sizeof *logits);
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

/* Who goes forward as a call: the rows of all that were added. */
bool train_look_up_call(struct train *t, uint32_t first, struct piece *p, struct gpu_error *error)
{
    struct train_input *in = &t->call;
    train_input_finish(in, false);
    for (uint32_t i = 0; i < t->groups_count; i++) {
        if (t->rows.finds_numbers)
            dedupe(t, &t->groups[i], in);
        if (!t->rows.find(t->rows.of, t, &t->groups[i], in, error))
            return false;
    }
    *p = (struct piece){.in = in, .n = in->n, .first = first, .by_number = t->rows.finds_numbers};
    return true;
}

bool train_predict_at(struct train *t, const struct train_events *events, uint32_t from, uint32_t to,
                      uint32_t first, double *logits, struct gpu_error *error)
{
    struct train_input *in = &t->call;
    in->n = 0;
    struct train_events all = *events;
    all.learns = NULL;
    train_input_add(in, &all, from, to);
    train_clock_begin(&t->clock, &t->device, TRAIN_SPAN_CALL);
    struct work w = {.t = t};
    if (!train_look_up_call(t, first, &w.p, error) ||
        !train_graph_run(&t->graphs, &t->device, arguments_of(t, in, WORK_PREDICT), predict_all, &w, error))
        return false;
    train_clock_end(&t->clock, &t->device, TRAIN_SPAN_CALL);
    if (!train_wait(&t->device, error))
        return false;
    train_clock_count(&t->clock, &t->device);
    uint32_t labels = MAX(t->options->labels, 1U), n = in->n;
    for (uint32_t l = 0; l < labels; l++)
        for (uint32_t i = 0; i < n; i++)
            logits[(size_t)l * MODEL_ROWS_MAX + from + i] =
                t->host_rejected[i] ? (double)NAN : (double)t->host_logits[(size_t)l * n + i];
    return true;
}

bool train_predict(struct train *t, const struct train_events *events, uint32_t from, uint32_t to,
                   double *logits, struct gpu_error *error)
{
    return train_predict_at(t, events, from, to, t->call_at, logits, error);
}

/* --- back -------------------------------------------------------------------------------------------------
 */

static void begin_back(struct net *net, const struct piece *p, const uint8_t *is_rejected)
{
    net->adds_gradients = p->from > 0;
    net_begin(net);
    net_mask(net, p->n, is_rejected);
}

static void end_back(struct train *t, struct net *net, const struct piece *p, const uint8_t *is_rejected)
{
    struct batch_mask_rows a = {.x = net->output->slopes,
                                .n = p->n,
                                .columns = net->output->columns,
                                .stride = net->output->stride,
                                .is_rejected = is_rejected};
    if (t->options->labels > 1) /* who is rejected by one label is by all */
        t->device.kernels->mask_rows(&a, t->device.stream);
    net->output->has_slopes = true;
    net_backward(net, p->n);
}

static void backward(struct train *t, const struct piece *p)
{
    struct net *net = &t->net;
    const uint8_t *is_rejected = p->in->there.is_rejected + p->from;
    net->input->slopes = t->input_slopes + (size_t)p->from * net->input->stride;
    begin_back(net, p, is_rejected);
    if (t->options->interaction != INTERACTION_NONE && t->options->vectors > 0) {
        struct batch_interaction a = interaction_of(t, p);
        a.slopes = slopes_of(t, p);
        a.grads = net->input->slopes + net->vectors_from, a.grads_stride = net->input->stride;
        interact(t, &a);
        net->input->has_slopes = true;
    }
    if (!net->output)
        return;
    net->output->slopes = slopes_of(t, p);
    end_back(t, net, p, is_rejected);
    if (!trial_runs(t))
        return;
    begin_back(&t->trial->net, p, t->trial->is_rejected);
    end_back(t, &t->trial->net, p, t->trial->is_rejected);
}

/* Slopes of all that the batch moves. */
static void make_slopes(void *of)
{
    struct work *w = of;
    uint32_t all = w->p.n, some = w->t->options->micro > 0 ? w->t->options->micro : all;
    for (struct piece p = w->p; p.from < all; p.from += p.n) {
        p.n = MIN(some, all - p.from);
        if (!w->is_forward)
            train_forward(w->t, &p);
        backward(w->t, &p);
    }
}

/* Slopes of a group's places, by their row. */
static struct batch_segments segments_of(const struct train_group *g, const struct train_input *in)
{
    size_t first = train_input_first(in, g->first);
    return (struct batch_segments){.scales = in->there.scales ? in->there.scales + first : NULL,
                                   .order = g->order,
                                   .starts = g->starts,
                                   .count = g->count,
                                   .n = places_of(g, in)};
}

static void update_vectors(struct train *t, const struct train_group *g, const struct train_input *in)
{
    struct batch_update a = {.in = segments_of(g, in),
                             .rows = g->rows,
                             .keys = g->unique_ids,
                             .format = t->rows.format,
                             .kind = t->options->embedding.kind,
                             .params = t->options->embedding.params,
                             .seed = num_mix(t->options->seed + t->steps + 1),
                             .scratch = t->scratch,
                             .scratch_bytes = t->scratch_bytes};
    a.in.grads = t->input_slopes;
    a.in.bag = in->there.bag + train_input_first(in, g->first);
    a.in.unit = 4, a.in.d = t->net.options.dim;
    t->device.kernels->update(&a, t->device.stream);
}

static void update_weights(struct train *t, const struct train_group *g, const struct train_input *in)
{
    struct batch_weights_update a = {.of = weights_of(t, g->rows, linear_at(t, g)),
                                     .in = segments_of(g, in),
                                     .scratch = t->scratch,
                                     .scratch_bytes = t->scratch_bytes};
    a.in.grads = t->slopes;
    a.in.bag = in->there.event + train_input_first(in, g->first);
    a.in.d = 1;
    t->device.kernels->weights_update(&a, t->device.stream);
}

/* The places of numbers lie `capacity` apart, of which the first n are a step's. */
static bool place_numbers(struct train *t, uint32_t n, struct gpu_error *error)
{
    uint32_t columns = t->options->dense + 1;
    uint32_t *order = t->host_numbers, *starts = order + (size_t)columns * n;
    if (t->numbers_placed == n)
        return true;
    if (!train_wait(&t->device, error)) /* for the last one's copies */
        return false;
    for (uint32_t c = 0; c <= columns; c++)
        starts[c] = c * n;
    for (uint32_t c = 0; c < columns; c++)
        for (uint32_t e = 0; e < n; e++)
            order[c * n + e] = c * t->batch.capacity + e;
    train_copy(&t->device, t->number_order, order, (size_t)columns * n * sizeof *order);
    train_copy(&t->device, t->number_starts, starts, (columns + 1) * sizeof *starts);
    t->numbers_placed = n;
    return true;
}

/* A number's weight has a place an event, whose scale is the number itself; the bias's is 1. */
static void update_numbers(struct train *t, const struct train_input *in)
{
    uint32_t columns = t->options->dense + 1;
    struct batch_weights_update a = {.of = weights_of(t, t->number_rows, 0),
                                     .in = {.grads = t->slopes,
                                            .bag = t->number_event,
                                            .scales = in->there.numbers,
                                            .order = t->number_order,
                                            .starts = t->number_starts,
                                            .count = t->number_count,
                                            .n = columns * in->n,
                                            .d = 1},
                                     .scratch = t->scratch,
                                     .scratch_bytes = t->scratch_bytes};
    t->device.kernels->weights_update(&a, t->device.stream);
}

static void move(void *of)
{
    struct work *w = of;
    struct train *t = w->t;
    for (uint32_t i = 0; i < t->groups_count; i++) {
        if (t->groups[i].has_vectors)
            update_vectors(t, &t->groups[i], w->p.in);
        if (has_linear(t))
            update_weights(t, &t->groups[i], w->p.in);
    }
    if (has_linear(t))
        update_numbers(t, w->p.in);
    net_update(&t->net);
    if (trial_runs(t))
        net_update(&t->trial->net);
}

static void learn_all(void *of)
{
    make_slopes(of);
    move(of);
}

/* fp16: with smaller scales, until all slopes are finite. */
static bool learn(struct train *t, const struct train_input *in, struct gpu_error *error)
{
    struct work w = {.t = t, .p = {.in = in, .n = in->n, .by_number = true}};
    float scale = t->scale.scale;
    bool is_again = true;
    if (!train_forward_left(t, &w.is_forward, error))
        return false;
    if (t->net.options.precision != ROW_FP16)
        return train_graph_run(&t->graphs, &t->device, arguments_of(t, in, WORK_LEARN), learn_all, &w, error);
    while (is_again) {
        uint64_t arguments = arguments_of(t, in, WORK_SLOPES);
        if (!train_graph_run(&t->graphs, &t->device, arguments, make_slopes, &w, error) ||
            !scale_judge(t, scale, &is_again, error))
            return false;
    }
    return train_graph_run(&t->graphs, &t->device, arguments_of(t, in, WORK_MOVE), move, &w, error);
}

bool train_step(struct train *t, struct gpu_error *error)
{
    struct train_input *in = &t->batch;
    leat_assert(in->n > 0 && in->n <= in->capacity);
    if (has_linear(t) && !place_numbers(t, in->n, error))
        return false;
    train_clock_begin(&t->clock, &t->device, TRAIN_SPAN_STEP);
    train_input_finish(in, true);
    for (uint32_t i = 0; i < t->groups_count; i++) {
        dedupe(t, &t->groups[i], in);
        if (!t->rows.resolve(t->rows.of, t, &t->groups[i], error))
            return false;
    }
    t->net.options.params = t->options->head.params;
    if (t->trial)
        t->trial->net.options.params = t->options->head.params;
    if (!learn(t, in, error))
        return false;
    train_clock_end(&t->clock, &t->device, TRAIN_SPAN_STEP);
    t->steps++;
    trial_decide(t);
    in->n = 0;
    return true;
}
