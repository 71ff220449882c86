/*
 * Kernels over a whole batch, second part: linear weights, the loss, dense layers and interactions. The rules
 * of batch.h hold here, too; only batch.h includes this header.
 *
 * Matrices are row-major, one row an event, rows `stride` floats apart (0: the number of columns). On a GPU
 * strides are multiples of 4, so that rows are aligned to 16 bytes; matmul, mask_rows and relu_mask, and mixture for
 * gates, take other strides, too, but slowly.
 * `adds`: the result is added to the output (one addition: out = out + result); else it replaces the output.
 *
 * NAME_gradients: the gradient of the loss by the values of NAME, with its shape.
 */
#ifndef LEAT_KERNELS_BATCH_TRAIN_H
#define LEAT_KERNELS_BATCH_TRAIN_H

/*
 * pack: columns of decoded events become rows: out[e][c] = columns[c * columns_stride + e], c < count, e < n.
 * All columns of a rejected event (is_rejected[e]; may be NULL) are taken as 0.
 */
struct batch_pack {
    const float *columns;
    uint32_t columns_stride, count, n;
    const uint8_t *is_rejected;
    float *out;
    uint32_t stride;
};

/*
 * Where a linear weight lies: `at` bytes (may be negative) behind rows[u]. There lie the weight, a float, and
 * opt_state_floats(kind, 1) floats of state, aligned to 4; or, with is_double, FTRL's z and sum as two
 * doubles, aligned to 8, from which the weight is derived (ftrl64_weights of kernels.h, rounded to float). A
 * row has one weight, so OPT_ADAGRAD_ROW and OPT_ADAGRAD_BLOCK are OPT_ADAGRAD here. OPT_NEWTON is not
 * supported.
 */
struct batch_weights {
    void *const *rows; /* rows[u] NULL: weight 0, no update */
    int32_t at;
    bool is_double;
    enum opt_kind kind;
    struct opt_params params;
    struct ftrl64_params ftrl;
};

/* weights_read: out[u] = the weight of rows[u], u < *count <= n. `of.kind` and `of.params` are not read. */
struct batch_weights_read {
    struct batch_weights of;
    const uint32_t *count;
    uint32_t n;
    float *out;
};

/*
 * weights_forward: logits[e] = start[e] (start NULL: base), then, each by fmaf and in this order: + bias[0] *
 * 1 (bias NULL: nothing), + dense[c * dense_stride + e] * dense_weights[c] for c < dense_count, + scale *
 * weights[indices[p]] for the places p of event e, field after field, in order. There are fields * n bags,
 * the bags of a field together: bag f * n + e has the places from offsets[bag] up to offsets[bag + 1], and
 * scale = 1 / their count (a division of floats). offsets NULL: one place a bag, place = bag, and scale = 1.
 * A place with index BATCH_NONE adds nothing, but is counted. Dense values of a rejected event
 * (is_rejected[e]; may be NULL) are taken as 0; its sparse weights are added as any other's. indices[p] <
 * 2^31. dense_stride 0: n. start may be logits.
 */
struct batch_weights_forward {
    const float *start;
    float base;
    const float *bias;
    const float *dense, *dense_weights;
    uint32_t dense_stride, dense_count;
    const uint8_t *is_rejected;
    const float *weights;
    const uint32_t *indices, *offsets;
    uint32_t fields, n;
    float *logits;
};

/*
 * weights_update: the weight of rows[u], u < *in.count, makes one step of its optimizer; its gradient is the
 * sum that segment_reduce of d = 1 gives. A weight whose gradient is not finite does not change, and adds one
 * to rejected[0] (may be NULL; rows that are NULL are not counted). in.d is 1, in.unit may be any. All rows
 * are distinct. With is_double the step uses the weight in double, by ftrl64_weights and ftrl64_update.
 */
struct batch_weights_update {
    struct batch_weights of;
    struct batch_segments in;
    uint32_t *rejected;
    void *scratch;
    size_t scratch_bytes;
};

