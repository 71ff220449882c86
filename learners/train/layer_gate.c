/* A gate: out = a * b, element by element (Zhai et al. 2024, eq. 3: a is U, b the normalized attention). */
#include "learners/train/net.h"

#include "core/base.h"

struct net_layer *net_add_gate(struct net *net, struct net_matrix *a, uint32_t from, struct net_matrix *b,
                               struct net_matrix *out)
{
    leat_assert(net->options.window_max > 0 && net->device->api == NULL && !a->is_relu && !b->is_relu);
    leat_assert(b->stride == b->columns && out->columns == b->columns && out->stride == b->stride);
    leat_assert(from + b->columns <= a->columns);
    struct net_layer *l = net_add_layer(net, &net_gate, a, out);
    l->in_from = from, l->in_columns = b->columns;
    l->owns_part = true;
    l->z = b;
    return l;
}

static void gate_forward(struct net *net, struct net_layer *l, uint32_t n)
{
    const float *a = net_values(net, l->in) + l->in_from, *b = net_values(net, l->z);
    float *out = net_values(net, l->out);
    size_t columns = l->in_columns, stride = l->in->stride;
    for (size_t r = 0; r < n; r++)
        for (size_t c = 0; c < columns; c++)
            out[r * columns + c] = a[r * stride + c] * b[r * columns + c];
}

static void gate_backward(struct net *net, struct net_layer *l, uint32_t n)
{
    const float *a = net_values(net, l->in) + l->in_from, *b = net_values(net, l->z);
    const float *dout = l->out->gradients;
    float *da = l->in->gradients + l->in_from, *db = l->z->gradients;
    size_t columns = l->in_columns, stride = l->in->stride;
    leat_assert(!net_adds(l->z)); /* read by the gate alone */
    l->in->has_gradients = true;
    for (size_t r = 0; r < n; r++) {
        for (size_t c = 0; c < columns; c++) {
            da[r * stride + c] = dout[r * columns + c] * b[r * columns + c];
            db[r * columns + c] = dout[r * columns + c] * a[r * stride + c];
        }
    }
}

static unsigned gate_reads(const struct net_layer *l)
{
    (void)l;
    return NET_BACK_IN | NET_BACK_Z;
}

const struct net_layer_kind net_gate = {
    .name = "gate", .forward = gate_forward, .backward = gate_backward, .reads = gate_reads};
