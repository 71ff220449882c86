/*
 * The arithmetic of the optimizers, one vector of weights at a time, in the words of lanes.h. The only source
 * of optimizer steps on a CPU (optimizer.inc.h, adagrad_block.inc.h, batch_weights.inc.h) and on a GPU
 * (cuda/update.cu and cuda/weights.cu, with the words of cuda/lanes.cuh). Compiled as C and as C++.
 */
#ifndef LEAT_KERNELS_OPTIMIZER_STEP_INC_H
#define LEAT_KERNELS_OPTIMIZER_STEP_INC_H

struct opt_vectors {
    v16 rate, l1, l2, epsilon, decay, beta1, beta2, rest1, rest2, correction1, correction2, step_max;
    bool has_l1;
};

LANES_INLINE struct opt_vectors opt_spread(const struct opt_params *p)
{
    struct opt_vectors o;
    o.rate = v16_set1(p->rate);
    o.l1 = v16_set1(p->l1);
    o.l2 = v16_set1(p->l2);
    o.epsilon = v16_set1(p->epsilon);
    o.decay = v16_set1(p->decay);
    o.beta1 = v16_set1(p->beta1);
    o.beta2 = v16_set1(p->beta2);
    o.rest1 = v16_set1(1.0F - p->beta1);
    o.rest2 = v16_set1(1.0F - p->beta2);
    o.correction1 = v16_set1(p->correction1);
    o.correction2 = v16_set1(p->correction2);
    o.step_max = v16_set1(p->step_max);
    o.has_l1 = p->l1 > 0.0F;
    return o;
}

/* w - step, where step is limited to +-step_max; then soft thresholding by threshold_rate * l1 (the proximal
 * step of l1: Duchi 2009). */
LANES_INLINE v16 opt_move(v16 w, v16 step, v16 threshold_rate, const struct opt_vectors *o)
{
    w = v16_sub(w, v16_clamp(step, o->step_max));
    if (!o->has_l1)
        return w;
    v16 left = v16_sub(v16_abs(w), v16_mul(threshold_rate, o->l1));
    return v16_copysign(v16_max(left, v16_set1(0.0F)), w);
}

/* The gradient of a row's vector: scale * g + l2 * w. */
LANES_INLINE v16 opt_gradient(v16 w, v16 g, v16 scale, const struct opt_vectors *o)
{
    return v16_fma(o->l2, w, v16_mul(scale, g));
}

/* x where it is finite, else 0. */
LANES_INLINE v16 opt_finite(v16 x)
{
    return v16_keep_gt(x, v16_set1(INFINITY), v16_abs(x));
}

LANES_INLINE v16 momentum_step(v16 w, v16 grad, v16 *velocity, const struct opt_vectors *o)
{
    *velocity = v16_fma(o->beta1, *velocity, grad);
    return opt_move(w, v16_mul(o->rate, *velocity), o->rate, o);
}

/* The factor of AdaGrad's gradients: rate / sqrt(sum). */
LANES_INLINE v16 adagrad_rate(v16 sum, const struct opt_vectors *o)
{
    return v16_mul(o->rate, v16_rsqrt(sum));
}

LANES_INLINE v16 adagrad_step(v16 w, v16 grad, v16 *sum, const struct opt_vectors *o)
{
    *sum = v16_fma(*sum, o->decay, v16_mul(grad, grad));
    v16 rate = adagrad_rate(*sum, o);
    return opt_move(w, v16_mul(rate, grad), rate, o);
}

LANES_INLINE v16 adam_step(v16 w, v16 grad, v16 *m, v16 *v, const struct opt_vectors *o)
{
    *m = v16_fma(o->beta1, *m, v16_mul(o->rest1, grad));
    *v = v16_fma(o->beta2, *v, v16_mul(o->rest2, v16_mul(grad, grad)));
    v16 root = v16_add(v16_sqrt(v16_mul(*v, o->correction2)), o->epsilon);
    return opt_move(w, v16_div(v16_mul(o->rate, v16_mul(*m, o->correction1)), root), o->rate, o);
}

LANES_INLINE v16 ftrl_step(v16 w, v16 grad, v16 *z, v16 *sum, const struct opt_vectors *o)
{
    v16 old = *sum;
    *sum = v16_fma(grad, grad, old);
    v16 root = v16_sqrt(*sum);
    v16 sigma = v16_div(v16_sub(root, v16_sqrt(old)), o->rate);
    *z = v16_add(*z, v16_fnma(sigma, w, grad));
    v16 over = v16_sub(v16_copysign(o->l1, *z), *z);
    v16 scale = v16_add(v16_div(v16_add(o->epsilon, root), o->rate), o->l2);
    return v16_keep_gt(v16_div(over, scale), v16_abs(*z), o->l1);
}

LANES_INLINE v16 newton_step(v16 w, v16 grad, v16 curvature, v16 *precision, const struct opt_vectors *o)
{
    *precision = v16_fma(*precision, o->decay, curvature);
    v16 root = v16_rsqrt(*precision);
    v16 rate = v16_mul(o->rate, v16_mul(root, root));
    return opt_move(w, v16_mul(rate, grad), rate, o);
}

