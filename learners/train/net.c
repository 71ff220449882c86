/* Connects the layers of a network; their memory; the parameters' steps. */
#include "learners/train/net.h"
#include "learners/train/share.h"

#include "core/base.h"
#include "core/mem.h"
#include "kernels/num.h"

#include <math.h>
#include <stdlib.h>

enum {
    /* rows of the input are padded to whole cache lines of floats, so that a vector of 16 lies in one line */
    INPUT_ROW = 16,
    PARAMS_ROW = 64,   /* parameters are padded to whole rows of this many floats, which `check` sums */
    BY_IDS_LEAST = 32, /* least outputs of a layer that goes back by ids: fewer are not worth their sums */
};

static uint32_t whole(uint32_t columns)
{
    return (columns + 3) / 4 * 4;
}

/* --- Shape --- */

struct net_matrix *net_add_matrix(struct net *net, uint32_t columns)
{
    leat_assert(net->matrices_count < NET_LAYERS_MAX && columns > 0);
    struct net_matrix *m = &net->matrices[net->matrices_count++];
    *m = (struct net_matrix){.columns = columns, .stride = whole(columns)};
    return m;
}

struct net_matrix *net_add_places(struct net *net, uint32_t places, uint32_t columns)
{
    struct net_matrix *m = net_add_matrix(net, places * columns);
    m->stride = m->columns;
    return m;
}

struct net_matrix *net_add_input(struct net *net, uint32_t front)
{
    const struct net_options *o = &net->options;
    net->vectors_from = front;
    uint32_t dense = o->network != NULL ? o->dense : 0, columns = front + o->fields * o->dim + dense;
    net->input = net_add_matrix(net, MAX(columns, 1U));
    if (columns > INPUT_ROW)
        net->input->stride = (columns + INPUT_ROW - 1) / INPUT_ROW * INPUT_ROW;
    return net->input;
}

struct net_matrix *net_add_output_columns(struct net *net, uint32_t columns)
{
    net->output = net_add_matrix(net, columns);
    if (columns == 1)
        net->output->stride = 1; /* its gradients are those by the logits of the whole model */
    return net->output;
}

struct net_matrix *net_add_output(struct net *net)
{
    return net_add_output_columns(net, net->options.labels);
}

struct net_layer *net_add_layer(struct net *net, const struct net_layer_kind *kind, struct net_matrix *in,
                                struct net_matrix *out)
{
    leat_assert(net->layers_count < NET_LAYERS_MAX);
    struct net_layer *l = &net->layers[net->layers_count++];
    *l = (struct net_layer){
        .kind = kind, .in = in, .out = out, .in_columns = in->columns, .places = 1, .segment = net->segment};
    return l;
}

struct net_params *net_add_params(struct net *net, uint32_t n, uint32_t d)
{
    leat_assert(net->params_count < NET_LAYERS_MAX);
    struct net_params *p = &net->params[net->params_count++];
    *p = (struct net_params){.n = n, .d = d, .stride = whole(d)};
    p->floats = ((size_t)n * p->stride + n + PARAMS_ROW - 1) / PARAMS_ROW * PARAMS_ROW;
    return p;
}

struct net_layer *net_add_dense(struct net *net, struct net_matrix *in, uint32_t from, uint32_t columns,
                                struct net_matrix *out, uint32_t at, uint32_t n, bool is_relu)
{
    struct net_layer *l = net_add_layer(net, &net_dense, in, out);
    l->in_from = from, l->in_columns = columns, l->out_from = at;
    l->is_relu = is_relu;
    l->params = net_add_params(net, n, columns);
    l->is_by_ids =
        net->options.may_go_by_ids && in == net->input && columns == in->columns && n >= BY_IDS_LEAST;
    out->keeps_gradients |= l->is_by_ids;
    net->is_by_ids |= l->is_by_ids;
    l->bound = sqrtf((is_relu ? 6.0F : 1.0F) / (float)columns);
    if (net->is_glorot)
        l->bound = sqrtf(6.0F / (float)(columns + n));
    if (net->options.init > 0.0F)
        l->bound = net->options.init;
    return l;
}

