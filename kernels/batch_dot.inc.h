/*
 * dot_interaction of batch_train.h: for each event the products of all pairs of its vectors, and their
 * gradients.
 *
 * Both passes are small matrix products, computed in tiles that stay in registers. Forward, a matrix times
 * its own transpose: tiles of DOT_ROWS fields by four; the sixteen partial sums of each product are
 * independent chains, added up for four products at a time. Backward, a symmetric matrix times the vectors:
 * tiles of four fields by DOT_VECTORS vectors. An event's vectors stay in the first- or second-level cache
 * while all its tiles read them.
 */

/* The sums take sixteen of 32 registers, or four pairs of half-width registers. */
enum { DOT_ROWS = LANES_REGISTERS < 32 ? 1 : 4, DOT_VECTORS = LANES_REGISTERS < 32 ? 1 : 4 };

/* The index among an event's products of the first product of field i with the fields before it. */
LANES_INLINE size_t dot_row(size_t i)
{
    return i * (i - 1) / 2;
}

/* Adds dims `at` up to `at` + n, n <= 16, of the products of the fields x with y[0 .. 3]. */
LANES_INLINE void dot_add(v16 sums[DOT_ROWS][4], const float *const x[DOT_ROWS], const float *const y[4],
                          size_t at, size_t n)
{
    v16 of[4];
    for (int k = 0; k < 4; k++)
        of[k] = v16_load_n(y[k] + at, n);
    for (int r = 0; r < DOT_ROWS; r++) {
        v16 row = v16_load_n(x[r] + at, n);
        for (int k = 0; k < 4; k++)
            sums[r][k] = v16_fma(row, of[k], sums[r][k]);
    }
}

/* products[r][k] = <x[r], y[k]>. */
LANES_INLINE void dot_tile(float products[DOT_ROWS][4], const float *const x[DOT_ROWS],
                           const float *const y[4], size_t d)
{
    v16 sums[DOT_ROWS][4];
    for (int r = 0; r < DOT_ROWS; r++)
        for (int k = 0; k < 4; k++)
            sums[r][k] = v16_set1(0.0F);
    size_t at = 0;
    for (; at + 16 <= d; at += 16)
        dot_add(sums, x, y, at, 16);
    if (at < d)
        dot_add(sums, x, y, at, d - at);
    for (int r = 0; r < DOT_ROWS; r++)
        v16_sums(products[r], sums[r][0], sums[r][1], sums[r][2], sums[r][3]);
}

/* All products of one event. A tile's fields beyond the last one repeat the last field. */
LANES_INLINE void dot_event(float *out, const float *vectors, size_t fields, size_t d)
{
    for (size_t i = 0; i < fields; i += DOT_ROWS) {
        const float *x[DOT_ROWS], *y[4];
        for (size_t r = 0; r < DOT_ROWS; r++)
            x[r] = vectors + (i + r < fields ? i + r : fields - 1) * d;
        for (size_t j = 0; j < i + DOT_ROWS - 1 && j < fields - 1; j += 4) {
            float products[DOT_ROWS][4];
            for (size_t k = 0; k < 4; k++)
                y[k] = vectors + (j + k < fields ? j + k : fields - 1) * d;
            dot_tile(products, x, y, d);
            for (size_t r = 0; r < DOT_ROWS && i + r < fields; r++) {
                float *to = out + dot_row(i + r) + j;
                if (j + 4 <= i + r)
                    memcpy(to, products[r], sizeof(products[r]));
                for (size_t k = 0; j + 4 > i + r && j + k < i + r; k++)
                    to[k] = products[r][k];
            }
        }
    }
}

/* One step of the backward pass, for the gradients of `count` fields, up to four, from `first` on. */
struct dot_grads {
    const float *vectors, *out_gradients; /* out_gradients: of the products */
    const float *copy_gradients;          /* of the copy of field 0; NULL: none to add */
    float *grads;
    size_t fields, d, first, count;
    bool adds;
};

/* The gradient of the product of fields i and j. */
LANES_INLINE float dot_gradient(const float *out_gradients, size_t i, size_t j)
{
    return i > j ? out_gradients[dot_row(i) + j] : out_gradients[dot_row(j) + i];
}

