/*
 * Optimizer steps over rows of weights and their state. The arithmetic of one vector is in
 * optimizer_step.inc.h; the loop over rows, whole vectors and the tail is shared here.
 */
#include "kernels/optimizer_step.inc.h"

LANES_INLINE void opt_one(enum opt_kind kind, const struct opt_row *row, size_t i, size_t d, v16 scale,
                          v16 curvature, size_t lanes, const struct opt_vectors *o)
{
    v16 s0 = scale, s1 = scale; /* unused if the optimizer has no such state */
    float *state = row->state + i;
    if (opt_states(kind) > 0)
        s0 = v16_load_n(state, lanes);
    if (opt_states(kind) > 1)
        s1 = v16_load_n(state + d, lanes);
    v16 w = v16_load_n(row->w + i, lanes);
    w = opt_step(kind, w, v16_load_n(row->g + i, lanes), scale, curvature, &s0, &s1, o);
    if (opt_states(kind) > 0)
        v16_store_n(state, s0, lanes);
    if (opt_states(kind) > 1)
        v16_store_n(state + d, s1, lanes);
    v16_store_n(row->w + i, w, lanes);
}

LANES_INLINE void opt_walk(enum opt_kind kind, const struct opt_row *rows, size_t n, size_t d,
                           const struct opt_params *p)
{
    struct opt_vectors o = opt_spread(p);
    for (size_t r = 0; r < n; r++) {
        v16 scale = v16_set1(rows[r].scale);
        v16 curvature = v16_set1(rows[r].curvature);
        size_t i = 0;
        for (; i + 16 <= d; i += 16) /* a constant 16, so loads and stores are whole */
            opt_one(kind, &rows[r], i, d, scale, curvature, 16, &o);
        if (i < d)
            opt_one(kind, &rows[r], i, d, scale, curvature, d - i, &o);
    }
}

#define OPT(name, kind)                                                                                      \
    static void opt_##name(const struct opt_row *rows, size_t n, size_t d, const struct opt_params *p)       \
    {                                                                                                        \
        opt_walk(kind, rows, n, d, p);                                                                       \
    }
OPT(sgd, OPT_SGD)
OPT(momentum, OPT_MOMENTUM)
OPT(adagrad, OPT_ADAGRAD)
OPT(adam, OPT_ADAM)
OPT(ftrl, OPT_FTRL)
OPT(newton, OPT_NEWTON)
#undef OPT

/* adagrad_row: one accumulator per row, the mean of the row's squared gradients. */
LANES_INLINE v16 row_gradient(const struct opt_row *row, size_t i, size_t lanes, v16 scale,
                              const struct opt_vectors *o)
{
    return opt_gradient(v16_load_n(row->w + i, lanes), v16_load_n(row->g + i, lanes), scale, o);
}

LANES_INLINE void row_move(const struct opt_row *row, size_t i, size_t lanes, v16 scale, v16 rate,
                           const struct opt_vectors *o)
{
    v16 step = v16_mul(rate, row_gradient(row, i, lanes, scale, o));
    v16_store_n(row->w + i, opt_move(v16_load_n(row->w + i, lanes), step, rate, o), lanes);
}

/* Updates the row's accumulator; returns the factor of its gradients. */
LANES_INLINE v16 row_rate(const struct opt_row *row, size_t d, const struct opt_params *p,
                          const struct opt_vectors *o)
{
    v16 scale = v16_set1(row->scale), squares = v16_set1(0.0F), grad;
    size_t i = 0;
    for (; i + 16 <= d; i += 16) {
        grad = row_gradient(row, i, 16, scale, o);
        squares = v16_fma(grad, grad, squares);
    }
    if (i < d) {
        grad = row_gradient(row, i, d - i, scale, o);
        squares = v16_fma(grad, grad, squares);
    }
    float sum = adagrad_row_sum(row->state[0], v16_sum(squares), (float)d, p->decay);
    row->state[0] = sum;
    return adagrad_rate(v16_set1(sum), o);
}

/* The rates of four rows are computed before their steps: a rate is a chain of dependent instructions, and
 * four chains overlap. */
static void opt_adagrad_row(const struct opt_row *rows, size_t n, size_t d, const struct opt_params *p)
{
    enum { BESIDE = 4 };
    struct opt_vectors o = opt_spread(p);
    for (size_t first = 0; first < n && d > 0; first += BESIDE) {
        size_t end = n - first < BESIDE ? n : first + BESIDE;
        v16 rates[BESIDE];
        for (size_t r = first; r < end; r++)
            rates[r - first] = row_rate(&rows[r], d, p, &o);
        for (size_t r = first; r < end; r++) {
            v16 scale = v16_set1(rows[r].scale), rate = rates[r - first];
            size_t i = 0;
            for (; i + 16 <= d; i += 16)
                row_move(&rows[r], i, 16, scale, rate, &o);
            if (i < d)
                row_move(&rows[r], i, d - i, scale, rate, &o);
        }
    }
}

LANES_INLINE v16 variance_vector(const struct opt_row *row, size_t i, size_t lanes, v16 sum)
{
    v16 precision = v16_load_n(row->state + i, lanes);
    if (lanes < 16)
        precision = v16_max(precision, v16_set1(1e-30F)); /* lanes beyond the end: avoid a zero divisor */
    v16 root = v16_mul(v16_load_n(row->g + i, lanes), v16_rsqrt(precision));
    return v16_fma(root, root, sum);
}

static float newton_variance(const struct opt_row *rows, size_t n, size_t d)
{
    float total = 0.0F;
    for (size_t r = 0; r < n; r++) {
        v16 sum = v16_set1(0.0F);
        size_t i = 0;
        for (; i + 16 <= d; i += 16)
            sum = variance_vector(&rows[r], i, 16, sum);
        if (i < d)
            sum = variance_vector(&rows[r], i, d - i, sum);
        total += v16_sum(sum);
    }
    return total;
}

static void ftrl64_weights(double *w, const double *z, const double *sums, size_t n,
                           const struct ftrl64_params *p)
{
    for (size_t i = 0; i < n; i += 8) {
        size_t lanes = n - i < 8 ? n - i : 8;
        d8_store_n(w + i, ftrl64_weight(d8_load_n(z + i, lanes), d8_load_n(sums + i, lanes), p), lanes);
    }
}

static void ftrl64_update(double *z, double *sums, const double *w, const double *g, size_t n,
                          const struct ftrl64_params *p)
{
    for (size_t i = 0; i < n; i += 8) {
        size_t lanes = n - i < 8 ? n - i : 8;
        d8 moved = d8_load_n(z + i, lanes), sum = d8_load_n(sums + i, lanes);
        ftrl64_step(&moved, &sum, d8_load_n(w + i, lanes), d8_load_n(g + i, lanes), p);
        d8_store_n(z + i, moved, lanes);
        d8_store_n(sums + i, sum, lanes);
    }
}
