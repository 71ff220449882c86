/* Factorization machine (Rendle 2010) and field-aware one (Juan 2016): the pairwise terms and their
 * gradients. */

/* One more vector: the sum and the sum of squares. */
LANES_INLINE void fm_add(v16 *sum, v16 *squares, v16 v)
{
    *sum = v16_add(*sum, v);
    *squares = v16_fma(v, v, *squares);
}

/* The pairs' products by dims: (sum^2 - squares) / 2; four slices of them are added up in out. */
LANES_INLINE void fm_slices(float out[4], v16 sum, v16 squares)
{
    v16_sum4(out, v16_mul(v16_sub(v16_mul(sum, sum), squares), v16_set1(0.5F)));
}

/* Sixteen dims at most; adds their slices to total. */
LANES_INLINE float fm_dims(float *sum, const float *const *rows, size_t n, size_t i, size_t lanes,
                           float total)
{
    v16 s = v16_set1(0.0F), squares = v16_set1(0.0F);
    for (size_t r = 0; r < n; r++)
        fm_add(&s, &squares, v16_load_n(rows[r] + i, lanes));
    v16_store_n(sum + i, s, lanes);
    float slices[4];
    fm_slices(slices, s, squares);
    for (size_t j = 0; j * 4 < lanes; j++)
        total += slices[j];
    return total;
}

static float fm_forward(float *sum, const float *const *rows, size_t n, size_t d)
{
    float total = 0.0F;
    size_t i = 0;
    for (; i + 16 <= d; i += 16)
        total = fm_dims(sum, rows, n, i, 16, total);
    return i < d ? fm_dims(sum, rows, n, i, d - i, total) : total;
}

LANES_INLINE void fm_rows_left(float *grads, const float *sum, const float *const *rows, size_t n, size_t d,
                               size_t i, size_t lanes)
{
    v16 s = v16_load_n(sum + i, lanes);
    for (size_t r = 0; r < n; r++)
        v16_store_n(grads + r * d + i, v16_sub(s, v16_load_n(rows[r] + i, lanes)), lanes);
}

static void fm_backward(float *grads, const float *sum, const float *const *rows, size_t n, size_t d)
{
    size_t i = 0;
    for (; i + 16 <= d; i += 16)
        fm_rows_left(grads, sum, rows, n, d, i, 16);
    if (i < d)
        fm_rows_left(grads, sum, rows, n, d, i, d - i);
}

/* What lies `bytes` behind a place, beyond the end too, is on its way into the cache. */
LANES_INLINE void fetch_to_read(const float *place, size_t bytes)
{
    __builtin_prefetch((const void *)((uintptr_t)place + bytes), 0);
}

LANES_INLINE void fetch_to_write(const float *place, size_t bytes)
{
    __builtin_prefetch((const void *)((uintptr_t)place + bytes), 1);
}

/* What becomes of the partners of a slice: gradients times `slope` (NULL: as they are), or nothing (out
 * NULL). */
struct ffm_out {
    float *out;
    size_t stride; /* of out's rows */
    const float *slope;
    size_t ahead; /* bytes up to the same place in what comes later, which is fetched meanwhile; 0: nothing */
};

LANES_INLINE void ffm_put(struct ffm_out to, size_t f, size_t g, v16 partner)
{
    if (to.out)
        v16_store(to.out + f * to.stride + g * 4, to.slope ? v16_mul(partner, v16_set1(*to.slope)) : partner);
}

/*
 * Fields in tiles of four: partners of tile f (rows f..f+3) among tile g, from the four rows of tile g:
 * vector k holds block f + k of each. A field's own block is zero.
 */
LANES_INLINE void ffm_partners(v16 partners[4], const float *const *rows, size_t f, size_t g, size_t slice)
{
    size_t at = slice + f * 4;
    v16_load_turned(partners, rows[g] + at, rows[g + 1] + at, rows[g + 2] + at, rows[g + 3] + at);
    for (int k = 0; k < 4 && f == g; k++)
        partners[k] = v16_clear_group(partners[k], k);
}

/* Puts a tile's partners where they belong; returns their products with the rows' own blocks, added in order.
 */
