/*
 * Every variant of every kernel in kernels.def against the scalar variant, bit for bit; a kernel without a
 * case is a compile error. A case takes its buffers from one slab of memory with guard zones; after the call
 * the whole slab, inputs and guards included, must be the same as after the scalar call. Only NaNs may
 * differ, in payload and sign.
 */
#include "kernels/attention.h"
#include "kernels/attention_pages.h"
#include "kernels/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SLAB_BYTES = 64 << 20, GUARD = 64, ROWS_MAX = 4096 };
enum fill { ANY, POSITIVE, SPECIAL };

struct slab {
    unsigned char *bytes;
    size_t used;
    size_t shift; /* misalignment of each buffer, in bytes */
    uint64_t seed;
    bool is_special; /* NaN, infinities, denormals and huge values among the inputs */
};

static uint64_t next_random(struct slab *s)
{
    s->seed ^= s->seed << 13;
    s->seed ^= s->seed >> 7;
    s->seed ^= s->seed << 17;
    return s->seed;
}

static void *take(struct slab *s, size_t bytes)
{
    size_t at = (s->used + GUARD + 63) / 64 * 64 + s->shift;
    assert_true(at + bytes + GUARD < SLAB_BYTES);
    memset(s->bytes + s->used, 0xa5, at + bytes + GUARD - s->used);
    s->used = at + bytes + GUARD;
    return s->bytes + at;
}

static double number(struct slab *s, enum fill fill)
{
    static const double special[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1e-40, 3e38, -3e38};
    uint64_t r = next_random(s);
    if (s->is_special && fill != POSITIVE && r % 8 == 0)
        return special[(r >> 8) % 8];
    double x = (double)(r >> 11) * 0x1p-53;
    return fill == POSITIVE ? 0.01 + x * 4.0 : x * 4.0 - 2.0;
}

static float *floats(struct slab *s, size_t n, enum fill fill)
{
    float *p = take(s, n * sizeof(*p));
    for (size_t i = 0; i < n; i++)
        p[i] = (float)number(s, fill);
    return p;
}

static double *doubles(struct slab *s, size_t n, enum fill fill)
{
    size_t shift = s->shift;
    s->shift = shift / 8 * 8;
    double *p = take(s, n * sizeof(*p));
    s->shift = shift;
    for (size_t i = 0; i < n; i++)
        p[i] = number(s, fill);
    return p;
}

static const float *const *rows(struct slab *s, size_t n, size_t d)
{
    static const float *pointers[ROWS_MAX];
    assert_true(n <= ROWS_MAX);
    for (size_t i = 0; i < n; i++)
        pointers[i] = floats(s, d, ANY);
    return pointers;
}

static void result(struct slab *s, float x)
{
    float *p = take(s, sizeof(*p));
    *p = x;
}

static void optimizer(const struct kernels *k, struct slab *s, size_t n, size_t d, enum opt_kind kind)
{
    static struct opt_row list[ROWS_MAX];
    if (n > 40)
        n = 40;
    struct opt_params p = {.rate = 0.1F,
                           .l1 = n % 2 ? 0.01F : 0.0F,
                           /* l1 and l2 are both 0 for every fourth n: the path of
                            * adagrad_block without limits. */
                           .l2 = n % 4 ? 0.02F : 0.0F,
                           .epsilon = 1e-3F,
                           .decay = 0.99F,
                           .beta1 = 0.9F,
                           .beta2 = 0.99F,
                           .correction1 = 1.5F,
                           .correction2 = 2.5F,
                           .step_max = 0.5F};
    for (size_t i = 0; i < n; i++) {
        float *w = floats(s, d + opt_state_floats(kind, d), ANY);
        for (size_t j = d; j < d + opt_state_floats(kind, d); j++)
            w[j] = fabsf(w[j]) + 0.01F;
        list[i] = (struct opt_row){
            .w = w, .state = w + d, .g = floats(s, d, ANY), .scale = 0.3F, .curvature = 0.2F};
    }
    opt_pick(k, kind)(list, n, d, &p);
}

#define CASE(name) static void case_##name(const struct kernels *k, struct slab *s, size_t n, size_t d)