struct net_layer *net_add_dense_places(struct net *net, struct net_matrix *in, struct net_matrix *out,
                                       uint32_t places, bool is_relu)
{
    leat_assert(in->columns % places == 0 && in->stride == in->columns);
    leat_assert(out->columns % places == 0 && out->stride == out->columns);
    struct net_layer *l =
        net_add_dense(net, in, 0, in->columns / places, out, 0, out->columns / places, is_relu);
    l->places = places;
    return l;
}

struct net_matrix *net_add_relu_layers(struct net *net, struct net_matrix *in, const uint32_t *widths)
{
    for (uint32_t i = 0; i < MODEL_LAYERS_MAX && widths[i] > 0; i++) {
        struct net_matrix *out = net_add_matrix(net, widths[i]);
        out->is_relu = true;
        net_add_dense(net, in, 0, in->columns, out, 0, widths[i], true);
        in = out;
    }
    return in;
}

void net_shape(struct net *net, const struct net_options *options, const struct train_device *device,
               uint32_t events_max, uint32_t gradients_max)
{
    *net = (struct net){.device = device,
                        .options = *options,
                        .events_max = events_max,
                        .gradients_max = gradients_max,
                        .scale = 1.0F};
    if (options->network != NULL)
        options->network->shape(net, options->own);
    else
        net_add_input(net, 0);
    segments_shape(net);
}

/* --- Memory --- */

static void params_take(struct net *net, struct net_params *p, struct train_memory *memory)
{
    size_t states = opt_state_floats(net->options.optimizer, p->floats);
    p->w = train_take(memory, TRAIN_PARAMETERS, p->floats, sizeof(float));
    p->state = train_take(memory, TRAIN_PARAMETERS, states, sizeof(float));
    size_t levels = 1 + (size_t)__builtin_ctz(MAX(net->options.slices_max, 1U));
    p->gradient = train_take(memory, TRAIN_PARAMETERS, levels * p->floats, sizeof(float));
}

size_t net_gradient_rows(const struct net *net)
{
    size_t rows = 0;
    for (uint32_t i = 0; i < net->params_count; i++)
        rows += net->params[i].floats / PARAMS_ROW;
    return rows;
}

/* The kernel `check` over a gradient, in rows of PARAMS_ROW floats. */
static struct batch_check squares_of(const struct net *net, const struct net_params *p, double *total)
{
    return (struct batch_check){.x = p->gradient,
                                .rows = (uint32_t)(p->floats / PARAMS_ROW),
                                .d = PARAMS_ROW,
                                .total = total,
                                .scratch_bytes = net->scratch_bytes};
}

static size_t squares_scratch(const struct net *net, const struct net_params *p)
{
    struct batch_check a = squares_of(net, p, NULL);
    net->device->kernels->check(&a, net->device->stream);
    return a.scratch_bytes;
}

