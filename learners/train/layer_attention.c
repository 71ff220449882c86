/*
 * Attention over the windows of a sequence model, by the kernels of kernels/attention.h: softmax, causal (Kang and
 * McAuley 2018, eq. 2) or not (Sun et al. 2019), or SiLU with learned biases of relative position and time, which
 * all heads share (Zhai et al. 2024, eq. 2). SiLU's weights are divided by window_max, so that a token does not
 * depend on how long its window is.
 *
 * Softmax goes window by window: the logarithms of its sums, which the backward pass needs, lie in the window's
 * rows of l->z as [heads][rows of the window], wherever chunks and tiles begin. SiLU goes chunk by chunk, since
 * each of its calls has to clear and to add up the gradients by the biases of time; the gradient by the tables
 * of a chunk comes first into scratch memory, so that threads wait for each other while chunks are added alone.
 *
 * Of windows whose last rows alone are in the pass (net_kept), each goes by itself: the keys and values of its rows
 * are put into pages, from which those of all rows are read, with the same bits.
 *
 * On a GPU a call has all windows of the pass, and l->z is [heads][rows of the pass]. The gradients by the tables of all
 * chunks lie in scratch memory, too, and are added by halves, which takes few calls; a CPU adds them in order.
 *
 * SiLU's parameter is one row: the biases by distance (causal: 0 .. window_max - 1; else, and in a network some of
 * whose passes go both ways, -window_max + 1 .. window_max - 1), then those by time (ATTENTION_TIME_BUCKETS). They
 * begin with 0.
 */
#include "learners/train/net.h"

#include "core/base.h"
#include "kernels/attention_pages.h"

#include <math.h>

/* Windows without the empty ones, of one call of a kernel: at most a chunk's rows, or one longer window. */
struct span {
    uint32_t from;       /* first row, counted from the tile's first */
    uint32_t count, row; /* row: first row in the pass */
    uint32_t offsets[BATCH_CHUNK + 1];
    uint64_t identities[BATCH_CHUNK];
};

/* Whether there are biases of distance to earlier tokens alone. */
static bool has_one_way(const struct net *net, bool is_causal)
{
    return is_causal && !net->options.both_ways;
}

static uint32_t distances_of(const struct net *net, bool is_causal)
{
    return has_one_way(net, is_causal) ? net->options.window_max : 2 * net->options.window_max - 1;
}

struct net_layer *net_add_attention(struct net *net, struct net_matrix *in, uint32_t from, uint32_t heads,
                                    struct net_matrix *out, bool has_softmax, bool is_causal, float dropout)
{
    leat_assert(net->options.window_max > 0 && net->options.window_max <= ATTENTION_LENGTH_MAX);
    leat_assert(!in->is_relu && heads > 0 && out->columns % heads == 0);
    leat_assert(out->columns / heads % 16 == 0 && out->columns / heads <= ATTENTION_DIM_MAX);
    leat_assert(from + 3 * out->columns <= in->columns && dropout >= 0.0F && dropout < 1.0F);
    struct net_layer *l = net_add_layer(net, &net_attention, in, out);
    l->in_from = from, l->in_columns = 3 * out->columns;
    l->owns_part = true;
    l->fields = heads, l->dim = out->columns / heads;
    l->has_softmax = has_softmax, l->is_causal = is_causal, l->dropout = dropout;
    l->kept_from = net->kept_elements;
    net->kept_elements += attention_page_elements(out->columns);
    if (has_softmax)
        l->z = net_add_places(net, 1, heads), l->z->is_by_columns = net->device->api != NULL;
    else
        l->params = net_add_params(net, 1, distances_of(net, is_causal) + ATTENTION_TIME_BUCKETS);
    return l;
}

/* --- Calls of the kernels --- */

static void span_of(const struct net *net, uint32_t window, uint32_t end, struct span *s)
{
    const struct net_windows *w = &net->windows;
    leat_assert(w->identities != NULL || !w->drops);
    s->row = w->offsets[window], s->from = s->row - w->offsets[net->window];
    s->count = s->offsets[0] = 0;
    for (; window < end; window++) {
        if (w->offsets[window + 1] == w->offsets[window])
            continue;
        s->identities[s->count] = w->identities != NULL ? w->identities[window] : 0;
        s->offsets[++s->count] = w->offsets[window + 1] - s->row;
    }
}

