/* Products of all pairs of vectors, behind a copy of the first vector (Naumov et al. 2019,
 * DLRM, section 2). */
#include "learners/train/net.h"

static struct batch_dot_interaction dot_of(const struct net *net, const struct net_layer *l, uint32_t n)
{
    return (struct batch_dot_interaction){.vectors = net_values(net, l->in),
                                          .n = n,
                                          .fields = l->fields,
                                          .d = l->dim,
                                          .stride = l->in->stride,
                                          .copies_first = l->copies_first};
}

static void dot_forward(struct net *net, struct net_layer *l, uint32_t n)
{
    struct batch_dot_interaction a = dot_of(net, l, n);
    a.out = net_values(net, l->out), a.out_stride = l->out->stride;
    net->device->kernels->dot_interaction(&a, net->device->stream);
}

/* Computes the gradients by the vectors: these come from this layer alone. Gradients by the dense features,
 * which lie behind the vectors, are not needed. */
static void dot_backward(struct net *net, struct net_layer *l, uint32_t n)
{
    struct batch_dot_interaction a = dot_of(net, l, n);
    a.out_gradients = l->out->gradients, a.out_gradients_stride = l->out->stride;
    a.grads = l->in->gradients, a.grads_stride = l->in->stride;
    a.adds = net_adds(l->in);
    net->device->kernels->dot_interaction(&a, net->device->stream);
}

const struct net_layer_kind net_dot = {.name = "dot", .forward = dot_forward, .backward = dot_backward};
