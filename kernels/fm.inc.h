/* Factorization machine (Rendle 2010), field-aware one (Juan 2016): pairwise terms and their gradients. */

/* Adds the vector v to *sum, and its squares to *squares. */
LANES_INLINE void fm_add(v16 *sum, v16 *squares, v16 v)
{
    *sum = v16_add(*sum, v);
    *squares = v16_fma(v, v, *squares);
}

/* The sum of the pairs' products for a dim is (sum^2 - squares) / 2; out[s] sums the four dims of slice s. */
LANES_INLINE void fm_slices(float out[4], v16 sum, v16 squares)
{
    v16_sum4(out, v16_mul(v16_sub(v16_mul(sum, sum), squares), v16_set1(0.5F)));
}

/* At most sixteen dims from i on: writes their sum over the rows, and adds their slices to total. */
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

/* Prefetches the cache line `bytes` behind `place`; the address may lie beyond the end of the array. */
LANES_INLINE void fetch_to_read(const float *place, size_t bytes)
{
    __builtin_prefetch((const void *)((uintptr_t)place + bytes), 0);
}

LANES_INLINE void fetch_to_write(const float *place, size_t bytes)
{
    __builtin_prefetch((const void *)((uintptr_t)place + bytes), 1);
}

/*
 * FFM goes through fields in tiles of four: tile (f, g) of a slice is blocks g..g+3 of rows f..f+3. Its
 * partners are the transpose of tile (g, f): vector k has block f + k of each row of tile (g, f). Both tiles
 * are loaded, multiplied and transposed together. Tiles of four whole rows have a code path of their own,
 * with all data in registers.
 */

/* Where the partners of a slice go. Without has_out: nowhere. Else they are multiplied by logit_gradient
 * (with has_gradient only), and written to `out`, or with `adds` added to `out`. */
struct ffm_out {
    float *out;
    size_t stride; /* floats between rows of out */
    v16 logit_gradient;
    size_t ahead; /* bytes to the same place in the next slice or bag, to prefetch; 0: do not */
    bool has_out, has_gradient, adds;
};

/* Writes the first n of the four vectors of partners of tile (f, g). */
LANES_INLINE void ffm_put(struct ffm_out to, size_t f, size_t g, size_t n, const v16 partners[4])
{
    float *out = to.out + f * to.stride + g * 4;
    for (size_t k = 0; k < 4 && k < n && to.has_out; k++, out += to.stride) {
        v16 grad = to.has_gradient ? v16_mul(partners[k], to.logit_gradient) : partners[k];
        v16_store(out, to.adds ? v16_add(v16_load(out), grad) : grad);
    }
}

/* Loads the partners of fields f..f+3 from the four rows: vector k has block f + k of each row. */
LANES_INLINE void ffm_transposed(v16 partners[4], const float *const rows[4], size_t f, size_t slice)
{
    size_t at = slice + f * 4;
    v16_load_transposed(partners, rows[0] + at, rows[1] + at, rows[2] + at, rows[3] + at);
}

/* Adds the products of tile (f, g), which has n rows, with its partners to the sum, row by row. */
LANES_INLINE v16 ffm_products(const float *const rows[4], size_t g, size_t n, size_t slice,
                              const v16 partners[4], v16 sum)
{
    for (size_t k = 0; k < 4 && k < n; k++)
        sum = v16_fma(v16_load(rows[k] + slice + g * 4), partners[k], sum);
    return sum;
}

/* The diagonal tile (f, f), which has n rows. A field's own block counts as zero. */
LANES_INLINE v16 ffm_own_tile(struct ffm_out to, const float *const *rows, size_t f, size_t n, size_t slice,
                              v16 sum)
{
    v16 partners[4];
    ffm_transposed(partners, rows + f, f, slice);
    for (int k = 0; k < 4; k++)
        partners[k] = v16_clear_group(partners[k], k);
    sum = ffm_products(rows + f, f, n, slice, partners, sum);
    ffm_put(to, f, f, n, partners);
    return sum;
}

/* Tiles (f, g) and (g, f), f before g: the first has four rows, the second n. Each pair is counted once. */
LANES_INLINE v16 ffm_two_tiles(struct ffm_out to, const float *const own[4], const float *const *rows,
                               size_t f, size_t g, size_t n, size_t slice, v16 sum)
{
    const float *const others[4] = {rows[g], rows[g + 1], rows[g + 2], rows[g + 3]};
    v16 partners[4];
    ffm_transposed(partners, others, f, slice);
    sum = ffm_products(own, g, 4, slice, partners, sum);
    ffm_put(to, f, g, 4, partners);
    if (!to.has_out)
        return sum;
    ffm_transposed(partners, own, g, slice);
    ffm_put(to, g, f, n, partners);
    return sum;
}

/*
 * The tiles of the last fields, if these are fewer than four: tiles (f, g) and (g, f), where g has n fields,
 * or the diagonal tile if f == g. A function of its own, so that the loop over whole tiles keeps all
 * registers.
 */
static __attribute__((noinline)) v16 ffm_last_tiles(const struct ffm_out *to, const float *const *rows,
                                                    size_t f, size_t g, size_t n, size_t slice, v16 sum)
{
    if (f == g)
        return ffm_own_tile(*to, rows, g, n, slice, sum);
    return ffm_two_tiles(*to, rows + f, rows, f, g, n, slice, sum);
}

/* Prefetches, `ahead` bytes behind the slice of rows f up to f + 3, the next data to read, and the place
 * where its partners will be written. */
