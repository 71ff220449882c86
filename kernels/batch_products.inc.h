/*
 * products of batch_train.h: for each event the products of all pairs of its vectors, element by element, and
 * their gradients. Include it behind batch_dot.inc.h, whose dot_row numbers the pairs. A field's dims stay in
 * registers, PRODUCTS_VECTORS vectors of them at a time, while all its partners pass by; an event's vectors
 * stay in the first-level cache, so the columns of pairs are what moves.
 */

enum { PRODUCTS_VECTORS = LANES_REGISTERS < 32 ? 2 : 4 };

/* The index of the pair of two different fields. */
LANES_INLINE size_t products_pair(size_t i, size_t j)
{
    return i > j ? dot_row(i) + j : dot_row(j) + i;
}

/* Dims `at` and on, `count` vectors of n dims, of the products of field i with the fields before it. */
LANES_INLINE void products_dims(float *out, const float *vectors, size_t i, size_t d, size_t at, int count,
                                size_t n)
{
    v16 own[PRODUCTS_VECTORS];
    for (int v = 0; v < count; v++)
        own[v] = v16_load_n(vectors + i * d + at + (size_t)v * 16, n);
    for (size_t j = 0; j < i; j++) {
        const float *other = vectors + j * d + at;
        float *to = out + (dot_row(i) + j) * d + at;
        for (int v = 0; v < count; v++)
            v16_store_n(to + v * 16, v16_mul(own[v], v16_load_n(other + v * 16, n)), n);
    }
}

/* Likewise of the gradients of field i. */
LANES_INLINE void products_grad_dims(float *grads, const float *out_gradients, const float *vectors, size_t i,
                                     size_t fields, size_t d, bool adds, size_t at, int count, size_t n)
{
    v16 sums[PRODUCTS_VECTORS];
    float *to = grads + i * d + at;
    for (int v = 0; v < count; v++)
        sums[v] = v16_set1(0.0F);
    for (size_t j = 0; j < fields; j++) {
        if (j == i)
            continue;
        const float *gradient = out_gradients + products_pair(i, j) * d + at, *other = vectors + j * d + at;
        for (int v = 0; v < count; v++)
            sums[v] = v16_fma(v16_load_n(gradient + v * 16, n), v16_load_n(other + v * 16, n), sums[v]);
    }
    for (int v = 0; v < count; v++)
        v16_store_n(to + v * 16, adds ? v16_add(v16_load_n(to + v * 16, n), sums[v]) : sums[v], n);
}

LANES_INLINE void products_event(float *out, const float *vectors, size_t fields, size_t d)
{
    for (size_t i = 1; i < fields; i++) {
        size_t at = 0;
        for (; at + PRODUCTS_VECTORS * 16 <= d; at += PRODUCTS_VECTORS * 16)
            products_dims(out, vectors, i, d, at, PRODUCTS_VECTORS, 16);
        for (; at + 16 <= d; at += 16)
            products_dims(out, vectors, i, d, at, 1, 16);
        if (at < d)
            products_dims(out, vectors, i, d, at, 1, d - at);
    }
}

LANES_INLINE void products_event_grads(float *grads, const float *out_gradients, const float *vectors,
                                       size_t fields, size_t d, bool adds)
{
    for (size_t i = 0; i < fields; i++) {
        size_t at = 0;
        for (; at + PRODUCTS_VECTORS * 16 <= d; at += PRODUCTS_VECTORS * 16)
            products_grad_dims(grads, out_gradients, vectors, i, fields, d, adds, at, PRODUCTS_VECTORS, 16);
        for (; at + 16 <= d; at += 16)
            products_grad_dims(grads, out_gradients, vectors, i, fields, d, adds, at, 1, 16);
        if (at < d)
            products_grad_dims(grads, out_gradients, vectors, i, fields, d, adds, at, 1, d - at);
    }
}

static void batch_products(struct batch_products *a, void *stream)
{
    (void)stream;
    size_t fields = a->fields, d = a->d, width = dot_row(fields) * d;
    size_t stride = matrix_stride(a->stride, fields * d), out_stride = matrix_stride(a->out_stride, width);
    size_t out_gradients_stride = matrix_stride(a->out_gradients_stride, width);
    size_t grads_stride = matrix_stride(a->grads_stride, fields * d);
    for (size_t e = 0; e < a->n; e++) {
        const float *vectors = a->vectors + e * stride;
        if (a->out != NULL)
            products_event(a->out + e * out_stride, vectors, fields, d);
        if (a->grads != NULL)
            products_event_grads(a->grads + e * grads_stride, a->out_gradients + e * out_gradients_stride,
                                 vectors, fields, d, a->adds);
    }
}
