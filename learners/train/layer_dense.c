/* A dense layer: out = W in + b, then max(x, 0) if is_relu; of a layer over places for each place. Matrix products
 * (kernels/batch_train.h), whose rows are the events, or the places of all events. */
#include "learners/train/net.h"

#include "core/base.h"

/* The arguments that all three products of a layer share. */
static struct batch_matmul product(const struct net *net)
{
    return (struct batch_matmul){
        .precision = net->options.precision, .scratch = net->scratch, .scratch_bytes = net->scratch_bytes};
}

/* `from` floats after `base`, or NULL while memory is counted. */
static float *behind(float *base, size_t from)
{
    return base != NULL ? base + from : NULL;
}

/* Floats from one of the layer's rows to the next, in a matrix that it reads or writes. */
static uint32_t apart(const struct net_layer *l, const struct net_matrix *m)
{
    return m->stride / l->places;
}

static struct batch_matmul forward_of(const struct net *net, const struct net_layer *l, uint32_t n)
{
    const struct net_params *p = l->params;
    struct batch_matmul a = product(net);
    a.a = behind(net_values(net, l->in), l->in_from), a.a_stride = apart(l, l->in);
    a.b = p->w, a.b_stride = p->stride, a.b_is_transposed = true;
    a.c = behind(net_values(net, l->out), l->out_from), a.c_stride = apart(l, l->out);
    a.m = n * l->places, a.n = p->n, a.k = p->d;
    a.epilogue = l->is_relu ? MATMUL_BIAS_RELU : l->adds || l->has_no_bias ? MATMUL_PLAIN : MATMUL_BIAS;
    a.bias = behind(p->w, (size_t)p->n * p->stride);
    a.adds = l->adds;
    return a;
}

static struct batch_matmul gradient_of(const struct net *net, const struct net_layer *l,
                                       const struct net_part *part)
{
    const struct net_params *p = l->params;
    struct batch_matmul a = product(net);
    a.a = behind(l->out->gradients, (size_t)part->from * l->out->stride + l->out_from);
    a.a_stride = apart(l, l->out), a.a_is_transposed = true;
    a.b = behind(net_values(net, l->in), (size_t)part->from * l->in->stride + l->in_from);
    a.b_stride = apart(l, l->in);
    a.c = net_gradient(p, part->slice), a.c_stride = p->stride;
    a.m = p->n, a.n = p->d, a.k = part->n * l->places;
    a.scale = net->scale, a.adds = part->adds;
    a.epilogue = l->adds || l->has_no_bias ? MATMUL_PLAIN : MATMUL_SUMS;
    a.sums = behind(a.c, (size_t)p->n * p->stride);
    return a;
}

/* Adds the gradient by weights and biases of a part. Of a layer that goes back by ids the gradient by the weights
 * of the vectors' columns is computed by distinct.c: here only that by the dense features' columns, and by the
 * biases. */
static void add_gradient(const struct net *net, const struct net_layer *l, const struct net_part *part)
{
    const struct net_params *p = l->params;
    struct batch_matmul a = gradient_of(net, l, part);
    uint32_t from = l->is_by_ids ? net->vectors_from + net->options.fields * net->options.dim : 0;
    a.b += from, a.c += from;
    a.n = l->is_by_ids ? net->options.dense : a.n;
    net->device->kernels->matmul(&a, net->device->stream);
    if (!part->is_last)
        return;
    net_join(net, p, part->slice, from, p->n, a.n);
    net_join(net, p, part->slice, (size_t)p->n * p->stride, 1, p->n);
}

static struct batch_matmul backward_of(const struct net *net, const struct net_layer *l, uint32_t n)
{
    const struct net_params *p = l->params;
    struct batch_matmul a = product(net);
    a.a = behind(l->out->gradients, l->out_from), a.a_stride = apart(l, l->out);
    a.b = p->w, a.b_stride = p->stride;
    a.c = behind(l->in->gradients, l->in_from), a.c_stride = apart(l, l->in);
    a.m = n * l->places, a.n = p->d, a.k = p->n;
    a.scale = net->scale;
    if (l->in->is_relu) {
        a.epilogue = MATMUL_MASK;
        a.mask = behind(net_values(net, l->in), l->in_from), a.mask_stride = apart(l, l->in);
    }
    return a;
}

static void dense_forward(struct net *net, struct net_layer *l, uint32_t n)
{
    struct batch_matmul a = forward_of(net, l, n);
    net->device->kernels->matmul(&a, net->device->stream);
}

/* Gradients pass a relu where its output is above 0. Zeroes the others, unless the layers that set them have
 * done so. */
static void mask(struct net *net, const struct net_layer *l, uint32_t n)
{
    if (!l->is_relu || (l->out->is_relu && !l->out->needs_mask))
        return;
    struct batch_relu_mask a = {.x = behind(l->out->gradients, l->out_from),
                                .n = n * l->places,
                                .columns = l->params->n,
                                .stride = apart(l, l->out),
                                .y = behind(net_values(net, l->out), l->out_from),
                                .y_stride = apart(l, l->out)};
    net->device->kernels->relu_mask(&a, net->device->stream);
}

static void dense_backward(struct net *net, struct net_layer *l, uint32_t n)
{
    mask(net, l, n);
    net_wait_turn(net, l);
    for (struct net_part part = {0}; net_next_part(net, n, &part);)
        add_gradient(net, l, &part);
    net_end_turn(net, l);
    if (l->reads_dense || l->is_by_ids)
        return; /* these gradients are not needed, or made by ids */
    struct batch_matmul a = backward_of(net, l, n);
    if (l->owns_part)
        l->in->has_gradients = true;
    else
        a.adds = net_adds(l->in);
    net->device->kernels->matmul(&a, net->device->stream);
}

static size_t dense_scratch(const struct net *net, const struct net_layer *l, uint32_t n)
{
    size_t most = 0;
    struct net_part whole = {.n = n};
    struct batch_matmul of[] = {forward_of(net, l, n), gradient_of(net, l, &whole), backward_of(net, l, n)};
    for (size_t i = 0; i < ARRAY_COUNT(of); i++) {
        of[i].scratch = NULL;
        net->device->kernels->matmul(&of[i], net->device->stream);
        most = MAX(most, of[i].scratch_bytes);
    }
    return most;
}

/* A dense layer that adds to `out` is made again together with those that wrote there before it. */
static unsigned dense_reads(const struct net_layer *l)
{
    return NET_BACK_IN | (l->is_relu ? NET_BACK_OUT : 0U);
}

const struct net_layer_kind net_dense = {
    .name = "dense",
    .forward = dense_forward,
    .backward = dense_backward,
    .scratch = dense_scratch,
    .reads = dense_reads,
};
