/*
 * Kernels over a whole batch, second part: what a training step has around its embedding rows: linear
 * weights, the loss, dense layers and interactions. The rules of batch.h hold here, too, and this header is
 * included by that one alone.
 *
 * Matrices are row-major, one row an event, their rows `stride` floats apart (0: as many as they have
 * columns); on a GPU strides are multiples of 4, so that rows are aligned to 16 bytes (matmul takes others,
 * slowly). `adds`: a result is added to what lies there (one addition: out = out + result), else it takes its
 * place.
 */
#ifndef KERNELS_BATCH_TRAIN_H
#define KERNELS_BATCH_TRAIN_H

/*
 * pack: columns of events, as they are decoded, into rows: out[e][c] = columns[c * columns_stride + e], c <
 * count, e < n. A column's floats of events that are rejected (is_rejected[e], may be NULL) are read as 0.
 */
struct batch_pack {
    const float *columns;
    uint32_t columns_stride, count, n;
    const uint8_t *is_rejected;
    float *out;
    uint32_t stride;
};

/*
 * How a linear weight lies in its row, `at` bytes (it may be negative) from where rows[u] points: a float and
 * then opt_state_floats(kind, 1) floats of state, aligned to 4; or, is_double, FTRL's z and sum as two
 * doubles, aligned to 8, of which the weight is derived (ftrl64_weights of kernels.h, rounded to float). A
 * row is one weight: OPT_ADAGRAD_ROW and OPT_ADAGRAD_BLOCK are OPT_ADAGRAD here. OPT_NEWTON is none of a
 * batch's.
 */
struct batch_weights {
    void *const *rows; /* NULL: weight 0, nothing moves */
    int32_t at;
    bool is_double;
    enum opt_kind kind;
    struct opt_params params;
    struct ftrl64_params ftrl;
};

/* weights_read: out[u] = the weight of rows[u], u < *count <= n. Of `of` the optimizer is not read. */
struct batch_weights_read {
    struct batch_weights of;
    const uint32_t *count;
    uint32_t n;
    float *out;
};

/*
 * weights_forward: logits[e] = start[e] (NULL: base), then, each by fmaf and in this order: + bias[0] * 1
 * (NULL: none), + dense[c * dense_stride + e] * dense_weights[c] for c < dense_count, + scale *
 * weights[unique[p]] for the places p of event e: field after field, in order. Bags are fields * n, those of
 * a field together: bag f * n + e has the places from offsets[bag] up to offsets[bag + 1], and scale = 1 /
 * their count (a division of floats); no offsets: one place a bag, its own number, and scale = 1. BATCH_NONE
 * is passed over, but counted. A dense value of an event that is rejected (is_rejected[e], may be NULL) is
 * taken as 0; its weights are added as any other's. unique[p] < 2^31; dense_stride 0: n. start may be logits.
 */
struct batch_weights_forward {
    const float *start;
    float base;
    const float *bias;
    const float *dense, *dense_weights;
    uint32_t dense_stride, dense_count;
    const uint8_t *is_rejected;
    const float *weights;
    const uint32_t *unique, *offsets;
    uint32_t fields, n;
    float *logits;
};

/*
 * weights_update: the weight of rows[u] makes one step of its optimizer with the sum that segment_reduce of
 * d = 1 gives as its gradient, u < *in.count; a sum that is not finite leaves it, and rejected[0] (may be
 * NULL) is one more (rows that are NULL do not count). in.d is 1, and in.unit may be any. No two rows are the
 * same. FTRL's doubles step from the weight in double, by ftrl64_weights and ftrl64_update.
 */
struct batch_weights_update {
    struct batch_weights of;
    struct batch_segments in;
    uint32_t *rejected;
    void *scratch;
    size_t scratch_bytes;
};

