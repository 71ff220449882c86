/* Element-wise products of all pairs of vectors of ids, a place for each pair (Xiao et al. 2017, Attentional
 * Factorization Machines, eq. 3). */
#include "learners/train/net.h"

static struct batch_products products_of(const struct net *net, const struct net_layer *l, uint32_t n)
{
    const float *in = net_values(net, l->in);
    return (struct batch_products){.vectors = in != NULL ? in + l->in_from : NULL,
                                   .n = n,
                                   .fields = l->fields,
                                   .d = l->dim,
                                   .stride = l->in->stride};
}

static void products_forward(struct net *net, struct net_layer *l, uint32_t n)
{
    struct batch_products a = products_of(net, l, n);
    a.out = net_values(net, l->out), a.out_stride = l->out->stride;
    net->device->kernels->products(&a, net->device->stream);
}

/* Gives gradients by the vectors alone: those by the dense features, behind the vectors, are not needed. */
static void products_backward(struct net *net, struct net_layer *l, uint32_t n)
{
    struct batch_products a = products_of(net, l, n);
    a.out_gradients = l->out->gradients, a.out_gradients_stride = l->out->stride;
    a.adds = net_adds(l->in);
    a.grads = l->in->gradients + l->in_from, a.grads_stride = l->in->stride;
    net->device->kernels->products(&a, net->device->stream);
}

const struct net_layer_kind net_products = {
    .name = "products", .forward = products_forward, .backward = products_backward};