/*
 * loss: the logit is logits[e] + more[e * more_stride] (more may be NULL) in float, and is written to `sums`
 * (may be NULL, may be logits). The prediction p is sigmoid64 of the logit (logistic loss), or the logit
 * (squared loss). gradients[e] is the gradient of the loss by the logit:
 *
 *   gradients[e] = (float)((p - labels[e]) * weight) * scale
 *   weight    = weights[e] (NULL: 1) * class_weights[label > 0.5] * fake
 *   fake      = 1 + p for label > 0.5, (1 - p) * (1 + p) else
 *
 * computed from left to right, in double except for the last product. class_weights are used with the
 * logistic loss only; fake is 1 without has_fake_negatives, which is allowed with the logistic loss only.
 *
 * is_rejected[e] (0 or 1) is input and output: it becomes 1 where the logit or gradients[e] is not finite.
 * gradients[e] is 0 for a rejected event. The number of rejected events is added to rejected[0] (may be
 * NULL). Gradients lie gradients_stride floats apart (0: 1).
 */
struct batch_loss {
    const float *logits, *more;
    uint32_t more_stride;
    const float *labels, *weights;
    float class_weights[2];
    bool is_squared, has_fake_negatives;
    float scale;
    uint32_t n;
    float *sums, *gradients;
    uint32_t gradients_stride;
    uint8_t *is_rejected;
    uint32_t *rejected;
};

/* mask_rows: x[e][0 .. columns) = 0 where is_rejected[e]; n rows. */
struct batch_mask_rows {
    float *x;
    uint32_t n, columns, stride;
    const uint8_t *is_rejected;
};

/* add_rows: x[e][c] = x[e][c] + y[e][c], c < columns; n rows. */
struct batch_add_rows {
    float *x;
    const float *y;
    uint32_t n, columns, x_stride, y_stride;
};

/* relu_mask: x[e][c] = 0 where y[e][c] is not above 0; n rows. The backward pass of y = max(input, 0): x is
 * the gradient by y, and becomes the gradient by the input. */
struct batch_relu_mask {
    float *x;
    uint32_t n, columns, stride;
    const float *y;
    uint32_t y_stride;
};

/*
 * clip: norm = the root of the sum of squares[i], i < count, in order and in double. scale[0] = norm_max /
 * norm if norm is above norm_max; 0 if norm is not finite; else 1.
 */
struct batch_clip {
    const double *squares;
    uint32_t count;
    float norm_max;
    float *scale;
};

/*
 * matmul: c[m][n] = epilogue(a * b), a[m][k] (transposed: given as [k][m]), b[k][n] (transposed: given as
 * [n][k]). c[i][j] = fmaf(a[i][p], b[p][j], c[i][j]) for p from 0 up, starting at 0, or with `adds` at the
 * old c[i][j]. So two calls, one for the first p, a multiple of BATCH_CHUNK, and one for the rest, give the
 * bits of one call. A GPU uses another order.
 *
 * precision: ROW_BF16 and ROW_FP16 round both operands to nearest before multiplying (products and sums stay
 * float), on a CPU and on a GPU; AVX-512 BF16 makes bf16 faster, with the same bits. In fp16, numbers beyond
 * the range become infinite, so that they can be noticed; a's elements are multiplied by `scale`, a power of
 * two (0: 1), before they are rounded, and the products divided by it, so that small gradients keep their
 * bits (Micikevicius et al. 2018, arXiv:1710.03740, section 3.2).
 *
 *   MATMUL_BIAS       + bias[j]
 *   MATMUL_BIAS_RELU  + bias[j], then 0 if the sum is below 0 (NaN stays; on a GPU it may become 0)
 *   MATMUL_MASK       the sum where mask[i][j] > 0, else 0: the backward pass of a relu, whose output is mask
 *   MATMUL_SUMS       c as with MATMUL_PLAIN, and sums[i] = a[i][0] + a[i][1] + ... of the elements before
 *                     they are rounded: chunks of BATCH_CHUNK each in order from 0, then the chunks' sums in
 *                     order, on a GPU as well. These sums are the bias's gradient if a is the
 *                     transposed gradient of the layer's output
 *
 * adds is allowed with MATMUL_PLAIN, MATMUL_SUMS (added to the old sums, too) and MATMUL_MASK (summed from 0,
 * masked, then added to c). No output overlaps an input. Scratch memory: on a CPU the packed operands, on a
 * GPU cuBLASLt's workspace and the rounded operands.
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
    float scale;               /* of a, while rounded; ROW_FP16 only */
    void *scratch;
    size_t scratch_bytes;
};