/* The factor of q k. */
static float scale_of(const struct net_layer *l)
{
    return l->has_softmax ? 1.0F / sqrtf((float)l->dim) : 1.0F;
}

/* The arguments that all calls share, but for the windows. from: the first row, counted from the tile's first. */
static struct attention attention_from(const struct net *net, const struct net_layer *l, uint32_t from)
{
    size_t width = (size_t)l->fields * l->dim, stride = l->in->stride;
    const float *q = net_values(net, l->in) + from * stride + l->in_from;
    return (struct attention){
        .heads = l->fields,
        .d = l->dim,
        .is_causal = l->is_causal && !net->windows.is_both_ways,
        .scale = scale_of(l),
        .q = {q, stride},
        .k = {q + width, stride},
        .v = {q + 2 * width, stride},
        .out = {net_values(net, l->out) + from * (size_t)l->out->stride, l->out->stride},
        .lse = l->has_softmax ? net_values(net, l->z) + from * (size_t)l->fields : NULL,
        .weight_scale = 1.0F / (float)net->options.window_max,
        .dropout = net->windows.drops ? l->dropout : 0.0F,
        .seed = net->windows.chance,
        .part = (uint64_t)(l - net->layers) << 32,
        .scratch = net->scratch};
}

static struct attention attention_of(const struct net *net, const struct net_layer *l, const struct span *s)
{
    struct attention a = attention_from(net, l, s->from);
    a.offsets = s->offsets, a.events = s->count, a.identities = s->identities;
    return a;
}

/* seconds: by row, of queries and keys. gradient: the tables' gradients; NULL in the forward pass. */
static struct attention_bias bias_of(const struct net *net, const struct net_layer *l,
                                     const uint32_t *seconds, float *gradient)
{
    size_t distances = distances_of(net, l->is_causal),
           middle = has_one_way(net, l->is_causal) ? 0 : distances / 2;
    struct attention_bias bias = {.positions = l->params->w + middle,
                                  .times = l->params->w + distances,
                                  .positions_max = net->options.window_max - 1,
                                  .query_seconds = seconds,
                                  .key_seconds = seconds};
    if (gradient != NULL)
        bias.dpositions = gradient + middle, bias.dtimes = gradient + distances;
    return bias;
}

static void set_gradients(struct attention *a, const struct net_layer *l, uint32_t from)
{
    size_t width = (size_t)l->fields * l->dim, stride = l->in->stride;
    float *dq = l->in->gradients + from * stride + l->in_from;
    a->dout = (struct attention_in){l->out->gradients + from * (size_t)l->out->stride, l->out->stride};
    a->dq = (struct attention_out){dq, stride};
    a->dk = (struct attention_out){dq + width, stride};
    a->dv = (struct attention_out){dq + 2 * width, stride};
}

static void softmax_windows(const struct net *net, const struct net_layer *l, const struct net_chunk *c,
                            bool is_backward)
{
    for (uint32_t window = c->window; window < c->end; window++) {
        struct span s;
        span_of(net, window, window + 1, &s);
        struct attention a = attention_of(net, l, &s);
        if (is_backward) {
            set_gradients(&a, l, s.from);
            net->kernels->attention_softmax_backward(&a);
        } else {
            net->kernels->attention_softmax_forward(&a);
        }
    }
}

/* gradient: where the gradient by the tables is added; NULL: the forward pass. */
static void silu_chunk(const struct net *net, const struct net_layer *l, const struct net_chunk *c,
                       float *gradient)
{
    struct span s;
    span_of(net, c->window, c->end, &s);
    struct attention a = attention_of(net, l, &s);
    leat_assert(net->windows.seconds != NULL);
    struct attention_bias bias = bias_of(net, l, net->windows.seconds + s.row, gradient);
    a.bias = &bias;
    if (gradient != NULL) {
        set_gradients(&a, l, s.from);
        net->kernels->attention_silu_backward(&a);
    } else {
        net->kernels->attention_silu_forward(&a);
    }
}

/* --- Windows whose first rows are kept --- */

/* `columns` floats of each of n rows, rounded to bf16. */
static void round_rows(float *x, size_t stride, uint32_t n, size_t columns)
{
    for (uint32_t r = 0; r < n; r++, x += stride)
        for (size_t i = 0; i < columns; i++)
            x[i] = float_of_bf16(bf16_of(float_bits(x[i]), 0, true));
}

