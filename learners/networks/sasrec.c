/*
 * The network of sasrec (Kang and McAuley 2018, Self-Attentive Sequential Recommendation, eq. 2-8). A row of the
 * input is a token: the embedding of its item plus that of its position (eq. 1). A block, where drop is dropout:
 *
 *   y = x + drop(attention(q, k, v)),  q, k, v = norm(x) Wq, norm(x) Wk, norm(x) Wv   (eq. 2-5, 8)
 *   z = y + drop(relu(norm(y) W1 + b1) W2 + b2)                                       (eq. 6-8)
 *
 * The output is a last layer norm of the last block, as in the authors' program: vectors of `dim` columns, which
 * are compared with those of items. Attention that is not causal makes the network of BERT4Rec (Sun et al. 2019).
 */
#include "learners/networks/networks.h"
#include "learners/train/net.h"

#include "core/base.h"

/* x + drop(branch) */
static struct net_matrix *residual(struct net *net, struct net_matrix *x, struct net_matrix *branch,
                                   struct net_matrix *dropped, float dropout)
{
    struct net_matrix *out = net_add_matrix(net, x->columns);
    net_add_sum(net, x, net_add_dropout(net, branch, dropped, dropout), out);
    return out;
}

static struct net_matrix *attention_part(struct net *net, const struct sasrec_network *o,
                                         struct net_matrix *x)
{
    struct net_matrix *normal = net_add_matrix(net, o->dim), *qkv = net_add_matrix(net, 3 * o->dim);
    struct net_matrix *mixed = net_add_matrix(net, o->dim);
    net_add_norm(net, x, normal);
    net_add_dense(net, normal, 0, o->dim, qkv, 0, 3 * o->dim, false)->has_no_bias = true;
    net_add_attention(net, qkv, 0, o->heads, mixed, true, o->is_causal, o->attention_dropout);
    /* softmax needs its output in the backward pass, so dropout has a matrix of its own */
    struct net_matrix *dropped = o->dropout > 0.0F ? net_add_matrix(net, o->dim) : mixed;
    return residual(net, x, mixed, dropped, o->dropout);
}

static struct net_matrix *dense_part(struct net *net, const struct sasrec_network *o, struct net_matrix *x)
{
    struct net_matrix *normal = net_add_matrix(net, o->dim), *hidden = net_add_matrix(net, o->hidden);
    struct net_matrix *out = net_add_matrix(net, o->dim);
    hidden->is_relu = true;
    net_add_norm(net, x, normal);
    net_add_dense(net, normal, 0, o->dim, hidden, 0, o->hidden, true);
    net_add_dense(net, hidden, 0, o->hidden, out, 0, o->dim, false);
    return residual(net, x, out, out, o->dropout);
}

static void sasrec_shape(struct net *net, const void *own)
{
    const struct sasrec_network *o = own;
    net->is_glorot = true;
    leat_assert(o->layers <= SEQUENCE_LAYERS_MAX);
    struct net_matrix *x = networks_add_tokens(net, o->dim, o->dropout);
    for (uint32_t i = 0; i < o->layers; i++) {
        net_begin_segment(net);
        x = dense_part(net, o, attention_part(net, o, x));
        net_end_segment(net);
    }
    net_add_norm(net, x, net_add_output_columns(net, o->dim));
}

static void sasrec_put_shape(const void *own, uint32_t labels, struct byte_buffer *out)
{
    const struct sasrec_network *o = own;
    (void)labels;
    networks_put_sequence(out, o->layers, o->heads, o->dim, o->hidden, o->is_causal);
}

const struct network network_sasrec = {
    .name = "sasrec", .shape = sasrec_shape, .put_shape = sasrec_put_shape};
