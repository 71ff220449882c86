/*
 * The network of hstu (Zhai et al. 2024, Actions Speak Louder than Words, eq. 1-3). A row of the input is a token of
 * `dim` columns. A layer:
 *
 *   U, V, Q, K = SiLU(norm(x) W1 + b1)                        (eq. 1)
 *   AV = SiLU(Q K + bias of position and time) V / window_max (eq. 2)
 *   out = x + drop(norm(AV) * U) W2 + b2                      (eq. 3)
 *
 * The layer norm before eq. 1, the residual connection, and dropout's place are those of the authors' program, and so is
 * a last layer norm (one of its two choices for the output): without it the output is as small as the initial rows, and the
 * rows learn slowly.
 */
#include "learners/networks/networks.h"
#include "learners/train/net.h"

#include "core/base.h"

/* Columns of U, V, Q, K in one matrix. */
enum { Q_AT, K_AT, V_AT, U_AT, PARTS };

static void add_layer(struct net *net, const struct hstu_network *o, struct net_matrix *x,
                      struct net_matrix *out)
{
    uint32_t dim = o->dim;
    struct net_matrix *normal = net_add_matrix(net, dim), *linear = net_add_matrix(net, PARTS * dim);
    struct net_matrix *parts = net_add_matrix(net, PARTS * dim), *mixed = net_add_matrix(net, dim);
    struct net_matrix *mixed_normal = net_add_matrix(net, dim), *gated = net_add_matrix(net, dim);
    struct net_matrix *branch = net_add_matrix(net, dim);
    /* Of all that a layer computes, attention alone takes a time that grows with the window. */
    mixed->is_kept = true;
    net_add_norm(net, x, normal);
    net_add_dense(net, normal, 0, dim, linear, 0, PARTS * dim, false);
    net_add_silu(net, linear, parts);
    net_add_attention(net, parts, Q_AT * dim, o->heads, mixed, false, true, o->attention_dropout);
    net_add_norm(net, mixed, mixed_normal);
    net_add_gate(net, parts, U_AT * dim, mixed_normal, gated);
    net_add_dropout(net, gated, gated, o->dropout);
    net_add_dense(net, gated, 0, dim, branch, 0, dim, false);
    net_add_sum(net, x, branch, out);
}

static void hstu_shape(struct net *net, const void *own)
{
    const struct hstu_network *o = own;
    net->is_glorot = true;
    leat_assert(o->layers <= SEQUENCE_LAYERS_MAX);
    struct net_matrix *x = networks_add_tokens(net, o->dim, o->dropout);
    for (uint32_t i = 0; i < o->layers; i++) {
        struct net_matrix *out = net_add_matrix(net, o->dim);
        net_begin_segment(net);
        add_layer(net, o, x, out);
        net_end_segment(net);
        x = out;
    }
    net_add_norm(net, x, net_add_output_columns(net, o->dim));
}

static void hstu_put_shape(const void *own, uint32_t labels, struct byte_buffer *out)
{
    const struct hstu_network *o = own;
    (void)labels;
    networks_put_sequence(out, o->layers, o->heads, o->dim, 0, true);
}

const struct network network_hstu = {.name = "hstu", .shape = hstu_shape, .put_shape = hstu_put_shape};
