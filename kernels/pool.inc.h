/* Pooling and reductions over rows, added in order, one vector of dims at a time: no tree is needed. */

enum { POOL_VECTORS = 6 }; /* independent sums at a time, to hide the latency of an addition */

/* Dims from i on: `vectors` whole vectors, or one vector of `lanes` dims. The sum over rows, divided by
 * `divisor`. */
LANES_INLINE void pool_vectors(float *out, const float *const *rows, size_t n, size_t i, int vectors,
                               size_t lanes, v16 divisor)
{
    v16 sums[POOL_VECTORS];
    for (int v = 0; v < vectors; v++)
        sums[v] = v16_set1(0.0F);
    for (size_t r = 0; r < n; r++) {
        for (int v = 0; v < vectors; v++)
            sums[v] = v16_add(sums[v], v16_load_n(rows[r] + i + v * 16, lanes));
    }
    for (int v = 0; v < vectors; v++)
        v16_store_n(out + i + v * 16, v16_div(sums[v], divisor), lanes);
}

static void pool_mean(float *out, const float *const *rows, size_t n, size_t d)
{
    v16 divisor = v16_set1(n ? (float)n : 1.0F);
    size_t i = 0;
    for (; i + POOL_VECTORS * 16 <= d; i += POOL_VECTORS * 16)
        pool_vectors(out, rows, n, i, POOL_VECTORS, 16, divisor);
    for (; i + 32 <= d; i += 32)
        pool_vectors(out, rows, n, i, 2, 16, divisor);
    for (; i + 16 <= d; i += 16)
        pool_vectors(out, rows, n, i, 1, 16, divisor);
    if (i < d)
        pool_vectors(out, rows, n, i, 1, d - i, divisor);
}

static float dot(const float *x, const float *y, size_t n)
{
    v16 sum = v16_set1(0.0F);
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        sum = v16_fma(v16_load(x + i), v16_load(y + i), sum);
    if (i < n)
        sum = v16_fma(v16_load_n(x + i, n - i), v16_load_n(y + i, n - i), sum);
    return v16_sum(sum);
}

static float sum_squares(const float *x, size_t n)
{
    return dot(x, x, n);
}