/*
 * loss: the logit is logits[e] + more[e * more_stride] (more: may be NULL) in float, and is written to `sums`
 * (may be NULL, may be logits). The prediction p is sigmoid64's of it (logistic), or itself (squared).
 *
 *   slopes[e] = (float)((p - labels[e]) * weight) * scale
 *   weight    = weights[e] (NULL: 1) * class_weights[label > 0.5] * fake
 *   fake      = 1 + p for label > 0.5, (1 - p) * (1 + p) else
 *
 * from left to right, in double but for the last product. Class weights are the logistic loss's alone, and
 * fake is 1 without has_fake_negatives, which goes with the logistic loss.
 *
 * is_rejected[e] (0 or 1) stays 1 where it is, and becomes 1 where logit or slope is not finite; slopes[e] is
 * 0 then, and rejected[0] (may be NULL) is the number of all that are, added to what is there. Slopes lie
 * slopes_stride floats apart (0: 1).
 */
struct batch_loss {
    const float *logits, *more;
    uint32_t more_stride;
    const float *labels, *weights;
    float class_weights[2];
    bool is_squared, has_fake_negatives;
    float scale;
    uint32_t n;
    float *sums, *slopes;
    uint32_t slopes_stride;
    uint8_t *is_rejected;
    uint32_t *rejected;
};

/* mask_rows: x[e][0 .. columns) = 0 where is_rejected[e]; n rows. */
struct batch_mask_rows {
    float *x;
    uint32_t n, columns, stride;
    const uint8_t *is_rejected;
};

/* relu_mask: x[e][c] = 0 where y[e][c] is not above 0: slopes on their way back through max(x, 0), by its
 * output y; n rows. */
struct batch_relu_mask {
    float *x;
    uint32_t n, columns, stride;
    const float *y;
    uint32_t y_stride;
};

/*
 * clip: scale[0] = norm_max / norm where norm, the root of the sum of squares[i], i < count, in order and in
 * double, is above norm_max; else 1; 0 where it is not finite.
 */
struct batch_clip {
    const double *squares;
    uint32_t count;
    float norm_max;
    float *scale;
};

/*
 * matmul: c[m][n] = epilogue(a * b), a[m][k] (transposed: given as [k][m]), b[k][n] (transposed: given as
 * [n][k]). c[i][j] = fmaf(a[i][p], b[p][j], c[i][j]) for p from 0 up, begun at 0; with `adds` at what lies
 * there: a call for the first p, a multiple of BATCH_CHUNK, and one for the others is one call, bit for bit.
 * On a GPU in another order and, where precision says so, with both operands rounded to nearest in bf16 or
 * fp16 before (products and sums stay float); on a CPU precision does the same rounding, and AVX-512 BF16
 * makes bf16 faster, to the same bits. In fp16, numbers beyond its range become infinite, so that they can be
 * noticed, and a's are multiplied by `scale`, a power of two (0: 1), before they are rounded, the products
 * divided by it: small slopes keep their bits (Micikevicius et al. 2018, arXiv:1710.03740, section 3.2).
 *   MATMUL_BIAS       + bias[j]
 *   MATMUL_BIAS_RELU  + bias[j], then 0 if it is less (NaN stays; on a GPU it may become 0)
 *   MATMUL_MASK       where mask[i][j] > 0, else 0: the way back through a relu, by its output
 *   MATMUL_SUMS       nothing to c; sums[i] = a[i][0] + a[i][1] + ..., as given, not rounded: chunks of
 *                     BATCH_CHUNK each in order from 0, then the chunks' sums in order, on a GPU as well (the
 *                     bias's gradient, where a is the transposed slope)
 * adds goes with MATMUL_PLAIN, _SUMS (sums go on, too) and _MASK (begun at 0, masked, then added). No output
 * overlaps an input. Scratch memory: on a CPU what packing takes, on a GPU cuBLASLt's workspace and the
 * rounded operands.
 */
enum matmul_epilogue { MATMUL_PLAIN, MATMUL_BIAS, MATMUL_BIAS_RELU, MATMUL_MASK, MATMUL_SUMS };
struct batch_matmul {
    const float *a, *b;
    float *c;
    uint32_t m, n, k;
    uint32_t a_stride, b_stride, c_stride;
    bool a_is_transposed, b_is_transposed, adds;
    enum matmul_epilogue epilogue;
    const float *bias; /* [n] */
    const float *mask;
    uint32_t mask_stride;
    float *sums;               /* [m] */
    enum row_format precision; /* ROW_FP32, ROW_BF16, ROW_FP16 */
    float scale;               /* ROW_FP16 */
    void *scratch;
    size_t scratch_bytes;
};

