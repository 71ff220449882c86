/* dot_interaction: all shapes of tiles, forward, backward and both; rows with and without a gap behind them
 * that must stay unchanged. The scalar variant is compared with `dot` of kernels.h and a plain loop. */
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum mode { FORWARD, BACKWARD, BOTH, MODES };
static const char *const mode_names[] = {"forward", "backward", "both"};

struct dot_shape {
    uint32_t n, fields, d;
    enum mode mode;
    bool copies, adds;
    uint32_t gap;
    enum fill fill;
};

static size_t pairs_of(const struct dot_shape *s)
{
    return s->fields * (size_t)(s->fields - 1) / 2;
}

/* out_width: floats of a row of `out`. out_stride: with the gap, rounded up to a multiple of 4, as
 * a GPU demands. */
static size_t out_width(const struct dot_shape *s)
{
    return pairs_of(s) + (s->copies ? s->d : 0);
}

static size_t out_stride(const struct dot_shape *s)
{
    return (out_width(s) + 3) / 4 * 4 + s->gap;
}

static size_t row_stride(const struct dot_shape *s)
{
    return (size_t)s->fields * s->d + s->gap;
}

static void forward_plainly(const struct dot_shape *s, const float *vectors, float *out)
{
    for (uint32_t i = 0; s->copies && i < s->d; i++)
        *out++ = vectors[i];
    for (uint32_t i = 1; i < s->fields; i++)
        for (uint32_t j = 0; j < i; j++)
            *out++ = kernels_variant(KERNELS_SCALAR)
                         ->dot(vectors + (size_t)i * s->d, vectors + (size_t)j * s->d, s->d);
}

static void backward_plainly(const struct dot_shape *s, const float *vectors, const float *out_gradients,
                             float *grads)
{
    const float *pairs = out_gradients + (s->copies ? s->d : 0);
    for (uint32_t i = 0; i < s->fields; i++)
        for (uint32_t c = 0; c < s->d; c++, grads++) {
            float sum = i == 0 && s->copies ? out_gradients[c] : 0.0F;
            for (uint32_t j = 0; j < s->fields; j++) {
                uint32_t high = i > j ? i : j, low = i > j ? j : i;
                if (i != j)
                    sum = fmaf(pairs[high * (high - 1) / 2 + low], vectors[(size_t)j * s->d + c], sum);
            }
            *grads = s->adds ? *grads + sum : sum;
        }
}

static float *result(struct trial *t, const char *name, size_t floats, bool is_changed, float **want)
{
    size_t bytes = floats * sizeof(**want);
    float *x = is_changed ? trial_changed(t, name, bytes, TRIAL_MATRIX, same_floats)
                          : trial_output(t, name, bytes, TRIAL_MATRIX, same_floats);
    if (is_changed)
        trial_floats(t, x, floats, FILL_PLAIN);
    *want = memcpy(malloc(bytes + 1), x, bytes);
    return x;
}

static void build_dot(struct trial *t, const void *arg)
{
    const struct dot_shape *s = arg;
    size_t row = row_stride(s), width = out_stride(s), floats = s->n * row;
    float *vectors = trial_input(t, "vectors", floats * sizeof(*vectors), TRIAL_MATRIX);
    float *out = NULL, *out_gradients = NULL, *grads = NULL, *want_out = NULL, *want_grads = NULL;
    trial_floats(t, vectors, floats, s->fill);
    if (s->mode != BACKWARD)
        out = result(t, "out", s->n * width, width > out_width(s), &want_out);
    if (s->mode != FORWARD) {
        out_gradients = trial_input(t, "out_gradients", s->n * width * sizeof(*out_gradients), TRIAL_MATRIX);
        trial_floats(t, out_gradients, s->n * width, s->fill);
        grads = result(t, "grads", floats, s->adds || s->gap > 0, &want_grads);
    }
    struct batch_dot_interaction a = {.vectors = PLACE(t, vectors),
                                      .n = s->n,
                                      .fields = s->fields,
                                      .d = s->d,
                                      .stride = s->gap > 0 ? (uint32_t)row : 0,
                                      .copies_first = s->copies,
                                      .adds = s->adds,
                                      .out = PLACE(t, out),
                                      .out_stride = width > out_width(s) ? (uint32_t)width : 0,
                                      .out_gradients = PLACE(t, out_gradients),
                                      .out_gradients_stride = width > out_width(s) ? (uint32_t)width : 0,
                                      .grads = PLACE(t, grads),
                                      .grads_stride = s->gap > 0 ? (uint32_t)row : 0};
    TRIAL_CALL(t, dot_interaction, &a);
    for (size_t e = 0; e < s->n && trial_is_scalar(t); e++) {
        if (out)
            forward_plainly(s, vectors + e * row, want_out + e * width);
        if (grads)
            backward_plainly(s, vectors + e * row, out_gradients + e * width, want_grads + e * row);
    }
    if (trial_is_scalar(t)) {
        TRIAL_CHECK(t, out == NULL || same_floats(want_out, out, s->n * width * sizeof(*out)));
        TRIAL_CHECK(t, grads == NULL || same_floats(want_grads, grads, floats * sizeof(*grads)));
    }
    free(want_out);
    free(want_grads);
}

static void try_dot(struct suite *suite, struct dot_shape s)
{
    suite_try(suite, build_dot, &s, "%u events, %u fields, d %u, %s%s%s, gap %u%s", s.n, s.fields, s.d,
              mode_names[s.mode], s.copies ? ", copies" : "", s.adds ? ", added" : "", s.gap,
              s.fill == FILL_SPECIAL ? ", special" : "");
}

void suite_dot_interaction(struct suite *suite)
{
    static const uint32_t fields[] = {1, 2, 3, 4, 5, 7, 8, 13, 27, 64};
    static const uint32_t dims[] = {4, 8, 12, 16, 20, 36, 64, 68, 128};
    enum { FIELDS = sizeof(fields) / sizeof(*fields), DIMS = sizeof(dims) / sizeof(*dims) };
    bool is_slow = suite_huge(suite) < 1 << 20;
    for (uint32_t i = 0; i < FIELDS * DIMS; i++) {
        struct dot_shape s = {.fields = fields[i / DIMS], .d = dims[i % DIMS]};
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t n[] = {1, 3, s.fields * s.d < 600 ? is_slow ? 40 : 200 : 2, 0};
            s.n = n[k];
            s.mode = (enum mode)((i + k) % MODES);
            s.copies = (i + k) / 3 % 2 == 0;
            s.adds = (i + k) / 2 % 3 == 1;
            s.gap = (i + k) % 5 == 0 ? 4 * (1 + k) : 0;
            s.fill = (i + k) % 7 == 3 ? FILL_SPECIAL : FILL_PLAIN;
            try_dot(suite, s);
        }
    }
    /* More than the shared memory that a block has by default, and than it can have; many small events
     * in a block. */
    try_dot(suite, (struct dot_shape){.n = 1, .fields = 40, .d = 512, .mode = BOTH, .copies = true});
    try_dot(suite, (struct dot_shape){.n = 2, .fields = 64, .d = 512, .mode = BOTH, .adds = true, .gap = 4});
    try_dot(suite, (struct dot_shape){.n = suite_huge(suite) / 8, .fields = 3, .d = 4, .mode = BOTH});
    try_dot(suite, (struct dot_shape){.n = suite_huge(suite), .fields = 2, .d = 4, .mode = FORWARD});
}
