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
 * Each pair is met from both of its ends, so the sum is halved at the end: products and additions come in an
 * order that depends on n alone. The copy into partners is what lets rows be updated in place afterwards.
 */
static float ffm_forward(float *partners, const float *const *rows, const float *zero, size_t n, size_t d)
{
    size_t blocks = FFM_ROUND(n);
    float total = 0.0F;
    for (size_t s = 0; s < d / 4; s++) {
        size_t slice = s * blocks * 4;
        v16 even = v16_set1(0.0F);
        v16 odd = v16_set1(0.0F);
        for (size_t f = 0; f < n; f++) {
            const float *row = rows[f] + slice;
            float *out = partners + f * d * blocks + slice;
            for (size_t g = 0; g < blocks; g += 4) {
                v16 partner = ffm_partners(rows, zero, f, g, slice + f * 4);
                v16_store(out + g * 4, partner);
                if (g & 4U)
                    odd = v16_fma(v16_load(row + g * 4), partner, odd);
                else
                    even = v16_fma(v16_load(row + g * 4), partner, even);
            }
        }
        total += 0.5F * v16_sum(v16_add(even, odd));
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
