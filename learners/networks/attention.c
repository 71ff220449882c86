/* The network of afm (Xiao et al. 2017, Attentional Factorization Machines, eq. 4-6): attention weighs the
 * products of all pairs of vectors, element by element; their weighted sum, times a vector p, is added to the rest of
 * the logit. */
#include "learners/networks/networks.h"
#include "learners/train/net.h"

/* p begins with the number of pairs, of which softmax takes a mean: as a factorization machine of the same vectors,
 * which the authors train first. A p that begins near 0 gives vectors gradients far smaller than the first sums of
 * their optimizer.
 *
 * The pairs share the attention's weights: a relu layer, then one score for each pair. Neither the scores nor the
 * output have a bias: softmax does not depend on the one, and the rest of the logit has the other. */
static void attention_shape(struct net *net, const void *own)
{
    const struct attention_network *o = own;
    uint32_t fields = net->options.fields, dim = net->options.dim, pairs = fields * (fields - 1) / 2;
    struct net_matrix *in = net_add_input(net, 0), *products = net_add_places(net, pairs, dim);
    struct net_matrix *hidden = net_add_places(net, pairs, o->width), *scores = net_add_places(net, pairs, 1);
    struct net_matrix *mixed = net_add_matrix(net, dim);
    struct net_layer *l = net_add_layer(net, &net_products, in, products);
    l->in_columns = fields * dim;
    l->fields = fields, l->dim = dim;
    hidden->is_relu = true;
    net_add_dense_places(net, products, hidden, pairs, true);
    net_add_dense_places(net, hidden, scores, pairs, false)->has_no_bias = true;
    l = net_add_layer(net, &net_mixture, products, mixed);
    l->z = scores, l->gates = net_add_places(net, pairs, 1);
    l->fields = pairs, l->dim = dim;
    l = net_add_dense(net, mixed, 0, dim, net_add_output(net), 0, 1, false);
    l->has_no_bias = true;
    l->start = (float)pairs, l->bound = 0.0F;
}

static void attention_put_shape(const void *own, uint32_t labels, struct byte_buffer *out)
{
    (void)labels;
    networks_put_attention(out, ((const struct attention_network *)own)->width);
}

const struct network network_attention = {
    .name = "attention", .shape = attention_shape, .put_shape = attention_put_shape};
