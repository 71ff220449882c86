/*
 * The logistic function in double, and the slope of an event's loss: one source for events alone and in
 * arrays (linear.inc.h, batch_loss.inc.h) and for a GPU (cuda/loss.cu), each operation rounded as it says
 * here. Plain C over doubles, so that compilers take several at a time, with the same bits. Compiled as C and
 * as C++; lanes.h comes before it.
 */
#ifndef KERNELS_LOGISTIC_INC_H
#define KERNELS_LOGISTIC_INC_H

/*
 * num_exp with fma, x limited to +-708, without branches: Cody and Waite's reduction to |r| <= ln2 / 2, then
 * Taylor of degree 13 by Estrin's scheme, for its latency is on every event's path.
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
    uint64_t bits; /* its low bits are k's */
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

LANES_INLINE double sigmoid_of(double x)
{
    return 1.0 / (1.0 + exp_limited(-x));
}

/*
 * What an example weighs by the model's own prediction, for a stream that gives each one at once with label
 * 0, and again with 1 where it is answered (Ktena et al. 2019, arXiv:1907.06558, "fake negative weighted").
 */
LANES_INLINE double fake_negative_weight(double p, bool is_positive)
{
    return (is_positive ? 1.0 : 1.0 - p) * (1.0 + p); /* 1 * x is x: no branch */
}

#endif
