/*
 * What losses over many scores need: scores of rows that lie anywhere, sums of such rows, and the parts of a
 * softmax that is made tile by tile (Milakov and Gimelshein 2018, arXiv:1805.02867, algorithm 3).
 */

enum { DOTS_AHEAD = 8 }; /* rows between a row and the one that is prefetched meanwhile */

static void dots(float *out, const float *query, const float *const *rows, size_t n, size_t d)
{
    size_t r = 0, whole = d / 16 * 16;
    for (; r + 4 <= n; r += 4, rows += 4) {
        v16 sums[4] = {v16_set1(0.0F), v16_set1(0.0F), v16_set1(0.0F), v16_set1(0.0F)};
        for (size_t i = 0; i < whole; i += 16) {
            v16 part = v16_load(query + i);
            for (size_t k = 0; k < 4; k++) {
                if (r + k + DOTS_AHEAD < n)
                    __builtin_prefetch(rows[k + DOTS_AHEAD] + i, 0);
                sums[k] = v16_fma(part, v16_load(rows[k] + i), sums[k]);
            }
        }
        for (size_t k = 0; k < 4 && whole < d; k++)
            sums[k] = v16_fma(v16_load_n(query + whole, d - whole), v16_load_n(rows[k] + whole, d - whole),
                              sums[k]);
        v16_sums(out + r, sums[0], sums[1], sums[2], sums[3]);
    }
    for (; r < n; r++, rows++)
        out[r] = dot(query, rows[0], d);
}

enum { SUM_ROWS_VECTORS = 4 }; /* independent sums at a time, to hide the latency of an fma */

LANES_INLINE void weighted_vectors(float *out, const float *const *rows, const float *weights, size_t n,
                                   size_t i, size_t vectors, size_t lanes)
{
    v16 sums[SUM_ROWS_VECTORS];
    for (size_t v = 0; v < vectors; v++)
        sums[v] = v16_load_n(out + i + v * 16, lanes);
    for (size_t r = 0; r < n; r++) {
        if (weights[r] == 0.0F)
            continue;
        v16 weight = v16_set1(weights[r]);
        for (size_t v = 0; v < vectors; v++)
            sums[v] = v16_fma(weight, v16_load_n(rows[r] + i + v * 16, lanes), sums[v]);
    }
    for (size_t v = 0; v < vectors; v++)
        v16_store_n(out + i + v * 16, sums[v], lanes);
}

static void add_weighted(float *out, const float *const *rows, const float *weights, size_t n, size_t d)
{
    size_t i = 0;
    for (; i + SUM_ROWS_VECTORS * 16 <= d; i += SUM_ROWS_VECTORS * 16)
        weighted_vectors(out, rows, weights, n, i, SUM_ROWS_VECTORS, 16);
    for (; i + 16 <= d; i += 16)
        weighted_vectors(out, rows, weights, n, i, 1, 16);
    if (i < d)
        weighted_vectors(out, rows, weights, n, i, 1, d - i);
}

static void exp64(double *out, const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = exp_limited(x[i]);
}

static float scores_max(const float *scores, size_t n)
{
    v16 most = v16_set1(-INFINITY);
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        most = v16_max(most, v16_load(scores + i));
    float lanes[16], top = -INFINITY;
    v16_store(lanes, most);
    for (size_t l = 0; l < 16; l++)
        top = lanes[l] > top ? lanes[l] : top;
    for (; i < n; i++)
        top = scores[i] > top ? scores[i] : top;
    return top;
}

/* e^((score - top) * scale - rest); an exponent above 0, which rounding alone can give, counts as 0. */
LANES_INLINE v16 scores_power(v16 scores, v16 top, v16 scale, v16 rest)
{
    v16 exponent = v16_sub(v16_mul(v16_sub(scores, top), scale), rest);
    return v16_exp_below0(v16_min(v16_set1(0.0F), exponent)); /* for a NaN, min gives the NaN */
}

static float scores_exp_sum(const float *scores, float top, float scale, size_t n)
{
    v16 tops = v16_set1(top), scales = v16_set1(scale), none = v16_set1(0.0F), sum = none;
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        sum = v16_add(sum, scores_power(v16_load(scores + i), tops, scales, none));
    if (i < n) {
        v16 powers = scores_power(v16_load_n(scores + i, n - i), tops, scales, none);
        sum = v16_add(sum, v16_head(powers, none, n - i));
    }
    return v16_sum(sum);
}

static void scores_weights(float *scores, float top, float scale, float rest, float factor, size_t n)
{
    v16 tops = v16_set1(top), scales = v16_set1(scale), rests = v16_set1(rest), factors = v16_set1(factor);
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(scores + i, v16_mul(factors, scores_power(v16_load(scores + i), tops, scales, rests)));
    if (i < n) {
        v16 powers = scores_power(v16_load_n(scores + i, n - i), tops, scales, rests);
        v16_store_n(scores + i, v16_mul(factors, powers), n - i);
    }
}