CASE(pool_mean)
{
    float *out = floats(s, d, ANY);
    k->pool_mean(out, rows(s, n, d), n, d);
}
CASE(sum_squares)
{
    result(s, k->sum_squares(floats(s, n * d, ANY), n * d));
}
CASE(dot)
{
    float *x = floats(s, n * d, ANY);
    result(s, k->dot(x, floats(s, n * d, ANY), n * d));
}
/* Pointers to n pairs of one array, in reverse order. */
static float *const *pairs(struct slab *s, size_t n)
{
    static float *pointers[ROWS_MAX];
    float *all = floats(s, 2 * n, ANY);
    for (size_t i = 0; i < n; i++)
        pointers[i] = all + 2 * (n - 1 - i);
    return pointers;
}
CASE(pairs_dot)
{
    d = (d + 15) / 16 * 16;
    n = n < d ? n : d;
    float *const *list = pairs(s, n);
    float *w = floats(s, 2 * d, ANY);
    result(s, k->pairs_dot(w, list, floats(s, d, ANY), n, d));
}
CASE(pairs_store)
{
    d = (d + 15) / 16 * 16;
    n = n < d ? n : d;
    k->pairs_store(pairs(s, n), floats(s, 2 * d, ANY), n, d);
}
/* Also compares with the separate kernels that it combines: pairs_dot, sigmoid_one,
 * opt_adagrad, pairs_store. */
CASE(pairs_adagrad)
{
    struct opt_params p = {.rate = 0.1F, .l2 = 0.02F, .decay = 0.99F, .step_max = 0.5F};
    struct pairs_event e = {
        .label = n % 2 ? 1.0F : 0.0F, .weight = 0.7F, .is_logistic = n % 3 > 0, .bias = 0.1};
    d = (d + 15) / 16 * 16;
    n = n < d ? n : d;
    e.learns = n % 5 > 0;
    p.l1 = n % 4 ? 0.0F : 0.01F;
    float *all = floats(s, 2 * (n + 3), ANY), *values = floats(s, d, ANY), *w = floats(s, 2 * d, ANY);
    float *all2 = floats(s, 2 * (n + 3), ANY), *w2 = floats(s, 2 * d, ANY);
    float *pointers[ROWS_MAX], *pointers2[ROWS_MAX];
    for (size_t i = 0; i < 2 * (n + 3); i++)
        all[i] = all2[i] = i % 2 ? fabsf(all[i]) + 0.01F : all[i];
    for (size_t i = 0; i < 2 * d; i++)
        w[i] = w2[i] = i >= d ? fabsf(w[i]) + 0.01F : w[i];
    for (size_t i = 0; i < n + 3; i++) {
        size_t at = 2 * (i < n ? n - 1 - i : i);
        pointers[i] = all + at, pointers2[i] = all2 + at;
    }
    double logit = k->pairs_adagrad(w, pointers, values, n, d, &e, &p);
    double same = (double)k->pairs_dot(w2, pointers2, values, n, d) + e.bias;
    double guess = e.is_logistic ? k->sigmoid_one(same) : same;
    struct opt_row row = {.w = w2,
                          .state = w2 + d,
                          .g = values,
                          .scale = (float)((guess - (double)e.label) * (double)e.weight)};
    bool is_good = isfinite(same) && isfinite(row.scale);
    if (e.learns && is_good) {
        k->opt_adagrad(&row, 1, d, &p);
        k->pairs_store(pointers2, w2, n, d);
        assert_memory_equal(w, w2, 2 * d * sizeof(*w));
    }
    assert_memory_equal(all, all2, 2 * n * sizeof(*all));
    assert_true(is_good ? logit == same : isnan(logit));
    result(s, (float)logit);
}
CASE(mix_keys)
{
    uint64_t *keys = (uint64_t *)(void *)doubles(s, n * d, ANY);
    k->mix_keys((uint64_t *)(void *)doubles(s, n * d, ANY), keys, 12345, n * d);
}
CASE(sigmoid_one)
{
    double *x = doubles(s, n, ANY);
    for (size_t i = 0; i < n; i++)
        x[i] = k->sigmoid_one(x[i] * (d % 2 ? 3.0 : 400.0));
}
CASE(sigmoid64)
{
    double *out = doubles(s, n * d, ANY), *x = doubles(s, n * d, ANY);
    for (size_t i = 0; i < n * d; i++)
        x[i] *= i % 3 == 0 ? 400.0 : 3.0;
    k->sigmoid64(out, x, n * d);
}
CASE(logloss64)
{
    double *out = doubles(s, n * d, ANY), *x = doubles(s, n * d, ANY);
    for (size_t i = 0; i < n * d; i++)
        x[i] *= i % 3 == 0 ? 400.0 : 3.0;
    k->logloss64(out, x, floats(s, n * d, ANY), n * d);
}
CASE(fm_forward)
{
    d = (d + 3) / 4 * 4;
    float *sum = floats(s, d, ANY);
    result(s, k->fm_forward(sum, rows(s, n, d), n, d));
}
CASE(fm_backward)
{
    float *grads = floats(s, n * d, ANY), *sum = floats(s, d, ANY);
    k->fm_backward(grads, sum, rows(s, n, d), n, d);
}

