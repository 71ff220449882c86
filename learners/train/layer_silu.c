/* SiLU of each element, x / (1 + e^-x) (Elfwing et al. 2018, eq. 5), as a layer of its own: its backward pass needs
 * its input, which a relu's does not. */
#include "learners/train/net.h"

#include "core/base.h"

struct net_layer *net_add_silu(struct net *net, struct net_matrix *in, struct net_matrix *out)
{
    leat_assert(net->options.window_max > 0 && net->device->api == NULL && !in->is_relu);
    leat_assert(in->stride == in->columns && out->columns == in->columns && out->stride == in->stride);
    return net_add_layer(net, &net_silu, in, out);
}

static void silu_forward(struct net *net, struct net_layer *l, uint32_t n)
{
    net->kernels->silu_forward(net_values(net, l->out), net_values(net, l->in), (size_t)n * l->in_columns);
}

static void silu_backward(struct net *net, struct net_layer *l, uint32_t n)
{
    leat_assert(!net_adds(l->in)); /* read by this layer alone */
    net->kernels->silu_backward(l->in->gradients, l->out->gradients, net_values(net, l->in),
                                (size_t)n * l->in_columns);
}

static unsigned silu_reads(const struct net_layer *l)
{
    (void)l;
    return NET_BACK_IN;
}

const struct net_layer_kind net_silu = {
    .name = "silu", .forward = silu_forward, .backward = silu_backward, .reads = silu_reads};
