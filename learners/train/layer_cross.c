/* A cross layer: out = x0 * z + x, where z = W x + b is a dense layer before it (Wang et al. 2021, DCN V2,
 * eq. 1). */
#include "learners/train/net.h"

static struct batch_cross cross_of(const struct net *net, const struct net_layer *l, uint32_t n)
{
    return (struct batch_cross){.x0 = net_values(net, l->x0),
                                .x = net_values(net, l->in),
                                .z = net_values(net, l->z),
                                .n = n,
                                .columns = l->in->columns,
                                .x0_stride = l->x0->stride,
                                .x_stride = l->in->stride,
                                .z_stride = l->z->stride};
}

static void cross_forward(struct net *net, struct net_layer *l, uint32_t n)
{
    struct batch_cross a = cross_of(net, l, n);
    a.out = net_values(net, l->out), a.out_stride = l->out->stride;
    net->device->kernels->cross(&a, net->device->stream);
}

static void cross_backward(struct net *net, struct net_layer *l, uint32_t n)
{
    struct batch_cross a = cross_of(net, l, n);
    a.out_gradients = l->out->gradients, a.out_gradients_stride = l->out->stride;
    net_adds_part(net, l->x0, n); /* the kernel always adds to x0's gradients */
    a.adds = net_adds(l->in);
    a.x0_gradients = l->x0->gradients, a.x_gradients = l->in->gradients, a.z_gradients = l->z->gradients;
    l->z->has_gradients = true;
    net->device->kernels->cross(&a, net->device->stream);
}

const struct net_layer_kind net_cross = {
    .name = "cross", .forward = cross_forward, .backward = cross_backward};