static const float *const *ffm_rows(struct slab *s, size_t n, size_t length, const float **zero)
{
    static const float *pointers[ROWS_MAX];
    float *nothing = take(s, (length + 1) * sizeof(*nothing));
    memset(nothing, 0, (length + 1) * sizeof(*nothing));
    *zero = nothing;
    memcpy(pointers, rows(s, n, length), n * sizeof(*pointers));
    for (size_t i = n; i < FFM_ROUND(n); i++)
        pointers[i] = nothing;
    return pointers;
}
CASE(ffm_forward)
{
    if (n > 40)
        n = 40;
    d = (d + 3) / 4 * 4;
    size_t length = FFM_ROUND(n) * d;
    const float *zero;
    float *partners = floats(s, n * length, ANY);
    const float *const *list = ffm_rows(s, n, length, &zero);
    result(s, k->ffm_forward(partners, list, zero, n, d));
}
CASE(ffm_pairs_forward)
{
    if (n > 40)
        n = 40;
    d = (d + 3) / 4 * 4;
    size_t length = FFM_ROUND(n) * d;
    const float *zero;
    float *partners = floats(s, n * length, ANY);
    float *products = floats(s, n * FFM_ROUND(n), ANY);
    const float *const *list = ffm_rows(s, n, length, &zero);
    k->ffm_pairs_forward(products, partners, list, zero, n, d);
}
CASE(ffm_pairs_backward)
{
    if (n > 40)
        n = 40;
    d = (d + 3) / 4 * 4;
    float *partners = floats(s, n * FFM_ROUND(n) * d, ANY);
    k->ffm_pairs_backward(partners, floats(s, n * FFM_ROUND(n), ANY), n, d);
}
CASE(opt_sgd)
{
    optimizer(k, s, n, d, OPT_SGD);
}
CASE(opt_momentum)
{
    optimizer(k, s, n, d, OPT_MOMENTUM);
}
CASE(opt_adagrad)
{
    optimizer(k, s, n, d, OPT_ADAGRAD);
}
CASE(opt_adagrad_row)
{
    optimizer(k, s, n, d, OPT_ADAGRAD_ROW);
}
CASE(opt_adagrad_block)
{
    optimizer(k, s, n, (d + 3) / 4 * 4, OPT_ADAGRAD_BLOCK);
}
CASE(opt_adam)
{
    optimizer(k, s, n, d, OPT_ADAM);
}
CASE(opt_ftrl)
{
    optimizer(k, s, n, d, OPT_FTRL);
}
CASE(opt_newton)
{
    optimizer(k, s, n, d, OPT_NEWTON);
}
CASE(newton_variance)
{
    static struct opt_row list[ROWS_MAX];
    if (n > 40)
        n = 40;
    for (size_t i = 0; i < n; i++) {
        float *w = floats(s, 2 * d, POSITIVE);
        list[i] = (struct opt_row){.w = w, .state = w + d, .g = floats(s, d, ANY)};
    }
    result(s, k->newton_variance(list, n, d));
}
CASE(ftrl64_weights)
{
    struct ftrl64_params p = {0.1, 1.0, 0.3, 0.1};
    double *w = doubles(s, n * d, ANY), *z = doubles(s, n * d, ANY);
    k->ftrl64_weights(w, z, doubles(s, n * d, POSITIVE), n * d, &p);
}
CASE(ftrl64_update)
{
    struct ftrl64_params p = {0.1, 1.0, 0.3, 0.1};
    double *w = doubles(s, n * d, ANY), *z = doubles(s, n * d, ANY), *g = doubles(s, n * d, ANY);
    k->ftrl64_update(z, doubles(s, n * d, POSITIVE), w, g, n * d, &p);
}
CASE(dense_forward)
{
    float *out = floats(s, n * 16, ANY), *in = floats(s, d * 16, ANY), *w = floats(s, n * d, ANY);
    k->dense_forward(out, in, w, floats(s, n, ANY), n, d);
}
CASE(dense_backward)
{
    float *din = floats(s, d * 16, ANY), *dout = floats(s, n * 16, ANY);
    k->dense_backward(din, dout, floats(s, n * d, ANY), n, d);
}
CASE(dense_gradient)
{
    float *dw = floats(s, n * d, ANY), *dbias = floats(s, n, ANY), *dout = floats(s, n * 16, ANY);
    k->dense_gradient(dw, dbias, dout, floats(s, 16 * d, ANY), n, d);
}
CASE(blend)
{
    float *x = floats(s, n * d, ANY);
    k->blend(x, floats(s, n * d, ANY), 0.7F, n * d);
}
CASE(dense_rows_to_lanes)
{
    float *out = floats(s, n * 16, ANY);
    (void)d;
    k->dense_rows_to_lanes(out, floats(s, n * 16, ANY), n);
}
CASE(dense_lanes_to_rows)
{
    float *out = floats(s, n * 16, ANY);
    (void)d;
    k->dense_lanes_to_rows(out, floats(s, n * 16, ANY), n);
}
CASE(relu_forward)
{
    k->relu_forward(floats(s, n * d, ANY), n * d);
}
CASE(relu_backward)
{
    float *dx = floats(s, n * d, ANY);
    k->relu_backward(dx, floats(s, n * d, ANY), n * d);
}
CASE(init_uniform)
{
    k->init_uniform(floats(s, n * d, ANY), 77 + n, 0.25F, n * d);
}

