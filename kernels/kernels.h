/*
 * The kernels of leat: what a learner's step is made of, each in several variants that give the same bits.
 *
 * kernels_pick chooses the best variant the CPU and the operating system support, or the one LEAT_KERNELS
 * names. A learner keeps the table of pointers it was given; nothing here is global or locked, so any thread
 * may call any kernel. What a learner ran is counted by itself, a call of learn() at a time (kernels_count).
 */
#ifndef KERNELS_H
#define KERNELS_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A block of dense work is sixteen events: one a lane. */
#define KERNELS_BLOCK 16

/* FFM: partner blocks a slice are padded to a multiple of four fields, so that a vector holds four of them.
 */
#define FFM_ROUND(fields) (((fields) + 3U) / 4U * 4U)

/*
 * One row to update: d weights and the optimizer's state (opt_state_floats(d) floats).
 * The gradient is scale * g[i]; newton's curvature is curvature * g[i]^2. `g` may be read by several rows; it
 * never overlaps a `w` or `state`. Two rows of one call have different ones.
 */
struct opt_row {
    float *w, *state;
    const float *g;
    float scale;
    float curvature;
};

struct opt_params {
    float rate;    /* learning rate (FTRL: alpha) */
    float l1, l2;  /* l1: soft threshold after the step (FTRL: in closed form); l2: added to the gradient */
    float epsilon; /* Adam: beside the root; FTRL: beta */
    float decay;   /* what is kept of an accumulator at each update; 1 keeps all (AdaGrad, newton) */
    float beta1;   /* momentum; Adam's first */
    float beta2;   /* Adam's second */
    float correction1; /* Adam: 1 / (1 - beta1^t) */
    float correction2; /* Adam: 1 / (1 - beta2^t) */
    float step_max;    /* each coordinate moves at most this far in one step (not FTRL) */
};

/* What a linear learner's step needs to know of an event. Squared loss has no is_logistic. */
struct pairs_event {
    double bias; /* added to the dot product */
    float label, weight;
    bool is_logistic, learns;
};

struct ftrl64_params {
    double alpha, beta, l1, l2;
};

