/* The kernels of batch_sequence.h: calls of the kernels of norm.inc.h, activation.inc.h and attention_*.inc.h, and
 * rows of positions. */

static void batch_layer_norm(struct batch_layer_norm *a, void *stream)
{
    (void)stream;
    if (a->out != NULL)
        layer_norm_forward(a->out, a->stats, a->x, a->gain, a->bias, a->epsilon, a->n, a->d);
    if (a->out_gradients != NULL)
        layer_norm_backward(a->grads, a->out_gradients, a->x, a->stats, a->gain, a->n, a->d);
}

static void batch_layer_norm_gradient(struct batch_layer_norm_gradient *a, void *stream)
{
    (void)stream;
    size_t d = a->d, chunks = (a->n + (size_t)BATCH_CHUNK - 1) / BATCH_CHUNK;
    size_t parts = a->parts != NULL ? a->parts_count : chunks;
    for (size_t p = 0; p < parts; p++) {
        size_t from = a->parts != NULL ? a->parts[p] : p * BATCH_CHUNK;
        size_t end = a->parts != NULL            ? a->parts[p + 1]
                     : from + BATCH_CHUNK < a->n ? from + BATCH_CHUNK
                                                 : a->n;
        float *sums = a->sums + p * 2 * d;
        layer_norm_gradient(sums, sums + d, a->out_gradients + from * d, a->x + from * d, a->stats + from * 2,
                            end - from, d);
        for (size_t i = 0; i < 2 * d; i++)
            a->total[i] = p == 0 ? sums[i] : a->total[i] + sums[i];
    }
    for (size_t i = 0; i < 2 * d && parts == 0; i++)
        a->total[i] = 0.0F;
}

static void batch_silu(struct batch_silu *a, void *stream)
{
    (void)stream;
    if (a->out != NULL)
        silu_forward(a->out, a->x, a->n);
    if (a->out_gradients != NULL)
        silu_backward(a->grads, a->out_gradients, a->x, a->n);
}

/* out = x * y, n rows of d columns. */
static void gate_rows(float *out, size_t out_stride, const float *x, size_t x_stride, const float *y,
                      size_t y_stride, size_t n, size_t d)
{
    for (size_t r = 0; r < n; r++, out += out_stride, x += x_stride, y += y_stride)
        for (size_t c = 0; c < d; c++)
            out[c] = x[c] * y[c];
}

static void batch_gate(struct batch_gate *a, void *stream)
{
    (void)stream;
    size_t n = a->n, d = a->d, stride = matrix_stride(a->a_stride, d);
    if (a->out != NULL)
        gate_rows(a->out, d, a->a, stride, a->b, d, n, d);
    if (a->out_gradients != NULL) {
        gate_rows(a->a_grads, stride, a->out_gradients, d, a->b, d, n, d);
        gate_rows(a->b_grads, d, a->out_gradients, d, a->a, stride, n, d);
    }
}

static void batch_dropout(struct batch_dropout *a, void *stream)
{
    (void)stream;
    if (a->keys != NULL) {
        dropout(a->x, a->keys, a->rate, a->n, a->d);
        return;
    }
    for (size_t w = 0; w < a->windows; w++) {
        for (size_t row = a->offsets[w]; row < a->offsets[w + 1]; row++) {
            uint64_t key = num_chance(a->seed, a->identities[w], a->part + (row - a->offsets[w]));
            dropout(a->x + row * a->d, &key, a->rate, 1, a->d);
        }
    }
}

static void batch_add_positions(struct batch_add_positions *a, void *stream)
{
    (void)stream;
    size_t d = a->d, stride = matrix_stride(a->stride, d);
    for (size_t w = 0; w < a->windows; w++) {
        for (size_t row = a->offsets[w]; row < a->offsets[w + 1]; row++) {
            const float *from = a->table + (row - a->offsets[w]) * stride;
            for (size_t c = 0; c < d; c++)
                a->x[row * d + c] += from[c];
        }
    }
}

/* One position: the sum of its rows, part by part. */
static void positions_sum(const struct batch_positions_gradient *a, size_t position, float *to)
{
    float own[BATCH_DIM_MAX];
    size_t d = a->d, parts = a->parts != NULL ? a->parts_count : 1;
    memset(to, 0, d * sizeof(*to));
    for (size_t p = 0; p < parts; p++) {
        size_t from = a->parts != NULL ? a->parts[p] : 0,
               end = a->parts != NULL ? a->parts[p + 1] : a->windows;
        memset(own, 0, d * sizeof(*own));
        for (size_t w = from; w < end; w++) {
            if (position >= a->offsets[w + 1] - a->offsets[w])
                continue;
            const float *row = a->out_gradients + (a->offsets[w] + position) * d;
            for (size_t c = 0; c < d; c++)
                own[c] += row[c];
        }
        for (size_t c = 0; c < d; c++)
            to[c] = p == 0 ? own[c] : to[c] + own[c];
    }
}

static void batch_positions_gradient(struct batch_positions_gradient *a, void *stream)
{
    (void)stream;
    for (size_t position = 0; position < a->positions; position++)
        positions_sum(a, position, a->table + position * matrix_stride(a->stride, a->d));
}

/* Scratch memory of both kinds of attention; false: the call asks how much it is. */
static bool attention_has_room(struct batch_attention *a)
{
    bool is_bf16 = a->of.precision == ROW_BF16;
    size_t bytes = is_bf16 ? attention_scratch_bf16_bytes(a->of.d) : attention_scratch_bytes(a->of.d);
    if (a->scratch == NULL)
        a->scratch_bytes = bytes > BATCH_SCRATCH_MIN ? bytes : (size_t)BATCH_SCRATCH_MIN;
    return a->scratch != NULL;
}

static void batch_attention_softmax(struct batch_attention *a, void *stream)
{
    (void)stream;
    struct attention of = a->of;
    if (!attention_has_room(a))
        return;
    of.scratch = a->scratch;
    if (of.dout.at != NULL)
        attention_softmax_backward(&of);
    else
        attention_softmax_forward(&of);
}

static void batch_attention_silu(struct batch_attention *a, void *stream)
{
    (void)stream;
    struct attention of = a->of;
    if (!attention_has_room(a))
        return;
    of.scratch = a->scratch;
    if (of.dout.at == NULL) {
        attention_silu_forward(&of);
        return;
    }
    for (size_t p = 0; p < (a->parts != NULL ? a->parts_count : 1); p++) {
        struct attention_bias bias;
        struct attention one = of;
        if (of.bias != NULL) {
            bias = *of.bias;
            bias.dpositions += bias.positions != NULL ? p * a->part_stride : 0;
            bias.dtimes += bias.times != NULL ? p * a->part_stride : 0;
            one.bias = &bias;
        }
        if (a->parts != NULL) {
            one.offsets = of.offsets + a->parts[p], one.events = a->parts[p + 1] - a->parts[p];
            one.identities = of.identities != NULL ? of.identities + a->parts[p] : NULL;
        }
        attention_silu_backward(&one);
    }
}
