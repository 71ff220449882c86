/* The results of the kernels against plain formulas and libm; only the scalar variant, which
 * the others equal. */
#include "kernels/kernels.h"
#include "kernels/num.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static double relative(double a, double b)
{
    return fabs(a - b) / fmax(fabs(b), 1e-300);
}

static void test_num(void **state)
{
    (void)state;
    for (double x = -700.0; x < 700.0; x += 0.0371)
        assert_true(relative(num_exp(x), exp(x)) < 4e-16);
    for (double t = 0.0; t <= 1.0; t += 0.00037)
        assert_true(relative(num_log1p_unit(t), log1p(t)) < 1e-15);
    assert_true(num_exp(-1e9) == 0.0 && isinf(num_exp(1e9)) && isnan(num_exp(NAN)));
    for (double x = -30.0; x <= 30.0; x += 0.07) {
        assert_true(relative(num_sigmoid(x), 1.0 / (1.0 + exp(-x))) < 1e-14);
        assert_true(fabs(num_logloss(x, 1.0) + log(1.0 / (1.0 + exp(-x)))) < 1e-12);
        assert_true(fabs(num_logloss(x, 0.0) - log1p(exp(x))) < 1e-12);
    }
    assert_true(num_logloss(-800.0, 1.0) == 800.0);
    const struct kernels *k = kernels_variant(KERNELS_SCALAR);
    for (double x = -30.0; x < 30.0; x += 0.0173) { /* sigmoid_one, and logloss64 and sigmoid64 of a column */
        double column[3] = {1.0, x, -1.0}, losses[3];
        float labels[3] = {0.0F, 1.0F, 0.0F};
        k->logloss64(losses, column, labels, 3);
        k->sigmoid64(column, column, 3);
        assert_true(column[1] == k->sigmoid_one(x));
        assert_true(relative(column[1], 1.0 / (1.0 + exp(-x))) < 1e-14);
        assert_true(fabs(losses[1] + log(1.0 / (1.0 + exp(-x)))) < 1e-12);
    }
    assert_true(k->sigmoid_one(-1e9) < 1e-300 && k->sigmoid_one(1e9) == 1.0 && isnan(k->sigmoid_one(NAN)));
}

static void test_ffm(void **state)
{
    (void)state;
    enum { F = 5, D = 8, LENGTH = 8 * D };
    static float rows[F][LENGTH], zero[LENGTH], partners[F * LENGTH], products[F * 8], pairs[F * LENGTH];
    const float *list[8];
    srand(3);
    for (int f = 0; f < 8; f++)
        list[f] = f < F ? rows[f] : zero;
    for (int f = 0; f < F; f++) {
        for (int i = 0; i < LENGTH; i++)
            rows[f][i] = (float)(rand() % 1000) / 500.0F - 1.0F;
    }
    const struct kernels *k = kernels_variant(KERNELS_SCALAR);
    double expected = 0.0;
    for (int f = 0; f < F; f++) {
        for (int g = f + 1; g < F; g++) {
            for (int i = 0; i < D; i++) {
                int slice = i / 4 * 32, lane = i % 4;
                expected += (double)rows[f][slice + g * 4 + lane] * (double)rows[g][slice + f * 4 + lane];
            }
        }
    }
    float value = k->ffm_forward(partners, list, zero, F, D);
    assert_true(fabs((double)value - expected) < 1e-4);
    k->ffm_pairs_forward(products, pairs, list, zero, F, D);
    double sum = 0.0;
    for (int i = 0; i < F * 8; i++)
        sum += (double)products[i] / 2.0;
    assert_true(fabs(sum - expected) < 1e-4);
    assert_memory_equal(partners, pairs, sizeof(pairs));
    for (int i = 0; i < 40; i++) { /* the gradient by one weight, by differences: the function is bilinear */
        int f = rand() % F, at = rand() % LENGTH;
        float old = rows[f][at];
        rows[f][at] = old + 0.5F;
        double gradient = ((double)k->ffm_forward(pairs, list, zero, F, D) - (double)value) / 0.5;
        rows[f][at] = old;
        assert_true(fabs(gradient - (double)partners[f * LENGTH + at]) < 1e-4);
    }
}

