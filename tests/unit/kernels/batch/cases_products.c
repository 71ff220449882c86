/* products: one field and many, dims around whole vectors, forward, backward and both; rows with and without a
 * gap behind them that must stay unchanged. The scalar variant is compared with plain loops. */
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum mode { FORWARD, BACKWARD, BOTH, MODES };
static const char *const mode_names[] = {"forward", "backward", "both"};

struct products_shape {
    uint32_t n, fields, d;
    enum mode mode;
    bool adds;
    uint32_t gap;
    enum fill fill;
};

static size_t row_stride(const struct products_shape *s)
{
    return (size_t)s->fields * s->d + s->gap;
}

static size_t out_stride(const struct products_shape *s)
{
    return s->fields * (size_t)(s->fields - 1) / 2 * s->d + s->gap;
}

static void forward_plainly(const struct products_shape *s, const float *vectors, float *out)
{
    for (uint32_t i = 1; i < s->fields; i++)
        for (uint32_t j = 0; j < i; j++)
            for (uint32_t c = 0; c < s->d; c++)
                *out++ = vectors[i * s->d + c] * vectors[j * s->d + c];
}

static void backward_plainly(const struct products_shape *s, const float *vectors, const float *out_gradients,
                             float *grads)
{
    for (uint32_t i = 0; i < s->fields; i++)
        for (uint32_t c = 0; c < s->d; c++, grads++) {
            float sum = 0.0F;
            for (uint32_t j = 0; j < s->fields; j++) {
                uint32_t high = i > j ? i : j, low = i > j ? j : i, pair = high * (high - 1) / 2 + low;
                if (i != j)
                    sum = fmaf(out_gradients[(size_t)pair * s->d + c], vectors[j * s->d + c], sum);
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

static void build_products(struct trial *t, const void *arg)
{
    const struct products_shape *s = arg;
    size_t row = row_stride(s), width = out_stride(s), floats = s->n * row;
    float *vectors = trial_input(t, "vectors", floats * sizeof(*vectors), TRIAL_MATRIX);
    float *out = NULL, *out_gradients = NULL, *grads = NULL, *want_out = NULL, *want_grads = NULL;
    trial_floats(t, vectors, floats, s->fill);
    if (s->mode != BACKWARD)
        out = result(t, "out", s->n * width, s->gap > 0, &want_out);
    if (s->mode != FORWARD) {
        out_gradients = trial_input(t, "out_gradients", s->n * width * sizeof(*out_gradients), TRIAL_MATRIX);
        trial_floats(t, out_gradients, s->n * width, s->fill);
        grads = result(t, "grads", floats, s->adds || s->gap > 0, &want_grads);
    }
    struct batch_products a = {.vectors = PLACE(t, vectors),
                               .n = s->n,
                               .fields = s->fields,
                               .d = s->d,
                               .stride = s->gap > 0 ? (uint32_t)row : 0,
                               .adds = s->adds,
                               .out = PLACE(t, out),
                               .out_stride = s->gap > 0 ? (uint32_t)width : 0,
                               .out_gradients = PLACE(t, out_gradients),
                               .out_gradients_stride = s->gap > 0 ? (uint32_t)width : 0,
                               .grads = PLACE(t, grads),
                               .grads_stride = s->gap > 0 ? (uint32_t)row : 0};
    TRIAL_CALL(t, products, &a);
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

static void try_products(struct suite *suite, struct products_shape s)
{
    suite_try(suite, build_products, &s, "%u events, %u fields, d %u, %s%s, gap %u%s", s.n, s.fields, s.d,
              mode_names[s.mode], s.adds ? ", added" : "", s.gap, s.fill == FILL_SPECIAL ? ", special" : "");
}

void suite_products(struct suite *suite)
{
    static const uint32_t fields[] = {1, 2, 3, 4, 7, 13, 27};
    static const uint32_t dims[] = {4, 8, 12, 16, 20, 36, 64, 68, 128};
    enum { FIELDS = sizeof(fields) / sizeof(*fields), DIMS = sizeof(dims) / sizeof(*dims) };
    for (uint32_t i = 0; i < FIELDS * DIMS; i++) {
        struct products_shape s = {.fields = fields[i / DIMS], .d = dims[i % DIMS]};
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t n[] = {1, 3, s.fields * s.d < 300 ? 40 : 2, 0};
            s.n = n[k];
            s.mode = (enum mode)((i + k) % MODES);
            s.adds = (i + k) / 2 % 3 == 1;
            s.gap = (i + k) % 5 == 0 ? 4 * (1 + k) : 0;
            s.fill = (i + k) % 7 == 3 ? FILL_SPECIAL : FILL_PLAIN;
            try_products(suite, s);
        }
    }
    try_products(suite, (struct products_shape){.n = 2, .fields = 64, .d = 12, .mode = BOTH, .adds = true});
    try_products(suite, (struct products_shape){.n = 1, .fields = 3, .d = 512, .mode = BOTH, .gap = 4});
    try_products(suite,
                 (struct products_shape){.n = suite_huge(suite) / 8, .fields = 3, .d = 4, .mode = BOTH});
}
