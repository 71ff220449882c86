/*
 * The beginning of a sequence model (Kang and McAuley 2018, eq. 1). A row of the input is a token, the sum of the
 * vectors of its item and of what stands beside it; the row of its position is added, and dropout goes over the sum,
 * as in the authors' programs of sasrec and hstu.
 */
#include "learners/networks/networks.h"
#include "learners/train/net.h"

#include "core/base.h"

struct net_matrix *networks_add_tokens(struct net *net, uint32_t dim, float dropout)
{
    struct net_matrix *tokens = net_add_input(net, 0), *x = net_add_matrix(net, dim);
    leat_assert(tokens->columns == dim);
    net_add_positions(net, tokens, x);
    return net_add_dropout(net, x, x, dropout);
}
