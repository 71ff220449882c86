/*
 * Attention in bf16 (kernels/attention.h), query by query in double, with the operands of products rounded as the kernels
 * round them, and how far from it a kernel's numbers may be:
 *
 * bound: a weight or a slope is rounded after sums that a kernel and a tensor core make in an order of their own. So one
 * that lies between two bf16 may become either: a share `step` of it, the tolerance of kernels.def. To that come the errors
 * of sums of fp32 (kernels.def, matmul): of scores, of the exponential, and of the sums of weighted rows.
 * near: without `step`, for numbers all of whose weights were rounded alike.
 */
#ifndef LEAT_TESTS_UNIT_KERNELS_BATCH_ATTENTION_PLAIN_H
#define LEAT_TESTS_UNIT_KERNELS_BATCH_ATTENTION_PLAIN_H

#include "kernels/batch.h"

enum plain_kind { PLAIN_OUT, PLAIN_LSE, PLAIN_DQ, PLAIN_DK, PLAIN_DV, PLAIN_TABLES, PLAIN_KINDS };

/* By row and column of all heads, [rows][heads * d]; lse: [heads][rows]; tables: what is added to the gradients by the
 * biases, as they lie behind `tables`. */
struct attention_plain {
    double *value[PLAIN_KINDS], *bound[PLAIN_KINDS], *near[PLAIN_KINDS];
    size_t rows, queries, width;
    const float *tables;
};

/* With of.dout the backward pass, of softmax from of.out and of.lse; else the forward pass. All of `of` and `parts` is the
 * host's; the gradients by the biases lie in tables[tables_floats]. To be freed. */
struct attention_plain attention_plain(const struct batch_attention *b, bool is_silu, double step,
                                       const float *tables, size_t tables_floats);
void attention_plain_free(struct attention_plain *p);

#endif
