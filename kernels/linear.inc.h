/*
 * The linear part of a model: weights and one float of state each, which lie in pairs all over memory, and
 * what the tables and losses of single events need.
 */

static float pairs_dot(float *w, float *const *pairs, const float *values, size_t n, size_t d)
{
    v16 sum = v16_set1(0.0F);
    for (size_t i = 0; i < d; i += 16) {
        v16 weights = v16_load(w + i);
        if (i < n) {
            size_t lanes = n - i < 16 ? n - i : 16;
            v16 seconds, firsts = v16_load_pairs(pairs + i, lanes, &seconds);
            weights = v16_head(firsts, weights, lanes);
            v16_store(w + i, weights);
            v16_store(w + d + i, v16_head(seconds, v16_load(w + d + i), lanes));
        }
        sum = v16_fma(weights, v16_load(values + i), sum);
    }
    return v16_sum(sum);
}

static void pairs_store(float *const *pairs, const float *w, size_t n, size_t d)
{
    for (size_t i = 0; i < n; i += 16)
        v16_store_pairs(pairs + i, n - i < 16 ? n - i : 16, v16_load(w + i), v16_load(w + d + i));
}

/* splitmix64's finish, as num_mix. */
static void mix_keys(uint64_t *out, const uint64_t *keys, uint64_t seed, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t x = keys[i] ^ seed;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
        out[i] = x ^ (x >> 31);
    }
}

/*
 * num_exp with fma, x limited to +-708, without branches: Cody and Waite's reduction to |r| <= ln2 / 2, then
 * Taylor of degree 13 by Estrin's scheme, for its latency is on every event's path. Plain C over doubles, so
 * that single values and arrays, which the compiler takes several lanes at a time, have the same bits.
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

static double sigmoid_one(double x)
{
    return 1.0 / (1.0 + exp_limited(-x));
}

static void sigmoid64(double *out, const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = 1.0 / (1.0 + exp_limited(-x[i]));
}

/* log(1 + t) is 2 atanh(t / (2 + t)), by num_log1p_unit's series. */
static void logloss64(double *out, const double *logits, const float *labels, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double x = logits[i], t = exp_limited(-fabs(x));
        double s = t / (2.0 + t), q = s * s, q2 = q * q;
        double even = 1.0 / 37, odd = 1.0 / 35;
        even = fma(even, q2, 1.0 / 33), odd = fma(odd, q2, 1.0 / 31);
        even = fma(even, q2, 1.0 / 29), odd = fma(odd, q2, 1.0 / 27);
        even = fma(even, q2, 1.0 / 25), odd = fma(odd, q2, 1.0 / 23);
        even = fma(even, q2, 1.0 / 21), odd = fma(odd, q2, 1.0 / 19);
        even = fma(even, q2, 1.0 / 17), odd = fma(odd, q2, 1.0 / 15);
        even = fma(even, q2, 1.0 / 13), odd = fma(odd, q2, 1.0 / 11);
        even = fma(even, q2, 1.0 / 9), odd = fma(odd, q2, 1.0 / 7);
        even = fma(even, q2, 1.0 / 5), odd = fma(odd, q2, 1.0 / 3);
        even = fma(even, q2, 1.0);
        double tail = 2.0 * s * fma(q, odd, even);
        out[i] = (x > 0.0 ? x : 0.0) + tail - (double)labels[i] * x;
    }
}
