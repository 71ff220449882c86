/* Layer norm of each row (Ba et al. 2016, eq. 4; kernels/norm.inc.h): its parameters are a row of gains, which begin
 * with 1, and a row of biases, which begin with 0. */
#include "learners/train/net.h"

#include "core/base.h"

static const float EPSILON = 1e-6F; /* added to the variance */

struct net_layer *net_add_norm(struct net *net, struct net_matrix *in, struct net_matrix *out)
{
    leat_assert(net->options.window_max > 0 && !in->is_relu);
    leat_assert(in->stride == in->columns && out->stride == in->columns && out->columns == in->columns);
    struct net_layer *l = net_add_layer(net, &net_norm, in, out);
    l->z = net_add_places(net, 1, 2);
    l->params = net_add_params(net, 2, in->columns);
    l->start = 1.0F, l->starts = 1;
    return l;
}

static struct batch_layer_norm norm_of(const struct net *net, const struct net_layer *l, uint32_t n)
{
    const struct net_params *p = l->params;
    return (struct batch_layer_norm){.x = net_values(net, l->in),
                                     .n = n,
                                     .d = p->d,
                                     .gain = p->w,
                                     .bias = p->w + p->stride,
                                     .epsilon = EPSILON,
                                     .stats = net_values(net, l->z)};
}

static void norm_forward(struct net *net, struct net_layer *l, uint32_t n)
{
    struct batch_layer_norm a = norm_of(net, l, n);
    a.out = net_values(net, l->out);
    net->device->kernels->layer_norm(&a, net->device->stream);
}

/* --- The gradient by gains and biases --- */

static void add_sums(const struct net *net, const struct net_params *p, float *sum, const float *own)
{
    struct batch_add_rows a = {
        .x = sum, .y = own, .n = 2, .columns = p->d, .x_stride = p->stride, .y_stride = p->stride};
    net->device->kernels->add_rows(&a, net->device->stream);
}

/* CPU: adds the gradient of a part. */
static void add_part(const struct net *net, const struct net_layer *l, const struct net_part *part)
{
    const struct net_params *p = l->params;
    size_t at = (size_t)part->from * p->d;
    float *sum = net_gradient(p, part->slice), *own = part->adds ? net->scratch : sum;
    net->kernels->layer_norm_gradient(own, own + p->stride, l->out->gradients + at,
                                      net_values(net, l->in) + at,
                                      net_values(net, l->z) + (size_t)part->from * 2, part->n, p->d);
    if (part->adds)
        add_sums(net, p, sum, own);
    if (part->is_last)
        net_join(net, p, part->slice, 0, 2, p->d);
}

/* GPU: adds the gradient of the whole pass, whose chunks are summed side by side. */
static void add_chunks(const struct net *net, const struct net_layer *l, uint32_t n)
{
    const struct net_params *p = l->params;
    float *sum = net_gradient(p, 0), *own = net->scratch;
    leat_assert(p->stride == p->d);
    struct batch_layer_norm_gradient a = {.x = net_values(net, l->in),
                                          .stats = net_values(net, l->z),
                                          .out_gradients = l->out->gradients,
                                          .n = n,
                                          .d = p->d,
                                          .parts = net->copy.chunk_rows,
                                          .parts_count = net->copy.chunks_count,
                                          .sums = own + (size_t)2 * p->stride,
                                          .total = net->event > 0 ? own : sum};
    net->device->kernels->layer_norm_gradient(&a, net->device->stream);
    if (net->event > 0)
        add_sums(net, p, sum, own);
}

static void norm_backward(struct net *net, struct net_layer *l, uint32_t n)
{
    const struct net_params *p = l->params;
    net_wait_turn(net, l);
    if (net->device->api != NULL)
        add_chunks(net, l, n);
    else
        for (struct net_part part = {0}; net_next_part(net, n, &part);)
            add_part(net, l, &part);
    net_end_turn(net, l);
    bool adds = net_adds(l->in);
    struct batch_layer_norm a = norm_of(net, l, n);
    a.out_gradients = l->out->gradients;
    a.grads = adds ? l->out->gradients : l->in->gradients; /* nobody reads the former afterwards */
    net->device->kernels->layer_norm(&a, net->device->stream);
    if (adds) {
        struct batch_add_rows add = {.x = l->in->gradients, .y = a.grads, .n = n, .columns = p->d};
        net->device->kernels->add_rows(&add, net->device->stream);
    }
}

/* A part's sums; on a GPU the pass's, and those of its chunks behind them. */
static size_t norm_scratch(const struct net *net, const struct net_layer *l, uint32_t n)
{
    size_t sums = net->device->api != NULL ? 1 + (size_t)net_chunks_max(n) : 1;
    return sums * 2 * l->params->stride * sizeof(float);
}

static unsigned norm_reads(const struct net_layer *l)
{
    (void)l;
    return NET_WRITES_Z | NET_BACK_IN | NET_BACK_Z;
}

const struct net_layer_kind net_norm = {.name = "norm",
                                        .forward = norm_forward,
                                        .backward = norm_backward,
                                        .scratch = norm_scratch,
                                        .reads = norm_reads};
