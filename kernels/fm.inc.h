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

static float fm_forward(float *sum, const float *const *rows, size_t n, size_t d)
{
    float total = 0.0F;
    for (size_t i = 0; i < d; i += 16) {
        size_t lanes = d - i < 16 ? d - i : 16;
        v16 s = v16_set1(0.0F);
        v16 squares = v16_set1(0.0F);
        for (size_t r = 0; r < n; r++)
            fm_add(&s, &squares, v16_load_n(rows[r] + i, lanes));
        v16_store_n(sum + i, s, lanes);
        float slices[4];
        fm_slices(slices, s, squares);
        for (size_t j = 0; j * 4 < lanes; j++)
            total += slices[j];
    }
    return total;
}

static void fm_backward(float *grads, const float *sum, const float *const *rows, size_t n, size_t d)
{
    for (size_t r = 0; r < n; r++) {
        for (size_t i = 0; i < d; i += 16) {
            size_t lanes = d - i < 16 ? d - i : 16;
            v16_store_n(grads + r * d + i,
                        v16_sub(v16_load_n(sum + i, lanes), v16_load_n(rows[r] + i, lanes)), lanes);
        }
    }
}

/* Four partners' blocks for field f, beginning with partner g; f's own is zero. */
LANES_INLINE v16 ffm_partners(const float *const *rows, const float *zero, size_t f, size_t g, size_t at)
{
    const float *a = g == f ? zero : rows[g] + at;
    const float *b = g + 1 == f ? zero : rows[g + 1] + at;
    const float *c = g + 2 == f ? zero : rows[g + 2] + at;
    const float *e = g + 3 == f ? zero : rows[g + 3] + at;
    return v16_load4x4(a, b, c, e);
}

/* What becomes of the partners of a slice: gradients times `slope` (NULL: as they are), or nothing (out
 * NULL). */
struct ffm_out {
    float *out;
    size_t stride; /* of out's rows */
    const float *slope;
};

LANES_INLINE void ffm_put(struct ffm_out to, size_t f, size_t g, v16 partner)
{
    if (to.out)
        v16_store(to.out + f * to.stride + g * 4, to.slope ? v16_mul(partner, v16_set1(*to.slope)) : partner);
}

/*
 * Fields in tiles of four. Partners of tile f (rows f..f+3) among tile g, from the four rows of tile g: row
 * k's vector holds block f + k of each. Returns its products with the rows' own blocks, added in order.
 */
LANES_INLINE v16 ffm_tile(struct ffm_out to, const float *const *rows, size_t f, size_t g, size_t n,
                          size_t slice, v16 sum)
{
    const float *a = rows[g] + slice + f * 4, *b = rows[g + 1] + slice + f * 4;
    const float *c = rows[g + 2] + slice + f * 4, *e = rows[g + 3] + slice + f * 4;
    for (size_t k = 0; k < 4 && f + k < n; k++) {
        v16 partner = v16_load4x4(a + k * 4, b + k * 4, c + k * 4, e + k * 4);
        ffm_put(to, f + k, g, partner);
        sum = v16_fma(v16_load(rows[f + k] + slice + g * 4), partner, sum);
    }
    return sum;
}

/* The tile of four fields among themselves: a field's own block is zero, and each pair is met twice. */
LANES_INLINE v16 ffm_tile_own(struct ffm_out to, const float *const *rows, const float *zero, size_t f,
                              size_t n, size_t slice, v16 sum)
{
    for (size_t k = 0; k < 4 && f + k < n; k++) {
        v16 partner = ffm_partners(rows, zero, f + k, f, slice + (f + k) * 4);
        ffm_put(to, f + k, f, partner);
        sum = v16_fma(v16_load(rows[f + k] + slice + f * 4), partner, sum);
    }
    return sum;
}

/* All pairs of one slice, which begins at `slice` in each row. */
LANES_INLINE float ffm_slice(struct ffm_out to, const float *const *rows, const float *zero, size_t n,
                             size_t slice)
{
    v16 pairs = v16_set1(0.0F);
    v16 twice = v16_set1(0.0F);
    for (size_t f = 0; f < n; f += 4) {
        twice = ffm_tile_own(to, rows, zero, f, n, slice, twice);
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
    size_t blocks = FFM_ROUND(n);
    float total = 0.0F;
    for (size_t s = 0; s < d / 4; s++) {
        size_t slice = s * blocks * 4;
        struct ffm_out to = {.out = partners + slice, .stride = d * blocks};
        total += ffm_slice(to, rows, zero, n, slice);
    }
    return total;
}

static void ffm_pairs_forward(float *products, float *partners, const float *const *rows, const float *zero,
                              size_t n, size_t d)
{
    size_t blocks = FFM_ROUND(n);
    for (size_t f = 0; f < n; f++) {
        float *out = products + f * blocks;
        for (size_t g = 0; g < blocks; g += 4) {
            v16 sum = v16_set1(0.0F);
            for (size_t s = 0; s < d / 4; s++) {
                size_t slice = s * blocks * 4;
                v16 partner = ffm_partners(rows, zero, f, g, slice + f * 4);
                v16_store(partners + f * d * blocks + slice + g * 4, partner);
                sum = v16_fma(v16_load(rows[f] + slice + g * 4), partner, sum);
            }
            v16_sum4(out + g, sum);
        }
    }
}

static void ffm_pairs_backward(float *partners, const float *scales, size_t n, size_t d)
{
    size_t blocks = FFM_ROUND(n);
    for (size_t f = 0; f < n; f++) {
        for (size_t s = 0; s < d / 4; s++) {
            float *row = partners + f * d * blocks + s * blocks * 4;
            for (size_t g = 0; g < blocks; g += 4) {
                const float *c = scales + f * blocks + g;
                v16 scale = v16_spread4(c);
                v16_store(row + g * 4, v16_mul(v16_load(row + g * 4), scale));
            }
        }
    }
}
