/* The network of dcnv2 (Wang et al. 2021, DCN V2, section 3.4, parallel structure): cross layers beside relu
 * layers, one weighted sum of both. */
#include "learners/networks/networks.h"
#include "learners/train/net.h"

static void cross_shape(struct net *net, const void *own)
{
    const struct cross_network *cross = own;
    struct net_matrix *x0 = net_add_input(net, 0), *x = x0;
    for (uint32_t i = 0; i < cross->layers; i++) {
        struct net_matrix *z = net_add_matrix(net, x0->columns), *out = net_add_matrix(net, x0->columns);
        net_add_dense(net, x, 0, x->columns, z, 0, z->columns, false);
        struct net_layer *l = net_add_layer(net, &net_cross, x, out);
        l->x0 = x0, l->z = z;
        x = out;
    }
    struct net_matrix *deep = net_add_relu_layers(net, x0, net->options.hidden), *logit = net_add_output(net);
    net_add_dense(net, x, 0, x->columns, logit, 0, 1, false);
    if (deep != x0)
        net_add_dense(net, deep, 0, deep->columns, logit, 0, 1, false)->adds = true;
}

static void cross_put_shape(const void *own, uint32_t labels, struct byte_buffer *out)
{
    const struct cross_network *cross = own;
    networks_put_shape(out, NULL, cross->layers, 0, labels);
}

const struct network network_cross = {.name = "cross", .shape = cross_shape, .put_shape = cross_put_shape};
