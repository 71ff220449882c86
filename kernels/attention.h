/*
 * Attention over a jagged batch, forward and backward: the contracts of attention_* in kernels.def. The rules
 * of kernels.h hold here, too: the same bits from every variant, any thread, no global state, no allocation.
 *
 * Rows are tokens. Event e has the rows from offsets[e] up to offsets[e + 1] of k and v, its window; a row's
 * position is its distance from the window's first row. Windows may be empty. Head h is the columns from h *
 * d up to (h + 1) * d of every row, so q, k and v may be columns of one matrix, [rows][3 * heads * d]. With
 * is_causal a query attends to the keys up to its own position, else to all keys of its window.
 *
 *   attention_softmax_*: out = sum of P v, P = softmax(scale q k) over the keys (Vaswani 2017, eq. 1)
 *   attention_silu_*:    out = sum of A v, A = SiLU(scale q k + bias) * weight_scale (Zhai 2024, eq. 2)
 *
 * Normalization of SiLU: weight_scale is one constant of the model, 1 / (longest window), as in the paper's
 * program. Neither the window's length nor the query's position enters, so a token's output does not
 * depend on later tokens, which a cache of keys and values requires, and it still tells how many keys match,
 * for which the paper leaves out softmax.
 *
 * Order: a query's keys go in tiles of ATTENTION_KEYS, counted from the window's first row; all sums run over
 * positions in order. Softmax is online: after each tile the sums are scaled to the new maximum (Dao 2022,
 * algorithm 1). Thus a query's result depends on q, on its position and on the keys it attends to, and on
 * nothing else: the same bits with is_causal whether later rows are there or not, and whether all rows are
 * queries or the last ones alone. This is for finite inputs; a NaN or an infinity may reach all rows of its
 * window.
 *
 * Queries: with query_offsets, event e has query_offsets[e + 1] - query_offsets[e] queries, at most its rows,
 * which are its last rows; they lie in the rows from query_offsets[e] on of q and out. NULL: every row is a
 * query. The backward kernels take NULL only.
 *
 * Dropout: each weight (P or A) is kept or not by dropout.h, with the key (seed, identities[e], part + h);
 * what is kept is divided by 1 - dropout. The backward kernels compute the same mask again.
 *
 * Softmax saves lse[h * rows + row], rows = the number of queries of the batch: the base 2 logarithm of the
 * sum of 2^s over the keys, s = scale q k log2(e). The backward kernel needs lse and out; SiLU needs neither.
 *
 * Precision: with ROW_BF16 the operands of every product are rounded to bf16, to nearest even: q, k, v and dout, the
 * weights (P before it is divided by its sum, or A; after dropout) and the gradients by scores. Products and their sums,
 * scores with their scale and bias, weights, lse, delta = sum of dout * out and the bias's gradients are fp32; dout is
 * rounded in delta, too. The sum of softmax's weights, which are not rounded there, is four sums: that of the keys whose
 * position / 2 is c modulo 4 is sums[c], and their sum is (sums[0] + sums[1]) + (sums[2] + sums[3]).
 *
 * Backward: dout is the gradient of the loss by out; dq, dk and dv are written (all rows of all windows), the
 * gradients of the bias tables are added to.
 *
 * Memory: outputs overlap no inputs and no other outputs, but may be columns of one matrix. Scratch memory of
 * attention_scratch_bytes(d), of ROW_BF16 attention_scratch_bf16_bytes(d), is the caller's, aligned to 64 bytes, and may
 * hold anything before and after. It does not depend on lengths.
 */
#ifndef LEAT_KERNELS_ATTENTION_H
#define LEAT_KERNELS_ATTENTION_H

#include "kernels/num.h"
#include "kernels/row_format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ATTENTION_DIM_MAX = 128,        /* of one head; d is a multiple of 16 */
    ATTENTION_QUERIES = 32,         /* queries of a block; of no influence on any bit of out, dq, dk, dv */
    ATTENTION_KEYS = 64,            /* keys of a tile */
    ATTENTION_TIME_BUCKETS = 121,   /* values of attention_time_bucket */
    ATTENTION_LENGTH_MAX = 1 << 24, /* rows of a window: positions are exact as floats */
};

/* Matrices: `stride` floats from a row to the next, at least heads * d. */
struct attention_in {
    const float *at;
    size_t stride;
};
struct attention_out {
    float *at;
    size_t stride;
};

/*
 * The relative bias of SiLU attention, for query i and key j: positions[i - j] + times[bucket(seconds
 * between them)]. `positions` points at the bias of distance 0; distances beyond positions_max (at least 0)
 * take the one of positions_max, on either side. With is_causal, entries of negative distance are not
 * accessed. Head h has the tables that begin h * positions_stride and h * times_stride floats on (0: all
 * heads share one). A table that is NULL adds nothing. query_seconds is by row of q, key_seconds by row of
 * k; the query's time may be that of the event to be predicted (as in the paper's program).
 * The gradients have the tables' shapes.
 */
struct attention_bias {
    const float *positions, *times; /* times: [ATTENTION_TIME_BUCKETS] */
    size_t positions_max, positions_stride, times_stride;
    const uint32_t *query_seconds, *key_seconds;
    float *dpositions, *dtimes;
};

struct attention {
    const uint32_t *offsets;       /* [events + 1] */
    const uint32_t *query_offsets; /* [events + 1] or NULL */
    uint32_t events, heads, d;
    bool is_causal;
    enum row_format precision; /* ROW_FP32, ROW_BF16 */
    float scale;
    struct attention_in q, k, v;
    struct attention_out out;          /* backward: read, by softmax alone */
    float *lse;                        /* softmax; forward: may be NULL */
    float weight_scale;                /* SiLU */
    const struct attention_bias *bias; /* SiLU; may be NULL */
    float dropout;                     /* in [0, 1) */
    uint64_t seed, part;
    const uint64_t *identities; /* [events]; NULL: an event's identity is its number */
    struct attention_in dout;   /* backward */
    struct attention_out dq, dk, dv;
    void *scratch;
};

/* Bytes of scratch memory: blocks of transposed rows, two tiles of weights, sums of time buckets. */
static inline size_t attention_scratch_bytes(size_t d)
{
    size_t floats = 4 * d * ATTENTION_QUERIES + 2 * (size_t)ATTENTION_KEYS * ATTENTION_QUERIES +
                    (size_t)ATTENTION_TIME_BUCKETS * 16;
    return floats * sizeof(float);
}

/* And blocks of rounded rows: of q, dout, k and v. */
static inline size_t attention_scratch_bf16_bytes(size_t d)
{
    size_t floats = 2 * d * (ATTENTION_QUERIES + (size_t)ATTENTION_KEYS);
    return attention_scratch_bytes(d) + floats * sizeof(float);
}

/* The bucket of a time difference: four buckets an octave of (seconds + 4), from 0 for none. The sum is a
 * float, as its leading bits are the bucket. */
static inline KERNELS_BOTH uint32_t attention_time_bucket(uint32_t a, uint32_t b)
{
    float x = (float)(a > b ? a - b : b - a) + 4.0F;
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (bits >> 21) - (uint32_t)(129 * 4);
}

#ifdef __cplusplus
}
#endif
#endif
