/* A residual connection: out = a + b (He et al. 2016, eq. 1). */
#include "learners/train/net.h"

#include "core/base.h"

struct net_layer *net_add_sum(struct net *net, struct net_matrix *a, struct net_matrix *b,
                              struct net_matrix *out)
{
    leat_assert(net->options.window_max > 0 && !a->is_relu && !b->is_relu);
    leat_assert(a->stride == a->columns && b->columns == a->columns && b->stride == a->stride);
    leat_assert(out->columns == a->columns && out->stride == a->stride && a != b);
    struct net_layer *l = net_add_layer(net, &net_sum, a, out);
    l->z = b;
    return l;
}

/* to = from, or to += from. */
static void give(const struct net *net, float *to, const float *from, uint32_t n, uint32_t columns, bool adds)
{
    struct batch_add_rows a = {.x = to, .y = from, .n = n, .columns = columns};
    if (adds)
        net->device->kernels->add_rows(&a, net->device->stream);
    else
        train_copy(net->device, to, from, (size_t)n * columns * sizeof(*to));
}

static void sum_forward(struct net *net, struct net_layer *l, uint32_t n)
{
    give(net, net_values(net, l->out), net_values(net, l->in), n, l->in_columns, false);
    give(net, net_values(net, l->out), net_values(net, l->z), n, l->in_columns, true);
}

static void sum_backward(struct net *net, struct net_layer *l, uint32_t n)
{
    give(net, l->in->gradients, l->out->gradients, n, l->in_columns, net_adds(l->in));
    give(net, l->z->gradients, l->out->gradients, n, l->in_columns, net_adds(l->z));
}

static unsigned sum_reads(const struct net_layer *l)
{
    (void)l;
    return 0;
}

const struct net_layer_kind net_sum = {
    .name = "sum", .forward = sum_forward, .backward = sum_backward, .reads = sum_reads};