/*
 * params_update: a dense parameter array w[n] and its state (opt_state_floats(kind, n) floats behind each
 * other) make one step with gradient g * scale[0] (scale NULL: 1), by opt_<kind> of kernels.h as one row; not
 * OPT_ADAGRAD_ROW (one sum over all of w) nor OPT_NEWTON. Each coordinate's gradient that is not finite is
 * taken as 0. w, g and state aligned to 16 bytes on a GPU, n a multiple of 4 there.
 */
struct batch_params_update {
    float *w, *state;
    const float *g;
    uint64_t n;
    enum opt_kind kind;
    struct opt_params params;
    const float *scale;
};

/*
 * dot_interaction (Naumov et al. 2019, arXiv:1906.00091, section 2): vectors[n][fields][d] (stride: floats
 * between events) -> out[n][first d of vectors, if copies_first; then <v_i, v_j> for i = 1 .. fields - 1, j =
 * 0 .. i - 1]. A product is the sum over d in sixteen interleaved partial sums by fma and the tree of v16_sum
 * (`dot` of kernels.h). Backward, if grads: grads[n][fields][d] (+)= by slopes, of the layout of out: for
 * each field i the slope of its copy (i = 0), then slope(i, j) * v_j by fmaf for j rising. out NULL: backward
 * alone; grads NULL: forward alone. fields: 1 up to BATCH_FIELDS_MAX.
 */
struct batch_dot_interaction {
    const float *vectors;
    uint32_t n, fields, d, stride;
    bool copies_first, adds;
    float *out;
    uint32_t out_stride;
    const float *slopes;
    uint32_t slopes_stride;
    float *grads;
    uint32_t grads_stride;
};

/*
 * cross (Wang et al. 2021, DCN V2, arXiv:2008.13535, eq. 1): out = x0 * z + x, element by element by fmaf,
 * z = W x + b having been made by matmul. All [n][columns]. Backward, if slopes (of out): z_slopes = slopes *
 * x0; x0_slopes = fmaf(slopes, z, x0_slopes) (added always); x_slopes = slopes (adds: + slopes). Where x is
 * x0, both x_slopes and x0_slopes may be the same matrix, which then gets fmaf(slopes, z, slopes + it),
 * whatever adds says. out NULL: backward alone.
 */
struct batch_cross {
    const float *x0, *x, *z;
    uint32_t n, columns;
    uint32_t x0_stride, x_stride, z_stride;
    float *out;
    uint32_t out_stride;
    const float *slopes;
    uint32_t slopes_stride;
    float *x0_slopes, *x_slopes, *z_slopes; /* strides: those of x0, x and z */
    bool adds;
};

/*
 * mixture (Ma et al. 2018, MMoE, eq. 6 and 7): out[e][j] = sum over experts k of gate[e][k] * inputs[e][k *
 * columns + j], by fmaf, k rising from 0; gate = softmax of gate_logits[e][0 .. experts) (largest taken off
 * first; e^x by v16_exp_below0 of lanes.h, 0 below -87; their sum in sixteen interleaved partial sums and the
 * tree of v16_sum; all NaN if a logit is NaN or infinite above, or all are below). gates[e][experts] keeps
 * them for the way back; out NULL: backward alone, which reads them. Backward, if slopes (of out):
 * input_slopes[e][k
 * * columns + j] (+)= gate_k * slopes[e][j]; gate_slopes[e][k] = gate_k * (q_k - sum_i gate_i q_i), q_k =
 * <slopes[e], inputs[e][k]> (`dot`'s order), the sum by fmaf, i rising from 0. experts: 1 up to
 * BATCH_EXPERTS_MAX.
 */
enum { BATCH_EXPERTS_MAX = 64 };
struct batch_mixture {
    const float *inputs, *gate_logits;
    uint32_t n, experts, columns;
    uint32_t inputs_stride, gates_stride; /* gates_stride: of gate_logits, gates and gate_slopes */
    float *out, *gates;
    uint32_t out_stride;
    const float *slopes;
    uint32_t slopes_stride;
    float *input_slopes, *gate_slopes;
    uint32_t input_slopes_stride;
    bool adds;
};

#endif
