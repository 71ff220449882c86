/*
 * fm and ffm of a batch of bags, whose vectors lie one after the other: the arithmetic of fm.inc.h, forward
 * and backward in one pass over a bag.
 */

/* Sixteen dims from `at` on of one bag. Adds their four slices to *total. */
LANES_INLINE void fm_bag_dims(const struct batch_interaction *a, size_t bag, size_t at, float *total)
{
    size_t n = a->fields, d = a->d, first = bag * n * d + at;
    v16 sum = v16_set1(0.0F), squares = v16_set1(0.0F);
    for (size_t r = 0; r < n; r++)
        fm_add(&sum, &squares, v16_load(a->vectors + first + r * d));
    float slices[4];
    fm_slices(slices, sum, squares);
    for (size_t j = 0; j < 4; j++)
        *total += slices[j];
    if (!a->grads)
        return;
    v16 slope = v16_set1(a->slopes[bag]);
    for (size_t r = 0; r < n; r++) {
        v16 v = v16_load(a->vectors + first + r * d);
        v16_store(a->grads + first + r * d, v16_mul(slope, v16_sub(sum, v)));
    }
}

/* One slice, the dims from `at` on, of four bags; adds it to their totals. A bag may be there twice. */
LANES_INLINE void fm_bags_slice(const struct batch_interaction *a, const size_t bags[4], size_t at,
                                float totals[4])
{
    size_t n = a->fields, d = a->d, first[4];
    float slopes[4] = {0};
    for (size_t j = 0; j < 4; j++) {
        first[j] = bags[j] * n * d + at;
        slopes[j] = a->grads ? a->slopes[bags[j]] : 0.0F;
    }
    const float *w = a->vectors + first[0], *x = a->vectors + first[1];
    const float *y = a->vectors + first[2], *z = a->vectors + first[3];
    v16 sum = v16_set1(0.0F), squares = v16_set1(0.0F);
    for (size_t r = 0; r < n * d; r += d)
        fm_add(&sum, &squares, v16_load4x4(w + r, x + r, y + r, z + r));
    float slices[4];
    fm_slices(slices, sum, squares);
    for (size_t j = 0; j < 4; j++)
        totals[j] += slices[j];
    if (!a->grads)
        return;
    v16 slope = v16_spread4(slopes);
    for (size_t r = 0; r < n * d; r += d) {
        v16 v = v16_load4x4(w + r, x + r, y + r, z + r);
        v16_store4x4(a->grads + first[0] + r, a->grads + first[1] + r, a->grads + first[2] + r,
                     a->grads + first[3] + r, v16_mul(slope, v16_sub(sum, v)));
    }
}

/* Whole vectors of a bag's dims, bag by bag; what is left of d by slices, four bags in a vector. */
static void batch_fm(struct batch_interaction *a, void *stream)
{
    (void)stream;
    for (size_t bag = 0; bag < a->bags; bag += 4) {
        size_t count = a->bags - bag < 4 ? a->bags - bag : 4, bags[4];
        float totals[4] = {0};
        for (size_t j = 0; j < 4; j++)
            bags[j] = bag + (j < count ? j : count - 1);
        size_t at = 0;
        for (; at + 16 <= a->d; at += 16) {
            for (size_t j = 0; j < count; j++)
                fm_bag_dims(a, bags[j], at, &totals[j]);
        }
        for (; at < a->d; at += 4)
            fm_bags_slice(a, bags, at, totals);
        if (a->logits)
            memcpy(a->logits + bag, totals, count * sizeof *totals);
    }
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
                             .slope = has_grads ? a->slopes + bag : NULL};
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
