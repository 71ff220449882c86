/*
 * The slices of a training step, so that its sums do not depend on how many workers make it. A step has 1, 2,
 * 4, 8 or 16 slices of its events. Gradients are summed slice by slice; the slices' sums are the leaves of a
 * binary tree, whose nodes add two sums in fp32. A leaf without a gradient is skipped: its parent is the other
 * child, nothing is added. A worker that has half of the slices computes one child of the root, and so on;
 * the bits are those of one worker with all slices. Not for other headers than batch.h.
 */
#ifndef LEAT_KERNELS_SLICES_H
#define LEAT_KERNELS_SLICES_H

/* BATCH_SLICE_UNIT: borders are multiples of it, so that the chunks of sums are whole. BATCH_SLICE_LEVELS: most
 * sums that wait for their sibling in the tree, and the one in progress. BATCH_SLICES_EVENTS: most events of a
 * step of several slices. */
enum {
    BATCH_SLICES_MAX = 16,
    BATCH_SLICE_LEVELS = 5,
    BATCH_SLICE_UNIT = 128,
    BATCH_SLICES_EVENTS = 1 << 20,
    BATCH_SLICES_SHIFT = 44, /* 16 n * n is at most 2 to the power of it */
};

struct batch_slices {
    uint32_t count; /* 0: as 1, and `borders` is not read */
    uint32_t n;     /* events of the step, at most BATCH_SLICES_EVENTS */
    /* slice s: events borders[s] up to borders[s + 1] */
    uint32_t borders[BATCH_SLICES_MAX + 1];
    uint64_t inverse; /* 2^BATCH_SLICES_SHIFT / n, rounded up: divides by n in batch_slice_of */
};

/* The slices of a step of n events: as many as have `least` events each, a multiple of BATCH_SLICE_UNIT (0:
 * one slice). */
static inline struct batch_slices batch_slices_of(uint32_t n, uint32_t least)
{
    struct batch_slices s;
    s.count = 1, s.n = n, s.inverse = 0;
    while (least > 0 && s.count < BATCH_SLICES_MAX && n / (2 * s.count) >= least)
        s.count *= 2;
    for (uint32_t i = 0; i < s.count; i++)
        s.borders[i] = (uint32_t)((uint64_t)i * n / s.count) / BATCH_SLICE_UNIT * BATCH_SLICE_UNIT;
    for (uint32_t i = s.count; i <= BATCH_SLICES_MAX; i++)
        s.borders[i] = n;
    if (s.count > 1)
        s.inverse = ((UINT64_C(1) << BATCH_SLICES_SHIFT) + n - 1) / n;
    return s;
}

/*
 * The slice of an event. Event e belongs to the unit that ends at k, a multiple of BATCH_SLICE_UNIT (or n);
 * border i is at most e exactly if i n / count < k, so the largest such i is (k count - 1) / n, rounded down.
 * The product with the inverse is exact: its error, below k count / 2^44, is less than 1 / n.
 */
static inline KERNELS_BOTH uint32_t batch_slice_of(const struct batch_slices *s, uint32_t event)
{
    uint32_t end = (event | (BATCH_SLICE_UNIT - 1)) + 1;
    uint64_t all = (uint64_t)(end < s->n ? end : s->n) * s->count;
    return (uint32_t)((all - (all > 0)) * s->inverse >> BATCH_SLICES_SHIFT);
}

/* For sums that wait in the order of their slices: whether those of slices a < b are added to one before the
 * sum of slice c > b comes, because their common node in the tree is below that of b and c. */
static inline KERNELS_BOTH bool batch_slices_join(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t below = a ^ b, above = b ^ c; /* the highest bit is the height of the common node */
    return below < above && below < (below ^ above);
}

#endif