LANES_INLINE v16 ffm_tile(struct ffm_out to, const float *const *rows, size_t f, size_t g, size_t n,
                          size_t slice, v16 sum)
{
    v16 partners[4];
    ffm_partners(partners, rows, f, g, slice);
    for (size_t k = 0; k < 4 && f + k < n; k++) {
        ffm_put(to, f + k, g, partners[k]);
        if (to.ahead > 0) {
            fetch_to_read(rows[f + k] + slice + g * 4, to.ahead);
            if (to.out)
                fetch_to_write(to.out + (f + k) * to.stride + g * 4, to.ahead);
        }
        sum = v16_fma(v16_load(rows[f + k] + slice + g * 4), partners[k], sum);
    }
    return sum;
}

/* All pairs of one slice, which begins at `slice` in each row. In a tile with itself each pair is met twice.
 */
LANES_INLINE float ffm_slice(struct ffm_out to, const float *const *rows, size_t n, size_t slice)
{
    v16 pairs = v16_set1(0.0F);
    v16 twice = v16_set1(0.0F);
    for (size_t f = 0; f < n; f += 4) {
        twice = ffm_tile(to, rows, f, f, n, slice, twice);
        for (size_t g = f + 4; g < n; g += 4) {
            pairs = ffm_tile(to, rows, f, g, n, slice, pairs);
            (void)ffm_tile(to, rows, g, f, n, slice, v16_set1(0.0F));
        }
    }
    return v16_sum(v16_fma(twice, v16_set1(0.5F), pairs));
}

/* The copy into partners is what lets rows be updated in place afterwards. */
static float ffm_forward(float *partners, const float *const *rows, const float *zero, size_t n, size_t d)
{
    (void)zero; /* rows n and beyond are that */
    size_t blocks = FFM_ROUND(n);
    float total = 0.0F;
    for (size_t s = 0; s < d / 4; s++) {
        size_t slice = s * blocks * 4;
        struct ffm_out to = {.out = partners + slice, .stride = d * blocks};
        total += ffm_slice(to, rows, n, slice);
    }
    return total;
}

/* A tile's partners in all slices, and its products, summed over them. */
LANES_INLINE void ffm_pairs_tile(float *products, float *partners, const float *const *rows, size_t f,
                                 size_t g, size_t n, size_t d)
{
    size_t blocks = FFM_ROUND(n), stride = d * blocks, count = n - f < 4 ? n - f : 4;
    v16 z = v16_set1(0.0F), sums[4] = {z, z, z, z}, p[4];
    for (size_t slice = 0; slice < stride; slice += blocks * 4) {
        ffm_partners(p, rows, f, g, slice);
        for (size_t k = 0; k < 4 && k < count; k++) {
            v16_store(partners + (f + k) * stride + slice + g * 4, p[k]);
            sums[k] = v16_fma(v16_load(rows[f + k] + slice + g * 4), p[k], sums[k]);
        }
    }
    float *out = products + f * blocks + g;
    v16 four = v16_group_sums(sums[0], sums[1], sums[2], sums[3]);
    if (count == 4)
        v16_store4x4(out, out + blocks, out + 2 * blocks, out + 3 * blocks, four);
    for (size_t k = 0; k < count && count < 4; k++)
        v16_sum4(out + k * blocks, sums[k]);
}

static void ffm_pairs_forward(float *products, float *partners, const float *const *rows, const float *zero,
                              size_t n, size_t d)
{
    (void)zero;
    for (size_t f = 0; f < n; f += 4) {
        for (size_t g = 0; g < n; g += 4)
            ffm_pairs_tile(products, partners, rows, f, g, n, d);
    }
}

/* A field's scales are spread once for all slices. */
static void ffm_pairs_backward(float *partners, const float *scales, size_t n, size_t d)
{
    size_t blocks = FFM_ROUND(n), stride = blocks * 4;
    for (size_t f = 0; f < n; f++) {
        for (size_t g = 0; g < blocks; g += 4) {
            v16 scale = v16_spread4(scales + f * blocks + g);
            float *row = partners + f * d * blocks + g * 4;
            for (size_t s = 0; s < d / 4; s++, row += stride)
                v16_store(row, v16_mul(v16_load(row), scale));
        }
    }
}
