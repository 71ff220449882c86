/* Forward, and the step of a full batch (train.h). */
#include "learners/train/train.h"

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

/* numbers: of each place which of g->rows it is; the places of a group begin at its own 0. */
static void gather(struct train *t, const struct train_group *g, const struct train_input *in,
                   const uint32_t *numbers)
{
    struct batch_gather_pool a = {.rows = (const void *const *)g->rows,
                                  .unique = numbers,
                                  .offsets = offsets_of(g, in),
                                  .bags = g->fields * in->n,
                                  .d = t->net.options.dim,
                                  .fields = g->fields,
                                  .stride = t->net.input->stride,
                                  .format = t->rows.format,
                                  .is_mean = in->has_lists,
                                  .out = t->net.input->values + t->net.vectors_from};
    t->device.kernels->gather_pool(&a, t->device.stream);
}

static void read_weights(struct train *t, struct train_group *g, const uint32_t *count, uint32_t n)
{
    struct batch_weights_read a = {
        .of = weights_of(t, g->rows, linear_at(t, g)), .count = count, .n = n, .out = g->weights};
    t->device.kernels->weights_read(&a, t->device.stream);
}

static void read_numbers(struct train *t)
{
    uint32_t n = t->options->dense + 1;
    struct batch_weights_read a = {
        .of = weights_of(t, t->number_rows, 0), .count = t->number_count, .n = n, .out = t->number_weights};
    t->device.kernels->weights_read(&a, t->device.stream);
}

/* The linear part, a group's after the other's: the first has the bias and the numbers. */
static void forward_linear(struct train *t, const struct train_group *g, const struct train_input *in,
                           const uint32_t *numbers, bool is_first)
{
    uint32_t dense = is_first ? t->options->dense : 0;
    struct batch_weights_forward a = {.start = is_first ? NULL : t->logits,
                                      .base = t->options->bias,
                                      .bias = is_first ? t->number_weights + t->options->dense : NULL,
                                      .dense = in->there.numbers,
                                      .dense_weights = t->number_weights,
                                      .dense_stride = in->capacity,
                                      .dense_count = dense,
                                      .is_rejected = in->there.is_rejected,
                                      .weights = g ? g->weights : NULL,
                                      .unique = numbers,
                                      .offsets = g ? offsets_of(g, in) : NULL,
                                      .fields = g ? g->fields : 0,
                                      .n = in->n,
                                      .logits = t->logits};
    t->device.kernels->weights_forward(&a, t->device.stream);
}