LANES_INLINE void ffm_ahead(const struct ffm_out *to, const float *const *rows, size_t f, size_t n,
                            size_t slice)
{
    for (size_t k = f; k < f + 4 && k < n && to->ahead > 0; k++) {
        for (size_t i = 0; i < FFM_ROUND(n) * 4; i += 16) {
            fetch_to_read(rows[k] + slice + i, to->ahead);
            if (to->has_out)
                fetch_to_write(to->out + k * to->stride + i, to->ahead);
        }
    }
}

/* The sum over all pairs of a slice, which begins at `slice` in each row. Diagonal tiles have pairs twice. */
LANES_INLINE float ffm_slice(struct ffm_out to, const float *const *rows, size_t n, size_t slice)
{
    v16 pairs = v16_set1(0.0F), twice = v16_set1(0.0F);
    size_t f = 0;
    for (; f + 4 <= n; f += 4) {
        const float *const own[4] = {rows[f], rows[f + 1], rows[f + 2], rows[f + 3]};
        ffm_ahead(&to, rows, f, n, slice);
        twice = ffm_own_tile(to, rows, f, 4, slice, twice);
        size_t g = f + 4;
        for (; g + 4 <= n; g += 4)
            pairs = ffm_two_tiles(to, own, rows, f, g, 4, slice, pairs);
        if (g < n)
            pairs = ffm_last_tiles(&to, rows, f, g, n - g, slice, pairs);
    }
    ffm_ahead(&to, rows, f, n, slice);
    if (f < n)
        twice = ffm_last_tiles(&to, rows, f, f, n - f, slice, twice);
    return v16_sum(v16_fma(twice, v16_set1(0.5F), pairs));
}

/* Partners are a copy, so the rows can be updated in place afterwards. */
static float ffm_forward(float *partners, const float *const *rows, const float *zero, size_t n, size_t d)
{
    (void)zero; /* the rows from n on are `zero` */
    size_t blocks = FFM_ROUND(n);
    float total = 0.0F;
    for (size_t s = 0; s < d / 4; s++) {
        size_t slice = s * blocks * 4;
        struct ffm_out to = {.out = partners + slice, .stride = d * blocks, .has_out = true};
        total += ffm_slice(to, rows, n, slice);
    }
    return total;
}

/* Writes the products of tile (f, g), n rows; group k of `four`: products of field f + k with g..g+3. */
LANES_INLINE void ffm_put_products(float *out, size_t blocks, size_t n, v16 four)
{
    if (n >= 4) {
        v16_store4x4(out, out + blocks, out + 2 * blocks, out + 3 * blocks, four);
        return;
    }
    float some[16];
    v16_store(some, four);
    for (size_t k = 0; k < n; k++)
        memcpy(out + k * blocks, some + k * 4, 4 * sizeof(*out));
}

/* Writes a tile's partners in all slices of `width` floats; returns its products, summed over the slices. */
LANES_INLINE v16 ffm_pairs_tile(struct ffm_out to, const float *const *rows, size_t f, size_t g, size_t n,
                                size_t width, bool has_products)
{
    v16 z = v16_set1(0.0F), sums[4] = {z, z, z, z}, p[4];
    for (size_t slice = 0; slice < to.stride; slice += width) {
        ffm_transposed(p, rows + g, f, slice);
        for (int k = 0; k < 4 && f == g; k++)
            p[k] = v16_clear_group(p[k], k);
        for (size_t k = 0; k < 4 && k < n && has_products; k++)
            sums[k] = v16_fma(v16_load(rows[f + k] + slice + g * 4), p[k], sums[k]);
        ffm_put(to, f, g, n, p);
        to.out += width;
    }
    return v16_group_sums(sums[0], sums[1], sums[2], sums[3]);
}

/* Tiles (f, g) and (g, f), of which the second has n rows, or the diagonal tile. The products of f with g
 * and of g with f have the same bits. */
LANES_INLINE void ffm_pairs_tiles(float *products, struct ffm_out to, const float *const *rows, size_t f,
                                  size_t g, size_t n, size_t blocks)
{
    if (f == g) {
        v16 own = ffm_pairs_tile(to, rows, f, f, n, 4 * blocks, true);
        ffm_put_products(products + f * blocks + f, blocks, n, own);
        return;
    }
    v16 four = ffm_pairs_tile(to, rows, f, g, 4, 4 * blocks, true);
    ffm_put_products(products + f * blocks + g, blocks, 4, four);
    (void)ffm_pairs_tile(to, rows, g, f, n, 4 * blocks, false);
    ffm_put_products(products + g * blocks + f, blocks, n, v16_transpose(four));
}

static __attribute__((noinline)) void ffm_pairs_last(float *products, const struct ffm_out *to,
                                                     const float *const *rows, size_t f, size_t g, size_t n,
                                                     size_t blocks)
{
    ffm_pairs_tiles(products, *to, rows, f, g, n, blocks);
}

static void ffm_pairs_forward(float *products, float *partners, const float *const *rows, const float *zero,
                              size_t n, size_t d)
{
    (void)zero;
    size_t blocks = FFM_ROUND(n), f = 0;
    struct ffm_out to = {.out = partners, .stride = d * blocks, .has_out = true};
    for (; f + 4 <= n; f += 4) {
        ffm_pairs_tiles(products, to, rows, f, f, 4, blocks);
        size_t g = f + 4;
        for (; g + 4 <= n; g += 4)
            ffm_pairs_tiles(products, to, rows, f, g, 4, blocks);
        if (g < n)
            ffm_pairs_last(products, &to, rows, f, g, n - g, blocks);
    }
    if (f < n)
        ffm_pairs_last(products, &to, rows, f, f, n - f, blocks);
}

/* A field's scales are loaded into a vector once for all slices. */
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
