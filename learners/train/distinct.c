/*
 * CPU: the backward pass of layers over the input, made once for each distinct id of a batch instead
 * of once for each event. Events of an id share its vector v. With dz_e = event e's gradient by the
 * output of a layer W:
 *
 *   the gradient by v_u:                      sum over e of W_f' dz_e = W_f' S_u,  S_u = sum over e of dz_e
 *   the gradient by W's columns of field f:   sum over e of dz_e v_e' = sum over u of S_u v_u'
 *
 * where W_f are the columns of u's field and e the events that have u. Ids are skewed: of 4096 click events
 * with twelve fields 0.29 of the places are distinct ids, of 512 events 0.47; products shrink to that share,
 * and the sums come on top, each as long as the layer is wide. A field is processed by one thread, some ids
 * at a time.
 *
 * All this is done slice by slice of the step (kernels/slices.h), with an order of ids that the slice's events
 * alone decide: a part is a distinct id of one slice, and parts are numbered by first occurrence.
 *
 * Products in a sixteen-bit format would round the sums, and converting the sums costs more than is saved: so
 * layers with such products go back event by event. So do the layers of a shadow that is compared with a
 * GPU's model (is_like_device), because else its weights would drift from the GPU's step by step.
 */
#include "learners/train/step.h"

#include "core/base.h"

enum { IDS = 2 * BATCH_CHUNK }; /* ids at a time: their sums stay in the second-level cache */

/* The products W_f' S and S' V: the gradients by the ids' vectors, and by the layer's weights; the caller sets
 * `c` and `adds`. */
static struct batch_matmul vector_gradients_of(const struct train *t, const struct net_layer *l,
                                               uint32_t column, const struct train_distinct *d, uint32_t n)
{
    return (struct batch_matmul){.a = d->sums,
                                 .b = l->params->w != NULL ? l->params->w + column : NULL,
                                 .m = n,
                                 .n = t->net.options.dim,
                                 .k = l->params->n,
                                 .b_stride = l->params->stride,
                                 .precision = t->net.options.precision,
                                 .scratch = d->scratch,
                                 .scratch_bytes = d->scratch_bytes};
}

static struct batch_matmul weight_gradients_of(const struct train *t, const struct net_layer *l,
                                               const struct train_distinct *d, uint32_t n)
{
    return (struct batch_matmul){.a = d->sums,
                                 .b = d->vectors,
                                 .m = l->params->n,
                                 .n = t->net.options.dim,
                                 .k = n,
                                 .a_is_transposed = true,
                                 .c_stride = l->params->stride,
                                 .precision = t->net.options.precision,
                                 .scratch = d->scratch,
                                 .scratch_bytes = d->scratch_bytes};
}

void distinct_take(struct train *t, struct train_memory *memory)
{
    const struct train_distinct none = {0};
    size_t widest = 0, bytes = BATCH_SCRATCH_MIN, dim = t->net.options.dim, events = t->batch.capacity;
    for (uint32_t i = 0; i < t->net.layers_count; i++) {
        const struct net_layer *l = &t->net.layers[i];
        if (!l->is_by_ids)
            continue;
        struct batch_matmul of[] = {vector_gradients_of(t, l, 0, &none, IDS),
                                    weight_gradients_of(t, l, &none, IDS)};
        for (size_t k = 0; k < ARRAY_COUNT(of); k++) {
            t->device.kernels->matmul(&of[k], t->device.stream);
            bytes = MAX(bytes, of[k].scratch_bytes);
        }
        widest = MAX(widest, l->params->n);
    }
    for (unsigned who = 0; who < SHARE_THREADS && widest > 0; who++) {
        struct train_distinct *d = &t->distinct[who];
        d->part_of = train_take(memory, TRAIN_SCRATCH, events, sizeof(*d->part_of));
        d->index = train_take(memory, TRAIN_SCRATCH, events, sizeof(*d->index));
        d->part = train_take(memory, TRAIN_SCRATCH, events, sizeof(*d->part));
        d->more = train_take(memory, TRAIN_SCRATCH, events * dim, sizeof(*d->more));
        d->order = train_take(memory, TRAIN_SCRATCH, events, sizeof(*d->order));
        d->starts = train_take(memory, TRAIN_SCRATCH, events + 2, sizeof(*d->starts));
        d->sums = train_take(memory, TRAIN_SCRATCH, IDS * widest, sizeof(*d->sums));
        d->vectors = train_take(memory, TRAIN_SCRATCH, IDS * dim, sizeof(*d->vectors));
        d->is_finite = train_take(memory, TRAIN_SCRATCH, IDS, 1);
        d->scratch = train_take(memory, TRAIN_SCRATCH, bytes, 1);
        d->scratch_bytes = bytes;
    }
}

/* The parts of a slice: numbers first..end. order and starts: the slice's places, sorted by part. */
struct parts {
    uint32_t slice, first, end;
    const uint32_t *order, *starts;
    const uint32_t *index; /* by number: the dense index; NULL: the number itself */
};

