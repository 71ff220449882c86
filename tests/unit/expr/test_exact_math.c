/* exact_math.h against long double, and the special values of C's Annex F. */
#include "operators/expr/exact_math.h"

#include "fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>

/* The error of `got` in units in the last place (ulp). */
static double error_ulps(double got, long double exact)
{
    if (isinf(got) || exact == 0)
        return got == (double)exact ? 0 : 1e9;
    double rounded = (double)exact;
    if (isinf(rounded))
        return 1e9;
    long double ulp = (long double)nextafter(fabs(rounded), INFINITY) - (long double)fabs(rounded);
    return (double)(fabsl((long double)got - exact) / ulp);
}

static double random_between(uint64_t *seed, double low, double high)
{
    return low + (high - low) * (double)(fixture_random(seed) >> 11) * 0x1p-53;
}

struct worst {
    double ulps, x, y;
};

static void note(struct worst *worst, double got, long double exact, double x, double y)
{
    double ulps = error_ulps(got, exact);
    if (ulps > worst->ulps)
        *worst = (struct worst){ulps, x, y};
}

static void report(const char *name, const struct worst *worst, double limit)
{
    print_message("%-6s worst error %.3f ulp, at %.17g %.17g\n", name, worst->ulps, worst->x, worst->y);
    if (worst->ulps > limit)
        fail_msg("%s: %.3f ulp at %.17g, %.17g; at most %.2f", name, worst->ulps, worst->x, worst->y, limit);
}

enum { TRIALS = 200000 };

static void test_logarithms(void **state)
{
    (void)state;
    struct worst log_worst = {0}, log2_worst = {0}, log10_worst = {0}, log1p_worst = {0};
    uint64_t seed = 7;
    for (int i = 0; i < TRIALS; i++) {
        double x = ldexp(random_between(&seed, 1, 2), (int)(fixture_random(&seed) % 2098) - 1074);
        if (i % 2 == 0)
            x = random_between(&seed, 0.5, 2); /* around 1, where digits cancel */
        note(&log_worst, exact_log(x), logl((long double)x), x, 0);
        note(&log2_worst, exact_log2(x), log2l((long double)x), x, 0);
        note(&log10_worst, exact_log10(x), log10l((long double)x), x, 0);
        double small = i % 3 == 0   ? ldexp(random_between(&seed, -1, 1), -(int)(fixture_random(&seed) % 200))
                       : i % 3 == 1 ? random_between(&seed, -1, 4)
                                    : x;
        note(&log1p_worst, exact_log1p(small), log1pl((long double)small), small, 0);
    }
    report("log", &log_worst, 1.0);
    report("log2", &log2_worst, 0.75);
    report("log10", &log10_worst, 0.75);
    report("log1p", &log1p_worst, 1.0);
}

static void test_exponentials(void **state)
{
    (void)state;
    struct worst exp_worst = {0}, pow_worst = {0};
    uint64_t seed = 9;
    for (int i = 0; i < TRIALS; i++) {
        double x = i % 2 == 0 ? random_between(&seed, -708, 709.7) : random_between(&seed, -1, 1);
        note(&exp_worst, exact_exp(x), expl((long double)x), x, 0);
        double base = ldexp(random_between(&seed, 1, 2), (int)(fixture_random(&seed) % 60) - 30);
        double power = random_between(&seed, -30, 30);
        if (i % 4 == 0)
            power = (double)((int)(fixture_random(&seed) % 21) - 10);
        long double exact = powl((long double)base, (long double)power);
        if (exact > 1e-300L && exact < 1e300L)
            note(&pow_worst, exact_pow(base, power), exact, base, power);
    }
    report("exp", &exp_worst, 0.75);
    report("pow", &pow_worst, 0.75);
}

static void same(double got, double expected)
{
    bool is_same = isnan(expected) ? isnan(got) : got == expected && signbit(got) == signbit(expected);
    if (!is_same)
        fail_msg("%.17g, expected %.17g", got, expected);
}

static void test_special_values(void **state)
{
    (void)state;
    static const double values[] = {0.0,       -0.0, 1.0,  -1.0,     2.0,       -2.0,    0.5,
                                    -0.5,      3.0,  -3.0, INFINITY, -INFINITY, NAN,     1e308,
                                    0x1p-1074, 2.5,  -2.5, 1e17,     1e-300,    0x1p1023};
    for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
        double x = values[i];
        bool is_special = !isfinite(x) || x <= 0 || x == 1;
        if (is_special) {
            same(exact_log(x), log(x));
            same(exact_log2(x), log2(x));
            same(exact_log10(x), log10(x));
        }
        if (!isfinite(x) || x == 0 || x <= -1)
            same(exact_log1p(x), log1p(x));
        if (!isfinite(x) || x == 0 || fabs(x) > 1e4)
            same(exact_exp(x), exp(x));
        for (size_t k = 0; k < ARRAY_COUNT(values); k++) {
            double expected = pow(x, values[k]);
            if (!isfinite(expected) || expected == 0 || fabs(expected) == 1)
                same(exact_pow(x, values[k]), expected);
        }
    }
    for (int e = -1074; e <= 1023; e++)
        same(exact_log2(ldexp(1, e)), e); /* powers of two are exact */
    for (int e = 0; e <= 22; e++)
        same(exact_log10(strtod((char[8]){'1', 'e', (char)('0' + e / 10), (char)('0' + e % 10)}, NULL)), e);
    for (int e = -1074; e <= 1023; e++)
        same(exact_pow(2, e), ldexp(1, e));
    same(exact_exp(-745.0), 0x1p-1074);
    same(exact_exp(709.78271289338397), 1.7976931348622732e308);
    same(exact_exp(709.79), INFINITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logarithms),
        cmocka_unit_test(test_exponentials),
        cmocka_unit_test(test_special_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