/*
 * Contracts, for all variants. Pointers need the alignment of their element only, unless said otherwise;
 * lengths may be any, 0 included; "out" never overlaps an input unless said so. 64-byte alignment is faster.
 *
 * pool_sum, pool_mean: out[d] = sum (mean) of n rows of d floats, rows added in order; n = 0 gives zeros.
 *
 * sum_squares, dot: sixteen interleaved partial sums in fma, then the tree of v16_sum.
 *
 * pairs_dot: w[d] and the state behind it, w + d, d a multiple of 16; the first n <= d lanes of both are read
 * from pairs[i][0] and [1], which may lie anywhere outside of w; then dot(w, values, d). pairs_store: writes
 * the first n lanes of both back; no two pairs of different content are the same place.
 *
 * pairs_adagrad: a whole event: logit = bias + pairs_dot, then, if it learns, opt_adagrad of all d lanes with
 * the loss's slope at the logit, and pairs_store. Returns the logit; NaN if it or the slope is not finite:
 * then nothing has moved. `pairs` holds places up to a multiple of four; those from n on are read and
 * written, but not used.
 *
 * mix_keys: num_mix(key ^ seed). out may be keys.
 *
 * sigmoid_one, sigmoid64: 1 / (1 + e^-x), relative error < 1e-14 for |x| <= 700; NaN stays NaN. The same bits
 * alone and in an array. logloss64: log(1 + e^x) - label * x. out may be the input.
 *
 * fm_forward: sum[d] = sum of the rows; returns (|sum|^2 - sum of |row|^2) / 2 (Rendle 2010, eq. 5), by
 * slices of four dims: a slice's four lanes add as (0 + 2) + (1 + 3), slices in order. d % 4 == 0.
 *
 * fm_backward: grads[n][d] = sum - row, the gradient of the interaction by each row.
 *
 * ffm_forward: rows[FFM_ROUND(n)]; row f is d / 4 slices of FFM_ROUND(n) blocks of four floats, block g of
 * slice s being dims 4s..4s+3 of v_f,g (Juan 2016, eq. 4). Rows n and beyond are `zero`, a row of zeros.
 * partners[n] gets rows of the same shape, block g of row f = v_g,f (its own block 0): the gradient.
 * Returns the sum over pairs: slices in order, each with sixteen lanes (pairs of fields in tiles of four by
 * four; a tile with itself is counted half) and the tree.
 *
 * ffm_pairs_forward: the same partners, and products[f][g] = <v_f,g, v_g,f> in rows of FFM_ROUND(n) floats,
 * 0 on the diagonal. ffm_pairs_backward: block g of partners[f] *= scales[f][g], in place.
 *
 * opt_*: one optimizer step on n rows of d weights each, whose state is (opt_state_floats):
 * sgd none; momentum d; adagrad d; adagrad_row 1; adagrad_block d / 4 (d % 4 == 0); adam 2d (m, v); ftrl 2d
 * (z, n); newton d. AdaGrad: Duchi 2011. Lazy Adam: Kingma 2015 on touched rows. FTRL-proximal: McMahan 2013,
 * alg. 1. Newton: a Gaussian posterior a weight, diagonal (Graepel 2010): precision += curvature, step = rate
 * * gradient / precision.
 *
 * newton_variance: the sum of g[i]^2 / precision[i] over rows whose state is newton's, times (scale /
 * slope)^2 taken as 1: what the logit's uncertainty is if weights are independent. Row by row, each by the
 * tree.
 *
 * ftrl64_*: McMahan 2013, alg. 1 in double: weights from (z, sums); update of both by gradient g at w.
 *
 * dense_forward: out[n][16] = bias[n] + w[n][d] in[d][16], lanes are events; sums run over d in order.
 * dense_backward: din[d][16] = w^T dout[n][16], sums over n in order. dense_gradient: dw[n][d] = sum over the
 * sixteen events of dout[n][e] in_rows[e][d], in order; dbias[n] by the tree.
 *
 * dense_rows_to_lanes: lanes[n][16] = transpose of rows[16][n]; dense_lanes_to_rows is its inverse.
 *
 * blend: x = scale * x + y by fma, in place. relu_forward: in place. relu_backward: dx = x > 0 ? dx : 0, in
 * place. sigmoid: element by element. logloss_gradient: sigmoid(logit) - label.
 *
 * init_uniform: n floats uniform in [-bound, bound); element i depends on (seed, i) alone.
 */
struct kernels {
    const char *name;
#define KERNEL(type, name, args, tolerance, class, bytes, flops) type(*name) args;
#include "kernels/kernels.def"
};

enum kernels_variant { KERNELS_SCALAR, KERNELS_AVX2, KERNELS_AVX512, KERNELS_VARIANTS };

/* Whether this CPU and operating system run a variant. */
bool kernels_supports(enum kernels_variant variant);

/* The table of one variant; NULL if it is not supported here. Static storage, valid for ever. */
const struct kernels *kernels_variant(enum kernels_variant variant);

/* The variant's name: "scalar", "avx2", "avx512". */
const char *kernels_variant_name(enum kernels_variant variant);

/*
 * The best supported table, or the one `forced` names ("scalar", "avx2", "avx512"; NULL or "" = best).
 * NULL if `forced` is unknown or unsupported; then *reason is a static text such as "not a kernel variant".
 */
const struct kernels *kernels_pick(const char *forced, const char **reason);

/* kernels_pick by the environment variable LEAT_KERNELS. */
const struct kernels *kernels_pick_env(const char **reason);

/* Calls of learners' step and predict functions per variant, owned and summed by the caller. */
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

/* Floats of state that opt_<name> keeps for d weights. */
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

opt_function opt_pick(const struct kernels *kernels, enum opt_kind kind);

/* The n-th float of a row's state when the row is made (accumulators start at `init`, the rest at 0). */
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
