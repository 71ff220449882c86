/* segment_reduce: all kinds of segments, with and without bags and scales, segments of whole chunks,
 * gradients that are columns of a matrix, slices, sums that have `more` added. */
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct segments_shape {
    uint32_t n, d;
    enum ids kind;
    bool has_bag, has_scales;
    enum fill fill;
    uint32_t unit;   /* 0: d */
    uint32_t slices; /* 0: as 1 */
    bool has_more;   /* CPU only */
};

/* The host's copies of a call's inputs. */
struct segments_call {
    const struct segments_shape *s;
    const float *grads, *scales, *more;
    const uint32_t *bag, *order, *starts, *event;
    struct batch_slices slices;
};

/* Floats from one gradient to the next. */
static uint32_t unit_of(const struct segments_shape *s)
{
    return s->unit > 0 ? s->unit : s->d;
}

/* The sum of float i over the positions from..to, by the rule of batch.h. */
static float sum_part(const struct segments_call *c, uint32_t from, uint32_t to, uint32_t i)
{
    float total = 0.0F;
    for (uint32_t chunk = from; chunk < to; chunk += BATCH_CHUNK) {
        float sum = 0.0F;
        for (uint32_t at = chunk; at < to && at < chunk + BATCH_CHUNK; at++) {
            uint32_t place = c->order[at];
            float scale = c->scales ? c->scales[place] : 1.0F;
            size_t row = c->bag != NULL ? c->bag[place] : place;
            sum = fmaf(scale, c->grads[row * unit_of(c->s) + i], sum);
        }
        total = chunk == from ? sum : total + sum;
    }
    return c->more != NULL ? total + c->more[(size_t)(c->order[from] / 2) * c->s->d + i] : total;
}

/* The same over those of the positions that are in the slices first..last: a node of the tree, from the root
 * down. *is_empty: there are none. */
static float sum_tree(const struct segments_call *c, uint32_t from, uint32_t to, uint32_t i, uint32_t first,
                      uint32_t last, bool *is_empty)
{
    while (from < to && c->event[c->order[from]] < c->slices.borders[first])
        from++;
    while (from < to && c->event[c->order[to - 1]] >= c->slices.borders[last])
        to--;
    *is_empty = from == to;
    if (from == to || last - first == 1)
        return *is_empty ? 0.0F : sum_part(c, from, to, i);
    bool none[2];
    uint32_t middle = (first + last) / 2;
    float left = sum_tree(c, from, to, i, first, middle, &none[0]);
    float right = sum_tree(c, from, to, i, middle, last, &none[1]);
    return none[0] ? right : none[1] ? left : left + right;
}

static float sum_plainly(const struct segments_call *c, uint32_t u, uint32_t i)
{
    bool is_empty;
    return c->slices.count <= 1
               ? sum_part(c, c->starts[u], c->starts[u + 1], i)
               : sum_tree(c, c->starts[u], c->starts[u + 1], i, 0, c->slices.count, &is_empty);
}

static void build_segments(struct trial *t, const void *arg)
{
    const struct segments_shape *s = arg;
    uint32_t rows = s->has_bag ? s->n / 3 + 1 : s->n;
    struct batch_segment_reduce a = {.in = {.d = s->d, .unit = s->unit}};
    struct segments_call c = {.s = s};
    uint32_t m = trial_segments(t, s->n, s->kind, &a.in, &c.order, &c.starts);
    size_t floats = rows > 0 ? (size_t)(rows - 1) * unit_of(s) + s->d : 0;
    float *grads = trial_input(t, "grads", sizeof(*grads) * floats, TRIAL_MATRIX);
    trial_floats(t, grads, floats, s->fill);
    c.grads = grads, a.in.grads = PLACE(t, grads);
    if (s->has_bag) {
        uint32_t *bag = trial_input(t, "bag", s->n * sizeof(*bag), sizeof(*bag));
        for (uint32_t i = 0; i < s->n; i++)
            bag[i] = i / 3;
        c.bag = bag, a.in.bag = PLACE(t, bag);
    }
    if (s->has_scales) {
        float *scales = trial_input(t, "scales", s->n * sizeof(*scales), sizeof(*scales));
        trial_floats(t, scales, s->n, FILL_PLAIN);
        for (uint32_t i = 0; i < s->n && s->fill == FILL_SPECIAL; i += 2)
            scales[i] *= 1e-38F; /* products that underflow, of either sign */
        c.scales = scales, a.in.scales = PLACE(t, scales);
    }
    if (s->has_more) {
        uint32_t *at = trial_input(t, "more_at", s->n * sizeof(*at), sizeof(*at));
        float *more = trial_input(t, "more", sizeof(*more) * (s->n / 2 + 1) * s->d, TRIAL_MATRIX);
        trial_floats(t, more, ((size_t)s->n / 2 + 1) * s->d, s->fill);
        for (uint32_t i = 0; i < s->n; i++)
            at[i] = i / 2;
        c.more = more, a.in.more = PLACE(t, more), a.in.more_at = PLACE(t, at);
    }
    if (s->slices > 1)
        c.event = trial_slices(t, s->slices, &a.in);
    c.slices = a.in.slices;
    float *sums = trial_output(t, "sums", sizeof(*sums) * s->n * s->d, TRIAL_MATRIX, same_floats);
    a.sums = PLACE(t, sums);
    TRIAL_CALL_SCRATCH(t, segment_reduce, &a);
    trial_valid(t, sums, sizeof(*sums) * m * s->d);
    for (uint32_t u = 0; u < m && trial_is_scalar(t); u++) {
        for (uint32_t i = 0; i < s->d; i++) {
            float want = sum_plainly(&c, u, i);
            TRIAL_CHECK(t, same_floats(&want, sums + (size_t)u * s->d + i, sizeof(want)));
        }
    }
}

