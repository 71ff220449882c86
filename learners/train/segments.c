/*
 * Segments: with net_options.recompute the values of some layers are not kept from the forward to the backward pass,
 * but computed again, which saves memory for time (Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost,
 * who call it checkpoints of activations).
 *
 * A network says which layers are a segment (net_begin_segment), for example a block of a sequence model. A matrix
 * that layers of one segment alone read and write is the segment's own: it has the values and the gradients of the
 * tile in progress, in memory of the thread, which is that of all other segments, too. All other matrices are kept as
 * ever: what comes into a segment and what goes out of it, and what a network marks as kept.
 *
 * Forward nothing changes. Backward, before a segment's last layer goes back over a tile, the segment's forward pass is
 * made again over the tile. Layers are left out whose values no backward pass reads: neither their own, nor that of a
 * layer that reads them, nor a repeated forward pass (segments_shape); of a block of sasrec these are the second dense
 * layer, its dropout and its sum. Values come back with the same bits: a row's depend on its window alone, and
 * what dropout leaves out is a hash. Rejected events' values are zeroed again, as net_mask had done.
 */
#include "learners/train/net.h"

#include "core/base.h"

enum { ALIGN = 256, SEVERAL = UINT32_MAX };

void net_begin_segment(struct net *net)
{
    leat_assert(net->segment == 0);
    net->segment = ++net->segments_count;
}

void net_end_segment(struct net *net)
{
    leat_assert(net->segment > 0);
    net->segment = 0;
}

/* --- Shape --- */

static unsigned reads_of(const struct net_layer *l)
{
    leat_assert(l->kind->reads != NULL);
    return l->kind->reads(l);
}

/* A layer of `segment` reads or writes the matrix. seen[]: by matrix, whether a layer did before. */
static void note(const struct net *net, struct net_matrix *m, uint32_t segment, bool *seen)
{
    if (m == NULL)
        return;
    bool *is_seen = &seen[m - net->matrices];
    m->segment = !*is_seen || m->segment == segment ? segment : SEVERAL;
    *is_seen = true;
}

/* Finds the matrices of each segment. Those with padding are kept, whose columns must stay 0. */
static void find_matrices(struct net *net)
{
    bool seen[NET_LAYERS_MAX] = {false};
    for (uint32_t i = 0; i < net->layers_count; i++) {
        const struct net_layer *l = &net->layers[i];
        struct net_matrix *of[] = {l->in, l->out, l->x0, l->z, l->gates};
        for (size_t k = 0; k < ARRAY_COUNT(of); k++)
            note(net, of[k], l->segment, seen);
    }
    for (uint32_t i = 0; i < net->matrices_count; i++) {
        struct net_matrix *m = &net->matrices[i];
        bool is_outer = m == net->input || m == net->output || m->keeps_gradients;
        if (is_outer || m->is_kept || m->segment == SEVERAL || m->stride != m->columns)
            m->segment = 0;
    }
    for (uint32_t i = 0; i < net->layers_count; i++) { /* what a layer writes is kept or not, together */
        const struct net_layer *l = &net->layers[i];
        if (l->segment > 0 && (reads_of(l) & NET_WRITES_Z) && l->out->segment == 0)
            l->z->segment = 0;
    }
}

/* Finds the layers whose forward pass is made again. */
static void find_repeated(struct net *net)
{
    bool is_read[NET_LAYERS_MAX] = {false}; /* by matrix: its values are read behind the forward pass */
#define READ(m) is_read[(m)-net->matrices]
    for (uint32_t i = 0; i < net->layers_count; i++) {
        const struct net_layer *l = &net->layers[i];
        unsigned reads = l->segment > 0 ? reads_of(l) : 0;
        READ(l->in) |= (reads & NET_BACK_IN) != 0;
        READ(l->out) |= (reads & NET_BACK_OUT) != 0;
        if (l->z != NULL)
            READ(l->z) |= (reads & NET_BACK_Z) != 0;
    }
    for (uint32_t i = net->layers_count; i-- > 0;) {
        struct net_layer *l = &net->layers[i];
        if (l->segment == 0 || l->out->segment == 0)
            continue;
        bool writes_z = (reads_of(l) & NET_WRITES_Z) != 0;
        l->is_repeated = READ(l->out) || (writes_z && READ(l->z));
        if (l->is_repeated)
            READ(l->in) = true;
        if (l->is_repeated && l->z != NULL && !writes_z)
            READ(l->z) = true;
    }
#undef READ
}

void segments_shape(struct net *net)
{
    leat_assert(net->segment == 0);
    if (!net->options.recompute || net->segments_count == 0)
        return;
    find_matrices(net);
    find_repeated(net);
}

/* --- Memory --- */

static float *at(unsigned char *base, size_t *used, size_t floats)
{
    float *memory = base != NULL ? (float *)(void *)(base + *used) : NULL;
    *used += (floats * sizeof(float) + ALIGN) / ALIGN * ALIGN; /* vectors may be read past the end */
    return memory;
}

/* Divides memory (base NULL: counts it) among the matrices of a segment; returns their bytes. */
static size_t divide(struct net *net, uint32_t segment, unsigned char *base, size_t tile)
{
    size_t used = 0;
    for (uint32_t i = 0; i < net->matrices_count; i++) {
        struct net_matrix *m = &net->matrices[i];
        if (m->segment != segment)
            continue;
        m->values = at(base, &used, tile * m->stride);
        m->gradients = at(base, &used, tile * m->stride);
    }
    return used;
}

void segments_take(struct net *net, struct train_memory *memory, size_t tile)
{
    size_t most = 0;
    for (uint32_t s = 1; s <= net->segments_count; s++)
        most = MAX(most, divide(net, s, NULL, tile));
    if (most == 0)
        return;
    unsigned char *base = train_take(memory, TRAIN_ACTIVATIONS, most, 1);
    for (uint32_t s = 1; s <= net->segments_count; s++)
        (void)divide(net, s, base, tile);
}

/* --- Backward --- */

/* Zeroes what net_mask would have zeroed, of a tile whose first row in the pass is `first`. */
static void mask(const struct net *net, uint32_t segment, size_t first, uint32_t n)
{
    for (uint32_t i = 0; i < net->matrices_count; i++) {
        const struct net_matrix *m = &net->matrices[i];
        if (m->segment == segment)
            net_mask_matrix(net, m, m->values, n, net->rejected + first);
    }
}

void segments_repeat(struct net *net, uint32_t number, size_t first, uint32_t n)
{
    uint32_t segment = net->layers[number].segment, end = number + 1, from = end;
    bool is_last = end == net->layers_count || net->layers[end].segment != segment;
    if (!net->options.recompute || segment == 0 || !is_last)
        return;
    while (from > 0 && net->layers[from - 1].segment == segment)
        from--;
    for (uint32_t i = from; i < end; i++)
        if (net->layers[i].is_repeated)
            net->layers[i].kind->forward(net, &net->layers[i], n);
    if (net->rejected != NULL)
        mask(net, segment, first, n);
}
