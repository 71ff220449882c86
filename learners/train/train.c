/* Plans, takes and frees the memory of a struct train. The training step itself is in step.c. */
#include "learners/train/step.h"

#include "core/base.h"
#include "core/mem.h"

#include <math.h>
#include <stdlib.h>

enum {
    WEIGHT_BYTES = 16, /* a linear weight with its state: the model's LINEAR_BYTES */
    /* floats in a CPU's widest vector; layers go back by ids (distinct.c) only if the vectors' length is a
     * multiple of it, because a product with fewer columns takes as long as with this many */
    BY_IDS_DIM = 16,
};

/* --- Making --- */

static struct net_options network_of(const struct model_options *o)
{
    struct net_options n = {.network = o->network,
                            .own = o->network_own,
                            .fields = o->vectors,
                            .dim = model_vector_floats(o),
                            .dense = o->dense,
                            .labels = MAX(o->labels, 1U),
                            .optimizer = o->head.kind,
                            .params = o->head.params,
                            .accumulator = o->head.accumulator,
                            .clip_norm = o->clip_norm,
                            .precision = o->precision,
                            .slices_max = batch_slices_of(o->batch, o->slice).count,
                            .seed = num_mix(o->seed ^ 0x4ead)};
    memcpy(n.hidden, o->hidden, sizeof(n.hidden));
    return n;
}

static bool have_lists(const struct model_options *o, uint32_t fields)
{
    bool have = false;
    for (uint32_t f = 0; f < fields; f++)
        have |= o->is_list[f];
    return have;
}

/* Floats of an embedding vector; with FFM all parts of it. */
static uint32_t vector_floats(const struct train *t)
{
    return t->net.options.dim;
}

static void group_take(struct train_group *g, struct train_memory *memory)
{
    size_t n = g->places_max;
    g->count = train_take(memory, TRAIN_ROWS, 1, sizeof(*g->count));
    g->indices = train_take(memory, TRAIN_ROWS, n, sizeof(*g->indices));
    g->unique_ids = train_take(memory, TRAIN_ROWS, n, sizeof(*g->unique_ids));
    g->unique_tables = train_take(memory, TRAIN_ROWS, n, sizeof(*g->unique_tables));
    g->order = train_take(memory, TRAIN_ROWS, n, sizeof(*g->order));
    g->starts = train_take(memory, TRAIN_ROWS, n + 1, sizeof(*g->starts));
    g->rows = train_take(memory, TRAIN_ROWS, n, sizeof(*g->rows));
    g->known = train_take(memory, TRAIN_ROWS, n, sizeof(*g->known));
    g->weights = train_take(memory, TRAIN_ROWS, n, sizeof(*g->weights));
    g->slots = train_take(memory, TRAIN_ROWS, g->slots_bytes, 1);
}

static void groups_shape(struct train *t)
{
    const struct model_options *o = t->options;
    uint32_t events = MAX(o->batch, (uint32_t)MODEL_ROWS_MAX); /* of a batch or of a call */
    size_t places = 0;
    for (uint32_t f = 0; f < o->fields; f++) {
        struct train_group *g = &t->groups[train_group_of(o, &t->device, f)];
        if (g == &t->groups[t->groups_count]) {
            *g = (struct train_group){.first = f, .has_vectors = f < o->vectors};
            g->places_before = places;
            t->groups_count++;
        }
        uint32_t count = model_field_ids(o, f) * events;
        g->fields++;
        g->places_max += count, places += count;
    }
    memcpy(t->sets[1], t->sets[0], sizeof(t->sets[0]));
}

/* Returns the most bytes of scratch memory that a single kernel of a step needs. Also sets
 * feed.scratch_bytes, the most that dedupe needs, and the groups' slots_bytes. */
static size_t scratch_of(struct train *t)
{
    const struct batch_kernels *k = t->device.kernels;
    size_t most = BATCH_SCRATCH_MIN;
    for (uint32_t i = 0; i < t->groups_count; i++) {
        const struct train_group *g = &t->groups[i];
        struct batch_segments in = {.n = g->places_max, .d = MAX(vector_floats(t), 4U)};
        struct batch_dedupe dedupe = {.tables_count = g->fields, .n = g->places_max, .method = DEDUPE_HASH};
        struct batch_update update = {.in = in, .kind = t->options->embedding.kind};
        struct batch_weights_update weights = {.in = {.n = g->places_max, .d = 1}};
        k->dedupe(&dedupe, t->device.stream);
        k->update(&update, t->device.stream);
        k->weights_update(&weights, t->device.stream);
        t->feed.scratch_bytes = MAX(t->feed.scratch_bytes, dedupe.scratch_bytes);
        most = MAX(MAX(most, dedupe.scratch_bytes), MAX(update.scratch_bytes, weights.scratch_bytes));
    }
    struct batch_dedupe batch = {.tables_count = 1, .n = t->options->batch, .method = DEDUPE_HASH};
    k->dedupe(&batch, t->device.stream);
    /* Where indices are kept, a group is one field without lists: one place per event. */
    for (uint32_t i = 0; i < t->groups_count && t->keeps_indices; i++)
        t->groups[i].slots_bytes = batch.scratch_bytes;
    struct batch_weights_update features = {.in = {.n = (t->options->dense + 1) * t->options->batch, .d = 1}};
    k->weights_update(&features, t->device.stream);
    return MAX(most, features.scratch_bytes);
}