static void test_fm(void **state)
{
    (void)state;
    enum { N = 6, D = 12 };
    float rows[N][D], sum[D], grads[N * D], other[D];
    const float *list[N];
    srand(4);
    for (int r = 0; r < N; r++) {
        list[r] = rows[r];
        for (int i = 0; i < D; i++)
            rows[r][i] = (float)(rand() % 1000) / 500.0F - 1.0F;
    }
    const struct kernels *k = kernels_variant(KERNELS_SCALAR);
    double expected = 0.0;
    for (int r = 0; r < N; r++) {
        for (int q = r + 1; q < N; q++) {
            for (int i = 0; i < D; i++)
                expected += (double)rows[r][i] * (double)rows[q][i];
        }
    }
    float value = k->fm_forward(sum, list, N, D);
    assert_true(fabs((double)value - expected) < 1e-4);
    k->fm_backward(grads, sum, list, N, D);
    for (int i = 0; i < N * D; i++) {
        float *w = &rows[i / D][i % D], old = *w;
        *w = old + 0.5F;
        double gradient = ((double)k->fm_forward(other, list, N, D) - (double)value) / 0.5;
        *w = old;
        assert_true(fabs(gradient - (double)grads[i]) < 1e-3);
    }
}

/* pool_mean: rows are added one after the other, dim by dim. */
static void test_sums(void **state)
{
    (void)state;
    enum { N = 5, D = 230 };
    static float rows[N][D], mean[D];
    const float *list[N];
    for (int i = 0; i < N * D; i++)
        rows[i / D][i % D] = (float)(num_mix((uint64_t)i) % 1000) / 7.0F - 70.0F;
    const struct kernels *k = kernels_variant(KERNELS_SCALAR);
    for (size_t d = 0; d <= D; d += d % 2 ? 23 : 1) {
        for (int r = 0; r < N; r++)
            list[r] = rows[0] + (size_t)r * d;
        k->pool_mean(mean, list, N, d);
        for (size_t i = 0; i < d; i++) {
            float sum = 0.0F;
            for (int r = 0; r < N; r++)
                sum += list[r][i];
            assert_true(mean[i] == sum / (float)N);
        }
    }
}

/* Central differences of sum(out * weight) by inputs, weights and biases of a layer. */
static void test_dense(void **state)
{
    (void)state;
    enum { O = 11, I = 21 };
    static float w[O * I], bias[O], in[I * 16], out[O * 16], c[O * 16], din[I * 16], dw[O * I], db[O],
        rows[16 * I], back[I * 16];
    const struct kernels *k = kernels_variant(KERNELS_SCALAR);
    srand(5);
    for (int i = 0; i < O * I; i++)
        w[i] = (float)(rand() % 1000) / 500.0F - 1.0F;
    for (int i = 0; i < I * 16; i++)
        in[i] = (float)(rand() % 1000) / 500.0F - 1.0F;
    for (int i = 0; i < O * 16; i++)
        c[i] = (float)(rand() % 1000) / 500.0F - 1.0F;
    k->dense_backward(din, c, w, O, I);
    k->dense_lanes_to_rows(rows, in, I);
    k->dense_rows_to_lanes(back, rows, I);
    assert_memory_equal(back, in, sizeof(in));
    k->dense_gradient(dw, db, c, rows, O, I);
    float *const places[3] = {in, w, bias}, *const gradients[3] = {din, dw, db};
    const int lengths[3] = {I * 16, O * I, O};
    for (int kind = 0; kind < 3; kind++) {
        for (int t = 0; t < 60; t++) {
            int at = rand() % lengths[kind];
            double value[2];
            for (int side = 0; side < 2; side++) {
                float old = places[kind][at];
                places[kind][at] = old + (side ? 0.5F : -0.5F);
                k->dense_forward(out, in, w, bias, O, I);
                places[kind][at] = old;
                value[side] = 0.0;
                for (int i = 0; i < O * 16; i++)
                    value[side] += (double)out[i] * (double)c[i];
            }
            assert_true(fabs(value[1] - value[0] - (double)gradients[kind][at]) < 1e-3);
        }
    }
}

