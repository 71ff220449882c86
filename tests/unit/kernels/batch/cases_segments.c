/* segment_reduce: all kinds of segments, with and without bags and scales, segments of whole chunks,
 * gradients that are columns of a matrix. */
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct segments_shape {
    uint32_t n, d;
    enum ids kind;
    bool has_bag, has_scales;
    enum fill fill;
    uint32_t unit; /* 0: d */
};

/* Floats from one gradient to the next. */
static uint32_t unit_of(const struct segments_shape *s)
{
    return s->unit > 0 ? s->unit : s->d;
}

/* Computes the d floats of one index by the rule of batch.h. */
static void sum_plainly(const struct segments_shape *s, const float *grads, const uint32_t *bag,
                        const float *scales, const uint32_t *places, uint32_t length, float *out)
{
    for (uint32_t i = 0; i < s->d; i++) {
        float total = 0.0F;
        for (uint32_t chunk = 0; chunk < length; chunk += BATCH_CHUNK) {
            float sum = 0.0F;
            for (uint32_t at = chunk; at < length && at < chunk + BATCH_CHUNK; at++) {
                uint32_t place = places[at];
                float scale = scales ? scales[place] : 1.0F;
                sum = fmaf(scale, grads[(size_t)(bag != NULL ? bag[place] : place) * unit_of(s) + i], sum);
            }
            total = chunk == 0 ? sum : total + sum;
        }
        out[i] = total;
    }
}

static void build_segments(struct trial *t, const void *arg)
{
    const struct segments_shape *s = arg;
    uint32_t rows = s->has_bag ? s->n / 3 + 1 : s->n;
    struct batch_segment_reduce a = {.in = {.d = s->d, .unit = s->unit}};
    const uint32_t *order, *starts;
    uint32_t m = trial_segments(t, s->n, s->kind, &a.in, &order, &starts), *bag = NULL;
    size_t floats = rows > 0 ? (size_t)(rows - 1) * unit_of(s) + s->d : 0;
    float *scales = NULL, *grads = trial_input(t, "grads", sizeof(*grads) * floats, TRIAL_MATRIX);
    trial_floats(t, grads, floats, s->fill);
    a.in.grads = PLACE(t, grads);
    if (s->has_bag) {
        bag = trial_input(t, "bag", s->n * sizeof(*bag), sizeof(*bag));
        for (uint32_t i = 0; i < s->n; i++)
            bag[i] = i / 3;
        a.in.bag = PLACE(t, bag);
    }
    if (s->has_scales) {
        scales = trial_input(t, "scales", s->n * sizeof(*scales), sizeof(*scales));
        trial_floats(t, scales, s->n, FILL_PLAIN);
        for (uint32_t i = 0; i < s->n && s->fill == FILL_SPECIAL; i += 2)
            scales[i] *= 1e-38F; /* products that underflow, of either sign */
        a.in.scales = PLACE(t, scales);
    }
    float *sums = trial_output(t, "sums", sizeof(*sums) * s->n * s->d, TRIAL_MATRIX, same_floats);
    a.sums = PLACE(t, sums);
    TRIAL_CALL_SCRATCH(t, segment_reduce, &a);
    trial_valid(t, sums, sizeof(*sums) * m * s->d);
    if (!trial_is_scalar(t))
        return;
    float *want = malloc(s->d * sizeof(*want));
    for (uint32_t u = 0; u < m; u++) {
        sum_plainly(s, grads, bag, scales, order + starts[u], starts[u + 1] - starts[u], want);
        TRIAL_CHECK(t, same_floats(want, sums + (size_t)u * s->d, s->d * sizeof(*want)));
    }
    free(want);
}

static void try_segments(struct suite *suite, struct segments_shape s)
{
    suite_try(suite, build_segments, &s, "n %u, d %u, unit %u, ids %s%s%s%s", s.n, s.d, unit_of(&s),
              ids_names[s.kind], s.has_bag ? ", bag" : "", s.has_scales ? ", scales" : "",
              s.fill == FILL_SPECIAL ? ", special" : "");
}

void suite_segment_reduce(struct suite *suite)
{
    static const uint32_t dims[] = {4, 8, 12, 20, 64, 128, 132, 512};
    static const uint32_t edges[] = {128, 256, 257, 385};
    for (const uint32_t *n = suite_sizes(suite); *n != SIZES_END; n++) {
        for (int kind = 0; kind < IDS_KINDS; kind++) {
            uint32_t d = *n > 4000 ? 8 : dims[(*n + (uint32_t)kind) % 8];
            enum ids k = (enum ids)kind;
            try_segments(suite, (struct segments_shape){*n, d, k, false, true, FILL_PLAIN, 0});
            try_segments(suite, (struct segments_shape){*n, d, k, true, kind % 2 == 0, FILL_SPECIAL, 0});
        }
    }
    for (uint32_t i = 0; i < 4; i++)
        try_segments(
            suite, (struct segments_shape){edges[i], dims[i * 2], IDS_ONE, false, i % 2 == 0, FILL_PLAIN, 0});
    for (uint32_t i = 0; i < 8; i++)
        try_segments(suite, (struct segments_shape){700, dims[i], IDS_ZIPF, true, true, FILL_PLAIN, 0});
    for (uint32_t i = 0; i < 16; i++) { /* units larger than d, and smaller ones: gradients then overlap */
        uint32_t unit = i % 2 == 0 ? dims[i / 2] + 4 * (i + 1) : 4;
        try_segments(suite, (struct segments_shape){500, dims[i / 2], i % 3 == 0 ? IDS_ONE : IDS_ZIPF,
                                                    i % 4 < 2, true, FILL_PLAIN, unit});
    }
    try_segments(suite, (struct segments_shape){suite_huge(suite), 4, IDS_ZIPF, true, true, FILL_PLAIN, 0});
}