static void take_all(struct train *t, struct train_memory *memory)
{
    size_t n = t->events_max, dense = t->options->dense;
    train_input_take(&t->batch, memory);
    train_input_take(&t->call, memory);
    for (uint32_t s = 0; s < (t->device.api ? FEED_SETS : 1); s++)
        for (uint32_t i = 0; i < t->groups_count; i++)
            group_take(&t->sets[s][i], memory);
    if (t->rows.take)
        t->rows.take(t->rows.of, memory);
    net_take(&t->net, memory);
    trial_take(t, memory);
    distinct_take(t, memory);
    t->dense_event = train_take(memory, TRAIN_ROWS, (dense + 1) * t->batch.capacity, sizeof(*t->dense_event));
    t->dense_order = train_take(memory, TRAIN_ROWS, (dense + 1) * t->batch.capacity, sizeof(*t->dense_order));
    t->dense_starts = train_take(memory, TRAIN_ROWS, dense + 2, sizeof(*t->dense_starts));
    t->dense_count = train_take(memory, TRAIN_ROWS, 1, sizeof(*t->dense_count));
    t->dense_rows = train_take(memory, TRAIN_PARAMETERS, dense + 1, sizeof(*t->dense_rows));
    t->dense_weights = train_take(memory, TRAIN_PARAMETERS, dense + 1, sizeof(*t->dense_weights));
    t->dense_params = train_take(memory, TRAIN_PARAMETERS, dense + 1, WEIGHT_BYTES);
    t->logits_bytes = MAX(t->options->labels, 1U) * n * sizeof(*t->logits);
    t->logits = train_take(memory, TRAIN_ACTIVATIONS, t->logits_bytes, 1);
    t->input_gradients = t->net.input->gradients;
    if (t->net.output != NULL)
        t->out_gradients = t->net.output->gradients; /* with one label: also the gradients by the logits */
    else
        t->out_gradients = train_take(memory, TRAIN_ACTIVATIONS, n, sizeof(*t->out_gradients));
    for (unsigned who = 0; who < (t->device.api ? 1 : SHARE_THREADS); who++)
        t->scratch[who] = train_take(memory, TRAIN_SCRATCH, t->scratch_bytes, 1);
    if (t->device.api != NULL)
        t->feed.scratch = train_take(memory, TRAIN_SCRATCH, t->feed.scratch_bytes, 1);
}

/* Fills the arrays of the dense features that never change (dense_event, dense_count, dense_rows): makes them
 * in host memory and copies them to the device. Waits. */
static bool send_constants(struct train *t, struct gpu_error *error)
{
    size_t n = t->batch.capacity, columns = (size_t)t->options->dense + 1;
    size_t bytes = (1 + columns * n) * sizeof(uint32_t) + columns * sizeof(void *);
    void **rows = train_host_new(&t->device, bytes, error);
    if (rows == NULL)
        return false;
    uint32_t *count = (uint32_t *)(void *)(rows + columns), *event = count + 1;
    count[0] = (uint32_t)columns;
    for (size_t i = 0; i < columns * n; i++)
        event[i] = (uint32_t)(i % n);
    for (size_t c = 0; c < columns; c++)
        rows[c] = (unsigned char *)t->dense_params + c * WEIGHT_BYTES;
    train_copy(&t->device, t->dense_event, event, columns * n * sizeof(*event));
    train_copy(&t->device, t->dense_count, count, sizeof(*count));
    train_copy(&t->device, t->dense_rows, rows, columns * sizeof(*rows));
    bool is_good = train_wait(&t->device, error);
    train_host_free(&t->device, rows);
    return is_good;
}