/* Adds the terms of fields j up to `to` to the four fields' gradients; is_own: j may be one of the four. */
LANES_INLINE void dot_pull(v16 sums[4][DOT_VECTORS], const struct dot_grads *g, size_t j, size_t to,
                           size_t at, int vectors, size_t n, bool is_own)
{
    for (; j < to; j++) {
        v16 of[DOT_VECTORS];
        for (int v = 0; v < vectors; v++)
            of[v] = v16_load_n(g->vectors + j * g->d + at + (size_t)v * 16, n);
        for (size_t r = 0; r < 4; r++) {
            size_t i = g->first + r;
            if (i >= g->fields || (is_own && i == j))
                continue;
            v16 gradient = v16_set1(dot_gradient(g->out_gradients, i, j));
            for (int v = 0; v < vectors; v++)
                sums[r][v] = v16_fma(gradient, of[v], sums[r][v]);
        }
    }
}

/* Dims from `at` on of the four fields' gradients: `vectors` whole vectors, or one vector of n dims. */
LANES_INLINE void dot_grads_dims(const struct dot_grads *g, size_t at, int vectors, size_t n)
{
    v16 sums[4][DOT_VECTORS];
    for (int r = 0; r < 4; r++)
        for (int v = 0; v < vectors; v++)
            sums[r][v] = v16_set1(0.0F);
    for (int v = 0; v < vectors && g->copy_gradients; v++)
        sums[0][v] = v16_load_n(g->copy_gradients + at + (size_t)v * 16, n);
    size_t own = g->first, behind = own + g->count;
    dot_pull(sums, g, 0, own, at, vectors, n, false);
    dot_pull(sums, g, own, behind, at, vectors, n, true);
    dot_pull(sums, g, behind, g->fields, at, vectors, n, false);
    for (size_t r = 0; r < g->count; r++)
        for (size_t v = 0; v < (size_t)vectors; v++) {
            float *out = g->grads + (own + r) * g->d + at + v * 16;
            v16_store_n(out, g->adds ? v16_add(v16_load_n(out, n), sums[r][v]) : sums[r][v], n);
        }
}

LANES_INLINE void dot_event_grads(struct dot_grads *g, const float *copy_gradients)
{
    for (g->first = 0; g->first < g->fields; g->first += 4) {
        g->count = g->fields - g->first < 4 ? g->fields - g->first : 4;
        g->copy_gradients = g->first == 0 ? copy_gradients : NULL;
        size_t at = 0;
        for (; at + DOT_VECTORS * 16 <= g->d; at += DOT_VECTORS * 16)
            dot_grads_dims(g, at, DOT_VECTORS, 16);
        for (; DOT_VECTORS > 1 && at + 16 <= g->d; at += 16)
            dot_grads_dims(g, at, 1, 16);
        if (at < g->d)
            dot_grads_dims(g, at, 1, g->d - at);
    }
}

static void batch_dot_interaction(struct batch_dot_interaction *a, void *stream)
{
    (void)stream;
    size_t fields = a->fields, d = a->d, copied = a->copies_first ? d : 0, width = copied + dot_row(fields);
    size_t stride = matrix_stride(a->stride, fields * d), out_stride = matrix_stride(a->out_stride, width);
    size_t out_gradients_stride = matrix_stride(a->out_gradients_stride, width);
    size_t grads_stride = matrix_stride(a->grads_stride, fields * d);
    for (size_t e = 0; e < a->n; e++) {
        const float *vectors = a->vectors + e * stride;
        if (a->out != NULL) {
            memcpy(a->out + e * out_stride, vectors, copied * sizeof(*vectors));
            dot_event(a->out + e * out_stride + copied, vectors, fields, d);
        }
        if (a->grads != NULL) {
            const float *out_gradients = a->out_gradients + e * out_gradients_stride;
            struct dot_grads g = {.vectors = vectors,
                                  .out_gradients = out_gradients + copied,
                                  .grads = a->grads + e * grads_stride,
                                  .fields = fields,
                                  .d = d,
                                  .adds = a->adds};
            dot_event_grads(&g, a->copies_first ? out_gradients : NULL);
        }
    }
}