static void try_segments(struct suite *suite, struct segments_shape s)
{
    s.has_more &= !suite_is_device(suite);
    suite_try(suite, build_segments, &s, "n %u, d %u, unit %u, ids %s, %u slices%s%s%s%s", s.n, s.d,
              unit_of(&s), ids_names[s.kind], s.slices, s.has_bag ? ", bag" : "",
              s.has_scales ? ", scales" : "", s.fill == FILL_SPECIAL ? ", special" : "",
              s.has_more ? ", more" : "");
}

void suite_segment_reduce(struct suite *suite)
{
    static const uint32_t dims[] = {4, 8, 12, 20, 64, 128, 132, 512};
    static const uint32_t edges[] = {128, 256, 257, 385};
    for (const uint32_t *n = suite_sizes(suite); *n != SIZES_END; n++) {
        for (int kind = 0; kind < IDS_KINDS; kind++) {
            uint32_t d = *n > 4000 ? 8 : dims[(*n + (uint32_t)kind) % 8];
            enum ids k = (enum ids)kind;
            try_segments(suite, (struct segments_shape){*n, d, k, false, true, FILL_PLAIN, 0, 0, false});
            try_segments(suite,
                         (struct segments_shape){*n, d, k, true, kind % 2 == 0, FILL_SPECIAL, 0, 0, false});
        }
    }
    for (uint32_t i = 0; i < 4; i++)
        try_segments(suite, (struct segments_shape){edges[i], dims[i * 2], IDS_ONE, false, i % 2 == 0,
                                                    FILL_PLAIN, 0, 0, false});
    for (uint32_t i = 0; i < 8; i++)
        try_segments(suite,
                     (struct segments_shape){700, dims[i], IDS_ZIPF, true, true, FILL_PLAIN, 0, 0, false});
    for (uint32_t i = 0; i < 16; i++) { /* units larger than d, and smaller ones: gradients then overlap */
        uint32_t unit = i % 2 == 0 ? dims[i / 2] + 4 * (i + 1) : 4;
        try_segments(suite, (struct segments_shape){500, dims[i / 2], i % 3 == 0 ? IDS_ONE : IDS_ZIPF,
                                                    i % 4 < 2, true, FILL_PLAIN, unit, 0, false});
    }
    for (uint32_t i = 0; i < 64; i++) /* slices: short parts, and parts of several chunks */
        try_segments(suite, (struct segments_shape){.n = i % 4 == 3 ? 4000 : 60 + 11 * i,
                                                    .d = dims[i % 8],
                                                    .kind = i % 5 == 0   ? IDS_ONE
                                                            : i % 5 == 1 ? IDS_ABSENT
                                                                         : IDS_ZIPF,
                                                    .has_bag = i % 2 == 0,
                                                    .has_scales = i % 3 == 0,
                                                    .fill = i % 7 == 0 ? FILL_SPECIAL : FILL_PLAIN,
                                                    .slices = 1U << i / 8 % 5,
                                                    .has_more = i / 4 % 2 == 0});
    try_segments(
        suite, (struct segments_shape){suite_huge(suite), 4, IDS_ZIPF, true, true, FILL_PLAIN, 0, 0, false});
}