/* The queries of a window's n rows in the pass, the first at row `from` of the tile, against its pages. */
static void read_pages(const struct net *net, const struct net_layer *l, const struct net_kept *kept,
                       uint32_t from, uint32_t n)
{
    struct attention_bias bias;
    struct attention_pages a = {
        .pages = (const void *const *)kept->pages,
        .is_bf16 = net->windows.kept_is_bf16,
        .from = l->kept_from,
        .first = kept->rows,
        .queries = n,
        .heads = l->fields,
        .d = l->dim,
        .scale = scale_of(l),
        .q = {net_values(net, l->in) + from * (size_t)l->in->stride + l->in_from, l->in->stride},
        .out = {net_values(net, l->out) + from * (size_t)l->out->stride, l->out->stride},
        .weight_scale = 1.0F / (float)net->options.window_max};
    if (l->has_softmax) {
        net->kernels->attention_softmax_pages(&a);
        return;
    }
    bias = bias_of(net, l, kept->seconds, NULL);
    bias.query_seconds += kept->rows;
    a.bias = &bias;
    net->kernels->attention_silu_pages(&a);
}

static void kept_windows(const struct net *net, const struct net_layer *l, const struct net_chunk *c)
{
    const struct net_windows *w = &net->windows;
    size_t width = l->out->columns, stride = l->in->stride;
    leat_assert(l->is_causal && !w->drops && !w->is_both_ways);
    for (uint32_t window = c->window; window < c->end; window++) {
        const struct net_kept *kept = &w->kept[window];
        uint32_t from = w->offsets[window] - w->offsets[net->window];
        uint32_t n = w->offsets[window + 1] - w->offsets[window];
        float *keys = net_values(net, l->in) + from * stride + l->in_from + width;
        if (w->kept_is_bf16)
            round_rows(keys, stride, n, 2 * width);
        for (uint32_t r = 0; r < n && kept->pages != NULL; r++, keys += stride)
            attention_page_put(kept->pages[(kept->rows + r) / ATTENTION_PAGE], w->kept_is_bf16, l->kept_from,
                               kept->rows + r, keys, keys + width, width);
        struct net_chunk alone = {.window = window, .end = window + 1};
        if (kept->rows > 0)
            read_pages(net, l, kept, from, n);
        else if (l->has_softmax)
            softmax_windows(net, l, &alone, false);
        else
            silu_chunk(net, l, &alone, NULL);
    }
}

/* --- The passes on a CPU --- */

static void forward_chunks(const struct net *net, const struct net_layer *l)
{
    for (uint32_t i = 0; i < net_chunks(net); i++) {
        struct net_chunk c = net_chunk(net, i);
        if (net->windows.kept != NULL)
            kept_windows(net, l, &c);
        else if (l->has_softmax)
            softmax_windows(net, l, &c, false);
        else
            silu_chunk(net, l, &c, NULL);
    }
}

/* Bytes of scratch memory that the kernel needs for n rows: the tables' gradients by chunk lie behind them. */
static size_t kernel_scratch(const struct net *net, const struct net_layer *l, uint32_t n)
{
    struct batch_attention a = {.of = {.heads = l->fields, .d = l->dim}, .queries = n};
    const struct batch_kernels *k = net->device->kernels;
    (l->has_softmax ? k->attention_softmax : k->attention_silu)(&a, net->device->stream);
    return (a.scratch_bytes + 255) / 256 * 256;
}

static float *tables_of(const struct net *net, const struct net_layer *l, uint32_t n)
{
    return (float *)((unsigned char *)net->scratch + kernel_scratch(net, l, n));
}

/* Adds the gradients of all chunks, in their order, to those of the slices. */
static void add_gradients(const struct net *net, const struct net_layer *l, uint32_t n, const float *own)
{
    const struct net_params *p = l->params;
    for (struct net_part part = {0}; net_next_part(net, n, &part); own += p->stride) {
        float *sum = net_gradient(p, part.slice);
        struct batch_add_rows a = {.x = sum, .y = own, .n = 1, .columns = p->d};
        if (part.adds)
            net->device->kernels->add_rows(&a, net->device->stream);
        else
            memcpy(sum, own, p->d * sizeof(*sum));
        if (part.is_last)
            net_join(net, p, part.slice, 0, 1, p->d);
    }
}

