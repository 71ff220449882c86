/* round, widen and quantize. The scalar variant's results are checked by arithmetic in double on the format's
 * grid: a result is a neighbour, the nearer one where it must be, and the upper one as often as it must be;
 * widening is exact. */
#include "trial.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const format_names[ROW_FORMATS] = {"fp32", "bf16", "fp16", "int8"};

/* Exact numbers, ties, the ends of both formats' ranges, denormals of each format. */
static const float edges[] = {0.0F,
                              -0.0F,
                              1.0F,
                              -1.5F,
                              0x1.01p0F,
                              0x1.03p0F,
                              0x1.002p0F,
                              0x1.006p0F,
                              65504.0F,
                              65519.0F,
                              65520.0F,
                              -65536.0F,
                              1e5F,
                              0x1.fep127F,
                              0x1.ffp127F,
                              -0x1.fffffep127F,
                              0x1p-14F,
                              0x1.ffep-15F,
                              0x1p-24F,
                              0x1.8p-24F,
                              0x1p-25F,
                              0x1.8p-25F,
                              0x1p-26F,
                              0x1.000002p-25F,
                              0x1.4p-17F,
                              0x1p-126F,
                              0x1p-133F,
                              0x1p-149F,
                              -0x1.23456p-20F,
                              0x1p-41F,
                              INFINITY,
                              -INFINITY,
                              NAN,
                              -NAN};
enum { EDGES = sizeof(edges) / sizeof(*edges) };

/* The distance between neighbouring numbers of the format around x. largest_of: its largest finite number. */
static double step_at(double x, enum row_format format)
{
    int exponent = x != 0.0 ? ilogb(x) : -200;
    int least = format == ROW_BF16 ? -126 : -14, digits = format == ROW_BF16 ? 7 : 10;
    return ldexp(1.0, (exponent > least ? exponent : least) - digits);
}

static double largest_of(enum row_format format)
{
    return format == ROW_BF16 ? 0x1.fep127 : 65504.0;
}

static double value_of(uint16_t bits, enum row_format format)
{
    int digits = format == ROW_BF16 ? 7 : 10, bias = format == ROW_BF16 ? 127 : 15;
    int exponent = (bits & 0x7fff) >> digits, share = bits & ((1 << digits) - 1);
    double size = exponent == 0 ? ldexp(share, 1 - bias - digits)
                                : ldexp(share + (1 << digits), exponent - bias - digits);
    if (exponent == 2 * bias + 1)
        size = share ? (double)NAN : (double)INFINITY;
    return bits & 0x8000 ? -size : size;
}

static void check_rounded(struct trial *t, float x, uint16_t out, enum row_format format, bool is_nearest)
{
    double value = value_of(out, format), step = step_at((double)x, format), most = largest_of(format);
    if (isnan(x)) {
        TRIAL_CHECK(t, out == (format == ROW_BF16 ? 0x7fc0 : 0x7e00));
        return;
    }
    TRIAL_CHECK(t, (out >> 15 != 0) == (signbit(x) != 0));
    if (!isfinite(x) || fabs((double)x) >= most) {
        TRIAL_CHECK(t, fabs(value) == (isfinite(x) ? most : (double)INFINITY));
        return;
    }
    double down = floor(fabs((double)x) / step) * step, share = (fabs((double)x) - down) / step;
    TRIAL_CHECK(t, fabs(value) == down || (share > 0.0 && fabs(value) == down + step));
    bool is_odd = fmod(down / step, 2.0) != 0.0;
    if (is_nearest)
        TRIAL_CHECK(t, (fabs(value) > down) == (share > 0.5 || (share == 0.5 && is_odd)));
}

struct round_shape {
    uint32_t n;
    enum row_format format;
    uint64_t seed;
    float constant; /* the value of all inputs; NAN: inputs differ */
};

