/*
 * Optimizer steps over rows of weights, each with its state. The arithmetic of one vector is one
 * function; the walk over rows, whole vectors and the tail is shared.
 */

struct opt_vectors {
    v16 rate, l1, l2, epsilon, decay, beta1, beta2, rest1, rest2, correction1, correction2, step_max;
    bool has_l1;
};

LANES_INLINE struct opt_vectors opt_spread(const struct opt_params *p)
{
    return (struct opt_vectors){
        .rate = v16_set1(p->rate),
        .l1 = v16_set1(p->l1),
        .l2 = v16_set1(p->l2),
        .epsilon = v16_set1(p->epsilon),
        .decay = v16_set1(p->decay),
        .beta1 = v16_set1(p->beta1),
        .beta2 = v16_set1(p->beta2),
        .rest1 = v16_set1(1.0F - p->beta1),
        .rest2 = v16_set1(1.0F - p->beta2),
        .correction1 = v16_set1(p->correction1),
        .correction2 = v16_set1(p->correction2),
        .step_max = v16_set1(p->step_max),
        .has_l1 = p->l1 > 0.0F,
    };
}

/* w - step, limited, then drawn to zero by threshold (the proximal step of l1: Duchi 2009). */
LANES_INLINE v16 opt_move(v16 w, v16 step, v16 threshold_rate, const struct opt_vectors *o)
{
    w = v16_sub(w, v16_clamp(step, o->step_max));
    if (!o->has_l1)
        return w;
    v16 left = v16_sub(v16_abs(w), v16_mul(threshold_rate, o->l1));
    return v16_copysign(v16_max(left, v16_set1(0.0F)), w);
}

/* s0 and s1 point at this vector's part of the state; n lanes are live. */
typedef v16 opt_vector(v16 w, v16 grad, v16 curvature, float *s0, float *s1, size_t n,
                       const struct opt_vectors *o);

LANES_INLINE v16 sgd_vector(v16 w, v16 grad, v16 curvature, float *s0, float *s1, size_t n,
                            const struct opt_vectors *o)
{
    (void)curvature, (void)s0, (void)s1, (void)n;
    return opt_move(w, v16_mul(o->rate, grad), o->rate, o);
}

LANES_INLINE v16 momentum_vector(v16 w, v16 grad, v16 curvature, float *s0, float *s1, size_t n,
                                 const struct opt_vectors *o)
{
    (void)curvature, (void)s1;
    v16 velocity = v16_fma(o->beta1, v16_load_n(s0, n), grad);
    v16_store_n(s0, velocity, n);
    return opt_move(w, v16_mul(o->rate, velocity), o->rate, o);
}

LANES_INLINE v16 adagrad_step(v16 w, v16 grad, v16 *sum, const struct opt_vectors *o)
{
    *sum = v16_fma(*sum, o->decay, v16_mul(grad, grad));
    v16 rate = v16_mul(o->rate, v16_rsqrt(*sum));
    return opt_move(w, v16_mul(rate, grad), rate, o);
}

LANES_INLINE v16 adagrad_vector(v16 w, v16 grad, v16 curvature, float *s0, float *s1, size_t n,
                                const struct opt_vectors *o)
{
    (void)curvature, (void)s1;
    v16 sum = v16_load_n(s0, n);
    w = adagrad_step(w, grad, &sum, o);
    v16_store_n(s0, sum, n);
    return w;
}

LANES_INLINE v16 adam_vector(v16 w, v16 grad, v16 curvature, float *s0, float *s1, size_t n,
                             const struct opt_vectors *o)
{
    (void)curvature;
    v16 m = v16_fma(o->beta1, v16_load_n(s0, n), v16_mul(o->rest1, grad));
    v16 v = v16_fma(o->beta2, v16_load_n(s1, n), v16_mul(o->rest2, v16_mul(grad, grad)));
    v16_store_n(s0, m, n);
    v16_store_n(s1, v, n);
    v16 root = v16_add(v16_sqrt(v16_mul(v, o->correction2)), o->epsilon);
    return opt_move(w, v16_div(v16_mul(o->rate, v16_mul(m, o->correction1)), root), o->rate, o);
}

