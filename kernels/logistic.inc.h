/*
 * The logistic function in double, and the weight of an example with fake negatives: one source for single
 * events and arrays (linear.inc.h, batch_loss.inc.h) and for a GPU (cuda/loss.cu), each operation rounded
 * exactly as written here. Plain C over doubles, so that compilers can vectorize it with the same bits.
 * Compiled as C and as C++; include lanes.h first.
 */
#ifndef LEAT_KERNELS_LOGISTIC_INC_H
#define LEAT_KERNELS_LOGISTIC_INC_H

/*
 * num_exp with fma, x limited to +-708, without branches: Cody and Waite's reduction to |r| <= ln2 / 2, then
 * Taylor of degree 13 by Estrin's scheme, whose chain of dependent operations is short: every event waits for
 * the result.
 */
LANES_INLINE double exp_limited(double x)
{
    x = x < -708.0 ? -708.0 : x;
    x = x > 708.0 ? 708.0 : x;
    double shifted = fma(x, 1.4426950408889634, 6755399441055744.0); /* + 1.5 * 2^52 rounds to an integer */
    double k = shifted - 6755399441055744.0;
    double r = fma(k, -6.93147180369123816490e-01, x);
    r = fma(k, -1.90821492927058770002e-10, r);
    double r2 = r * r, r4 = r2 * r2;
    double a = fma(r2, fma(r, 1.0 / 6, 1.0 / 2), 1.0 + r);
    double b = fma(r2, fma(r, 1.0 / 5040, 1.0 / 720), fma(r, 1.0 / 120, 1.0 / 24));
    double c = fma(r2, fma(r, 1.0 / 39916800, 1.0 / 3628800), fma(r, 1.0 / 362880, 1.0 / 40320));
    double d = fma(r, 1.0 / 6227020800, 1.0 / 479001600);
    double p = fma(r4, fma(r4, fma(r4, d, c), b), a);
    uint64_t bits; /* k + 1023 is in its low bits */
    memcpy(&bits, &shifted, sizeof(bits));
    bits = (bits + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof(scale));
    return p * scale;
}

LANES_INLINE double sigmoid_of(double x)
{
    return 1.0 / (1.0 + exp_limited(-x));
}

/*
 * The weight of an example from the model's prediction p, for a stream that gives each event at once with
 * label 0, and again with label 1 if it becomes positive (Ktena et al. 2019, arXiv:1907.06558, "fake negative
 * weighted").
 */
LANES_INLINE double fake_negative_weight(double p, bool is_positive)
{
    return (is_positive ? 1.0 : 1.0 - p) * (1.0 + p); /* a product with 1 instead of a branch */
}

#endif
