/* silu, gate, dropout, add_positions and positions_gradient: windows of any length, empty ones too. The scalar variant is
 * compared with the kernels over arrays, and with plain sums. */
#include "windows.h"

#include <stdlib.h>
#include <string.h>

static float *changed(struct trial *t, const char *name, size_t floats, enum fill fill)
{
    float *x = trial_changed(t, name, floats * sizeof(*x), TRIAL_MATRIX, same_floats);
    trial_floats(t, x, floats, fill);
    return x;
}

static float *copy_of(const float *x, size_t floats)
{
    return memcpy(malloc(floats * sizeof(*x) + 1), x, floats * sizeof(*x));
}

struct silu_shape {
    uint32_t n;
    bool goes, returns, is_in_place; /* in place: not both */
};

static void build_silu(struct trial *t, const void *arg)
{
    const struct silu_shape *s = arg;
    const struct kernels *k = kernels_variant(KERNELS_SCALAR);
    size_t bytes = s->n * sizeof(float);
    float *x = changed(t, "x", s->n, FILL_SPECIAL), *dout = changed(t, "out_gradients", s->n, FILL_SPECIAL);
    for (size_t i = 0; i < s->n; i += 3)
        x[i] *= 60.0F;
    float *out = s->is_in_place ? x : trial_output(t, "out", bytes, TRIAL_MATRIX, same_floats);
    float *grads = s->is_in_place ? dout : trial_output(t, "grads", bytes, TRIAL_MATRIX, same_floats);
    float *want = copy_of(x, s->n), *want_grads = copy_of(dout, s->n);
    k->silu_backward(want_grads, want_grads, want, s->n);
    k->silu_forward(want, want, s->n);
    struct batch_silu a = {.x = PLACE(t, x),
                           .n = s->n,
                           .out = s->goes ? PLACE(t, out) : NULL,
                           .out_gradients = s->returns ? PLACE(t, dout) : NULL,
                           .grads = PLACE(t, grads)};
    TRIAL_CALL(t, silu, &a);
    if (!s->is_in_place)
        trial_valid(t, out, s->goes ? bytes : 0), trial_valid(t, grads, s->returns ? bytes : 0);
    if (trial_is_scalar(t)) {
        TRIAL_CHECK(t, !s->goes || same_floats(want, out, bytes));
        TRIAL_CHECK(t, !s->returns || same_floats(want_grads, grads, bytes));
    }
    free(want);
    free(want_grads);
}

