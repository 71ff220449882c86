/* A tower of a two-tower model (Covington et al. 2016; Yi et al. 2019): relu layers over the vectors of all fields, then
 * a linear one, whose columns are the vector that queries and items are compared by. */
#include "learners/networks/networks.h"
#include "learners/train/net.h"

static void tower_shape(struct net *net, const void *own)
{
    const struct tower_network *o = own;
    struct net_matrix *last = net_add_relu_layers(net, net_add_input(net, 0), o->hidden);
    net_add_dense(net, last, 0, last->columns, net_add_output_columns(net, o->width), 0, o->width, false);
}

static void tower_put_shape(const void *own, uint32_t labels, struct byte_buffer *out)
{
    const struct tower_network *o = own;
    (void)labels;
    networks_put_tower(out, o->hidden, o->width);
}

const struct network network_tower = {.name = "tower", .shape = tower_shape, .put_shape = tower_put_shape};
