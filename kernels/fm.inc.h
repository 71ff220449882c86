/* Factorization machine (Rendle 2010) and field-aware one (Juan 2016): the pairwise terms and their
 * gradients. */

static float fm_forward(float *sum, const float *const *rows, size_t n, size_t d)
{
    float total = 0.0F;
    for (size_t i = 0; i < d; i += 16) {
        size_t lanes = d - i < 16 ? d - i : 16;
        v16 s = v16_set1(0.0F);
        v16 squares = v16_set1(0.0F);
        for (size_t r = 0; r < n; r++) {
            v16 v = v16_load_n(rows[r] + i, lanes);
            s = v16_add(s, v);
            squares = v16_fma(v, v, squares);
        }
        v16_store_n(sum + i, s, lanes);
        float slices[4];
        v16_sum4(slices, v16_mul(v16_sub(v16_mul(s, s), squares), v16_set1(0.5F)));
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

/*
 * Fields in tiles of four. partners of tile f (rows f..f+3) among tile g, from the four rows of tile g: row
 * k's vector holds block f + k of each. Returns its products with the rows' own blocks, added in order.
 */
LANES_INLINE v16 ffm_tile(float *partners, size_t stride, const float *const *rows, size_t f, size_t g,
                          size_t n, size_t slice, v16 sum)
{
    const float *a = rows[g] + slice + f * 4, *b = rows[g + 1] + slice + f * 4;
    const float *c = rows[g + 2] + slice + f * 4, *e = rows[g + 3] + slice + f * 4;
    for (size_t k = 0; k < 4 && f + k < n; k++) {
        v16 partner = v16_load4x4(a + k * 4, b + k * 4, c + k * 4, e + k * 4);
        v16_store(partners + (f + k) * stride + slice + g * 4, partner);
        sum = v16_fma(v16_load(rows[f + k] + slice + g * 4), partner, sum);
    }
    return sum;
}

/* The tile of four fields among themselves: a field's own block is zero, and each pair is met twice. */
LANES_INLINE v16 ffm_tile_own(float *partners, size_t stride, const float *const *rows, const float *zero,
                              size_t f, size_t n, size_t slice, v16 sum)
{
    for (size_t k = 0; k < 4 && f + k < n; k++) {
        v16 partner = ffm_partners(rows, zero, f + k, f, slice + (f + k) * 4);
        v16_store(partners + (f + k) * stride + slice + f * 4, partner);
        sum = v16_fma(v16_load(rows[f + k] + slice + f * 4), partner, sum);
    }
    return sum;
}

/* The copy into partners is what lets rows be updated in place afterwards. */
static float ffm_forward(float *partners, const float *const *rows, const float *zero, size_t n, size_t d)
{
    size_t blocks = FFM_ROUND(n), stride = d * blocks;
    float total = 0.0F;
    for (size_t s = 0; s < d / 4; s++) {
        size_t slice = s * blocks * 4;
        v16 pairs = v16_set1(0.0F);
        v16 twice = v16_set1(0.0F);
        for (size_t f = 0; f < n; f += 4) {
            twice = ffm_tile_own(partners, stride, rows, zero, f, n, slice, twice);
            for (size_t g = f + 4; g < n; g += 4) {
                pairs = ffm_tile(partners, stride, rows, f, g, n, slice, pairs);
                (void)ffm_tile(partners, stride, rows, g, f, n, slice, v16_set1(0.0F));
            }
        }
        total += v16_sum(v16_fma(twice, v16_set1(0.5F), pairs));
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