/* Finds the parts of a slice, whose places are from..to, and numbers them from `first` on. */
static struct parts find_parts(const struct train_distinct *d, const struct train_group *g, uint32_t from,
                               uint32_t to, uint32_t first)
{
    uint32_t end = first, *starts = d->starts;
    memset(starts, 0, (to - from + 2) * sizeof(*starts));
    for (uint32_t place = from; place < to; place++) {
        uint32_t u = g->indices[place];
        if (u == BATCH_NONE)
            continue;
        bool is_new = d->part_of[u] <= first; /* a branch would often be mispredicted */
        d->index[end] = u;
        end += is_new;
        d->part_of[u] = is_new ? end : d->part_of[u];
        d->part[place] = d->part_of[u] - 1;
        starts[d->part[place] - first + 2]++;
    }
    for (uint32_t k = 2; k <= end - first; k++)
        starts[k] += starts[k - 1];
    for (uint32_t place = from; place < to; place++)
        if (g->indices[place] != BATCH_NONE)
            d->order[starts[d->part[place] - first + 1]++] = place;
    return (struct parts){.first = first, .end = end, .order = d->order, .starts = starts, .index = d->index};
}

/* Gathers the vectors of the forward pass of n parts, from number `from` on. A non-finite vector belongs to
 * rejected events alone, whose gradients are 0: it is zeroed. */
static void gather_vectors(const struct train *t, const struct train_group *g, const struct parts *parts,
                           uint32_t from, uint32_t n, const struct train_distinct *d)
{
    uint32_t dim = t->net.options.dim;
    bool has_index = parts->index != NULL;
    struct batch_gather_pool gather = {.rows = (const void *const *)g->known + (has_index ? 0 : from),
                                       .indices = has_index ? parts->index + from : NULL,
                                       .bags = n,
                                       .d = dim,
                                       .format = t->rows.format,
                                       .out = d->vectors};
    struct batch_check check = {.x = d->vectors,
                                .rows = n,
                                .d = dim,
                                .is_finite = d->is_finite,
                                .scratch = d->scratch,
                                .scratch_bytes = d->scratch_bytes};
    t->device.kernels->gather_pool(&gather, t->device.stream);
    t->device.kernels->check(&check, t->device.stream);
    for (uint32_t u = 0; u < n; u++)
        if (!d->is_finite[u])
            memset(d->vectors + (size_t)u * dim, 0, dim * sizeof(*d->vectors));
}

static void sum_gradients(const struct train *t, const struct train_group *g, const struct net_layer *l,
                          const struct parts *parts, uint32_t from, const uint32_t *n,
                          const struct train_distinct *d)
{
    struct batch_segment_reduce sum = {
        .in = {.grads = l->out->all_gradients + l->out_from,
               .bag = t->batch.there.event + train_input_first(&t->batch, g->first),
               .order = parts->order,
               .starts = parts->starts + (from - parts->first),
               .count = n,
               .n = *n,
               .d = l->params->n,
               .unit = l->out->stride},
        .sums = d->sums,
        .scratch = d->scratch,
        .scratch_bytes = d->scratch_bytes,
    };
    t->device.kernels->segment_reduce(&sum, t->device.stream);
}

/* The way back through the layers of a slice's parts, by the group's columns. */
static void slice_back(const struct train *t, const struct train_group *g, const struct parts *parts,
                       const struct train_distinct *d)
{
    uint32_t dim = t->net.options.dim, column = t->net.vectors_from + g->first * dim, from = parts->first, n;
    do {
        n = MIN(parts->end - from, (uint32_t)IDS);
        gather_vectors(t, g, parts, from, n, d);
        bool adds = false;
        for (uint32_t i = t->net.layers_count; i-- > 0;) {
            const struct net_layer *l = &t->net.layers[i];
            if (!l->is_by_ids)
                continue;
            sum_gradients(t, g, l, parts, from, &n, d);
            struct batch_matmul by_vectors = vector_gradients_of(t, l, column, d, n);
            struct batch_matmul by_weights = weight_gradients_of(t, l, d, n);
            by_vectors.c = d->more + (size_t)from * dim, by_vectors.adds = adds, adds = true;
            by_weights.c = net_gradient(l->params, parts->slice) + column;
            by_weights.adds = from > parts->first;
            t->device.kernels->matmul(&by_vectors, t->device.stream);
            t->device.kernels->matmul(&by_weights, t->device.stream);
            if (from + n == parts->end)
                net_join(&t->net, l->params, parts->slice, column, l->params->n, dim);
        }
        from += n;
    } while (from < parts->end);
}

void distinct_update(struct train *t, const struct train_group *g, struct batch_update *update, unsigned who)
{
    const struct train_distinct *d = &t->distinct[who];
    const struct batch_slices *s = &t->net.slices;
    struct parts parts = {.end = g->count[0], .order = g->order, .starts = g->starts};
    update->in.more = d->more;
    update->in.more_at = s->count > 1 ? d->part : g->indices;
    if (s->count > 1)
        memset(d->part_of, 0, g->count[0] * sizeof(*d->part_of));
    else
        slice_back(t, g, &parts, d); /* a part for each index */
    for (uint32_t i = 0, first = 0; i < s->count && s->count > 1; i++, first = parts.end) {
        parts = find_parts(d, g, s->borders[i], s->borders[i + 1], first);
        parts.slice = i;
        slice_back(t, g, &parts, d);
    }
    t->device.kernels->update(update, t->device.stream);
}
