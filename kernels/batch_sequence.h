/*
 * Kernels over a whole batch, third part: what sequence models need besides (attention.h has the words). The rules
 * of batch.h hold here, too; only batch.h includes this header.
 *
 * Rows are tokens, d columns each, without gaps; on a GPU d is a multiple of 4. Windows: window w has the rows
 * from offsets[w] up to offsets[w + 1], and a row's position is its distance from its window's first row; windows
 * may be empty. offsets lie where the rows lie. n is offsets[windows], known to the host.
 */
#ifndef LEAT_KERNELS_BATCH_SEQUENCE_H
#define LEAT_KERNELS_BATCH_SEQUENCE_H

/*
 * layer_norm: x[n][d] -> out and stats[n][2], as layer_norm_forward of kernels.h; out may be x in the forward
 * pass alone. Backward, if
 * out_gradients is given: grads = the gradient by x, as layer_norm_backward, from x and stats; grads may be
 * out_gradients. out NULL: backward alone.
 */
struct batch_layer_norm {
    const float *x;
    uint32_t n, d;
    const float *gain, *bias; /* [d]; the backward pass does not read bias */
    float epsilon;
    float *out, *stats;
    const float *out_gradients;
    float *grads;
};

/*
 * layer_norm_gradient: of the rows of part p, parts[p] up to parts[p + 1] (parts NULL: chunks of BATCH_CHUNK
 * rows; parts_count is not read then), sums[p][2][d] = the gradients by gain and by bias, as layer_norm_gradient
 * of kernels.h. total[2][d] = the sums of part 0, plus those of the other parts, in order; zeros without parts.
 * `parts` lie where the rows lie; every row is in a part.
 */
struct batch_layer_norm_gradient {
    const float *x, *stats, *out_gradients;
    uint32_t n, d;
    const uint32_t *parts;
    uint32_t parts_count;
    float *sums;
    float *total;
};

/*
 * silu, element by element of x[n]: out = silu_forward of kernels.h; out may be x. Backward, if out_gradients is
 * given: grads = silu_backward; grads may be out_gradients. out NULL: backward alone; else out is not x with
 * out_gradients. On a GPU n may be any.
 */
struct batch_silu {
    const float *x;
    uint64_t n;
    float *out;
    const float *out_gradients;
    float *grads;
};

/*
 * gate: out[n][d] = a * b, element by element; the rows of a are a_stride floats apart (0: d), on a GPU a multiple of
 * 4, the others have no gaps. Backward, if out_gradients is given: a_grads = out_gradients * b, whose rows lie as those
 * of a, and b_grads = out_gradients * a. out NULL: backward alone.
 */
struct batch_gate {
    const float *a, *b;
    uint32_t n, d, a_stride;
    float *out;
    const float *out_gradients;
    float *a_grads, *b_grads;
};

/*
 * dropout: as dropout of kernels.h, in place, x[n][d]; the same call makes the backward pass from the gradients.
 * The key of a row is keys[row]; keys NULL: num_chance(seed, identities[w], part + position) in window w.
 */
struct batch_dropout {
    float *x;
    uint32_t n, d;
    float rate; /* 0 up to below 1 */
    const uint64_t *keys;
    const uint32_t *offsets;
    uint32_t windows;
    const uint64_t *identities; /* [windows] */
    uint64_t seed, part;
};

/*
 * add_positions: x[row] += table[position], rows of the table `stride` floats apart (0: d). No window is longer
 * than the table.
 *
 * positions_gradient: table[position] = the sum over the rows of that position: windows go in parts, part p being
 * the windows parts[p] up to parts[p + 1] (parts NULL: one part); a part's rows are added in order, from 0, then
 * the parts' sums are added in order. Written for `positions` positions, d columns each. `parts` lie where the
 * rows lie.
 */
struct batch_add_positions {
    float *x;
    const float *table;
    uint32_t n, d, stride;
    const uint32_t *offsets;
    uint32_t windows;
};
struct batch_positions_gradient {
    const float *out_gradients;
    uint32_t d, stride, positions;
    const uint32_t *offsets;
    uint32_t windows;
    const uint32_t *parts;
    uint32_t parts_count;
    float *table;
};

/*
 * attention_softmax, attention_silu: the kernels NAME_forward of attention.h, and with of.dout NAME_backward alone;
 * softmax then reads what the forward pass wrote to of.out and of.lse. offsets[0] is 0, and so is query_offsets[0].
 * What `of` points at lies where the rows lie, but for of.bias, which lies on the host and points there; of.scratch is
 * not read.
 *
 * The gradients by biases (SiLU) go by parts of windows: part p, the windows parts[p] up to parts[p + 1], adds to the
 * tables that lie p * part_stride floats behind of.bias->dpositions and dtimes, as a call of attention_silu_backward
 * with these windows alone. parts NULL: all windows are one part. Every window is in a part. `parts` lie where the rows
 * lie. With parts and dropout, of.identities is not NULL.
 *
 * On a GPU dk and dv have one owner by key, dq one by query, an entry of a part's table one by entry, and all sums have
 * a CPU's order: no atomics, and the same bits. Strides of matrices are multiples of 4 there. Scratch memory is a float
 * for each head of a query.
 *
 * of.precision, ROW_BF16: a GPU multiplies on tensor cores, which add in another order than a CPU (the tolerance in
 * kernels.def). All else holds there, too: one owner for each number, no atomics, the same call has the same bits each
 * time, and a window's numbers do not depend on the batch. A slope beyond bf16's range becomes infinite on a GPU, and the
 * largest number on a CPU.
 */
struct batch_attention {
    struct attention of;
    uint32_t queries; /* rows of of.q, known to the host */
    const uint32_t *parts;
    uint32_t parts_count;
    size_t part_stride;
    void *scratch;
    size_t scratch_bytes;
};

#endif