void net_take(struct net *net, struct train_memory *memory)
{
    size_t n = net->events_max, tile = windows_tile_rows(net, net_tile(net, net->events_max));
    for (uint32_t i = 0; i < net->matrices_count; i++) {
        struct net_matrix *m = &net->matrices[i];
        if (m->segment > 0)
            continue;
        bool keeps_gradients = m == net->input || m == net->output || m->keeps_gradients;
        size_t gradients = keeps_gradients ? net->gradients_max : tile;
        m->values = train_take(memory, TRAIN_ACTIVATIONS, n * m->stride, sizeof(float));
        m->gradients = train_take(memory, TRAIN_ACTIVATIONS, gradients * m->stride, sizeof(float));
        m->all_gradients = m->keeps_gradients ? m->gradients : NULL;
    }
    segments_take(net, memory, tile);
    for (uint32_t i = 0; i < net->params_count; i++)
        params_take(net, &net->params[i], memory);
    net->scratch_bytes = BATCH_SCRATCH_MIN;
    for (uint32_t i = 0; i < net->layers_count; i++) {
        struct net_layer *l = &net->layers[i];
        if (l->kind->scratch)
            net->scratch_bytes = MAX(net->scratch_bytes, l->kind->scratch(net, l, (uint32_t)tile));
    }
    bool is_checked = net->options.clip_norm > 0.0F || net->options.precision == ROW_FP16;
    for (uint32_t i = 0; i < net->params_count && is_checked; i++)
        net->scratch_bytes = MAX(net->scratch_bytes, squares_scratch(net, &net->params[i]));
    net->squares = train_take(memory, TRAIN_PARAMETERS, NET_LAYERS_MAX, sizeof(*net->squares));
    net->clip = train_take(memory, TRAIN_PARAMETERS, 1, sizeof(*net->clip));
    if (net->options.precision == ROW_FP16)
        net->is_finite = train_take(memory, TRAIN_PARAMETERS, net_gradient_rows(net), 1);
    net->scratch = train_take(memory, TRAIN_SCRATCH, net->scratch_bytes, 1);
    if (net->options.window_max > 0)
        windows_take(net, memory);
    if (net->second != NULL)
        net_second_take(net, memory);
}

/* --- Parameters --- */

/* A saved layer has n * d weights without padding, n biases, then each of the optimizer's states in the same
 * order. unpad copies one such array of p to its saved form, pad copies it back. */
static void unpad(const struct net_params *p, float *to, const float *from)
{
    for (uint32_t i = 0; i < p->n; i++)
        memcpy(to + (size_t)i * p->d, from + (size_t)i * p->stride, p->d * sizeof(*to));
    memcpy(to + (size_t)p->n * p->d, from + (size_t)p->n * p->stride, p->n * sizeof(*to));
}

static void pad(const struct net_params *p, float *to, const float *from)
{
    for (uint32_t i = 0; i < p->n; i++)
        memcpy(to + (size_t)i * p->stride, from + (size_t)i * p->d, p->d * sizeof(*to));
    memcpy(to + (size_t)p->n * p->stride, from + (size_t)p->n * p->d, p->n * sizeof(*to));
}

/* Number of arrays of p->floats that a parameter has: its weights and its optimizer's states. */
static size_t arrays(const struct net *net)
{
    return 1 + opt_state_floats(net->options.optimizer, PARAMS_ROW) / PARAMS_ROW;
}

static size_t saved_weights(const struct net_params *p)
{
    return (size_t)p->n * p->d + p->n;
}

size_t net_saved_floats(const struct net *net, uint32_t p)
{
    return arrays(net) * saved_weights(&net->params[p]);
}

static float *array_of(const struct net_params *p, size_t which)
{
    return which == 0 ? p->w : p->state + (which - 1) * p->floats;
}

/* The first `count` of a parameter's arrays. */
static bool save_arrays(const struct net *net, uint32_t number, size_t count, float *floats,
                        struct gpu_error *error)
{
    const struct net_params *p = &net->params[number];
    float *padded = train_host_new(net->device, p->floats * sizeof(*padded), error);
    bool is_good = padded != NULL;
    for (size_t a = 0; a < count && is_good; a++) {
        train_copy(net->device, padded, array_of(p, a), p->floats * sizeof(*padded));
        is_good = train_wait(net->device, error);
        unpad(p, floats + a * saved_weights(p), padded);
    }
    train_host_free(net->device, padded);
    return is_good;
}