/* A row with four weights of 0.7, first states of 0.4, second states of 0.9. */
static void fill_row(float row[12])
{
    for (int i = 0; i < 12; i++)
        row[i] = i < 4 ? 0.7F : i < 8 ? 0.4F : 0.9F;
}

/* Each optimizer's step on one weight, by the formula of its paper in double. */
static void test_optimizers(void **state)
{
    (void)state;
    const struct kernels *k = kernels_variant(KERNELS_SCALAR);
    struct opt_params p = {.rate = 0.1F,
                           .epsilon = 1.0F,
                           .decay = 1.0F,
                           .beta1 = 0.9F,
                           .beta2 = 0.99F,
                           .correction1 = 2.0F,
                           .correction2 = 3.0F,
                           .step_max = 100.0F,
                           .l2 = 0.5F};
    double w = 0.7, g = 0.3 * 1.1, l2g = g + 0.5 * w, s0 = 0.4, s1 = 0.9;
    double m = 0.9 * s0 + 0.1 * l2g, v = 0.99 * s1 + 0.01 * l2g * l2g;
    double z = s0 + g - (sqrt(s1 + g * g) - sqrt(s1)) / 0.1 * w;
    double expected[OPT_KINDS] = {
        [OPT_SGD] = w - 0.1 * l2g,
        [OPT_MOMENTUM] = w - 0.1 * (0.9 * s0 + l2g),
        [OPT_ADAGRAD] = w - 0.1 * l2g / sqrt(s0 + l2g * l2g),
        [OPT_ADAGRAD_ROW] = w - 0.1 * l2g / sqrt(s0 + l2g * l2g),
        [OPT_ADAGRAD_BLOCK] = w - 0.1 * l2g / sqrt(s0 + l2g * l2g),
        [OPT_ADAM] = w - 0.1 * m * 2.0 / (sqrt(v * 3.0) + 1.0),
        [OPT_FTRL] = -z / ((1.0 + sqrt(s1 + g * g)) / 0.1 + 0.5),
        [OPT_NEWTON] = w - 0.1 * l2g / (s0 + 0.25 * 1.1 * 1.1),
    };
    for (int kind = 0; kind < OPT_KINDS; kind++) {
        float row[12], grad[4] = {1.1F, 1.1F, 1.1F, 1.1F};
        struct opt_row r = {.w = row, .state = row + 4, .g = grad, .scale = 0.3F, .curvature = 0.25F};
        fill_row(row);
        opt_pick(k, (enum opt_kind)kind)(&r, 1, 4, &p);
        assert_true(fabs((double)row[0] - expected[kind]) < 2e-6);
        p.step_max = 0.001F;
        fill_row(row);
        opt_pick(k, (enum opt_kind)kind)(&r, 1, 4, &p);
        if (kind != OPT_FTRL)
            assert_true(fabs((double)row[0] - 0.7) < 0.00101);
        p.step_max = 100.0F;
    }
    p.l1 = 20.0F; /* shrinks all weights to zero */
    for (int kind = 0; kind < OPT_KINDS; kind++) {
        float row[12], grad[4] = {1.1F, 1.1F, 1.1F, 1.1F};
        struct opt_row r = {.w = row, .state = row + 4, .g = grad, .scale = 0.3F, .curvature = 0.25F};
        fill_row(row);
        opt_pick(k, (enum opt_kind)kind)(&r, 1, 4, &p);
        assert_true(row[0] == 0.0F);
    }
}

/* Rows of one call share roots, within a row and from row to row: the result must equal that of blocks of
 * four, one by one. */
