/*
 * Layer norm, activations, dropout, the parts of a softmax and steps of Adam against plain formulas in double, and their
 * gradients against central differences of these formulas; only the scalar variant, which the others equal.
 */
#include "kernels/kernels.h"
#include "kernels/num.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 37, DIMS = 128 };

static float number_at(uint64_t seed, uint64_t i)
{
    return (float)((double)(num_chance(seed, 1, i) >> 11) * 0x1p-52 - 1.0);
}

static void fill(float *x, size_t n, uint64_t seed, float scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = scale * number_at(seed, i);
}

/* Whether `found` differs from `expected` by more than `share` of `scale`, the size of a typical value. */
static void check(double found, double expected, double share, double scale, const char *what, size_t at)
{
    if (!(fabs(found - expected) <= share * (fabs(expected) + scale)))
        fail_msg("%s %zu: %.9g, expected %.9g", what, at, found, expected);
}

/* Sum of c * layer norm of a row, in double. */
static double norm_value(const double *x, const float *gain, const float *bias, const float *c, size_t d)
{
    double mean = 0.0, variance = 0.0, sum = 0.0;
    for (size_t i = 0; i < d; i++)
        mean += x[i] / (double)d;
    for (size_t i = 0; i < d; i++)
        variance += (x[i] - mean) * (x[i] - mean) / (double)d;
    for (size_t i = 0; i < d; i++)
        sum += (double)c[i] * ((x[i] - mean) / sqrt(variance + 1e-8) * (double)gain[i] + (double)bias[i]);
    return sum;
}

static void check_norm_row(const float *dx, const float *x, const float *gain, const float *bias,
                           const float *c, size_t d)
{
    double row[DIMS], norm = 0.0;
    for (size_t i = 0; i < d; i++)
        row[i] = (double)x[i], norm += fabs((double)c[i] * (double)gain[i]);
    for (size_t i = 0; i < d; i++) {
        double side[2], old = row[i], h = 1e-5;
        for (int s = 0; s < 2; s++) {
            row[i] = s ? old + h : old - h;
            side[s] = norm_value(row, gain, bias, c, d);
        }
        row[i] = old;
        check((double)dx[i], (side[1] - side[0]) / (2.0 * h), 1e-4, norm / (double)d, "dx", i);
    }
}

static void test_layer_norm(void **state)
{
    (void)state;
    static float x[ROWS * DIMS], c[ROWS * DIMS], out[ROWS * DIMS], dx[ROWS * DIMS], stats[2 * ROWS];
    float gain[DIMS], bias[DIMS], dgain[DIMS], dbias[DIMS];
    static const float zeros[DIMS], ones[DIMS] = {1.0F};
    const struct kernels *k = kernels_variant(KERNELS_SCALAR);
    static const size_t dims[] = {2, 3, 7, 16, 17, 50, 64, 100, 128};
    for (size_t s = 0; s < sizeof(dims) / sizeof(*dims); s++) {
        size_t d = dims[s];
        fill(x, ROWS * d, 10 + d, 2.0F), fill(c, ROWS * d, 20 + d, 1.0F);
        fill(gain, d, 30 + d, 1.5F), fill(bias, d, 40 + d, 1.0F);
        k->layer_norm_forward(out, stats, x, gain, bias, 1e-8F, ROWS, d);
        k->layer_norm_backward(dx, c, x, stats, gain, ROWS, d);
        k->layer_norm_gradient(dgain, dbias, c, x, stats, ROWS, d);
        double expected_gain[DIMS] = {0.0}, expected_bias[DIMS] = {0.0};
        for (size_t r = 0; r < ROWS; r++) {
            double row[DIMS];
            for (size_t i = 0; i < d; i++)
                row[i] = (double)x[r * d + i];
            for (size_t i = 0; i < d; i++) {
                float one[DIMS] = {0.0F};
                one[i] = 1.0F;
                double normal = norm_value(row, one, zeros, one, d);
                check((double)out[r * d + i], norm_value(row, gain, bias, one, d), 1e-5, 1.0, "out", i);
                expected_gain[i] += (double)c[r * d + i] * normal, expected_bias[i] += (double)c[r * d + i];
            }
            check_norm_row(dx + r * d, x + r * d, gain, bias, c + r * d, d);
        }
        for (size_t i = 0; i < d; i++) {
            check((double)dgain[i], expected_gain[i], 1e-5, 1.0, "gain", i);
            check((double)dbias[i], expected_bias[i], 1e-5, 1.0, "bias", i);
        }
    }
    for (size_t i = 0; i < DIMS; i++)
        x[i] = 3.0F; /* a row of equal values has deviation 0: the bias remains, and nothing is infinite */
    fill(bias, DIMS, 5, 1.0F);
    k->layer_norm_forward(out, stats, x, ones, bias, 1e-8F, 1, DIMS);
    assert_memory_equal(out, bias, sizeof(bias));
    assert_true(fabs((double)stats[1] - 1e4) < 1e-2);
}

