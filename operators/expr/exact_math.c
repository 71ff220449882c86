/* A logarithm is computed as an unevaluated sum of two doubles (about 2^-66 relative), an exponential from
 * such a sum.
 *
 * log: x = m * 2^e with m in [sqrt(1/2), sqrt(2)); with s = (m - 1) / (m + 1), |s| <= 0.172,
 *      log m = 2 atanh(s) = 2 (s + s^3/3 + s^5/5 + ...), summed to s^27 (next term < 2^-70); s and s^3/3 are
 *      pairs.
 * exp: x = k ln 2 + r with |r| <= ln(2)/2; exp(r) by Taylor's series to r^14/14! (next term < 2^-63).
 *
 * Sums and products of pairs: Dekker, "A floating-point technique for extending the available precision",
 * Numer. Math. 18 (1971); Knuth, TAOCP 2, 4.2.2. */
#include "operators/expr/exact_math.h"

#include "core/base.h"

#include <math.h>

struct pair {
    double high, low;
};

/* a + b exactly. */
static struct pair two_sum(double a, double b)
{
    double sum = a + b, b_part = sum - a;
    return (struct pair){sum, (a - (sum - b_part)) + (b - b_part)};
}

/* a + b exactly where |a| >= |b|. */
static struct pair quick_sum(double a, double b)
{
    double sum = a + b;
    return (struct pair){sum, b - (sum - a)};
}

/* The upper 26 bits of a. */
static double upper_half(double a)
{
    double scaled = 134217729.0 * a; /* 2^27 + 1 */
    return scaled - (scaled - a);
}

/* a * b exactly, below overflow and above underflow. */
static struct pair two_product(double a, double b)
{
    double product = a * b;
    double a_high = upper_half(a), a_low = a - a_high;
    double b_high = upper_half(b), b_low = b - b_high;
    return (struct pair){product,
                         ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low};
}

static struct pair pair_multiply(struct pair a, struct pair b)
{
    struct pair p = two_product(a.high, b.high);
    return quick_sum(p.high, p.low + (a.high * b.low + a.low * b.high));
}

static struct pair pair_divide(struct pair a, struct pair b)
{
    double quotient = a.high / b.high;
    struct pair back = two_product(quotient, b.high);
    double rest = ((a.high - back.high) - back.low) + (a.low - quotient * b.low);
    return quick_sum(quotient, rest / b.high);
}

static struct pair pair_add(struct pair a, struct pair b)
{
    struct pair sum = two_sum(a.high, b.high);
    return quick_sum(sum.high, sum.low + (a.low + b.low));
}

/* ln 2, 1 / ln 2 and 1 / ln 10 as pairs. */
static const struct pair ln2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
static const struct pair log2_e = {0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56};
static const struct pair log10_e = {0x1.bcb7b1526e50ep-2, 0x1.95355baaafad3p-57};
/* ln 2 in two parts; k * ln2_upper is exact for |k| < 2^20, as it has the upper 33 bits. */
static const double ln2_upper = 0x1.62e42feep-1, ln2_lower = 0x1.a39ef35793c76p-33;

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* 2^e for -1022 <= e <= 1023. */
static double power_of_two(int e)
{
    leat_assert(e >= -1022 && e <= 1023);
    return from_bits((uint64_t)(e + 1023) << 52);
}

/* x = m * 2^*e with m in [sqrt(1/2), sqrt(2)); x positive, finite. */
static double split_exponent(double x, int *e)
{
    *e = 0;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        *e = -54;
    }
    uint64_t bits = bits_of(x);
    *e += (int)(bits >> 52) - 1023;
    double m = from_bits((bits & UINT64_C(0x000fffffffffffff)) | UINT64_C(0x3ff0000000000000));
    if (m >= 0x1.6a09e667f3bcdp+0) {
        m *= 0.5;
        ++*e;
    }
    return m;
}

/* log of m in [sqrt(1/2), sqrt(2)). */
static struct pair log_near_one(double m)
{
    static const double odd[] = {1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13, 1.0 / 15,
                                 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23, 1.0 / 25, 1.0 / 27};
    struct pair s =
        pair_divide((struct pair){m - 1.0, 0}, two_sum(1.0, m)); /* m - 1 is exact in that range */
    struct pair square = pair_multiply(s, s);
    double tail = odd[ARRAY_COUNT(odd) - 1];
    for (int i = (int)ARRAY_COUNT(odd) - 2; i >= 0; i--)
        tail = odd[i] + square.high * tail;
    static const struct pair third = {0x1.5555555555555p-2, 0x1.5555555555555p-56};
    struct pair factor = pair_add(third, (struct pair){square.high * tail, 0});
    struct pair cube = pair_multiply(pair_multiply(square, s), factor);
    struct pair sum = pair_add(s, cube);
    return (struct pair){2 * sum.high, 2 * sum.low};
}

/* log of x; x positive, finite. */
static struct pair log_pair(double x)
{
    int e;
    struct pair log_m = log_near_one(split_exponent(x, &e));
    struct pair times = two_product((double)e, ln2.high);
    struct pair log_e = quick_sum(times.high, times.low + (double)e * ln2.low);
    return e == 0 ? log_m : pair_add(log_e, log_m);
}

/* The logarithm, by C's Annex F, of an x that is not a positive finite number. */
static double log_special(double x)
{
    if (x == 0)
        return -HUGE_VAL;
    return x > 0 ? x : NAN; /* NaN for NaN, too */
}

static bool is_ordinary(double x)
{
    return x > 0 && x <= 0x1.fffffffffffffp+1023;
}

