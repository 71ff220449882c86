/* The generator's own arithmetic against libm, and the distribution of its random numbers. */
#include "connectors/generator/ctr_math.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_functions_agree_with_libm(void **state)
{
    (void)state;
    for (int i = -2000; i <= 2000; i++) {
        double x = i * 0.0173;
        assert_true(fabs(ctr_exp(x) - exp(x)) <= 1e-12 * exp(x));
        assert_true(fabs(ctr_sine(x) - sin(2 * M_PI * x)) < 1e-9);
        double y = exp(x * 10);
        assert_true(fabs(ctr_log(y) - log(y)) < 1e-12 * fmax(1.0, fabs(log(y))));
        assert_int_equal(ctr_round(x), (int64_t)floor(x + 0.5));
    }
    assert_true(fabs(ctr_power(17.5, -1.1) - pow(17.5, -1.1)) < 1e-13);
    assert_int_equal(ctr_round(-2.5), -2);
    assert_int_equal(ctr_round(-2.51), -3);
}

/* Every compiler on every machine must give these bits. */
static void test_bits_are_pinned(void **state)
{
    (void)state;
    uint64_t fold = 0;
    struct ctr_random random = ctr_random_at(7, 3, 11);
    for (int i = 0; i < 1000; i++) {
        double a, b, values[4];
        ctr_normal(&random, &a, &b);
        values[0] = a;
        values[1] = b;
        values[2] = ctr_exp(a);
        values[3] = ctr_sine(b);
        for (int k = 0; k < 4; k++) {
            uint64_t bits;
            memcpy(&bits, &values[k], sizeof(bits));
            fold = ctr_mix(fold ^ bits);
        }
    }
    assert_int_equal(fold, UINT64_C(0x435616fd5761629d));
}

static void test_numbers_are_even_and_independent(void **state)
{
    (void)state;
    enum { DRAWS = 200000 };
    double mean = 0.0, square = 0.0, product = 0.0, before = 0.5;
    uint32_t cells[16] = {0};
    /* The first random numbers of neighbouring records, which would be similar if keys were mixed badly. */
    for (uint64_t i = 0; i < DRAWS; i++) {
        struct ctr_random random = ctr_random_at(7, 1, i);
        cells[ctr_below(&random, 16)]++;
        double u = ctr_uniform(&random);
        assert_true(u > 0.0 && u < 1.0);
        mean += u / DRAWS;
        square += u * u / DRAWS;
        product += (u - 0.5) * (before - 0.5) / DRAWS;
        before = u;
    }
    /* Within five standard errors each. */
    assert_true(fabs(mean - 0.5) < 5 * 0.2887 / sqrt(DRAWS));
    assert_true(fabs(square - 1.0 / 3) < 5 * 0.2981 / sqrt(DRAWS));
    assert_true(fabs(product) < 5 * (1.0 / 12) / sqrt(DRAWS));
    double chi_square = 0.0;
    for (int i = 0; i < 16; i++)
        chi_square += (cells[i] - DRAWS / 16.0) * (cells[i] - DRAWS / 16.0) / (DRAWS / 16.0);
    assert_true(chi_square < 45.0); /* 15 degrees of freedom: 1 in 10,000 */
}

static void test_normal_numbers_have_their_moments(void **state)
{
    (void)state;
    enum { PAIRS = 100000 };
    double mean = 0.0, square = 0.0, fourth = 0.0, product = 0.0, a, b;
    struct ctr_random random = ctr_random_at(1, 2, 3);
    for (int i = 0; i < PAIRS; i++) {
        ctr_normal(&random, &a, &b);
        mean += (a + b) / (2 * PAIRS);
        square += (a * a + b * b) / (2 * PAIRS);
        fourth += (a * a * a * a + b * b * b * b) / (2 * PAIRS);
        product += a * b / PAIRS;
    }
    assert_true(fabs(mean) < 0.012);
    assert_true(fabs(square - 1.0) < 0.016);
    assert_true(fabs(fourth - 3.0) < 0.11);
    assert_true(fabs(product) < 0.016);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions_agree_with_libm),
        cmocka_unit_test(test_bits_are_pinned),
        cmocka_unit_test(test_numbers_are_even_and_independent),
        cmocka_unit_test(test_normal_numbers_have_their_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
