/* A gate: out = a * b, element by element (Zhai et al. 2024, eq. 3: a is U, b the normalized attention). */
#include "learners/train/net.h"

#include "core/base.h"

struct net_layer *net_add_gate(struct net *net, struct net_matrix *a, uint32_t from, struct net_matrix *b,
                               struct net_matrix *out)
{
    leat_assert(net->options.window_max > 0 && !a->is_relu && !b->is_relu);
    leat_assert(b->stride == b->columns && out->columns == b->columns && out->stride == b->stride);
    leat_assert(from + b->columns <= a->columns);
    struct net_layer *l = net_add_layer(net, &net_gate, a, out);
    l->in_from = from, l->in_columns = b->columns;
    l->owns_part = true;
    l->z = b;
    return l;
}

static struct batch_gate gate_of(const struct net *net, const struct net_layer *l, uint32_t n)
{
    return (struct batch_gate){.a = net_values(net, l->in) + l->in_from,
                               .b = net_values(net, l->z),
                               .n = n,
                               .d = l->in_columns,
                               .a_stride = l->in->stride};
}

static void gate_forward(struct net *net, struct net_layer *l, uint32_t n)
{
    struct batch_gate a = gate_of(net, l, n);
    a.out = net_values(net, l->out);
    net->device->kernels->gate(&a, net->device->stream);
}

static void gate_backward(struct net *net, struct net_layer *l, uint32_t n)
{
    struct batch_gate a = gate_of(net, l, n);
    leat_assert(!net_adds(l->z)); /* read by the gate alone */
    l->in->has_gradients = true;
    a.out_gradients = l->out->gradients;
    a.a_grads = l->in->gradients + l->in_from, a.b_grads = l->z->gradients;
    net->device->kernels->gate(&a, net->device->stream);
}

static unsigned gate_reads(const struct net_layer *l)
{
    (void)l;
    return NET_BACK_IN | NET_BACK_Z;
}

const struct net_layer_kind net_gate = {
    .name = "gate", .forward = gate_forward, .backward = gate_backward, .reads = gate_reads};