static void backward_chunks(const struct net *net, const struct net_layer *l, uint32_t n)
{
    uint32_t chunks = net_chunks(net);
    float *tables = l->has_softmax ? NULL : tables_of(net, l, n);
    if (tables != NULL)
        memset(tables, 0, (size_t)chunks * l->params->stride * sizeof(*tables));
    for (uint32_t i = 0; i < chunks; i++) {
        struct net_chunk c = net_chunk(net, i);
        if (tables == NULL)
            softmax_windows(net, l, &c, true);
        else
            silu_chunk(net, l, &c, tables + (size_t)i * l->params->stride);
    }
    if (tables == NULL)
        return;
    net_wait_turn(net, l);
    add_gradients(net, l, n, tables);
    net_end_turn(net, l);
}

/* --- The passes on a GPU --- */

/* Adds the gradients of all chunks to that of the tables. */
static void add_halves(const struct net *net, const struct net_layer *l, float *tables)
{
    const struct net_params *p = l->params;
    float *sum = net_gradient(p, 0);
    struct batch_add_rows a = {.x = tables, .columns = p->d, .x_stride = p->stride, .y_stride = p->stride};
    for (uint32_t left = net->copy.chunks_count, half; left > 1; left = half) {
        half = (left + 1) / 2;
        a.y = tables + (size_t)half * p->stride, a.n = left - half;
        net->device->kernels->add_rows(&a, net->device->stream);
    }
    a.x = sum, a.y = tables, a.n = 1;
    if (net->event > 0)
        net->device->kernels->add_rows(&a, net->device->stream);
    else
        train_copy(net->device, sum, tables, p->d * sizeof(*sum));
}

static void run_device(const struct net *net, const struct net_layer *l, uint32_t n, bool is_backward)
{
    const struct windows_copy *w = &net->copy;
    const struct batch_kernels *k = net->device->kernels;
    struct batch_attention a = {.of = attention_from(net, l, 0), .queries = n, .scratch = net->scratch};
    struct attention_bias bias;
    float *tables = NULL;
    leat_assert(net->windows.kept == NULL);
    a.of.offsets = w->offsets, a.of.events = w->count, a.of.identities = w->identities;
    if (is_backward)
        set_gradients(&a.of, l, 0);
    if (l->has_softmax) {
        k->attention_softmax(&a, net->device->stream);
        return;
    }
    leat_assert(w->seconds != NULL);
    if (is_backward) {
        tables = tables_of(net, l, n);
        train_fill(net->device, tables, 0, (size_t)w->chunks_count * l->params->stride * sizeof(*tables));
        a.parts = w->chunks, a.parts_count = w->chunks_count, a.part_stride = l->params->stride;
    }
    bias = bias_of(net, l, w->seconds, tables);
    a.of.bias = &bias;
    k->attention_silu(&a, net->device->stream);
    if (is_backward)
        add_halves(net, l, tables);
}

/* --- The layer --- */

static void attention_forward(struct net *net, struct net_layer *l, uint32_t n)
{
    leat_assert(net->options.both_ways || !net->windows.is_both_ways);
    if (net->device->api != NULL)
        run_device(net, l, n, false);
    else
        forward_chunks(net, l);
}

static void attention_backward(struct net *net, struct net_layer *l, uint32_t n)
{
    l->in->has_gradients = true;
    if (net->device->api != NULL)
        run_device(net, l, n, true);
    else
        backward_chunks(net, l, n);
}

static size_t attention_scratch(const struct net *net, const struct net_layer *l, uint32_t n)
{
    size_t own = kernel_scratch(net, l, n);
    return l->has_softmax ? own : own + (size_t)net_chunks_max(n) * l->params->stride * sizeof(float);
}

static unsigned attention_reads(const struct net_layer *l)
{
    return NET_BACK_IN | (l->has_softmax ? NET_WRITES_Z | NET_BACK_Z | NET_BACK_OUT : 0U);
}

const struct net_layer_kind net_attention = {.name = "attention",
                                             .forward = attention_forward,
                                             .backward = attention_backward,
                                             .scratch = attention_scratch,
                                             .reads = attention_reads};