/*
 * params_update: a dense parameter array w[n] and its state (the opt_state_floats(kind, n) floats lie one
 * array behind the other) make one step with gradient g * scale[0] (scale NULL: 1), by opt_<kind> of
 * kernels.h as one row. OPT_ADAGRAD_ROW and OPT_ADAGRAD_BLOCK, whose sums several weights share, and
 * OPT_NEWTON are not supported. A gradient that is not finite is taken as 0, element by element. On a GPU w, g
 * and state are aligned to 16 bytes and n is a multiple of 4.
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
 * (`dot` of kernels.h). Backward, if grads: grads[n][fields][d] = for field i the gradient of its copy (i = 0
 * only), then fmaf of gradient(i, j) * v_j, j rising; with adds the result is added to grads. out NULL:
 * backward alone; grads NULL: forward alone. fields: 1 up to BATCH_FIELDS_MAX.
 */
struct batch_dot_interaction {
    const float *vectors;
    uint32_t n, fields, d, stride;
    bool copies_first, adds;
    float *out;
    uint32_t out_stride;
    const float *out_gradients;
    uint32_t out_gradients_stride;
    float *grads;
    uint32_t grads_stride;
};

/*
 * products (Xiao et al. 2017, Attentional Factorization Machines, arXiv:1708.04617, eq. 3): vectors[n][fields][d]
 * (stride: floats between events) -> out[n][v_i * v_j, element by element, for i = 1 .. fields - 1, j = 0 ..
 * i - 1]: d columns for each pair. Backward, if grads: grads[n][fields][d] = for field i the sum of
 * gradient(i, j) * v_j by fmaf, j rising, from 0; with adds the result is added to grads. out NULL: backward
 * alone; grads NULL: forward alone. fields: 1 up to BATCH_FIELDS_MAX.
 */
struct batch_products {
    const float *vectors;
    uint32_t n, fields, d, stride;
    bool adds;
    float *out;
    uint32_t out_stride;
    const float *out_gradients;
    uint32_t out_gradients_stride;
    float *grads;
    uint32_t grads_stride;
};

/*
 * cross (Wang et al. 2021, DCN V2, arXiv:2008.13535, eq. 1): out = x0 * z + x, element by element by fmaf; z
 * = W x + b comes from matmul. All matrices are [n][columns]. out NULL: backward alone. Backward, if g =
 * out_gradients is given:
 *
 *   z_gradients  = g * x0
 *   x0_gradients = fmaf(g, z, x0_gradients), always added
 *   x_gradients  = g, with adds x_gradients + g
 *
 * Where x is x0, x_gradients and x0_gradients may be one matrix s, which then becomes fmaf(g, z, g + s),
 * whatever adds says.
 */
struct batch_cross {
    const float *x0, *x, *z;
    uint32_t n, columns;
    uint32_t x0_stride, x_stride, z_stride;
    float *out;
    uint32_t out_stride;
    const float *out_gradients;
    uint32_t out_gradients_stride;
    float *x0_gradients, *x_gradients, *z_gradients; /* strides: those of x0, x and z */
    bool adds;
};

/*
 * mixture (Ma et al. 2018, MMoE, eq. 6 and 7): out[e][j] = sum over experts k of gate[e][k] * inputs[e][k *
 * columns + j], by fmaf, k rising, from 0. gate = softmax of gate_logits[e][0 .. experts): the largest logit
 * is subtracted first; e^x by v16_exp_below0 of lanes.h, 0 below -87; their sum in sixteen interleaved
 * partial sums and the tree of v16_sum; all gates are NaN if a logit is NaN or +infinity, or all are
 * -infinity. gates[e][experts] keeps them for the backward pass; out NULL: backward alone, which reads gates.
 *
 * Backward, if out_gradients is given, q_k = <out_gradients[e], inputs[e][k]> in the order of `dot`:
 *
 *   input_gradients[e][k * columns + j] = gate_k * out_gradients[e][j], added with adds
 *   gate_gradients[e][k] = gate_k * (q_k - sum_i gate_i q_i), the sum by fmaf, i rising, from 0
 *
 * experts: 1 up to BATCH_EXPERTS_MAX.
 */
enum {
    BATCH_EXPERTS_MAX = BATCH_FIELDS_MAX * (BATCH_FIELDS_MAX - 1) / 2
}; /* an expert for each pair of fields */
struct batch_mixture {
    const float *inputs, *gate_logits;
    uint32_t n, experts, columns;
    uint32_t inputs_stride, gates_stride; /* gates_stride: of gate_logits, gates and gate_gradients */
    float *out, *gates;
    uint32_t out_stride;
    const float *out_gradients;
    uint32_t out_gradients_stride;
    float *input_gradients, *gate_gradients;
    uint32_t input_gradients_stride;
    bool adds;
};

#endif
