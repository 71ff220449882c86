/*
 * Layer norm (Ba et al. 2016, arXiv:1607.06450, eq. 4): each row of d values is shifted and scaled to mean 0
 * and variance 1, then multiplied by a gain and moved by a bias, both learned. The variance divides by d.
 *
 * With g = gradient by the output * gain, and h the normalized row, the gradient by the row is
 * (g - mean(g) - h * mean(g * h)) / deviation.
 *
 * A row's sums go over sixteen interleaved partial sums and the tree of v16_sum; four rows are summed beside
 * each other, because a tree is a chain of dependent instructions.
 */

enum { NORM_ROWS = 4 };

/* v16_sum of each of the `rows` vectors, divided by d. rows: 1 or NORM_ROWS. */
LANES_INLINE void norm_means(float means[NORM_ROWS], const v16 sums[NORM_ROWS], size_t rows, float d)
{
    if (rows == NORM_ROWS)
        v16_sums(means, sums[0], sums[1], sums[2], sums[3]);
    else
        means[0] = v16_sum(sums[0]);
    for (size_t r = 0; r < rows; r++)
        means[r] /= d;
}

/* Adds dims i .. i + lanes of each row, or the squares of their distances from the row's mean. */
LANES_INLINE void norm_add(v16 sums[NORM_ROWS], const float *x, size_t rows, size_t d, size_t i, size_t lanes,
                           const float *means)
{
    for (size_t r = 0; r < rows; r++) {
        v16 values = v16_load_n(x + r * d + i, lanes);
        if (means == NULL) {
            sums[r] = v16_add(sums[r], values);
            continue;
        }
        v16 distance = v16_sub(values, v16_set1(means[r]));
        if (lanes < 16)
            distance = v16_head(distance, v16_set1(0.0F), lanes);
        sums[r] = v16_fma(distance, distance, sums[r]);
    }
}

LANES_INLINE void norm_total(float out[NORM_ROWS], const float *x, size_t rows, size_t d, const float *means)
{
    v16 sums[NORM_ROWS];
    for (size_t r = 0; r < rows; r++)
        sums[r] = v16_set1(0.0F);
    size_t i = 0;
    for (; i + 16 <= d; i += 16)
        norm_add(sums, x, rows, d, i, 16, means);
    if (i < d)
        norm_add(sums, x, rows, d, i, d - i, means);
    norm_means(out, sums, rows, (float)d);
}

/* Dims i .. i + lanes of the normalized row. stats: the row's mean, and 1 / its deviation. */
LANES_INLINE v16 norm_values(const float *x, size_t i, size_t lanes, const float stats[2])
{
    return v16_mul(v16_sub(v16_load_n(x + i, lanes), v16_set1(stats[0])), v16_set1(stats[1]));
}

LANES_INLINE void norm_forward_rows(float *out, float *stats, const float *x, const float *gain,
                                    const float *bias, float epsilon, size_t rows, size_t d)
{
    float means[NORM_ROWS], variances[NORM_ROWS];
    norm_total(means, x, rows, d, NULL);
    norm_total(variances, x, rows, d, means);
    for (size_t r = 0; r < rows; r++) {
        float *s = stats + 2 * r, *to = out + r * d;
        const float *from = x + r * d;
        s[0] = means[r], s[1] = 1.0F / sqrtf(variances[r] + epsilon);
        size_t i = 0;
        for (; i + 16 <= d; i += 16)
            v16_store(to + i, v16_fma(norm_values(from, i, 16, s), v16_load(gain + i), v16_load(bias + i)));
        if (i < d) {
            size_t lanes = d - i;
            v16 values = norm_values(from, i, lanes, s);
            v16_store_n(to + i, v16_fma(values, v16_load_n(gain + i, lanes), v16_load_n(bias + i, lanes)),
                        lanes);
        }
    }
}

static void layer_norm_forward(float *out, float *stats, const float *x, const float *gain, const float *bias,
                               float epsilon, size_t n, size_t d)
{
    size_t r = 0;
    for (; r + NORM_ROWS <= n; r += NORM_ROWS)
        norm_forward_rows(out + r * d, stats + 2 * r, x + r * d, gain, bias, epsilon, NORM_ROWS, d);
    for (; r < n; r++)
        norm_forward_rows(out + r * d, stats + 2 * r, x + r * d, gain, bias, epsilon, 1, d);
}