static bool load_arrays(struct net *net, uint32_t number, size_t count, const float *floats,
                        struct gpu_error *error)
{
    const struct net_params *p = &net->params[number];
    float *padded = train_host_new(net->device, p->floats * sizeof(*padded), error);
    bool is_good = padded != NULL;
    for (size_t a = 0; a < count && is_good; a++) {
        for (size_t i = 0; i < p->floats; i++) /* padding never has a gradient */
            padded[i] = a == 0 ? 0.0F : opt_state_init(net->options.optimizer, net->options.accumulator);
        pad(p, padded, floats + a * saved_weights(p));
        for (uint32_t i = 0; a == 0 && i < p->n; i++)
            memset(padded + (size_t)i * p->stride + p->d, 0, (p->stride - p->d) * sizeof(*padded));
        train_copy(net->device, array_of(p, a), padded, p->floats * sizeof(*padded));
        is_good = train_wait(net->device, error);
    }
    train_host_free(net->device, padded);
    return is_good;
}

bool net_save(const struct net *net, uint32_t number, float *floats, struct gpu_error *error)
{
    return save_arrays(net, number, arrays(net), floats, error);
}

bool net_load(struct net *net, uint32_t number, const float *floats, struct gpu_error *error)
{
    return load_arrays(net, number, arrays(net), floats, error);
}

bool net_save_weights(const struct net *net, uint32_t number, float *floats, struct gpu_error *error)
{
    return save_arrays(net, number, 1, floats, error);
}

bool net_load_weights(struct net *net, uint32_t number, const float *floats, struct gpu_error *error)
{
    return load_arrays(net, number, 1, floats, error);
}

bool net_start(struct net *net, const struct kernels *kernels, struct gpu_error *error)
{
    bool is_good = net->options.window_max == 0 || windows_pin(net, error);
    net->kernels = kernels;
    for (uint32_t i = 0; i < net->layers_count && is_good; i++) {
        const struct net_layer *l = &net->layers[i];
        if (!l->params)
            continue;
        uint32_t number = (uint32_t)(l->params - net->params);
        size_t weights = saved_weights(l->params), all = net_saved_floats(net, number);
        size_t starts = (size_t)(l->starts > 0 ? l->starts : l->params->n) * l->params->d;
        float *floats = mem_calloc(all + 16, sizeof(*floats));
        kernels->init_uniform(floats, num_mix(net->options.seed + number + 1), l->bound,
                              (size_t)l->params->n * l->params->d);
        for (size_t f = 0; f < starts && l->start != 0.0F; f++)
            floats[f] += l->start;
        for (size_t f = weights; f < all; f++)
            floats[f] = opt_state_init(net->options.optimizer, net->options.accumulator);
        is_good = net_load(net, number, floats, error);
        free(floats);
    }
    return is_good;
}

void net_stop(struct net *net)
{
    if (net->options.window_max > 0)
        windows_unpin(net);
}

void net_check(struct net *net)
{
    uint8_t *is_finite = net->is_finite;
    for (uint32_t i = 0; i < net->params_count; i++) {
        struct batch_check a = squares_of(net, &net->params[i], NULL);
        a.is_finite = is_finite, a.scratch = net->scratch;
        net->device->kernels->check(&a, net->device->stream);
        is_finite += a.rows;
    }
}

/* Sets net->clip by the norm of all gradients together. */
static void clip(struct net *net)
{
    const struct batch_kernels *k = net->device->kernels;
    for (uint32_t i = 0; i < net->params_count; i++) {
        struct batch_check a = squares_of(net, &net->params[i], net->squares + i);
        a.scratch = net->scratch;
        k->check(&a, net->device->stream);
    }
    struct batch_clip c = {.squares = net->squares,
                           .count = net->params_count,
                           .norm_max = net->options.clip_norm,
                           .scale = net->clip};
    k->clip(&c, net->device->stream);
}

static bool is_clipped(const struct net *net)
{
    return net->options.clip_norm > 0.0F;
}