#include "sequence_cases.h"

typedef void case_function(const struct kernels *, struct slab *, size_t, size_t);

static void slab_start(struct slab *s, size_t n, size_t d, size_t shift, bool is_special)
{
    s->used = 0;
    s->shift = shift;
    s->seed = 0x9e3779b97f4a7c15U + n * 1000003 + d * 101 + shift;
    s->is_special = is_special;
}

static bool same(const struct slab *a, const struct slab *b)
{
    if (a->used != b->used)
        return false;
    if (memcmp(a->bytes, b->bytes, a->used) == 0)
        return true;
    /* A difference is allowed inside a float that is NaN in both slabs. */
    for (size_t i = 0; i + 4 <= a->used; i++) {
        if (a->bytes[i] == b->bytes[i])
            continue;
        size_t begin = i >= 7 ? i - 7 : 0;
        bool is_nan = false;
        for (size_t at = begin; at <= i && !is_nan; at++) {
            float x, y;
            memcpy(&x, a->bytes + at, 4);
            memcpy(&y, b->bytes + at, 4);
            is_nan = (at - a->shift % 4) % 4 == 0 && isnan(x) && isnan(y);
        }
        if (!is_nan)
            return false;
    }
    return true;
}

static void compare(const char *name, case_function *run)
{
    static const size_t sizes[][2] = {{0, 0},   {1, 1},    {1, 16},  {0, 8},   {3, 0},    {2, 4},
                                      {3, 7},   {5, 8},    {7, 31},  {12, 8},  {13, 16},  {16, 17},
                                      {33, 12}, {64, 196}, {11, 96}, {3, 240}, {1000, 3}, {2049, 33}};
    struct slab expected = {.bytes = malloc(SLAB_BYTES)}, actual = {.bytes = malloc(SLAB_BYTES)};
    assert_non_null(expected.bytes);
    assert_non_null(actual.bytes);
    for (size_t c = 0; c < sizeof(sizes) / sizeof(*sizes); c++) {
        for (size_t shift = 0; shift <= 12; shift += 4) {
            for (int special = 0; special < 2; special++) {
                size_t n = sizes[c][0], d = sizes[c][1];
                slab_start(&expected, n, d, shift, special);
                run(kernels_variant(KERNELS_SCALAR), &expected, n, d);
                for (int v = KERNELS_SCALAR + 1; v < KERNELS_VARIANTS; v++) {
                    const struct kernels *k = kernels_variant((enum kernels_variant)v);
                    if (k == NULL)
                        continue;
                    slab_start(&actual, n, d, shift, special);
                    run(k, &actual, n, d);
                    if (!same(&expected, &actual)) {
                        fail_msg("%s: %s differs from scalar at n=%zu d=%zu shift=%zu special=%d", name,
                                 k->name, n, d, shift, special);
                    }
                }
            }
        }
    }
    free(expected.bytes);
    free(actual.bytes);
}

#define KERNEL(type, name, args, bytes, flops)                                                               \
    static void test_##name(void **state)                                                                    \
    {                                                                                                        \
        (void)state;                                                                                         \
        compare(#name, case_##name);                                                                         \
    }
#include "kernels/kernels.def"

static void test_pick(void **state)
{
    (void)state;
    const char *reason;
    assert_non_null(kernels_pick(NULL, &reason));
    assert_null(reason);
    assert_string_equal(kernels_pick("scalar", &reason)->name, "scalar");
    assert_null(kernels_pick("sse9", &reason));
    assert_non_null(reason);
    for (int v = 0; v < KERNELS_VARIANTS; v++) {
        const struct kernels *k = kernels_pick(kernels_variant_name((enum kernels_variant)v), &reason);
        assert_true((k != NULL) == kernels_supports((enum kernels_variant)v));
        assert_true((reason == NULL) == (k != NULL));
    }
    struct kernels_calls calls = {0};
    kernels_count(&calls, kernels_variant(KERNELS_SCALAR));
    assert_int_equal(calls.calls[KERNELS_SCALAR], 1);
    if (!kernels_supports(KERNELS_AVX512))
        print_message("skipped: avx512 is not supported here\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define KERNEL(type, name, args, bytes, flops) cmocka_unit_test(test_##name),
#include "kernels/kernels.def"
        cmocka_unit_test(test_pick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
