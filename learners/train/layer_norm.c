/* Layer norm of each row (Ba et al. 2016, eq. 4; kernels/norm.inc.h): its parameters are a row of gains, which begin
 * with 1, and a row of biases, which begin with 0. */
#include "learners/train/net.h"

#include "core/base.h"

static const float EPSILON = 1e-6F; /* added to the variance */

struct net_layer *net_add_norm(struct net *net, struct net_matrix *in, struct net_matrix *out)
{
    leat_assert(net->options.window_max > 0 && net->device->api == NULL && !in->is_relu);
    leat_assert(in->stride == in->columns && out->stride == in->columns && out->columns == in->columns);
    struct net_layer *l = net_add_layer(net, &net_norm, in, out);
    l->z = net_add_places(net, 1, 2);
    l->params = net_add_params(net, 2, in->columns);
    l->start = 1.0F, l->starts = 1;
    return l;
}

static void norm_forward(struct net *net, struct net_layer *l, uint32_t n)
{
    const struct net_params *p = l->params;
    net->kernels->layer_norm_forward(net_values(net, l->out), net_values(net, l->z), net_values(net, l->in),
                                     p->w, p->w + p->stride, EPSILON, n, p->d);
}

/* Adds the gradient by gains and biases of a part. */
static void add_gradient(const struct net *net, const struct net_layer *l, const struct net_part *part)
{
    const struct net_params *p = l->params;
    size_t at = (size_t)part->from * p->d;
    float *sum = net_gradient(p, part->slice), *own = part->adds ? net->scratch : sum;
    net->kernels->layer_norm_gradient(own, own + p->stride, l->out->gradients + at,
                                      net_values(net, l->in) + at,
                                      net_values(net, l->z) + (size_t)part->from * 2, part->n, p->d);
    if (part->adds) {
        struct batch_add_rows a = {
            .x = sum, .y = own, .n = 2, .columns = p->d, .x_stride = p->stride, .y_stride = p->stride};
        net->device->kernels->add_rows(&a, net->device->stream);
    }
    if (part->is_last)
        net_join(net, p, part->slice, 0, 2, p->d);
}

static void norm_backward(struct net *net, struct net_layer *l, uint32_t n)
{
    const struct net_params *p = l->params;
    net_wait_turn(net, l);
    for (struct net_part part = {0}; net_next_part(net, n, &part);)
        add_gradient(net, l, &part);
    net_end_turn(net, l);
    bool adds = net_adds(l->in);
    float *dout = l->out->gradients, *dx = adds ? dout : l->in->gradients; /* nobody reads dout afterwards */
    net->kernels->layer_norm_backward(dx, dout, net_values(net, l->in), net_values(net, l->z), p->w, n, p->d);
    if (adds) {
        struct batch_add_rows a = {.x = l->in->gradients, .y = dx, .n = n, .columns = p->d};
        net->device->kernels->add_rows(&a, net->device->stream);
    }
}

static size_t norm_scratch(const struct net *net, const struct net_layer *l, uint32_t n)
{
    (void)net, (void)n;
    return (size_t)2 * l->params->stride * sizeof(float);
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
