/*
 * The linear part of a model: weights and one float of state each, which lie as pairs at arbitrary addresses;
 * and hashing of keys and the losses of single events.
 */
#include "kernels/logistic.inc.h"

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

/* The finalizer of splitmix64, as num_mix. */
static void mix_keys(uint64_t *out, const uint64_t *keys, uint64_t seed, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t x = keys[i] ^ seed;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
        out[i] = x ^ (x >> 31);
    }
}

static double sigmoid_one(double x)
{
    return sigmoid_of(x);
}

static void sigmoid64(double *out, const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = sigmoid_of(x[i]);
}

/* log(1 + t) = 2 atanh(t / (2 + t)), by the series of num_log1p_unit. */
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

/* Gradient of the loss by the logit, times the event's weight; NaN if this product or the logit is not
 * finite. */
LANES_INLINE double pairs_gradient(double logit, const struct pairs_event *e)
{
    double p = e->is_logistic ? sigmoid_of(logit) : logit;
    double gradient = (p - (double)e->label) * (double)e->weight;
    return isfinite(logit) && isfinite(gradient) ? gradient : (double)NAN;
}

/*
 * pairs_adagrad for one or two vectors (d / 16), which stay in registers between the product and the step: a
 * linear learner's speed is bounded by the chain from one event's weights to the next event's. groups[v]:
 * the pairs of vector v, counted in groups of four; the callers pass constants, so that loads and stores are
 * whole.
 */
LANES_INLINE double pairs_adagrad_few(float *w, float *const *pairs, const float *values, size_t n, size_t d,
                                      const size_t groups[2], const struct pairs_event *e,
                                      const struct opt_params *p)
{
    v16 weights[2], states[2], sum = v16_set1(0.0F);
    for (size_t c = 0; c < d / 16; c++) {
        size_t i = c * 16;
        weights[c] = v16_load(w + i);
        states[c] = v16_load(w + d + i);
        if (groups[c] > 0) {
            v16 seconds, firsts = v16_load_pairs(pairs + i, groups[c] * 4, &seconds);
            size_t lanes = n - i < 16 ? n - i : 16;
            weights[c] = v16_head(firsts, weights[c], lanes);
            states[c] = v16_head(seconds, states[c], lanes);
        }
        sum = v16_fma(weights[c], v16_load(values + i), sum);
    }
    double logit = (double)v16_sum(sum) + e->bias, gradient = pairs_gradient(logit, e);
    if (isnan(gradient))
        return gradient;
    if (!e->learns)
        return logit;
    struct opt_vectors o = opt_spread(p);
    v16 scale = v16_set1((float)gradient);
    for (size_t c = 0; c < d / 16; c++) {
        size_t i = c * 16;
        v16 grad = v16_fma(o.l2, weights[c], v16_mul(scale, v16_load(values + i)));
        weights[c] = adagrad_step(weights[c], grad, &states[c], &o);
        v16_store(w + i, weights[c]);
        v16_store(w + d + i, states[c]);
        if (groups[c] > 0)
            v16_store_pairs(pairs + i, groups[c] * 4, weights[c], states[c]);
    }
    return logit;
}

#define PAIRS_FEW(vectors, first, second)                                                                    \
    pairs_adagrad_few(w, pairs, values, n, (vectors)*16, (const size_t[2]){first, second}, e, p)

static double pairs_adagrad(float *w, float *const *pairs, const float *values, size_t n, size_t d,
                            const struct pairs_event *e, const struct opt_params *p)
{
    size_t groups = (n + 3) / 4;
    switch (d == 16 ? groups : d == 32 ? 8 + groups : SIZE_MAX) {
    case 1: return PAIRS_FEW(1, 1, 0);
    case 2: return PAIRS_FEW(1, 2, 0);
    case 3: return PAIRS_FEW(1, 3, 0);
    case 4: return PAIRS_FEW(1, 4, 0);
    case 9: return PAIRS_FEW(2, 1, 0);
    case 10: return PAIRS_FEW(2, 2, 0);
    case 11: return PAIRS_FEW(2, 3, 0);
    case 12: return PAIRS_FEW(2, 4, 0);
    case 13: return PAIRS_FEW(2, 4, 1);
    case 14: return PAIRS_FEW(2, 4, 2);
    case 15: return PAIRS_FEW(2, 4, 3);
    case 16: return PAIRS_FEW(2, 4, 4);
    default: break;
    }
    double logit = (double)pairs_dot(w, pairs, values, n, d) + e->bias, gradient = pairs_gradient(logit, e);
    if (isnan(gradient))
        return gradient;
    if (e->learns) {
        struct opt_row row = {.w = w, .state = w + d, .g = values, .scale = (float)gradient};
        opt_adagrad(&row, 1, d, p);
        pairs_store(pairs, w, n, d);
    }
    return logit;
}
#undef PAIRS_FEW