LANES_INLINE v16 ftrl_vector(v16 w, v16 grad, v16 curvature, float *s0, float *s1, size_t n,
                             const struct opt_vectors *o)
{
    (void)curvature;
    v16 old = v16_load_n(s1, n);
    v16 sum = v16_fma(grad, grad, old);
    v16 root = v16_sqrt(sum);
    v16 sigma = v16_div(v16_sub(root, v16_sqrt(old)), o->rate);
    v16 z = v16_add(v16_load_n(s0, n), v16_fnma(sigma, w, grad));
    v16_store_n(s0, z, n);
    v16_store_n(s1, sum, n);
    v16 over = v16_sub(v16_copysign(o->l1, z), z);
    v16 scale = v16_add(v16_div(v16_add(o->epsilon, root), o->rate), o->l2);
    return v16_keep_gt(v16_div(over, scale), v16_abs(z), o->l1);
}

LANES_INLINE v16 newton_vector(v16 w, v16 grad, v16 curvature, float *s0, float *s1, size_t n,
                               const struct opt_vectors *o)
{
    (void)s1;
    v16 precision = v16_fma(v16_load_n(s0, n), o->decay, curvature);
    v16_store_n(s0, precision, n);
    v16 root = v16_rsqrt(precision);
    v16 rate = v16_mul(o->rate, v16_mul(root, root));
    return opt_move(w, v16_mul(rate, grad), rate, o);
}

LANES_INLINE void opt_one(float *w, const float *g, float *state, v16 scale, v16 curvature, size_t d,
                          size_t lanes, const struct opt_vectors *o, opt_vector *vector, bool l2_in_gradient,
                          bool has_curvature)
{
    v16 old = v16_load_n(w, lanes);
    v16 base = v16_load_n(g, lanes);
    v16 grad = v16_mul(scale, base);
    if (l2_in_gradient)
        grad = v16_fma(o->l2, old, grad);
    v16 second = has_curvature ? v16_mul(v16_mul(base, base), curvature) : base;
    v16_store_n(w, vector(old, grad, second, state, state + d, lanes, o), lanes);
}

LANES_INLINE void opt_walk(const struct opt_row *rows, size_t n, size_t d, const struct opt_params *p,
                           opt_vector *vector, bool l2_in_gradient, bool has_curvature)
{
    struct opt_vectors o = opt_spread(p);
    for (size_t r = 0; r < n; r++) {
        v16 scale = v16_set1(rows[r].scale);
        v16 curvature = v16_set1(rows[r].curvature);
        size_t i = 0;
        for (; i + 16 <= d; i += 16) { /* the constant 16 makes loads and stores whole */
            opt_one(rows[r].w + i, rows[r].g + i, rows[r].state + i, scale, curvature, d, 16, &o, vector,
                    l2_in_gradient, has_curvature);
        }
        if (i < d) {
            opt_one(rows[r].w + i, rows[r].g + i, rows[r].state + i, scale, curvature, d, d - i, &o, vector,
                    l2_in_gradient, has_curvature);
        }
    }
}