static void build_round(struct trial *t, const void *arg)
{
    const struct round_shape *s = arg;
    float *x = trial_input(t, "x", s->n * sizeof(*x), TRIAL_MATRIX);
    uint16_t *out = trial_output(t, "out", s->n * sizeof(*out), TRIAL_MATRIX, same_bits);
    trial_floats(t, x, s->n, FILL_SPECIAL);
    for (uint32_t i = 0; i < s->n; i++) {
        if (!isnan(s->constant))
            x[i] = s->constant;
        else if (i % 3 == 1)
            x[i] = edges[i / 3 % EDGES];
        else if (i % 3 == 2)
            x[i] = ldexpf(x[i], (int)trial_below(t, 60) - 40);
    }
    struct batch_round a = {PLACE(t, x), s->n, s->format, s->seed, trial_random(t), PLACE(t, out)};
    TRIAL_CALL(t, round, &a);
    if (!trial_is_scalar(t))
        return;
    double sum = 0.0, step = step_at((double)s->constant, s->format);
    for (uint32_t i = 0; i < s->n; i++) {
        check_rounded(t, x[i], out[i], s->format, s->seed == 0);
        sum += value_of(out[i], s->format);
    }
    /* The mean of n independent roundings is off by more than five of its standard deviations once
     * in a million. */
    if (!isnan(s->constant) && s->seed != 0)
        TRIAL_CHECK(t, fabs(sum / s->n - (double)s->constant) <= 5.0 * 0.5 * step / sqrt(s->n) + 0x1p-40);
}

void suite_round(struct suite *suite)
{
    static const float constants[] = {1.001F,          -0.3333F,   1.99999F,    3e-39F,
                                      65503.0F,        0x1.8p-25F, -0x1.1p-24F, 0x1.23456p-18F,
                                      0x1.7ffffep-14F, 1e-30F,     0x1.fdcp127F};
    for (enum row_format format = ROW_BF16; format <= ROW_FP16; format++) {
        for (uint64_t seed = 0; seed < 3; seed++) {
            for (const uint32_t *n = suite_sizes(suite); *n != SIZES_END; n++) {
                struct round_shape s = {*n, format, seed, NAN};
                suite_try(suite, build_round, &s, "%s, n %u, seed %u", format_names[format], *n,
                          (unsigned)seed);
            }
        }
        for (uint32_t n = 4; n < 24; n++) { /* n around a GPU thread's eight numbers and a vector's sixteen */
            struct round_shape s = {n, format, n % 3, NAN};
            suite_try(suite, build_round, &s, "%s, n %u, seed %u", format_names[format], n, n % 3);
        }
        for (uint32_t i = 0; i < sizeof(constants) / sizeof(*constants); i++) {
            if (fabs((double)constants[i]) > largest_of(format))
                continue;
            struct round_shape s = {5000, format, 100 + i, constants[i]};
            suite_try(suite, build_round, &s, "%s, mean of %g", format_names[format], (double)constants[i]);
        }
    }
    struct round_shape huge = {suite_huge(suite), ROW_BF16, 5, NAN};
    suite_try(suite, build_round, &huge, "bf16, n %u", huge.n);
}

struct widen_shape {
    uint32_t n;
    enum row_format format;
};

static void build_widen(struct trial *t, const void *arg)
{
    const struct widen_shape *s = arg;
    uint16_t *x = trial_input(t, "x", s->n * sizeof(*x), TRIAL_MATRIX);
    float *out = trial_output(t, "out", s->n * sizeof(*out), TRIAL_MATRIX, same_floats);
    for (uint32_t i = 0; i < s->n; i++)
        x[i] = s->n >= 65536 ? (uint16_t)i : (uint16_t)trial_random(t);
    struct batch_widen a = {PLACE(t, x), s->n, s->format, PLACE(t, out)};
    TRIAL_CALL(t, widen, &a);
    for (uint32_t i = 0; i < s->n && trial_is_scalar(t); i++) {
        double want = value_of(x[i], s->format), got = (double)out[i];
        TRIAL_CHECK(t, isnan(want) ? isnan(got) : memcmp(&want, &got, sizeof(got)) == 0);
    }
}

