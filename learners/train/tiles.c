/*
 * How events go through the layers of a network: on a GPU all at once; on a CPU a tile of events at a time,
 * forward and backward, so that one layer's results are still in the second-level cache when the next layer
 * reads them; and if another thread helps, each thread has a tile.
 *
 * In the backward pass a layer's gradient is summed over all tiles in their order: a thread with a later tile
 * waits for its turn. Tiles are whole chunks (BATCH_CHUNK), so gradients equal those of all events at once,
 * bit for bit, whatever the size of tiles and the number of threads.
 */
#include "learners/train/net.h"
#include "learners/train/share.h"

#include "core/base.h"
#include "core/team.h"

#include <stdlib.h>

/* TILE_ALONE: events in a tile when one thread works. TILE_SHARED: when two do, if there are TILES_SHARED
 * such tiles; else BATCH_CHUNK. */
enum { TILE_ALONE = 4 * BATCH_CHUNK, TILE_SHARED = 2 * BATCH_CHUNK, TILES_SHARED = 4 };

/* One forward or backward pass through the layers. */
struct net_way {
    struct net *nets[SHARE_THREADS];
    uint32_t events, tile, first;
    float *in_slopes, *out_slopes; /* of the pass's first event */
    bool adds, in_has_slopes;
    atomic_uint turns[NET_LAYERS_MAX]; /* backward, by layer: the tile that adds to its gradient next */
};

/* --- The second thread's net --- */

uint32_t net_tile(const struct net *net, uint32_t events)
{
    return net->device->api != NULL ? events : MIN(events, (uint32_t)TILE_ALONE);
}

struct net *net_second(const struct net *net)
{
    struct net *second = calloc(1, sizeof(*second));
    leat_assert(second);
    net_shape(second, &net->options, net->device, net->events_max, net->slopes_max);
    return second;
}

void net_second_take(struct net *net, struct train_memory *memory)
{
    struct net *second = net->second;
    for (uint32_t i = 0; i < net->matrices_count; i++) {
        struct net_matrix *m = &second->matrices[i];
        size_t stride = m->stride;
        m->values = net->matrices[i].values;
        m->all_slopes = net->matrices[i].all_slopes;
        if (m != second->input && m != second->output && !m->keeps_slopes)
            m->slopes = train_take(memory, TRAIN_ACTIVATIONS, TILE_SHARED * stride, sizeof(*m->slopes));
    }
    for (uint32_t i = 0; i < net->layers_count; i++)
        second->layers[i].gates = net->layers[i].gates;
    memcpy(second->params, net->params, sizeof(net->params));
    second->scratch_bytes = net->scratch_bytes;
    second->scratch = train_take(memory, TRAIN_SCRATCH, net->scratch_bytes, 1);
}

/* --- Tiles --- */

/* Begins a tile; returns how many events it has. */
static uint32_t enter(const struct net_way *w, struct net *net, uint32_t number)
{
    uint32_t from = number * w->tile;
    net->first = w->first + from;
    net->tile = number;
    return MIN(w->tile, w->events - from);
}

static void forward_tile(void *of, uint32_t number, unsigned who)
{
    const struct net_way *w = of;
    struct net *net = w->nets[who];
    uint32_t n = enter(w, net, number);
    for (uint32_t i = 0; i < net->layers_count; i++)
        net->layers[i].kind->forward(net, &net->layers[i], n);
}

static void backward_tile(void *of, uint32_t number, unsigned who)
{
    const struct net_way *w = of;
    struct net *net = w->nets[who];
    uint32_t n = enter(w, net, number);
    size_t from = (size_t)number * w->tile;
    net_begin(net);
    net->adds_gradients = w->adds || number > 0;
    net->input->slopes = w->in_slopes + from * net->input->stride;
    net->input->has_slopes = w->in_has_slopes;
    net->output->slopes = w->out_slopes + from * net->output->stride;
    net->output->has_slopes = true;
    for (uint32_t i = 0; i < net->matrices_count; i++) {
        struct net_matrix *m = &net->matrices[i];
        m->slopes = m->keeps_slopes ? m->all_slopes + from * m->stride : m->slopes;
    }
    for (uint32_t i = net->layers_count; i-- > 0;)
        net->layers[i].kind->backward(net, &net->layers[i], n);
    if (net->is_by_ids) /* the ids' gradients are added to the input's slopes, which must be set */
        (void)net_adds_part(net, net->input, n);
}

static void go(struct net *net, uint32_t n, share_piece *tile)
{
    uint32_t shared = n >= TILES_SHARED * TILE_SHARED ? TILE_SHARED : BATCH_CHUNK;
    struct team *team = net->second != NULL && n > shared ? net->team : NULL;
    struct net_way w = {.nets = {net, net->second},
                        .events = n,
                        .tile = team ? shared : net_tile(net, n),
                        .first = net->first,
                        .in_slopes = net->input->slopes,
                        .adds = net->adds_gradients,
                        .in_has_slopes = net->input->has_slopes};
    if (net->output)
        w.out_slopes = net->output->slopes;
    if (team) {
        net->second->options = net->options;
        net->second->scale = net->scale;
    }
    net->way = &w;
    if (net->second)
        net->second->way = &w;
    share_run(team, (n + w.tile - 1) / w.tile, tile, &w);
    net->way = NULL;
    net->first = w.first;
    net->adds_gradients = w.adds;
    net->input->slopes = w.in_slopes;
    if (net->output != NULL)
        net->output->slopes = w.out_slopes;
}

void net_forward(struct net *net, uint32_t n)
{
    if (n > 0)
        go(net, n, forward_tile);
}

void net_backward(struct net *net, uint32_t n)
{
    if (n > 0)
        go(net, n, backward_tile);
}

void net_wait_turn(const struct net *net, const struct net_layer *layer)
{
    const atomic_uint *turn = &net->way->turns[layer - net->layers];
    for (unsigned round = 0; atomic_load_explicit(turn, memory_order_acquire) != net->tile; round++)
        team_pause(round);
}

void net_end_turn(const struct net *net, const struct net_layer *layer)
{
    atomic_store_explicit(&net->way->turns[layer - net->layers], net->tile + 1, memory_order_release);
}