static struct batch_interaction interaction_of(const struct train *t, const struct train_input *in)
{
    return (struct batch_interaction){.vectors = t->net.input->values + t->net.vectors_from,
                                      .bags = in->n,
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

static void pack_numbers(struct train *t, const struct train_input *in)
{
    const struct model_options *o = t->options;
    struct batch_pack a = {.columns = in->there.numbers,
                           .columns_stride = in->capacity,
                           .count = o->dense,
                           .n = in->n,
                           .is_rejected = in->there.is_rejected,
                           .out = t->net.input->values + t->net.vectors_from +
                                  (size_t)o->vectors * t->net.options.dim,
                           .stride = t->net.input->stride};
    if (o->dense > 0 && o->network != NETWORK_NONE)
        t->device.kernels->pack(&a, t->device.stream);
}

/* Logits and, in is_rejected, who has none; slopes into `slopes` [n][stride], but that of the network. */
static void judge(struct train *t, const struct train_input *in)
{
    const struct model_options *o = t->options;
    uint32_t labels = MAX(o->labels, 1U);
    const struct net_matrix *out = t->net.output;
    for (uint32_t l = 0; l < labels; l++) {
        float *logits = t->logits + (size_t)l * t->events_max;
        struct batch_loss a = {.logits = logits,
                               .more = out ? out->values + l : NULL,
                               .more_stride = out ? out->stride : 0,
                               .labels = in->there.labels + (size_t)l * in->capacity,
                               .weights = in->there.weights,
                               .class_weights = {1.0F, 1.0F},
                               .is_squared = o->loss == LOSS_SQUARED,
                               .has_fake_negatives = o->has_fake_negatives,
                               .scale = 1.0F,
                               .n = in->n,
                               .sums = logits,
                               .slopes = t->slopes + l,
                               .slopes_stride = out ? out->stride : 1,
                               .is_rejected = in->there.is_rejected};
        t->device.kernels->loss(&a, t->device.stream);
    }
}

/* by_number: places have the rows of their numbers; else each has its own. */
static void forward(struct train *t, const struct train_input *in, bool by_number)
{
    bool is_first = true;
    if (has_linear(t))
        read_numbers(t);
    else
        train_fill(&t->device, t->logits, 0, t->logits_bytes);
    for (uint32_t i = 0; i < t->groups_count; i++) {
        struct train_group *g = &t->groups[i];
        const uint32_t *numbers = by_number ? g->unique : t->iota;
        if (g->has_vectors)
            gather(t, g, in, numbers);
        if (!has_linear(t))
            continue;
        uint32_t places = places_of(g, in);
        read_weights(t, g, by_number ? g->count : t->iota + places, places); /* iota[n] is n */
        forward_linear(t, g, in, numbers, is_first);
        is_first = false;
    }
    if (has_linear(t) && is_first)
        forward_linear(t, NULL, in, NULL, true);
    pack_numbers(t, in);
    struct batch_interaction a = interaction_of(t, in);
    a.logits = t->logits, a.adds = true;
    interact(t, &a);
    net_forward(&t->net, in->n);
    judge(t, in);
}

/* --- as graphs (graph.h) ----------------------------------------------------------------------------------
 */

struct work {
    struct train *t;
    const struct train_input *in;
};

static uint64_t digest_of(uint64_t digest, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        digest = num_mix(digest ^ at[i]);
    return digest;
}

/* All that a kernel of forward, backward or an update is told, and that is not the same in every step:
 * whoever gives one a new argument that changes adds it here. */
static uint64_t arguments_of(const struct train *t, const struct train_input *in, bool learns)
{
    const struct model_options *o = t->options;
    uint64_t sizes[2 + ARRAY_COUNT(t->groups)] = {learns ? 1 : 2, in->n};
    for (uint32_t i = 0; i < t->groups_count; i++)
        sizes[2 + i] = places_of(&t->groups[i], in);
    uint64_t digest = digest_of(1, sizes, sizeof sizes);
    if (!learns)
        return digest | 1;
    digest = digest_of(digest, &o->linear.params, sizeof o->linear.params);
    digest = digest_of(digest, &o->ftrl, sizeof o->ftrl);
    digest = digest_of(digest, &o->embedding.params, sizeof o->embedding.params);
    digest = digest_of(digest, &o->head.params, sizeof o->head.params);
    if (t->rows.format != ROW_FP32) /* which is rounded by the step's seed */
        digest = digest_of(digest, &t->steps, sizeof t->steps);
    return digest | 1;
}

static void predict_all(void *of)
{
    struct work *w = of;
    struct train *t = w->t;
    uint32_t labels = MAX(t->options->labels, 1U), n = w->in->n;
    forward(t, w->in, t->rows.finds_numbers);
    for (uint32_t l = 0; l < labels; l++)
        train_copy(&t->device, t->host_logits + (size_t)l * n, t->logits + (size_t)l * t->events_max,
                   n * sizeof *t->logits);
    train_copy(&t->device, t->host_rejected, w->in->there.is_rejected, n);
}

bool train_predict(struct train *t, const struct train_events *events, uint32_t from, uint32_t to,
                   double *logits, struct gpu_error *error)
{
    struct train_input *in = &t->call;
    in->n = 0;
    struct train_events all = *events;
    all.learns = NULL;
    train_input_add(in, &all, from, to);
    train_clock_begin(&t->clock, &t->device, TRAIN_SPAN_CALL);
    train_input_finish(in, false);
    for (uint32_t i = 0; i < t->groups_count; i++) {
        if (t->rows.finds_numbers)
            dedupe(t, &t->groups[i], in);
        if (!t->rows.find(t->rows.of, t, &t->groups[i], in, error))
            return false;
    }
    struct work w = {t, in};
    if (!train_graph_run(&t->graphs, &t->device, arguments_of(t, in, false), predict_all, &w, error))
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

void train_add(struct train *t, const struct train_events *events, uint32_t from, uint32_t to)
{
    train_input_add(&t->batch, events, from, to);
}

/* --- back -------------------------------------------------------------------------------------------------
 */

static void backward(struct train *t, const struct train_input *in)
{
    struct net *net = &t->net;
    net_begin(net);
    net_mask(net, in->n, in->there.is_rejected);
    if (t->options->interaction != INTERACTION_NONE && t->options->vectors > 0) {
        struct batch_interaction a = interaction_of(t, in);
        a.slopes = t->slopes;
        a.grads = net->input->slopes + net->vectors_from, a.grads_stride = net->input->stride;
        interact(t, &a);
        net->input->has_slopes = true;
    }
    if (!net->output)
        return;
    if (t->options->labels > 1) { /* who is rejected by one label is by all */
        struct batch_mask_rows a = {.x = net->output->slopes,
                                    .n = in->n,
                                    .columns = net->output->columns,
                                    .stride = net->output->stride,
                                    .is_rejected = in->there.is_rejected};
        t->device.kernels->mask_rows(&a, t->device.stream);
    }
    net->output->has_slopes = true;
    net_backward(net, in->n);
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
    a.in.grads = t->net.input->slopes;
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

static void learn_all(void *of)
{
    struct work *w = of;
    struct train *t = w->t;
    forward(t, w->in, true);
    backward(t, w->in);
    for (uint32_t i = 0; i < t->groups_count; i++) {
        if (t->groups[i].has_vectors)
            update_vectors(t, &t->groups[i], w->in);
        if (has_linear(t))
            update_weights(t, &t->groups[i], w->in);
    }
    if (has_linear(t))
        update_numbers(t, w->in);
    net_update(&t->net);
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
    struct work w = {t, in};
    if (!train_graph_run(&t->graphs, &t->device, arguments_of(t, in, true), learn_all, &w, error))
        return false;
    train_clock_end(&t->clock, &t->device, TRAIN_SPAN_STEP);
    t->steps++;
    in->n = 0;
    return true;
}
