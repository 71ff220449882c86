/*
 * fm and ffm of batch.h over bags whose vectors lie one after another: the arithmetic of fm.inc.h, forward
 * and backward in one pass over a bag.
 */

/*
 * A batch larger than this is prefetched, except the whole vectors of fm, which are read in memory order. The
 * other reads do not follow memory order, and the hardware prefetcher does not recognize them: ffm of 64
 * fields and 16 dims, backward, moved 0.39 of a copy's bytes per second without prefetching, 0.63 with it; fm
 * of 26 fields and 12 dims: 0.60 and 0.90 (AVX-512, data larger than the caches). Data that fits into a
 * second-level cache would only be slowed down.
 */
enum { INTERACTION_FETCHED_BYTES = 1 << 20 };

/* Vectors of fm that are summed at a time, with as many sums of squares: half of the registers. */
enum { FM_VECTORS = LANES_REGISTERS < 16 ? LANES_REGISTERS / 4 : 4 };

LANES_INLINE bool is_fetched(const struct batch_interaction *a, size_t bag_floats)
{
    return a->bags * bag_floats * sizeof(float) > INTERACTION_FETCHED_BYTES;
}

/* The same place in four bags. The last group repeats a bag if fewer than four are left. */
struct fm_bags {
    const float *v[4];
    float *grads[4];
    const float *logit_gradients; /* of the four bags */
    size_t ahead;                 /* bytes to the same place in the next four bags, to prefetch; 0: do not */
};

/*
 * The dims of a row behind its whole vectors: `rest` (4, 8 or 12) dims from `at` on of each of the four bags,
 * in one, two or three vectors: eight dims of two bags make a vector, and four dims of four bags make a
 * vector. fm_is_halves: whether vector v has eight dims of two bags.
 */
LANES_INLINE bool fm_is_halves(size_t v, size_t rest)
{
    return v < 2 && rest >= 8;
}

LANES_INLINE v16 fm_load(const float *const bags[4], size_t v, size_t at, size_t rest)
{
    if (fm_is_halves(v, rest))
        return v16_load_halves(bags[2 * v] + at, bags[2 * v + 1] + at);
    at += rest & 8;
    return v16_load4x4(bags[0] + at, bags[1] + at, bags[2] + at, bags[3] + at);
}

LANES_INLINE void fm_store(const struct fm_bags *b, size_t v, size_t at, size_t rest, v16 x, bool adds)
{
    if (adds)
        x = v16_add(fm_load((const float *const *)b->grads, v, at, rest), x);
    if (fm_is_halves(v, rest)) {
        v16_store_halves(b->grads[2 * v] + at, b->grads[2 * v + 1] + at, x);
        return;
    }
    at += rest & 8;
    v16_store4x4(b->grads[0] + at, b->grads[1] + at, b->grads[2] + at, b->grads[3] + at, x);
}

LANES_INLINE v16 fm_logit_gradients(const struct fm_bags *b, size_t v, size_t rest)
{
    const float *s = b->logit_gradients;
    if (!fm_is_halves(v, rest))
        return v16_spread4(s);
    return v16_head(v16_set1(s[2 * v]), v16_set1(s[2 * v + 1]), 8);
}

/* Prefetches the rows at `at` of the next four bags; rows of four dims only at the start of a cache line. */
LANES_INLINE void fm_ahead(float *const bags[4], const struct fm_bags *b, size_t at, size_t rest,
                           bool is_written)
{
    if (b->ahead == 0 || (rest == 4 && at % 16 != 0))
        return;
    for (size_t i = 0; i < 4; i++) {
        if (is_written)
            fetch_to_write(bags[i] + at, b->ahead);
        else
            fetch_to_read(bags[i] + at, b->ahead);
    }
}

/* What happens to the gradients. */
enum fm_grads { FM_NO_GRADS, FM_WRITES, FM_ADDS };

/*
 * fm of the `rest` dims from `at` on of four bags, whose sums run side by side. `size`: floats of a bag;
 * `count`: distinct bags. With FM_ADDS a repeated bag must not be added to twice: within one vector both
 * halves store the same sum, and a second vector that has only repeated bags is skipped.
 */
