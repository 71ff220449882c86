/* The network of deepfm and ffm: relu layers over all vectors and dense features (Guo et al. 2017, DeepFM, eq.
 * 3). Their output is added to the rest of the logit. */
#include "learners/networks/networks.h"
#include "learners/train/net.h"

static void deep_shape(struct net *net, const void *own)
{
    (void)own;
    struct net_matrix *last = net_add_relu_layers(net, net_add_input(net, 0), net->options.hidden);
    net_add_dense(net, last, 0, last->columns, net_add_output(net), 0, 1, false);
}

const struct network network_deep = {.name = "deep", .shape = deep_shape, .learns_by_event = true};