/* Floats of state that lie beside each weight; 0 for adagrad_row and adagrad_block, whose accumulators serve
 * several weights. */
LANES_INLINE int opt_states(enum opt_kind kind)
{
    if (kind == OPT_ADAM || kind == OPT_FTRL)
        return 2;
    return kind == OPT_MOMENTUM || kind == OPT_ADAGRAD || kind == OPT_NEWTON;
}

/*
 * One step of the optimizers that go weight by weight (not adagrad_row, nor adagrad_block): returns the new
 * weights and updates s0 and s1, the first and second state array, as far as the optimizer has them. The
 * gradient is scale * g.
 */
LANES_INLINE v16 opt_step(enum opt_kind kind, v16 w, v16 g, v16 scale, v16 curvature, v16 *s0, v16 *s1,
                          const struct opt_vectors *o)
{
    switch (kind) {
    case OPT_SGD: return opt_move(w, v16_mul(o->rate, opt_gradient(w, g, scale, o)), o->rate, o);
    case OPT_MOMENTUM: return momentum_step(w, opt_gradient(w, g, scale, o), s0, o);
    case OPT_ADAGRAD: return adagrad_step(w, opt_gradient(w, g, scale, o), s0, o);
    case OPT_ADAM: return adam_step(w, opt_gradient(w, g, scale, o), s0, s1, o);
    case OPT_FTRL: return ftrl_step(w, v16_mul(scale, g), s0, s1, o);
    case OPT_NEWTON:
        return newton_step(w, opt_gradient(w, g, scale, o), v16_mul(v16_mul(g, g), curvature), s0, o);
    default: return w;
    }
}

/* adagrad_row: the new value of its one accumulator. squares: the sum of the d gradients' squares. */
LANES_INLINE float adagrad_row_sum(float old, float squares, float d, float decay)
{
    return fmaf(old, decay, squares / d);
}

/* FTRL in double (McMahan 2013, alg. 1): weights from z and `sum`, the sums of squared gradients. */
LANES_INLINE d8 ftrl64_weight(d8 z, d8 sum, const struct ftrl64_params *p)
{
    d8 l1 = d8_set1(p->l1);
    d8 scale = d8_add(d8_div(d8_add(d8_set1(p->beta), d8_sqrt(sum)), d8_set1(p->alpha)), d8_set1(p->l2));
    d8 over = d8_sub(d8_copysign(l1, z), z);
    return d8_keep_gt(d8_div(over, scale), d8_abs(z), l1);
}

/* Updates z and sum by the gradient `grad`, computed at the weights w. */
LANES_INLINE void ftrl64_step(d8 *z, d8 *sum, d8 w, d8 grad, const struct ftrl64_params *p)
{
    d8 old = *sum;
    *sum = d8_add(old, d8_mul(grad, grad));
    d8 sigma = d8_div(d8_sub(d8_sqrt(*sum), d8_sqrt(old)), d8_set1(p->alpha));
    *z = d8_sub(d8_add(*z, grad), d8_mul(sigma, w));
}

/*
 * adagrad_block, whose accumulators serve four weights each: the four lanes of a group in `sum` hold the same
 * accumulator.
 */
LANES_INLINE v16 block_step(v16 w, v16 grad, v16 *sum, const struct opt_vectors *o)
{
    v16 mean = v16_mul(v16_group_sum(v16_mul(grad, grad)), v16_set1(0.25F));
    *sum = v16_fma(*sum, o->decay, mean);
    v16 rate = adagrad_rate(*sum, o);
    return opt_move(w, v16_mul(rate, grad), rate, o);
}

/*
 * Whether a row may take the short form of the step: no l1, no l2 and no step_max that can be reached. A step
 * is at most |gradient| / sqrt(mean of four squares) = 2 rates long, so it needs no limit; and as the
 * gradient is scale * g and nothing else, scale is multiplied once into the row's factors: block_mean for the
 * squares of g, block_rate for the steps. The bound on scale keeps squares finite.
 */
LANES_INLINE bool block_is_free(float scale, const struct opt_params *p)
{
    return p->l1 == 0.0F && p->l2 == 0.0F && p->step_max >= 2.001F * p->rate && fabsf(scale) <= 1e9F;
}
LANES_INLINE v16 block_mean(float scale)
{
    return v16_set1(scale * scale * 0.25F);
}
LANES_INLINE v16 block_rate(float scale, const struct opt_params *p)
{
    return v16_set1(p->rate * scale);
}
/* Updates the accumulators `sum` from `squares`, the sums of g's squares; returns the factor of g. */
LANES_INLINE v16 block_free_rates(v16 *sum, v16 squares, v16 mean, v16 rate, const struct opt_vectors *o)
{
    *sum = v16_fma(*sum, o->decay, v16_mul(squares, mean));
    return v16_mul(rate, v16_rsqrt(*sum));
}
LANES_INLINE v16 block_free_move(v16 w, v16 g, v16 rates)
{
    return v16_fnma(rates, g, w);
}

#endif