void suite_silu(struct suite *suite)
{
    static const struct silu_shape kinds[] = {{0, true, false, false},
                                              {0, false, true, false},
                                              {0, true, true, false},
                                              {0, true, false, true},
                                              {0, false, true, true}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        for (const uint32_t *n = suite_sizes(suite); *n != SIZES_END; n++) {
            struct silu_shape s = kinds[i];
            s.n = *n;
            suite_try(suite, build_silu, &s, "%u numbers%s%s%s", s.n, s.goes ? ", forward" : "",
                      s.returns ? ", backward" : "", s.is_in_place ? ", in place" : "");
        }
}

struct token_shape {
    uint32_t windows, d, most; /* most: rows of a window */
    bool has_keys;
    uint32_t parts, gap;
    float rate;
};

static void build_gate(struct trial *t, const void *arg)
{
    const struct token_shape *s = arg;
    uint32_t n = s->windows, stride = s->d + s->gap;
    size_t floats = (size_t)n * s->d, wide = (size_t)n * stride;
    float *gate = trial_input(t, "a", wide * sizeof(*gate), TRIAL_MATRIX);
    float *b = trial_input(t, "b", floats * sizeof(*b), TRIAL_MATRIX);
    float *dout = trial_input(t, "out_gradients", floats * sizeof(*dout), TRIAL_MATRIX);
    trial_floats(t, gate, wide, FILL_SPECIAL), trial_floats(t, b, floats, FILL_SPECIAL);
    trial_floats(t, dout, floats, FILL_SPECIAL);
    float *out = changed(t, "out", floats, FILL_PLAIN), *a_grads = changed(t, "a_grads", wide, FILL_PLAIN);
    float *b_grads = changed(t, "b_grads", floats, FILL_PLAIN);
    float *want = copy_of(out, floats), *want_a = copy_of(a_grads, wide), *want_b = copy_of(b_grads, floats);
    bool goes = s->parts != 1, returns = s->parts > 0;
    for (size_t i = 0; i < floats; i++) {
        size_t of_gate = i / s->d * stride + i % s->d;
        want[i] = goes ? gate[of_gate] * b[i] : want[i];
        want_a[of_gate] = returns ? dout[i] * b[i] : want_a[of_gate];
        want_b[i] = returns ? dout[i] * gate[of_gate] : want_b[i];
    }
    struct batch_gate a = {.a = PLACE(t, gate),
                           .b = PLACE(t, b),
                           .n = n,
                           .d = s->d,
                           .a_stride = s->gap > 0 ? stride : 0,
                           .out = goes ? PLACE(t, out) : NULL,
                           .out_gradients = returns ? PLACE(t, dout) : NULL,
                           .a_grads = PLACE(t, a_grads),
                           .b_grads = PLACE(t, b_grads)};
    TRIAL_CALL(t, gate, &a);
    if (trial_is_scalar(t)) {
        TRIAL_CHECK(t, same_floats(want, out, floats * sizeof(*out)));
        TRIAL_CHECK(t, same_floats(want_a, a_grads, wide * sizeof(*out)));
        TRIAL_CHECK(t, same_floats(want_b, b_grads, floats * sizeof(*out)));
    }
    free(want), free(want_a), free(want_b);
}

/* In these shapes `windows` are rows; parts: 0 forward, 1 backward, 2 both. */
void suite_gate(struct suite *suite)
{
    static const uint32_t dims[] = {4, 12, 16, 64, 68, 128};
    static const uint32_t rows[] = {0, 1, 3, 64, 257};
    for (uint32_t i = 0; i < 60; i++) {
        struct token_shape s = {.windows = rows[i % 5], .d = dims[i % 6], .parts = i % 3};
        s.gap = i % 4 * 8;
        suite_try(suite, build_gate, &s, "%u rows, d %u, gap %u%s%s", s.windows, s.d, s.gap,
                  s.parts != 1 ? ", forward" : "", s.parts > 0 ? ", backward" : "");
    }
}

static void build_dropout(struct trial *t, const void *arg)
{
    const struct token_shape *s = arg;
    uint32_t *offsets = trial_windows(t, s->windows, s->most), n = offsets[s->windows];
    uint64_t *identities = trial_words(t, "identities", s->windows), *keys = trial_words(t, "keys", n);
    size_t floats = (size_t)n * s->d;
    float *x = changed(t, "x", floats, FILL_SPECIAL), *want = copy_of(x, floats);
    struct batch_dropout a = {.x = PLACE(t, x),
                              .n = n,
                              .d = s->d,
                              .rate = s->rate,
                              .keys = s->has_keys ? PLACE(t, keys) : NULL,
                              .offsets = PLACE(t, offsets),
                              .windows = s->windows,
                              .identities = PLACE(t, identities),
                              .seed = trial_random(t),
                              .part = UINT64_C(3) << 32};
    for (uint32_t w = 0; w < s->windows; w++)
        for (uint32_t r = offsets[w]; r < offsets[w + 1]; r++) {
            uint64_t key =
                s->has_keys ? keys[r] : num_chance(a.seed, identities[w], a.part + (r - offsets[w]));
            kernels_variant(KERNELS_SCALAR)->dropout(want + (size_t)r * s->d, &key, s->rate, 1, s->d);
        }
    TRIAL_CALL(t, dropout, &a);
    if (trial_is_scalar(t))
        TRIAL_CHECK(t, same_floats(want, x, floats * sizeof(*x)));
    free(want);
}

void suite_dropout(struct suite *suite)
{
    static const float rates[] = {0.0F, 0.1F, 0.5F, 0.9999F, 0.99999F};
    static const uint32_t dims[] = {4, 8, 60, 64, 68, 128, 200};
    for (uint32_t i = 0; i < 70; i++) {
        struct token_shape s = {
            .windows = i % 4 == 3 ? 40 : i % 5, .d = dims[i % 7], .most = i % 3 ? 130 : 9};
        s.has_keys = i % 2;
        s.rate = rates[i % 5];
        suite_try(suite, build_dropout, &s, "%u windows, d %u, rate %g%s", s.windows, s.d, (double)s.rate,
                  s.has_keys ? ", keys of rows" : "");
    }
}

static void build_add_positions(struct trial *t, const void *arg)
{
    const struct token_shape *s = arg;
    uint32_t *offsets = trial_windows(t, s->windows, s->most), n = offsets[s->windows],
             stride = s->d + s->gap;
    size_t floats = (size_t)n * s->d, table_floats = (size_t)s->most * stride;
    float *x = changed(t, "x", floats, FILL_SPECIAL), *want = copy_of(x, floats);
    float *table = trial_input(t, "table", table_floats * sizeof(*table), TRIAL_MATRIX);
    trial_floats(t, table, table_floats, FILL_SPECIAL);
    for (uint32_t w = 0; w < s->windows; w++)
        for (uint32_t r = offsets[w]; r < offsets[w + 1]; r++)
            for (uint32_t c = 0; c < s->d; c++)
                want[(size_t)r * s->d + c] += table[(r - offsets[w]) * stride + c];
    struct batch_add_positions a = {.x = PLACE(t, x),
                                    .table = PLACE(t, table),
                                    .n = n,
                                    .d = s->d,
                                    .stride = s->gap > 0 ? stride : 0,
                                    .offsets = PLACE(t, offsets),
                                    .windows = s->windows};
    TRIAL_CALL(t, add_positions, &a);
    if (trial_is_scalar(t))
        TRIAL_CHECK(t, same_floats(want, x, floats * sizeof(*x)));
    free(want);
}

/* The sum of one position's column by the contract's order. */
static float plain_sum(const struct token_shape *s, const uint32_t *offsets, const uint32_t *parts,
                       const float *gradients, uint32_t position, uint32_t column)
{
    float sum = 0.0F;
    for (uint32_t p = 0; p < (parts ? s->parts : 1); p++) {
        float own = 0.0F;
        for (uint32_t w = parts ? parts[p] : 0; w < (parts ? parts[p + 1] : s->windows); w++)
            if (offsets[w] + position < offsets[w + 1])
                own += gradients[(size_t)(offsets[w] + position) * s->d + column];
        sum = p == 0 ? own : sum + own;
    }
    return sum;
}

static void build_gradient(struct trial *t, const void *arg)
{
    const struct token_shape *s = arg;
    uint32_t *offsets = trial_windows(t, s->windows, s->most), n = offsets[s->windows],
             stride = s->d + s->gap;
    uint32_t *parts = s->parts > 0 ? trial_parts(t, s->windows, s->parts) : NULL;
    size_t floats = (size_t)n * s->d, table_floats = (size_t)s->most * stride;
    float *gradients = trial_input(t, "gradients", floats * sizeof(*gradients), TRIAL_MATRIX);
    trial_floats(t, gradients, floats, FILL_SPECIAL);
    float *table = changed(t, "table", table_floats, FILL_PLAIN), *want = copy_of(table, table_floats);
    struct batch_positions_gradient a = {.out_gradients = PLACE(t, gradients),
                                         .d = s->d,
                                         .stride = s->gap > 0 ? stride : 0,
                                         .positions = s->most,
                                         .offsets = PLACE(t, offsets),
                                         .windows = s->windows,
                                         .parts = PLACE(t, parts),
                                         .parts_count = s->parts,
                                         .table = PLACE(t, table)};
    for (uint32_t i = 0; i < s->most * s->d; i++)
        want[i / s->d * stride + i % s->d] = plain_sum(s, offsets, parts, gradients, i / s->d, i % s->d);
    TRIAL_CALL(t, positions_gradient, &a);
    if (trial_is_scalar(t))
        TRIAL_CHECK(t, same_floats(want, table, table_floats * sizeof(*table)));
    free(want);
}

static void try_positions(struct suite *suite, trial_builder *build)
{
    static const uint32_t dims[] = {4, 12, 16, 64, 68, 128};
    for (uint32_t i = 0; i < 48; i++) {
        struct token_shape s = {
            .windows = i % 4 == 3 ? 50 : i % 5, .d = dims[i % 6], .most = i % 3 ? 130 : 9};
        s.gap = i % 5 == 1 ? 8 : 0;
        s.parts = i % 4 * 3;
        suite_try(suite, build, &s, "%u windows, d %u, %u positions, gap %u, %u parts", s.windows, s.d,
                  s.most, s.gap, s.parts);
    }
}

void suite_add_positions(struct suite *suite)
{
    try_positions(suite, build_add_positions);
}

void suite_positions_gradient(struct suite *suite)
{
    try_positions(suite, build_gradient);
}
