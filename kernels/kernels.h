/*
 * The kernels of leat: the inner loops of a learner's step, each in several variants (scalar, AVX2, AVX-512)
 * that give the same bits.
 *
 * kernels_pick returns the table of the best variant that the CPU and the operating system support, or of the
 * variant that LEAT_KERNELS names. A learner keeps the table it was given. Kernels have no global state and
 * no locks, so any thread may call any kernel. Each learner counts the calls of its learn and predict
 * functions by variant (kernels_count).
 */
#ifndef LEAT_KERNELS_KERNELS_H
#define LEAT_KERNELS_KERNELS_H

#include "kernels/int8_scan.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Events in a block of a dense layer: one event per lane. */
#define KERNELS_BLOCK 16

/* Blocks of a slice in FFM (ffm_forward below): the number of fields, rounded up to a multiple of four, so
 * that a vector has four whole blocks. */
#define FFM_ROUND(fields) (((fields) + 3U) / 4U * 4U)

/*
 * One row to update: d weights and the optimizer's state (opt_state_floats(d) floats). The gradient of weight
 * i is scale * g[i]; newton's curvature is curvature * g[i]^2. Several rows may share one `g`; `g` overlaps
 * no `w` and no `state`. The rows of one call have distinct `w` and `state`.
 */
struct opt_row {
    float *w, *state;
    const float *g;
    float scale;
    float curvature;
};

struct opt_params {
    float rate;        /* learning rate (FTRL: alpha) */
    float l1, l2;      /* l1: soft threshold after the step (FTRL: in closed form); l2: gradient += l2 * w */
    float epsilon;     /* Adam: added to the square root; FTRL: beta */
    float decay;       /* share of an accumulator that an update keeps; 1 keeps all (AdaGrad, newton) */
    float beta1;       /* momentum; Adam: decay of the first moment */
    float beta2;       /* Adam: decay of the second moment */
    float correction1; /* Adam: 1 / (1 - beta1^t) */
    float correction2; /* Adam: 1 / (1 - beta2^t) */
    float step_max;    /* largest change of a weight in one step (not FTRL) */
};

/* An event of a linear learner. is_logistic: logistic loss, else squared loss. learns: false if the event is
 * only predicted. weight: factor of the loss. */
struct pairs_event {
    double bias; /* added to the dot product */
    float label, weight;
    bool is_logistic, learns;
};

struct attention;
struct attention_pages;

struct ftrl64_params {
    double alpha, beta, l1, l2;
};