/* Sets the members of `t` that hold shapes and sizes; takes none of the step's memory. */
static void shape(struct train *t, const struct train_setup *setup)
{
    const struct model_options *o = setup->options;
    *t = (struct train){.options = o, .device = setup->device, .rows = setup->rows, .epoch = 1};
    /* Whether the step can use the matrices that the predictions filled. Not if a batch goes through the
     * network in pieces, because a later piece overwrites the matrices; not in fp16, where a step may be
     * repeated. */
    bool goes_once = t->device.api == NULL && o->micro == 0 && o->precision != ROW_FP16;
    t->call_at = goes_once ? o->batch : 0;
    t->events_max = MAX(o->batch, t->call_at + (uint32_t)MODEL_ROWS_MAX);
    struct net_options network = network_of(o);
    network.may_go_by_ids = goes_once && o->precision == ROW_FP32 && !o->is_like_device &&
                            !have_lists(o, o->vectors) && network.dim > 0 && network.dim % BY_IDS_DIM == 0;
    uint32_t together = o->micro > 0 ? MAX(o->micro, (uint32_t)MODEL_ROWS_MAX) : t->events_max;
    net_shape(&t->net, &network, &t->device, together, t->events_max);
    if (t->device.api == NULL && network.network != NULL)
        t->net.second = net_second(&t->net);
    t->trial = trial_new(t, &network, together);
    t->groups = t->sets[0];
    t->keeps_indices = t->device.api == NULL && !have_lists(o, o->fields);
    groups_shape(t);
    t->memory.device = &t->device;
    t->scratch_bytes = scratch_of(t);
    train_input_shape(&t->batch, o, &t->device, o->batch, &t->net);
    train_input_shape(&t->call, o, &t->device, MODEL_ROWS_MAX, &t->net);
}

static struct train *new_shape(const struct train_setup *setup)
{
    struct train *t = mem_calloc(1, sizeof(*t));
    shape(t, setup);
    return t;
}

/* Bytes of host_order: order and starts of the dense features' places. */
static size_t host_order_bytes(const struct train *t)
{
    return (((size_t)t->options->dense + 1) * ((size_t)t->batch.capacity + 1) + 1) * sizeof(uint32_t);
}

static size_t host_logits_bytes(const struct train *t)
{
    return (size_t)MAX(t->options->labels, 1U) * MODEL_ROWS_MAX * sizeof(float);
}

void train_plan(const struct train_setup *setup, struct train_plan *plan)
{
    struct train *t = new_shape(setup);
    take_all(t, &t->memory);
    memcpy(plan->parts, t->memory.parts, sizeof(plan->parts));
    plan->host = train_input_host_bytes(&t->batch) + train_input_host_bytes(&t->call) + host_logits_bytes(t) +
                 host_order_bytes(t) + MODEL_ROWS_MAX + net_gradient_rows(&t->net);
    train_free(t);
}

struct train *train_new(const struct train_setup *setup, struct gpu_error *error)
{
    leat_assert(setup->options->batch <= BATCH_SLICES_EVENTS);
    struct train *t = new_shape(setup);
    bool is_good = train_input_make(&t->batch, error) && train_input_make(&t->call, error);
    if (is_good) {
        take_all(t, &t->memory);
        is_good = train_memory_make(&t->memory, error);
    }
    if (is_good) {
        take_all(t, &t->memory);
        t->host_logits = train_host_new(&t->device, host_logits_bytes(t), error);
        t->host_rejected = train_host_new(&t->device, MODEL_ROWS_MAX, error);
        t->host_order = train_host_new(&t->device, host_order_bytes(t), error);
        t->host_finite = train_host_new(&t->device, net_gradient_rows(&t->net), error);
        is_good = t->host_logits != NULL && t->host_rejected != NULL && t->host_order != NULL &&
                  t->host_finite != NULL && train_clock_init(&t->clock, &t->device, error) &&
                  feed_init(&t->feed, &t->device, error) && send_constants(t, error) &&
                  net_start(&t->net, setup->kernels, error) && trial_start(t, setup->kernels, error);
        (void)scale_set(t, (struct train_scale){.scale = SCALE_FIRST});
    }
    if (is_good)
        return t;
    train_free(t);
    return NULL;
}

void train_free(struct train *t)
{
    if (t == NULL)
        return;
    feed_free(&t->feed);
    train_graphs_free(&t->graphs, &t->device);
    train_clock_free(&t->clock, &t->device);
    train_input_free(&t->batch);
    train_input_free(&t->call);
    train_host_free(&t->device, t->host_logits);
    train_host_free(&t->device, t->host_rejected);
    train_host_free(&t->device, t->host_order);
    train_host_free(&t->device, t->host_finite);
    trial_free(t);
    free(t->net.second);
    train_memory_free(&t->memory);
    free(t);
}

bool train_save_dense(struct train *t, float *floats, struct gpu_error *error)
{
    size_t bytes = ((size_t)t->options->dense + 1) * WEIGHT_BYTES;
    float *host = train_host_new(&t->device, bytes, error);
    if (host == NULL)
        return false;
    train_copy(&t->device, host, t->dense_params, bytes);
    bool is_good = train_wait(&t->device, error);
    memcpy(floats, host, bytes);
    train_host_free(&t->device, host);
    return is_good;
}

bool train_load_dense(struct train *t, const float *floats, struct gpu_error *error)
{
    size_t bytes = ((size_t)t->options->dense + 1) * WEIGHT_BYTES;
    float *host = train_host_new(&t->device, bytes, error);
    if (host == NULL)
        return false;
    memcpy(host, floats, bytes);
    train_copy(&t->device, t->dense_params, host, bytes);
    bool is_good = train_wait(&t->device, error);
    train_host_free(&t->device, host);
    return is_good;
}
