#include "kernels/num.h"

#include <math.h>
#include <string.h>

/* Cody-Waite reduction to |r| <= ln2 / 2, then Taylor of degree 13 by Estrin's scheme, whose chain of
 * dependent operations is short: every event waits for the result. */
double num_exp(double x)
{
    if (!(x > -708.0))
        return x != x ? x : 0.0;
    if (x > 709.0)
        return (double)INFINITY;
    double shifted = x * 1.4426950408889634 + 6755399441055744.0; /* + 1.5 * 2^52 rounds to an integer */
    double k = shifted - 6755399441055744.0;
    double r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
    double r2 = r * r;
    double r4 = r2 * r2;
    double a = 1.0 + r;
    double b = 1.0 / 2 + r * (1.0 / 6);
    double c = 1.0 / 24 + r * (1.0 / 120);
    double d = 1.0 / 720 + r * (1.0 / 5040);
    double e = 1.0 / 40320 + r * (1.0 / 362880);
    double f = 1.0 / 3628800 + r * (1.0 / 39916800);
    double g = 1.0 / 479001600 + r * (1.0 / 6227020800);
    double p = (a + r2 * b) + r4 * ((c + r2 * d) + r4 * ((e + r2 * f) + r4 * g));
    uint64_t bits = (uint64_t)((int64_t)k + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof(scale));
    return p * scale;
}

/* 2 atanh(t / (2 + t)) by its series: s <= 1/3, so nineteen odd terms reach 1e-18. Even and odd powers of q
 * are summed apart. */
double num_log1p_unit(double t)
{
    double s = t / (2.0 + t);
    double q = s * s;
    double q2 = q * q;
    double even = 1.0 / 37, odd = 1.0 / 35;
    even = even * q2 + 1.0 / 33, odd = odd * q2 + 1.0 / 31;
    even = even * q2 + 1.0 / 29, odd = odd * q2 + 1.0 / 27;
    even = even * q2 + 1.0 / 25, odd = odd * q2 + 1.0 / 23;
    even = even * q2 + 1.0 / 21, odd = odd * q2 + 1.0 / 19;
    even = even * q2 + 1.0 / 17, odd = odd * q2 + 1.0 / 15;
    even = even * q2 + 1.0 / 13, odd = odd * q2 + 1.0 / 11;
    even = even * q2 + 1.0 / 9, odd = odd * q2 + 1.0 / 7;
    even = even * q2 + 1.0 / 5, odd = odd * q2 + 1.0 / 3;
    even = even * q2 + 1.0;
    return 2.0 * s * (even + q * odd);
}

/* log(2^k m) with m in [1, 2). */
double num_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    int64_t k = (int64_t)(bits >> 52) - 1023;
    bits = (bits & 0x000fffffffffffffU) | 0x3ff0000000000000U;
    double m;
    memcpy(&m, &bits, sizeof(m));
    return (double)k * 6.93147180559945309417e-01 + num_log1p_unit(m - 1.0);
}

double num_sigmoid(double x)
{
    return 1.0 / (1.0 + num_exp(-x));
}

double num_logloss(double logit, double label)
{
    double tail = num_log1p_unit(num_exp(-fabs(logit)));
    return (logit > 0.0 ? logit : 0.0) + tail - label * logit;
}