void suite_widen(struct suite *suite)
{
    for (enum row_format format = ROW_BF16; format <= ROW_FP16; format++) {
        for (const uint32_t *n = suite_sizes(suite); *n != SIZES_END; n++) {
            struct widen_shape s = {*n, format};
            suite_try(suite, build_widen, &s, "%s, n %u", format_names[format], *n);
        }
        for (uint32_t n = 4; n < 24; n++) {
            struct widen_shape s = {n, format};
            suite_try(suite, build_widen, &s, "%s, n %u", format_names[format], n);
        }
        struct widen_shape all = {65536, format};
        suite_try(suite, build_widen, &all, "%s, all that there are", format_names[format]);
    }
    struct widen_shape huge = {suite_huge(suite), ROW_FP16};
    suite_try(suite, build_widen, &huge, "fp16, n %u", huge.n);
}

struct quantize_shape {
    uint32_t rows, d;
    enum fill fill;
};

static void check_quantized(struct trial *t, const float *x, uint32_t d, const unsigned char *row)
{
    float scale, largest = 0.0F;
    bool is_finite = true;
    memcpy(&scale, row, sizeof(scale));
    for (uint32_t i = 0; i < d; i++) {
        is_finite = is_finite && isfinite(x[i]);
        largest = fmaxf(largest, fabsf(x[i]));
    }
    if (!is_finite) {
        TRIAL_CHECK(t, isnan(scale));
        return;
    }
    TRIAL_CHECK(t, scale == (largest / 127.0F < 0x1p-126F ? 0.0F : largest / 127.0F));
    for (uint32_t i = 0; i < d; i++) {
        signed char byte = (signed char)row[sizeof(scale) + i];
        double off = fabs((double)x[i] - (double)scale * byte);
        TRIAL_CHECK(t, off <= (double)scale * 0.50001 || (scale == 0.0F && byte == 0 && off <= 0x1p-119));
    }
}

static void build_quantize(struct trial *t, const void *arg)
{
    const struct quantize_shape *s = arg;
    size_t n = (size_t)s->rows * s->d, stride = row_bytes(ROW_INT8, s->d, 0);
    float *x = trial_input(t, "x", n * sizeof(*x), TRIAL_MATRIX);
    unsigned char *out = trial_output(t, "out", s->rows * stride, TRIAL_MATRIX, same_bits);
    trial_floats(t, x, n, FILL_PLAIN);
    for (uint32_t r = 0; r < s->rows && s->fill == FILL_SPECIAL; r++) {
        float *row = x + (size_t)r * s->d;
        int by = r % 4 == 1 ? 125 : r % 4 == 2 ? -128 : -(int)trial_below(t, 149);
        for (uint32_t i = 0; i < s->d; i++)
            row[i] = r % 7 == 6 ? 0.0F : ldexpf(row[i], by);
        if (r % 4 == 3)
            trial_floats(t, row, s->d, FILL_SPECIAL);
    }
    struct batch_quantize a = {PLACE(t, x), s->rows, s->d, PLACE(t, out)};
    TRIAL_CALL(t, quantize, &a);
    for (uint32_t r = 0; r < s->rows && trial_is_scalar(t); r++)
        check_quantized(t, x + (size_t)r * s->d, s->d, out + r * stride);
}

void suite_quantize(struct suite *suite)
{
    static const uint32_t dims[] = {4, 8, 12, 16, 24, 64, 100, 128, 132, 512};
    for (uint32_t i = 0; i < 10; i++) {
        struct quantize_shape s = {29, dims[i], i % 2 ? FILL_SPECIAL : FILL_PLAIN};
        suite_try(suite, build_quantize, &s, "rows %u, d %u", s.rows, s.d);
    }
    for (const uint32_t *rows = suite_sizes(suite); *rows != SIZES_END; rows++) {
        struct quantize_shape s = {*rows, *rows > 4000 ? 8 : dims[*rows % 10], FILL_SPECIAL};
        suite_try(suite, build_quantize, &s, "rows %u, d %u, special", s.rows, s.d);
    }
    struct quantize_shape huge = {suite_huge(suite), 4, FILL_SPECIAL};
    suite_try(suite, build_quantize, &huge, "rows %u, d 4, special", huge.rows);
}
