/*
 * Dropout (Srivastava et al. 2014) of the elements of each row. Whether an element is kept is a hash of the step,
 * the window's identity, the layer, the row's position in its window, and the column; so the backward pass makes
 * the same mask again, and nobody else's rows matter. While nothing is dropped (net_windows.drops), as in
 * predictions, the layer passes all values on.
 */
#include "learners/train/net.h"

#include "core/base.h"

struct net_matrix *net_add_dropout(struct net *net, struct net_matrix *in, struct net_matrix *out,
                                   float dropout)
{
    leat_assert(net->options.window_max > 0);
    leat_assert(in->stride == in->columns && out->columns == in->columns && out->stride == in->stride);
    leat_assert(dropout >= 0.0F && dropout < 1.0F && (in != out || !in->is_relu));
    if (dropout == 0.0F)
        return in;
    struct net_layer *l = net_add_layer(net, &net_dropout, in, out);
    l->dropout = dropout;
    return out;
}

/* Attention draws by the same hash: its places are (layer, head), these are (layer, position). */
static uint64_t layer_part(const struct net *net, const struct net_layer *l)
{
    return (uint64_t)(l - net->layers) << 32;
}

/* The keys of n rows, in scratch memory. */
static const uint64_t *keys_of(const struct net *net, const struct net_layer *l, uint32_t n)
{
    const struct net_windows *w = &net->windows;
    uint64_t *keys = net->scratch, layer = layer_part(net, l);
    uint32_t row = 0;
    leat_assert(w->identities != NULL);
    for (uint32_t window = net->window; row < n; window++) {
        uint32_t rows = w->offsets[window + 1] - w->offsets[window];
        for (uint32_t i = 0; i < rows; i++)
            keys[row++] = num_chance(w->chance, w->identities[window], layer + i);
    }
    return keys;
}

/* to = from without what is dropped; `to` may be `from`. On a GPU the kernel makes the keys itself. */
static void drop(struct net *net, const struct net_layer *l, float *to, const float *from, uint32_t n)
{
    const struct windows_copy *w = &net->copy;
    struct batch_dropout a = {.x = to, .n = n, .d = l->in_columns, .rate = l->dropout};
    if (to != from)
        train_copy(net->device, to, from, (size_t)n * l->in_columns * sizeof(*to));
    if (!net->windows.drops)
        return;
    if (net->device->api == NULL) {
        a.keys = keys_of(net, l, n);
    } else {
        a.offsets = w->offsets, a.windows = w->count, a.identities = w->identities;
        a.seed = net->windows.chance, a.part = layer_part(net, l);
    }
    net->device->kernels->dropout(&a, net->device->stream);
}

static void dropout_forward(struct net *net, struct net_layer *l, uint32_t n)
{
    drop(net, l, net_values(net, l->out), net_values(net, l->in), n);
}

static void dropout_backward(struct net *net, struct net_layer *l, uint32_t n)
{
    leat_assert(l->in == l->out || !net_adds(l->in)); /* read by this layer alone */
    l->in->needs_mask = l->in->is_relu;
    drop(net, l, l->in->gradients, l->out->gradients, n);
}

static size_t dropout_scratch(const struct net *net, const struct net_layer *l, uint32_t n)
{
    (void)net, (void)l;
    return n * sizeof(uint64_t);
}

static unsigned dropout_reads(const struct net_layer *l)
{
    (void)l;
    return 0;
}

const struct net_layer_kind net_dropout = {.name = "dropout",
                                           .forward = dropout_forward,
                                           .backward = dropout_backward,
                                           .scratch = dropout_scratch,
                                           .reads = dropout_reads};