/*
 * Contracts, for all variants. Pointers need the alignment of their element only, unless said otherwise;
 * 64-byte alignment is faster. Lengths may be any, 0 included. `out` overlaps no input unless said so.
 *
 * pool_mean: out[d] = mean of n rows of d floats, rows added in order; n = 0 gives zeros.
 *
 * sum_squares, dot: sixteen interleaved partial sums by fma, then the tree of v16_sum.
 *
 * pairs_dot: w has 2 d floats: d weights, then one float of state for each; d is a multiple of 16. For i < n
 * <= d, loads weight i from pairs[i][0] and its state from pairs[i][1] into w; pairs may lie anywhere outside
 * of w. Returns dot(w, values, d). pairs_store: writes the first n weights and states back to the pairs; two
 * pairs may lie at the same address only if their contents are the same.
 *
 * pairs_adagrad: a whole event: logit = bias + pairs_dot; if the event learns, opt_adagrad of all d lanes
 * with the gradient of the loss by the logit, then pairs_store. Returns the logit; returns NaN and changes no
 * weight if the logit or that gradient is not finite. `pairs` holds n pointers rounded up to a multiple of
 * four; the pointers from n on must be valid: their floats are read and overwritten, but not used.
 *
 * mix_keys: num_mix(key ^ seed). out may be keys.
 *
 * sigmoid_one, sigmoid64: 1 / (1 + e^-x), relative error < 1e-14 for |x| <= 700; NaN stays NaN. The same bits
 * alone and in an array. logloss64: log(1 + e^x) - label * x. out may be the input.
 *
 * fm_forward: sum[d] = sum of the rows; returns (|sum|^2 - sum of |row|^2) / 2 (Rendle 2010, eq. 5), by
 * slices of four dims: a slice's four lanes are added as (0 + 2) + (1 + 3), slices in order. d % 4 == 0.
 *
 * fm_backward: grads[n][d] = sum - row, the gradient of the interaction by each row.
 *
 * ffm_forward: rows[FFM_ROUND(n)]; row f is d / 4 slices of FFM_ROUND(n) blocks of four floats, block g of
 * slice s being dims 4s..4s+3 of v_f,g (Juan 2016, eq. 4). rows[n] and later rows must be `zero`, a row of
 * zeros. partners[n] gets rows of the same shape, block g of row f = v_g,f (0 where g = f): the gradient.
 * Returns the sum over pairs of fields: slices in order, each with sixteen lanes (pairs of fields in tiles of
 * four by four; a diagonal tile is counted half) and the tree of v16_sum.
 *
 * ffm_pairs_forward: the same partners, and products[f][g] = <v_f,g, v_g,f> in rows of FFM_ROUND(n) floats, 0
 * on the diagonal. ffm_pairs_backward: block g of partners[f] *= scales[f][g], in place.
 *
 * opt_*: one optimizer step on n rows of d weights each. Floats of state a row (opt_state_floats): sgd none;
 * momentum d; adagrad d; adagrad_row 1; adagrad_block d / 4 (d % 4 == 0); adam 2d (m, v); ftrl 2d (z, n);
 * newton d. AdaGrad: Duchi 2011. Lazy Adam: Kingma 2015, on touched rows only. FTRL-proximal: McMahan 2013,
 * alg. 1. Newton: a Gaussian posterior for each weight, diagonal (Graepel 2010): precision += curvature, step
 * = rate * gradient / precision.
 *
 * newton_variance: the sum of g[i]^2 / precision[i] over rows whose state is newton's: the variance of the
 * logit if the weights are independent and g is the logit's gradient; `scale` of the rows is not read. Each
 * row's sum by the tree of v16_sum, rows added in order.
 *
 * ftrl64_*: McMahan 2013, alg. 1 in double. ftrl64_weights: weights from (z, sums). ftrl64_update: updates z
 * and sums by the gradient g, computed at the weights w.
 *
 * dense_forward: out[n][16] = bias[n] + w[n][d] in[d][16], lanes are events; sums run over d in order.
 * dense_backward: din[d][16] = w^T dout[n][16], sums over n in order. dense_gradient: dw[n][d] = sum over the
 * sixteen events of dout[n][e] in_rows[e][d], in order; dbias[n] by the tree of v16_sum.
 *
 * dense_rows_to_lanes: lanes[n][16] = transpose of rows[16][n]; dense_lanes_to_rows is its inverse.
 *
 * blend: x = scale * x + y by fma, in place. relu_forward: in place. relu_backward: dx = x > 0 ? dx : 0, in
 * place.
 *
 * attention_*: attention.h; attention_*_pages: attention_pages.h.
 *
 * int8_quantize: the scale and the d bytes of a row (int8_scan.h), and zeros behind them up to a multiple of
 * four bytes. The row is finite. d <= INT8_DIMS_MAX here and below.
 *
 * int8_scores: out[q][16 n], for n blocks of sixteen items: the products of the items' bytes with those of
 * query q. Exact integers. int8_above: found[] = the indices i, in order, of the 16 n scores of one query with
 * (float)scores[i] * scales[i] > least; returns how many. An item whose scale is NaN is never found. `found`
 * has room for 16 n.
 *
 * init_uniform: n floats uniform in [-bound, bound); element i depends on (seed, i) alone.
 *
 * layer_norm_forward: each of n rows of d floats: out = (x - mean) / sqrt(variance + epsilon) * gain + bias;
 * stats[n][2] = the row's mean and 1 / sqrt(variance + epsilon), for the backward pass. The variance divides
 * by d. out may be x (which the backward pass needs, too). layer_norm_backward: dx = the gradient by x; dx may
 * be dout. layer_norm_gradient: dgain[d] and dbias[d] = the gradients by gain and bias, rows added in order
 * from 0; for a step of several slices one call a slice, and the slices' sums are added as slices.h says.
 *
 * silu_forward: x / (1 + e^-x), relative error < 1e-6; below -87 it is 0. gelu_forward: the approximation by
 * tanh, error < 1e-6 (1 + |x|). out may be x; NaN stays NaN. silu_backward, gelu_backward: dx = dout * the
 * derivative at x, for finite x; dx may be dout or x.
 *
 * dropout: in place, x[n][d]: an element is set to 0 or multiplied by 1 / (1 - rate) (Srivastava et al. 2014).
 * Whether it is kept depends on (keys[row], its place in the row, rate) alone, so the same call makes the
 * backward pass from the gradients. keys[r]: a hash, num_chance of num.h, which no other row or layer has.
 * rate: 0 up to below 1; it is rounded to a multiple of 2^-16, and the factor is that of the rounded rate.
 *
 * dots: out[i] = dot(query, rows[i], d), the same bits; the rows need not be in the cache. add_weighted: out[d] += weights[i] * rows[i], by fma,
 * rows in order; a row of weight 0 is not read. exp64: e^x, x limited to +-708, relative error < 1e-15; out
 * may be x.
 *
 * scores_max: the largest of n scores; -infinity for n = 0. Scores that are NaN may be passed over.
 * scores_exp_sum: the sum of e^((score - top) * scale); scores_weights: scores = factor * e^((score - top) *
 * scale - rest), in place. For scores up to top, scale > 0 and rest >= 0; a power below e^-87 is 0, and so is
 * that of -infinity; NaN stays NaN.
 */
