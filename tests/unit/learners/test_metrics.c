/* Progressive validation against plain formulas; results must not depend on how events are cut into calls. */
#include "learners/learner/metrics.h"

#include "kernels/kernels.h"

#include "core/base.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { N = 5000 };
static double logits[N];
static float labels[N];
static struct metrics metrics, other;

static int setup(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < N; i++) {
        logits[i] = (double)(num_mix(i) % 8000) / 1000.0 - 5.0;
        labels[i] = (double)(num_mix(i + 77777) % 1000) < 1000.0 * num_sigmoid(logits[i] * 0.7 - 0.3);
    }
    return 0;
}

static void test_logistic(void **state)
{
    (void)state;
    metrics_init(&metrics, LOSS_LOGISTIC, 1600);
    metrics_add(&metrics, kernels_variant(KERNELS_SCALAR), logits, labels, N);
    double loss = 0.0, p = 0.0, y = 0.0, squares = 0.0, above = 0.0, pairs = 0.0;
    for (int i = 0; i < N; i++) {
        double q = 1.0 / (1.0 + exp(-logits[i]));
        loss -= labels[i] > 0.5F ? log(q) : log1p(-q);
        p += q;
        y += (double)labels[i];
        squares += (q - (double)labels[i]) * (q - (double)labels[i]);
        for (int j = 0; j < N && labels[i] > 0.5F; j++) {
            if (labels[j] < 0.5F)
                pairs += 1.0, above += floor(logits[i] * 64) > floor(logits[j] * 64)    ? 1.0
                                       : floor(logits[i] * 64) == floor(logits[j] * 64) ? 0.5
                                                                                        : 0.0;
        }
    }
    struct metrics_values v = metrics_values(&metrics, false);
    double mean = y / N, entropy = -(mean * log(mean) + (1 - mean) * log1p(-mean));
    assert_int_equal(v.count, N);
    assert_true(fabs(v.logloss - loss / N) < 1e-12);
    assert_true(fabs(v.auc - above / pairs) < 1e-12 && v.auc_error > 0.0 && v.auc_error < 0.002);
    assert_true(fabs(v.calibration - p / y) < 1e-12);
    assert_true(fabs(v.normalized_entropy - loss / N / entropy) < 1e-12);
    assert_true(fabs(v.rmse - sqrt(squares / N)) < 1e-12);
    struct metrics_values w = metrics_values(&metrics, true);
    assert_true(w.count >= 1500 && w.count <= 1600);
    double last = 0.0;
    for (int i = N - (int)w.count; i < N; i++)
        last -= labels[i] > 0.5F ? log(num_sigmoid(logits[i])) : log(num_sigmoid(-logits[i]));
    assert_true(fabs(w.logloss - last / (double)w.count) < 1e-12);
}

static void test_cuts(void **state)
{
    (void)state;
    metrics_init(&metrics, LOSS_LOGISTIC, 1600);
    metrics_init(&other, LOSS_LOGISTIC, 1600);
    metrics_add(&metrics, kernels_variant(KERNELS_SCALAR), logits, labels, N);
    for (size_t at = 0, n = 1; at < N; at += n, n = n * 7 % 1023 + 1)
        metrics_add(&other, kernels_variant(KERNELS_SCALAR), logits + at, labels + at, MIN(n, N - at));
    assert_memory_equal(&metrics, &other, sizeof(metrics));
}

static void test_squared(void **state)
{
    (void)state;
    metrics_init(&metrics, LOSS_SQUARED, 100);
    double bad[3] = {1.0, NAN, 3.0};
    float y[3] = {2.0F, 5.0F, 3.0F};
    metrics_add(&metrics, kernels_variant(KERNELS_SCALAR), bad, y, 3);
    struct metrics_values v = metrics_values(&metrics, false);
    assert_int_equal(v.count, 2);
    assert_true(fabs(v.rmse - sqrt(0.5)) < 1e-15 && v.mae == 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_logistic), cmocka_unit_test(test_cuts),
                                       cmocka_unit_test(test_squared)};
    return cmocka_run_group_tests(tests, setup, NULL);
}
