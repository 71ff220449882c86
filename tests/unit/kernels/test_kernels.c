/*
 * Every variant of every kernel in kernels.def against the scalar variant, bit for bit; a kernel without a
 * case is a compile error. A case takes its buffers from one slab of memory with guard zones; after the call
 * the whole slab, inputs and guards included, must be the same as after the scalar call. Only NaNs may
 * differ, in payload and sign.
 */
#include "kernels/attention.h"
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
/* One window of up to 150 tokens and a second of one token, causal, with dropout for odd n. */
static struct attention attention(struct slab *s, size_t n, size_t d)
{
    static _Alignas(64) char scratch[1 << 18];
    d = d > 64 ? 64 : d < 16 ? 16 : d / 16 * 16;
    n = n > 150 ? 150 : n;
    uint32_t *offsets = take(s, 3 * sizeof(*offsets));
    offsets[0] = 0, offsets[1] = (uint32_t)n, offsets[2] = (uint32_t)n + 1;
    float *qkv = floats(s, (n + 1) * 3 * d, ANY), *grads = floats(s, (n + 1) * 3 * d, ANY);
    assert_true(attention_scratch_bytes(d) <= sizeof(scratch));
    memset(scratch, 0, sizeof(scratch));
    return (struct attention){.offsets = offsets,
                              .events = 2,
                              .heads = 1,
                              .d = (uint32_t)d,
                              .is_causal = n % 3 > 0,
                              .scale = 0.25F,
                              .q = {qkv, 3 * d},
                              .k = {qkv + d, 3 * d},
                              .v = {qkv + 2 * d, 3 * d},
                              .out = {floats(s, (n + 1) * d, ANY), d},
                              .lse = floats(s, n + 1, ANY),
                              .weight_scale = 0.1F,
                              .dropout = n % 2 ? 0.25F : 0.0F,
                              .seed = n,
                              .dout = {floats(s, (n + 1) * d, ANY), d},
                              .dq = {grads, 3 * d},
                              .dk = {grads + d, 3 * d},
                              .dv = {grads + 2 * d, 3 * d},
                              .scratch = scratch};
}
static const struct attention_bias *attention_bias(struct slab *s, size_t rows)
{
    static struct attention_bias bias;
    enum { MOST = 40 };
    uint32_t *seconds = take(s, (rows + 1) * sizeof(*seconds));
    for (size_t i = 0; i < rows; i++)
        seconds[i] = (uint32_t)(next_random(s) >> (32 + i % 32));
    bias = (struct attention_bias){.positions = floats(s, 2 * MOST + 1, ANY) + MOST,
                                   .times = floats(s, ATTENTION_TIME_BUCKETS, ANY),
                                   .positions_max = MOST,
                                   .query_seconds = seconds,
                                   .key_seconds = seconds,
                                   .dpositions = floats(s, 2 * MOST + 1, ANY) + MOST,
                                   .dtimes = floats(s, ATTENTION_TIME_BUCKETS, ANY)};
    return &bias;
}
CASE(attention_softmax_forward)
{
    struct attention a = attention(s, n, d);
    k->attention_softmax_forward(&a);
}
CASE(attention_softmax_backward)
{
    struct attention a = attention(s, n, d);
    k->attention_softmax_forward(&a);
    k->attention_softmax_backward(&a);
}
CASE(attention_silu_forward)
{
    struct attention a = attention(s, n, d);
    a.bias = attention_bias(s, a.offsets[2]);
    k->attention_silu_forward(&a);
}
CASE(attention_silu_backward)
{
    struct attention a = attention(s, n, d);
    a.bias = attention_bias(s, a.offsets[2]);
    k->attention_silu_backward(&a);
}
CASE(init_uniform)
{
    k->init_uniform(floats(s, n * d, ANY), 77 + n, 0.25F, n * d);
}
CASE(int8_quantize)
{
    d = d < INT8_DIMS_MAX ? d : INT8_DIMS_MAX;
    int8_t *out = take(s, 4 * int8_groups(d));
    s->is_special = false; /* rows are finite */
    float *x = floats(s, d, ANY);
    if (n % 2 == 0)
        memset(x, 0, d * sizeof(*x));
    float scale = k->int8_quantize(out, x, d);
    int largest = 0;
    for (size_t i = 0; i < d; i++) {
        largest = abs(out[i]) > largest ? abs(out[i]) : largest;
        assert_true(fabsf(x[i] - scale * (float)out[i]) <= scale * 0.5001F);
    }
    assert_int_equal(largest, d > 0 && n % 2 == 1 ? 127 : 0);
    result(s, scale);
}
/* Bytes of -127..127, some of them at the limits. */
static int8_t byte(struct slab *s)
{
    uint64_t r = next_random(s) >> 8;
    return (int8_t)(r % 4 == 0 ? 127 : r % 4 == 1 ? -127 : (int)(r / 4 % 255) - 127);
}
/* Also compares with plain sums, and with the code for CPUs without VNNI. */
CASE(int8_scores)
{
    static const size_t counts[] = {1, 64, 0, 3, 8, 13};
    static int32_t expected[INT8_QUERIES_MAX * 64 * INT8_BLOCK];
    size_t count = counts[(n + d) % 6], row = 4 * int8_groups(d), blocks = n < 64 ? n : 64, at = 0;
    int8_t *queries = take(s, count * row), *items = take(s, blocks * INT8_BLOCK * row);
    int32_t *starts = take(s, count * sizeof(*starts));
    for (size_t i = 0; i < count * row; i++)
        queries[i] = (int8_t)(i % row < d ? byte(s) : 0);
    for (size_t q = 0; q < count; q++)
        starts[q] = int8_start(queries + q * row, d);
    uint8_t *block = take(s, blocks * int8_block_bytes(d));
    for (size_t i = 0; i < blocks * INT8_BLOCK; i++) {
        for (size_t j = 0; j < d; j++)
            items[i * row + j] = byte(s);
        int8_block_put(block + i / INT8_BLOCK * int8_block_bytes(d), i % INT8_BLOCK, items + i * row, d);
    }
    size_t scores = count * blocks * INT8_BLOCK;
    int32_t *out = take(s, scores * sizeof(*out));
    for (size_t q = 0; q < count; q++)
        for (size_t i = 0; i < blocks * INT8_BLOCK; i++, at++) {
            expected[at] = 0;
            for (size_t j = 0; j < d; j++)
                expected[at] += queries[q * row + j] * items[i * row + j];
        }
    struct int8_queries list = {.bytes = queries, .starts = starts, .count = count, .is_plain = true};
    k->int8_scores(out, block, &list, blocks, d);
    assert_memory_equal(out, expected, scores * sizeof(*out));
    memset(out, 0xa5, scores * sizeof(*out));
    list.is_plain = false;
    k->int8_scores(out, block, &list, blocks, d);
    assert_memory_equal(out, expected, scores * sizeof(*out));
}
CASE(int8_above)
{
    n = n < 64 ? n : 64;
    int32_t *scores = take(s, n * INT8_BLOCK * sizeof(*scores));
    for (size_t i = 0; i < n * INT8_BLOCK; i++)
        scores[i] = (int32_t)(next_random(s) % 8000000) - 4000000;
    float *scales = floats(s, n * INT8_BLOCK, ANY), least = d % 2 ? -INFINITY : 1e6F;
    uint32_t *found = take(s, n * INT8_BLOCK * sizeof(*found));
    size_t count = k->int8_above(found, scores, scales, least, n), at = 0;
    for (uint32_t i = 0; i < n * INT8_BLOCK; i++)
        if ((float)scores[i] * scales[i] > least)
            assert_true(at < count && found[at++] == i);
    assert_int_equal(at, count);
}