static void update_params(void *of, uint32_t number, unsigned who)
{
    (void)who;
    const struct net *net = of;
    const struct net_params *p = &net->params[number];
    struct batch_params_update a = {.w = p->w,
                                    .state = p->state,
                                    .g = p->gradient,
                                    .n = p->floats,
                                    .kind = net->options.optimizer,
                                    .params = net->options.params,
                                    .scale = is_clipped(net) ? net->clip : NULL};
    net->device->kernels->params_update(&a, net->device->stream);
}

void net_update(struct net *net)
{
    if (is_clipped(net))
        clip(net);
    share_run(net->team, net->params_count, update_params, net);
}

/* --- Slices of a step --- */

bool net_next_part(const struct net *net, uint32_t n, struct net_part *part)
{
    if (net->options.window_max > 0)
        return windows_next_part(net, part);
    const struct batch_slices *s = &net->slices;
    uint32_t from = part->from + part->n, event = net->event + from, begin = 0, end = net->event + n;
    *part = (struct net_part){.from = from};
    if (from >= n)
        return false;
    if (s->count > 1) {
        part->slice = batch_slice_of(s, event);
        begin = s->borders[part->slice], end = MIN(end, s->borders[part->slice + 1]);
    }
    part->n = end - event;
    part->adds = event > begin;
    part->is_last = s->count > 1 && end == s->borders[part->slice + 1];
    return true;
}

/* A slice's sum waits behind those that wait for their sibling already: one for each bit of its number. */
float *net_gradient(const struct net_params *p, uint32_t slice)
{
    size_t level = (size_t)__builtin_popcount(slice);
    return p->gradient != NULL ? p->gradient + level * p->floats : NULL;
}

void net_join(const struct net *net, const struct net_params *p, uint32_t slice, size_t at, uint32_t rows,
              uint32_t columns)
{
    float *sum = net_gradient(p, slice) + at;
    for (uint32_t left = slice; left % 2 == 1; left /= 2, sum -= p->floats) {
        struct batch_add_rows a = {.x = sum - p->floats,
                                   .y = sum,
                                   .n = rows,
                                   .columns = columns,
                                   .x_stride = p->stride,
                                   .y_stride = p->stride};
        net->device->kernels->add_rows(&a, net->device->stream);
    }
}

/* --- Between tiles (tiles.c) --- */

void net_begin(struct net *net)
{
    for (uint32_t i = 0; i < net->matrices_count; i++)
        net->matrices[i].has_gradients = net->matrices[i].needs_mask = false;
}

void net_move(struct net *net, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < net->matrices_count; i++) {
        const struct net_matrix *m = &net->matrices[i];
        size_t stride = m->stride;
        if (m->segment > 0)
            continue;
        memcpy(m->values + to * stride, m->values + from * stride, stride * sizeof(*m->values));
    }
}

void net_mask_matrix(const struct net *net, const struct net_matrix *m, float *values, uint32_t n,
                     const uint8_t *is_rejected)
{
    uint32_t times = m->is_by_columns ? m->columns : 1;
    struct batch_mask_rows a = {
        .x = values, .n = n, .columns = m->columns, .stride = m->stride, .is_rejected = is_rejected};
    if (m->is_by_columns)
        a.columns = a.stride = 1;
    for (uint32_t i = 0; i < times; i++, a.x += n)
        net->device->kernels->mask_rows(&a, net->device->stream);
}

void net_mask(struct net *net, uint32_t n, const uint8_t *is_rejected)
{
    net->rejected = is_rejected;
    for (uint32_t i = 0; i < net->matrices_count; i++) {
        const struct net_matrix *m = &net->matrices[i];
        if (m->segment == 0)
            net_mask_matrix(net, m, m->values, n, is_rejected);
    }
}

bool net_adds_part(struct net *net, struct net_matrix *m, uint32_t n)
{
    if (!m->has_gradients)
        train_fill(net->device, m->gradients, 0, (size_t)n * m->stride * sizeof(*m->gradients));
    m->has_gradients = true;
    return true;
}
