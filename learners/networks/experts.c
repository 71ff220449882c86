/* The network of mmoe (Ma et al. 2018, MMoE, section 4.2): experts that all labels share; for each label a
 * gate over them and a tower. */
#include "learners/networks/networks.h"
#include "learners/train/net.h"

/* Relu layers of every expert, side by side in one matrix: all experts' first layers are one dense layer over
 * the input. Returns the last matrix; *columns: of each expert in it. */
static struct net_matrix *expert_layers(struct net *net, uint32_t experts, uint32_t *columns)
{
    struct net_matrix *in = net->input;
    *columns = in->columns;
    for (uint32_t i = 0; i < MODEL_LAYERS_MAX && net->options.hidden[i] > 0; i++) {
        uint32_t width = net->options.hidden[i];
        struct net_matrix *out = net_add_matrix(net, experts * width);
        out->is_relu = true;
        for (uint32_t k = 0; k < (i == 0 ? 1 : experts); k++) {
            uint32_t n = i == 0 ? experts * width : width;
            struct net_layer *l = net_add_dense(net, in, k * *columns, *columns, out, k * width, n, true);
            l->owns_part = i > 0;
        }
        in = out, *columns = width;
    }
    return in;
}

static void experts_shape(struct net *net, const void *own)
{
    const struct experts_network *o = own;
    uint32_t columns;
    net_add_input(net, 0);
    struct net_matrix *experts = expert_layers(net, o->experts, &columns), *logits = net_add_output(net);
    for (uint32_t t = 0; t < net->options.labels; t++) {
        struct net_matrix *gate = net_add_matrix(net, o->experts), *mixed = net_add_matrix(net, columns);
        net_add_dense(net, net->input, 0, net->input->columns, gate, 0, o->experts, false);
        struct net_layer *l = net_add_layer(net, &net_mixture, experts, mixed);
        l->z = gate, l->gates = net_add_matrix(net, o->experts);
        l->fields = o->experts, l->dim = columns;
        struct net_matrix *last = net_add_relu_layers(net, mixed, o->towers);
        net_add_dense(net, last, 0, last->columns, logits, t, 1, false);
    }
}

static void experts_put_shape(const void *own, uint32_t labels, struct byte_buffer *out)
{
    const struct experts_network *o = own;
    networks_put_shape(out, o->towers, 0, o->experts, labels);
}

const struct network network_experts = {
    .name = "experts", .shape = experts_shape, .put_shape = experts_put_shape};
