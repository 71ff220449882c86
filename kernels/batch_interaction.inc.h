/*
 * fm and ffm of a batch of bags, whose vectors lie one after the other: the arithmetic of fm.inc.h, forward
 * and backward in one pass over a bag.
 */

/*
 * A batch that is larger than this is fetched ahead of its use. Fields are not read in the order in which
 * they lie, and the hardware's own prefetching does not follow: ffm of 64 fields and 16 dims, backward, moved
 * 0.39 of what copying does without this, 0.63 with it; fm of 26 and 12: 0.60 and 0.90 (AVX-512, beyond the
 * caches). What fits into a second cache would only be slower by it.
 */
enum { INTERACTION_FETCHED_BYTES = 1 << 20 };

LANES_INLINE bool is_fetched(const struct batch_interaction *a, size_t bag_floats)
{
    return a->bags * bag_floats * sizeof(float) > INTERACTION_FETCHED_BYTES;
}

/* The same place in four bags; bags may be there twice. */
struct fm_bags {
    const float *v[4];
    float *grads[4];
    const float *slopes; /* of the four */
    size_t ahead;        /* bytes up to the same place in the next four; 0: they are not fetched */
};

/* Sixteen floats of a row: `each` dims (16, 8 or 4) of as many bags, from bag j on. */
LANES_INLINE v16 fm_load(const struct fm_bags *b, size_t j, size_t at, size_t each)
{
    if (each == 16)
        return v16_load(b->v[j] + at);
    if (each == 8)
        return v16_load_halves(b->v[j] + at, b->v[j + 1] + at);
    return v16_load4x4(b->v[0] + at, b->v[1] + at, b->v[2] + at, b->v[3] + at);
}

LANES_INLINE void fm_store(const struct fm_bags *b, size_t j, size_t at, size_t each, v16 x)
{
    if (each == 16)
        v16_store(b->grads[j] + at, x);
    else if (each == 8)
        v16_store_halves(b->grads[j] + at, b->grads[j + 1] + at, x);
    else
        v16_store4x4(b->grads[0] + at, b->grads[1] + at, b->grads[2] + at, b->grads[3] + at, x);
}

/* Rows of four dims share their cache lines. */
LANES_INLINE void fm_ahead(const struct fm_bags *b, size_t j, size_t at, size_t each, bool is_written)
{
    if (b->ahead == 0 || (each == 4 && at % 16 != 0))
        return;
    for (size_t i = j; i < j + 16 / each; i++) {
        if (is_written)
            fetch_to_write(b->grads[i] + at, b->ahead);
        else
            fetch_to_read(b->v[i] + at, b->ahead);
    }
}

LANES_INLINE v16 fm_slopes(const struct fm_bags *b, size_t j, size_t each)
{
    if (each == 16)
        return v16_set1(b->slopes[j]);
    float of[4] = {b->slopes[j], b->slopes[each == 8 ? j : 1], b->slopes[each == 8 ? j + 1 : 2],
                   b->slopes[each == 8 ? j + 1 : 3]};
    return v16_spread4(of);
}

/* `each` dims from `at` on of the bags from j on; their slices are added to totals. `size`: floats of a bag.
 */
LANES_INLINE void fm_bags_dims(const struct fm_bags *b, size_t j, size_t at, size_t each, size_t d,
                               size_t size, float totals[4], bool has_grads)
{
    v16 sum = v16_set1(0.0F), squares = v16_set1(0.0F);
    for (size_t r = at; r < size; r += d) {
        fm_ahead(b, j, r, each, false);
        fm_add(&sum, &squares, fm_load(b, j, r, each));
    }
    float slices[4];
    fm_slices(slices, sum, squares);
    for (size_t i = 0; i < 4; i++)
        totals[j + i / (each / 4)] += slices[i];
    if (!has_grads)
        return;
    v16 slopes = fm_slopes(b, j, each);
    for (size_t r = at; r < size; r += d) {
        fm_ahead(b, j, r, each, true);
        fm_store(b, j, r, each, v16_mul(slopes, v16_sub(sum, fm_load(b, j, r, each))));
    }
}

/* Whole vectors of a bag's dims, bag by bag; then eight dims of two bags in a vector, four of four. */
LANES_INLINE void fm_four_bags(const struct fm_bags *b, size_t count, size_t d, size_t size, float totals[4],
                               bool has_grads)
{
    size_t at = 0;
    for (; at + 16 <= d; at += 16) {
        for (size_t j = 0; j < count; j++)
            fm_bags_dims(b, j, at, 16, d, size, totals, has_grads);
    }
    if (at + 8 <= d) {
        fm_bags_dims(b, 0, at, 8, d, size, totals, has_grads);
        fm_bags_dims(b, 2, at, 8, d, size, totals, has_grads);
        at += 8;
    }
    if (at < d)
        fm_bags_dims(b, 0, at, 4, d, size, totals, has_grads);
}

static void batch_fm(struct batch_interaction *a, void *stream)
{
    (void)stream;
    size_t size = (size_t)a->fields * a->d;
    for (size_t bag = 0; bag < a->bags; bag += 4) {
        size_t count = a->bags - bag < 4 ? a->bags - bag : 4;
        float totals[4] = {0}, slopes[4] = {0};
        struct fm_bags b = {.slopes = slopes, .ahead = is_fetched(a, size) ? 16 * size : 0};
        for (size_t j = 0; j < 4; j++) {
            size_t one = bag + (j < count ? j : count - 1);
            b.v[j] = a->vectors + one * size;
            b.grads[j] = a->grads ? a->grads + one * size : NULL;
            slopes[j] = a->grads ? a->slopes[one] : 0.0F;
        }
        if (a->grads)
            fm_four_bags(&b, count, a->d, size, totals, true);
        else
            fm_four_bags(&b, count, a->d, size, totals, false);
        if (a->logits)
            memcpy(a->logits + bag, totals, count * sizeof *totals);
    }
}

/* Bytes from a slice of a bag to the next one, which is fetched meanwhile; 0: it is not. */
LANES_INLINE size_t ffm_next(const struct batch_interaction *a, size_t slice)
{
    size_t width = FFM_ROUND(a->fields) * 4, row = FFM_ROUND(a->fields) * a->d;
    if (!is_fetched(a, a->fields * row))
        return 0;
    return sizeof(float) * (slice + width < row ? width : a->fields * row - slice);
}

/* One bag. Rows behind the last field are zeros. */
LANES_INLINE float ffm_bag(const struct batch_interaction *a, size_t bag, bool has_grads)
{
    static const float zeros[BATCH_FIELDS_MAX * 4];
    size_t n = a->fields, blocks = FFM_ROUND(n), stride = a->d * blocks, first = bag * n * stride;
    const float *rows[BATCH_FIELDS_MAX];
    float total = 0.0F;
    for (size_t slice = 0; slice < stride; slice += blocks * 4) {
        for (size_t f = 0; f < blocks; f++)
            rows[f] = f < n ? a->vectors + first + f * stride + slice : zeros;
        struct ffm_out to = {.out = has_grads ? a->grads + first + slice : NULL,
                             .stride = stride,
                             .slope = has_grads ? a->slopes + bag : NULL,
                             .ahead = ffm_next(a, slice)};
        total += ffm_slice(to, rows, n, 0);
    }
    return total;
}

static void batch_ffm(struct batch_interaction *a, void *stream)
{
    (void)stream;
    for (size_t bag = 0; bag < a->bags; bag++) {
        float total = a->grads ? ffm_bag(a, bag, true) : ffm_bag(a, bag, false);
        if (a->logits)
            a->logits[bag] = total;
    }
}