struct kernels {
    const char *name;
#define KERNEL(type, name, args, bytes, flops) type(*name) args;
#include "kernels/kernels.def"
};

enum kernels_variant { KERNELS_SCALAR, KERNELS_AVX2, KERNELS_AVX512, KERNELS_VARIANTS };

/* Whether this CPU and operating system can run the variant. */
bool kernels_supports(enum kernels_variant variant);

/* The table of one variant; NULL if this machine does not support it. Static storage, valid for ever. */
const struct kernels *kernels_variant(enum kernels_variant variant);

/* The variant's name: "scalar", "avx2", "avx512". */
const char *kernels_variant_name(enum kernels_variant variant);

/*
 * Returns the best supported table, or the one that `forced` names ("scalar", "avx2", "avx512"; NULL or "" =
 * best). Returns NULL if `forced` is unknown or unsupported, with *reason set to a static text such as "not a
 * kernel variant"; else *reason is NULL. `reason` must not be NULL.
 */
const struct kernels *kernels_pick(const char *forced, const char **reason);

/* kernels_pick with `forced` from the environment variable LEAT_KERNELS. */
const struct kernels *kernels_pick_env(const char **reason);

/* Calls of a learner's learn and predict functions by variant; owned by the caller. kernels_count adds one
 * call for the variant that `kernels` belongs to. */
struct kernels_calls {
    uint64_t calls[KERNELS_VARIANTS];
};
void kernels_count(struct kernels_calls *calls, const struct kernels *kernels);

enum opt_kind {
    OPT_SGD,
    OPT_MOMENTUM,
    OPT_ADAGRAD,
    OPT_ADAGRAD_ROW,
    OPT_ADAGRAD_BLOCK,
    OPT_ADAM,
    OPT_FTRL,
    OPT_NEWTON,
    OPT_KINDS
};
typedef void (*opt_function)(const struct opt_row *, size_t, size_t, const struct opt_params *);

/* Floats of state that opt_<name> keeps for a row of d weights. */
static inline size_t opt_state_floats(enum opt_kind kind, size_t d)
{
    switch (kind) {
    case OPT_SGD: return 0;
    case OPT_MOMENTUM:
    case OPT_ADAGRAD:
    case OPT_NEWTON: return d;
    case OPT_ADAGRAD_ROW: return 1;
    case OPT_ADAGRAD_BLOCK: return (d + 3) / 4;
    case OPT_ADAM:
    case OPT_FTRL: return 2 * d;
    case OPT_KINDS: break;
    }
    assert(false);
    return 0;
}

/* The kernel opt_<kind> of a variant. */
opt_function opt_pick(const struct kernels *kernels, enum opt_kind kind);

/* What each float of a new row's state starts with: accumulators (AdaGrad, newton) `init`, all others 0. */
static inline float opt_state_init(enum opt_kind kind, float init)
{
    bool has_accumulator =
        kind == OPT_ADAGRAD || kind == OPT_ADAGRAD_ROW || kind == OPT_ADAGRAD_BLOCK || kind == OPT_NEWTON;
    return has_accumulator ? init : 0.0F;
}

#ifdef __cplusplus
}
#endif
#endif
