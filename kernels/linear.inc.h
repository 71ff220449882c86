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
