/* Pooling and reductions over rows. Rows are added in order, a vector of dims at a time: no tree is needed.
 */

static void pool_sum(float *out, const float *const *rows, size_t n, size_t d)
{
    for (size_t i = 0; i < d; i += 16) {
        size_t lanes = d - i < 16 ? d - i : 16;
        v16 sum = v16_set1(0.0F);
        for (size_t r = 0; r < n; r++)
            sum = v16_add(sum, v16_load_n(rows[r] + i, lanes));
        v16_store_n(out + i, sum, lanes);
    }
}

static void pool_mean(float *out, const float *const *rows, size_t n, size_t d)
{
    v16 count = v16_set1(n ? (float)n : 1.0F);
    for (size_t i = 0; i < d; i += 16) {
        size_t lanes = d - i < 16 ? d - i : 16;
        v16 sum = v16_set1(0.0F);
        for (size_t r = 0; r < n; r++)
            sum = v16_add(sum, v16_load_n(rows[r] + i, lanes));
        v16_store_n(out + i, v16_div(sum, count), lanes);
    }
}

static void segment_sum(float *out, const float *grads, const uint32_t *order, const uint32_t *starts,
                        size_t n, size_t d)
{
    for (size_t s = 0; s < n; s++) {
        for (size_t i = 0; i < d; i += 16) {
            size_t lanes = d - i < 16 ? d - i : 16;
            v16 sum = v16_set1(0.0F);
            for (uint32_t r = starts[s]; r < starts[s + 1]; r++) {
                sum = v16_add(sum, v16_load_n(grads + (size_t)order[r] * d + i, lanes));
            }
            v16_store_n(out + s * d + i, sum, lanes);
        }
    }
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