/* The gradients by gain and bias add the rows in order, and a row's values do not depend on the rows beside it. */
static void test_layer_norm_order(void **state)
{
    (void)state;
    enum { D = 33 };
    static float x[ROWS * D], turned[ROWS * D], c[ROWS * D], turned_c[ROWS * D], out[ROWS * D];
    float stats[2 * ROWS], gain[D], bias[D], sums[4][D];
    const struct kernels *k = kernels_variant(KERNELS_SCALAR);
    fill(x, ROWS * D, 1, 2.0F), fill(c, ROWS * D, 2, 1.0F), fill(gain, D, 3, 1.0F), fill(bias, D, 4, 1.0F);
    k->layer_norm_forward(out, stats, x, gain, bias, 1e-8F, ROWS, D);
    k->layer_norm_gradient(sums[0], sums[1], c, x, stats, ROWS, D);
    float by_rows[D] = {0.0F};
    for (size_t r = 0; r < ROWS; r++) { /* in order, one addition a row */
        for (size_t i = 0; i < D; i++)
            by_rows[i] += c[r * D + i];
    }
    assert_memory_equal(by_rows, sums[1], sizeof(by_rows));
    for (size_t r = 0; r < ROWS; r++) {
        memcpy(turned + r * D, x + (ROWS - 1 - r) * D, D * sizeof(*x));
        memcpy(turned_c + r * D, c + (ROWS - 1 - r) * D, D * sizeof(*c));
    }
    float one[D], one_stats[2]; /* a row's bits do not depend on the rows beside it */
    for (size_t r = 0; r < ROWS; r++) {
        k->layer_norm_forward(one, one_stats, x + r * D, gain, bias, 1e-8F, 1, D);
        assert_memory_equal(one, out + r * D, sizeof(one));
        assert_memory_equal(one_stats, stats + 2 * r, sizeof(one_stats));
    }
    k->layer_norm_forward(out, stats, turned, gain, bias, 1e-8F, ROWS, D);
    k->layer_norm_gradient(sums[2], sums[3], turned_c, turned, stats, ROWS, D);
    for (size_t i = 0; i < D; i++)
        check((double)sums[2][i], (double)sums[0][i], 1e-5, 1.0, "turned", i);
}

static double silu(double x)
{
    return x / (1.0 + exp(-x));
}