LANES_INLINE void fm_bags_rest(const struct fm_bags *b, size_t count, size_t at, size_t rest, size_t d,
                               size_t size, float totals[4], enum fm_grads grads)
{
    const size_t vectors = rest / 8 * 2 + rest % 8 / 4;
    v16 sums[3], squares[3];
    for (size_t v = 0; v < vectors; v++)
        sums[v] = squares[v] = v16_set1(0.0F);
    for (size_t r = at; r < size; r += d) {
        fm_ahead((float *const *)b->v, b, r, rest, false);
        for (size_t v = 0; v < vectors; v++)
            fm_add(&sums[v], &squares[v], fm_load(b->v, v, r, rest));
    }
    for (size_t v = 0; v < vectors; v++) {
        float slices[4];
        fm_slices(slices, sums[v], squares[v]);
        for (size_t i = 0; i < 4; i++)
            totals[fm_is_halves(v, rest) ? 2 * v + i / 2 : i] += slices[i];
    }
    for (size_t r = at; r < size && grads != FM_NO_GRADS; r += d) {
        fm_ahead(b->grads, b, r, rest, true);
        for (size_t v = 0; v < vectors; v++) {
            if (grads == FM_ADDS && v == 1 && fm_is_halves(v, rest) && count <= 2)
                continue;
            v16 left = v16_sub(sums[v], fm_load(b->v, v, r, rest));
            fm_store(b, v, r, rest, v16_mul(fm_logit_gradients(b, v, rest), left), grads == FM_ADDS);
        }
    }
}

/*
 * Dims from `at` on of one bag, `vectors` vectors: stores their sums over the rows, and adds the slices to
 * the total. Several vectors at a time, as each sum is a chain over the rows. `size`: floats of a bag.
 */
LANES_INLINE float fm_bag_sums(float *sums, const float *bag, size_t at, int vectors, size_t d, size_t size,
                               float total)
{
    v16 sum[FM_VECTORS], squares[FM_VECTORS];
    for (int v = 0; v < vectors; v++)
        sum[v] = squares[v] = v16_set1(0.0F);
    for (const float *row = bag + at; row < bag + size; row += d) {
        for (int v = 0; v < vectors; v++)
            fm_add(&sum[v], &squares[v], v16_load(row + (size_t)v * 16));
    }
    for (int v = 0; v < vectors; v++) {
        float slices[4];
        v16_store(sums + at + (size_t)v * 16, sum[v]);
        fm_slices(slices, sum[v], squares[v]);
        for (int i = 0; i < 4; i++)
            total += slices[i];
    }
    return total;
}

LANES_INLINE void fm_bag_grads(float *grads, const float *sums, const float *bag, float gradient,
                               size_t whole, size_t d, size_t size, bool adds)
{
    v16 logit_gradients = v16_set1(gradient);
    for (size_t r = 0; r < size; r += d) {
        for (size_t i = 0; i < whole; i += 16) {
            v16 left = v16_sub(v16_load(sums + i), v16_load(bag + r + i));
            v16 grad = v16_mul(logit_gradients, left);
            v16_store(grads + r + i, adds ? v16_add(v16_load(grads + r + i), grad) : grad);
        }
    }
}

/* The whole vectors of a bag's dims; gradients are written in memory order. */
LANES_INLINE float fm_bag_whole(float *grads, const float *bag, float gradient, size_t d, size_t size,
                                enum fm_grads what)
{
    _Alignas(64) float sums[BATCH_DIM_MAX];
    float total = 0.0F;
    size_t at = 0;
    for (; at + FM_VECTORS * 16 <= d; at += FM_VECTORS * 16)
        total = fm_bag_sums(sums, bag, at, FM_VECTORS, d, size, total);
    for (; at + 16 <= d; at += 16)
        total = fm_bag_sums(sums, bag, at, 1, d, size, total);
    if (what != FM_NO_GRADS && at == 16)
        fm_bag_grads(grads, sums, bag, gradient, 16, d, size, what == FM_ADDS);
    else if (what != FM_NO_GRADS)
        fm_bag_grads(grads, sums, bag, gradient, at, d, size, what == FM_ADDS);
    return total;
}

/* Whole vectors of the dims, bag by bag; then the rest of the dims of all four bags. */
LANES_INLINE void fm_four_bags(const struct fm_bags *b, size_t count, size_t d, size_t size, float totals[4],
                               enum fm_grads grads)
{
    size_t at = d - d % 16;
    for (size_t j = 0; j < count && at > 0; j++)
        totals[j] = fm_bag_whole(b->grads[j], b->v[j], b->logit_gradients[j], d, size, grads);
    switch (d - at) {
    case 4: fm_bags_rest(b, count, at, 4, d, size, totals, grads); break;
    case 8: fm_bags_rest(b, count, at, 8, d, size, totals, grads); break;
    case 12: fm_bags_rest(b, count, at, 12, d, size, totals, grads); break;
    default: break;
    }
}

