/*
 * How events go through the layers of a network: on a GPU all at once; on a CPU a tile of events at a time,
 * forward and backward, so that one layer's results are still in the second-level cache when the next layer
 * reads them; and if another thread helps, each thread has a tile.
 *
 * In the backward pass a layer's gradient is summed over all tiles in their order: a thread with a later tile
 * waits for its turn. Tiles are whole chunks (BATCH_CHUNK), so gradients equal those of all events at once,
 * bit for bit, whatever the size of tiles and the number of threads. Of a network over windows a tile is whole
 * windows, and gradients are summed in chunks of its own (windows.h).
 */
#include "learners/train/net.h"
#include "learners/train/share.h"

#include "core/base.h"
#include "core/mem.h"
#include "core/team.h"

#include <stdlib.h>

/* TILE_ALONE: events in a tile when one thread works. TILE_SHARED: when two do, if there are TILES_SHARED
 * such tiles; else BATCH_CHUNK. */
enum { TILE_ALONE = 4 * BATCH_CHUNK, TILE_SHARED = 2 * BATCH_CHUNK, TILES_SHARED = 4 };

/* One forward or backward pass through the layers. */
struct net_pass {
    struct net *nets[SHARE_THREADS];
    uint32_t events, tile, first;
    float *in_gradients, *out_gradients; /* of the pass's first event */
    uint32_t event;                      /* number in the step of the pass's first event */
    bool in_has_gradients;               /* of the input, before the pass */
    atomic_uint turns[NET_LAYERS_MAX];   /* backward, by layer: the tile that adds to its gradient next */
};

/* --- The second thread's net --- */

uint32_t net_tile(const struct net *net, uint32_t events)
{
    return net->device->api != NULL ? events : MIN(events, (uint32_t)TILE_ALONE);
}

struct net *net_second(const struct net *net)
{
    struct net *second = mem_calloc(1, sizeof(*second));
    net_shape(second, &net->options, net->device, net->events_max, net->gradients_max);
    return second;
}

void net_second_take(struct net *net, struct train_memory *memory)
{
    struct net *second = net->second;
    size_t tile = windows_tile_rows(net, TILE_SHARED);
    for (uint32_t i = 0; i < net->matrices_count; i++) {
        struct net_matrix *m = &second->matrices[i];
        size_t stride = m->stride;
        if (m->segment > 0)
            continue;
        m->values = net->matrices[i].values;
        m->all_gradients = net->matrices[i].all_gradients;
        if (m != second->input && m != second->output && !m->keeps_gradients)
            m->gradients = train_take(memory, TRAIN_ACTIVATIONS, tile * stride, sizeof(*m->gradients));
    }
    segments_take(second, memory, tile);
    memcpy(second->params, net->params, sizeof(net->params));
    second->scratch_bytes = net->scratch_bytes;
    second->scratch = train_take(memory, TRAIN_SCRATCH, net->scratch_bytes, 1);
}

/* --- Tiles --- */

/* Begins a tile; returns how many events it has. *from: its first event in the pass. */
static uint32_t begin_tile(const struct net_pass *w, struct net *net, uint32_t number, uint32_t *from)
{
    bool has_windows = net->options.window_max > 0;
    *from = number * w->tile;
    uint32_t n = has_windows ? windows_begin(net, number, from) : MIN(w->tile, w->events - *from);
    net->first = w->first + *from;
    net->tile = number;
    net->event = w->event + (has_windows ? net->window : *from);
    return n;
}

static void forward_tile(void *of, uint32_t number, unsigned who)
{
    const struct net_pass *w = of;
    struct net *net = w->nets[who];
    uint32_t from, n = begin_tile(w, net, number, &from);
    for (uint32_t i = 0; i < net->layers_count; i++)
        net->layers[i].kind->forward(net, &net->layers[i], n);
}

static void backward_tile(void *of, uint32_t number, unsigned who)
{
    const struct net_pass *w = of;
    struct net *net = w->nets[who];
    uint32_t first, n = begin_tile(w, net, number, &first);
    size_t from = first;
    net_begin(net);
    net->input->gradients = w->in_gradients + from * net->input->stride;
    net->input->has_gradients = w->in_has_gradients;
    net->output->gradients = w->out_gradients + from * net->output->stride;
    net->output->has_gradients = true;
    for (uint32_t i = 0; i < net->matrices_count; i++) {
        struct net_matrix *m = &net->matrices[i];
        m->gradients = m->keeps_gradients ? m->all_gradients + from * m->stride : m->gradients;
    }
    for (uint32_t i = net->layers_count; i-- > 0;) {
        segments_repeat(net, i, from, n);
        net->layers[i].kind->backward(net, &net->layers[i], n);
    }
    if (net->is_by_ids) /* distinct.c adds to the gradients by the input: they must be set, at least to 0 */
        (void)net_adds_part(net, net->input, n);
}

static void run_pass(struct net *net, uint32_t n, bool is_backward)
{
    uint32_t shared = n >= TILES_SHARED * TILE_SHARED ? TILE_SHARED : BATCH_CHUNK;
    struct team *team = net->second != NULL && n > shared ? net->team : NULL;
    struct net_pass w = {.nets = {net, net->second},
                         .events = n,
                         .tile = team ? shared : net_tile(net, n),
                         .first = net->first,
                         .in_gradients = net->input->gradients,
                         .event = net->event,
                         .in_has_gradients = net->input->has_gradients};
    if (!is_backward)
        net->rejected = NULL;
    if (net->output)
        w.out_gradients = net->output->gradients;
    uint32_t tiles =
        net->options.window_max > 0 ? windows_divide(net, n, w.tile, is_backward) : (n + w.tile - 1) / w.tile;
    if (team) {
        net->second->options = net->options;
        net->second->kernels = net->kernels;
        net->second->windows = net->windows;
        net->second->chunks = net->chunks, net->second->tiles = net->tiles;
        net->second->scale = net->scale;
        net->second->slices = net->slices;
        net->second->rejected = net->rejected;
    }
    if (net->device->api != NULL && net->options.window_max > 0 && !is_backward)
        windows_send(net, n);
    net->pass = &w;
    if (net->second)
        net->second->pass = &w;
    share_run(team, tiles, is_backward ? backward_tile : forward_tile, &w);
    net->pass = NULL;
    net->first = w.first;
    net->event = w.event;
    net->input->gradients = w.in_gradients;
    if (net->output != NULL)
        net->output->gradients = w.out_gradients;
}

/* Of empty windows the gradients are zeros, and their slices are joined like all others. */
static bool has_rows(const struct net *net, uint32_t n)
{
    return n > 0 || (net->options.window_max > 0 && net->windows.count > 0);
}

void net_forward(struct net *net, uint32_t n)
{
    if (has_rows(net, n))
        run_pass(net, n, false);
}

void net_backward(struct net *net, uint32_t n)
{
    if (has_rows(net, n))
        run_pass(net, n, true);
}

void net_wait_turn(const struct net *net, const struct net_layer *layer)
{
    const atomic_uint *turn = &net->pass->turns[layer - net->layers];
    for (unsigned round = 0; atomic_load_explicit(turn, memory_order_acquire) != net->tile; round++)
        team_pause(round);
}

void net_end_turn(const struct net *net, const struct net_layer *layer)
{
    atomic_store_explicit(&net->pass->turns[layer - net->layers], net->tile + 1, memory_order_release);
}
