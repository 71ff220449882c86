/* The mixture of experts for a label's gate: their sum weighted by softmax (Ma et al. 2018,
 * MMoE, eq. 6, 7). */
#include "learners/train/net.h"

static struct batch_mixture mixture_of(const struct net *net, const struct net_layer *l, uint32_t n)
{
    return (struct batch_mixture){.inputs = net_values(net, l->in),
                                  .gate_logits = net_values(net, l->z),
                                  .n = n,
                                  .experts = l->fields,
                                  .columns = l->dim,
                                  .inputs_stride = l->in->stride,
                                  .gates_stride = l->z->stride,
                                  .gates = net_values(net, l->gates)};
}

static void mixture_forward(struct net *net, struct net_layer *l, uint32_t n)
{
    struct batch_mixture a = mixture_of(net, l, n);
    a.out = net_values(net, l->out), a.out_stride = l->out->stride;
    net->device->kernels->mixture(&a, net->device->stream);
}

static void mixture_backward(struct net *net, struct net_layer *l, uint32_t n)
{
    struct batch_mixture a = mixture_of(net, l, n);
    a.out_gradients = l->out->gradients, a.out_gradients_stride = l->out->stride;
    a.input_gradients = l->in->gradients, a.input_gradients_stride = l->in->stride;
    a.gate_gradients = l->z->gradients;
    a.adds = net_adds(l->in);
    l->in->needs_mask = l->in->is_relu;
    l->z->has_gradients = true;
    net->device->kernels->mixture(&a, net->device->stream);
}

const struct net_layer_kind net_mixture = {
    .name = "mixture", .forward = mixture_forward, .backward = mixture_backward};
