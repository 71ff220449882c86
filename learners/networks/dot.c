/* The network of dlrm (Naumov et al. 2019, section 2): the dense features become a vector; products of all
 * pairs of this vector and those of the ids; layers over that vector and the products. */
#include "learners/networks/networks.h"
#include "learners/train/net.h"

/* Relu layers over the dense features; the last one fills the front of the input matrix with a vector, which
 * lies before the vectors of ids. Returns that vector's length: 0 without dense features. */
static uint32_t bottom_layers(struct net *net, const struct dot_network *dot)
{
    const struct net_options *o = &net->options;
    uint32_t columns = o->dense, from = net->vectors_from + o->fields * o->dim;
    struct net_matrix *in = net->input;
    if (columns == 0)
        return 0;
    for (uint32_t i = 0; i < MODEL_LAYERS_MAX && dot->bottom[i] > 0; i++) {
        struct net_matrix *out = net_add_matrix(net, dot->bottom[i]);
        out->is_relu = true;
        net_add_dense(net, in, from, columns, out, 0, dot->bottom[i], true)->reads_dense = i == 0;
        in = out, from = 0, columns = out->columns;
    }
    net_add_dense(net, in, from, columns, net->input, 0, o->dim, true)->reads_dense = in == net->input;
    return o->dim;
}

/* Initial weights are those of the authors' code (net->is_glorot): else the vector made of few dense features
 * would begin far longer than the vectors of ids. */
static void dot_shape(struct net *net, const void *own)
{
    const struct net_options *o = &net->options;
    net->is_glorot = true;
    net_add_input(net, o->dense > 0 ? o->dim : 0);
    uint32_t front = bottom_layers(net, own), fields = o->fields + (front > 0);
    struct net_matrix *pairs = net_add_matrix(net, front + fields * (fields - 1) / 2);
    struct net_layer *l = net_add_layer(net, &net_dot, net->input, pairs);
    l->in_columns = fields * o->dim;
    l->fields = fields, l->dim = o->dim;
    l->copies_first = front > 0;
    struct net_matrix *last = net_add_relu_layers(net, pairs, o->hidden);
    net_add_dense(net, last, 0, last->columns, net_add_output(net), 0, 1, false);
}

static void dot_put_shape(const void *own, uint32_t labels, struct byte_buffer *out)
{
    networks_put_shape(out, ((const struct dot_network *)own)->bottom, 0, 0, labels);
}

const struct network network_dot = {.name = "dot", .shape = dot_shape, .put_shape = dot_put_shape};