static double gelu(double x)
{
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static void test_activations(void **state)
{
    (void)state;
    const struct kernels *k = kernels_variant(KERNELS_SCALAR);
    for (int i = -4000; i <= 4000; i++) {
        float x = (float)i / 50.0F, out, dx = 1.0F;
        double at = (double)x, h = 1e-5;
        k->silu_forward(&out, &x, 1);
        k->silu_backward(&dx, &dx, &x, 1);
        check((double)out, silu(at), 1e-6, 1e-30, "silu", (size_t)(i + 4000));
        check((double)dx, (silu(at + h) - silu(at - h)) / (2.0 * h), 1e-4, 1e-7, "silu'", (size_t)(i + 4000));
        dx = 2.0F;
        k->gelu_forward(&out, &x, 1);
        k->gelu_backward(&dx, &dx, &x, 1);
        check((double)out, gelu(at), 1e-6, 1.0, "gelu", (size_t)(i + 4000));
        check((double)dx / 2.0, (gelu(at + h) - gelu(at - h)) / (2.0 * h), 1e-5, 0.1, "gelu'",
              (size_t)(i + 4000));
    }
    float extremes[4] = {-3e38F, 3e38F, -1e30F, NAN}, out[4];
    k->silu_forward(out, extremes, 4);
    assert_true(out[0] == 0.0F && out[1] == 3e38F && out[2] == 0.0F && isnan(out[3]));
    k->gelu_forward(out, extremes, 4);
    assert_true(out[0] == 0.0F && out[1] == 3e38F && out[2] == 0.0F && isnan(out[3]));
}

/* Elements at any distance in a row are dropped independently of each other. */
static void check_lags(const float *x, size_t n, size_t d, double rate)
{
    for (size_t lag = 1; lag < d; lag++) {
        size_t pairs = 0;
        for (size_t r = 0; r < n; r++) {
            for (size_t i = lag; i < d; i++)
                pairs += x[r * d + i] == 0.0F && x[r * d + i - lag] == 0.0F;
        }
        double all = (double)(n * (d - lag)), expected = all * rate * rate;
        assert_true(fabs((double)pairs - expected) <= 6.0 * sqrt(expected) + 1.0);
    }
}

/* The share of dropped elements, the factor of the others, and that both are a function of the row's key. */
static void test_dropout(void **state)
{
    (void)state;
    enum { N = 400, D = 77 };
    static float x[N * D], again[N * D];
    uint64_t keys[N];
    const struct kernels *k = kernels_variant(KERNELS_SCALAR);
    for (uint64_t r = 0; r < N; r++)
        keys[r] = num_chance(7, r, 3);
    static const float rates[] = {0.0F, 0.1F, 0.2F, 0.5F, 0.9F};
    for (size_t s = 0; s < sizeof(rates) / sizeof(*rates); s++) {
        double rate = rint((double)rates[s] * 65536.0) / 65536.0;
        size_t dropped = 0;
        for (size_t i = 0; i < N * D; i++)
            x[i] = again[i] = 3.0F;
        k->dropout(x, keys, rates[s], N, D);
        for (size_t i = 0; i < N * D; i++) {
            bool is_dropped = x[i] == 0.0F;
            assert_true(is_dropped || fabs((double)x[i] - 3.0 / (1.0 - rate)) < 1e-5);
            dropped += is_dropped;
        }
        double n = (double)N * D, deviation = sqrt(n * rate * (1.0 - rate));
        assert_true(fabs((double)dropped - n * rate) <= 4.0 * deviation);
        check_lags(x, N, D, rate);
        for (size_t r = 0; r < N; r++) /* each row alone, in another order: the same mask */
            k->dropout(again + (N - 1 - r) * D, keys + N - 1 - r, rates[s], 1, D);
        assert_memory_equal(x, again, sizeof(x));
        keys[0]++;
        for (size_t i = 0; i < D; i++)
            again[i] = 3.0F;
        k->dropout(again, keys, rates[s], 1, D);
        assert_true(rates[s] == 0.0F || memcmp(x, again, D * sizeof(*x)) != 0);
        keys[0]--;
    }
}

static void test_softmax_parts(void **state)
{
    (void)state;
    enum { N = 203, D = 19 };
    static float rows[N][D], scores[N], weights[N];
    float query[D], out[D];
    const float *list[N];
    const struct kernels *k = kernels_variant(KERNELS_SCALAR);
    fill(rows[0], N * D, 3, 1.0F), fill(query, D, 4, 20.0F), fill(out, D, 5, 1.0F);
    for (size_t i = 0; i < N; i++)
        list[i] = rows[i];
    k->dots(scores, query, list, N, D);
    double top = -INFINITY, sum = 0.0, expected[D];
    for (size_t i = 0; i < N; i++) {
        double score = 0.0;
        for (size_t j = 0; j < D; j++)
            score += (double)query[j] * (double)rows[i][j];
        check((double)scores[i], score, 1e-6, 20.0, "dots", i);
        top = fmax(top, (double)scores[i]);
    }
    assert_true((double)k->scores_max(scores, N) == top && k->scores_max(scores, 0) == -INFINITY);
    for (size_t i = 0; i < N; i++)
        sum += exp(((double)scores[i] - top) * 0.7);
    check((double)k->scores_exp_sum(scores, (float)top, 0.7F, N), sum, 1e-6, 0.0, "sum", 0);
    for (size_t i = 0; i < N; i++)
        weights[i] = scores[i] - (float)top; /* the largest is 0, as lanes beyond the last score are */
    check((double)k->scores_exp_sum(weights, 0.0F, 0.7F, N), sum, 1e-6, 0.0, "shifted sum", 0);
    memcpy(weights, scores, sizeof(weights));
    weights[5] = -INFINITY;
    k->scores_weights(weights, (float)top, 0.7F, (float)log(sum), -2.0F, N);
    for (size_t i = 0; i < N; i++) {
        double power = i == 5 ? 0.0 : exp(((double)scores[i] - top) * 0.7) / sum;
        check((double)weights[i], -2.0 * power, 3e-5, 1e-30, "weights", i);
    }
    list[5] = NULL; /* its weight is 0 */
    for (size_t j = 0; j < D; j++)
        expected[j] = (double)out[j];
    for (size_t i = 0; i < N; i++) {
        for (size_t j = 0; j < D && i != 5; j++)
            expected[j] += (double)weights[i] * (double)rows[i][j];
    }
    k->add_weighted(out, list, weights, N, D);
    for (size_t j = 0; j < D; j++)
        check((double)out[j], expected[j], 1e-6, 1.0, "add", j);
    for (double x = -700.0; x < 700.0; x += 0.37) {
        double power;
        k->exp64(&power, &x, 1);
        check(power, exp(x), 1e-15, 0.0, "exp64", 0);
    }
}

/* 500 steps of Adam against Kingma and Ba 2015 (arXiv:1412.6980), algorithm 1, with its bias correction. */
static void test_adam(void **state)
{
    (void)state;
    const struct kernels *k = kernels_variant(KERNELS_SCALAR);
    const double beta1 = (double)0.9F, beta2 = (double)0.999F, rate = (double)0.01F;
    float row[3] = {0.7F, 0.0F, 0.0F}; /* weight, m, v */
    double w = (double)0.7F, m = 0.0, v = 0.0, power1 = 1.0, power2 = 1.0;
    for (uint64_t t = 1; t <= 500; t++) {
        float g = 2.0F * number_at(8, t) + 0.3F;
        power1 *= beta1, power2 *= beta2;
        struct opt_params p = {
            .rate = 0.01F, .epsilon = 1e-8F, .beta1 = 0.9F, .beta2 = 0.999F, .step_max = 1.0F};
        p.correction1 = (float)(1.0 / (1.0 - power1)), p.correction2 = (float)(1.0 / (1.0 - power2));
        struct opt_row r = {.w = row, .state = row + 1, .g = &g, .scale = 1.0F};
        k->opt_adam(&r, 1, 1, &p);
        m = beta1 * m + (1.0 - beta1) * (double)g;
        v = beta2 * v + (1.0 - beta2) * (double)g * (double)g;
        w -= rate * (m / (1.0 - power1)) / (sqrt(v / (1.0 - power2)) + 1e-8);
        check((double)row[0], w, 1e-5, 1.0, "weight after step", (size_t)t);
    }
    assert_true(fabs(w - 0.7) > 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layer_norm),    cmocka_unit_test(test_layer_norm_order),
        cmocka_unit_test(test_activations),   cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_softmax_parts), cmocka_unit_test(test_adam),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