#define OPT(name, l2_in_gradient, has_curvature)                                                             \
    static void opt_##name(const struct opt_row *rows, size_t n, size_t d, const struct opt_params *p)       \
    {                                                                                                        \
        opt_walk(rows, n, d, p, name##_vector, l2_in_gradient, has_curvature);                               \
    }
OPT(sgd, true, false)
OPT(momentum, true, false)
OPT(adagrad, true, false)
OPT(adam, true, false)
OPT(ftrl, false, false)
OPT(newton, true, true)
#undef OPT

/* One accumulator a row: the mean of its squared gradients. */
static void opt_adagrad_row(const struct opt_row *rows, size_t n, size_t d, const struct opt_params *p)
{
    struct opt_vectors o = opt_spread(p);
    for (size_t r = 0; r < n && d > 0; r++) {
        float *w = rows[r].w;
        const float *g = rows[r].g;
        v16 scale = v16_set1(rows[r].scale);
        v16 squares = v16_set1(0.0F);
        for (size_t i = 0; i < d; i += 16) {
            size_t lanes = d - i < 16 ? d - i : 16;
            v16 grad = v16_fma(o.l2, v16_load_n(w + i, lanes), v16_mul(scale, v16_load_n(g + i, lanes)));
            squares = v16_fma(grad, grad, squares);
        }
        float mean = v16_sum(squares) / (float)d;
        float sum = fmaf(rows[r].state[0], p->decay, mean);
        rows[r].state[0] = sum;
        v16 rate = v16_mul(o.rate, v16_rsqrt(v16_set1(sum)));
        for (size_t i = 0; i < d; i += 16) {
            size_t lanes = d - i < 16 ? d - i : 16;
            v16 old = v16_load_n(w + i, lanes);
            v16 grad = v16_fma(o.l2, old, v16_mul(scale, v16_load_n(g + i, lanes)));
            v16_store_n(w + i, opt_move(old, v16_mul(rate, grad), rate, &o), lanes);
        }
    }
}

static float newton_variance(const struct opt_row *rows, size_t n, size_t d)
{
    float total = 0.0F;
    for (size_t r = 0; r < n; r++) {
        v16 sum = v16_set1(0.0F);
        for (size_t i = 0; i < d; i += 16) {
            size_t lanes = d - i < 16 ? d - i : 16;
            v16 g = v16_load_n(rows[r].g + i, lanes);
            v16 precision = v16_load_n(rows[r].state + i, lanes);
            if (lanes < 16)
                precision = v16_max(precision, v16_set1(1e-30F)); /* lanes beyond: no zero divisor */
            v16 root = v16_mul(g, v16_rsqrt(precision));
            sum = v16_fma(root, root, sum);
        }
        total += v16_sum(sum);
    }
    return total;
}

static void ftrl64_weights(double *w, const double *z, const double *sums, size_t n,
                           const struct ftrl64_params *p)
{
    d8 l1 = d8_set1(p->l1);
    for (size_t i = 0; i < n; i += 8) {
        size_t lanes = n - i < 8 ? n - i : 8;
        d8 zi = d8_load_n(z + i, lanes);
        d8 root = d8_sqrt(d8_load_n(sums + i, lanes));
        d8 scale = d8_add(d8_div(d8_add(d8_set1(p->beta), root), d8_set1(p->alpha)), d8_set1(p->l2));
        d8 over = d8_sub(d8_copysign(l1, zi), zi);
        d8_store_n(w + i, d8_keep_gt(d8_div(over, scale), d8_abs(zi), l1), lanes);
    }
}

static void ftrl64_update(double *z, double *sums, const double *w, const double *g, size_t n,
                          const struct ftrl64_params *p)
{
    d8 alpha = d8_set1(p->alpha);
    for (size_t i = 0; i < n; i += 8) {
        size_t lanes = n - i < 8 ? n - i : 8;
        d8 grad = d8_load_n(g + i, lanes);
        d8 old = d8_load_n(sums + i, lanes);
        d8 sum = d8_add(old, d8_mul(grad, grad));
        d8 sigma = d8_div(d8_sub(d8_sqrt(sum), d8_sqrt(old)), alpha);
        d8 moved = d8_sub(d8_add(d8_load_n(z + i, lanes), grad), d8_mul(sigma, d8_load_n(w + i, lanes)));
        d8_store_n(z + i, moved, lanes);
        d8_store_n(sums + i, sum, lanes);
    }
}