/* Writes or adds the totals to the logits of `count` bags from `bag` on. */
LANES_INLINE void put_logits(const struct batch_interaction *a, size_t bag, const float *totals, size_t count)
{
    for (size_t j = 0; a->logits && j < count; j++)
        a->logits[bag + j] = a->adds ? a->logits[bag + j] + totals[j] : totals[j];
}

static void batch_fm(struct batch_interaction *a, void *stream)
{
    (void)stream;
    size_t size = (size_t)a->fields * a->d, stride = a->stride > 0 ? a->stride : size;
    size_t grads_stride = a->grads_stride > 0 ? a->grads_stride : size;
    for (size_t bag = 0; bag < a->bags; bag += 4) {
        size_t count = a->bags - bag < 4 ? a->bags - bag : 4;
        float totals[4] = {0}, logit_gradients[4] = {0};
        struct fm_bags b = {.logit_gradients = logit_gradients,
                            .ahead = is_fetched(a, size) ? 16 * stride : 0};
        for (size_t j = 0; j < 4; j++) {
            size_t one = bag + (j < count ? j : count - 1);
            b.v[j] = a->vectors + one * stride;
            b.grads[j] = a->grads != NULL ? a->grads + one * grads_stride : NULL;
            logit_gradients[j] = a->grads != NULL ? a->logit_gradients[one] : 0.0F;
        }
        if (a->grads == NULL)
            fm_four_bags(&b, count, a->d, size, totals, FM_NO_GRADS);
        else if (a->adds)
            fm_four_bags(&b, count, a->d, size, totals, FM_ADDS);
        else
            fm_four_bags(&b, count, a->d, size, totals, FM_WRITES);
        put_logits(a, bag, totals, count);
    }
}

/* Bytes from a slice of a bag to the next slice, which is prefetched; 0: no prefetching. */
LANES_INLINE size_t ffm_next(const struct batch_interaction *a, size_t slice)
{
    size_t width = FFM_ROUND(a->fields) * 4, row = FFM_ROUND(a->fields) * a->d;
    if (!is_fetched(a, a->fields * row))
        return 0;
    size_t bag = a->stride > 0 ? a->stride : a->fields * row;
    return sizeof(float) * (slice + width < row ? width : bag - slice);
}

/* ffm of one bag. Rows from the last field on are zeros. */
LANES_INLINE float ffm_bag(const struct batch_interaction *a, size_t bag, bool has_grads, bool adds)
{
    static const float zeros[BATCH_FIELDS_MAX * 4];
    size_t n = a->fields, blocks = FFM_ROUND(n), stride = a->d * blocks;
    size_t grads_first = bag * (a->grads_stride > 0 ? a->grads_stride : n * stride);
    const float *rows[BATCH_FIELDS_MAX], *row = a->vectors + bag * (a->stride > 0 ? a->stride : n * stride);
    for (size_t f = 0; f < n; f++, row += stride)
        rows[f] = row;
    for (size_t f = n; f < blocks; f++)
        rows[f] = zeros;
    struct ffm_out to = {.stride = stride, .has_out = has_grads, .has_gradient = has_grads, .adds = adds};
    to.logit_gradient = v16_set1(has_grads ? a->logit_gradients[bag] : 0.0F);
    float total = 0.0F;
    for (size_t slice = 0; slice < stride; slice += blocks * 4) {
        if (has_grads)
            to.out = a->grads + grads_first + slice;
        to.ahead = ffm_next(a, slice);
        total += ffm_slice(to, rows, n, 0);
        for (size_t f = 0; f < n; f++)
            rows[f] += blocks * 4;
    }
    return total;
}

static void batch_ffm(struct batch_interaction *a, void *stream)
{
    (void)stream;
    for (size_t bag = 0; bag < a->bags; bag++) {
        float total = a->grads == NULL ? ffm_bag(a, bag, false, false)
                      : a->adds        ? ffm_bag(a, bag, true, true)
                                       : ffm_bag(a, bag, true, false);
        put_logits(a, bag, &total, 1);
    }
}