CASE(layer_norm_forward)
{
    float *out = floats(s, n * d, ANY), *stats = floats(s, 2 * n, ANY), *x = floats(s, n * d, ANY);
    float *gain = floats(s, d, ANY);
    k->layer_norm_forward(out, stats, x, gain, floats(s, d, ANY), 1e-8F, n, d);
    k->layer_norm_forward(x, stats, x, gain, gain, 1e-8F, n, d);
}
CASE(layer_norm_backward)
{
    float *dx = floats(s, n * d, ANY), *dout = floats(s, n * d, ANY), *x = floats(s, n * d, ANY);
    float *stats = floats(s, 2 * n, ANY), *gain = floats(s, d, ANY);
    k->layer_norm_backward(dx, dout, x, stats, gain, n, d);
    k->layer_norm_backward(dout, dout, x, stats, gain, n, d);
}
CASE(layer_norm_gradient)
{
    float *dgain = floats(s, d, ANY), *dbias = floats(s, d, ANY), *dout = floats(s, n * d, ANY);
    float *x = floats(s, n * d, ANY);
    k->layer_norm_gradient(dgain, dbias, dout, x, floats(s, 2 * n, ANY), n, d);
}
/* Numbers in +-2, and for every third a hundred times as large. */
static float *wide(struct slab *s, size_t n)
{
    float *x = floats(s, n, ANY);
    for (size_t i = 0; i < n; i += 3)
        x[i] *= 100.0F;
    return x;
}
CASE(silu_forward)
{
    float *x = wide(s, n * d);
    k->silu_forward(floats(s, n * d, ANY), x, n * d);
    k->silu_forward(x, x, n * d);
}
CASE(silu_backward)
{
    float *dx = floats(s, n * d, ANY), *dout = floats(s, n * d, ANY), *x = wide(s, n * d);
    k->silu_backward(dx, dout, x, n * d);
    k->silu_backward(dout, dout, x, n * d);
}
CASE(gelu_forward)
{
    float *x = wide(s, n * d);
    k->gelu_forward(floats(s, n * d, ANY), x, n * d);
    k->gelu_forward(x, x, n * d);
}
CASE(gelu_backward)
{
    float *dx = floats(s, n * d, ANY), *dout = floats(s, n * d, ANY), *x = wide(s, n * d);
    k->gelu_backward(dx, dout, x, n * d);
    k->gelu_backward(dout, dout, x, n * d);
}
CASE(dropout)
{
    static const float rates[] = {0.0F, 0.1F, 0.5F, 0.9999F, 0.99999F};
    float *x = floats(s, n * d, ANY);
    k->dropout(x, (uint64_t *)(void *)doubles(s, n, ANY), rates[(n + d) % 5], n, d);
}
CASE(dots)
{
    float *out = floats(s, n, ANY), *query = floats(s, d, ANY);
    const float *const *list = rows(s, n, d);
    k->dots(out, query, list, n, d);
    for (size_t i = 0; i < n; i++) {
        float one = k->dot(query, list[i], d);
        assert_true(memcmp(&one, &out[i], sizeof(one)) == 0 || (isnan(one) && isnan(out[i])));
    }
}
CASE(add_weighted)
{
    float *out = floats(s, d, ANY), *weights = floats(s, n, ANY);
    const float *const *list = rows(s, n, d);
    for (size_t i = 0; i < n; i += 3)
        weights[i] = 0.0F;
    k->add_weighted(out, list, weights, n, d);
}
CASE(exp64)
{
    double *out = doubles(s, n * d, ANY), *x = doubles(s, n * d, ANY);
    for (size_t i = 0; i < n * d; i++)
        x[i] *= i % 3 == 0 ? 400.0 : 3.0;
    k->exp64(out, x, n * d);
}
CASE(scores_max)
{
    result(s, k->scores_max(wide(s, n * d), n * d));
}
CASE(scores_exp_sum)
{
    float *scores = wide(s, n * d);
    result(s, k->scores_exp_sum(scores, k->scores_max(scores, n * d), 0.5F + (float)d / 16.0F, n * d));
}
CASE(scores_weights)
{
    float *scores = wide(s, n * d);
    k->scores_weights(scores, k->scores_max(scores, n * d), 0.5F + (float)d / 16.0F, 1.5F, -0.7F, n * d);
}

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
