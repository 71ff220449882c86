/*
 * Learned positions (Kang and McAuley 2018, eq. 1): out = in + P[position], where the position of a row counts from
 * its window's start. The parameter has a row for each position of a window, and no biases.
 */
#include "learners/train/net.h"

#include "core/base.h"

#include <math.h>

struct net_layer *net_add_positions(struct net *net, struct net_matrix *in, struct net_matrix *out)
{
    uint32_t most = net->options.window_max, d = in->columns;
    leat_assert(most > 0 && !in->is_relu);
    leat_assert(in->stride == d && out->stride == d && out->columns == d && in != out);
    struct net_layer *l = net_add_layer(net, &net_positions, in, out);
    l->params = net_add_params(net, most, d);
    l->has_no_bias = true;
    l->bound = net->options.init > 0.0F ? net->options.init : sqrtf(6.0F / (float)(most + d));
    return l;
}

/* CPU: adds the rows of positions to n rows of `out`. */
static void add_windows(const struct net *net, const struct net_params *p, float *out, uint32_t n)
{
    const struct net_windows *w = &net->windows;
    uint32_t row = 0;
    for (uint32_t window = net->window; row < n; window++) {
        uint32_t rows = w->offsets[window + 1] - w->offsets[window];
        size_t first = w->kept != NULL ? w->kept[window].rows : 0; /* rows before those of the pass */
        leat_assert(first + rows <= p->n);
        struct batch_add_rows a = {.x = out + (size_t)row * p->d,
                                   .y = p->w + first * p->stride,
                                   .n = rows,
                                   .columns = p->d,
                                   .x_stride = p->d,
                                   .y_stride = p->stride};
        net->device->kernels->add_rows(&a, net->device->stream);
        row += rows;
    }
}

static void positions_forward(struct net *net, struct net_layer *l, uint32_t n)
{
    const struct net_params *p = l->params;
    float *out = net_values(net, l->out);
    train_copy(net->device, out, net_values(net, l->in), (size_t)n * p->d * sizeof(*out));
    if (net->device->api == NULL) {
        add_windows(net, p, out, n);
        return;
    }
    struct batch_add_positions a = {.x = out,
                                    .table = p->w,
                                    .n = n,
                                    .d = p->d,
                                    .stride = p->stride,
                                    .offsets = net->copy.offsets,
                                    .windows = net->copy.count};
    net->device->kernels->add_positions(&a, net->device->stream);
}

/* --- The gradient by the rows of positions --- */

static void add_tables(const struct net *net, const struct net_params *p, float *sum, const float *own)
{
    struct batch_add_rows a = {
        .x = sum, .y = own, .n = p->n, .columns = p->d, .x_stride = p->stride, .y_stride = p->stride};
    net->device->kernels->add_rows(&a, net->device->stream);
}

/* CPU: adds the gradients of a chunk's rows, window after window, to those of their positions. */
static void add_chunk(const struct net *net, const struct net_layer *l, const struct net_chunk *c, float *sum)
{
    const struct net_windows *w = &net->windows;
    const struct net_params *p = l->params;
    const float *gradients = l->out->gradients + (size_t)c->from * p->d;
    for (uint32_t window = c->window; window < c->end; window++) {
        uint32_t rows = w->offsets[window + 1] - w->offsets[window];
        struct batch_add_rows a = {
            .x = sum, .y = gradients, .n = rows, .columns = p->d, .x_stride = p->stride, .y_stride = p->d};
        net->device->kernels->add_rows(&a, net->device->stream);
        gradients += (size_t)rows * p->d;
    }
}

/* CPU: adds the gradient of a part, which is a chunk. */
static void add_part(const struct net *net, const struct net_layer *l, const struct net_part *part)
{
    const struct net_params *p = l->params;
    struct net_chunk c = net_chunk(net, part->chunks - 1);
    float *sum = net_gradient(p, part->slice), *own = part->adds ? net->scratch : sum;
    memset(own, 0, (size_t)p->n * p->stride * sizeof(*own));
    add_chunk(net, l, &c, own);
    if (part->adds)
        add_tables(net, p, sum, own);
    if (part->is_last)
        net_join(net, p, part->slice, 0, p->n, p->d);
}

/* GPU: adds the gradient of the whole pass. */
static void add_pass(const struct net *net, const struct net_layer *l)
{
    const struct net_params *p = l->params;
    const struct windows_copy *w = &net->copy;
    float *sum = net_gradient(p, 0), *own = net->event > 0 ? net->scratch : sum;
    struct batch_positions_gradient a = {.out_gradients = l->out->gradients,
                                         .d = p->d,
                                         .stride = p->stride,
                                         .positions = p->n,
                                         .offsets = w->offsets,
                                         .windows = w->count,
                                         .parts = w->chunks,
                                         .parts_count = w->chunks_count,
                                         .table = own};
    net->device->kernels->positions_gradient(&a, net->device->stream);
    if (own != sum)
        add_tables(net, p, sum, own);
}

static void positions_backward(struct net *net, struct net_layer *l, uint32_t n)
{
    const struct net_params *p = l->params;
    net_wait_turn(net, l);
    if (net->device->api != NULL)
        add_pass(net, l);
    else
        for (struct net_part part = {0}; net_next_part(net, n, &part);)
            add_part(net, l, &part);
    net_end_turn(net, l);
    struct batch_add_rows a = {.x = l->in->gradients, .y = l->out->gradients, .n = n, .columns = p->d};
    if (net_adds(l->in))
        net->device->kernels->add_rows(&a, net->device->stream);
    else
        train_copy(net->device, a.x, a.y, (size_t)n * p->d * sizeof(*a.x));
}

static size_t positions_scratch(const struct net *net, const struct net_layer *l, uint32_t n)
{
    (void)net, (void)n;
    return (size_t)l->params->n * l->params->stride * sizeof(float);
}

const struct net_layer_kind net_positions = {.name = "positions",
                                             .forward = positions_forward,
                                             .backward = positions_backward,
                                             .scratch = positions_scratch};