/* log(1 + f) + k ln 2 + rest, for 1 + f in [sqrt(1/2), sqrt(2)): the fast method, used by log and log1p only.
 * With s = f / (2 + f): log(1 + f) = f - f^2/2 + s (f^2/2 + R), R = 2 (s^2/3 + s^4/5 + ...), where only small
 * terms are rounded. The two halves of R (`odd`, `even`) are independent of each other. */
static double log_quick(double f, double k, double rest)
{
    double s = f / (2.0 + f), z = s * s, w = z * z, half_square = 0.5 * f * f;
    double odd = w * (2.0 / 5 + w * (2.0 / 9 + w * (2.0 / 13 + w * (2.0 / 17 + w * (2.0 / 21)))));
    double even =
        z * (2.0 / 3 + w * (2.0 / 7 + w * (2.0 / 11 + w * (2.0 / 15 + w * (2.0 / 19 + w * (2.0 / 23))))));
    double small = s * (half_square + (even + odd)) + (k * ln2_lower + rest);
    return k * ln2_upper - ((half_square - small) - f);
}

double exact_log(double x)
{
    if (!is_ordinary(x))
        return log_special(x);
    int e;
    double m = split_exponent(x, &e);
    return x == 1.0 ? 0.0 : log_quick(m - 1.0, (double)e, 0);
}

double exact_log2(double x)
{
    if (!is_ordinary(x))
        return log_special(x);
    int e;
    double m = split_exponent(x, &e);
    if (m == 1.0)
        return (double)e;
    struct pair fraction = pair_multiply(log_near_one(m), log2_e);
    return pair_add((struct pair){(double)e, 0}, fraction).high;
}

double exact_log10(double x)
{
    if (!is_ordinary(x))
        return log_special(x);
    return x == 1.0 ? 0.0 : pair_multiply(log_pair(x), log10_e).high;
}

double exact_log1p(double x)
{
    if (x == -1.0)
        return -HUGE_VAL;
    if (!(x > -1.0) || x > 0x1.fffffffffffffp+1023)
        return log_special(x);
    if (fabs(x) < 0x1p-54)
        return x;
    if (x > -0.29 && x < 0.41)
        return log_quick(x, 0, 0);
    struct pair sum = two_sum(1.0, x);
    int e;
    double m = split_exponent(sum.high, &e);
    return log_quick(m - 1.0, (double)e, sum.low / sum.high);
}

/* exp(x + rest), |rest| <= ulp(x). */
static double exp_pair(double x, double rest)
{
    if (x > 709.79)
        return HUGE_VAL;
    if (x < -745.14)
        return 0.0;
    static const double inverse[] = {1.0 / 6,         1.0 / 24,           1.0 / 120,
                                     1.0 / 720,       1.0 / 5040,         1.0 / 40320,
                                     1.0 / 362880,    1.0 / 3628800,      1.0 / 39916800,
                                     1.0 / 479001600, 1.0 / 6227020800.0, 1.0 / 87178291200.0};
    double k = floor(x * log2_e.high + 0.5);
    struct pair r = two_sum(x - k * ln2_upper, rest - k * ln2_lower);
    double tail = inverse[ARRAY_COUNT(inverse) - 1];
    for (int i = (int)ARRAY_COUNT(inverse) - 2; i >= 0; i--)
        tail = inverse[i] + r.high * tail;
    /* 1 + r + r^2/2 + r^3 tail, the largest terms with their rounding errors */
    struct pair square = two_product(r.high, r.high);
    double small = r.high * square.high * tail + (0.5 * square.low + r.low * (1.0 + r.high));
    struct pair sum = two_sum(r.high, 0.5 * square.high);
    struct pair total = two_sum(1.0, sum.high);
    double value = total.high + (total.low + (sum.low + small));
    int e = (int)k;
    if (e > 1023)
        return value * 2.0 * power_of_two(e - 1);
    return e >= -1021 ? value * power_of_two(e) : value * power_of_two(e + 100) * 0x1p-100;
}

double exact_exp(double x)
{
    return x != x ? NAN : exp_pair(x, 0);
}

static bool is_integer(double x)
{
    return fabs(x) >= 0x1p53 || x == floor(x);
}

static bool is_odd(double x)
{
    return fabs(x) < 0x1p53 && is_integer(x) && ((int64_t)x & 1) != 0;
}

/* x^y where x is 0 or infinite, and y is neither NaN nor 0. */
static double pow_of_limit(double x, double y)
{
    bool is_large = (fabs(x) > 1) == (y > 0);
    double magnitude = is_large ? HUGE_VAL : 0.0;
    return signbit(x) != 0 && is_odd(y) ? -magnitude : magnitude;
}

double exact_pow(double x, double y)
{
    if (y == 0 || x == 1.0)
        return 1.0;
    if (x != x || y != y)
        return NAN;
    double magnitude = fabs(x);
    if (x == 0 || magnitude > 0x1.fffffffffffffp+1023)
        return pow_of_limit(x, y);
    if (fabs(y) > 0x1.fffffffffffffp+1023) {
        if (magnitude == 1)
            return 1.0;
        return (magnitude > 1) == (y > 0) ? HUGE_VAL : 0.0;
    }
    if (x < 0 && !is_integer(y))
        return NAN;
    double sign = x < 0 && is_odd(y) ? -1.0 : 1.0;
    if (magnitude == 1)
        return sign;
    struct pair log_x = log_pair(magnitude);
    double rough = log_x.high * y;
    if (rough > 710 || rough < -746)
        return sign * (rough > 0 ? HUGE_VAL : 0.0);
    if (fabs(rough) < 0x1p-60)
        return sign;
    struct pair exponent = two_product(log_x.high, y);
    if (fabs(y) > 0x1p900) /* splitting y would overflow */
        exponent = (struct pair){rough, 0};
    return sign * exp_pair(exponent.high, exponent.low + log_x.low * y);
}