/* Adds the parts of dims i .. i + lanes to the sums of g, and of g * h. Lanes beyond d have gradient 0. */
LANES_INLINE void norm_backward_add(v16 plain[NORM_ROWS], v16 products[NORM_ROWS], const float *dout,
                                    const float *x, const float *stats, const float *gain, size_t rows,
                                    size_t d, size_t i, size_t lanes)
{
    for (size_t r = 0; r < rows; r++) {
        v16 g = v16_mul(v16_load_n(dout + r * d + i, lanes), v16_load_n(gain + i, lanes));
        plain[r] = v16_add(plain[r], g);
        products[r] = v16_fma(g, norm_values(x + r * d, i, lanes, stats + 2 * r), products[r]);
    }
}

LANES_INLINE void norm_backward_store(float *dx, const float *dout, const float *x, const float stats[2],
                                      const float *gain, float plain, float product, size_t i, size_t lanes)
{
    v16 g = v16_mul(v16_load_n(dout + i, lanes), v16_load_n(gain + i, lanes));
    v16 rest = v16_sub(g, v16_set1(plain));
    rest = v16_fnma(norm_values(x, i, lanes, stats), v16_set1(product), rest);
    v16_store_n(dx + i, v16_mul(rest, v16_set1(stats[1])), lanes);
}

LANES_INLINE void norm_backward_rows(float *dx, const float *dout, const float *x, const float *stats,
                                     const float *gain, size_t rows, size_t d)
{
    v16 plain[NORM_ROWS], products[NORM_ROWS];
    float plain_means[NORM_ROWS], product_means[NORM_ROWS];
    for (size_t r = 0; r < rows; r++)
        plain[r] = products[r] = v16_set1(0.0F);
    size_t i = 0;
    for (; i + 16 <= d; i += 16)
        norm_backward_add(plain, products, dout, x, stats, gain, rows, d, i, 16);
    if (i < d)
        norm_backward_add(plain, products, dout, x, stats, gain, rows, d, i, d - i);
    norm_means(plain_means, plain, rows, (float)d);
    norm_means(product_means, products, rows, (float)d);
    for (size_t r = 0; r < rows; r++) {
        size_t at = r * d;
        for (i = 0; i + 16 <= d; i += 16)
            norm_backward_store(dx + at, dout + at, x + at, stats + 2 * r, gain, plain_means[r],
                                product_means[r], i, 16);
        if (i < d)
            norm_backward_store(dx + at, dout + at, x + at, stats + 2 * r, gain, plain_means[r],
                                product_means[r], i, d - i);
    }
}

static void layer_norm_backward(float *dx, const float *dout, const float *x, const float *stats,
                                const float *gain, size_t n, size_t d)
{
    size_t r = 0;
    for (; r + NORM_ROWS <= n; r += NORM_ROWS)
        norm_backward_rows(dx + r * d, dout + r * d, x + r * d, stats + 2 * r, gain, NORM_ROWS, d);
    for (; r < n; r++)
        norm_backward_rows(dx + r * d, dout + r * d, x + r * d, stats + 2 * r, gain, 1, d);
}

enum { NORM_VECTORS = 4 }; /* independent sums of both gradients, to hide the latency of an fma */

/* Dims from i on: `vectors` whole vectors, or one vector of `lanes` dims; rows in order. */
LANES_INLINE void norm_gradient_vectors(float *dgain, float *dbias, const float *dout, const float *x,
                                        const float *stats, size_t n, size_t d, size_t i, size_t vectors,
                                        size_t lanes)
{
    v16 gains[NORM_VECTORS], biases[NORM_VECTORS];
    for (size_t v = 0; v < vectors; v++)
        gains[v] = biases[v] = v16_set1(0.0F);
    for (size_t r = 0; r < n; r++) {
        for (size_t v = 0; v < vectors; v++) {
            v16 g = v16_load_n(dout + r * d + i + v * 16, lanes);
            gains[v] = v16_fma(g, norm_values(x + r * d, i + v * 16, lanes, stats + 2 * r), gains[v]);
            biases[v] = v16_add(biases[v], g);
        }
    }
    for (size_t v = 0; v < vectors; v++) {
        v16_store_n(dgain + i + v * 16, gains[v], lanes);
        v16_store_n(dbias + i + v * 16, biases[v], lanes);
    }
}

static void layer_norm_gradient(float *dgain, float *dbias, const float *dout, const float *x,
                                const float *stats, size_t n, size_t d)
{
    size_t i = 0;
    for (; i + NORM_VECTORS * 16 <= d; i += NORM_VECTORS * 16)
        norm_gradient_vectors(dgain, dbias, dout, x, stats, n, d, i, NORM_VECTORS, 16);
    for (; i + 16 <= d; i += 16)
        norm_gradient_vectors(dgain, dbias, dout, x, stats, n, d, i, 1, 16);
    if (i < d)
        norm_gradient_vectors(dgain, dbias, dout, x, stats, n, d, i, 1, d - i);
}
