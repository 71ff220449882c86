/* SiLU of each element, x / (1 + e^-x) (Elfwing et al. 2018, eq. 5), as a layer of its own: its backward pass needs
 * its input, which a relu's does not. */
#include "learners/train/net.h"

#include "core/base.h"

struct net_layer *net_add_silu(struct net *net, struct net_matrix *in, struct net_matrix *out)
{
    leat_assert(net->options.window_max > 0 && !in->is_relu);
    leat_assert(in->stride == in->columns && out->columns == in->columns && out->stride == in->stride);
    return net_add_layer(net, &net_silu, in, out);
}

static void silu_forward(struct net *net, struct net_layer *l, uint32_t n)
{
    struct batch_silu a = {
        .x = net_values(net, l->in), .n = (uint64_t)n * l->in_columns, .out = net_values(net, l->out)};
    net->device->kernels->silu(&a, net->device->stream);
}

static void silu_backward(struct net *net, struct net_layer *l, uint32_t n)
{
    leat_assert(!net_adds(l->in)); /* read by this layer alone */
    struct batch_silu a = {.x = net_values(net, l->in),
                           .n = (uint64_t)n * l->in_columns,
                           .out_gradients = l->out->gradients,
                           .grads = l->in->gradients};
    net->device->kernels->silu(&a, net->device->stream);
}

static unsigned silu_reads(const struct net_layer *l)
{
    (void)l;
    return NET_BACK_IN;
}

const struct net_layer_kind net_silu = {
    .name = "silu", .forward = silu_forward, .backward = silu_backward, .reads = silu_reads};