static void check_adagrad_blocks(const struct opt_params *p, const float scales[3])
{
    enum { D = 256, ROWS = 3 };
    static float w[ROWS][D], sums[ROWS][D / 4], g[ROWS][D], before[ROWS][D], sums_before[ROWS][D / 4];
    const struct kernels *k = kernels_variant(KERNELS_SCALAR);
    for (size_t d = 4; d <= D; d += 4) {
        struct opt_row rows[ROWS];
        for (size_t r = 0; r < ROWS; r++) {
            for (size_t i = 0; i < d; i++) {
                w[r][i] = (float)((i + r) % 17) / 8.0F - 1.0F;
                g[r][i] = (float)((i * i + r) % 29) / 4.0F - 3.0F;
                sums[r][i / 4] = 0.5F + (float)((i / 4 + r) % 5);
            }
            rows[r] = (struct opt_row){.w = w[r], .state = sums[r], .g = g[r], .scale = scales[r]};
        }
        memcpy(before, w, sizeof(before));
        memcpy(sums_before, sums, sizeof(sums_before));
        k->opt_adagrad_block(rows, ROWS, d, p);
        for (size_t r = 0; r < ROWS; r++) {
            for (size_t b = 0; b < d / 4; b++) {
                float *few = before[r] + b * 4, *sum = &sums_before[r][b];
                struct opt_row block = {.w = few, .state = sum, .g = g[r] + b * 4, .scale = scales[r]};
                k->opt_adagrad_block(&block, 1, 4, p);
                assert_memory_equal(few, w[r] + b * 4, 4 * sizeof(*few));
                assert_memory_equal(sum, &sums[r][b], sizeof(*sum));
            }
        }
    }
}

static void test_adagrad_blocks(void **state)
{
    (void)state;
    struct opt_params p = {.rate = 0.1F, .l1 = 0.001F, .l2 = 0.01F, .decay = 0.9F, .step_max = 0.05F};
    const float scales[3] = {0.3F, -0.2F, 0.1F}, mixed[3] = {0.3F, 2e9F, 0.1F};
    check_adagrad_blocks(&p, scales);
    p.l1 = p.l2 = 0.0F;
    check_adagrad_blocks(&p, scales); /* a limit that takes effect */
    p.step_max = 1.0F;
    check_adagrad_blocks(&p, scales); /* the path without limits */
    check_adagrad_blocks(&p, mixed);  /* one row with too large a scale for that path between two others */
}

/* Without l1 and l2, and with step_max beyond two rates, opt_adagrad_block takes a faster path: equal up to
 * rounding, and no step exceeds two rates, where this path begins. A smaller step_max must be kept. */
static void test_adagrad_block_free(void **state)
{
    (void)state;
    enum { D = 96 };
    const struct kernels *k = kernels_variant(KERNELS_SCALAR);
    for (int exponent = -30; exponent <= 30; exponent++) {
        float w[2][D], sums[2][D / 4], g[D], scale = ldexpf(0.7F, exponent / 2);
        for (size_t i = 0; i < D; i++) {
            w[0][i] = w[1][i] = 0.0F;
            sums[0][i / 4] = sums[1][i / 4] = 1e-6F;
            g[i] = i % 4 == 1 ? ldexpf((float)(i % 7) - 3.0F, exponent) : 1e-3F;
        }
        for (int limited = 0; limited < 2; limited++) {
            struct opt_params p = {.rate = 0.1F, .decay = 1.0F, .step_max = limited ? 0.2F : 0.21F};
            struct opt_row row = {.w = w[limited], .state = sums[limited], .g = g, .scale = scale};
            k->opt_adagrad_block(&row, 1, D, &p);
        }
        for (size_t i = 0; i < D; i++) {
            assert_true(fabsf(w[0][i] - w[1][i]) <= 2e-6F * fabsf(w[1][i]) + 1e-12F);
            assert_true(fabsf(sums[0][i / 4] - sums[1][i / 4]) <= 1e-6F * sums[1][i / 4]);
            assert_true(fabsf(w[0][i]) <= 0.2F * 1.000002F);
        }
        struct opt_params near = {.rate = 0.1F, .decay = 1.0F, .step_max = 0.15F};
        struct opt_row row = {.w = w[0], .state = sums[0], .g = g, .scale = scale};
        memset(w[0], 0, sizeof(w[0]));
        for (size_t i = 0; i < D / 4; i++)
            sums[0][i] = 1e-6F;
        k->opt_adagrad_block(&row, 1, D, &near);
        for (size_t i = 0; i < D; i++)
            assert_true(fabsf(w[0][i]) <= 0.15F);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_num),
        cmocka_unit_test(test_adagrad_blocks),
        cmocka_unit_test(test_adagrad_block_free),
        cmocka_unit_test(test_ffm),
        cmocka_unit_test(test_fm),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_optimizers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
